"""What the adapter costs and what streaming brings: ``python -m tests.adapters_verl.overhead``.

First the time of a step of verl's own ``_run_prompt`` and of the adapter's, under plain GRPO, with
the same replies: a ratio in one run. Then a step of adaptive rounds, streaming against rounds with
a barrier, on the lengths and rewards of the built-in rollouts, on a server with so many slots:
simulated, and measured with agent loops that only wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from ada_bandit import Allocator, Policy
from ada_bandit.adapters.verl._surface import AgentLoopWorker
from ada_bandit.uniforms import fold_seed
from sim.clock.kernels import play
from tests.adapters_verl import fakes, runs

DATA = fakes.ROOT / "sim" / "data" / "smollm2_reasoning_gym.jsonl"
_pools: list[tuple[list[float], list[int]]] = []
_slots = asyncio.Semaphore(1)
_second_a_token = 0.0


@register("timed")
class TimedLoop(AgentLoopBase):
    """Waits as long as a reply of the rollouts would take, in one of the server's slots, and judges itself."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        rewards, tokens = _pools[kwargs["extra_info"]["index"]]
        draw = kwargs["session_id"] % len(rewards)
        async with _slots:
            await asyncio.sleep(tokens[draw] * _second_a_token)
        return AgentLoopOutput(
            prompt_ids=[3, 7],
            response_ids=[8] * tokens[draw],
            response_mask=[1] * tokens[draw],
            response_logprobs=[-1.0] * tokens[draw],
            reward_score=rewards[draw],
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={"min_global_steps": 0, "max_global_steps": 0, "reward_extra_info": {}},
        )


def load(prompts: int) -> None:
    lines = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    order = np.random.default_rng(0).permutation(len(lines))
    chosen = [lines[order[i % len(lines)]] for i in range(prompts)]
    _pools[:] = [([float(reward) for reward in line["rewards"]], line["tokens"]) for line in chosen]


def stock_step(worker: Any, batch: Any) -> float:
    """One step of verl's own worker."""
    fakes.announce(batch)

    async def go() -> None:
        await worker.generate_sequences(batch)
        await asyncio.gather(*list(worker.background_tasks))

    start = time.perf_counter()
    runs.loop.run_until_complete(go())
    return time.perf_counter() - start


def adaptive_step(run: runs.Run, batch: Any) -> float:
    """One step of the adapter's manager and worker."""
    fakes.announce(batch)
    start = time.perf_counter()
    run.manager.generate_sequences(batch)
    run.work()
    return time.perf_counter() - start


def barrier_step(run: runs.Run, policy: Policy, batch: Any) -> float:
    """The same sessions and the same rows, but a round begins when all replies of the one before are in."""
    uids = fakes.announce(batch)
    prompts = [{name: batch[name][i] for name in ("raw_prompt", "index", "extra_info")} for i in range(len(uids))]
    allocators = [Allocator(policy, 1, fold_seed(0, 1, i)) for i in range(len(uids))]
    responses: list[dict[int, Any]] = [{} for _ in uids]
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}

    async def session(i: int, draw: int) -> None:
        more = {**prompts[i], "uid": uids[i], "session_id": draw, "agent_name": "timed", "global_steps": 1}
        responses[i][draw] = await run.worker._run_agent_loop({}, trajectory, trace=False, **more)

    async def go() -> None:
        while True:
            wanted = [(i, [int(draw) for draw in each.ask().draws]) for i, each in enumerate(allocators)]
            if not any(draws for _, draws in wanted):
                break
            await asyncio.gather(*(session(i, draw) for i, draws in wanted for draw in draws))
            for i, draws in wanted:
                if draws:
                    allocators[i].tell(draws, [responses[i][draw].reward for draw in draws])
        kept = [(i, int(draw)) for i, each in enumerate(allocators) for draw in each.groups().ids.ravel() if draw >= 0]
        rows = [({**prompts[i], "uid": uids[i], "global_steps": 1}, draw, responses[i][draw]) for i, draw in kept]
        await asyncio.gather(*(run.worker._ada_put(*row) for row in rows))

    start = time.perf_counter()
    runs.loop.run_until_complete(go())
    return time.perf_counter() - start


def simulate(policy: Policy, slots: int, *, barrier: bool) -> tuple[float, int]:
    """The time of a step in tokens, on a server that gives a free slot to whoever came first; and the responses."""
    most = policy.budget.max_samples
    rewards = np.array([rewards[:most] for rewards, _ in _pools])
    length = np.array([tokens[:most] for _, tokens in _pools], dtype=np.float64)
    cells, ends = np.zeros((len(_pools), 2), dtype=np.int64), np.zeros(most)
    part = np.zeros(len(_pools), dtype=np.int64)
    draws = policy.tables.draws[None]
    _, rounds = play(slots, barrier, 0.0, draws, part, rewards > policy.threshold, length, cells, ends)
    return float(ends[rounds - 1]), int(cells.sum())


def _cleared(step: Callable[[], float]) -> float:
    taken = step()
    fakes.clear()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--tail-prompts", type=int, default=64, help="0 leaves the second part out")
    parser.add_argument("--slots", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--token-ms", type=float, default=60.0)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    global _slots, _second_a_token  # noqa: PLW0603 - the agent loop is built by verl
    folder = Path(tempfile.mkdtemp())
    fakes.write_model(folder)
    with fakes.cluster(folder):
        load(given.prompts)
        options = ("+ada.pool_log=null", "actor_rollout_ref.rollout.response_length=64")
        made = fakes.config(folder, *options, policy="grpo", n=4)
        run = runs.Run(made, [object()])
        stock = AgentLoopWorker(made, run.server, None, [object()])
        _slots, _second_a_token = asyncio.Semaphore(10**6), 0.0

        def batch(prompts: int) -> Any:
            return fakes.batch([0.0] * prompts, loop="timed")

        stock_step(stock, batch(32))
        adaptive_step(run, batch(32))
        fakes.clear()
        steps: dict[str, Callable[[Any], float]] = {
            "verl's _run_prompt": lambda made: stock_step(stock, made),
            "the adapter's": lambda made: adaptive_step(run, made),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
        for _ in range(given.times):
            for name, step in steps.items():
                made_batch, begin = batch(given.prompts), time.process_time()
                wall = step(made_batch)
                taken[name].append((wall, time.process_time() - begin))
                fakes.clear()
        stock_wall, stock_cpu, wall, cpu = (
            statistics.median(each[part] for each in values) for values in taken.values() for part in (0, 1)
        )
        print(f"{given.prompts} prompts of 4 responses, tokens take no time; medians of {given.times} steps each:")
        print(f"  wall clock: verl's {stock_wall:.2f} s, the adapter's {wall:.2f} s, ratio {wall / stock_wall:.3f}")
        print(f"  this process's CPU: {stock_cpu:.2f} s and {cpu:.2f} s, ratio {cpu / stock_cpu:.3f}", flush=True)

        load(given.tail_prompts)
        policy = Policy.preset("reinforce-ada-balance", group_size=4)
        run = runs.Run(fakes.config(folder, *options), [object()])
        for slots in given.slots if given.tail_prompts else []:
            _second_a_token = given.token_ms / 1000
            simulated = {barrier: simulate(policy, slots, barrier=barrier) for barrier in (False, True)}
            _slots = asyncio.Semaphore(slots)
            measured = {
                True: _cleared(lambda: barrier_step(run, policy, batch(given.tail_prompts))),
                False: _cleared(lambda: adaptive_step(run, batch(given.tail_prompts))),
            }
            head = f"{given.tail_prompts} prompts, {simulated[False][1]} responses, {slots} slots"
            print(f"{head}, {given.token_ms:g} ms a token:")
            for name, times in (
                ("simulated", {key: value[0] * _second_a_token for key, value in simulated.items()}),
                ("measured", measured),
            ):
                print(
                    f"  {name}: barrier {times[True]:.2f} s, streaming {times[False]:.2f} s: "
                    f"{times[True] / times[False]:.2f} times as long with a barrier"
                )


if __name__ == "__main__":
    main()
