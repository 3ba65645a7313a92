"""Groups without signal: how many there are now, why, what more responses would recover, and what none could.

Everything here is a mean over prompts of a function of the pass rate: exact given the law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.policy import Policy
from sim.advise.profiles import Laws, ratio
from sim.stopped.laws import LawFit
from sim.stopped.pools import Interval

__all__ = ["MOST", "Groups", "Recovery", "groups_of"]

MOST = 64
"""Responses beyond which a prompt counts as too hard or too easy."""


@dataclass(frozen=True)
class Recovery:
    """What it takes to go on, with groups that hold one class alone, until both came up or a pool is full."""

    responses: int
    """The most responses of a prompt."""
    signal: Interval
    """Share of prompts with both classes then."""
    extra: Interval
    """Responses more, a prompt, on average over all prompts."""
    each: Interval
    """Responses more for each group that is recovered."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"responses": self.responses} | {
            name: getattr(self, name).to_dict() for name in ("signal", "extra", "each")
        }


@dataclass(frozen=True)
class Groups:
    """The groups of a policy, with and without signal."""

    policy: Policy
    """The policy."""
    signal: Interval
    """Share of prompts whose pool holds both classes."""
    all_wrong: Interval
    """Share whose pool holds no correct response."""
    all_right: Interval
    """Share whose pool holds no incorrect response."""
    small: Interval
    """Share of prompts without signal that would have it with `MOST` responses: their pool is too small."""
    hard: Interval
    """Share that would be all wrong at `MOST` responses too."""
    easy: Interval
    """Share that would be all right at `MOST` responses too."""
    recoveries: tuple[Recovery, ...]
    """What more responses would recover."""
    never: float
    """Upper end of the share of prompts with p = 0 that the pools allow; the lower end is 0."""
    always: float
    """Likewise of p = 1."""
    seen: int
    """Responses of a pool on which these two rest."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("signal", "all_wrong", "all_right", "small", "hard", "easy")
        return {name: getattr(self, name).to_dict() for name in names} | {
            "most": MOST,
            "recoveries": [each.to_dict() for each in self.recoveries],
            "p_is_0": {"low": 0.0, "high": self.never, "seen": self.seen},
            "p_is_1": {"low": 0.0, "high": self.always, "seen": self.seen},
        }


def groups_of(policy: Policy, fit: LawFit, seen: int) -> Groups:
    """Return what becomes of the groups of a policy under a law.

    Parameters
    ----------
    policy
        The policy, of tables.
    fit
        The law.
    seen
        Responses of the smallest pool behind the law: what is said of p = 0 and p = 1 rests on as many.
    """
    p = fit.rates
    wrong = list(_one_class(policy, 1 - p, correct=False))
    right = list(_one_class(policy, p, correct=True))

    def left(cells: list[tuple[int, FloatArray]], rate: FloatArray, most: int) -> FloatArray:
        """Return the chance that a pool is of this class, and still is with `most` responses."""
        return np.asarray(sum((mass * rate ** max(most - size, 0) for size, mass in cells), np.zeros(p.size)))

    all_wrong, all_right = left(wrong, 1 - p, 0), left(right, p, 0)
    hard, easy = left(wrong, 1 - p, MOST), left(right, p, MOST)
    largest = max((size for size, _ in (*wrong, *right)), default=1)
    recoveries = []
    for most in (size for size in (2, 4, 8, 16, 32, 64) if size > largest):
        extra = sum(
            (mass * _spent(rate, most - size) for cells, rate in ((wrong, 1 - p), (right, p)) for size, mass in cells),
            np.zeros(p.size),
        )
        gained = all_wrong + all_right - left(wrong, 1 - p, most) - left(right, p, most)
        signal = 1 - left(wrong, 1 - p, most) - left(right, p, most)
        recoveries.append(Recovery(most, fit.mean_of(signal), fit.mean_of(extra), _ratio(fit, extra, gained)))
    return Groups(
        policy,
        fit.mean_of(np.clip(1 - all_wrong - all_right, 0, 1)),
        fit.mean_of(all_wrong),
        fit.mean_of(all_right),
        fit.mean_of(all_wrong - hard + all_right - easy),
        fit.mean_of(hard),
        fit.mean_of(easy),
        tuple(recoveries[:4]),
        fit.mean_of((1 - p) ** seen).high,
        fit.mean_of(p**seen).high,
        seen,
    )


def _one_class(policy: Policy, rate: FloatArray, *, correct: bool) -> Iterator[tuple[int, FloatArray]]:
    """Give the sizes of pools of one class and the chance to end with one, ``[rate]``."""
    tables = policy.tables
    ends = np.where(tables.exits, tables.reach, 0.0)
    for size in range(1, tables.max_samples + 1):
        paths = float(ends[(size, 0) if correct else (0, size)])
        if paths:
            yield size, paths * rate**size


def _spent(rate: FloatArray, most: int) -> FloatArray:
    """Return the mean number of responses until the other class comes up, `most` of them at the most, ``[rate]``."""
    return np.asarray((rate[:, None] ** np.arange(most)).sum(axis=1))


def _ratio(fit: LawFit, above: FloatArray, below: FloatArray) -> Interval:
    """Return a ratio of two means over prompts."""
    laws = Laws.of(fit)
    return ratio(laws.mean(above), laws.mean(below), fit.how)
