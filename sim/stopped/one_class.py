"""Bounds where no response is correct, or every one is: there the resamples all say the same.

Prompts are the sample, so a bound must hold whatever the law of their pass rates is. A prompt of pass rate p shows
n responses of the one class with chance at most q^n. If a share of prompts has signal s among m plain responses, that
chance is largest, over all laws, where some prompts share one pass rate and all others have 0; hence it is at most
1 - c s with c the least (1 - q^n) / (1 - p^m - q^m) over p, which is reached but where c is that of p near 0. With p
in place of the signal it is 1 - E[p]: the bound of Clopper and Pearson (1934) with prompts as trials.
"""

from __future__ import annotations

import math

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from sim.stopped.pools import Interval, Pools

__all__ = ["LEVEL", "mean_bound", "signal_bound"]

LEVEL = 0.95
"""Chance with which a bound holds, one-sided."""
_RATES = np.linspace(0, 1, 2002)[1:-1]


def _largest_pools(pools: Pools) -> IntArray:
    """Return the responses of each prompt's largest pool, ``[prompt]``: several visits to a prompt are one trial."""
    largest = np.zeros(int(pools.prompt.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, pools.prompt, pools.total)
    return largest


def _how(pools: Pools) -> str:
    what = "no pool has a correct response" if not pools.pos.any() else "no pool has an incorrect response"
    return f"{what}; one-sided bound of 95 %, exact over prompts whatever their law"


def mean_bound(pools: Pools) -> Interval:
    """Return the mean pass rate with its bound, for pools that are all of one class."""
    prompts = int(pools.prompt.max()) + 1
    most = 1 - (1 - LEVEL) ** (1 / prompts)
    if pools.pos.any():
        return Interval(1.0, 1 - most, 1.0, _how(pools))
    return Interval(0.0, 0.0, most, _how(pools))


def signal_bound(pools: Pools, n: int) -> Interval:
    """Return the share of prompts with signal among n plain responses with its bound, for pools of one class."""
    signal = 1 - _RATES**n - (1 - _RATES) ** n
    if n < 2:
        return Interval(0.0, 0.0, 0.0, "one response has no signal")
    sizes, times = np.unique(_largest_pools(pools), return_counts=True)
    least = np.array([_least(int(size), n, signal) for size in sizes])

    def chance(share: float) -> float:
        return float(times @ np.log(np.maximum(1 - least * share, 1e-300)))

    low, high = 0.0, float(signal.max())
    limit = math.log(1 - LEVEL)
    if chance(high) > limit:
        return Interval(0.0, 0.0, high, _how(pools))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) > limit else (low, middle)
    return Interval(0.0, 0.0, high, _how(pools))


def _least(size: int, n: int, signal: FloatArray) -> float:
    """Return the least share of prompts, by signal they have among n, that shows within `size` responses."""
    # As p falls to 0 the ratio goes to size / n.
    return float(min(((1 - (1 - _RATES) ** size) / signal).min(), size / n))
