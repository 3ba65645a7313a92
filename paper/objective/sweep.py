"""Exact gradient weights and their integrals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ada_bandit import Balance, Beta, Policy, Rounds, analyze, induced_objective
from ada_bandit._types import FloatArray
from ada_bandit.advantages import Unbiased
from ada_bandit.calibration import calibrate
from paper.laws import balance, grpo, pos

__all__ = ["Objectives", "sweep"]

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
    return Objectives(rates, weights, objectives, limit, large, float(max(misses)), float(miss))
