"""Figures of a comparison, drawn without a display and without pyplot's global state."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit import analyze, induced_objective
from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import GREY, draw_figures, label_points, legend, line_style
from sim.compare.study import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "write_figures"]

FIGURES = ("signal_cost", "weight", "bias", "responses")
"""File names of the figures, without ending."""

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


def _grid(least: float = 0.0) -> FloatArray:
    """Return pass rates that are dense at both ends, where curves bend."""
    rates = (1 - np.cos(np.linspace(0, np.pi, 801))) / 2
    return np.asarray(rates[(rates >= least) & (rates <= 1 - least)])


def _signal_cost(comparison: Comparison, figure: Figure) -> None:
    figure.set_size_inches(7.2, 4.5)
    axes = figure.subplots()
    law, rows = comparison.source.law, comparison.rows
    right = max(2.0, *(row.responses for row in rows))
    plain = np.arange(1, int(np.ceil(right * 1.15)) + 1)
    curve = np.maximum(1 - law.evidence(plain, 0) - law.evidence(0, plain), 0)
    ring: dict[str, Any] = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 2}
    cross: dict[str, Any] = {"fmt": "x", "color": "black", "markersize": 4, "markeredgewidth": 0.9, "elinewidth": 1.1}
    axes.plot([], [], color=GREY, linestyle="none", **ring, label="exact")
    if rows[0].simulated:
        axes.errorbar([], [], xerr=[], yerr=[], **cross, label="simulated ± 2 standard errors")
    axes.plot(plain, curve, color=GREY, linewidth=1.2, zorder=1, label="n plain responses")
    for index, row in enumerate(rows):
        axes.plot(row.responses, row.signal, color=line_style(index)["color"], zorder=3, clip_on=False, **ring)
        if row.simulated:
            cost, signal = row.simulated["responses"], row.simulated["signal"]
            axes.errorbar(cost.mean, signal.mean, xerr=2 * cost.se, yerr=2 * signal.se, **cross, zorder=4)
    axes.set_xlim(0, right * 1.15)
    top = max(*(row.signal for row in rows), float(curve.max()))
    axes.set_ylim(0, top * 1.2 if top > 0 else 1)
    axes.set_xlabel("responses per prompt")
    axes.set_ylabel("signal: share of prompts whose\ngroup holds both classes")
    axes.set_title(comparison.source.label, color="#333333")
    legend(figure, axes)
    label_points(figure, axes, [(row.responses, row.signal, row.policy) for row in rows])


def _weight(comparison: Comparison, figure: Figure) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    figure.set_size_inches(9.6, 4.4)
    weight_axes, objective_axes = figure.subplots(1, 2)
    rates = _grid(0.005)
    verifier = comparison.scoring.verifier
    weights = [analyze(policy, rates, verifier).gradient_weight for policy in comparison.policies]
    for index, (policy, weight) in enumerate(zip(comparison.policies, weights, strict=True)):
        weight_axes.plot(rates, weight, label=policy.label, **line_style(index))
        objective = induced_objective(policy, rates, verifier) - induced_objective(policy, 0.5, verifier)
        objective_axes.plot(rates, objective, **line_style(index))
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
        bias = analyze(policy, rates, comparison.scoring.verifier).pool_mean_bias
        low, high = min(low, float(bias.min())), max(high, float(bias.max()))
        axes.plot(rates, bias, label=policy.label, **line_style(index))
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
            analyze(policy, rates, comparison.scoring.verifier).expected_samples,
            label=policy.label,
            **line_style(index),
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
