"""How far the pool mean is off, and what it does to the gradient."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY
from ada_bandit.programs.looks import name_lines, policy_looks
from paper.bias.sweep import BaselineErrors
from paper.claims import Measure
from paper.drawing import name_within
from paper.results import ItemResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_AT = (0.05, 0.2, 0.5, 0.8)
_NAMES = {"pos": "pos", "balance": "balance", "seq": "seq, v3's example:\nrounds of 16,\nquotas of 8"}


def analyse(data: BaselineErrors) -> ItemResult:
    """Return the numbers, measures and the figure."""
    at = [int(np.abs(data.rates - rate).argmin()) for rate in _AT]
    rules: dict[str, dict[str, Any]] = {}
    for name, estimators in data.estimators.items():
        bias = estimators["pool_mean"].bias
        worst = int(np.abs(bias).argmax())
        rules[name] = {
            "largest_bias": float(abs(bias[worst])),
            "signed": float(bias[worst]),
            "at": float(data.rates[worst]),
            "bias": dict(zip(map(str, _AT), bias[at], strict=True)),
            "weight": {
                key: dict(zip(map(str, _AT), one.gradient_weight[at], strict=True)) for key, one in estimators.items()
            },
            "mse": data.mse[name],
        }
    largest = max(rules[name]["largest_bias"] for name in ("pos", "balance"))
    residual = max(
        float(np.abs(data.estimators[name]["pool_mean"].bias - data.covariance[name]).max()) for name in data.policies
    )
    unbiased = max(float(np.abs(data.estimators[name]["unbiased"].bias).max()) for name in data.policies)
    weights = data.estimators["balance"]["unbiased"].gradient_weight
    furthest = float(weights[np.abs(weights - 1).argmax()])
    ratio = data.mse["grpo"] / data.mse["balance"]
    matched = data.matched_mse / data.mse["balance"]
    numbers = {
        "rules": rules,
        "formula_residual": residual,
        "unbiased_residual": unbiased,
        "unbiased_weight": furthest,
        "mse_ratio": ratio,
        "mse_ratio_matched": matched,
        "matched_responses": data.responses,
        "lost": 1 - float(np.min(data.estimators["balance"]["pool_mean"].gradient_weight)),
    }
    measures = {
        "unbiased": Measure(
            f"off by {rules['pos']['largest_bias']:.3f} (pos, p = {rules['pos']['at']:.2f}), "
            f"{rules['balance']['largest_bias']:.3f} (balance, p = {rules['balance']['at']:.2f})",
            largest,
            reference=0.0,
        ),
        "precise": Measure(
            f"precision {matched:.2f} times that of as many plain responses ({data.responses:.1f} a prompt); "
            f"{ratio:.2f} times that of 4",
            matched,
        ),
        "formula": Measure(f"largest difference {residual:.0e}", residual, reference=0.0),
        "unbiased-weights": Measure(f"largest difference {unbiased:.0e}", unbiased, reference=0.0),
        "unbiased-baseline": Measure(f"the gradient is {furthest:.3f} of E[N] grad p", furthest, reference=1.0),
    }
    return ItemResult(numbers, measures, {"bias": partial(_draw, data)})


def _draw(data: BaselineErrors, figure: Figure) -> None:
    figure.set_size_inches(11.6, 4.2)
    axes, weights = figure.subplots(1, 2)
    for (name, label), look in zip(_NAMES.items(), policy_looks(list(_NAMES)), strict=True):
        axes.plot(data.rates, data.estimators[name]["pool_mean"].bias, **look, label=label)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_title("bias of the pool mean")
    axes.set_ylabel("E[mean] - p")
    axes.set_ylim(-0.045, 0.062)
    names = {
        "pool_mean": "pool mean",
        "leave_one_out": "leave one out",
        "round_lagged": "rounds before",
        "unbiased": "unbiased (GMS)",
    }
    # All four are the same policy: its colour, and dashes for its baselines. Their ends meet.
    for (key, label), look in zip(names.items(), policy_looks(["balance"] * len(names)), strict=True):
        (line,) = weights.plot(data.rates, data.estimators["balance"][key].gradient_weight, **look)
        name_within(weights, line, 0.5, above=key in {"pool_mean", "leave_one_out"}, label=label)
    weights.set_title("balance: gradient that each baseline leaves")
    weights.set_ylabel("sum over the pool / (E[N] grad p)")
    weights.set_ylim(0.86, 1.08)
    for each in (axes, weights):
        each.set_xlabel("pass rate p")
        each.set_xlim(0, 1)
    name_lines(figure, [axes])
