"""Counting paths on the (pos, neg) lattice.

Given its counts, every order of a prompt's responses is equally likely, so the chance that
sampling gets as far as a cell, *given the counts there*, does not depend on p:

    reach(pos, neg) = paths(pos, neg) / C(pos + neg, pos),
    law(pos, neg; p) = reach(pos, neg) * Binomial(pos; pos + neg, p).

One table thus serves all pass rates and all priors.

A stopping rule biases the pool mean: E[mean] - p = -Cov(N, mean) / E[N]. What it can't bias
is the first response, and averaging that over all orders in which the exit cell can be
reached gives the estimate of least variance (Girshick, Mosteller and Savage 1946).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError

__all__ = [
    "binomial_rows",
    "diagonal",
    "first_part_law",
    "log_factorials",
    "one_class_chance",
    "pool_mean_estimate",
    "prefix_probability",
    "reach",
    "unbiased_estimate",
]

LongArray = npt.NDArray[np.longdouble]


def log_factorials(most: int) -> LongArray:
    """Return log(k!) for k = 0 .. most in extended precision: differences of large ones stay exact to 1e-15."""
    logs = np.zeros(most + 1, dtype=np.longdouble)
    logs[1:] = np.cumsum(np.log(np.arange(1, most + 1, dtype=np.longdouble)))
    return logs


def _log_choose(logs: LongArray, n: npt.ArrayLike, k: npt.ArrayLike) -> LongArray:
    n, k = np.asarray(n), np.asarray(k)
    return np.asarray(logs[n] - logs[k] - logs[n - k])


def one_class_chance(pos: npt.ArrayLike, neg: npt.ArrayLike, n: int) -> FloatArray:
    """Return the chance that n responses picked from a pool are of one class, shaped like the counts.

    (C(pos, n) + C(neg, n)) / C(pos + neg, n): unbiased for p^n + q^n where the pool was drawn plainly, and
    only there. NaN where the pool has fewer than n.
    """
    pos, neg = np.asarray(pos), np.asarray(neg)
    total = pos + neg
    chance = np.zeros(total.shape)
    for count in (pos, neg):
        picked = np.ones(total.shape)
        for gone in range(n):
            picked *= np.maximum(count - gone, 0) / np.maximum(total - gone, 1)
        chance += picked
    return np.where(total >= n, chance, np.nan)


def first_part_law(logs: LongArray, total: int, more: int, pos: IntArray) -> FloatArray:
    """Return the chance that, of `total` + `more` responses with pos + j correct, the first `total` hold pos.

    The hypergeometric weight C(total, pos) C(more, j) / C(total + more, pos + j), by which a cell
    counts towards the cells that `more` further responses lead to.

    Parameters
    ----------
    logs
        `log_factorials` up to at least `total` + `more`.
    total, more
        Responses before, and in the round.
    pos
        ``[row]`` correct responses before.

    Returns
    -------
    FloatArray
        ``[j, row]`` for j = 0 .. `more`.
    """
    new = np.arange(more + 1)[:, None]
    logarithm = _log_choose(logs, total, pos) + _log_choose(logs, more, new)
    return np.asarray(np.exp(logarithm - _log_choose(logs, total + more, pos + new)), dtype=np.float64)


def reach(draws: IntArray, prefix: tuple[int, int] = (0, 0)) -> FloatArray:
    """Return the chance that a round ends at a cell, given the counts there.

    Parameters
    ----------
    draws
        ``[pos, neg]`` draws table.
    prefix
        Count only the paths that begin with this many correct responses and then this many
        incorrect ones, all within the first round.

    Returns
    -------
    FloatArray
        ``[pos, neg]`` in [0, 1]; 1 at the empty cell.
    """
    most = draws.shape[0] - 1
    logs = log_factorials(most)
    chance = np.zeros(draws.shape)
    chance[0, 0] = 1.0
    correct, incorrect = prefix
    fixed = correct + incorrect
    first = int(draws[0, 0])
    seen = np.arange(correct, first - incorrect + 1)
    log_share = _log_choose(logs, first - fixed, seen - correct) - _log_choose(logs, first, seen)
    chance[seen, first - seen] = np.exp(log_share).astype(np.float64)
    for total in range(1, most):
        pos = np.arange(total + 1)
        here, wanted = chance[pos, total - pos], draws[pos, total - pos]
        for m in np.unique(wanted[(wanted > 0) & (here > 0)]).tolist():
            rows = pos[(wanted == m) & (here > 0)]
            for new, weight in enumerate(first_part_law(logs, total, m, rows)):
                chance[rows + new, total - rows + m - new] += here[rows] * weight
    return chance


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


def pool_mean_estimate(pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
    """Return pos / (pos + neg), 0 for an empty pool, shaped like the counts."""
    pos, neg = np.asarray(pos), np.asarray(neg)
    return np.asarray(pos / np.maximum(pos + neg, 1))


def unbiased_estimate(draws: IntArray) -> FloatArray:
    """Return the unbiased pass-rate estimate e(pos, neg) of Girshick, Mosteller and Savage (1946).

    The share of the paths to a cell whose first response is correct; E[e] = p for every
    exit rule and every p.

    Parameters
    ----------
    draws
        ``[pos, neg]`` draws table.

    Returns
    -------
    FloatArray
        ``[pos, neg]``; the pool mean at cells that no path reaches, which a prompt enters
        only when responses went unscored.
    """
    pos, neg = np.indices(draws.shape, dtype=np.int64)
    estimate = prefix_probability(draws, 1, 0)
    return np.where(np.isnan(estimate), pool_mean_estimate(pos, neg), estimate)


def prefix_probability(draws: IntArray, correct: int, incorrect: int) -> FloatArray:
    """Return the chance that the responses began with `correct` correct, then `incorrect` incorrect ones.

    An unbiased estimate of p^correct q^incorrect at the exit cell, of least variance among
    those that look at the counts alone.

    Parameters
    ----------
    draws
        ``[pos, neg]`` draws table.
    correct, incorrect
        Length of the prefix, at most the size of the first round.

    Returns
    -------
    FloatArray
        ``[pos, neg]``; NaN at cells that no path reaches.

    Raises
    ------
    InputError
        If the prefix is longer than the first round: a prompt may have left before its end.
    """
    first = int(draws[0, 0])
    if correct + incorrect > first:
        msg = (
            f"a prefix of {correct} + {incorrect} responses is longer than the first round of {first}; "
            "ask for at most as many"
        )
        raise InputError(msg)
    every = reach(draws)
    ours = reach(draws, (correct, incorrect))
    ours[0, 0] = np.nan
    return np.asarray(np.divide(ours, every, out=np.full(every.shape, np.nan), where=every > 0))
