"""Gradient efficiency against published values, enumeration of response sequences, and the score model simulated."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit import Balance, Beta, Never, Policy, Positive, Rounds
from ada_bandit.advantages import Advantage, AdvantageTable, GroupMean, GroupStd, LeaveOneOut, PoolMean
from ada_bandit.budgets import Stages
from ada_bandit.efficiency import Efficiency, gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, GroupRule, Uniform
from ada_bandit.laws import Grid, Law, Mixture
from ada_bandit.objectives import objective_slope
from ada_bandit.optimal import Problem
from ada_bandit.rules import ExitRule
from ada_bandit.score_model import ScoreModel
from sim.sources import from_curve
from tests.naive_tables import class_advantages, splits

Array = npt.NDArray[np.float64]

BETA = Beta(0.5, 1)
ENDS = Grid([0.0, 0.15, 0.6, 1.0], [0.2, 0.4, 0.3, 0.1])
# Qwen2.5-Math-1.5B on the prompts that pass the filter of the paper, at least 1 of 16 responses correct.
BASE = from_curve("qwen2.5-math-1.5b-base").at_least(1, 16).law


def plain(n: int, advantage: Advantage | None = None) -> Policy:
    """Return n responses, all kept."""
    return Policy(Never(), Rounds(n), group_size=n, group=All(), advantage=advantage or GroupMean())


# Published values


@pytest.mark.parametrize(
    ("noise_ratio", "objective", "value"),
    [(1, "mean", 0.0019662058), (10, "mean", 0.0003345356), (10, "log", 0.0030108201)],
)
def test_four_responses_under_a_beta_law(noise_ratio: float, objective: str, value: float) -> None:
    found = gradient_efficiency(plain(4), BETA, ScoreModel(noise_ratio, objective, transfer=0.0))
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.expected_samples == pytest.approx(4, rel=1e-13)
    assert found.cost == found.expected_samples


def against_four(policy: Policy, noise_ratio: float, objective: str, update_cost: float = 0.0) -> float:
    model = ScoreModel(noise_ratio, objective, update_cost, transfer=0.0)
    return gradient_efficiency(policy, BASE, model).value / gradient_efficiency(plain(4), BASE, model).value


@pytest.mark.parametrize("objective", ["mean", "log"])
@pytest.mark.parametrize(("noise_ratio", "ratio"), [(1, 0.57), (10, 1.04)])
def test_sixteen_plain_responses_on_the_base_curve(noise_ratio: float, ratio: float, objective: str) -> None:
    assert against_four(plain(16), noise_ratio, objective) == pytest.approx(ratio, rel=0.03)


@pytest.mark.parametrize(
    ("noise_ratio", "objective", "update_cost", "ratio"),
    [
        (1, "mean", 0, 0.33),
        (10, "mean", 0, 0.39),
        (1, "log", 0, 0.57),
        (10, "log", 0, 0.68),
        (1, "log", 10, 1.11),
        (10, "log", 10, 1.32),
    ],
)
def test_balance_on_the_base_curve(noise_ratio: float, objective: str, update_cost: float, ratio: float) -> None:
    # Four rounds of 8 at most, a balanced group of 4, pool mean.
    preset = Policy.preset("reinforce-ada-balance")
    assert against_four(preset, noise_ratio, objective, update_cost) == pytest.approx(ratio, rel=0.03)


@pytest.mark.parametrize(
    ("noise_ratio", "objective", "ratio"), [(1, "mean", 1.42), (10, "mean", 1.49), (1, "log", 1.46), (10, "log", 1.32)]
)
def test_best_policy_on_the_base_curve(noise_ratio: float, objective: str, ratio: float) -> None:
    # One response at a time, at most 32, all kept.
    best = Problem(BASE, ScoreModel(noise_ratio, objective, transfer=0.0), samples=1, max_samples=32).best()
    assert against_four(best.policy, noise_ratio, objective) == pytest.approx(ratio, rel=0.03)


# Against enumeration of all response sequences


def naive_efficiency(
    policy: Policy,
    law: Grid,
    noise_ratio: tuple[float, float],
    slope: Callable[[float], float],
    update_cost: float,
) -> Efficiency:
    """Sum over pass rates, sequences and splits, one at a time; `slope` is kappa(p) = p q f'(p): no transfer."""
    tables = policy.tables
    progress = noise = samples = rows = 0.0
    for p, weight in zip(law.pass_rates.tolist(), law.weights.tolist(), strict=True):
        q = 1 - p
        for sequence in itertools.product((0, 1), repeat=tables.max_samples):
            seen = 0
            while tables.draws[sum(sequence[:seen]), seen - sum(sequence[:seen])] > 0:
                seen += int(tables.draws[sum(sequence[:seen]), seen - sum(sequence[:seen])])
            pos, neg = sum(sequence[:seen]), seen - sum(sequence[:seen])
            chance = weight * math.prod(p if one else q for one in sequence)
            samples += chance * seen
            for share, k, m in splits(policy, pos, neg):
                counts = (np.array([count]) for count in (pos, neg, k, m))
                adv_pos, adv_neg = (float(x[0]) for x in class_advantages(policy, *counts))
                mass = chance * float(share)
                u = k * adv_pos * q - m * adv_neg * p
                progress += mass * u * slope(p)
                noise += mass * (u * u + noise_ratio[0] * k * adv_pos**2 + noise_ratio[1] * m * adv_neg**2)
                rows += mass * (k * (adv_pos != 0) + m * (adv_neg != 0))
    cost = samples + update_cost * rows
    return Efficiency(progress**2 / (noise * cost) if noise > 0 else 0.0, progress, noise, cost, samples, 0.0)


SLOPES: dict[str, Callable[[float], float]] = {
    "mean": lambda p: p * (1 - p),
    "log": lambda p: 1 - p,
    "pass@1": lambda p: p * (1 - p),
    "pass@3": lambda p: p * (1 - p) * 3 * (1 - p) ** 2,
}


@pytest.mark.parametrize("objective", list(SLOPES))
@pytest.mark.parametrize("group", [All(), Balanced(), Uniform()])
@pytest.mark.parametrize("advantage", [PoolMean(), GroupStd(), LeaveOneOut()])
@pytest.mark.parametrize(("rule", "budget"), [(Positive(), Rounds(1, 6)), (Balance(2), Rounds(3, 2))])
def test_sums_over_sequences(
    rule: ExitRule, budget: Rounds, advantage: Advantage, group: GroupRule, objective: str
) -> None:
    policy = Policy(rule, budget, group_size=3, group=group, advantage=advantage)
    found = gradient_efficiency(policy, ENDS, ScoreModel((0.3, 2.0), objective, update_cost=1.5, transfer=0.0))
    expected = naive_efficiency(policy, ENDS, (0.3, 2.0), SLOPES[objective], 1.5)
    assert vars(found) == pytest.approx(vars(expected), rel=1e-12)


def test_a_callable_is_the_derivative() -> None:
    policy = Policy.preset("reinforce-ada-balance")
    for law in (BETA, ENDS, Mixture((BETA, ENDS), (1, 1))):
        derivatives: dict[str, Callable[[Any], Any]] = {
            "mean": lambda p: 1.0,  # noqa: ARG005 - a constant will do
            "log": lambda p: 1 / p,
            "pass@8": lambda p: 8 * (1 - p) ** 7,
        }
        for name, derivative in derivatives.items():
            if name == "log" and law is not BETA:
                continue  # q at p = 0, where f' itself has no value
            named = gradient_efficiency(policy, law, ScoreModel(1.0, name, transfer=0.0))
            given = gradient_efficiency(policy, law, ScoreModel(1.0, derivative, transfer=0.0))
            assert given.value == pytest.approx(named.value, rel=1e-9), name


def test_slopes_at_the_ends() -> None:
    p = np.array([0.0, 0.25, 1.0])
    np.testing.assert_allclose(objective_slope("mean", p), [0, 0.1875, 0])
    np.testing.assert_allclose(objective_slope("log", p), [1, 0.75, 0])
    np.testing.assert_allclose(objective_slope("pass@2", p), [0, 2 * 0.25 * 0.75**2, 0])
    np.testing.assert_allclose(objective_slope(lambda p: 1 / (p * (1 - p)), p), [0, 1, 0])


def test_no_update_has_no_efficiency() -> None:
    for law in (Grid([0.0]), Grid([1.0]), Grid([0.0, 1.0])):
        found = gradient_efficiency(plain(4), law, ScoreModel(update_cost=2.0))
        assert (found.value, found.progress, found.noise) == (0.0, 0.0, 0.0)
        assert found.cost == found.expected_samples == pytest.approx(4)
    silent = plain(2, AdvantageTable(np.zeros((3, 3)), np.zeros((3, 3))))
    assert gradient_efficiency(silent, BETA).value == 0


def test_rows_without_an_advantage_cost_nothing() -> None:
    # Groups of one class have advantage 0: only the 1 - 2/16 mixed ones of four responses are trained on.
    found = gradient_efficiency(plain(4), Grid([0.5]), ScoreModel(update_cost=10.0))
    assert found.cost == pytest.approx(4 + 10 * 4 * (1 - 2 / 16), rel=1e-13)


@given(
    scale=st.floats(0.01, 100),
    pair=st.tuples(st.floats(0, 100), st.floats(0, 100)),
    update_cost=st.floats(0, 100),
)
def test_invariances(scale: float, pair: tuple[float, float], update_cost: float) -> None:
    policy = Policy(Balance(2), Rounds(2, 3), group_size=4)
    tables = policy.tables
    scaled = Policy(
        Balance(2), Rounds(2, 3), 4, advantage=AdvantageTable(scale * tables.adv_pos, scale * tables.adv_neg)
    )
    model = ScoreModel(pair, "mean", update_cost)
    one, other = (gradient_efficiency(each, BETA, model) for each in (policy, scaled))
    # The step size is the best one, so the scale of the advantages is of no account.
    assert other.value == pytest.approx(one.value, rel=1e-11)
    assert other.progress == pytest.approx(scale * one.progress, rel=1e-11)
    assert one.value == pytest.approx(one.progress**2 / (one.noise * one.cost), rel=1e-13)
    alike = (ScoreModel(noise_ratio, "mean", update_cost) for noise_ratio in (pair[0], (pair[0], pair[0])))
    equal, same = (gradient_efficiency(policy, BETA, model) for model in alike)
    assert equal == same


# Against the score model, simulated


def simulated(
    policy: Policy, law: Law, noise_ratio: tuple[float, float], prompts: int, seed: int
) -> tuple[Array, Array, Array, Array]:
    """Return p, update . phi, |update|^2 (both over |phi|^2) and N of every prompt."""
    rng = np.random.default_rng(seed)
    tables, most = policy.tables, policy.budget.max_samples
    p = law.quantile(rng.random(prompts))
    correct = rng.random((prompts, most)) < p[:, None]
    phi = np.array([1.0, -2.0, 2.0]) / 3  # of length 1
    spread = np.where(correct, *(math.sqrt(nu / phi.size) for nu in noise_ratio))
    scores = (correct - p[:, None])[..., None] * phi + spread[..., None] * rng.standard_normal(
        (prompts, most, phi.size)
    )
    seen = np.zeros(prompts, dtype=np.int64)
    for _ in policy.budget.sizes:
        pos = (correct & (np.arange(most) < seen[:, None])).sum(axis=1)
        seen += tables.draws[pos, seen - pos]
    pool = np.arange(most) < seen[:, None]
    pos = (correct & pool).sum(axis=1)
    neg = seen - pos
    # Ranks of random keys, so that every choice within the group rule is equally likely.
    keys = np.where(pool, rng.random((prompts, most)), 2.0)
    if policy.group.random_split:
        kept = (keys[:, :, None] > keys[:, None, :]).sum(axis=2) < policy.n
        kept &= pool
    else:
        keep_pos, keep_neg = policy.group.split(pos, neg, policy.n)
        better = (keys[:, :, None] > keys[:, None, :]) & (correct[:, :, None] == correct[:, None, :])
        kept = pool & (better.sum(axis=2) < np.where(correct, keep_pos[:, None], keep_neg[:, None]))
    adv_pos, adv_neg = class_advantages(policy, pos, neg, (kept & correct).sum(axis=1), (kept & ~correct).sum(axis=1))
    advantage = np.where(correct, adv_pos[:, None], adv_neg[:, None]) * kept
    update = np.einsum("pr,prd->pd", advantage, scores)
    return p, update @ phi, (update**2).sum(axis=1), seen.astype(np.float64)


@pytest.mark.parametrize(
    "policy",
    [
        Policy.preset("grpo"),
        Policy(Balance(4), Rounds(4, 3), group_size=4),
        Policy(Positive(2), Stages((2, 3, 4)), group_size=5, group=Uniform(), advantage=GroupMean()),
        Problem(BETA, ScoreModel((0.5, 4.0), "log", transfer=0.0), max_samples=8).best().policy,
    ],
    ids=lambda policy: policy.label,
)
def test_the_score_model_simulated(policy: Policy) -> None:
    noise_ratio, prompts = (0.5, 4.0), 60_000
    found = gradient_efficiency(policy, BETA, ScoreModel(noise_ratio, "log", transfer=0.0))
    p, along, square, samples = simulated(policy, BETA, noise_ratio, prompts, seed=7)
    for sample, exact in ((along * (1 - p), found.progress), (square, found.noise), (samples, found.expected_samples)):
        error = float(sample.std()) / math.sqrt(prompts)
        assert float(sample.mean()) == pytest.approx(exact, abs=5 * error + 1e-12)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "maen"}, r"unknown objective 'maen'; did you mean 'mean'"),
        ({"objective": "pass@0"}, r"unknown objective 'pass@0'"),
        ({"objective": None}, r"unknown objective None"),
        ({"objective": lambda p: np.ones(3)}, r"elementwise; got shape \(3,\)"),  # noqa: ARG005
        ({"objective": lambda p: 1 / (p - p)}, r"finite inside \(0, 1\); it isn't at p = 0\.5"),
        ({"objective": lambda p: 1 / (p - 0.15)}, r"finite inside \(0, 1\); it isn't at p = 0\.15"),
        ({"noise_ratio": -1.0}, r"noise_ratio must be a finite number in \[0, inf\); got -1.0"),
        ({"noise_ratio": (1.0, math.nan)}, r"noise_ratio .* got nan"),
        ({"noise_ratio": (1.0, 2.0, 3.0)}, r"a pair for positives and negatives; got \(1.0, 2.0, 3.0\)"),
        ({"noise_ratio": "1"}, r"noise_ratio .* got '1'"),
        ({"update_cost": -0.5}, r"update_cost must be .* got -0.5"),
        ({"update_cost": math.inf}, r"update_cost must be .* got inf"),
    ],
)
def test_bad_input_is_quoted(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gradient_efficiency(plain(2), ENDS, ScoreModel(**arguments))


def test_a_name_is_no_policy() -> None:
    with pytest.raises(InputError, match=r"policy must be a Policy; got 'grpo'"):
        gradient_efficiency("grpo", BETA)  # type: ignore[arg-type]
