from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ada_bandit import Allocator, Balance, Beta, Never, Policy, Positive, Quota, Rounds, analyze, uniform
from ada_bandit._types import FloatArray
from ada_bandit.budgets import Stages
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze_law
from ada_bandit.groups import Uniform
from ada_bandit.laws import Grid
from ada_bandit.verifier import VerifierNoise
from sim import montecarlo
from sim.montecarlo import draw_pass_rates, simulate, simulate_law
from tests import naive_engine

POLICIES = {
    "pos (8, 4)": Policy.preset("reinforce-ada-pos"),
    "balance (8, 4)": Policy.preset("reinforce-ada-balance"),
    "pos (1, 32)": Policy.preset("reinforce-ada-pos", samples=1, rounds=32),
    "balance (1, 32)": Policy.preset("reinforce-ada-balance", samples=1, rounds=32),
    "grpo": Policy.preset("grpo"),
    # Round sizes that straddle the eight responses of a step of the kernel.
    "quota (5, 7)": Policy(rule=Quota(2, 3), budget=Rounds(5, 7), group_size=4),
    "stages (3, 13, 9)": Policy(rule=Positive(2), budget=Stages((3, 13, 9)), group_size=3),
    "never (20, 1)": Policy(rule=Never(), budget=Rounds(20), group_size=20, group=Uniform()),
}


@pytest.mark.parametrize("name", POLICIES)
def test_every_exit_equals_the_naive_walk(name: str) -> None:
    pass_rates = np.linspace(0, 1, 41)
    exits = simulate(POLICIES[name], pass_rates, seed=2**63 + 5, first_prompt=2**32 - 20)
    for index, pass_rate in enumerate(pass_rates):
        pool = naive_engine.run_prompt(POLICIES[name], pass_rate, 2**63 + 5, 2**32 - 20 + index)
        assert (exits.pos[index], exits.neg[index], exits.rounds[index]) == (pool.pos, pool.neg, pool.rounds)


@pytest.mark.parametrize("name", POLICIES)
def test_the_allocator_driven_by_the_same_uniforms_ends_in_the_same_cells(name: str) -> None:
    policy, pass_rates = POLICIES[name], draw_pass_rates(Beta(0.5, 1), 700, seed=3)
    allocator = Allocator(policy, prompts=700, seed=3)
    while request := allocator.ask():
        allocator.tell(request.ids, uniform(3, 0, request.prompts, request.draws) < pass_rates[request.prompts])
    groups, exits = allocator.groups(), simulate(policy, pass_rates, seed=3)
    np.testing.assert_array_equal(groups.pos, exits.pos)
    np.testing.assert_array_equal(groups.neg, exits.neg)
    np.testing.assert_array_equal(allocator.state_dict()["rounds"], exits.rounds)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("pass_rate", [0.02, 0.2, 0.5, 0.9])
def test_exact_equals_monte_carlo_of_a_million_prompts(name: str, pass_rate: float) -> None:
    policy = POLICIES[name]
    exact = analyze(policy, pass_rate)
    total = np.array([pos + neg for pos, neg in exact.exit_law])
    chance = np.array(list(exact.exit_law.values()))
    drawn = np.searchsorted(np.cumsum(policy.budget.sizes), total) + 1.0
    # Another seed for every case, so that the z-scores are independent.
    seed = [*POLICIES].index(name) * 10 + int(10 * pass_rate)
    seen = simulate_law(policy, Grid([pass_rate]), prompts=1_000_000, batches=1, seed=seed)

    def check(ours: FloatArray, theirs: float, variance: float | FloatArray) -> None:
        assert abs(theirs - float(ours)) <= 5 * math.sqrt(max(float(variance), 0) / 1e6) + 1e-12

    check(exact.expected_samples, seen.samples, chance @ (total - exact.expected_samples) ** 2)
    check(exact.expected_rounds, seen.rounds, chance @ (drawn - exact.expected_rounds) ** 2)
    for part, theirs in (
        (exact.signal_probability, seen.signal),
        (exact.resolved_probability, seen.resolved),
        (exact.short_of_positives, seen.short_of_positives),
        (exact.short_of_negatives, seen.short_of_negatives),
    ):
        check(part, theirs, float(part * (1 - part)))


def test_a_law_is_sampled_and_averaged_as_the_exact_analysis_says() -> None:
    for law in (Beta(0.5, 1), Grid([0.0, 0.1, 1.0], [2, 3, 1])):
        exact = analyze_law(POLICIES["balance (8, 4)"], law)
        seen = simulate_law(POLICIES["balance (8, 4)"], law, prompts=512, batches=400, seed=1)
        assert seen.prompts == 512 * 400
        assert seen.responses == pytest.approx(seen.samples * seen.prompts, rel=1e-12)
        assert abs(seen.samples - exact["expected_samples"]) < 5 * seen.samples_se
        assert abs(seen.signal - exact["signal_probability"]) < 5 * seen.signal_se


def test_the_standard_error_is_that_of_a_mean() -> None:
    # One response each: correct with chance 1/4, so the spread of the signal-free Positive is sqrt(p q / n).
    policy = Policy(rule=Positive(), budget=Rounds(1), group_size=1)
    seen = simulate_law(policy, Grid([0.25]), prompts=1000, batches=100)
    p = seen.resolved
    assert seen.resolved_se == pytest.approx(math.sqrt(p * (1 - p) / (100_000 - 1)), rel=1e-12)
    assert (seen.samples, seen.samples_se) == (1, 0)


def test_parts_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, pass_rates = POLICIES["balance (8, 4)"], draw_pass_rates(Beta(0.5, 1), 5000)
    whole = simulate(policy, pass_rates)
    parts = [simulate(policy, pass_rates[s : s + 1111], first_prompt=s) for s in range(0, 5000, 1111)]
    np.testing.assert_array_equal(np.concatenate([part.cells for part in parts]), whole.cells)
    summary = simulate_law(policy, Beta(0.5, 1), prompts=50, batches=100)
    monkeypatch.setattr(montecarlo, "_CHUNK", 17)
    np.testing.assert_array_equal(simulate(policy, pass_rates).cells, whole.cells)
    assert simulate_law(policy, Beta(0.5, 1), prompts=50, batches=100) == summary


def test_two_policies_under_one_seed_see_the_same_responses() -> None:
    pass_rates = draw_pass_rates(Beta(0.5, 1), 2000, seed=9)
    short, long = (simulate(Policy.preset("grpo", group_size=n), pass_rates, seed=9) for n in (4, 8))
    assert ((long.pos - short.pos >= 0) & (long.neg - short.neg >= 0)).all()


def test_pass_rates_are_drawn_by_prompt_number() -> None:
    whole = draw_pass_rates(Beta(0.5, 1), 100, seed=1)
    np.testing.assert_array_equal(draw_pass_rates(Beta(0.5, 1), 40, seed=1, first_prompt=60), whole[60:])


def test_progress_counts_every_prompt_once() -> None:
    done: list[int] = []
    simulate_law(POLICIES["grpo"], Beta(1, 1), prompts=70_000, batches=2, progress=done.append)
    assert sum(done) == 140_000


def test_nothing_to_simulate() -> None:
    assert simulate(POLICIES["grpo"], []).cells.size == 0
    seen = simulate_law(POLICIES["grpo"], Beta(1, 1), prompts=0)
    assert (seen.prompts, seen.responses) == (0, 0)
    assert math.isnan(seen.samples)


@pytest.mark.parametrize(
    ("rates", "message"),
    [([0.5, 1.5], r"got 1.5 at position 1 \(1 of 2 outside\)"), ([math.nan], "got nan at position 0")],
)
def test_bad_pass_rates_are_quoted(rates: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(POLICIES["grpo"], rates)


def test_kernels_give_the_same_numbers_without_compilation() -> None:
    policy = "Policy(rule=Balance(4), budget=Rounds(3, 5), group_size=4)"
    script = f"""
import numpy as np
from ada_bandit import Allocator, Balance, Policy, Rounds, uniform
from ada_bandit.verifier import VerifierNoise
from sim.montecarlo import simulate
policy, pass_rates = {policy}, np.linspace(0, 1, 30)
print(simulate(policy, pass_rates, seed=4).cells.tolist())
allocator = Allocator(policy, 30, seed=4)
while request := allocator.ask():
    allocator.tell(request.ids, uniform(4, 0, request.prompts, request.draws) < pass_rates[request.prompts])
print(allocator.groups().ids.tolist())
"""
    outputs = [
        subprocess.run(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-W", "error", "-c", script],
            env={"NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": str(Path(montecarlo.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ("0", "1")
    ]
    assert outputs[0] == outputs[1]
    cells = simulate(Policy(rule=Balance(4), budget=Rounds(3, 5), group_size=4), np.linspace(0, 1, 30), seed=4).cells
    assert str(cells.tolist()) in outputs[0]


def test_a_verifier_that_errs_is_simulated_as_the_exact_analysis_says() -> None:
    noise = VerifierNoise(0.03, 0.2)
    exact = analyze_law(POLICIES["balance (8, 4)"], Beta(0.5, 1), noise)
    seen = simulate_law(POLICIES["balance (8, 4)"], Beta(0.5, 1), batches=400, seed=2, verifier=noise)
    assert abs(seen.samples - exact["expected_samples"]) < 5 * seen.samples_se
    assert abs(seen.signal - exact["signal_probability"]) < 5 * seen.signal_se
    # It matters: without errors the values lie elsewhere.
    clean = analyze_law(POLICIES["balance (8, 4)"], Beta(0.5, 1))
    assert abs(clean["expected_samples"] - exact["expected_samples"]) > 20 * seen.samples_se
