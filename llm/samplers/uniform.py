"""A sampler without a model: every token of the vocabulary is equally likely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ada_bandit._types import IntArray
from ada_bandit.errors import check_count
from ada_bandit.uniforms import Stream, uniform
from llm.samplers._requests import check_request
from llm.types import Response

__all__ = ["UniformSampler"]


class UniformSampler:
    """Samples uniform tokens by the counter-based uniforms alone, for tests.

    The token at position t of a response is ``floor(vocab_size * uniform(seed, Stream.TOKENS + t,
    prompt, draw))`` and its log-probability is ``-log(vocab_size)``. A response ends at the
    tokenizer's end-of-sequence token, or at `max_new_tokens`.

    Parameters
    ----------
    vocab_size
        Tokens are 0 to ``vocab_size - 1``.
    max_new_tokens
        Tokens after which a response is cut.
    tokenizer
        Decodes; without one, the text is the tokens' numbers with blanks between, and every
        response is cut at `max_new_tokens`.
    """

    def __init__(self, vocab_size: int, max_new_tokens: int, tokenizer: Any = None) -> None:
        self.vocab_size = check_count("vocab_size", vocab_size)
        self.max_new_tokens = check_count("max_new_tokens", max_new_tokens)
        self.tokenizer = tokenizer

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        ids: IntArray,
        seed: int,
        temperature: float | None = None,  # noqa: ARG002 - equally likely at every temperature
    ) -> list[Response]:
        pairs = check_request(prompts, ids)
        draws = [uniform(seed, Stream.TOKENS + t, pairs[:, 0], pairs[:, 1]) for t in range(self.max_new_tokens)]
        tokens = (np.stack(draws, axis=1) * self.vocab_size).astype(np.int64)
        return [self._response(row) for row in tokens]

    def sync(self, model: Any) -> None:
        """There are no weights."""

    def close(self) -> None:
        """Nothing is held."""

    def _response(self, tokens: IntArray) -> Response:
        ends = np.flatnonzero(tokens == self.tokenizer.eos_token_id) if self.tokenizer else np.empty(0, np.int64)
        kept = tokens[: ends[0] + 1] if ends.size else tokens
        text = self.tokenizer.decode(kept, skip_special_tokens=True) if self.tokenizer else " ".join(map(str, kept))
        return Response(kept, np.full(kept.size, -np.log(self.vocab_size)), text, "stop" if ends.size else "length")
