"""Figures in the style of the house, drawn without a display and without pyplot's global state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

__all__ = ["DASHES", "GREY", "draw_figures", "equal_cost", "label_points", "legend", "line_style"]

GREY = "#767676"
"""Colour of references."""

# After Okabe and Ito and Paul Tol, for eyes that confuse colours; dark enough for thin lines on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2, 3, 2)), (0, (3, 3)))
"""Dashes that tell lines of one colour apart, the plain line first."""
_SETTINGS: dict[Any, Any] = {
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
    # Names within an SVG are the same each time.
    "svg.hashsalt": "ada_bandit",
    # Labels come from users: a dollar sign in one starts no formula.
    "text.parse_math": False,
}


def draw_figures(drawings: Mapping[str, Callable[[Figure], None]], folder: Path) -> list[Path]:
    """Draw figures by their names, each as PNG and SVG; the same numbers give the same SVG.

    Parameters
    ----------
    drawings
        What draws into an empty figure, by file name without ending.
    folder
        An existing folder; files of the same name are replaced.

    Returns
    -------
    list of Path
        The files, in the order of `drawings`.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    with mpl.rc_context(_SETTINGS):
        for name, draw in drawings.items():
            figure = Figure(layout="constrained")
            canvas = FigureCanvasAgg(figure)
            draw(figure)
            for ending, metadata in (("png", {}), ("svg", {"Date": None})):
                path = folder / f"{name}.{ending}"
                canvas.print_figure(path, dpi=160, metadata=metadata)
                paths.append(path)
    return paths


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dashes of the line of that number, the same in every figure; 42 of them differ."""
    turn, place = divmod(index, len(_COLOURS))
    return {"color": _COLOURS[place], "linestyle": DASHES[turn % len(DASHES)]}


def legend(figure: Figure, axes: Axes) -> None:
    """Put the legend of one panel above all of them, in as few rows as fit, and make room for it."""
    handles, labels = axes.get_legend_handles_labels()
    style: dict[str, Any] = {"loc": "outside upper left", "fontsize": 9.5, "handlelength": 2.2}
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    columns = len(labels)
    drawn = figure.legend(handles, labels, ncols=columns, **style)
    while columns > 1 and drawn.get_window_extent(renderer).width > figure.bbox.width:
        columns -= 1
        drawn.remove()
        drawn = figure.legend(handles, labels, ncols=columns, **style)
    # The panels keep their size whatever the number of rows.
    figure.set_figheight(figure.get_figheight() + 0.2 * (math.ceil(len(labels) / columns) - 1))


def equal_cost(
    axes: Axes, points: Sequence[tuple[float, float]], curve: tuple[ArrayLike, ArrayLike], near: float = 0.01
) -> None:
    """Set a dot on the curve of GRPO beneath or above each point off it, and join the two.

    Parameters
    ----------
    axes
        Where.
    points
        Cost and value of each policy.
    curve
        Costs, ascending, and values of GRPO; a cost between two of them is a mix of both group sizes.
    near
        Share of the value within which a point is taken to lie on the curve.
    """
    costs, values = (np.asarray(each, dtype=np.float64) for each in curve)
    label = "GRPO at equal cost"
    for x, y in points:
        there = float(np.interp(x, costs, values)) if costs.size and costs[0] <= x <= costs[-1] else math.nan
        if not abs(y - there) > near * abs(there):
            continue
        axes.plot([x, x], [there, y], color=GREY, linewidth=0.9, zorder=1, label="_equal_cost")
        axes.plot([x], [there], color=GREY, marker="D", markersize=5, linestyle="none", zorder=2, label=label)
        label = "_equal_cost"


def label_points(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float, str, str]],
    *,
    size: float = 9.5,
) -> None:
    """Write each point's label off a rising curve, further away where labels would meet.

    That is above to the left; or below to the right where there is no room. Points that coincide have one label.

    Parameters
    ----------
    figure, axes
        Where; everything else is drawn already.
    points
        x, y, label and colour of each.
    size
        Size of the letters, in points.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    figure.canvas.draw()
    # From here on positions are in pixels; the layout must not move under them.
    figure.set_layout_engine("none")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    edge = axes.get_window_extent(renderer).x0 + 4
    scale = 72 / figure.dpi
    together: dict[tuple[int, int], list[tuple[float, float, str, str]]] = {}
    for point in points:
        x, y = axes.transData.transform(point[:2])
        together.setdefault((round(x), round(y)), []).append(point)
    labels = [(*group[0][:2], ", ".join(point[2] for point in group), group[0][3]) for group in together.values()]
    rings = [axes.transData.transform(point[:2]) for point in labels]
    taken = [Bbox.from_extents(x - 9, y - 9, x + 9, y + 9) for x, y in rings]
    for index in sorted(range(len(labels)), key=lambda index: labels[index][1]):
        x, y, text, ink = labels[index]
        label = axes.annotate(
            text,
            (x, y),
            xytext=(-5, 7),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=ink,
            fontsize=size,
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
            axes.plot(ends[:, 0], ends[:, 1], color=ink, linewidth=0.7, zorder=2)


def _overlap(box: Any, other: Any) -> bool:
    return bool(box.x0 < other.x1 and other.x0 < box.x1 and box.y0 < other.y1 and other.y0 < box.y1)
