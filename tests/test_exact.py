"""The exact analysis: published values, closed forms, and enumeration of every sequence of rewards."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats

from ada_bandit.advantages import Advantage, GroupMean, GroupStd, PoolMean, Unbiased, advantage_from_dict
from ada_bandit.budgets import Budget, Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze, analyze_law, induced_objective
from ada_bandit.groups import All, Balanced, GroupRule, Uniform
from ada_bandit.laws import Beta, Grid, Mixture
from ada_bandit.policy import Policy
from ada_bandit.presets import preset_names
from ada_bandit.rules import Balance, ExitRule, Never, Positive, Quota, exit_rule
from tests import naive

FIELDS = (
    "expected_samples",
    "expected_rounds",
    "signal_probability",
    "resolved_probability",
    "pool_mean_bias",
    "pool_mean_mse",
    "gradient_weight",
)
POS = Policy.preset("reinforce-ada-pos")
BALANCE = Policy.preset("reinforce-ada-balance")
RATES = np.array([0.0, 0.001, 0.1, 0.37, 0.5, 0.8, 0.999, 1.0])


def tabled(table: npt.NDArray[np.bool_]) -> ExitRule:
    """Make a boolean table ``[pos, neg]`` an exit rule."""

    @exit_rule
    def from_table(pos: npt.NDArray[np.int64], neg: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return table[pos, neg]

    return from_table


def tables_of(most: int) -> st.SearchStrategy[npt.NDArray[np.bool_]]:
    """Draw boolean tables, dense ones and such as let prompts run for many rounds."""
    return st.tuples(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.3, 0.6])).map(
        lambda drawn: np.random.default_rng(drawn[0]).random((most + 1, most + 1)) < drawn[1]
    )


budgets: st.SearchStrategy[Budget] = st.one_of(
    st.tuples(st.integers(1, 5), st.integers(1, 5)).filter(lambda mr: mr[0] * mr[1] <= 9).map(lambda mr: Rounds(*mr)),
    st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= 9).map(Stages),
)
group_rules: st.SearchStrategy[GroupRule] = st.sampled_from([Balanced(), Uniform(), All()])
advantages = st.sampled_from(["pool_mean", "group_mean", "group_std", "leave_one_out", "unbiased"])
dyadics = st.integers(1, 255).map(lambda i: i / 256)


def option_of(advantage: str) -> dict[str, float]:
    return {"group_std": {"eps": 1e-4}, "unbiased": {"baseline": 0.25}}.get(advantage, {})


@pytest.mark.parametrize(
    ("policy", "p", "expected"),
    [
        (POS, 0.1, (13.5642853757, 1.6955356720, 0.9656631518, 0.9656631618, 0.0296942555, 2.8022701406)),
        (BALANCE, 0.1, (20.9624819855, 2.6203102482, 0.9656631618, 0.8435766260, 0.0321308540, 3.9464490189)),
        (BALANCE, 0.8, (13.4175601133, 1.6771950142, 0.9992077184, 0.9928694654, -0.0377260107, 2.0446696947)),
    ],
)
def test_values_of_the_specification(policy: Policy, p: float, expected: tuple[float, ...]) -> None:
    analysis = analyze(policy, p)
    names = (*FIELDS[:5], "gradient_weight")
    assert [float(getattr(analysis, name)) for name in names] == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize(
    ("p", "pos", "balance"),
    [
        (0.02, ("25.5", "+0.016", "5.88"), ("30.9", "+0.004", "7.17")),
        (0.1, ("13.6", "+0.030", "2.80"), ("21.0", "+0.032", "3.95")),
        (0.5, ("8.03", "+0.001", "0.97"), ("8.57", "+0.000", "1.00")),
        (0.9, ("8.00", "-0.000", "1.58"), ("21.0", "-0.032", "3.95")),
    ],
)
def test_printed_table_of_reinforce_ada(p: float, pos: tuple[str, ...], balance: tuple[str, ...]) -> None:
    for policy, printed in ((POS, pos), (BALANCE, balance)):
        analysis = analyze(policy, p)
        values = (analysis.expected_samples, analysis.pool_mean_bias, analysis.gradient_weight)
        for value, text in zip(values, printed, strict=True):
            assert abs(value - float(text)) <= 0.5 * 10 ** -len(text.split(".")[1])


@pytest.mark.parametrize(("p", "total"), [(0.05, 25.9), (0.2, 12.5), (0.5, 7.7)])
def test_all_draws_with_the_pool_mean_lose_weight(p: float, total: float) -> None:
    policy = Policy(Balance(4), Rounds(8, 4), group_size=1, group=All())
    assert analyze(policy, p).gradient_weight == pytest.approx(total, abs=0.05)


@pytest.mark.parametrize(("samples", "rounds"), [(8, 4), (1, 32), (5, 1), (3, 7)])
def test_rounds_to_a_first_positive(samples: int, rounds: int) -> None:
    q = 1 - RATES[1:]
    analysis = analyze(Policy(Positive(), Rounds(samples, rounds), group_size=1), RATES[1:])
    cost = samples * (1 - q ** (samples * rounds)) / (1 - q**samples)
    np.testing.assert_allclose(analysis.expected_samples, cost, rtol=1e-12)
    np.testing.assert_allclose(analysis.expected_rounds, cost / samples, rtol=1e-12)
    np.testing.assert_allclose(analysis.resolved_probability, 1 - q ** (samples * rounds), rtol=1e-12)
    np.testing.assert_allclose(analysis.short_of_positives, q ** (samples * rounds), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("n", [2, 3, 4, 16])
def test_weights_of_plain_sampling(n: int) -> None:
    def weight(name: str) -> npt.NDArray[np.float64]:
        return analyze(Policy.preset(name, group_size=n), RATES).gradient_weight

    np.testing.assert_allclose(weight("dr-grpo"), (n - 1) / n, rtol=1e-13)
    np.testing.assert_allclose(weight("rloo"), 1, rtol=1e-13)

    p = RATES[1:-1]
    k = np.arange(n + 1)[:, None]
    deviation = np.sqrt(k * (n - k)) * stats.binom.pmf(k, n, p)
    grpo = math.sqrt((n - 1) / n) * deviation.sum(axis=0) / (n * p * (1 - p))
    policy = Policy(Never(), Rounds(n), group=All(), advantage=GroupStd(eps=0))
    np.testing.assert_allclose(analyze(policy, p).gradient_weight, grpo, rtol=1e-12)


def test_grpo_weight_tends_to_the_inverse_standard_deviation() -> None:
    policy = Policy(Never(), Rounds(512), group=All(), advantage=GroupStd(eps=0))
    p = np.array([0.2, 0.5, 0.7])
    np.testing.assert_allclose(analyze(policy, p).gradient_weight, 1 / np.sqrt(p * (1 - p)), rtol=3e-3)


def test_plain_sampling_has_signal_unless_all_agree() -> None:
    analysis = analyze(Policy.preset("grpo", group_size=5), RATES)
    np.testing.assert_allclose(analysis.signal_probability, 1 - RATES**5 - (1 - RATES) ** 5, atol=1e-15)
    np.testing.assert_allclose(analysis.pool_mean_mse, RATES * (1 - RATES) / 5, atol=1e-15)
    np.testing.assert_allclose(analysis.pool_mean_bias, 0, atol=1e-15)
    np.testing.assert_allclose(analysis.short_of_positives, (1 - RATES) ** 5, atol=1e-15)
    np.testing.assert_allclose(analysis.short_of_negatives, RATES**5, atol=1e-15)


@pytest.mark.parametrize("policy", [POS, BALANCE, Policy(Quota(1, 3), Stages((2, 3, 9)), group_size=2)])
def test_pool_mean_bias_is_minus_covariance_with_the_cost_over_the_cost(policy: Policy) -> None:
    analysis = analyze(policy, RATES)
    cells = np.array(list(analysis.exit_law))
    law = np.array(list(analysis.exit_law.values()))
    total, mean = cells.sum(axis=1), cells[:, 0] / cells.sum(axis=1)
    covariance = (total * mean) @ law - (total @ law) * (mean @ law)
    np.testing.assert_allclose(analysis.pool_mean_bias, -covariance / analysis.expected_samples, atol=1e-13)


def test_balance_climbs_half_logit_minus_p_when_every_prompt_resolves() -> None:
    p = np.array([0.25, 0.4, 0.5, 0.65])
    q = 1 - p
    limit = (q / p + p / q) / 2
    # w = E[(1 - mean)/p + mean/q] / 2 once both halves are always filled: linear in the mean.
    small = analyze(Policy(Balance(4), Rounds(1, 256), group_size=4), p)
    np.testing.assert_allclose(small.resolved_probability, 1, atol=1e-12)
    np.testing.assert_allclose(small.gradient_weight, limit + small.pool_mean_bias * (1 / q - 1 / p) / 2, rtol=1e-10)
    large = Policy(Balance(64), Rounds(16, 24), group_size=64)
    np.testing.assert_allclose(analyze(large, p).gradient_weight, limit, rtol=0.01)
    logit = np.log(p / q) / 2 - p
    objective = induced_objective(large, p)
    np.testing.assert_allclose(np.diff(objective), np.diff(logit), rtol=0.02)


def test_pooled_mean_at_a_first_positive_one_by_one() -> None:
    p = np.array([0.1, 0.3, 0.7])
    q = 1 - p
    policy = Policy(Positive(), Rounds(1, 400), group_size=1, group=All())
    weight = (1 - p * np.log(1 / p) / q) / (p * q)
    np.testing.assert_allclose(analyze(policy, p).gradient_weight, weight, rtol=1e-12)


@pytest.mark.parametrize("group", [Balanced(), Uniform(), All()])
@pytest.mark.parametrize("rounds", [(8, 4), (1, 32)])
@pytest.mark.parametrize("rule", [Positive(1), Positive(3), Balance(4), Balance(5), Quota(3, 1), Quota(1, 4)])
def test_unbiased_advantage_has_weight_one(rule: ExitRule, rounds: tuple[int, int], group: GroupRule) -> None:
    for baseline in (0.0, 0.3, 0.5, 1.0):
        policy = Policy(rule, Rounds(*rounds), group_size=4, group=group, advantage=Unbiased(baseline))
        np.testing.assert_allclose(analyze(policy, RATES).gradient_weight, 1, atol=1e-9)
        np.testing.assert_allclose(induced_objective(policy, RATES), RATES, atol=1e-9)


def outcome_of(policy: Policy, table: npt.NDArray[np.bool_], p: float, option: float) -> naive.Outcome:
    weighing = naive.Weighing(policy.advantage.name, option)
    return naive.analyze(
        lambda pos, neg: bool(table[pos, neg]),
        policy.budget.sizes,
        policy.n,
        policy.group.name,
        weighing,
        Fraction(p),
    )


@given(data=st.data(), budget=budgets, group=group_rules, name=advantages, p=dyadics)
def test_equals_enumeration(data: st.DataObject, budget: Budget, group: GroupRule, name: str, p: float) -> None:
    table = data.draw(tables_of(budget.max_samples))
    n = data.draw(st.integers(1, budget.max_samples))
    assume(not (name == "unbiased" and isinstance(group, Balanced) and n == 1))
    advantage = advantage_from_dict({"name": name} | option_of(name))
    policy = Policy(tabled(table), budget, n, group, advantage)
    expected = outcome_of(policy, table, p, next(iter(option_of(name).values()), 0.0))

    analysis = analyze(policy, p)
    for field in FIELDS:
        assert float(getattr(analysis, field)) == pytest.approx(getattr(expected, field), rel=1e-12, abs=1e-12), field
    assert analysis.exit_law.keys() == expected.exit_law.keys()
    for cell, chance in expected.exit_law.items():
        assert float(analysis.exit_law[cell]) == pytest.approx(chance, rel=1e-12), cell


@pytest.mark.parametrize("name", ["pool_mean", "group_mean", "group_std", "leave_one_out", "unbiased"])
@pytest.mark.parametrize("group", [Balanced(), Uniform(), All()])
@pytest.mark.slow
def test_equals_enumeration_at_twelve_draws(group: GroupRule, name: str) -> None:
    pos, neg = np.indices((13, 13))
    table = (pos >= 2) & (neg >= 3) | (pos == 4)
    advantage = advantage_from_dict({"name": name} | option_of(name))
    policy = Policy(tabled(table), Stages((4, 1, 2, 3, 2)), 5, group, advantage)
    expected = outcome_of(policy, table, 0.375, next(iter(option_of(name).values()), 0.0))
    analysis = analyze(policy, 0.375)
    for field in FIELDS:
        assert float(getattr(analysis, field)) == pytest.approx(getattr(expected, field), rel=1e-12, abs=1e-12), field


@given(data=st.data(), budget=budgets)
def test_law_has_mass_one(data: st.DataObject, budget: Budget) -> None:
    policy = Policy(tabled(data.draw(tables_of(budget.max_samples))), budget, group_size=1)
    total = sum(analyze(policy, RATES).exit_law.values())
    np.testing.assert_allclose(total, 1, rtol=1e-13)


@given(data=st.data(), budget=budgets)
def test_weaker_rule_never_costs_more(data: st.DataObject, budget: Budget) -> None:
    first, second = (tabled(data.draw(tables_of(budget.max_samples))) for _ in range(2))
    cost, weaker, stronger = (
        analyze(Policy(rule, budget, group_size=1), RATES).expected_samples
        for rule in (first, first | second, first & second)
    )
    assert (weaker <= cost + 1e-12).all()
    assert (stronger >= cost - 1e-12).all()


@given(data=st.data(), budget=budgets, group=group_rules, name=advantages, half=st.integers(1, 4))
def test_swapping_the_classes_mirrors_everything(
    data: st.DataObject, budget: Budget, group: GroupRule, name: str, half: int
) -> None:
    assume(2 * half <= budget.max_samples)
    # A pool of one has no others to leave out: there leave_one_out takes the classes differently.
    assume(budget.sizes[0] > 1 or name != "leave_one_out")
    table = data.draw(tables_of(budget.max_samples))
    ours, mirrored = (Policy(tabled(t), budget, 2 * half, group, advantage_from_dict(name)) for t in (table, table.T))
    a, b = analyze(ours, RATES), analyze(mirrored, 1 - RATES)
    for field in FIELDS:
        sign = -1 if field == "pool_mean_bias" else 1
        np.testing.assert_allclose(getattr(a, field), sign * getattr(b, field), rtol=1e-11, atol=1e-12, err_msg=field)
    np.testing.assert_allclose(a.short_of_positives, b.short_of_negatives, atol=1e-12)


@given(rates=st.lists(st.floats(0, 1), min_size=1, max_size=12), data=st.data())
def test_prompts_do_not_see_each_other(rates: list[float], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rates))))
    together = analyze(BALANCE, rates)
    permuted = analyze(BALANCE, np.array(rates)[order])
    column = analyze(BALANCE, np.array(rates)[:, None])
    alone = [analyze(BALANCE, rate) for rate in rates]
    for field in FIELDS:
        values = getattr(together, field)
        close: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-14, "err_msg": field}
        np.testing.assert_allclose(getattr(permuted, field), values[order], **close)
        np.testing.assert_allclose(getattr(column, field), values[:, None], **close)
        np.testing.assert_allclose([getattr(one, field) for one in alone], values, **close)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (2, 0)])
def test_results_are_shaped_like_the_pass_rates(shape: tuple[int, ...]) -> None:
    analysis = analyze(POS, np.full(shape, 0.3))
    for field in (*FIELDS, "short_of_positives", "short_of_negatives"):
        values = getattr(analysis, field)
        assert isinstance(values, np.ndarray)
        assert values.shape == shape
        assert values.dtype == np.float64
    assert all(law.shape == shape for law in analysis.exit_law.values())
    assert induced_objective(POS, np.full(shape, 0.3)).shape == shape


def test_more_pass_rates_than_one_chunk() -> None:
    rates = np.linspace(0, 1, 9001)
    analysis = analyze(Policy.preset("grpo"), rates)
    np.testing.assert_allclose(analysis.signal_probability, 1 - rates**4 - (1 - rates) ** 4, atol=1e-15)


def test_analysis_keeps_its_own_pass_rates() -> None:
    rates = np.array([0.5])
    analysis = analyze(Policy.preset("grpo", group_size=1), rates)
    rates[0] = 0.0
    assert analysis.exit_law[1, 0] == 0.5


def test_hopeless_and_mastered_prompts() -> None:
    hopeless, mastered = analyze(POS, 0.0), analyze(POS, 1.0)
    assert hopeless.expected_samples == 32
    assert hopeless.exit_law[0, 32] == 1
    assert hopeless.short_of_positives == 1
    assert mastered.expected_samples == 8
    assert mastered.resolved_probability == 1
    assert mastered.signal_probability == 0
    both = analyze(BALANCE, [0.0, 1.0])
    np.testing.assert_array_equal(both.expected_samples, 32)
    np.testing.assert_array_equal(both.signal_probability, 0)
    np.testing.assert_array_equal(both.short_of_positives, [1, 0])
    np.testing.assert_array_equal(both.short_of_negatives, [0, 1])


@pytest.mark.parametrize("preset", [name for name in preset_names() if not Policy.preset(name).tables.shared])
def test_weight_is_continuous_at_the_ends(preset: str) -> None:
    weight = analyze(Policy.preset(preset), [0.0, 1e-9, 1 - 1e-9, 1.0]).gradient_weight
    assert weight[0] == pytest.approx(weight[1], rel=1e-6, abs=1e-6)
    assert weight[3] == pytest.approx(weight[2], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf, [0.5, -0.25], [[0.5, 0.2], [0.1, math.nan]]])
def test_pass_rates_outside_the_unit_interval_are_quoted(wrong: Any) -> None:
    worst = next(x for x in np.ravel(wrong) if not 0 <= x <= 1)
    for function in (analyze, induced_objective):
        with pytest.raises(InputError, match="must lie in") as caught:
            function(POS, wrong)
        assert f"got {float(worst)!r}" in str(caught.value)
        assert "Drop these prompts or mend their rates" in str(caught.value)


@pytest.mark.parametrize("wrong", ["0.5", "often", ["0.5"], [0.1, "x"], [[0.1], [0.1, 0.2]], {0.5}, 0.5j])
def test_pass_rates_that_are_no_numbers_are_quoted(wrong: Any) -> None:
    with pytest.raises(InputError, match="pass_rates must be numbers in") as caught:
        analyze(POS, wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("function", [analyze, induced_objective, analyze_law])
def test_a_name_is_no_policy(function: Any) -> None:
    with pytest.raises(InputError, match=r"got 'grpo'.*Policy\.preset\('grpo'\)"):
        function("grpo", Beta(1, 1) if function is analyze_law else 0.5)


QUADRATURE_POLICIES = [
    POS,
    BALANCE,
    Policy.preset("grpo"),
    Policy(Quota(2, 1), Stages((3, 1, 6)), group_size=3, group=Uniform(), advantage=GroupMean()),
]


@pytest.mark.parametrize("policy", QUADRATURE_POLICIES)
def test_induced_objective_integrates_the_weight(policy: Policy) -> None:
    grid = np.array([0.0, 0.9, 0.03, 0.4, 1.0])
    objective = induced_objective(policy, grid)
    for p, value in zip(grid, objective, strict=True):
        area, _ = integrate.quad(lambda x: float(analyze(policy, x).gradient_weight), 0, p, epsabs=1e-11, epsrel=1e-11)
        assert value == pytest.approx(area, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("policy", QUADRATURE_POLICIES)
def test_average_over_a_law(policy: Policy) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    p = (1 + nodes) / 2
    density = weights / 2 * stats.beta.pdf(p, 2, 3)
    pointwise = analyze(policy, p)
    over_beta = analyze_law(policy, Beta(2, 3))
    atoms, mass = np.array([0.0, 0.2, 0.9]), np.array([0.5, 0.3, 0.2])
    over_grid = analyze_law(policy, Grid(atoms, mass))
    over_both = analyze_law(policy, Mixture((Beta(2, 3), Grid(atoms, mass)), (1, 3)))
    at_atoms = analyze(policy, atoms)
    for field in FIELDS:
        assert over_beta[field] == pytest.approx(density @ getattr(pointwise, field), rel=1e-11, abs=1e-12), field
        assert over_grid[field] == pytest.approx(mass @ getattr(at_atoms, field), rel=1e-13), field
        mixed = over_beta[field] / 4 + 3 * over_grid[field] / 4
        assert over_both[field] == pytest.approx(mixed, rel=1e-11, abs=1e-14), field
    assert over_beta["pass_rates"] == pytest.approx(0.4, rel=1e-13)


@pytest.mark.parametrize("budget", [Rounds(1, 512), Rounds(32, 16)])
def test_large_budgets(budget: Rounds) -> None:
    p = np.array([0.0, 0.001, 0.01, 0.3, 1.0])
    analysis = analyze(Policy(Positive(), budget, group_size=8), p)
    np.testing.assert_allclose(sum(analysis.exit_law.values()), 1, rtol=1e-12)
    q, m = 1 - p[1:], budget.samples
    np.testing.assert_allclose(analysis.expected_samples[1:], m * (1 - q**512) / (1 - q**m), rtol=1e-12)
    assert analysis.expected_samples[0] == 512


@pytest.mark.parametrize("advantage", [PoolMean(), GroupMean(), GroupStd()])
def test_no_weight_without_signal(advantage: Advantage) -> None:
    policy = Policy(Never(), Rounds(1), group_size=1, group=All(), advantage=advantage)
    np.testing.assert_array_equal(analyze(policy, RATES).gradient_weight, 0)


def test_exit_law_by_hand() -> None:
    # Two rounds of one: a first correct response exits.
    law = analyze(Policy(Positive(), Rounds(1, 2), group_size=1), 0.25).exit_law
    assert {cell: float(chance) for cell, chance in law.items()} == {(1, 0): 0.25, (1, 1): 0.1875, (0, 2): 0.5625}


def test_first_round_is_drawn_even_where_the_rule_holds_at_once() -> None:
    policy = Policy(~Never(), Rounds(3, 4), group_size=1)
    np.testing.assert_array_equal(analyze(policy, RATES).expected_rounds, 1)
    np.testing.assert_allclose(analyze(policy, RATES).expected_samples, 3, rtol=1e-15)


def test_enumeration_counts_every_sequence() -> None:
    exits = naive.walk(lambda pos, _: pos > 0, (2, 1))
    got = {end.rewards: (end.rounds, end.resolved) for end in exits}
    assert got == {
        (0, 1): (1, True),
        (1, 0): (1, True),
        (1, 1): (1, True),
        (0, 0, 0): (2, False),
        (0, 0, 1): (2, True),
    }
    assert naive.groups("balanced", (0, 1, 1), 2) == [(1, 0), (2, 0)]
    assert naive.groups("uniform", (0, 1, 1), 2) == list(itertools.combinations(range(3), 2))
