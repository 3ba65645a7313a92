"""What an update is worth: moments of one step from pools, tables and pass rates, and their efficiencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ada_bandit import Policy, ScoreModel
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.objectives import Objective, objective_slope
from sim.statistics import SampleMean

__all__ = ["AVERAGED", "SUMMED", "efficiency", "efficiency_ratio", "step_moments"]

SUMMED, AVERAGED = (0, 1, 2), (3, 4, 2)
"""Which moments are W, V and C, where every response has the same weight, and where every prompt has."""


def step_moments(
    policies: Sequence[Policy],
    kind: IntArray,
    pos: IntArray,
    neg: IntArray,
    rates: FloatArray,
    model: ScoreModel,
    objectives: Sequence[Objective],
) -> FloatArray:
    """Return W, V and C of the summed update of a step, then W and V of the averaged one.

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
        The score model; its objective is not looked at.
    objectives
        Whose progress W is.

    Returns
    -------
    FloatArray
        ``[objective, 5]``.
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
    slopes = [objective_slope(objective, rates) for objective in objectives]
    return np.array(
        [
            [(u * slope).mean(), square.mean(), cost, (u / kept * slope).mean(), (square / kept**2).mean()]
            for slope in slopes
        ]
    )


def efficiency(moments: FloatArray, parts: tuple[int, int, int]) -> SampleMean:
    """Return W^2 / (V C) from moments ``[step, 5]``, with its standard error."""
    return _jackknife(partial(_efficiency, parts=parts), moments)


def efficiency_ratio(moments: FloatArray, reference: FloatArray, parts: tuple[int, int, int]) -> SampleMean | None:
    """Return the efficiency over that of a reference on the same prompts and responses; None where that is 0."""
    size = moments.shape[1]
    if not _efficiency(reference.mean(axis=0), parts):
        return None

    def ratio(both: FloatArray) -> FloatArray:
        below = _efficiency(both[..., size:], parts)
        return np.divide(_efficiency(both[..., :size], parts), below, out=np.zeros_like(below), where=below > 0)

    # Side by side: both have seen the same prompts and responses.
    return _jackknife(ratio, np.concatenate([moments, reference], axis=1))


def _efficiency(moments: FloatArray, parts: tuple[int, int, int]) -> FloatArray:
    """Return W^2 / (V C) from means over steps, the last axis of `moments`; 0 for an update that is always 0."""
    progress, noise, cost = (moments[..., part] for part in parts)
    return np.asarray(np.divide(progress**2, noise * cost, out=np.zeros_like(progress), where=noise > 0))


def _jackknife(function: Callable[[FloatArray], FloatArray], moments: FloatArray) -> SampleMean:
    """Return a function of means over steps, and its standard error by leaving out one step at a time."""
    steps = moments.shape[0]
    without = function((moments.sum(axis=0) - moments) / (steps - 1))
    spread = np.sqrt((steps - 1) * np.mean((without - without.mean()) ** 2))
    return SampleMean(float(function(moments.mean(axis=0))), float(spread))
