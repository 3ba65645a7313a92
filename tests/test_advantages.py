"""Advantage rules: by hand, and of rewards against of classes."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit import Allocator
from ada_bandit.advantages import (
    HADW,
    NGRPO,
    PKPO,
    Advantage,
    Cell,
    ClassWeights,
    ConstantBaseline,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MaxRL,
    PoolMean,
    Shrunk,
    Unbiased,
    advantage_from_dict,
)
from ada_bandit.budgets import Rounds
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, Uniform
from ada_bandit.policy import Policy
from ada_bandit.rules import Never, Positive

NAN = math.nan
REWARD_RULES: list[Advantage] = [
    PoolMean(),
    GroupMean(),
    GroupStd(),
    GroupStd(eps=0),
    LeaveOneOut(),
    MaxRL(),
    MaxRL(power=0.5, eps=0.01),
    MaxRL(pool=True, eps=0),
    NGRPO(),
    ConstantBaseline(0.25),
    HADW(),
    Shrunk(),
]
UNCENTRED = MaxRL(eps=0, centred=False)


def cell(pos: int, neg: int, keep_pos: int, keep_neg: int, estimate: float = NAN) -> Cell:
    pools, kept = np.array([[pos], [neg]]), np.array([[keep_pos], [keep_neg]])
    mean_pos, mean_neg = kept.astype(np.float64)
    return Cell(pools[0], pools[1], kept[0], kept[1], mean_pos, mean_neg, np.array([estimate]), group_size=4)


@pytest.mark.parametrize(
    ("rule", "counts", "expected"),
    [
        (PoolMean(), (2, 6, 2, 2), (0.75, -0.25)),
        (GroupMean(), (2, 6, 2, 2), (0.5, -0.5)),
        (GroupMean(), (2, 6, 1, 3), (0.75, -0.25)),
        # Deviation of (1, 0, 0, 0) with n - 1: sqrt((9 + 1 + 1 + 1) / 16 / 3) = 1/2.
        (GroupStd(eps=0), (2, 6, 1, 3), (1.5, -0.5)),
        (GroupStd(eps=0.5), (2, 6, 1, 3), (0.75, -0.25)),
        (GroupStd(), (3, 3, 2, 2), (0.5 / (math.sqrt(1 / 3) + 1e-4), -0.5 / (math.sqrt(1 / 3) + 1e-4))),
        (LeaveOneOut(), (2, 6, 2, 2), (1 - 1 / 7, -2 / 7)),
        (MaxRL(eps=0), (2, 6, 1, 3), (3, -1)),
        (MaxRL(eps=0, pool=True), (2, 6, 1, 3), (3, -1)),
        (MaxRL(eps=0.25, pool=True), (2, 6, 2, 2), (1.5, -0.5)),
        (MaxRL(power=0.5, eps=0), (2, 6, 1, 3), (1.5, -0.5)),
        (MaxRL(eps=0), (0, 4, 0, 4), (1, 0)),
        (MaxRL(eps=0, centred=False), (2, 6, 1, 3), (4, 0)),
        (MaxRL(eps=0, centred=False), (0, 4, 0, 4), (1, 0)),
        # grpo without eps is (1.5, -0.5); the mean 1/4 is 1/4 below the centre.
        (HADW(eps=0), (2, 6, 1, 3), (1.5 * 1.3 * math.exp(0.25), -0.5 * 1.3 * math.exp(-0.25))),
        (HADW(eps=0, centre=0.0, scale=1), (2, 6, 1, 3), (1.5 * math.exp(-0.25), -0.5 * math.exp(0.25))),
        (HADW(), (0, 4, 0, 4), (0, 0)),
        # Means of the others 1/7 and 2/7; 0.2 of the way to 0.5.
        (Shrunk(), (2, 6, 2, 2), (1 - 0.8 / 7 - 0.1, -0.8 * 2 / 7 - 0.1)),
        (Shrunk(0), (2, 6, 2, 2), (6 / 7, -2 / 7)),
        (Shrunk(1, 0.3), (2, 6, 2, 2), (0.7, -0.3)),
        (ConstantBaseline(), (2, 6, 1, 3), (0.5, -0.5)),
        (ConstantBaseline(0.2), (8, 0, 4, 0), (0.8, -0.2)),
        (ClassWeights(), (8, 0, 4, 0), (1, -1)),
        (ClassWeights(0.1), (2, 6, 1, 3), (0.1, -1)),
        (ClassWeights(2, 0.5, mixed=True), (2, 6, 1, 3), (2, 0.5)),
        (ClassWeights(2, 0.5, mixed=True), (2, 6, 0, 4), (0, 0)),
        (PKPO(2, centred=False), (2, 6, 1, 3), (1, 0)),
        (PKPO(2, centred=False), (2, 6, 2, 2), (2 / 3, 0)),
        # A correct one is worth C(3, 1) / C(3, 1) = 1 where it is alone, C(2, 1) / C(3, 1) = 2/3 where there are two.
        (PKPO(2), (2, 6, 1, 3), (1, -1 / 3)),
        (PKPO(2), (2, 6, 2, 2), (2 / 3 * 2 / 3, -2 / 3 * 2 / 3)),
        (PKPO(1), (2, 6, 2, 2), (1 - 1 / 3, -2 / 3)),
        (PKPO(1), (1, 0, 1, 0), (1, 0)),
        (PKPO(4), (2, 6, 2, 2), (0, 0)),
        (PKPO(5), (2, 6, 2, 2), (0, 0)),
        # Rewards 0, 0, 0, 0 and one more of 1: mean 1/5, deviation sqrt((4/25 * 4 + ... ) / 4) = sqrt(1/5).
        (NGRPO(eps=0), (0, 4, 0, 4), (0.8 / math.sqrt(1 / 5), -0.2 / math.sqrt(1 / 5))),
        (NGRPO(), (4, 0, 4, 0), (0, 0)),
    ],
)
def test_by_hand(rule: Advantage, counts: tuple[int, int, int, int], expected: tuple[float, float]) -> None:
    adv_pos, adv_neg = rule.of_classes(cell(*counts))
    assert (adv_pos[0], adv_neg[0]) == pytest.approx(expected, rel=1e-14)


def test_unbiased_by_hand() -> None:
    # n = 4, e = 0.2, b = 0.25: 4 * 0.2 * 0.75 / 1 and -4 * 0.8 * 0.25 / 3.
    adv_pos, adv_neg = Unbiased(0.25).of_classes(cell(2, 6, 1, 3, estimate=0.2))
    assert (adv_pos[0], adv_neg[0]) == pytest.approx((0.6, -0.8 / 3), rel=1e-14)


@pytest.mark.parametrize("eps", [0.0, 1e-4])
@pytest.mark.parametrize(("keep_pos", "keep_neg"), [(4, 0), (0, 4), (1, 0), (0, 1)])
def test_group_std_is_exactly_zero_without_signal(keep_pos: int, keep_neg: int, eps: float) -> None:
    adv_pos, adv_neg = GroupStd(eps).of_classes(cell(keep_pos, keep_neg, keep_pos, keep_neg))
    assert (adv_pos[0], adv_neg[0]) == (0, 0)


def test_leave_one_out_of_a_single_response_is_its_reward() -> None:
    assert LeaveOneOut().of_classes(cell(1, 0, 1, 0))[0] == 1
    assert LeaveOneOut().of_classes(cell(0, 1, 0, 1))[1] == 0


@st.composite
def batches(draw: st.DrawFn) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Draw correct, scored and kept flags ``[prompt, response]``, the later ones subsets of the earlier."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.2, 0.6, 1.0]))
    scored = rng.random(shape) < density
    return rng.random(shape) < 0.5, scored, scored & (rng.random(shape) < density)


@given(batch=batches(), rule=st.sampled_from([*REWARD_RULES, UNCENTRED]))
def test_of_rewards_equals_of_classes(batch: tuple[npt.NDArray[np.bool_], ...], rule: Advantage) -> None:
    correct, scored, kept = batch
    rewards = np.where(scored, correct, NAN)
    counts = ((flags & side).sum(axis=1) for flags in (scored, kept) for side in (correct, ~correct))
    pos, neg, keep_pos, keep_neg = counts
    nothing = np.zeros(len(pos))
    of_pos, of_neg = rule.of_classes(Cell(pos, neg, keep_pos, keep_neg, nothing, nothing, nothing, 4))
    expected = np.where(correct, of_pos[:, None], of_neg[:, None])
    values = rule.of_rewards(rewards, scored, kept)
    assert values.shape == rewards.shape
    np.testing.assert_allclose(values[kept], expected[kept], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # Pool (1, 0.5, 0, 0.1), its last one left out of the group; one response without a score.
        (PoolMean(), (0.6, 0.1, -0.4)),
        (GroupMean(), (0.5, 0.0, -0.5)),
        (GroupStd(eps=0), (1.0, 0.0, -1.0)),
        (GroupStd(eps=0.5), (0.5, 0.0, -0.5)),
        (LeaveOneOut(), (1 - 0.2, 0.5 - 1.1 / 3, 0 - 1.6 / 3)),
        (MaxRL(eps=0), (1.0, 0.0, -1.0)),
        (MaxRL(eps=0, pool=True), (1.5, 0.25, -1.0)),
        (UNCENTRED, (2.0, 1.0, 0.0)),
        (ConstantBaseline(0.25), (0.75, 0.25, -0.25)),
        # The group's mean, 1/2, is the centre of the first.
        (HADW(eps=0), (1.3, 0.0, -1.3)),
        (HADW(eps=0, centre=0.25, scale=1), (math.exp(-0.25), 0.0, -math.exp(0.25))),
        (Shrunk(0.5, 0.3), (1 - 0.1 - 0.15, 0.5 - 0.55 / 3 - 0.15, 0 - 0.8 / 3 - 0.15)),
        # With one more reward of 1: mean 5/8, deviation sqrt((9 + 9 + 1 + 25) / 64 / 3).
        (NGRPO(eps=0), (0.375 / math.sqrt(44 / 192), -0.125 / math.sqrt(44 / 192), -0.625 / math.sqrt(44 / 192))),
    ],
)
def test_shaped_rewards_by_hand(rule: Advantage, expected: tuple[float, ...]) -> None:
    rewards = np.array([[1.0, 0.5, NAN, 0.0, 0.1]])
    scored = ~np.isnan(rewards)
    kept = np.array([[True, True, False, True, False]])
    given_rewards = rewards.copy()
    np.testing.assert_allclose(rule.of_rewards(rewards, scored, kept)[kept], expected, rtol=1e-14, atol=1e-16)
    np.testing.assert_array_equal(rewards, given_rewards)


@pytest.mark.parametrize("eps", [0.0, 1e-4])
@pytest.mark.parametrize("size", [1, 3, 7, 10])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, -0.7, 1e-9])
def test_group_std_of_constant_shaped_rewards_is_exactly_zero(reward: float, size: int, eps: float) -> None:
    rewards = np.full((1, size + 1), reward)
    rewards[0, -1] = NAN
    kept = ~np.isnan(rewards)
    np.testing.assert_array_equal(GroupStd(eps).of_rewards(rewards, kept, kept)[kept], 0)


@pytest.mark.parametrize("rule", REWARD_RULES)
def test_of_rewards_takes_a_single_row_and_an_empty_pool(rule: Advantage) -> None:
    rewards, kept = np.array([1.0, 0.0, 0.0, 1.0]), np.ones(4, dtype=np.bool_)
    row = rule.of_rewards(rewards, kept, kept)
    np.testing.assert_allclose(row, rule.of_rewards(rewards[None], kept[None], kept[None])[0], rtol=1e-15)
    assert np.sign(row).tolist() == [1, -1, -1, 1]
    assert rule.of_rewards(np.full((1, 2), NAN), np.zeros((1, 2), np.bool_), np.zeros((1, 2), np.bool_)).shape == (1, 2)


@pytest.mark.parametrize("reward", [-1.0, -1e-9])
def test_max_rl_refuses_rewards_below_zero(reward: float) -> None:
    allocator = Allocator(Policy(Never(), Rounds(3), 3, All(), MaxRL()), 1)
    request = allocator.ask()
    with pytest.raises(InputError, match=f"'max_rl' has no meaning for rewards below 0; got {reward:g} for id 1"):
        allocator.tell(request.ids, [1.0, reward, NAN])


def test_rules_that_weigh_correctness_and_not_rewards() -> None:
    assert not Unbiased().uses_rewards
    assert not PKPO().uses_rewards
    assert not ClassWeights().uses_rewards
    assert all(rule.uses_rewards for rule in REWARD_RULES)
    flags = np.ones((1, 2), dtype=np.bool_)
    with pytest.raises(NotImplementedError, match="unbiased"):
        Unbiased().of_rewards(np.ones((1, 2)), flags, flags)


@pytest.mark.parametrize("baseline", [0.25, 0.0])
def test_unbiased_refuses_groups_that_leave_a_class_out(baseline: float) -> None:
    policy = Policy(Positive(), Rounds(2, 2), group_size=1, advantage=Unbiased(baseline))
    with pytest.raises(InputError, match=r"group_size = 1 leaves one out; use group_size >= 2, the group rule 'unif"):
        _ = policy.tables


@pytest.mark.parametrize(
    "policy",
    [
        Policy(Positive(), Rounds(2, 2), group_size=2, advantage=Unbiased()),
        Policy(Positive(), Rounds(2, 2), group_size=1, group=Uniform(), advantage=Unbiased()),
        Policy(Positive(), Rounds(2, 2), group_size=1, group=Balanced(), advantage=Unbiased(1.0)),
    ],
)
def test_unbiased_accepts_the_remedies_that_its_error_names(policy: Policy) -> None:
    assert np.isfinite(policy.tables.adv_pos).all()


@pytest.mark.parametrize(
    "rule",
    [
        *(*REWARD_RULES, UNCENTRED, GroupStd(0.01), Unbiased(), Unbiased(0.25)),
        *(PKPO(3), PKPO(2, centred=False), ClassWeights(0.1)),
    ],
)
def test_plain_values_round_trip(rule: Advantage) -> None:
    assert advantage_from_dict(rule.to_dict()) == rule
    assert advantage_from_dict(rule) is rule


def test_a_class_or_a_name_stands_for_the_rule_with_its_defaults() -> None:
    assert advantage_from_dict(GroupStd) == advantage_from_dict("group_std") == GroupStd(eps=1e-4)
    assert advantage_from_dict("unbiased") == Unbiased(baseline=0.5)
    assert GroupStd().to_dict() == {"name": "group_std", "eps": 1e-4}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GroupStd(-1e-4), r"eps must be a finite number in \[0, inf\); got -0\.0001"),
        (lambda: GroupStd(NAN), r"eps must be a finite number in \[0, inf\); got nan"),
        (lambda: GroupStd("small"), "eps must be a finite number.*got 'small'"),  # type: ignore[arg-type]
        (lambda: MaxRL(-1), r"power must be a finite number in \[0, inf\); got -1"),
        (lambda: MaxRL(pool=1), "pool must be true or false; got 1"),  # type: ignore[arg-type]
        (lambda: MaxRL(centred="no"), "centred must be true or false; got 'no'"),  # type: ignore[arg-type]
        (lambda: ConstantBaseline(NAN), "baseline must be a finite number"),
        (lambda: ClassWeights(math.inf), "positive must be a finite number"),
        (lambda: ClassWeights(mixed=1), "mixed must be true or false; got 1"),  # type: ignore[arg-type]
        (lambda: HADW(scale=-1), r"scale must be a finite number in \[0, inf\); got -1"),
        (lambda: Shrunk(1.5), r"weight must be a finite number in \[0, 1\]; got 1\.5"),
        (lambda: PKPO(0), "k must be a whole number of at least 1; got 0"),
        (lambda: Unbiased(1.5), r"baseline must be a finite number in \[0, 1\]; got 1\.5"),
        (lambda: advantage_from_dict("group_sd"), r"unknown advantage 'group_sd'; did you mean 'group_std'\?"),
        (lambda: advantage_from_dict({"name": "group_std", "epsilon": 1}), r"'epsilon' of .*; did you mean 'eps'\?"),
        (lambda: advantage_from_dict({"eps": 1}), r"such as \{name = 'group_std', eps = 1e-4\}; got \{'eps': 1\}"),
    ],
)
def test_values_that_advantages_refuse(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()
