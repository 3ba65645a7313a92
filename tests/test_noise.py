"""Verifier noise: enumeration of every sequence of truths and rewards, closed forms, and what must not change."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from ada_bandit.advantages import GroupMean, PoolMean, Unbiased, advantage_from_dict
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze, analyze_law, induced_objective
from ada_bandit.groups import All, Balanced, Uniform
from ada_bandit.laws import Beta, Grid
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, Never, Positive, Quota, StopTable
from ada_bandit.score_model import ScoreModel
from ada_bandit.verifier import VerifierNoise
from tests import naive

BALANCE = Policy.preset("reinforce-ada-balance")
RATES = np.array([0.0, 0.02, 0.3, 0.5, 0.9, 1.0])
NOISE = VerifierNoise(false_positive=0.125, false_negative=0.25)


def enumerate_truths(
    policy: Policy, exits: list[naive.Exit], p: Fraction, rho: tuple[Fraction, Fraction], nu: tuple[Fraction, Fraction]
) -> dict[str, Fraction]:
    """Sum over rewards, truths and kept rows; the score of a correct response is q phi, of an incorrect one -p phi."""
    q = 1 - p
    chance_of = {(1, 1): p * (1 - rho[1]), (1, 0): p * rho[1], (0, 1): q * rho[0], (0, 0): q * (1 - rho[0])}
    weighing = naive.Weighing(policy.advantage.name, 0.25 if policy.advantage.name == "unbiased" else 0.0)
    names = ("samples", "bias", "mse", "update", "square", "energy", "false_positives", "false_negatives")
    sums = dict.fromkeys(names, Fraction(0))
    for end in exits:
        rewards = end.rewards
        choices = naive.groups(policy.group.name, rewards, policy.n)
        estimate = naive.first_correct_share(exits, end.cell)
        weights = [weighing(rewards, kept, choices, estimate, policy.n) for kept in choices]
        mean = Fraction(sum(rewards), len(rewards))
        for truths in itertools.product((0, 1), repeat=len(rewards)):
            chance = Fraction(1)
            for pair in zip(truths, rewards, strict=True):
                chance *= chance_of[pair]
            sums["samples"] += chance * len(rewards)
            sums["bias"] += chance * (mean - p)
            sums["mse"] += chance * (mean - p) ** 2
            share = chance / len(choices)
            for kept, values in zip(choices, weights, strict=True):
                u = sum((a * (q if truths[i] else -p) for a, i in zip(values, kept, strict=True)), Fraction(0))
                sums["update"] += share * u
                sums["square"] += share * u * u
                noisy = (a * a * nu[1 - truths[i]] for a, i in zip(values, kept, strict=True))
                sums["energy"] += share * sum(noisy, Fraction(0))
                sums["false_positives"] += share * sum(rewards[i] and not truths[i] for i in kept)
                sums["false_negatives"] += share * sum(truths[i] and not rewards[i] for i in kept)
    return sums


@pytest.mark.parametrize("advantage", ["pool_mean", "group_mean", "leave_one_out", "unbiased"])
@pytest.mark.parametrize("group", [Balanced(), Uniform(), All()])
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda sizes: 2 <= sum(sizes) <= 4),
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(1, 7).map(lambda i: Fraction(i, 8)),
    rho=st.tuples(st.integers(0, 3), st.integers(0, 4)).map(lambda ij: (Fraction(ij[0], 8), Fraction(ij[1], 8))),
)
@pytest.mark.slow
def test_equals_enumeration_of_truths(
    group: Any, advantage: str, sizes: list[int], seed: int, p: Fraction, rho: tuple[Fraction, Fraction]
) -> None:
    most = sum(sizes)
    table = np.random.default_rng(seed).random((most + 1, most + 1)) < 0.3
    option: dict[str, Any] = {"baseline": 0.25} if advantage == "unbiased" else {}
    policy = Policy(StopTable(table), Stages(sizes), 2, group, advantage_from_dict({"name": advantage, **option}))
    exits = naive.walk(lambda pos, neg: bool(table[pos, neg]), sizes)
    nu = (Fraction(1, 2), Fraction(3))
    sums = {name: float(value) for name, value in enumerate_truths(policy, exits, p, rho, nu).items()}
    verifier = VerifierNoise(float(rho[0]), float(rho[1]))
    close: dict[str, Any] = {"rel": 1e-11, "abs": 1e-13}

    found = analyze(policy, float(p), verifier)
    assert found.expected_samples == pytest.approx(sums["samples"], **close)
    assert found.pool_mean_bias == pytest.approx(sums["bias"], **close)
    assert found.pool_mean_mse == pytest.approx(sums["mse"], **close)
    assert found.gradient_weight == pytest.approx(sums["update"] / float(p * (1 - p)) / policy.n, **close)
    assert found.kept_false_positives == pytest.approx(sums["false_positives"] if any(rho) else 0, **close)
    assert found.kept_false_negatives == pytest.approx(sums["false_negatives"] if any(rho) else 0, **close)
    assert sum(found.exit_law.values()) == pytest.approx(1, rel=1e-12)

    efficiency = gradient_efficiency(policy, Grid([float(p)]), ScoreModel((0.5, 3.0)), verifier)
    assert efficiency.progress == pytest.approx(float(p * (1 - p)) * sums["update"], **close)
    assert efficiency.noise == pytest.approx(sums["square"] + sums["energy"], **close)
    assert efficiency.expected_samples == pytest.approx(sums["samples"], **close)


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce-ada-pos", "reinforce-ada-balance"])
def test_a_perfect_verifier_changes_nothing(name: str) -> None:
    policy = Policy.preset(name)
    plain, perfect = analyze(policy, RATES), analyze(policy, RATES, VerifierNoise(false_positive=0, false_negative=0))
    for field, values in vars(plain).items():
        if isinstance(values, np.ndarray):
            np.testing.assert_array_equal(getattr(perfect, field), values, err_msg=field)
    np.testing.assert_array_equal(plain.reward_rates, RATES)
    for values in (plain.false_share, plain.kept_false_positives, plain.kept_false_negatives):
        np.testing.assert_array_equal(values, 0)


@pytest.mark.parametrize("policy", [BALANCE, Policy(Quota(2, 1), Stages((3, 1, 6)), 3, Uniform(), GroupMean())])
def test_noise_moves_the_rate_and_scales_the_weight(policy: Policy) -> None:
    noisy = analyze(policy, RATES, NOISE)
    seen = 0.125 + 0.625 * RATES
    moved = analyze(policy, seen)
    np.testing.assert_allclose(noisy.reward_rates, seen, rtol=1e-15)
    for name in ("expected_samples", "expected_rounds", "signal_probability", "resolved_probability"):
        np.testing.assert_array_equal(getattr(noisy, name), getattr(moved, name), err_msg=name)
    np.testing.assert_allclose(noisy.gradient_weight, 0.625 * moved.gradient_weight, rtol=1e-15)
    np.testing.assert_allclose(noisy.pool_mean_bias, moved.pool_mean_bias + seen - RATES, atol=1e-14)
    spread = moved.pool_mean_mse + 2 * moved.pool_mean_bias * (seen - RATES) + (seen - RATES) ** 2
    np.testing.assert_allclose(noisy.pool_mean_mse, spread, atol=1e-14)
    np.testing.assert_allclose(noisy.false_share, 0.125 * (1 - RATES) / seen, atol=1e-15)
    for cell, chance in noisy.exit_law.items():
        np.testing.assert_array_equal(chance, moved.exit_law[cell])


def test_objective_integrates_the_weight_against_the_true_rate() -> None:
    grid = np.array([0.0, 0.9, 0.03, 1.0])
    objective = induced_objective(BALANCE, grid, NOISE)
    assert objective[0] == 0
    for p, value in zip(grid, objective, strict=True):
        area, _ = integrate.quad(lambda x: float(analyze(BALANCE, x, NOISE).gradient_weight), 0, p, epsabs=1e-11)
        assert value == pytest.approx(area, rel=1e-9, abs=1e-10)


@pytest.mark.slow
def test_a_hopeless_prompt_ends_with_a_false_positive() -> None:
    # One at a time until the first positive reward, practically uncapped: 1 / rho0 draws, and nothing but a mistake.
    rho = 0.02
    policy = Policy(Positive(), Rounds(1, 1500), group_size=1, group=All(), advantage=PoolMean())
    found = analyze(policy, [0.0, 0.01], VerifierNoise(rho))
    assert found.expected_samples[0] == pytest.approx(1 / rho, rel=1e-9)
    assert found.kept_false_positives[0] == pytest.approx(1, rel=1e-9)
    assert found.false_share[0] == 1
    assert found.resolved_probability[0] == pytest.approx(1, rel=1e-9)
    seen = rho + (1 - rho) * 0.01
    assert found.expected_samples[1] == pytest.approx(1 / seen, rel=1e-9)
    assert found.kept_false_positives[1] == pytest.approx(rho * 0.99 / seen, rel=1e-9)
    np.testing.assert_array_equal(found.kept_false_negatives, 0)


def test_an_adaptive_rule_amplifies_false_positives_on_hard_prompts() -> None:
    # Four responses keep 4 * 0.01 * 0.99 mistakes. Rounds until balance go on to two positive rewards, or 32
    # responses, and keep both; at a rate of 0.0199 half of them are mistakes.
    verifier = VerifierNoise(false_positive=0.01)
    fixed = analyze(Policy.preset("dr-grpo"), 0.01, verifier).kept_false_positives
    adaptive = analyze(BALANCE, 0.01, verifier).kept_false_positives
    assert fixed == pytest.approx(4 * 0.01 * 0.99, rel=1e-12)
    positives = stats.binom.sf([0, 1], 32, 0.0199).sum()
    assert adaptive == pytest.approx(0.01 * 0.99 / 0.0199 * positives, rel=1e-9)
    assert adaptive == pytest.approx(0.302, abs=5e-4)


@pytest.mark.parametrize("policy", [BALANCE, Policy(Balance(4), Rounds(1, 16), 4, All(), Unbiased(0.25))])
def test_average_over_a_law(policy: Policy) -> None:
    nodes, weights = Beta(2, 3).quadrature(200)
    pointwise = analyze(policy, nodes, NOISE)
    for name, value in analyze_law(policy, Beta(2, 3), NOISE).items():
        assert value == pytest.approx(weights @ getattr(pointwise, name), rel=1e-11, abs=1e-13), name


@pytest.mark.parametrize("rho", [0.2, 0.01, 1e-3, 1e-4])
@pytest.mark.slow
def test_efficiency_over_a_law_has_no_quadrature_error(rho: float) -> None:
    # The integrand has poles next to [0, 1]; the reference is a quadrature that is much finer.
    prior = Beta(0.5, 1)
    fine = Grid(*prior.quadrature(4000))
    model = ScoreModel(1.0, "log", 2.0)
    for verifier in (VerifierNoise(false_positive=rho), VerifierNoise(false_negative=rho)):
        found, expected = (gradient_efficiency(BALANCE, law, model, verifier) for law in (prior, fine))
        assert found.noise == pytest.approx(expected.noise, rel=1e-11)
        assert found.progress == pytest.approx(expected.progress, rel=1e-11)
        assert found.value == pytest.approx(expected.value, rel=1e-11)


def test_noise_costs_efficiency() -> None:
    verifiers = [VerifierNoise(rho) for rho in (0.0, 0.01, 0.1, 0.5)]
    values = [gradient_efficiency(BALANCE, Beta(0.5, 1), verifier=verifier).value for verifier in verifiers]
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"false_positive": -0.1}, r"false_positive must be a finite number in \[0, inf\); got -0\.1"),
        ({"false_negative": np.nan}, "false_negative must be a finite number.*got nan"),
        ({"false_negative": "0.1"}, "false_negative must be a finite number.*got '0.1'"),
        (
            {"false_positive": 1.0},
            r"less than 1.*got 1\.0 and 0\.0\. For a verifier that is mostly wrong, swap its rew",
        ),
        ({"false_positive": 0.5, "false_negative": 0.5}, r"less than 1.*got 0\.5 and 0\.5"),
    ],
)
def test_error_rates_that_are_refused(rates: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VerifierNoise(**rates)


def test_efficiency_of_plain_sampling_by_hand() -> None:
    # One response, its reward as the weight: it is kept with advantage 1 where the reward is positive.
    p, rho = 0.3, (0.1, 0.2)
    policy = Policy(Never(), Rounds(1), 1, All(), advantage_from_dict("leave_one_out"))
    seen = rho[0] + 0.7 * p
    right = p * 0.8 / seen
    nu = (0.5, 3.0)
    expected = seen * (right * ((1 - p) ** 2 + nu[0]) + (1 - right) * (p**2 + nu[1]))
    found = gradient_efficiency(policy, Grid([p]), ScoreModel(nu), VerifierNoise(*rho))
    assert found.noise == pytest.approx(expected, rel=1e-13)
    assert found.progress == pytest.approx(0.7 * (p * (1 - p)) ** 2, rel=1e-13)
