"""Estimates of the pass rate at the cell where a prompt exits, held against each other.

`compare_estimators` holds the estimates against each other, each also as a baseline b in the
sum of (reward - b) score over the pool. With the score model of `ada_bandit.score_model` that
sum has, in units of |phi|, the part along phi

    U = q (sum over positives of 1 - b) + p (sum over negatives of b),

and the variance Var(U) + nu_pos E[sum over positives of (1 - b)^2] + nu_neg E[sum over
negatives of b^2]. A baseline that looks at earlier rounds alone is predictable, and by Wald's
identity leaves the mean gradient at E[N] grad p; one that has seen the response itself, or
when sampling stopped, need not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_pass_rates
from ada_bandit.exact import check_has_paths
from ada_bandit.lattice import binomial_rows, diagonal, pool_mean_estimate
from ada_bandit.laws import Beta, Law
from ada_bandit.policy import Policy, check_is_policy
from ada_bandit.sampling import SamplingTables
from ada_bandit.score_model import ScoreModel, check_model, check_prior

__all__ = ["EstimatorComparison", "EstimatorErrors", "compare_estimators"]

# Entries of the largest array while rounds are followed.
_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class EstimatorErrors:
    """How far an estimate is off, and what it does as a baseline; arrays shaped like the pass rates."""

    bias: FloatArray
    """E[estimate] - p."""
    mse: FloatArray
    """E[(estimate - p)^2]."""
    gradient_weight: FloatArray
    """E[sum over the pool of (reward - b) score] / (E[N] grad p); 1 where the mean gradient is left as it is."""
    gradient_variance: FloatArray
    """Variance of that sum, in units of |phi|^2."""

    @property
    def relative_variance(self) -> FloatArray:
        """Variance over the squared weight: the noise once the step size makes up for the weight."""
        return np.asarray(self.gradient_variance / self.gradient_weight**2)


@dataclass(frozen=True, eq=False)
class EstimatorComparison:
    """Pass-rate estimators under one policy's draws table, exactly."""

    policy: Policy
    """The policy that stops the sampling; its group and advantage play no part."""
    pass_rates: FloatArray
    """p."""
    estimators: dict[str, EstimatorErrors]
    """Errors by name, as `compare_estimators` lists them."""
    undefined: dict[str, str]
    """Estimators without a value under this policy, and why."""


def compare_estimators(
    policy: Policy,
    pass_rates: npt.ArrayLike,
    prior: Law | None = None,
    model: ScoreModel | None = None,
) -> EstimatorComparison:
    """Compare pass-rate estimators under stopping: bias, mean squared error, and gradient variance as a baseline.

    ``pool_mean``
        pos / N.
    ``leave_one_out``
        For each response the mean of the others; 0 in a pool of one, as in the advantage of
        that name. As an estimate, that of a response of the pool taken at random: its bias is
        the pool mean's.
    ``round_lagged``
        The mean of the rounds before; the prior's mean in the first round. As an estimate, what
        the last round is compared with. Predictable.
    ``unbiased``
        `ada_bandit.lattice.unbiased_estimate` (Girshick, Mosteller and Savage 1946).
    ``posterior_mean``
        E[p | exit cell] under the prior.
    ``inverse_sampling``
        (k - 1) / (N - 1) (Haldane 1945); defined where prompts exit at the k-th positive,
        k >= 2, one response at a time. A prompt that the cap stops has pos / K. That is the
        `unbiased` estimate.

    Parameters
    ----------
    policy
        The policy.
    pass_rates
        Pass rates in [0, 1], of any shape.
    prior
        The law behind the posterior mean, and behind the first round's baseline; Beta(1, 1)
        unless given.
    model
        The score model, of which the noise ratio counts here; ``ScoreModel()`` unless given.

    Returns
    -------
    EstimatorComparison
        The errors of each, and the estimators that have no value here.

    Raises
    ------
    InputError
        If an argument can't be used, or the prior rules out an exit of the policy.

    Examples
    --------
    >>> from ada_bandit import Policy
    >>> from ada_bandit.estimators import compare_estimators
    >>> comparison = compare_estimators(Policy.preset("reinforce-ada-balance"), [0.2])
    >>> for name, errors in comparison.estimators.items():
    ...     print(f"{name:15} {errors.mse[0]:.4f} {errors.gradient_weight[0]:.3f} {errors.gradient_variance[0]:.3f}")
    pool_mean       0.0142 0.929 2.319
    leave_one_out   0.0166 1.016 2.711
    round_lagged    0.0529 1.000 3.571
    unbiased        0.0185 0.925 2.425
    posterior_mean  0.0165 0.932 2.337
    """
    tables = check_has_paths(check_is_policy(policy)).sampling
    rates = check_pass_rates(pass_rates)
    flat = rates.ravel()
    noise = check_model(model).noise
    prior = Beta(1.0, 1.0) if prior is None else check_prior(prior)
    undefined = {}
    baselines: dict[str, _Baseline | None] = {
        "pool_mean": _constant(pool_mean_estimate(*np.indices(tables.draws.shape))),
        "leave_one_out": _leave_one_out(tables.draws.shape),
        "round_lagged": None,
        "unbiased": _constant(tables.estimate),
        "posterior_mean": _constant(_posterior_mean(tables, prior)),
    }
    inverse = _inverse_sampling(tables)
    if inverse is None:
        undefined["inverse_sampling"] = "prompts must exit at the k-th positive, k >= 2, one response at a time"
    else:
        baselines["inverse_sampling"] = _constant(inverse)
    estimators = {}
    for name, baseline in baselines.items():
        if baseline is None:
            parts = _round_lagged(tables, flat, prior.mean, noise)
        else:
            parts = _of_cells(tables, flat, baseline, noise)
        estimators[name] = EstimatorErrors(*(part.reshape(rates.shape) for part in parts))
    return EstimatorComparison(policy, rates, estimators, undefined)


@dataclass(frozen=True)
class _Baseline:
    """A baseline that depends on the exit cell and the response's own class; all ``[pos, neg]``."""

    of_pos: FloatArray
    """b of a positive."""
    of_neg: FloatArray
    """b of a negative."""


def _constant(estimate: FloatArray) -> _Baseline:
    return _Baseline(estimate, estimate)


def _leave_one_out(shape: tuple[int, ...]) -> _Baseline:
    pos, neg = np.indices(shape)
    others = np.maximum(pos + neg - 1, 1)
    return _Baseline(np.asarray(np.maximum(pos - 1, 0) / others), np.asarray(np.where(pos + neg > 1, pos / others, 0)))


def _posterior_mean(tables: SamplingTables, prior: Law) -> FloatArray:
    """Return E[p | cell] at the exits, ``[pos, neg]``, 0 elsewhere."""
    pos, neg = np.nonzero(tables.exits)
    before = prior.log_evidence(pos, neg)
    if not np.isfinite(before).all():
        first = int(np.nonzero(~np.isfinite(before))[0][0])
        msg = (
            f"the prior rules out {pos[first]} correct and {neg[first]} incorrect responses, at which the policy "
            f"can exit; widen its support: got {prior!r}"
        )
        raise InputError(msg)
    mean = np.zeros(tables.draws.shape)
    mean[pos, neg] = np.exp(prior.log_evidence(pos + 1, neg) - before)
    return mean


def _inverse_sampling(tables: SamplingTables) -> FloatArray | None:
    """Return (k - 1) / (N - 1) where prompts exit at the k-th positive, pos / K at the cap; None for other rules."""
    most = tables.max_samples
    pos, neg = np.indices((most + 1, most + 1), dtype=np.int64)
    capped = pos + neg == most
    early = tables.exits & ~capped
    if not early.any() or (tables.draws[tables.reach > 0] > 1).any():
        return None
    k = int(pos[early].min())
    if k < 2 or (pos[tables.exits] > k).any():
        return None
    if ((tables.reach > 0) & (pos == k) & ~capped & ~tables.exits).any():
        return None
    return np.where(pos == k, (k - 1) / np.maximum(pos + neg - 1, 1), pool_mean_estimate(pos, neg))


_Parts = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Bias, mean squared error, gradient weight and gradient variance, ``[pass_rate]`` each."""


def _of_cells(tables: SamplingTables, rates: FloatArray, baseline: _Baseline, noise: tuple[float, float]) -> _Parts:
    """Sum over the law of the exit cell."""
    p, q = rates, 1 - rates
    exits = np.where(tables.exits, tables.reach, 0.0)
    sums = np.zeros((7, p.size))
    weight = np.zeros(p.size)
    previous: FloatArray = np.ones((1, p.size))
    for total, pmf in enumerate(binomial_rows(rates, tables.max_samples)):
        chance = diagonal(exits, total)
        if chance.any():
            pos = np.arange(total + 1)
            neg = total - pos
            of_pos, of_neg = diagonal(baseline.of_pos, total), diagonal(baseline.of_neg, total)
            up, down = pos * (1 - of_pos), neg * of_neg
            energy = noise[0] * pos * (1 - of_pos) ** 2 + noise[1] * neg * of_neg**2
            first = (pos * of_pos + neg * of_neg) / total
            second = (pos * of_pos**2 + neg * of_neg**2) / total
            size = np.full(total + 1, float(total))
            sums += (np.stack([size, first, second, up**2, up * down, down**2, energy]) * chance) @ pmf
            # C(t, k) p^k q^(t-k) / p is t/k C(t-1, k-1) p^(k-1) q^(t-k): nothing is divided by p or q.
            weight += (total * (chance * (1 - of_pos))[1:] + total * (chance * of_neg)[:-1]) @ previous
        previous = pmf
    samples, mean, square, up_up, up_down, down_down, energy = sums
    along = q**2 * up_up + 2 * p * q * up_down + p**2 * down_down
    variance = np.maximum(along - (p * q * weight) ** 2, 0) + energy
    mse = np.maximum(square - 2 * p * mean + p**2, 0)
    return mean - p, mse, weight / samples, variance


def _round_lagged(tables: SamplingTables, rates: FloatArray, first: float, noise: tuple[float, float]) -> _Parts:
    """Follow the rounds: within one the baseline is fixed, and the cell it began at is all there is to know."""
    size = max(_ENTRIES // tables.draws.size, 1)
    parts = [_follow(tables, rates[start : start + size], first, noise) for start in range(0, max(rates.size, 1), size)]
    bias, mse, weight, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return bias, mse, weight, variance


def _steps(tables: SamplingTables) -> Iterator[tuple[int, int, IntArray]]:
    """Yield responses so far, the size of the next round, and the pos of the cells that ask for it."""
    for total in range(tables.max_samples):
        pos = np.arange(total + 1)
        wanted = np.where(tables.reach[pos, total - pos] > 0, tables.draws[pos, total - pos], 0)
        for more in np.unique(wanted[wanted > 0]).tolist():
            yield total, more, pos[wanted == more]


def _follow(tables: SamplingTables, rates: FloatArray, first: float, noise: tuple[float, float]) -> _Parts:
    p, q = rates, 1 - rates
    rounds = list(binomial_rows(rates, int(tables.draws.max())))
    # E[1; cell], E[U; cell] and E[U^2; cell], [moment, pos, pass_rate] by the number of responses.
    states = [np.zeros((3, total + 1, p.size)) for total in range(tables.max_samples + 1)]
    states[0][0] = 1
    bias, mse, energy = np.zeros((3, p.size))
    for total, more, rows in _steps(tables):
        mass, along, square = states[total][:, rows]
        baseline = (rows / total if total else np.full(1, first))[:, None]
        miss = baseline - p
        energy += more * (mass * (noise[0] * p * (1 - baseline) ** 2 + noise[1] * q * baseline**2)).sum(axis=0)
        for new, chance in enumerate(rounds[more]):
            step = new * (1 - baseline) * q + (more - new) * baseline * p
            later = states[total + more][:, rows + new]
            later += np.stack([mass, along + step * mass, square + 2 * step * along + step**2 * mass]) * chance
            states[total + more][:, rows + new] = later
            leaving = mass * chance * tables.exits[rows + new, total - rows + more - new][:, None]
            bias += (leaving * miss).sum(axis=0)
            mse += (leaving * miss**2).sum(axis=0)
    ends = np.zeros((3, p.size))
    for total, state in enumerate(states):
        pos = np.arange(total + 1)
        ends += (state * tables.exits[pos, total - pos][:, None]).sum(axis=1)
    _, along, square = ends
    # Wald's identity: E[U] = p q E[N].
    return bias, mse, np.ones(p.size), np.maximum(square - along**2, 0) + energy
