"""A policy as tables over the (pos, neg) lattice: what the analysis, the simulator and the allocator index.

The second stage of compilation: advantages under what sampling does. After it nobody asks a rule,
a group rule or an advantage rule again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import Advantage
from ada_bandit.errors import check_count, unknown_name
from ada_bandit.sampling import SamplingTables, frozen

__all__ = ["NoSignal", "OfRewards", "Split", "Tables", "compile_tables", "draw_lattice"]

OfRewards: TypeAlias = Callable[[FloatArray, BoolArray, BoolArray], FloatArray]
"""From rewards, what is scored and what is kept, each ``[prompt, response]``, to advantages of the same shape."""

NoSignal: TypeAlias = Literal["mask", "leave_out", "keep"]
"""What becomes of a silent group, one whose kept rows have no advantage by their correctness.

Shaping alone would still give its rows advantages: a format reward, a length penalty, a partial score.

``"mask"``
    Its rows have advantage 0, and count in the loss's denominator: what plain GRPO does with
    rewards of 0 and 1.
``"leave_out"``
    None of its rows is kept: no gradient, and no part in the denominator.
``"keep"``
    Its rows have the advantages that the rewards give them.
"""


@dataclass(frozen=True, eq=False)
class Split:
    """One way in which a group can fall into classes; every array is ``[pos, neg]``."""

    chance: FloatArray
    """Chance of the split, given the pool."""
    keep_pos: IntArray
    """Positives kept."""
    keep_neg: IntArray
    """Negatives kept."""
    adv_pos: FloatArray
    """Advantage of a kept positive."""
    adv_neg: FloatArray
    """Advantage of a kept negative."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tables(SamplingTables):
    """The tables of one policy; every array is read-only."""

    adv_pos: FloatArray
    """`[pos, neg]` or `[split, pos, neg]` Advantage of a kept positive; 0 where none is kept."""
    adv_neg: FloatArray
    """`[pos, neg]` or `[split, pos, neg]` Advantage of a kept negative, likewise."""
    of_rewards: OfRewards | None
    """Advantages from rewards that are not 0 or 1; None where correctness alone is weighed, by the tables."""
    least_reward: float
    """The least reward that the advantage has a meaning for."""
    no_signal: NoSignal
    """What becomes of a silent group."""

    @cached_property
    def silent(self) -> BoolArray:
        """Where no kept row has an advantage, shaped like `keep_pos`: rewards of 0 and 1 leave no gradient there."""
        return np.asarray((self.adv_pos == 0) & (self.adv_neg == 0))

    @cached_property
    def rows_in_loss(self) -> FloatArray:
        """Mean number of rows that count in the denominator of a loss that is a mean over rows, ``[pos, neg]``."""
        counts = ~self.silent if self.no_signal == "leave_out" else True
        return self._mean((self.keep_pos + self.keep_neg) * counts)

    def splits(self) -> Iterator[Split]:
        """Yield every split of the group: one of chance 1 where the group rule fixes it."""
        if not self.random_split:
            yield Split(self.chance, self.keep_pos, self.keep_neg, self.adv_pos, self.adv_neg)
            return
        for parts in zip(self.chance, self.keep_pos, self.keep_neg, self.adv_pos, self.adv_neg, strict=True):
            yield Split(*parts)

    @cached_property
    def gain_pos(self) -> FloatArray:
        """E[keep_pos adv_pos] at the cell, ``[pos, neg]``."""
        return self._mean(self.keep_pos * self.adv_pos)

    @cached_property
    def gain_neg(self) -> FloatArray:
        """E[keep_neg adv_neg] at the cell, ``[pos, neg]``."""
        return self._mean(self.keep_neg * self.adv_neg)

    @property
    def mean_adv_pos(self) -> FloatArray:
        """Advantage of a kept positive, averaged over kept positives, ``[pos, neg]``."""
        return _ratio(self.gain_pos, self.mean_keep_pos)

    @property
    def mean_adv_neg(self) -> FloatArray:
        """Advantage of a kept negative, averaged over kept negatives, ``[pos, neg]``."""
        return _ratio(self.gain_neg, self.mean_keep_neg)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.asarray(np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0))


def compile_tables(sampling: SamplingTables, advantage: Advantage, no_signal: NoSignal) -> Tables:
    """Compile the advantages under what sampling does; `ada_bandit.policy.Policy.tables` keeps the result."""
    adv_pos, adv_neg = advantage.compile(sampling)
    tables = Tables(
        **{field.name: getattr(sampling, field.name) for field in fields(SamplingTables)},
        adv_pos=adv_pos,
        adv_neg=adv_neg,
        of_rewards=advantage.of_rewards if advantage.uses_rewards else None,
        least_reward=advantage.least_reward,
        no_signal=no_signal,
    )
    # What was derived of the sampling already, such as the paths, is not derived again.
    vars(tables).update({key: value for key, value in vars(sampling).items() if key not in vars(tables)})
    return frozen(tables)


_PICTURES: dict[str, Callable[[Tables], IntArray | FloatArray]] = {
    "draws": lambda tables: tables.draws,
    "keep_pos": lambda tables: tables.mean_keep_pos,
    "keep_neg": lambda tables: tables.mean_keep_neg,
    "adv_pos": lambda tables: tables.mean_adv_pos,
    "adv_neg": lambda tables: tables.mean_adv_neg,
}


def draw_lattice(tables: Tables, table: str = "draws", size: int = 16) -> str:
    """Draw one table as text: positives upwards, negatives to the right.

    Parameters
    ----------
    tables
        The tables of a policy.
    table
        One of ``draws``, ``keep_pos``, ``keep_neg``, ``adv_pos``, ``adv_neg``. The draws table
        shows the size of the next round, ``+`` where a prompt exits resolved and ``x`` where
        it exits exhausted; the other tables show exit cells, and means where the split of a
        group is random. A dot is a cell that can't be
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
    values = _PICTURES[table](tables)

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
