"""The main runs (simulated)."""

from __future__ import annotations

from paper.items import Context
from paper.training import main_runs
from sim.learning_sweep import Sweep

__all__ = ["sweep"]


def sweep(context: Context) -> Sweep:
    """Return the runs of all rules on all prompt sets."""
    return main_runs(context)
