"""Splitting a total among prompts, to the last response: in proportion to shares, or greedily on marginal gains."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ada_bandit._types import IntArray
from ada_bandit.errors import InputError

__all__ = ["greedy_counts", "largest_remainder"]


def largest_remainder(shares: npt.ArrayLike, total: int, minimum: npt.ArrayLike, maximum: npt.ArrayLike) -> IntArray:
    """Split `total` in proportion to shares, within bounds, exactly.

    The real-valued split is clip(scale * share, minimum, maximum) with the scale that meets the
    total; the fractions are then rounded up where they are largest. What prompts of positive
    share can't take goes to the others evenly.

    Parameters
    ----------
    shares
        ``[prompt]`` non-negative shares.
    total
        The sum, from that of `minimum` to that of `maximum`.
    minimum, maximum
        ``[prompt]`` or scalar bounds, whole numbers.

    Returns
    -------
    IntArray
        ``[prompt]`` counts that sum to `total`.

    Raises
    ------
    InputError
        If a share is negative or not finite, or the bounds don't admit the total.
    """
    weights = np.asarray(shares, dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        msg = f"shares must be finite and at least 0; got {shares!r}"
        raise InputError(msg)
    low = np.broadcast_to(np.asarray(minimum, dtype=np.int64), weights.shape)
    high = np.broadcast_to(np.asarray(maximum, dtype=np.int64), weights.shape)
    _check_total(total, low, high)
    if weights.size == 0:
        return np.zeros(0, dtype=np.int64)
    # A trace of share for everybody lets the rest go to prompts of share 0 when the others are full.
    weights = weights / weights.max() + 1e-12 if weights.max() > 0 else np.ones_like(weights)
    bottom, top = 0.0, float(high.max() + 1) / 1e-13
    for _ in range(200):
        scale = (bottom + top) / 2
        if np.clip(scale * weights, low, high).sum() < total:
            bottom = scale
        else:
            top = scale
    exact = np.clip(bottom * weights, low, high)
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = total - int(counts.sum())
    while missing > 0:
        fraction = np.where(counts < high, exact - counts, -np.inf)
        order = np.argsort(-fraction, kind="stable")[: min(missing, int((counts < high).sum()))]
        counts[order] += 1
        missing -= order.size
    while missing < 0:
        fraction = np.where(counts > low, exact - counts, np.inf)
        order = np.argsort(fraction, kind="stable")[: min(-missing, int((counts > low).sum()))]
        counts[order] -= 1
        missing += order.size
    return counts


def greedy_counts(gains: npt.ArrayLike, total: int, minimum: npt.ArrayLike = 0) -> IntArray:
    """Hand out `total` responses one by one, each where it gains most; optimal for concave utilities (Fox 1966).

    Only the largest gains matter, so they are selected at once instead of one by one from a heap.
    Of equal gains, those of prompts with the fewest responses come first: what gains nothing
    is spread evenly.

    Parameters
    ----------
    gains
        ``[prompt, response]`` gain of each further response, not increasing along a row.
    total
        The sum, from that of `minimum` to the size of `gains`.
    minimum
        ``[prompt]`` or scalar: responses that a prompt gets in any case.

    Returns
    -------
    IntArray
        ``[prompt]`` counts that sum to `total`.

    Raises
    ------
    InputError
        If gains increase along a row, or the bounds don't admit the total.
    """
    table = np.asarray(gains, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        msg = f"gains must be finite, by prompt and response; got shape {table.shape}"
        raise InputError(msg)
    rise = np.diff(table, axis=1)
    if rise.size and rise.max() > 1e-9 * max(float(np.abs(table).max()), 1e-300):
        row = int(np.unravel_index(np.argmax(rise), rise.shape)[0])
        msg = f"gains must not increase along a row, as greedy is optimal for concave utilities alone; row {row} does"
        raise InputError(msg)
    low = np.broadcast_to(np.asarray(minimum, dtype=np.int64), table.shape[:1])
    _check_total(total, low, np.full(table.shape[0], table.shape[1]))
    left = total - int(low.sum())
    counts = low.astype(np.int64)
    if left == 0:
        return counts
    # Columns first, so that of equal gains the earliest response comes first.
    columns, rows = np.nonzero((np.arange(table.shape[1]) >= low[:, None]).T)
    values = table[rows, columns]
    least = np.partition(values, values.size - left)[values.size - left]
    above, equal = np.nonzero(values > least)[0], np.nonzero(values == least)[0]
    chosen = np.concatenate([above, equal[: left - above.size]])
    return counts + np.bincount(rows[chosen], minlength=table.shape[0])


def _check_total(total: int, low: IntArray, high: IntArray) -> None:
    if (low > high).any() or not low.sum() <= total <= high.sum():
        msg = f"a total of {total} responses lies outside of what the bounds allow, {low.sum()} to {high.sum()}"
        raise InputError(msg)
