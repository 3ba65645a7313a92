"""Models of some 100,000 parameters that learn problems in digits: a minute or a few on a core, no network.

Small enough for experiments on a CPU, and good enough for them: its pass rates are spread from
never to always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit.errors import check_count, check_number
from ada_bandit.programs.records import to_json
from ada_bandit.uniforms import Stream, fold_seed, uniform
from llm.digits import Families, digit_tokenizer, is_right, problem
from llm.models import new_directory
from llm.samplers.transformers import TransformersSampler

__all__ = ["make_tiny", "pass_rate"]

_CONTEXT = 64
_WARMUP = 20
_IGNORED = -100
_TRAINING, _TEST, _WEIGHTS = range(3)


def make_tiny(
    path: Path,
    *,
    steps: int = 350,
    seed: int = 0,
    batch: int = 256,
    learning_rate: float = 2e-3,
    width: int = 128,
    layers: int = 3,
    families: Families | None = None,
    report: Callable[[int, float], None] | None = None,
) -> float:
    """Train the model on problems of `llm.digits` with their answers, and write its directory.

    Parameters
    ----------
    path
        Directory to make.
    steps
        Updates; each sees `batch` new problems.
    seed
        Seed of the first weights and of the problems.
    batch
        Problems of an update.
    learning_rate
        AdamW's step size, after 20 steps of warm-up.
    width, layers
        Size of the model.
    families
        Kinds of problems, as in `llm.digits.problem`.
    report
        Called after each update with its number, from 1, and its loss.

    Returns
    -------
    float
        Pass rate on 256 problems that weren't trained on, one response each at temperature 1.

    Raises
    ------
    InputError
        If an argument can't be used, or the directory is there already.
    """
    check_count("steps", steps)
    check_number("learning_rate", learning_rate, 0, strict=True)
    import torch
    import transformers

    chosen = Families() if families is None else families
    with new_directory(path) as folder:
        tokenizer = digit_tokenizer()
        context = max(_CONTEXT, chosen.longest)
        model = _new_model(tokenizer, fold_seed(seed, _WEIGHTS), check_count("width", width), layers, context)
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
        model.train()
        batches = _batches(tokenizer, fold_seed(seed, _TRAINING), steps, batch, chosen)
        for step, (ids, mask, labels) in enumerate(batches, 1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * min(1.0, step / _WARMUP)
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if report is not None:
                report(step, float(loss.detach()))
        rate = pass_rate(model.eval(), tokenizer, fold_seed(seed, _TEST), families=chosen)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made = {
            "steps": steps,
            "seed": seed,
            "batch": batch,
            "learning_rate": learning_rate,
            "families": asdict(chosen),
            "parameters": sum(each.numel() for each in model.parameters()),
            "pass_rate": rate,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        (folder / "made.json").write_text(to_json(made), encoding="utf-8")
    return rate


def pass_rate(model: Any, tokenizer: Any, seed: int, prompts: int = 256, families: Families | None = None) -> float:
    """Return the share of right answers to new problems, one response each at temperature 1."""
    problems = [problem(seed, i, families) for i in range(prompts)]
    # A response longer than a worked one is wrong.
    longest = max(8, *(len(each.worked) + 1 for each in problems))
    sampler = TransformersSampler(model, tokenizer, max_new_tokens=longest, batch_size=prompts)
    ids = np.stack([np.arange(prompts), np.zeros(prompts, dtype=np.int64)], axis=1)
    responses = sampler.generate([tokenizer(each.text)["input_ids"] for each in problems], ids, seed)
    right = [
        response.finish == "stop" and is_right(each.family, each.answer, response.text)
        for response, each in zip(responses, problems, strict=True)
    ]
    return float(np.mean(right))


def _new_model(tokenizer: Any, seed: int, width: int, layers: int, context: int = _CONTEXT) -> Any:
    """Return a Qwen2 with random weights, which no global generator has a part in."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    # Attention on a CPU in vLLM needs heads of 32 channels or more.
    heads = max(width // 32, 1)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        return Qwen2ForCausalLM(config)


def _batches(
    tokenizer: Any, seed: int, steps: int, size: int, families: Families | None = None
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield token ids, attention mask and labels of new problems, ``[problem, position]`` each.

    Problems of all steps begin at a place that the seed draws, so that no two models see the same.
    """
    import torch

    first = int(float(uniform(seed, Stream.REWARDS, 0, 0)) * 2**40)
    for step in range(steps):
        rows = []
        for i in range(size):
            made = problem(seed, first + step * size + i, families)
            asked = tokenizer.convert_tokens_to_ids(list(made.text))
            rows.append((asked, [*tokenizer.convert_tokens_to_ids(list(made.worked)), tokenizer.eos_token_id]))
        longest = max(len(asked) + len(told) for asked, told in rows)
        ids = np.full((size, longest), tokenizer.pad_token_id, dtype=np.int64)
        labels = np.full_like(ids, _IGNORED)
        mask = np.zeros_like(ids)
        for i, (asked, told) in enumerate(rows):
            end = len(asked) + len(told)
            ids[i, :end] = asked + told
            # The model answers; it isn't taught to ask.
            labels[i, len(asked) : end] = told
            mask[i, :end] = 1
        yield torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(labels)
