"""The figure of measured efficiencies: a row a policy, measured and predicted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit.programs.figures import GREY, draw_figures, legend, line_style
from sim.frontier.figure import plain_ticks
from sim.frontier.measured import MeasuredFrontier
from sim.words import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_measured"]

_MEASURED, _PREDICTED = (line_style(index)["color"] for index in (0, 1))


def write_measured(placed: MeasuredFrontier, folder: Path) -> list[Path]:
    """Write the figure as ``frontier.png`` and ``frontier.svg`` into an existing folder; return the files."""
    return draw_figures({"frontier": partial(_draw, placed)}, folder)


def _draw(placed: MeasuredFrontier, figure: Figure) -> None:
    points = sorted(placed.points, key=lambda point: point.measured)
    figure.set_size_inches(8.4, 1.6 + 0.27 * len(points))
    axes = figure.subplots()
    rows = np.arange(len(points))
    value = np.array([point.measured for point in points])
    error = np.nan_to_num([point.error for point in points])
    predicted = np.array([np.nan if point.predicted is None else point.predicted for point in points])
    shown = np.concatenate([value, predicted])
    positive = shown[np.isfinite(shown) & (shown > 0)]
    # What is not above 0, or nearly, stands at the edge of the logarithmic axis.
    low = max(positive.min(initial=1.0), positive.max(initial=1.0) / 1000) / 1.4
    high = 1.4 * (value + 2 * error).max(initial=positive.max(initial=1.0))
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ends = np.clip([value - 2 * error, value + 2 * error], low, high)
    axes.hlines(rows, *ends, color=_MEASURED, linewidth=1.6, zorder=2)
    plugged = np.array([point.plugged > 0 for point in points])
    for mask, face, name in (
        (~plugged, _MEASURED, "measured ± 2 standard errors"),
        (plugged, "white", "the same, biased: more draws than the probe has responses"),
    ):
        if mask.any():
            axes.plot(
                np.clip(value[mask], low, None),
                rows[mask],
                color=_MEASURED,
                marker="o",
                markersize=6,
                markerfacecolor=face,
                linestyle="none",
                clip_on=False,
                zorder=3,
                label=name,
            )
    axes.plot(
        np.clip(predicted, low, None),
        rows,
        color=_PREDICTED,
        marker="D",
        markersize=6,
        markerfacecolor="none",
        markeredgewidth=1.5,
        linestyle="none",
        clip_on=False,
        zorder=4,
        label="predicted by the score model",
    )
    axes.axvline(1, color=GREY, linewidth=1, linestyle=":", zorder=1)
    axes.set_yticks(rows, [point.policy for point in points])
    axes.set_ylim(-0.7, len(points) - 0.3)
    plain_ticks(axes.xaxis)
    regime = "fresh prompts" if placed.pool is None else f"a pool of {placed.pool}"
    axes.set_xlabel("efficiency over that of GRPO, n = 4")
    axes.set_title(
        f"objective {placed.objective}, {regime}, {placed.batch} {plural(placed.batch, 'prompt')} a step",
        color="#333333",
    )
    legend(figure, axes)
