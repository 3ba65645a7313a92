"""Gradient efficiency: the progress of an objective per unit of cost that a policy buys.

The two-component score model. A correct response's score is ``q phi + noise`` and an incorrect
one's ``-p phi + noise``, so that grad p = p q phi; `noise_ratio` is the noise energy of a class
over |phi|^2. Assumed are: |phi|^2 the same for all pass rates, updates that are small against
their noise, and directions phi of different prompts that are alike on average. With

    u = keep_pos adv_pos q - keep_neg adv_neg p,
    W = E[u p q f'(p)],
    V = E[u^2 + nu_pos keep_pos adv_pos^2 + nu_neg keep_neg adv_neg^2],
    C = E[N] + update_cost E[kept responses with an advantage other than 0],

the progress of E f(p) per unit of cost, at the best step size, is proportional to W^2 / (V C).

Verifier noise (`ada_bandit.exact`). A response with a positive reward is correct with chance
c = p (1 - rho1) / p', whatever else was seen, so the phi-part of its score is q or -p, with
mean c - p = (1 - rho0 - rho1) p q / p' and variance c (1 - c), and its noise ratio is
c nu_pos + (1 - c) nu_neg; nu stays with the truth of a response. Likewise with the c of a
negative reward, whose mean is c - p = -(1 - rho0 - rho1) p q / q'. The means take the place of
q and -p in u; the variances add to the noise of each kept response.

A guide, not a law: where the model was held against training runs, it ordered plain policies rightly
and over-rated its own optimum.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_number, unknown_name
from ada_bandit.exact import binomial_rows, check_policy, check_verifier, reward_rates, truth
from ada_bandit.laws import Law
from ada_bandit.policy import Policy
from ada_bandit.tables import class_advantages, splits

__all__ = ["Efficiency", "NoiseRatio", "Objective", "gradient_efficiency", "objective_slope"]

Objective: TypeAlias = str | Callable[[FloatArray], npt.ArrayLike]
"""``"mean"``, ``"log"``, ``"pass@k"`` such as ``"pass@8"``, or the derivative f' of any objective f."""
NoiseRatio: TypeAlias = float | tuple[float, float]
"""Noise energy over |phi|^2: one number, or that of positives and that of negatives."""


def objective_slope(objective: Objective, pass_rates: FloatArray) -> FloatArray:
    """Return p q f'(p), the pull of the objective on the common direction, shaped like `pass_rates`.

    In this form "log" is finite at p = 0, where f' is not.

    Parameters
    ----------
    objective
        ``"mean"`` (f = p), ``"log"`` (f = log p), ``"pass@k"`` (f = 1 - q^k), or f' itself as a
        vectorised function. What such a function gives at p = 0 and p = 1 is not looked at:
        the factor p q makes an end of no account wherever f' is finite.
    pass_rates
        Pass rates in [0, 1].

    Raises
    ------
    InputError
        For an unknown name, or a function that gives something other than finite numbers.
    """
    p, q = pass_rates, 1 - pass_rates
    if callable(objective):
        inner = (p > 0) & (p < 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.asarray(objective(p), dtype=np.float64)
        if slope.ndim and slope.shape != p.shape:
            msg = f"the objective's derivative must be elementwise; got shape {slope.shape} for {p.shape}"
            raise InputError(msg)
        slope = np.broadcast_to(slope, p.shape)
        if not np.isfinite(slope[inner]).all():
            first = float(p[inner][~np.isfinite(slope[inner])][0])
            msg = f"the objective's derivative must be finite inside (0, 1); it isn't at p = {first!r}"
            raise InputError(msg)
        return np.where(inner, p * q * np.where(inner, slope, 0.0), 0.0)
    if objective == "mean":
        return p * q
    if objective == "log":
        return q
    match = re.fullmatch(r"pass@(\d+)", objective) if isinstance(objective, str) else None
    if match and int(match[1]) >= 1:
        k = int(match[1])
        return np.asarray(k * p * q**k)
    raise unknown_name("objective", objective, ("mean", "log", "pass@8"))


def quadrature_degree(policy_samples: int, objective: Objective) -> int:
    """Return a degree at which a law's quadrature is exact for named objectives, and fine for smooth others."""
    if callable(objective):
        return policy_samples + 260
    match = re.fullmatch(r"pass@(\d+)", str(objective))
    return policy_samples + 4 + (int(match[1]) if match else 0)


def noise_pair(noise_ratio: NoiseRatio) -> tuple[float, float]:
    """Return the noise ratios of positives and of negatives."""
    pair = noise_ratio if isinstance(noise_ratio, (tuple, list)) else (noise_ratio, noise_ratio)
    if len(pair) != 2:
        msg = f"noise_ratio must be one number, or a pair for positives and negatives; got {noise_ratio!r}"
        raise InputError(msg)
    pos, neg = (check_number("noise_ratio", value, 0) for value in pair)
    return pos, neg


def check_prior(prior: Law) -> None:
    """Raise unless `prior` is a law."""
    if not isinstance(prior, Law):
        msg = f"prior must be a law of the pass rate, such as Beta(1, 1); got {prior!r}"
        raise InputError(msg)


@dataclass(frozen=True)
class Efficiency:
    """The parts of the gradient efficiency of a policy on a law."""

    value: float
    """W^2 / (V C), progress per unit of cost; 0 for a policy whose update is always 0."""
    progress: float
    """W."""
    noise: float
    """V."""
    cost: float
    """C, in responses."""
    expected_samples: float
    """E[N], responses a prompt."""


def gradient_efficiency(
    policy: Policy,
    prior: Law,
    noise_ratio: NoiseRatio = 1.0,
    objective: Objective = "mean",
    update_cost: float = 0.0,
    *,
    false_positive: float = 0.0,
    false_negative: float = 0.0,
) -> Efficiency:
    """Return the gradient efficiency of a policy on a pass-rate law, exactly.

    The model and its assumptions are those of this module's docstring. With verifier noise the
    integrand is a ratio of polynomials, and the quadrature exact to rounding for error rates
    of 1e-4 and above, or 0.

    Parameters
    ----------
    policy
        The policy.
    prior
        The law of p over prompts.
    noise_ratio
        Noise energy of a response's score over |phi|^2; a pair for positives and negatives.
    objective
        What is climbed: ``"mean"``, ``"log"``, ``"pass@k"``, or f' as a function.
    update_cost
        Cost of a kept response in the update, in responses.
    false_positive, false_negative
        Chance that an incorrect response gets a positive reward, and a correct one a negative
        reward. The objective is that of the true pass rate.

    Returns
    -------
    Efficiency
        The value and its parts.

    Raises
    ------
    InputError
        If an argument can't be used.

    Examples
    --------
    >>> from ada_bandit import All, Beta, Never, Policy, Rounds, group_mean
    >>> policy = Policy(Never(), Rounds(4), group_size=4, group=All(), advantage=group_mean())
    >>> f"{gradient_efficiency(policy, Beta(0.5, 1)).value:.10f}"
    '0.0019662058'
    """
    check_policy(policy)
    check_prior(prior)
    nu_pos, nu_neg = noise_pair(noise_ratio)
    price = check_number("update_cost", update_cost, 0)
    verifier = check_verifier(false_positive, false_negative)
    tables = policy.tables
    degree = quadrature_degree(tables.max_samples, objective) + _extra_degree(*verifier)
    rates, weights = prior.quadrature(degree)
    slope = objective_slope(objective, rates)
    pos, neg = np.nonzero(tables.exits)
    right, wrong = truth(rates, *verifier)
    # The mean of the phi-part of a score: q and -p for a perfect verifier.
    of_pos, of_neg = right - rates, wrong - rates
    # What mistaken rewards add to the noise of a kept response: 0 for a perfect verifier.
    more_pos = (1 - right) * (right + nu_neg - nu_pos)
    more_neg = wrong * (1 - wrong + nu_pos - nu_neg)
    # Law of the exit cell at every node, ``[cell, node]``.
    law = np.empty((pos.size, rates.size))
    for total, row in enumerate(binomial_rows(reward_rates(rates, *verifier), tables.max_samples)):
        here = pos + neg == total
        law[here] = tables.reach[pos[here], neg[here]][:, None] * row[pos[here]]
    progress = noise = kept = 0.0
    for chance, keep_pos, keep_neg in splits(policy, pos, neg):
        adv_pos, adv_neg = class_advantages(policy, pos, neg, keep_pos, keep_neg)
        u = np.multiply.outer(keep_pos * adv_pos, of_pos) + np.multiply.outer(keep_neg * adv_neg, of_neg)
        mass = law * chance[:, None] * weights
        energy = nu_pos * keep_pos * adv_pos**2 + nu_neg * keep_neg * adv_neg**2
        progress += float(np.sum(mass * u * slope))
        noise += float(np.sum(mass * u**2) + np.sum(mass.sum(axis=1) * energy))
        noise += float((keep_pos * adv_pos**2) @ (mass @ more_pos) + (keep_neg * adv_neg**2) @ (mass @ more_neg))
        kept += float(mass.sum(axis=1) @ (keep_pos * (adv_pos != 0) + keep_neg * (adv_neg != 0)))
    samples = float(weights @ (law.T @ (pos + neg)))
    cost = samples + price * kept
    value = progress**2 / (noise * cost) if noise > 0 else 0.0
    return Efficiency(value, progress, noise, cost, samples)


def _extra_degree(false_positive: float, false_negative: float) -> int:
    """Return how much finer the quadrature must be for the poles that verifier noise puts near [0, 1].

    A pole at a distance rho from an end leaves an error of about exp(-2 sqrt(rho) degree).
    """
    rates = [rate for rate in (false_positive, false_negative) if rate]
    return min(int(17 / np.sqrt(min(rates))), 2000) if rates else 0
