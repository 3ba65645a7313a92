"""Rollouts as arrays: pools of responses by step and prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError
from sim.readers.formats import Selection
from sim.readers.threshold import Threshold
from sim.words import plural

__all__ = ["RolloutLog"]


@dataclass(frozen=True, eq=False)
class RolloutLog:
    """What was read: pools, one for every prompt in every step.

    Responses stand pool after pool, those of a pool in the order in which the file has them.
    """

    label: str
    """The file, folder or glob."""
    format: str
    """What it was recognised as."""
    keys: tuple[str, ...]
    """`[prompt]` Ids, in the order in which they come up."""
    prompt: IntArray
    """`[pool]` Place of the pool's prompt in `keys`."""
    step: IntArray | None
    """`[pool]` Training step, where the file has it; ascending."""
    lengths: IntArray
    """`[pool]` Responses, those without a score included."""
    scored: IntArray
    """`[pool]` Responses with a score."""
    correct: IntArray
    """`[pool]` Correct ones among them."""
    rewards: FloatArray | None
    """`[response]` Rewards, NaN without a score; None where counts alone are known."""
    right: BoolArray | None
    """`[response]` Whether it is correct; False without a score."""
    tokens: FloatArray | None
    """`[response]` Length in tokens, NaN where it isn't known; None where no length is, or counts alone."""
    mean_tokens: FloatArray | None
    """`[pool]` Mean length of a response, NaN where it isn't known."""
    truncated: BoolArray | None
    """`[response]` Whether it was cut at its longest length, where the file says so."""
    threshold: Threshold | None
    """What makes a response correct; None for counts."""
    selection: Selection
    """Which of the drawn responses are here."""
    files: int
    """Files that were read."""
    notes: tuple[str, ...]
    """How it was read, what was guessed and what was left out, a sentence each."""

    @property
    def ordered(self) -> bool:
        """Whether the responses of a pool stand in the order in which they were drawn."""
        return self.rewards is not None

    @property
    def censored(self) -> bool:
        """Whether responses or groups are known to be missing because of their rewards."""
        return self.selection in {Selection.kept, Selection.signal}

    @cached_property
    def steps(self) -> IntArray:
        """`[step]` The steps, ascending; empty where no step is known."""
        return np.unique(self.step) if self.step is not None else np.zeros(0, dtype=np.int64)

    @cached_property
    def starts(self) -> IntArray:
        """`[pool]` Place of the pool's first response."""
        return np.asarray(np.cumsum(self.lengths) - self.lengths)

    @property
    def prompts(self) -> int:
        """Prompts, each counted once however many steps it stands in."""
        return len(self.keys)

    @property
    def responses(self) -> int:
        """Responses, those without a score included."""
        return int(self.lengths.sum())

    @property
    def unscored(self) -> int:
        """Responses without a score."""
        return int((self.lengths - self.scored).sum())

    @cached_property
    def first(self) -> tuple[IntArray, IntArray] | None:
        """`[pool]` Correct and scored among as many first responses as the smallest pool has; None without order."""
        if self.right is None or self.rewards is None or not self.lengths.size:
            return None
        return self.first_of(int(self.scored.min()))

    def first_of(self, size: int) -> tuple[IntArray, IntArray] | None:
        """Return correct and scored responses among the first `size` scored ones of every pool, ``[pool]`` each."""
        if self.right is None or self.rewards is None:
            return None
        known = ~np.isnan(self.rewards)
        before = np.cumsum(known) - known
        pool = np.repeat(np.arange(self.lengths.size), self.lengths)
        chosen = known & (before - before[self.starts[pool]] < size)
        count = np.bincount(pool[chosen], minlength=self.lengths.size)
        right = np.bincount(pool[chosen & self.right], minlength=self.lengths.size)
        return right.astype(np.int64), count.astype(np.int64)

    def summary(self) -> dict[str, object]:
        """Return plain values: format, prompts, pools, responses, correct, steps, unscored, censored."""
        return {
            "format": self.format,
            "prompts": self.prompts,
            "pools": int(self.lengths.size),
            "responses": self.responses,
            "correct": int(self.correct.sum()),
            "steps": self.steps.tolist(),
            "unscored": self.unscored,
            "censored": self.censored,
            "selection": self.selection.value,
            "notes": list(self.notes),
        }

    @cached_property
    def names(self) -> tuple[str, ...]:
        """`[pool]` The prompt's key; with the step behind it, ``key@step``, for a prompt of several pools."""
        visits = np.bincount(self.prompt, minlength=self.prompts)
        steps = np.arange(self.prompt.size) if self.step is None else self.step
        pairs = zip(self.prompt.tolist(), steps.tolist(), strict=True)
        return tuple(self.keys[key] if visits[key] == 1 else f"{self.keys[key]}@{step}" for key, step in pairs)

    def pools(self) -> Iterator[tuple[str, int | None, FloatArray | None]]:
        """Give key, step and rewards of every pool."""
        for at in range(self.lengths.size):
            part = slice(int(self.starts[at]), int(self.starts[at] + self.lengths[at]))
            step = None if self.step is None else int(self.step[at])
            yield self.keys[self.prompt[at]], step, None if self.rewards is None else self.rewards[part]

    def agreeing_with(self, threshold: float, whose: str) -> None:
        """Refuse a threshold that calls other rewards correct than the log does.

        Parameters
        ----------
        threshold
            A reward above it is correct for a policy.
        whose
            The policy, for the message.

        Raises
        ------
        InputError
            If a reward of the log is correct for one and not for the other.
        """
        differing = self.differing(threshold)
        number = int(np.count_nonzero(differing))
        if number and self.rewards is not None and self.threshold is not None:
            reward = self.rewards[np.argmax(differing)]
            msg = (
                f"{whose} takes a reward above {threshold:g} for correct, and the log was read otherwise "
                f"({self.threshold.reason}): they differ on {number} {plural(number, 'response')}, such as one with "
                f"reward {reward:g}. Give one threshold for both: --threshold {threshold:g}"
            )
            raise InputError(msg)

    def differing(self, threshold: float) -> BoolArray:
        """Return the responses that a threshold classes otherwise than the log, ``[response]``; none for counts."""
        if self.rewards is None or self.right is None:
            return np.zeros(0, dtype=np.bool_)
        return np.asarray(((self.rewards > threshold) != self.right) & ~np.isnan(self.rewards))
