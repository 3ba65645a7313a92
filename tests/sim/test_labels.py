"""Labels of policies."""

from __future__ import annotations

from dataclasses import replace

from ada_bandit import Policy
from sim.labels import distinct_labels, first_grpo

GRPO, POS = Policy.preset("grpo"), Policy.preset("reinforce-ada-pos")


def test_labels_are_made_to_differ() -> None:
    policies = [GRPO, POS, GRPO, replace(POS, name="grpo (2)"), GRPO]
    named = distinct_labels(policies)
    assert [policy.label for policy in named] == ["grpo", "reinforce-ada-pos", "grpo (2)", "grpo (2) (2)", "grpo (3)"]
    # Those whose label stays are the same objects: nothing is compiled twice.
    assert named[0] is GRPO
    assert named[1] is POS


def test_the_baseline_is_known_by_its_name() -> None:
    large = Policy.preset("grpo", group_size=16)
    assert first_grpo([POS, large, GRPO]) == 1
    assert first_grpo([POS, replace(GRPO, name="mine")]) is None
