"""Gradient efficiency measured from the scores of responses, in place of the score model's assumptions.

A probe draws n responses to each of many prompts and keeps, of the scores s = grad log pi, the sum
S and the sum of squared norms Q of each class. With m_pos and m_neg the class means of a prompt,
p m_pos + q m_neg = 0 and grad p = p q (m_pos - m_neg). From these sums follow, for any policy of
tables and with no further sampling,

    G = w(p) grad p,    w(p) = E[keep_pos adv_pos] / p - E[keep_neg adv_neg] / q,

the mean of a prompt's update g (the sum of advantage times score over what is kept), its second
moment E|g|^2, and the progress of J = E f(p) with grad f = f'(p) grad p: <G, grad f> of the prompt
itself, and <G, grad f'> of a different one.

No rate is plugged in. A monomial p^x q^y has the unbiased estimate

    (pos)_x (neg)_y / (pos + neg)_(x + y),    (a)_x = a (a - 1) ... (a - x + 1),

from the counts of responses whose scores don't enter the same term (Halmos 1946); the law of an
exit is a sum of such monomials. So

    G         = 1/n [ sum over positives of (q w) s - sum over negatives of (p w) s ],
    <G, h>    = 1/(n (n - 1)) [ (q^2 w f') (|S_pos|^2 - Q_pos) - 2 (p q w f') <S_pos, S_neg>
                                + (p^2 w f') (|S_neg|^2 - Q_neg) ],

with the brackets estimated from the other n - 1 and n - 2 responses, are unbiased exactly, and so
is E|g|^2, the mean over what the policy would do with these very responses, drawn without
replacement. p^-1, which the objective log p needs, extends the same formula to x = -1; its
relative bias is -q^(n+1). Where a policy may draw more than a prompt has responses, p is plugged in
after all, and such prompts are counted.

With N prompts that make up the objective and B prompts a step,

    progress      P = (1 - 1/N) <G_i, grad f_j> + 1/N <G_i, grad f_i>,
    second moment M = E|g|^2 + (B - 1) <G_i, G_j>      (B times that of a step's mean update),

as means over different prompts i and j; N is infinite for fresh prompts. The progress per unit of
cost, at the best step size, is P^2 / (M C). The square of P is estimated from products of
different prompts' terms alone, and errors come from a bootstrap over prompts: half the width of the
middle 68 % of resamples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.class_scores import ClassScores
from ada_bandit.errors import InputError, check_count, check_number, preview
from ada_bandit.exact import check_has_paths
from ada_bandit.policy import AnyPolicy, Policy
from ada_bandit.streams import Stream
from ada_bandit.uniforms import uniform

__all__ = ["MeasuredEfficiency", "MeasuredUpdate", "measure_efficiency", "measure_update"]

_LEAST_PROMPTS = 4
"""The square of a mean over pairs is estimated from two pairs without a common prompt."""


@dataclass(frozen=True, eq=False)
class MeasuredUpdate:
    """What a policy's update of each prompt is on average; the weights are those of the prompt's class sums."""

    samples: FloatArray
    """`[prompt]` E[N], responses."""
    kept: FloatArray
    """`[prompt]` Mean number of kept responses with an advantage other than 0."""
    energy: FloatArray
    """`[prompt]` E|g|^2."""
    pos_weight: FloatArray
    """`[prompt]` Weight of the sum over correct responses in the estimate of G."""
    neg_weight: FloatArray
    """`[prompt]` Weight of the sum over incorrect responses."""
    own_progress: FloatArray
    """`[prompt]` <G, grad f> of the prompt itself."""
    plugged: BoolArray
    """`[prompt]` Whether rates were plugged in, as the policy may draw more than the prompt has responses."""


@dataclass(frozen=True)
class MeasuredEfficiency:
    """The measured gradient efficiency of a policy and its parts; errors are standard errors over prompts."""

    policy: str
    """The policy's label."""
    value: float
    """P^2 / (M C), with the sign of P, in squared units of a score; negative too where noise outweighs P."""
    error: float
    """Its error."""
    against: float
    """The value over that of the policy of reference."""
    against_error: float
    """Its error, of the same resamples."""
    progress: float
    """P."""
    progress_error: float
    """Its error."""
    second_moment: float
    """M."""
    second_moment_error: float
    """Its error."""
    cost: float
    """C, in responses or what else a response costs."""
    expected_samples: float
    """E[N], responses a prompt."""
    plugged: int
    """Prompts whose rates were plugged in."""


def measure_update(policy: AnyPolicy, scores: ClassScores, objective: str = "mean") -> MeasuredUpdate:
    """Return the mean and the second moment of a policy's update of each prompt.

    Parameters
    ----------
    policy
        A policy of tables, or a blend.
    scores
        What a probe kept.
    objective
        ``"mean"``, ``"log"`` or ``"pass@k"``.

    Raises
    ------
    InputError
        If an argument can't be used, or a prompt has fewer than three responses with a reward.
    """
    check_has_paths(policy)
    slope = _slope(objective)
    few = scores.responses < 3
    if few.any():
        msg = (
            f"a prompt needs at least 3 responses with a reward to be measured; prompt {int(np.argmax(few))} has "
            f"{scores.responses[few][0]:g}. Leave such prompts out, or probe with more samples"
        )
        raise InputError(msg)
    parts = [(share, _update(each, scores, slope)) for share, each in policy.parts]
    means = {
        each.name: np.asarray(sum(share * getattr(part, each.name) for share, part in parts))
        for each in fields(MeasuredUpdate)
        if each.name != "plugged"
    }
    return MeasuredUpdate(**means, plugged=np.any([part.plugged for _, part in parts], axis=0))


def _slope(objective: str) -> tuple[float, int, int]:
    """Return f' as a monomial: factor, power of p, power of q."""
    if objective == "mean":
        return 1.0, 0, 0
    if objective == "log":
        return 1.0, -1, 0
    match = re.fullmatch(r"pass@([1-9]\d*)", objective) if isinstance(objective, str) else None
    if match is None:
        msg = f"measured efficiency knows the objectives 'mean', 'log' and 'pass@k'; got {preview(objective)}"
        raise InputError(msg)
    return float(match[1]), 0, int(match[1]) - 1


class _Counts:
    """Estimates of monomials in p and q from the counts of prompts, some of whose responses are left out."""

    def __init__(self, pos: FloatArray, neg: FloatArray, plugged: BoolArray) -> None:
        # Where a class has no response to leave out its sum is 0, whatever the factor.
        self._pos, self._neg, self._plugged = np.maximum(pos, 0), np.maximum(neg, 0), plugged

    def log_monomial(self, x: IntArray, y: IntArray) -> FloatArray:
        """Return the logarithm of the estimate of p^x q^y, ``[cell, prompt]``, for powers ``[cell]`` of at least -1."""
        from scipy.special import xlogy

        x, y, pos, neg = x[:, None], y[:, None], self._pos, self._neg
        total = pos + neg
        fits = (x <= pos) & (y <= neg)
        x_fits, y_fits = np.where(fits, x, 0), np.where(fits, y, 0)
        log = _log_falling(pos, x_fits) + _log_falling(neg, y_fits) - _log_falling(total, x_fits + y_fits)
        log = np.where(fits, log, -np.inf)
        if not self._plugged.any():
            return log
        rate = pos / np.maximum(total, 1)
        of_pos = np.where(x < 0, np.log((total + 1) / (pos + 1)), xlogy(np.maximum(x, 0), rate))
        return np.where(self._plugged, of_pos + xlogy(y, 1 - rate), log)


def _log_falling(count: FloatArray, power: IntArray) -> FloatArray:
    from scipy.special import gammaln

    return np.asarray(gammaln(count + 1) - gammaln(count - power + 1))


class _Exits:
    """The law of the exit cell as a sum of monomials."""

    def __init__(self, policy: Policy) -> None:
        from scipy.special import gammaln

        tables = policy.tables
        self.pos, self.neg = np.nonzero(tables.exits)
        ways = gammaln(self.pos + self.neg + 1) - gammaln(self.pos + 1) - gammaln(self.neg + 1)
        self._log_ways = ways + np.log(tables.reach[self.pos, self.neg])

    def mean(self, values: FloatArray, counts: _Counts, p: int = 0, q: int = 0) -> FloatArray:
        """Return estimates of E[values at the exit] p^`p` q^`q`, ``[prompt]``, for values ``[cell]``."""
        here = values != 0
        log = counts.log_monomial(self.pos[here] + p, self.neg[here] + q)
        return np.asarray(values[here] @ np.exp(self._log_ways[here, None] + log))


def _update(policy: Policy, scores: ClassScores, slope: tuple[float, int, int]) -> MeasuredUpdate:
    """Return what `measure_update` does for a policy that is no blend."""
    exits, tables = _Exits(policy), policy.tables
    factor, f_p, f_q = slope
    pos, neg, n = scores.pos, scores.neg, scores.responses
    plugged = n < tables.max_samples + 3 + f_p + f_q
    pos_square, neg_square, product = (np.diag(each) for each in (scores.gram_pos, scores.gram_neg, scores.gram_cross))
    pos_pairs, neg_pairs = pos_square - scores.pos_energy, neg_square - scores.neg_energy

    # Means over the splits of a group, ``[cell]``.
    gain_pos = gain_neg = kept = of_pos = of_neg = of_pos_pairs = of_neg_pairs = of_products = np.zeros(exits.pos.size)
    for split in tables.splits():
        chance, keep_pos, keep_neg, adv_pos, adv_neg = (
            np.asarray(each[exits.pos, exits.neg], dtype=np.float64)
            for each in (split.chance, split.keep_pos, split.keep_neg, split.adv_pos, split.adv_neg)
        )
        gain_pos = gain_pos + chance * keep_pos * adv_pos
        gain_neg = gain_neg + chance * keep_neg * adv_neg
        kept = kept + chance * (keep_pos * (adv_pos != 0) + keep_neg * (adv_neg != 0))
        of_pos = of_pos + chance * keep_pos * adv_pos**2
        of_neg = of_neg + chance * keep_neg * adv_neg**2
        of_pos_pairs = of_pos_pairs + chance * keep_pos * (keep_pos - 1) * adv_pos**2
        of_neg_pairs = of_neg_pairs + chance * keep_neg * (keep_neg - 1) * adv_neg**2
        of_products = of_products + chance * keep_pos * adv_pos * keep_neg * adv_neg

    everyone = _Counts(pos, neg, plugged)
    energy = (
        exits.mean(of_pos, everyone) * _ratio(scores.pos_energy, pos)
        + exits.mean(of_neg, everyone) * _ratio(scores.neg_energy, neg)
        + exits.mean(of_pos_pairs, everyone) * _ratio(pos_pairs, pos * (pos - 1))
        + exits.mean(of_neg_pairs, everyone) * _ratio(neg_pairs, neg * (neg - 1))
        + 2 * exits.mean(of_products, everyone) * _ratio(product, pos * neg)
    )

    def weight(counts: _Counts, p: int, q: int) -> FloatArray:
        """Return estimates of w(p) p^`p` q^`q`."""
        return exits.mean(gain_pos, counts, p - 1, q) - exits.mean(gain_neg, counts, p, q - 1)

    def without(left_out_pos: int, left_out_neg: int) -> _Counts:
        return _Counts(pos - left_out_pos, neg - left_out_neg, plugged)

    own = (
        weight(without(2, 0), f_p, f_q + 2) * pos_pairs
        - 2 * weight(without(1, 1), f_p + 1, f_q + 1) * product
        + weight(without(0, 2), f_p + 2, f_q) * neg_pairs
    )
    return MeasuredUpdate(
        samples=exits.mean((exits.pos + exits.neg).astype(np.float64), everyone),
        kept=exits.mean(kept, everyone),
        energy=energy,
        pos_weight=weight(without(1, 0), 0, 1) / n,
        neg_weight=-weight(without(0, 1), 1, 0) / n,
        own_progress=factor * own / (n * (n - 1)),
        plugged=plugged,
    )


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _gradient_weights(scores: ClassScores, slope: tuple[float, int, int]) -> tuple[FloatArray, FloatArray]:
    """Return the weights of the class sums in the estimate of grad f, ``[prompt]`` each."""
    factor, p, q = slope
    plugged = scores.responses < 3 + p + q

    def power(left_out_pos: int, left_out_neg: int, p: int, q: int) -> FloatArray:
        counts = _Counts(scores.pos - left_out_pos, scores.neg - left_out_neg, plugged)
        return np.asarray(np.exp(counts.log_monomial(np.array([p]), np.array([q])))[0])

    n = scores.responses
    return factor * power(1, 0, p, q + 1) / n, -factor * power(0, 1, p + 1, q) / n


def _inner(
    scores: ClassScores, first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Return inner products of combinations of the class sums, ``[prompt, other]``, with 0 for a prompt and itself."""
    (pos, neg), (other_pos, other_neg) = first, second
    products = (
        np.multiply.outer(pos, other_pos) * scores.gram_pos
        + np.multiply.outer(neg, other_neg) * scores.gram_neg
        + np.multiply.outer(pos, other_neg) * scores.gram_cross
        + np.multiply.outer(neg, other_pos) * scores.gram_cross.T
    )
    np.fill_diagonal(products, 0.0)
    return np.asarray(products)


@dataclass(frozen=True, eq=False)
class _Values:
    """The parts of the efficiency under many weightings of the prompts, ``[resample]`` each."""

    value: FloatArray
    progress: FloatArray
    second_moment: FloatArray
    cost: FloatArray
    samples: FloatArray


def measure_efficiency(
    policies: Sequence[AnyPolicy],
    scores: ClassScores,
    objective: str = "mean",
    *,
    reference: AnyPolicy | None = None,
    update_cost: float = 0.0,
    response_cost: npt.ArrayLike = 1.0,
    pool: int | None = None,
    batch: int = 1,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[MeasuredEfficiency, ...]:
    """Return the measured gradient efficiency of policies, with errors over prompts.

    Parameters
    ----------
    policies
        Policies of tables, or blends.
    scores
        What a probe kept of at least four prompts.
    objective
        ``"mean"``, ``"log"`` or ``"pass@k"``.
    reference
        What the others are compared with: the first one unless given.
    update_cost
        Cost of a kept response in the update, in the unit of `response_cost`.
    response_cost
        Cost of a response to each prompt, ``[prompt]`` or one number, such as its mean number of
        tokens: as a policy can't see the length of what it draws next, E[N] times the mean length is exact.
    pool
        N, prompts that the objective is a mean over: 1 counts what a prompt's update does for that
        prompt alone; None is for fresh prompts, where it counts what it does for others.
    batch
        B, prompts a step.
    resamples
        Resamples of the bootstrap, at least 2.
    seed
        Seed of the bootstrap.
    progress
        Called with 1 after each policy.

    Returns
    -------
    tuple of MeasuredEfficiency
        One a policy, in order.

    Raises
    ------
    InputError
        If an argument can't be used, or there are fewer than four prompts.
    """
    if scores.prompts < _LEAST_PROMPTS:
        msg = f"measured efficiency needs at least {_LEAST_PROMPTS} prompts; got {scores.prompts}. Probe more prompts"
        raise InputError(msg)
    price = check_number("update_cost", update_cost, 0)
    each_cost = _costs(response_cost, scores.prompts)
    own_share = 0.0 if pool is None else 1 / check_count("pool", pool)
    others = check_count("batch", batch) - 1
    rows = np.arange(check_count("resamples", resamples, 2))[:, None]
    draws = uniform(seed, Stream.RESAMPLES, rows, np.arange(scores.prompts))
    chosen = (draws * scores.prompts).astype(np.int64)
    # The prompts as they are come first, then the resamples, as the number of times that a prompt is in it.
    times = np.stack([np.ones(scores.prompts), *(np.bincount(row, minlength=scores.prompts) for row in chosen)])
    gradient = _gradient_weights(scores, _slope(objective))

    def values(policy: AnyPolicy) -> tuple[_Values, int]:
        update = measure_update(policy, scores, objective)
        mean = update.pos_weight, update.neg_weight
        cross, alike = _inner(scores, mean, gradient), _inner(scores, mean, mean)
        size = times.sum(axis=1)
        samples = times @ update.samples / size
        cost = (times @ (update.samples * each_cost) + price * (times @ update.kept)) / size
        # A resample may hold too few different prompts for a pair, or for two.
        with np.errstate(divide="ignore", invalid="ignore"):
            gained = (1 - own_share) * _pair_mean(cross, times) + own_share * (times @ update.own_progress) / size
            moment = times @ update.energy / size + others * _pair_mean(alike, times)
            square = _square_of_mean(cross, update.own_progress, own_share, times)
        value = np.divide(np.sign(gained) * square, moment * cost, out=np.zeros_like(square), where=moment > 0)
        return _Values(value, gained, moment, cost, samples), int(update.plugged.sum())

    against = None if reference is None else values(reference)[0].value
    found = []
    for policy in policies:
        one, plugged = values(policy)
        against = one.value if against is None else against
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = one.value / against
        found.append(
            MeasuredEfficiency(
                policy=policy.label,
                value=float(one.value[0]),
                error=_error(one.value),
                against=float(ratio[0]),
                against_error=_error(ratio),
                progress=float(one.progress[0]),
                progress_error=_error(one.progress),
                second_moment=float(one.second_moment[0]),
                second_moment_error=_error(one.second_moment),
                cost=float(one.cost[0]),
                expected_samples=float(one.samples[0]),
                plugged=plugged,
            )
        )
        if progress is not None:
            progress(1)
    return tuple(found)


def _costs(response_cost: npt.ArrayLike, prompts: int) -> FloatArray:
    costs = np.asarray(response_cost, dtype=np.float64)
    if costs.shape not in {(), (prompts,)} or not (np.isfinite(costs).all() and (costs > 0).all()):
        msg = f"response_cost must be one number above 0, or one for each of {prompts} prompts; got {preview(costs)}"
        raise InputError(msg)
    return np.broadcast_to(costs, prompts)


def _error(values: FloatArray) -> float:
    """Return half the width of the middle 68 % of the resamples, a few of which may hold too few prompts for a value.

    A standard deviation, where the resamples are normal; ratios whose denominator may come near 0
    have none.
    """
    resampled = values[1:][np.isfinite(values[1:])]
    if resampled.size < 2:
        return math.nan
    low, high = np.quantile(resampled, [0.158655, 0.841345])
    return float(high - low) / 2


def _pair_mean(products: FloatArray, times: FloatArray) -> FloatArray:
    """Return the mean over pairs of different prompts, ``[resample]``; the diagonal of `products` is 0."""
    total = times.sum(axis=1) ** 2 - (times**2).sum(axis=1)
    return np.asarray(((times @ products) * times).sum(axis=1) / total)


def _square_of_mean(cross: FloatArray, own: FloatArray, own_share: float, times: FloatArray) -> FloatArray:
    """Return the square of the progress, ``[resample]``, from products of terms without a common prompt.

    Its three parts are the square of the mean over pairs, the square of the mean over prompts, and
    twice their product, each estimated by its U-statistic.
    """
    ones = np.ones_like(cross) - np.eye(own.size)
    square = (1 - own_share) ** 2 * _of_four(cross, times) / _of_four(ones, times)
    if own_share:
        both = _of_three(cross, own, times) / _of_three(ones, np.ones_like(own), times)
        alone = _of_two(own, times) / _of_two(np.ones_like(own), times)
        square = square + 2 * (1 - own_share) * own_share * both + own_share**2 * alone
    return np.asarray(square)


def _of_four(products: FloatArray, times: FloatArray) -> FloatArray:
    """Return the sum of products[i, j] products[k, l] over four different prompts, ``[resample]``."""
    rows, columns = times * (times @ products.T), times * (times @ products)
    squares = ((times**2 @ (products**2 + products * products.T)) * times**2).sum(axis=1)
    return np.asarray(rows.sum(axis=1) ** 2 - ((rows + columns) ** 2).sum(axis=1) + squares)


def _of_three(products: FloatArray, own: FloatArray, times: FloatArray) -> FloatArray:
    """Return the sum of products[i, j] own[k] over three different prompts, ``[resample]``."""
    rows, columns = times * (times @ products.T), times * (times @ products)
    return np.asarray(((rows.sum(axis=1)[:, None] - rows - columns) * times * own).sum(axis=1))


def _of_two(own: FloatArray, times: FloatArray) -> FloatArray:
    """Return the sum of own[i] own[j] over two different prompts, ``[resample]``."""
    return np.asarray((times @ own) ** 2 - (times**2) @ own**2)
