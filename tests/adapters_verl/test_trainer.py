"""verl's own trainer step on top, real worker actors, shared budgets and memory, and what a run resumes from."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils

from ada_bandit import Allocator, PassRateMemory, Policy
from ada_bandit.adapters.verl import AdaptiveAgentLoopManager, AdaptiveCheckpoint
from ada_bandit.errors import InputError
from ada_bandit.step_specs import read_step_policy
from ada_bandit.uniforms import fold_seed
from tests.adapters_verl import fakes, runs
from tests.adapters_verl.test_rollout import RATES, scripted

pytestmark = pytest.mark.usefixtures("queue")

BALANCE = Policy.preset("reinforce-ada-balance", group_size=4)


class StubActors:
    """The actors' worker group: log-probabilities of -1, and no training but a look at what it would be on."""

    def __init__(self, ranks: int) -> None:
        self._dispatch_info = {"actor": list(range(ranks))}
        self.seen: dict[str, Any] = {}

    def compute_log_prob(self, batch: Any) -> Any:
        lengths = [tag["seq_len"] for tag in batch.tags]
        nested = torch.nested.as_nested_tensor([torch.full((each,), -1.0) for each in lengths], layout=torch.jagged)
        fields = TensorDict({"log_probs": nested, "entropy": nested.clone()}, batch_size=len(lengths))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        return batch

    def update_actor(self, batch: Any) -> dict[str, Any]:
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "advantages", "response_mask"]
        )
        for i, key in enumerate(batch.keys):
            self.seen[key] = (str(data["uid"][i]), data["advantages"][i], data["response_mask"][i], batch.tags[i])
        self.extra = dict(batch.extra_info)
        return {"metrics": {"mfu": [0.0], "loss": [0.0]}}


def trainer_of(run: runs.Run, actors: StubActors) -> Any:
    """verl's synchronous trainer without its GPUs: everything from the sampler on is its own."""
    made = PPOTrainerSync.__new__(PPOTrainerSync)
    made.config = run.config
    made.trainer_mode, made.parameter_sync_step, made.global_steps = "sync", 1, 1
    made.use_critic = made.use_reference_policy = False
    made.replay_buffer = run.buffer
    made.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=run.handles)
    made.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None)
    made.actor_rollout_wg = actors
    made.tokenizer = run.worker.tokenizer
    made.curr_step_profile = False
    made.agent_loop_manager = run.manager
    return made


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_step_of_verls_trainer_trains_on_the_policys_advantages(folder: Path, handles: list[Any], ranks: int) -> None:
    run = runs.Run(fakes.config(folder, "+ada.no_signal=leave_out"), handles)
    actors = StubActors(ranks)
    uids = run.submit(fakes.batch(RATES))
    run.work()
    metrics: dict[str, Any] = {}
    timing: dict[str, float] = {}
    trainer = trainer_of(run, actors)
    batch = trainer._step_once(metrics, timing, len(RATES))

    expected: dict[str, float] = {}
    for place, uid in enumerate(uids):
        _, kept = runs.plain(BALANCE, place, scripted(place))
        right = [scripted(place)(draw) for draw in kept]
        if len(set(right)) == 2:
            expected |= {f"{uid}_{draw}": value for draw, value in kept.items()}
    real = {name: (adv, mask) for name, adv, mask, tag in actors.seen.values() if not tag.get("is_padding")}
    assert set(real) == set(expected)
    for name, (advantages, mask) in real.items():
        np.testing.assert_array_equal(advantages.numpy(), np.float32(expected[name]) * mask.numpy().astype(np.float32))
    # verl fills up to whole mini-batches of 8 prompts of 4 rows for every rank.
    padding = [(adv, mask) for _, adv, mask, tag in actors.seen.values() if tag.get("is_padding")]
    assert len(batch.keys) == len(expected) + len(padding)
    assert len(batch.keys) % np.lcm(32, ranks) == 0
    assert padding
    assert not any(adv.any() or mask.any() for adv, mask in padding)
    assert metrics["ada/responses"] == sum(runs.plain(BALANCE, place, scripted(place))[0] for place in range(8))
    assert actors.extra["mini_batch_size"] == 32

    # verl's own metrics are those of the kept rows, padding left out.
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    trainer._rollout_moe_lb_metrics_accumulator = None
    trainer._compute_metrics(batch, metrics, {"step": 1.0, "gen": 1.0, **timing}, global_steps=1, epoch=0)
    rewards = [scripted(uids.index(name.split("_")[0]))(int(name.split("_")[1])) for name in expected]
    assert metrics["critic/score/mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert metrics["critic/advantages/max"] == pytest.approx(max(expected.values()))


def manager_of(made: Any, handles: list[Any]) -> Any:
    return AdaptiveAgentLoopManager.create(made, fakes.RandomServer({}), None, handles)


@pytest.fixture(scope="module")
def four_workers(folder: Path, handles: list[Any]) -> Any:
    made = fakes.config(folder, "actor_rollout_ref.rollout.agent.num_workers=4", "+ada.seed=3")
    return manager_of(made, handles)


def buffer_of(made: Any) -> Any:
    from verl.utils.import_utils import load_extern_type

    custom = made.trainer.v1.sampler.custom_sampler
    return load_extern_type(custom.path, custom.name)("sync", {}, 8, "drop", {}, poll_interval=0.1)


def play(manager: Any, batch: Any, step: int) -> runs.Step:
    uids = fakes.announce(batch, step)
    manager.generate_sequences(batch)
    found, metrics = buffer_of(manager.config).sample(step, "train", len(uids))
    return runs.read(manager, found, metrics, uids, step)


def test_one_to_four_workers_give_the_same_groups(four_workers: Any) -> None:
    every = list(four_workers.agent_loop_workers)
    import ada_bandit.adapters.verl._trainer as module

    module._running[:] = [four_workers]
    try:
        for step, count in ((1, 1), (2, 2), (3, 3), (4, 4)):
            four_workers.agent_loop_workers = every[:count]
            # Seeds go by step: the same step is taken again and again.
            four_workers._step = (-1, 0)
            four_workers.pool_log.path.unlink(missing_ok=True)
            got = play(four_workers, fakes.batch(RATES, step=1, delay=0.02), 1)
            for place in range(len(RATES)):
                runs.check_equal(got, place, runs.plain(BALANCE, place, scripted(place), seed=3, step=1))
            fakes.clear()
            assert step == count
    finally:
        four_workers.agent_loop_workers = every


def test_a_worker_that_dies_is_started_again_and_its_prompts_with_it(four_workers: Any, tmp_path: Path) -> None:
    import ada_bandit.adapters.verl._trainer as module

    module._running[:] = [four_workers]
    four_workers._step = (-1, 0)
    four_workers.pool_log.path.unlink(missing_ok=True)
    trouble: list[dict[str, str]] = [{} for _ in RATES]
    # The second worker has prompts 2 and 3; it dies in a later round of one of them.
    trouble[2] = {"9": "die"} if runs.plain(BALANCE, 2, scripted(2), seed=3)[0] > 9 else {"5": "die"}
    got = play(four_workers, fakes.batch(RATES, trouble=trouble, marker=str(tmp_path / "died")), 1)
    assert (tmp_path / "died").exists()
    for place in range(len(RATES)):
        runs.check_equal(got, place, runs.plain(BALANCE, place, scripted(place), seed=3, step=1))
    assert len(set(got.keys)) == len(got.keys)


@pytest.fixture(scope="module")
def shared_policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Policy]:
    from ada_bandit.rules import rule_from_dict
    from ada_bandit.shared import VIP

    policy = Policy(
        rule=rule_from_dict("never"), budget=VIP(average=8.0, minimum=4, maximum=16, pilot=4), group_size=4, name="vip"
    )
    file = tmp_path_factory.mktemp("policy") / "vip.toml"
    file.write_text(policy.to_toml(), encoding="utf-8")
    return str(file), policy


@pytest.mark.parametrize("spec", ["vip", "empirical-bayes:noise_ratio=50,refit_every=1"])
@pytest.mark.parametrize("remembers", [True, False])
def test_what_prompts_share_and_a_run_learns_are_those_of_one_allocator(
    folder: Path,
    handles: list[Any],
    shared_policy: tuple[str, Policy],
    tmp_path: Path,
    spec: str,
    remembers: bool,
) -> None:
    shares = spec == "vip"
    extra = (
        *(("+ada.memory=true", "+ada.memory_key=index") if remembers else ()),
        "trainer.checkpoint_callback_class=ada_bandit.adapters.verl.AdaptiveCheckpoint",
        f"trainer.default_local_dir={tmp_path}",
        "trainer.resume_mode=auto",
    )
    spec = shared_policy[0] if shares else spec
    run = runs.Run(fakes.config(folder, *extra, policy=f'"{spec}"'), handles)
    twin = read_step_policy(spec, PassRateMemory() if remembers else None, group_size=4)
    keys = list(range(len(RATES))) if remembers else None

    def check(run: runs.Run, number: int) -> None:
        step = run.step(fakes.batch(RATES, step=number), number)
        allocator = twin.allocator(len(RATES), fold_seed(0, number, 0), keys)
        while request := allocator.ask():
            pairs = zip(request.prompts.tolist(), request.draws.tolist(), strict=True)
            allocator.tell(request.ids, [scripted(prompt)(draw) for prompt, draw in pairs])
        groups = allocator.groups()
        twin.observe(allocator, keys)
        for place in range(len(RATES)):
            drawn = int(groups.pos[place] + groups.neg[place])
            runs.check_equal(step, place, (drawn, runs.kept_of(allocator, groups, place)))
        assert step.metrics["ada/responses"] == allocator.metrics()["responses"]
        assert not shares or step.metrics["ada/responses"] == 8 * len(RATES)
        assert step.metrics["ada/rounds"] == allocator.metrics()["rounds"]

    check(run, 1)
    check(run, 2)
    # Prompts differ in what they got: by the pilot and the memory, or by their own pools.
    assert len({len(line["rewards"]) for line in run_lines(run)}) > 1
    saved = tmp_path / "global_step_2"
    saved.mkdir()
    AdaptiveCheckpoint(run.config).on_save(None, 2, str(saved))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2", encoding="utf-8")
    # The step after the checkpoint is cut in the middle: prompts are lost with their worker.
    run.submit(fakes.batch(RATES, step=3), 3)
    fakes.clear()
    again = runs.Run(run.config, handles)
    check(again, 3)
    if not shares:
        # By now the tables are others than at the start, which a run that had lost them would have used.
        first, third = (
            [len(line["rewards"]) for line in run_lines(again) if line["step"] == number] for number in (1, 3)
        )
        assert max(third) > max(first)


def test_a_shared_budget_draws_again_what_got_no_score(
    folder: Path, handles: list[Any], shared_policy: tuple[str, Policy], tmp_path: Path
) -> None:
    policy = replace(shared_policy[1], budget=shared_policy[1].budget.with_replacement(0.25))
    file = tmp_path / "again.toml"
    file.write_text(policy.to_toml(), encoding="utf-8")
    run = runs.Run(fakes.config(folder, policy=str(file)), handles)
    step = run.step(fakes.batch(RATES, trouble={"1": "nan", "4": "raise"}))
    allocator = Allocator(policy, len(RATES), fold_seed(0, 1, 0))
    while request := allocator.ask():
        pairs = zip(request.prompts.tolist(), request.draws.tolist(), strict=True)
        allocator.tell(request.ids, [None if draw in (1, 4) else scripted(prompt)(draw) for prompt, draw in pairs])
    groups, counts = allocator.groups(), allocator.metrics()
    for place in range(len(RATES)):
        # Both lost responses came within the pilot, so that every prompt has lost two.
        drawn = int(groups.pos[place] + groups.neg[place]) + 2
        runs.check_equal(step, place, (drawn, runs.kept_of(allocator, groups, place)))
    assert step.metrics["ada/replaced"] == counts["replaced"] == 2 * len(RATES)
    assert step.metrics["ada/unscored"] == counts["unscored"] == 2 * len(RATES)


def test_a_prompt_twice_in_a_batch_is_refused_where_it_would_be_learned_from_twice(
    folder: Path, handles: list[Any]
) -> None:
    extra = (
        "+ada.memory=true",
        "+ada.memory_key=name",
        "trainer.checkpoint_callback_class=ada_bandit.adapters.verl.AdaptiveCheckpoint",
    )
    run = runs.Run(fakes.config(folder, *extra, policy="empirical-bayes"), handles)
    with pytest.raises(InputError, match="'same' stands twice in a batch"):
        run.manager.generate_sequences(fakes.batch([0.5, 0.5], name="same"))


def run_lines(run: runs.Run) -> list[dict[str, Any]]:
    path = run.manager.pool_log.path
    assert path is not None
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_prompt_of_a_shared_budget_that_fails_does_not_hold_up_the_others(
    folder: Path, handles: list[Any], shared_policy: tuple[str, Policy]
) -> None:
    run = runs.Run(fakes.config(folder, policy=shared_policy[0]), handles)
    trouble = [{str(draw): "raise" for draw in range(16)}, *[{}] * 3]
    step = run.step(fakes.batch([0.5] * 4, trouble=trouble))
    assert step.metrics["ada/failed_prompts"] == 1
    assert all(step.kept(place) for place in (1, 2, 3))

    async def cancel(worker: Any) -> None:
        await asyncio.sleep(0.3)
        # Tasks are numbered in the order of the prompts.
        min(worker.background_tasks, key=lambda task: int(task.get_name().split("-")[1])).cancel()

    step = run.step(fakes.batch([0.5] * 4, step=2, delay=[30.0, 0.0, 0.0, 0.0]), 2, cancel)
    assert step.metrics["ada/failed_prompts"] == 1
    assert all(step.kept(place) for place in (1, 2, 3))


def test_prompts_of_a_shared_budget_outlive_their_worker(
    folder: Path, handles: list[Any], shared_policy: tuple[str, Policy], tmp_path: Path
) -> None:
    file, policy = shared_policy
    made = fakes.config(folder, "actor_rollout_ref.rollout.agent.num_workers=2", policy=file)
    manager = manager_of(made, handles)
    rates = [0.1, 0.5, 0.5, 0.9]
    # The first worker dies in the second round; what it told of the first one counts already.
    trouble = [{"4": "die"}, {}, {}, {}]
    got = play(manager, fakes.batch(rates, trouble=trouble, marker=str(tmp_path / "died")), 1)
    allocator = Allocator(policy, 4, fold_seed(0, 1, 0))
    while request := allocator.ask():
        pairs = zip(request.prompts.tolist(), request.draws.tolist(), strict=True)
        allocator.tell(request.ids, [scripted(prompt, rates)(draw) for prompt, draw in pairs])
    groups = allocator.groups()
    for place in range(4):
        drawn = int(groups.pos[place] + groups.neg[place])
        runs.check_equal(got, place, (drawn, runs.kept_of(allocator, groups, place)))
    assert (tmp_path / "died").exists() == (int(groups.pos[0] + groups.neg[0]) > 4)


def test_an_asynchronous_step_that_was_cut_is_issued_again(folder: Path, handles: list[Any], tmp_path: Path) -> None:
    """verl saves the queue: prompts that had ended keep their groups, the others start again."""
    run = runs.Run(fakes.config(folder), handles)
    batch = fakes.batch(RATES)
    uids = [str(uid) for uid in batch["uid"]]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": 1} for _ in uids]
    stored = [name for name in batch.keys() if name != "global_steps"]  # noqa: SIM118 - a TensorDict
    tq.kv_batch_put(keys=uids, partition_id="train", tags=tags, fields=batch.select(*stored))
    run.manager.generate_sequences(batch)
    chunk = run.chunks.pop()
    run.chunks.append(chunk[:5])
    run.work()
    tq.save_checkpoint(str(tmp_path / "transfer_queue"), metadata={"global_steps": 1})
    fakes.clear()
    tq.load_checkpoint(str(tmp_path / "transfer_queue"))

    again = runs.Run(run.config, handles)
    trainer = trainer_of(again, StubActors(1))
    trainer.trainer_mode = "colocate_async"
    assert trainer._reissue_inflight_prompts() == 3
    again.work()
    step = again.collect(uids)
    policy = BALANCE
    for place in range(5):
        runs.check_equal(step, place, runs.plain(policy, place, scripted(place)))
    # The three come first in the batch that is issued again, in the queue's order, and so do their seeds.
    for place in (5, 6, 7):
        wanted = [runs.plain(policy, again_place, scripted(place)) for again_place in range(3)]
        drawn = len(step.lines[place]["rewards"])
        assert (drawn, step.kept(place)) in [(count, sorted(kept)) for count, kept in wanted]
    assert len(step.rows) == sum(len(step.kept(place)) for place in range(8))


def test_a_sampler_that_waits_notices_a_worker_that_died_before_it_took_a_prompt(
    folder: Path, handles: list[Any]
) -> None:
    manager = manager_of(fakes.config(folder, policy="grpo", n=2), handles)
    ray.get(manager.agent_loop_workers[0].__ray_ready__.remote())
    ray.kill(manager.agent_loop_workers[0])
    time.sleep(0.5)
    result: list[runs.Step] = []
    thread = threading.Thread(target=lambda: result.append(play(manager, fakes.batch([0.5, 0.5]), 1)), daemon=True)
    thread.start()
    thread.join(90)
    assert result
    for place in range(2):
        runs.check_equal(
            result[0], place, runs.plain(Policy.preset("grpo", group_size=2), place, scripted(place, [0.5, 0.5]))
        )


def test_a_memory_without_keys_is_refused_and_the_log_makes_do_with_a_hash(
    folder: Path, handles: list[Any], shared_policy: tuple[str, Policy]
) -> None:
    extra = (
        "+ada.memory=true",
        "+ada.memory_key=index",
        "trainer.checkpoint_callback_class=ada_bandit.adapters.verl.AdaptiveCheckpoint",
    )
    batch = fakes.batch([0.5, 0.5])
    for info in batch["extra_info"]:
        info.pop("index")
    run = runs.Run(fakes.config(folder, *extra, policy=shared_policy[0]), handles)
    # verl's own column `index` is 0 for such rows, which must not do.
    with pytest.raises(InputError, match=r"verl fills a missing extra_info\.index with 0"):
        run.manager._keys(batch, 2)
    named = runs.Run(
        fakes.config(folder, *extra[:1], "+ada.memory_key=name", *extra[2:], policy=shared_policy[0]), handles
    )
    tensordict_utils.assign_non_tensor_stack(batch, "name", ["left", "right"])
    assert named.manager._keys(batch, 2) == ["left", "right"]
    plain = runs.Run(fakes.config(folder), handles)
    first, second = plain.manager._keys(batch, 2)
    assert first != second
    assert plain.manager._keys(fakes.batch([0.1]), 1) == [0]
    assert isinstance(first, str)
    assert plain.manager._keys(batch, 2) == [first, second]


def test_uids_that_verl_would_cut_are_refused(folder: Path, handles: list[Any]) -> None:
    run = runs.Run(fakes.config(folder), handles)
    for uid in ("a_b", "pad0"):
        batch = fakes.batch([0.5])
        tensordict_utils.assign_non_tensor_stack(batch, "uid", [uid])
        with pytest.raises(InputError, match=f"got the uid '{uid}'"):
            run.manager.generate_sequences(batch)


def test_the_asynchronous_sampler_reads_the_pools_and_lets_verl_replace_failed_prompts(
    folder: Path, handles: list[Any]
) -> None:
    made = fakes.config(
        folder,
        "trainer.v1.trainer_mode=colocate_async",
        "trainer.v1.sampler.custom_sampler.name=AdaptiveReplayBufferAsync",
    )
    run = runs.Run(made, handles)
    refilled: list[int] = []

    def refill(count: int) -> int:
        refilled.append(count)
        uids.extend(run.submit(fakes.batch([0.5] * count, first=10)))
        run.work()
        return count

    run.buffer.refill_fn = refill
    uids = run.submit(fakes.batch([0.5, 0.5, 0.5], trouble=[{str(i): "raise" for i in range(32)}, {}, {}]))
    run.work()
    found, metrics = run.buffer.sample(1, "train", 3)
    assert refilled == [1]
    step = runs.read(run.manager, found, metrics, uids, 1)
    for place, key in ((1, 1), (2, 2), (3, 10)):
        # The new prompt is the fourth of its step.
        runs.check_equal(step, place, runs.plain(BALANCE, place, right(key)), key=key)
    assert step.metrics["ada/failed_prompts"] == 0
    assert run.manager._sent == {}


def right(key: int) -> Any:
    return lambda draw: float(fakes.is_right(key, draw, 0.5))
