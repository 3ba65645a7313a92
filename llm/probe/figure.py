"""The figure of a probe: what the score model assumes, a panel an assumption."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import draw_figures, line_style
from llm.probe.score_model import ProbeSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figure"]

_PHI, _POS, _NEG = (line_style(index)["color"] for index in (3, 0, 1))
_GREY = "#767676"
_POINT: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none", "alpha": 0.75, "markeredgewidth": 0}
_RATE = "pass rate p of the prompt"


def write_figure(summary: ProbeSummary, folder: Path, title: str = "") -> list[Path]:
    """Write ``probe.png`` and ``probe.svg`` into an existing folder; return the files."""
    return draw_figures({"probe": partial(_draw, summary, title)}, folder)


def _draw(summary: ProbeSummary, title: str, figure: Figure) -> None:
    figure.set_size_inches(10.5, 7.6)
    (square, means), (noise, cosines) = figure.subplots(2, 2)
    _square(summary, square)
    _means(summary, means)
    _noise(summary, noise)
    _cosines(summary, cosines)
    for axes in (square, means, noise):
        axes.set_xlim(0, 1)
        axes.set_xlabel(_RATE)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, color="#333333")


def _square(summary: ProbeSummary, axes: Axes) -> None:
    geometry = summary.geometry
    rate, square = geometry.pass_rate[geometry.usable], geometry.phi_square[geometry.usable]
    axes.plot(rate, square, color=_PHI, label="a prompt", **_POINT)
    for number, third in enumerate(summary.thirds):
        median = third.median_phi_square
        axes.errorbar(
            (third.low + third.high) / 2,
            median.value,
            xerr=[[(third.high - third.low) / 2]],
            yerr=2 * np.nan_to_num(median.standard_error),
            color="black",
            linewidth=1.6,
            capsize=3,
            label="" if number else "median of a third ± 2 standard errors",
        )
    # Estimates spread over decades, and some are negative.
    axes.set_yscale("symlog", linthresh=max(float(np.median(np.abs(square))) / 3, 1e-12))
    axes.yaxis.set_major_formatter("{x:g}")
    if square.min() < 0:
        axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.set_ylabel("|phi|^2, unbiased")
    axes.set_title(f"|phi|^2; log of its ratio, p = 1 to p = 0: {summary.estimates['log_slope_phi_square']}")
    axes.legend(loc="lower right", fontsize=9, frameon=True, framealpha=0.85, edgecolor="none")


def _means(summary: ProbeSummary, axes: Axes) -> None:
    geometry = summary.geometry
    at = geometry.phi_square > 0
    rate, square = geometry.pass_rate[at], geometry.phi_square[at]
    ends = np.array([0.0, 1.0])
    low, high = -1.4, 1.4
    pos, neg = summary.estimates["pos_mean_over_q_phi"], summary.estimates["neg_mean_over_minus_p_phi"]
    for values, line, colour, label in (
        (geometry.pos_projection[at] / square, 1 - ends, _POS, f"positives; line: q; over it {pos}"),
        (geometry.neg_projection[at] / square, -ends, _NEG, f"negatives; line: -p; over it {neg}"),
    ):
        axes.plot(ends, line, color=colour, linewidth=1.2)
        # What lies outside stands at the edge.
        axes.plot(rate, np.clip(values, low, high), color=colour, label=label, clip_on=False, **_POINT)
    axes.set_ylim(low, high + 0.8)
    axes.set_ylabel("<class mean, phi> / |phi|^2")
    axes.set_title("class means along phi")
    axes.legend(loc="upper right", fontsize=9)


def _noise(summary: ProbeSummary, axes: Axes) -> None:
    geometry = summary.geometry
    scale = summary.estimates["phi_square"].value
    if not scale > 0:
        axes.set_title("no noise ratios: |phi|^2 is not above 0 on average")
        return
    for name, values, colour in (("pos", geometry.pos_noise, _POS), ("neg", geometry.neg_noise, _NEG)):
        ratio = summary.estimates[f"nu_{name}"]
        axes.plot(geometry.pass_rate, values / scale, color=colour, label=f"nu_{name} = {ratio}", **_POINT)
        axes.axhline(ratio.value, color=colour, linewidth=1.2)
    axes.set_ylim(0, None)
    axes.set_ylabel("noise energy / mean |phi|^2")
    axes.set_title("noise of each class; lines: nu over all prompts")
    axes.legend(loc="best", fontsize=9)


def _cosines(summary: ProbeSummary, axes: Axes) -> None:
    axes.set_xlabel("cosine of two prompts' phi (end bins: and beyond, by noise)")
    if summary.cosines.size == 0:
        axes.set_title("no pair of prompts with |phi|^2 above 0")
        return
    mean = summary.estimates["cosine"]
    # Noise in the norms takes some out of the range of a cosine; they are counted in the last bins.
    axes.hist(np.clip(summary.cosines, -1, 1), bins=np.linspace(-1, 1, 61).tolist(), color=_PHI, alpha=0.7)
    axes.axvline(0, color=_GREY, linewidth=0.8)
    axes.axvline(mean.value, color="black", linewidth=1.4)
    axes.set_ylabel("pairs of prompts")
    axes.set_title(f"cosines, freed of noise; mean {mean}")
