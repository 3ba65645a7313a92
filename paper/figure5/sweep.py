"""The published series under several readings of their labels, and along paths of pass-rate laws. Exact.

All series are means over prompts of functions of p, hence linear in the law. Whether *any* law
has the published values of a step is a linear programme; so are the bounds on the mean pass
rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ada_bandit import Balance, Policy, Rounds, analyze
from ada_bandit._types import BoolArray, FloatArray
from ada_bandit.lattice import binomial_rows
from ada_bandit.laws import Law
from paper.laws import balance, base_law, between, pos, rl_law, spread, training_law
from paper.published import column, settings

__all__ = ["BALANCE", "LABELS", "Dynamics", "Fit", "Published", "Reading", "feasible", "series_of", "sweep"]

LABELS = {
    "extra_pos": "extra responses, pos",
    "extra_balance": "extra responses, balance",
    "short_of_positives": "short of positives",
    "short_of_negatives": "short of negatives",
    "positive_quota": "positive quota met early",
    "both_quotas": "both quotas met early",
}
"""The series, in words."""
BALANCE = ("extra_balance", "short_of_positives", "short_of_negatives", "positive_quota", "both_quotas")
"""The series of the balance run."""
_COLUMNS = {
    "extra_pos": "extra_samples_pos",
    "extra_balance": "extra_samples_balance",
    "short_of_positives": "short_of_positives",
    "short_of_negatives": "short_of_negatives",
    "positive_quota": "two_rounds_positive_quota",
    "both_quotas": "two_rounds_both_quotas",
}

Published = Mapping[str, FloatArray]
"""The published series, ``[step]`` each, NaN where a plot has no value."""


@dataclass(frozen=True)
class Reading:
    """What the labels of the figure mean."""

    beyond: int
    """Responses a prompt beyond which samples count as extra."""
    early: int
    """Rounds within which quotas count as met early."""

    @property
    def label(self) -> str:
        """The reading in words."""
        rounds = "the first round" if self.early == 1 else f"{self.early} rounds"
        return f"extra: beyond {self.beyond} a prompt; quotas met within {rounds}"


@dataclass(frozen=True, eq=False)
class Fit:
    """One path, fitted step by step."""

    parameters: FloatArray
    """`[step, parameter]` Mixture weight, or shift and scale of the logits."""
    predicted: Published
    """The series along it."""
    mean: FloatArray
    """`[step]` Mean pass rate."""


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Everything that was computed."""

    steps: FloatArray
    """`[step]` Training steps of the published points."""
    published: Published
    """The published series."""
    misfit: dict[Reading, FloatArray]
    """`[step]` The smallest possible largest relative error of the balance run's series, over all laws."""
    misfit_pos: dict[Reading, FloatArray]
    """`[step]` Likewise of the extra responses of pos."""
    reading: Reading
    """The reading that the rest goes by."""
    mean_bounds: FloatArray
    """`[step, 2]` Bounds on the mean pass rate under that reading, within reading errors."""
    start: dict[str, dict[str, float]]
    """The series under candidate laws of step 0, by the law's name."""
    line: dict[str, FloatArray]
    """The series along the mixture of the filtered laws, ``[weight]`` each; `weight` itself."""
    fits: dict[str, Fit]
    """By the path's name."""

    @cached_property
    def fitted(self) -> BoolArray:
        """`[step]` Whether the whole balance run was published at a step."""
        return np.asarray(np.all([np.isfinite(self.published[name]) for name in BALANCE], axis=0))


def series_of(pass_rates: FloatArray, reading: Reading, prompts: int) -> dict[str, FloatArray]:
    """Return the series of a batch of `prompts` prompts of equal pass rate, ``[pass_rate]`` each."""
    setup = settings()
    size, rounds, group = setup["round_size"], setup["rounds"], setup["group_size"]
    on_balance, on_pos = analyze(balance(), pass_rates), analyze(pos(), pass_rates)
    early = analyze(Policy(Balance(group), Rounds(size, reading.early), group), pass_rates)
    # A prompt whose quotas are met sooner has its positives as well.
    row = list(binomial_rows(pass_rates, size * min(reading.early, rounds)))[-1]
    return {
        "extra_pos": prompts * (on_pos.expected_samples - reading.beyond),
        "extra_balance": prompts * (on_balance.expected_samples - reading.beyond),
        "short_of_positives": prompts * on_balance.short_of_positives,
        "short_of_negatives": prompts * on_balance.short_of_negatives,
        "positive_quota": prompts * row[group // 2 :].sum(axis=0),
        "both_quotas": prompts * early.resolved_probability,
    }


def _of_law(law: Law, reading: Reading, prompts: int) -> dict[str, float]:
    rates, weights = law.quadrature(64)
    return {name: float(weights @ values) for name, values in series_of(rates, reading, prompts).items()}


def _atoms() -> FloatArray:
    inner = 1 / (1 + np.exp(-np.linspace(-9, 9, 181)))
    return np.concatenate([[0.0], inner, [1.0]])


def feasible(moments: Sequence[FloatArray], values: Sequence[float]) -> float:
    """Return the smallest t such that some law has every moment within a share t of its value.

    Parameters
    ----------
    moments
        ``[atom]`` functions of p, one a value.
    values
        Published means, above 0.
    """
    from scipy.optimize import linprog

    size = moments[0].size
    rows = [np.append(sign * moment, -value) for moment, value in zip(moments, values, strict=True) for sign in (1, -1)]
    ends = [sign * value for value in values for sign in (1, -1)]
    cost, mass = np.append(np.zeros(size), 1.0), np.append(np.ones(size), 0.0)
    solution = linprog(cost, A_ub=np.array(rows), b_ub=ends, A_eq=mass[None], b_eq=[1.0], bounds=(0, None))
    return float(solution.x[-1])


def _mean_bounds(
    rates: FloatArray, moments: Sequence[FloatArray], values: Sequence[float], error: float
) -> tuple[float, float]:
    """Return the least and largest mean pass rate of laws whose moments are within a share `error` of the values."""
    from scipy.optimize import linprog

    rows = [sign * moment for moment in moments for sign in (1, -1)]
    ends = [sign * value + error * value for value in values for sign in (1, -1)]
    both = []
    for sign in (1, -1):
        mass = np.ones((1, rates.size))
        solution = linprog(sign * rates, A_ub=np.array(rows), b_ub=ends, A_eq=mass, b_eq=[1.0], bounds=(0, None))
        both.append(sign * solution.fun if solution.status == 0 else np.nan)
    return both[0], both[1]


def _values(published: Published, step: int, names: Sequence[str]) -> dict[str, float]:
    return {name: float(published[name][step]) for name in names if np.isfinite(published[name][step])}


def sweep() -> Dynamics:
    """Return the feasibility of every reading, and the fits of every path under the reading that is feasible."""
    setup = settings()
    prompts, group, size = setup["prompts"], setup["group_size"], setup["round_size"]
    steps = column("figure5", "step")
    published = {name: column("figure5", key) for name, key in _COLUMNS.items()}
    rates = _atoms()
    misfit: dict[Reading, FloatArray] = {}
    misfit_pos: dict[Reading, FloatArray] = {}
    for reading in (Reading(beyond, early) for beyond in (group, size) for early in (2, 1)):
        table = series_of(rates, reading, prompts)
        for target, names in ((misfit, BALANCE), (misfit_pos, ("extra_pos",))):
            errors = np.full(steps.size, np.nan)
            for step in range(steps.size):
                values = _values(published, step, names)
                if values:
                    errors[step] = feasible([table[name] for name in values], list(values.values()))
            target[reading] = errors
    reading = Reading(size, 1)
    table = series_of(rates, reading, prompts)
    bounds = np.full((steps.size, 2), np.nan)
    for step in range(steps.size):
        values = _values(published, step, BALANCE)
        if len(values) == len(BALANCE):
            moments = [table[name] for name in values]
            bounds[step] = _mean_bounds(rates, moments, list(values.values()), setup["reading_error_figure5"])
    moderate = between(base_law(), 1, setup["moderate_most"], setup["filter_total"])
    filtered = rl_law().at_least(setup["filter_correct"], setup["filter_total"])
    laws = {
        "base, at least 1 of 16": training_law(),
        "base, 1-5 of 16": moderate,
        "base, 1-2 of 16": between(base_law(), 1, setup["hard_most"], setup["filter_total"]),
        "base, unfiltered": base_law(),
        "RL, at least 1 of 16": filtered,
        "RL, unfiltered": rl_law(),
    }
    start = {name: _of_law(law, reading, prompts) for name, law in laws.items()}
    fits = {
        "mixture": _mixture(published, laws["base, at least 1 of 16"], filtered, reading, prompts),
        "mixture, unfiltered": _mixture(published, base_law(), rl_law(), reading, prompts),
        "spread": _spread(published, training_law(), reading, prompts),
        "spread, 1-5 of 16": _spread(published, moderate, reading, prompts),
    }
    weight = np.linspace(0, 1, 51)
    ends = start["base, at least 1 of 16"], start["RL, at least 1 of 16"]
    line = {name: (1 - weight) * ends[0][name] + weight * ends[1][name] for name in LABELS} | {"weight": weight}
    return Dynamics(steps, published, misfit, misfit_pos, reading, bounds, start, line, fits)


def _mixture(published: Published, low: Law, high: Law, reading: Reading, prompts: int) -> Fit:
    """Match the mixture weight to the extra responses of balance at each step, as closely as weights in [0, 1] can."""
    a, b = (_of_law(law, reading, prompts) for law in (low, high))
    aim = published["extra_balance"]
    weight = np.clip((aim - a["extra_balance"]) / (b["extra_balance"] - a["extra_balance"]), 0, 1)
    predicted = {name: (1 - weight) * a[name] + weight * b[name] for name in LABELS}
    return Fit(weight[:, None], predicted, (1 - weight) * low.mean + weight * high.mean)


_GUESSES = ((0.5, 1.0), (1.0, 1.5), (2.0, 2.0), (0.0, 2.5))


def _spread(published: Published, law: Law, reading: Reading, prompts: int) -> Fit:
    """Fit shift and scale of the logits to the balance run at each step, by least squares in relative errors."""
    from scipy.optimize import least_squares
    from scipy.special import expit, logit

    size = published["extra_balance"].size
    parameters = np.full((size, 2), np.nan)
    predicted = {name: np.full(size, np.nan) for name in LABELS}
    mean = np.full(size, np.nan)
    # The search asks for the series at thousands of laws: it reads them off a fine grid of logits.
    logits = np.linspace(-30, 30, 6001)
    table = series_of(expit(logits), reading, prompts)
    rates, weights = law.quadrature(1)
    start = logit(np.clip(rates, 1e-12, 1 - 1e-12))
    for step in range(size):
        values = _values(published, step, BALANCE)
        if len(values) < len(BALANCE):
            continue

        def errors(point: FloatArray, values: dict[str, float] = values) -> FloatArray:
            moved = point[0] + point[1] * start
            means = (weights @ np.interp(moved, logits, table[name]) for name in values)
            return np.array([mean / value - 1 for mean, value in zip(means, values.values(), strict=True)])

        # The surface has several minima: few prompts short of a class can mean many laws.
        point = min((least_squares(errors, guess) for guess in _GUESSES), key=lambda one: float(one.cost)).x
        parameters[step] = point
        moved = spread(law, *point)
        mean[step] = moved.mean
        for name, value in _of_law(moved, reading, prompts).items():
            predicted[name][step] = value
    return Fit(parameters, predicted, mean)
