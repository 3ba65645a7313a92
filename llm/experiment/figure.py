"""Figures of an experiment: pass rates against steps and against generated tokens, and what a step costs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import draw_figures
from ada_bandit.programs.looks import name_lines, panels_of, policy_looks
from llm.experiment.plan import Axis
from llm.experiment.results import Results, mean_over_seeds, series, value_at
from llm.histories import Arm
from llm.run_figures import draw_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

_AXES: dict[Axis, str] = {"steps": "step", "tokens": "generated tokens, in training"}
_POINTS = 201


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Draw ``pass_rate`` and the figures of `llm.run_figures.draw_runs` as PNG and SVG into an existing folder.

    The latter show means over a twentieth of the shortest run's steps: single steps of several arms hide each other.
    """
    arms = [Arm(name, list(arm.runs.values())) for name, arm in results.arms.items()]
    smooth = max(min(len(run.steps) for arm in arms for run in arm.runs) // 20, 1)
    return [*draw_figures({"pass_rate": partial(_draw, results)}, folder), *draw_runs(arms, folder, smooth)]


def _draw(results: Results, figure: Figure) -> None:
    from matplotlib.ticker import EngFormatter

    parts = panels_of(len(results.arms))
    looks = policy_looks(list(results.arms))
    rows = [(evaluation, part) for evaluation in results.evaluations for part in parts]
    figure.set_size_inches(11.2, 0.4 + 3.2 * len(rows))
    grid = figure.subplots(len(rows), len(_AXES), squeeze=False, sharex="col")
    for panels, (evaluation, part) in zip(grid, rows, strict=True):
        for axes, axis in zip(panels, _AXES, strict=True):
            for index, (arm, look) in enumerate(zip(results.arms, looks, strict=True)):
                # Arms of other panels stay in sight: one scale for all.
                grey = {"color": "#DDDDDD", "linewidth": 0.9, "zorder": 0.5}
                drawn = {"label": arm, **look} if index in part else grey
                _line(axes, results, arm, evaluation, axis, drawn, band=index in part)
            for point in results.points[axis]:
                axes.axvline(point, color="#888888", linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
        panels[1].sharey(panels[0])
        panels[0].set_ylabel("pass rate")
        panels[0].set_title("training prompts" if evaluation == "pool" else evaluation)
    for axes, label in zip(grid[-1], _AXES.values(), strict=True):
        axes.set_xlabel(label)
        axes.set_xlim(0, None)
    grid[-1, 1].xaxis.set_major_formatter(EngFormatter(sep=""))
    bands = "bands: ± 1 standard error over seeds; " if any(axes.collections for axes in grid.flat) else ""
    grid[0, 1].set_title(f"{bands}dotted: where arms are compared", loc="right", fontsize=9)
    name_lines(figure, grid.flat, size=8.5)


def _line(
    axes: Axes, results: Results, arm: str, evaluation: str, axis: Axis, look: dict[str, Any], *, band: bool
) -> None:
    """Draw the mean over base models and seeds as far as every run got, and the band of the seeds."""
    keys, runs = zip(*results.arms[arm].runs.items(), strict=True)
    ends = [series(run, evaluation, axis)[0] for run in runs]
    if not all(where.size for where in ends):
        return
    x = np.linspace(max(where[0] for where in ends), min(where[-1] for where in ends), _POINTS)
    values = np.array([value_at(run, evaluation, axis, x) for run in runs])
    mean, error = mean_over_seeds(values, [str(key).rpartition("/")[0] for key in keys])
    axes.plot(x, mean, **look)
    if band and np.isfinite(error).any():
        axes.fill_between(x, mean - error, mean + error, color=look["color"], alpha=0.18, linewidth=0)
