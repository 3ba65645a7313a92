"""The value of adaptivity: the best adaptive policy over the best fixed number, each with its best advantages.

`docs/theory.md` has the statements and the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count
from ada_bandit.lattice import binomial_rows
from ada_bandit.laws import Grid, Law
from ada_bandit.optimal import Problem
from ada_bandit.score_model import ScoreModel

__all__ = ["WorstLaw", "adaptive_gain", "rare_gain", "search_laws", "worst_rate"]

_LOGIT = 9.0
"""Rates are searched between 1 / (1 + e^9) and its complement."""
_LOG_WEIGHT = 18.0
"""Weights are searched down to e^-18 of the largest one."""
_STEPS = 8
"""Points a unit of the logit where the worst rate is looked for first."""


def adaptive_gain(law: Law, model: ScoreModel, most: int) -> float:
    """Return the efficiency of the best policy of at most `most` responses, over that of the best fixed number.

    Responses are drawn one at a time; the first one is drawn in any case.

    Raises
    ------
    InputError
        If no policy makes any progress under this law.
    """
    fixed = max(Problem(law, model, samples=n, max_samples=n).best().value for n in range(1, most + 1))
    if fixed == 0:
        msg = f"no policy makes progress under {law!r}; give a law with pass rates between 0 and 1"
        raise InputError(msg)
    return Problem(law, model, max_samples=most).best().value / fixed


def rare_gain(pass_rate: float, noise: tuple[float, float], most: int) -> float:
    """Return the limit of `adaptive_gain` as all but a vanishing share of the prompts have p = 0, the rest `pass_rate`.

    It is the gain of the policy that draws one response and goes on to `most` where it is correct. The
    transfer and the objective are of no account.

    Parameters
    ----------
    pass_rate
        p of the rare prompts, inside (0, 1).
    noise
        Noise ratios of positives and negatives, above 0.
    most
        K, the most responses of a prompt.
    """
    rows = list(binomial_rows(np.array([pass_rate]), check_count("most", most)))

    def learned(total: int) -> FloatArray:
        pos = np.arange(total + 1)
        signal = pos * (1 - pass_rate) ** 2 / noise[0] + (total - pos) * pass_rate**2 / noise[1]
        return np.asarray(signal / (1 + signal))

    fixed = max(float(rows[n][1:, 0] @ learned(n)[1:]) / n for n in range(1, most + 1))
    return pass_rate * float(rows[most - 1][:, 0] @ learned(most)[1:]) / fixed


def worst_rate(noise: tuple[float, float], most: int) -> tuple[float, float]:
    """Return the pass rate of the largest `rare_gain`, and the gain; rates up to 1 - 1e-4 are looked at."""
    from scipy.optimize import minimize_scalar

    def loss(logit: float) -> float:
        return -rare_gain(_rate(logit), noise, most)

    logits = np.linspace(-_LOGIT, _LOGIT, int(2 * _LOGIT * _STEPS) + 1)
    at = int(np.argmin([loss(logit) for logit in logits.tolist()]))
    ends = float(logits[max(at - 1, 0)]), float(logits[min(at + 1, logits.size - 1)])
    found = minimize_scalar(loss, bounds=ends, method="bounded")
    return _rate(float(found.x)), -float(found.fun)


@dataclass(frozen=True)
class WorstLaw:
    """The law of the largest gain that a search has found."""

    most: int
    """K, the most responses of a prompt."""
    noise_ratio: float
    """Noise ratio of both classes."""
    transfer: float
    gain: float
    """The best adaptive policy over the best fixed number."""
    law: Grid
    """The law."""


def search_laws(model: ScoreModel, most: int, *, atoms: int = 3, starts: int = 3, seed: int = 0) -> WorstLaw:
    """Search the laws of a few pass rates for the largest gain of adaptivity, by Nelder and Mead's method.

    A search finds a lower bound of the largest gain; `most` is an upper one.

    Parameters
    ----------
    model
        The score model; one noise ratio for both classes.
    most
        K, the most responses of a prompt.
    atoms, starts
        Pass rates of a law, and searches that are begun; the first one at the worst law of two rates.
    seed
        Seed of the starting points.
    """
    from scipy.optimize import minimize

    random = np.random.default_rng(seed)
    best: tuple[float, Grid] | None = None
    for point in _starting_points(model, most, atoms, starts, random):
        found = minimize(
            lambda x: -adaptive_gain(_law(x), model, most),
            point,
            method="Nelder-Mead",
            options={"maxfev": 120 * atoms, "fatol": 1e-7},
        )
        if best is None or -found.fun > best[0]:
            best = float(-found.fun), _law(found.x)
    if best is None:
        msg = f"starts must be at least 1; got {starts!r}"
        raise InputError(msg)
    return WorstLaw(most, model.noise[0], model.transfer, *best)


def _starting_points(
    model: ScoreModel, most: int, atoms: int, starts: int, random: np.random.Generator
) -> Iterator[FloatArray]:
    """Give a logit a pass rate, then a logarithm of a weight each."""
    worst, _ = worst_rate(model.noise, most)
    first = np.concatenate([np.linspace(-_LOGIT, 0, atoms), np.linspace(0, -_LOG_WEIGHT / 2, atoms)])
    first[atoms - 1] = np.log(worst / (1 - worst))
    for start in range(starts):
        yield (
            first if not start else np.concatenate([random.normal(0, 3, atoms), random.uniform(-_LOG_WEIGHT, 0, atoms)])
        )


def _law(point: FloatArray) -> Grid:
    half = point.size // 2
    logs = point[half:] - point[half:].max()
    return Grid(_rates(point[:half]), np.exp(np.maximum(logs, -_LOG_WEIGHT)))


def _rates(logits: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -_LOGIT, _LOGIT))))


def _rate(logit: float) -> float:
    return float(_rates(np.array([logit]))[0])
