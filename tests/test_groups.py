"""Group rules: how many of each class are kept."""

import itertools
from typing import Any

import numpy as np
import pytest

from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, GroupRule, Matched, Uniform, group_from_dict
from tests import naive

POS, NEG = np.indices((13, 13))


def kept(n: int, size: int = 5) -> list[str]:
    """Draw what `Balanced` keeps, positives and negatives, a row for each count of positives, upwards."""
    pos, neg = np.indices((size, size))
    keep_pos, keep_neg = Balanced().split(pos, neg, n)
    rows = [" ".join(f"{k}{m}" for k, m in zip(*row, strict=True)) for row in zip(keep_pos, keep_neg, strict=True)]
    return rows[::-1]


def test_balanced_group_of_four() -> None:
    assert kept(4) == [
        "40 31 22 22 22",
        "30 31 22 22 22",
        "20 21 22 22 22",
        "10 11 12 13 13",
        "00 01 02 03 04",
    ]


def test_balanced_group_of_three_wants_one_positive_and_two_negatives() -> None:
    assert kept(3) == [
        "30 21 12 12 12",
        "30 21 12 12 12",
        "20 21 12 12 12",
        "10 11 12 12 12",
        "00 01 02 03 03",
    ]


def test_balanced_group_of_one_is_a_negative_where_there_is_one() -> None:
    assert kept(1, 3) == ["10 01 01", "10 01 01", "00 01 01"]


@pytest.mark.parametrize("n", range(1, 14))
def test_balanced_equals_the_slow_definition(n: int) -> None:
    keep_pos, keep_neg = Balanced().split(POS, NEG, n)
    for pos, neg in itertools.product(range(7), range(7)):
        pool = (1,) * pos + (0,) * neg
        choice = naive.groups("balanced", pool, n)[0]
        assert keep_pos[pos, neg] == sum(pool[i] for i in choice)
        assert keep_pos[pos, neg] + keep_neg[pos, neg] == len(choice)


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("rule", [Balanced(), Uniform()])
def test_groups_hold_no_fewer_than_the_pool_allows(rule: GroupRule, n: int) -> None:
    keep_pos, keep_neg = rule.split(POS, NEG, n)
    np.testing.assert_array_equal(keep_pos + keep_neg, np.minimum(n, POS + NEG))
    assert (keep_pos <= POS).all()
    assert (keep_neg <= NEG).all()
    assert (keep_pos >= 0).all()
    assert (keep_neg >= 0).all()


@pytest.mark.parametrize("n", [2, 4, 8])
def test_balanced_keeps_a_group_with_signal_wherever_there_is_any(n: int) -> None:
    keep_pos, keep_neg = Balanced().split(POS, NEG, n)
    np.testing.assert_array_equal((keep_pos > 0) & (keep_neg > 0), (POS > 0) & (NEG > 0))


def test_all_keeps_everything_whatever_the_group_size() -> None:
    keep_pos, keep_neg = All().split(POS, NEG, 4)
    np.testing.assert_array_equal(keep_pos, POS)
    np.testing.assert_array_equal(keep_neg, NEG)


def test_all_keeps_nothing_of_a_pool_that_was_screened_out() -> None:
    keep_pos, keep_neg = All(at_least=5).split(POS, NEG, 4)
    enough = POS + NEG >= 5
    np.testing.assert_array_equal(keep_pos, np.where(enough, POS, 0))
    np.testing.assert_array_equal(keep_neg, np.where(enough, NEG, 0))


def test_matched_keeps_every_positive_and_no_more_negatives() -> None:
    keep_pos, keep_neg = Matched().split(np.array([0, 1, 3, 5, 2]), np.array([16, 7, 5, 3, 0]), 8)
    assert keep_pos.tolist() == [0, 1, 3, 5, 2]
    assert keep_neg.tolist() == [0, 1, 3, 3, 0]


@pytest.mark.parametrize("rule", [Balanced(), Uniform(), All(), Matched()])
def test_plain_values_round_trip(rule: GroupRule) -> None:
    assert group_from_dict(rule.to_dict()) == group_from_dict(rule.name) == group_from_dict(rule) == rule


def test_plain_values() -> None:
    assert Balanced().to_dict() == {"name": "balanced"}
    assert All(at_least=9).to_dict() == {"name": "all", "at_least": 9}
    assert group_from_dict(All(at_least=9).to_dict()) == All(at_least=9)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("balance", r"unknown group rule 'balance'; did you mean 'balanced'\?"),
        ({"name": "all", "size": 4}, "key 'size' of the group rule 'all'"),
        (Balanced, r"the group rule must be a name or a table with a name, such as 'balanced'; got <class"),
        ({"name": "all", "at_least": -1}, "at_least must be a whole number of at least 0; got -1"),
        (None, "the group rule must be a name or a table with a name, such as 'balanced'; got None"),
    ],
)
def test_descriptions_that_name_no_group_rule(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        group_from_dict(data)
