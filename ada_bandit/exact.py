"""Exact analysis of a policy: the law of the exit cell and everything that follows from it.

The gradient weight w(p) is that of `ada_bandit.gradient`.
The law is ``reach * Binomial(pos; pos + neg, p)``, so everything here is a polynomial in p:
one pass over the rows of Pascal's triangle weighted by p and q evaluates all of it, and its
integral in closed form.

Verifier noise (`ada_bandit.verifier`). Exits, keeps and advantages follow the rate of positive
rewards, p'. The truth of a response depends on its own reward alone, so that

    E[s | positive] = (p (1 - rho1) / p') grad p / p - (q rho0 / p') grad p / q
                    = (1 - rho0 - rho1) grad p / p',

likewise -(1 - rho0 - rho1) grad p / q' for a negative one: against the true gradient the
weight is (1 - rho0 - rho1) w(p'), whose integral is F(p') - F(rho0).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_pass_rates
from ada_bandit.gradient import weight_coefficients
from ada_bandit.lattice import binomial_rows, diagonal
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy, Blend, check_is_policy
from ada_bandit.tables import Tables
from ada_bandit.verifier import PERFECT, VerifierNoise, check_verifier

__all__ = ["Analysis", "analyze", "analyze_law", "check_has_paths", "induced_objective"]

_CHUNK = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis:
    """What a policy does at given pass rates, exactly; float64 arrays shaped like `pass_rates`."""

    policy: AnyPolicy
    """The policy that was analysed."""
    pass_rates: FloatArray
    """p."""
    expected_samples: FloatArray
    """E[N], responses a prompt."""
    expected_rounds: FloatArray
    """Mean number of rounds."""
    signal_probability: FloatArray
    """Chance that the group holds both classes."""
    resolved_probability: FloatArray
    """Chance that the exit rule holds at the exit; 0 for `Never`."""
    pool_mean_bias: FloatArray
    """E[pool mean] - p."""
    pool_mean_mse: FloatArray
    """E[(pool mean - p)^2]."""
    gradient_weight: FloatArray
    """w(p) per kept slot: E[update] = w(p) grad p, with the sum over the group divided by its size n."""
    short_of_positives: FloatArray
    """Chance to exit unresolved short of correct responses; of any correct one for `Never`."""
    short_of_negatives: FloatArray
    """Chance to exit unresolved short of incorrect responses, likewise."""
    kept_false_positives: FloatArray
    """Mean number of kept responses that are incorrect and were taken for correct; 0 for a perfect verifier."""
    kept_false_negatives: FloatArray
    """Mean number of kept responses that are correct and were taken for incorrect."""
    rows_in_loss: FloatArray
    """Mean number of rows that count in the denominator of a mean over rows: all kept ones, or those of groups that
    aren't silent where the policy leaves silent ones out."""
    verifier: VerifierNoise = PERFECT
    """How often the verifier errs."""

    @property
    def reward_rates(self) -> FloatArray:
        """The rate of positive rewards, p' = rho0 + (1 - rho0 - rho1) p."""
        return self.verifier.reward_rates(self.pass_rates)

    @property
    def false_share(self) -> FloatArray:
        """Share of the positive rewards that incorrect responses got, rho0 q / p'; the same for every policy."""
        return 1 - self.verifier.truth(self.pass_rates)[0]

    @cached_property
    def exit_law(self) -> dict[tuple[int, int], FloatArray]:
        """Chance to exit at (pos, neg) by cell, each shaped like `pass_rates`; they sum to 1."""
        law: dict[tuple[int, int], FloatArray] = {}
        for share, policy in self.policy.parts:
            tables = policy.tables
            for total, pmf in enumerate(binomial_rows(self.reward_rates.ravel(), tables.max_samples)):
                for pos in np.nonzero(np.diagonal(tables.exits[: total + 1, : total + 1][:, ::-1]))[0].tolist():
                    chance = share * tables.reach[pos, total - pos] * pmf[pos]
                    law[pos, total - pos] = law.get((pos, total - pos), 0.0) + chance.reshape(self.pass_rates.shape)
        return law


def analyze(policy: AnyPolicy, pass_rates: npt.ArrayLike, verifier: VerifierNoise = PERFECT) -> Analysis:
    """Analyse a policy exactly.

    With verifier noise every field is that of the rewards the policy sees, except that the
    gradient weight is against the true gradient, and the pool mean's errors against the true p.

    Parameters
    ----------
    policy
        The policy.
    pass_rates
        Pass rates in [0, 1], of any shape.
    verifier
        How often the verifier errs; never unless given.

    Returns
    -------
    Analysis
        Arrays shaped like `pass_rates`.

    Raises
    ------
    InputError
        If a pass rate is NaN or outside [0, 1], or the policy shares a budget across the batch.

    Examples
    --------
    >>> from ada_bandit import Policy, analyze
    >>> analysis = analyze(Policy.preset("reinforce-ada-balance"), pass_rates=[0.1, 0.5])
    >>> analysis.expected_samples.round(3)
    array([20.962,  8.567])
    """
    check_has_paths(policy)
    check_verifier(verifier)
    rates = check_pass_rates(pass_rates)
    flat = rates.ravel()
    starts = range(0, max(flat.size, 1), _CHUNK)
    values: dict[str, FloatArray] = {}
    # Every field is a mean over prompts, and so over the policies that a prompt may get.
    for share, each in policy.parts:
        chunks = [_evaluate(each.tables, flat[start : start + _CHUNK], verifier) for start in starts]
        for key in chunks[0]:
            part = np.concatenate([chunk[key] for chunk in chunks]).reshape(rates.shape)
            values[key] = np.asarray(share * part + values.get(key, 0.0))
    return Analysis(policy=policy, pass_rates=rates, verifier=verifier, **values)


def _evaluate(tables: Tables, pass_rates: FloatArray, verifier: VerifierNoise) -> dict[str, FloatArray]:
    """Return the fields of `Analysis` that are computed, ``[pass_rate]`` each."""
    size = pass_rates.size
    rounds, weight = np.zeros((2, size))
    kept = np.zeros((2, size))
    sums = np.zeros((8, size))
    previous: FloatArray = np.ones((1, size))
    for total, pmf in enumerate(binomial_rows(verifier.reward_rates(pass_rates), tables.max_samples)):
        reach, exits = diagonal(tables.reach, total), diagonal(tables.exits, total)
        rounds += (reach * (diagonal(tables.draws, total) > 0)) @ pmf
        if exits.any():
            ratio = np.arange(total + 1) / total
            values = np.stack(
                [
                    np.full(total + 1, float(total)),
                    diagonal(tables.signal, total),
                    diagonal(tables.resolved, total),
                    ratio,
                    ratio**2,
                    diagonal(tables.short_of_positives, total),
                    diagonal(tables.short_of_negatives, total),
                    diagonal(tables.rows_in_loss, total),
                ]
            )
            sums += (values * (reach * exits)) @ pmf
            if verifier:
                keep = np.stack([diagonal(tables.mean_keep_pos, total), diagonal(tables.mean_keep_neg, total)])
                kept += (keep * (reach * exits)) @ pmf
            weight += weight_coefficients(tables, tables.gain_pos, tables.gain_neg, total) @ previous
        previous = pmf
    samples, signal, resolved, mean, square, no_pos, no_neg, rows = sums
    right_pos, wrong_neg = verifier.truth(pass_rates)
    return {
        "expected_samples": samples,
        "expected_rounds": rounds,
        "signal_probability": signal,
        "resolved_probability": resolved,
        "pool_mean_bias": mean - pass_rates,
        "pool_mean_mse": np.maximum(square - 2 * pass_rates * mean + pass_rates**2, 0),
        "gradient_weight": weight * verifier.slope,
        "short_of_positives": no_pos,
        "short_of_negatives": no_neg,
        "kept_false_positives": kept[0] * (1 - right_pos),
        "kept_false_negatives": kept[1] * wrong_neg,
        "rows_in_loss": rows,
    }


def analyze_law(policy: AnyPolicy, law: Law, verifier: VerifierNoise = PERFECT) -> dict[str, float]:
    """Average the exact analysis over a pass-rate law.

    Parameters
    ----------
    policy
        The policy.
    law
        The law of p over prompts.
    verifier
        As in `analyze`.

    Returns
    -------
    dict
        The mean over prompts of every field of `Analysis`, by the field's name, without
        quadrature error; `pass_rates` is the law's mean.
    """
    nodes, weights = law.quadrature(check_has_paths(policy).budget.max_samples + 2)
    analysis = analyze(policy, nodes, verifier)
    values = {field.name: getattr(analysis, field.name) for field in fields(Analysis)}
    return {name: float(weights @ value) for name, value in values.items() if isinstance(value, np.ndarray)}


def induced_objective(policy: AnyPolicy, grid: npt.ArrayLike, verifier: VerifierNoise = PERFECT) -> FloatArray:
    """Return F(p), the objective that the policy climbs: the integral of w from 0 to p.

    Exact, as the integral of Binomial(i; t-1, p) is P(Binomial(t, p) > i) / t. Verifier noise
    turns F(p) into F(p') - F(rho0).

    Parameters
    ----------
    policy
        The policy.
    grid
        Pass rates in [0, 1], of any shape and order.
    verifier
        As in `analyze`.

    Returns
    -------
    FloatArray
        F, shaped like `grid`, with F(0) = 0; only differences have a meaning.

    Raises
    ------
    InputError
        If a pass rate is NaN or outside [0, 1], or the policy shares a budget across the batch.
    """
    check_has_paths(policy)
    check_verifier(verifier)
    rates = check_pass_rates(grid, "grid")
    objective = np.zeros(rates.size)
    for share, each in policy.parts:
        objective += share * _integral(each.tables, verifier.reward_rates(rates.ravel()))
        if verifier.false_positive:
            objective -= share * _integral(each.tables, np.array([verifier.false_positive]))
    return objective.reshape(rates.shape)


def _integral(tables: Tables, rates: FloatArray) -> FloatArray:
    """Return the integral of w from 0 to each rate, for a perfect verifier."""
    objective = np.zeros(rates.size)
    for total, pmf in enumerate(binomial_rows(rates, tables.max_samples)):
        if total and diagonal(tables.exits, total).any():
            beyond = np.cumsum(pmf[::-1], axis=0)[::-1][1:]
            objective += (weight_coefficients(tables, tables.gain_pos, tables.gain_neg, total) / total) @ beyond
    return objective


P = TypeVar("P", bound=AnyPolicy)


def check_has_paths(policy: P) -> P:
    """Return `policy`, or raise unless it is one that its tables describe in full."""
    for _, part in policy.parts if isinstance(policy, Blend) else [(1.0, check_is_policy(policy))]:
        if part.sampling.shared:
            msg = (
                f"the policy {part.label!r} shares a budget across the batch, so what a prompt gets depends on the "
                "others; simulate it (python -m sim budget)"
            )
            raise InputError(msg)
    return policy
