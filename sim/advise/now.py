"""What is run now: the policy that sampled the log, so far as it can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ada_bandit.errors import InputError
from ada_bandit.policy import Policy
from ada_bandit.shared import Refill
from sim.log.study import LogReport
from sim.readers import Selection
from sim.score_model import has_efficiency
from sim.stopped.stopping import StoppingKind

__all__ = ["Now", "now_of"]

_USUAL = 8
"""Group size that is assumed where a log has no training step: TRL's default."""
_MOST = 16
"""Responses a prompt beyond which a log without steps is taken for an evaluation."""


@dataclass(frozen=True)
class Now:
    """What is run now."""

    policy: Policy
    """The policy, of tables."""
    label: str
    """What the report calls it."""
    assumed: bool
    """Whether it is a guess and neither stated nor seen in the log."""
    why: str
    """What it rests on, a sentence."""

    @property
    def n(self) -> int:
        """Responses a prompt; the group size where they differ between prompts."""
        sizes = self.policy.budget.sizes
        return sizes[0] if len(sizes) == 1 else self.policy.n

    @property
    def adaptive(self) -> bool:
        """Whether the number of responses depends on their rewards."""
        return len(self.policy.budget.sizes) > 1

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"policy": self.label, "n": self.n, "adaptive": self.adaptive, "assumed": self.assumed, "why": self.why}


def now_of(report: LogReport, stated: Policy | None = None, n: int | None = None) -> Now:
    """Return what is run now.

    Parameters
    ----------
    report
        What the log says.
    stated
        The policy, where the user states it.
    n
        Responses a group, where scalars have them.

    Raises
    ------
    InputError
        If the stated policy shares a budget across the batch in a way that has no equal by prompt.
    """
    if stated is not None:
        return _of_policy(stated, "as stated")
    if n is not None:
        return _grpo(n, report, f"the scalars are of groups of {n}", assumed=False)
    study = report.study
    if study is None:
        return _grpo(_USUAL, report, "no group size is known", assumed=True)
    if study.policy is not None and has_efficiency(study.policy):
        how = "as stated" if study.stopping.stated else "inferred from how the pools ended"
        return Now(
            study.policy,
            study.policy.label,
            not study.stopping.stated,
            f"{how}; its group of {study.policy.n} "
            f"and its advantages are {'its own' if study.stopping.stated else 'assumed: the log shows neither'}",
        )
    if study.policy is not None:
        return _of_policy(study.policy, "as stated")
    totals, times = np.unique(study.pools.total, return_counts=True)
    usual = int(totals[times.argmax()])
    steps = study.steps.size > 0 or study.selection is not Selection.all
    if study.stopping.kind is StoppingKind.unknown:
        return _grpo(
            _USUAL, report, "the rule that stopped these pools isn't known (--stopped-by, or --now)", assumed=True
        )
    if not steps and usual > _MOST:
        why = (
            f"{usual} responses a prompt and no training step look like an evaluation, so GRPO with TRL's default "
            "group "
            "is assumed; say otherwise by --now grpo:group_size=N"
        )
        return _grpo(_USUAL, report, why, assumed=True)
    share = "every pool" if totals.size == 1 else f"{times.max() / times.sum():.0%} of the pools"
    return _grpo(
        usual,
        report,
        f"{share} of the log has {usual} {'response' if usual == 1 else 'responses'}, and GRPO's "
        "advantages are assumed",
        assumed=False,
    )


def _grpo(n: int, report: LogReport, why: str, *, assumed: bool) -> Now:
    if n == 1:
        mean = report.pass_rate.value
        policy = Policy.preset("reinforce", group_size=1, baseline=round(mean, 3))
        return Now(policy, "one response, mean pass rate as baseline", assumed=True, why=why)
    return Now(Policy.preset("grpo", group_size=n), f"GRPO, n = {n}", assumed, why)


def _of_policy(policy: Policy, why: str) -> Now:
    if has_efficiency(policy):
        return Now(policy, policy.label, assumed=False, why=why)
    if isinstance(policy.budget, Refill):
        # A group that is drawn in place of another is a group like any other: per response they are the same.
        n = policy.n
        plain = Policy.preset("grpo", group_size=n, no_signal="leave_out")
        why = f"{why}; per response its groups are those of GRPO, n = {n}"
        return Now(plain, policy.label, assumed=False, why=why)
    msg = (
        f"the policy {policy.label!r} shares its budget across the batch, so what one response of it is worth has no "
        "exact "
        "value; give the nearest policy without such a budget, for example --now grpo:group_size=8"
    )
    raise InputError(msg)
