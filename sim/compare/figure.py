"""Figures of a comparison, drawn without a display and without pyplot's global state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit import analyze, induced_objective
from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import GREY, draw_figures, equal_cost, label_points, legend
from ada_bandit.programs.looks import RateAxis, name_lines, panels_of, policy_looks
from sim.compare.study import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "write_figures"]

FIGURES = ("signal_cost", "weight", "bias", "responses")
"""File names of the figures, without ending."""


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


def _hard(comparison: Comparison) -> RateAxis:
    return RateAxis(comparison.source.law.probability(0, 0.05))


def _signal_cost(comparison: Comparison, figure: Figure) -> None:
    figure.set_size_inches(7.2, 4.5)
    axes = figure.subplots()
    law, rows = comparison.source.law, comparison.rows
    looks = policy_looks([row.policy for row in rows])
    right = max(2.0, *(row.responses for row in rows))
    plain = np.arange(1, int(np.ceil(right * 1.15)) + 1)
    curve = np.maximum(1 - law.evidence(plain, 0) - law.evidence(0, plain), 0)
    ring: dict[str, Any] = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 2}
    cross: dict[str, Any] = {"fmt": "x", "color": "black", "markersize": 4, "markeredgewidth": 0.9, "elinewidth": 1.1}
    axes.plot([], [], color=GREY, linestyle="none", **ring, label="exact")
    if rows[0].simulated:
        axes.errorbar([], [], xerr=[], yerr=[], **cross, label="simulated ± 2 standard errors")
    axes.plot(plain, curve, color=GREY, linewidth=1.2, zorder=1, label="GRPO with n responses")
    equal_cost(axes, [(row.responses, row.signal) for row in rows], (plain, curve))
    for row, look in zip(rows, looks, strict=True):
        axes.plot(row.responses, row.signal, color=look["color"], zorder=3, clip_on=False, **ring)
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
    points = [(row.responses, row.signal, row.policy, look["color"]) for row, look in zip(rows, looks, strict=True)]
    label_points(figure, axes, points)


def _weight(comparison: Comparison, figure: Figure) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panels = panels_of(len(comparison.policies))
    figure.set_size_inches(10.6, 4.2 * len(panels))
    grid = figure.subplots(len(panels), 2, squeeze=False)
    hard, verifier = _hard(comparison), comparison.scoring.verifier
    rates = hard.grid(0.001 if hard.logit else 0.005)
    looks = policy_looks([policy.label for policy in comparison.policies])
    weights = [analyze(policy, rates, verifier).gradient_weight for policy in comparison.policies]
    objectives = [
        induced_objective(policy, rates, verifier) - induced_objective(policy, 0.5, verifier)
        for policy in comparison.policies
    ]
    references = {"color": GREY, "linewidth": 1.1}
    lowest = min(1.0, *(float(weight.min()) for weight in weights))
    highest = max(1.0, *(float(weight.max()) for weight in weights))
    low, high = (limit(float(limit(values)) for values in objectives) for limit in (min, max))
    margin = 0.08 * (high - low)
    for (weight_axes, objective_axes), members in zip(grid, panels, strict=True):
        for index in members:
            weight_axes.plot(rates, weights[index], label=comparison.policies[index].label, **looks[index])
            objective_axes.plot(rates, objectives[index], label=comparison.policies[index].label, **looks[index])
        weight_axes.plot(rates, np.ones_like(rates), **references, linestyle=":", label="mean reward: w = 1")
        weight_axes.plot(rates, 1 / rates, **references, linestyle="--", label="log p: w = 1/p")
        objective_axes.plot(rates, rates - 0.5, **references, linestyle=":", label="mean reward")
        objective_axes.plot(rates, np.log(rates / 0.5), **references, linestyle="--", label="log p")
        if lowest > 0:
            weight_axes.set_yscale("log")
            weight_axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            weight_axes.yaxis.set_major_formatter("{x:g}")
            weight_axes.yaxis.set_minor_formatter(NullFormatter())
            weight_axes.set_ylim(lowest / 1.4, highest * 1.8)
        else:
            weight_axes.axhline(0, color="#444444", linewidth=0.8)
            weight_axes.set_ylim(lowest - 0.1 * (highest - lowest), highest + 0.15 * (highest - lowest))
        objective_axes.set_ylim(min(low - margin, -0.55), max(high + margin, 0.55))
        weight_axes.set_ylabel("w(p)")
        objective_axes.set_ylabel("F(p) - F(1/2)")
        for axes in (weight_axes, objective_axes):
            hard.apply(axes)
    grid[0, 0].set_title("gradient weight: E[update] = w(p) grad p")
    grid[0, 1].set_title("induced objective: F is the integral of w")
    for axes in grid[-1]:
        axes.set_xlabel(hard.label)
    name_lines(figure, grid.flat)


def _bias(comparison: Comparison, figure: Figure) -> None:
    hard = _hard(comparison)
    rates = hard.grid()
    curves = [analyze(policy, rates, comparison.scoring.verifier).pool_mean_bias for policy in comparison.policies]
    low = min(-0.005, *(float(bias.min()) for bias in curves))
    high = max(0.005, *(float(bias.max()) for bias in curves))
    margin = 0.06 * (high - low)
    for axes in _curves(comparison, figure, rates, curves, 4.2):
        axes.set_ylim(low - margin, high + margin)
        axes.set_ylabel("bias of the pool mean, E[mean] - p")
        hard.apply(axes)
    axes.set_xlabel(hard.label)
    name_lines(figure, figure.axes)


def _responses(comparison: Comparison, figure: Figure) -> None:
    hard = _hard(comparison)
    rates, law = hard.grid(), comparison.source.law
    curves = [analyze(policy, rates, comparison.scoring.verifier).expected_samples for policy in comparison.policies]
    *panels, law_axes = _curves(comparison, figure, rates, curves, 3.8, below=1.2)
    for axes in panels:
        axes.set_ylim(0, 1.05 * max(float(curve.max()) for curve in curves))
        axes.set_ylabel("responses per prompt, E[N]")
        axes.tick_params(labelbottom=False)
    edges = hard.bins()
    below = np.array([law.probability(0, float(edge)) for edge in edges])
    # The first bin holds p = 0 as well.
    shares = np.diff(np.concatenate([[0.0], below[1:]]))
    ends = hard.drawn(edges)
    law_axes.bar(
        ends[:-1], shares, width=np.diff(ends), align="edge", color="#b8b8b8", edgecolor="white", linewidth=0.8
    )
    law_axes.set_ylabel("share of\nprompts")
    law_axes.set_xlabel(hard.label)
    ends_note = "; the outer bars reach to 0 and 1" if hard.logit else ""
    law_axes.set_title(f"{comparison.source.label}{ends_note}", color="#333333", fontsize=9.5)
    for axes in (*panels, law_axes):
        hard.apply(axes)
    name_lines(figure, panels)


def _curves(
    comparison: Comparison,
    figure: Figure,
    rates: FloatArray,
    curves: Sequence[FloatArray],
    height: float,
    below: float = 0.0,
) -> list[Axes]:
    """Draw a curve a policy, a few to a panel, and make a panel of height `below` beneath; return the panels."""
    panels = panels_of(len(curves))
    heights = [height] * len(panels) + [below] * (below > 0)
    figure.set_size_inches(7.8, sum(heights) + 0.3)
    grid = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0].tolist()
    looks = policy_looks([policy.label for policy in comparison.policies])
    for axes, members in zip(grid[: len(panels)], panels, strict=True):
        for index in members:
            axes.plot(rates, curves[index], label=comparison.policies[index].label, **looks[index])
    return list(grid)
