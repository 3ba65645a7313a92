"""Figures of a comparison, drawn without a display and without pyplot's global state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit import analyze, induced_objective
from ada_bandit._types import FloatArray
from sim.compare import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "GREY", "draw_figures", "label_points", "legend", "look", "write_figures"]

FIGURES = ("signal_cost", "weight", "bias", "responses")
"""File names of the figures, without ending."""

# Okabe and Ito's palette, which stays distinct under colour blindness; yellow is too pale for a line on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
GREY = "#767676"
"""Colour of references."""
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "svg.hashsalt": "ada_bandit",
    "text.parse_math": False,
}
_LABEL = "pass rate p"


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG.

    Parameters
    ----------
    comparison
        The comparison.
    folder
        An existing folder; files of the same name are replaced.

    Returns
    -------
    list of Path
        The files, in the order of `FIGURES`.
    """
    drawings = (_signal_cost, _weight, _bias, _responses)
    return draw_figures({name: partial(draw, comparison) for name, draw in zip(FIGURES, drawings, strict=True)}, folder)


def draw_figures(drawings: Mapping[str, Callable[[Figure], None]], folder: Path) -> list[Path]:
    """Draw figures in the style of the house and write each as PNG and SVG; return the files."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    with mpl.rc_context(_STYLE):
        for name, draw in drawings.items():
            figure = Figure(layout="constrained")
            FigureCanvasAgg(figure)
            draw(figure)
            for ending, metadata in (("png", {}), ("svg", {"Date": None})):
                path = folder / f"{name}.{ending}"
                figure.savefig(path, dpi=160, metadata=metadata)
                paths.append(path)
    return paths


def look(index: int) -> dict[str, Any]:
    """Return the colour and dashes of a policy, the same in every figure."""
    return {"color": _COLOURS[index % len(_COLOURS)], "linestyle": _DASHES[index // len(_COLOURS) % len(_DASHES)]}


def _grid(least: float = 0.0) -> FloatArray:
    """Return pass rates that are dense at both ends, where curves bend."""
    rates = (1 - np.cos(np.linspace(0, np.pi, 801))) / 2
    return np.asarray(rates[(rates >= least) & (rates <= 1 - least)])


def legend(figure: Figure, axes: Axes) -> None:
    """Put one legend above all panels, in as few rows as fit."""
    handles, labels = axes.get_legend_handles_labels()
    # A character takes about 0.073 inches, a handle with its gaps 0.6.
    widths = [0.073 * len(label) + 0.6 for label in labels]
    room = figure.get_figwidth()
    columns = len(labels) if sum(widths) < room else max(int(room / max(widths)), 1)
    # The panels keep their size whatever the number of rows.
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * (rows - 1))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=9.5, handlelength=2.2)


def _signal_cost(comparison: Comparison, figure: Figure) -> None:
    figure.set_size_inches(7.2, 4.5)
    axes = figure.subplots()
    law, rows = comparison.source.law, comparison.rows
    most = max(2.0, *(row.responses for row in rows))
    plain = np.arange(1, int(np.ceil(most * 1.15)) + 1)
    curve = np.maximum(1 - law.evidence(plain, 0) - law.evidence(0, plain), 0)
    ring: dict[str, Any] = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 2}
    cross: dict[str, Any] = {"fmt": "x", "color": "black", "markersize": 4, "markeredgewidth": 0.9, "elinewidth": 1.1}
    axes.plot([], [], color=GREY, linestyle="none", **ring, label="exact")
    if rows[0].simulated:
        axes.errorbar([], [], xerr=[], yerr=[], **cross, label="simulated ± 2 standard errors")
    axes.plot(plain, curve, color=GREY, linewidth=1.2, zorder=1, label="n plain responses")
    for index, row in enumerate(rows):
        axes.plot(row.responses, row.signal, color=look(index)["color"], zorder=3, clip_on=False, **ring)
        if row.simulated:
            cost, signal = row.simulated["responses"], row.simulated["signal"]
            axes.errorbar(cost.mean, signal.mean, xerr=2 * cost.se, yerr=2 * signal.se, **cross, zorder=4)
    axes.set_xlim(0, most * 1.15)
    top = max(*(row.signal for row in rows), float(curve.max()))
    axes.set_ylim(0, top * 1.2 if top > 0 else 1)
    axes.set_xlabel("responses per prompt")
    axes.set_ylabel("signal: share of prompts whose\ngroup holds both classes")
    axes.set_title(comparison.source.label, color="#333333")
    legend(figure, axes)
    label_points(figure, axes, [(row.responses, row.signal, row.policy) for row in rows])


def label_points(figure: Figure, axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write each point's label off the plain curve, further away where labels would meet.

    The curve rises, so that is above to the left; or below to the right where there is no room.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    figure.canvas.draw()
    # From here on positions are in pixels; the layout must not move under them.
    figure.set_layout_engine("none")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    edge = axes.get_window_extent(renderer).x0 + 4
    scale = 72 / figure.dpi
    rings = [axes.transData.transform(point[:2]) for point in points]
    taken = [Bbox.from_extents(x - 9, y - 9, x + 9, y + 9) for x, y in rings]
    for index in sorted(range(len(points)), key=lambda index: points[index][1]):
        x, y, text = points[index]
        colour = look(index)["color"]
        label = axes.annotate(
            text,
            (x, y),
            xytext=(-5, 7),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=colour,
            fontsize=9.5,
            path_effects=[withStroke(linewidth=3, foreground="white")],
            zorder=5,
        )
        offset, step = (-5, 7), 2
        if label.get_window_extent(renderer).x0 < edge:
            offset, step = (7, -6), -2
            label.set(position=offset, ha="left", va="top")
        box, shift = label.get_window_extent(renderer), 0
        while any(_overlap(box.translated(0, shift), other) for other in taken):
            shift += step
        label.set_position((offset[0], offset[1] + shift * scale))
        box = box.translated(0, shift)
        taken.append(box)
        if abs(shift) > box.height / 2:
            near = (box.x1 - 4, box.y0) if step > 0 else (box.x0 + 4, box.y1)
            ends = axes.transData.inverted().transform(np.array([near, rings[index]]))
            axes.plot(ends[:, 0], ends[:, 1], color=colour, linewidth=0.7, zorder=2)


def _overlap(box: Any, other: Any) -> bool:
    return bool(box.x0 < other.x1 and other.x0 < box.x1 and box.y0 < other.y1 and other.y0 < box.y1)


def _weight(comparison: Comparison, figure: Figure) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    figure.set_size_inches(9.6, 4.4)
    weight_axes, objective_axes = figure.subplots(1, 2)
    rates = _grid(0.005)
    verifier = comparison.model.verifier
    weights = [analyze(policy, rates, **verifier).gradient_weight for policy in comparison.policies]
    for index, (policy, weight) in enumerate(zip(comparison.policies, weights, strict=True)):
        weight_axes.plot(rates, weight, label=policy.label, **look(index))
        objective = induced_objective(policy, rates, **verifier) - induced_objective(policy, 0.5, **verifier)
        objective_axes.plot(rates, objective, **look(index))
    references = {"color": GREY, "linewidth": 1.1}
    weight_axes.plot(rates, np.ones_like(rates), **references, linestyle=":", label="mean reward (w = 1)")
    weight_axes.plot(rates, 1 / rates, **references, linestyle="--", label="log p (w = 1/p)")
    objective_axes.plot(rates, rates - 0.5, **references, linestyle=":")
    objective_axes.plot(rates, np.log(rates / 0.5), **references, linestyle="--")
    lowest = min(1.0, *(float(weight.min()) for weight in weights))
    highest = max(1.0, *(float(weight.max()) for weight in weights))
    if lowest > 0:
        weight_axes.set_yscale("log")
        weight_axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        weight_axes.yaxis.set_major_formatter("{x:g}")
        weight_axes.yaxis.set_minor_formatter(NullFormatter())
        weight_axes.set_ylim(lowest / 1.4, highest * 1.8)
    else:
        weight_axes.axhline(0, color="#444444", linewidth=0.8)
        weight_axes.set_ylim(lowest - 0.1 * (highest - lowest), highest + 0.15 * (highest - lowest))
    drawn = [line.get_ydata() for line in objective_axes.lines[: len(weights)]]
    low = min(float(np.min(values)) for values in drawn)
    high = max(float(np.max(values)) for values in drawn)
    margin = 0.08 * (high - low)
    objective_axes.set_ylim(min(low - margin, -0.55), max(high + margin, 0.55))
    weight_axes.set_title("gradient weight: E[update] = w(p) grad p")
    weight_axes.set_ylabel("w(p)")
    objective_axes.set_title("induced objective: F is the integral of w")
    objective_axes.set_ylabel("F(p) - F(1/2)")
    for axes in (weight_axes, objective_axes):
        axes.set_xlabel(_LABEL)
        axes.set_xlim(0, 1)
    legend(figure, weight_axes)


def _bias(comparison: Comparison, figure: Figure) -> None:
    figure.set_size_inches(7.2, 4.2)
    axes = figure.subplots()
    rates = _grid()
    low, high = -0.005, 0.005
    for index, policy in enumerate(comparison.policies):
        bias = analyze(policy, rates, **comparison.model.verifier).pool_mean_bias
        low, high = min(low, float(bias.min())), max(high, float(bias.max()))
        axes.plot(rates, bias, label=policy.label, **look(index))
    margin = 0.06 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0, 1)
    axes.set_xlabel(_LABEL)
    axes.set_ylabel("bias of the pool mean, E[mean] - p")
    legend(figure, axes)


def _responses(comparison: Comparison, figure: Figure) -> None:
    figure.set_size_inches(7.2, 5.0)
    axes, law_axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    rates = _grid()
    for index, policy in enumerate(comparison.policies):
        axes.plot(
            rates,
            analyze(policy, rates, **comparison.model.verifier).expected_samples,
            label=policy.label,
            **look(index),
        )
    axes.set_ylim(0, None)
    axes.set_ylabel("responses per prompt, E[N]")
    edges = np.linspace(0, 1, 21)
    law = comparison.source.law
    below = np.array([law.probability(0, float(edge)) for edge in edges])
    # The first bin holds p = 0 as well.
    shares = np.diff(np.concatenate([[0.0], below[1:]]))
    law_axes.bar(edges[:-1], shares, width=0.05, align="edge", color="#b8b8b8", edgecolor="white", linewidth=0.8)
    law_axes.set_ylabel("share of\nprompts")
    law_axes.set_xlabel(_LABEL)
    law_axes.set_xlim(0, 1)
    law_axes.set_title(comparison.source.label, color="#333333", fontsize=9.5)
    legend(figure, axes)
