"""The figure of shared budgets: where the responses go, and what that buys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, draw_figures, line_style
from sim.budget.study import BudgetComparison, Gains

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

_MARKS = "osD^vPX<>*"


def write_figures(comparison: BudgetComparison, folder: Path) -> list[Path]:
    """Write the figure as ``budget.png`` and ``budget.svg`` into an existing folder; return the files."""
    return draw_figures({"budget": partial(_draw, comparison)}, folder)


def _draw(comparison: BudgetComparison, figure: Figure) -> None:
    rows = len(comparison.rows)
    figure.set_size_inches(13.5, 3.6 + 0.2 * rows)
    responses, signal, own, equal = figure.subplots(1, 4, width_ratios=(1.6, 0.8, 1, 1))
    _responses(comparison, responses)
    _signal(comparison, signal)
    _efficiency(comparison, own, [row.own for row in comparison.rows], "own advantages,\neach for its objective")
    one = comparison.rows[0].equal
    _efficiency(
        comparison, equal, [row.equal for row in comparison.rows], f"all {one.advantage},\nobjective {one.objective}"
    )
    names = [row.policy for row in comparison.rows]
    stated = [f"{row.policy} ({row.own.objective})" for row in comparison.rows]
    for axes, labels in ((signal, names), (own, stated), (equal, [])):
        axes.set_yticks(np.arange(rows), labels or [""] * rows)
        axes.set_ylim(rows - 0.5, -0.5)
    full: dict[str, Any] = {"color": GREY, "linestyle": "none", "marker": "o", "markersize": 6}
    equal.plot([], [], label="efficiency, summed", **full)
    equal.plot([], [], label="averaged", markerfacecolor="white", **full)
    parts = [axes.get_legend_handles_labels() for axes in (responses, equal)]
    handles, labels = ([*first, *second] for first, second in zip(*parts, strict=True))
    figure.legend(handles, labels, loc="outside upper left", ncols=8, fontsize=9.5, handlelength=2.6)


def _responses(comparison: BudgetComparison, axes: Axes) -> None:
    """Draw mean responses by pass rate, in groups of about equally many prompts."""
    at = np.arange(comparison.group_prompts.size)
    for index, (row, means) in enumerate(zip(comparison.rows, comparison.group_responses, strict=True)):
        style = line_style(index) | {"marker": _MARKS[index % len(_MARKS)], "markersize": 4.5, "linewidth": 1.5}
        axes.plot(at, means, label=row.policy, **style)
    ends = comparison.group_ends.tolist()
    labels = [f"{low:.2g}" if low == high else f"{low:.2g}–{high:.2g}" for low, high in ends]  # noqa: RUF001 - a dash
    axes.set_xticks(at, labels, fontsize=7.5, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_ylim(0, None)
    axes.set_xlabel("pass rate p of the prompt")
    axes.set_ylabel("responses of a prompt in a step")
    axes.set_title(f"{comparison.source.label}\n{comparison.scoring.model.regime}", color="#333333")


def _signal(comparison: BudgetComparison, axes: Axes) -> None:
    for index, row in enumerate(comparison.rows):
        _point(axes, row.signal.mean, row.signal.se, index, index)
    axes.set_xlabel("signal: share of prompts whose\ngroup holds both classes")
    axes.set_title("± 2 standard errors", color="#333333")


def _efficiency(comparison: BudgetComparison, axes: Axes, gains: Sequence[Gains], title: str) -> None:
    """Draw both efficiencies, relative to the reference; those that have none are left out."""
    axes.axvline(1, color=GREY, linewidth=1, zorder=1)
    for index, each in enumerate(gains):
        for value, filled in ((each.efficiency_ratio, True), (each.averaged_efficiency_ratio, False)):
            if value is not None:
                _point(axes, value.mean, value.se, index + (-0.13 if filled else 0.13), index, filled=filled)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"efficiency per response,\nover that of {comparison.reference}")
    axes.set_title(title, color="#333333")


def _point(axes: Axes, mean: float, se: float, y: float, index: int, *, filled: bool = True) -> None:
    colour = line_style(index)["color"]
    axes.errorbar(mean, y, xerr=2 * se, color=colour, marker="o", markersize=6, elinewidth=1.3, zorder=3,
                  markerfacecolor=colour if filled else "white", markeredgewidth=1.5)  # fmt: skip
