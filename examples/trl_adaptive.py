"""Adaptive rollouts in TRL's GRPO, on a CPU in under a minute: `python examples/trl_adaptive.py`.

A two-layer model on characters is built here, learns sums of reasoning-gym by heart for a few
seconds, and is then trained with `AdaptiveGRPOTrainer`. Needs ``pip install -e '.[trl]' reasoning-gym``.
"""

import argparse
import os
import string
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import reasoning_gym
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from ada_bandit.adapters.trl import AdaptiveGRPOTrainer

METRICS = ("pool_reward", "selected_reward", "responses", "tokens", "rounds", "signal_fraction")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a character."""
    words = {word: i for i, word in enumerate(["<pad>", "<eos>", *string.printable])}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", padding_side="left", model_max_length=128
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Return a model of two layers with random weights."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def warm_up(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, task: Dataset, steps: int) -> None:
    """Teach the answers for a while, so that some prompts are easy, some are hard, and most lie between."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        rows = task.shuffle(seed=step).select(range(64))
        texts = [row["prompt"] + row["answer"] + "<eos>" for row in rows]
        batch = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
        # The answer is what follows "=", three characters from the right at the most.
        labels = batch["input_ids"].where(batch["attention_mask"].bool(), -100)
        labels[:, :-3] = -100
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    """Train, and print what the policy did at each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="reinforce-ada-balance", help="a preset, or a TOML file")
    parser.add_argument("--steps", type=int, default=8, help="optimiser steps")
    options = parser.parse_args()

    torch.set_num_threads(1)  # more of them cost more than they bring on matrices of this size
    torch.manual_seed(0)
    sums = reasoning_gym.create_dataset("chain_sum", size=512, seed=0, max_terms=2, max_digits=1)
    rows = [
        {"prompt": entry["question"].split(": ")[1], "answer": entry["answer"], "index": i}
        for i, entry in enumerate(sums)
    ]
    task = Dataset.from_list(rows)

    def right(completions: list[str], index: list[int], **_: object) -> list[float]:
        # Others than the exact answer may get part of the score; only the whole one counts here.
        scores = [sums.score_answer(text.strip(), sums[i]) for text, i in zip(completions, index, strict=True)]
        return [float(score == 1.0) for score in scores]

    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    warm_up(model, tokenizer, task, steps=100)

    with tempfile.TemporaryDirectory() as folder:
        trainer = AdaptiveGRPOTrainer(
            model,
            right,
            GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=64,
                num_generations=4,
                max_completion_length=3,
                max_steps=options.steps,
                learning_rate=1e-3,
                loss_type="dapo",
                scale_rewards="none",
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
            ),
            task,
            processing_class=tokenizer,
            policy=options.policy,
        )
        trainer.train()

    print("step", *(f"{'ada/' + name:>20}" for name in METRICS))
    for entry in trainer.state.log_history:
        if "ada/responses" in entry:
            print(f"{entry['step']:>4}", *(f"{entry['ada/' + name]:>20.3f}" for name in METRICS))
    print(trainer.allocator.summary())


if __name__ == "__main__":
    main()
