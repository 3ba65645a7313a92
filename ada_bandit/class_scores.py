"""Sums of the scores of correct and of incorrect responses, of which measured efficiency is made."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError, preview

__all__ = ["ClassScores"]


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Sums of scores of correct and of incorrect responses to many prompts; all arrays float64.

    Raises
    ------
    InputError
        If shapes or values can't be those of such sums.
    """

    pos: FloatArray
    """`[prompt]` Correct responses."""
    neg: FloatArray
    """`[prompt]` Incorrect responses."""
    pos_energy: FloatArray
    """`[prompt]` Sum of |s|^2 over correct responses."""
    neg_energy: FloatArray
    """`[prompt]` Sum of |s|^2 over incorrect responses."""
    gram_pos: FloatArray
    """`[prompt, prompt]` Inner products of the sums over correct responses."""
    gram_cross: FloatArray
    """`[prompt, other]` Inner products of a prompt's sum over correct responses with another's over incorrect ones."""
    gram_neg: FloatArray
    """`[prompt, prompt]` Inner products of the sums over incorrect responses."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = np.array(getattr(self, each.name), dtype=np.float64)
            size = self.pos.shape[0] if np.ndim(self.pos) else 0
            shape = (size, size) if each.name.startswith("gram") else (size,)
            if value.shape != shape or not np.isfinite(value).all():
                msg = (
                    f"{each.name} must hold finite numbers in the shape {shape}, after the counts of correct "
                    f"responses; got {preview(value)} of shape {value.shape}"
                )
                raise InputError(msg)
            value.setflags(write=False)
            object.__setattr__(self, each.name, value)
        counts = np.stack([self.pos, self.neg])
        if (counts < 0).any() or (counts % 1 != 0).any():
            msg = f"pos and neg must be whole numbers of at least 0; got {preview(counts)}"
            raise InputError(msg)

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return int(self.pos.size)

    @property
    def responses(self) -> FloatArray:
        """Responses with a reward, ``[prompt]``."""
        return self.pos + self.neg

    def of(self, chosen: BoolArray | IntArray) -> ClassScores:
        """Return the sums of some of the prompts."""
        return ClassScores(
            **{
                each.name: value[np.ix_(chosen, chosen)] if value.ndim == 2 else value[chosen]
                for each in fields(self)
                for value in (getattr(self, each.name),)
            }
        )
