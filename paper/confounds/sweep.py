"""The rules with and without the deviation: progress of a step, exactly, and simulated training runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ada_bandit import Policy, ScoreModel
from ada_bandit.advantages import Advantage, GroupMean, GroupStd, PoolMean
from paper.frontier.sweep import NOISE, TRANSFERS, utility
from paper.laws import balance, grpo
from paper.results import Context
from paper.training import deviation_runs
from sim.learn.study import Sweep

__all__ = ["ARMS", "Separated", "arm", "sweep"]

_DEVIATION = GroupStd(eps=1e-4)
ARMS: Mapping[str, tuple[str, Advantage]] = MappingProxyType(
    {
        "grpo, deviation": ("grpo", _DEVIATION),
        "grpo": ("grpo", GroupMean()),
        "balance, deviation": ("balance", _DEVIATION),
        "balance": ("balance", PoolMean()),
    }
)
"""Rule and advantage by arm. The public scripts run the first against the last."""


@dataclass(frozen=True, eq=False)
class Separated:
    """Everything that was computed."""

    utilities: dict[str, dict[str, float]]
    """W^2/V by regime of the score model, then by arm."""
    runs: Sweep
    """The simulated runs of the arms."""


def arm(name: str) -> Policy:
    """Return one of `ARMS`."""
    rule, advantage = ARMS[name]
    return replace({"grpo": grpo, "balance": balance}[rule](), advantage=advantage, name=name)


def sweep(context: Context) -> Separated:
    """Return utilities and runs."""
    policies = {name: arm(name) for name in ARMS}
    utilities = {
        f"transfer {transfer:g}, noise {noise:g}": {
            name: utility(policy, ScoreModel(noise, transfer=transfer)) for name, policy in policies.items()
        }
        for transfer in TRANSFERS
        for noise in NOISE
    }
    return Separated(utilities, deviation_runs(tuple(policies.values()), context))
