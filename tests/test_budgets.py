"""Budgets: the draws table is the picture of the schedule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit.budgets import AfterPilot, Budget, Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.rules import ExitRule, Never, Positive, Quota
from ada_bandit.shared import budget_from_dict


def draws(budget: Budget, rule: ExitRule) -> list[str]:
    """Draw the table, a row for each count of positives, upwards; cells outside the budget are left out."""
    most = budget.max_samples
    table = budget.draws(rule.holds(*np.indices((most + 1, most + 1))))
    assert table.dtype == np.int64
    return ["".join(str(table[pos, neg]) for neg in range(most + 1 - pos)) for pos in reversed(range(most + 1))]


@pytest.mark.parametrize(
    ("budget", "rule", "rows"),
    [
        (
            Rounds(2, 2),
            Never(),
            # With one response unscored, the next round is asked for as well.
            ["0", "00", "200", "2200", "22200"],
        ),
        # The first round is drawn though the rule holds; a positive ends the prompt later on.
        (Rounds(2, 2), Positive(), ["0", "00", "000", "0000", "22200"]),
        (Rounds(2, 2), ~Never(), ["0", "00", "000", "0000", "20000"]),
        # One response, then two, then two.
        (Stages((1, 2, 2)), Never(), ["0", "00", "200", "2200", "22200", "122200"]),
        (Stages((1, 3)), Quota(1, 1), ["0", "00", "000", "3000", "13000"]),
        (Stages((4,)), Never(), ["0", "00", "000", "0000", "40000"]),
        # Two, then 3, 1 or none where none, one or both were correct; one response unscored is none or both.
        (AfterPilot(2, (3, 1, 0)), Never(), ["0", "00", "000", "0000", "01000", "233000"]),
        (AfterPilot(2, (3, 1, 0)), Positive(), ["0", "00", "000", "0000", "00000", "233000"]),
        (AfterPilot(2, (0, 0, 0)), Never(), ["0", "00", "200"]),
    ],
)
def test_draws_table(budget: Budget, rule: ExitRule, rows: list[str]) -> None:
    assert draws(budget, rule) == rows


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_without_a_rule_rounds_follow_the_schedule(sizes: list[int]) -> None:
    budget = Stages(sizes)
    most = sum(sizes)
    table = budget.draws(np.zeros((most + 1, most + 1), dtype=np.bool_))
    total, asked = 0, []
    while table[0, total]:
        asked.append(int(table[0, total]))
        total += asked[-1]
    assert asked == sizes
    assert budget.max_samples == total


@given(data=st.data(), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_no_round_passes_the_budget_even_where_responses_go_unscored(data: st.DataObject, sizes: list[int]) -> None:
    budget = Stages(sizes)
    most = budget.max_samples
    table = budget.draws(np.zeros((most + 1, most + 1), dtype=np.bool_))
    scored = 0
    while table[0, scored]:
        wanted = int(table[0, scored])
        assert scored + wanted <= most
        scored += data.draw(st.integers(1, wanted))


def test_a_round_after_a_pilot_where_responses_went_unscored_follows_the_nearest_share() -> None:
    budget = AfterPilot(8, tuple(range(8, -1, -1)))
    table = budget.draws(np.zeros((17, 17), dtype=np.bool_))
    assert (budget.sizes, budget.max_samples) == ((8, 8), 16)
    # 1 of 3 is 2.67 of 8, so 3: 5 more; 1 of 6 is 1.33 of 8, so 1: 7 more.
    assert (table[1, 2], table[1, 5], table[3, 5], table[0, 8], table[1, 8]) == (5, 7, 5, 8, 0)


def test_rounds_are_equal_stages() -> None:
    assert Rounds(3, 4).sizes == Stages((3, 3, 3, 3)).sizes == (3, 3, 3, 3)
    assert Rounds(3, 4).max_samples == 12
    assert Rounds(5).sizes == (5,)
    assert repr(Stages([8, 16])) == "Stages((8, 16))"
    assert Stages(np.array([8, 16])) == Stages(n for n in (8, 16))
    assert len({Stages((8,)), Stages([8]), Rounds(8), Rounds(8, 1)}) == 2


@pytest.mark.parametrize("budget", [Rounds(8, 4), Rounds(1), Stages((8, 16)), AfterPilot(2, (3, 1, 0), 0.5)])
def test_plain_values_round_trip(budget: Budget) -> None:
    assert budget_from_dict(budget.to_dict()) == budget
    assert budget_from_dict(budget) is budget


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AfterPilot(0, (1,)), "pilot must be a whole number of at least 1; got 0"),
        (lambda: AfterPilot(2, (1, 0)), "more must have 3 entries, for 0 to 2 correct responses of the pilot; got 2"),
        (lambda: AfterPilot(1, (1, -1)), "every entry of more must be a whole number of at least 0; got -1"),
        (lambda: AfterPilot(1, "10"), "more must be a sequence of whole numbers.*got '10'"),  # type: ignore[arg-type]
        (lambda: AfterPilot(1, (4096, 0)), "at most 4096 responses.*this budget allows 4097"),
        (lambda: Rounds(0, 4), "samples must be a whole number of at least 1; got 0"),
        (lambda: Rounds(8, 0), "rounds must be a whole number of at least 1; got 0"),
        (lambda: Rounds(8, -1), "rounds must be a whole number of at least 1; got -1"),
        (lambda: Rounds(8.0, 4), r"samples must be a whole number of at least 1; got 8\.0"),  # type: ignore[arg-type]
        (lambda: Rounds(samples=True, rounds=4), "samples must be a whole number of at least 1; got True"),
        (lambda: Rounds("8", 4), "samples must be a whole number of at least 1; got '8'"),  # type: ignore[arg-type]
        (lambda: Rounds(64, 65), "at most 4096 responses.*this budget allows 4160"),
        (lambda: Rounds(10**12, 10**12), "at most 4096 responses.*this budget allows 1000000000000000000000000"),
        (lambda: Stages((4000, 97)), "at most 4096 responses.*this budget allows 4097"),
        (lambda: Stages(()), r"sizes must hold at least one stage, such as \(8, 16\); got an empty sequence"),
        (lambda: Stages((8, 0)), "every stage size must be a whole number of at least 1; got 0"),
        (lambda: Stages((8, 1.5)), r"every stage size must be a whole number of at least 1; got 1\.5"),  # type: ignore[arg-type]
        (lambda: Stages(8), r"sizes must be a sequence of whole numbers, such as \(8, 16\); got 8"),  # type: ignore[arg-type]
        (lambda: Stages("816"), r"sizes must be a sequence of whole numbers, such as \(8, 16\); got '816'"),  # type: ignore[arg-type]
    ],
)
def test_values_that_budgets_refuse(build: Callable[[], Budget], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "round", "samples": 8}, r"unknown budget 'round'; did you mean 'rounds'\?"),
        ({"name": "rounds", "sample": 8}, r"key 'sample' of the budget 'rounds'; did you mean 'samples'\?"),
        ("rounds", "the budget 'rounds' needs samples; got"),
        (8, r"the budget must be a name or a table with a name, such as \{name = 'rounds', .*got 8"),
    ],
)
def test_descriptions_that_name_no_budget(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        budget_from_dict(data)


def test_largest_budget_is_accepted() -> None:
    assert Rounds(64, 64).max_samples == 4096
    assert Stages((4096,)).max_samples == 4096
