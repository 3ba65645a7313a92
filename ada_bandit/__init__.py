"""Sampling policies for reinforcement learning with verifiable rewards.

How many responses should each prompt get, when may it stop, which of them go into the
update, and with what weight? A policy answers with a few tables over one lattice, the counts
(pos, neg) of correct and incorrect responses, and the same object is analysed exactly
(`analyze`), simulated, and drives a real training run (`Allocator`).
"""

from typing import TYPE_CHECKING, Any

from ada_bandit.advantages import group_mean, group_std, leave_one_out, pool_mean, unbiased
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.errors import AdaBanditError
from ada_bandit.exact import Analysis, analyze, analyze_law, induced_objective
from ada_bandit.groups import All, Balanced, Uniform
from ada_bandit.laws import Beta, Grid, Mixture
from ada_bandit.policy import Policy, preset_names
from ada_bandit.rules import (
    Balance,
    ConfidenceSequence,
    Interval,
    Never,
    Positive,
    Posterior,
    Quota,
    exit_rule,
)

if TYPE_CHECKING:
    from ada_bandit.allocator import Allocator
    from ada_bandit.uniforms import uniform

__all__ = [
    "AdaBanditError",
    "All",
    "Allocator",
    "Analysis",
    "Balance",
    "Balanced",
    "Beta",
    "ConfidenceSequence",
    "Grid",
    "Interval",
    "Mixture",
    "Never",
    "Policy",
    "Positive",
    "Posterior",
    "Quota",
    "Rounds",
    "Stages",
    "Uniform",
    "analyze",
    "analyze_law",
    "exit_rule",
    "group_mean",
    "group_std",
    "induced_objective",
    "leave_one_out",
    "pool_mean",
    "preset_names",
    "unbiased",
    "uniform",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs numba on first use: tables and exact analysis start without it."""
    if name == "Allocator":
        from ada_bandit.allocator import Allocator

        return Allocator
    if name == "uniform":
        from ada_bandit.uniforms import uniform

        return uniform
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
