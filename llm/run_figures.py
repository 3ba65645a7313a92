"""Figures of training runs: reward on both axes, entropy, responses and time, with a band over the seeds of an arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import draw_figures, legend, line_style
from llm.histories import Arm, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "PHASES", "draw_runs"]

FIGURES = ("reward", "entropy", "responses", "time")
"""File names of the figures of runs, without ending."""

PHASES = ("prompts", "sample", "verify", "allocate", "exchange", "update", "sync", "eval", "checkpoint", "other")
"""Phases of a step in the order in which they are drawn; ones of another name follow."""

# After Okabe and Ito, for eyes that confuse colours.
_BARS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#999999", "#333333")


def draw_runs(arms: Sequence[Arm], folder: Path, smooth: int = 1) -> list[Path]:
    """Draw every figure of `FIGURES` as PNG and SVG.

    Parameters
    ----------
    arms
        What is compared, at least one.
    folder
        An existing folder; files of the same name are replaced.
    smooth
        Steps over which what is measured at every step is averaged.

    Returns
    -------
    list of Path
        The files, in the order of `FIGURES`.
    """

    def reward(figure: Figure) -> None:
        _draw_reward(figure, arms, smooth)

    def entropy(figure: Figure) -> None:
        _draw_entropy(figure, arms, smooth)

    def responses(figure: Figure) -> None:
        _draw_responses(figure, arms, smooth)

    def seconds(figure: Figure) -> None:
        _draw_time(figure, arms)

    return draw_figures(dict(zip(FIGURES, (reward, entropy, responses, seconds), strict=True)), folder)


def _over(smooth: int) -> str:
    return f", mean of {smooth} steps" if smooth > 1 else ""


def _draw_reward(figure: Figure, arms: Sequence[Arm], smooth: int) -> None:
    names = list(dict.fromkeys(name for arm in arms for run in arm.runs for row in run.evals for name in row["eval"]))
    figure.set_size_inches(9.6, 0.6 + 2.9 * (1 + len(names)))
    grid = figure.subplots(1 + len(names), 2, squeeze=False, sharey="row", sharex="col")
    for index, arm in enumerate(arms):
        look = {"label": arm.label, **line_style(index)}
        _pair(grid[0], arm.steps("pool_reward", smooth), arm.steps("total_tokens"), look)
        for panels, name in zip(grid[1:], names, strict=True):
            rate = arm.evals(f"eval.{name}.pass_rate")
            if len(arm.runs) == 1:
                rate = Curve(rate.steps, rate.mean, arm.evals(f"eval.{name}.standard_error").mean)
            _pair(panels, rate, arm.evals("total_tokens"), look | {"marker": "o", "markersize": 3.5})
    titles = ("training prompts" + _over(smooth), *(f"evaluation: {name}" for name in names))
    for row, title in enumerate(titles):
        grid[row, 0].set_ylabel("pass rate" if row else "mean reward of the pool")
        grid[row, 0].set_title(title)
        _say_if_empty(grid[row, 0])
        _say_if_empty(grid[row, 1])
    if any(len(panel.collections) for panel in grid.flat):
        grid[0, 1].set_title("bands: ± 1 standard error", loc="right", fontsize=9, color="#555555")
    grid[-1, 0].set_xlabel("step")
    grid[-1, 1].set_xlabel("generated tokens, in training")
    grid[-1, 1].xaxis.set_major_formatter(_thousands())
    legend(figure, grid[0, 0])


def _pair(panels: Any, curve: Curve, tokens: Curve, look: Mapping[str, Any]) -> None:
    """Draw a curve against steps and against the tokens spent at these steps."""
    _line(panels[0], curve.steps.astype(np.float64), curve, look)
    _line(panels[1], tokens.mean, curve, look)


def _line(axes: Axes, x: FloatArray, curve: Curve, look: Mapping[str, Any]) -> None:
    axes.plot(x, curve.mean, **look)
    if np.isfinite(curve.error).any():
        low, high = curve.mean - curve.error, curve.mean + curve.error
        axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)


def _draw_entropy(figure: Figure, arms: Sequence[Arm], smooth: int) -> None:
    figure.set_size_inches(6.4, 4.4)
    axes = figure.subplots()
    for index, arm in enumerate(arms):
        entropy, reward = arm.steps("entropy", smooth).mean, arm.steps("pool_reward", smooth).mean
        look = line_style(index)
        axes.plot(entropy, reward, label=arm.label, **look)
        there = np.nonzero(np.isfinite(entropy) & np.isfinite(reward))[0]
        for place, fill in ((there[:1], "white"), (there[-1:], look["color"])):
            axes.plot(
                entropy[place], reward[place], "o", markersize=7, color=look["color"], markerfacecolor=fill, zorder=3
            )
    axes.set_xlabel("entropy of a token of the kept responses, nats")
    axes.set_ylabel("mean reward of the pool")
    axes.set_title("from the first step (open) to the last (filled)" + _over(smooth))
    _say_if_empty(axes)
    legend(figure, axes)


def _draw_responses(figure: Figure, arms: Sequence[Arm], smooth: int) -> None:
    figure.set_size_inches(9.6, 3.6)
    panels = figure.subplots(1, 2)
    wanted = (("responses", "responses a step"), ("signal_fraction", "share of prompts whose group has a signal"))
    for axes, (name, title) in zip(panels, wanted, strict=True):
        for index, arm in enumerate(arms):
            curve = arm.steps(name, smooth)
            _line(axes, curve.steps.astype(np.float64), curve, {"label": arm.label, **line_style(index)})
        axes.set_title(title + _over(smooth))
        axes.set_xlabel("step")
        axes.set_ylim(0, None if name == "responses" else 1.03)
        _say_if_empty(axes)
    legend(figure, panels[0])


def _draw_time(figure: Figure, arms: Sequence[Arm]) -> None:
    figure.set_size_inches(8.4, 1.1 + 0.42 * len(arms))
    axes = figure.subplots()
    seconds = [_seconds(arm) for arm in arms]
    named = {name for each in seconds for name in each} - {"total"}
    phases = [*(name for name in PHASES if name in named), *sorted(named - set(PHASES))]
    ends = np.zeros(len(arms))
    places = np.arange(len(arms))
    for index, phase in enumerate(phases):
        widths = np.array([each.get(phase, 0.0) for each in seconds])
        colour = _BARS[index % len(_BARS)]
        axes.barh(places, widths, left=ends, height=0.62, label=phase, color=colour, edgecolor="white", linewidth=0.6)
        ends += widths
    for place, end in zip(places, ends, strict=True):
        axes.annotate(f"{end:.3g} s", (end, place), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, [arm.label for arm in arms])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)
    axes.set_xlim(0, None)
    axes.set_xlabel("seconds a step, mean over the steps")
    if phases:
        legend(figure, axes)
    else:
        _say_empty(axes)


def _seconds(arm: Arm) -> dict[str, float]:
    """Return the mean seconds a step by phase, over all steps of the runs; a phase that a step lacks took none."""
    times = [row.get("time") or {} for run in arm.runs for row in run.steps]
    phases = dict.fromkeys(phase for each in times for phase in each)
    return {phase: sum(each.get(phase) or 0.0 for each in times) / len(times) for phase in phases}


def _say_if_empty(axes: Axes) -> None:
    points = np.concatenate([line.get_xydata() for line in axes.lines])
    if not np.isfinite(points).all(axis=1).any():
        _say_empty(axes)


def _say_empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no run has it", transform=axes.transAxes, ha="center", va="center", color="#555555")


def _thousands() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")
