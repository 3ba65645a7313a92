"""The figure of a report: measured against predicted efficiency, one colour a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ada_bandit.programs.figures import draw_figures, label_points
from ada_bandit.programs.looks import policy_looks
from llm.experiment.agreement import Agreement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_agreement"]

Point = tuple[str, float, float, float, float]
"""An arm, its predicted ratio, its measured one, and the ends of the measured one's interval."""


def write_agreement(
    points: Mapping[str, Sequence[Point]], found: Agreement, folder: Path, reference: str
) -> list[Path]:
    """Write ``agreement.png`` and ``agreement.svg``; `points` are by task."""
    return draw_figures({"agreement": partial(_draw, points, found, reference)}, folder)


def _draw(points: Mapping[str, Sequence[Point]], found: Agreement, reference: str, figure: Figure) -> None:
    figure.set_size_inches(max(0.8 + 4.9 * len(points), 6.0), 5.6)
    grid = figure.subplots(1, len(points), squeeze=False, sharey=True)[0]
    values = [value for rows in points.values() for row in rows for value in row[1:3]]
    low, high = min(values) / 1.25, max(values) * 1.25
    for axes, (task, rows) in zip(grid, points.items(), strict=True):
        looks = policy_looks([name for name, *_ in rows])
        axes.plot([low, high], [low, high], color="#888888", linewidth=0.9, zorder=1)
        axes.axhline(1, color="#bbbbbb", linewidth=0.7, zorder=0)
        axes.axvline(1, color="#bbbbbb", linewidth=0.7, zorder=0)
        for (_, x, y, least, most), look in zip(rows, looks, strict=True):
            colour = look["color"]
            axes.plot([x, x], [max(least, low), min(most, high)], color=colour, linewidth=1, alpha=0.45, zorder=2)
            axes.plot([x], [y], "o", color=colour, markersize=5, zorder=3)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        ticks = [tick for tick in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 10) if low <= tick <= high]
        for each in (axes.xaxis, axes.yaxis):
            each.set_major_locator(_fixed(ticks))
            each.set_major_formatter("{x:g}")
            each.set_minor_locator(_fixed([]))
        axes.set_title(task)
    grid[0].set_ylabel("measured")
    figure.supxlabel(f"predicted: responses of {reference} over the arm's", fontsize=10)
    figure.suptitle(
        f"tau {found.tau:.2f} ± {found.tau_error:.2f}, slope {found.slope:.2f} ± {found.slope_error:.2f} over "
        f"{found.count} arms; line: as predicted; bars: 95 % over base models and seeds",
        x=0.01,
        ha="left",
        fontsize=10,
    )
    for axes, rows in zip(grid, points.values(), strict=True):
        looks = policy_looks([name for name, *_ in rows])
        label_points(
            figure,
            axes,
            [(x, y, name, look["color"]) for (name, x, y, *_), look in zip(rows, looks, strict=True)],
            size=7.5,
        )


def _fixed(ticks: Sequence[float]) -> object:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(list(ticks))
