"""Calibrated advantages: closed forms, a second solver, and the exact analysis of the policies they make."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from ada_bandit.advantages import AdvantageTable, Calibrated, Unbiased
from ada_bandit.allocator import Allocator
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.calibration import calibrate
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze
from ada_bandit.groups import All, SplitTable, Uniform
from ada_bandit.laws import Beta, Grid, Law
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, Never, Positive, Quota, StopTable
from ada_bandit.shared import Neyman

Array = npt.NDArray[np.float64]

POS = Policy.preset("reinforce-ada-pos")
BALANCE = Policy.preset("reinforce-ada-balance")
EVERYWHERE = np.linspace(0, 1, 101)
INSIDE = np.linspace(0.05, 0.95, 1234)


def second_moment(policy: Policy, prior: Law) -> float:
    """Return E[sum of squared advantages of the kept responses] by averaging the exit law over the prior."""
    rates, weights = prior.quadrature(policy.budget.max_samples + 2)
    tables = policy.tables
    energy = np.zeros(tables.draws.shape)
    for split in tables.splits():
        energy += split.chance * (split.keep_pos * split.adv_pos**2 + split.keep_neg * split.adv_neg**2)
    return float(sum((weights @ chance) * energy[cell] for cell, chance in analyze(policy, rates).exit_law.items()))


def unit_weights(policy: Policy, rates: Array) -> tuple[Array, list[tuple[str, tuple[int, int]]]]:
    """Return w of the tables that are 1 for one class at one exit cell, ``[p, unknown]``, by the exact analysis."""
    columns, names = [], []
    side = policy.tables.draws.shape
    for cell in analyze(policy, 0.5).exit_law:
        for which, keep in (("adv_pos", policy.tables.mean_keep_pos), ("adv_neg", policy.tables.mean_keep_neg)):
            if keep[cell] > 0:
                parts = {"adv_pos": np.zeros(side), "adv_neg": np.zeros(side)}
                parts[which][cell] = 1
                columns.append(analyze(replace(policy, advantage=AdvantageTable(**parts)), rates).gradient_weight)
                names.append((which, cell))
    return np.stack(columns, axis=1), names


@pytest.mark.parametrize("prior", [Beta(1, 1), Beta(0.5, 1), Grid([0.1, 0.5, 0.8], [1, 2, 3])])
@pytest.mark.parametrize(
    "policy",
    [
        POS,
        BALANCE,
        Policy(Balance(4), Rounds(1, 32), group_size=4),
        Policy(Quota(1, 2) | Positive(4), Stages((2, 1, 5)), group_size=3),
        Policy(Balance(4), Rounds(8, 4), group_size=4, group=Uniform()),
        Policy(Never(), Rounds(4), group=All()),
    ],
)
def test_mean_has_weight_one_at_less_variance_than_any_unbiased_baseline(policy: Policy, prior: Law) -> None:
    found = calibrate(policy, "mean", prior, tolerance=0)
    assert found.exact
    np.testing.assert_allclose(analyze(found.policy, EVERYWHERE).gradient_weight, 1, atol=1e-8)
    assert found.largest_miss < 1e-8
    assert found.second_moment == pytest.approx(second_moment(found.policy, prior), rel=1e-9)
    baselines = np.linspace(0, 1, 51)
    best = min(second_moment(replace(policy, advantage=Unbiased(b)), prior) for b in baselines)
    assert found.second_moment <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    ("policy", "mean", "baseline", "value"),
    [(POS, 0.6130, 0.48, 1.1333), (BALANCE, 0.5751, 0.50, 1.3132)],
)
def test_mean_halves_the_second_moment_of_unbiased(policy: Policy, mean: float, baseline: float, value: float) -> None:
    # Under Beta(1, 1), against the best of a hundred constant baselines.
    assert calibrate(policy, "mean", Beta(1, 1)).second_moment == pytest.approx(mean, abs=5e-5)
    moments = {b: second_moment(replace(policy, advantage=Unbiased(b)), Beta(1, 1)) for b in (0.46, 0.48, 0.5, 0.52)}
    assert min(moments, key=lambda b: moments[b]) == baseline
    assert moments[baseline] == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("prior", [Beta(1, 3), Beta(0.5, 1)])
def test_the_best_baseline_of_one_response_is_the_prior_mean(prior: Law) -> None:
    policy = Policy(Never(), Rounds(1), group=All())
    found = calibrate(policy, "mean", prior)
    tables, mean = found.policy.tables, prior.mean
    assert tables.adv_pos[1, 0] == pytest.approx(1 - mean, rel=1e-12)
    assert tables.adv_neg[0, 1] == pytest.approx(-mean, rel=1e-12)
    assert found.second_moment == pytest.approx(mean * (1 - mean), rel=1e-12)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda sizes: 2 <= sum(sizes) <= 7),
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 4),
    group=st.sampled_from([All(), Uniform()]),
)
def test_solution_is_the_least_norm_of_a_second_set_of_equations(
    sizes: list[int], seed: int, k: int, group: Any
) -> None:
    most = sum(sizes)
    rng = np.random.default_rng(seed)
    resolved = rng.random((most + 1, most + 1)) < 0.3
    policy = Policy(StopTable(resolved), Stages(sizes), group_size=min(2, most), group=group)
    prior = Beta(*rng.uniform(0.5, 3, 2))
    # A polynomial of degree K - 1 is settled by K points.
    nodes = (1 - np.cos(np.pi * (np.arange(most) + 0.5) / most)) / 2
    matrix, names = unit_weights(policy, nodes)
    rates, mass = prior.quadrature(most + 2)
    law = {cell: mass @ chance for cell, chance in analyze(policy, rates).exit_law.items()}
    price = np.array([law[cell] * getattr(policy.tables, f"mean_keep_{which[4:]}")[cell] for which, cell in names])
    k = min(k, most)
    target = k * (1 - nodes) ** (k - 1)
    x, *_ = np.linalg.lstsq(matrix / np.sqrt(price), target, rcond=1e-12)
    solved = np.abs(matrix / np.sqrt(price) @ x - target).max() < 1e-9

    # A rule that ends the sampling early leaves only polynomials of a lower degree.
    with nullcontext() if solved else pytest.warns(UserWarning, match="no advantages bring w"):
        found = calibrate(policy, f"pass@{k}", prior, tolerance=1e-6, on_miss="warn")
    assert found.exact == solved
    if not solved:
        return
    weight = analyze(found.policy, EVERYWHERE).gradient_weight
    np.testing.assert_allclose(weight, k * (1 - EVERYWHERE) ** (k - 1), atol=1e-9)
    assert found.second_moment == pytest.approx(x @ x, rel=1e-6)


@pytest.mark.parametrize("policy", [POS, BALANCE, Policy(Balance(4), Rounds(1, 128), group_size=4)])
@pytest.mark.parametrize("k", [2, 8, 32])
@pytest.mark.slow
def test_pass_at_k_is_hit_everywhere(policy: Policy, k: int) -> None:
    found = calibrate(policy, f"pass@{k}", Beta(0.5, 1), tolerance=1e-8)
    assert found.exact
    weight = analyze(found.policy, EVERYWHERE).gradient_weight
    np.testing.assert_allclose(weight, k * (1 - EVERYWHERE) ** (k - 1), atol=1e-9 * k)


@pytest.mark.parametrize("policy", [POS, BALANCE])
@pytest.mark.parametrize("tolerance", [1.0, 0.05, 0.002])
def test_log_is_hit_within_the_reported_tolerance(policy: Policy, tolerance: float) -> None:
    found = calibrate(policy, "log", Beta(0.5, 1), tolerance)
    assert not found.exact
    assert found.largest_miss <= tolerance
    # Between the points of the grid as well, seen by the exact analysis of the policy it returns.
    miss = np.abs(analyze(found.policy, INSIDE).gradient_weight - 1 / INSIDE)
    assert miss.max() <= tolerance
    assert miss.max() <= 1.005 * found.largest_miss
    np.testing.assert_allclose(found.target, 1 / found.grid, rtol=1e-12)


def test_log_has_a_price_that_rises_as_the_tolerance_narrows() -> None:
    tolerances = [2.0, 0.5, 0.05, 0.01, 1e-3]
    moments = [calibrate(BALANCE, "log", Beta(1, 1), tolerance).second_moment for tolerance in tolerances]
    assert moments == pytest.approx([2.011, 3.831, 5.813, 10.9, 2640], rel=0.02)
    assert (np.diff(moments) > 0).all()


def test_log_within_a_bounded_pool_is_reported() -> None:
    found = calibrate(BALANCE, "log", Beta(1, 1))
    p = found.grid
    # No positive ever comes with chance q^32.
    np.testing.assert_allclose(found.reachable, (1 - (1 - p) ** 32) / p, rtol=1e-11)
    truncated = calibrate(BALANCE, "truncated-log", Beta(1, 1), tolerance=0)
    assert truncated.exact
    np.testing.assert_allclose(truncated.weights, found.reachable, rtol=1e-11)
    # A positive that weighs n / keep_pos and a negative that weighs nothing do the same, at more variance.
    keep = BALANCE.tables.keep_pos
    plain = np.divide(4, keep, out=np.zeros(keep.shape), where=keep > 0)
    policy = replace(BALANCE, advantage=AdvantageTable(plain, 0 * plain))
    np.testing.assert_allclose(analyze(policy, p).gradient_weight, found.reachable, rtol=1e-11)
    assert second_moment(policy, Beta(1, 1)) == pytest.approx(7.798, abs=1e-3)
    assert truncated.second_moment == pytest.approx(4.400, abs=1e-3)


def test_truncated_log_of_a_fixed_pool() -> None:
    found = calibrate(Policy(Never(), Rounds(5), group=All()), "truncated-log", Beta(2, 2))
    weight = analyze(found.policy, EVERYWHERE).gradient_weight
    np.testing.assert_allclose(weight, sum((1 - EVERYWHERE) ** i for i in range(5)), rtol=1e-12)


def test_least_distance_agrees_with_a_general_solver() -> None:
    policy, prior, tolerance = Policy(Positive(), Rounds(1, 3), group=All()), Beta(1, 1), 0.2
    grid = np.array([0.2, 0.35, 0.5, 0.65, 0.8])
    found = calibrate(policy, lambda p: 1 / np.sqrt(p), prior, tolerance, pass_rates=grid)
    matrix, names = unit_weights(policy, grid)
    rates, mass = prior.quadrature(5)
    law = {cell: mass @ chance for cell, chance in analyze(policy, rates).exit_law.items()}
    price = np.array([law[cell] * getattr(policy.tables, f"mean_keep_{which[4:]}")[cell] for which, cell in names])
    constraint = {
        "type": "ineq",
        "fun": lambda a: np.concatenate([tolerance - (matrix @ a - grid**-0.5), tolerance + (matrix @ a - grid**-0.5)]),
    }
    best = optimize.minimize(lambda a: price @ a**2, np.zeros(price.size), constraints=[constraint], tol=1e-12)
    assert best.success
    assert found.second_moment == pytest.approx(best.fun, rel=1e-2)
    np.testing.assert_array_equal(found.grid, grid)


@pytest.mark.parametrize("objective", ["log", "pass@9", lambda p: 0.5 / np.sqrt(p)])
def test_what_is_out_of_reach_is_refused_or_warned_of(objective: Any) -> None:
    policy = Policy(Never(), Rounds(4), group=All())
    with pytest.raises(InputError, match=r"within tolerance = 0\.001 .*\[0\.05, 0\.95\].*Ask for") as caught:
        calibrate(policy, objective, Beta(1, 1), 1e-3)
    assert ("truncated-log" in str(caught.value)) == (objective == "log")
    with pytest.warns(UserWarning, match="miss it by"):
        found = calibrate(policy, objective, Beta(1, 1), 1e-3, on_miss="warn")
    assert found.largest_miss > 1e-3
    # The tolerance that the message names can be met, and nothing comes much closer: best uniform
    # approximation by polynomials of degree 3, as a linear programme.
    named = float(str(caught.value).split("Ask for ")[1].split()[0])
    assert calibrate(policy, objective, Beta(1, 1), named).largest_miss <= named
    powers = found.grid[:, None] ** np.arange(4)
    one = np.ones((found.grid.size, 1))
    bounds = np.concatenate([found.target, -found.target])
    best = optimize.linprog(
        [0, 0, 0, 0, 1], np.block([[powers, -one], [-powers, -one]]), bounds, bounds=[(None, None)] * 4 + [(0, None)]
    )
    assert best.fun <= found.largest_miss <= 1.1 * best.fun


def test_one_kept_row_is_enough_for_the_mean() -> None:
    # A negative wherever there is one: `unbiased` refuses such a group, as it can't weigh all positives.
    policy = Policy(Positive(), Rounds(2, 2), group_size=1)
    with pytest.raises(InputError, match="leaves one out"):
        _ = replace(policy, advantage=Unbiased()).tables
    assert calibrate(policy, "mean", Beta(1, 1)).exact


def test_keeps_that_rule_the_mean_out() -> None:
    # Rows are kept of pools with one response of each class alone: w is a multiple of p q, divided by p or q.
    only = np.zeros((3, 3), dtype=np.int64)
    only[1, 1] = 1
    policy = Policy(Never(), Rounds(2), group_size=2, group=SplitTable(only, 0 * only))
    with pytest.raises(InputError, match="no advantages bring w within"):
        calibrate(policy, "mean", Beta(1, 1))
    with pytest.warns(UserWarning, match="no advantages bring w within"):
        found = calibrate(policy, "mean", Beta(1, 1), on_miss="warn")
    # w = c q: the least of the largest miss on [0.05, 0.95] is at 1 - 0.05 c = 0.95 c - 1.
    assert found.largest_miss == pytest.approx(0.9, rel=0.06)
    nothing = replace(policy, group=SplitTable(0 * only, 0 * only))
    with pytest.raises(InputError, match="the policy keeps no response at any exit"):
        calibrate(nothing, "mean", Beta(1, 1))


@pytest.mark.parametrize("prior", [Grid([0.0, 1.0]), Grid([0.5])])
def test_a_prior_that_hardly_tells_cells_apart_gives_finite_tables(prior: Law) -> None:
    found = calibrate(BALANCE, "mean", prior)
    np.testing.assert_allclose(analyze(found.policy, EVERYWHERE).gradient_weight, 1, atol=1e-6)
    assert found.second_moment == pytest.approx(second_moment(found.policy, prior), rel=1e-9, abs=1e-12)


def test_what_it_returns_is_an_ordinary_policy() -> None:
    found = calibrate(BALANCE, "mean", Beta(1, 1))
    assert Policy.from_toml(found.policy.to_toml()) == found.policy
    assert replace(found.policy, advantage=BALANCE.advantage) == BALANCE
    again = calibrate(found.policy, "mean", Beta(1, 1))
    assert again.second_moment == found.second_moment


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("best", Beta(1, 1)), {}, r"unknown objective 'best'"),
        (("pass@0", Beta(1, 1)), {}, r"unknown objective 'pass@0'"),
        (("mean", 0.5), {}, r"prior must be a law of the pass rate, such as Beta\(1, 1\); got 0\.5"),
        (("mean", Beta(1, 1), -1), {}, r"tolerance must be a finite number in \[0, inf\); got -1"),
        (("mean", Beta(1, 1)), {"on_miss": "ignore"}, r"unknown value 'ignore' of on_miss"),
        (
            ("mean", Beta(1, 1)),
            {"pass_rates": [0.0, 0.5]},
            r"pass_rates must hold rates inside \(0, 1\).*\[0\.0, 0\.5\]",
        ),
        (("mean", Beta(1, 1)), {"pass_rates": []}, r"inside \(0, 1\)"),
        ((lambda p: p[:3], Beta(1, 1)), {}, "derivative must be elementwise"),
    ],
)
def test_values_that_calibration_refuses(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(BALANCE, *arguments, **options)
    with pytest.raises(InputError, match=r"Policy\.preset\('grpo'\)"):
        calibrate("grpo", *arguments, **options)  # type: ignore[arg-type]


def test_as_an_advantage_rule_it_is_solved_for_under_the_policys_own_draws() -> None:
    for budget in (Rounds(8, 4), Rounds(1, 20)):
        policy = Policy(Positive(), budget, 4, advantage=Calibrated("pass@2", Beta(0.5, 1)))
        np.testing.assert_allclose(analyze(policy, [0.0, 0.3, 1.0]).gradient_weight, [2.0, 1.4, 0.0], atol=1e-8)
        found = calibrate(policy, "pass@2", Beta(0.5, 1))
        np.testing.assert_array_equal(policy.tables.adv_pos, found.policy.tables.adv_pos)
        again = Policy.from_toml(policy.to_toml())
        assert again == policy
        np.testing.assert_array_equal(again.tables.adv_neg, policy.tables.adv_neg)


def test_the_rule_reaches_the_allocator() -> None:
    policy = Policy(Positive(), Rounds(4, 2), 4, advantage=Calibrated("mean"))
    allocator = Allocator(policy, prompts=30, seed=1)
    while request := allocator.ask():
        allocator.tell(request.ids, request.draws % (2 + request.prompts) == 1)
    groups = allocator.groups()
    tables = policy.tables
    of_pos, of_neg = (table[groups.pos, groups.neg][:, None] for table in (tables.adv_pos, tables.adv_neg))
    expected = np.where(groups.mask, np.where(groups.correct, of_pos, of_neg), 0.0)
    np.testing.assert_array_equal(groups.advantages, expected)


def test_the_rule_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="no advantages bring w within tolerance = 1e-09"):
        _ = Policy(Positive(), Rounds(2, 2), 2, advantage=Calibrated("log", tolerance=1e-9)).tables
    with pytest.raises(InputError, match="'calibrated' depends on the paths"):
        Policy(Never(), Neyman(), 4, advantage=Calibrated("mean"))
    with pytest.raises(InputError, match="the advantage Calibrated needs values of its own: call it, as in Calibrated"):
        Policy(Never(), Rounds(4), 4, advantage=Calibrated)  # type: ignore[arg-type]
