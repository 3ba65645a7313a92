"""The update's loss: PPO-clip with two clip ranges, a token mean, and an entropy bonus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llm.head import Head
from llm.types import KeptResponse

__all__ = ["Batch", "collate", "objective", "token_statistics"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as tensors: prompts are padded on the left, responses on the right."""

    input_ids: Any
    """`[row, position]` Tokens."""
    attention_mask: Any
    """`[row, position]` 1 where there is a token."""
    responses: Any
    """`[row, token]` The responses' tokens."""
    mask: Any
    """`[row, token]` 1 where the response has a token."""
    sampled: Any
    """`[row, token]` Log-probabilities that the sampler told; 0 where there is no token."""
    advantages: Any
    """`[row]` Advantages."""


def collate(rows: Sequence[KeptResponse], pad: int, device: str) -> Batch:
    """Pad rows to one shape."""
    import torch

    before = max(len(row.prompt_tokens) for row in rows)
    after = max(row.response.tokens.size for row in rows)
    ids = np.full((len(rows), before + after), pad, dtype=np.int64)
    there = np.zeros_like(ids)
    sampled = np.zeros((len(rows), after), dtype=np.float32)
    for i, row in enumerate(rows):
        start, end = before - len(row.prompt_tokens), before + row.response.tokens.size
        ids[i, start:before] = row.prompt_tokens
        ids[i, before:end] = row.response.tokens
        there[i, start:end] = 1
        sampled[i, : end - before] = row.response.logprobs
    tokens, mask = torch.from_numpy(ids).to(device), torch.from_numpy(there).to(device)
    return Batch(
        input_ids=tokens,
        attention_mask=mask,
        responses=tokens[:, before:],
        mask=mask[:, before:].float(),
        sampled=torch.from_numpy(sampled).to(device),
        advantages=torch.tensor([row.advantage for row in rows], dtype=torch.float32, device=device),
    )


def token_statistics(
    model: Any, batch: Batch, temperature: float, *, entropy: bool = True, head: Head | None = None
) -> tuple[Any, Any]:
    """Return log-probability and entropy of the model at every response token, ``[row, token]`` each, in float32.

    Both are of the distribution at `temperature`, which is the one that is sampled from. Without
    `entropy` the second is None. Given the model's `head`, no more than a tile of logits exists at a
    time, and where a response has no token both are 0; all of them do where they fit one tile.
    """
    import torch

    length = batch.responses.shape[1]
    positions = (batch.attention_mask.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "position_ids": positions}
    # The logits at a position are of the token that follows it.
    if head is not None and not head.fits(len(batch.responses) * (length + 1)):
        there = batch.mask > 0
        hidden = head.base(**inputs, use_cache=False).last_hidden_state[:, -length - 1 : -1][there]
        found = head.statistics(hidden, batch.responses[there], temperature, entropy=entropy)
        empty = torch.zeros_like(batch.mask)
        logprobs, entropies = (None if each is None else empty.masked_scatter(there, each) for each in found)
        return logprobs, entropies
    out = model(**inputs, logits_to_keep=length + 1, use_cache=False)
    logits = out.logits[:, -length - 1 : -1].float() / temperature
    all_logprobs = torch.log_softmax(logits, dim=-1)
    logprobs = all_logprobs.gather(-1, batch.responses.unsqueeze(-1)).squeeze(-1)
    return logprobs, -(all_logprobs.exp() * all_logprobs).sum(-1) if entropy else None


def objective(
    logprobs: Any, old: Any, advantages: Any, *, clip_low: float, clip_high: float, dual_clip: float = 0.0
) -> tuple[Any, Any]:
    """Return the clipped objective of every token, and where the clip decided, ``[row, token]`` each.

    With the ratio r = exp(logprobs - old) and the response's advantage A, a token counts

        min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)

    (arXiv 2510.04996, eq. 3; clip_high apart from clip_low as in DAPO, arXiv 2503.14476). Where
    `dual_clip` = c > 1 and A < 0 it counts at least c A (Ye et al. 2020, arXiv 1912.09729).

    Parameters
    ----------
    logprobs, old
        ``[row, token]`` log-probabilities now, and of the weights that the step started with.
    advantages
        ``[row]`` advantages.
    clip_low, clip_high
        Widths of the clip range.
    dual_clip
        c, or 0 for none.
    """
    import torch

    ratio = torch.exp(logprobs - old)
    a = advantages.unsqueeze(-1)
    free = ratio * a
    clipped = torch.clamp(ratio, 1 - clip_low, 1 + clip_high) * a
    value = torch.minimum(free, clipped)
    decided = clipped < free
    if dual_clip:
        floor = dual_clip * a
        too_low = (a < 0) & (value < floor)
        value = torch.where(too_low, floor.expand_as(value), value)
        decided = decided | too_low
    return value, decided
