"""Sampling policies for reinforcement learning with verifiable rewards.

How many responses should each prompt get, when may it stop, which of them go into the
update, and with what weight? A policy answers with a few tables over one lattice, the counts
(pos, neg) of correct and incorrect responses, and the same object is analysed exactly
(`analyze`), simulated, and drives a real training run (`Allocator`).

The families of parts are modules: `rules`, `budgets`, `groups`, `advantages`, `laws`, `presets`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ada_bandit import advantages, budgets, groups, laws, presets, rules
    from ada_bandit.allocator import Allocator
    from ada_bandit.budgets import Rounds
    from ada_bandit.efficiency import gradient_efficiency
    from ada_bandit.empirical import EmpiricalBayes
    from ada_bandit.errors import AdaBanditError
    from ada_bandit.exact import analyze, induced_objective
    from ada_bandit.laws import Beta
    from ada_bandit.memory import PassRateMemory
    from ada_bandit.optimal import bayes_policy, frontier, policy_for_budget
    from ada_bandit.policy import Policy
    from ada_bandit.rules import Balance, Never, Positive, Quota, exit_rule
    from ada_bandit.score_model import ScoreModel
    from ada_bandit.tables import Tables
    from ada_bandit.uniforms import uniform

__all__ = [
    "AdaBanditError",
    "Allocator",
    "Balance",
    "Beta",
    "EmpiricalBayes",
    "Never",
    "PassRateMemory",
    "Policy",
    "Positive",
    "Quota",
    "Rounds",
    "ScoreModel",
    "Tables",
    "advantages",
    "analyze",
    "bayes_policy",
    "budgets",
    "exit_rule",
    "frontier",
    "gradient_efficiency",
    "groups",
    "induced_objective",
    "laws",
    "policy_for_budget",
    "presets",
    "rules",
    "uniform",
]

__version__ = "0.1.0"

# Every name is imported when it is first used: a command's help needs no NumPy, tables need no numba.
_HOMES = {
    "allocator": ("Allocator",),
    "budgets": ("Rounds",),
    "efficiency": ("gradient_efficiency",),
    "empirical": ("EmpiricalBayes",),
    "errors": ("AdaBanditError",),
    "exact": ("analyze", "induced_objective"),
    "laws": ("Beta",),
    "memory": ("PassRateMemory",),
    "optimal": ("bayes_policy", "frontier", "policy_for_budget"),
    "policy": ("Policy",),
    "rules": ("Balance", "Never", "Positive", "Quota", "exit_rule"),
    "score_model": ("ScoreModel",),
    "tables": ("Tables",),
    "uniforms": ("uniform",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_FAMILIES = ("advantages", "budgets", "groups", "laws", "presets", "rules")


def __getattr__(name: str) -> Any:
    if name in _FAMILIES:
        return import_module(f"ada_bandit.{name}")
    if name in _HOME:
        value = globals()[name] = getattr(import_module(f"ada_bandit.{_HOME[name]}"), name)
        return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
