"""Estimates of the pass rate at the cell where a prompt exits.

A stopping rule biases the pool mean: E[mean] - p = -Cov(N, mean) / E[N]. What it can't bias
is the first response, and averaging that over all orders in which the exit cell can be
reached gives the estimate of least variance (Girshick, Mosteller and Savage 1946).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ada_bandit._lattice import reach
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError

__all__ = ["pool_mean_estimate", "prefix_probability", "unbiased_estimate"]


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
