"""A law from the scalars of a finished run: mean reward, share of groups without signal, and n.

They are two equations for the two parameters of a Beta law: a/(a+b) is the mean, and
E[p^n + q^n] falls from 1 to m^n + (1-m)^n as a + b grows, so there is one solution or none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.fitting import default_grid
from ada_bandit.laws import Beta
from sim.stopped.laws import LawFit, hat_weights

__all__ = ["ScalarLaw", "law_of_scalars", "parse_scalars"]

_KNOWN = ("mean", "zero_std", "mixed", "all_good", "all_bad", "n", "groups", "low", "high")
_LEAST, _MOST = math.log(1e-4), math.log(1e6)


@dataclass(frozen=True, eq=False)
class ScalarLaw:
    """A Beta law that has the given scalars."""

    fit: LawFit
    """The law, and the laws of other scalars within their error."""
    n: int
    """Responses a group."""
    mean: float
    """Mean pass rate."""
    zero_std: float
    """Share of groups without signal."""
    notes: tuple[str, ...]
    """What the intervals hold, and what can't be known."""


def parse_scalars(text: str) -> dict[str, str]:
    """Split ``mean=0.41,zero_std=0.55,n=8``; the values stay text, as their digits tell how exact they are.

    Raises
    ------
    InputError
        If it is written otherwise, or a name is unknown.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            msg = f"scalars are written mean=0.41,zero_std=0.55,n=8; got {text!r}"
            raise InputError(msg)
        if name not in _KNOWN:
            raise unknown_name("scalar", name, _KNOWN)
        if name in found:
            msg = f"the scalar {name!r} is given twice in {text!r}; give it once"
            raise InputError(msg)
        found[name] = value
    return found


def _number(scalars: Mapping[str, str | float], name: str, low: float = 0.0, high: float = 1.0) -> float:
    value = scalars[name]
    try:
        number = float(value)
    except (TypeError, ValueError):
        msg = f"{name} must be a number; got {value!r}"
        raise InputError(msg) from None
    return check_number(name, number, low, high)


def _rounding(value: str | float) -> float:
    """Return half a unit of the last digit that was given."""
    text = str(value).strip().lower()
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2])
    return float(0.5 * 10.0 ** (int(exponent or 0) - digits)) if re.fullmatch(r"[-+]?\d*\.?\d*", mantissa) else 0.0


def law_of_scalars(scalars: Mapping[str, str | float], *, replicates: int = 400, seed: int = 0) -> ScalarLaw:
    """Return the Beta law that has a mean and a share of groups without signal.

    Parameters
    ----------
    scalars
        ``n``; ``mean``; one of ``zero_std``, ``mixed`` or both of ``all_good`` and ``all_bad`` (shares of groups;
        they make ``mean`` optional); ``groups``, the number of groups behind the scalars, for the error of
        sampling; ``low`` and ``high``, the rewards of an incorrect and of a correct response, unless 0 and 1.
        As text, their digits tell how they were rounded.
    replicates
        Laws of which the intervals are made.
    seed
        Fixes them.

    Raises
    ------
    InputError
        If a scalar is missing, outside of its range, or no law has all of them.
    """
    for name in scalars:
        if name not in _KNOWN:
            raise unknown_name("scalar", name, _KNOWN)
    if "n" not in scalars:
        msg = f"the group size is missing: add n=8; got {', '.join(scalars) or 'nothing'}"
        raise InputError(msg)
    n = check_count("n", int(_number(scalars, "n", 1, 1e6)), 2)
    low = _number(scalars, "low", -math.inf, math.inf) if "low" in scalars else 0.0
    high = _number(scalars, "high", -math.inf, math.inf) if "high" in scalars else 1.0
    if not low < high:
        msg = f"high must exceed low; got low={low:g}, high={high:g}"
        raise InputError(msg)
    mean = wide = None
    if "mean" in scalars:
        reward = _number(scalars, "mean", low, high)
        mean, wide = (reward - low) / (high - low), _rounding(scalars["mean"]) / (high - low)
    zero, zero_wide = _zero(scalars)
    if mean is None or wide is None:
        if not {"all_good", "all_bad"} <= scalars.keys():
            msg = f"the mean reward is missing: add mean=0.41, or both all_good and all_bad; got {', '.join(scalars)}"
            raise InputError(msg)
        mean, wide = _mean_of_ends(_number(scalars, "all_good"), _number(scalars, "all_bad"), n), 0.0
    shape = _solved(np.array([mean]), np.array([zero]), n)[0]
    if not np.isfinite(shape).all():
        raise InputError(_impossible(mean, zero, n))
    groups = check_count("groups", int(_number(scalars, "groups", 1, 1e12))) if "groups" in scalars else None
    random = np.random.Generator(np.random.Philox(seed))
    means, zeros = _drawn(random, shape, mean, zero, n, groups, replicates)
    means = np.clip(means + random.uniform(-wide, wide, replicates), 1e-6, 1 - 1e-6)
    zeros = zeros + random.uniform(-zero_wide, zero_wide, replicates)
    shapes = _solved(means, zeros, n)
    lost = int((~np.isfinite(shapes).all(axis=1)).sum())
    shapes = shapes[np.isfinite(shapes).all(axis=1)]
    notes = [
        (
            f"Beta({shape[0]:.4g}, {shape[1]:.4g}) is the one Beta law with mean {mean:.4g} and a share of {zero:.4g} "
            f"without signal at n = {n}; other laws have these scalars too, so what n does beyond that rests on the "
            "form "
            "of the law"
        ),
        "intervals hold the rounding of the scalars"
        + (f" and the sampling of {groups} groups" if groups else "; give groups=NUMBER for the error of sampling"),
    ]
    if lost > replicates // 20:
        notes.append(
            f"{lost} of {replicates} scalars within their error fit no Beta law; the law is at the edge of what is "
            "possible"
        )
    if not len(shapes):
        shapes = shape[None]
    rates = default_grid(257)
    weights = hat_weights(np.vstack([shape, shapes]), rates)
    law = Beta(float(shape[0]), float(shape[1]))
    how = f"the Beta law with mean {mean:.4g} and {zero:.4g} of groups without signal at n = {n}"
    return ScalarLaw(LawFit(law, rates, weights[0], weights[1:], how), n, mean, zero, tuple(notes))


def _zero(scalars: Mapping[str, str | float]) -> tuple[float, float]:
    """Return the share of groups without signal and its rounding."""
    ways = [name for name in ("zero_std", "mixed") if name in scalars]
    if {"all_good", "all_bad"} <= scalars.keys():
        if ways:
            msg = f"give {ways[0]}, or all_good and all_bad, but not both"
            raise InputError(msg)
        total = _number(scalars, "all_good") + _number(scalars, "all_bad")
        return check_number("all_good + all_bad", total, 0, 1), _rounding(scalars["all_good"]) + _rounding(
            scalars["all_bad"]
        )
    if len(ways) != 1:
        msg = (
            f"the share of groups without signal is {'given twice' if ways else 'missing'}: give one of zero_std=0.55, "
            f"mixed=0.45, or all_good and all_bad; got {', '.join(scalars)}"
        )
        raise InputError(msg)
    value, wide = _number(scalars, ways[0]), _rounding(scalars[ways[0]])
    return (value if ways[0] == "zero_std" else 1 - value), wide


def _chance(log_size: FloatArray, mean: FloatArray, n: int) -> FloatArray:
    """Return E[p^n + q^n] under Beta laws."""
    from scipy.special import betaln

    size = np.exp(log_size)
    a, b = mean * size, (1 - mean) * size
    base = betaln(a, b)
    return np.asarray(np.exp(betaln(a + n, b) - base) + np.exp(betaln(a, b + n) - base))


def _solved(mean: FloatArray, zero: FloatArray, n: int) -> FloatArray:
    """Return the shapes (a, b), ``[law, 2]``, by bisection; NaN where there is no law."""
    low, high = np.full(mean.shape, _LEAST), np.full(mean.shape, _MOST)
    inside = (mean > 0) & (mean < 1)
    safe = np.where(inside, mean, 0.5)
    possible = inside & (zero < _chance(low, safe, n)) & (zero > _chance(high, safe, n))
    for _ in range(60):
        middle = (low + high) / 2
        above = _chance(middle, safe, n) > zero
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    size = np.exp((low + high) / 2)
    shapes = np.stack([safe * size, (1 - safe) * size], axis=1)
    return np.where(possible[:, None], shapes, np.nan)


def _drawn(
    random: np.random.Generator,
    shape: FloatArray,
    mean: float,
    zero: float,
    n: int,
    groups: int | None,
    replicates: int,
) -> tuple[FloatArray, FloatArray]:
    """Return means and shares of resampled runs."""
    if groups is None:
        return np.full(replicates, mean), np.full(replicates, zero)
    most = 2_000
    # Many groups are drawn as fewer, and the error is shrunk to their number.
    drawn = min(groups, most)
    rates = random.beta(shape[0], shape[1], size=(replicates, drawn))
    correct = random.binomial(n, rates)
    means = correct.mean(axis=1) / n
    zeros = ((correct == 0) | (correct == n)).mean(axis=1)
    shrink = math.sqrt(drawn / groups)
    return mean + (means - mean) * shrink, zero + (zeros - zero) * shrink


def _mean_of_ends(good: float, bad: float, n: int) -> float:
    """Return the mean of the Beta law with E[p^n] and E[q^n].

    For a given share without signal, E[p^n] grows with the mean.
    """
    zero = good + bad
    grid = np.linspace(1e-4, 1 - 1e-4, 4001)
    shapes = _solved(grid, np.full(grid.shape, zero), n)
    from scipy.special import betaln

    a, b = shapes[:, 0], shapes[:, 1]
    there = np.isfinite(a)
    if not there.any():
        raise InputError(_impossible(0.5, zero, n))
    all_good = np.exp(betaln(a[there] + n, b[there]) - betaln(a[there], b[there]))
    means = grid[there]
    if not all_good.min() <= good <= all_good.max():
        msg = f"no Beta law has all_good={good:g} and all_bad={bad:g} at n = {n}; are the shares those of one run?"
        raise InputError(msg)
    return float(np.interp(good, all_good, means))


def _impossible(mean: float, zero: float, n: int) -> str:
    least = mean**n + (1 - mean) ** n
    if zero <= least:
        return (
            f"with mean {mean:.4g} at least {least:.4g} of groups of {n} are without signal, and {zero:.4g} was given: "
            "no law "
            "has both. Are groups without signal filtered out before the share is taken, or rewards not 0 and 1 (low=, "
            "high=)?"
        )
    return (
        f"a share of {zero:.4g} without signal at mean {mean:.4g} leaves no group with both classes; give a share "
        "below 1"
    )
