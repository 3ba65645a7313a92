"""Exact analysis of a policy: the law of the exit cell and everything that follows from it.

With s the score and the exit decision a function of rewards alone, E[s | correct] = grad p / p
and E[s | incorrect] = -grad p / q, so for every policy, exactly,

    E[update] = w(p) grad p,
    w(p) = sum over exit cells of law(pos, neg; p) (keep_pos adv_pos / p - keep_neg adv_neg / q) / n.

The law is ``reach * Binomial(pos; pos + neg, p)``, so everything here is a polynomial in p:
one pass over the rows of Pascal's triangle weighted by p and q evaluates all of it, and its
integral in closed form.

Verifier noise. Let an incorrect response get a positive reward with chance rho0 and a correct
one a negative reward with chance rho1. Rewards are then positive at the rate
p' = rho0 + (1 - rho0 - rho1) p, and exits, keeps and advantages follow that. The truth of a
response depends on its own reward alone, P(correct | positive) = p (1 - rho1) / p', so that

    E[s | positive] = (p (1 - rho1) / p') grad p / p - (q rho0 / p') grad p / q
                    = (1 - rho0 - rho1) grad p / p',

likewise -(1 - rho0 - rho1) grad p / q' for a negative one: against the true gradient the
weight is (1 - rho0 - rho1) w(p'), whose integral is F(p') - F(rho0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_number, check_pass_rates
from ada_bandit.laws import Law
from ada_bandit.policy import Policy, check_is_policy
from ada_bandit.tables import Tables

__all__ = ["Analysis", "analyze", "analyze_law", "induced_objective"]

_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Analysis:
    """What a policy does at given pass rates, exactly; float64 arrays shaped like `pass_rates`."""

    policy: Policy
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
    """Chance to exit unresolved for want of correct responses; of any correct one for `Never`."""
    short_of_negatives: FloatArray
    """Chance to exit unresolved for want of incorrect responses, likewise."""
    kept_false_positives: FloatArray
    """Mean number of kept responses that are incorrect and were taken for correct; 0 for a perfect verifier."""
    kept_false_negatives: FloatArray
    """Mean number of kept responses that are correct and were taken for incorrect."""
    false_positive: float = field(default=0.0, kw_only=True)
    """rho0, chance that an incorrect response gets a positive reward."""
    false_negative: float = field(default=0.0, kw_only=True)
    """rho1, chance that a correct response gets a negative reward."""

    @property
    def reward_rates(self) -> FloatArray:
        """The rate of positive rewards, p' = rho0 + (1 - rho0 - rho1) p."""
        return reward_rates(self.pass_rates, self.false_positive, self.false_negative)

    @property
    def false_share(self) -> FloatArray:
        """Share of the positive rewards that incorrect responses got, rho0 q / p'; the same for every policy."""
        return 1 - truth(self.pass_rates, self.false_positive, self.false_negative)[0]

    @cached_property
    def exit_law(self) -> dict[tuple[int, int], FloatArray]:
        """Chance to exit at (pos, neg) by cell, each shaped like `pass_rates`; they sum to 1."""
        tables = self.policy.tables
        rows = binomial_rows(self.reward_rates.ravel(), tables.max_samples)
        law = {}
        for total, pmf in enumerate(rows):
            for pos in np.nonzero(np.diagonal(tables.exits[: total + 1, : total + 1][:, ::-1]))[0]:
                chance = tables.reach[pos, total - pos] * pmf[pos]
                law[int(pos), int(total - pos)] = chance.reshape(self.pass_rates.shape)
        return law


def binomial_rows(pass_rates: FloatArray, most: int) -> Iterator[FloatArray]:
    """Yield Binomial(pos; total, p) for total = 0 .. most, each ``[pos, pass_rate]``.

    By Pascal's rule: sums of positive terms, so every entry is right to about total * 1e-16.
    """
    p, q = pass_rates, 1 - pass_rates
    row = np.ones((1, p.size))
    yield row
    for total in range(1, most + 1):
        grown = np.empty((total + 1, p.size))
        np.multiply(row, q, out=grown[:-1])
        grown[-1] = 0
        grown[1:] += row * p
        row = grown
        yield row


def diagonal(table: npt.NDArray[np.generic], total: int) -> FloatArray:
    """Return the cells with pos + neg = total, ``[pos]``."""
    pos = np.arange(total + 1)
    return np.asarray(table[pos, total - pos], dtype=np.float64)


def _weight_coefficients(tables: Tables, total: int, group_size: int) -> FloatArray:
    """Return c with sum_i c_i Binomial(i; total - 1, p) = the share of w(p) of the exits with `total` responses.

    Uses C(t, k) p^k q^(t-k) / p = t/k C(t-1, k-1) p^(k-1) q^(t-k), and likewise for q, so that
    nothing is divided by p or q: w is right at 0 and 1 as well.
    """
    reach = diagonal(np.where(tables.exits, tables.reach, 0.0), total)
    gain_pos = diagonal(tables.keep_pos, total) * diagonal(tables.adv_pos, total)
    gain_neg = diagonal(tables.keep_neg, total) * diagonal(tables.adv_neg, total)
    count = np.arange(1, total + 1)
    return total / group_size * ((reach * gain_pos)[1:] / count - (reach * gain_neg)[:-1] / count[::-1])


def check_verifier(false_positive: float, false_negative: float) -> tuple[float, float]:
    """Return a verifier's error rates as floats in [0, 1) with a sum below 1."""
    rates = check_number("false_positive", false_positive, 0), check_number("false_negative", false_negative, 0)
    if sum(rates) >= 1:
        msg = (
            "false_positive + false_negative must be less than 1, or rewards don't tell correct from incorrect; got "
            f"{false_positive!r} and {false_negative!r}. For a verifier that is mostly wrong, swap its rewards"
        )
        raise InputError(msg)
    return rates


def reward_rates(pass_rates: FloatArray, false_positive: float, false_negative: float) -> FloatArray:
    """Return p' = rho0 + (1 - rho0 - rho1) p, the rate of positive rewards, shaped like `pass_rates`."""
    return false_positive + (1 - false_positive - false_negative) * pass_rates


def truth(pass_rates: FloatArray, false_positive: float, false_negative: float) -> tuple[FloatArray, FloatArray]:
    """Return P(correct | positive reward) and P(correct | negative reward), each shaped like `pass_rates`.

    A reward that never occurs counts as right.
    """
    positive = reward_rates(pass_rates, false_positive, false_negative)
    hit, miss = (1 - false_negative) * pass_rates, false_negative * pass_rates
    of_pos = np.divide(hit, positive, out=np.ones_like(positive), where=positive > 0)
    of_neg = np.divide(miss, 1 - positive, out=np.zeros_like(positive), where=positive < 1)
    return np.minimum(of_pos, 1), np.minimum(of_neg, 1)


def analyze(
    policy: Policy, pass_rates: npt.ArrayLike, *, false_positive: float = 0.0, false_negative: float = 0.0
) -> Analysis:
    """Analyse a policy exactly.

    With verifier noise every field is that of the rewards the policy sees, except that the
    gradient weight is against the true gradient, and the pool mean's errors against the true p.

    Parameters
    ----------
    policy
        The policy.
    pass_rates
        Pass rates in [0, 1], of any shape.
    false_positive, false_negative
        Chance that an incorrect response gets a positive reward, and a correct one a negative
        reward; their sum is less than 1.

    Returns
    -------
    Analysis
        Arrays shaped like `pass_rates`.

    Raises
    ------
    InputError
        If a pass rate is NaN or outside [0, 1], or an error rate can't be used.

    Examples
    --------
    >>> from ada_bandit import Policy, analyze
    >>> analysis = analyze(Policy.preset("reinforce-ada-balance"), pass_rates=[0.1, 0.5])
    >>> analysis.expected_samples.round(3)
    array([20.962,  8.567])
    """
    check_policy(policy)
    rates = check_pass_rates(pass_rates)
    noise = check_verifier(false_positive, false_negative)
    flat = rates.ravel()
    parts = [_evaluate(policy, flat[start : start + _CHUNK], noise) for start in range(0, max(flat.size, 1), _CHUNK)]
    values = np.concatenate(parts, axis=1)
    fields = (value.reshape(rates.shape) for value in values)
    return Analysis(policy, rates, *fields, false_positive=noise[0], false_negative=noise[1])


def _evaluate(policy: Policy, pass_rates: FloatArray, noise: tuple[float, float]) -> FloatArray:
    """Return the fields of `Analysis` in order, ``[field, pass_rate]``."""
    tables = policy.tables
    size = pass_rates.size
    rounds, weight = np.zeros((2, size))
    kept = np.zeros((2, size))
    sums = np.zeros((7, size))
    previous: FloatArray = np.ones((1, size))
    for total, pmf in enumerate(binomial_rows(reward_rates(pass_rates, *noise), tables.max_samples)):
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
                ]
            )
            sums += (values * (reach * exits)) @ pmf
            if any(noise):
                keep = np.stack([diagonal(tables.keep_pos, total), diagonal(tables.keep_neg, total)])
                kept += (keep * (reach * exits)) @ pmf
            weight += _weight_coefficients(tables, total, policy.n) @ previous
        previous = pmf
    samples, signal, resolved, mean, square, no_pos, no_neg = sums
    bias = mean - pass_rates
    mse = np.maximum(square - 2 * pass_rates * mean + pass_rates**2, 0)
    weight *= 1 - sum(noise)
    right_pos, wrong_neg = truth(pass_rates, *noise)
    false = kept[0] * (1 - right_pos), kept[1] * wrong_neg
    return np.stack([samples, rounds, signal, resolved, bias, mse, weight, no_pos, no_neg, *false])


def analyze_law(
    policy: Policy, law: Law, *, false_positive: float = 0.0, false_negative: float = 0.0
) -> dict[str, float]:
    """Average the exact analysis over a pass-rate law.

    Parameters
    ----------
    policy
        The policy.
    law
        The law of p over prompts.
    false_positive, false_negative
        As in `analyze`.

    Returns
    -------
    dict
        The mean over prompts of every field of `Analysis`, by the field's name, without
        quadrature error; `pass_rates` is the law's mean.
    """
    check_policy(policy)
    nodes, weights = law.quadrature(policy.budget.max_samples + 2)
    values = vars(analyze(policy, nodes, false_positive=false_positive, false_negative=false_negative))
    return {name: float(weights @ value) for name, value in values.items() if isinstance(value, np.ndarray)}


def induced_objective(
    policy: Policy, grid: npt.ArrayLike, *, false_positive: float = 0.0, false_negative: float = 0.0
) -> FloatArray:
    """Return F(p), the objective that the policy climbs: the integral of w from 0 to p.

    Exact, as the integral of Binomial(i; t-1, p) is P(Binomial(t, p) > i) / t. Verifier noise
    turns F(p) into F(p') - F(rho0).

    Parameters
    ----------
    policy
        The policy.
    grid
        Pass rates in [0, 1], of any shape and order.
    false_positive, false_negative
        As in `analyze`.

    Returns
    -------
    FloatArray
        F, shaped like `grid`, with F(0) = 0; only differences have a meaning.

    Raises
    ------
    InputError
        If a pass rate is NaN or outside [0, 1], or an error rate can't be used.
    """
    check_policy(policy)
    rates = check_pass_rates(grid, "grid")
    noise = check_verifier(false_positive, false_negative)
    objective = _integral(policy, reward_rates(rates.ravel(), *noise))
    if noise[0]:
        objective -= _integral(policy, np.array([noise[0]]))
    return objective.reshape(rates.shape)


def _integral(policy: Policy, rates: FloatArray) -> FloatArray:
    """Return the integral of w from 0 to each rate, for a perfect verifier."""
    tables = policy.tables
    objective = np.zeros(rates.size)
    for total, pmf in enumerate(binomial_rows(rates, tables.max_samples)):
        if total and diagonal(tables.exits, total).any():
            beyond = np.cumsum(pmf[::-1], axis=0)[::-1][1:]
            objective += (_weight_coefficients(tables, total, policy.n) / total) @ beyond
    return objective


def check_policy(policy: Policy) -> None:
    """Raise unless `policy` is a policy that its tables describe in full."""
    if check_is_policy(policy).tables.shared:
        msg = (
            f"the policy {policy.label!r} shares a budget across the batch, so what a prompt gets depends on the "
            "others; simulate it (python -m sim budget)"
        )
        raise InputError(msg)
