"""Sampling policies for reinforcement learning with verifiable rewards.

How many responses should each prompt get, when may it stop, which of them go into the
update, and with what weight? A policy answers with a few tables over one lattice, the counts
(pos, neg) of correct and incorrect responses, and the same object is analysed exactly
(`analyze`), simulated, and drives a real training run (`Allocator`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ada_bandit.advantages import calibrated, group_mean, group_std, leave_one_out, pool_mean, unbiased
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.calibration import calibrate
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import AdaBanditError
from ada_bandit.estimators import compare_estimators
from ada_bandit.exact import Analysis, analyze, analyze_law, induced_objective
from ada_bandit.groups import All, Balanced, Uniform
from ada_bandit.laws import Beta, Grid, Mixture
from ada_bandit.memory import PassRateMemory, fit_prior
from ada_bandit.optimal import bayes_policy, frontier, policy_for_budget
from ada_bandit.policy import Policy, preset_names
from ada_bandit.rules import Balance, ConfidenceSequence, Interval, Never, Positive, Posterior, Quota, exit_rule

if TYPE_CHECKING:
    from ada_bandit.allocator import Allocator
    from ada_bandit.empirical import EmpiricalBayes
    from ada_bandit.uniforms import fold_seed, uniform

__all__ = [
    "AdaBanditError",
    "All",
    "Allocator",
    "Analysis",
    "Balance",
    "Balanced",
    "Beta",
    "ConfidenceSequence",
    "EmpiricalBayes",
    "Grid",
    "Interval",
    "Mixture",
    "Never",
    "PassRateMemory",
    "Policy",
    "Positive",
    "Posterior",
    "Quota",
    "Rounds",
    "Stages",
    "Uniform",
    "analyze",
    "analyze_law",
    "bayes_policy",
    "calibrate",
    "calibrated",
    "compare_estimators",
    "exit_rule",
    "fit_prior",
    "fold_seed",
    "frontier",
    "gradient_efficiency",
    "group_mean",
    "group_std",
    "induced_objective",
    "leave_one_out",
    "policy_for_budget",
    "pool_mean",
    "preset_names",
    "unbiased",
    "uniform",
]

__version__ = "0.1.0"

# What needs numba is imported on first use: tables and exact analysis start without it.
_LAZY = {
    "Allocator": "ada_bandit.allocator",
    "EmpiricalBayes": "ada_bandit.empirical",
    "fold_seed": "ada_bandit.uniforms",
    "uniform": "ada_bandit.uniforms",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
