"""The figure of a log: its law of pass rates, the signal of plain groups, and each step."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import draw_figures, line_style
from ada_bandit.programs.looks import name_lines
from sim.log.study import LogReport
from sim.stopped.pools import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]


def write_figures(report: LogReport, folder: Path) -> list[Path]:
    """Write the figure as ``log.png`` and ``log.svg`` into an existing folder; return the files."""
    return draw_figures({"log": partial(_draw, report)}, folder)


def _draw(report: LogReport, figure: Figure) -> None:
    panels = 3 if report.steps else 2
    figure.set_size_inches(4.2 * panels, 3.4)
    law, signal, *rest = figure.subplots(1, panels)
    _law(report, law)
    n = list(report.plain_signal)
    _points(signal, range(len(n)), list(report.plain_signal.values()), 0)
    signal.set_xticks(range(len(n)), [str(each) for each in n])
    signal.set_xlabel("plain responses a prompt, n")
    signal.set_ylim(0, 1)
    signal.set_title("share of groups with both classes", color="#333333")
    for axes in rest:
        at = [each.step for each in report.steps]
        _points(axes, at, [each.pass_rate for each in report.steps], 0, label="mean\npass rate")
        _points(axes, at, [each.signal for each in report.steps], 1, label=f"signal,\nn = {n[0]}")
        axes.set_ylim(0, 1)
        axes.set_xlabel("training step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title("by step, with 95 % intervals", color="#333333")
    name_lines(figure, rest)


def _law(report: LogReport, axes: Axes) -> None:
    """Draw the share of prompts at or below each pass rate."""
    fit, style = report.law, line_style(0)
    bands = np.cumsum(fit.replicates, axis=1)
    low, high = np.quantile(bands, (0.025, 0.975), axis=0) if len(bands) else (np.zeros(0), np.zeros(0))
    if len(bands):
        axes.fill_between(fit.rates, low, high, color=style["color"], alpha=0.2, linewidth=0, step="post")
    axes.step(fit.rates, np.cumsum(fit.weights), where="post", **style)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("pass rate p")
    axes.set_ylabel("share of prompts at or below p")
    axes.set_title("law of pass rates", color="#333333")


def _points(axes: Axes, at: Sequence[float], found: Sequence[Interval], index: int, label: str = "_") -> None:
    value = np.array([each.value for each in found])
    errors = np.stack([value - [each.low for each in found], [each.high for each in found] - value])
    style: dict[str, Any] = {"color": line_style(index)["color"], "marker": "o", "markersize": 4, "linewidth": 1.2}
    line, *_ = axes.errorbar(at, value, yerr=np.maximum(errors, 0), capsize=2, **style)
    line.set_label(label)
