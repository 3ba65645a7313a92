"""The setting in which policies are held against each other by gradient efficiency."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ada_bandit import ScoreModel, gradient_efficiency
from ada_bandit.budgets import BatchBudget
from ada_bandit.efficiency import Efficiency
from ada_bandit.errors import InputError
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy
from ada_bandit.score_model import ASSUMPTIONS, NoiseRatio
from ada_bandit.verifier import PERFECT, VerifierNoise

__all__ = ["ASSUMPTIONS", "Scoring", "has_efficiency", "parse_noise_ratio"]


@dataclass(frozen=True)
class Scoring:
    """A score model, and a verifier that may err."""

    model: ScoreModel = field(default_factory=ScoreModel)
    """What is climbed, how noisy scores are, and what an update costs."""
    verifier: VerifierNoise = PERFECT
    """How often the verifier errs."""

    def efficiency(self, policy: AnyPolicy, law: Law) -> Efficiency:
        """Return the gradient efficiency of a policy on a law."""
        return gradient_efficiency(policy, law, self.model, self.verifier)

    @property
    def label(self) -> str:
        """The setting in words."""
        if not self.verifier:
            return self.model.label
        errors = f"false positives {self.verifier.false_positive:g}, false negatives {self.verifier.false_negative:g}"
        return f"{self.model.label}, {errors}"

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain values."""
        return self.model.to_dict() | asdict(self.verifier)


def has_efficiency(policy: AnyPolicy) -> bool:
    """Tell whether the policy is one of tables: one with a budget shared by the batch is not."""
    return not isinstance(policy.budget, BatchBudget)


def parse_noise_ratio(text: str) -> NoiseRatio:
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
    return ScoreModel(numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])).noise_ratio
