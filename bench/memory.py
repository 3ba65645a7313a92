"""Peak memory of the trainer's update, each in a process of its own: flat in the number of rows."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["update_memory"]

TOKENS, VOCABULARY = 1536, 16384
"""Tokens of a response, and of the vocabulary: the shape at which TRL 1.7 was measured at 2.4 GB with 8 rows."""

# Grows by what an update takes beyond libraries and weights. A small hidden state lets the logits dominate.
_UPDATE = r"""
import re, sys, time
from pathlib import Path
import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from llm.config import RunConfig
from llm.distributed import World
from llm.types import KeptResponse, Response
from llm.update import Update

rows, tokens, vocabulary, plain = (int(each) for each in sys.argv[1:])
torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=vocabulary, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, max_position_embeddings=2 * tokens, tie_word_embeddings=True,
)
model = Qwen2ForCausalLM(config)
table = {
    "model": {"path": "unused"},
    "task": {"kind": "digits"},
    "train": {"prompts": rows, "mini_batch": rows} | ({"head_tile": 2**62} if plain else {}),
}
update = Update(model, RunConfig.model_validate(table), 0, "cpu", World())
random = np.random.default_rng(0)
made = [Response(random.integers(0, vocabulary, tokens), -np.ones(tokens), "", "stop") for _ in range(rows)]
kept = [KeptResponse(i, [1, 2, 3], each, float(random.normal())) for i, each in enumerate(made)]
# The optimizer's state is there from the first step on.
update.step(0, [KeptResponse(0, [1], Response(np.array([2]), -np.ones(1), "", "stop"), 1.0)], rows)
# ru_maxrss would begin at what the parent process held.
peak = lambda: 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
start = time.perf_counter()
update.step(1, kept, rows)
print((peak() - before) / 1e9, time.perf_counter() - start)
"""


def measure(rows: int, *, plain: bool = False, exact: bool = True) -> tuple[float, float]:
    """Return the gigabytes that an update of so many rows takes at its peak, and its seconds.

    Where the memory is to be exact, freed tensors go back to the system at once, which takes time.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if exact:
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
    arguments = [str(each) for each in (rows, TOKENS, VOCABULARY, int(plain))]
    command = [sys.executable, "-c", _UPDATE, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)  # noqa: S603 - from here
    gigabytes, seconds = done.stdout.split()
    return float(gigabytes), float(seconds)


def update_memory() -> None:
    """Print the peak of an update of 8 and of 32 rows, and of 8 with all logits at once, as ratios."""
    print(f"\nThe update's memory, {TOKENS:,} tokens a row, vocabulary {VOCABULARY:,}")
    eight, more, plain = (measure(rows, plain=at_once)[0] for rows, at_once in ((8, False), (32, False), (8, True)))
    took, took_plain = (measure(8, plain=at_once, exact=False)[1] for at_once in (False, True))
    print(f"  8 rows: {eight:.2f} GB; 32 rows: {more / eight:.2f} x that; ", end="")
    print(f"with all logits at once {plain / eight:.1f} x, in {took_plain / took:.2f} x the time")


if __name__ == "__main__":
    update_memory()
