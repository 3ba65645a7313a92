"""Samples from the trained model itself, by a loop of our own around its key-value cache.

Ran on a CPU alone so far; the branches for CUDA and MPS never did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_count
from ada_bandit.uniforms import Stream, uniform
from llm.errors import DivergedError
from llm.models import context_length
from llm.samplers._requests import check_request, check_room, check_temperature, eos_tokens, make_response
from llm.types import Response

__all__ = ["TransformersSampler"]

_DROP = 0.25
"""Ended responses leave the batch once they are this share of it: each time, the cache is copied."""


class TransformersSampler:
    """Samples from a transformers model in this process.

    The token at position t of a response is where the cumulative probabilities first exceed
    ``uniform(seed, Stream.TOKENS + t, prompt, draw)``. A response is thus a function of the seed,
    its two numbers and the weights; which responses are sampled together changes it only where
    rounding decides between two tokens.

    Parameters
    ----------
    model
        The model, which the sampler shares: new weights in it are sampled from at once.
    tokenizer
        Names the pad and end-of-sequence tokens, and decodes.
    temperature
        Logits are divided by it, unless ``generate`` is given another one.
    max_new_tokens
        Tokens after which a response is cut.
    batch_size
        Responses sampled at a time.
    dtype
        ``auto`` computes as the model does; ``bfloat16`` with a float32 model runs under autocast.

    Raises
    ------
    InputError
        If a setting is out of range, or no token ends a response.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        temperature: float = 1.0,
        max_new_tokens: int = 1024,
        batch_size: int = 256,
        dtype: str = "auto",
    ) -> None:
        self.temperature = check_temperature(temperature)
        self.max_new_tokens = check_count("max_new_tokens", max_new_tokens)
        self.batch_size = check_count("batch_size", batch_size)
        self.tokenizer = tokenizer
        self.eos = eos_tokens(getattr(model, "generation_config", None), tokenizer)
        own = str(model.dtype).removeprefix("torch.")
        if dtype == "float32" != own:
            msg = f"sampler.dtype = 'float32' can't be had from a model of type {own}; set model.dtype, or 'auto' here"
            raise InputError(msg)
        self.autocast = dtype == "bfloat16" != own
        self.model = model

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        import torch

        temperature = self.temperature if temperature is None else check_temperature(temperature)
        pairs = check_request(prompts, ids)
        check_room(prompts, self.max_new_tokens, context_length(self.model))
        # Prompts of one length side by side need no padding, and equal ones are read once.
        lengths = np.array([len(each) for each in prompts], dtype=np.int64)
        order = np.lexsort((np.arange(len(prompts)), pairs[:, 0], lengths))
        responses: dict[int, Response] = {}
        training = self.model.training
        self.model.eval()
        device_type = self.model.device.type
        try:
            with torch.inference_mode(), torch.autocast(device_type, torch.bfloat16, enabled=self.autocast):
                for start in range(0, len(order), self.batch_size):
                    chunk = order[start : start + self.batch_size]
                    made = self._sample([tuple(prompts[i]) for i in chunk], pairs[chunk], seed, temperature)
                    responses.update(zip(chunk.tolist(), made, strict=True))
        finally:
            self.model.train(training)
        return [responses[i] for i in range(len(prompts))]

    def sync(self, model: Any) -> None:
        """Sample from this model; nothing is copied."""
        self.model = model

    def close(self) -> None:
        """Nothing is held but the model, which is the trainer's."""

    def _sample(self, prompts: list[tuple[int, ...]], pairs: IntArray, seed: int, temperature: float) -> list[Response]:
        """Sample one response to each of a batch of prompts."""
        import torch

        device = self.model.device
        cache, mask, position, logits = self._read(prompts)
        size = len(prompts)
        tokens = np.zeros((size, self.max_new_tokens), dtype=np.int64)
        logprobs = np.zeros((size, self.max_new_tokens))
        lengths = np.full(size, self.max_new_tokens)
        rows = np.arange(size)  # of the entries that the model still computes
        live = np.ones(size, dtype=np.bool_)  # those of them that have not ended
        for t in range(self.max_new_tokens):
            draws = uniform(seed, Stream.TOKENS + t, pairs[rows, 0], pairs[rows, 1])
            tokens[rows, t], logprobs[rows, t] = choose(logits, temperature, draws)
            token = tokens[rows, t]
            ended = live & np.isin(token, self.eos)
            lengths[rows[ended]] = t + 1
            live &= ~ended
            if not live.any() or t + 1 == self.max_new_tokens:
                break
            if live.sum() <= (1 - _DROP) * live.size:
                keep = torch.from_numpy(np.flatnonzero(live)).to(device)
                cache.batch_select_indices(keep)
                mask, position, token, rows, live = mask[keep], position[keep], token[live], rows[live], live[live]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            out = self.model(
                input_ids=torch.from_numpy(token)[:, None].to(device),
                attention_mask=mask,
                position_ids=position[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            logits, position = out.logits[:, -1], position + 1
        return self._finish(tokens, logprobs, lengths)

    def _read(self, prompts: list[tuple[int, ...]]) -> tuple[Any, Any, Any, Any]:
        """Run the model over the prompts, each different one once, padded on the left.

        Returns the cache, the attention mask ``[response, token]``, the position of the next token
        ``[response]`` and its logits ``[response, vocabulary]``.
        """
        import torch

        device = self.model.device
        place = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
        width = max(len(each) for each in place)
        padded = torch.full((len(place), width), self.tokenizer.pad_token_id)
        mask = torch.zeros((len(place), width), dtype=torch.int64)
        for prompt, row in place.items():
            padded[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        padded, mask = padded.to(device), mask.to(device)
        out = self.model(
            input_ids=padded,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        index = torch.tensor([place[each] for each in prompts], device=device)
        out.past_key_values.batch_select_indices(index)
        mask = mask[index]
        return out.past_key_values, mask, mask.sum(dim=1), out.logits[:, -1][index]

    def _finish(self, tokens: IntArray, logprobs: FloatArray, lengths: IntArray) -> list[Response]:
        kept = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
        texts = self.tokenizer.batch_decode(kept, skip_special_tokens=True)
        if not all(np.isfinite(row[:length]).all() for row, length in zip(logprobs, lengths, strict=True)):
            msg = (
                "the model's logits are not finite, so nothing can be sampled: its weights have diverged. Go back to "
                "an earlier checkpoint, which is a model directory, and train on with a smaller train.learning_rate"
            )
            raise DivergedError(msg)
        return [
            make_response(each, row[: each.size], text, self.eos)
            for each, row, text in zip(kept, logprobs, texts, strict=True)
        ]


def choose(logits: Any, temperature: float, draws: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return tokens by inverse transform, and their log-probabilities.

    Parameters
    ----------
    logits
        ``[response, vocabulary]``.
    temperature
        Logits are divided by it.
    draws
        ``[response]`` uniforms in (0, 1).

    Returns
    -------
    tuple
        ``[response]`` the first token whose cumulative probability (summed in float64) is above
        the draw, and ``log_softmax(logits / temperature)`` there, computed in float32.
    """
    import torch

    if logits.device.type == "mps":  # it has no float64
        logits = logits.cpu()
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    cumulative = logprobs.double().exp_().cumsum_(dim=-1)
    # The sum is 1 up to rounding; the draw is scaled to it, so that it stays below.
    target = torch.from_numpy(draws).to(logits.device)[:, None] * cumulative[:, -1:]
    # With NaN in a row nothing exceeds the target: the index is kept in range, and _finish raises.
    token = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    return token[:, 0].cpu().numpy(), logprobs.gather(1, token)[:, 0].double().cpu().numpy()
