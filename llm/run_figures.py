"""Figures of training runs: reward on both axes, entropy, responses and time, with a band over the seeds of an arm."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import draw_figures, legend
from ada_bandit.programs.looks import name_lines, panels_of, policy_looks
from llm.histories import Arm, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "PHASES", "draw_runs"]

FIGURES = ("reward", "entropy", "responses", "time")
"""File names of the figures of runs, without ending."""

PHASES = ("prompts", "sample", "verify", "allocate", "exchange", "update", "sync", "eval", "checkpoint", "other")
"""Phases of a step in the order in which they are drawn; ones of another name follow."""

_LEAST_SHARE = 0.005
# Light inks after Paul Tol, one a phase: the dark ones are for policies.
_BARS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00", "#DDDDDD", "#AAAAAA")


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
    parts = panels_of(len(arms))
    looks = policy_looks([arm.label for arm in arms])
    rows = [(name, part) for name in (None, *names) for part in parts]
    figure.set_size_inches(11.2, 0.4 + 2.9 * len(rows))
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex="col")
    for panels, (name, part) in zip(grid, rows, strict=True):
        for arm, style in [(arms[index], looks[index]) for index in part]:
            look = {"label": arm.label, **style}
            if name is None:
                _pair(panels, arm.steps("pool_reward", smooth), arm.steps("total_tokens"), look)
                continue
            rate = arm.evals(f"eval.{name}.pass_rate")
            if len(arm.runs) == 1:
                rate = Curve(rate.steps, rate.mean, arm.evals(f"eval.{name}.standard_error").mean)
            _pair(panels, rate, arm.evals("total_tokens"), look | {"marker": "o", "markersize": 3.5})
        panels[0].set_ylabel("pass rate" if name else "mean reward of the pool")
        panels[0].set_title(f"evaluation: {name}" if name else "training prompts" + _over(smooth))
        for axes in panels:
            _say_if_empty(axes)
    for start in range(0, len(rows), len(parts)):
        # The panels of one quantity have one scale.
        for axes in grid[start : start + len(parts)].flat[1:]:
            axes.sharey(grid[start, 0])
    if any(len(panel.collections) for panel in grid.flat):
        grid[0, 1].set_title("bands: ± 1 standard error", loc="right", fontsize=9, color="#555555")
    grid[-1, 0].set_xlabel("step")
    grid[-1, 1].set_xlabel("generated tokens, in training")
    grid[-1, 1].xaxis.set_major_formatter(_thousands())
    name_lines(figure, grid.flat, size=8.5)


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
    parts = panels_of(len(arms))
    looks = policy_looks([arm.label for arm in arms])
    figure.set_size_inches(7.4, 4.2 * len(parts) + 0.2)
    panels = figure.subplots(len(parts), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, part in zip(panels, parts, strict=True):
        for arm, look in [(arms[index], looks[index]) for index in part]:
            entropy, reward = arm.steps("entropy", smooth).mean, arm.steps("pool_reward", smooth).mean
            axes.plot(entropy, reward, label=arm.label, **look)
            there = np.nonzero(np.isfinite(entropy) & np.isfinite(reward))[0]
            for place, fill in ((there[:1], "white"), (there[-1:], look["color"])):
                marker: dict[str, Any] = {"markersize": 7, "color": look["color"], "markerfacecolor": fill}
                axes.plot(entropy[place], reward[place], "o", label="_end", zorder=3, **marker)
        axes.set_ylabel("mean reward of the pool")
        _say_if_empty(axes)
    panels[-1].set_xlabel("entropy of a token of the kept responses, nats")
    panels[0].set_title("from the first step (open) to the last (filled)" + _over(smooth))
    name_lines(figure, panels, size=8.5)


def _draw_responses(figure: Figure, arms: Sequence[Arm], smooth: int) -> None:
    parts = panels_of(len(arms))
    looks = policy_looks([arm.label for arm in arms])
    figure.set_size_inches(11.2, 3.5 * len(parts))
    grid = figure.subplots(len(parts), 2, squeeze=False, sharex=True, sharey="col")
    wanted = (("responses", "responses a step"), ("signal_fraction", "share of prompts whose group has a signal"))
    for panels, part in zip(grid, parts, strict=True):
        for axes, (name, title) in zip(panels, wanted, strict=True):
            for index in part:
                curve = arms[index].steps(name, smooth)
                _line(axes, curve.steps.astype(np.float64), curve, {"label": arms[index].label, **looks[index]})
            axes.set_title(title + _over(smooth))
            axes.set_ylim(0, None if name == "responses" else 1.03)
            _say_if_empty(axes)
    for axes in grid[-1]:
        axes.set_xlabel("step")
    name_lines(figure, grid.flat, size=8.5)


def _draw_time(figure: Figure, arms: Sequence[Arm]) -> None:
    figure.set_size_inches(8.4, 1.1 + 0.42 * len(arms))
    axes = figure.subplots()
    seconds = [_seconds(arm) for arm in arms]
    shares: dict[str, float] = {}
    for each in seconds:
        whole = sum(each.values()) - each.get("total", 0.0)
        for phase in each.keys() - {"total"}:
            shares[phase] = max(shares.get(phase, 0.0), each[phase] / whole if whole else 0.0)
    # What no eye could find is added to the rest, which is then drawn whatever it takes.
    small = {phase for phase, share in shares.items() if share < _LEAST_SHARE} - {"other"}
    if any(each.get(phase) for each in seconds for phase in small):
        seconds = [each | {"other": sum(each.get(phase, 0.0) for phase in ("other", *small))} for each in seconds]
        shares["other"] = 1.0
    named = {phase for phase, share in shares.items() if share >= _LEAST_SHARE}
    others = sorted(named - set(PHASES))
    phases = [*(name for name in PHASES if name in named), *others]
    ends = np.zeros(len(arms))
    places = np.arange(len(arms))
    inks = dict(zip((*PHASES, *others), itertools.cycle(_BARS), strict=False))
    for phase in phases:
        widths = np.array([each.get(phase, 0.0) for each in seconds])
        axes.barh(
            places, widths, left=ends, height=0.62, label=phase, color=inks[phase], edgecolor="white", linewidth=0.6
        )
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
