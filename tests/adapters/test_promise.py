"""What is trained is what the policy promised: silent groups, masked and missing responses, denominators, metrics."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen2ForSequenceClassification

from ada_bandit import EmpiricalBayes, Never, Policy, Positive, Quota, Rounds
from ada_bandit.adapters._pool_log import PoolLog
from ada_bandit.adapters.trl import AdaptiveGRPOTrainer
from ada_bandit.adapters.trl.pools import pool_lines
from ada_bandit.allocator import UnscoredError
from ada_bandit.errors import InputError
from ada_bandit.policy import Blend
from tests.adapters import tiny


def trained(
    folder: Path, policy: Any, reward: Any, *, keywords: dict[str, Any] | None = None, data: Any = None, **options: Any
) -> Any:
    trainer = tiny.Adaptive(
        tiny.model(),
        reward if isinstance(reward, (list, tiny.Seen, torch.nn.Module)) else tiny.Seen(reward),
        tiny.config(folder, **options),
        tiny.prompts() if data is None else data,
        processing_class=tiny.tokenizer(),
        policy=policy,
        **keywords or {},
    )
    trainer.train()
    return trainer


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("ada_bandit")]


def shaped(digit: int, completion: Any) -> float:
    """All of them below the threshold, and none like another."""
    return 0.03 * (tiny.first_digit(completion) % 10) - 0.01 * digit


# 1. No signal means no gradient.


@pytest.mark.parametrize("policy", ["reinforce-ada-balance", "reinforce-ada-pos", "grpo", "dapo:wanted=4"])
def test_by_default_shaped_rewards_of_one_class_train_nothing(tmp_path: Path, policy: str) -> None:
    trainer = trained(tmp_path, policy, shaped)
    assert [row["advantage"] for row in tiny.rows(trainer)] == [0.0] * 32
    assert trainer.losses == [0.0] * 4
    left_out = 4.0 if policy.startswith("dapo") else 0.0
    for key, value in {"silent": 4, "left_out": left_out, "masked": 4 - left_out, "signal_fraction": 0}.items():
        assert tiny.logged(trainer, f"ada/{key}") == [value, value]


@pytest.mark.parametrize("policy", ["reinforce-ada-balance", "grpo"])
def test_a_policy_may_say_that_such_groups_are_trained_on(tmp_path: Path, policy: str) -> None:
    trainer = trained(tmp_path, policy, shaped, keywords={"no_signal": "keep"})
    assert sum(row["advantage"] != 0 for row in tiny.rows(trainer)) > 24
    assert tiny.logged(trainer, "ada/silent") == [4, 4]
    assert tiny.logged(trainer, "ada/masked") == tiny.logged(trainer, "ada/left_out") == [0, 0]


# 2. What will be masked has no vote.


@pytest.mark.parametrize("policy", ["grpo", "reinforce-ada-balance"])
def test_a_truncated_response_has_no_vote_where_it_is_masked(tmp_path: Path, policy: str) -> None:
    seen = tiny.Seen()
    trainer = trained(tmp_path, policy, seen, mask_truncated_completions=True, max_completion_length=2)
    pools = {digit: [e for e in pool if e[2][-1] in (0, 1)] for digit, pool in tiny.pools(seen.calls).items()}
    rows = [row for row in tiny.rows(trainer) if row["in_loss"]]
    assert len(rows) > 0
    assert all(row["tokens"][-1] in (0, 1) for row in rows)
    both = {digit for digit, pool in pools.items() if len({e[3] for e in pool}) == 2}
    assert np.mean(tiny.logged(trainer, "ada/signal_fraction")) == len(both) / 8
    for row in rows:
        mean = np.mean([e[3] for e in pools[row["digit"]]])
        reward = next(e[3] for e in pools[row["digit"]] if e[2] == row["tokens"])
        assert row["advantage"] == pytest.approx(reward - mean if row["digit"] in both else 0, abs=1e-6)
    cut = sum(e[2][-1] not in (0, 1) for call in seen.calls for e in call)
    assert sum(tiny.logged(trainer, "ada/unscored")) == cut > 0


def test_a_group_with_both_classes_is_whole_after_the_mask(tmp_path: Path) -> None:
    trainer = trained(tmp_path, "reinforce-ada-balance", tiny.Seen(), mask_truncated_completions=True)
    groups = trainer.allocator.groups()
    whole = Counter(row["digit"] for row in tiny.rows(trainer)[16:] if row["in_loss"])
    assert sorted(whole.values()) == sorted(groups.mask.sum(axis=1)[groups.mask.any(axis=1)].tolist())


# 3. Missing scores.


class Down(tiny.Seen):
    """A verifier that fails on every response but each `works`-th."""

    def __init__(self, works: int) -> None:
        super().__init__()
        self.works, self.count = works, 0

    def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
        values = super().__call__(*args, **kwargs)
        for i in range(len(values)):
            self.count += 1
            values[i] = values[i] if self.works and self.count % self.works == 0 else None
        return values


@pytest.mark.parametrize("policy", ["grpo", "reinforce-ada-balance", "reinforce-ada-pos"])
def test_a_verifier_that_is_down_is_told_and_can_stop_the_run(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnscoredError, match=r"have no score \(100 %\)"):
        trained(tmp_path, policy, Down(0), keywords={"max_unscored": 0.5})
    assert not warnings_of(caplog)
    trainer = trained(tmp_path, policy, Down(0))
    assert sum("have no score (100 %)" in each for each in warnings_of(caplog)) == 2
    assert tiny.logged(trainer, "ada/unscored_fraction") == [1, 1]
    assert trainer.losses == [0.0] * 4


def test_lost_responses_are_replaced_where_the_budget_says_so(tmp_path: Path) -> None:
    class Rarely(tiny.Seen):
        def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
            values = super().__call__(*args, **kwargs)
            if len(values) == 16:
                values[0] = values[5] = None
            return values

    plain, replaced = (trained(tmp_path, policy, Rarely()) for policy in ("grpo", "grpo:replace=0.25"))
    assert tiny.logged(plain, "ada/empty_rows") == [2, 2]
    assert tiny.logged(replaced, "ada/empty_rows") == [0, 0]
    assert tiny.logged(replaced, "ada/replaced") == [2, 2]
    assert tiny.logged(replaced, "ada/responses") == [18, 18]
    assert Counter(row["digit"] for row in tiny.rows(replaced) if row["in_loss"]) == dict.fromkeys(range(8), 4)
    assert sorted(Counter(row["digit"] for row in tiny.rows(plain) if row["in_loss"]).values()) == [3] * 4 + [4] * 4


# 4. What was never sampled is no failure.


def test_prompts_that_were_not_sampled_are_no_failures(tmp_path: Path) -> None:
    count = iter(range(1000))
    trainer = trained(tmp_path, "dapo:wanted=1", lambda digit, completion: float(next(count) % 2))
    for key, value in {"unsampled": 3, "signal_fraction": 1, "responses": 4, "left_out": 0, "empty_rows": 12}.items():
        assert tiny.logged(trainer, f"ada/{key}") == [value, value]


# Denominators.


def expected_loss(trainer: Any, loss: str, rows: list[dict[str, Any]], kept: int) -> float:
    """At ratios of 1 a token of a row loses its advantage: what remains is the denominator."""
    in_loss = [row for row in rows if row["in_loss"]]
    tokens = sum(len(row["tokens"]) for row in in_loss)
    by_token = -sum(row["advantage"] * len(row["tokens"]) for row in in_loss)
    by_row = -sum(row["advantage"] for row in in_loss)
    if loss == "bnpo":
        halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
        return sum(expected_loss(trainer, "dapo", half, kept) for half in halves) / 2
    if loss == "sapo":
        args = trainer.args
        temperature = {True: args.sapo_temperature_pos, False: args.sapo_temperature_neg}
        by_row = -sum(2 / temperature[row["advantage"] > 0] * row["advantage"] for row in in_loss)
    losses: dict[str, float] = {
        "dapo": by_token / max(tokens, 1),
        "grpo": by_row / max(kept, 1),
        "sapo": by_row / max(kept, 1),
        "dr_grpo": by_token / (max(kept, 1) * trainer.max_completion_length),
        "luspo": by_token / max(kept, 1),
    }
    return losses[loss]


LOSSES = ("dapo", "bnpo", "grpo", "sapo", "dr_grpo", "luspo")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("policy", ["reinforce-ada-balance", "grpo", "rloo", "dapo:wanted=3"])
def test_rows_that_are_left_out_are_in_no_denominator(tmp_path: Path, loss: str, policy: str) -> None:
    def some(digit: int, completion: Any) -> float | None:
        first = tiny.first_digit(completion)
        return None if first == 3 else float(first < digit and digit > 2)

    level = "sequence" if loss == "luspo" else "token"
    trainer = trained(
        tmp_path,
        policy,
        some,
        keywords={"no_signal": "leave_out"},
        max_steps=1,
        loss_type=loss,
        importance_sampling_level=level,
        scale_rewards="group" if policy == "grpo" else "none",
    )
    rows, groups = tiny.rows(trainer), trainer.allocator.groups()
    kept = int(groups.mask.sum())
    assert sum(row["in_loss"] for row in rows) == kept
    assert 0 < kept < 16
    assert sum(trainer.losses) == pytest.approx(expected_loss(trainer, loss, rows, kept), abs=1e-6)
    assert any(trainer.losses)


@pytest.mark.parametrize("loss", ["grpo", "sapo", "dr_grpo", "luspo"])
def test_a_mean_over_rows_is_that_of_the_kept_rows_alone_with_kl_and_entropy(tmp_path: Path, loss: str) -> None:
    tiny.model().save_pretrained(tmp_path / "model")
    trainer = tiny.Adaptive(
        str(tmp_path / "model"),
        tiny.Seen(lambda digit, completion: float(tiny.first_digit(completion) < digit and digit > 3)),
        tiny.config(tmp_path, loss_type=loss, beta=0.5, entropy_coef=0.1, learning_rate=0.05),
        tiny.prompts(),
        processing_class=tiny.tokenizer(),
        policy="rloo",
        no_signal="leave_out",
    )
    trainer.train()
    assert trainer.beta == 0.5
    in_loss = [(each["completion_mask"] * each["tool_mask"]).any(dim=1) for each in trainer.batches]
    batch, stays = next((b, rows) for b, rows in zip(trainer.batches, in_loss, strict=True) if 0 < rows.sum() < 8)
    part = {
        key: value[stays] if torch.is_tensor(value) and value.ndim and len(value) == 8 else value
        for key, value in batch.items()
        if key != "ada_scale"
    }
    scale = torch.tensor(8 / float(stays.sum()))
    whole, alone = (
        trainer._compute_loss(trainer.model, each).detach() for each in (batch | {"ada_scale": scale}, part)
    )
    assert float(alone) == pytest.approx(float(whole), rel=1e-5)
    unscaled = trainer._compute_loss(trainer.model, {k: v for k, v in batch.items() if k != "ada_scale"}).detach()
    assert abs(float(unscaled) - float(whole)) > 1e-3


# The promise, over policies, rewards, masks and missing scores.

POLICIES = {
    "balance": "reinforce-ada-balance",
    "pos": "reinforce-ada-pos",
    "grpo": "grpo",
    "rloo": "rloo",
    "one at a time": Policy(Quota(1, 1), Rounds(1, 9), 4),
    "dapo": "dapo:wanted=2",
    "mopps": "mopps:wanted=2,group_size=4",
    "replace": "grpo:replace=0.5",
    "pods": "pods:samples=8",
}
REWARDS: dict[str, Callable[[int, int], float]] = {
    "binary": lambda digit, first: float(first < digit),
    "shaped": lambda digit, first: 0.1 * (first % 10) + 0.01 * digit,
    "all wrong": lambda digit, first: -0.5 * (first % 2),
    "all right": lambda digit, first: 1.0 + 0.5 * (first % 2),
}


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    shape=st.sampled_from(sorted(REWARDS)),
    missing=st.sampled_from([0, 3, 1]),
    truncated=st.booleans(),
    no_signal=st.sampled_from(["mask", "leave_out", "keep"]),
    loss=st.sampled_from(LOSSES),
)
def test_the_loss_holds_what_the_policy_keeps_and_the_metrics_say_so(
    tmp_path: Path, policy: str, shape: str, missing: int, truncated: bool, no_signal: Any, loss: str
) -> None:
    def reward(digit: int, completion: Any) -> float | None:
        first = tiny.first_digit(completion)
        return None if missing and first % missing == 0 else REWARDS[shape](digit, first)

    seen = tiny.Seen(reward)
    trainer = trained(
        tmp_path,
        POLICIES[policy],
        seen,
        keywords={"no_signal": no_signal, "pool_log": False},
        max_steps=1,
        mask_truncated_completions=truncated,
        loss_type=loss,
    )
    rows = tiny.rows(trainer)
    metrics = {
        key: tiny.logged(trainer, f"ada/{key}")[0] for key in ("signal_fraction", "silent", "masked", "left_out")
    }
    exact = policy == "grpo" and no_signal == "keep"  # TRL's own training, to the bit
    pools = {
        digit: [e for e in pool if e[3] is not None and not (truncated and e[2][-1] not in (0, 1))]
        for digit, pool in tiny.pools(seen.calls).items()
    }
    silent, signal = 0, 0
    for digit, pool in pools.items():
        mine = [row for row in rows if row["digit"] == digit and row["in_loss"]]
        rewards = [next((e[3] for e in pool if e[2] == row["tokens"]), None) for row in mine]
        if not exact:
            # Not kept: without a score, truncated, or more than the group takes.
            assert None not in rewards
            assert not Counter(row["tokens"] for row in mine) - Counter(e[2] for e in pool)
        classes = {reward > 0.5 for reward in rewards if reward is not None}
        signal += len(classes) == 2
        # The mean of no other response is 0, so a group of one has an advantage under leave-one-out.
        quiet = len(classes) < 2 and not (policy == "rloo" and len(pool) == 1 and classes == {True})
        if quiet and no_signal != "keep":
            assert not any(row["advantage"] for row in mine)
            assert not (mine and no_signal == "leave_out")
        silent += quiet
    if not exact:
        assert not [row for row in rows if row["digit"] not in pools and row["in_loss"]]
        kept = sum(row["in_loss"] for row in rows)
        assert sum(trainer.losses) == pytest.approx(expected_loss(trainer, loss, rows, kept), abs=1e-5)
        assert tiny.logged(trainer, "ada/empty_rows") == [16 - kept]
    assert metrics["signal_fraction"] == pytest.approx(signal / len(pools))
    assert metrics["silent"] == silent
    assert metrics["masked"] == (silent if no_signal == "mask" else 0)
    assert metrics["left_out"] == (silent if no_signal == "leave_out" else 0)


# 8. Edges.


@pytest.mark.parametrize("mode", ["server", "colocate"])
def test_a_seed_of_generation_is_refused(tmp_path: Path, mode: str) -> None:
    options: dict[str, Any] = {"generation_kwargs": {"seed": 5}, "use_vllm": True, "vllm_mode": mode}
    with pytest.raises(InputError, match=r"seed = 5: .* all responses of a prompt would be the same"):
        trained(tmp_path, "reinforce-ada-balance", tiny.Seen(), **options)


def test_several_rewards_without_a_correctness_function_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two = [tiny.Seen(), tiny.Seen(lambda digit, completion: 1.0)]
    trained(tmp_path, "reinforce-ada-balance", two, max_steps=1)
    assert any("1 x smaller + 1 x smaller > 0.5" in each and "correct_func" in each for each in warnings_of(caplog))
    caplog.clear()
    keywords = {"correct_func": lambda rewards, rows: rewards[:, 0] > 0.5}
    trained(tmp_path, "reinforce-ada-balance", two, keywords=keywords, max_steps=1)
    assert not warnings_of(caplog)


def test_a_threshold_that_nothing_passes_is_doubted_after_five_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    half = tiny.Seen(lambda digit, completion: 0.5 * (tiny.first_digit(completion) < digit))
    with caplog.at_level(logging.INFO, logger="ada_bandit"):
        trainer = trained(tmp_path, "grpo", half, max_steps=7, num_train_epochs=9)
    told = [each for each in warnings_of(caplog) if "threshold 0.5 in 5 steps" in each]
    assert len(told) == 1
    assert "largest of the last one is 0.5" in told[0]
    assert any("correct where its reward exceeds 0.5" in each for each in warnings_of(caplog))
    assert tiny.logged(trainer, "ada/threshold")[0] == 0.5


def test_pools_shorter_than_a_group_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"num_generations": 16, "max_steps": 1}
    always = tiny.Seen(lambda digit, completion: float(tiny.first_digit(completion) % 2))
    trainer = trained(tmp_path, "reinforce-ada-pos", always, **options)
    (told,) = warnings_of(caplog)
    assert "may exit with 8 responses" in told
    assert "samples=16 in place of 8" in told
    assert tiny.logged(trainer, "ada/empty_rows") == [8]
    caplog.clear()
    full = trained(tmp_path, "reinforce-ada-pos:samples=16,group_size=16", always, **options)
    assert not warnings_of(caplog)
    assert tiny.logged(full, "ada/empty_rows") == [0]


def test_metrics_of_reward_functions_are_means_over_responses(tmp_path: Path) -> None:
    class Share(tiny.Seen):
        def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
            values = super().__call__(*args, **kwargs)
            kwargs["log_metric"]("share", float(np.mean([value or 0.0 for value in values])))
            return values

    seen = Share()
    trainer = trained(tmp_path, "reinforce-ada-balance", seen, max_steps=1)
    sizes = {len(call) for call in seen.calls}
    assert len(sizes) > 1
    expected = np.mean([entry[3] for call in seen.calls for entry in call])
    assert tiny.logged(trainer, "share") == [pytest.approx(expected)]


def test_completion_lengths_leave_empty_rows_out(tmp_path: Path) -> None:
    trainer = trained(tmp_path, "mopps:wanted=2,group_size=4", tiny.Seen(), max_steps=1)
    lengths = [len(row["tokens"]) for row in tiny.rows(trainer) if row["in_loss"]]
    ended = [len(row["tokens"]) for row in tiny.rows(trainer) if row["in_loss"] and row["tokens"][-1] in (0, 1)]
    assert len(lengths) == 8
    for name, value in {
        "mean_length": np.mean(lengths),
        "min_length": min(lengths),
        "max_length": max(lengths),
        "clipped_ratio": 1 - len(ended) / 8,
        "mean_terminated_length": np.mean(ended) if ended else 0,
    }.items():
        assert tiny.logged(trainer, f"completions/{name}") == [pytest.approx(value)]


class Judge(Qwen2ForSequenceClassification):  # type: ignore[misc, unused-ignore]
    """A reward model that counts the rows of each call."""

    calls: list[int] = []  # noqa: RUF012 - one of them is made at a time

    def forward(self, input_ids: Any = None, **kwargs: Any) -> Any:
        self.calls.append(len(input_ids))
        return super().forward(input_ids=input_ids, **kwargs)


@pytest.mark.parametrize(("rows", "largest"), [(None, 16), (4, 4)])
def test_a_reward_model_scores_as_many_rows_at_once_as_are_generated(
    tmp_path: Path, rows: int | None, largest: int
) -> None:
    torch.manual_seed(0)
    judge = Judge(
        Qwen2Config(
            vocab_size=len(tiny.WORDS),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            num_labels=1,
            pad_token_id=0,
        )
    )
    judge.config._name_or_path = "judge"
    Judge.calls.clear()
    trainer = trained(
        tmp_path,
        "reinforce-ada-balance",
        judge,
        keywords={"reward_processing_classes": tiny.tokenizer(), "rows_at_once": rows},
        max_steps=1,
    )
    assert max(Judge.calls) == largest
    assert sum(Judge.calls) == tiny.logged(trainer, "ada/responses")[0] > 16


@pytest.mark.parametrize("policy", ["reinforce-ada-balance", "grpo"])
def test_two_reward_functions_may_log_one_column(tmp_path: Path, policy: str) -> None:
    def function(name: str) -> Any:
        def noted(prompts: Any, completions: Any, log_extra: Any, **kwargs: Any) -> list[float]:
            log_extra("note", [f"{name} {completion}" for completion in completions])
            return [float(tiny.first_digit(completion) < 5) for completion in completions]

        noted.__name__ = name
        return noted

    trained(
        tmp_path, policy, [function("a"), function("b")], max_steps=1, log_completions=True, num_completions_to_print=0
    )
    file = str(tmp_path / "completions" / "completions_00001.parquet")
    table = Dataset.from_parquet(file, cache_dir=str(tmp_path / "cache")).to_dict()
    assert table["note"] == [f"a {text}" for text in table["completion"]]
    assert table["note_2"] == [f"b {text}" for text in table["completion"]]


@pytest.mark.parametrize("policy", ["bayes", "speed", "pilot-commit", "gvm", "cures", "knapsack", "reinforce-ada-est"])
def test_a_preset_without_a_group_size_is_not_told_to_set_it(tmp_path: Path, policy: str) -> None:
    with pytest.raises(InputError, match=r"GRPOConfig\(num_generations=") as error:
        trained(tmp_path, policy, tiny.Seen())
    assert "group_size=4" not in str(error.value).partition("set GRPOConfig")[2]


def test_a_trainer_without_init_has_what_the_methods_look_at() -> None:
    trainer = object.__new__(AdaptiveGRPOTrainer)
    assert trainer._ada_step is None
    assert trainer.max_unscored is None
    assert trainer.correct_func is None


def test_what_becomes_of_silent_groups_can_be_said_of_blends_and_of_learned_policies(tmp_path: Path) -> None:
    low, high = (Policy(Positive(count), Rounds(4, 2), 4) for count in (1, 2))
    blend = Blend(low, high, weight=0.5)
    trainer = trained(tmp_path, blend, shaped, keywords={"no_signal": "leave_out"})
    assert tiny.logged(trainer, "ada/left_out") == [4, 4]
    assert trainer.policy.parts[1][1].no_signal == "leave_out"
    trainer = trained(tmp_path, "empirical-bayes:max_samples=8", shaped, keywords={"no_signal": "keep"})
    assert trainer.policy.no_signal == "keep"
    with pytest.raises(InputError, match="can't be told to a EmpiricalBayes that is made; make it with that"):
        trained(tmp_path, EmpiricalBayes(max_samples=8), shaped, keywords={"no_signal": "keep"})


def test_rewards_that_trl_normalises_one_by_one_are_left_to_trl_or_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"multi_objective_aggregation": "normalize_then_sum"}
    with pytest.raises(InputError, match="use no_signal='keep', which leaves everything to TRL"):
        trained(tmp_path, "grpo", shaped, **options)
    trainer = trained(tmp_path, "grpo", shaped, keywords={"no_signal": "keep"}, **options)
    assert any(row["advantage"] for row in tiny.rows(trainer))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"max_unscored": 2}, "max_unscored must be a share in"),
        ({"max_unscored": "half"}, "max_unscored must be a share in"),
        ({"rows_at_once": 0}, "rows_at_once must be a whole number"),
    ],
)
def test_options_of_the_adapter_are_checked(tmp_path: Path, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(tmp_path, "grpo", tiny.Seen(), keywords=keywords)


# The log of pools.


@pytest.mark.parametrize("policy", ["grpo", "reinforce-ada-balance"])
def test_the_pool_log_holds_every_response(tmp_path: Path, policy: str) -> None:
    def reward(digit: int, completion: Any) -> float | None:
        first = tiny.first_digit(completion)
        return None if first == 9 else float(first < digit)

    seen = tiny.Seen(reward)
    trainer = trained(tmp_path, policy, seen)
    lines = [json.loads(line) for line in (tmp_path / "ada_pools.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [0] * 4 + [1] * 4
    assert len({line["prompt_id"] for line in lines}) == 8
    assert {line["policy"] for line in lines} == {policy}
    pools = tiny.pools(seen.calls)
    found = Counter((tuple(line["rewards"]), tuple(line["tokens"]), tuple(line["truncated"])) for line in lines)
    assert found == Counter(
        (tuple(e[3] for e in pool), tuple(len(e[2]) for e in pool), tuple(e[2][-1] not in (0, 1) for e in pool))
        for pool in pools.values()
    )
    assert sum(sum(line["tokens"]) for line in lines) == sum(tiny.logged(trainer, "ada/tokens"))
    for line in lines:
        assert line["correct"] == [None if reward is None else reward > 0.5 for reward in line["rewards"]]
        assert not any(kept and reward is None for kept, reward in zip(line["kept"], line["rewards"], strict=True))
    rows = 32 - sum(tiny.logged(trainer, "ada/empty_rows"))
    assert sum(sum(line["kept"]) for line in lines) == rows


def test_the_pool_log_is_off_by_one_option_and_names_prompts_by_their_key(tmp_path: Path) -> None:
    trained(tmp_path, "grpo", tiny.Seen(), keywords={"pool_log": False})
    assert not (tmp_path / "ada_pools.jsonl").exists()
    from ada_bandit import PassRateMemory

    keywords = {"memory": PassRateMemory(), "memory_key": "name"}
    trained(tmp_path, "reinforce-ada-pos", tiny.Seen(), keywords=keywords)
    lines = [json.loads(line) for line in (tmp_path / "ada_pools.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["prompt_id"] for line in lines} == {f"prompt {i}" for i in range(8)}


def test_a_resumed_run_replaces_what_it_writes_again(tmp_path: Path) -> None:
    file = tmp_path / "ada_pools.jsonl"
    file.write_text('{"step": 0, "prompt_id": "a"}\n{"step": 2, "prompt_id": "a"}\n{"step": 1, "pro', encoding="utf-8")
    log = PoolLog(file)
    one = np.ones(1)
    none = np.zeros(1, dtype=np.bool_)
    first = np.zeros(1, dtype=np.int64)
    log.write(list(pool_lines(1, ["b"], "grpo", first, one, ~none, one.astype(np.int64), none, none)))
    assert log.replaced == 2
    assert [json.loads(line)["step"] for line in file.read_text(encoding="utf-8").splitlines()] == [0, 1]
    assert log.replaced == 2


def test_lines_without_a_score_hold_null(tmp_path: Path) -> None:
    trained(tmp_path, Policy(Positive(1), Rounds(4), 4), lambda digit, completion: math.nan, max_steps=1)
    lines = [json.loads(line) for line in (tmp_path / "ada_pools.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {tuple(line["rewards"]) for line in lines} == {(None,) * 4}
    assert {tuple(line["correct"]) for line in lines} == {(None,) * 4}
    trained(tmp_path, Policy(Never(), Rounds(4), 4), lambda digit, completion: 1.0, max_steps=1)
