"""Pools of responses as a statistician sees them: counts, whose they are, and the order where it is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError
from sim.readers import RolloutLog

__all__ = ["Interval", "Pools", "Resampling"]


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float
    how: str = ""
    """What it rests on, in words."""

    def to_dict(self) -> dict[str, float | str]:
        """Return plain values."""
        return {"value": self.value, "low": self.low, "high": self.high, "how": self.how}

    def __str__(self) -> str:
        """Show the estimate and its interval."""
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def interval(value: float, replicates: FloatArray, how: str, low: float = -np.inf, high: float = np.inf) -> Interval:
    """Return an estimate plus and minus 1.96 times the deviation of its bootstrap replicates, cut at what is possible.

    Of the bootstrap's intervals this one holds best where a law is fitted: its replicates are skewed
    away from the truth as much as the estimate is, so their percentiles lean to the wrong side.
    """
    known = replicates[np.isfinite(replicates)]
    if not known.size:
        return Interval(float(value), np.nan, np.nan, how)
    half = 1.96 * float(known.std())
    return Interval(float(value), float(max(value - half, low)), float(min(value + half, high)), how)


@dataclass(frozen=True, eq=False)
class Pools:
    """Pools with at least one scored response; every array is `[pool]` but where it says otherwise."""

    pos: IntArray
    """Correct responses."""
    neg: IntArray
    """Incorrect responses."""
    prompt: IntArray
    """Number of the prompt, from 0 without gaps."""
    step: IntArray | None = None
    """Training step, where it is known."""
    right: BoolArray | None = None
    """`[response]` Whether each response is correct, pool after pool in the order of the draws; None without order."""
    unscored: IntArray | None = None
    """Responses without a score beside these; None where there are none."""
    left_out: int = 0
    """Pools without any scored response, which say nothing."""

    def __post_init__(self) -> None:
        if not self.pos.size:
            msg = (
                "there is no pool with a scored response, so nothing can be estimated; name the rewards: --reward "
                "COLUMN"
            )
            raise InputError(msg)

    @classmethod
    def of(cls, log: RolloutLog) -> Pools:
        """Return the pools of a log."""
        chosen = log.scored > 0
        _, prompt = np.unique(log.prompt[chosen], return_inverse=True)
        right = None
        if log.right is not None and log.rewards is not None:
            right = log.right[~np.isnan(log.rewards)]
        unscored = (log.lengths - log.scored)[chosen]
        return cls(
            log.correct[chosen],
            (log.scored - log.correct)[chosen],
            prompt,
            None if log.step is None else log.step[chosen],
            right,
            unscored if unscored.any() else None,
            int((~chosen).sum()),
        )

    @classmethod
    def from_counts(cls, pos: npt.ArrayLike, total: npt.ArrayLike) -> Pools:
        """Return pools of different prompts by their counts."""
        correct, every = np.asarray(pos, dtype=np.int64), np.asarray(total, dtype=np.int64)
        return cls(correct, every - correct, np.arange(correct.size))

    @property
    def size(self) -> int:
        """Pools."""
        return int(self.pos.size)

    @cached_property
    def total(self) -> IntArray:
        """`[pool]` Scored responses."""
        return self.pos + self.neg

    @cached_property
    def smallest(self) -> int:
        """Scored responses of the smallest pool."""
        return int(self.total.min())

    @cached_property
    def cells(self) -> tuple[IntArray, IntArray]:
        """`[2, cell]` Distinct counts (pos, neg), and `[pool]` the cell of each pool."""
        width = int(self.neg.max()) + 1
        found, cell = np.unique(self.pos * width + self.neg, return_inverse=True)
        return np.stack([found // width, found % width]), cell

    def take(self, chosen: BoolArray) -> Pools:
        """Return the chosen pools."""
        _, prompt = np.unique(self.prompt[chosen], return_inverse=True)
        right = None if self.right is None else self.right[np.repeat(chosen, self.total)]
        return Pools(
            self.pos[chosen],
            self.neg[chosen],
            prompt,
            None if self.step is None else self.step[chosen],
            right,
            None if self.unscored is None else self.unscored[chosen],
        )

    def first(self, size: int) -> IntArray:
        """Return the correct ones among the first `size` responses of every pool, ``[pool]``.

        Raises
        ------
        InputError
            If no order is known, or a pool has fewer.
        """
        if self.right is None or size > self.smallest:
            msg = f"the first {size} responses aren't known of every pool; the smallest has {self.smallest}"
            raise InputError(msg)
        starts = np.cumsum(self.total) - self.total
        cumulated = np.append(0, np.cumsum(self.right))
        return np.asarray(cumulated[starts + size] - cumulated[starts])


class Resampling:
    """Bootstrap over prompts: the same resamples for everything that is estimated from some pools.

    Parameters
    ----------
    pools
        The pools; those of one prompt go together.
    replicates
        Number of resamples.
    seed
        Fixes them.
    """

    def __init__(self, pools: Pools, replicates: int = 400, seed: int = 0) -> None:
        self.pools, self.replicates = pools, replicates
        self._seed = seed
        self.prompts = int(pools.prompt.max()) + 1

    def cell_counts(self, cell: IntArray, cells: int) -> FloatArray:
        """Return how many pools of each cell a resample holds, ``[replicate, cell]``."""
        random = np.random.Generator(np.random.Philox(self._seed))
        if self.prompts == self.pools.size:
            # Every pool is its prompt: cells are drawn at once.
            share = np.bincount(cell, minlength=cells) / cell.size
            return random.multinomial(cell.size, share, size=self.replicates).astype(np.float64)
        counts = np.empty((self.replicates, cells))
        for row in range(self.replicates):
            times = np.bincount(random.integers(self.prompts, size=self.prompts), minlength=self.prompts)
            counts[row] = np.bincount(cell, weights=times[self.pools.prompt], minlength=cells)
        return counts

    def mean(self, values: FloatArray, how: str) -> Interval:
        """Return the mean over pools of a value, NaN left out, with its interval."""
        known = ~np.isnan(values)
        if not known.any():
            return Interval(np.nan, np.nan, np.nan, how)
        distinct, cell = np.unique(np.where(known, values, np.inf), return_inverse=True)
        counts = self.cell_counts(cell, distinct.size)
        finite = np.isfinite(distinct)
        number = counts[:, finite].sum(axis=1)
        total = counts[:, finite] @ distinct[finite]
        means = np.divide(total, number, out=np.full(number.shape, np.nan), where=number > 0)
        ends = distinct[finite].min(), distinct[finite].max()
        return interval(float(values[known].mean()), means, how, *ends)
