"""Which prompts a rule weighs most, and what its weight integrates to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import GREY
from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.objective.sweep import AT, AVERAGES, Objectives
from paper.results import ItemResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_AT = (0.02, 0.1, 0.5, 0.9)
_NAMES = {"grpo": "GRPO", "pos": "pos", "balance": "balance", "dr-grpo": "Dr. GRPO"}


def analyse(data: Objectives) -> ItemResult:
    """Return the numbers, measures and the figure."""

    def at(values: FloatArray, rate: float) -> float:
        return float(np.interp(rate, data.rates, values))

    inner = (data.rates >= 0.1) & (data.rates <= 0.9)
    limit = float(np.abs(data.large / data.limit - 1)[inner].max())
    skew = {name: at(weight, 0.1) / at(weight, 0.9) for name, weight in data.weights.items()}
    log_off = float(np.log2(9 / skew["balance"]))
    weights = {name: {str(rate): at(weight, rate) for rate in _AT} for name, weight in data.weights.items()}
    balance = data.objectives["balance"]
    off = np.log2(data.est[AVERAGES[0]])
    furthest = float(off[np.abs(off).argmax()])
    words = "; ".join(
        f"{values.min():.2f} to {values.max():.2f} at {average} responses a prompt"
        for average, values in data.est.items()
    )
    ratio = {
        str(average): 9 * float(values[AT.index(0.1)] / values[AT.index(0.9)]) for average, values in data.est.items()
    }
    numbers = {
        "est": {str(average): dict(zip(map(str, AT), values, strict=True)) for average, values in data.est.items()},
        "est_skew": ratio,
        "weights": weights,
        "skew": skew,
        "log_skew": 9.0,
        "limit_error": limit,
        "unbiased_miss": data.unbiased_miss,
        "calibrated_miss": data.calibrated_miss,
        "balance_low": at(balance, 0.1),
        "balance_high": at(balance, 0.9),
    }
    measures = {
        "log": Measure(f"p w(p) over that at 1/2, p from {AT[0]:g} to {AT[-1]:g}: {words}", furthest, reference=0.0),
        "log-balance": Measure(
            f"w(0.1)/w(0.9) = {skew['balance']:.2f} (pos {skew['pos']:.2f}); 9 for log p", log_off, reference=0.0
        ),
        "hard-balance": Measure(f"{skew['balance']:.3f}: easy prompts count as much", skew["balance"]),
        "hard-pos": Measure(f"{skew['pos']:.2f}", skew["pos"]),
        "limit": Measure(f"largest difference {limit:.2%}", limit, reference=0.0),
        "unbiased": Measure(f"largest difference {data.unbiased_miss:.0e}", data.unbiased_miss, reference=0.0),
        "calibrated": Measure(f"largest difference {data.calibrated_miss:.0e}", data.calibrated_miss, reference=0.0),
    }
    return ItemResult(numbers, measures, {"objective": partial(_draw, data)})


def _draw(data: Objectives, figure: Figure) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    figure.set_size_inches(12.0, 4.4)
    axes, objectives = figure.subplots(1, 2)
    for (name, label), look in zip(_NAMES.items(), policy_looks(list(_NAMES.values())), strict=True):
        axes.plot(data.rates, data.weights[name], **look, label=label)
        objectives.plot(data.rates, data.objectives[name], **look, label=label)
    reference = {"color": GREY, "linewidth": 1.2}
    axes.plot(data.rates, data.limit, linestyle=":", **reference, label="balance, unlimited:\nF = logit(p)/2 - p")
    axes.plot(data.rates, 1 / data.rates, linestyle="--", **reference, label="log p")
    objectives.plot(
        data.rates,
        np.log(data.rates / (1 - data.rates)) / 2 - data.rates + 0.5,
        linestyle=":",
        **reference,
        label="balance, unlimited",
    )
    objectives.plot(data.rates, np.log(2 * data.rates), linestyle="--", **reference, label="log p")
    axes.set_yscale("log")
    axes.set_ylim(0.5, 20)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title("gradient weight: E[update] = w(p) grad p")
    axes.set_ylabel("w(p)")
    objectives.set_ylim(-2.2, 1.6)
    objectives.set_title("induced objective: F is the integral of w")
    objectives.set_ylabel("F(p) - F(1/2)")
    for each in (axes, objectives):
        each.set_xlabel("pass rate p")
        each.set_xlim(0, 1)
    name_lines(figure, (axes, objectives))
