"""What is known of each prompt of a batch from earlier steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError
from ada_bandit.laws import Law

__all__ = ["History"]


@dataclass(frozen=True, eq=False)
class History:
    """What is known of each prompt of a batch from earlier steps; every array is `[prompt]`."""

    pos: FloatArray
    """Correct responses, discounted by age."""
    neg: FloatArray
    """Incorrect responses, discounted by age."""
    visits: IntArray
    """Steps in which the prompt was sampled."""
    solved_streak: IntArray
    """Latest visits in a row in which every response was correct."""
    failed_streak: IntArray
    """Latest visits in a row in which no response was correct."""

    @classmethod
    def empty(cls, prompts: int) -> History:
        """Return the history of prompts that were never seen."""
        counts, visits = np.zeros((2, prompts)), np.zeros((3, prompts), dtype=np.int64)
        return cls(pos=counts[0], neg=counts[1], visits=visits[0], solved_streak=visits[1], failed_streak=visits[2])

    def predict(self, prior: Law, pos: npt.ArrayLike = 0, neg: npt.ArrayLike = 0) -> FloatArray:
        """Return the posterior mean of each prompt's pass rate, ``[prompt]``.

        Parameters
        ----------
        prior
            The law of p over prompts; what an unseen prompt is taken for.
        pos, neg
            ``[prompt]`` responses of the present step, counted in full.

        Raises
        ------
        InputError
            If the prior rules out what was seen of a prompt.
        """
        correct, incorrect = self.pos + np.asarray(pos), self.neg + np.asarray(neg)
        known = prior.log_evidence(correct, incorrect)
        if not np.isfinite(known).all():
            at = int(np.nonzero(~np.isfinite(known))[0][0])
            msg = (
                f"the prior rules out {correct[at]:g} correct and {incorrect[at]:g} incorrect responses, which "
                f"prompt {at} has; widen its support"
            )
            raise InputError(msg)
        return np.clip(np.exp(prior.log_evidence(correct + 1, incorrect) - known), 0.0, 1.0)

    def to_dict(self) -> dict[str, list[float] | list[int]]:
        """Return the history as plain values by field, read back by `from_dict`."""
        return {key.name: getattr(self, key.name).tolist() for key in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Build a history from the plain values of `to_dict`; counts are float64, visits int64."""
        return cls(
            pos=np.array(data["pos"], dtype=np.float64),
            neg=np.array(data["neg"], dtype=np.float64),
            visits=np.array(data["visits"], dtype=np.int64),
            solved_streak=np.array(data["solved_streak"], dtype=np.int64),
            failed_streak=np.array(data["failed_streak"], dtype=np.int64),
        )
