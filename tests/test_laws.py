"""Pass-rate laws: moments, quadrature, quantiles, and Bayes by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special, stats

from ada_bandit.errors import InputError
from ada_bandit.laws import Beta, Grid, Law, Mixture, law_from_dict

ATOMS, WEIGHTS = np.array([0.0, 0.2, 0.5, 1.0]), np.array([0.1, 0.4, 0.3, 0.2])
GRID = Grid(ATOMS, WEIGHTS)
BETA = Beta(2, 3)
MIXTURE = Mixture((BETA, GRID), (0.25, 0.75))
LAWS: list[Law] = [BETA, Beta(0.5, 1), GRID, MIXTURE, Mixture((MIXTURE, Beta(1, 1)), (1, 2))]


def evidence(law: Law, pos: int, neg: int) -> float:
    """Return E[p^pos q^neg] by definition."""
    if isinstance(law, Beta):
        return float(special.beta(law.a + pos, law.b + neg) / special.beta(law.a, law.b))
    if isinstance(law, Grid):
        return float(sum(w * p**pos * (1 - p) ** neg for p, w in zip(law.pass_rates, law.weights, strict=True)))
    assert isinstance(law, Mixture)
    return sum(w * evidence(part, pos, neg) for part, w in zip(law.laws, law.weights, strict=True))


@pytest.mark.parametrize("law", LAWS)
def test_evidence_is_the_mean_likelihood(law: Law) -> None:
    pos, neg = np.indices((7, 7))
    expected = [[evidence(law, k, m) for m in range(7)] for k in range(7)]
    np.testing.assert_allclose(law.evidence(pos, neg), expected, rtol=1e-13)
    np.testing.assert_allclose(np.exp(law.log_evidence(pos, neg)), expected, rtol=1e-13)
    assert law.mean == pytest.approx(evidence(law, 1, 0), rel=1e-13)


def test_means_by_hand() -> None:
    assert BETA.mean == pytest.approx(0.4)
    assert GRID.mean == pytest.approx(0.43)
    assert MIXTURE.mean == pytest.approx(0.25 * 0.4 + 0.75 * 0.43)


@pytest.mark.parametrize("law", [*LAWS, Beta(0.01, 0.01), Beta(0.3, 0.7), Beta(1, 1), Beta(40, 2), Beta(0.001, 200)])
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 10, 33])
def test_quadrature_is_exact_up_to_its_degree(law: Law, degree: int) -> None:
    nodes, weights = law.quadrature(degree)
    assert ((nodes >= 0) & (nodes <= 1)).all()
    assert (weights >= 0).all()
    for k in {0, 1, degree // 2, degree}:
        if k <= degree:
            for m in {0, degree - k}:
                assert weights @ (nodes**k * (1 - nodes) ** m) == pytest.approx(evidence(law, k, m), rel=1e-11)


@pytest.mark.parametrize(("a", "b"), [(2000, 1), (5000, 7000), (1e-3, 3000)])
def test_quadrature_of_sharp_laws(a: float, b: float) -> None:
    nodes, weights = Beta(a, b).quadrature(60)
    mean = a / (a + b)
    assert weights.sum() == pytest.approx(1, rel=1e-13)
    assert weights @ nodes == pytest.approx(mean, rel=1e-12)
    assert weights @ (nodes - mean) ** 2 == pytest.approx(mean * (1 - mean) / (a + b + 1), rel=1e-11)


def test_beta_probability_and_quantile() -> None:
    law = stats.beta(2, 3)
    assert BETA.probability(0.2, 0.7) == pytest.approx(law.cdf(0.7) - law.cdf(0.2), rel=1e-13)
    assert BETA.probability(-1, 2) == 1
    assert BETA.probability(0.7, 0.2) == 0
    uniforms = np.array([[0.0, 0.1], [0.5, 0.999]])
    np.testing.assert_allclose(BETA.quantile(uniforms), law.ppf(uniforms), rtol=1e-12)


def test_grid_probability_counts_both_ends() -> None:
    assert GRID.probability(0.2, 0.5) == pytest.approx(0.7)
    assert GRID.probability(0.21, 0.49) == 0
    assert GRID.probability(0, 1) == pytest.approx(1)
    assert MIXTURE.probability(0.2, 0.5) == pytest.approx(0.25 * BETA.probability(0.2, 0.5) + 0.75 * 0.7)


def test_grid_quantile_at_the_steps() -> None:
    # Cumulated: 0.1, 0.5, 0.8, 1.
    uniforms = np.array([0.0, 0.0999, 0.1001, 0.4999, 0.5001, 0.7999, 0.8001, 1 - 1e-16])
    np.testing.assert_array_equal(GRID.quantile(uniforms), [0, 0, 0.2, 0.2, 0.5, 0.5, 1, 1])
    never_first = Grid(np.array([0.1, 0.9]), np.array([0.0, 1.0]))
    assert never_first.quantile(np.array([0.0])) == 0.9


@pytest.mark.parametrize("law", LAWS)
def test_quantiles_of_even_uniforms_follow_the_law(law: Law) -> None:
    uniforms = (np.arange(20_000) + 0.5) / 20_000
    rates = law.quantile(uniforms)
    assert rates.shape == uniforms.shape
    for low, high in ((0, 0.1), (0.1, 0.35), (0.2, 0.5), (0.9, 1)):
        share = float(np.mean((rates >= low) & (rates <= high)))
        assert share == pytest.approx(law.probability(low, high), abs=3e-4)


@given(law=st.sampled_from(LAWS), pos=st.integers(0, 5), neg=st.integers(0, 5), more=st.integers(0, 3))
def test_posterior_predicts_as_bayes_does(law: Law, pos: int, neg: int, more: int) -> None:
    assume(evidence(law, pos, neg) > 0)
    posterior = law.posterior(pos, neg)
    for k in range(more + 1):
        expected = evidence(law, pos + k, neg + more - k) / evidence(law, pos, neg)
        assert posterior.evidence(k, more - k) == pytest.approx(expected, rel=1e-12)


def test_posteriors_by_hand() -> None:
    assert BETA.posterior(3, 1) == Beta(5, 4)
    # (1, 1) rules out 0 and 1 and leaves 0.4 * 0.16 : 0.3 * 0.25.
    np.testing.assert_allclose(GRID.posterior(1, 1).weights, [0, 0.064 / 0.139, 0.075 / 0.139, 0], rtol=1e-14)
    part = MIXTURE.posterior(1, 1)
    # E[pq] is 2 * 3 / (5 * 6) = 0.2 under Beta(2, 3).
    assert part.weights == pytest.approx([0.25 * 0.2 / (0.05 + 0.75 * 0.139), 0.75 * 0.139 / (0.05 + 0.75 * 0.139)])
    assert part.laws == (Beta(3, 4), GRID.posterior(1, 1))
    # A component that can't be is dropped.
    assert Mixture((Grid([0.0]), BETA), (1, 1)).posterior(1, 0) == Mixture((Beta(3, 3),), (1,))


def test_predictive_by_hand() -> None:
    np.testing.assert_allclose(Beta(1, 1).predictive(6), np.full(7, 1 / 7), rtol=1e-14)
    np.testing.assert_allclose(BETA.predictive(5), stats.betabinom.pmf(np.arange(6), 5, 2, 3), rtol=1e-13)
    binomials = [stats.binom.pmf(np.arange(6), 5, p) for p in ATOMS]
    np.testing.assert_allclose(GRID.predictive(5), WEIGHTS @ binomials, rtol=1e-13)
    np.testing.assert_array_equal(BETA.predictive(0), [1])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("total", [1, 16, 3000])
def test_predictive_has_mass_one(law: Law, total: int) -> None:
    assert law.predictive(total).sum() == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("law", [GRID, Grid(np.linspace(0, 1, 33))])
def test_filter_reweights_by_the_chance_to_pass_it(law: Grid) -> None:
    rates, weights = law.pass_rates, law.weights
    passed = law.at_least(1, 16)
    chance = weights * (1 - (1 - rates) ** 16)
    chance /= chance.sum()
    for p, expected in zip(rates, chance, strict=True):
        assert passed.probability(p, p) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert passed.mean == pytest.approx(chance @ rates, rel=1e-12)


def test_filter_of_a_beta_law() -> None:
    nodes, weights = np.polynomial.legendre.leggauss(80)
    p = (1 + nodes) / 2
    density = weights * stats.beta.pdf(p, 2, 3) * stats.binom.sf(2, 8, p)
    passed = BETA.at_least(3, 8)
    assert passed.mean == pytest.approx(density @ p / density.sum(), rel=1e-12)
    assert BETA.at_least(0, 8).evidence(3, 4) == pytest.approx(BETA.evidence(3, 4), rel=1e-12)


@given(weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_normalising_once_is_enough(weights: list[float]) -> None:
    assume(sum(weights) > 1e-300)
    rates = np.linspace(0, 1, len(weights))
    grid = Grid(rates, weights)
    assert grid.weights.sum() == pytest.approx(1, rel=1e-14)
    assert Grid(grid.pass_rates, grid.weights) == grid
    mixture = Mixture((BETA,) * len(weights), tuple(weights))
    assert Mixture(mixture.laws, mixture.weights) == mixture
    assert mixture.weights == tuple(grid.weights)


def test_grid_sorts_its_rates_and_keeps_its_own_copies() -> None:
    rates, weights = np.array([0.9, 0.1]), np.array([3.0, 1.0])
    grid = Grid(rates, weights)
    rates[0] = weights[0] = 0
    np.testing.assert_array_equal(grid.pass_rates, [0.1, 0.9])
    np.testing.assert_array_equal(grid.weights, [0.25, 0.75])
    with pytest.raises(ValueError, match="read-only"):
        grid.weights[0] = 1


def test_equality_and_hash_are_by_value() -> None:
    same = Grid(ATOMS.tolist(), (WEIGHTS * 2).tolist())
    assert same == GRID
    assert hash(same) == hash(GRID)
    assert Grid(ATOMS) != GRID
    assert GRID != "grid"
    assert Grid([0.3]) == Grid([0.3], [7])
    assert len({MIXTURE, Mixture((Beta(2, 3), same), (1, 3))}) == 1


@pytest.mark.parametrize("law", LAWS)
def test_plain_values_round_trip(law: Law) -> None:
    assert law_from_dict(law.to_dict()) == law
    assert law_from_dict(law) is law


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Beta(0, 1), r"a must be a finite number in \(0, inf\); got 0"),
        (lambda: Beta(1, -2), r"b must be a finite number in \(0, inf\); got -2"),
        (lambda: Beta(math.inf, 1), r"a must be a finite number in \(0, inf\); got inf"),
        (lambda: Beta("1", 1), r"a must be a finite number in \(0, inf\); got '1'"),  # type: ignore[arg-type]
        (lambda: Grid([]), "a Grid needs at least one pass rate; got an empty array"),
        (lambda: Grid([0.1, 1.5]), r"pass_rates must lie in \[0, 1\]; got 1\.5 at position 1 \(1 of 2 outside\)"),
        (lambda: Grid([0.1, 0.2], [1]), "weights must match pass_rates, one each; got 1 weights for 2 pass rates"),
        (lambda: Grid([0.1, 0.2], [1, -1]), r"finite, non-negative and not all 0; got \[1, -1\]"),
        (lambda: Grid([0.1, 0.2], [0, 0]), r"finite, non-negative and not all 0; got \[0, 0\]"),
        (lambda: Grid([0.1, 0.2], [1, math.nan]), r"finite, non-negative and not all 0; got \[1, nan\]"),
        (lambda: Grid([0.1], ["many"]), r"weights must be numbers, one for each part; got \['many'\]"),
        (lambda: Mixture((), ()), r"a Mixture needs a list of at least one law; got \(\)"),
        (lambda: Mixture(BETA, (1,)), "a Mixture needs a list of at least one law; got Beta"),  # type: ignore[arg-type]
        (lambda: Mixture((BETA,), (1, 2)), "a Mixture needs one weight a law; got 2 weights for 1 laws"),
        (lambda: Mixture((BETA, GRID), (1, math.inf)), r"finite, non-negative and not all 0; got \(1, inf\)"),
        (lambda: Mixture(("beta",), (1,)), "the law 'beta' needs a, b; got"),  # type: ignore[arg-type]
        (lambda: law_from_dict({"name": "betta", "a": 1, "b": 1}), r"unknown law 'betta'; did you mean 'beta'\?"),
        (lambda: law_from_dict({"name": "beta", "a": 1, "c": 1}), "unknown key 'c' of the law 'beta'"),
        (lambda: law_from_dict(0.5), r"such as \{name = 'beta', a = 1\.0, b = 1\.0\}; got 0\.5"),
        (lambda: BETA.predictive(-1), "total must be a whole number of at least 0; got -1"),
        (lambda: BETA.at_least(1, 0), "total must be a whole number of at least 1; got 0"),
        (lambda: BETA.at_least(-1, 4), "correct must be a whole number of at least 0; got -1"),
        (lambda: BETA.at_least(5, 4), "correct must not exceed total; got 5 of 4"),
        (lambda: Grid([0.0]).at_least(1, 16), r"can have 1 of 16 responses correct; ask for fewer \(its mean pass"),
        (lambda: Grid([0.0, 1.0]).posterior(1, 1), "rules out 1 correct and 1 incorrect responses; widen its support"),
        (lambda: Mixture((Grid([0.0]),), (1,)).posterior(2, 0), "rules out 2 correct and 0 incorrect.*widen"),
    ],
)
def test_values_that_laws_refuse(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()
