"""Stand-ins that a trainer's tests share: a task and a sampler whose rewards are the counter-based uniforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.uniforms import Stream, uniform
from llm.types import Prompt, Response


class CoinTask:
    """Prompt i is right with the chance rates[i]: a response's text names the uniform that decides."""

    name = "coins"

    def __init__(self, rates: npt.ArrayLike, seed: int) -> None:
        self.rates, self.seed = np.asarray(rates, dtype=np.float64), seed

    def __len__(self) -> int:
        return self.rates.size

    def __getitem__(self, index: int) -> Prompt:
        return Prompt(index, f"coin/{index}", str(index), "", "coin")

    def score(self, prompt: Prompt, text: str) -> float:
        of, draw = (int(each) for each in text.split())
        assert of == prompt.id
        return float(uniform(self.seed, Stream.REWARDS, of, draw) < self.rates[of])


class NamingSampler:
    """Responds with the prompt's number and the response's number; one token each."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        assert len(prompts) == len(ids)
        self.seeds.append(seed)
        logprobs: FloatArray = np.zeros(1)
        return [Response(np.array([3]), logprobs, f"{prompt} {draw}", "stop") for prompt, draw in ids.tolist()]

    def sync(self, model: Any) -> None:
        pass

    def close(self) -> None:
        pass
