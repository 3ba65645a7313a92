from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset
from trl import GRPOTrainer
from trl.trainer import utils as trl_utils

from ada_bandit import (
    Allocator,
    Balance,
    Beta,
    EmpiricalBayes,
    Never,
    PassRateMemory,
    Policy,
    Positive,
    Quota,
    Rounds,
)
from ada_bandit.adapters.trl import TRLSurfaceError, check_trl
from ada_bandit.adapters.trl.options import check_text
from ada_bandit.advantages import GroupStd, LeaveOneOut
from ada_bandit.errors import InputError, ProtocolError
from ada_bandit.steps import FixedPolicy
from ada_bandit.uniforms import fold_seed
from tests.adapters import tiny

ROOT = Path(__file__).parents[2]


def build(
    folder: Path,
    policy: Any = "reinforce-ada-balance",
    reward_funcs: Any = None,
    *,
    data: Any = None,
    eval_data: Any = None,
    kind: type = tiny.Adaptive,
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    keywords = {} if kind is tiny.Stock else {"policy": policy}
    # TRL loads the reference model from where the model came from.
    stored = folder / "model"
    tiny.model().save_pretrained(stored)
    return kind(
        str(stored),
        tiny.Seen() if reward_funcs is None else reward_funcs,
        tiny.config(folder, **options),
        tiny.prompts() if data is None else data,
        eval_dataset=eval_data,
        processing_class=tiny.tokenizer(),
        **keywords | (extra or {}),
    )


def trained(folder: Path, policy: Any = "reinforce-ada-balance", reward_funcs: Any = None, **options: Any) -> Any:
    trainer = build(folder, policy, reward_funcs, **options)
    trainer.train()
    assert all(math.isfinite(loss) for loss in trainer.losses)
    return trainer


def never(digit: int, completion: Any) -> float:
    return 0.0


def parameters(trainer: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def assert_pool_advantages(trainer: Any, seen: tiny.Seen) -> None:
    """Check every row of the loss against the pool that the reward function saw; a prompt may come up once."""
    pools = tiny.pools(seen.calls)
    rows = tiny.rows(trainer)
    for row in rows:
        if row["in_loss"]:
            rewards = {tokens: value for _, _, tokens, value in pools[row["digit"]]}
            mean = np.mean([value for *_, value in pools[row["digit"]]])
            assert row["advantage"] == pytest.approx(rewards[row["tokens"]] - mean, abs=1e-6)
    for digit, pool in pools.items():
        kept = Counter(row["tokens"] for row in rows if row["digit"] == digit and row["in_loss"])
        assert not kept - Counter(tokens for _, _, tokens, _ in pool)


POLICIES = {
    "balance": Policy.preset("reinforce-ada-balance"),
    "pos": Policy.preset("reinforce-ada-pos"),
    "one at a time": Policy(Quota(2, 2), Rounds(1, 12), 4),
}


# What a step does.


@pytest.mark.parametrize("chat", [False, True], ids=["plain", "chat"])
@pytest.mark.parametrize("name", POLICIES)
def test_advantages_in_the_loss_are_the_reward_minus_the_mean_of_the_pool(
    tmp_path: Path, name: str, chat: bool
) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, POLICIES[name], seen, data=tiny.prompts(chat=chat), max_steps=2)
    assert_pool_advantages(trainer, seen)
    assert {row["advantage"] for row in tiny.rows(trainer)} - {0.0}


@pytest.mark.parametrize("name", POLICIES)
def test_every_prompt_has_num_generations_rows_and_every_response_one_score(tmp_path: Path, name: str) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, POLICIES[name], seen)
    rows = tiny.rows(trainer)
    assert Counter(row["digit"] for row in rows if row["in_loss"]) == dict.fromkeys(range(8), 4)
    pools = tiny.pools(seen.calls)
    assert sum(map(len, pools.values())) == sum(tiny.logged(trainer, "ada/responses"))
    tokens = sum(len(entry[2]) for pool in pools.values() for entry in pool)
    assert tokens == sum(tiny.logged(trainer, "ada/tokens"))
    assert not any(tiny.logged(trainer, "ada/padding"))


def test_pools_leave_at_different_rounds(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, reward_funcs=seen)
    sizes = {len(pool) for pool in tiny.pools(seen.calls).values()}
    assert {8, 32} <= sizes <= {8, 16, 24, 32}
    assert tiny.logged(trainer, "ada/rounds") == [max(map(len, split)) // 8 for split in pools_by_step(trainer, seen)]


def pools_by_step(trainer: Any, seen: tiny.Seen) -> list[list[list[Any]]]:
    """Split the pools by the step in which the loss saw their prompts: four prompts a step."""
    pools, rows = tiny.pools(seen.calls), tiny.rows(trainer)
    steps = [rows[first : first + 16] for first in range(0, len(rows), 16)]
    return [[pools[digit] for digit in {row["digit"] for row in step}] for step in steps]


def test_metrics_are_those_of_the_pool(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, reward_funcs=seen)
    means = [np.mean([np.mean([e[3] for e in pool]) for pool in step]) for step in pools_by_step(trainer, seen)]
    assert tiny.logged(trainer, "ada/pool_reward") == pytest.approx(means)
    assert tiny.logged(trainer, "ada/selected_reward") == pytest.approx(tiny.logged(trainer, "reward"))
    both = [np.mean([len({e[3] for e in pool}) == 2 for pool in step]) for step in pools_by_step(trainer, seen)]
    assert tiny.logged(trainer, "ada/signal_fraction") == pytest.approx(both)
    short = [sum(sum(e[3] for e in pool) < 2 for pool in step) for step in pools_by_step(trainer, seen)]
    assert tiny.logged(trainer, "ada/unresolved_no_positive") == short
    assert f"{int(tiny.logged(trainer, 'ada/responses')[-1])} responses" in trainer.allocator.summary()


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("grpo", {}),
        ("grpo", {"scale_rewards": "group", "loss_type": "grpo", "beta": 0.1}),
        ("grpo", {"num_iterations": 2, "steps_per_generation": 4}),
        ("grpo:no_signal=keep", {"mask_truncated_completions": True}),
        ("dr-grpo", {"scale_rewards": "none"}),
    ],
)
def test_grpo_has_the_losses_of_the_stock_trainer(tmp_path: Path, policy: str, options: dict[str, Any]) -> None:
    ours = trained(tmp_path, policy, max_steps=3, **options)
    theirs = trained(tmp_path, kind=tiny.Stock, max_steps=3, **options)
    assert ours.losses == theirs.losses
    for a, b in zip(parameters(ours), parameters(theirs), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(ours.state.log_history, theirs.state.log_history, strict=True):
        same = b.keys() - {"step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second"}
        assert {key: a[key] for key in same} == {key: b[key] for key in same}
    if not options.get("mask_truncated_completions"):
        assert tiny.logged(ours, "ada/selected_reward") == pytest.approx(tiny.logged(ours, "reward"))
        assert tiny.logged(ours, "ada/pool_reward") == pytest.approx(tiny.logged(ours, "reward"))


def test_one_round_of_n_under_a_scale_that_is_not_the_policys_goes_by_the_policy(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, "dr-grpo", seen, scale_rewards="group")
    assert_pool_advantages(trainer, seen)
    assert tiny.logged(trainer, "ada/responses") == [16, 16]


def test_several_weighted_rewards_one_of_them_async(tmp_path: Path) -> None:
    seen = tiny.Seen()
    lengths = tiny.Seen(lambda digit, completion: len(tiny.text_of(completion)) / 8)

    async def length(**kwargs: Any) -> list[float | None]:
        return lengths(**kwargs)

    trainer = trained(tmp_path, reward_funcs=[seen, length], reward_weights=[1.0, 0.25])
    assert [len(call) for call in seen.calls] == [len(call) for call in lengths.calls]
    pools = {
        digit: [(a[2], a[3] + 0.25 * b[3]) for a, b in zip(pool, tiny.pools(lengths.calls)[digit], strict=True)]
        for digit, pool in tiny.pools(seen.calls).items()
    }
    for row in tiny.rows(trainer):
        pool = pools[row["digit"]]
        assert row["advantage"] == pytest.approx(dict(pool)[row["tokens"]] - np.mean([r for _, r in pool]), abs=1e-6)


def test_shaped_rewards_are_taken_as_they_are(tmp_path: Path) -> None:
    seen = tiny.Seen(lambda digit, completion: (digit + tiny.first_digit(completion)) % 7 / 6)
    trainer = trained(tmp_path, reward_funcs=seen)
    assert_pool_advantages(trainer, seen)
    assert len({row["advantage"] for row in tiny.rows(trainer)}) > 8


def test_a_correctness_function_decides_exits_and_rewards_decide_advantages(tmp_path: Path) -> None:
    shaped = tiny.Seen(lambda digit, completion: 0.2 * float(tiny.first_digit(completion) < digit) + 0.01 * digit)
    inputs: list[dict[str, Any]] = []

    def correct(rewards: Any, rows: list[dict[str, Any]]) -> Any:
        inputs.extend(rows)
        assert rewards.shape == (len(rows), 1)
        return [tiny.first_digit(row["completion"]) < row["digit"] for row in rows]

    trainer = trained(tmp_path, reward_funcs=shaped, extra={"correct_func": correct})
    assert_pool_advantages(trainer, shaped)
    assert len(inputs) == sum(tiny.logged(trainer, "ada/responses"))
    assert min(tiny.logged(trainer, "ada/signal_fraction")) > 0
    # By the sum of rewards nothing would be correct.
    assert trained(tmp_path, reward_funcs=shaped).allocator.metrics()["signal_fraction"] == 0


def test_a_response_without_a_score_is_spent_and_never_kept(tmp_path: Path) -> None:
    def reward(digit: int, completion: Any) -> float | None:
        first = tiny.first_digit(completion)
        return (None, math.nan)[first % 2] if first in (3, 4, 99) else float(first < digit)

    seen = tiny.Seen(reward)
    trainer = trained(tmp_path, Policy(Never(), Rounds(8), 4), seen)
    unscored = [
        entry for pool in tiny.pools(seen.calls).values() for entry in pool if entry[3] is None or entry[3] != entry[3]
    ]
    assert sum(tiny.logged(trainer, "ada/unscored")) == len(unscored) > 0
    scored = [[e for e in call if e not in unscored] for call in seen.calls]
    seen.calls = scored
    assert_pool_advantages(trainer, seen)


def test_rows_without_a_response_are_out_of_the_loss_and_of_its_denominator(tmp_path: Path) -> None:
    seen = tiny.Seen(lambda digit, completion: None if tiny.first_digit(completion) > 6 else 1.0 * (digit % 2))
    trainer = trained(tmp_path, Policy(Positive(1), Rounds(4, 1), 4), seen, max_steps=1)
    (step,) = [trainer.batches]
    rows = tiny.rows(trainer)
    scored = sum(entry[3] is not None for call in seen.calls for entry in call)
    assert sum(row["in_loss"] for row in rows) == scored < len(rows) == 16
    assert tiny.logged(trainer, "ada/empty_rows") == [16 - scored]
    in_loss = sum(len(row["tokens"]) for row in rows if row["in_loss"])
    assert [int(batch["num_items_in_batch"]) for batch in step] == [in_loss, in_loss]


def test_truncated_responses_are_left_to_trl(tmp_path: Path) -> None:
    trainer = trained(tmp_path, mask_truncated_completions=True)
    for batch in trainer.batches:
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True):
            assert bool(mask.any()) == (int(ids[-1]) in (0, 1))


@pytest.mark.parametrize("options", [{}, {"mask_truncated_completions": True}])
def test_an_empty_response_is_scored_and_has_no_token_in_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    generate = GRPOTrainer._generate_single_turn

    @functools.wraps(generate)
    def blank(self: Any, *args: Any, **kwargs: Any) -> Any:
        tokens, logprobs = generate(self, *args, **kwargs)
        return [[] if i % 2 else ids for i, ids in enumerate(tokens)], logprobs

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", blank)
    seen = tiny.Seen()
    trainer = trained(tmp_path, "reinforce-ada-balance", seen, **options)
    shown = [entry for call in seen.calls for entry in call]
    assert any(entry[2] == () and entry[1] == "" for entry in shown)
    empty = [row for row in tiny.rows(trainer) if row["tokens"] == (1,) and not row["in_loss"]]
    assert len(empty) > 0
    assert all(row["advantage"] == 0 for row in empty)


@pytest.mark.parametrize(
    "options",
    [
        {"num_iterations": 2, "max_steps": 4},
        {"steps_per_generation": 4, "max_steps": 4, "num_generations": 8, "beta": 0.05},
        {"steps_per_generation": 1, "max_steps": 2},
        {"loss_type": "bnpo", "epsilon_high": 0.28, "delta": 10.0, "importance_sampling_level": "sequence"},
    ],
    ids=["two iterations", "more steps a generation than accumulated", "two generations a step", "other losses"],
)
def test_several_uses_of_a_batch(tmp_path: Path, options: dict[str, Any]) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, reward_funcs=seen, data=tiny.prompts(8), **options)
    rows = tiny.rows(trainer)
    times = options.get("num_iterations", 1)
    assert Counter(row["digit"] for row in rows) == dict.fromkeys(range(8), options.get("num_generations", 4) * times)
    # What is logged is the mean over the generation batches of a step.
    batches = 2 // options.get("steps_per_generation", 2) or 1
    assert sum(map(len, seen.calls)) == batches * sum(tiny.logged(trainer, "ada/responses"))
    trainer.batches = [batch for i, batch in enumerate(trainer.batches) if i // 2 % times == 0]
    assert_pool_advantages(trainer, seen)
    if times == 2:
        first, second = (Counter((r["digit"], r["tokens"], r["advantage"]) for r in rows[k : k + 16]) for k in (0, 16))
        assert first == second
        assert all("old_per_token_logps" in batch for batch in trainer.batches)


def test_evaluation_is_one_plain_round_of_n(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = build(
        tmp_path, reward_funcs=seen, eval_data=tiny.prompts(6), per_device_eval_batch_size=8, num_generations_eval=2
    )
    metrics = trainer.evaluate()
    assert [len(call) for call in seen.calls] == [8, 4]
    assert not [key for key in metrics if "ada/" in key]
    assert math.isfinite(metrics["eval_reward"])
    rows = tiny.rows(trainer, training=False)
    for digit, pool in tiny.pools(seen.calls).items():
        mine = [row for row in rows if row["digit"] == digit]
        assert [row["advantage"] for row in mine] == pytest.approx([e[3] - (pool[0][3] + pool[1][3]) / 2 for e in pool])


def test_iterable_datasets_keep_their_groups(tmp_path: Path) -> None:
    def stream() -> Any:
        for i in range(8):
            yield {"prompt": f"{i} =", "digit": i}

    seen = tiny.Seen()
    trainer = trained(tmp_path, reward_funcs=seen, data=IterableDataset.from_generator(stream))
    assert Counter(row["digit"] for row in tiny.rows(trainer)) == dict.fromkeys(range(8), 4)
    assert_pool_advantages(trainer, seen)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    policy = Policy.preset("reinforce-ada-est", average=6.0, maximum=8)
    policy = Policy(policy.rule, policy.budget, 4, advantage=LeaveOneOut())

    def run(checkpoint: str | None = None) -> tuple[Any, PassRateMemory]:
        memory = PassRateMemory()
        extra = {"memory": memory, "memory_key": "name"}
        trainer = build(tmp_path, policy, data=tiny.prompts(16), extra=extra, **options)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer, memory

    whole, remembered = run()
    resumed, again = run(str(tmp_path / "checkpoint-2"))
    assert resumed.losses == whole.losses[4:]
    for key in ("ada/responses", "ada/pool_reward", "reward", "loss"):
        assert tiny.logged(resumed, key) == tiny.logged(whole, key)
    assert json.dumps(again.state_dict(), default=np.ndarray.tolist) == json.dumps(
        remembered.state_dict(), default=np.ndarray.tolist
    )
    assert len(again) == 16


def test_seeds_follow_the_global_step_also_after_a_restart(tmp_path: Path) -> None:
    seeds: list[int] = []

    class Noting(FixedPolicy):
        def allocator(self, prompts: int, seed: int = 0, keys: Sequence[Hashable] | None = None) -> Allocator:
            seeds.append(seed)
            return super().allocator(prompts, seed, keys)

    steps = Noting(Policy.preset("reinforce-ada-balance"))
    # Two generation batches a step.
    options: dict[str, Any] = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2, "steps_per_generation": 1}
    build(tmp_path, steps, data=tiny.prompts(16), **options).train()
    expected = [fold_seed(3, step, batch) for step in range(3) for batch in range(2)]
    assert seeds == expected
    seeds.clear()
    resumed = build(tmp_path, steps, data=tiny.prompts(16), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert seeds == expected[4:]


def test_extra_columns_stay_with_their_rows(tmp_path: Path) -> None:
    def noted(prompts: Any, completions: Any, digit: list[int], log_extra: Any, log_metric: Any, **kwargs: Any) -> Any:
        log_extra("seen", [f"{prompt}|{completion}" for prompt, completion in zip(prompts, completions, strict=True)])
        log_metric("calls", 1.0)
        return [float(tiny.first_digit(completion) < d) for completion, d in zip(completions, digit, strict=True)]

    trainer = trained(tmp_path, reward_funcs=noted, log_completions=True, num_completions_to_print=0, max_steps=1)
    file = str(tmp_path / "completions" / "completions_00001.parquet")
    table = Dataset.from_parquet(file, cache_dir=str(tmp_path / "cache")).to_dict()
    assert table["seen"] == [f"{p}|{c}" for p, c in zip(table["prompt"], table["completion"], strict=True)]
    assert len(table["seen"]) == 16
    assert tiny.logged(trainer, "calls") == [1.0]
    of_loss = sorted(row["advantage"] for row in tiny.rows(trainer))
    assert sorted(table["advantage"]) == pytest.approx(of_loss, abs=1e-6)


class Engine:
    """Stands in for TRL's vLLM client: one response a prompt, its log-probabilities a function of the tokens.

    As vLLM does, it draws a request that has a seed from that seed alone.
    """

    def __init__(self, **generation_kwargs: Any) -> None:
        self.generation_kwargs = generation_kwargs
        self.random = np.random.default_rng(0)
        self.syncs = 0
        self.asked: list[int] = []

    def sync_weights(self) -> None:
        self.syncs += 1

    def generate(self, prompts: Any, images: Any, num_generations: int, profiler: Any) -> Any:
        assert (images, num_generations) == (None, 1)
        self.asked.append(len(prompts))
        tokens = []
        for _ in prompts:
            random = (
                np.random.default_rng(self.generation_kwargs.get("seed")) if self.generation_kwargs else self.random
            )
            tokens.append(random.integers(1, 15, random.integers(1, 5)).tolist())
        return prompts, tokens, [[[-0.1 * token] for token in ids] for ids in tokens], None


def test_log_probabilities_of_vllm_stay_with_their_responses(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = build(tmp_path, reward_funcs=seen, vllm_importance_sampling_clip_min=0.01)
    trainer.use_vllm, trainer._last_loaded_step, trainer.vllm_generation = True, -1, Engine()
    trainer.train()
    assert_pool_advantages(trainer, seen)
    # One call a round, whatever its size, and the weights are sent once a step.
    assert trainer.vllm_generation.asked == [len(call) for call in seen.calls]
    assert trainer.vllm_generation.syncs == 2
    for batch in trainer.batches:
        expected = -0.1 * batch["completion_ids"] * batch["completion_mask"]
        assert torch.allclose(batch["sampling_per_token_logps"], expected)
        assert "importance_sampling_ratio" in batch
    # TRL's mode by default drops sequences out of range, after they were kept.
    dropped = sum(int((batch["importance_sampling_ratio"] == 0).sum()) for batch in trainer.batches)
    assert sum(tiny.logged(trainer, "ada/dropped_rows")) == dropped > 0


def test_with_a_seed_every_response_of_a_prompt_would_be_the_same_one(tmp_path: Path) -> None:
    # What the refusal is for: a trainer gets here only past it.
    seen = tiny.Seen()
    trainer = build(tmp_path, reward_funcs=seen)
    trainer.use_vllm, trainer._last_loaded_step, trainer.vllm_generation = True, -1, Engine(seed=5)
    trainer.train()
    assert {len({entry[2] for entry in pool}) for pool in tiny.pools(seen.calls).values()} == {1}
    assert trainer.losses == [0.0] * 4
    with pytest.raises(InputError, match="generation_kwargs has seed = 5"):
        build(tmp_path, generation_kwargs={"seed": 5})


def test_a_batch_without_any_score_is_trained_on_with_vllm_as_well(tmp_path: Path) -> None:
    trainer = build(tmp_path, reward_funcs=tiny.Seen(lambda digit, completion: None))
    trainer.use_vllm, trainer._last_loaded_step, trainer.vllm_generation = True, -1, Engine()
    trainer.train()
    assert trainer.losses == [0.0] * 4
    assert tiny.logged(trainer, "ada/empty_rows") == [16, 16]
    assert tiny.logged(trainer, "ada/unscored") == [128, 128]


# Properties that public implementations are reported to lack.


@pytest.mark.parametrize("mask", [False, True])
def test_a_batch_without_any_signal_that_reaches_the_cap_does_not_end_the_run(tmp_path: Path, mask: bool) -> None:
    trainer = trained(tmp_path, reward_funcs=tiny.Seen(never), extra={"no_signal": "leave_out" if mask else "mask"})
    assert trainer.state.global_step == 2
    assert trainer.losses == [0.0] * 4
    assert tiny.logged(trainer, "ada/rounds") == [4, 4]
    assert tiny.logged(trainer, "ada/signal_fraction") == [0, 0]
    assert tiny.logged(trainer, "ada/unresolved_no_positive") == [4, 4]


@pytest.mark.parametrize("mask", [False, True])
def test_a_group_is_masked_as_a_whole_or_not_at_all(tmp_path: Path, mask: bool) -> None:
    seen = tiny.Seen(lambda digit, completion: float(tiny.first_digit(completion) < digit and digit > 2))
    trainer = trained(tmp_path, reward_funcs=seen, extra={"no_signal": "leave_out" if mask else "mask"})
    in_loss = Counter(row["digit"] for row in tiny.rows(trainer) if row["in_loss"])
    both = {digit for digit, pool in tiny.pools(seen.calls).items() if len({entry[3] for entry in pool}) == 2}
    assert in_loss == dict.fromkeys(both if mask else range(8), 4)
    assert len(both) < 6


def test_signal_is_judged_by_group_and_not_by_batch(tmp_path: Path) -> None:
    seen = tiny.Seen(lambda digit, completion: float(digit % 2))
    trainer = trained(tmp_path, reward_funcs=seen, extra={"no_signal": "leave_out"})
    assert tiny.logged(trainer, "ada/pool_reward") == [0.5, 0.5]
    assert tiny.logged(trainer, "ada/signal_fraction") == [0, 0]
    assert not any(row["in_loss"] or row["advantage"] for row in tiny.rows(trainer))


@pytest.mark.parametrize("what", [None, "mask", "leave_out"])
def test_shaped_rewards_do_not_make_an_all_wrong_group_look_like_signal(tmp_path: Path, what: Any) -> None:
    seen = tiny.Seen(lambda digit, completion: 0.03 * (tiny.first_digit(completion) % 10))
    trainer = trained(tmp_path, reward_funcs=seen, extra={"no_signal": what})
    assert len({entry[3] for call in seen.calls for entry in call}) > 5
    assert tiny.logged(trainer, "ada/signal_fraction") == [0, 0]
    assert trainer.losses == [0.0] * 4


def test_one_response_without_a_score_leaves_the_rest_of_its_group_alone(tmp_path: Path) -> None:
    class OneMissing(tiny.Seen):
        def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
            values = super().__call__(*args, **kwargs)
            values[0] = math.nan
            self.calls[-1] = self.calls[-1][1:]
            return values

    seen = OneMissing()
    trainer = trained(tmp_path, reward_funcs=seen)
    assert_pool_advantages(trainer, seen)
    assert Counter(row["digit"] for row in tiny.rows(trainer) if row["in_loss"]) == dict.fromkeys(range(8), 4)


def test_rollouts_at_the_end_of_the_loader_are_all_trained_on(tmp_path: Path) -> None:
    # Two prompts a batch, two batches a step, ten prompts: the last step of an epoch has one batch.
    seen = tiny.Seen()
    trainer = trained(
        tmp_path, reward_funcs=seen, data=tiny.prompts(10), steps_per_generation=1, num_train_epochs=2, max_steps=-1
    )
    assert trainer.state.global_step == 6
    assert Counter(row["digit"] for row in tiny.rows(trainer)) == dict.fromkeys(range(10), 8)
    assert len(trainer.batches) == 10


def test_prompts_beyond_the_last_whole_batch_are_neither_sampled_nor_trained_on(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, reward_funcs=seen, data=tiny.prompts(10), num_train_epochs=1, max_steps=-1)
    assert trainer.state.global_step == 2
    assert tiny.pools(seen.calls).keys() == {row["digit"] for row in tiny.rows(trainer)}
    assert_pool_advantages(trainer, seen)


def test_leaving_out_groups_without_signal_changes_the_denominator(tmp_path: Path) -> None:
    seen = tiny.Seen(lambda digit, completion: float(tiny.first_digit(completion) < digit and digit > 3))
    masked, whole = (
        trained(tmp_path, reward_funcs=seen, max_steps=1, extra={"no_signal": what}) for what in ("leave_out", "mask")
    )
    for trainer in (masked, whole):
        in_loss = sum(len(row["tokens"]) for row in tiny.rows(trainer) if row["in_loss"])
        assert [int(batch["num_items_in_batch"]) for batch in trainer.batches] == [in_loss, in_loss]
    few, many = (int(trainer.batches[0]["num_items_in_batch"]) for trainer in (masked, whole))
    assert 0 < few < many
    # Groups without signal have advantage 0, so the same sum is divided by fewer tokens.
    assert masked.losses == pytest.approx([loss * many / few for loss in whole.losses], rel=1e-5)


def test_equal_rewards_leave_no_residue_to_blow_up(tmp_path: Path) -> None:
    flat = [tiny.Seen(lambda digit, completion: 0.1), tiny.Seen(lambda digit, completion: 0.7)]
    options: dict[str, Any] = {"reward_weights": [0.3, 1.1], "scale_rewards": "group"}
    scaled = trained(tmp_path, Policy(Never(), Rounds(6), 4, advantage=GroupStd()), flat, **options)
    assert {row["advantage"] for row in tiny.rows(scaled)} == {0.0}
    left_out = trained(tmp_path, "rloo", flat, **options)
    assert max(abs(row["advantage"]) for row in tiny.rows(left_out)) < 1e-7


# Options.


def test_a_policy_comes_by_name_by_file_or_as_an_object(tmp_path: Path) -> None:
    policy = Policy(Balance(4), Rounds(4, 3), 4)
    file = tmp_path / "policy.toml"
    file.write_text(policy.to_toml(), encoding="utf-8")
    for given in (policy, file, str(file)):
        assert build(tmp_path, given).policy == policy
    assert build(tmp_path, "reinforce-ada-pos", num_generations=8).policy.n == 8


def test_an_empirical_bayes_sampler_learns_while_training_and_is_saved(tmp_path: Path) -> None:
    def run(checkpoint: str | None = None) -> Any:
        memory = PassRateMemory()
        sampler = EmpiricalBayes(Beta(1, 2), samples=2, max_samples=8, group_size=4, refit_every=1, memory=memory)
        options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 3}
        trainer = build(tmp_path, sampler, data=tiny.prompts(16), extra={"memory_key": "name"}, **options)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    whole = run()
    resumed = run(str(tmp_path / "checkpoint-3"))
    assert resumed.steps.steps == whole.steps.steps == 4
    assert tiny.logged(resumed, "ada/responses") == tiny.logged(whole, "ada/responses")
    assert resumed.losses == whole.losses[6:]
    assert len(resumed.steps.memory) == 16
    # The policy is that of the law as it was learned, and the same after the restart.
    assert resumed.policy == whole.policy != EmpiricalBayes(Beta(1, 2), samples=2, max_samples=8, group_size=4).policy


def test_a_shared_budget_may_leave_prompts_unsampled(tmp_path: Path) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, Policy.preset("mopps", group_size=4, wanted=2), seen)
    assert tiny.logged(trainer, "ada/responses") == [8, 8]
    assert tiny.logged(trainer, "ada/empty_rows") == [8, 8]
    assert len({row["digit"] for row in tiny.rows(trainer) if row["in_loss"]}) == 4


def test_a_prompt_that_stands_twice_is_remembered_once(tmp_path: Path) -> None:
    data = Dataset.from_dict(
        {"prompt": ["3 =", "3 =", "4 =", "4 ="], "digit": [3, 3, 4, 4], "name": ["a", "a", "b", "b"]}
    )
    memory = PassRateMemory()
    trainer = trained(
        tmp_path, "reinforce-ada-pos", data=data, max_steps=1, extra={"memory": memory, "memory_key": "name"}
    )
    assert memory.recall(["a", "b"]).visits.tolist() == [1, 1]
    history = memory.recall(["a", "b"])
    assert history.pos.sum() + history.neg.sum() == tiny.logged(trainer, "ada/responses")[0]


def tool(x: int) -> int:
    """Return x.

    Args:
        x: a number
    """
    return x


@pytest.mark.parametrize(
    ("policy", "extra", "options", "message"),
    [
        ("reinforce-ada-balanc", {}, {}, "did you mean 'reinforce-ada-balance'"),
        ("nowhere.toml", {}, {}, r"'nowhere\.toml' does not exist"),
        (3, {}, {}, "got 3"),
        (
            Policy.preset("reinforce-ada-pos", group_size=8),
            {},
            {},
            r"group_size = 8 .* GRPOConfig\(num_generations=8\)",
        ),
        ("bayes", {}, {}, "group_size = 32"),
        (Policy(Never(), Rounds(8), 4, group="all"), {}, {}, "up to 8 responses .* 'all'"),  # type: ignore[arg-type]
        ("reinforce-ada-pos", {"no_signal": "drop"}, {}, "unknown value 'drop' of no_signal"),
        ("reinforce-ada-pos", {"memory": PassRateMemory()}, {}, "got a memory and no memory_key"),
        ("reinforce-ada-pos", {"memory_key": "name"}, {}, "got a memory_key and no memory"),
        ("reinforce-ada-pos", {"memory": 1, "memory_key": "name"}, {}, "must be a PassRateMemory; got 1"),
        ("reinforce-ada-pos", {"memory": PassRateMemory(), "memory_key": "nam"}, {}, "did you mean 'name'"),
        ("reinforce-ada-pos", {"rollout_func": tool}, {}, "rollout_func = .* whole batch at once"),
        ("reinforce-ada-pos", {}, {"multi_objective_aggregation": "normalize_then_sum"}, "'normalize_then_sum' norm"),
        (
            EmpiricalBayes(group_size=4, max_samples=8),
            {"memory": PassRateMemory(), "memory_key": "name"},
            {},
            "a memory of its own",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_model_is_touched(
    tmp_path: Path, policy: Any, extra: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(tmp_path, policy, extra=extra, **options)


def test_images_in_messages_are_refused_on_every_rank_alike() -> None:
    text = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "1+1"}]}]}
    image = {"prompt": [{"role": "user", "content": [{"type": "image", "image": object()}]}]}
    check_text([text, {"prompt": "2+2"}])
    # Every rank looks at the prompts of all of them.
    with pytest.raises(InputError, match="prompt 1 holds some"):
        check_text([text, image])


def test_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'image'"):
        build(tmp_path, data=tiny.prompts().add_column("image", [None] * 8))


def test_a_memory_key_must_be_hashable(tmp_path: Path) -> None:
    extra = {"memory": PassRateMemory(), "memory_key": "prompt"}
    with pytest.raises(InputError, match=r"memory_key = 'prompt' .* got \[\{"):
        trained(tmp_path, data=tiny.prompts(chat=True), extra=extra)
    with pytest.raises(InputError, match="must return one value a response"):
        trained(tmp_path, extra={"correct_func": lambda rewards, inputs: [True]})


def test_a_batch_that_is_not_grouped_is_refused(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    batch = [{"prompt": f"{i} =", "digit": i} for i in (1, 1, 1, 2)] * 4
    trainer.model.train()
    with pytest.raises(InputError, match="row 3 differs from row 0"):
        trainer._generate_and_score_completions(batch)


def test_there_is_no_allocator_before_the_first_batch(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="no batch was sampled yet"):
        assert build(tmp_path).allocator


def test_infinite_rewards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rewards must be finite"):
        trained(tmp_path, reward_funcs=tiny.Seen(lambda digit, completion: math.inf))


@pytest.mark.parametrize("version", ["1.14.2", "1.17.0", "2.0.0", "1.17.0.dev0", "unknown"])
def test_another_version_of_trl_is_refused(version: str) -> None:
    with pytest.raises(TRLSurfaceError, match=rf"TRL 1\.15 to 1\.16; got {version}.*'trl>=1\.15,<1\.17'"):
        check_trl(version=version)
    check_trl(version="1.15.0")
    check_trl(version="1.16.3")


def test_what_a_changed_trl_lacks_is_named() -> None:
    class Changed(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        _tokenize_prompts = None

        def _generate_single_turn(self, prompt_ids: Any) -> Any:
            return prompt_ids

    with pytest.raises(TRLSurfaceError) as error:
        check_trl(Changed)
    assert "_tokenize_prompts()" in str(error.value)
    assert "parameter 'num_generations' of _generate_single_turn()" in str(error.value)
    assert "_calculate_rewards" not in str(error.value)


# The example.


@pytest.mark.skipif(trl_utils._ChunkedLogProbFunction is tiny.PlainHead, reason="TRL 1.15 trains on GPUs alone")
def test_the_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "examples" / "trl_adaptive.py"), "--steps", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ada/signal_fraction" in done.stdout
