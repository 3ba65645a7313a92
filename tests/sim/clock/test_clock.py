"""The wall-clock model of a step: closed forms, slow twins, and the formula against the simulated queue."""

from __future__ import annotations

import csv
import heapq
import io
import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Beta, Policy, ScoreModel, analyze, bayes_policy
from ada_bandit._types import BoolArray, FloatArray
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze_law
from ada_bandit.laws import Grid, Law
from ada_bandit.policy import AnyPolicy, Blend
from ada_bandit.uniforms import Stream, fold_seed, uniform_rows
from sim.cli import app
from sim.clock import Lengths, Machine, kernels, simulate_step, step_time
from sim.clock.chain import chain_of
from sim.clock.figure import write_figures
from sim.clock.study import time_policies
from sim.montecarlo import draw_pass_rates
from sim.readers import read_rollouts
from sim.sources import Source, built_in_rollouts, from_curve

LAW = Beta(0.5, 1)
UNIT = Machine(slots=10**6, seconds_a_token=1.0)
"""Slots for everybody, and a second a token."""
ROLLOUTS = built_in_rollouts("smollm2-reasoning-gym").path


def one_at_a_time(samples: int) -> Policy:
    """Draw until the first positive."""
    return Policy.from_dict(
        {"rule": "positive", "budget": {"name": "rounds", "samples": 1, "rounds": samples},
         "group_size": 1, "group": "all"}
    )  # fmt: skip


def policies() -> dict[str, AnyPolicy]:
    return {
        "grpo-4": Policy.preset("grpo"),
        "grpo-16": Policy.preset("grpo", group_size=16),
        "pos": Policy.preset("reinforce-ada-pos"),
        "balance": Policy.preset("reinforce-ada-balance"),
        "bayes": bayes_policy(LAW, ScoreModel(objective="log", noise_ratio=10.0)),
    }


# Lengths


@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0])
def test_lengths_of_means(cv: float) -> None:
    lengths = Lengths.of_means(300, 500, cv=cv)
    assert lengths.means == pytest.approx((300, 500), rel=1e-12)
    # The law's far tail lies beyond the last quantile.
    assert lengths.of_neg.std() / 500 == pytest.approx(cv, rel=0.04, abs=1e-12)
    # Of a log-normal law the median is the mean over sqrt(1 + cv^2).
    assert np.median(lengths.of_pos) == pytest.approx(300 / math.sqrt(1 + cv**2), rel=0.02)


def test_lengths_of_a_log_are_its_tokens_by_class() -> None:
    rows = [json.loads(line) for line in ROLLOUTS.read_text(encoding="utf-8").splitlines()]
    pairs = [(reward, tokens) for row in rows for reward, tokens in zip(row["rewards"], row["tokens"], strict=True)]
    lengths = Lengths.of_log(read_rollouts(ROLLOUTS))
    assert lengths.of_pos.tolist() == sorted(tokens for reward, tokens in pairs if reward > 0.5)
    assert lengths.of_neg.tolist() == sorted(tokens for reward, tokens in pairs if reward <= 0.5)
    assert lengths.borrowed == ""


def test_what_a_log_can_leave_out(tmp_path: Path) -> None:
    def read(*lines: str) -> Lengths:
        path = tmp_path / "log.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Lengths.of_log(read_rollouts(path))

    some = read('{"prompt_id": "a", "rewards": [1, null, 0], "tokens": [5, 7, null]}')
    assert (some.of_pos.tolist(), some.of_neg.tolist(), some.borrowed) == ([5], [5], "neg")
    wrong = read('{"prompt_id": "a", "rewards": [0, 0], "tokens": [5, 7]}')
    assert (wrong.of_pos.tolist(), wrong.borrowed) == ([5, 7], "pos")
    with pytest.raises(InputError, match=r"has no lengths.*--tokens.*--lengths POS,NEG"):
        read('{"prompt_id": "a", "rewards": [1, 0]}')
    with pytest.raises(InputError, match="none of the 2 responses"):
        read('{"prompt_id": "a", "rewards": [1, null], "tokens": [null, 4]}')


@pytest.mark.parametrize("values", [[], [3, 0], [3, -1], [3, math.nan], [3, math.inf], ["many"]])
def test_lengths_are_above_0(values: list[Any]) -> None:
    with pytest.raises(InputError, match="of_neg must"):
        Lengths(np.ones(1), np.array(values))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slots": 0}, "slots must be a whole number"),
        ({"seconds_a_token": 0}, "seconds_a_token must be"),
        ({"unloaded": 0}, "unloaded must be above 0"),
        ({"unloaded": 1.5}, "unloaded must be"),
        ({"verify_seconds": -1}, "verify_seconds must be"),
        ({"fixed_seconds": math.nan}, "fixed_seconds must be"),
        ({"barriers": False, "seconds_a_round": 1}, "streaming has no rounds; got 1"),
        ({"barriers": False, "verify_seconds": 2, "unloaded": 0.5}, r"verification time \(2 s\).*unloaded 0.5"),
    ],
)
def test_machines_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Machine(**options)


# The chain over cells


@pytest.mark.parametrize("name", policies())
@pytest.mark.parametrize("law", [LAW, Grid([0.0, 0.3, 1.0], [1, 2, 1])])
def test_the_chain_draws_what_the_exact_analysis_says(name: str, law: Law) -> None:
    policy = policies()[name]
    chain, exact = chain_of(policy, law), analyze_law(policy, law)
    drawn = chain.visits.sum(axis=0)
    assert drawn @ chain.size == pytest.approx(exact["expected_samples"], rel=1e-10)
    assert drawn.sum() == pytest.approx(exact["expected_rounds"], rel=1e-10)
    assert chain.rows == pytest.approx(exact["rows_in_loss"], rel=1e-10)
    # Whether another response is drawn is decided before its reward: Wald's identity.
    rates, weights = law.quadrature(70)
    positives = weights @ (analyze(policy, rates).expected_samples * rates)
    assert drawn @ chain.positives == pytest.approx(positives, rel=1e-10)


def test_the_chain_of_a_blend_is_both_chains() -> None:
    low, high = policies()["pos"], policies()["balance"]
    assert isinstance(low, Policy)
    assert isinstance(high, Policy)
    both = [step_time(each, LAW, 64, Lengths.of_means(30, 50), UNIT) for each in (low, high)]
    blend = step_time(Blend(low, high, 0.25), LAW, 64, Lengths.of_means(30, 50), UNIT)
    for name in ("responses", "tokens", "rows", "update"):
        expected = 0.75 * getattr(both[0], name) + 0.25 * getattr(both[1], name)
        assert getattr(blend, name) == pytest.approx(expected, rel=1e-10)


# Closed forms


@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("name", ["grpo-4", "balance", "bayes"])
def test_one_slot_works_through_everything(name: str, barriers: bool) -> None:
    policy, machine = policies()[name], Machine(slots=1, seconds_a_token=0.5, barriers=barriers)
    exact = analyze_law(policy, LAW)["expected_samples"]
    time = step_time(policy, LAW, 16, Lengths.of_means(40, 40, cv=0.5), machine)
    assert time.tokens == pytest.approx(16 * exact * 40, rel=1e-9)
    assert time.sampling == pytest.approx(0.5 * time.tokens, rel=1e-3)
    assert time.busy == pytest.approx(1, rel=1e-3)
    simulated = simulate_step(policy, LAW, 16, Lengths.of_means(40, 40, cv=0.5), machine, steps=5)
    assert simulated.samplings == pytest.approx(0.5 * simulated.tokens, rel=1e-12)


@pytest.mark.parametrize("prompts", [1, 8, 128])
@pytest.mark.parametrize("barriers", [True, False])
def test_the_longest_of_exponential_lengths_is_a_harmonic_number(prompts: int, barriers: bool) -> None:
    points = (np.arange(200_000) + 0.5) / 200_000
    sample = -100 * np.log1p(-points)
    time = step_time(policies()["grpo-4"], LAW, prompts, Lengths(sample, sample), replace(UNIT, barriers=barriers))
    harmonic = 100 * sum(1 / k for k in range(1, 4 * prompts + 1))
    assert time.sampling == pytest.approx(harmonic, rel=0.005)


@pytest.mark.parametrize(("slots", "waves"), [(512, 1), (256, 2), (64, 8), (100, 6)])
def test_equal_lengths_go_in_waves(slots: int, waves: int) -> None:
    lengths, machine = Lengths(np.full(1, 70.0), np.full(1, 70.0)), Machine(slots=slots, seconds_a_token=1)
    simulated = simulate_step(policies()["grpo-4"], LAW, 128, lengths, machine, steps=2)
    assert simulated.samplings.tolist() == [70 * waves] * 2
    assert step_time(policies()["grpo-4"], LAW, 128, lengths, machine).sampling == pytest.approx(70 * waves, rel=0.01)


@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("prompts", [1, 5, 200])
def test_equal_lengths_one_at_a_time_count_the_rounds(prompts: int, barriers: bool) -> None:
    """With slots for all a step has as many rounds as its last prompt: E[max] of censored geometric numbers.

    The model's grid splits a length between two points. Twelve lengths and as many verifications
    end up 0.7 % too long by that.
    """
    cap, law = 12, Grid([0.1, 0.6], [1, 1])
    within = [np.mean(1 - (1 - law.pass_rates) ** k) if k < cap else 1.0 for k in range(cap + 1)]
    rounds = sum(1 - chance**prompts for chance in within[:cap])
    lengths = Lengths(np.full(1, 10.0), np.full(1, 10.0))
    machine = replace(UNIT, barriers=barriers)
    time = step_time(one_at_a_time(cap), law, prompts, lengths, machine)
    assert time.sampling == pytest.approx(10 * rounds, rel=0.008)
    assert time.rounds.size == (cap if barriers else 1)
    # A verification stands between any two rounds, and after the last.
    slower = step_time(one_at_a_time(cap), law, prompts, lengths, replace(machine, verify_seconds=3.5))
    assert slower.sampling == pytest.approx(13.5 * rounds, rel=0.008)
    if barriers:
        longer = step_time(one_at_a_time(cap), law, prompts, lengths, replace(machine, seconds_a_round=2))
        assert longer.sampling == pytest.approx(12 * rounds, rel=0.002)


def test_one_round_without_a_queue_is_exact() -> None:
    """P(all are shorter than t) = (integral of (p F+ + q F-)^n over the law)^P."""
    lengths, law = Lengths.of_means(300, 500, cv=1.0), from_curve("qwen2.5-math-1.5b-base").at_least(1, 16).law
    at = np.unique(np.concatenate([lengths.of_pos, lengths.of_neg]))
    pos, neg = (np.searchsorted(each, at, side="right") / each.size for each in (lengths.of_pos, lengths.of_neg))
    rates, weights = law.quadrature(8)
    below = weights @ (rates[:, None] * pos + (1 - rates)[:, None] * neg) ** 4
    exact = at[0] + np.sum((1 - below[:-1] ** 512) * np.diff(at))
    for barriers in (True, False):
        time = step_time(policies()["grpo-4"], law, 512, lengths, replace(UNIT, barriers=barriers))
        assert time.sampling == pytest.approx(exact, rel=0.002)


@pytest.mark.parametrize("no_signal", ["mask", "leave_out"])
def test_the_update_is_paid_for_rows_and_tokens_in_the_loss(no_signal: Any) -> None:
    policy = Policy.preset("reinforce-ada-balance").with_no_signal(no_signal)
    machine = Machine(update_seconds_a_row=0.1, update_seconds_a_token=0.001, fixed_seconds=7)
    lengths = Lengths(np.full(1, 50.0), np.full(1, 50.0))
    rows = 100 * analyze_law(policy, LAW)["rows_in_loss"]
    time = step_time(policy, LAW, 100, lengths, machine)
    assert time.rows == pytest.approx(rows, rel=1e-10)
    assert time.update == pytest.approx(rows * (0.1 + 0.05), rel=1e-10)
    assert time.total == pytest.approx(time.sampling + time.update + 7)
    simulated = simulate_step(policy, LAW, 100, lengths, machine, steps=200)
    assert abs(simulated.update.mean - time.update) <= 4 * simulated.update.se + 1e-9
    assert simulated.totals == pytest.approx(simulated.samplings + simulated.updates + 7)


def test_policies_that_share_a_budget_are_refused() -> None:
    policy = Policy.preset("knapsack")
    with pytest.raises(InputError, match="shares a budget"):
        step_time(policy, LAW, 8, Lengths.of_means(3, 5), UNIT)
    with pytest.raises(InputError, match="shares a budget"):
        simulate_step(policy, LAW, 8, Lengths.of_means(3, 5), UNIT, steps=1)


# Slow twins


def drawn(law: Law, prompts: int, most: int, lengths: Lengths, key: int) -> tuple[BoolArray, FloatArray]:
    """Return what every response of a simulated step is, and how long."""
    rates = draw_pass_rates(law, prompts, seed=key)
    correct = uniform_rows(key, Stream.REWARDS, prompts, most) < rates[:, None]
    place = uniform_rows(key, Stream.LENGTHS, prompts, most)
    samples = [sample[(place * sample.size).astype(int)] for sample in (lengths.of_neg, lengths.of_pos)]
    return correct, np.choose(correct.astype(int), samples)


def naive_ends(policy: Policy, correct: BoolArray, length: FloatArray, machine: Machine) -> float:
    """Give each response in turn, by when it was asked for, the slot that is free first; no event is followed."""
    draws, prompts = policy.tables.draws, correct.shape[0]
    seen = [0] * prompts
    free = [0.0] * machine.slots
    line: list[tuple[float, int, int, int]] = []
    left: dict[int, int] = {}
    latest: dict[int, float] = {}
    wait = machine.verify_seconds / machine.seconds_a_token

    def ask(i: int, time: float) -> None:
        pos = int(correct[i, : seen[i]].sum())
        wanted = int(draws[pos, seen[i] - pos])
        left[i], latest[i] = wanted, time
        for d in range(seen[i], seen[i] + wanted):
            heapq.heappush(line, (time, i, d, 0))
        seen[i] += wanted

    end = 0.0
    for i in range(prompts):
        ask(i, 0.0)
    while line:
        time, i, d, _ = heapq.heappop(line)
        done = max(time, heapq.heappop(free)) + length[i, d]
        heapq.heappush(free, done)
        latest[i] = max(latest[i], done + wait)
        left[i] -= 1
        if not left[i] and not machine.barriers:
            ask(i, latest[i])
        if machine.barriers and not line:
            end = max(latest.values())
            free = [end] * machine.slots
            for each in range(prompts):
                ask(each, end)
    return machine.seconds_a_token * max(latest.values())


@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("slots", [1, 7, 40, 1000])
@pytest.mark.parametrize("name", ["grpo-4", "pos", "balance", "bayes"])
def test_the_simulated_queue_is_that_of_a_slow_twin(name: str, slots: int, barriers: bool) -> None:
    policy, rng = policies()[name], np.random.default_rng(3)
    assert isinstance(policy, Policy)
    # No two lengths are the same, so that no order is left to chance.
    lengths = Lengths(rng.gamma(2, 100, 50_000), rng.gamma(3, 150, 50_000))
    for verify in (0.0, 3.0):
        machine = Machine(slots=slots, seconds_a_token=0.01, barriers=barriers, verify_seconds=verify)
        found = simulate_step(policy, LAW, 12, lengths, machine, steps=3, seed=8)
        for step in range(3):
            correct, length = drawn(LAW, 12, policy.budget.max_samples, lengths, fold_seed(8, step))
            assert found.samplings[step] == pytest.approx(naive_ends(policy, correct, length, machine), rel=1e-10)


def naive_loaded(policy: Policy, correct: BoolArray, length: FloatArray, machine: Machine) -> float:
    """Follow a step in seconds: all running responses go forward at the speed of the load of the moment."""
    draws, prompts = policy.tables.draws, correct.shape[0]
    seen, judged = [0] * prompts, [0] * prompts
    line: list[tuple[int, int]] = []
    running: dict[tuple[int, int], float] = {}
    ready, now = list(range(prompts)), 0.0
    while True:
        if not machine.barriers or (not running and not line):
            for i in sorted(ready):
                pos = int(correct[i, : seen[i]].sum())
                wanted = int(draws[pos, seen[i] - pos])
                line += [(i, d) for d in range(seen[i], seen[i] + wanted)]
                seen[i] += wanted
            ready = []
        while line and len(running) < machine.slots:
            job = line.pop(0)
            running[job] = length[job]
        if not running:
            return now
        load = len(running) / machine.slots
        job = min(running, key=lambda job: running[job])
        tokens = running[job]
        now += tokens * machine.seconds_a_token * (machine.unloaded + (1 - machine.unloaded) * load)
        running = {each: rest - tokens for each, rest in running.items() if each != job}
        judged[job[0]] += 1
        if judged[job[0]] == seen[job[0]]:
            ready.append(job[0])


@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("slots", [5, 60])
def test_a_speed_that_depends_on_the_load(slots: int, barriers: bool) -> None:
    policy, rng = Policy.preset("reinforce-ada-balance"), np.random.default_rng(4)
    lengths = Lengths(rng.gamma(2, 100, 50_000), rng.gamma(3, 150, 50_000))
    machine = Machine(slots=slots, seconds_a_token=0.01, barriers=barriers, unloaded=0.3)
    found = simulate_step(policy, LAW, 12, lengths, machine, steps=3, seed=2)
    for step in range(3):
        correct, length = drawn(LAW, 12, 32, lengths, fold_seed(2, step))
        assert found.samplings[step] == pytest.approx(naive_loaded(policy, correct, length, machine), rel=1e-10)
        assert found.rounds[step].sum() == pytest.approx(found.samplings[step])
    # The formula's time is of the same form: a share of the span and the rest of the work.
    slow, work = (step_time(policy, LAW, 12, lengths, replace(machine, unloaded=share)) for share in (1.0, 0.3))
    expected = 0.3 * slow.sampling + 0.7 * 0.01 * slow.tokens / slots
    assert work.sampling == pytest.approx(expected)


def test_the_mean_flow_is_that_of_a_slow_twin() -> None:
    """Two nodes in a row, the second one visited by half of the prompts, and too few slots."""
    slots, steps = 0.17, 60
    size, positives, root = np.array([2.0, 1.0]), np.array([0.5, 0.25]), np.array([0.75, 0.25])
    lasting = np.array([[0, 0.25, 0.5, 0.25], [0, 0, 0, 1.0]])
    leaving = np.array([[0, 0.5, 0, 0], [0, 0, 1.0, 0]])
    one_pos, one_neg = np.array([0, 1.0, 0]), np.array([0, 0.5, 0.5])
    finished = np.full(steps, np.nan)
    written = kernels.flow(
        slots, size, positives, root, np.array([0, 2, 2]), np.array([1, 1]), np.array([0, 1]), np.array([0.3, 0.2]),
        lasting, leaving, one_pos, one_neg, 1e-9, np.zeros((2, steps + 4)), finished,
    )  # fmt: skip

    queue: list[list[float]] = []
    coming: defaultdict[int, FloatArray] = defaultdict(lambda: np.zeros(2), {0: root.copy()})
    ending: defaultdict[int, float] = defaultdict(float)
    out: defaultdict[int, float] = defaultdict(float)
    busy = done = 0.0
    for t in range(written):
        busy -= ending[t]
        done += out[t]
        assert finished[t] == pytest.approx(done, abs=1e-12)
        if coming[t].any():
            queue.append(coming[t].tolist())
        while queue and busy < slots - 1e-12:
            share = min(1.0, (slots - busy) / float(size @ queue[0]))
            start = share * np.array(queue[0])
            queue[0] = [(1 - share) * mass for mass in queue[0]]
            if share == 1:
                queue.pop(0)
            busy += float(size @ start)
            pos = float(positives @ start)
            for k, (a, b) in enumerate(zip(one_pos, one_neg, strict=True)):
                ending[t + k] += pos * a + (float(size @ start) - pos) * b
            for k in range(4):
                out[t + k] += float(leaving[:, k] @ start)
                coming[t + k] += np.array([0, start[0] * (0.3 * lasting[0, k] + 0.2 * lasting[1, k])])
    assert 10 < written < steps
    assert done == pytest.approx(1, abs=1e-8)


# The formula against the queue


@pytest.mark.parametrize("name", policies())
@pytest.mark.parametrize("cv", [0.3, 1.0])
@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("share", [1 / 16, 1 / 2, 1, 2])
def test_formula_and_simulation_agree(name: str, cv: float, barriers: bool, share: float) -> None:
    """Slots from a sixteenth of the first round's responses to twice as many; within 5 %."""
    policy, prompts = policies()[name], 96
    first = prompts * policy.budget.sizes[0] if name != "bayes" else prompts
    lengths = Lengths.of_means(300, 500, cv=cv)
    machine = Machine(slots=max(1, round(first * share)), barriers=barriers)
    simulated = simulate_step(policy, LAW, prompts, lengths, machine, steps=150 if cv < 1 else 600, seed=1).sampling
    assert simulated.se < 0.015 * simulated.mean
    assert step_time(policy, LAW, prompts, lengths, machine).sampling == pytest.approx(simulated.mean, rel=0.05)


@pytest.mark.parametrize("law", [Grid([0.02, 0.98]), Grid([0.0, 0.5, 1.0]), from_curve("qwen2.5-math-1.5b-base").law])
@pytest.mark.parametrize("barriers", [True, False])
def test_formula_and_simulation_agree_on_other_laws_and_lengths(law: Law, barriers: bool) -> None:
    """Incorrect responses three times as long, as logged lengths are: bounded."""
    rng = np.random.default_rng(7)
    lengths = Lengths(rng.integers(20, 200, 500).astype(float), np.minimum(rng.gamma(1.5, 220, 3000) + 1, 800))
    for slots in (30, 300, 3000):
        machine = Machine(slots=slots, barriers=barriers, verify_seconds=1.0)
        simulated = simulate_step(policies()["balance"], law, 128, lengths, machine, steps=100, seed=4).sampling
        time = step_time(policies()["balance"], law, 128, lengths, machine)
        assert time.sampling == pytest.approx(simulated.mean, rel=0.05)


# Study, files, command


def test_the_study_relates_all_to_the_first(tmp_path: Path) -> None:
    machine = Machine(slots=64, seconds_a_token=0.01)
    given = [Policy.preset("grpo"), Policy.preset("knapsack"), Policy.preset("reinforce-ada-pos")]
    found = time_policies(given, Source(LAW, "law"), Lengths.of_means(30, 40), machine, prompts=32, steps=3, seed=5)
    data = json.loads(json.dumps(found.to_dict()))
    assert [row["policy"] for row in data["policies"]] == ["grpo", "reinforce-ada-pos"]
    assert "left out, as they share a budget across the batch: knapsack" in found.notes
    for policy, row, timed in zip((given[0], given[2]), data["policies"], found.rows, strict=True):
        time = step_time(policy, LAW, 32, Lengths.of_means(30, 40), machine)
        simulated = simulate_step(policy, LAW, 32, Lengths.of_means(30, 40), machine, steps=3, seed=5).sampling
        assert (row["sampling"], row["simulated"], row["rounds"]) == (
            time.sampling, simulated.mean, time.rounds.tolist(),
        )  # fmt: skip
        assert row["ratio"] == pytest.approx(time.sampling / simulated.mean)
        assert row["relative"] == pytest.approx(time.total / found.rows[0].time.total)
        streaming = replace(machine, barriers=False)
        assert timed.other.sampling == step_time(policy, LAW, 32, Lengths.of_means(30, 40), streaming).sampling
        # Slots never slow a step down.
        assert (np.diff(timed.by_slots, axis=1) <= 1e-9).all()
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["policy"] for row in rows] == ["grpo", "reinforce-ada-pos"]
    assert {path.name for path in write_figures(found, tmp_path)} == {"clock.png", "clock.svg"}


def run(*arguments: str | Path | int) -> Any:
    return CliRunner().invoke(app, ["clock", *(str(one) for one in arguments)], catch_exceptions=False)


def test_the_command_takes_lengths_from_the_rollouts(tmp_path: Path) -> None:
    result = run("--prompts", 16, "--steps", 2, "--slots", 8, "--no-figures", "--json", "--out", tmp_path)
    data = json.loads(result.stdout)
    assert data == json.loads((tmp_path / "clock.json").read_text(encoding="utf-8"))
    assert data["machine"]["slots"] == 8
    assert data["lengths"]["pos_mean"] == pytest.approx(Lengths.of_log(read_rollouts(ROLLOUTS)).means[0])
    same = run(
        "--pass-rates", ROLLOUTS, "--lengths-from", ROLLOUTS, "--prompts", 16, "--steps", 2, "--slots", 8,
        "--no-figures", "--json", "--out", tmp_path,
    )  # fmt: skip
    assert json.loads(same.stdout)["policies"] == data["policies"]


def test_the_command_in_words(tmp_path: Path) -> None:
    options = ("--lengths", "30,45", "--cv", "0.2", "--streaming", "--steps", 0, "--policy", "grpo", "--out", tmp_path)
    result = run("--curve", "qwen2.5-math-1.5b-base", *options)
    assert result.exit_code == 0
    for word in ("256 slots, streaming", "nothing simulated: the formula alone", "clock.png", "2,048"):
        assert word in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--curve", "qwen2.5-math-1.5b-base"), "say nothing of lengths; give the means"),
        (("--lengths", "300"), "--lengths needs two mean lengths in tokens, such as 300,450; got '300'"),
        (("--lengths", "300,0"), "neg_mean must be a finite number in (0, inf); got 0.0"),
        (("--lengths", "3,4", "--lengths-from", "x"), "exclude each other"),
        (("--policy", "knapsack"), "nothing to time"),
        (("--streaming", "--seconds-a-round", "1"), "streaming has no rounds"),
    ],
)
def test_the_command_says_what_is_wrong(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    result = run(*options, "--no-figures", "--out", tmp_path)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
