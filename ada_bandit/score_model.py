"""The two-component score model: what a sampled response adds to an update, beside its reward.

A correct response's score is ``q phi + noise`` and an incorrect one's ``-p phi + noise``, so that
grad p = p q phi; the noise ratio is the noise energy of a class over |phi|^2. Assumed are: |phi|^2
the same for all pass rates, and a step size that is the best one for the policy in question.

*Transfer* decides what counts as progress. Let the directions phi of two prompts have the inner product
c |phi|^2, where c is the *overlap*; N prompts make up what is to be improved, and B are in a step. With u
the weight of phi in a prompt's update, the progress of E f(p) and the size of the step's mean update are

    c E[u] E[p q f'] + (1 - c) / N E[u p q f'],      E |update|^2 = V / B + c (1 - 1 / B) E[u]^2,

in units of |phi|^2 and with V the mean of a prompt's own |update|^2. With the *transfer*
t = c / (c + (1 - c) / N), progress is proportional to E[u kappa],

    kappa(p) = (1 - t) p q f'(p) + t E[p' q' f'(p')].

At t = 1 (fresh prompts, or very many) a prompt's update helps all prompts alike: f is a constant
factor, and every objective has the same best policy. At t = 0 (a small pool that comes back, whose
prompts have nothing in common) a prompt helps itself alone, and f decides.

Where the overlap is not the same for all pairs, a *likeness* k(p, p') scales it: then
t E[k(p, p') p' q' f'(p')] is what others gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count, check_number, preview
from ada_bandit.laws import Law
from ada_bandit.objectives import SMOOTH, Objective, objective_slope, quadrature_degree

__all__ = ["ASSUMPTIONS", "Likeness", "NoiseRatio", "ScoreModel", "check_model", "check_prior"]

NoiseRatio: TypeAlias = float | tuple[float, float]
"""Noise energy over |phi|^2: one number, or that of positives and that of negatives."""

Likeness: TypeAlias = Callable[[FloatArray, FloatArray], npt.ArrayLike]
"""Vectorised k(p, p'): how alike the directions of prompts at two pass rates are, over the overlap; symmetric."""

ASSUMPTIONS = (
    "the two-component score model: a score is q phi + noise or -p phi + noise, with |phi|^2 the same for all p, "
    "and the best step size for each policy; a guide, not a law"
)
"""What gradient efficiency takes for granted, in words."""


@dataclass(frozen=True)
class ScoreModel:
    """What is climbed, how noisy scores are, and what an update costs.

    Examples
    --------
    >>> ScoreModel(noise_ratio=(0, 0.65), objective="log").noise
    (0.0, 0.65)

    Raises
    ------
    InputError
        If a part can't be used.
    """

    noise_ratio: NoiseRatio = 1.0
    """Noise energy of a response's score over |phi|^2, at least 0; a pair for positives and negatives."""
    objective: Objective = "mean"
    """``"mean"``, ``"log"``, ``"pass@k"``, or f' as a vectorised function."""
    update_cost: float = 0.0
    """Cost of a kept response in the update, in responses drawn; at least 0."""
    transfer: float = 1.0
    """t in [0, 1]: 1 where what is learned on a prompt helps all prompts alike, as with fresh prompts; 0 where it
    helps that prompt alone, as in a small pool without overlap that comes back."""
    overlap: float = 0.0
    """c in [0, 1]: inner product of two prompts' directions over |phi|^2. It makes the updates of a batch add up to
    more than their noise, which `batch` prompts share."""
    batch: int = 1
    """B, prompts a step, at least 1; of no account while `overlap` is 0."""
    likeness: Likeness | None = None
    """k(p, p'), where the overlap depends on the two prompts' pass rates; the same for all pairs unless given."""

    def __post_init__(self) -> None:
        pair = self.noise_ratio if isinstance(self.noise_ratio, (tuple, list)) else (self.noise_ratio,) * 2
        if len(pair) != 2:
            msg = f"noise_ratio must be one number, or a pair for positives and negatives; got {self.noise_ratio!r}"
            raise InputError(msg)
        pos, neg = (check_number("noise_ratio", value, 0) for value in pair)
        object.__setattr__(self, "noise_ratio", pos if pos == neg else (pos, neg))
        object.__setattr__(self, "update_cost", check_number("update_cost", self.update_cost, 0))
        object.__setattr__(self, "transfer", check_number("transfer", self.transfer, 0, 1))
        object.__setattr__(self, "overlap", check_number("overlap", self.overlap, 0, 1))
        object.__setattr__(self, "batch", check_count("batch", self.batch))
        if self.likeness is not None and not callable(self.likeness):
            msg = (
                "likeness must be a function of two arrays of pass rates, such as NearInDifficulty(0.5); got "
                f"{preview(self.likeness)}"
            )
            raise InputError(msg)
        # An objective that isn't known is told before anything is computed.
        objective_slope(self.objective, np.array([0.5]))

    @property
    def noise(self) -> tuple[float, float]:
        """The noise ratios of positives and of negatives."""
        return self.noise_ratio if isinstance(self.noise_ratio, tuple) else (self.noise_ratio, self.noise_ratio)

    @property
    def batch_weight(self) -> float:
        """C (B - 1), the weight of the squared mean update beside V."""
        return self.overlap * (self.batch - 1)

    def quadrature_degree(self, samples: int) -> int:
        """Return the degree of a quadrature that averages what this model asks of up to `samples` responses."""
        return quadrature_degree(samples + (0 if self.likeness is None else SMOOTH), self.objective)

    def pull(self, pass_rates: FloatArray, population: Law) -> FloatArray:
        """Return kappa(p), the progress that a unit of update at p buys, shaped like `pass_rates`.

        Parameters
        ----------
        pass_rates
            Pass rates in [0, 1].
        population
            The law of p over the prompts whose objective is climbed.

        Raises
        ------
        InputError
            If the likeness gives something other than finite numbers.
        """
        own = objective_slope(self.objective, pass_rates)
        if self.transfer == 0:
            return own
        rates, weights = population.quadrature(self.quadrature_degree(0))
        gains = weights * objective_slope(self.objective, rates)
        others = gains.sum() if self.likeness is None else self.alike(pass_rates, rates) @ gains
        return np.asarray((1 - self.transfer) * own + self.transfer * others)

    def alike(self, pass_rates: FloatArray, others: FloatArray) -> FloatArray:
        """Return k(p, p') for every pair, ``[pass_rate, other]``; 1 everywhere without a likeness.

        Raises
        ------
        InputError
            If the likeness gives something other than finite numbers of that shape.
        """
        shape = (pass_rates.size, others.size)
        if self.likeness is None:
            return np.ones(shape)
        values = np.asarray(self.likeness(pass_rates[:, None], others[None, :]), dtype=np.float64)
        if values.shape not in {shape, ()} or not np.isfinite(values).all():
            msg = f"the likeness must give a finite number for every pair of pass rates; got {preview(values)}"
            raise InputError(msg)
        return np.broadcast_to(values, shape)

    @property
    def regime(self) -> str:
        """What was assumed of transfer, in words."""
        kind = {1.0: " (fresh prompts)", 0.0: " (each prompt helps itself alone)"}.get(self.transfer, "")
        batch = f", overlap {self.overlap:g} in batches of {self.batch}" if self.overlap else ""
        return f"transfer {self.transfer:g}{kind}{batch}" + (", with a likeness" if self.likeness else "")

    @property
    def label(self) -> str:
        """The model in words."""
        pos, neg = self.noise
        noise = f"{pos:g}" if pos == neg else f"{pos:g} (positives), {neg:g} (negatives)"
        objective = self.objective if isinstance(self.objective, str) else "of your own"
        return f"objective {objective}, noise ratio {noise}, update cost {self.update_cost:g}, {self.regime}"

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain values; an objective or a likeness that is a function, by its name."""
        objective = self.objective if isinstance(self.objective, str) else getattr(self.objective, "__name__", "own")
        values: dict[str, Any] = {
            "objective": objective,
            "noise_ratio": list(self.noise),
            "update_cost": self.update_cost,
            "transfer": self.transfer,
        }
        if self.overlap:
            values |= {"overlap": self.overlap, "batch": self.batch}
        if self.likeness is not None:
            values["likeness"] = getattr(self.likeness, "__name__", repr(self.likeness))
        return values


def check_model(model: ScoreModel | None) -> ScoreModel:
    """Return `model`, the default one for None, or raise where it is something else."""
    if model is None:
        return ScoreModel()
    if not isinstance(model, ScoreModel):
        msg = f"model must be a ScoreModel, such as ScoreModel(noise_ratio=1.0); got {preview(model)}"
        raise InputError(msg)
    return model


def check_prior(prior: Law) -> Law:
    """Return `prior`, or raise where it is no law."""
    if not isinstance(prior, Law):
        msg = f"prior must be a law of the pass rate, such as Beta(1, 1); got {prior!r}"
        raise InputError(msg)
    return prior
