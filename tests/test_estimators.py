"""Estimates of the pass rate at the exit cell against path counting and their defining identities."""

import itertools
import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ada_bandit import estimators
from ada_bandit.budgets import Budget, Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.estimators import compare_estimators
from ada_bandit.exact import analyze
from ada_bandit.lattice import (
    first_part_law,
    log_factorials,
    one_class_chance,
    pool_mean_estimate,
    prefix_probability,
    reach,
    unbiased_estimate,
)
from ada_bandit.laws import Beta, Grid
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, ExitRule, Never, Positive, Quota, StopTable
from ada_bandit.score_model import ScoreModel
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


@given(seed=st.integers(0, 2**32 - 1), most=st.integers(1, 9), density=st.sampled_from([0.4, 0.9]))
def test_reach_counts_the_paths_of_any_draws_table(seed: int, most: int, density: float) -> None:
    # Round sizes that differ from cell to cell, as those of an optimal policy do.
    rng = np.random.default_rng(seed)
    left = np.maximum(most - np.add(*np.indices((most + 1, most + 1))), 0)
    draws = np.where(rng.random(left.shape) < density, np.minimum(rng.integers(1, 4, left.shape), left), 0)
    draws[0, 0] = min(2, most)
    paths = naive.paths(lambda pos, neg: int(draws[pos, neg]))
    expected = np.zeros(left.shape)
    for cell, number in paths.items():
        expected[cell] = number / binomial(cell)
    np.testing.assert_allclose(reach(draws), expected, rtol=1e-13)


@given(total=st.integers(0, 30), more=st.integers(1, 30))
def test_first_part_of_a_pool_is_hypergeometric(total: int, more: int) -> None:
    pos = np.arange(total + 1)
    law = first_part_law(log_factorials(total + more), total, more, pos)
    new = np.arange(more + 1)[:, None]
    np.testing.assert_allclose(law, stats.hypergeom.pmf(pos, total + more, pos + new, total), rtol=1e-11)


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


def baselines_of(
    name: str, end: naive.Exit, sizes: list[int], exits: list[naive.Exit], prior: tuple[int, int]
) -> tuple[list[Fraction], Fraction, Fraction]:
    """Return the baseline of every response, and mean and mean square of the estimate, for one sequence of rewards."""
    rewards, total = end.rewards, len(end.rewards)
    pos = sum(rewards)
    if name == "leave_one_out":
        each = [Fraction(pos - r, total - 1) if total > 1 else Fraction(0) for r in rewards]
        return each, sum(each, Fraction(0)) / total, sum((b * b for b in each), Fraction(0)) / total
    if name == "round_lagged":
        each, seen = [], 0
        for size in sizes[: end.rounds]:
            b = Fraction(sum(rewards[:seen]), seen) if seen else Fraction(prior[0], sum(prior))
            each += [b] * size
            seen += size
        return each, b, b * b
    b = {
        "pool_mean": Fraction(pos, total),
        "unbiased": naive.first_correct_share(exits, end.cell),
        "posterior_mean": Fraction(prior[0] + pos, sum(prior) + total),
    }[name]
    return [b] * total, b, b * b


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 8),
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([0.1, 0.4]),
    p=st.integers(1, 15).map(lambda i: Fraction(i, 16)),
)
@pytest.mark.slow
def test_comparison_equals_enumeration(sizes: list[int], seed: int, density: float, p: Fraction) -> None:
    table = table_of(Stages(sizes), seed, density)
    policy = Policy(StopTable(table), Stages(sizes), group_size=1)
    exits = naive.walk(lambda pos, neg: bool(table[pos, neg]), sizes)
    q, nu, prior = 1 - p, (Fraction(1, 4), Fraction(3)), (2, 3)
    samples = sum((p ** e.cell[0] * q ** e.cell[1] * len(e.rewards) for e in exits), Fraction(0))
    found = compare_estimators(policy, [float(p), 0.5], Beta(*prior), ScoreModel((0.25, 3.0)))
    for name, errors in found.estimators.items():
        if name == "inverse_sampling":
            continue
        mean, square, along, along_square, energy = [Fraction(0)] * 5
        for end in exits:
            chance = p ** end.cell[0] * q ** end.cell[1]
            each, first, second = baselines_of(name, end, sizes, exits, prior)
            step = sum(((r - b) * (q if r else -p) for r, b in zip(end.rewards, each, strict=True)), Fraction(0))
            mean, square = mean + chance * first, square + chance * second
            along, along_square = along + chance * step, along_square + chance * step**2
            noisy = ((r - b) ** 2 * nu[1 - r] for r, b in zip(end.rewards, each, strict=True))
            energy += chance * sum(noisy, Fraction(0))
        expected = (mean - p, square - 2 * p * mean + p * p, along / (p * q * samples))
        got = errors.bias[0], errors.mse[0], errors.gradient_weight[0]
        assert [float(x) for x in got] == pytest.approx([float(x) for x in expected], rel=1e-11, abs=1e-13), name
        variance = along_square - along**2 + energy
        assert float(errors.gradient_variance[0]) == pytest.approx(float(variance), rel=1e-11), name
        if name == "round_lagged":
            assert along == p * q * samples


def test_gradient_variance_is_that_of_simulated_scores() -> None:
    # Scores as vectors: the component along phi and the noise across it, in twelve directions.
    policy, p, nu, prompts, width = Policy(Balance(2), Rounds(3, 3), group_size=2), 0.3, (0.5, 2.0), 40_000, 12
    rng = np.random.default_rng(5)
    correct = rng.random((prompts, 9)) < p
    scores = rng.standard_normal((prompts, 9, width)) * np.sqrt(np.where(correct, *nu) / width)[..., None]
    scores[..., 0] += np.where(correct, 1 - p, -p)
    so_far = np.cumsum(correct, axis=1)
    done = [(so_far[:, t - 1] >= 1) & (t - so_far[:, t - 1] >= 1) for t in (3, 6)]
    total = np.where(done[0], 3, np.where(done[1], 6, 9))
    drawn = np.arange(9) < total[:, None]
    pos = (correct & drawn).sum(axis=1)
    lagged = np.repeat(np.stack([np.full(prompts, 0.5), so_far[:, 2] / 3, so_far[:, 5] / 6], axis=1), 3, axis=1)
    baselines = {
        "pool_mean": (pos / total)[:, None],
        "leave_one_out": (pos[:, None] - correct) / (total[:, None] - 1),
        "round_lagged": lagged,
        "posterior_mean": ((pos + 1) / (total + 2))[:, None],
    }
    found = compare_estimators(policy, p, model=ScoreModel(nu))
    for name, baseline in baselines.items():
        errors = found.estimators[name]
        updates = ((correct - baseline) * drawn)[:, None, :] @ scores
        spread = ((updates[:, 0] - updates[:, 0].mean(axis=0)) ** 2).sum(axis=1)
        error = spread.std() / np.sqrt(prompts)
        assert abs(spread.mean() - errors.gradient_variance) < 4 * error, name
        assert error < 0.01 * errors.gradient_variance
        along = updates[:, 0, 0] / (p * (1 - p) * total.mean())
        assert abs(along.mean() - errors.gradient_weight) < 4 * along.std() / np.sqrt(prompts), name


def test_pool_mean_of_the_comparison_is_that_of_the_analysis() -> None:
    for policy in POLICIES:
        analysis, found = analyze(policy, RATES), compare_estimators(policy, RATES).estimators
        np.testing.assert_allclose(found["pool_mean"].bias, analysis.pool_mean_bias, atol=1e-14)
        np.testing.assert_allclose(found["pool_mean"].mse, analysis.pool_mean_mse, atol=1e-14)
        np.testing.assert_allclose(found["leave_one_out"].bias, analysis.pool_mean_bias, atol=1e-14)
        np.testing.assert_allclose(found["unbiased"].bias, 0, atol=1e-13)


@pytest.mark.parametrize(("p", "share"), [(0.05, 25.9 / 27.3), (0.2, 12.5 / 13.4), (0.5, 7.7 / 8.6)])
def test_pool_mean_loses_a_part_of_the_gradient_that_a_lagged_mean_keeps(p: float, share: float) -> None:
    found = compare_estimators(POLICIES[2], p).estimators
    assert found["pool_mean"].gradient_weight == pytest.approx(share, abs=5e-3)
    assert found["round_lagged"].gradient_weight == 1
    # What it keeps costs variance.
    assert found["round_lagged"].gradient_variance > found["pool_mean"].gradient_variance


@pytest.mark.parametrize("n", [2, 5])
def test_estimators_of_a_fixed_pool_have_closed_forms(n: int) -> None:
    p, q, nu = RATES, 1 - RATES, 0.7
    found = compare_estimators(Policy(Never(), Rounds(n), group_size=n), RATES, Beta(1, 3), ScoreModel(nu)).estimators
    np.testing.assert_allclose(found["pool_mean"].gradient_weight, (n - 1) / n, rtol=1e-13)
    np.testing.assert_allclose(found["leave_one_out"].gradient_weight, 1, rtol=1e-13)
    np.testing.assert_allclose(found["pool_mean"].mse, p * q / n, atol=1e-15)
    np.testing.assert_allclose(found["leave_one_out"].mse, p * q / (n - 1), atol=1e-15)
    np.testing.assert_allclose(found["posterior_mean"].bias, (1 + n * p) / (4 + n) - p, atol=1e-14)
    # One round: independent terms (r - 1/4) s.
    along = p * (0.75 * q) ** 2 + q * (0.25 * p) ** 2 - (p * q) ** 2
    lagged = n * (along + nu * (p * 0.75**2 + q * 0.25**2))
    np.testing.assert_allclose(found["round_lagged"].gradient_variance, lagged, rtol=1e-12)
    np.testing.assert_allclose(found["round_lagged"].bias, 0.25 - p, atol=1e-15)
    relative = found["pool_mean"].relative_variance
    np.testing.assert_allclose(relative, found["leave_one_out"].gradient_variance, rtol=1e-11)


def test_inverse_sampling_where_it_is_defined() -> None:
    found = compare_estimators(Policy(Positive(3), Rounds(1, 40), group_size=1), RATES)
    assert not found.undefined
    inverse, unbiased = found.estimators["inverse_sampling"], found.estimators["unbiased"]
    for field in ("bias", "mse", "gradient_weight", "gradient_variance"):
        np.testing.assert_allclose(getattr(inverse, field), getattr(unbiased, field), rtol=1e-11, atol=1e-13)
    # The last response is the k-th positive, so the mean of those before is Haldane's estimate. Only a
    # prompt that the cap stops differs.
    lagged = found.estimators["round_lagged"]
    np.testing.assert_allclose(lagged.mse[2:], inverse.mse[2:], rtol=2e-2)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(Positive(1), Rounds(1, 9), group_size=1),
        Policy(Positive(2), Rounds(2, 4), group_size=1),
        Policy(Quota(2, 1), Rounds(1, 9), group_size=1),
        Policy(Positive(2) | Quota(1, 3), Rounds(1, 9), group_size=1),
        Policy(Positive(9) | Never(), Rounds(1, 9), group_size=1),
    ],
)
def test_inverse_sampling_is_left_out_by_name_elsewhere(policy: Policy) -> None:
    found = compare_estimators(policy, 0.3)
    assert "inverse_sampling" not in found.estimators
    assert "k-th positive" in found.undefined["inverse_sampling"]


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_comparison_is_shaped_like_the_pass_rates(shape: tuple[int, ...]) -> None:
    found = compare_estimators(POLICIES[3], np.full(shape, 0.4))
    for errors in found.estimators.values():
        for field in ("bias", "mse", "gradient_weight", "gradient_variance", "relative_variance"):
            assert getattr(errors, field).shape == shape


def test_comparison_of_many_pass_rates_is_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    together = compare_estimators(POLICIES[2], RATES).estimators["round_lagged"]
    monkeypatch.setattr(estimators, "_ENTRIES", 1)
    alone = compare_estimators(POLICIES[2], RATES).estimators["round_lagged"]
    np.testing.assert_allclose(alone.gradient_variance, together.gradient_variance, rtol=1e-13)


def test_values_that_the_comparison_refuses() -> None:
    with pytest.raises(InputError, match=r"the prior rules out 0 correct and 32 incorrect.*widen its support"):
        compare_estimators(POLICIES[0], 0.5, Grid([1.0]))
    with pytest.raises(InputError, match=r"prior must be a law of the pass rate.*got 0\.5"):
        compare_estimators(POLICIES[0], 0.5, 0.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"noise_ratio must be a finite number in \[0, inf\); got -1"):
        compare_estimators(POLICIES[0], 0.5, model=ScoreModel(noise_ratio=-1))
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]; got 1\.5"):
        compare_estimators(POLICIES[0], 1.5)


def test_the_chance_of_one_class_counts_the_ways_of_picking() -> None:
    for pos, neg, n in itertools.product(range(7), range(7), range(1, 6)):
        picks = list(itertools.combinations([1] * pos + [0] * neg, n))
        alike = sum(len(set(pick)) == 1 for pick in picks)
        expected = alike / len(picks) if picks else math.nan
        np.testing.assert_allclose(one_class_chance(pos, neg, n), expected, rtol=1e-14)
