"""Logged rollouts: rewards of each prompt in the order in which they were drawn, or counts alone.

A log is laid out afresh for every pass over it: in logged order, in a random order without
replacement, or drawn with replacement (bootstrap). Random choices are counter-based uniforms,
so a seed fixes them, and all policies of a pass see the same responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError
from ada_bandit.programs.rollouts import EXAMPLE, RolloutLine, read_rollouts
from ada_bandit.uniforms import Stream, uniform, uniform_rows
from sim.counts import Counts, all_tokens, plural, read_counts, read_prompts

__all__ = ["CountLog", "Layout", "Log", "Order", "RewardLog", "read_log"]


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
    """What was left out or read in a way worth telling."""

    @property
    def mean_tokens(self) -> FloatArray | None:
        """`[prompt]` Mean tokens of a response."""
        return None if self.tokens is None else np.asarray(self._sums(self.tokens) / self.lengths)

    def threshold(self, asked: float) -> float:
        """Return the reward that a correct response exceeds, given the policy's own threshold."""
        return asked

    def counts(self, threshold: float) -> tuple[IntArray, IntArray]:
        """Return correct and scored responses, ``[prompt]`` each."""
        return self._sums(self.rewards > threshold), self._sums(~np.isnan(self.rewards))

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
        return Layout(rewards, tokens, inside.sum(axis=1))

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
    """What was left out or read in a way worth telling."""

    @classmethod
    def of(cls, counts: Counts, *notes: str) -> CountLog:
        """Make a log of counts."""
        return cls(counts.prompt_ids, counts.total, counts.correct, counts.tokens, (*counts.notes, *notes))

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


def read_log(path: str | Path) -> Log:
    """Read logged rollouts from a file.

    Parameters
    ----------
    path
        ``.jsonl`` (``.ndjson``) with one object a line, ``{"prompt_id": …, "rewards": […]}``, the
        rewards in the order in which they were drawn, and ``"tokens": […]`` beside them where
        they are known; or a file of counts, as `sim.counts.read_counts` takes them, with
        mean_response_tokens where it is known. null and NaN mark a response without a score:
        it was paid for, and is replayed as such.

    Raises
    ------
    InputError
        If the file can't be read as a log; the message quotes the value and names the remedy.
    """
    return read_prompts(path, lambda table: CountLog.of(read_counts(table, tokens=True)), _read_lines)


def _read_lines(path: Path) -> Log:
    lines = list(read_rollouts(path))
    ordered = [line for line in lines if isinstance(line, RolloutLine)]
    counted = len(lines) - len(ordered)
    if counted:
        holding = "1 line holds" if counted == 1 else f"{counted} lines hold"
        note = f"{holding} counts without an order, so all lines are taken as counts"
        return CountLog.of(read_counts(path, tokens=True), *([note] if ordered else []))
    rewards = np.concatenate([np.empty(0), *(line.rewards for line in ordered)])
    unscored = int(np.isnan(rewards).sum())
    if unscored == rewards.size:
        what = "no prompt with a scored response" if ordered else "no prompts"
        msg = f"{str(path)!r} has {what}; it needs a line such as {EXAMPLE}"
        raise InputError(msg)
    notes = []
    if unscored:
        notes.append(f"{unscored} {plural(unscored, 'response')} without a score (null or NaN)")
    # A prompt without tokens of its own responses may have their mean.
    tokens = [line.tokens or (line.mean_tokens,) * line.rewards.size for line in ordered]
    known = all_tokens([each[0] for each in tokens], notes) is not None
    return RewardLog(
        tuple(line.prompt_id for line in ordered),
        np.array([line.rewards.size for line in ordered], dtype=np.int64),
        rewards,
        np.array([value for each in tokens for value in each], dtype=np.float64) if known else None,
        tuple(notes),
    )
