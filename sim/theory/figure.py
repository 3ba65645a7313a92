"""The figure of our own results: a panel a part."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import GREY, draw_figures, line_style
from ada_bandit.programs.looks import name_lines
from sim.theory.study import Number, Theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]


def write_figures(result: Theory, folder: Path) -> list[Path]:
    """Write ``theory.png`` and ``.svg`` into an existing folder; return the files."""
    return draw_figures({"theory": partial(_draw, result)}, folder)


def _draw(result: Theory, figure: Figure) -> None:
    panels = {
        "adaptivity": (_gains, _worst, _shares), "price": (_price,),
        "draws": (_draws,), "tokens": (_tokens,), "silent": (_silent, _wasted),
    }  # fmt: skip
    draws = [draw for part in result.parts for draw in panels[part]]
    columns = min(len(draws), 4)
    rows = -(-len(draws) // columns)
    figure.set_size_inches(4.6 * columns, 4.3 * rows)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, draw in zip(places, draws, strict=False):
        draw(result, axes)
    for axes in places[len(draws) :]:
        axes.set_visible(False)
    name_lines(figure, [axes for axes, draw in zip(places, draws, strict=False) if draw is not _worst], size=8)


def _line(axes: Axes, numbers: list[Number], index: int, label: str, *, by_size: bool = True) -> None:
    points = [(each.size if by_size else each.at, each.value) for each in numbers if each.value is not None]
    axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, label=label, **line_style(index))


def _gains(result: Theory, axes: Axes) -> None:
    short = ("signal in positives\nalone, rare p near 1", "noise 1, worst law\nof two rates", "noise 1,\nBeta(0.5, 1)",
             "noise 10,\nBeta(0.5, 1)")  # fmt: skip
    for index, (case, label) in enumerate(zip(result.cases("adaptivity")[:4], short, strict=True)):
        _line(axes, result.of("adaptivity", case), index, label)
    sizes = sorted({number.size for number in result.numbers if number.part == "adaptivity"})
    axes.plot(sizes, sizes, color=GREY, linewidth=4, alpha=0.35, zorder=0, label="K, the supremum")
    _log_axes(axes, sizes, "K, the most responses of a prompt")
    axes.set_yscale("log", base=2)
    axes.set_yticks(ticks := [1, 2, 4, 8, 16, 32], [str(tick) for tick in ticks])
    axes.set_title("(a) Best adaptive over best fixed number")


def _worst(result: Theory, axes: Axes) -> None:
    """Draw the worst laws that the search has found, an atom a stem."""
    for index, found in enumerate(found for found in result.worst if found.most == result.worst[-1].most):
        kept = found.law.weights > 0
        rates, weights = found.law.pass_rates[kept], found.law.weights[kept]
        colour = line_style(index)["color"]
        axes.vlines(rates, 1e-9, weights, color=colour, linewidth=3 - 1.5 * index)
        label = f"transfer {found.transfer:g}: gain {found.gain:.2f}"
        axes.plot(rates, weights, color=colour, linestyle="none", marker="os"[index % 2], label=label)
    axes.set_xlim(-0.04, 1.04)
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 3)
    _powers(axes, "y", range(-9, 1, 3))
    axes.set_xlabel("p")
    axes.set_title(f"Worst laws found, share of prompts (noise 1, K = {result.worst[-1].most})")
    axes.legend(fontsize=8, loc="center")


def _shares(result: Theory, axes: Axes) -> None:
    numbers = result.of("adaptivity", result.cases("adaptivity")[4])
    _line(axes, numbers, 0, "p = 0.9 in\nthis share,\n0 in others", by_size=False)
    axes.set_xscale("log")
    axes.set_ylim(0, 8.3)
    axes.axhline(8, color=GREY, linewidth=4, alpha=0.35, label="K, the\nsupremum")
    _powers(axes, "x", range(-4, 0))
    axes.set_xlabel("share of prompts that are not hopeless")
    axes.set_title("Gain by the share with hope (noise 1, K = 8)")


def _price(result: Theory, axes: Axes) -> None:
    fixed = result.of("price", "fixed number")
    for index, most in enumerate(sorted({number.size for number in fixed})):
        _line(axes, [each for each in fixed if each.size == most], index, f"K = {most}", by_size=False)
    balance = [each for each in result.of("price", "reinforce-ada-balance") if each.value is not None]
    style: dict[str, Any] = {"color": "black", "linewidth": 1, "linestyle": ":", "marker": "x"}
    places, values = _values(each.at for each in balance), _values(each.value for each in balance)
    axes.plot(places, values, label="balance,\nK = 32", **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _powers(axes, "x", range(-2, 1))
    _powers(axes, "y", range(5))
    axes.invert_xaxis()
    axes.set_xlabel("largest miss of 1 / p on [0.05, 0.95]")
    axes.set_title("(b) Price of log p: second moment a kept response")


def _draws(result: Theory, axes: Axes) -> None:
    numbers = result.of("draws", "fixed number")
    tolerances = sorted({float(number.at or 0) for number in numbers}, reverse=True)
    for index, tolerance in enumerate(tolerances):
        _line(axes, [each for each in numbers if each.at == tolerance], index, f"miss of {tolerance:g}")
    axes.set_yscale("log")
    _powers(axes, "y", range(1, 4))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 100:g}")
    axes.set_xlabel("K over the least K for the tolerance")
    axes.set_title("(b) The same, by how many draws beyond the least")


def _tokens(result: Theory, axes: Axes) -> None:
    for index, case in enumerate(result.cases("tokens")):
        numbers = result.of("tokens", case)
        for rate in (0.05, 0.95):
            label = case.replace("dr-grpo:group_size=16", "n = 16").replace("dr-grpo", "n = 4")
            label = label.replace("reinforce-ada-", "") if rate < 0.5 else "_"
            _line(axes, [each for each in numbers if each.at == rate], index, label)
    sizes = sorted({number.size for number in result.numbers if number.part == "tokens"})
    axes.axhline(0, color=GREY, linewidth=1)
    _log_axes(axes, sizes, "prompts of a step")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0%}")
    axes.set_title("(c) Token mean: error of w(0.95) above, of w(0.05) below")


def _silent(result: Theory, axes: Axes) -> None:
    factor = result.of("silent", "factor of every w(p)")
    for index, signal in enumerate(sorted({float(number.at or 0) for number in factor})):
        _line(axes, [each for each in factor if each.at == signal], index, f"signal in {signal:.0%}")
    sizes = sorted({number.size for number in factor})
    _log_axes(axes, sizes, "prompts of a step")
    axes.set_yscale("log")
    axes.set_yticks(ticks := [1, 1.2, 1.5, 2, 4, 10], [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title("(d) Silent groups left out: factor of w(p)")


def _wasted(result: Theory, axes: Axes) -> None:
    wasted = result.of("silent", "responses wasted")
    for index, signal in enumerate(sorted({float(number.at or 0) for number in wasted})):
        _line(axes, [each for each in wasted if each.at == signal], index, f"signal in {signal:.0%}")
    _log_axes(axes, sorted({number.size for number in wasted}), "prompts of a step")
    axes.set_ylim(1, None)
    axes.set_title("(d) The same: times the responses needed")


def _values(numbers: Iterable[float | None]) -> FloatArray:
    return np.array(list(numbers), dtype=np.float64)


def _log_axes(axes: Axes, sizes: list[int], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel(label)


def _powers(axes: Axes, axis: Literal["x", "y"], exponents: range) -> None:
    """Label a logarithmic axis at powers of ten."""
    ticks = [10.0**k for k in exponents]
    set_ticks = axes.set_xticks if axis == "x" else axes.set_yticks
    set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    set_ticks([], minor=True)
