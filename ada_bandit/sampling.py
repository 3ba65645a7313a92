"""The first stage of compilation: from exit rule, budget and group rule to the tables of sampling.

Whatever an advantage may depend on is here: when a prompt exits, along which paths, and what is
kept of its pool. Nothing after this module calls a rule or a group rule again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.budgets import BatchBudget, Budget
from ada_bandit.errors import InputError
from ada_bandit.groups import GroupRule
from ada_bandit.lattice import pool_mean_estimate, prefix_probability, reach, unbiased_estimate
from ada_bandit.rules import ExitRule

__all__ = ["SamplingTables", "compile_sampling"]

T = TypeVar("T", bound="SamplingTables")

_LARGEST = 1 << 27
"""Entries of one table with a split axis at the most: a gigabyte."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SamplingTables:
    """What sampling does at every cell; every array is read-only.

    Arrays are ``[pos, neg]``, each axis 0 .. K, where K is the most responses a prompt may get; only
    cells with pos + neg <= K have a meaning. Where the group rule fixes how many of each class are
    kept, so are `keep_pos`, `keep_neg` and `chance`. Where that is random, these have one more
    axis in front, ``[split, pos, neg]``, by the number of positives kept.
    """

    group_size: int
    """n, the group size of the policy."""
    draws: IntArray
    """`[pos, neg]` Responses to ask for next; 0 where the prompt exits."""
    resolved: BoolArray
    """`[pos, neg]` Whether the exit rule holds."""
    keep: IntArray
    """`[pos, neg]` Rows of the update group."""
    keep_pos: IntArray
    """`[pos, neg]` or `[split, pos, neg]` Positives among them."""
    keep_neg: IntArray
    """`[pos, neg]` or `[split, pos, neg]` Negatives among them."""
    chance: FloatArray
    """`[pos, neg]` or `[split, pos, neg]` Chance of the split, given the pool; 0 where a cell can't have it."""
    signal: FloatArray
    """`[pos, neg]` Chance that the group holds both classes: 0 or 1 unless the split is random."""
    short_of_positives: BoolArray
    """`[pos, neg]` Unresolved, and no number of further negatives alone would resolve it."""
    short_of_negatives: BoolArray
    """`[pos, neg]` Unresolved, and no number of further positives alone would resolve it."""
    shared: bool
    """Whether a budget of the whole batch decides the draws: then the draws table is 0, and no path is known."""

    @property
    def max_samples(self) -> int:
        """K, the most responses a prompt may get."""
        return int(self.draws.shape[0]) - 1

    @property
    def random_split(self) -> bool:
        """Whether the kept class counts are random, given the cell."""
        return self.keep_pos.ndim == 3

    @cached_property
    def reach(self) -> FloatArray:
        """Chance that a round ends at the cell, given the counts there, ``[pos, neg]``; free of p."""
        return reach(self.draws)

    @cached_property
    def exits(self) -> BoolArray:
        """Cells at which a prompt can exit when every response gets a score, ``[pos, neg]``."""
        return np.asarray((self.reach > 0) & (self.draws == 0))

    @cached_property
    def estimate(self) -> FloatArray:
        """Unbiased pass-rate estimate at the exit cell, ``[pos, neg]``; the pool mean where the budget is shared."""
        return pool_mean_estimate(*np.indices(self.draws.shape)) if self.shared else unbiased_estimate(self.draws)

    @cached_property
    def one_class_estimate(self) -> FloatArray:
        """Unbiased estimate of p^n + q^n at the exit cell, ``[pos, neg]``: that n plain responses are of one class.

        NaN throughout where the first round is shorter than n, as there is no such estimate then.
        """
        n = self.group_size
        if n > int(self.draws[0, 0]):
            return np.full(self.draws.shape, np.nan)
        return prefix_probability(self.draws, n, 0) + prefix_probability(self.draws, 0, n)

    @cached_property
    def mean_keep_pos(self) -> FloatArray:
        """Mean number of positives kept, given the pool, ``[pos, neg]``."""
        return self._mean(self.keep_pos)

    @cached_property
    def mean_keep_neg(self) -> FloatArray:
        """Mean number of negatives kept, given the pool, ``[pos, neg]``."""
        return self._mean(self.keep_neg)

    def _mean(self, values: IntArray | FloatArray) -> FloatArray:
        """Average over the splits, ``[pos, neg]``."""
        return (self.chance * values).sum(axis=0) if self.random_split else np.asarray(values, dtype=np.float64)


def compile_sampling(rule: ExitRule, budget: Budget, group: GroupRule, group_size: int) -> SamplingTables:
    """Compile when prompts exit and what is kept of them, by plain NumPy.

    Parameters
    ----------
    rule, budget, group
        The parts of a policy that sampling depends on.
    group_size
        n.

    Raises
    ------
    InputError
        If the rule gives anything but booleans of the counts' shape, or a random split needs too much memory.
    """
    pos, neg = np.indices((budget.max_samples + 1,) * 2, dtype=np.int64)
    resolved = rule.holds(pos, neg)
    keep_pos, keep_neg = (np.asarray(keep, dtype=np.int64) for keep in group.split(pos, neg, group_size))
    keep = keep_pos + keep_neg
    if group.random_split:
        splits = int(keep.max(initial=0)) + 1
        if splits * keep.size > _LARGEST:
            msg = (
                f"a group of {splits - 1} kept at random of up to {budget.max_samples} responses has too many splits "
                f"to tabulate ({splits} x {keep.shape[0]} x {keep.shape[1]}); use a smaller group_size, or the group "
                "rule 'balanced' or 'all'"
            )
            raise InputError(msg)
        chance, keep_pos, keep_neg = (np.stack(part) for part in zip(*_splits(pos, neg, keep), strict=True))
        signal = (chance * ((keep_pos > 0) & (keep_neg > 0))).sum(axis=0)
    else:
        chance = np.ones(pos.shape)
        signal = np.asarray((keep_pos > 0) & (keep_neg > 0), dtype=np.float64)

    # A rule that never holds wants nothing but signal.
    wanted = resolved if resolved.any() else (pos > 0) & (neg > 0)
    by_neg = np.logical_or.accumulate(wanted[:, ::-1], axis=1)[:, ::-1]
    by_pos = np.logical_or.accumulate(wanted[::-1], axis=0)[::-1]
    by_both = np.logical_or.accumulate(by_neg[::-1], axis=0)[::-1]
    return frozen(
        SamplingTables(
            group_size=group_size,
            draws=budget.draws(resolved),
            resolved=resolved,
            keep=keep,
            keep_pos=keep_pos,
            keep_neg=keep_neg,
            chance=chance,
            signal=signal,
            short_of_positives=by_both & ~by_neg,
            short_of_negatives=by_both & ~by_pos,
            shared=isinstance(budget, BatchBudget),
        )
    )


def frozen(tables: T) -> T:
    """Make every array of the tables read-only."""
    for field in fields(tables):
        value = getattr(tables, field.name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return tables


def _splits(pos: IntArray, neg: IntArray, keep: IntArray) -> Iterator[tuple[FloatArray, IntArray, IntArray]]:
    """Yield the chance of every number of positives among `keep` random responses, and both class counts.

    A split that a cell can't have comes with chance 0 and no rows there.
    """
    for kept, chance in enumerate(_split_law(pos, neg, keep)):
        possible = (kept <= keep) & (chance > 0)
        yield chance * possible, np.where(possible, kept, 0), np.where(possible, keep - kept, 0)


def _split_law(pos: IntArray, neg: IntArray, keep: IntArray) -> list[FloatArray]:
    """Return P(k positives among `keep` responses drawn from the pool) for k = 0, 1, …: the hypergeometric law.

    By drawing one response after the other: sums of positive terms, exact to rounding.
    """
    law = [np.ones(pos.shape)]
    for drawn in range(int(keep.max(initial=0))):
        going = drawn < keep
        left = np.maximum(pos + neg - drawn, 1)
        grown = [np.zeros(pos.shape) for _ in range(drawn + 2)]
        for k, chance in enumerate(law):
            next_pos = np.where(going, np.maximum(pos - k, 0) / left, 0.0)
            grown[k + 1] += chance * next_pos
            grown[k] += chance * np.where(going, np.maximum(neg - (drawn - k), 0) / left, 1.0)
        law = grown
    return law
