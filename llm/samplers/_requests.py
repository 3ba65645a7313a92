"""What the samplers share: checks of what is asked for, end-of-sequence tokens and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_number
from llm.types import Response

__all__ = ["check_request", "check_room", "check_temperature", "eos_tokens", "make_response"]


def check_temperature(temperature: float, least: float = 0.0) -> float:
    """Return a temperature that is above 0, and at least `least`."""
    checked = check_number("temperature", temperature, least)
    if checked == 0:
        msg = "temperature must be above 0; got 0: responses are drawn by chance"
        raise InputError(msg)
    return checked


def check_request(prompts: Sequence[Sequence[int]], ids: IntArray) -> IntArray:
    """Return `ids` as ``[response, 2]``, one row for each prompt's entry.

    Raises
    ------
    InputError
        If the numbers of entries differ or a prompt has no tokens.
    """
    pairs = np.asarray(ids)
    if pairs.dtype.kind not in "iu" or pairs.shape != (len(prompts), 2):
        wanted = f"whole numbers of shape ({len(prompts)}, 2), one row a response"
        msg = f"ids must be {wanted}; got {pairs.dtype} of shape {pairs.shape}"
        raise InputError(msg)
    for place, prompt in enumerate(prompts):
        if not len(prompt):
            msg = f"the prompt at position {place} (prompt {int(pairs[place, 0])}) has no tokens"
            raise InputError(msg)
    return pairs.astype(np.int64)


def check_room(prompts: Sequence[Sequence[int]], max_new_tokens: int, context: int) -> None:
    """Raise an InputError if the model's context can't hold the longest prompt and a response of full length."""
    longest = max((len(each) for each in prompts), default=0)
    if longest + max_new_tokens > context:
        msg = (
            f"a prompt of {longest} tokens and {max_new_tokens} new ones don't fit into the model's context of "
            f"{context}. Lower sampler.max_new_tokens or shorten the prompt"
        )
        raise InputError(msg)


def eos_tokens(generation_config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return every token that ends a response: those of the model's generation config and the tokenizer's."""
    configured = getattr(generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, (list, tuple)) else [configured]
    tokens = {int(each) for each in (*listed, tokenizer.eos_token_id) if each is not None}
    if not tokens:
        msg = (
            "neither the tokenizer nor the model's generation config names an eos token; set eos_token in "
            "tokenizer_config.json"
        )
        raise InputError(msg)
    return tuple(sorted(tokens))


def make_response(tokens: IntArray, logprobs: FloatArray, text: str, eos: Sequence[int]) -> Response:
    """Return a response; it stopped by itself where its last token is an end-of-sequence token."""
    return Response(tokens, logprobs, text, "stop" if int(tokens[-1]) in eos else "length")
