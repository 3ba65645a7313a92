"""Budgets: how many responses are asked for at a time, and how many a prompt may get.

A plain budget is a schedule of rounds for each prompt by itself, and becomes a draws table. A
*batch budget* looks at all prompts at once: it turns their states and what is left of a total
into counts for the next round. Concrete ones are in `ada_bandit.shared`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ada_bandit._parts import plain
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.history import History
from ada_bandit.laws import Law

__all__ = ["AfterPilot", "BatchBudget", "BatchState", "Budget", "Rounds", "Stages"]

MOST_SAMPLES = 4096
"""The most responses that a prompt may get: the tables hold a cell for every pair of counts."""


def check_most(most: int, whose: str) -> int:
    """Return the most responses of a prompt where tables can hold them; `whose` says in words who asks for them."""
    if most > MOST_SAMPLES:
        msg = (
            f"a prompt may get at most {MOST_SAMPLES} responses, as the tables hold a cell for every pair of "
            f"counts; {whose} {most}"
        )
        raise InputError(msg)
    return most


class Budget(ABC):
    """A schedule of round sizes for one prompt."""

    name: ClassVar[str]
    replace: float = 0.0
    """Share of `max_samples` that may be drawn on top, to replace responses without a score; in [0, 1]."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Responses asked for in each round, in order."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a description of plain values, read back by `budget_from_dict`."""

    @property
    def max_samples(self) -> int:
        """K, the most responses a prompt may get, replacements aside."""
        return sum(self.sizes)

    @property
    def replacements(self) -> int:
        """The most responses of a prompt that may be drawn to replace others that got no score."""
        return math.ceil(self.replace * self.max_samples)

    def with_replacement(self, share: float) -> Budget:
        """Return the budget with another share of replacements."""
        changed = copy(self)
        object.__setattr__(changed, "replace", check_number("replace", share, 0, 1))
        return changed

    def draws(self, resolved: BoolArray) -> IntArray:
        """Return the draws table ``[pos, neg]``: responses to ask for next, 0 where the prompt exits.

        Cells between two round ends are reached only when some responses got no score; there
        the next round is asked for as well. The first round is drawn whatever the rule says.
        """
        pos, neg = np.indices(resolved.shape)
        total = pos + neg
        ends = np.cumsum(self.sizes)
        index = np.where(total == 0, 0, np.searchsorted(ends, total) + 1)
        sizes = np.append(np.asarray(self.sizes, dtype=np.int64), 0)
        wanted = sizes[np.minimum(index, len(sizes) - 1)]
        wanted = np.minimum(wanted, np.maximum(self.max_samples - total, 0))
        return np.asarray(np.where(resolved & (total > 0), 0, wanted), dtype=np.int64)

    def _check_size(self) -> None:
        check_most(self.max_samples, "this budget allows")


@dataclass(frozen=True, eq=False)
class BatchState:
    """What a batch budget may look at when a round has ended; every array is `[prompt]`."""

    pos: IntArray
    """Correct responses so far in this step."""
    neg: IntArray
    """Incorrect responses so far in this step."""
    spent: IntArray
    """Responses asked for so far in this step, those without a score included, their replacements not."""
    round: int
    """Rounds of the budget so far; replacing what got no score is none."""
    history: History
    """What is known of the prompts from earlier steps."""
    group_size: int
    """n of the policy."""
    uniforms: Callable[[int], FloatArray]
    """What is left to chance: a function from a number, of the budget's choice, to uniforms in (0, 1)."""


class BatchBudget(Budget):
    """A budget shared by all prompts of a step, in synchronous rounds.

    No draws table describes it, so such a policy is simulated, not analysed exactly.
    """

    objective: ClassVar[str] = "mean"
    """The objective whose gradient the method states that it samples for (`ada_bandit.objectives`)."""
    maximum: int
    """The most responses that one prompt may get in a step."""

    @abstractmethod
    def counts(self, state: BatchState) -> IntArray:
        """Return how many responses each prompt gets in the next round, ``[prompt]``; all 0 ends the step.

        At most `maximum` minus what the prompt has spent.
        """

    def shortfall(self, state: BatchState) -> str:  # noqa: ARG002 - most budgets promise nothing but counts
        """Say in words what a step that has ended fell short of; an empty text where it did not."""
        return ""

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.maximum,)

    @property
    def max_samples(self) -> int:
        return self.maximum

    def draws(self, resolved: BoolArray) -> IntArray:
        return np.zeros(resolved.shape, dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        options = plain(self)
        return without_default(
            {key: value.to_dict() if isinstance(value, Law) else value for key, value in options.items()}
        )


@dataclass(frozen=True)
class Rounds(Budget):
    """At most `rounds` rounds of `samples` responses (Reinforce-Ada: M and R)."""

    name: ClassVar[str] = "rounds"
    samples: int
    """M, responses a round, at least 1."""
    rounds: int = 1
    """R, rounds at most, at least 1."""
    replace: float = 0.0
    """Share of M R that may be drawn on top, to replace responses without a score."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replace", check_number("replace", self.replace, 0, 1))
        object.__setattr__(self, "samples", check_count("samples", self.samples))
        object.__setattr__(self, "rounds", check_count("rounds", self.rounds))
        if self.samples * self.rounds > MOST_SAMPLES:
            self._check_size()

    def __repr__(self) -> str:
        """Show the budget as it is written."""
        more = f", replace={self.replace}" if self.replace else ""
        return f"Rounds(samples={self.samples}, rounds={self.rounds}{more})"

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.samples,) * self.rounds

    @property
    def max_samples(self) -> int:
        return self.samples * self.rounds

    def to_dict(self) -> dict[str, Any]:
        return without_default(plain(self))


@dataclass(frozen=True, init=False)
class Stages(Budget):
    """Rounds of the given sizes, such as ``Stages((8, 16))``: 8 responses, then 16 more."""

    name: ClassVar[str] = "stages"
    _sizes: tuple[int, ...]
    replace: float = 0.0
    """Share of the sum that may be drawn on top, to replace responses without a score."""

    def __init__(self, sizes: Iterable[int], replace: float = 0.0) -> None:
        if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
            msg = f"sizes must be a sequence of whole numbers, such as (8, 16); got {sizes!r}"
            raise InputError(msg)
        values = tuple(check_count("every stage size", size) for size in sizes)
        if not values:
            msg = "sizes must hold at least one stage, such as (8, 16); got an empty sequence"
            raise InputError(msg)
        object.__setattr__(self, "_sizes", values)
        object.__setattr__(self, "replace", check_number("replace", replace, 0, 1))
        self._check_size()

    def __repr__(self) -> str:
        """Show the budget as it is written."""
        return f"Stages({self.sizes}{f', replace={self.replace}' if self.replace else ''})"

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    def to_dict(self) -> dict[str, Any]:
        return without_default({"name": self.name, "sizes": list(self.sizes), "replace": self.replace})


@dataclass(frozen=True)
class AfterPilot(Budget):
    """A pilot, and then one more round, whose size depends on how many responses of the pilot were correct.

    Where some of the pilot got no score, the round is that of the nearest share of correct ones.
    """

    name: ClassVar[str] = "after_pilot"
    pilot: int
    """Responses of the pilot, at least 1."""
    more: tuple[int, ...]
    """``[correct]`` responses of the second round, at least 0, for 0 up to all of the pilot correct."""
    replace: float = 0.0
    """Share of the most responses that may be drawn on top, to replace responses without a score."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pilot", check_count("pilot", self.pilot))
        if isinstance(self.more, (str, bytes)) or not isinstance(self.more, Iterable):
            msg = f"more must be a sequence of whole numbers, such as (8, 2, 0) for a pilot of 2; got {self.more!r}"
            raise InputError(msg)
        object.__setattr__(self, "more", tuple(check_count("every entry of more", size, 0) for size in self.more))
        if len(self.more) != self.pilot + 1:
            msg = (
                f"more must have {self.pilot + 1} entries, for 0 to {self.pilot} correct responses of the pilot; got "
                f"{len(self.more)}"
            )
            raise InputError(msg)
        object.__setattr__(self, "replace", check_number("replace", self.replace, 0, 1))
        self._check_size()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Responses asked for in each round, in order, of a prompt that gets the most."""
        return (self.pilot, max(self.more)) if any(self.more) else (self.pilot,)

    def draws(self, resolved: BoolArray) -> IntArray:
        pos, neg = np.indices(resolved.shape)
        total = pos + neg
        nearest = np.floor(self.pilot * pos / np.maximum(total, 1) + 0.5).astype(np.int64)
        wanted = np.where((total <= self.pilot) & ~resolved, np.asarray(self.more, dtype=np.int64)[nearest], 0)
        wanted = np.minimum(wanted, np.maximum(self.max_samples - total, 0))
        return np.asarray(np.where(total == 0, self.pilot, wanted), dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        return without_default(plain(self) | {"more": list(self.more)})


def without_default(options: dict[str, Any]) -> dict[str, Any]:
    """Return a budget's plain values without a share of replacements of 0."""
    return {key: value for key, value in options.items() if key != "replace" or value}
