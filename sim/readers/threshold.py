"""What makes a response correct: what the user says, a column of correctness, or what the rewards are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError

__all__ = ["Distinct", "Threshold", "choose"]

_MOST = 2_000
"""Distinct rewards that are remembered."""


@dataclass(frozen=True)
class Threshold:
    """The rule by which a response was called correct."""

    value: float | None
    """A reward above it is correct; None where a column says so."""
    reason: str
    """The rule and where it comes from, in words."""
    certain: bool
    """Whether it was stated, or the rewards leave no choice."""


class Distinct:
    """Distinct values of a stream of rewards; beyond a number of them, their span alone."""

    def __init__(self) -> None:
        self.values: FloatArray = np.zeros(0)
        self.low, self.high = np.inf, -np.inf
        self.full = False

    def add(self, rewards: FloatArray) -> None:
        """Enter rewards, NaN among them or not."""
        known = rewards[~np.isnan(rewards)]
        if not known.size:
            return
        self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))
        if self.full:
            return
        # Two passes over nearly always 0 and 1 are cheaper than sorting.
        rest = known[(known != 0) & (known != 1)]
        few = [value for value in (0.0, 1.0) if (known == value).any()]
        self.values = np.unique(np.concatenate([self.values, few, rest]))
        self.full = self.values.size > _MOST


def choose(distinct: Distinct) -> Threshold:
    """Return the threshold that the rewards themselves suggest.

    Rewards of two values are correct or not. Of several, a reward in [0, 1] is correct above one
    half, and otherwise above the largest gap: sums of a correctness and of smaller bonuses have it
    where correctness begins.

    Raises
    ------
    InputError
        If there is one value alone that may be either.
    """
    values = distinct.values
    if not values.size:
        return Threshold(0.5, "no reward is known", certain=False)
    if np.isin(values, (0.0, 1.0)).all():
        return Threshold(0.5, "rewards are 0 and 1", certain=True)
    if np.isin(values, (-1.0, 1.0)).all():
        return Threshold(0.0, "rewards are -1 and 1", certain=True)
    if values.size == 1:
        msg = (
            f"every reward is {values[0]:g}, so which ones are correct can't be told; say so, for example: "
            f"--threshold {values[0] - 0.5:g}"
        )
        raise InputError(msg)
    if distinct.low >= 0 and distinct.high <= 1:
        return Threshold(0.5, "rewards lie between 0 and 1, and one above 0.5 counts as correct", certain=False)
    if values.size == 2:
        middle = float(values.mean())
        return Threshold(
            middle,
            f"rewards are {values[0]:g} and {values[1]:g}, the higher one counts as correct",
            certain=bool(values[1] > 0),
        )
    span = f"rewards lie between {distinct.low:g} and {distinct.high:g}"
    gaps = np.diff(values)
    widest = int(np.argmax(gaps))
    if not distinct.full and np.sum(gaps > 0.999 * gaps[widest]) == 1 and gaps[widest] >= 1.5 * np.median(gaps):
        value = float(values[widest : widest + 2].mean())
        return Threshold(value, f"{span}, and one above {value:g}, their largest gap, counts as correct", certain=False)
    value = (distinct.low + distinct.high) / 2
    return Threshold(value, f"{span}, and one above {value:g}, their middle, counts as correct", certain=False)
