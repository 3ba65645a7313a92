"""The figure of shared budgets: where the responses go, and what that buys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, draw_figures
from sim.budget.study import BudgetComparison, Gains

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["write_figures"]

# Methods are told apart by their places: one ink serves all.
_INK = "#0B3C5D"


def write_figures(comparison: BudgetComparison, folder: Path) -> list[Path]:
    """Write the figure as ``budget.png`` and ``budget.svg`` into an existing folder; return the files."""
    return draw_figures({"budget": partial(_draw, comparison)}, folder)


def _draw(comparison: BudgetComparison, figure: Figure) -> None:
    rows = len(comparison.rows)
    down = -(-rows // 7)
    across = -(-rows // down)
    figure.set_size_inches(12.5, 1.75 * down + 2.4 + 0.22 * rows)
    halves = figure.subfigures(2, 1, height_ratios=(1.75 * down + 0.8, 1.5 + 0.22 * rows), squeeze=False)
    above, below = halves[:, 0]
    _responses(comparison, above, across, down)
    signal, own, equal = below.subplots(1, 3)
    _signal(comparison, signal)
    _efficiency(comparison, own, [row.own for row in comparison.rows], "own advantages, each for its objective")
    one = comparison.rows[0].equal
    _efficiency(
        comparison, equal, [row.equal for row in comparison.rows], f"all {one.advantage}, objective {one.objective}"
    )
    names = [row.policy for row in comparison.rows]
    stated = [f"{row.policy} ({row.own.objective})" for row in comparison.rows]
    for axes, labels in ((signal, names), (own, stated), (equal, [])):
        axes.set_yticks(np.arange(rows), labels or [""] * rows)
        axes.set_ylim(rows - 0.5, -0.5)
    full: dict[str, Any] = {"color": _INK, "linestyle": "none", "marker": "o", "markersize": 6}
    equal.plot([], [], label="efficiency, summed", **full)
    equal.plot([], [], label="averaged", markerfacecolor="white", **full)
    below.legend(*equal.get_legend_handles_labels(), loc="outside lower right", ncols=2, fontsize=9.5)


def _responses(comparison: BudgetComparison, figure: SubFigure, across: int, down: int) -> None:
    """Draw mean responses by pass rate, in groups of about equally many prompts, a panel a method."""
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    at = np.arange(comparison.group_prompts.size)
    for axes, row, means in zip(grid.flat, comparison.rows, comparison.group_responses, strict=False):
        axes.plot(at, np.transpose(comparison.group_responses), color="#DDDDDD", linewidth=0.9, zorder=1)
        axes.plot(at, means, color=_INK, marker="o", markersize=3.5, linewidth=1.6, zorder=2)
        axes.set_title(row.policy, fontsize=10)
    for axes in grid.flat[len(comparison.rows) :]:
        # An empty place carries the labels of its column.
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        axes.tick_params(left=False)
    ends = comparison.group_ends.tolist()
    labels = [f"{low:.2g}" if low == high else f"{low:.2g}–{high:.2g}" for low, high in ends]  # noqa: RUF001 - a dash
    for axes in grid[-1]:
        axes.set_xticks(at, labels, fontsize=7, rotation=90)
    grid[0, 0].set_ylim(0, None)
    figure.supxlabel("pass rate p of the prompt, groups of about equally many prompts", fontsize=10)
    figure.supylabel("responses of a prompt in a step", fontsize=10)
    figure.suptitle(f"{comparison.source.label}; {comparison.scoring.model.regime}; the other methods in grey",
                    x=0.01, ha="left", fontsize=10.5, color="#333333")  # fmt: skip


def _signal(comparison: BudgetComparison, axes: Axes) -> None:
    for index, row in enumerate(comparison.rows):
        _point(axes, row.signal.mean, row.signal.se, index)
    axes.set_xlabel("signal: share of prompts whose group holds both classes")
    axes.set_title("± 2 standard errors", color="#333333")


def _efficiency(comparison: BudgetComparison, axes: Axes, gains: Sequence[Gains], title: str) -> None:
    """Draw both efficiencies, relative to the reference; those that have none are left out."""
    axes.axvline(1, color=GREY, linewidth=1, zorder=1)
    for index, each in enumerate(gains):
        for value, filled in ((each.efficiency_ratio, True), (each.averaged_efficiency_ratio, False)):
            if value is not None:
                _point(axes, value.mean, value.se, index + (-0.13 if filled else 0.13), filled=filled)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"efficiency per response, over that of {comparison.reference}")
    axes.set_title(title, color="#333333")


def _point(axes: Axes, mean: float, se: float, y: float, *, filled: bool = True) -> None:
    axes.errorbar(mean, y, xerr=2 * se, color=_INK, marker="o", markersize=6, elinewidth=1.3, zorder=3,
                  markerfacecolor=_INK if filled else "white", markeredgewidth=1.5)  # fmt: skip
