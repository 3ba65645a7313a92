"""Compiled tables: literal pictures, and the chance in groups that are split at random."""

import math

import numpy as np
import pytest
from scipy import stats

from ada_bandit.advantages import group_mean, group_std
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Uniform
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, Never, Positive, Quota
from ada_bandit.tables import class_advantages, draw_lattice

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
    tables = SMALL.tables
    for table in (tables.draws, tables.resolved, tables.keep_pos, tables.adv_neg, tables.signal):
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
    policy = Policy(Never(), Rounds(9), group_size=4, group=Uniform(), advantage=group_std(eps=0.25))
    tables = policy.tables
    assert tables.random_split
    for pos, neg in np.argwhere(tables.exits):
        law = stats.hypergeom(pos + neg, pos, 4)
        assert tables.keep[pos, neg] == 4
        assert tables.keep_pos[pos, neg] == pytest.approx(4 * pos / 9, rel=1e-13)
        assert tables.signal[pos, neg] == pytest.approx(1 - law.pmf(0) - law.pmf(4), abs=1e-13)
        gain = 0.0
        for k in range(1, 4):
            deviation = math.sqrt(k * (4 - k) / 12)
            gain += law.pmf(k) * k * (1 - k / 4) / (deviation + 0.25)
        assert tables.keep_pos[pos, neg] * tables.adv_pos[pos, neg] == pytest.approx(gain, rel=1e-12, abs=1e-14)
        assert tables.keep_neg[pos, neg] * tables.adv_neg[pos, neg] == pytest.approx(-gain, rel=1e-12, abs=1e-14)


def test_class_advantages_are_those_of_the_tables_where_the_split_is_fixed() -> None:
    for advantage in ("pool_mean", "group_mean", "group_std", "leave_one_out", "unbiased"):
        policy = Policy(Balance(4), Rounds(4, 2), group_size=3, advantage=advantage)  # type: ignore[arg-type]
        tables = policy.tables
        pos, neg = np.nonzero(tables.exits)
        keep_pos, keep_neg = tables.keep_pos[pos, neg].astype(np.int64), tables.keep_neg[pos, neg].astype(np.int64)
        adv_pos, adv_neg = class_advantages(policy, pos, neg, keep_pos, keep_neg)
        kept = keep_pos > 0
        np.testing.assert_array_equal(adv_pos[kept], tables.adv_pos[pos, neg][kept])
        kept = keep_neg > 0
        np.testing.assert_array_equal(adv_neg[kept], tables.adv_neg[pos, neg][kept])


def test_class_advantages_of_a_random_split_use_what_was_kept() -> None:
    policy = Policy(Never(), Rounds(6), group_size=3, group=Uniform(), advantage=group_mean())
    pools, kept = np.array([[2, 2], [4, 4]]), np.array([[0, 2], [3, 1]])
    adv_pos, adv_neg = class_advantages(policy, pools[0], pools[1], kept[0], kept[1])
    assert adv_pos[1] == pytest.approx(1 / 3)
    assert adv_neg.tolist() == pytest.approx([0, -2 / 3])


def test_uniform_group_of_the_whole_pool_is_the_same_as_all() -> None:
    whole, every = (
        Policy(Quota(1, 1), Rounds(3, 2), group_size=6, group=group, advantage=group_std()).tables
        for group in (Uniform(), All())
    )
    for name in ("draws", "keep", "keep_pos", "keep_neg", "adv_pos", "adv_neg", "signal"):
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
        # Too many positives: nothing helps, and it is for want of neither.
        (~Positive(2), ["....", "....", "....", "...."], ["....", "....", "....", "...."]),
    ],
)
def test_what_an_unresolved_prompt_is_short_of(
    rule: Quota | Positive | Never, positives: list[str], negatives: list[str]
) -> None:
    tables = Policy(rule, Rounds(3), group_size=1).tables
    for table, rows in ((tables.short_of_positives, positives), (tables.short_of_negatives, negatives)):
        assert ["".join(".+"[int(short)] for short in row) for row in table[::-1]] == rows
