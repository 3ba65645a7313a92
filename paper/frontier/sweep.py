"""The frontier of the training law under several settings of the score model, and the rules beneath it. Exact."""

from __future__ import annotations

from dataclasses import dataclass

from ada_bandit.score_model import ScoreModel
from paper.laws import balance, grpo, pos, training_law
from paper.results import Context
from sim.frontier.study import FrontierPlot, place_policies
from sim.score_model import Scoring
from sim.sources import Source

__all__ = ["MODELS", "NOISE", "RULES", "FrontierPlots", "sweep"]

NOISE = (1.0, 10.0)
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


@dataclass(frozen=True, eq=False)
class FrontierPlots:
    """A trace for each of `MODELS`."""

    plots: tuple[FrontierPlot, ...]


def sweep(context: Context) -> FrontierPlots:
    """Return the plots."""
    source = Source(training_law(), "qwen2.5-math-1.5b-base, at least 1 of 16")
    policies = [rule() for rule in RULES.values()]
    prices = 12 if context.quick else 40
    return FrontierPlots(tuple(place_policies(policies, source, Scoring(model), prices=prices) for model in MODELS))
