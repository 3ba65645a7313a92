"""The worker of TRL's asynchronous trainer, with a generator that answers at random and no weights to transfer."""

from __future__ import annotations

import asyncio
import json
import queue
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import PartialState
from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, packing
from trl.experimental.async_grpo import async_grpo_trainer as trainer_module
from trl.experimental.async_grpo import async_rollout_worker as worker_module

from ada_bandit import Allocator, PassRateMemory, Policy, Rounds
from ada_bandit.adapters.trl import TRLSurfaceError
from ada_bandit.adapters.trl_async import AdaptiveRolloutLoop, AdaptiveRolloutWorker, check_trl_async
from ada_bandit.errors import InputError
from ada_bandit.policy import Blend
from ada_bandit.shared import VIP
from ada_bandit.steps import FixedPolicy
from ada_bandit.tables import NoSignal
from ada_bandit.uniforms import fold_seed
from tests.adapters import tiny

RATES = [0.1, 0.5, 0.9, 0.3]
EOS = 1


def tokenizer() -> Any:
    made = tiny.tokenizer()
    # TRL knows the templates of well-known models alone; what this one's replies look like is said below.
    made.response_template = {}
    return made


def plain_reply(made: Any, ids: list[int], **kwargs: Any) -> dict[str, str]:
    return {"role": "assistant", "content": made.decode(ids, skip_special_tokens=True)}


@pytest.fixture(autouse=True)
def plain_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "parse_response", plain_reply)


def last_is_one(completions: list[Any], **kwargs: Any) -> list[float | None]:
    """1 for the digit 1, None for the digit 9."""
    texts = [completion[-1]["content"].split()[-1:] for completion in completions]
    return [None if text == ["9"] else float(text == ["1"]) for text in texts]


class FakeLoop(AdaptiveRolloutLoop):
    """Answers with one digit, 1 at the rate of the prompt's digit; no server and no session."""

    unscored = 0.0

    async def _run_loops(self, stop_event: asyncio.Event) -> None:
        self.random = random.Random(0)  # noqa: S311 - no secret
        loops = self._generate_loop(stop_event=stop_event), self._score_loop(stop_event=stop_event)
        tasks = [asyncio.create_task(each) for each in loops]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        await asyncio.sleep(self.random.random() * 0.002)
        rate = RATES[int(tiny.WORDS[prompt_ids[1]]) % len(RATES)]
        digit = 1 if self.random.random() < rate else 0
        if self.random.random() < self.unscored:
            digit = 9
        return [tiny.WORDS.index(str(digit)), EOS], [-0.5, -0.1]


class Worker:
    """TRL's protocol, with the loop in a thread."""

    loop_class: type[AdaptiveRolloutLoop] = FakeLoop

    def __init__(self, **options: Any) -> None:
        # Without it TRL's logger raises.
        PartialState(cpu=True)
        self.rollout_buffer: queue.Queue[Any] = queue.Queue(maxsize=options.pop("queue_maxsize", 0))
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        context = get_context("spawn")
        self.version = context.Value("i", 0)
        self.failed = threading.Event()
        self.problems: queue.Queue[Any] = queue.Queue()
        policy = options.pop("policy", "reinforce-ada-balance")
        defaults: dict[str, Any] = {
            "model_name": "none",
            "dataset": dataset(),
            "reward_funcs": [last_is_one],
            "processing_class": tokenizer(),
            "eos_token_ids": [EOS],
            "max_inflight_tasks": 16,
        }
        self.loop = self.loop_class(
            **defaults | options,
            policy=policy if isinstance(policy, (Policy, Blend)) else Policy.preset(policy, group_size=4),
            rollout_buffer=self.rollout_buffer,
            model_version_value=self.version,
            heartbeat_value=context.Value("d", time.time()),
            failed_event=self.failed,
            exception_info_queue=self.problems,
            metrics_queue=self.metrics_queue,
        )
        self.thread = threading.Thread(target=self.loop.run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.loop._loop.call_soon_threadsafe(self.loop._stop_event.set)
            self.thread.join(30)

    def update_model_version(self, model_version: int) -> None:
        self.version.value = model_version

    def check_health(self, stale_after_s: float) -> None:
        if self.failed.is_set():
            raise RuntimeError(self.problems.get_nowait()[1])


def dataset() -> Dataset:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": str(i)}], "name": f"p{i}"} for i in range(len(RATES))]
    )


def collect(worker: Any, groups: int) -> dict[int, list[Any]]:
    """Take samples until so many groups are whole; a group's samples come one after the other."""
    found: dict[int, list[Any]] = {}
    worker.start()
    try:
        while len(found) <= groups:
            sample = worker.rollout_buffer.get(timeout=60)
            found.setdefault(sample.group_id, []).append(sample)
    finally:
        worker.stop()
    last = list(found)[-1]
    del found[last]
    return found


def metrics_of(worker: Any) -> list[dict[str, Any]]:
    """What was told of the prompts that ended, one after the other."""
    told = []
    while not worker.metrics_queue.empty():
        values = worker.metrics_queue.get()
        told += [values] if "ada/pool_reward" in values else []
    return told


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("unscored", [0.0, 0.2])
@pytest.mark.parametrize("name", ["reinforce-ada-balance", "reinforce-ada-pos", "grpo"])
def test_samples_are_those_of_an_allocator_with_the_same_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, unscored: float
) -> None:
    monkeypatch.setattr(FakeLoop, "unscored", unscored)
    path = tmp_path / "pools.jsonl"
    groups = collect(Worker(policy=name, seed=7, pool_log=str(path)), 40)
    pools = {line["prompt_id"]: line for line in lines(path)}
    policy = Policy.preset(name, group_size=4)
    for number, samples in groups.items():
        rewards = pools[number]["rewards"]
        allocator = Allocator(policy, 1, fold_seed(7, number))
        drawn = 0
        while request := allocator.ask():
            drawn += len(request)
            allocator.tell(request.ids, [rewards[draw] for draw in request.draws])
        kept = allocator.groups()
        assert len(rewards) == drawn
        assert [i for i, flag in enumerate(pools[number]["kept"]) if flag] == sorted(kept.ids[kept.mask].tolist())
        if not kept.mask.any():
            assert [sample.advantage for sample in samples] == [0.0]
            continue
        assert [sample.advantage for sample in samples] == kept.advantages[kept.mask].tolist()
        assert [sample.metrics["reward"] for sample in samples] == kept.rewards[kept.mask].tolist()
        for sample in samples:
            assert len(sample.input_ids) == len(sample.completion_mask) == len(sample.old_log_probs)
            assert sample.completion_mask.sum() == 2
    if unscored:
        assert any(None in line["rewards"] for line in pools.values())


def test_the_next_round_goes_before_new_prompts_and_versions_are_told() -> None:
    """With one slot, prompts end one after the other, though TRL fills the slot before it scores a reply."""
    worker = Worker(max_inflight_tasks=1)
    begun: set[int] = set()
    running = []
    inner = worker.loop._score_group

    async def watch(group: Any) -> Any:
        prompt, draw = worker.loop._ada_running[group.group_id]
        begun.add(prompt.number)
        # A new version of the model in the middle of a pool.
        if (prompt.number, draw) == (1, 3):
            worker.update_model_version(1)
        samples = await inner(group)
        if samples:
            begun.discard(prompt.number)
        running.append(len(begun))
        return samples

    worker.loop._score_group = watch  # type: ignore[method-assign]
    groups = collect(worker, 4)
    # One conversation of the next prompt may cut in at the end of a round; it waits with its prompt.
    assert max(running) <= 2
    spans = [values["ada/version_span_max"] for values in metrics_of(worker)]
    # Only a prompt whose pool was open when the version changed has replies of both: prompt 1, and one that cut in.
    assert set(spans) == {0, 1}
    assert spans.count(1) <= 2
    assert {sample.model_version for group in groups.values() for sample in group} <= {0, 1}
    assert {sample.model_version for sample in groups[3]} == {1}


def test_metrics_carry_the_pools(tmp_path: Path) -> None:
    path = tmp_path / "pools.jsonl"
    worker = Worker(pool_log=str(path), prompt_key="name")
    collect(worker, 12)
    told = metrics_of(worker)
    pools = lines(path)
    assert len(told) == len(pools) >= 12
    for values, line in zip(told, pools, strict=True):
        rewards = line["rewards"]
        assert values["ada/responses_total"] == len(rewards)
        assert values["ada/tokens_total"] == 2 * len(rewards) == sum(line["tokens"])
        assert values["ada/pool_reward"] == (pytest.approx(sum(rewards) / len(rewards)), 1.0)
        assert line["prompt_id"] in {f"p{i}" for i in range(len(RATES))}
        assert line["correct"] == [reward == 1 for reward in rewards]


@pytest.mark.parametrize("no_signal", ["mask", "leave_out", "keep"])
def test_groups_without_signal_are_what_the_policy_says(tmp_path: Path, no_signal: NoSignal) -> None:
    path = tmp_path / "pools.jsonl"
    policy = replace(Policy.preset("dr-grpo", group_size=4), no_signal=no_signal)
    worker = Worker(policy=policy, reward_funcs=[shaped], correct_func=shaped_is_right, pool_log=str(path))
    groups = collect(worker, 40)
    seen = set()
    for line in lines(path):
        if line["prompt_id"] not in groups:
            continue
        samples = groups[line["prompt_id"]]
        mixed = len(set(line["correct"])) == 2
        seen.add(mixed)
        if mixed or no_signal != "leave_out":
            mean = sum(line["rewards"]) / 4
            # The mean of the group is the baseline, unless correctness alone has a say and says nothing.
            weights = [reward - mean if mixed or no_signal == "keep" else 0.0 for reward in line["rewards"]]
            assert [sample.advantage for sample in samples] == pytest.approx(weights)
            assert all(sample.completion_mask.sum() == 2 for sample in samples)
        else:
            assert [sample.advantage for sample in samples] == [0.0]
            assert not samples[0].completion_mask.any()
    assert seen == {True, False}
    told = metrics_of(worker)
    silent = sum(values["ada/silent_total"] for values in told)
    assert silent == sum(len(set(line["correct"])) == 1 for line in lines(path))
    assert sum(values["ada/left_out_total"] for values in told) == silent * (no_signal == "leave_out")
    assert sum(values["ada/masked_total"] for values in told) == silent * (no_signal == "mask")
    assert [values["ada/signal_fraction"][0] for values in told] == [
        len(set(line["correct"])) - 1 for line in lines(path)
    ]


def test_responses_without_a_score_are_drawn_again_where_the_budget_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeLoop, "unscored", 0.3)
    path = tmp_path / "pools.jsonl"
    policy = Policy.preset("grpo", group_size=4, replace=0.5)
    worker = Worker(policy=policy, pool_log=str(path))
    groups = collect(worker, 40)
    told = metrics_of(worker)
    sizes = set()
    for line, values in zip(lines(path), told, strict=True):
        rewards = line["rewards"]
        lost = rewards.count(None)
        sizes.add(len(rewards))
        # Up to two responses on top of four.
        assert values["ada/replaced_total"] == len(rewards) - 4 == min(lost, 2)
        assert values["ada/unscored_total"] == lost
        assert values["ada/unscored_fraction"] == (lost, len(rewards))
        if line["prompt_id"] in groups and lost < len(rewards):
            assert len(groups[line["prompt_id"]]) == len(rewards) - lost == sum(line["kept"])
    assert sizes == {4, 5, 6}


def test_a_prompt_of_a_blend_has_one_of_its_policies(tmp_path: Path) -> None:
    low = Policy(rule="never", budget=Rounds(4, 2), group_size=4)  # type: ignore[arg-type]
    blend = Blend(low, replace(low, rule="positive"), 0.5)  # type: ignore[arg-type]
    path = tmp_path / "pools.jsonl"
    collect(Worker(policy=blend, seed=3, pool_log=str(path)), 40)
    sizes = set()
    for line in lines(path):
        allocator = Allocator(blend, 1, fold_seed(3, line["prompt_id"]))
        while request := allocator.ask():
            allocator.tell(request.ids, [line["rewards"][draw] for draw in request.draws])
        assert len(line["rewards"]) == allocator.metrics()["responses"]
        sizes.add((any(line["rewards"][:4]), len(line["rewards"])))
    # One of the two exits with a correct response in its first round.
    assert sizes >= {(True, 4), (True, 8), (False, 8)}


def right_by_name(rewards: Any, inputs: list[dict[str, Any]]) -> Any:
    assert rewards.shape == (len(inputs), 1)
    assert all(row["name"].startswith("p") and row["completion"] for row in inputs)
    return rewards[:, 0] < 0.5


def test_correctness_may_stand_apart_from_the_reward(tmp_path: Path) -> None:
    path = tmp_path / "pools.jsonl"
    collect(Worker(correct_func=right_by_name, pool_log=str(path)), 6)
    for line in lines(path):
        assert line["correct"] == [reward < 0.5 for reward in line["rewards"]]


def shaped(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for the digit 1, and a little by chance on top."""
    bonus = random.Random(str(completions))  # noqa: S311 - no secret
    return [reward + 0.1 * bonus.random() for reward in last_is_one(completions) if reward is not None]


def shaped_is_right(rewards: Any, inputs: list[dict[str, Any]]) -> Any:
    return rewards[:, 0] >= 1


class Counter:
    """An environment whose tool is called once, and that owns its reward."""

    def reset(self, **row: Any) -> str:
        self.calls = 0
        return f" {row['name'][1:]}"

    def press(self) -> str:
        """Press the button."""
        self.calls += 1
        return "pressed"

    def get_reward(self) -> float:
        return float(self.calls)


class ToolLoop(FakeLoop):
    """The first turn of every second conversation calls the tool."""

    async def _generate_one(self, prompt: Any, tool_dict: Any, tools: Any, group_id: int = 0) -> Any:
        # parse_response needs a template that the tiny tokenizer hasn't; the rest of the turn is TRL's.
        ids = self.tokenizer.apply_chat_template(prompt, return_dict=False, add_generation_prompt=True)
        turn, logprobs = await self._generate_one_turn(ids)
        calls = 0
        if turn[0] == tiny.WORDS.index("1"):
            call = [{"type": "function", "function": {"name": "press", "arguments": {}}}]
            _, calls, _ = await self._execute_tool_calls(call, tool_dict)
        sequences, _ = worker_module._chain_to_sequences([worker_module.TurnRecord(ids, turn, logprobs)], "one", 8)
        return [{"role": "assistant", "content": "x"}], turn, sequences, calls, 0, None


class ToolWorker(Worker):
    loop_class = ToolLoop


def test_tools_and_environments_with_a_reward_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "pools.jsonl"
    worker = ToolWorker(reward_funcs=[], environment_factory=Counter, pool_log=str(path))
    groups = collect(worker, 12)
    pools = {line["prompt_id"]: line for line in lines(path)}
    policy = Policy.preset("reinforce-ada-balance", group_size=4)
    assert {reward for line in pools.values() for reward in line["rewards"]} == {0.0, 1.0}
    for number, samples in groups.items():
        allocator = Allocator(policy, 1, fold_seed(0, number))
        while request := allocator.ask():
            allocator.tell(request.ids, [pools[number]["rewards"][draw] for draw in request.draws])
        kept = allocator.groups()
        assert [sample.advantage for sample in samples] == kept.advantages[kept.mask].tolist()
        # The environment's observation was added to the prompt.
        assert samples[0].prompt[-1]["content"] == f"{number % 4} {number % 4}"


def raises(completions: list[Any], **kwargs: Any) -> list[float]:
    msg = "the verifier is gone"
    raise RuntimeError(msg)


def test_a_reward_function_that_raises_stops_the_worker_as_in_trl() -> None:
    worker = Worker(reward_funcs=[raises])

    def run() -> None:
        with pytest.raises(RuntimeError, match="the verifier is gone"):
            worker.loop.run()

    worker.thread = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.thread.join(60)
    with pytest.raises(RuntimeError, match="the verifier is gone"):
        worker.check_health(1.0)


def test_shared_budgets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(rule="never", budget=VIP(average=8.0), group_size=4)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="prompts come one by one"):
        AdaptiveRolloutWorker(policy=policy)


def test_policies_that_learn_are_refused() -> None:
    with pytest.raises(InputError, match="EmpiricalBayes learns from whole steps"):
        AdaptiveRolloutWorker(policy="empirical-bayes:noise_ratio=5")
    with pytest.raises(InputError, match="FixedPolicy learns from whole steps"):
        AdaptiveRolloutWorker(policy=FixedPolicy(Policy.preset("grpo"), PassRateMemory()))


def test_a_change_of_trl_is_named() -> None:
    check_trl_async()
    with pytest.raises(TRLSurfaceError, match=r"got 1\.17\.0"):
        check_trl_async(version="1.17.0")
    changed = type("Changed", (), {"_score_group": lambda self, groups: None})
    with pytest.raises(TRLSurfaceError, match=r"_repeat_iterator\(\), parameter 'group' of _score_group\(\)"):
        check_trl_async(changed)


def test_the_worker_takes_the_options_of_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "is_vllm_available", lambda: True)
    monkeypatch.setattr(worker_module, "is_aiohttp_available", lambda: True)
    args = AsyncGRPOConfig(
        str(tmp_path),
        num_generations=6,
        max_completion_length=77,
        per_device_train_batch_size=3,
        use_cpu=True,
        bf16=False,
    )
    worker = AdaptiveRolloutWorker.from_config(
        args, policy="reinforce-ada-balance", no_signal="keep", model_name="none", top_p=0.5
    )
    assert worker.policy.n == 6
    assert worker.policy.parts[0][1].no_signal == "keep"
    options = worker._loop_kwargs
    assert options["max_tokens"] == 77
    assert options["top_p"] == 0.5
    assert options["max_inflight_tasks"] == max(args.max_staleness, 1) * 3 * args.gradient_accumulation_steps
    assert "num_generations" not in options


class ChildLoop(FakeLoop):
    """In a process of its own, where nothing was replaced yet."""

    async def _run_loops(self, stop_event: asyncio.Event) -> None:
        worker_module.parse_response = plain_reply
        await super()._run_loops(stop_event)


class ChildWorker(AdaptiveRolloutWorker):
    _loop_cls = ChildLoop


def test_the_worker_runs_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "is_vllm_available", lambda: True)
    monkeypatch.setattr(worker_module, "is_aiohttp_available", lambda: True)
    PartialState(cpu=True)
    path = tmp_path / "pools.jsonl"
    worker = ChildWorker(
        policy="reinforce-ada-balance",
        num_generations=4,
        seed=3,
        pool_log=path,
        model_name="none",
        dataset=dataset(),
        reward_funcs=[last_is_one],
        processing_class=tokenizer(),
        eos_token_ids=[EOS],
        max_inflight_tasks=8,
        queue_maxsize=64,
    )
    groups = collect(worker, 6)
    pools = {line["prompt_id"]: line for line in lines(path)}
    for number, samples in groups.items():
        allocator = Allocator(worker.policy, 1, fold_seed(3, number))
        while request := allocator.ask():
            allocator.tell(request.ids, [pools[number]["rewards"][draw] for draw in request.draws])
        kept = allocator.groups()
        assert [sample.advantage for sample in samples] == kept.advantages[kept.mask].tolist()


class NoTransfer:
    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def send_weights(self, iterator: Iterator[Any]) -> None:
        for _ in iterator:
            pass

    def resume(self) -> None: ...
    def destroy(self) -> None: ...


def varlen(
    query: Any, key: Any, value: Any, cu_q: Any, cu_k: Any, *lengths: int, softmax_scale: float, **kwargs: Any
) -> Any:
    """Causal attention within each of the packed sequences, ``[token, head, width]``, as FlashAttention's kernel."""
    parts = []
    for i in range(len(cu_q) - 1):
        q = query[cu_q[i] : cu_q[i + 1]].transpose(0, 1)
        k, v = (each[cu_k[i] : cu_k[i + 1]].transpose(0, 1) for each in (key, value))
        k, v = (each.repeat_interleave(q.shape[0] // each.shape[0], 0) for each in (k, v))
        # The last query sees every key.
        far = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=far, scale=softmax_scale).transpose(
                0, 1
            )
        )
    return torch.cat(parts)


def test_the_stand_in_for_the_kernel_is_ordinary_attention() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 7, 2, 8)
    cu = torch.tensor([0, 3, 7])
    got = varlen(q, k, v, cu, cu, 4, 4, softmax_scale=0.3)
    for start, end in ((0, 3), (3, 7)):
        scores = torch.einsum("qhd,khd->hqk", q[start:end], k[start:end]) * 0.3
        scores = scores.masked_fill(torch.ones(end - start, end - start).triu(1).bool(), -torch.inf)
        wanted = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[start:end])
        torch.testing.assert_close(got[start:end], wanted)


def test_steps_of_trls_trainer_on_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "get_peak_flops_per_device", lambda *args: None)
    monkeypatch.setattr(trainer_module, "VLLMClient", lambda *args: None)
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=varlen))
    tiny_model = tiny.model()
    tiny_model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    args = AsyncGRPOConfig(
        str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        token_budget=256,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    worker = Worker(queue_maxsize=64)
    trainer = AsyncGRPOTrainer(
        str(tmp_path / "model"),
        args=args,
        train_dataset=dataset(),
        reward_funcs=[last_is_one],
        processing_class=tiny.tokenizer(),
        rollout_worker=worker,
        weight_transfer=NoTransfer(),
    )
    before = [each.detach().clone() for each in trainer.model.parameters()]
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 3
    assert all(np.isfinite(entry["loss"]) for entry in logs)
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert any(entry.get("ada/responses_total", 0) >= 8 for entry in logs)
    assert not worker.thread.is_alive()
