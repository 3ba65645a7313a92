"""Logged rollouts to be replayed: rewards of each pool in the order in which they were drawn, or counts alone.

A log is laid out afresh for every pass over it: in logged order, in a random order without
replacement, or drawn with replacement (bootstrap). Random choices are counter-based uniforms,
so a seed fixes them, and all policies of a pass see the same responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.uniforms import Stream, uniform, uniform_rows
from sim.counts import Counts, all_tokens
from sim.readers import RolloutLog

__all__ = ["CountLog", "Layout", "Log", "Order", "RewardLog", "to_replay"]


class Order(StrEnum):
    """In what order a prompt's logged responses are drawn."""

    logged = "logged"
    shuffled = "shuffled"
    bootstrap = "bootstrap"


@dataclass(frozen=True, eq=False)
class Layout:
    """The responses of one pass over a log in the order in which they are drawn."""

    rewards: FloatArray
    """`[prompt, draw]` Rewards; NaN for a response without a score, and beyond the end of a prompt's log."""
    tokens: FloatArray | None
    """`[prompt, draw]` Tokens; 0 beyond the end of a prompt's log."""
    available: IntArray
    """`[prompt]` Responses until the log ends, at most as many as the layout is wide."""
    right: BoolArray | None = None
    """`[prompt, draw]` Whether the log calls a response correct; None where a threshold decides."""

    def correct(self, threshold: float) -> BoolArray:
        """Return whether each response is correct, ``[prompt, draw]``: as the log says, or by the threshold."""
        return np.asarray(self.rewards > threshold) if self.right is None else self.right


@dataclass(frozen=True, eq=False)
class RewardLog:
    """Rewards one by one, in the order in which they were drawn."""

    ordered: ClassVar[bool] = True

    prompt_ids: tuple[str, ...]
    """Ids as text, in the file's order."""
    lengths: IntArray
    """`[prompt]` Responses, at least 1, those without a score included."""
    rewards: FloatArray
    """`[response]` Rewards of all prompts, one prompt after the other; NaN without a score."""
    tokens: FloatArray | None = None
    """`[response]` Tokens, where every prompt has them."""
    notes: tuple[str, ...] = ()
    """How it was read and what was left out."""
    right: BoolArray | None = None
    """`[response]` Whether it is correct, as the log was read; None where each policy's threshold decides."""

    @classmethod
    def of(cls, log: RolloutLog, rewards: FloatArray, right: BoolArray) -> RewardLog:
        """Make a log of pools whose responses are known one by one."""
        notes = list(log.notes)
        tokens = log.tokens
        if log.mean_tokens is not None:
            # A response of unknown length has the mean of its pool.
            means = all_tokens(log.mean_tokens, notes)
            own = np.full(rewards.shape, np.nan) if tokens is None else tokens
            tokens = None if means is None else np.where(np.isnan(own), np.repeat(means, log.lengths), own)
        return cls(log.names, log.lengths, rewards, tokens, tuple(notes), right)

    @property
    def mean_tokens(self) -> FloatArray | None:
        """`[prompt]` Mean tokens of a response."""
        return None if self.tokens is None else np.asarray(self._sums(self.tokens) / self.lengths)

    def threshold(self, asked: float) -> float:
        """Return the reward that a correct response exceeds, given the policy's own threshold."""
        return asked

    def counts(self, threshold: float) -> tuple[IntArray, IntArray]:
        """Return correct and scored responses, ``[prompt]`` each."""
        return self._sums(self.correct(threshold)), self._sums(~np.isnan(self.rewards))

    def correct(self, threshold: float) -> BoolArray:
        """Return whether each response is correct, ``[response]``: as the log says, or by the threshold."""
        return np.asarray(self.rewards > threshold) if self.right is None else self.right

    def layout(self, order: Order, width: int, seed: int) -> Layout:
        """Lay out the first `width` responses of every prompt."""
        prompts = self.lengths.size
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        source = np.full((prompts, width), -1)
        if order is Order.bootstrap:
            places = uniform_rows(seed, Stream.REWARDS, prompts, width) * self.lengths[:, None]
            source[:] = starts[:, None] + places.astype(np.int64)
        else:
            prompt = np.repeat(np.arange(prompts), self.lengths)
            draw = np.arange(self.rewards.size) - starts[prompt]
            member = np.arange(self.rewards.size)
            if order is Order.shuffled:
                # Every logged response has a uniform, and the lowest goes first.
                member = np.lexsort((uniform(seed, Stream.REWARDS, prompt, draw), prompt))
            wanted = draw < width
            source[prompt[wanted], draw[wanted]] = member[wanted]
        inside = source >= 0
        rewards = np.where(inside, self.rewards[source], np.nan)
        tokens = None if self.tokens is None else np.where(inside, self.tokens[source], 0.0)
        right = None if self.right is None else inside & self.right[source]
        return Layout(rewards, tokens, inside.sum(axis=1), right)

    def _sums(self, values: Any) -> IntArray:
        """Sum values over the responses of each prompt, ``[prompt]``."""
        return np.asarray(np.add.reduceat(values * 1, np.cumsum(self.lengths) - self.lengths))


@dataclass(frozen=True, eq=False)
class CountLog:
    """Counts alone: every response has a score, and no order is known."""

    ordered: ClassVar[bool] = False

    prompt_ids: tuple[str, ...]
    """Ids as text, in the file's order."""
    lengths: IntArray
    """`[prompt]` Responses, at least 1."""
    correct: IntArray
    """`[prompt]` Correct responses."""
    mean_tokens: FloatArray | None = None
    """`[prompt]` Mean tokens of a response, where every prompt has them."""
    notes: tuple[str, ...] = ()
    """How it was read and what was left out."""

    @classmethod
    def of(cls, counts: Counts) -> CountLog:
        """Make a log of counts."""
        return cls(counts.prompt_ids, counts.total, counts.correct, counts.tokens, counts.notes)

    def threshold(self, asked: float) -> float:  # noqa: ARG002 - what is correct was decided by whoever counted
        """Return the reward that a correct response exceeds: its reward is 1, another one's 0."""
        return 0.5

    def counts(self, threshold: float) -> tuple[IntArray, IntArray]:  # noqa: ARG002
        """Return correct and scored responses, ``[prompt]`` each."""
        return self.correct, self.lengths

    def layout(self, order: Order, width: int, seed: int) -> Layout:
        """Lay out `width` responses of every prompt in a random order, whose classes alone are known."""
        uniforms = uniform_rows(seed, Stream.REWARDS, self.lengths.size, width)
        if order is Order.bootstrap:
            available = np.full(self.lengths.size, width)
            rewards = np.asarray(uniforms < (self.correct / self.lengths)[:, None], dtype=np.float64)
        else:
            # An urn: what is left of both classes decides on the next response.
            available = np.minimum(self.lengths, width)
            rewards, left = np.full(uniforms.shape, np.nan), self.correct.copy()
            for draw in range(int(available.max(initial=0))):
                inside = draw < available
                hit = inside & (uniforms[:, draw] * (self.lengths - draw) < left)
                rewards[:, draw] = np.where(inside, hit, np.nan)
                left -= hit
        known = np.arange(width) < available[:, None]
        tokens = None if self.mean_tokens is None else np.where(known, self.mean_tokens[:, None], 0.0)
        return Layout(rewards, tokens, available)


Log: TypeAlias = RewardLog | CountLog


def to_replay(log: RolloutLog) -> Log:
    """Return what was read as a log that can be replayed.

    Responses without a score were paid for, and are replayed as such; where counts alone are known they are left out.
    """
    if log.rewards is None or log.right is None:
        return CountLog.of(Counts.of(log))
    return RewardLog.of(log, log.rewards, log.right)
