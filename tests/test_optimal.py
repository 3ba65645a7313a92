"""The Bayes-optimal policies against exhaustive search, perturbation, and every policy that can be thought of."""

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ada_bandit import Beta, Never, Policy, Quota, Rounds, analyze
from ada_bandit.advantages import Advantage, AdvantageTable, GroupMean, GroupStd, LeaveOneOut, PoolMean
from ada_bandit.budgets import Stages
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze_law
from ada_bandit.groups import All, Balanced, GroupRule, SplitTable, Uniform
from ada_bandit.laws import Grid, Law, Mixture
from ada_bandit.objectives import objective_slope
from ada_bandit.optimal import Frontier, Problem, ProblemOptions, Solution, bayes_policy, frontier, policy_for_budget
from ada_bandit.rules import StopTable
from ada_bandit.score_model import ScoreModel
from sim.sources import from_curve

Array = npt.NDArray[np.float64]
Cell = tuple[int, int]

BETA = Beta(0.5, 1)
ENDS = Grid([0.0, 0.15, 0.6, 1.0], [0.2, 0.4, 0.3, 0.1])
MIXED = Mixture((Beta(2, 3), ENDS), (0.7, 0.3))
ONE = Grid([0.3])
HARD = Grid([0.0, 0.03], [0.5, 0.5])


def model_of(options: dict[str, Any]) -> ScoreModel:
    """Return the score model of options that are those of the model and of the problem together."""
    known = ("noise_ratio", "objective", "update_cost", "transfer")
    return ScoreModel(**{"transfer": 0.0} | {key: options[key] for key in known if key in options})


def rest_of(options: dict[str, Any]) -> Any:
    """Return the options of the problem alone."""
    return {key: value for key, value in options.items() if key in ProblemOptions.__annotations__}


def solve(prior: Law, **options: Any) -> Solution:
    """Return the solution of a problem."""
    return Problem(prior, model_of(options), **rest_of(options)).best()


def frontier_of(prior: Law, options: dict[str, Any], prices: int = 40) -> Frontier:
    """Return the frontier of a problem."""
    return frontier(prior, model_of(options), prices=prices, **rest_of(options))


# Values


@pytest.mark.parametrize(
    ("noise_ratio", "objective", "samples", "value", "expected_samples"),
    [
        (1, "mean", 1, 0.0027119770, 1.6666666667),
        (1, "mean", 4, 0.0022196233, 4),
        (10, "mean", 1, 0.0005510367, 6.7198203362),
        (10, "mean", 4, 0.0005198411, 9.4327675813),
        (10, "mean", 8, 0.0004645755, 14.1952324193),
        (10, "log", 4, 0.0045341747, 8.5083615153),
    ],
)
def test_values_under_a_beta_prior(
    noise_ratio: float, objective: str, samples: int, value: float, expected_samples: float
) -> None:
    model = ScoreModel(noise_ratio, objective, transfer=0.0)
    best = Problem(BETA, model, samples=samples).best()
    assert best.value == pytest.approx(value, abs=1e-9)
    assert best.cost == pytest.approx(expected_samples, abs=1e-9)
    assert best.price == pytest.approx(best.value, rel=1e-13)
    assert bayes_policy(BETA, model, samples=samples) == best.policy


@pytest.mark.parametrize("prior", [BETA, ENDS, MIXED, ONE, HARD])
@pytest.mark.parametrize("objective", ["mean", "log", "pass@4"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise_ratio": 0.0},
        {"noise_ratio": (0.0, 0.65), "samples": 3},
        {"noise_ratio": (5.0, 0.2), "samples": 4, "group_size": 3},
        {"noise_ratio": 10.0, "update_cost": 2.0},
        {"noise_ratio": 0.1, "update_cost": 100.0, "group_size": 5, "samples": 2},
        {"max_samples": 1},
        {"samples": 12},
    ],
)
def test_the_returned_tables_are_worth_what_is_said(prior: Law, objective: str, options: dict[str, Any]) -> None:
    options = {"max_samples": 12, "objective": objective} | options
    best = solve(prior, **options)
    found = gradient_efficiency(best.policy, prior, model_of(options))
    assert found.value == pytest.approx(best.value, rel=1e-10)
    assert found.cost == pytest.approx(best.cost, rel=1e-12)
    # With the best advantages progress and noise are the same number, E[R].
    assert found.progress == pytest.approx(best.expected_utility, rel=1e-10)
    assert found.noise == pytest.approx(best.expected_utility, rel=1e-10)


# Exhaustive search


def naive_worth(prior: Law, model: ScoreModel, cell: Cell, keep: tuple[int, int]) -> float:
    """Return R = v' M^-1 v at a cell from the posterior's own quadrature and a linear solver."""
    rates, weights = prior.posterior(*cell).quadrature(60)
    every, share = prior.quadrature(60)
    common = float(share @ objective_slope(model.objective, every))
    kappa = (1 - model.transfer) * objective_slope(model.objective, rates) + model.transfer * common
    noise_ratio = model.noise
    sides = np.stack([1 - rates, rates])[[count > 0 for count in keep]]
    noise = [nu / count for nu, count in zip(noise_ratio, keep, strict=True) if count > 0]
    matrix = (sides * weights) @ sides.T + np.diag(noise)
    vector = (sides * weights) @ kappa
    return float(vector @ np.linalg.pinv(matrix, rcond=1e-11, hermitian=True) @ vector) if noise else 0.0


class Brute:
    """Every draws table of a small problem, every split of the group at every cell."""

    def __init__(self, prior: Law, max_samples: int = 4, **options: Any) -> None:
        self.prior, self.most, self.samples = prior, max_samples, options.get("samples", 1)
        self.tokens = options.get("mean_response_tokens", (1.0, 1.0))
        size, update_cost = options.get("group_size"), options.get("update_cost", 0.0)
        utility = options.get("utility", "gradient")
        model = model_of(options)
        self.choices: dict[Cell, list[tuple[float, float]]] = {}
        for pos, neg in itertools.product(range(self.most + 1), repeat=2):
            if not 0 < pos + neg <= self.most or prior.evidence(pos, neg) == 0:
                continue
            cost = self.tokens[0] * pos + self.tokens[1] * neg
            if isinstance(utility, str) and utility == "gradient":
                keeps = [
                    (k, m)
                    for k, m in itertools.product(range(pos + 1), range(neg + 1))
                    if size is None or k + m <= size
                ]
                # A kept row costs, whether its advantage is 0 or not: without one it needn't be kept.
                self.choices[pos, neg] = [
                    (naive_worth(prior, model, (pos, neg), keep), cost + update_cost * sum(keep)) for keep in keeps
                ]
            else:
                kept = [int(one[0]) for one in Balanced().split(np.array([pos]), np.array([neg]), size or self.most)]
                worth = float(min(kept) > 0) if isinstance(utility, str) else float(utility[pos][neg])
                # The pool mean gives a pool of one class no advantages.
                self.choices[pos, neg] = [(worth, cost + update_cost * sum(kept) * (min(pos, neg) > 0))]
        ends = range(self.samples, self.most, self.samples)
        self.inner = [(pos, total - pos) for total in ends for pos in range(total + 1)]

    def exits(self) -> Iterator[dict[Cell, float]]:
        """Give the law of the exit cell of every stop table, by walking all sequences."""
        sequences = list(itertools.product((0, 1), repeat=self.most))
        chances = [float(self.prior.evidence(sum(one), self.most - sum(one))) for one in sequences]
        heads = [
            [(sum(one[:t]), t - sum(one[:t])) for t in range(self.samples, self.most + 1, self.samples)]
            for one in sequences
        ]
        seen = set()
        for stops in itertools.product((False, True), repeat=len(self.inner)):
            stop = dict(zip(self.inner, stops, strict=True))
            ends = tuple(next((cell for cell in head if stop.get(cell, False)), head[-1]) for head in heads)
            if ends in seen:
                continue
            seen.add(ends)
            law: dict[Cell, float] = {}
            for cell, chance in zip(ends, chances, strict=True):
                if chance > 0:
                    law[cell] = law.get(cell, 0.0) + chance
            yield law

    def best_net(self, price: float) -> float:
        """Return the largest E[utility] - price * cost over all tables and splits."""
        nets = {cell: max(worth - price * cost for worth, cost in choice) for cell, choice in self.choices.items()}
        return max(sum(chance * nets[cell] for cell, chance in law.items()) for law in self.exits())


PROBLEMS: list[dict[str, Any]] = [
    {"max_samples": 3},
    {},
    {"max_samples": 1},
    {"max_samples": 2},
    {"noise_ratio": 10.0},
    {"noise_ratio": 0.0},
    {"noise_ratio": (0.0, 3.0), "objective": "log"},
    {"noise_ratio": (2.0, 0.1), "objective": "pass@3"},
    {"transfer": 1.0},
    {"transfer": 0.5, "noise_ratio": (5.0, 10.6)},
    {"transfer": 1.0, "noise_ratio": (0.0, 0.65)},
    {"transfer": 0.5, "noise_ratio": 3.0, "objective": "log", "update_cost": 1.0},
    {"samples": 2, "noise_ratio": 5.0},
    {"samples": 2, "max_samples": 6, "noise_ratio": 5.0, "objective": "log"},
    {"group_size": 1, "noise_ratio": 5.0},
    {"group_size": 2, "noise_ratio": (1.0, 8.0)},
    {"group_size": 3, "noise_ratio": 30.0, "samples": 2},
    {"update_cost": 0.5, "noise_ratio": 5.0},
    {"update_cost": 10.0, "noise_ratio": 20.0, "objective": "log"},
    {"update_cost": 2.0, "group_size": 2, "samples": 2},
    {"mean_response_tokens": (300.0, 900.0), "noise_ratio": 10.0},
    {"mean_response_tokens": (5.0, 0.0)},
    {"mean_response_tokens": (1.0, 3.0), "update_cost": 1.0, "group_size": 2},
    {"utility": "signal"},
    {"utility": "signal", "samples": 2, "group_size": 2},
    {"utility": "signal", "group_size": 1},
    {"utility": "signal", "update_cost": 3.0, "group_size": 2},
    {"utility": [[0, 1, 1, 2, 2], [1, 3, 0, 7, 0], [0, 5, 9, 0, 0], [1, 1, 0, 0, 0], [4, 0, 0, 0, 0]]},
    {"utility": [[0, -1, -3, -3, -2], [-9, -3, -7, -1, 0], [-8, -2, -1, 0, 0], [-1, -1, 0, 0, 0], [-1, 0, 0, 0, 0]]},
]


@pytest.mark.parametrize("prior", [BETA, ENDS, ONE, HARD, Grid([0.0]), Grid([1.0])])
@pytest.mark.parametrize("options", PROBLEMS, ids=str)
def test_exhaustive_search_finds_nothing_better(prior: Law, options: dict[str, Any]) -> None:
    options = {"max_samples": 4} | options
    best = solve(prior, **options)
    brute = Brute(prior, **options)
    # The ratio is the largest one exactly where, at a price of that ratio, the best net is 0.
    scale = max(abs(best.expected_utility), 1e-9)
    assert brute.best_net(best.price) == pytest.approx(0, abs=1e-11 * scale)
    assert best.value == pytest.approx(best.price, rel=1e-12)
    check_cost(best, prior, options)


@pytest.mark.parametrize("options", [option for option in PROBLEMS if option.get("max_samples", 4) > 1], ids=str)
def test_exhaustive_search_confirms_the_frontier(options: dict[str, Any]) -> None:
    options = {"max_samples": 4} | options
    found = frontier_of(BETA, options, prices=200)
    brute = Brute(BETA, **options)
    for vertex in found.vertices:
        check_cost(vertex, BETA, options)
    scale = max(np.abs(found.utilities).max(), 1e-9)
    for low, high in itertools.pairwise(found.vertices):
        # No policy lies above the chord of two neighbours.
        price = (high.expected_utility - low.expected_utility) / (high.cost - low.cost)
        net = low.expected_utility - price * low.cost
        assert brute.best_net(price) == pytest.approx(net, abs=1e-10 * scale)
    assert brute.best_net(0.0) == pytest.approx(found.utilities[-1], abs=1e-11 * scale)


def check_cost(solution: Solution, prior: Law, options: dict[str, Any]) -> None:
    """Check cost and utility against the exact analysis of the returned policy."""
    rates, weights = prior.quadrature(40)
    tokens = options.get("mean_response_tokens", (1.0, 1.0))
    utility = options.get("utility", "gradient")
    update_cost = options.get("update_cost", 0.0)
    tables = solution.policy.tables
    cost = worth = 0.0
    for (pos, neg), chances in analyze(solution.policy, rates).exit_law.items():
        chance = float(weights @ chances)
        rows = tables.keep_pos[pos, neg] * (tables.adv_pos[pos, neg] != 0)
        rows += tables.keep_neg[pos, neg] * (tables.adv_neg[pos, neg] != 0)
        cost += chance * (tokens[0] * pos + tokens[1] * neg + update_cost * rows)
        worth += chance * (tables.signal[pos, neg] if isinstance(utility, str) else utility[pos][neg])
    assert solution.cost == pytest.approx(cost, rel=1e-12)
    if isinstance(utility, str) and utility == "gradient":
        worth = gradient_efficiency(solution.policy, prior, model_of(options)).progress
    assert solution.expected_utility == pytest.approx(worth, rel=1e-10, abs=1e-13)


def test_mixed_gets_the_signal_of_balance_for_less() -> None:
    law = from_curve("qwen2.5-math-1.5b-base").law
    mixed = analyze_law(Policy(Quota(1, 1), Rounds(1, 32), group_size=4), law)
    balance = analyze_law(Policy.preset("reinforce-ada-balance"), law)
    assert mixed["signal_probability"] == pytest.approx(balance["signal_probability"], rel=1e-12)
    assert mixed["signal_probability"] == pytest.approx(0.651, abs=5e-4)
    assert mixed["expected_samples"] == pytest.approx(16.0, abs=0.05)
    assert balance["expected_samples"] == pytest.approx(22.4, abs=0.05)
    # With all 32 responses within reach, nothing gets more signal; and `mixed` is the cheapest such policy.
    most = frontier(law, utility="signal").vertices[-1]
    assert most.expected_utility == pytest.approx(mixed["signal_probability"], rel=1e-12)
    assert most.cost == pytest.approx(mixed["expected_samples"], rel=1e-12)


def test_waiting_for_signal_at_one_pass_rate() -> None:
    # Every further response has the same chance of the other class: waiting pays at every cell or at none.
    best = solve(Grid([0.5]), utility="signal", max_samples=16)
    table = best.policy.tables
    assert table.draws[1, 0] == table.draws[0, 1] == table.draws[8, 0] == 1
    assert table.draws[1, 1] == 0
    assert best.expected_utility == pytest.approx(1 - 2**-15)


# Optimality of the advantages


@given(
    prior=st.sampled_from([BETA, ENDS, MIXED, ONE, HARD]),
    objective=st.sampled_from(["mean", "log", "pass@4"]),
    options=st.sampled_from(
        [
            {"noise_ratio": 1.0},
            {"noise_ratio": (0.3, 8.0)},
            {"noise_ratio": 0.0},
            {"noise_ratio": 3.0, "group_size": 2, "update_cost": 1.0},
        ]
    ),
    at=st.integers(0, 10**6),
    change=st.one_of(st.floats(-3, -1e-3), st.floats(1e-3, 3)),
)
def test_a_changed_advantage_is_worth_less(
    prior: Law, objective: str, options: dict[str, Any], at: int, change: float
) -> None:
    options = {"objective": objective, "max_samples": 5} | options
    best = solve(prior, **options)
    tables = best.policy.tables
    entries = [
        (kind, cell)
        for kind, keep in enumerate((tables.keep_pos, tables.keep_neg))
        for cell in zip(*np.nonzero(tables.exits & (keep > 0)), strict=True)
    ]
    assume(entries)
    kind, cell = entries[at % len(entries)]
    values = [tables.adv_pos.copy(), tables.adv_neg.copy()]
    values[kind][cell] += change * (abs(values[kind][cell]) or 1e-2)
    changed = Policy(best.policy.rule, best.policy.budget, best.policy.n, best.policy.group, AdvantageTable(*values))
    assert gradient_efficiency(changed, prior, model_of(options)).value <= best.value * (1 + 1e-12)


# Nothing lies above the frontier


@st.composite
def priors(draw: st.DrawFn) -> Law:
    shapes = st.floats(0.05, 20)
    atoms = st.lists(st.tuples(st.floats(0, 1), st.floats(0.05, 1)), min_size=1, max_size=4)

    def one() -> Law:
        if draw(st.booleans()):
            return Beta(draw(shapes), draw(shapes))
        pairs = draw(atoms)
        return Grid([p for p, _ in pairs], [w for _, w in pairs])

    return Mixture((one(), one()), (0.3, 0.7)) if draw(st.booleans()) else one()


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    budget = Stages(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 8)))
    most = budget.max_samples
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    side = (most + 1, most + 1)
    pos, neg = np.indices(side)
    tables = rng.normal(size=(2, *side)) * (rng.random((2, *side)) < 0.8)
    signed = AdvantageTable(np.abs(tables[0]), -np.abs(tables[1]))
    advantages: list[Advantage] = [PoolMean(), GroupMean(), GroupStd(), LeaveOneOut(), AdvantageTable(*tables), signed]
    split = SplitTable(rng.integers(0, pos + 1), rng.integers(0, neg + 1))
    groups: list[GroupRule] = [All(), Balanced(), Uniform(), split]
    return Policy(
        draw(st.sampled_from([Never(), StopTable(rng.random(side) < rng.random())])),
        budget,
        draw(st.integers(1, most)),
        draw(st.sampled_from(groups)),
        draw(st.sampled_from(advantages)),
    )


@given(
    prior=priors(),
    policy=policies(),
    noise_ratio=st.one_of(st.floats(0, 100), st.tuples(st.floats(0, 10), st.floats(0, 10))),
    objective=st.sampled_from(["mean", "log", "pass@2", "pass@8"]),
    transfer=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_no_table_policy_lies_above_the_frontier(
    prior: Law, policy: Policy, noise_ratio: float | tuple[float, float], objective: str, transfer: float
) -> None:
    most = policy.budget.max_samples
    model = ScoreModel(noise_ratio, objective, transfer=transfer)
    found = gradient_efficiency(policy, prior, model)
    best = frontier(prior, model, max_samples=most, prices=200)
    utility = found.progress**2 / found.noise if found.noise > 1e-280 else 0.0
    assert utility <= best.utility_at(found.cost) * (1 + 1e-9) + 1e-15
    assert found.value <= Problem(prior, model, max_samples=most).best().value * (1 + 1e-9) + 1e-15


# The frontier


@pytest.mark.parametrize("prior", [BETA, MIXED, HARD])
@pytest.mark.parametrize(
    "options",
    [
        {"noise_ratio": 10.0},
        {"objective": "log", "noise_ratio": 3.0, "samples": 4},
        {"noise_ratio": 3.0, "group_size": 4, "update_cost": 2.0, "max_samples": 12},
        {"mean_response_tokens": (200.0, 900.0)},
        {"utility": "signal"},
    ],
    ids=str,
)
def test_the_frontier_is_concave_and_holds_the_optimum(prior: Law, options: dict[str, Any]) -> None:
    found = frontier_of(prior, options)
    costs, utilities = found.costs, found.utilities
    assert 1 < len(found.vertices) <= 40
    assert (np.diff(costs) > 0).all()
    slopes = np.diff(utilities) / np.diff(costs)
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 0).all()
    assert np.isnan(found.utility_at(costs[0] * 0.99))
    np.testing.assert_allclose(found.utility_at([costs[-1] * 2, *costs]), [utilities[-1], *utilities], rtol=1e-12)
    best = solve(prior, **options)
    # The ray from the origin to the optimum touches the frontier there and lies above it elsewhere.
    assert (utilities <= best.value * costs * (1 + 1e-12)).all()
    exact = policy_for_budget(prior, best.cost, model_of(options), **rest_of(options))
    assert exact.expected_utility == pytest.approx(best.expected_utility, rel=1e-9)


def test_a_frontier_of_one_point() -> None:
    for prior in (Grid([0.0]), Grid([1.0])):
        (only,) = frontier(prior, max_samples=8).vertices
        assert (only.expected_utility, only.cost) == (0.0, 1.0)
        assert only.value == 0
    (only,) = frontier_of(BETA, {"max_samples": 1}).vertices
    assert only.value == pytest.approx(solve(BETA, max_samples=1).value)
    blend = policy_for_budget(BETA, 1, max_samples=1)
    assert (blend.weight, blend.expected_cost) == (0.0, 1.0)


def test_fewer_prices_give_a_coarser_frontier() -> None:
    fine, coarse = (frontier(BETA, ScoreModel(10.0), prices=prices) for prices in (40, 7))
    assert len(coarse.vertices) == 7
    assert (coarse.utilities <= fine.utility_at(coarse.costs) * (1 + 1e-9)).all()
    assert len(frontier(BETA, prices=2).vertices) == 2


# Budgets


def short(samples: int) -> dict[str, Any]:
    return {"objective": "log", "noise_ratio": 10.0, "samples": samples, "max_samples": 16}


FINE = {samples: frontier_of(BETA, short(samples), prices=400) for samples in (1, 4)}


@given(share=st.floats(0, 1), samples=st.sampled_from([1, 4]))
def test_a_budget_is_met_on_the_frontier(share: float, samples: int) -> None:
    options, fine = short(samples), FINE[samples]
    budget = float(fine.costs[0] + share * (fine.costs[-1] - fine.costs[0]))
    blend = policy_for_budget(BETA, budget, model_of(options), **rest_of(options))
    low, high = (analyze_law(one, BETA)["expected_samples"] for one in (blend.low, blend.high))
    assert 0 <= blend.weight <= 1
    assert (1 - blend.weight) * low + blend.weight * high == pytest.approx(budget, rel=1e-9)
    assert blend.expected_cost == pytest.approx(budget, rel=1e-9)
    assert blend.expected_utility == pytest.approx(float(fine.utility_at(budget)), rel=1e-9)
    parts = [gradient_efficiency(one, BETA, model_of(options)).progress for one in (blend.low, blend.high)]
    assert (1 - blend.weight) * parts[0] + blend.weight * parts[1] == pytest.approx(blend.expected_utility, rel=1e-9)


@pytest.mark.parametrize("budget", [0.5, 40, math.nan, "8"])
def test_a_budget_out_of_reach_is_told(budget: Any) -> None:
    with pytest.raises(InputError, match=rf"budget must .* got {budget!r}"):
        policy_for_budget(BETA, budget)


# Structure


def test_more_freedom_is_worth_more() -> None:
    value = partial(solve, BETA, objective="log", noise_ratio=10.0)
    assert value(max_samples=8).value <= value(max_samples=16).value <= value(max_samples=32).value
    assert value(samples=8).value <= value(samples=4).value <= value(samples=2).value <= value(samples=1).value
    limits = [value(group_size=size).value for size in (1, 2, 4, 8, 32)]
    assert limits == sorted(limits)
    assert limits[-1] == pytest.approx(value().value, rel=1e-13)
    costs = [value(max_samples=16, update_cost=cost).value for cost in (0, 0.1, 1, 10)]
    assert costs == sorted(costs, reverse=True)


def test_a_group_holds_no_more_than_its_size() -> None:
    policy = bayes_policy(BETA, ScoreModel(20.0), group_size=3)
    tables = policy.tables
    pos, neg = np.indices(tables.draws.shape)
    meaningful = pos + neg <= 32
    assert (tables.keep[meaningful] <= 3).all()
    assert (tables.keep_pos <= pos).all()
    assert (tables.keep_neg <= neg).all()
    assert policy.n == 3
    # A size beyond the budget is no limit.
    assert solve(BETA, max_samples=4, group_size=9).value == pytest.approx(solve(BETA, max_samples=4).value, rel=1e-13)


def test_dear_updates_leave_prompts_out() -> None:
    tables = bayes_policy(BETA, ScoreModel(1.0, "log", update_cost=100.0)).tables
    keep = tables.keep[tables.exits]
    assert keep.min() == 0
    assert keep.max() > 0


def test_without_noise_and_with_p_known_one_response_will_do() -> None:
    best = solve(ONE, noise_ratio=0.0)
    # u = p q is reached exactly: W = V = (p q)^2.
    assert best.expected_utility == pytest.approx(0.21**2, rel=1e-12)
    assert best.cost == 1


def test_a_policy_survives_its_file() -> None:
    policy = bayes_policy(BETA, ScoreModel(10.0, update_cost=0.5), max_samples=6, group_size=2)
    again = Policy.from_toml(policy.to_toml())
    assert again == policy
    assert gradient_efficiency(again, BETA) == gradient_efficiency(policy, BETA)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, r"samples must be .* got 0"),
        ({"samples": 2.5}, r"samples must be .* got 2.5"),
        ({"max_samples": -3}, r"max_samples must be .* got -3"),
        ({"samples": 5, "max_samples": 32}, r"max_samples must be a multiple of samples; got 32 and 5"),
        ({"group_size": 0}, r"group_size must be .* got 0"),
        ({"update_cost": -1.0}, r"update_cost must be .* got -1.0"),
        ({"noise_ratio": math.inf}, r"noise_ratio must be .* got inf"),
        ({"objective": "loog"}, r"unknown objective 'loog'; did you mean 'log'"),
        ({"mean_response_tokens": (0.0, 0.0)}, r"must be a pair, not both 0; got \(0.0, 0.0\)"),
        ({"mean_response_tokens": (1.0,)}, r"must be a pair, not both 0; got \(1.0,\)"),
        ({"mean_response_tokens": (1.0, -2.0)}, r"mean_response_tokens must be .* got -2.0"),
        ({"mean_response_tokens": 3.0}, r"mean_response_tokens must be a pair.*got 3.0"),
        ({"utility": "sginal"}, r"'gradient', 'signal' or a table by pos and neg; got 'sginal'"),
        ({"utility": np.zeros((3, 3))}, r"counts up to 32; got shape \(3, 3\)"),
        ({"utility": [[1.0, math.nan], [0.0, 0.0]]}, r"utility must be a square table of finite numbers"),
    ],
)
def test_bad_input_is_quoted(options: dict[str, Any], message: str) -> None:
    for function in (Problem, bayes_policy, frontier):
        with pytest.raises(InputError, match=message):
            function(BETA, model_of(options), **rest_of(options))


def test_unknown_options_and_models_are_told() -> None:
    functions: list[Any] = [Problem, bayes_policy, frontier]
    for function in functions:
        with pytest.raises(InputError, match=r"option 'max_sample' of the problem; did you mean 'max_samples'\?"):
            function(BETA, max_sample=4)
        with pytest.raises(InputError, match=r"model must be a ScoreModel, such as .*; got 10\.0"):
            function(BETA, 10.0)


@pytest.mark.parametrize("prices", [1, 0, 2.5])
def test_a_frontier_needs_two_prices(prices: Any) -> None:
    with pytest.raises(InputError, match=rf"prices must be .* got {prices}"):
        frontier(BETA, max_samples=4, prices=prices)


@pytest.mark.parametrize("prior", ["beta", 0.5, None])
def test_a_prior_is_a_law(prior: Any) -> None:
    with pytest.raises(InputError, match=rf"prior must be a law of the pass rate.*got {prior!r}"):
        solve(prior)
