"""Residuals of the fitted laws, and how much of the missing signal more responses would find."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY
from ada_bandit.programs.looks import name_lines
from paper.claims import Measure
from paper.figure2.sweep import Curves
from paper.published import settings
from paper.results import ItemResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_NAMES = {"base": "base", "rl": "after RL"}


def analyse(curves: dict[str, Curves]) -> ItemResult:
    """Return the numbers, measures and the figure."""
    setup = settings()
    group, largest_k = setup["group_size"], int(curves["base"].k.max())
    models = {}
    measures = {}
    for model, curve in curves.items():
        few, many = curve.no_signal(group), curve.no_signal(largest_k)
        recovered = 1 - many / few
        models[model] = {
            "pass_rate": curve.law.mean,
            "largest_residual": curve.residual,
            "no_signal": few,
            "no_signal_many": many,
            "recovered": recovered,
            "k": curve.k,
            "residual_pass_at_k": curve.fit_pass - curve.pass_at_k,
            "residual_all_correct_at_k": curve.fit_all - curve.all_correct_at_k,
            "mass_at_0": curve.law.probability(0, 0),
            "all_correct_few": float(curve.law.evidence(group, 0)),
            "all_correct_many": float(curve.law.evidence(largest_k, 0)),
        }
        apart = float(abs(curve.pass_at_k[0] - curve.all_correct_at_k[0]))
        models[model]["apart_at_1"] = apart
        words = f"; the two curves are {apart:.3f} apart at k = 1, where they must meet" if apart else ""
        measures[f"law-{model}"] = Measure(
            f"largest residual {curve.residual:.4f}{words}", curve.residual, reference=0.0
        )
        measures[f"recoverable-{model}"] = Measure(
            f"{few:.1%} without signal at {group}, {many:.1%} at {largest_k}: {recovered:.0%} recovered", recovered
        )
    mean = curves["base"].law.mean
    footnote = setup["footnote_pass_at_1"]
    error = setup["reading_error_share"]
    measures["footnote"] = Measure(f"{mean:.1%}; pass@2 is {curves['base'].fit_pass[1]:.1%}", mean, error, footnote)
    second = float(curves["base"].fit_pass[1])
    numbers = {"models": models, "footnote_pass_at_1": footnote, "base_pass_at_2": second, "most": largest_k}
    return ItemResult(numbers, measures, {"figure2": partial(_draw, curves)})


def _draw(curves: dict[str, Curves], figure: Figure) -> None:
    figure.set_size_inches(9.6, 4.6)
    axes, rest = figure.subplots(1, 2, width_ratios=(3, 2))
    fine = np.geomspace(1, 256, 200)
    for colour, (model, curve) in zip(("black", GREY), curves.items(), strict=True):
        name = _NAMES[model]
        rates, weights = curve.law.quadrature(1)
        axes.plot(fine, 1 - (1 - rates) ** fine[:, None] @ weights, color=colour, label=f"pass@k,\n{name}")
        correct = rates ** fine[:, None] @ weights
        axes.plot(fine, correct, color=colour, linestyle="--", label=f"all-correct@k,\n{name}")
        for published, marker in ((curve.pass_at_k, "o"), (curve.all_correct_at_k, "s")):
            ring: dict[str, Any] = {"color": colour, "markersize": 5, "markerfacecolor": "white"}
            axes.plot(curve.k, published, marker, **ring, label="_published")
        for values, published, marker in (
            (curve.fit_pass, curve.pass_at_k, "o"),
            (curve.fit_all, curve.all_correct_at_k, "s"),
        ):
            rest.plot(curve.k, values - published, marker, color=colour, markersize=5)
    error = settings()["reading_error_share"]
    rest.axhspan(-error, error, color="#efefef", zorder=0)
    rest.axhline(0, color=GREY, linewidth=0.8)
    rest.annotate("reading error", (256, -error), xytext=(0, 4), textcoords="offset points", ha="right", color=GREY)
    rest.set_ylim(-0.011, 0.011)
    for each in (axes, rest):
        each.set_xscale("log", base=2)
        each.set_xticks(curves["base"].k, [f"{k:g}" for k in curves["base"].k])
        each.minorticks_off()
        each.set_xlabel("responses k")
    axes.set_ylabel("share of prompts")
    axes.set_ylim(0, 0.9)
    axes.set_title("marks: published; lines: the fitted laws")
    rest.set_title("law minus published\n(circles: pass@k; squares: all-correct@k)")
    name_lines(figure, [axes])
