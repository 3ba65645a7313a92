"""The setting in which policies are held against each other by gradient efficiency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from ada_bandit import Policy
from ada_bandit.budgets import BatchBudget
from ada_bandit.efficiency import Efficiency, gradient_efficiency, noise_pair
from ada_bandit.errors import InputError, check_number
from ada_bandit.exact import check_verifier
from ada_bandit.laws import Law
from ada_bandit.objectives import objective_slope

__all__ = ["ASSUMPTIONS", "ScoreModel", "Verifier", "has_efficiency", "parse_noise_ratio"]

ASSUMPTIONS = (
    "the two-component score model: a score is q phi + noise or -p phi + noise, with |phi|^2 the same for all p, "
    "directions alike across prompts, small updates and the best step size; a guide, not a law"
)
"""What gradient efficiency takes for granted, in words."""


class Verifier(TypedDict):
    """How often the verifier errs."""

    false_positive: float
    """Chance that an incorrect response gets a positive reward."""
    false_negative: float
    """Chance that a correct response gets a negative reward."""


@dataclass(frozen=True)
class ScoreModel:
    """What is climbed, how noisy scores are, and what an update costs."""

    objective: str = "mean"
    """``"mean"``, ``"log"`` or ``"pass@k"``."""
    noise_ratio: float | tuple[float, float] = 1.0
    """Noise energy of a score over |phi|^2; a pair for positives and negatives."""
    update_cost: float = 0.0
    """Cost of a kept response in the update, in responses."""
    false_positive: float = 0.0
    """Chance that an incorrect response gets a positive reward."""
    false_negative: float = 0.0
    """Chance that a correct response gets a negative reward."""

    def __post_init__(self) -> None:
        # Bad values are told before anything is computed.
        objective_slope(self.objective, np.array([0.5]))
        noise_pair(self.noise_ratio)
        check_number("update_cost", self.update_cost, 0)
        check_verifier(self.false_positive, self.false_negative)

    def efficiency(self, policy: Policy, law: Law) -> Efficiency:
        """Return the gradient efficiency of a policy on a law."""
        return gradient_efficiency(
            policy,
            law,
            *self.scores,
            **self.verifier,
        )

    @property
    def verifier(self) -> Verifier:
        """The verifier's error rates, as the keywords of the exact analysis."""
        return {"false_positive": self.false_positive, "false_negative": self.false_negative}

    @property
    def scores(self) -> tuple[float | tuple[float, float], str, float]:
        """Noise ratio, objective and update cost: all but the verifier."""
        return self.noise_ratio, self.objective, self.update_cost

    @property
    def label(self) -> str:
        """The setting in words."""
        pair = self.noise_ratio
        noise = f"{pair:g}" if isinstance(pair, (int, float)) else f"{pair[0]:g} (positives), {pair[1]:g} (negatives)"
        text = f"objective {self.objective}, noise ratio {noise}, update cost {self.update_cost:g}"
        if self.false_positive or self.false_negative:
            text += f", false positives {self.false_positive:g}, false negatives {self.false_negative:g}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain values."""
        return {
            "objective": self.objective,
            "noise_ratio": list(noise_pair(self.noise_ratio)),
            "update_cost": self.update_cost,
            "false_positive": self.false_positive,
            "false_negative": self.false_negative,
        }


def has_efficiency(policy: Policy) -> bool:
    """Tell whether the policy is one of tables: one with a budget shared by the batch is not."""
    return not isinstance(policy.budget, BatchBudget)


def parse_noise_ratio(text: str) -> float | tuple[float, float]:
    """Read ``NU`` or ``POS,NEG``, such as ``1`` or ``0,0.65``.

    Raises
    ------
    InputError
        If the text has another form, or a number is negative or not finite.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in {1, 2}:
        msg = f"a noise ratio is written as one number, or as two for positives and negatives (0,0.65); got {text!r}"
        raise InputError(msg)
    noise_pair(pair := numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1]))
    return pair
