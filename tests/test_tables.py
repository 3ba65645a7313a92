"""Compiled tables: literal pictures, and the chance in groups that are split at random."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ada_bandit.advantages import GroupMean, GroupStd
from ada_bandit.budgets import Budget, Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, GroupRule, Uniform
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, ExitRule, Never, Positive, Quota
from ada_bandit.tables import draw_lattice
from tests.naive_tables import class_advantages, splits

SMALL = Policy(Positive(), Rounds(2, 2), group_size=2)


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        (
            "draws",
            [
                "pos",
                "  4 |  .",
                "  3 |  .  .",
                "  2 |  +  .  +",
                "  1 |  .  +  .  +",
                "  0 |  2  .  2  .  x",
                "    +---------------",
                "       0  1  2  3  4  neg",
            ],
        ),
        (
            "keep_pos",
            [
                "pos",
                "  4 |  .",
                "  3 |  .  .",
                "  2 |  2  .  1",
                "  1 |  .  1  .  1",
                "  0 |  -  .  -  .  0",
                "    +---------------",
                "       0  1  2  3  4  neg",
            ],
        ),
        (
            "keep_neg",
            [
                "pos",
                "  4 |  .",
                "  3 |  .  .",
                "  2 |  0  .  1",
                "  1 |  .  1  .  1",
                "  0 |  -  .  -  .  2",
                "    +---------------",
                "       0  1  2  3  4  neg",
            ],
        ),
        (
            "adv_pos",
            [
                "pos",
                "  4 |     .",
                "  3 |     .     .",
                "  2 | +0.00     . +0.50",
                "  1 |     . +0.50     . +0.75",
                "  0 |     -     .     -     . +0.00",
                "    +------------------------------",
                "          0     1     2     3     4  neg",
            ],
        ),
        (
            "adv_neg",
            [
                "pos",
                "  4 |     .",
                "  3 |     .     .",
                "  2 | +0.00     . -0.50",
                "  1 |     . -0.50     . -0.25",
                "  0 |     -     .     -     . +0.00",
                "    +------------------------------",
                "          0     1     2     3     4  neg",
            ],
        ),
    ],
)
def test_picture_of_a_small_policy(table: str, lines: list[str]) -> None:
    assert draw_lattice(SMALL.tables, table).split("\n") == lines


def test_picture_is_cut_to_the_size_asked_for() -> None:
    policy = Policy(Balance(2), Stages((8, 16)), group_size=4)
    assert draw_lattice(policy.tables, size=3).split("\n") == [
        "pos",
        "  2 |  .  .  .",
        "  1 |  .  .  .",
        "  0 |  8  .  .",
        "    +---------",
        "       0  1  2  neg",
    ]


@pytest.mark.parametrize("size", [0, -3, 2.5, True])
def test_size_of_a_picture_is_a_count(size: int) -> None:
    with pytest.raises(InputError, match=f"size must be a whole number of at least 1; got {size!r}"):
        draw_lattice(SMALL.tables, size=size)


def test_unknown_table_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown table 'keep_positive'; did you mean 'keep_pos'\?"):
        draw_lattice(SMALL.tables, "keep_positive")


def test_tables_of_a_small_policy() -> None:
    tables = SMALL.tables
    assert tables.max_samples == 4
    assert set(zip(*(axis.tolist() for axis in np.nonzero(tables.exits)), strict=True)) == {
        (2, 0),
        (1, 1),
        (2, 2),
        (1, 3),
        (0, 4),
    }
    np.testing.assert_array_equal(tables.resolved, np.indices((5, 5))[0] > 0)
    assert tables.signal.tolist()[1] == [0, 1, 1, 1, 1]
    assert tables.keep.tolist()[0] == [0, 1, 2, 2, 2]
    assert not tables.random_split
    assert SMALL.tables is tables


def test_tables_can_not_be_written_to() -> None:
    tables, random = SMALL.tables, replace(SMALL, group=Uniform()).tables
    parts = (tables.draws, tables.resolved, tables.keep_pos, tables.adv_neg, tables.signal, tables.chance)
    for table in (*parts, random.chance, random.keep_pos, random.adv_neg):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 1


def test_advantage_of_a_class_that_is_not_kept_is_zero() -> None:
    for advantage in ("pool_mean", "group_mean", "leave_one_out", "unbiased"):
        tables = Policy(Balance(4), Rounds(4, 2), group_size=4, advantage=advantage).tables  # type: ignore[arg-type]
        assert not tables.adv_pos[tables.keep_pos == 0].any()
        assert not tables.adv_neg[tables.keep_neg == 0].any()
        assert np.isfinite(tables.adv_pos).all()
        assert np.isfinite(tables.adv_neg).all()


def test_uniform_groups_follow_the_hypergeometric_law() -> None:
    policy = Policy(Never(), Rounds(9), group_size=4, group=Uniform(), advantage=GroupStd(eps=0.25))
    tables = policy.tables
    assert tables.random_split
    for pos, neg in np.argwhere(tables.exits):
        law = stats.hypergeom(pos + neg, pos, 4)
        assert tables.keep[pos, neg] == 4
        assert tables.mean_keep_pos[pos, neg] == pytest.approx(4 * pos / 9, rel=1e-13)
        assert tables.mean_keep_neg[pos, neg] == pytest.approx(4 * neg / 9, rel=1e-13)
        np.testing.assert_allclose(tables.chance[:, pos, neg], law.pmf(np.arange(5)), rtol=1e-12, atol=1e-15)
        assert tables.signal[pos, neg] == pytest.approx(1 - law.pmf(0) - law.pmf(4), abs=1e-13)
        gain = 0.0
        for k in range(1, 4):
            deviation = math.sqrt(k * (4 - k) / 12)
            gain += law.pmf(k) * k * (1 - k / 4) / (deviation + 0.25)
            if tables.chance[k, pos, neg]:
                assert (tables.keep_pos[k, pos, neg], tables.keep_neg[k, pos, neg]) == (k, 4 - k)
                assert tables.adv_pos[k, pos, neg] == pytest.approx((1 - k / 4) / (deviation + 0.25), rel=1e-12)
                assert tables.adv_neg[k, pos, neg] == pytest.approx(-k / 4 / (deviation + 0.25), rel=1e-12)
        assert tables.gain_pos[pos, neg] == pytest.approx(gain, rel=1e-12, abs=1e-14)
        assert tables.gain_neg[pos, neg] == pytest.approx(-gain, rel=1e-12, abs=1e-14)
        means = (tables.mean_keep_pos, tables.mean_adv_pos, tables.mean_keep_neg, tables.mean_adv_neg)
        keep_pos, adv_pos, keep_neg, adv_neg = (table[pos, neg] for table in means)
        assert keep_pos * adv_pos == pytest.approx(gain, rel=1e-12, abs=1e-14)
        assert keep_neg * adv_neg == pytest.approx(-gain, rel=1e-12, abs=1e-14)


def test_advantages_are_those_of_the_rule_where_the_split_is_fixed() -> None:
    for advantage in ("pool_mean", "group_mean", "group_std", "leave_one_out", "unbiased"):
        policy = Policy(Balance(4), Rounds(4, 2), group_size=3, advantage=advantage)  # type: ignore[arg-type]
        tables = policy.tables
        pos, neg = np.nonzero(tables.exits)
        keep_pos, keep_neg = tables.keep_pos[pos, neg], tables.keep_neg[pos, neg]
        assert keep_pos.dtype == keep_neg.dtype == np.int64
        adv_pos, adv_neg = class_advantages(policy, pos, neg, keep_pos, keep_neg)
        kept = keep_pos > 0
        np.testing.assert_array_equal(adv_pos[kept], tables.adv_pos[pos, neg][kept])
        kept = keep_neg > 0
        np.testing.assert_array_equal(adv_neg[kept], tables.adv_neg[pos, neg][kept])


def test_advantages_of_a_random_split_use_what_was_kept() -> None:
    policy = Policy(Never(), Rounds(6), group_size=3, group=Uniform(), advantage=GroupMean())
    tables = policy.tables
    pools, kept = np.array([[2, 2], [4, 4]]), np.array([[0, 2], [3, 1]])
    ways = (
        class_advantages(policy, pools[0], pools[1], kept[0], kept[1]),
        (tables.adv_pos[kept[0], *pools], tables.adv_neg[kept[0], *pools]),
    )
    for adv_pos, adv_neg in ways:
        assert adv_pos[1] == pytest.approx(1 / 3)
        assert adv_neg.tolist() == pytest.approx([0, -2 / 3])


ADVANTAGES = [
    *("pool_mean", "group_mean", "group_std", "leave_one_out", "max_rl", "pkpo", "ngrpo", "unbiased"),
    {"name": "max_rl", "pool": True, "power": 0.5},
    {"name": "advantage_table", "adv_pos": np.arange(64.0).reshape(8, 8), "adv_neg": -np.eye(8)},
]


@pytest.mark.parametrize("advantage", ADVANTAGES, ids=str)
@pytest.mark.parametrize("group", [Uniform(), Balanced(), All(), All(at_least=5)])
@pytest.mark.parametrize(("rule", "budget"), [(Balance(4), Stages((3, 2, 2))), (Positive(), Rounds(1, 7))])
def test_every_split_of_every_exit_is_that_of_the_rules(
    rule: ExitRule, budget: Budget, group: GroupRule, advantage: Any
) -> None:
    policy = Policy(rule, budget, group_size=3, group=group, advantage=advantage)
    if advantage == "unbiased" and group == All(at_least=5):
        with pytest.raises(InputError, match="must keep a response of every class"):
            _ = policy.tables
        return
    tables = policy.tables
    rows = list(tables.splits())
    assert len(rows) == (4 if group.random_split else 1)
    for pos, neg in np.argwhere(tables.exits).tolist():
        found = {
            (int(row.keep_pos[pos, neg]), int(row.keep_neg[pos, neg])): row for row in rows if row.chance[pos, neg] > 0
        }
        expected = list(splits(policy, pos, neg))
        assert sorted(found) == sorted((k, m) for _, k, m in expected)
        means = np.zeros(5)
        for chance, k, m in expected:
            row = found[k, m]
            of_pos, of_neg = (
                float(one[0]) for one in class_advantages(policy, *(np.array([c]) for c in (pos, neg, k, m)))
            )
            assert row.chance[pos, neg] == pytest.approx(float(chance), rel=1e-13)
            assert row.adv_pos[pos, neg] == pytest.approx(of_pos if k else 0, rel=1e-13, abs=1e-15)
            assert row.adv_neg[pos, neg] == pytest.approx(of_neg if m else 0, rel=1e-13, abs=1e-15)
            means += float(chance) * np.array([k, m, k * of_pos, m * of_neg, k > 0 < m])
        parts = (tables.mean_keep_pos, tables.mean_keep_neg, tables.gain_pos, tables.gain_neg, tables.signal)
        np.testing.assert_allclose([part[pos, neg] for part in parts], means, rtol=1e-12, atol=1e-14)
        assert tables.keep[pos, neg] == sum(expected[0][1:])


def test_uniform_group_of_the_whole_pool_is_the_same_as_all() -> None:
    whole, every = (
        Policy(Quota(1, 1), Rounds(3, 2), group_size=6, group=group, advantage=GroupStd()).tables
        for group in (Uniform(), All())
    )
    for name in ("draws", "keep", "mean_keep_pos", "mean_keep_neg", "mean_adv_pos", "mean_adv_neg", "signal"):
        inside = np.add(*np.indices((7, 7))) <= 6
        np.testing.assert_allclose(getattr(whole, name)[inside], getattr(every, name)[inside], rtol=1e-13, err_msg=name)


@pytest.mark.parametrize(
    ("rule", "positives", "negatives"),
    [
        # Rows for each count of positives, upwards: '+' short, '.' not.
        (Quota(2, 1), ["....", "....", "++++", "++++"], ["+...", "+...", "+...", "+..."]),
        (Positive(2), ["....", "....", "++++", "++++"], ["....", "....", "....", "...."]),
        # Negatives alone can mend what is short of negatives; the other way round nothing helps.
        (Quota(0, 2), ["....", "....", "....", "...."], ["++..", "++..", "++..", "++.."]),
        # A rule that never holds wants nothing but signal.
        (Never(), ["....", "....", "....", "++++"], ["+...", "+...", "+...", "+..."]),
        # Too many positives: nothing helps, and it is not short of either.
        (~Positive(2), ["....", "....", "....", "...."], ["....", "....", "....", "...."]),
    ],
)
def test_what_an_unresolved_prompt_is_short_of(
    rule: Quota | Positive | Never, positives: list[str], negatives: list[str]
) -> None:
    tables = Policy(rule, Rounds(3), group_size=1).tables
    for table, rows in ((tables.short_of_positives, positives), (tables.short_of_negatives, negatives)):
        assert ["".join(".+"[int(short)] for short in row) for row in table[::-1]] == rows
