from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit import Allocator, Balance, Never, Policy, Positive, Quota, Rounds, analyze, uniform
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.advantages import AdvantageTable, GroupStd, Unbiased
from ada_bandit.allocator import Groups, Request
from ada_bandit.budgets import BatchBudget, BatchState, Stages
from ada_bandit.errors import AdaBanditError, InputError, ProtocolError
from ada_bandit.groups import All, SplitTable, Uniform
from ada_bandit.history import History
from tests import naive_engine

POLICIES = {
    "pos": Policy.preset("reinforce-ada-pos"),
    "balance": Policy.preset("reinforce-ada-balance"),
    "grpo": Policy.preset("grpo"),
    "one at a time, uniform": Policy(rule=Quota(2, 1), budget=Rounds(1, 13), group_size=5, group=Uniform()),
    "stages, everything kept": Policy(rule=Balance(3), budget=Stages((3, 5, 9)), group_size=4, group=All()),
    "unbiased, uniform": Policy(
        rule=Positive(2),
        budget=Rounds(5, 3),
        group_size=4,
        group=Uniform(),
        advantage=Unbiased(),
    ),
}


def simulated(request: Request, pass_rates: FloatArray, seed: int) -> FloatArray:
    return np.asarray(uniform(seed, 0, request.prompts, request.draws) < pass_rates[request.prompts], dtype=np.float64)


def in_rounds(policy: Policy, pass_rates: FloatArray, seed: int) -> Allocator:
    allocator = Allocator(policy, prompts=pass_rates.size, seed=seed)
    while request := allocator.ask():
        allocator.tell(request.ids, simulated(request, pass_rates, seed))
    return allocator


def assert_same_groups(ours: Groups, theirs: Groups) -> None:
    for name, values in vars(theirs).items():
        np.testing.assert_array_equal(getattr(ours, name), values, err_msg=name)


@pytest.mark.parametrize("name", POLICIES)
def test_pools_and_groups_equal_the_naive_walk_bit_for_bit(name: str) -> None:
    policy, seed = POLICIES[name], 7
    pass_rates = np.linspace(0, 1, 60)
    allocator = in_rounds(policy, pass_rates, seed)
    groups, rounds = allocator.groups(), allocator.state_dict()["rounds"]
    for prompt, pass_rate in enumerate(pass_rates):
        pool = naive_engine.run_prompt(policy, pass_rate, seed, prompt)
        kept = naive_engine.kept_draws(policy, pool, seed, prompt)
        assert (groups.pos[prompt], groups.neg[prompt], rounds[prompt]) == (pool.pos, pool.neg, pool.rounds)
        ids = [prompt * policy.budget.max_samples + draw for draw in kept]
        assert groups.ids[prompt][groups.mask[prompt]].tolist() == ids
        assert groups.correct[prompt][: len(kept)].tolist() == [pool.correct[draw] for draw in kept]
        assert len(kept) >= min(policy.n, len(pool.correct))


@pytest.mark.parametrize("name", ["pos", "balance", "grpo", "stages, everything kept"])
def test_advantages_equal_the_compiled_tables(name: str) -> None:
    policy = POLICIES[name]
    groups = in_rounds(policy, np.linspace(0, 1, 80), seed=2).groups()
    of_pos = policy.tables.adv_pos[groups.pos, groups.neg][:, None]
    of_neg = policy.tables.adv_neg[groups.pos, groups.neg][:, None]
    expected = np.where(groups.mask, np.where(groups.correct, of_pos, of_neg), 0)
    np.testing.assert_array_equal(groups.advantages, expected)


@pytest.mark.parametrize("name", POLICIES)
@given(data=st.data())
def test_order_and_batching_of_replies_change_nothing_nor_does_a_restart(name: str, data: st.DataObject) -> None:
    policy, pass_rates = POLICIES[name], np.linspace(0.05, 0.95, 7)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    expected = in_rounds(policy, pass_rates, seed=1)
    allocator = Allocator(policy, prompts=pass_rates.size, seed=1)
    waiting: list[tuple[int, float]] = []
    asked: list[int] = []
    while not allocator.done:
        request = allocator.ask()
        asked += request.ids.tolist()
        waiting += zip(request.ids.tolist(), simulated(request, pass_rates, 1).tolist(), strict=True)
        rng.shuffle(waiting)
        now, waiting = waiting[: (count := int(rng.integers(1, 12)))], waiting[count:]
        allocator.tell([i for i, _ in now], [r for _, r in now])
        if rng.random() < 0.3:
            state = pickle.loads(pickle.dumps(allocator.state_dict()))  # noqa: S301 - our own bytes
            allocator = Allocator(policy, prompts=pass_rates.size, seed=1)
            allocator.load_state_dict(state)
            assert_same_state(allocator.state_dict(), state)
    assert sorted(asked) == sorted(set(asked)) == expected.state_dict()["ids"]
    assert_same_groups(allocator.groups(), expected.groups())
    assert allocator.metrics() == pytest.approx(expected.metrics(), nan_ok=True)
    assert not allocator.ask()


def assert_same_state(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(ours[key], value, err_msg=key)
        else:
            assert ours[key] == value, key


def test_a_streaming_prompt_goes_on_without_waiting_for_the_others() -> None:
    allocator = Allocator(POLICIES["balance"], prompts=2, seed=0)
    request = allocator.ask()
    assert request.ids.tolist() == [*range(8), *range(32, 40)]
    assert not allocator.ask()
    allocator.tell(request.ids[:8], np.zeros(8))
    follow_up = allocator.ask()
    assert follow_up.prompts.tolist() == [0] * 8
    assert follow_up.draws.tolist() == list(range(8, 16))
    assert not allocator.done
    np.testing.assert_array_equal(allocator.outstanding, [*range(8, 16), *range(32, 40)])


def test_which_rows_are_kept_is_uniform_within_a_class() -> None:
    # 2 positives at draws 0 and 5, 6 negatives of which 2 are kept: each is kept with chance 1/3.
    policy = Policy.preset("reinforce-ada-balance")
    kept = np.zeros(8)
    prompts = 20_000
    allocator = Allocator(policy, prompts=prompts, seed=11)
    request = allocator.ask()
    allocator.tell(request.ids, np.isin(request.draws, (0, 5)))
    groups = allocator.groups()
    kept = np.bincount(groups.ids.ravel() % 32, minlength=8) / prompts
    assert kept[[0, 5]].tolist() == [1, 1]
    others = kept[[1, 2, 3, 4, 6, 7]]
    assert np.abs(others - 1 / 3).max() < 5 * math.sqrt(2 / 9 / prompts)


def test_uniform_groups_have_hypergeometric_class_counts() -> None:
    policy = Policy(rule=Never(), budget=Rounds(8), group_size=4, group=Uniform())
    prompts = 20_000
    allocator = Allocator(policy, prompts=prompts, seed=5)
    request = allocator.ask()
    allocator.tell(request.ids, request.draws < 3)
    seen = np.bincount(allocator.groups().correct.sum(axis=1), minlength=4) / prompts
    expected = np.array([math.comb(3, k) * math.comb(5, 4 - k) for k in range(4)]) / math.comb(8, 4)
    assert np.abs(seen - expected).max() < 5 * math.sqrt(0.25 / prompts)


def test_another_seed_keeps_other_rows_of_the_same_pools() -> None:
    pass_rates = np.full(50, 0.5)
    groups = []
    for seed in (0, 1):
        allocator = Allocator(POLICIES["balance"], prompts=50, seed=seed)
        while request := allocator.ask():
            allocator.tell(request.ids, simulated(request, pass_rates, 0))
        groups.append(allocator.groups())
    np.testing.assert_array_equal(groups[0].pos, groups[1].pos)
    assert (groups[0].ids != groups[1].ids).any()


def step_of_one(policy: Policy, *rounds: list[float | None], correct: list[list[bool]] | None = None) -> Allocator:
    allocator = Allocator(policy, prompts=1)
    for index, rewards in enumerate(rounds):
        request = allocator.ask()
        allocator.tell(request.ids, rewards, None if correct is None else correct[index])
    return allocator


def test_unscored_responses_are_spent_but_in_no_class_and_never_kept() -> None:
    policy = Policy(rule=Balance(2), budget=Rounds(3, 2), group_size=2)
    allocator = step_of_one(policy, [None, 1.0, math.nan], [0.0, None, 1.0])
    groups = allocator.groups()
    assert (groups.pos[0], groups.neg[0], groups.resolved[0]) == (2, 1, True)
    assert set(groups.ids[0].tolist()) <= {1, 3, 5}
    # The baseline is the mean of the three scored responses.
    np.testing.assert_array_equal(np.sort(groups.advantages[0]), [0 - 2 / 3, 1 - 2 / 3])
    assert allocator.metrics()["unscored"] == 3
    assert "unscored responses: 3 (50.0 %)" in allocator.summary()


def test_a_prompt_whose_responses_never_get_a_score_exits_when_its_budget_is_spent() -> None:
    # At the empty cell the table asks for the first stage again, and never for more than is left of five.
    policy = Policy(rule=Positive(), budget=Stages((2, 3)), group_size=2)
    allocator = step_of_one(policy, [None, None], [None, None], [None])
    groups = allocator.groups()
    assert allocator.done
    assert not groups.mask.any()
    assert not groups.resolved.any()
    np.testing.assert_array_equal(groups.ids, [[-1, -1]])
    np.testing.assert_array_equal(groups.advantages, [[0, 0]])
    assert allocator.metrics()["exhausted"] == 1


def test_one_unscored_response_leaves_the_rest_of_its_group_finite() -> None:
    for name in ("grpo", "dr-grpo", "rloo"):
        groups = step_of_one(Policy.preset(name), [1.0, math.nan, 0.0, 0.0]).groups()
        assert np.isfinite(groups.advantages).all()
        assert groups.mask.tolist() == [[True, True, True, False]]
    # Dr. GRPO on (1, 0, 0): reward minus 1/3.
    groups = step_of_one(Policy.preset("dr-grpo"), [1.0, math.nan, 0.0, 0.0]).groups()
    np.testing.assert_allclose(groups.advantages, [[2 / 3, -1 / 3, -1 / 3, 0]], atol=1e-15)


def test_shaped_rewards_keep_their_values_under_reward_baselines() -> None:
    policy = Policy(rule=Balance(2), budget=Rounds(4), group_size=2)
    groups = step_of_one(policy, [0.9, 0.2, 0.1, 0.4]).groups()
    assert (groups.pos[0], groups.neg[0]) == (1, 3)
    np.testing.assert_allclose(groups.advantages, groups.rewards - 0.4, atol=1e-15)
    assert 0.9 in groups.rewards[0]


def test_a_separate_correctness_decides_exits_and_classes() -> None:
    policy = Policy(rule=Positive(2), budget=Rounds(2, 2), group_size=2)
    allocator = step_of_one(policy, [0.1, 0.9], [0.2, 0.3], correct=[[True, False], [True, True]])
    groups = allocator.groups()
    assert (groups.pos[0], groups.neg[0]) == (3, 1)
    np.testing.assert_allclose(groups.advantages, groups.rewards - 1.5 / 4, atol=1e-15)


def test_unbiased_weighs_correctness_whatever_the_reward() -> None:
    policy = Policy(rule=Never(), budget=Rounds(4), group_size=2, advantage=Unbiased())
    shaped = step_of_one(policy, [0.9, 0.1, 0.2, 0.3]).groups()
    # One of four is correct, so e = 1/4; n e (1-b) / keep_pos = 2/4/2 and -n (1-e) b / keep_neg = -2 (3/4) / 2.
    np.testing.assert_allclose(np.sort(shaped.advantages[0]), [-0.75, 0.25], atol=1e-15)


def test_a_constant_shaped_group_has_advantage_exactly_zero() -> None:
    groups = step_of_one(Policy.preset("grpo"), [0.1, 0.1, 0.1, 0.1]).groups()
    np.testing.assert_array_equal(groups.advantages, np.zeros((1, 4)))


def test_the_threshold_is_the_policys() -> None:
    policy = Policy(rule=Positive(), budget=Rounds(2), group_size=2, threshold=0.7)
    assert step_of_one(policy, [0.7, 0.71]).groups().pos.tolist() == [1]


@pytest.mark.parametrize("name", POLICIES)
def test_no_prompts_are_done_at_once(name: str) -> None:
    allocator = Allocator(POLICIES[name], prompts=0)
    assert allocator.done
    assert not allocator.ask()
    assert allocator.groups().ids.shape[0] == 0
    assert allocator.summary() == "0 prompts: nothing was asked for."
    assert allocator.metrics()["responses"] == 0


@pytest.mark.parametrize(("pass_rate", "short"), [(0.0, "no_positive"), (1.0, "no_negative")])
def test_hopeless_and_solved_prompts_exhaust_their_budget_and_are_named(pass_rate: float, short: str) -> None:
    allocator = in_rounds(POLICIES["balance"], np.full(5, pass_rate), seed=0)
    metrics = allocator.metrics()
    assert metrics["responses_per_prompt"] == 32
    assert metrics["exhausted"] == metrics["no_signal"] == metrics[f"unresolved_{short}"] == 5
    assert metrics["pass_rate"] == pass_rate
    np.testing.assert_array_equal(allocator.groups().advantages, np.zeros((5, 4)))


def test_metrics_agree_with_the_exact_analysis() -> None:
    prompts, p = 100_000, 0.2
    policy = POLICIES["balance"]
    metrics = in_rounds(policy, np.full(prompts, p), seed=4).metrics()
    exact = analyze(policy, p)
    tolerance = 5 / math.sqrt(prompts)
    assert abs(metrics["responses_per_prompt"] - exact.expected_samples) < 12 * tolerance
    assert abs(metrics["mean_rounds"] - exact.expected_rounds) < 1.5 * tolerance
    assert abs(metrics["signal_fraction"] - exact.signal_probability) < tolerance
    assert abs(metrics["resolved"] / prompts - exact.resolved_probability) < tolerance
    # Free of the stopping bias, which is 0.038 here.
    assert abs(metrics["pass_rate"] - p) < 0.4 * tolerance
    assert abs(metrics["plain_no_signal"] / prompts - (p**4 + (1 - p) ** 4)) < 0.5 * tolerance


def test_what_plain_sampling_would_have_left_is_not_told_from_rounds_that_are_too_short() -> None:
    policy = Policy(rule=Positive(), budget=Rounds(1, 8), group_size=4)
    allocator = in_rounds(policy, np.full(9, 0.5), seed=0)
    assert math.isnan(allocator.metrics()["plain_no_signal"])
    assert "can't be told from rounds shorter than 4" in allocator.summary()


def test_the_summary_says_what_a_step_did() -> None:
    allocator = Allocator(POLICIES["balance"], prompts=2)
    request = allocator.ask()
    assert "2 still running, 16 responses outstanding" in allocator.summary()
    allocator.tell(request.ids, [1, 1, 1, 1, 0, 0, 0, 0] + [0] * 8)
    for _ in range(3):
        allocator.tell(allocator.ask().ids, np.zeros(8))
    assert allocator.summary().splitlines() == [
        "2 prompts under reinforce-ada-balance: 40 responses, 20.00 a prompt, in 4 rounds (2.50 a prompt)",
        "exited: 1 resolved, 1 exhausted (1 short of positives, 0 of negatives)",
        # (4 choose 4) twice over (8 choose 4) for the first prompt, 1 for the second.
        "without signal: 1 of 2 (50.0 %); 4 plain responses would have left about 1 (51.4 %)",
        "pool pass rate: 0.2500 (unbiased)",
    ]
    html = allocator._repr_html_()
    assert "reinforce-ada-balance" in html
    assert "<td>responses_per_prompt</td><td>20</td>" in html
    assert "done" in repr(allocator)


class TestErrors:
    """Every error quotes the value, names the remedy, and leaves the state as it was."""

    def allocator(self) -> Allocator:
        allocator = Allocator(POLICIES["pos"], prompts=2)
        allocator.ask()
        allocator.tell([3], [1.0])
        return allocator

    @pytest.mark.parametrize(
        ("ids", "rewards", "message"),
        [
            ([0, 3], [0, 0], "id 3 was told before"),
            ([0, 1, 0], [0, 0, 0], "id 0 stands twice in this call"),
            ([0, 9], [0, 0], "id 9 is unknown"),
            ([0, 64], [0, 0], "id 64 is unknown"),
            ([0, -1], [0, 0], "id -1 is unknown"),
            ([0, 1], [0], r"rewards must be one an id; got rewards of shape \(1,\) for 2 ids"),
            ([0], [0, 0], r"got rewards of shape \(2,\) for 1 ids"),
            ([0, 1], [[0, 0]], r"got \[.*\] \(list\) at place 0 of 1"),
            ([0.0], [0], r"ids must be one row of whole numbers from ask\(\); got \[0.0\]"),
            ([[0]], [0], "ids must be one row"),
            (["0"], [0], "ids must be one row"),
            ([0, 1], [0, math.inf], "rewards must be finite, or NaN .*; got inf for id 1"),
            ([0], ["good"], "rewards must be numbers, one an id.*got 'good'"),
        ],
    )
    def test_wrong_replies(self, ids: list[int], rewards: list[float], message: str) -> None:
        allocator = self.allocator()
        before = copy.deepcopy(allocator.state_dict())
        with pytest.raises(InputError, match=message):
            allocator.tell(ids, rewards)
        assert_same_state(allocator.state_dict(), before)
        allocator.tell([0, 1, 2], [0, 0, 0])

    @pytest.mark.parametrize(
        ("correct", "message"),
        [
            ([2], "correct must be booleans or 0/1; got 2.0 for id 0"),
            ([None], "correct must be booleans or 0/1; got nan for id 0"),
            ([1, 0], "correct must be one an id"),
        ],
    )
    def test_wrong_correctness(self, correct: list[Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            self.allocator().tell([0], [1.0], correct)

    def test_groups_before_the_end_names_the_missing_ids(self) -> None:
        with pytest.raises(
            ProtocolError, match=r"2 of 2 prompts are still running: ids 0, 1, 2, 4, 5, … \(15 in all\)"
        ):
            self.allocator().groups()
        with pytest.raises(RuntimeError, match=r"ask\(\) has more to ask for"):
            Allocator(POLICIES["pos"], prompts=1).groups()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("grpo", 4), r"policy must be a Policy; got 'grpo'. For a preset use Policy.preset\('grpo'\)"),
            ((POLICIES["pos"], -1), "prompts must be a whole number of at least 0; got -1"),
            ((POLICIES["pos"], ["a", "b"]), "prompts must be the number of prompts; got 2 of them"),
            ((POLICIES["pos"], 2, -5), "seed must be a whole number of at least 0; got -5"),
            ((POLICIES["pos"], 2.5), "prompts must be a whole number .* got 2.5"),
        ],
    )
    def test_wrong_construction(self, arguments: tuple[Any, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            Allocator(*arguments)
        assert isinstance(caught.value, AdaBanditError)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"prompts": 3}, "the state is not this allocator's: prompts is 3 there and 2 here"),
            ({"seed": 9}, "the state is not this allocator's: seed is 9 there and 0 here"),
            (
                {"policies": [Policy.preset("grpo").to_dict()]},
                r"the state is not this allocator's: policies\[0\]\.rule\.name is 'never' there",
            ),
        ],
    )
    def test_a_state_of_something_else(self, change: dict[str, Any], message: str) -> None:
        allocator = self.allocator()
        with pytest.raises(InputError, match=message):
            allocator.load_state_dict(allocator.state_dict() | change)

    def test_half_a_state(self) -> None:
        allocator = self.allocator()
        state = allocator.state_dict()
        del state["ids"]
        with pytest.raises(InputError, match="the state lacks ids"):
            allocator.load_state_dict(state)


BUDGET = Rounds(3, 4)
SEVERAL = (
    Policy(rule=Balance(2), budget=BUDGET, group_size=4),
    Policy(rule=Positive(2), budget=BUDGET, group_size=4),
    Policy(rule=Never(), budget=BUDGET, group_size=4),
)
SEVERAL_TABLES = tuple(
    Policy(
        rule=rule,
        budget=BUDGET,
        group_size=3,
        group=SplitTable(*np.minimum(np.indices((13, 13)), keep)),
        advantage=AdvantageTable(np.full((13, 13), 1.0 + keep), np.full((13, 13), -0.5 * keep)),
    )
    for keep, rule in enumerate((Balance(2), Never(), Positive()), start=1)
)


class TestSeveralPolicies:
    """One step under several policies is each prompt's own policy, prompt by prompt."""

    @pytest.mark.parametrize("policies", [SEVERAL, SEVERAL_TABLES], ids=["rules", "tables"])
    def test_equals_separate_allocators_bit_for_bit(self, policies: tuple[Policy, ...]) -> None:
        pass_rates, seed = np.linspace(0, 1, 40), 5
        kind = np.arange(40) % 3
        allocator = Allocator(policies, 40, seed, kind=kind)
        alone = [in_rounds(policy, pass_rates, seed) for policy in policies]
        while request := allocator.ask():
            allocator.tell(request.ids, simulated(request, pass_rates, seed))
        groups = allocator.groups()
        theirs = [each.groups() for each in alone]
        width = groups.ids.shape[1]
        for name, values in vars(groups).items():
            for prompt in range(40):
                expected = getattr(theirs[kind[prompt]], name)[prompt]
                if values.ndim == 2:
                    # The widest group of all sets the width.
                    padding = {"ids": -1}.get(name, 0)
                    expected = np.append(expected, np.full(width - min(expected.size, width), padding))[:width]
                np.testing.assert_array_equal(values[prompt], expected, err_msg=name)
        spent = sum(len(each.state_dict()["ids"]) for each in alone)
        assert 0 < allocator.metrics()["responses"] < spent

    def test_metrics_are_those_of_the_prompts_own_policies(self) -> None:
        pass_rates = np.linspace(0, 1, 30)
        kind = np.repeat([0, 1, 2], 10)
        allocator = Allocator(SEVERAL, 30, 1, kind=kind)
        while request := allocator.ask():
            allocator.tell(request.ids, simulated(request, pass_rates, 1))
        metrics = allocator.metrics()
        parts = [in_rounds(policy, pass_rates, 1).groups() for policy in SEVERAL]
        own = np.arange(30), kind
        resolved = np.stack([part.resolved for part in parts], axis=1)[own]
        estimates = np.stack(
            [
                policy.tables.estimate[part.pos, part.neg]
                for policy, part in zip(SEVERAL, parts, strict=True)
            ],
            axis=1,
        )[own]  # fmt: skip
        assert metrics["resolved"] == resolved.sum()
        assert metrics["pass_rate"] == pytest.approx(estimates.mean(), rel=1e-12)
        # `Never` resolves none of the last ten.
        assert not resolved[20:].any()

    @given(data=st.data())
    def test_order_and_restarts_change_nothing(self, data: st.DataObject) -> None:
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        pass_rates, kind = np.linspace(0.1, 0.9, 6), rng.integers(0, 3, 6)

        def new() -> Allocator:
            return Allocator(SEVERAL, 6, 2, kind=kind)

        expected, allocator = new(), new()
        while request := expected.ask():
            expected.tell(request.ids, simulated(request, pass_rates, 2))
        waiting: list[tuple[int, float]] = []
        while not allocator.done:
            request = allocator.ask()
            waiting += zip(request.ids.tolist(), simulated(request, pass_rates, 2).tolist(), strict=True)
            rng.shuffle(waiting)
            now, waiting = waiting[:3], waiting[3:]
            allocator.tell([i for i, _ in now], [r for _, r in now])
            if rng.random() < 0.2:
                state = allocator.state_dict()
                allocator = new()
                allocator.load_state_dict(state)
        assert_same_groups(allocator.groups(), expected.groups())

    def test_shaped_rewards_go_through_the_common_advantage(self) -> None:
        allocator = Allocator(SEVERAL, 2, kind=[1, 2])
        while request := allocator.ask():
            allocator.tell(request.ids, 0.3 + 0.05 * request.draws)
        groups = allocator.groups()
        pools = [0.3 + 0.05 * np.arange(size) for size in (groups.pos + groups.neg)]
        for prompt, pool in enumerate(pools):
            np.testing.assert_allclose(groups.advantages[prompt], groups.rewards[prompt] - pool.mean(), atol=1e-15)

    def test_the_first_is_taken_unless_told(self) -> None:
        allocator = Allocator(SEVERAL, 2)
        assert allocator.policy == SEVERAL[0]
        assert allocator.state_dict()["kind"] == [0, 0]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"budget": Rounds(3, 5)}, r"must share their budget; got Rounds\(samples=3, rounds=4\) and Rounds"),
            ({"group_size": 3}, "must share their group_size; got 4 and 3"),
            ({"group": Uniform()}, "must share their kind of split; got 'fixed' and 'random'"),
            ({"advantage": GroupStd()}, r"must share their advantage; got PoolMean\(\) and GroupStd\(eps=0.0001\)"),
            ({"threshold": 0.7}, "must share their threshold; got 0.5 and 0.7"),
        ],
    )
    def test_policies_that_differ_in_more_are_refused(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Allocator([SEVERAL[0], replace(SEVERAL[1], **change)], 3)

    def test_advantages_of_one_name_must_not_differ_in_what_shaped_rewards_see(self) -> None:
        small, large = (replace(SEVERAL[0], advantage=GroupStd(eps)) for eps in (1e-4, 1.0))
        with pytest.raises(InputError, match="must share their advantage"):
            Allocator([small, large], 3)

    @pytest.mark.parametrize("kind", [[0, 3], [0, -1], [0], [[0, 1]], [0.0, 1.0], [True, False], ["a", "b"], [None, 0]])
    def test_wrong_kinds(self, kind: Any) -> None:
        with pytest.raises(InputError, match="kind must name one of the 3 policies for every prompt, from 0; got"):
            Allocator(SEVERAL, 2, kind=kind)

    @pytest.mark.parametrize("policies", [[], None, [SEVERAL[0], "grpo"]])
    def test_wrong_policies(self, policies: Any) -> None:
        with pytest.raises(InputError, match="policy must be a Policy"):
            Allocator(policies, 2)

    def test_a_state_of_other_kinds(self) -> None:
        state = Allocator(SEVERAL, 2, kind=[0, 1]).state_dict()
        message = r"the state is not this allocator's: kind\[1\] is 1 there and 2 here"
        with pytest.raises(InputError, match=message):
            Allocator(SEVERAL, 2, kind=[0, 2]).load_state_dict(state)
        with pytest.raises(InputError, match="this allocator's: the length of policies is 3 there and 1 here"):
            Allocator(SEVERAL[0], 2).load_state_dict(state)


@dataclass(frozen=True)
class Script(BatchBudget):
    """What a test says, round by round; it keeps what it was shown."""

    name: ClassVar[str] = "script"
    rounds: tuple[tuple[int, ...], ...] = ()
    maximum: int = 5
    shown: list[BatchState] = field(default_factory=list, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "rounds": [list(counts) for counts in self.rounds], "maximum": self.maximum}

    def counts(self, state: BatchState) -> IntArray:
        self.shown.append(state)
        return np.array(self.rounds[state.round] if state.round < len(self.rounds) else [0] * state.pos.size)


class TestBatchBudgets:
    def policy(self, *rounds: tuple[int, ...]) -> Policy:
        return Policy(rule=Positive(), budget=Script(rounds), group_size=2)

    def test_rounds_are_synchronous(self) -> None:
        policy = self.policy((2, 0, 1), (0, 3, 1))
        allocator = Allocator(policy, 3, seed=6)
        request = allocator.ask()
        assert request.prompts.tolist() == [0, 0, 2]
        assert request.ids.tolist() == [0, 1, 10]
        allocator.tell([10, 0], [1, 0])
        # Two of three replies: nothing is asked, nothing is done, no one has exited.
        assert not allocator.ask()
        assert not allocator.done
        assert allocator.metrics()["running"] == 3
        with pytest.raises(ProtocolError, match=r"still running: ids 1 have not been told"):
            allocator.groups()
        allocator.tell([1], [math.nan])
        request = allocator.ask()
        assert request.ids.tolist() == [5, 6, 7, 11]
        allocator.tell(request.ids, [0, 1, 1, 0])
        assert allocator.done
        assert not allocator.ask()
        groups = allocator.groups()
        assert groups.pos.tolist() == [0, 2, 1]
        assert groups.neg.tolist() == [1, 1, 1]
        assert groups.resolved.tolist() == [False, True, True]
        metrics = allocator.metrics()
        # The batch had two rounds, each prompt its own number of them.
        assert (metrics["rounds"], metrics["mean_rounds"]) == (2, 4 / 3)
        assert (metrics["responses"], metrics["unscored"], metrics["running"]) == (7, 1, 0)
        # No draws table is behind it, so nothing is known to be free of bias.
        assert math.isnan(metrics["pass_rate"])
        assert math.isnan(metrics["plain_no_signal"])

    def test_a_budget_sees_the_state_of_the_batch(self) -> None:
        policy = self.policy((2, 1), (1, 0))
        history = History(np.array([1.5, 0]), np.array([0.5, 0]), *np.ones((3, 2), dtype=np.int64))
        allocator = Allocator(policy, 2, seed=9, history=history)
        while request := allocator.ask():
            allocator.tell(request.ids, [math.nan, *np.ones(len(request) - 1)])
        script = policy.budget
        assert isinstance(script, Script)
        assert [state.round for state in script.shown] == [0, 1, 2]
        assert [state.spent.tolist() for state in script.shown] == [[0, 0], [2, 1], [3, 1]]
        assert [state.pos.tolist() for state in script.shown] == [[0, 0], [1, 1], [1, 1]]
        for state in script.shown:
            assert state.group_size == 2
            np.testing.assert_array_equal(state.uniforms(5), uniform(9, 3, np.arange(2), 5))
            np.testing.assert_array_equal(state.history.pos, [1.5, 0])
        # What it does to what it is shown changes nothing.
        script.shown[-1].pos[:] = 9
        assert allocator.groups().pos.tolist() == [1, 1]

    def test_the_history_is_part_of_the_state(self) -> None:
        history = History(np.array([1.8]), np.array([0.9]), np.array([2]), np.array([1]), np.array([0]))
        state = Allocator(self.policy((1,)), 1, history=history).state_dict()
        policy = self.policy((1,))
        allocator = Allocator(policy, 1)
        allocator.load_state_dict(pickle.loads(pickle.dumps(state)))  # noqa: S301 - our own bytes
        assert isinstance(policy.budget, Script)
        for name, value in vars(history).items():
            restored = getattr(policy.budget.shown[-1].history, name)
            assert restored.dtype == value.dtype
            np.testing.assert_array_equal(restored, value)

    def test_a_restart_in_the_middle_of_a_round(self) -> None:
        policy = self.policy((2, 2), (1, 0), (0, 1))
        allocator = Allocator(policy, 2)
        asked: list[int] = []
        for reward in (1, 0, 1, 0, 1, 1):
            asked += allocator.ask().ids.tolist()
            state = allocator.state_dict()
            allocator = Allocator(policy, 2)
            allocator.load_state_dict(state)
            assert_same_state(allocator.state_dict(), state)
            allocator.tell(allocator.outstanding[-1:], [reward])
        assert asked == [0, 1, 5, 6, 2, 7]
        assert allocator.done
        assert allocator.groups().pos.tolist() == [2, 2]

    def test_nothing_wanted_is_done_at_once(self) -> None:
        allocator = Allocator(self.policy((0, 0)), 2)
        assert allocator.done
        assert not allocator.ask()
        groups = allocator.groups()
        assert not groups.mask.any()
        assert groups.ids.shape == (2, 2)
        assert not groups.resolved.any()

    @pytest.mark.parametrize("counts", [(6, 0), (-1, 0), (0,), (0.5, 1)])
    def test_a_budget_that_gives_nonsense_is_told(self, counts: Any) -> None:
        with pytest.raises(InputError, match="the budget 'script' must give each prompt a whole number from 0 to what"):
            Allocator(self.policy(counts), 2)

    def test_a_history_of_other_prompts(self) -> None:
        with pytest.raises(InputError, match="history must hold every prompt; got 3 for 2 prompts"):
            Allocator(self.policy((1, 1)), 2, history=History.empty(3))
