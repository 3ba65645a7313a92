"""Fit a law to each published pair of curves, and evaluate it at the published k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.laws import Law
from paper.laws import base_law, rl_law
from paper.published import rows

__all__ = ["Curves", "sweep"]


@dataclass(frozen=True, eq=False)
class Curves:
    """One model's published curves, and those of its law."""

    law: Law
    """The fitted law."""
    k: FloatArray
    """`[point]` Responses."""
    pass_at_k: FloatArray
    """`[point]` Published."""
    all_correct_at_k: FloatArray
    """`[point]` Published."""
    fit_pass: FloatArray
    """`[point]` E[1 - q^k]."""
    fit_all: FloatArray
    """`[point]` E[p^k]."""

    @property
    def residual(self) -> float:
        """The largest absolute difference between a published point and the law's."""
        differences = np.concatenate([self.fit_pass - self.pass_at_k, self.fit_all - self.all_correct_at_k])
        return float(np.abs(differences).max())

    def no_signal(self, k: int) -> float:
        """Return the law's share of prompts whose k responses are all correct or all incorrect."""
        return float(self.law.evidence(k, 0) + self.law.evidence(0, k))


def sweep() -> dict[str, Curves]:
    """Return the curves by model, ``base`` and ``rl``."""
    curves = {}
    for model, law in (("base", base_law()), ("rl", rl_law())):
        table = np.array(
            [
                [float(row[key]) for key in ("k", "pass_at_k", "all_correct_at_k")]
                for row in rows("pass_at_k")
                if row["model"] == model
            ]
        )
        k, passing, correct = table.T
        counts = k.astype(np.int64)
        none = law.evidence(np.zeros_like(counts), counts)
        every = law.evidence(counts, np.zeros_like(counts))
        curves[model] = Curves(law, k, passing, correct, 1 - none, every)
    return curves
