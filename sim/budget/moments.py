"""What an update is worth: moments of one step from pools, tables and pass rates, and their efficiencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from ada_bandit import Policy, ScoreModel
from ada_bandit._types import FloatArray, IntArray
from sim.statistics import SampleMean

__all__ = ["AVERAGED", "SUMMED", "efficiency", "efficiency_ratio", "step_moments"]

SUMMED, AVERAGED = (0, 1, 2, 3), (4, 5, 6, 3)
"""Which moments are W, V, E[u] and C, where every response has the same weight, and where every prompt has."""


def step_moments(
    policies: Sequence[Policy],
    kind: IntArray,
    pos: IntArray,
    neg: IntArray,
    rates: FloatArray,
    model: ScoreModel,
    pulls: FloatArray,
) -> FloatArray:
    """Return W, V, E[u] and C of the summed update of a step, then W, V and E[u] of the averaged one.

    Parameters
    ----------
    policies
        Whose advantages the pools get, with groups of a fixed split.
    kind
        ``[prompt]`` which of them.
    pos, neg
        ``[prompt]`` the pools.
    rates
        ``[prompt]`` true pass rates.
    model
        The score model's noise and cost; its objective and transfer are not looked at.
    pulls
        ``[objective, prompt]`` kappa of each objective whose progress W is (`ScoreModel.pull`).

    Returns
    -------
    FloatArray
        ``[objective, 7]``.
    """

    def of_pools(name: str) -> FloatArray:
        tables = [getattr(policy.tables, name)[pos, neg] for policy in policies]
        return np.asarray(np.choose(kind, tables), dtype=np.float64)

    keep_pos, keep_neg, adv_pos, adv_neg = map(of_pools, ("keep_pos", "keep_neg", "adv_pos", "adv_neg"))
    u = keep_pos * adv_pos * (1 - rates) - keep_neg * adv_neg * rates
    nu_pos, nu_neg = model.noise
    square = u**2 + nu_pos * keep_pos * adv_pos**2 + nu_neg * keep_neg * adv_neg**2
    kept = np.maximum(keep_pos + keep_neg, 1)
    rows = keep_pos @ (adv_pos != 0) + keep_neg @ (adv_neg != 0)
    cost = ((pos + neg).sum() + model.update_cost * rows) / rates.size
    summed = (square.mean(), u.mean(), cost)
    averaged = ((square / kept**2).mean(), (u / kept).mean())
    return np.array([[(u * pull).mean(), *summed, (u / kept * pull).mean(), *averaged] for pull in pulls])


_Parts: TypeAlias = tuple[int, int, int, int]


def efficiency(moments: FloatArray, parts: _Parts, batch_weight: float) -> SampleMean:
    """Return W^2 / ((V + c (B - 1) E[u]^2) C) from moments ``[step, 7]``, with its standard error.

    `batch_weight` is c (B - 1) of the score model.
    """
    return _jackknife(partial(_efficiency, parts=parts, batch_weight=batch_weight), moments)


def efficiency_ratio(
    moments: FloatArray, reference: FloatArray, parts: _Parts, batch_weight: float
) -> SampleMean | None:
    """Return the efficiency over that of a reference on the same prompts and responses; None where that is 0."""
    size = moments.shape[1]
    if not _efficiency(reference.mean(axis=0), parts, batch_weight):
        return None

    def ratio(both: FloatArray) -> FloatArray:
        above, below = (_efficiency(half, parts, batch_weight) for half in (both[..., :size], both[..., size:]))
        return np.divide(above, below, out=np.zeros_like(below), where=below > 0)

    # Side by side: both have seen the same prompts and responses.
    return _jackknife(ratio, np.concatenate([moments, reference], axis=1))


def _efficiency(moments: FloatArray, parts: _Parts, batch_weight: float) -> FloatArray:
    """Return the efficiency from means over steps, the last axis of `moments`; 0 for an update that is always 0."""
    progress, noise, mean, cost = (moments[..., part] for part in parts)
    noise = noise + batch_weight * mean**2
    return np.asarray(np.divide(progress**2, noise * cost, out=np.zeros_like(progress), where=noise > 0))


def _jackknife(function: Callable[[FloatArray], FloatArray], moments: FloatArray) -> SampleMean:
    """Return a function of means over steps, and its standard error by leaving out one step at a time."""
    steps = moments.shape[0]
    without = function((moments.sum(axis=0) - moments) / (steps - 1))
    spread = np.sqrt((steps - 1) * np.mean((without - without.mean()) ** 2))
    return SampleMean(float(function(moments.mean(axis=0))), float(spread))
