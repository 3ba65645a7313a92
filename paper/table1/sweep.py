"""The published table, and the main runs (simulated)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from paper.published import rows
from paper.results import Context
from paper.training import main_runs
from sim.learn.study import Sweep

__all__ = ["BENCHMARKS", "Order", "sweep"]

BENCHMARKS = ("math500", "minerva", "olympiad", "aime_like")
"""The columns of the table but the weighted average."""
_RULES = {"GRPO": "grpo", "Reinforce-Ada-pos": "pos", "Reinforce-Ada-balance": "balance"}


@dataclass(frozen=True, eq=False)
class Order:
    """Everything that was read and run."""

    models: tuple[str, ...]
    """Models and prompt sets, in the order of the table."""
    accuracy: dict[str, FloatArray]
    """`[model, benchmark]` by rule, in per cent."""
    average: dict[str, FloatArray]
    """`[model]` Weighted average by rule."""
    runs: Sweep
    """The simulated runs."""


def sweep(context: Context) -> Order:
    """Return the table and the runs."""
    models = tuple(dict.fromkeys(row["model"] for row in rows("table1")))
    accuracy, average = {}, {}
    for name, rule in _RULES.items():
        mine = [row for row in rows("table1") if row["algorithm"] == name]
        accuracy[rule] = np.array([[float(row[key]) for key in BENCHMARKS] for row in mine])
        average[rule] = np.array([float(row["weighted_average"]) for row in mine])
    return Order(models, accuracy, average, main_runs(context))
