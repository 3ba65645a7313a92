"""The figure of when adaptive sampling pays: a panel an objective, coloured by the most efficient way of sampling."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import draw_figures
from sim.when_adaptive_pays.study import EfficiencyMap, ObjectiveMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

# Fixed numbers of responses in cool greys, adaptive ones in warm colours: the message is read off the temperature.
_FIXED = ("#eceff2", "#d0d8e0", "#a9b8c8")
_ADAPTIVE = ("#fbd87f", "#f0924c", "#d9679a")
_OTHERS = ("#8fd0b5", "#86b8e0", "#c9a5dc", "#b5c46a")
_SHOWN_NOISE = (0.3, 3.0, 30.0)
_NAMES = {"mean": "mean reward", "log": "log p"}
# The row of update cost 0 stands apart, below the logarithmic axis.
_ZERO = (-1.75, -1.15)


def write_figures(result: EfficiencyMap, folder: Path) -> list[Path]:
    """Write ``when_adaptive_pays.png`` and ``.svg`` into an existing folder; return the files."""
    return draw_figures({"when_adaptive_pays": partial(_draw, result)}, folder)


def _colours(result: EfficiencyMap) -> list[str]:
    """Return a colour a family, in order."""
    pools = {False: iter(_FIXED), True: iter(_ADAPTIVE)}
    others = iter(_OTHERS * len(result.families))
    return [next(pools[family.adaptive], None) or next(others) for family in result.families]


def _draw(result: EfficiencyMap, figure: Figure) -> None:
    from matplotlib.patches import Patch

    colours = _colours(result)
    count = len(result.panels)
    figure.set_size_inches(max(1.2 + 3.3 * count, 9.2), 5.2)
    figure.set_layout_engine("constrained", w_pad=0.1)
    row = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for axes, panel in zip(row, result.panels, strict=True):
        _panel(result, panel, axes, colours)
    row[0].set_ylabel("update cost of a kept response,\nin responses drawn")
    row[count // 2].set_xlabel("noise ratio: noise energy of a\nresponse's score over that of its signal")
    places = {
        "the same number for every prompt": ("outside lower left", False),
        "adaptive": ("outside lower right", True),
    }
    for title, (place, adaptive) in places.items():
        patches = []
        for index, (family, colour) in enumerate(zip(result.families, colours, strict=True)):
            if family.adaptive == adaptive:
                seen = any((panel.best == index).any() for panel in result.panels)
                label = family.name if seen else f"{family.name}: nowhere the best"
                patches.append(Patch(facecolor=colour, edgecolor="#888888", linewidth=0.6, label=label))
        style: dict[str, Any] = {"loc": place, "fontsize": 9, "title_fontsize": 9.5, "alignment": "left"}
        figure.legend(handles=patches, title=title, **style)
    figure.suptitle(
        f"The most efficient way of sampling on {result.source.label} (grey: fixed, warm: adaptive).\n"
        f"Transfer {result.transfer:g}. Numbers: times as efficient as GRPO with n = 4, the best of these policies "
        "(bold) and the optimum.",
        x=0.01,
        ha="left",
        fontsize=10,
        color="#333333",
    )


def _panel(result: EfficiencyMap, panel: ObjectiveMap, axes: Axes, colours: list[str]) -> None:
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patheffects import withStroke

    image: dict[str, Any] = {
        "cmap": ListedColormap(colours),
        "norm": BoundaryNorm(np.arange(len(colours) + 1) - 0.5, len(colours)),
        "aspect": "auto",
        "origin": "lower",
        "interpolation": "nearest",
        "zorder": 1,
    }
    left, right = np.log10(result.noise[[0, -1]])
    low, high = np.log10(result.costs[[1, -1]])
    axes.grid(visible=False)
    axes.imshow(panel.best[1:], extent=(left, right, low, high), **image)
    axes.imshow(panel.best[:1], extent=(left, right, *_ZERO), **image)
    halo = [withStroke(linewidth=2.2, foreground="white", alpha=0.75)]
    for spot in result.spots:
        if spot.objective != panel.objective or spot.noise_ratio not in _SHOWN_NOISE:
            continue
        x = np.log10(spot.noise_ratio)
        y = np.log10(spot.update_cost) if spot.update_cost else sum(_ZERO) / 2
        best = max(spot.fixed_efficiency, spot.adaptive_efficiency)
        style: dict[str, Any] = {"ha": "center", "fontsize": 9, "zorder": 3, "path_effects": halo}
        axes.text(x, y + 0.02, _times(best), va="bottom", fontweight="bold", **style)
        axes.text(x, y - 0.02, _times(spot.optimum_efficiency), va="top", **style)
    axes.set_xlim(left, right)
    axes.set_ylim(_ZERO[0], high)
    axes.set_xticks(
        np.arange(np.ceil(left), right + 0.5), [f"{10.0**k:g}" for k in np.arange(np.ceil(left), right + 0.5)]
    )
    ticks = np.arange(np.ceil(low), high + 0.5)
    axes.set_yticks([sum(_ZERO) / 2, *ticks], ["0", *(f"{10.0**k:g}" for k in ticks)])
    named = result.name_of(panel)
    name = _NAMES.get(named, named)
    axes.set_title(f"{name}: adaptive on {result.share(panel.gain > 1):.0%} of the map")


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
