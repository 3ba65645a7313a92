"""A policy as tables over the (pos, neg) lattice: what the analysis, the simulator and the allocator index.

All tables have shape ``[pos, neg]``, each axis 0 .. K, where K is the most responses a prompt
may get; only cells with pos + neg <= K have a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit._lattice import reach
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import Cell
from ada_bandit.budgets import BatchBudget
from ada_bandit.errors import check_count, unknown_name
from ada_bandit.estimators import pool_mean_estimate, unbiased_estimate

if TYPE_CHECKING:
    from ada_bandit.policy import Policy

__all__ = ["Tables", "class_advantages", "compile_tables", "draw_lattice", "splits"]


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of one policy; every array is ``[pos, neg]`` and read-only."""

    draws: IntArray
    """Responses to ask for next; 0 where the prompt exits."""
    resolved: BoolArray
    """Whether the exit rule holds."""
    keep: IntArray
    """Rows of the update group."""
    keep_pos: FloatArray
    """Positives among them: a whole number, or the mean number where the split is random."""
    keep_neg: FloatArray
    """Negatives among them, likewise."""
    adv_pos: FloatArray
    """Advantage of a kept positive; averaged over kept positives where the split is random."""
    adv_neg: FloatArray
    """Advantage of a kept negative, likewise."""
    signal: FloatArray
    """Chance that the group holds both classes: 0 or 1 unless the split is random."""
    short_of_positives: BoolArray
    """Unresolved, and no number of further negatives alone would resolve it."""
    short_of_negatives: BoolArray
    """Unresolved, and no number of further positives alone would resolve it."""
    random_split: bool
    """Whether the kept class counts are random given the cell."""
    shared: bool
    """Whether a budget of the whole batch decides the draws: then the draws table is 0, and no path is known."""

    @property
    def max_samples(self) -> int:
        """K, the most responses a prompt may get."""
        return int(self.draws.shape[0]) - 1

    @cached_property
    def reach(self) -> FloatArray:
        """Chance that a round ends at the cell, given the counts there; free of p."""
        return reach(self.draws)

    @cached_property
    def exits(self) -> BoolArray:
        """Cells at which a prompt can exit when every response gets a score."""
        return np.asarray((self.reach > 0) & (self.draws == 0))

    @cached_property
    def estimate(self) -> FloatArray:
        """Unbiased pass-rate estimate at the exit cell; the pool mean where the budget is shared."""
        return _estimate(self.draws, self.shared)


def compile_tables(policy: Policy) -> Tables:
    """Compile a policy to its tables, by plain NumPy; `Policy.tables` keeps the result."""
    most = policy.budget.max_samples
    pos, neg = np.indices((most + 1, most + 1), dtype=np.int64)
    resolved = policy.rule.holds(pos, neg)
    draws = policy.budget.draws(resolved)
    keep_pos, keep_neg = policy.group.split(pos, neg, policy.n)
    keep = keep_pos + keep_neg
    shared = isinstance(policy.budget, BatchBudget)
    estimate = _estimate(draws, shared)
    random_split = policy.group.random_split
    mean_pos, mean_neg = _expected_split(policy, pos, neg)

    def advantages(kept_pos: IntArray, kept_neg: IntArray) -> tuple[FloatArray, FloatArray]:
        cell = Cell(pos, neg, kept_pos, kept_neg, mean_pos, mean_neg, estimate, policy.n)
        return policy.bound_advantage.of_classes(cell)

    if random_split:
        adv_pos, adv_neg, signal = np.zeros((3, *pos.shape))
        for chance, kept_pos, kept_neg in splits(policy, pos, neg):
            of_pos, of_neg = advantages(kept_pos, kept_neg)
            adv_pos += chance * kept_pos * of_pos
            adv_neg += chance * kept_neg * of_neg
            signal += chance * ((kept_pos > 0) & (kept_neg > 0))
        np.divide(adv_pos, mean_pos, out=adv_pos, where=mean_pos > 0)
        np.divide(adv_neg, mean_neg, out=adv_neg, where=mean_neg > 0)
    else:
        adv_pos, adv_neg = advantages(keep_pos, keep_neg)
        adv_pos, adv_neg = np.where(keep_pos > 0, adv_pos, 0.0), np.where(keep_neg > 0, adv_neg, 0.0)
        signal = np.asarray((keep_pos > 0) & (keep_neg > 0), dtype=np.float64)

    # A rule that never holds wants nothing but signal.
    wanted = resolved if resolved.any() else (pos > 0) & (neg > 0)
    by_neg = np.logical_or.accumulate(wanted[:, ::-1], axis=1)[:, ::-1]
    by_pos = np.logical_or.accumulate(wanted[::-1], axis=0)[::-1]
    by_both = np.logical_or.accumulate(by_neg[::-1], axis=0)[::-1]
    tables = Tables(
        draws=draws,
        resolved=resolved,
        keep=keep,
        keep_pos=mean_pos,
        keep_neg=mean_neg,
        adv_pos=adv_pos,
        adv_neg=adv_neg,
        signal=signal,
        short_of_positives=by_both & ~by_neg,
        short_of_negatives=by_both & ~by_pos,
        random_split=random_split,
        shared=shared,
    )
    for table in vars(tables).values():
        if isinstance(table, np.ndarray):
            table.setflags(write=False)
    return tables


def _estimate(draws: IntArray, shared: bool) -> FloatArray:
    return pool_mean_estimate(*np.indices(draws.shape)) if shared else unbiased_estimate(draws)


def _expected_split(policy: Policy, pos: IntArray, neg: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean numbers of positives and negatives kept, given the pool."""
    keep_pos, keep_neg = policy.group.split(pos, neg, policy.n)
    if policy.group.random_split:
        share = (keep_pos + keep_neg) / np.maximum(pos + neg, 1)
        return np.asarray(share * pos), np.asarray(share * neg)
    return keep_pos.astype(np.float64), keep_neg.astype(np.float64)


def splits(policy: Policy, pos: IntArray, neg: IntArray) -> Iterator[tuple[FloatArray, IntArray, IntArray]]:
    """Yield the chance of every split of the group and its class counts, each shaped like `pos` and `neg`.

    One split of chance 1 where the group rule fixes it. A split that a cell can't have comes
    with chance 0 and no rows there.
    """
    keep_pos, keep_neg = policy.group.split(pos, neg, policy.n)
    if not policy.group.random_split:
        yield np.ones(pos.shape), keep_pos, keep_neg
        return
    keep = keep_pos + keep_neg
    for kept, chance in enumerate(_split_law(pos, neg, keep)):
        possible = (kept <= keep) & (chance > 0)
        yield chance * possible, np.where(possible, kept, 0), np.where(possible, keep - kept, 0)


def class_advantages(
    policy: Policy, pos: IntArray, neg: IntArray, keep_pos: IntArray, keep_neg: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the advantages of a kept positive and negative for pools and groups that were realised.

    Parameters
    ----------
    policy
        The policy.
    pos, neg, keep_pos, keep_neg
        ``[prompt]`` class counts of the pool and of the kept group.

    Returns
    -------
    tuple of FloatArray
        ``[prompt]`` each.
    """
    expected = _expected_split(policy, pos, neg)
    cell = Cell(pos, neg, keep_pos, keep_neg, *expected, policy.tables.estimate[pos, neg], policy.n)
    return policy.bound_advantage.of_classes(cell)


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


_PICTURES = ("draws", "keep_pos", "keep_neg", "adv_pos", "adv_neg")


def draw_lattice(tables: Tables, table: str = "draws", size: int = 16) -> str:
    """Draw one table as text: positives upwards, negatives to the right.

    Parameters
    ----------
    tables
        The tables of a policy.
    table
        One of ``draws``, ``keep_pos``, ``keep_neg``, ``adv_pos``, ``adv_neg``. The draws table
        shows the size of the next round, ``+`` where a prompt exits resolved and ``x`` where
        it exits exhausted; the other tables show exit cells. A dot is a cell that can't be
        the end of a round.
    size
        Cells of each axis that are shown, from 0.

    Returns
    -------
    str
        The picture, without a final line break.
    """
    if table not in _PICTURES:
        raise unknown_name("table", table, _PICTURES)
    size = min(check_count("size", size), tables.max_samples + 1)
    values = getattr(tables, table)

    def text(pos: int, neg: int) -> str:
        if pos + neg > tables.max_samples:
            return ""
        if tables.reach[pos, neg] == 0:
            return "."
        if table == "draws":
            if tables.draws[pos, neg]:
                return str(tables.draws[pos, neg])
            return "+" if tables.resolved[pos, neg] else "x"
        if tables.draws[pos, neg]:
            return "-"
        value = values[pos, neg]
        return f"{value:+.2f}" if table.startswith("adv") else f"{value:.3g}"

    cells = [[text(pos, neg) for neg in range(size)] for pos in range(size)]
    width = max(2, len(str(size - 1)), *(len(cell) for row in cells for cell in row))
    lines = ["pos"]
    lines += [f"{pos:>3} | " + " ".join(f"{cell:>{width}}" for cell in cells[pos]) for pos in reversed(range(size))]
    lines.append("    +" + "-" * ((width + 1) * size))
    lines.append("      " + " ".join(f"{neg:>{width}}" for neg in range(size)) + "  neg")
    return "\n".join(line.rstrip() for line in lines)
