"""The figure of a run that learns its prior: its share of the true optimum, step by step."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, draw_figures
from ada_bandit.programs.looks import name_lines, policy_looks
from sim.empirical_bayes.study import NEAR, DriftResult, Track

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

# The colour that the method has in every figure, and greys for what it is held against.
_LEARNED, _STATED, _FIRST = policy_looks(["empirical-bayes"])[0]["color"], "#8C8C8C", "#333333"


def write_figures(result: DriftResult, folder: Path) -> list[Path]:
    """Write the figure as ``empirical_bayes.png`` and ``.svg`` into an existing folder; return the files."""
    return draw_figures({"empirical_bayes": partial(_draw, result)}, folder)


def _draw(result: DriftResult, figure: Figure) -> None:
    columns = 2 if len(result.tracks) == 4 else min(len(result.tracks), 3)
    rows = -(-len(result.tracks) // columns)
    figure.set_size_inches(4.9 * columns if columns > 1 else 7.2, 3.9 * rows + 0.3)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    every = [values for track in result.tracks for values in (track.shares, track.not_following, track.not_learning)]
    low = min(float(values.min()) for values in every)
    # Room for the words at the bottom.
    low = max(low - 0.16 * (1.01 - low), 0.0)
    for index, axes in enumerate(grid.flat):
        if index >= len(result.tracks):
            axes.set_visible(False)
            continue
        _panel(result, result.tracks[index], axes, low)
        if index % columns == 0:
            axes.set_ylabel("efficiency, share of the optimum's")
        if index + columns >= len(result.tracks):
            axes.set_xlabel(f"steps of {result.setting.prompts} prompts")
            axes.xaxis.set_tick_params(labelbottom=True)
    name_lines(figure, grid[:rows, -1] if len(result.tracks) % columns == 0 else grid.flat[: len(result.tracks)])


def _panel(result: DriftResult, track: Track, axes: Axes, low: float) -> None:
    steps = np.arange(result.setting.steps + 1)
    half = result.setting.steps // 2
    thin: dict[str, Any] = {"linewidth": 1.4, "zorder": 2}
    axes.axhline(1, color="#444444", linewidth=0.8, zorder=1)
    axes.axhline(NEAR, color=GREY, linewidth=1, linestyle=":", zorder=1, label=f"{NEAR:.0%} of the\noptimum")
    axes.fill_between(
        steps, track.shares.min(axis=0), track.shares.max(axis=0), color=_LEARNED, alpha=0.2, linewidth=0, zorder=2,
    )  # fmt: skip
    axes.plot(
        steps,
        track.mean,
        color=_LEARNED,
        zorder=3,
        label=f"empirical Bayes:\nmean and range\nof {result.setting.runs} runs",
    )
    axes.plot(steps, track.not_learning, color=_STATED, linestyle="--", **thin, label="prior never fitted")
    axes.plot(steps, track.not_following, color=_FIRST, linestyle="-.", **thin, label="optimum of the\nfirst law, kept")
    last = half + (1 if result.setting.drift == "abrupt" else result.setting.steps // 4)
    axes.axvspan(half, last, color="#f0f0f0", zorder=0)
    axes.annotate(f"drift to\n{result.end.label}", (half, low), xytext=(4, 3), textcoords="offset points",
                  ha="left", va="bottom", color="#555555", fontsize=8.5)  # fmt: skip
    axes.set_xlim(0, result.setting.steps)
    axes.set_ylim(low, 1.01)
    axes.set_title(f"noise ratio {track.noise_ratio:g}", color="#333333")
