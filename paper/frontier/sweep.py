"""The frontier of the training law under several settings of the score model, and the rules beneath it. Exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ada_bandit import Never, Policy, Rounds
from ada_bandit.advantages import GroupMean
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.score_model import ScoreModel
from paper.laws import balance, grpo, pos, training_law
from paper.results import Context
from sim.frontier.study import FrontierPlot, place_policies
from sim.score_model import Scoring
from sim.sources import Source

__all__ = ["MODELS", "NOISE", "RULES", "TRANSFERS", "FrontierPlots", "Step", "step_of", "sweep", "utility"]

NOISE = (1.0, 10.0)
TRANSFERS = (0.0, 1.0)
"""Regimes of transfer in which a step is judged: no prompt learns from another, and all do."""
MODELS = tuple(
    ScoreModel(noise, objective, cost, transfer=0.0)
    for objective in ("mean", "log")
    for cost in (0.0, 10.0)
    for noise in NOISE
)
"""The settings: what is climbed, how noisy scores are, and what an update costs. Without transfer: only then do the
objectives differ."""
RULES = {"grpo": grpo, "pos": pos, "balance": balance}
"""The paper's rules by short name."""


@dataclass(frozen=True)
class Step:
    """Utilities W^2/V of a step of balance over those of others, in one regime."""

    grpo: float
    """Over GRPO with n = 4, with the deviation."""
    plain: float
    """Over n = 4 without the deviation, as the rule itself is run."""
    matched: float
    """Over as many responses a prompt without the deviation, all trained on; interpolated between whole numbers."""
    selected: float
    """Over as many responses a prompt, from which the rule's own group is kept with its own advantage."""


@dataclass(frozen=True, eq=False)
class FrontierPlots:
    """A trace for each of `MODELS`, and what a step is worth beside a control."""

    plots: tuple[FrontierPlot, ...]
    steps: dict[str, Step]
    """Steps of balance by regime of transfer and noise ratio, for the mean reward."""
    shared: dict[str, tuple[float, ...]]
    """Efficiency W^2/(VC) with transfer 1 over that of GRPO, where all objectives have one direction, by noise ratio:
    of balance and of pos with free updates, and of balance with an update cost of 10."""


def utility(policy: Policy, model: ScoreModel) -> float:
    """Return W^2/V of a policy on the training law: what its step is worth at the best step size."""
    found = gradient_efficiency(policy, training_law(), model)
    return found.progress**2 / found.noise


def efficiency_of(rule: Policy, model: ScoreModel) -> float:
    """Return the efficiency W^2/(VC) of a rule on the training law over that of GRPO."""
    mine, other = (gradient_efficiency(policy, training_law(), model) for policy in (rule, grpo()))
    return mine.progress**2 / (mine.noise * mine.cost) * (other.noise * other.cost) / other.progress**2


def step_of(rule: Policy, model: ScoreModel) -> Step:
    """Return what a step of a rule is worth on the training law."""
    plain = replace(grpo(), advantage=GroupMean())
    mine, responses = utility(rule, model), gradient_efficiency(rule, training_law(), model).expected_samples
    sizes = (math.floor(responses), math.floor(responses) + 1)
    pools = [utility(replace(rule, rule=Never(), budget=Rounds(n, 1)), model) for n in sizes]
    selected = float(np.interp(responses, sizes, pools))
    wide = [utility(replace(plain, budget=Rounds(n, 1), group_size=n), model) for n in sizes]
    matched = float(np.interp(responses, sizes, wide))
    return Step(mine / utility(grpo(), model), mine / utility(plain, model), mine / matched, mine / selected)


def sweep(context: Context) -> FrontierPlots:
    """Return the plots."""
    source = Source(training_law(), "qwen2.5-math-1.5b-base, at least 1 of 16")
    policies = [rule() for rule in RULES.values()]
    prices = 12 if context.quick else 40
    plots = tuple(place_policies(policies, source, Scoring(model), prices=prices) for model in MODELS)
    steps = {
        f"transfer {transfer:g}, noise {noise:g}": step_of(balance(), ScoreModel(noise, transfer=transfer))
        for transfer in TRANSFERS
        for noise in NOISE
    }
    shared = {
        "balance": tuple(efficiency_of(balance(), ScoreModel(noise, transfer=1.0)) for noise in NOISE),
        "pos": tuple(efficiency_of(pos(), ScoreModel(noise, transfer=1.0)) for noise in NOISE),
        "dear": tuple(efficiency_of(balance(), ScoreModel(noise, "log", 10.0, transfer=1.0)) for noise in NOISE),
    }
    return FrontierPlots(plots, steps, shared)
