"""Objectives of the pass rate that an update can climb: the mean reward, log p, pass@k, or one of your own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, unknown_name

__all__ = ["SMOOTH", "Objective", "objective_slope", "quadrature_degree"]

Objective: TypeAlias = str | Callable[[FloatArray], npt.ArrayLike]
"""``"mean"``, ``"log"``, ``"pass@k"`` such as ``"pass@8"``, or the derivative f' of any objective f."""

SMOOTH = 260
"""Degree up to which a quadrature follows a smooth function that is no polynomial."""


def objective_slope(objective: Objective, pass_rates: FloatArray) -> FloatArray:
    """Return p q f'(p), the pull of the objective on the common direction, shaped like `pass_rates`.

    In this form "log" is finite at p = 0, where f' is not.

    Parameters
    ----------
    objective
        ``"mean"`` (f = p), ``"log"`` (f = log p), ``"pass@k"`` (f = 1 - q^k), or f' itself as a
        vectorised function. What such a function gives at p = 0 and p = 1 is not looked at:
        the factor p q makes an end of no account wherever f' is finite.
    pass_rates
        Pass rates in [0, 1].

    Raises
    ------
    InputError
        For an unknown name, or a function that gives something other than finite numbers.
    """
    p, q = pass_rates, 1 - pass_rates
    if callable(objective):
        inner = (p > 0) & (p < 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.asarray(objective(p), dtype=np.float64)
        if slope.ndim and slope.shape != p.shape:
            msg = f"the objective's derivative must be elementwise; got shape {slope.shape} for {p.shape}"
            raise InputError(msg)
        slope = np.broadcast_to(slope, p.shape)
        if not np.isfinite(slope[inner]).all():
            first = float(p[inner][~np.isfinite(slope[inner])][0])
            msg = f"the objective's derivative must be finite inside (0, 1); it isn't at p = {first!r}"
            raise InputError(msg)
        return np.where(inner, p * q * np.where(inner, slope, 0.0), 0.0)
    if objective == "mean":
        return p * q
    if objective == "log":
        return q
    match = re.fullmatch(r"pass@(\d+)", objective) if isinstance(objective, str) else None
    if match and int(match[1]) >= 1:
        k = int(match[1])
        return np.asarray(k * p * q**k)
    raise unknown_name("objective", objective, ("mean", "log", "pass@8"))


def quadrature_degree(policy_samples: int, objective: Objective) -> int:
    """Return a degree at which a law's quadrature is exact for named objectives, and fine for smooth others."""
    if callable(objective):
        return policy_samples + SMOOTH
    match = re.fullmatch(r"pass@(\d+)", str(objective))
    return policy_samples + 4 + (int(match[1]) if match else 0)
