"""Policies as points of cost against utility, and the frontier that no policy can pass. Computes only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Never, Policy, Rounds, ScoreModel
from ada_bandit._types import FloatArray
from ada_bandit.advantages import GroupMean
from ada_bandit.efficiency import Efficiency, gradient_efficiency
from ada_bandit.errors import InputError, check_count
from ada_bandit.groups import All
from ada_bandit.laws import Law
from ada_bandit.optimal import Frontier, Problem, frontier, policy_for_budget
from ada_bandit.policy import AnyPolicy
from ada_bandit.presets import preset_names
from ada_bandit.programs.records import to_csv
from sim.labels import distinct_labels
from sim.score_model import ASSUMPTIONS, Scoring, has_efficiency
from sim.sources import Source

__all__ = ["FrontierPlot", "PlacedPolicy", "place_policies", "plain_sizes", "presets"]


@dataclass(frozen=True)
class PlacedPolicy:
    """One policy on the plane of cost and utility."""

    policy: str
    """The policy's label."""
    responses: float
    """E[N], responses a prompt."""
    cost: float
    """C, responses a prompt and the cost of the update."""
    utility: float
    """W^2 / V: the utility at the best step size."""
    efficiency: float
    """Utility over cost."""
    against_grpo: float | None
    """Efficiency over that of four responses of GRPO; None where that is 0."""
    against_optimum: float | None
    """Efficiency over that of the optimum; None where that is 0."""
    against_frontier: float | None
    """Utility over what the frontier has at this cost; None where that is 0."""


@dataclass(frozen=True, eq=False)
class FrontierPlot:
    """The points, the frontier above them, and everything that is needed to make it again."""

    policies: tuple[AnyPolicy, ...]
    """The policies, with labels that differ."""
    source: Source
    """The pass-rate law."""
    scoring: Scoring
    """The setting of the gradient efficiency."""
    points: tuple[PlacedPolicy, ...]
    """One a policy, in order."""
    grpo: PlacedPolicy
    """Four responses of GRPO, the yardstick."""
    optimum: PlacedPolicy
    """The optimum for the law, one response at a time."""
    max_samples: int
    """The most responses that a policy on the frontier may draw."""
    costs: FloatArray
    """`[vertex]` Costs of the frontier's vertices."""
    utilities: FloatArray
    """`[vertex]` Their utilities."""
    plain: FloatArray
    """`[size, 2]` Cost and utility of n responses with the group mean as baseline, n as in `plain_sizes`."""
    notes: tuple[str, ...]
    """What is to be said, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "configuration": {
                "version": ada_bandit.__version__,
                "source": self.source.to_dict(),
                "score_model": self.scoring.to_dict(),
                "max_samples": self.max_samples,
                "policies": [policy.to_dict() for policy in self.policies],
            },
            "notes": [*self.source.notes, *self.notes],
            "policies": [asdict(point) for point in self.points],
            "grpo": asdict(self.grpo),
            "optimum": asdict(self.optimum),
            "frontier": [
                {"cost": cost, "utility": utility}
                for cost, utility in zip(self.costs.tolist(), self.utilities.tolist(), strict=True)
            ],
        }

    def to_csv(self) -> str:
        """Return the points as CSV text, the optimum last."""
        return to_csv(asdict(point) for point in (*self.points, self.optimum))


def presets() -> tuple[AnyPolicy, ...]:
    """Return every preset, at its default sizes."""
    return tuple(Policy.preset(name) for name in preset_names())


def plain_sizes(largest: int) -> tuple[int, ...]:
    """Return the sizes of plain groups that are drawn as a curve, to the first one of at least `largest`."""
    sizes = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    return sizes[: 1 + sum(n < largest for n in sizes)]


def best_policy(law: Law, model: ScoreModel, max_samples: int, spend: float | None = None) -> AnyPolicy:
    """Return the most efficient policy on a law, or the most useful one at a cost.

    Parameters
    ----------
    law
        The pass-rate law.
    model
        The score model.
    max_samples
        The most responses of a prompt.
    spend
        Cost a prompt; that of the most efficient policy unless given.

    Raises
    ------
    InputError
        If no policy has that cost.
    """
    if spend is None:
        return Problem(law, model, max_samples=max_samples).best("optimum").policy
    return policy_for_budget(law, spend, model, max_samples=max_samples)


def place_policies(
    policies: Sequence[AnyPolicy],
    source: Source,
    scoring: Scoring,
    *,
    max_samples: int = 32,
    prices: int = 40,
    progress: Callable[[int], None] | None = None,
) -> FrontierPlot:
    """Place policies beneath the frontier of a pass-rate law.

    Parameters
    ----------
    policies
        At least one with tables of its own; those that share a budget across the batch are
        left out, and named in the notes.
    source
        The pass-rate law.
    scoring
        The setting of the gradient efficiency.
    max_samples
        The most responses of the policies on the frontier; raised to the largest budget among
        `policies`, so that none of them can lie above it.
    prices
        Vertices of the frontier to look for, at least 2.
    progress
        Called with 1 after each policy and after the frontier.

    Raises
    ------
    InputError
        If no policy is left, or an argument can't be used.
    """
    left_out = [policy.label for policy in policies if not has_efficiency(policy)]
    policies = distinct_labels([policy for policy in policies if has_efficiency(policy)])
    if not policies:
        what = f"{', '.join(left_out)} share a budget across the batch" if left_out else "none was given"
        msg = f"nothing to place: give at least one policy with tables of its own; {what}"
        raise InputError(msg)
    law = source.law
    largest = max(check_count("max_samples", max_samples), *(policy.budget.max_samples for policy in policies))
    advance = progress or (lambda _: None)
    efficiencies = []
    for policy in policies:
        efficiencies.append(scoring.efficiency(policy, law))
        advance(1)
    grpo = scoring.efficiency(Policy.preset("grpo"), law)
    best = Problem(law, scoring.model, max_samples=largest).best()
    searched = frontier(law, scoring.model, max_samples=largest, prices=prices)
    # The search need not have come across the optimum, which lies on the frontier.
    at = int(np.searchsorted(searched.costs, best.cost * (1 - 1e-12)))
    new = [] if at < len(searched.costs) and searched.costs[at] < best.cost * (1 + 1e-12) else [best]
    edge = Frontier((*searched.vertices[:at], *new, *searched.vertices[at:]))
    plain = [
        scoring.efficiency(Policy(Never(), Rounds(n), n, All(), GroupMean()), law)
        for n in plain_sizes(max(8, math.ceil(max(one.expected_samples for one in efficiencies))))
    ]
    advance(1)

    def point(label: str, one: Efficiency) -> PlacedPolicy:
        utility = _utility(one)
        # The first round of a policy may cost less than rounding can tell from the frontier's.
        above = float(edge.utility_at(max(one.cost, float(edge.costs[0]))))
        return PlacedPolicy(
            policy=label,
            responses=one.expected_samples,
            cost=one.cost,
            utility=utility,
            efficiency=one.value,
            against_grpo=_ratio(one.value, grpo.value),
            against_optimum=_ratio(one.value, best.value),
            against_frontier=_ratio(utility, above),
        )

    notes = [
        *source.findings(),
        f"utility is W^2 / V, efficiency is utility over cost; {scoring.label}, in {ASSUMPTIONS}",
        (
            f"the optimum is the most efficient policy for this law: one response at a time, at most {largest}, with "
            "the best advantages and group"
        ),
    ]
    if scoring.verifier:
        notes.append("the optimum and the frontier are those of a verifier without errors, the policies are not")
    if any(policy == Policy.preset("bayes") for policy in policies):
        notes.append("the preset bayes is placed with the prior it starts from, Beta(1, 1)")
    if left_out:
        notes.append(f"left out, as they share a budget across the batch: {', '.join(left_out)}")
    return FrontierPlot(
        policies=policies,
        source=source,
        scoring=scoring,
        points=tuple(point(policy.label, one) for policy, one in zip(policies, efficiencies, strict=True)),
        grpo=point("grpo", grpo),
        optimum=point("optimum", gradient_efficiency(best.policy, law, scoring.model)),
        max_samples=largest,
        costs=edge.costs,
        utilities=edge.utilities,
        plain=np.array([[one.cost, _utility(one)] for one in plain]),
        notes=tuple(notes),
    )


def _utility(one: Efficiency) -> float:
    return one.progress**2 / one.noise if one.noise > 0 else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
