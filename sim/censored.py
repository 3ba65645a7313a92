"""Prompts whose log ends before the policy would stop: the worst and the best that they could have come to.

What is missing of a round is taken as scored, and its classes as unknown. The draws table then
says all that can follow; its extremes are one backward induction over the lattice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.tables import Tables
from sim.logs import Layout

__all__ = ["Ahead", "Censored", "Ends", "extremes", "fill_in"]

Ends = dict[str, tuple[FloatArray, FloatArray]]
"""Lowest and highest value of each quantity by its name, `[prompt]` or `[pos, neg]` each."""


@dataclass(frozen=True, eq=False)
class Censored:
    """Prompts at the end of their log; every array is `[prompt]`."""

    used: IntArray
    """Responses up to the end of the last full round."""
    rounds: IntArray
    """Full rounds."""
    asked: IntArray
    """Responses of the round that the log can't fill."""
    pos: IntArray
    """Correct responses, those that the log still has for that round included."""
    neg: IntArray
    """Incorrect responses, likewise."""
    scored: BoolArray
    """Whether all of them have a score."""

    @classmethod
    def of(
        cls,
        layout: Layout,
        correct: BoolArray,
        used: IntArray,
        rounds: IntArray,
        asked: IntArray,
        cell: tuple[IntArray, IntArray],
    ) -> Censored:
        draw = np.arange(layout.rewards.shape[1])
        rest = (draw >= used[:, None]) & (draw < layout.available[:, None])
        pos = cell[0] + (rest & correct).sum(axis=1)
        neg = cell[1] + (rest & ~correct & ~np.isnan(layout.rewards)).sum(axis=1)
        return cls(used, rounds, asked, pos, neg, pos + neg == layout.available)

    def take(self, chosen: BoolArray) -> Censored:
        """Return the chosen prompts."""
        return Censored(**{name: value[chosen] for name, value in vars(self).items()})


def fill_in(ends: Ends, censored: BoolArray, state: Censored, ahead: Ahead) -> None:
    """Write the worst and the best that censored prompts can come to."""
    max_samples = ahead.tables.max_samples
    # With unscored responses, or a budget that others share, a cell does not tell what is asked for next.
    wide = censored & ~(state.scored & (not ahead.tables.shared))
    fewest, left = state.used + state.asked, max_samples - state.used - state.asked
    for name, (low, high) in ends.items():
        low[wide], high[wide] = 0, 1
        if name == "responses":
            low[wide], high[wide] = fewest[wide], max_samples
        elif name == "rounds":
            low[wide], high[wide] = state.rounds[wide] + 1, (state.rounds + 1 + left)[wide]
    exact = censored & ~wide
    if not exact.any():
        return
    at = state.take(exact)
    missing = at.used + at.asked - at.pos - at.neg
    for name, (low, high) in ends.items():
        lowest, highest = ahead[name]
        start = at.rounds + 1 if name == "rounds" else 0
        low[exact] = start + _least(lowest, at.pos, at.neg, missing)
        high[exact] = start - _least(-highest, at.pos, at.neg, missing)


def _least(table: FloatArray, pos: IntArray, neg: IntArray, missing: IntArray) -> FloatArray:
    """Return the least entry among the cells that `missing` more responses can lead to, ``[prompt]``."""
    lowest = np.array(table[pos, neg + missing], dtype=np.float64)
    for more in range(1, int(missing.max(initial=0)) + 1):
        on = more <= missing
        lowest[on] = np.minimum(lowest[on], table[pos[on] + more, neg[on] + missing[on] - more])
    return lowest


class Ahead:
    """The lowest and highest value with which a prompt at a cell can end, by name, computed when it is needed."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._known: Ends = {}

    def __getitem__(self, name: str) -> tuple[FloatArray, FloatArray]:
        if name not in self._known:
            self._known[name] = extremes(self.tables.draws, *self._at_exit(name), step=float(name == "rounds"))
        return self._known[name]

    def _at_exit(self, name: str) -> tuple[FloatArray, FloatArray]:
        tables = self.tables
        pos, neg = np.indices(tables.draws.shape)
        if name == "signal":
            # Where the split of the group is random, chance may go either way.
            return np.asarray(tables.signal >= 1, dtype=np.float64), np.asarray(tables.signal > 0, dtype=np.float64)
        values = {"responses": pos + neg, "rounds": 0 * pos}.get(name)
        value = np.asarray(getattr(tables, name) if values is None else values, dtype=np.float64)
        return value, value


def extremes(draws: IntArray, low: FloatArray, high: FloatArray, step: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return the lowest and highest value that a prompt at a cell can still end with.

    Backward from the largest pools: a cell's value is the best, or worst, of the cells that
    its next round can lead to.

    Parameters
    ----------
    draws
        ``[pos, neg]`` draws table.
    low, high
        ``[pos, neg]`` values of a prompt that exits there.
    step
        What every round adds.

    Returns
    -------
    tuple of FloatArray
        ``[pos, neg]`` each.
    """
    max_samples = draws.shape[0] - 1
    tables = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    for total in range(max_samples - 1, -1, -1):
        pos = np.arange(total + 1)
        wanted = np.minimum(draws[pos, total - pos], max_samples - total)
        for size in np.unique(wanted[wanted > 0]):
            here, after = pos[wanted == size], np.arange(total + size + 1)
            for table, best in zip(tables, (np.min, np.max), strict=True):
                outcomes = sliding_window_view(table[after, total + size - after], size + 1)
                table[here, total - here] = best(outcomes[here], axis=1) + step
    return tables
