"""What is trained is what was promised: silent groups, missing scores, prompts never sampled, restarts, blends."""

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ada_bandit import (
    Allocator,
    Beta,
    EmpiricalBayes,
    PassRateMemory,
    Policy,
    ScoreModel,
    analyze,
    frontier,
    gradient_efficiency,
    induced_objective,
    policy_for_budget,
    uniform,
)
from ada_bandit.advantages import LeaveOneOut
from ada_bandit.allocator import Groups, UnscoredError
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.errors import InputError, ProtocolError
from ada_bandit.exact import analyze_law
from ada_bandit.groups import All
from ada_bandit.policy import Blend, policy_from_toml
from ada_bandit.presets import PRESETS
from ada_bandit.rules import Never
from ada_bandit.specs import read_policy
from ada_bandit.steps import FixedPolicy
from ada_bandit.uniforms import Stream

SMALL = {
    "dapo": {"wanted": 3, "group_size": 4, "rounds": 3},
    "greso": {"wanted": 3, "group_size": 4, "rounds": 3},
    "mopps": {"wanted": 3, "group_size": 4},
    "reinforce-ada-seq": {"samples": 4, "rounds": 3, "positives": 2, "negatives": 2, "group_size": 4},
    "pilot-commit": {"pilot": 4, "commit": 8},
    "speed": {"screening": 4, "more": 4},
    "bayes": {"max_samples": 8},
}
"""Options that keep a preset's pools small."""


def preset(name: str, **options: Any) -> Policy:
    return Policy.preset(name, **SMALL.get(name, {}), **options)


def run(policy: Any, prompts: int, reward: Callable[..., Any], seed: int = 0, **options: Any) -> Allocator:
    """Drive a step; `reward` gives rewards, or rewards and correctness, from prompts and draws."""
    allocator = Allocator(policy, prompts, seed, **options)
    while request := allocator.ask():
        told = reward(request.prompts, request.draws)
        allocator.tell(request.ids, *(told if isinstance(told, tuple) else (told,)))
    return allocator


def shaping(prompts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return rewards of incorrect responses that differ by shaping alone: -0.5, 0, 0, -0.5, …."""
    return np.where(draws % 4 % 3 == 0, -0.5, 0.0)


# 1. Silent groups.


def test_a_group_without_signal_has_no_gradient_from_shaping() -> None:
    # r - mean over the deviation of (-0.5, 0, 0, -0.5): 0.25 / (sqrt(1/12) + 1e-4) = 0.866 - 0.0003.
    wanted = 0.25 / (np.sqrt(1 / 12) + 1e-4)
    spec = "dapo:group_size=4,wanted=1,rounds=2"
    kept = run(read_policy(f"{spec},no_signal=keep"), 2, shaping).groups()
    np.testing.assert_allclose(np.abs(kept.advantages), wanted, rtol=1e-12)
    masked = run(read_policy(f"{spec},no_signal=mask"), 2, shaping).groups()
    assert masked.mask.all()
    assert not masked.advantages.any()
    left_out = run(read_policy(spec), 2, shaping).groups()
    assert not left_out.mask.any()
    assert (left_out.ids == -1).all()
    assert not left_out.rewards.any()
    for groups in (kept, masked, left_out):
        assert not groups.signal.any()
        assert groups.silent.all()


@pytest.mark.parametrize("name", ["dapo", "greso", "speed"])
def test_methods_that_train_on_signal_alone_keep_nothing_else(name: str) -> None:
    assert preset(name).no_signal == "leave_out"
    allocator = run(preset(name), 4, shaping)
    assert not allocator.groups().mask.any()
    assert allocator.metrics()["left_out"] == allocator.metrics()["silent"] == 4


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "rloo", "reinforce-ada-pos", "reinforce-ada-balance", "pods"])
def test_the_default_masks_silent_groups(name: str) -> None:
    allocator = run(preset(name), 4, shaping)
    groups = allocator.groups()
    assert groups.mask.all()
    assert not groups.advantages.any()
    assert allocator.metrics()["masked"] == 4


def test_a_policy_that_weighs_groups_of_one_class_on_purpose_goes_on_doing_so() -> None:
    # NGRPO adds a reward of 1: four wrong responses have mean 1/5 and deviation sqrt(1/5).
    groups = run(preset("ngrpo"), 1, lambda prompts, _: np.zeros(prompts.size)).groups()
    assert not groups.silent.any()
    np.testing.assert_allclose(groups.advantages, -0.2 / (np.sqrt(0.2) + 1e-4))
    # One response at a time: nothing could be learned if groups of one class were silent.
    one = Policy(Never(), Rounds(1), 1, All(), LeaveOneOut())
    groups = run(one, 2, lambda prompts, _: prompts).groups()
    np.testing.assert_array_equal(groups.advantages[:, 0], [0.0, 1.0])
    np.testing.assert_array_equal(groups.silent, [True, False])


@pytest.mark.parametrize(("name", "choice"), list(product(PRESETS, ["mask", "leave_out", "keep"])))
@settings(max_examples=30)
@given(data=st.data())
@pytest.mark.slow
def test_rows_in_the_loss_are_those_that_the_policy_says(name: str, choice: str, data: st.DataObject) -> None:
    """No other row has a gradient, no silent group has one unless the policy says so, and metrics count these rows."""
    prompts = data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 2**32))
    rate = data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    shape = data.draw(st.sampled_from(["binary", "shaped", "signed", "with flags"]))
    missing = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
    replace = data.draw(st.sampled_from([0.0, 0.5]))
    policy = preset(name, no_signal=choice, replace=replace)
    if shape == "signed" and policy.tables.least_reward == 0:
        shape = "binary"
    told: dict[int, tuple[float, bool]] = {}
    allocator = Allocator(policy, prompts, seed)
    while request := allocator.ask():
        u, noise, lost = (uniform(seed, stream, request.prompts, request.draws) for stream in (100, 101, 102))
        correct = u < rate
        rewards = {
            "binary": correct * 1.0,
            "shaped": correct * 1.0 + np.round(0.4 * noise, 1) * ~correct,
            "signed": 2.0 * correct - 1.0,
            "with flags": np.round(noise, 1),
        }[shape]
        rewards = np.where(lost < missing, np.nan, rewards)
        allocator.tell(request.ids, rewards, correct if shape == "with flags" else None)
        told |= dict(zip(request.ids.tolist(), zip(rewards.tolist(), correct.tolist(), strict=True), strict=True))
    groups, metrics = allocator.groups(), allocator.metrics()

    # Rows: of the prompt, scored, each once; nothing outside of the mask.
    kept = groups.ids[groups.mask].tolist()
    assert len(set(kept)) == len(kept)
    assert not groups.advantages[~groups.mask].any()
    assert not groups.rewards[~groups.mask].any()
    for prompt, slot in zip(*np.nonzero(groups.mask), strict=True):
        number = int(groups.ids[prompt, slot])
        reward, correct_one = told[number]
        assert allocator.locate(number)[0][0] == prompt
        assert (groups.rewards[prompt, slot], bool(groups.correct[prompt, slot])) == (reward, correct_one)

    # Silent groups: what the tables would give rewards of 0 and 1, the slow way.
    tables = policy.tables
    for prompt in range(prompts):
        rows = groups.mask[prompt]
        pos, neg = int(groups.pos[prompt]), int(groups.neg[prompt])
        positives = int((groups.correct[prompt] & rows).sum())
        if groups.silent[prompt]:
            assert choice == "keep" or not groups.advantages[prompt].any()
            assert choice != "leave_out" or not rows.any()
        else:
            at = (positives, pos, neg) if tables.random_split else (pos, neg)
            assert tables.adv_pos[at] or tables.adv_neg[at]
    scored = [not np.isnan(reward) for reward, _ in told.values()]
    spent = np.bincount([allocator.locate(number)[0][0] for number in told], minlength=prompts)
    sampled = spent > 0
    assert metrics["unsampled"] == int((~sampled).sum())
    assert metrics["unscored"] == len(scored) - sum(scored)
    assert metrics["silent"] == int((groups.silent & sampled).sum())
    both = (groups.correct & groups.mask).any(axis=1) & (~groups.correct & groups.mask).any(axis=1)
    np.testing.assert_array_equal(groups.signal, both)
    if sampled.any() and choice != "leave_out":
        assert metrics["signal_fraction"] == pytest.approx(both.sum() / sampled.sum())
    assert metrics["resolved"] + metrics["exhausted"] + metrics["unsampled"] == prompts
    if replace == 0:
        assert metrics["replaced"] == 0
        assert spent.max(initial=0) <= policy.budget.max_samples


def test_rows_that_count_in_a_denominator_are_analysed_exactly() -> None:
    # GRPO, n = 4: a group is silent with chance p^4 + q^4; under leave_out its 4 rows count nowhere.
    p = np.array([0.1, 0.5])
    np.testing.assert_allclose(analyze(preset("grpo"), p).rows_in_loss, 4)
    left = analyze(preset("grpo", no_signal="leave_out"), p)
    np.testing.assert_allclose(left.rows_in_loss, 4 * (1 - p**4 - (1 - p) ** 4), rtol=1e-14)
    np.testing.assert_allclose(left.gradient_weight, analyze(preset("grpo"), p).gradient_weight)
    # By simulation, for a policy whose pools are stopped.
    policy = preset("reinforce-ada-balance", no_signal="leave_out")
    exact = analyze(policy, 0.05).rows_in_loss
    prompts = 20_000
    groups = run(policy, prompts, lambda i, j: uniform(3, Stream.REWARDS, i, j) < 0.05).groups()
    rows = groups.mask.sum(axis=1)
    assert abs(rows.mean() - exact) < 4 * rows.std() / np.sqrt(prompts)


# 2. Missing scores.


def failing(share: float, rate: float = 0.5, seed: int = 7) -> Callable[..., Any]:
    def reward(prompts: np.ndarray, draws: np.ndarray) -> np.ndarray:
        right = uniform(seed, Stream.REWARDS, prompts, draws) < rate
        return np.where(uniform(seed, 100, prompts, draws) < share, np.nan, right * 1.0)

    return reward


def test_lost_responses_are_replaced_where_the_budget_says_so() -> None:
    short = run(preset("grpo"), 500, failing(0.05)).groups().mask.sum(axis=1)
    # 1 - 0.95^4 = 18.5 % of the groups lack a row.
    assert 0.12 < (short < 4).mean() < 0.25
    allocator = run(preset("grpo", replace=1.0), 500, failing(0.05))
    assert (allocator.groups().mask.sum(axis=1) == 4).all()
    metrics = allocator.metrics()
    assert metrics["replaced"] == metrics["unscored"] == metrics["responses"] - 2000 > 0
    # What is replaced is told in words.
    assert f"; {metrics['replaced']} were drawn in their place" in allocator.summary()


def test_replacements_end_at_their_share() -> None:
    # K = 4 and a share of 1/4: one more response a prompt, whatever happens.
    allocator = run(preset("grpo", replace=0.25), 10, failing(1.0))
    assert allocator.metrics()["responses"] == 50
    assert not allocator.groups().mask.any()
    assert preset("reinforce-ada-balance", replace=0.1).budget.replacements == 4  # ceil(3.2)


def test_a_replaced_response_leaves_the_law_as_it_is() -> None:
    # With every loss replaced, pools are those of a verifier that never fails: exits, cost in scored responses, signal.
    policy = preset("reinforce-ada-pos", replace=1.0)
    allocator = run(policy, 20_000, failing(0.2, rate=0.1))
    groups, exact = allocator.groups(), analyze(policy, 0.1)
    scored = groups.pos + groups.neg
    assert abs(scored.mean() - exact.expected_samples) < 4 * scored.std() / np.sqrt(scored.size)
    assert abs(groups.signal.mean() - exact.signal_probability) < 4 * 0.5 / np.sqrt(scored.size)
    assert set(np.unique(scored)) <= {8, 16, 24, 32}


def test_batch_budgets_replace_before_the_batch_decides() -> None:
    policy = preset("dapo", replace=1.0)
    allocator = run(policy, 12, failing(0.3))
    assert allocator.metrics()["signal_fraction"] > 0
    sampled = np.unique(allocator.groups().mask.sum(axis=1))
    assert set(sampled.tolist()) <= {0, 4}
    # Replacing is no round of the budget: three of them at the most.
    assert allocator.metrics()["rounds"] <= 3


def test_a_share_of_replacements_is_part_of_the_policy() -> None:
    for budget in (Rounds(4, 2, replace=0.5), Stages((4, 8), replace=0.25)):
        policy = Policy(Never(), budget, 4)
        assert Policy.from_toml(policy.to_toml()) == policy
        assert policy != Policy(Never(), budget.with_replacement(0), 4)
    for name in PRESETS:
        policy = preset(name, replace=0.25, no_signal="keep")
        assert Policy.from_toml(policy.to_toml()) == policy
        assert (policy.budget.replace, policy.no_signal) == (0.25, "keep")
    with pytest.raises(InputError, match=r"replace must be a finite number in \[0, 1\]; got 1.5"):
        Rounds(4, replace=1.5)
    with pytest.raises(InputError, match="unknown value 'drop' of no_signal"):
        Policy(Never(), Rounds(4), 4, no_signal="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["reinforce-ada-pos", "reinforce-ada-balance", "grpo", "dapo"])
def test_a_run_can_be_told_to_stop_when_the_verifier_is_down(name: str) -> None:
    spent = run(preset(name), 4, failing(1.0)).metrics()["responses"]
    allocator = Allocator(preset(name), 4, max_unscored=0.5)
    request = allocator.ask()
    allocator.tell(request.ids, [None] * len(request))
    with pytest.raises(UnscoredError, match=r"of the \d+ responses told so far have no score \(100 %\)") as caught:
        allocator.ask()
    assert isinstance(caught.value, RuntimeError)
    assert allocator.metrics()["responses"] == len(request) <= spent
    assert "unscored responses" in allocator.summary()
    # Mended: the run goes on.
    allocator.max_unscored = 1.0
    while request := allocator.ask():
        allocator.tell(request.ids, np.ones(len(request)))
    assert allocator.done


# 3. What was never sampled is no failure.


def test_prompts_that_were_never_sampled_are_no_failures() -> None:
    allocator = run(read_policy("dapo:group_size=8,wanted=4"), 64, lambda _, draws: draws % 2)
    metrics = allocator.metrics()
    assert (metrics["signal_fraction"], metrics["no_signal"], metrics["unsampled"]) == (1.0, 0, 60)
    assert (metrics["resolved"], metrics["exhausted"], metrics["running"]) == (4, 0, 0)
    assert "without signal: 0 of 4 (0.0 %)" in allocator.summary()
    assert "not sampled: 60 of 64" in allocator.summary()


# 4. Restarts.


@pytest.mark.parametrize("name", [*PRESETS, "blend"])
@pytest.mark.parametrize("told", [0.0, 0.5, 1.0])
def test_a_state_survives_json_and_what_is_outstanding_is_asked_for_again(name: str, told: float) -> None:
    policy = POLICIES["blend"]() if name == "blend" else preset(name, replace=0.5)
    reward = failing(0.2, rate=0.4)
    whole = run(policy, 6, reward, seed=5)
    first = Allocator(policy, 6, seed=5)
    request = first.ask()
    some = np.arange(len(request)) < told * len(request)
    first.tell(request.ids[some], reward(request.prompts[some], request.draws[some]))
    again = Allocator(policy, 6, seed=5)
    again.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    rest = again.ask(again=True)
    np.testing.assert_array_equal(rest.ids, request.ids[~some])
    np.testing.assert_array_equal(rest.prompts, request.prompts[~some])
    np.testing.assert_array_equal(rest.draws, request.draws[~some])
    while rest or (rest := again.ask()):
        again.tell(rest.ids, reward(rest.prompts, rest.draws))
        rest = again.ask(again=True)
    assert equal(again.groups(), whole.groups())
    assert again.metrics() == pytest.approx(whole.metrics(), nan_ok=True)


def equal(one: Groups, other: Groups) -> bool:
    return all(np.array_equal(value, vars(other)[key]) for key, value in vars(one).items())


def test_groups_says_how_to_go_on_after_a_restart() -> None:
    allocator = Allocator(preset("grpo"), 2)
    allocator.ask()
    with pytest.raises(
        ProtocolError, match=r"have not been told. Tell them \(ask\(again=True\) returns them once more\)"
    ):
        allocator.groups()


def test_another_policy_is_told_by_what_differs() -> None:
    state = Allocator(preset("bayes", noise_ratio=2.0), 2).state_dict()
    with pytest.raises(InputError, match=r"the state is not this allocator's: policies\[0\]") as caught:
        Allocator(preset("bayes"), 2).load_state_dict(json.loads(json.dumps(state)))
    assert len(str(caught.value)) < 400


def test_memories_and_learned_policies_survive_json_with_tuples_for_keys() -> None:
    keys = [("gsm8k", 3), ("gsm8k", 4), "aime/1", 7]
    steps = EmpiricalBayes(max_samples=8, memory=PassRateMemory(0.5), refit_every=1)
    for step in range(2):
        allocator = steps.allocator(4, step, keys)
        while request := allocator.ask():
            allocator.tell(request.ids, uniform(step, 0, request.prompts, request.draws) < 0.5)
        steps.observe(allocator, keys)
    again = EmpiricalBayes(max_samples=8, memory=PassRateMemory(), refit_every=1)
    again.load_state_dict(json.loads(json.dumps(steps.state_dict())))
    one, other = (each.memory for each in (steps, again))
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.recall(keys).pos, other.recall(keys).pos)
    np.testing.assert_array_equal(steps.allocator(4, 9, keys)._kind, again.allocator(4, 9, keys)._kind)
    assert again.prior == steps.prior


@pytest.mark.parametrize(
    "make", [lambda: EmpiricalBayes(max_samples=4), lambda: FixedPolicy(preset("mopps"), PassRateMemory())]
)
def test_a_step_is_observed_once_also_after_a_restart(make: Callable[[], Any]) -> None:
    steps, keys = make(), list("abcdef")
    allocator = steps.allocator(6, 1, keys if steps.memory is not None else None)
    while request := allocator.ask():
        allocator.tell(request.ids, request.draws % 2)
    steps.observe(allocator, keys if steps.memory is not None else None)
    again = make()
    again.load_state_dict(json.loads(json.dumps(steps.state_dict())))
    for each in (steps, again):
        with pytest.raises(ProtocolError, match="this step was observed before"):
            each.observe(allocator, keys if each.memory is not None else None)


@pytest.mark.parametrize("name", ["maxrl", "reinforce-ada-est"])
def test_rewards_that_have_no_meaning_are_refused_when_they_are_told(name: str) -> None:
    allocator = Allocator(preset(name), 2)
    request = allocator.ask()
    with pytest.raises(
        InputError, match=r"has no meaning for rewards below 0; got -1 for id \d+. Tell rewards of 0 and 1"
    ):
        allocator.tell(request.ids, np.where(request.draws % 2, 1, -1))
    # Nothing was taken: the same ids can be told.
    allocator.tell(request.ids, request.draws % 2)


# 5. Blends.

MODEL = ScoreModel(noise_ratio=10.0)
PRIOR = Beta(0.5, 1)


def blend(budget: float = 6.0) -> Blend:
    return policy_for_budget(PRIOR, budget, MODEL, samples=2, max_samples=16)


POLICIES: dict[str, Callable[[], Any]] = {"blend": blend}


def test_a_blend_is_what_it_promises_exactly() -> None:
    policy = blend()
    assert 0 < policy.weight < 1
    assert policy.expected_cost == pytest.approx(6.0)
    assert analyze_law(policy, PRIOR)["expected_samples"] == pytest.approx(6.0, rel=1e-12)
    # At its best advantages W = V = E[utility].
    efficiency = gradient_efficiency(policy, PRIOR, MODEL)
    assert efficiency.progress == pytest.approx(policy.expected_utility, rel=1e-10)
    assert efficiency.value == pytest.approx(policy.expected_utility / 6.0, rel=1e-10)
    p = np.linspace(0, 1, 7)
    for field in ("expected_samples", "signal_probability", "gradient_weight", "pool_mean_mse", "rows_in_loss"):
        low, high = (getattr(analyze(each, p), field) for each in (policy.low, policy.high))
        np.testing.assert_allclose(getattr(analyze(policy, p), field), (1 - policy.weight) * low + policy.weight * high)
    np.testing.assert_allclose(sum(analyze(policy, p).exit_law.values()), 1)
    np.testing.assert_allclose(
        np.gradient(induced_objective(policy, np.linspace(0.4, 0.6, 2001)), 1e-4)[1000],
        analyze(policy, 0.5).gradient_weight,
        rtol=1e-6,
    )


def test_a_blend_is_drawn_by_seed_and_costs_what_it_should() -> None:
    policy, prompts = blend(), 20_000
    rates = PRIOR.quantile(uniform(1, Stream.PASS_RATES, np.arange(prompts), 0))
    allocator = run(policy, prompts, lambda i, j: uniform(1, Stream.REWARDS, i, j) < rates[i], seed=1)
    spent = np.bincount(allocator.locate(np.nonzero(allocator._status.ravel())[0])[0], minlength=prompts)
    assert abs(spent.mean() - 6.0) < 4 * spent.std() / np.sqrt(prompts)
    share = allocator._kind.mean()
    assert abs(share - policy.weight) < 4 * np.sqrt(policy.weight * (1 - policy.weight) / prompts)
    # A prompt's policy depends on the seed and its number alone.
    np.testing.assert_array_equal(Allocator(policy, 100, 1)._kind, allocator._kind[:100])
    assert "frontier 6" in repr(allocator)


def test_a_blend_is_written_and_read_back() -> None:
    policy = blend()
    again = policy_from_toml(policy.to_toml())
    assert again == policy
    assert isinstance(again, Blend)
    assert again.label == policy.label
    np.testing.assert_array_equal(again.high.tables.adv_pos, policy.high.tables.adv_pos)
    assert read_policy(policy) is policy
    with pytest.raises(InputError, match="this describes a blend of two policies"):
        Policy.from_toml(policy.to_toml())
    with pytest.raises(InputError, match="a blend needs weight, high; got only low"):
        Blend.from_dict({"low": policy.low.to_dict()})
    with pytest.raises(InputError, match="policies of one step must share their budget"):
        Blend(preset("grpo"), preset("reinforce-ada-pos"), 0.5)


def test_every_vertex_and_chord_of_a_frontier_can_be_run() -> None:
    edge = frontier(PRIOR, MODEL, samples=2, max_samples=8)
    for low, high in zip(edge.vertices, edge.vertices[1:], strict=False):
        policy = Blend(low.policy, high.policy, 0.5)
        assert run(policy, 20, lambda prompts, draws: (prompts + draws) % 2).done
        assert analyze_law(policy, PRIOR)["expected_samples"] == pytest.approx((low.cost + high.cost) / 2)


# 6. Rewards as people have them.


@pytest.mark.parametrize(
    "rewards",
    [
        [1, 0, 1, 0],
        (1.0, 0.0, 1.0, 0.0),
        [True, False, True, False],
        np.array([1, 0, 1, 0], dtype=np.int8),
        np.array([1, 0, 1, 0], dtype=np.float16),
        [np.float32(1), np.int64(0), np.True_, np.array(0.0)],
        [Decimal(1), Decimal("0.0"), Fraction(1), 0],
        np.array([1, 0, True, 0.0], dtype=object),
        iter([1, 0, 1, 0]),
    ],
)
def test_rewards_of_any_kind(rewards: Any) -> None:
    allocator = Allocator(preset("grpo"), 1)
    allocator.tell(allocator.ask().ids.tolist(), rewards)
    np.testing.assert_array_equal(allocator.groups().rewards, [[1, 0, 1, 0]])


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (["1", "0", "1", "0"], r"rewards must be numbers.*got '1' \(str\) at place 0 of 4"),
        ("1010", r"got '1010' \(str\) at place 0 of 1"),
        ([1, 0, 1j, 0], r"got 1j \(complex\) at place 2 of 4"),
        (np.array([1, 0, 1j, 0]), r"at place 0 of 4"),
        ([1, 0, [1], 0], r"got \[1\] \(list\) at place 2"),
        (np.ones(2000), r"got rewards of shape \(2000,\) for 4 ids"),
        (np.array(["a"] * 2000), r"at place 0 of 2000"),
    ],
)
def test_what_is_no_reward(rewards: Any, message: str) -> None:
    allocator = Allocator(preset("grpo"), 1)
    request = allocator.ask()
    with pytest.raises(InputError, match=message) as caught:
        allocator.tell(request.ids, rewards)
    assert len(str(caught.value)) < 300


@pytest.mark.torch
def test_tensors_of_any_kind() -> None:
    torch = pytest.importorskip("torch")
    for rewards in (
        torch.tensor([1.0, 0.0, 0.5, 0.25], dtype=torch.bfloat16),
        torch.tensor([1.0, 0.0, 0.5, 0.25], dtype=torch.float64, requires_grad=True),
        [torch.tensor(1.0), torch.tensor([0.0]), torch.tensor(0.5, dtype=torch.bfloat16), 0.25],
    ):
        allocator = Allocator(preset("grpo"), 1)
        allocator.tell(torch.as_tensor(allocator.ask().ids), rewards, torch.tensor([True, False, False, False]))
        np.testing.assert_array_equal(allocator.groups().rewards, [[1, 0, 0.5, 0.25]])
    allocator = Allocator(preset("grpo"), 1)
    with pytest.raises(InputError, match=r"rewards must be numbers"):
        allocator.tell(allocator.ask().ids, torch.ones(4, dtype=torch.complex64))
