"""The figure of shared budgets: where the responses go, and what that buys."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, draw_figures, line_style
from sim.budget.study import BudgetComparison

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
    figure.set_size_inches(11.5, 3.4 + 0.2 * rows)
    responses, signal, efficiency = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    _responses(comparison, responses)
    _signal(comparison, signal)
    _efficiency(comparison, efficiency)
    for axes in (signal, efficiency):
        axes.set_yticks(np.arange(rows), [row.policy for row in comparison.rows])
        axes.set_ylim(rows - 0.5, -0.5)
    efficiency.set_yticklabels([])
    handles, labels = responses.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=5, fontsize=9.5, handlelength=2.6)


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
    axes.set_title(comparison.source.label, color="#333333")


def _signal(comparison: BudgetComparison, axes: Axes) -> None:
    for index, row in enumerate(comparison.rows):
        _point(axes, row.signal.mean, row.signal.se, index, index)
    axes.set_xlabel("signal: share of prompts whose\ngroup holds both classes")
    axes.set_title("± 2 standard errors", color="#333333")


def _efficiency(comparison: BudgetComparison, axes: Axes) -> None:
    """Draw both efficiencies, relative to the reference; those that have none are left out."""
    axes.axvline(1, color=GREY, linewidth=1, zorder=1)
    full: dict[str, Any] = {"color": GREY, "linestyle": "none", "marker": "o", "markersize": 6}
    axes.plot([], [], label="summed", **full)
    axes.plot([], [], label="averaged", markerfacecolor="white", **full)
    for index, row in enumerate(comparison.rows):
        for value, filled in ((row.efficiency_ratio, True), (row.averaged_efficiency_ratio, False)):
            if value is not None:
                _point(axes, value.mean, value.se, index + (-0.13 if filled else 0.13), index, filled=filled)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"efficiency per response,\nover that of {comparison.reference}")
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.05, 0.99), ncols=2, fontsize=8.5, handletextpad=0.1, columnspacing=1
    )


def _point(axes: Axes, mean: float, se: float, y: float, index: int, *, filled: bool = True) -> None:
    colour = line_style(index)["color"]
    axes.errorbar(mean, y, xerr=2 * se, color=colour, marker="o", markersize=6, elinewidth=1.3, zorder=3,
                  markerfacecolor=colour if filled else "white", markeredgewidth=1.5)  # fmt: skip
