"""Policies travel: by pickle, to spawned processes and through joblib; and what they print stays short."""

import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

from ada_bandit import Beta, EmpiricalBayes, Policy, Positive, Rounds, ScoreModel, bayes_policy, exit_rule
from ada_bandit.advantages import Calibrated
from ada_bandit.laws import Grid, Mixture
from ada_bandit.policy import AnyPolicy, Blend
from ada_bandit.presets import PRESETS
from ada_bandit.rule_files import load_rules
from ada_bandit.rules import Posterior
from ada_bandit.specs import read_policy
from ada_bandit.tables import Tables


@exit_rule
def streak(pos: np.ndarray, neg: np.ndarray, *, length: int = 3) -> np.ndarray:
    return (pos >= length) | (neg >= length)


SEEN = """
from ada_bandit import exit_rule

@exit_rule
def seen(pos, neg, *, most=5):
    return pos + neg >= most
"""
BUDGET = Rounds(samples=2, rounds=8)
RATES = Grid(np.linspace(0.01, 0.99, 129))
POLICIES = {
    **{name: Policy.preset(name) for name in PRESETS},
    "user rule": Policy(streak, BUDGET, 4),
    "user rule with options, combined": Policy(streak.with_options(length=5) & ~streak, BUDGET, 4),
    "posterior": Policy(Posterior(0.2, 0.8, prior=Mixture((Beta(1, 2), RATES), (0.5, 0.5))), BUDGET, 4),
    "calibrated": Policy(Positive(1), BUDGET, 4, advantage=Calibrated("mean", RATES)),
    "bayes, K = 128": bayes_policy(Beta(0.5, 1), ScoreModel(noise_ratio=10.0), max_samples=128),
    "bayes, split": bayes_policy(Beta(1, 1), ScoreModel(update_cost=0.5), samples=2, max_samples=16, group_size=4),
    "learned": EmpiricalBayes(model=ScoreModel(noise_ratio=2.0), max_samples=128).policy,
}


def draws(policy: AnyPolicy) -> int:
    """Compile a policy: what a worker does first."""
    return sum(int(part.tables.draws.sum()) for _, part in policy.parts)


def same(one: Tables, other: Tables) -> bool:
    names = ("draws", "resolved", "keep", "keep_pos", "keep_neg", "adv_pos", "adv_neg", "chance", "signal")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_pickled_policy_is_the_same(name: str, compiled: bool) -> None:
    policy = POLICIES[name]
    if compiled:
        _ = policy.tables
    again = pickle.loads(pickle.dumps(policy))  # noqa: S301 - our own bytes
    assert again == policy
    assert again.label == policy.label
    assert same(again.tables, policy.tables)
    assert not again.tables.draws.flags.writeable


def test_a_pickled_blend_is_the_same() -> None:
    blend = Blend(Policy.preset("bayes", max_samples=8), Policy.preset("bayes", max_samples=8, noise_ratio=5.0), 0.25)
    again = pickle.loads(pickle.dumps(blend))  # noqa: S301 - our own bytes
    assert again == blend
    assert draws(again) == draws(blend)


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_policy_prints_is_short(name: str) -> None:
    assert len(repr(POLICIES[name])) < 500


@pytest.mark.slow
def test_policies_reach_spawned_processes_and_joblib(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(SEEN)
    policies = [
        Policy(streak, BUDGET, 4),
        read_policy(f"{file}:seen,most=3,rounds=2"),
        POLICIES["bayes, K = 128"],
    ]
    wanted = [draws(policy) for policy in policies]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(draws, policies) == wanted
    joblib = pytest.importorskip("joblib")
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(draws)(policy) for policy in policies) == wanted


def test_a_rule_of_a_file_needs_the_file_no_more_once_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(SEEN)
    rule = load_rules([file])["seen"]
    data = pickle.dumps(Policy(rule, BUDGET, 4))
    file.unlink()
    again = pickle.loads(data)  # noqa: S301 - our own bytes
    assert again.rule == rule
    # At most 5 responses and the rest of a round of 2.
    assert int((again.tables.draws.sum(axis=1) > 0).sum()) == 5


def test_two_rules_of_one_name_are_two_rules() -> None:
    def make(least: int) -> Policy:
        @exit_rule
        def mine(pos: np.ndarray, neg: np.ndarray) -> np.ndarray:
            return pos >= least

        return Policy(mine, BUDGET, 4)

    one, two = make(1), make(2)
    assert one != two
    assert one.rule.name == two.rule.name == "mine"
    assert (one.tables.resolved[1, 0], two.tables.resolved[1, 0]) == (True, False)
