"""Exact gradient weights and their integrals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ada_bandit import Balance, Beta, Never, Policy, Rounds, analyze, induced_objective
from ada_bandit._types import FloatArray
from ada_bandit.advantages import Unbiased
from ada_bandit.calibration import calibrate
from ada_bandit.errors import InputError
from ada_bandit.shared import Est
from paper.laws import balance, grpo, policy, pos, training_law

__all__ = ["AT", "AVERAGES", "Objectives", "est_weight", "sweep"]

_LARGE = Rounds(256, 2)
_POINTS = 400


@dataclass(frozen=True, eq=False)
class Objectives:
    """Everything that was computed."""

    rates: FloatArray
    """`[rate]` p."""
    weights: dict[str, FloatArray]
    """`[rate]` w(p) by policy."""
    objectives: dict[str, FloatArray]
    """`[rate]` F(p) - F(1/2) by policy."""
    limit: FloatArray
    """`[rate]` (q/p + p/q) / 2."""
    large: FloatArray
    """`[rate]` w(p) of balance with rounds of 256."""
    unbiased_miss: float
    """Largest |w - 1| of the advantage `unbiased` under both rules."""
    calibrated_miss: float
    """Largest |w - (1 - q^K)/p| of advantages calibrated to the truncated log p."""
    est: dict[int, FloatArray]
    """`[rate of AT]` p w(p) of version 3's rule over its value at 1/2, by average number of responses; log p has 1."""


AT = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Pass rates at which the rule of version 3 is looked at."""
AVERAGES = (8, 64)
"""Responses a prompt of that rule: its preset's, and as many as show the limit."""


def est_weight(average: float, rates: FloatArray) -> FloatArray:
    """Return n(p) w(p), up to a factor, of version 3's rule when the pass rates are known, ``[rate]``.

    n(p) is in proportion to (p + eps)^-power and `average` over the training law, at least 1 and at most four times
    the average; between whole numbers it is one or the other. The advantage is the rule's own.
    """
    rule = policy({"preset": "reinforce-ada-est"})
    if not isinstance(rule.budget, Est):
        msg = f"version 3's rule should share responses by Est; got {rule.budget!r}"
        raise InputError(msg)
    eps, power = rule.budget.eps, rule.budget.power
    nodes, weights = training_law().quadrature(1)
    scale = average / float(weights @ (nodes + eps) ** -power)
    share = np.clip(scale * (rates + eps) ** -power, 1, 4 * average)

    def total(count: int, rate: float) -> float:
        plain = replace(rule, rule=Never(), budget=Rounds(count, 1), group_size=count)
        return count * float(analyze(plain, rate).gradient_weight)

    low = np.floor(share).astype(int)
    part = share - low
    return np.array(
        [
            (1 - more) * total(int(count), rate) + more * total(int(count) + 1, rate)
            for count, more, rate in zip(low, part, rates, strict=True)
        ]
    )


def sweep() -> Objectives:
    """Return weights and objectives by policy."""
    rates = np.linspace(0, 1, _POINTS + 1)[1:-1]
    policies = {"grpo": grpo(), "dr-grpo": Policy.preset("dr-grpo"), "pos": pos(), "balance": balance()}
    weights = {name: analyze(policy, rates).gradient_weight for name, policy in policies.items()}
    objectives = {
        name: induced_objective(policy, rates) - induced_objective(policy, 0.5) for name, policy in policies.items()
    }
    large = analyze(replace(balance(), rule=Balance(4), budget=_LARGE), rates).gradient_weight
    misses = [
        np.abs(analyze(replace(rule, advantage=Unbiased()), rates).gradient_weight - 1).max()
        for rule in (pos(), balance())
    ]
    inner = np.linspace(0.05, 0.95, 91)
    max_samples = balance().budget.max_samples
    calibrated = calibrate(balance(), "truncated-log", Beta(1, 1)).policy
    miss = np.abs(analyze(calibrated, inner).gradient_weight - (1 - (1 - inner) ** max_samples) / inner).max()
    limit = ((1 - rates) / rates + rates / (1 - rates)) / 2
    at = np.array(AT)
    est = {average: at * est_weight(average, at) for average in AVERAGES}
    est = {average: values / values[AT.index(0.5)] for average, values in est.items()}
    return Objectives(rates, weights, objectives, limit, large, float(max(misses)), float(miss), est)
