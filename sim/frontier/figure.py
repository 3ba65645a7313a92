"""The figure of a frontier: every policy beneath the best that is possible at its cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit._types import BoolArray, FloatArray
from ada_bandit.programs.figures import GREY, draw_figures, equal_cost, legend
from ada_bandit.programs.looks import policy_looks
from sim.frontier.study import FrontierPlot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plain_ticks", "write_figures"]


def write_figures(placed: FrontierPlot, folder: Path) -> list[Path]:
    """Write the figure as ``frontier.png`` and ``frontier.svg`` into an existing folder; return the files."""
    return draw_figures({"frontier": partial(_draw, placed)}, folder)


def _draw(placed: FrontierPlot, figure: Figure) -> None:
    figure.set_size_inches(8.4, 5.6)
    axes = figure.subplots()
    # In units of what four responses of GRPO are worth, where they are worth anything.
    unit = placed.grpo.utility or 1.0
    x = np.array([point.cost for point in placed.points])
    y = np.array([point.utility / unit for point in placed.points])
    right = 1.25 * max(placed.optimum.cost, x.max())
    # Between vertices the frontier is a chord, which bends on logarithmic axes.
    costs = np.geomspace(placed.costs[0], right, 600)
    edge = np.interp(costs, placed.costs, placed.utilities) / unit
    top = float(edge[-1])
    positive = y[y > 0]
    low = min(positive.min(initial=top), placed.optimum.utility / unit) / 1.6
    axes.set_xscale("log")
    axes.set_xlim(0.9 * min(placed.costs[0], x.min()), right)
    if low > 0:
        axes.set_yscale("log")
        axes.set_ylim(low, top * 1.5)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    axes.plot(costs, edge, color="black", zorder=2, label="frontier: the best at each cost")
    axes.fill_between(costs, edge, low, color="#f4f4f4", zorder=0)
    if placed.grpo.efficiency > 0:
        ray = np.array([0.5, right])
        line: dict[str, Any] = {"color": GREY, "linewidth": 1, "linestyle": ":", "zorder": 1}
        axes.plot(ray, placed.grpo.efficiency / unit * ray, **line, label="as efficient as GRPO, n = 4")
    axes.plot(
        placed.plain[:, 0],
        placed.plain[:, 1] / unit,
        color=GREY,
        linewidth=1.2,
        marker=".",
        markersize=4,
        zorder=1,
        label="GRPO with n responses (group mean)",
    )
    star: dict[str, Any] = {"color": "black", "marker": "*", "markersize": 13, "linestyle": "none", "zorder": 4}
    axes.plot(
        placed.optimum.cost, placed.optimum.utility / unit, **star, label="optimum: the most efficient for this law"
    )
    adaptive = np.array([len(policy.budget.sizes) > 1 for policy in placed.policies])
    y = np.maximum(y, low)
    equal_cost(axes, np.column_stack([x, y])[adaptive].tolist(), (placed.plain[:, 0], placed.plain[:, 1] / unit))
    looks = policy_looks([point.policy for point in placed.points])
    for mask, marker, name in ((~adaptive, "s", "the same number for every prompt"), (adaptive, "o", "adaptive")):
        ring: dict[str, Any] = {"marker": marker, "markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.8}
        style: dict[str, Any] = {"linestyle": "none", "zorder": 3, "clip_on": False, **ring}
        if mask.any():
            axes.plot([], [], color=GREY, label=name, **style | {"clip_on": True})
        for index in np.nonzero(mask)[0].tolist():
            axes.plot(x[index], y[index], color=looks[index]["color"], **style)
    priced = placed.scoring.model.update_cost > 0
    axes.set_xlabel("cost per prompt in responses, updates included" if priced else "responses per prompt")
    worth = "GRPO with n = 4: 1" if placed.grpo.utility > 0 else "W^2 / V"
    axes.set_ylabel(f"utility of an update ({worth})")
    axes.set_title(f"{placed.source.label}; {placed.scoring.label}", color="#333333")
    legend(figure, axes)
    names = [point.policy for point in placed.points]
    _label(figure, axes, np.column_stack([x, y]), names, adaptive, np.column_stack([costs, edge]))


def plain_ticks(axis: Any) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _label(
    figure: Figure, axes: Axes, points: FloatArray, names: Sequence[str], adaptive: BoolArray, edge: FloatArray
) -> None:
    """Name the points where labels meet neither each other, a point nor the frontier.

    Points that coincide have one label, and fixed policies of one cost, from the highest to the lowest.

    Parameters
    ----------
    figure, axes
        Where to draw.
    points
        ``[point, 2]`` in data coordinates.
    names
        ``[point]`` labels.
    adaptive
        ``[point]`` whether the number of responses depends on the prompt.
    edge
        ``[point, 2]`` the frontier in data coordinates, densely.
    """
    from matplotlib.patheffects import withStroke

    figure.canvas.draw()
    # From here on positions are in pixels; the layout must not move under them.
    figure.set_layout_engine("none")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    scale = figure.dpi / 72
    spots = axes.transData.transform(points)
    line = axes.transData.transform(edge[edge[:, 1] > 0])
    frame = axes.get_window_extent(renderer)
    groups: list[list[int]] = []
    for index in np.argsort(-points[:, 1], kind="stable").tolist():
        near = [group for group in groups if _together(spots, adaptive, group[0], index, 9 * scale)]
        if near:
            near[0].append(index)
        else:
            groups.append([index])
    taken: list[FloatArray] = []
    for group in groups:
        centre = spots[group].mean(axis=0)
        text = axes.annotate(
            "\n".join(names[index] for index in group),
            points[group[0]],
            xytext=(0, 0),
            textcoords="offset points",
            ha="left",
            va="bottom",
            fontsize=9,
            linespacing=1.05,
            color="#222222",
            path_effects=[withStroke(linewidth=3, foreground="white")],
            zorder=5,
        )
        size = text.get_window_extent(renderer)
        half = np.array([size.width, size.height]) / 2
        best, lowest = centre, np.inf
        for reach in np.arange(9, 90, 3) * scale:
            for angle in np.deg2rad([-45, 0, 45, 135, 180, 225, 90, -90]):
                middle = centre + np.array([np.cos(angle), np.sin(angle)]) * (
                    reach + half * np.abs([np.cos(angle), np.sin(angle)])
                )
                box = np.array([middle - half, middle + half])
                hits = sum(((box[0] < other[1]) & (other[0] < box[1])).all() for other in taken)
                hits += int(((spots > box[0] - 6 * scale) & (spots < box[1] + 6 * scale)).all(axis=1).sum())
                hits += int(((line > box[0] - 2 * scale) & (line < box[1] + 2 * scale)).all(axis=1).any())
                hits += 3 * int((box[0] < frame.p0 + 2).any() or (box[1] > frame.p1 - 2).any())
                if hits + reach / (1000 * scale) < lowest:
                    best, lowest = middle, hits + reach / (1000 * scale)
            if lowest < 1:
                break
        taken.append(np.array([best - half, best + half]))
        text.set_position(tuple((best - half - spots[group[0]]) / scale))
        nearest = np.clip(centre, best - half, best + half)
        others = np.delete(spots, group, axis=0)
        apart = np.hypot(*(others - np.clip(others, best - half, best + half)).T)
        # A name that stands as near to another point is led to its own.
        if np.hypot(*(nearest - centre)) > 12 * scale or (apart < 15 * scale).any():
            ends = axes.transData.inverted().transform(np.array([nearest, centre]))
            axes.plot(ends[:, 0], ends[:, 1], color=GREY, linewidth=0.7, zorder=2)


def _together(spots: FloatArray, adaptive: BoolArray, one: int, other: int, near: float) -> bool:
    """Return whether two points share a label: both fixed and of one cost, or hardly apart."""
    if not adaptive[one] and not adaptive[other]:
        return bool(abs(spots[one, 0] - spots[other, 0]) < 1)
    return bool(adaptive[one] == adaptive[other] and np.hypot(*(spots[one] - spots[other])) < near)
