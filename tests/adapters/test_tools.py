"""Tools and environments under a policy: TRL's own loop rolls every response out once."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from tests.adapters import tiny

TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'tool' %}= {{ message['content'] }} "
    "{% elif message['role'] == 'assistant' %}<assistant> {{ message['content'] }} "
    "{% for call in message.get('tool_calls') or [] %}{{ call['function']['name'] }} "
    "{{ call['function']['arguments'] }} {% endfor %}{% else %}<user> {{ message['content'] }} {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class Calling(PreTrainedTokenizerFast):  # type: ignore[misc, unused-ignore]
    """Reads a response that starts with an even digit as a call of `lookup` with that digit."""

    def parse_response(self, ids: list[int], **kwargs: Any) -> dict[str, Any]:
        text = self.decode(ids, skip_special_tokens=True)
        first = (text.split() or ["="])[0]
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if first.isdigit() and int(first) % 2 == 0:
            call = {"name": "lookup", "arguments": {"x": int(first)}}
            message["tool_calls"] = [{"type": "function", "function": call}]
        return message


def tokenizer() -> Calling:
    plain = tiny.tokenizer()
    made = Calling(
        tokenizer_object=plain._tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    made.response_template = {"defaults": {"role": "assistant"}}  # that there is one is all TRL looks at
    return made


calls: list[int] = []


def lookup(x: int) -> str:
    """Return the digit after x.

    Args:
        x: a digit
    """
    calls.append(x)
    return str((x + 1) % 10)


class Seen(tiny.Seen):
    """Notes the whole of every rollout: a tool's digit smaller than the prompt's is right."""

    def __call__(self, completions: Any, completion_ids: Any, *args: Any, **kwargs: Any) -> list[float | None]:
        prompts = kwargs["prompts"]
        texts = [" ".join(str(message["content"]) for message in completion) for completion in completions]
        digits = [int(next(word for word in prompt[-1]["content"].split() if word.isdigit())) for prompt in prompts]
        tools = [sum(message["role"] == "tool" for message in completion) for completion in completions]
        values: list[float | None] = [float(used > 0 and digit > 4) for used, digit in zip(tools, digits, strict=True)]
        self.calls.append(list(zip(digits, texts, map(tuple, completion_ids), values, strict=True)))
        return values


def trained(folder: Path, policy: str, seen: Any, **keywords: Any) -> Any:
    data = keywords.pop("data", None)
    options = {"max_completion_length": 8, "max_tool_calling_iterations": 2} | keywords.pop("options", {})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*environment_factory.*")
        trainer = tiny.Adaptive(
            tiny.model(),
            seen,
            tiny.config(folder, **options),
            tiny.prompts(chat=True) if data is None else data,
            processing_class=tokenizer(),
            policy=policy,
            **keywords,
        )
    trainer.train()
    return trainer


def check_rows(trainer: Any, seen: tiny.Seen) -> None:
    pools = tiny.pools(seen.calls)
    for batch in trainer.batches:
        mask = batch["completion_mask"] * batch["tool_mask"]
        for i, advantage in enumerate(batch["advantages"].tolist()):
            words = [tiny.WORDS[t] for t in batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()]
            digit = int(next(word for word in words if word.isdigit()))
            if mask[i].any():
                tokens = tuple(batch["completion_ids"][i][batch["completion_mask"][i].bool()].tolist())
                rewards = {entry[2]: entry[3] for entry in pools[digit]}
                mean = np.mean([entry[3] for entry in pools[digit]])
                assert advantage == pytest.approx(rewards[tokens] - mean, abs=1e-6)


def test_every_response_calls_its_tools_once_and_keeps_the_mask(tmp_path: Path) -> None:
    calls.clear()
    seen = Seen()
    trainer = trained(tmp_path, "reinforce-ada-balance", seen, tools=[lookup])
    check_rows(trainer, seen)
    shown = [entry for call in seen.calls for entry in call]
    assert len(shown) == sum(tiny.logged(trainer, "ada/responses")) > 32
    assert len(calls) > 10
    # What a tool wrote is in the rows, and not in the loss.
    written = torch.cat([(b["completion_mask"] * (1 - b["tool_mask"])).sum(dim=1) for b in trainer.batches])
    assert (written > 0).any()
    frequency = tiny.logged(trainer, "tools/call_frequency")
    assert sum(f * n for f, n in zip(frequency, tiny.logged(trainer, "ada/responses"), strict=True)) == pytest.approx(
        len(calls)
    )
    assert max(tiny.logged(trainer, "ada/signal_fraction")) > 0
    lines = [json.loads(line) for line in (tmp_path / "ada_pools.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sum(len(line["rewards"]) for line in lines) == len(shown)


class Shop:
    """An environment that counts how often it is reset and scored."""

    resets: list[int] = []  # noqa: RUF012 - one counter for all instances
    scores: list[float] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.target, self.found = 0, 0

    def reset(self, digit: int, **kwargs: Any) -> str:
        self.resets.append(digit)
        self.target, self.found = digit, -1
        return f" {digit}"

    def lookup(self, x: int) -> str:
        """Return the digit after x.

        Args:
            x: a digit
        """
        self.found = x
        return str((x + 1) % 10)

    def get_reward(self) -> float:
        self.scores.append(float(0 <= self.found < self.target))
        return self.scores[-1]


@pytest.mark.parametrize("policy", ["reinforce-ada-balance", "grpo"])
def test_an_environment_is_scored_before_it_is_used_again(tmp_path: Path, policy: str) -> None:
    Shop.resets.clear()
    Shop.scores.clear()
    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": "="}]] * 8, "digit": list(range(8))})
    trainer = trained(tmp_path, policy, None, data=data, environment_factory=Shop)
    responses = int(sum(tiny.logged(trainer, "ada/responses")))
    assert len(Shop.scores) == responses
    # TRL prepares its own rows once a batch, under a policy for nothing but the prompts.
    assert len(Shop.resets) == responses + (32 if policy != "grpo" else 0)
    lines = [json.loads(line) for line in (tmp_path / "ada_pools.jsonl").read_text(encoding="utf-8").splitlines()]
    assert Counter(reward for line in lines for reward in line["rewards"]) == Counter(Shop.scores)
    assert len({line["prompt_id"] for line in lines}) == 8
    for batch in trainer.batches:
        for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True):
            # The observation stands in the prompt of every row.
            assert sum(tiny.WORDS[t].isdigit() for t in ids[mask.bool()].tolist()) == 1
    assert trainer.environments is None or len(trainer.environments) == 16
