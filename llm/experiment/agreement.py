"""How predicted and measured efficiency agree over the arms of several experiments.

On each base model an arm's curve is its held-out pass rate against what was spent, averaged over seeds
and made monotone by isotonic regression. The *level* is what the arm of reference has after a share of
its spending, and the *measured ratio* is what the reference spends up to the level over what the arm
spends. An arm that never has the level spends all of its run, for the level that it ends at. An arm's ratio
is the geometric mean over base models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from llm.experiment.plan import Axis, RunKey
from llm.experiment.results import Results, SeedMean, seed_mean, series
from llm.histories import RunHistory

__all__ = [
    "LEVEL",
    "Agreement",
    "ArmMeasure",
    "after",
    "agreement",
    "area",
    "holm",
    "kendall_tau",
    "log_slope",
    "mean_curve",
    "measure_arms",
    "monotone",
    "spending_ratio",
    "spent_to",
    "two_sided",
]

LEVEL = 0.6
"""Share of the reference's spending whose pass rate is the level."""
_LEAST = 0.02
"""The least share of a run that counts as spent: evaluations are no closer, and the logarithm of 0 is no number."""

Curve = tuple[FloatArray, FloatArray]
"""What was spent, and the pass rate there, ``[evaluation]`` each."""


def monotone(rates: npt.ArrayLike) -> FloatArray:
    """Return the closest sequence that doesn't fall, by least squares (isotonic regression)."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(np.asarray(rates, dtype=np.float64)).x)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean over runs, at every evaluation of one of them, as far as the shortest run goes."""
    end = min(float(where[-1]) for where, _ in curves)
    points = np.unique(np.concatenate([where for where, _ in curves]))
    points = points[points <= end]
    return points, np.mean([np.interp(points, where, rates) for where, rates in curves], axis=0)


def spent_to(curve: Curve, level: float) -> float:
    """Return what is spent where a monotone curve first has a level, on the line between evaluations; NaN if never."""
    where, rates = curve
    above = np.flatnonzero(rates >= level)
    if not above.size:
        return math.nan
    at = int(above[0])
    if at == 0:
        return float(where[0])
    share = (level - rates[at - 1]) / (rates[at] - rates[at - 1])
    return float(where[at - 1] + share * (where[at] - where[at - 1]))


def spending_ratio(reference: Curve, arm: Curve, share: float = LEVEL) -> tuple[float, float]:
    """Return what the reference spends up to the level over what the arm spends, and the level.

    Both curves are made monotone first.
    """
    base = (reference[0], monotone(reference[1]))
    own = (arm[0], monotone(arm[1]))
    wanted = float(np.interp(share * base[0][-1], *base))
    level = min(wanted, float(own[1][-1]))
    least = _LEAST * float(base[0][-1])
    spent = float(own[0][-1]) if level < wanted else max(spent_to(own, level), least)
    return max(spent_to(base, level), least) / spent, level


def area(curve: Curve, end: float) -> float:
    """Return the mean pass rate between 0 and `end` spent: the area under the curve over its width."""
    where, rates = curve
    inside = where < end
    x = np.append(where[inside], end)
    y = np.append(rates[inside], np.interp(end, where, rates))
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def kendall_tau(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Kendall's tau-b of two sequences; NaN below two values."""
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic)


def log_slope(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """Return the slope of log measured on log predicted by least squares, with an intercept."""
    x, y = np.log(np.asarray(predicted, dtype=np.float64)), np.log(np.asarray(measured, dtype=np.float64))
    x = x - x.mean()
    return float(x @ y / (x @ x))


def two_sided(values: SeedMean) -> float:
    """Return the two-sided p-value that a mean of paired differences is 0, by Student's t; NaN below two pairs."""
    from scipy.special import stdtr

    if values.count < 2:
        return math.nan
    if values.standard_error == 0:
        return float(values.mean == 0)
    return float(2 * stdtr(values.count - 1, -abs(values.mean) / values.standard_error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979); those that are NaN stay and count for nothing."""
    known = sorted((value, place) for place, value in enumerate(p_values) if not math.isnan(value))
    corrected = [math.nan] * len(p_values)
    last = 0.0
    for rank, (value, place) in enumerate(known):
        last = max(last, min(1.0, (len(known) - rank) * value))
        corrected[place] = last
    return corrected


@dataclass(frozen=True)
class ArmMeasure:
    """What was measured of an arm, against the reference."""

    arm: str
    """The arm."""
    axis: Axis
    """What was spent."""
    ratio: float
    """The measured ratio: geometric mean over base models, of curves averaged over seeds."""
    by_base: tuple[float, ...]
    """`[base]` The ratio on each base model."""
    level: float
    """Mean level over base models."""
    log_ratio: SeedMean
    """Logarithm of the ratio of single runs, paired by base model and seed."""
    area: SeedMean
    """Mean pass rate over the whole curve, less that of the reference; paired likewise."""
    end: SeedMean
    """Pass rate at the end of the shortest run, less that of the reference; paired likewise."""
    area_ratio: float
    """Mean gain over the start under the whole curve, over that of the reference; over all pairs."""
    p_area: float
    """Two-sided p-value of `area`, as it is."""
    p_holm: float
    """The same, corrected for the number of arms."""


def after(curve: Curve, spent: float) -> Curve:
    """Return a curve of which so much was spent before its start."""
    where, rates = curve
    return (np.append(0.0, where + spent), np.append(rates[0], rates)) if spent else curve


def measure_arms(
    results: Results,
    evaluation: str,
    axis: Axis,
    share: float = LEVEL,
    before: Mapping[str, int] | None = None,
) -> list[ArmMeasure]:
    """Return the measures of all arms but the reference, which must have runs.

    Parameters
    ----------
    results
        The runs.
    evaluation, axis
        What is measured, and against what.
    share
        As in `spending_ratio`.
    before
        Responses that an arm needs before its runs, such as a probe's; as many tokens each as in the runs.
    """
    curves = {
        arm: {
            key: after(series(run, evaluation, axis), _before(run, axis, (before or {}).get(arm, 0)))
            for key, run in found.runs.items()
        }
        for arm, found in results.arms.items()
    }
    reference = curves[results.reference]
    found = []
    for arm, own in curves.items():
        if arm == results.reference:
            continue
        keys = [key for key in own if key in reference]
        bases = {base: [key for key in keys if _base_of(key) == base] for base in map(_base_of, keys)}
        ratios = [
            spending_ratio(mean_curve([reference[key] for key in some]), mean_curve([own[key] for key in some]), share)
            for some in bases.values()
        ]
        paired = [spending_ratio(reference[key], own[key], share)[0] for key in keys]
        ends = [min(float(reference[key][0][-1]), float(own[key][0][-1])) for key in keys]
        areas = np.array(
            [[area(runs[key], end) for runs in (own, reference)] for key, end in zip(keys, ends, strict=True)]
        )
        starts = np.array([reference[key][1][0] for key in keys])
        lasts = [
            float(np.interp(end, *own[key]) - np.interp(end, *reference[key]))
            for key, end in zip(keys, ends, strict=True)
        ]
        gains = areas - starts[:, None]
        difference = seed_mean(areas[:, 0] - areas[:, 1])
        found.append(
            ArmMeasure(
                arm=arm,
                axis=axis,
                ratio=float(np.exp(np.mean(np.log([ratio for ratio, _ in ratios])))),
                by_base=tuple(ratio for ratio, _ in ratios),
                level=float(np.mean([level for _, level in ratios])),
                log_ratio=seed_mean(np.log(paired)),
                area=difference,
                end=seed_mean(lasts),
                area_ratio=float(gains[:, 0].mean() / gains[:, 1].mean()),
                p_area=two_sided(difference),
                p_holm=math.nan,
            )
        )
    corrected = holm([each.p_area for each in found])
    return [_with_holm(each, value) for each, value in zip(found, corrected, strict=True)]


def _before(run: RunHistory, axis: Axis, responses: int) -> float:
    if not responses or axis == "responses":
        return float(responses)
    last = run.evals[-1]
    return float(responses * last["total_tokens"] / last["total_responses"])


def _with_holm(measure: ArmMeasure, value: float) -> ArmMeasure:
    return ArmMeasure(**{**vars(measure), "p_holm": value})


def _base_of(key: RunKey) -> str:
    return key.rpartition("/")[0] if isinstance(key, str) else ""


@dataclass(frozen=True)
class Agreement:
    """How predicted and measured ratios agree."""

    tau: float
    """Kendall's tau."""
    slope: float
    """Slope of log measured on log predicted."""
    rms: float
    """Root mean square of log measured less log predicted."""
    tau_error: float
    """Standard error of tau: jackknife over arms."""
    slope_error: float
    """Standard error of the slope, likewise."""
    count: int
    """Arms, over all tasks."""


def agreement(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> Agreement:
    """Return how ratios agree, ``[arm]`` each, at least three of them."""
    x, y = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    without = [np.arange(x.size) != place for place in range(x.size)]
    taus = np.array([kendall_tau(x[rest], y[rest]) for rest in without])
    slopes = np.array([log_slope(x[rest], y[rest]) for rest in without])

    def error(values: FloatArray) -> float:
        return float(np.sqrt((x.size - 1) * np.mean((values - values.mean()) ** 2)))

    return Agreement(
        kendall_tau(x, y),
        log_slope(x, y),
        float(np.sqrt(np.mean((np.log(y) - np.log(x)) ** 2))),
        error(taus),
        error(slopes),
        int(x.size),
    )
