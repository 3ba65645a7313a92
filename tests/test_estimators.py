"""Estimates of the pass rate at the exit cell against path counting and their defining identities."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit._lattice import reach
from ada_bandit.budgets import Budget, Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.estimators import pool_mean_estimate, prefix_probability, unbiased_estimate
from ada_bandit.exact import analyze
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, ExitRule, Never, Positive, Quota
from tests import naive

RATES = np.array([0.0, 0.02, 0.2, 0.5, 0.9, 1.0])
POLICIES = [
    Policy(Positive(), Rounds(8, 4), group_size=4),
    Policy(Positive(3), Rounds(1, 40), group_size=4),
    Policy(Balance(4), Rounds(8, 4), group_size=4),
    Policy(Quota(1, 2) | Positive(4), Stages((2, 1, 5)), group_size=4),
]


def table_of(budget: Budget, seed: int, density: float) -> npt.NDArray[np.bool_]:
    most = budget.max_samples
    return np.random.default_rng(seed).random((most + 1, most + 1)) < density


def average(policy: Policy, estimate: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return E[estimate at the exit] at `RATES`."""
    law = analyze(policy, RATES).exit_law
    return np.asarray(sum(chance * estimate[cell] for cell, chance in law.items()))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= 9),
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([0.0, 0.2, 0.5]),
)
def test_estimates_count_paths(sizes: list[int], seed: int, density: float) -> None:
    budget = Stages(sizes)
    table = table_of(budget, seed, density)
    draws = budget.draws(table)
    exits = naive.walk(lambda pos, neg: bool(table[pos, neg]), sizes)
    estimate, chance = unbiased_estimate(draws), reach(draws)
    for cell in {end.cell for end in exits}:
        assert estimate[cell] == pytest.approx(float(naive.first_correct_share(exits, cell)), rel=1e-13)
        paths = sum(end.cell == cell for end in exits)
        assert chance[cell] == pytest.approx(float(Fraction(paths, binomial(cell))), rel=1e-13)
    for correct in range(sizes[0] + 1):
        for incorrect in range(sizes[0] + 1 - correct):
            prefix = prefix_probability(draws, correct, incorrect)
            wanted = (1,) * correct + (0,) * incorrect
            for cell in {end.cell for end in exits}:
                expected = float(naive.prefix_share(exits, cell, wanted))
                assert prefix[cell] == pytest.approx(expected, rel=1e-13, abs=1e-15)


def binomial(cell: tuple[int, int]) -> int:
    """Return the number of orders of a cell's responses, by Pascal's rule."""
    row = [1]
    for _ in range(sum(cell)):
        row = [a + b for a, b in zip([0, *row], [*row, 0], strict=True)]
    return row[cell[0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_estimate_is_unbiased_at_every_pass_rate(policy: Policy) -> None:
    np.testing.assert_allclose(average(policy, unbiased_estimate(policy.tables.draws)), RATES, atol=1e-13)
    assert not np.allclose(analyze(policy, RATES).pool_mean_bias, 0, atol=1e-3)


@pytest.mark.parametrize("policy", POLICIES)
def test_prefix_estimates_a_monomial(policy: Policy) -> None:
    for correct, incorrect in ((0, 1), (1, 1), (2, 0), (0, 2)):
        if correct + incorrect <= policy.budget.sizes[0]:
            prefix = prefix_probability(policy.tables.draws, correct, incorrect)
            expected = RATES**correct * (1 - RATES) ** incorrect
            np.testing.assert_allclose(average(policy, prefix), expected, atol=1e-13)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_inverse_sampling_gives_haldanes_estimate(count: int) -> None:
    estimate = unbiased_estimate(Policy(Positive(count), Rounds(1, 60), group_size=1).tables.draws)
    neg = np.arange(60 - count)
    np.testing.assert_allclose(estimate[count, neg], (count - 1) / (count + neg - 1), rtol=1e-13)


@pytest.mark.parametrize(("rule", "budget"), [(Never(), Rounds(5)), (Never(), Stages((2, 3))), (~Never(), Rounds(5))])
def test_without_stopping_the_estimate_is_the_pool_mean(rule: ExitRule, budget: Budget) -> None:
    estimate = unbiased_estimate(Policy(rule, budget, group_size=1).tables.draws)
    np.testing.assert_allclose([estimate[k, 5 - k] for k in range(6)], np.arange(6) / 5, rtol=1e-14)


def test_unbiasedness_costs_variance_on_balance_rounds() -> None:
    # At p = 0.2 the root mean square errors are 0.136 and 0.119, the pool mean's bias included.
    policy = POLICIES[2]
    law = {cell: float(chance) for cell, chance in analyze(policy, 0.2).exit_law.items()}
    estimate = unbiased_estimate(policy.tables.draws)

    unbiased = sum(chance * (float(estimate[cell]) - 0.2) ** 2 for cell, chance in law.items())
    pooled = sum(chance * (k / (k + m) - 0.2) ** 2 for (k, m), chance in law.items())
    assert np.sqrt(unbiased) == pytest.approx(0.136, abs=5e-4)
    assert np.sqrt(pooled) == pytest.approx(0.119, abs=5e-4)
    assert pooled == pytest.approx(float(analyze(policy, 0.2).pool_mean_mse), rel=1e-12)


def test_estimates_by_hand() -> None:
    # One at a time, at most three, out at the first correct response: only 1, 01, 001 and 000 are possible.
    draws = Policy(Positive(), Rounds(1, 3), group_size=1).tables.draws
    estimate = unbiased_estimate(draws)
    assert [float(estimate[cell]) for cell in ((1, 0), (1, 1), (1, 2), (0, 3))] == [1, 0, 0, 0]
    # No path leads to (2, 1): the pool mean.
    assert estimate[2, 1] == pytest.approx(2 / 3)
    assert np.isnan(prefix_probability(draws, 1, 0)[2, 1])
    np.testing.assert_allclose(reach(draws)[1, :3], [1, 1 / 2, 1 / 3], rtol=1e-14)


def test_pool_mean() -> None:
    np.testing.assert_array_equal(pool_mean_estimate([0, 1, 3], [0, 3, 0]), [0, 0.25, 1])


@pytest.mark.parametrize(("correct", "incorrect"), [(3, 0), (1, 2), (0, 5)])
def test_prefix_must_fit_into_the_first_round(correct: int, incorrect: int) -> None:
    draws = Policy(Positive(), Rounds(2, 3), group_size=1).tables.draws
    message = rf"prefix of {correct} \+ {incorrect} responses is longer than the first round of 2; ask for at most"
    with pytest.raises(InputError, match=message):
        prefix_probability(draws, correct, incorrect)
