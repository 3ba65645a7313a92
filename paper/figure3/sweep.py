"""Runs under other step sizes, optimizers, models, and ties between prompts (simulated)."""

from __future__ import annotations

from paper.items import Context
from paper.training import variant_runs
from sim.learning_sweep import Sweep

__all__ = ["sweep"]


def sweep(context: Context) -> dict[str, Sweep]:
    """Return a sweep by variant."""
    return variant_runs(context)
