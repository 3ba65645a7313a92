"""Exact errors of pass-rate estimates under the paper's rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit import Policy, analyze
from ada_bandit._types import FloatArray
from ada_bandit.estimators import EstimatorErrors, compare_estimators
from paper.laws import balance, grpo, pos, training_law

__all__ = ["BaselineErrors", "sweep"]

_POINTS = 199


@dataclass(frozen=True, eq=False)
class BaselineErrors:
    """Everything that was computed."""

    rates: FloatArray
    """`[rate]` p."""
    policies: dict[str, Policy]
    """The rules by short name."""
    estimators: dict[str, dict[str, EstimatorErrors]]
    """By rule, then by estimator; `[rate]` arrays."""
    covariance: dict[str, FloatArray]
    """`[rate]` -Cov(N, mean) / E[N] by rule, summed over the exit law."""
    mse: dict[str, float]
    """Mean squared error of the pool mean over the training law, by rule."""
    responses: float
    """E[N] of balance over the training law."""
    matched_mse: float
    """E[p q] / E[N]: that of the mean of as many plain responses, the same number for every prompt."""


def sweep() -> BaselineErrors:
    """Return the errors by rule."""
    rates = np.linspace(0, 1, _POINTS + 2)[1:-1]
    policies = {"grpo": grpo(), "pos": pos(), "balance": balance(), "seq": Policy.preset("reinforce-ada-seq")}
    estimators = {name: compare_estimators(policy, rates).estimators for name, policy in policies.items()}
    covariance = {}
    for name, policy in policies.items():
        law = analyze(policy, rates).exit_law
        first = sum((chance * (k + m) for (k, m), chance in law.items()), np.zeros_like(rates))
        mean = sum((chance * k / (k + m) for (k, m), chance in law.items()), np.zeros_like(rates))
        # N times the mean is the number of positives.
        product = sum((chance * k for (k, _), chance in law.items()), np.zeros_like(rates))
        covariance[name] = -(product - first * mean) / first
    nodes, weights = training_law().quadrature(66)
    mse = {name: float(weights @ analyze(policy, nodes).pool_mean_mse) for name, policy in policies.items()}
    responses = float(weights @ analyze(policies["balance"], nodes).expected_samples)
    matched = float(weights @ (nodes * (1 - nodes))) / responses
    return BaselineErrors(rates, policies, estimators, covariance, mse, responses, matched)
