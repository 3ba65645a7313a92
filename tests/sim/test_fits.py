"""Laws fitted to counts and to curves, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ada_bandit.errors import InputError
from ada_bandit.laws import Grid
from sim.fits import fit_beta, fit_curve


def grid(law: object) -> Grid:
    assert isinstance(law, Grid)
    return law


def test_fit_of_the_uniform_law() -> None:
    # For p uniform on [0, 1], E[p^k] = E[q^k] = 1 / (k + 1).
    k = [1, 2, 4, 8, 16, 32, 64]
    law, residual = fit_curve(k, [i / (i + 1) for i in k], [1 / (i + 1) for i in k])
    assert residual < 2e-4
    assert law.weights.sum() == pytest.approx(1)
    assert law.mean == pytest.approx(0.5, abs=2e-4)
    assert law.evidence(3, 0) == pytest.approx(1 / 4, abs=1e-3)
    assert law.probability(0.25, 0.75) == pytest.approx(0.5, abs=0.02)


def test_fit_of_laws_at_the_ends() -> None:
    law, residual = fit_curve([1, 2, 8], [0.25] * 3, [0.25] * 3)
    assert residual < 1e-3
    assert law.probability(0, 0.01) == pytest.approx(0.75, abs=0.01)
    assert law.probability(0.99, 1) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("k", "pass_at_k", "all_correct", "message"),
    [
        ([], [], [], "needs one pass@k"),
        ([1, 2], [0.5], [0.5, 0.2], "got 2 k, 1 pass@k and 2 all-correct@k"),
        ([0], [0.5], [0.5], "k must be a finite number"),
        ([1], [1.5], [0.5], r"must lie in \[0, 1\]; got 1.5"),
    ],
)
def test_fit_refuses(k: list[int], pass_at_k: list[float], all_correct: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_curve(k, pass_at_k, all_correct)


@pytest.mark.parametrize("prompts", [(4, 2, 4), (5, 3, 2), (70, 1, 2)])
def test_prior_of_pairs_in_closed_form(prompts: tuple[int, int, int]) -> None:
    # With 2 responses each, mean and concentration reproduce the three frequencies:
    # P(1 of 2) = 2 m (1 - m) s / (s + 1).
    share = np.array(prompts) / sum(prompts)
    mean = share[1] / 2 + share[2]
    ratio = share[1] / (2 * mean * (1 - mean))
    fit = fit_beta(np.repeat([0, 1, 2], prompts), np.full(sum(prompts), 2))
    assert fit.mean == pytest.approx(mean, rel=1e-6)
    assert fit.concentration == pytest.approx(ratio / (1 - ratio), rel=1e-5)


def test_mixture_of_posteriors_by_hand() -> None:
    # Frequencies 4, 2, 4 give a = b = 1/3. Two more responses are mixed with chance 2 (1/3) (7/3) / ((8/3) (11/3))
    # = 7/44 after 0 or 2 of 2, and 32/88 after 1 of 2: 0.2 in all, which is what was seen.
    correct = np.repeat([0, 1, 2], (4, 2, 4))
    law = fit_beta(correct, np.full(10, 2)).posterior(correct, np.full(10, 2))
    assert law.predictive(2)[1] == pytest.approx(0.8 * 7 / 44 + 0.2 * 32 / 88, rel=1e-5)
    assert law.predictive(2)[1] == pytest.approx(0.2, rel=1e-5)
    # At the posterior means 1/8, 1/2 and 7/8 it would be 0.8 * 7/32 + 0.2 * 1/2 = 0.275.


def test_prior_is_recovered() -> None:
    rng = np.random.default_rng(1)
    total = rng.integers(4, 40, 40_000)
    fit = fit_beta(rng.binomial(total, rng.beta(0.4, 1.6, total.size)), total)
    assert fit.mean == pytest.approx(0.2, abs=0.005)
    assert fit.concentration == pytest.approx(2.0, rel=0.03)
    assert str(fit).startswith("Beta(0.")


@pytest.mark.parametrize(
    ("correct", "total", "mean", "concentration", "words"),
    [
        ([0, 0, 0], [8, 8, 8], 0.0, math.inf, "a single pass rate p = 0"),
        ([8, 4], [8, 4], 1.0, math.inf, "a single pass rate p = 1"),
        ([2, 2, 2], [8, 8, 8], 0.25, math.inf, "a single pass rate p = 0.25"),
        ([3], [4], 0.75, math.inf, "a single pass rate p = 0.75"),
        ([0, 8, 8, 8], [8, 8, 8, 8], 0.75, 0.0, "p = 1 for a share of 0.75 and p = 0 for the rest"),
        ([0, 1, 1, 1], [1, 1, 1, 1], 0.75, math.inf, "a single pass rate p = 0.75"),
    ],
)
def test_prior_at_its_limits(
    correct: list[int], total: list[int], mean: float, concentration: float, words: str
) -> None:
    fit = fit_beta(correct, total)
    assert (fit.mean, fit.concentration, str(fit)) == (mean, concentration, words)
    law = grid(fit.posterior(correct, total))
    # One rate for all, or what each prompt showed.
    expected = {mean: 1.0} if concentration else {0.0: 0.25, 1.0: 0.75}
    assert dict(zip(law.pass_rates.tolist(), law.weights.tolist(), strict=True)) == expected


def test_prior_of_nothing() -> None:
    with pytest.raises(InputError, match="at least one prompt"):
        fit_beta([], [])
