"""Steps of a run in this process: the adapter's manager, worker and sampler, and verl's queue and reward workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transfer_queue as tq
from verl.utils.import_utils import load_extern_type

from ada_bandit import Allocator
from ada_bandit.adapters.verl import AdaptiveAgentLoopManager, AdaptiveAgentLoopWorker, policy_advantage
from ada_bandit.allocator import Groups
from ada_bandit.policy import AnyPolicy
from ada_bandit.uniforms import fold_seed
from tests.adapters_verl import fakes

# TransferQueue's client belongs to the event loop that it was first used in.
loop = asyncio.new_event_loop()


@dataclass(eq=False)
class Step:
    """What a step left: rows by name, the lines of the pool log by prompt, the metrics."""

    keys: list[str]
    metrics: dict[str, Any]
    lines: dict[int, dict[str, Any]]
    rows: dict[str, dict[str, Any]]
    advantages: dict[str, float]
    uids: list[str]

    def kept(self, place: int) -> list[int]:
        """The draws of a prompt's rows."""
        return sorted(int(name.split("_")[1]) for name in self.rows if name.split("_")[0] == self.uids[place])


@dataclass(eq=False)
class Run:
    """A run without a trainer."""

    config: Any
    handles: list[Any]
    server: Any = field(default_factory=lambda: fakes.RandomServer({}))
    chunks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.manager = AdaptiveAgentLoopManager(self.config, self.server, None, self.handles)
        self.worker = AdaptiveAgentLoopWorker(self.config, self.server, None, self.handles)
        self.manager.agent_loop_workers = [None]
        self.manager._dispatch = lambda number, chunk: self.chunks.append(chunk)  # type: ignore[method-assign]
        sampler = self.config.trainer.v1.sampler
        self.buffer = load_extern_type(sampler.custom_sampler.path, sampler.custom_sampler.name)(
            trainer_mode="sync",
            trainer_config={},
            max_off_policy_threshold=8,
            max_off_policy_strategy="drop",
            sampler_kwargs={},
            poll_interval=0.05,
        )

    def submit(self, batch: Any, step: int = 1) -> list[str]:
        uids = fakes.announce(batch, step)
        self.manager.generate_sequences(batch)
        return uids

    def work(self, meanwhile: Callable[[Any], Any] | None = None) -> None:
        async def go() -> None:
            for chunk in self.chunks:
                await self.worker.generate_sequences(chunk)
            self.chunks.clear()
            if meanwhile is not None:
                await meanwhile(self.worker)
            await asyncio.gather(*list(self.worker.background_tasks), return_exceptions=True)

        loop.run_until_complete(go())

    def step(self, batch: Any, step: int = 1, meanwhile: Callable[[Any], Any] | None = None) -> Step:
        uids = self.submit(batch, step)
        self.work(meanwhile)
        return self.collect(uids, step)

    def collect(self, uids: list[str], step: int = 1) -> Step:
        found, metrics = self.buffer.sample(step, "train", len(uids))
        return read(self.manager, found, metrics, uids, step)


def read(manager: Any, found: Any, metrics: dict[str, Any], uids: list[str], step: int) -> Step:
    data = tq.kv_batch_get(
        keys=found.keys, partition_id="train", select_fields=["uid", "rm_scores", "response_mask", "responses"]
    )
    rows: dict[str, dict[str, Any]] = {}
    names = [str(name) for name in data["uid"]]
    masks = list(data["response_mask"].unbind())
    width = max(mask.numel() for mask in masks)
    mask = torch.stack([torch.nn.functional.pad(each, (0, width - each.numel())) for each in masks])
    given, _ = policy_advantage(torch.zeros(mask.shape), mask, np.array(names, dtype=object))
    for i, name in enumerate(names):
        row = rows.setdefault(name, {"reward": float(data["rm_scores"][i].sum()), "masks": [], "advantages": []})
        row["masks"].append(masks[i].tolist())
        row["advantages"].append(given[i][: masks[i].numel()].tolist())
    lines = {}
    if manager.pool_log.path is not None and Path(manager.pool_log.path).exists():
        for text in Path(manager.pool_log.path).read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if line["step"] == step:
                lines[line["prompt_id"]] = line
    return Step(list(found.keys), metrics, lines, rows, dict(manager.advantages), uids)


def plain(
    policy: AnyPolicy,
    place: int,
    reward: Callable[[int], float | None],
    correct: Callable[[int], bool] | None = None,
    *,
    seed: int = 0,
    step: int = 1,
) -> tuple[int, dict[int, float]]:
    """How many responses an `Allocator` draws for one prompt, and the advantages of the kept ones, by draw."""
    allocator = Allocator(policy, 1, fold_seed(seed, step, place))
    drawn = 0
    while request := allocator.ask():
        draws = [int(draw) for draw in request.draws]
        drawn += len(draws)
        flags = None if correct is None else [correct(draw) for draw in draws]
        allocator.tell(request.ids, [reward(draw) for draw in draws], flags)
    groups = allocator.groups()
    return drawn, kept_of(allocator, groups, 0)


def kept_of(allocator: Allocator, groups: Groups, prompt: int) -> dict[int, float]:
    """The advantages of a prompt's kept responses, by draw."""
    own = groups.mask[prompt]
    _, draws = allocator.locate(groups.ids[prompt][own])
    return dict(zip(draws.tolist(), groups.advantages[prompt][own].tolist(), strict=True))


def check_equal(step: Step, place: int, expected: tuple[int, Mapping[int, float]], key: int | None = None) -> None:
    drawn, kept = expected
    line = step.lines[place if key is None else key]
    assert len(line["rewards"]) == drawn
    assert [draw for draw, flag in enumerate(line["kept"]) if flag] == sorted(kept)
    assert step.kept(place) == sorted(kept)
    for draw, advantage in kept.items():
        name = f"{step.uids[place]}_{draw}"
        assert step.advantages[name] == advantage
        for mask, given in zip(step.rows[name]["masks"], step.rows[name]["advantages"], strict=True):
            _close(given, np.float32(advantage) * np.array(mask))


def _close(given: npt.ArrayLike, wanted: npt.ArrayLike) -> None:
    np.testing.assert_array_equal(np.asarray(given, dtype=np.float32), np.asarray(wanted, dtype=np.float32))
