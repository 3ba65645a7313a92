"""One look a policy in every figure: colours by kind of method, names at the ends of lines, an axis for pass rates."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MOST_LINES", "RateAxis", "name_lines", "panels_of", "policy_looks"]

MOST_LINES = 6
"""Most lines of a panel: further ones take a panel of their own."""

# A colour a kind of method, after Okabe and Ito and Paul Tol; members of a kind differ by their dashes.
_KINDS: dict[str, tuple[str, ...]] = {
    "#0072B2": ("grpo",),
    "#D55E00": ("reinforce-ada-pos", "pos"),
    "#009E73": ("reinforce-ada-balance", "balance"),
    "#AA4499": ("bayes", "empirical-bayes", "optimum", "best-efficiency", "best-signal"),
    "#B8860B": ("raft", "reinforce", "constant", "one", "positives", "psr", "nsr", "w-reinforce", "reinforce-rej"),
    "#3E9BCB": ("dr-grpo", "dr. grpo", "rloo", "posterior", "maxrl", "pkpo", "jspo", "ngrpo", "ha-dw"),
    "#882255": ("speed", "dapo", "aero", "pods", "pilot-commit", "reinforce-ada-seq", "seq", "dars-et", "dars-hw"),
    # Shared budgets, in whose figures each method has a panel of its own.
    "#7A7A00": ("uniform", "neyman", "greedy", "gvm", "reinforce-ada-est", "knapsack", "vip", "hora", "coba-rl",
                "dynamo", "e3", "mopps", "greso", "cures"),
}  # fmt: skip
# For names that are no known method: a user's own rules, first of all.
_OTHERS = ("#000000", "#6A51A3", "#8C564B")


def policy_looks(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the colour and dashes of each policy of a figure.

    A known method has the same colour in every figure, whatever else is drawn; settings and relatives of one method
    share its colour and differ by their dashes, in the order of `names`.

    Parameters
    ----------
    names
        Labels of policies, or names of arms, such as ``grpo:group_size=8``, ``GRPO, n = 4`` or ``balance``.

    Returns
    -------
    list of dict
        ``color`` and ``linestyle`` of each.
    """
    others: dict[str, str] = {}
    drawn: dict[str, int] = {}
    looks = []
    for name in names:
        colour = _known(name) or others.setdefault(name, _OTHERS[len(others) % len(_OTHERS)])
        turn = drawn.get(colour, 0)
        drawn[colour] = turn + 1
        looks.append({"color": colour, "linestyle": DASHES[turn % len(DASHES)]})
    return looks


def _known(name: str) -> str | None:
    """Return the colour of the longest known name that `name` begins with, at the end of a word."""
    plain = name.lower()
    best, colour = 0, None
    for each, members in _KINDS.items():
        for member in members:
            if best < len(member) and re.match(re.escape(member) + r"(?![a-z])", plain):
                best, colour = len(member), each
    return colour


def panels_of(count: int, most: int = MOST_LINES) -> list[range]:
    """Return the lines of each panel, about equally many, at most `most`."""
    panels = max(math.ceil(count / most), 1)
    edges = [round(count * panel / panels) for panel in range(panels + 1)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


class RateAxis:
    """The pass rates of a figure: a logistic axis where half of the prompts are harder than 0.05, else a plain one.

    Parameters
    ----------
    hard
        Share of the prompts with a pass rate of at most 0.05.
    """

    _LEAST = 1e-3
    _TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)

    def __init__(self, hard: float) -> None:
        self.logit = hard >= 0.5

    def grid(self, least: float = 0.0) -> FloatArray:
        """Return pass rates for a curve, dense where curves bend, from `least` to 1 - `least`."""
        if self.logit:
            odds = math.log((1 - self._LEAST) / self._LEAST)
            rates = 1 / (1 + np.exp(-np.linspace(-odds, odds, 801)))
        else:
            rates = (1 - np.cos(np.linspace(0, np.pi, 801))) / 2
        return np.asarray(rates[(rates >= least) & (rates <= 1 - least)])

    def bins(self) -> FloatArray:
        """Return the edges of bins of pass rates from 0 to 1; the outermost reach to 0 and 1 on either axis."""
        if not self.logit:
            return np.linspace(0, 1, 21)
        inner = self.grid()[::40]
        return np.concatenate([[0.0], inner[1:-1], [1.0]])

    def drawn(self, rates: FloatArray) -> FloatArray:
        """Return where pass rates are drawn: 0 and 1 at the ends of the axis."""
        return np.clip(rates, self._LEAST, 1 - self._LEAST) if self.logit else rates

    def apply(self, axes: Axes) -> None:
        """Scale and tick the horizontal axis."""
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

        if self.logit:
            axes.set_xscale("logit")
            axes.set_xlim(self._LEAST, 1 - self._LEAST)
            axes.xaxis.set_major_locator(FixedLocator(list(self._TICKS)))
            axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in self._TICKS]))
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            axes.set_xlim(0, 1)

    @property
    def label(self) -> str:
        """What to write below the axis."""
        return "pass rate p (logit scale: most prompts are hard)" if self.logit else "pass rate p"


def name_lines(figure: Figure, panels: Iterable[Axes], size: float = 9.0) -> None:
    """Write the label of every line at its right end, in its colour, and keep the names of a panel apart.

    Lines that end near the right border are named beside the panel, others where they end.

    Parameters
    ----------
    figure
        Complete but for the names; its layout makes room for them.
    panels
        Panels of the figure. Lines whose label starts with an underscore have no name, as in legends.
    size
        Size of the letters, in points.
    """
    figure.canvas.draw()
    named = [(axes, _end_names(axes, size)) for axes in panels]
    figure.canvas.draw()
    # Names beside a panel take room from it: what then reaches over its border stands beside it as well.
    while [name for axes, names in named for name in names if name.moved_beside(axes)]:
        figure.canvas.draw()
    for axes, names in named:
        for beside in (True, False):
            _keep_apart(axes, sorted((name for name in names if name.beside == beside), key=lambda name: name.y))


@dataclass
class _Name:
    """A name on its way to its place."""

    text: Any
    x: float
    """Where the line ends, in shares of the panel."""
    y: float
    beside: bool
    """Whether the name stands beside the panel, not in it."""

    def moved_beside(self, axes: Axes) -> bool:
        """Move a name that reaches over the panel's right border beside it; return whether it did so."""
        if self.beside or self.text.get_window_extent().x1 <= axes.get_window_extent().x1:
            return False
        self.beside = True
        self.text.xy = (1.0, self.y)
        return True


def _end_names(axes: Axes, size: float) -> list[_Name]:
    """Write the names of a panel's lines at their ends."""
    from matplotlib.patheffects import withStroke

    names = []
    for line in axes.lines:
        points = np.asarray(line.get_xydata(), dtype=np.float64)
        points = points[np.isfinite(points).all(axis=1)]
        if str(line.get_label()).startswith("_") or not points.size:
            continue
        seen = axes.transAxes.inverted().transform(line.get_transform().transform(points))
        if (np.diff(seen[:, 0]) <= 0).all():
            seen = seen[::-1]
        inside = seen[(seen[:, 0] <= 1.001) & (seen[:, 1] >= -0.001) & (seen[:, 1] <= 1.001)]
        x, y = inside[-1].tolist() if inside.size else (1.0, float(np.clip(seen[-1, 1], 0, 1)))
        beside = x > 0.75
        text = axes.annotate(
            str(line.get_label()),
            (1.0 if beside else x, y),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            color=line.get_color(),
            fontsize=size,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            zorder=6,
            annotation_clip=False,
        )
        names.append(_Name(text, x, y, beside))
    return names


def _keep_apart(axes: Axes, names: Sequence[_Name]) -> None:
    """Move names up or down, those beside the panel with a line to where their own line ends."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not names:
        return
    frame, scale = axes.get_window_extent(), 72 / axes.figure.dpi
    boxes = [name.text.get_window_extent() for name in names]
    heights = 1.02 * np.array([box.height for box in boxes]) / frame.height
    wanted = np.array([name.y for name in names])
    beside = names[0].beside
    places = _spread(wanted, heights) if beside else _spread_apart(wanted, heights, boxes)
    for name, place in zip(names, places.tolist(), strict=True):
        name.text.set_position((6, (place - name.y) * frame.height * scale))
        far = abs(place - name.y) > 0.02
        if beside and (far or name.x < 0.995):
            end = (1.012, place) if far else (1.0, name.y)
            look: dict[str, Any] = {
                "facecolor": "none",
                "edgecolor": name.text.get_color(),
                "linewidth": 0.6,
                "zorder": 2,
            }
            axes.add_patch(PathPatch(Path([(name.x, name.y), end]), transform=axes.transAxes, clip_on=False, **look))


def _spread(wanted: FloatArray, heights: FloatArray) -> FloatArray:
    """Return places near the wanted ones, in their order, so that intervals of these heights don't meet.

    These are the nearest ones in the sense of least squares: less the room that the names below take up, places only
    have to rise, which is isotonic regression.
    """
    from scipy.optimize import isotonic_regression

    below = np.concatenate([[0.0], np.cumsum((heights[:-1] + heights[1:]) / 2)])
    return np.asarray(isotonic_regression(wanted - below).x + below)


def _spread_apart(wanted: FloatArray, heights: FloatArray, boxes: Sequence[Any]) -> FloatArray:
    """Spread only what overlaps from left to right: names that stand beside each other may share a height."""
    places = wanted.copy()
    for index in range(1, len(boxes)):
        for other in range(index):
            if boxes[other].x0 < boxes[index].x1 and boxes[index].x0 < boxes[other].x1:
                places[index] = max(places[index], places[other] + (heights[index] + heights[other]) / 2)
    return places
