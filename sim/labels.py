"""Policies by their labels: made to differ, and the baseline among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ada_bandit.policy import AnyPolicy

__all__ = ["distinct_labels", "first_grpo"]


P = TypeVar("P", bound=AnyPolicy)


def distinct_labels(policies: Sequence[P]) -> tuple[P, ...]:
    """Return the policies under labels that differ: tables and figures tell them apart by label alone."""
    taken: dict[str, int] = {}
    named = []
    for policy in policies:
        label = policy.label
        while label in taken:
            taken[policy.label] += 1
            label = f"{policy.label} ({taken[policy.label]})"
        taken[label] = 1
        # A renamed policy compiles anew, so only those that need it are renamed.
        named.append(policy if label == policy.label else replace(policy, name=label))
    return tuple(named)


def first_grpo(policies: Sequence[AnyPolicy]) -> int | None:
    """Return the index of the first GRPO, whatever its group size; None where there is none."""
    # By name: it is what the reader asked to be measured against.
    return next((i for i, policy in enumerate(policies) if policy.label.partition(":")[0] == "grpo"), None)
