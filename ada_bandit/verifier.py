"""Verifier noise: how often rewards and the truth part.

Let an incorrect response get a positive reward with chance rho0 and a correct one a negative
reward with chance rho1. Rewards are then positive at the rate p' = rho0 + (1 - rho0 - rho1) p, and
a response with a positive reward is correct with chance p (1 - rho1) / p', whatever else was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_number, preview

__all__ = ["PERFECT", "VerifierNoise", "check_verifier"]


@dataclass(frozen=True)
class VerifierNoise:
    """A verifier's error rates, in [0, 1) with a sum below 1; false for a verifier without errors.

    Examples
    --------
    >>> VerifierNoise(false_positive=0.1).reward_rates([0.0, 0.5, 1.0])
    array([0.1 , 0.55, 1.  ])

    Raises
    ------
    InputError
        If a rate can't be used, or both together leave nothing to learn from.
    """

    false_positive: float = 0.0
    """rho0, chance that an incorrect response gets a positive reward."""
    false_negative: float = 0.0
    """rho1, chance that a correct response gets a negative reward."""

    def __post_init__(self) -> None:
        for key in ("false_positive", "false_negative"):
            object.__setattr__(self, key, check_number(key, getattr(self, key), 0))
        if self.false_positive + self.false_negative >= 1:
            msg = (
                "false_positive + false_negative must be less than 1, or rewards don't tell correct from incorrect; "
                f"got {self.false_positive!r} and {self.false_negative!r}. For a verifier that is mostly wrong, "
                "swap its rewards"
            )
            raise InputError(msg)

    def __bool__(self) -> bool:
        return bool(self.false_positive or self.false_negative)

    @property
    def slope(self) -> float:
        """1 - rho0 - rho1, how much p' rises with p."""
        return 1 - self.false_positive - self.false_negative

    def reward_rates(self, pass_rates: FloatArray) -> FloatArray:
        """Return p' = rho0 + (1 - rho0 - rho1) p, the rate of positive rewards, shaped like `pass_rates`."""
        return np.asarray(self.false_positive + self.slope * np.asarray(pass_rates))

    def truth(self, pass_rates: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(correct | positive reward) and P(correct | negative reward), each shaped like `pass_rates`.

        A reward that never occurs counts as right.
        """
        positive = self.reward_rates(pass_rates)
        hit, miss = (1 - self.false_negative) * pass_rates, self.false_negative * pass_rates
        of_pos = np.divide(hit, positive, out=np.ones_like(positive), where=positive > 0)
        of_neg = np.divide(miss, 1 - positive, out=np.zeros_like(positive), where=positive < 1)
        return np.minimum(of_pos, 1), np.minimum(of_neg, 1)


PERFECT = VerifierNoise()
"""A verifier that never errs."""


def check_verifier(verifier: VerifierNoise) -> VerifierNoise:
    """Return `verifier`, or raise where it is something else."""
    if not isinstance(verifier, VerifierNoise):
        msg = f"verifier must be a VerifierNoise, such as VerifierNoise(false_positive=0.05); got {preview(verifier)}"
        raise InputError(msg)
    return verifier
