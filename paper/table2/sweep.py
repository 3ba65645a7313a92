"""Responses a step over training, and the generation times that the published step times imply. Exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from paper.published import column, rows, settings

__all__ = ["RULES", "StepCosts", "Times", "solve_times", "sweep"]

RULES = ("pos", "balance")
"""The adaptive rules, in the order of every array."""
_DRAWS = 4000


@dataclass(frozen=True)
class Times:
    """Generation times of one model: a step takes ``fixed + rounds * wait + responses * each`` seconds."""

    each: float
    """Seconds a response, at the throughput of the machine."""
    wait: float
    """Seconds a round, whatever its size: the longest response."""
    fixed: float
    """Seconds a step that do not depend on sampling."""
    shares: FloatArray
    """`[rule]` Generation's share of GRPO's step, from each rule alone and without waits."""
    waiting_shares: FloatArray
    """`[rule]` Likewise if rounds are all that generation takes time for."""


@dataclass(frozen=True, eq=False)
class StepCosts:
    """Everything that was computed."""

    extra: FloatArray
    """`[rule]` Extra responses a step, the mean over training."""
    responses: FloatArray
    """`[rule]` Responses a step relative to GRPO's."""
    plain: int
    """Responses a step of GRPO."""
    seconds: dict[str, FloatArray]
    """`[GRPO, pos, balance]` Published seconds a step by model."""
    times: dict[str, Times]
    """Times at the central reading, by model."""
    bands: dict[str, dict[str, FloatArray]]
    """`[low, high]` 95 % band of each time under the reading error, by model."""


def mean_extra(name: str) -> float:
    """Return the mean over the published part of training of a column of Figure 5, by the trapezoid rule.

    Before the first published point the series counts as flat.
    """
    steps, values = column("figure5", "step"), column("figure5", name)
    seen = np.isfinite(values)
    steps, values = np.append(0.0, steps[seen]), np.append(values[seen][0], values[seen])
    return float(np.trapezoid(values, steps) / steps[-1])


def solve_times(seconds: FloatArray, responses: FloatArray, rounds: FloatArray) -> Times:
    """Solve three step times for three unknowns.

    Parameters
    ----------
    seconds, responses, rounds
        ``[GRPO, pos, balance]`` seconds, responses and rounds a step.
    """
    each, wait, fixed = np.linalg.solve(np.stack([responses, rounds, np.ones(3)], axis=1), seconds)
    longer = seconds[1:] / seconds[0] - 1
    shares, waiting = (longer / (spent[1:] / spent[0] - 1) for spent in (responses, rounds))
    return Times(float(each), float(wait), float(fixed), shares, waiting)


def sweep() -> StepCosts:
    """Return the times of both models, with the reading error of Figure 5 propagated."""
    setup = settings()
    prompts, group, size = setup["prompts"], setup["group_size"], setup["round_size"]
    plain = prompts * group
    extra = np.array([mean_extra(f"extra_samples_{rule}") for rule in ("pos", "balance")])
    # Some prompt of 512 is always unresolved, so that a step of either rule has all its rounds.
    rounds = np.array([1.0, setup["rounds"], setup["rounds"]])

    def responses(extra: FloatArray) -> FloatArray:
        return np.append(plain, prompts * size + extra)

    models: dict[str, list[float]] = {}
    for row in rows("table2"):
        models.setdefault(row["model"], []).append(float(row["step_seconds"]))
    seconds = {model: np.array(values) for model, values in models.items()}
    times = {model: solve_times(values, responses(extra), rounds) for model, values in seconds.items()}
    generator = np.random.default_rng(0)
    error = 1 + setup["reading_error_figure5"] * generator.uniform(-1, 1, (_DRAWS, 2))
    # Seconds are published as whole numbers.
    rounding = generator.uniform(-0.5, 0.5, (_DRAWS, 3))
    bands = {}
    for model, values in seconds.items():
        drawn = [
            solve_times(values + off, responses(extra * factor), rounds)
            for factor, off in zip(error, rounding, strict=True)
        ]
        bands[model] = {
            name: np.percentile([getattr(one, name) for one in drawn], [2.5, 97.5])
            for name in ("each", "wait", "fixed")
        }
    return StepCosts(extra, responses(extra)[1:] / plain, plain, seconds, times, bands)
