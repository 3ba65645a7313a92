"""The two-component score model: what a sampled response adds to an update, beside its reward.

A correct response's score is ``q phi + noise`` and an incorrect one's ``-p phi + noise``, so that
grad p = p q phi; the noise ratio is the noise energy of a class over |phi|^2. Assumed are: |phi|^2
the same for all pass rates, updates that are small against their noise, and directions phi of
different prompts that are alike on average.

A guide, not a law: where the model was held against training runs, it ordered plain policies rightly
and over-rated its own optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ada_bandit.errors import InputError, check_number, preview
from ada_bandit.laws import Law
from ada_bandit.objectives import Objective, objective_slope

__all__ = ["ASSUMPTIONS", "NoiseRatio", "ScoreModel", "check_model", "check_prior"]

NoiseRatio: TypeAlias = float | tuple[float, float]
"""Noise energy over |phi|^2: one number, or that of positives and that of negatives."""

ASSUMPTIONS = (
    "the two-component score model: a score is q phi + noise or -p phi + noise, with |phi|^2 the same for all p, "
    "directions alike across prompts, small updates and the best step size; a guide, not a law"
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

    def __post_init__(self) -> None:
        pair = self.noise_ratio if isinstance(self.noise_ratio, (tuple, list)) else (self.noise_ratio,) * 2
        if len(pair) != 2:
            msg = f"noise_ratio must be one number, or a pair for positives and negatives; got {self.noise_ratio!r}"
            raise InputError(msg)
        pos, neg = (check_number("noise_ratio", value, 0) for value in pair)
        object.__setattr__(self, "noise_ratio", pos if pos == neg else (pos, neg))
        object.__setattr__(self, "update_cost", check_number("update_cost", self.update_cost, 0))
        # An objective that isn't known is told before anything is computed.
        objective_slope(self.objective, np.array([0.5]))

    @property
    def noise(self) -> tuple[float, float]:
        """The noise ratios of positives and of negatives."""
        return self.noise_ratio if isinstance(self.noise_ratio, tuple) else (self.noise_ratio, self.noise_ratio)

    @property
    def label(self) -> str:
        """The model in words."""
        pos, neg = self.noise
        noise = f"{pos:g}" if pos == neg else f"{pos:g} (positives), {neg:g} (negatives)"
        objective = self.objective if isinstance(self.objective, str) else "of your own"
        return f"objective {objective}, noise ratio {noise}, update cost {self.update_cost:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain values; an objective that is a function, by its name."""
        objective = self.objective if isinstance(self.objective, str) else getattr(self.objective, "__name__", "own")
        return {"objective": objective, "noise_ratio": list(self.noise), "update_cost": self.update_cost}


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
