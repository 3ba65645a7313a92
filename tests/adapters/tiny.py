"""A language model of two layers on digits, built on the spot, and a trainer that shows what its loss sees."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils as trl_utils

from ada_bandit.adapters.trl import AdaptiveGRPOTrainer

# Threads cost more than they bring on matrices of this size.
torch.set_num_threads(1)


class PlainHead:
    """What TRL 1.15 has in Triton alone, in torch: log-probabilities of the targets, and entropies."""

    @staticmethod
    def apply(
        hidden: Any,
        weight: Any,
        bias: Any,
        targets: Any,
        temperature: float,
        chunk: int,
        cap: Any,
        scale: float,
        *_: Any,
    ) -> tuple[Any, ...]:
        assert cap is None
        assert chunk > 0
        logits = torch.nn.functional.linear(hidden, weight, bias).float() * scale / temperature
        logs = logits.log_softmax(dim=-1)
        entropy = -(logs.exp() * logs).sum(dim=-1)
        return logs.gather(-1, targets[:, None])[:, 0], entropy, None, None, None


if getattr(trl_utils, "_ChunkedLogProbFunction", PlainHead) is None:
    trl_utils._ChunkedLogProbFunction = PlainHead

WORDS = ["<pad>", "<eos>", "<user>", "<assistant>", "=", *"0123456789"]
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    return made


def model(seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            tie_word_embeddings=False,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


def config(folder: Path, **options: Any) -> GRPOConfig:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 4,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "scale_rewards": "none",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": 3,
    }
    return GRPOConfig(**defaults | options)


def prompts(count: int = 8, *, chat: bool = False) -> Dataset:
    """Prompt k is the digit k: a response that starts with a smaller digit is right, about k times in 15."""
    digits = [i % 10 for i in range(count)]
    texts = [f"{digit} =" for digit in digits]
    return Dataset.from_dict(
        {
            "prompt": [[{"role": "user", "content": text}] for text in texts] if chat else texts,
            "digit": digits,
            "name": [f"prompt {i}" for i in range(count)],
        }
    )


def text_of(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def first_digit(completion: Any) -> int:
    word = (text_of(completion).split() or ["="])[0]
    return int(word) if word.isdigit() else 99


class Seen:
    """A reward function that writes down every response that it is shown."""

    __name__ = "smaller"

    def __init__(self, reward: Callable[[int, Any], float | None] | None = None) -> None:
        self.reward = reward or (lambda digit, completion: float(first_digit(completion) < digit))
        self.calls: list[list[tuple[int, str, tuple[int, ...], float | None]]] = []

    def __call__(self, completions: Any, completion_ids: Any, digit: list[int], **kwargs: Any) -> list[float | None]:
        values = [self.reward(d, c) for d, c in zip(digit, completions, strict=True)]
        shown = zip(digit, map(text_of, completions), map(tuple, completion_ids), values, strict=True)
        self.calls.append(list(shown))
        return values


class Capture:
    """Writes down what the loss reads, and what it returns."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        batch = {key: value.clone() if torch.is_tensor(value) else value for key, value in inputs.items()}
        self.__dict__.setdefault("batches", []).append(batch | {"training": self.model.training})  # type: ignore[attr-defined]
        self.__dict__.setdefault("losses", []).append(float(loss.detach()))
        return loss


class Adaptive(Capture, AdaptiveGRPOTrainer):
    pass


class Stock(Capture, GRPOTrainer):
    pass


def rows(trainer: Any, *, training: bool = True) -> list[dict[str, Any]]:
    """Return every row that the loss has seen: prompt's digit, tokens, advantage, and whether it is in the loss."""
    found = []
    for batch in trainer.batches:
        if batch["training"] is not training:
            continue
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        for i in range(len(batch["advantages"])):
            words = [WORDS[t] for t in batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()]
            found.append(
                {
                    "digit": next(int(word) for word in words if word.isdigit()),
                    "tokens": tuple(batch["completion_ids"][i][batch["completion_mask"][i].bool()].tolist()),
                    "advantage": float(batch["advantages"][i]),
                    "in_loss": bool(mask[i].any()),
                }
            )
    return found


def logged(trainer: Any, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def pools(calls: Iterable[Iterable[Any]]) -> dict[int, list[Any]]:
    """Return what a reward function saw of each prompt's digit."""
    found: dict[int, list[Any]] = defaultdict(list)
    for call in calls:
        for entry in call:
            found[entry[0]].append(entry)
    return found
