"""When adaptive sampling pays: the most efficient policy by noise ratio, update cost and objective. Computes only.

Fixed and adaptive policies compete in several sizes each, under one cap on responses. The
moments of a policy's update (`ada_bandit.efficiency.update_moments`) give its efficiency on the whole
map, as V is linear in the noise ratio and C in the update cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Balance, Never, Policy, Positive, Quota, Rounds, ScoreModel
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import AdvantageTable, GroupMean, GroupStd, LeaveOneOut, PoolMean
from ada_bandit.budgets import Stages
from ada_bandit.efficiency import update_moments
from ada_bandit.errors import InputError, check_count
from ada_bandit.groups import All
from ada_bandit.laws import Law
from ada_bandit.optimal import Problem
from ada_bandit.programs.records import to_csv
from sim.score_model import ASSUMPTIONS, has_efficiency
from sim.sources import Source

__all__ = [
    "COSTS",
    "NOISE",
    "OBJECTIVES",
    "EfficiencyMap",
    "Family",
    "MapPoint",
    "ObjectiveMap",
    "families",
    "map_efficiency",
    "objectives_of",
]

OBJECTIVES = ("mean", "log", "pass@8")
"""One panel each."""
NOISE = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Noise ratios at which the optima are solved."""
COSTS = (0.0, 0.3, 3.0, 30.0)
"""Update costs at which they are solved, in responses."""

_SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_KEEP = (2, 4, 8, 16)


@dataclass(frozen=True)
class Family:
    """A way of sampling, in several sizes."""

    key: str
    """Its short name."""
    name: str
    """What it does, in words."""
    adaptive: bool
    """Whether the number of responses depends on those seen."""
    policies: tuple[Policy, ...]
    """Its members; their names are short."""


@dataclass(frozen=True)
class MapPoint:
    """One point of the map; efficiencies are multiples of that of GRPO with four responses."""

    objective: str
    noise_ratio: float
    update_cost: float
    """In responses."""
    fixed: str
    """The best policy that is not adaptive."""
    fixed_family: str
    fixed_efficiency: float
    adaptive: str
    """The best adaptive policy."""
    adaptive_family: str
    adaptive_efficiency: float
    optimum_same_efficiency: float
    """Four responses with their best advantages: what GRPO's own advantages lose."""
    optimum_fixed_size: int
    """The best fixed number of responses where the best group and advantages go with it."""
    optimum_fixed_efficiency: float
    optimum_efficiency: float
    """The optimum, one response at a time."""


@dataclass(frozen=True, eq=False)
class ObjectiveMap:
    """The fine map of one objective."""

    objective: str
    best: IntArray
    """`[cost, noise]` Index of the best family; the first row is that of update cost 0."""
    gain: FloatArray
    """`[cost, noise]` The best adaptive policy's efficiency over the best other one's."""


@dataclass(frozen=True, eq=False)
class EfficiencyMap:
    """The map, and everything that is needed to make it again."""

    source: Source
    """The pass-rate law."""
    families: tuple[Family, ...]
    """The competitors."""
    max_samples: int
    """The most responses of any policy."""
    transfer: float
    """How far what is learned on a prompt helps the others."""
    noise: FloatArray
    """`[noise]` Noise ratios of the fine map, even in the logarithm."""
    costs: FloatArray
    """`[cost]` Update costs of the fine map: 0, then even in the logarithm."""
    panels: tuple[ObjectiveMap, ...]
    """One an objective."""
    spots: tuple[MapPoint, ...]
    """Objective by objective, cost by cost, noise ratio by noise ratio."""

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the map says, and what it takes for granted."""
        total = sum(len(family.policies) for family in self.families)
        return (
            *self.source.findings(),
            *(self._verdict(panel) for panel in self.panels),
            f"{total} policies of at most {self.max_samples} responses compete, each family at its best size",
            "shares are of the map's area, noise ratio and positive update costs on log scales",
            "cost is responses drawn and kept; the wait between rounds is not counted",
            f"efficiency is that of {ASSUMPTIONS}",
        )

    def _verdict(self, panel: ObjectiveMap) -> str:
        """Say in words where adaptive policies are ahead under one objective."""
        spots = [spot for spot in self.spots if spot.objective == panel.objective]
        ratios = [spot.optimum_efficiency / spot.optimum_fixed_efficiency for spot in spots]
        advantages = [spot.optimum_same_efficiency for spot in spots]
        number = [spot.optimum_fixed_efficiency / spot.optimum_same_efficiency for spot in spots]
        shares = ", ".join(
            f"{family.key} {self.share(panel.best == index):.0%}"
            for index, family in enumerate(self.families)
            if family.adaptive
        )
        low, high = panel.gain.min(), panel.gain.max()
        return (
            f"{self.name_of(panel)}: an adaptive policy is the most efficient on {self.share(panel.gain > 1):.0%} of "
            f"the map ({shares}); the best adaptive one is {low:.2f} to {high:.2f} times as efficient as the best "
            "fixed number of responses. The best policy's gain over GRPO with n = 4 has three factors: better "
            f"advantages {min(advantages):.2f} to {max(advantages):.2f}, a better fixed number {min(number):.2f} to "
            f"{max(number):.2f}, adaptivity {min(ratios):.2f} to {max(ratios):.2f}"
        )

    def name_of(self, panel: ObjectiveMap) -> str:
        """Return what a panel climbs, in words; with full transfer it is all the same."""
        return "any objective" if self.transfer == 1 else panel.objective

    def share(self, where: BoolArray) -> float:
        """Return the share of the map, ``[cost, noise]``, by area; a cost of 0 has none."""
        return float(where[1:].mean())

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the fine map as plain values for JSON."""
        return {
            "configuration": {
                "version": ada_bandit.__version__,
                "source": self.source.to_dict(),
                "max_samples": self.max_samples,
                "transfer": self.transfer,
                "noise_ratio": [float(self.noise[0]), float(self.noise[-1])],
                "update_cost": [float(self.costs[0]), float(self.costs[-1])],
                "families": [
                    {
                        "key": family.key,
                        "name": family.name,
                        "adaptive": family.adaptive,
                        "policies": [policy.label for policy in family.policies],
                    }
                    for family in self.families
                ],
            },
            "notes": [*self.source.notes, *self.notes],
            "objectives": [
                {
                    "objective": panel.objective,
                    "adaptive_share": self.share(panel.gain > 1),
                    "family_shares": {
                        family.key: self.share(panel.best == index) for index, family in enumerate(self.families)
                    },
                    "largest_adaptive_gain": float(panel.gain.max()),
                }
                for panel in self.panels
            ],
            "spots": [asdict(spot) for spot in self.spots],
        }

    def to_csv(self) -> str:
        """Return the spots as CSV text."""
        return to_csv(asdict(spot) for spot in self.spots)


def objectives_of(transfer: float) -> tuple[str, ...]:
    """Return the objectives that are worth a panel each: with full transfer they are all the same."""
    return OBJECTIVES[:1] if transfer == 1 else OBJECTIVES


def families(mean: float, max_samples: int) -> tuple[Family, ...]:
    """Return the competitors: published rules in several sizes, and the plainest baseline there is.

    Parameters
    ----------
    mean
        E[p], the baseline of a single response.
    max_samples
        The most responses of a policy, at least 8.
    """
    sizes = [n for n in _SIZES if n <= max_samples]
    one = AdvantageTable(np.full((2, 2), 1 - mean), np.full((2, 2), -mean))
    plain = {"grpo": GroupStd(), "dr-grpo": GroupMean(), "rloo": LeaveOneOut()}
    steps = [(s, max_samples // s) for s in (1, 2, 4, 8) if s <= max_samples]
    pilots = [(a, b) for a in (2, 3, 4, 6, 8) for b in (4, 8, 16, 24) if a + b <= max_samples]
    keep = [n for n in _KEEP if n <= max_samples]
    mixed = ~Quota(1, 1)
    return (
        Family(
            "one response",
            "one response, E[p] as baseline",
            adaptive=False,
            policies=(Policy(Never(), Rounds(1), 1, All(), one, name="one response"),),
        ),
        Family(
            "plain",
            "n responses, all kept (GRPO, Dr. GRPO, RLOO)",
            adaptive=False,
            policies=tuple(
                Policy(Never(), Rounds(n), n, All(), rule, name=f"{name} {n}")
                for n in sizes
                for name, rule in plain.items()
            ),
        ),
        Family(
            "pods",
            "n responses, a balanced group kept (PODS)",
            adaptive=False,
            policies=tuple(
                Policy(Never(), Rounds(n), m, advantage=rule, name=f"pods {n} keep {m}")
                for n in sizes
                for m in keep
                if m < n
                for rule in (GroupStd(), PoolMean())
            ),
        ),
        Family(
            "speed",
            "a few, then more where classes mix (SPEED)",
            adaptive=True,
            policies=(
                *(
                    Policy(mixed, Stages((a, b)), a + b, All(), rule, name=f"speed {a}+{b}")
                    for a, b in pilots
                    for rule in (GroupStd(), LeaveOneOut())
                ),
                *(
                    Policy(mixed, Stages((a, b)), m, name=f"speed {a}+{b} keep {m}")
                    for a, b in pilots
                    for m in keep
                    if m < a + b
                ),
            ),
        ),
        Family(
            "reinforce-ada-pos",
            "rounds until a positive (Reinforce-Ada-pos)",
            adaptive=True,
            policies=tuple(
                Policy(Positive(1), Rounds(s, r), m, name=f"pos {s}x{r} keep {m}") for s, r in steps for m in (1, *keep)
            ),
        ),
        Family(
            "reinforce-ada-balance",
            "rounds until balanced (Reinforce-Ada-balance)",
            adaptive=True,
            policies=tuple(
                Policy(Balance(m), Rounds(s, r), m, name=f"balance {s}x{r} keep {m}") for s, r in steps for m in keep
            ),
        ),
    )


class _Moments:
    """W, the parts of V, and those of C, of many policies on one law: ``[policy]`` each."""

    def __init__(self, policies: Sequence[Policy], law: Law, objective: str, transfer: float) -> None:
        model = ScoreModel(objective=objective, transfer=transfer)
        sums = []
        for policy in policies:
            rates, weights = law.quadrature(model.quadrature_degree(policy.budget.max_samples))
            of = update_moments(policy, rates)
            energy = of.energy_pos + of.energy_neg
            sums.append(
                np.stack([of.update * model.pull(rates, law), of.square, energy, of.samples, of.rows]) @ weights
            )
        self.progress, self.spread, self.noise, self.samples, self.rows = np.array(sums).T

    def efficiency(self, noise_ratio: FloatArray, update_cost: FloatArray) -> FloatArray:
        """Return the efficiencies, ``[policy, cost, noise]``."""
        column = np.s_[:, None, None]
        noise = self.spread[column] + self.noise[column] * noise_ratio
        cost = self.samples[column] + self.rows[column] * update_cost[:, None]
        square = np.broadcast_to(self.progress[column] ** 2, noise.shape)
        return np.asarray(np.divide(square, noise, out=np.zeros(noise.shape), where=noise > 0) / cost)


def map_efficiency(
    source: Source,
    *,
    objectives: Sequence[str] = (),
    transfer: float = 1.0,
    policies: Sequence[Policy] = (),
    max_samples: int = 32,
    progress: Callable[[int], None] | None = None,
) -> EfficiencyMap:
    """Map which policy is the most efficient, over noise ratio, update cost and objective.

    Parameters
    ----------
    source
        The pass-rate law.
    objectives
        ``"mean"``, ``"log"``, ``"pass@k"``. Unless given, `OBJECTIVES`; "mean" for all with full transfer, under which
        the objective is a constant factor.
    transfer
        How far what is learned on a prompt helps the others, as in `ScoreModel`.
    policies
        Further competitors, each a family of its own; adaptive where they may take more than
        one round.
    max_samples
        The most responses of the built-in competitors and of the optima, at least 8.
    progress
        Called with 1 after each of ``len(objectives) * len(COSTS) * len(NOISE)`` spots.

    Raises
    ------
    InputError
        If an argument can't be used, or no policy moves any objective on this law.
    """
    law, max_samples = source.law, check_count("max_samples", max_samples, 8)
    objectives = objectives or objectives_of(transfer)
    shared = [policy.label for policy in policies if not has_efficiency(policy)]
    if shared:
        msg = f"a budget shared by the batch has no exact efficiency; leave out {', '.join(shared)}"
        raise InputError(msg)
    if law.probability(0, 0) + law.probability(1, 1) > 1 - 1e-12:
        msg = f"no policy moves an objective on {source.label!r}: every pass rate is 0 or 1; use other pass rates"
        raise InputError(msg)
    competitors = (
        *families(law.mean, max_samples),
        *(
            Family(
                f"{one.label} (given)", f"{one.label}, as given", adaptive=len(one.budget.sizes) > 1, policies=(one,)
            )
            for one in policies
        ),
    )
    noise = np.logspace(np.log10(NOISE[0]), np.log10(NOISE[-1]), 181)
    costs = np.concatenate([[0.0], np.logspace(-1, 2, 121)])
    members = [policy for family in competitors for policy in family.policies]
    family_of = np.repeat(np.arange(len(competitors)), [len(family.policies) for family in competitors])
    adaptive = np.array([family.adaptive for family in competitors])[family_of]
    panels, spots = [], []
    for objective in objectives:
        moments = _Moments(members, law, objective, transfer)
        values = moments.efficiency(noise, costs)
        gain = values[adaptive].max(axis=0) / values[~adaptive].max(axis=0)
        panels.append(
            ObjectiveMap(objective, family_of[_first_best(values)], np.where(np.abs(gain - 1) < 1e-9, 1.0, gain))
        )
        yardstick = _Moments([Policy.preset("grpo")], law, objective, transfer).efficiency(
            np.array(NOISE), np.array(COSTS)
        )[0]
        values = moments.efficiency(np.array(NOISE), np.array(COSTS)) / yardstick
        picks = [_first_best(np.where(mask[:, None, None], values, -1.0)) for mask in (~adaptive, adaptive)]
        for i, j in np.ndindex(len(COSTS), len(NOISE)):
            unit = float(yardstick[i, j])
            model = ScoreModel(NOISE[j], objective, COSTS[i], transfer=transfer)
            best, same, (size, of_fixed) = _optimum(law, model, max_samples)
            fixed, other = (int(pick[i, j]) for pick in picks)
            spots.append(
                MapPoint(
                    objective=objective,
                    noise_ratio=NOISE[j],
                    update_cost=COSTS[i],
                    fixed=members[fixed].label,
                    fixed_family=competitors[family_of[fixed]].key,
                    fixed_efficiency=float(values[fixed, i, j]),
                    adaptive=members[other].label,
                    adaptive_family=competitors[family_of[other]].key,
                    adaptive_efficiency=float(values[other, i, j]),
                    optimum_same_efficiency=same / unit,
                    optimum_fixed_size=size,
                    optimum_fixed_efficiency=of_fixed / unit,
                    optimum_efficiency=best / unit,
                )
            )
            if progress:
                progress(1)
    return EfficiencyMap(source, competitors, max_samples, transfer, noise, costs, tuple(panels), tuple(spots))


def _first_best(values: FloatArray) -> IntArray:
    """Return the first index along the first axis that is best up to rounding.

    Some policies are the same in other words, such as two responses, and two kept of three.
    """
    return np.asarray((values >= values.max(axis=0) * (1 - 1e-9)).argmax(axis=0))


def _optimum(law: Law, model: ScoreModel, max_samples: int) -> tuple[float, float, tuple[int, float]]:
    """Return the best efficiency of all, that of four responses, and the best fixed number with its efficiency."""

    def value(samples: int, max_samples: int) -> float:
        return Problem(law, model, samples=samples, max_samples=max_samples).best().value

    fixed = {n: value(n, n) for n in (1, *(n for n in _SIZES if n <= max_samples))}
    size = max(fixed, key=lambda n: fixed[n])
    return value(1, max_samples), fixed[4], (size, fixed[size])
