"""Slow twins of the samplers: one response at a time, one whole forward pass a token, no cache and no padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.uniforms import uniform

FIRST_STREAM = 65536


def next_logprobs(model: Any, tokens: Sequence[int], temperature: float) -> FloatArray:
    """``[token, vocabulary]`` log-probabilities of what follows each token."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]
    return np.asarray(torch.log_softmax(logits.double() / temperature, dim=-1).numpy(), dtype=np.float64)


def logprobs_after(model: Any, prompt: Sequence[int], tokens: IntArray, temperature: float = 1.0) -> FloatArray:
    """Log-probabilities of the tokens of a response."""
    table = next_logprobs(model, [*prompt, *tokens.tolist()], temperature)
    return np.asarray(table[np.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1), tokens])


def sample_slowly(
    model: Any,
    prompt: Sequence[int],
    pair: Sequence[int],
    seed: int,
    *,
    temperature: float,
    longest: int,
    eos: set[int],
) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < longest and not (tokens and tokens[-1] in eos):
        draw = float(uniform(seed, FIRST_STREAM + len(tokens), pair[0], pair[1]))
        chances = np.exp(next_logprobs(model, [*prompt, *tokens], temperature)[-1])
        token = 0
        while chances[: token + 1].sum() <= draw:
            token += 1
        tokens.append(token)
    return tokens
