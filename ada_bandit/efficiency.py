"""Gradient efficiency: the progress of an objective per unit of cost that a policy buys.

Under the score model of `ada_bandit.score_model`, with

    u = keep_pos adv_pos q - keep_neg adv_neg p,
    W = E[u kappa(p)],
    V = E[u^2 + nu_pos keep_pos adv_pos^2 + nu_neg keep_neg adv_neg^2],
    C = E[N] + update_cost E[kept responses with an advantage other than 0],

and kappa, the overlap c and the batch B as there, the progress of E f(p) per unit of cost, at the
best step size, is proportional to W^2 / ((V + c (B - 1) E[u]^2) C). With a likeness k, E[u]^2 is
E[k(p, p') u(p) u(p')] over pairs of prompts.

Verifier noise (`ada_bandit.verifier`). A response with a positive reward is correct with chance
c = p (1 - rho1) / p', whatever else was seen, so the phi-part of its score is q or -p, with
mean c - p = (1 - rho0 - rho1) p q / p' and variance c (1 - c), and its noise ratio is
c nu_pos + (1 - c) nu_neg; nu stays with the truth of a response. Likewise with the c of a
negative reward, whose mean is c - p = -(1 - rho0 - rho1) p q / q'. The means take the place of
q and -p in u; the variances add to the noise of each kept response.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import check_number
from ada_bandit.exact import check_has_paths
from ada_bandit.lattice import binomial_rows
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy, Policy
from ada_bandit.score_model import ScoreModel, check_model, check_prior
from ada_bandit.unscored import exits_with_losses
from ada_bandit.verifier import PERFECT, VerifierNoise, check_verifier

__all__ = ["Efficiency", "UpdateMoments", "gradient_efficiency", "update_moments"]


@dataclass(frozen=True)
class Efficiency:
    """The parts of the gradient efficiency of a policy on a law."""

    value: float
    """W^2 / ((V + c (B - 1) E[u]^2) C), progress per unit of cost; 0 for a policy whose update is always 0."""
    progress: float
    """W."""
    noise: float
    """V."""
    cost: float
    """C, in responses."""
    expected_samples: float
    """E[N], responses a prompt."""
    batch_noise: float = 0.0
    """c (B - 1) E[u]^2, what a batch's common mean adds to the noise; 0 without overlap."""


def gradient_efficiency(
    policy: AnyPolicy,
    prior: Law,
    model: ScoreModel | None = None,
    verifier: VerifierNoise = PERFECT,
    *,
    unscored: float = 0.0,
) -> Efficiency:
    """Return the gradient efficiency of a policy on a pass-rate law, exactly.

    With verifier noise the integrand is a ratio of polynomials, and the quadrature exact to rounding for error rates
    of 1e-4 and above, or 0.

    Parameters
    ----------
    policy
        The policy.
    prior
        The law of p over prompts.
    model
        The score model: noise, objective and the cost of an update; ``ScoreModel()`` unless given.
    verifier
        How often the verifier errs; never unless given. The objective is that of the true pass rate.
    unscored
        Chance that a response gets no score (`ada_bandit.unscored`); it is paid for all the same.

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
    >>> from ada_bandit import Beta, Policy, ScoreModel
    >>> policy = Policy(rule="never", budget={"name": "rounds", "samples": 4}, group="all", advantage="group_mean")
    >>> f"{gradient_efficiency(policy, Beta(0.5, 1), ScoreModel(noise_ratio=1.0)).value:.10f}"
    '0.0009634409'
    """
    check_has_paths(policy)
    check_prior(prior)
    model, verifier = check_model(model), check_verifier(verifier)
    lost = check_number("unscored", unscored, 0, 1)
    degree = model.quadrature_degree(max(each.budget.max_samples for _, each in policy.parts))
    rates, weights = prior.quadrature(degree + _extra_degree(verifier))
    # What follows are means over prompts, and so over the policies that a prompt may get.
    parts = [(share, update_moments(each, rates, verifier, unscored=lost)) for share, each in policy.parts]
    right, wrong = verifier.truth(rates)
    nu_pos, nu_neg = model.noise
    # What mistaken rewards add to the noise of a kept response: 0 for a perfect verifier.
    noise_pos = nu_pos + (1 - right) * (right + nu_neg - nu_pos)
    noise_neg = nu_neg + wrong * (1 - wrong + nu_pos - nu_neg)
    update = weights * sum(share * part.update for share, part in parts)
    noise = float(
        weights
        @ sum(
            share * (part.square + noise_pos * part.energy_pos + noise_neg * part.energy_neg) for share, part in parts
        )
    )
    samples = float(weights @ sum(share * part.samples for share, part in parts))
    rows = float(weights @ sum(share * part.rows for share, part in parts))
    cost = samples + model.update_cost * rows
    progress = float(update @ model.pull(rates, prior))
    of_batch = 0.0
    if model.batch_weight:
        of_batch = model.batch_weight * float(update @ model.alike(rates, rates) @ update)
    value = progress**2 / ((noise + of_batch) * cost) if noise > 0 else 0.0
    return Efficiency(value, progress, noise, cost, samples, of_batch)


@dataclass(frozen=True, eq=False)
class UpdateMoments:
    """What one prompt's update is made of under a policy; every array is `[rate]`."""

    update: FloatArray
    """E[u]."""
    square: FloatArray
    """E[u^2]."""
    energy_pos: FloatArray
    """E[keep_pos adv_pos^2], what the noise of positives is multiplied by."""
    energy_neg: FloatArray
    """E[keep_neg adv_neg^2]."""
    rows: FloatArray
    """Mean number of kept responses with an advantage other than 0."""
    samples: FloatArray
    """E[N]."""


def update_moments(
    policy: Policy, rates: FloatArray, verifier: VerifierNoise = PERFECT, *, unscored: float = 0.0
) -> UpdateMoments:
    """Return the moments of an update at pass rates, exactly.

    Parameters
    ----------
    policy
        The policy, of tables.
    rates
        ``[rate]`` pass rates.
    verifier, unscored
        As in `gradient_efficiency`.

    Raises
    ------
    InputError
        If the policy shares a budget across the batch.
    """
    tables = check_has_paths(policy).tables
    if unscored:
        reach, spent = exits_with_losses(policy, unscored)
    else:
        reach = np.where(tables.exits, tables.reach, 0.0)
        spent = reach * np.indices(reach.shape).sum(axis=0)
    pos, neg = np.nonzero(reach)
    right, wrong = verifier.truth(rates)
    # The mean of the phi-part of a score: q and -p for a perfect verifier.
    of_pos, of_neg = right - rates, wrong - rates
    # Law of the exit cell at every rate, ``[cell, rate]``.
    law = np.empty((pos.size, rates.size))
    for total, row in enumerate(binomial_rows(verifier.reward_rates(rates), tables.max_samples)):
        here = pos + neg == total
        law[here] = row[pos[here]]
    samples = spent[pos, neg] @ law
    law *= reach[pos, neg][:, None]
    update, square, energy_pos, energy_neg, rows = np.zeros((5, rates.size))
    for split in tables.splits():
        chance, keep_pos, keep_neg = split.chance[pos, neg], split.keep_pos[pos, neg], split.keep_neg[pos, neg]
        adv_pos, adv_neg = split.adv_pos[pos, neg], split.adv_neg[pos, neg]
        u = np.multiply.outer(keep_pos * adv_pos, of_pos) + np.multiply.outer(keep_neg * adv_neg, of_neg)
        mass = law * chance[:, None]
        update += (mass * u).sum(axis=0)
        square += (mass * u**2).sum(axis=0)
        energy_pos += (keep_pos * adv_pos**2) @ mass
        energy_neg += (keep_neg * adv_neg**2) @ mass
        rows += (keep_pos * (adv_pos != 0) + keep_neg * (adv_neg != 0)) @ mass
    return UpdateMoments(update, square, energy_pos, energy_neg, rows, samples)


def _extra_degree(verifier: VerifierNoise) -> int:
    """Return how much finer the quadrature must be for the poles that verifier noise puts near [0, 1].

    A pole at a distance rho from an end leaves an error of about exp(-2 sqrt(rho) degree).
    """
    rates = [rate for rate in (verifier.false_positive, verifier.false_negative) if rate]
    return min(int(17 / np.sqrt(min(rates))), 2000) if rates else 0
