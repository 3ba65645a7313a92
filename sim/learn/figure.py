"""Figures of a sweep of learning runs: one a prompt set, against steps and against what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import draw_figures
from ada_bandit.programs.looks import name_lines, policy_looks
from sim.learn.study import Axis, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["style_of", "write_figures"]

_AXIS_LABELS: dict[Axis, str] = {
    "steps": "steps",
    "responses": "responses drawn",
    "tokens": "tokens generated",
    "time": "synchronous time, in token times",
}


def write_figures(sweep: Sweep, folder: Path) -> list[Path]:
    """Write ``learn-<set>`` and ``learn-<set>-pass-at-k`` as PNG and SVG for every prompt set; return the files."""
    drawings = {}
    for task in (one.label for one in sweep.plan.tasks):
        name = "learn-" + "".join(letter if letter.isalnum() else "-" for letter in task)
        drawings[name] = partial(_draw, sweep, task)
        if sweep.plan.setting.pass_k:
            drawings[f"{name}-pass-at-k"] = partial(_draw_pass_at_k, sweep, task)
    return draw_figures(drawings, folder)


def style_of(sweep: Sweep, policy: str) -> dict[str, Any]:
    """Return the colour and dashes of a policy, the same in all figures of the sweep."""
    return policy_looks(sweep.policies)[sweep.policies.index(policy)]


def _short(sweep: Sweep, task: str, policy: str) -> str:
    """Return what names a line: of a matched GRPO its size, which the legend explains."""
    size = sweep.matched[task].get(policy)
    return policy if size is None else f"grpo, n = {size}"


def _line(axes: Axes, x: FloatArray, curve: tuple[FloatArray, FloatArray], **style: Any) -> None:
    """Draw a mean with its band of one standard error."""
    mean, error = curve
    label = style.pop("label", None)
    axes.plot(x, mean, linewidth=1.6, label=label, **style)
    if np.isfinite(error).any():
        axes.fill_between(x, mean - error, mean + error, color=style["color"], alpha=0.18, linewidth=0)


def _draw(sweep: Sweep, task: str, figure: Figure) -> None:
    figure.set_size_inches(14.5, 10.0)
    grid = figure.subplots(3, 3)
    for axes, axis in zip((grid[0, 0], grid[0, 1], grid[0, 2]), ("steps", "responses", "tokens"), strict=True):
        _reward(sweep, task, axis, axes)  # type: ignore[arg-type]
    grid[0, 1].set_ylabel("")
    grid[0, 2].set_ylabel("")
    panels: Sequence[tuple[Axes, str, str, bool]] = (
        (grid[1, 0], "train_pass_rate", "pass rate, training prompts", False),
        (grid[1, 1], "held_out_entropy", "entropy of the answer, held out", True),
        (grid[1, 2], "signal", "signal: share of prompts whose\ngroup holds both classes", True),
        (grid[2, 0], "responses", "responses a prompt", True),
    )
    for axes, name, label, from_zero in panels:
        for policy in sweep.policies:
            mean, error = sweep.curve(task, policy, name)
            scale = sweep.runs[task, policy][0].batch if name == "responses" else 1
            steps = sweep.runs[task, policy][0].spent("steps")
            _line(
                axes, steps, (mean / scale, error / scale), label=_short(sweep, task, policy), **style_of(sweep, policy)
            )
        axes.set_ylabel(label)
        axes.set_xlabel(_AXIS_LABELS["steps"])
        axes.set_xlim(0, None)
        if from_zero:
            axes.set_ylim(0, None)
    _unresolved(sweep, task, grid[2, 1], "positives")
    _unresolved(sweep, task, grid[2, 2], "negatives")
    figure.suptitle(
        f"prompts: {task}; {sweep.plan.seeds} seeds, bands of one standard error", x=0.01, ha="left", fontsize=10.5,
        color="#333333",
    )  # fmt: skip
    handles, labels = grid[0, 0].get_legend_handles_labels()
    sizes = sweep.matched[task]
    labels = [
        f"{label}: {policy}" if policy in sizes else label for label, policy in zip(labels, sweep.policies, strict=True)
    ]
    columns = min(len(labels), 4)
    figure.set_figheight(10.0 + 0.22 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, fontsize=9.5, handlelength=2.4)
    name_lines(figure, grid[:, -1], size=8)


def _reward(sweep: Sweep, task: str, axis: Axis, axes: Axes) -> None:
    """Draw the held-out pass rate against what was spent; beyond the common budget on the axis as well."""
    # What a step costs differs by so much that a linear axis would hide the cheap policies; a logarithmic one has no 0.
    start = 0 if axis == "steps" else 1
    for policy in sweep.policies:
        spent, mean, error = (values[start:] for values in sweep.by_budget(task, policy, axis))
        _line(axes, spent, (mean, error), label=_short(sweep, task, policy), **style_of(sweep, policy))
    axes.set_xlabel(_AXIS_LABELS[axis])
    axes.set_ylabel("pass rate, held-out prompts")
    if axis == "steps":
        axes.set_xlim(0, None)
        return
    axes.set_xscale("log")
    _plain_powers(axes.xaxis)


def _plain_powers(axis: Any) -> None:
    """Write powers of ten as such; the style of the house parses no mathematics."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10))
    axis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-"))
    axis.set_minor_formatter(NullFormatter())


def _unresolved(sweep: Sweep, task: str, axes: Axes, lacking: Literal["positives", "negatives"]) -> None:
    """Draw how many prompts stay unresolved short of a class; GRPO, which has no rule, lacks it in its group."""
    for policy in sweep.policies:
        if policy not in sweep.matched[task]:
            steps = sweep.runs[task, policy][0].spent("steps")
            _line(
                axes,
                steps,
                sweep.curve(task, policy, f"short_of_{lacking}"),
                label=_short(sweep, task, policy),
                **style_of(sweep, policy),
            )
    axes.set_ylabel(f"share of prompts left unresolved,\nshort of {lacking}")
    axes.set_xlabel(_AXIS_LABELS["steps"])
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)


def _draw_pass_at_k(sweep: Sweep, task: str, figure: Figure) -> None:
    figure.set_size_inches(11.0, 4.4)
    left, right = figure.subplots(1, 2)
    k = np.array(sweep.plan.setting.pass_k)
    start = np.array([run.held_out_pass_at[0] for run in sweep.runs[task, sweep.policies[0]]])
    left.plot(
        k, start.mean(axis=0), color="#767676", linewidth=1.2, marker="o", markersize=3.5, label="before training"
    )
    for policy in sweep.policies:
        end = np.array([run.held_out_pass_at[-1] for run in sweep.runs[task, policy]])
        error = end.std(axis=0, ddof=1) / np.sqrt(len(end)) if len(end) > 1 else np.full(k.size, np.nan)
        _line(left, k, (end.mean(axis=0), error), label=policy, marker="o", markersize=3.5, **style_of(sweep, policy))
        x, y = sweep.curve(task, policy, "held_out_entropy")[0], sweep.curve(task, policy, "held_out_pass_rate")[0]
        right.plot(x, y, linewidth=1.6, marker="o", markevery=[-1], markersize=5, **style_of(sweep, policy))
    left.set_xscale("log", base=2)
    left.set_xticks(k, [str(value) for value in k])
    left.set_xlabel("k")
    left.set_ylabel("pass@k, held-out prompts, at the end")
    left.set_title(f"prompts: {task}")
    right.set_xlabel("entropy of the answer, held-out prompts (nats)")
    right.set_ylabel("pass rate, held-out prompts")
    right.set_title("from before training to the end (dot)")
    handles, labels = left.get_legend_handles_labels()
    columns = min(len(labels), 3)
    figure.set_figheight(4.2 + 0.22 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, fontsize=9.5, handlelength=2.4)
