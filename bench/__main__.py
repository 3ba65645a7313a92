"""Time the engine against peers in the same process and print ratios.

Every line is the best of several runs after a warm-up call; seconds depend on the machine,
ratios much less.
"""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ada_bandit import Allocator, Balance, Beta, Policy, Rounds, ScoreModel, analyze, frontier, uniform
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.optimal import Problem
from ada_bandit.programs.machine import available_cores
from ada_bandit.totals import greedy_counts
from ada_bandit.uniforms import uniform_rows
from bench.memory import update_memory
from bench.readers import readers
from sim.montecarlo import draw_pass_rates, simulate

PROMPTS = 1_000_000
CORES = available_cores()


def best(function: Callable[[], object], runs: int = 5) -> float:
    """Return the least seconds of `runs` calls after a warm-up call."""
    function()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def numpy_twin(draws: IntArray, pass_rates: FloatArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Sample prompts until they exit, by whole binomial rounds over the prompts that are still active."""
    pos, neg = np.zeros((2, pass_rates.size), dtype=np.int64)
    active, wanted = np.arange(pass_rates.size), np.full(pass_rates.size, draws[0, 0])
    while active.size:
        new = rng.binomial(wanted, pass_rates[active])
        pos[active] += new
        neg[active] += wanted - new
        wanted = draws[pos[active], neg[active]]
        active, wanted = active[wanted > 0], wanted[wanted > 0]
    return pos, neg


def uniforms_alone(count: int, out: FloatArray) -> None:
    """Generate as many uniforms as a simulation consumes, on all cores, into a buffer that is in memory."""
    rows, width = out.shape
    chunk = 1 << 15

    def part(start: int) -> None:
        target = out[start % rows : start % rows + chunk]
        uniform_rows(0, 0, target.shape[0], width, start, out=target)

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(part, range(0, count // width, chunk)))


def monte_carlo() -> None:
    # The simulation consumes uniforms in blocks of eight a prompt, the last one in part.
    pass_rates = draw_pass_rates(Beta(0.5, 1), PROMPTS, seed=1)
    buffer = np.zeros((1 << 19, 32))
    print(f"Monte Carlo of {PROMPTS:,} prompts, Beta(0.5, 1), {CORES} cores")
    print(f"{'policy':>34} {'seconds':>8} {'responses/s':>12} {'x NumPy twin':>13} {'of bare uniforms':>17}")
    for name in ("reinforce-ada-pos", "reinforce-ada-balance"):
        for samples, rounds in ((8, 4), (1, 32)):
            policy = Policy.preset(name, samples=samples, rounds=rounds)
            draws = policy.tables.draws
            exits = simulate(policy, pass_rates, seed=1)
            drawn = exits.pos + exits.neg
            responses, generated = int(drawn.sum()), int((-(-drawn // 8) * 8).sum())
            ours = best(lambda policy=policy: simulate(policy, pass_rates, seed=1))  # type: ignore[misc]
            rng = np.random.default_rng(1)
            twin = best(lambda draws=draws, rng=rng: numpy_twin(draws, pass_rates, rng), runs=2)  # type: ignore[misc]
            bare = best(lambda generated=generated: uniforms_alone(generated, buffer))  # type: ignore[misc]
            label = f"{name} ({samples}, {rounds})"
            print(f"{label:>34} {ours:8.4f} {responses / ours:12.3g} {twin / ours:13.1f} {bare / ours:17.2f}")


def exact() -> None:
    print("\nExact analysis, warm")
    balance = Policy.preset("reinforce-ada-balance")
    long = Policy(rule=Balance(4), budget=Rounds(32, 16), group_size=4)
    grid = np.linspace(0, 1, 1001)
    twin = simulate(balance, np.full(PROMPTS, 0.1), seed=1)
    error = np.std(twin.pos + twin.neg) / np.sqrt(PROMPTS)
    sampled = best(lambda: simulate(balance, np.full(PROMPTS, 0.1), seed=1), runs=2)
    seconds = best(lambda: analyze(balance, grid))
    print(
        f"  (8, 4) at 1,001 pass rates: {1e3 * seconds:.1f} ms; Monte Carlo of one of them to ±{error:.3f} responses ",
        end="",
    )
    print(f"takes {sampled / seconds:.1f} x as long")

    def compiled_and_analysed() -> None:
        analyze(Policy(rule=long.rule, budget=long.budget, group_size=4), grid[::10])

    print(f"  (32, 16), K = 512, at 101 pass rates, tables included: {best(compiled_and_analysed, runs=3):.3f} s")


def step_of(policy: Policy, prompts: int, runs: int) -> tuple[float, int]:
    """Return the least seconds of a whole step (ask, tell, groups), and its responses."""
    pass_rates = draw_pass_rates(Beta(0.5, 1), prompts, seed=1)
    seconds = []
    for _ in range(runs):
        spent = 0.0
        start = time.perf_counter()
        step = Allocator(policy, prompts, seed=1)
        while request := step.ask():
            spent += time.perf_counter() - start
            rewards = uniform(1, 0, request.prompts, request.draws) < pass_rates[request.prompts]
            start = time.perf_counter()
            step.tell(request.ids, rewards)
        step.groups()
        seconds.append(spent + time.perf_counter() - start)
    return min(seconds), int(step.metrics()["responses"])


def allocator() -> None:
    print("\nAllocator, a whole step of reinforce-ada-balance (ask, tell, groups)")
    policy = Policy.preset("reinforce-ada-balance")
    first = None
    for prompts in (512, 10_000, 100_000, 1_000_000):
        seconds, responses = step_of(policy, prompts, 5 if prompts < 10**6 else 2)
        a_response = seconds / responses
        first = first or a_response
        print(
            f"  {prompts:>9,} prompts: {1e3 * seconds:9.2f} ms, {1e9 * a_response:5.0f} ns a response, "
            f"{a_response / first:.2f} x that of 512"
        )
    # A policy whose parts are tables of 129 x 129 entries.
    seconds, responses = step_of(Policy.preset("bayes", max_samples=128, noise_ratio=10.0), 512, 5)
    print(
        f"  under bayes:max_samples=128,noise_ratio=10, 512 prompts: {1e3 * seconds:.2f} ms, "
        f"{1e9 * seconds / responses:.0f} ns a response"
    )


def optimum() -> None:
    print("\nBayes-optimal policy, Beta(0.5, 1), noise ratio 10, one response at a time")
    prior, model = Beta(0.5, 1), ScoreModel(noise_ratio=10.0)
    for most in (32, 128):
        seconds = best(lambda most=most: Problem(prior, model, max_samples=most).best(), runs=3)  # type: ignore[misc]
        print(f"  K = {most}: {1e3 * seconds:.0f} ms")
    found = frontier(prior, model, prices=40)
    seconds = best(lambda: frontier(prior, model, prices=40), runs=2)
    print(f"  frontier of 40 prices, K = 32: {seconds:.2f} s, {len(found.vertices)} vertices")


def heap_twin(gains: FloatArray, total: int) -> IntArray:
    """Hand out responses one by one from a heap of each prompt's next gain."""
    counts = np.zeros(gains.shape[0], dtype=np.int64)
    heap = [(-gain, row) for row, gain in enumerate(gains[:, 0].tolist())]
    heapq.heapify(heap)
    for _ in range(total):
        _, row = heap[0]
        counts[row] += 1
        if counts[row] < gains.shape[1]:
            heapq.heapreplace(heap, (-float(gains[row, counts[row]]), row))
        else:
            heapq.heappop(heap)
    return counts


def shared() -> None:
    rates = draw_pass_rates(Beta(0.5, 1), 100_000, seed=1)[:, None]
    n = np.arange(16)
    gains = rates * (1 - rates) ** 2 * (rates**n * (1 - rates) + (1 - rates) ** n * rates)
    ours = best(lambda: greedy_counts(gains, 800_000), runs=3)
    twin = best(lambda: heap_twin(gains, 800_000), runs=1)
    print(f"\nGreedy shared budget, 100,000 prompts x 16 responses: {ours:.2f} s, {twin / ours:.0f} x a heap in Python")


def start_up() -> None:
    print("\nStart-up")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*arguments: str) -> float:
        command = [sys.executable, *arguments]
        return best(lambda: subprocess.run(command, check=True, capture_output=True, env=environment), runs=3)  # noqa: S603

    numpy_alone, helped = run("-c", "import numpy"), run("-m", "sim", "--help")
    print(f"  python -m sim --help: {helped:.2f} s, {helped / numpy_alone:.1f} x `import numpy`")


if __name__ == "__main__":
    monte_carlo()
    exact()
    allocator()
    optimum()
    shared()
    readers()
    start_up()
    update_memory()
