"""Counts of correct responses by pool, as a law is fitted to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from sim.readers import RolloutLog
from sim.words import plural

__all__ = ["Counts", "all_tokens"]


@dataclass(frozen=True, eq=False)
class Counts:
    """Responses of each pool of a log: of each prompt, or of each visit to one where it came back."""

    prompt_ids: tuple[str, ...]
    """Names of the pools, in the log's order."""
    correct: IntArray
    """`[pool]` Correct responses."""
    total: IntArray
    """`[pool]` Scored responses, at least 1."""
    notes: tuple[str, ...] = ()
    """How they were read and what was left out."""
    tokens: FloatArray | None = None
    """`[pool]` Mean tokens of a response, where every pool has them."""

    @classmethod
    def of(cls, log: RolloutLog) -> Counts:
        """Return the counts of a log; pools without a scored response are left out."""
        chosen = log.scored > 0
        notes = list(log.notes)
        tokens = None if log.mean_tokens is None else all_tokens(log.mean_tokens[chosen], notes)
        names = tuple(name for name, there in zip(log.names, chosen, strict=True) if there)
        return cls(names, log.correct[chosen], log.scored[chosen], tuple(notes), tokens)

    @property
    def rates(self) -> FloatArray:
        """`[pool]` The plug-in rates correct / total."""
        return np.asarray(self.correct / self.total)


def all_tokens(means: FloatArray, notes: list[str]) -> FloatArray | None:
    """Return the mean tokens of every pool; None, and a note, where some have none."""
    missing = int(np.isnan(means).sum())
    if not missing:
        return means
    if missing < means.size:
        notes.append(f"tokens left out: {missing} of {means.size} {plural(means.size, 'prompt')} have none")
    return None
