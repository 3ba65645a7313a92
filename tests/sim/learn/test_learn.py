"""Learning: the kernels against slow twins, the mean update and its flow against theory, sweeps against themselves."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Allocator, Balance, Beta, Policy, Rounds, analyze, uniform
from ada_bandit._types import FloatArray
from ada_bandit.advantages import Cell, GroupMean
from ada_bandit.errors import InputError
from ada_bandit.groups import Uniform
from ada_bandit.laws import Grid
from ada_bandit.presets import PRESETS
from ada_bandit.uniforms import Stream
from sim.cli import app
from sim.learn import kernels
from sim.learn.figure import write_figures
from sim.learn.study import ROOT, Plan, Sweep, run_sweep
from sim.learn.task import PROMPT_SETS, LengthModel, Prompts, PromptSet, Task
from sim.learn.training import (
    Sampler,
    TrainingRun,
    TrainingSetting,
    gradient_flow,
    mean_update,
    sample_batch,
    step_seed,
    train,
    train_sampler,
    update,
)
from sim.montecarlo import simulate

EXACT = [name for name, preset in PRESETS.items() if preset.exact]
SHARED = [name for name, preset in PRESETS.items() if not preset.exact]
RANDOM_SPLIT = Policy(Balance(4), Rounds(8, 4), 4, Uniform(), GroupMean(), name="uniform")
Model = Literal["logistic", "softmax"]
MODELS: tuple[Model, ...] = ("logistic", "softmax")
SMALL = Task(prompts=64, held_out=32, features=8, skills=2, answers=5)
FEW = TrainingSetting(steps=6, batch=32, evaluate_every=4, pass_k=(1, 4))
BALANCE = Policy.preset("reinforce-ada-balance")


def policy_of(name: str) -> Policy:
    return RANDOM_SPLIT if name == "uniform" else Policy.preset(name)


def some_prompts(model: Model, rates: Sequence[float] | FloatArray, seed: int = 3) -> tuple[Prompts, FloatArray]:
    """Return prompts, and parameters away from the start."""
    task = Task(model=model, features=6, skills=2, alignment=0.3, answers=5, right=2)
    prompts = task.realise(rates, seed)
    weights = np.asarray(uniform(seed, 99, np.arange(6)[:, None], np.arange(prompts.columns)) - 0.5)
    return prompts, weights


def same(first: TrainingRun, second: TrainingRun) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in vars(first))


# Kernels


def naive_laws(prompts: Prompts, weights: FloatArray) -> FloatArray:
    logits = prompts.base.copy()
    logits[:, : prompts.columns] += prompts.features @ weights
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def naive_advantages(policy: Policy, pos: int, neg: int, keep_pos: int, keep_neg: int) -> tuple[float, float]:
    """Ask the policy's own rule about one pool and the group that was drawn from it."""
    tables = policy.tables
    pool_pos, pool_neg, kept_pos, kept_neg = (np.array([count]) for count in (pos, neg, keep_pos, keep_neg))
    mean_pos, mean_neg, estimate = (
        np.array([each[pos, neg]]) for each in (tables.mean_keep_pos, tables.mean_keep_neg, tables.estimate)
    )
    cell = Cell(pool_pos, pool_neg, kept_pos, kept_neg, mean_pos, mean_neg, estimate, policy.n)
    of_pos, of_neg = policy.advantage.of_classes(cell)
    return float(of_pos[0]), float(of_neg[0])


def naive_group(policy: Policy, law: FloatArray, right: int, seed: int, prompt: int) -> tuple[int, int, FloatArray]:
    """Sample one prompt response by response; return pos, neg and the sums of advantages by answer."""
    answers: list[int] = []
    tables = policy.tables
    pos = wanted = 0
    while True:
        wanted = int(tables.draws[pos, len(answers) - pos])
        if wanted == 0:
            break
        for _ in range(wanted):
            u = float(uniform(seed, Stream.REWARDS, prompt, len(answers)))
            answers.append(int(np.searchsorted(np.cumsum(law), u, side="right")))
        pos = sum(answer < right for answer in answers)
    neg = len(answers) - pos
    lots = [float(uniform(seed, Stream.KEEP, prompt, draw)) for draw in range(len(answers))]
    by_lot = sorted(range(len(answers)), key=lambda draw: lots[draw])
    rows = int(tables.keep[pos, neg])
    if tables.random_split:
        kept = by_lot[:rows]
    else:
        keep_pos = int(tables.keep_pos[pos, neg])
        kept = [draw for draw in by_lot if answers[draw] < right][:keep_pos]
        kept += [draw for draw in by_lot if answers[draw] >= right][: rows - keep_pos]
    kept_pos = sum(answers[draw] < right for draw in kept)
    of_pos, of_neg = naive_advantages(policy, pos, neg, kept_pos, len(kept) - kept_pos)
    pull = np.zeros(law.size)
    for draw in kept:
        pull[answers[draw]] += of_pos if answers[draw] < right else of_neg
    return pos, neg, pull


@pytest.mark.parametrize("name", [*EXACT, "uniform"])
def test_groups_are_those_of_a_naive_twin(name: str) -> None:
    policy = policy_of(name)
    prompts, weights = some_prompts("softmax", np.linspace(0.02, 0.98, 24))
    laws = prompts.answer_laws(weights)
    np.testing.assert_allclose(laws, naive_laws(prompts, weights), rtol=1e-13)
    batch = sample_batch(Sampler.of(policy), laws, prompts.right, 7)
    for prompt, law in enumerate(laws):
        pos, neg, pull = naive_group(policy, law, prompts.right, 7, prompt)
        assert (batch.pos[prompt], batch.neg[prompt]) == (pos, neg)
        np.testing.assert_allclose(batch.pull[prompt], pull, atol=1e-12)


@pytest.mark.parametrize("name", [*EXACT, "uniform"])
def test_responses_and_groups_are_those_of_monte_carlo_and_of_the_allocator(name: str) -> None:
    policy = policy_of(name)
    rates = np.linspace(0.01, 0.99, 200)
    prompts, weights = some_prompts("logistic", rates)
    laws, rates = prompts.answer_laws(weights), prompts.pass_rates(weights)
    key = step_seed(5, 11)
    batch = sample_batch(Sampler.of(policy), laws, 1, key)
    exits = simulate(policy, rates, seed=key)
    np.testing.assert_array_equal(batch.pos, exits.pos)
    np.testing.assert_array_equal(batch.neg, exits.neg)
    assert len(batch.by_round) == exits.rounds.max()
    np.testing.assert_array_equal(batch.by_round.sum(axis=0), [exits.pos.sum(), exits.neg.sum()])
    allocator = Allocator(policy, rates.size, key)
    while request := allocator.ask():
        allocator.tell(
            request.ids, uniform(key, Stream.REWARDS, request.prompts, request.draws) < rates[request.prompts]
        )
    groups = allocator.groups()
    of_pos, of_neg = (np.where(groups.mask & (groups.correct == side), groups.advantages, 0) for side in (True, False))
    np.testing.assert_allclose(batch.pull[:, 0], of_pos.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(batch.pull[:, 1], of_neg.sum(axis=1), atol=1e-12)
    np.testing.assert_array_equal(batch.kept[:, 0], (groups.mask & groups.correct).sum(axis=1))
    np.testing.assert_array_equal(batch.kept.sum(axis=1), groups.mask.sum(axis=1))


def naive_updates(
    prompts: Prompts, weights: FloatArray, before: FloatArray, pull: FloatArray, clip: tuple[float, float] | None
) -> FloatArray:
    """Sum the gradients of the clipped objective by finite differences of ``min(r A, clip(r) A)``."""

    def objective(flat: FloatArray) -> float:
        now = naive_laws(prompts, flat.reshape(weights.shape))
        if clip is None:
            return float((pull * np.log(now)).sum())
        ratio = now / before
        return float(np.minimum(ratio * pull, np.clip(ratio, 1 - clip[0], 1 + clip[1]) * pull).sum())

    step = 1e-6
    found = [
        (objective(weights.ravel() + step * unit) - objective(weights.ravel() - step * unit)) / (2 * step)
        for unit in np.eye(weights.size)
    ]
    return np.array(found).reshape(weights.shape)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [None, (0.2, 0.28)])
def test_updates_are_the_slope_of_the_objective(model: Model, clip: tuple[float, float] | None) -> None:
    prompts, weights = some_prompts(model, np.linspace(0.1, 0.9, 12))
    before = prompts.answer_laws(weights)
    moved = weights + 2 * uniform(1, 98, np.arange(weights.shape[0])[:, None], np.arange(weights.shape[1]))
    pull = sample_batch(Sampler.of(BALANCE), before, prompts.right, 3).pull
    gradient = np.empty_like(weights)
    low, high = clip or (0.0, 0.0)
    held, clipped = kernels.add_updates(
        prompts.features, prompts.base, moved, np.arange(12), before, pull, clip is not None, low, high, 1.0, gradient
    )
    assert held == np.count_nonzero(pull)
    assert (0 < clipped < held) if clip else clipped == 0
    np.testing.assert_allclose(gradient, naive_updates(prompts, moved, before, pull, clip), atol=1e-7)


def test_ppo_clips_as_computed_by_hand() -> None:
    # One feature of value 1, a logistic policy at p = 1/2 before and p = 0.7 now: r = 1.4 for the correct answer
    # and 0.6 for the incorrect one.
    base = np.array([[0.0, 0.0]])
    weights, before = np.array([[np.log(7 / 3)]]), np.array([[0.5, 0.5]])
    gradient, clip = np.empty((1, 1)), True

    def of(pull: list[float], low: float, high: float) -> tuple[float, int]:
        _, clipped = kernels.add_updates(
            np.ones((1, 1)), base, weights, np.array([0]), before, np.array([pull]), clip, low, high, 1.0, gradient
        )
        return float(gradient[0, 0]), clipped

    # A > 0: r = 1.4 is inside 1 + 0.5, so r A (1 - p); beyond 1 + 0.28 nothing.
    assert of([2.0, 0.0], 0.2, 0.5) == pytest.approx((1.4 * 2.0 * 0.3, 0))
    assert of([2.0, 0.0], 0.2, 0.28) == (0.0, 1)
    # A < 0 on the correct answer: r above 1 is never clipped, as the objective is the lower of the two.
    assert of([-2.0, 0.0], 0.2, 0.28) == pytest.approx((-1.4 * 2.0 * 0.3, 0))
    # A < 0 on the incorrect answer, r = 0.6: its score is -p; clipped below 1 - 0.2, and not below 1 - 0.5.
    assert of([0.0, -1.0], 0.5, 0.28) == pytest.approx((0.6 * 0.7, 0))
    assert of([0.0, -1.0], 0.2, 0.28) == (0.0, 1)
    assert of([2.0, -1.0], 0.5, 0.5) == pytest.approx((1.4 * 2.0 * 0.3 + 0.6 * 0.7, 0))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_batch_without_signal_changes_nothing(optimizer: Literal["adam", "sgd"]) -> None:
    task = replace(SMALL, law=Grid([0.0]), prompt_set=PromptSet("none", 0, 0))
    found = train(Policy.preset("grpo"), task, replace(FEW, optimizer=optimizer))
    assert found.signal.sum() == 0
    assert not found.weights.any()
    # Neither does it after steps with signal: momentum moves nothing.
    prompts, weights = some_prompts("softmax", [0.5] * 8)
    laws = prompts.answer_laws(weights)
    steps: list[FloatArray] = []
    entered = update(prompts, weights, np.arange(8), laws, np.zeros(laws.shape), lambda _, g: steps.append(g), FEW, 4)
    assert (steps, entered) == ([], {"update_norm": 0.0, "clipped": 0.0})


def test_minibatches_split_a_step_and_epochs_repeat_it() -> None:
    prompts, weights = some_prompts("softmax", np.linspace(0.1, 0.9, 10))
    laws = prompts.answer_laws(weights)
    pull = sample_batch(Sampler.of(BALANCE), laws, prompts.right, 3).pull

    def steps_of(**options: Any) -> list[FloatArray]:
        taken: list[FloatArray] = []
        update(
            prompts, weights, np.arange(10), laws, pull, lambda _, g: taken.append(g.copy()), replace(FEW, **options), 4
        )
        return taken

    (whole,) = steps_of()
    parts = steps_of(minibatches=3, epochs=2)
    assert len(parts) == 6
    # Without a step between them, minibatches of 4, 3 and 3 prompts add up to the whole.
    np.testing.assert_allclose((4 * parts[0] + 3 * parts[1] + 3 * parts[2]) / 10, whole, atol=1e-15)
    np.testing.assert_array_equal(parts[:3], parts[3:])
    np.testing.assert_allclose(whole, naive_updates(prompts, weights, laws, pull, None) / (4 * 10), atol=1e-8)


# Theory


@pytest.mark.parametrize("name", [*EXACT, "uniform"])
@pytest.mark.parametrize("model", MODELS)
def test_the_mean_update_is_w_grad_p(model: Model, name: str) -> None:
    policy = policy_of(name)
    rates = np.array([0.03, 0.15, 0.4, 0.7, 0.95])
    copies = 20_000
    prompts, weights = some_prompts(model, rates)
    of_one, gradients = prompts.answer_laws(weights), prompts.gradients(weights)
    laws = np.repeat(of_one, copies, axis=0)
    batch = sample_batch(Sampler.of(policy), laws, prompts.right, 20250)
    # The update of a prompt without its factor phi: sum of A (1[answer = c] - pi_c), over n.
    total = batch.pull.sum(axis=1, keepdims=True)
    updates = (batch.pull - total * laws)[:, : prompts.columns] / policy.n
    updates = updates.reshape(rates.size, copies, prompts.columns)
    weight = analyze(policy, prompts.pass_rates(weights)).gradient_weight
    error = updates.std(axis=1) / np.sqrt(copies)
    miss = np.abs(updates.mean(axis=1) - weight[:, None] * gradients)
    # What has a chance of less than 10 in as many copies may not have been seen, and so be missing in the spread too.
    unseen = 10 / copies * np.abs(updates).max(axis=1)
    assert (miss <= 4 * error + unseen).all()
    assert (error < 0.2 * np.abs(weight[:, None] * gradients).max()).all()


def test_mean_update_adds_up_prompts() -> None:
    prompts, weights = some_prompts("softmax", [0.1, 0.5, 0.8])
    weight = analyze(BALANCE, prompts.pass_rates(weights)).gradient_weight
    # grad p by finite differences.
    step, total = 1e-6, np.zeros_like(weights)
    for index in np.ndindex(weights.shape):
        moved = [weights.copy(), weights.copy()]
        moved[0][index] += step
        moved[1][index] -= step
        up, down = (prompts.pass_rates(one) for one in moved)
        total[index] = weight @ (up - down) / (2 * step) / 3
    np.testing.assert_allclose(mean_update(BALANCE, prompts, weights), total, atol=1e-9)


@pytest.mark.parametrize("name", ["grpo", "maxrl", "reinforce-ada-pos", "reinforce-ada-balance"])
@pytest.mark.parametrize("model", MODELS)
def test_small_steps_follow_the_gradient_flow_of_the_induced_objective(model: Model, name: str) -> None:
    policy = Policy.preset(name)
    task = Task(model=model, features=6, skills=2, alignment=0.3, answers=5)
    prompts = task.realise(np.linspace(0.05, 0.8, 32), 3)
    misses = []
    for rate, steps in ((0.4, 200), (0.1, 800)):
        setting = TrainingSetting(steps, 512, rate, "sgd", evaluate_every=steps // 8)
        found = train_sampler(Sampler.of(policy), task, setting, 5, (prompts, prompts))
        flow = gradient_flow(policy, prompts, found.at * rate)
        expected = np.array([prompts.pass_rates(weights).mean() for weights in flow])
        assert expected[-1] > 2 * expected[0]
        misses.append(np.linalg.norm(found.weights - flow[-1]) / np.linalg.norm(flow[-1]))
    assert np.abs(found.train_pass_rate / expected - 1).max() < 0.01
    assert misses[1] < 0.01


# Tasks


@pytest.mark.parametrize("model", MODELS)
def test_a_task_starts_at_the_pass_rates_of_its_law(model: Model) -> None:
    rates = np.array([0.0, 1e-5, 0.2, 0.2, 0.97, 1.0])
    task = replace(SMALL, model=model, alignment=0.4, skills=3)
    prompts = task.realise(rates, 1)
    zero = np.zeros(prompts.shape)
    np.testing.assert_allclose(prompts.pass_rates(zero), np.clip(rates, 1e-6, 1 - 1e-6), rtol=1e-9)
    cosines = prompts.features @ prompts.features.T
    np.testing.assert_allclose(np.diag(cosines), 1)
    train, held_out = replace(
        task, prompts=3000, held_out=1000, prompt_set=PROMPT_SETS["hard"], law=Beta(0.5, 1.0)
    ).draw(2)
    assert abs(train.pass_rates(zero).mean() - PROMPT_SETS["hard"].law(Beta(0.5, 1.0)).mean) < 0.01
    assert not np.array_equal(train.features[:10], held_out.features[:10])
    # Prompts of the lowest third share a direction, and none with those of the highest.
    low, high = (np.argsort(train.pass_rates(zero))[part] for part in (slice(1000), slice(2000, None)))
    assert abs((train.features[low] @ train.features[low].T)[np.triu_indices(1000, 1)].mean() - 0.4) < 0.01
    assert abs((train.features[low] @ train.features[high].T).mean()) < 0.01


def test_prompt_sets_filter_the_law_as_the_paper_filters_prompts() -> None:
    law = Grid([0.0, 0.1, 0.5, 0.9], [0.3, 0.3, 0.2, 0.2])
    every, expected = PROMPT_SETS["all"].law(law), law.at_least(1, 16)
    assert isinstance(every, Grid)
    assert isinstance(expected, Grid)
    np.testing.assert_allclose(every.weights, expected.weights, rtol=1e-12)
    assert PromptSet.parse("easy") == PromptSet("easy", 3, 16)
    hard = PromptSet.parse("1-2/16").law(law)
    # P(1 or 2 of 16 correct) times the weight, by hand.
    chance = [16 * p * (1 - p) ** 15 + 120 * p**2 * (1 - p) ** 14 for p in (0.0, 0.1, 0.5, 0.9)]
    mass = np.array(chance) * [0.3, 0.3, 0.2, 0.2]
    assert isinstance(hard, Grid)
    np.testing.assert_allclose(hard.weights, mass / mass.sum(), rtol=1e-12)
    smooth = PROMPT_SETS["hard"].law(Beta(1.0, 1.0))
    # Under a flat law 1 and 2 of 16 are equally likely, with posterior means 2/18 and 3/18.
    assert smooth.mean == pytest.approx(2.5 / 18)
    for wrong in ("medium", "3-2/16", "1-17/16", "x-2/16"):
        with pytest.raises(InputError):
            PromptSet.parse(wrong)
    with pytest.raises(InputError, match="no prompt of this law"):
        PROMPT_SETS["hard"].law(Grid([0.0]))


def test_evaluation_is_exact() -> None:
    prompts, weights = some_prompts("softmax", [0.2, 0.6])
    laws = naive_laws(prompts, weights)
    found = prompts.evaluate(weights, (1, 3))
    p = laws[:, :2].sum(axis=1)
    inner = laws[:, :2] / p[:, None]
    assert found.pass_rate == pytest.approx(p.mean())
    assert found.entropy == pytest.approx(-(laws * np.log(laws)).sum(axis=1).mean())
    assert found.diversity == pytest.approx(np.exp(-(inner * np.log(inner)).sum(axis=1)).mean())
    np.testing.assert_allclose(found.pass_at, [p.mean(), (1 - (1 - p) ** 3).mean()])


# Cost


@pytest.mark.parametrize("law", ["lognormal", "geometric", "constant"])
def test_round_times_have_the_law_of_the_longest_response(law: Literal["lognormal", "geometric", "constant"]) -> None:
    model = LengthModel(60.0, 100.0, law, 0.5)
    rounds, pos, neg = 4000, 5, 9
    times = model.round_times(
        np.full(rounds, pos), np.full(rounds, neg), uniform(1, 50, np.arange(rounds)[:, None], [0, 1])
    )
    generator = np.random.default_rng(0)

    def lengths(mean: float, count: int) -> FloatArray:
        shape = (rounds, count)
        if law == "lognormal":
            return mean * np.exp(0.5 * generator.standard_normal(shape) - 0.125)
        return generator.geometric(1 / mean, shape).astype(float) if law == "geometric" else np.full(shape, mean)

    drawn = np.concatenate([lengths(60.0, pos), lengths(100.0, neg)], axis=1).max(axis=1)
    error = np.hypot(times.std(), drawn.std()) / np.sqrt(rounds)
    assert abs(times.mean() - drawn.mean()) <= 4 * error
    assert abs(np.median(times) - np.median(drawn)) <= 6 * error
    assert model.tokens(pos, neg) == 5 * 60 + 9 * 100
    none = model.round_times(np.array([0, 0]), np.array([0, 1]), np.full((2, 2), 0.5))
    assert none[0] == 0 < none[1]
    limited = replace(model, limit=120.0).round_times(np.array([500]), np.array([500]), np.full((1, 2), 0.5))
    assert limited[0] == (100 if law == "constant" else 120)
    busy = replace(model, capacity=2.0).round_times(np.array([500]), np.array([500]), np.full((1, 2), 0.5))
    assert busy[0] == 40_000


def test_lengths_from_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt_id": "a", "rewards": [1, 0, 1], "tokens": [10, 30, 20]}\n')
    assert LengthModel.from_log(log) == LengthModel(15.0, 30.0)
    log.write_text('{"prompt_id": "a", "rewards": [1, 1], "tokens": [10, 30]}\n')
    with pytest.raises(InputError, match="no incorrect response"):
        LengthModel.from_log(log)
    log.write_text('{"prompt_id": "a", "rewards": [1, 0]}\n')
    with pytest.raises(InputError, match="no tokens"):
        LengthModel.from_log(log)


# Runs and sweeps


def test_a_run_learns_and_counts() -> None:
    task = replace(SMALL, model="logistic", skills=1, law=Grid([0.3]), prompt_set=PROMPT_SETS["all"])
    found = train(
        BALANCE, task, TrainingSetting(60, 64, 0.02, evaluate_every=25, clip=(0.02, 0.03), minibatches=4, epochs=2)
    )
    assert found.at.tolist() == [0, 25, 50, 60]
    assert found.train_pass_rate[0] == pytest.approx(0.3)
    assert found.train_pass_rate[-1] > 0.5
    assert found.held_out_pass_rate[-1] > 0.5
    assert found.train_pass_at.shape == (4, 5)
    assert 0 < found.clipped.max() < 1
    assert (found.kept == 4 * 64).all()
    assert (found.responses >= 8 * 64).all()
    assert (found.rounds <= 4).all()
    np.testing.assert_array_equal(found.spent("steps"), found.at)
    assert found.spent("responses")[-1] == found.responses.sum()
    assert found.spent("tokens")[1] == pytest.approx(found.tokens[:25].sum())
    np.testing.assert_allclose(found.resolved + found.short_of_positives + found.short_of_negatives, 1)


def test_policies_of_one_seed_share_prompts_order_and_responses() -> None:
    # At a learning rate of 0 two policies see the same batches.
    still = replace(FEW, learning_rate=0.0, optimizer="sgd")
    grpo, balance = (train(Policy.preset(name), SMALL, still, 3) for name in ("grpo", "reinforce-ada-balance"))
    np.testing.assert_array_equal(grpo.reward, balance.reward)
    # An epoch has every prompt once.
    prompts, _ = SMALL.draw(3)
    rates = prompts.pass_rates(np.zeros(prompts.shape))
    assert grpo.reward[:2].mean() == pytest.approx(rates.mean())
    assert not same(grpo, train(Policy.preset("grpo"), SMALL, still, 4))
    assert same(grpo, train(Policy.preset("grpo"), SMALL, still, 3))


@pytest.mark.parametrize("name", SHARED)
def test_shared_budgets_go_through_the_allocator(name: str) -> None:
    options = {"dapo": {"group_size": 4, "wanted": 8}, "greso": {"group_size": 4, "wanted": 8}, "mopps": {"wanted": 8}}
    policy = Policy.preset(name, **options.get(name, {}))
    found = train(policy, SMALL, FEW)
    assert found.update_norm.max() > 0
    assert found.weights.any()
    if name not in options:
        assert (found.responses == PRESETS[name].options["average"] * 32).all()


def test_a_run_is_written_in_full_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = train(BALANCE, SMALL, FEW, 1)
    found.save(tmp_path / "run.npz")
    assert same(TrainingRun.load(tmp_path / "run.npz"), found)

    def fail(*_: Any, **__: Any) -> None:
        msg = "the disk is full"
        raise OSError(msg)

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="full"):
        found.save(tmp_path / "other.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def small_plan(**options: Any) -> Plan:
    policies = tuple(Policy.preset(name) for name in ("grpo", "reinforce-ada-pos", "reinforce-ada-balance"))
    tasks = (SMALL, replace(SMALL, prompt_set=PROMPT_SETS["hard"]))
    return Plan(policies, tasks, FEW, **({"seeds": 3} | options))


@pytest.fixture(scope="module")
def found() -> Sweep:
    return run_sweep(small_plan())


def alike(first: Sweep, second: Sweep) -> bool:
    assert first.to_csv() == second.to_csv()
    assert first.to_dict() == second.to_dict()
    pairs = ((first.tried[key][rate], second.tried[key][rate]) for key in first.tried for rate in first.tried[key])
    return all(same(a, b) for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True))


def test_results_do_not_depend_on_workers(found: Sweep) -> None:
    assert alike(found, run_sweep(small_plan(), workers=2))
    assert alike(found, run_sweep(small_plan(), workers=3, backend="threading"))


def test_a_resumed_sweep_gives_the_same_results(found: Sweep, tmp_path: Path) -> None:
    count = 0

    def interrupt(done: int) -> None:
        nonlocal count
        count += done
        if count >= 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(small_plan(), tmp_path, progress=interrupt)
    there = list(tmp_path.iterdir())
    assert len(there) == 7
    # A file that was cut short, and one that is none of the plan's.
    there[0].write_bytes(there[0].read_bytes()[:100])
    (tmp_path / "other.npz").write_text("no run")
    resumed = run_sweep(small_plan(), tmp_path, resume=True)
    assert resumed.computed == 30 - 6
    assert alike(found, resumed)
    again = run_sweep(small_plan(), tmp_path, resume=True)
    assert again.computed == 0
    assert alike(found, again)
    assert run_sweep(small_plan(), tmp_path).computed == 30
    # Whatever decides the result decides the file.
    other = replace(small_plan(), setting=replace(FEW, clip=(0.2, 0.2)))
    assert run_sweep(other, tmp_path, resume=True).computed == 30


def test_matched_policies_cost_as_much_as_the_adaptive_ones(found: Sweep) -> None:
    for task in ("all", "hard"):
        assert set(found.matched[task]) == {f"grpo matched to reinforce-ada-{rule}" for rule in ("pos", "balance")}
        for name, n in found.matched[task].items():
            cost = found.whole(task, name.removeprefix("grpo matched to "), "responses").mean / FEW.batch
            assert abs(n - cost) <= 0.5
            assert found.whole(task, name, "responses").mean == n * FEW.batch
    assert found.plan.expected_runs == 30
    assert run_sweep(small_plan(matched="off", seeds=1)).policies == (
        "grpo",
        "reinforce-ada-pos",
        "reinforce-ada-balance",
    )
    fixed = run_sweep(small_plan(matched=6, seeds=1))
    assert fixed.policies[-1] == "grpo:group_size=6"
    assert (fixed.runs["all", "grpo:group_size=6"][0].responses == 6 * 32).all()


def test_standings_are_paired_by_seed(found: Sweep) -> None:
    assert found.reference == "grpo"
    for axis in ("steps", "responses", "tokens", "time"):
        rows = found.standing("hard", axis)
        budget = found.common_budget("hard", axis)
        assert rows[0].to_best.mean == 0
        assert rows[0].pass_rate.mean == max(row.pass_rate.mean for row in rows)
        for row in rows:
            runs = found.runs["hard", row.policy]
            mine = [np.interp(budget, one.spent(axis), one.held_out_pass_rate) for one in runs]
            plain = [np.interp(budget, one.spent(axis), one.held_out_pass_rate) for one in found.runs["hard", "grpo"]]
            assert row.pass_rate.mean == pytest.approx(np.mean(mine))
            gaps = np.subtract(mine, plain)
            assert row.to_reference.mean == pytest.approx(gaps.mean(), abs=1e-12)
            assert row.to_reference.se == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert found.common_budget("all", "responses") == 4 * 32 * 6
    text = "\n".join(found.notes)
    assert "hard, per step: after 6 steps" in text
    assert "all, per token: after" in text
    assert "against GRPO with n =" in text


def test_each_policy_is_taken_at_its_best_learning_rate() -> None:
    several = run_sweep(small_plan(learning_rates=(1e-4, 0.05), seeds=2, matched="off"))
    assert set(several.learning_rates.values()) == {0.05}
    alone = run_sweep(replace(small_plan(seeds=2, matched="off"), setting=replace(FEW, learning_rate=0.05)))
    assert same(several.runs["all", "grpo"][1], alone.runs["all", "grpo"][1])
    assert several.plan.expected_runs == 24
    at = several.at_budget("all", "grpo", "steps", 3.0)
    np.testing.assert_array_equal(at, alone.at_budget("all", "grpo", "steps", 3.0))


def test_curves_as_csv(found: Sweep) -> None:
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == 2 * 5 * 3
    row = next(row for row in rows if (row["prompt_set"], row["policy"], row["step"]) == ("hard", "grpo", "4"))
    runs = found.runs["hard", "grpo"]
    assert float(row["held_out_pass_rate"]) == pytest.approx(np.mean([one.held_out_pass_rate[1] for one in runs]))
    assert float(row["signal"]) == pytest.approx(np.mean([one.signal[:4].mean() for one in runs]))
    assert float(row["responses_spent"]) == 4 * 32 * 4
    assert float(row["train_pass@4"]) == pytest.approx(np.mean([one.train_pass_at[1, 1] for one in runs]))
    assert rows[0]["signal"] == ""


def test_one_seed_tells_no_differences() -> None:
    alone = run_sweep(small_plan(seeds=1))
    assert "one seed" in alone.notes[0]
    assert not any("nan" in note or "ahead" in note for note in alone.notes)
    json.dumps(alone.to_dict(), allow_nan=False)
    assert "nan" not in alone.to_csv()


def test_figures(found: Sweep, tmp_path: Path) -> None:
    names = [path.name for path in write_figures(found, tmp_path)]
    assert names == [
        f"learn-{task}{kind}.{ending}"
        for task in ("all", "hard")
        for kind in ("", "-pass-at-k")
        for ending in ("png", "svg")
    ]
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task(model="linear"), "model must be"),  # type: ignore[arg-type]
        (lambda: Task(answers=3, right=3), "right must be less"),
        (lambda: Task(features=4, skills=4), "skills must be fewer"),
        (lambda: Task(alignment=1.5), "alignment"),
        (lambda: TrainingSetting(minibatches=9, batch=8), "minibatches must not exceed"),
        (lambda: TrainingSetting(optimizer="lion"), "optimizer must be"),  # type: ignore[arg-type]
        (lambda: TrainingSetting(clip=(0.2, -1.0)), "clip"),
        (lambda: LengthModel(100.0, 200.0, limit=150.0), "limit"),
        (lambda: LengthModel(law="cauchy"), "law must be"),  # type: ignore[arg-type]
        (lambda: Plan((), (SMALL,), FEW), "at least one policy"),
        (lambda: Plan((BALANCE,), (SMALL, SMALL), FEW), "must differ by name"),
        (lambda: run_sweep(small_plan(), backend="abacus"), "backend"),
        (lambda: run_sweep(small_plan(), address="1.2.3.4"), "address is for the backend 'ray'"),
    ],
)
def test_what_cannot_be_used_is_told(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_ray_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        run_sweep(small_plan(), backend="ray")


def test_workers_elsewhere_find_the_programs(tmp_path: Path) -> None:
    # What ray is told; a worker unpickles functions by the names of their modules.
    code = "import sim.learn.study, ada_bandit; print(sim.learn.study.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == ROOT / "sim" / "learn" / "study.py"


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_results(found: Sweep) -> None:
    assert alike(found, run_sweep(small_plan(), workers=2, backend="ray"))


# The command

OPTIONS = (
    *("learn", "--steps", 6, "--prompts", 16, "--pool", 32, "--held-out", 16, "--features", 8, "--skills", 2),
    *("--seeds", 2, "--workers", 1),
)


def call(*arguments: str | int | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_the_command_writes_and_resumes(tmp_path: Path) -> None:
    first = call(*OPTIONS, "--out", tmp_path, "--prompt-set", "hard", "--clip", "0.2,0.28", "--lengths", "10,20")
    assert first.exit_code == 0
    assert "hard, per step" in first.stdout.replace("\n  ", " ")
    assert "10 runs in" in first.stdout
    names = {path.name for path in tmp_path.iterdir()}
    assert {"learn.csv", "learn.json", "learn-hard.png", "learn-hard.svg", "runs"} <= names
    csv_text, json_text = (tmp_path / "learn.csv").read_text(), (tmp_path / "learn.json").read_text()
    second = call(
        *OPTIONS, "--out", tmp_path, "--prompt-set", "hard", "--clip", "0.2,0.28", "--lengths", "10,20", "--no-figures",
        "--resume", "--json",
    )  # fmt: skip
    assert json.loads(second.stdout) == json.loads(json_text)
    assert (tmp_path / "learn.csv").read_text() == csv_text
    assert len(list((tmp_path / "runs").iterdir())) == 10


def test_the_command_prints_the_scaling(tmp_path: Path) -> None:
    result = call(*OPTIONS, "--out", tmp_path, "--policy", "grpo", "--no-figures", "--scaling")
    assert "1 worker: 4 runs in" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt-set", "medium"), "unknown prompt set 'medium'"),
        (("--clip", "0.2"), "--clip takes two numbers"),
        (("--lengths", "x"), "--lengths takes two numbers"),
        (("--matched", "some"), "--matched takes auto, off, or a number"),
        (("--model", "linear"), "model must be"),
    ],
)
def test_the_command_tells_errors_in_one_line(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = call(*OPTIONS, "--out", tmp_path, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
