"""Results of our own: each number against an enumeration, a closed form, a linear program or a simulation."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from typer.testing import CliRunner

from ada_bandit import Balance, Beta, Never, Policy, Positive, Rounds, ScoreModel
from ada_bandit.calibration import calibrate
from ada_bandit.errors import InputError
from ada_bandit.groups import All
from ada_bandit.laws import Grid
from ada_bandit.specs import read_policy
from sim.cli import app
from sim.theory.adaptivity import adaptive_gain, rare_gain, search_laws, worst_rate
from sim.theory.denominator import batch_factor, first_order, leaving_out_cost, leaving_out_factor
from sim.theory.price import (
    coefficient_bound,
    dear_multiple,
    draws_needed,
    draws_without_price,
    least_miss,
    moment_bound,
    second_moment,
)
from sim.theory.study import compute_theory

LOW, HIGH = 0.05, 0.95


def fixed(n: int) -> Policy:
    return Policy(rule=Never(), budget=Rounds(n, 1), group_size=n)


def fixed_mean(n: int) -> Policy:
    """Return n responses with the advantage reward less the group's mean."""
    policy = read_policy(f"dr-grpo:group_size={n}")
    assert isinstance(policy, Policy)
    return policy


# The value of adaptivity


def worth(law: Grid, model: ScoreModel, pos: int, neg: int) -> tuple[float, float]:
    """Return the chance of one sequence with these counts, and v' M^-1 v there, by the definition."""
    p, weights = law.pass_rates, law.weights
    own = p * (1 - p)
    pull = (1 - model.transfer) * own + model.transfer * (weights @ own)
    likely = weights * p**pos * (1 - p) ** neg
    chance = float(likely.sum())
    rows = np.stack([1 - p, p])
    moments = (likely * rows) @ rows.T / chance
    target = (likely * rows) @ pull / chance
    kept = [side for side, count in enumerate((pos, neg)) if count]
    noise = np.diag([model.noise[side] / (pos, neg)[side] for side in kept])
    matrix = moments[np.ix_(kept, kept)] + noise
    return chance, float(target[kept] @ np.linalg.solve(matrix, target[kept]))


def best_by_enumeration(law: Grid, model: ScoreModel, most: int) -> tuple[float, float]:
    """Return the best efficiency over all sets of cells to stop at, and over all fixed numbers."""
    cells = [(pos, total - pos) for total in range(1, most) for pos in range(total + 1)]

    def value(stops: set[tuple[int, int]]) -> float:
        gain = cost = 0.0
        front = {(1, 0): 1, (0, 1): 1}
        for total in range(1, most + 1):
            after: dict[tuple[int, int], int] = {}
            for (pos, neg), paths in front.items():
                if total == most or (pos, neg) in stops:
                    chance, useful = worth(law, model, pos, neg)
                    gain += paths * chance * useful
                    cost += paths * chance * total
                else:
                    for cell in ((pos + 1, neg), (pos, neg + 1)):
                        after[cell] = after.get(cell, 0) + paths
            front = after
        return gain / cost

    every = [value({cell for cell, stop in zip(cells, flags, strict=True) if stop})
             for flags in itertools.product((False, True), repeat=len(cells))]  # fmt: skip
    plain = [value({(pos, n - pos) for pos in range(n + 1)}) for n in range(1, most + 1)]
    return max(every), max(plain)


@pytest.mark.parametrize("transfer", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("most", [2, 3])
def test_the_gain_is_that_of_all_stopping_sets(most: int, transfer: float) -> None:
    law = Grid([0.02, 0.3, 0.9], [0.7, 0.2, 0.1])
    model = ScoreModel((0.5, 2.0), transfer=transfer)
    best, plain = best_by_enumeration(law, model, most)
    assert adaptive_gain(law, model, most) == pytest.approx(best / plain, rel=1e-10)


def test_a_law_without_progress_is_told() -> None:
    with pytest.raises(InputError, match="no policy makes progress"):
        adaptive_gain(Grid([0.0, 1.0]), ScoreModel(1.0), 4)


@pytest.mark.parametrize("transfer", [0.0, 1.0])
def test_no_gain_exceeds_k(transfer: float) -> None:
    random = np.random.default_rng(1)
    for most in (2, 3, 5):
        for _ in range(10):
            law = Grid(random.uniform(size=3), random.dirichlet([0.2] * 3))
            noise = tuple(10 ** random.uniform(-3, 3, 2))
            gain = adaptive_gain(law, ScoreModel(noise, transfer=transfer), most)
            assert 1 - 1e-12 <= gain < most


@pytest.mark.parametrize("transfer", [0.0, 1.0])
@pytest.mark.parametrize("objective", ["mean", "log"])
def test_rare_hope_is_the_limit(transfer: float, objective: str) -> None:
    noise, rate, share = (0.7, 3.0), 0.8, 1e-7
    model = ScoreModel(noise, objective=objective, transfer=transfer)
    gain = adaptive_gain(Grid([0, rate], [1 - share, share]), model, 4)
    assert gain == pytest.approx(rare_gain(rate, noise, 4), rel=1e-4)


def test_rare_hope_by_hand() -> None:
    p, q, noise = 0.6, 0.4, 2.0
    one, two, mixed = (x / (1 + x) for x in (q * q / noise, 2 * q * q / noise, (q * q + p * p) / noise))
    best_fixed = max(p * one, (p * p * two + 2 * p * q * mixed) / 2)
    assert rare_gain(p, (noise, noise), 2) == pytest.approx(p * (p * two + q * mixed) / best_fixed, rel=1e-12)


def test_two_responses_under_much_noise() -> None:
    # 1 / (1 - p q), largest at p = 1/2.
    rate, gain = worst_rate((1e9, 1e9), 2)
    assert rate == pytest.approx(0.5, abs=1e-3)
    assert gain == pytest.approx(4 / 3, rel=1e-6)
    assert rare_gain(0.8, (1e9, 1e9), 2) == pytest.approx(1 / (1 - 0.16), rel=1e-6)


@pytest.mark.parametrize("most", [2, 8, 32])
def test_the_gain_comes_to_k(most: int) -> None:
    # Both ways: signal in positives alone, and equal noise that vanishes more slowly than q^2 and faster than q.
    assert rare_gain(1 - 1e-6, (1.0, 1e15), most) == pytest.approx(most, rel=1e-4)
    gains = [rare_gain(1 - q, (q**1.5, q**1.5), most) for q in (1e-4, 1e-6, 1e-8)]
    assert gains == sorted(gains)
    assert most > gains[-1] > 0.99 * most
    # Much equal noise, all but hopeless prompts easy: q + (K - 1) p.
    assert rare_gain(0.999, (1e12, 1e12), most) == pytest.approx(
        (0.001 + 0.999 * (most - 1)) / (1 - _lost(0.999, most)), rel=1e-6
    )


def _lost(p: float, n: int) -> float:
    """Return the share of the n-response information that pools without a positive would hold."""
    return (1 - p) ** n * n * p * p / (n * p * (1 - p))


def test_two_responses_come_to_two_at_any_noise_without_transfer() -> None:
    # Hopeless prompts of a small p that two positives rule out.
    for noise in (1.0, 10.0):
        gains = [adaptive_gain(Grid([p, 0.6], [1 - p**1.5, p**1.5]), ScoreModel(noise, transfer=0.0), 2)
                 for p in (1e-2, 1e-3, 1e-4)]  # fmt: skip
        assert gains == sorted(gains)
        assert gains[-1] > 1.97


def test_the_search_finds_what_is_known() -> None:
    found = search_laws(ScoreModel(1.0, transfer=0.0), 2, starts=1)
    assert found.gain == pytest.approx(adaptive_gain(found.law, ScoreModel(1.0, transfer=0.0), 2), rel=1e-12)
    # Above the worst law of two rates of which one is 0.
    assert worst_rate((1.0, 1.0), 2)[1] < 1.9 < found.gain < 2


# The price of log p


def sequences(n: int) -> Iterator[tuple[int, ...]]:
    yield from itertools.product((0, 1), repeat=n)


@pytest.mark.parametrize("prior", [Beta(0.5, 1), Grid([0.1, 0.7], [0.4, 0.6])])
def test_leave_one_out_advantages_have_the_least_second_moment(prior: Any) -> None:
    n = 4
    c = np.array([1.3, -0.4, 2.0, 0.7])
    rates, nodes = prior.quadrature(n + 2)
    others = [(j, comb(n - 1, j) * rates**j * (1 - rates) ** (n - 1 - j)) for j in range(n)]
    means = [float(nodes @ (rates * law) / (nodes @ law)) for _, law in others]
    moment, weights = 0.0, np.zeros(rates.size)
    for rewards in sequences(n):
        pos = sum(rewards)
        law = rates**pos * (1 - rates) ** (n - pos)
        advantages = [c[pos - r] * (r - means[pos - r]) for r in rewards]
        moment += float(nodes @ law) * sum(a * a for a in advantages)
        weights += law * sum(a * (r / rates - (1 - r) / (1 - rates)) for a, r in zip(advantages, rewards, strict=True))
    assert moment == pytest.approx(second_moment(c, prior), rel=1e-10)
    assert weights / n == pytest.approx(sum(c[j] * law for j, law in others), rel=1e-10)


@pytest.mark.parametrize("objective", ["mean", "pass@2", "pass@5", "truncated-log"])
def test_the_second_moment_is_that_of_calibration(objective: str) -> None:
    n, prior = 6, Beta(0.5, 1)
    j = np.arange(n)
    # Of the weights 1, k q^(k-1) and (1 - q^n) / p.
    k = int(objective[5:]) if objective.startswith("pass") else 1
    power = np.array([comb(n - 1 - i, k - 1) / comb(n - 1, k - 1) for i in range(n)]) * k
    c = n / (j + 1) if objective == "truncated-log" else power
    assert calibrate(fixed(n), objective, prior).second_moment == pytest.approx(second_moment(c, prior), rel=1e-8)


@pytest.mark.parametrize("most", [2, 5, 9])
def test_the_least_miss_is_that_of_a_linear_program(most: int) -> None:
    x = np.cos(np.linspace(0, np.pi, 2001))
    p = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * x
    basis = np.polynomial.chebyshev.chebvander(x, most - 1)
    ones = np.ones((p.size, 1))
    rows = np.vstack([np.hstack([basis, -ones]), np.hstack([-basis, -ones])])
    goal = np.concatenate([1 / p, -1 / p])
    found = linprog([*[0.0] * most, 1.0], A_ub=rows, b_ub=goal, bounds=[(None, None)] * (most + 1))
    assert found.fun == pytest.approx(least_miss(most), rel=1e-4)
    assert draws_needed(least_miss(most)) == pytest.approx(most, rel=1e-12)


@pytest.mark.parametrize(("most", "tolerance"), [(12, 0.1), (16, 0.01), (24, 0.01), (32, 0.1), (32, 0.002)])
def test_the_bound_lies_below_the_price(most: int, tolerance: float) -> None:
    prior = Beta(0.5, 1)
    found = calibrate(fixed(most), "log", prior, tolerance)
    assert 0 < moment_bound(tolerance, most, prior) < found.second_moment
    # The tables found are at least as dear as their own weight.
    degree = most - 1
    basis = np.array([[comb(degree, j) * p**j * (1 - p) ** (degree - j) for j in range(most)] for p in found.grid])
    c, *_ = np.linalg.lstsq(basis, found.weights, rcond=None)
    assert np.max(np.abs(basis @ c - 1 / found.grid)) <= tolerance * (1 + 1e-6)


@pytest.mark.parametrize(("most", "tolerance"), [(12, 0.1), (16, 0.01), (24, 0.001), (32, 1e-4)])
def test_the_largest_coefficient_exceeds_its_bound(most: int, tolerance: float) -> None:
    tables = calibrate(fixed(most), "log", Beta(0.5, 1), tolerance).policy.tables
    j = np.arange(most)
    c = tables.adv_pos[j + 1, most - 1 - j] - tables.adv_neg[j, most - j]
    # w by its coefficients, at a pass rate in the middle.
    middle = sum(c[i] * comb(most - 1, i) for i in j.tolist()) / 2 ** (most - 1)
    assert middle == pytest.approx(2, abs=tolerance)
    assert np.abs(c).max() > coefficient_bound(tolerance, most) > 0


def test_how_many_draws_are_dear() -> None:
    # By hand for the ellipse R = 2.8 about [0.05, 0.95]: |p| + |q| is largest at the end of the short axis.
    half = 0.225 * (2.8 - 1 / 2.8)
    rho = (HIGH**0.5 + LOW**0.5) / (HIGH**0.5 - LOW**0.5)
    by_hand = (np.log(2.8) - np.log(rho)) / (0.5 * np.log(1 + 4 * half**2))
    assert by_hand <= dear_multiple() == pytest.approx(by_hand, rel=1e-3)
    # There the bound grows without end, and with more draws it does not.
    fewer, more = (
        [coefficient_bound(e, round(m * draws_needed(e))) for e in (1e-10, 1e-20, 1e-40)] for m in (1.3, 1.6)
    )
    assert fewer[0] < fewer[1] / 10 < fewer[2] / 100
    assert max(more) < 1


def test_what_too_few_responses_cannot_do() -> None:
    assert moment_bound(0.99 * least_miss(8), 8, Beta(1, 1)) == np.inf
    with pytest.raises(InputError, match="no advantages"):
        calibrate(fixed(8), "log", Beta(1, 1), 0.99 * least_miss(8))


@pytest.mark.parametrize("degree", [1, 2, 7, 12])
def test_alternating_sums_over_chebyshev_points(degree: int) -> None:
    points = np.cos(np.pi * np.arange(degree + 1) / degree)
    p = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * points
    signs = (-1.0) ** np.arange(degree + 1) / degree
    signs[[0, -1]] /= 2
    assert np.abs(signs).sum() == pytest.approx(1)
    for power in range(degree):
        assert signs @ p**power == pytest.approx(0, abs=1e-13)
    rho = (HIGH**0.5 + LOW**0.5) / (HIGH**0.5 - LOW**0.5)
    expected = 2 / (LOW * HIGH) ** 0.5 * rho**-degree / (1 - rho ** (-2 * degree))
    assert abs(signs @ (1 / p)) == pytest.approx(expected, rel=1e-10)


def test_the_root_of_the_price_is_convex_in_the_tolerance() -> None:
    tolerances = np.linspace(0.02, 0.5, 9)
    roots = [calibrate(fixed(16), "log", Beta(0.5, 1), float(e)).second_moment ** 0.5 for e in tolerances]
    assert (np.diff(roots) < 0).all()
    assert (np.diff(roots, 2) > 0).all()


@pytest.mark.parametrize("tolerance", [0.3, 0.01])
def test_when_the_truncated_logarithm_will_do(tolerance: float) -> None:
    most = int(np.ceil(draws_without_price(tolerance)))
    p = np.linspace(LOW, HIGH, 500)
    misses = [float(np.max((1 - p) ** k / p)) for k in (most - 1, most)]
    assert misses[0] > tolerance >= misses[1]


# Random denominators


def paths(policy: Policy) -> Iterator[tuple[int, int, int]]:
    """Give the counts of every exit with the number of sequences that end there, response by response."""
    tables = policy.tables
    front = {(0, 0): 1}
    while front:
        after: dict[tuple[int, int], int] = {}
        for (pos, neg), count in front.items():
            more = int(tables.draws[pos, neg])
            if not more:
                yield pos, neg, count
            for new in range(more + 1) if more else ():
                cell = pos + new, neg + more - new
                after[cell] = after.get(cell, 0) + count * comb(more, new)
        front = after


def by_enumeration(policy: Policy, law: Grid, prompts: int, p: float, tokens: tuple[int, int], *, out: bool) -> float:
    """Return the factor of w(p) by all outcomes of all prompts of a step."""
    tables = policy.tables
    exits = []
    for pos, neg, count in paths(policy):
        kept = int(tables.keep_pos[pos, neg]), int(tables.keep_neg[pos, neg])
        gains = [keep * float(adv[pos, neg]) for keep, adv in zip(kept, (tables.adv_pos, tables.adv_neg), strict=True)]
        length = kept[0] * tokens[0] + kept[1] * tokens[1]
        chance = count * float(law.weights @ (law.pass_rates**pos * (1 - law.pass_rates) ** neg))
        gain = gains[0] / p - gains[1] / (1 - p)
        exits.append((count * p**pos * (1 - p) ** neg * gain, chance, length, 0 if out and not any(gains) else length))
    mean = sum(chance * length for _, chance, length, _ in exits)
    found = 0.0
    for own in exits:
        for others in itertools.product(exits, repeat=prompts - 1):
            total = own[3] + sum(other[3] for other in others)
            if total:
                found += own[0] * float(np.prod([other[1] for other in others])) * prompts * mean / total
    return found / sum(own[0] for own in exits)


POLICIES = (
    Policy.preset("dr-grpo"),
    Policy(rule=Positive(), budget=Rounds(1, 4), group_size=4, group=All()),
    Policy(rule=Balance(group_size=2), budget=Rounds(2, 2), group_size=2),
)


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("policy", POLICIES, ids=["fixed", "stopped", "balance"])
@pytest.mark.parametrize("tokens", [(1, 1), (2, 5)])
def test_the_factor_by_all_outcomes_of_a_step(policy: Policy, tokens: tuple[int, int], *, out: bool) -> None:
    law = Grid([0.2, 0.9], [0.6, 0.4])
    for prompts in (1, 2, 3):
        found = batch_factor(policy, law, prompts, [0.2, 0.9], tokens=tokens, leave_out=out)
        slow = [by_enumeration(policy, law, prompts, p, tokens, out=out) for p in (0.2, 0.9)]
        assert found == pytest.approx(slow, rel=1e-10)


def test_the_factor_by_simulated_steps() -> None:
    random = np.random.default_rng(5)
    steps, prompts, n, p = 400_000, 4, 4, 0.9
    rates = random.uniform(size=(steps, prompts))
    rates[:, 0] = p
    pos = random.binomial(n, rates)
    tokens = (pos + 2 * (n - pos)).sum(axis=1)
    signal = pos[:, 0] * (n - pos[:, 0])
    draws = signal * prompts * 1.5 * n / tokens / (n * (n - 1) * p * (1 - p))
    found = batch_factor(Policy.preset("dr-grpo"), Beta(1, 1), prompts, [p], tokens=(1, 2))[0]
    assert abs(draws.mean() - found) < 4 * draws.std() / steps**0.5


def test_to_first_order() -> None:
    law, rates = Beta(1, 1), np.array([0.05, 0.4, 0.95])
    for n in (4, 16):
        policy = fixed_mean(n)
        misses = []
        for prompts in (16, 64):
            exact = batch_factor(policy, law, prompts, rates, tokens=(1, 2))
            near = first_order(policy, law, prompts, rates, tokens=(1, 2))
            misses.append(np.abs(exact - near).max())
            # A group with signal has a positive, a negative, and n - 2 others.
            apart = (n - 2) * (rates[-1] - rates[0]) / (prompts * 1.5 * n)
            assert near[-1] - near[0] == pytest.approx(apart, rel=1e-9)
        assert misses[1] < misses[0] / 12


def test_the_published_sizes_of_the_effect() -> None:
    policy = fixed_mean(128)
    four, many = (first_order(policy, Beta(1, 1), b, [1e-6, 0.5, 1 - 1e-6], tokens=(1, 2)) for b in (4, 32))
    # (2 - 1.5) / 1.5 / 4 = 8.3 % about the middle, less what a group's two classes hold of it.
    assert four - four[1] == pytest.approx([-1 / 12, 0, 1 / 12], abs=2e-3)
    exact = batch_factor(fixed_mean(16), Beta(1, 1), 32, [0.05, 0.95], tokens=(1, 2))
    assert np.abs(exact - 1).max() < 0.01
    assert many - many[1] == pytest.approx((four - four[1]) / 8, rel=1e-9)


def test_leaving_out_is_a_constant_factor_for_equal_rows() -> None:
    n, prompts = 4, 8
    law = Beta(0.5, 1)
    # 1 - E[p^4] - E[q^4] under Beta(1/2, 1), by the moments (1/2)_k / (3/2)_k and (1)_k / (3/2)_k.
    correct, wrong = 1 / 9, float(np.prod([(1 + i) / (1.5 + i) for i in range(n)]))
    factor = leaving_out_factor(1 - correct - wrong, prompts)
    rates = np.array([0.01, 0.3, 0.99])
    assert batch_factor(Policy.preset("dr-grpo"), law, prompts, rates, leave_out=True) == pytest.approx([factor] * 3)
    assert batch_factor(Policy.preset("dr-grpo"), law, prompts, rates) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize(("chance", "prompts"), [(Fraction(1, 4), 2), (Fraction(1, 10), 8), (Fraction(3, 4), 5)])
def test_leaving_out_in_fractions(chance: Fraction, prompts: int) -> None:
    law = [comb(prompts, g) * chance**g * (1 - chance) ** (prompts - g) for g in range(prompts + 1)]
    others = [comb(prompts - 1, g) * chance**g * (1 - chance) ** (prompts - 1 - g) for g in range(prompts)]
    factor = sum(prompts * weight / (1 + g) for g, weight in enumerate(others))
    assert leaving_out_factor(float(chance), prompts) == pytest.approx(float(factor), rel=1e-12)
    inverse = sum(weight / g for g, weight in enumerate(law) if g)
    cost = prompts * chance * inverse / (1 - law[0]) ** 2
    assert cost >= 1
    assert leaving_out_cost(float(chance), prompts) == pytest.approx(float(cost), rel=1e-12)


def test_ends_of_leaving_out() -> None:
    assert leaving_out_factor(1.0, 8) == 1
    assert leaving_out_factor(0.0, 8) == 8
    assert leaving_out_factor(1e-12, 8) == pytest.approx(8)
    assert leaving_out_cost(1.0, 8) == pytest.approx(1)


def test_what_leaving_out_costs_by_simulation() -> None:
    random = np.random.default_rng(2)
    steps, prompts, chance, signal = 400_000, 8, 0.25, 1e-2
    groups = random.binomial(prompts, chance, steps)
    update = groups * signal + np.sqrt(groups) * random.normal(size=steps)
    moments = [(divided**2).mean() for divided in (update / prompts, update / np.maximum(groups, 1))]
    means = [np.mean(groups) * signal / prompts, np.mean(groups > 0) * signal]
    ratio = (means[0] ** 2 / moments[0]) / (means[1] ** 2 / moments[1])
    # The relative error of each second moment is below 0.5 %; the signal adds 0.1 % of the noise's.
    assert ratio == pytest.approx(leaving_out_cost(chance, prompts), rel=0.02)


@pytest.mark.parametrize("rates", [[0.0], [1.0], [0.5, 1.0]])
def test_ends_of_the_rates_are_refused(rates: list[float]) -> None:
    with pytest.raises(InputError, match="inside"):
        batch_factor(Policy.preset("dr-grpo"), Beta(1, 1), 4, rates)


# The command


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["theory", *(str(one) for one in arguments)], catch_exceptions=False)


def test_command(tmp_path: Path) -> None:
    result = run("--part", "silent", "--part", "tokens", "--out", tmp_path)
    assert result.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"theory.{end}" for end in ("csv", "json", "png", "svg")}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "theory.csv").read_text())))
    assert {row["part"] for row in rows} == {"tokens", "silent"}
    written = json.loads((tmp_path / "theory.json").read_text())
    assert len(written["numbers"]) == len(rows)
    factor = [row for row in rows if row["case"] == "factor of every w(p)" and row["size"] == "2"]
    assert [float(row["value"]) for row in factor] == pytest.approx([2 - float(row["at"]) for row in factor])


def test_every_part_is_computed_and_drawn(tmp_path: Path) -> None:
    found = compute_theory(("price",))
    assert found.cases("price") == ["least miss of any advantages", "fixed number", "reinforce-ada-balance"]
    for number in found.of("price", "fixed number"):
        # There is a price if and only if the bound is finite.
        assert (number.value is None) == (number.bound == np.inf)
        assert number.value is None or (number.bound is not None and number.bound < number.value)
    balance = {number.at: number.value for number in found.of("price", "reinforce-ada-balance")}
    # 7.8, 18 and 338 for the four kept responses.
    assert [4 * (balance[e] or 0) for e in (0.1, 0.01, 0.002)] == pytest.approx([7.82, 18.0, 338.5], rel=2e-3)
    assert run("--part", "price", "--out", tmp_path).exit_code == 0


def test_unknown_parts_are_refused() -> None:
    result = CliRunner().invoke(app, ["theory", "--part", "prise"])
    assert result.exit_code == 2
    assert "unknown part 'prise'" in result.output
