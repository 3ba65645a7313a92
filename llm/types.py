"""What the parts of the trainer hand to each other: prompts, responses, and the protocols of tasks and samplers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from ada_bandit._types import FloatArray, IntArray

__all__ = ["Finish", "KeptResponse", "Progress", "Prompt", "Response", "Sampler", "Task", "no_progress"]

Finish: TypeAlias = Literal["stop", "length"]
"""Why a response ended: by its own end-of-sequence token, or at the length limit (truncated)."""


Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int, str], None]]]
"""Shows how far something is: called with what it is and its number of parts, it gives a context whose value is called
with the parts done since the last call, and a text."""


def no_progress(what: str, total: int) -> AbstractContextManager[Callable[[int, str], None]]:  # noqa: ARG001 - Progress
    """Show nothing."""
    return nullcontext(lambda _parts, _text: None)


@dataclass(frozen=True)
class Prompt:
    """One problem of a task."""

    id: int
    """Number within its task, from 0."""
    key: str
    """Name that stays the same between runs, such as ``chain_sum/17``."""
    text: str
    """What the model reads, before any chat template."""
    answer: str
    """Reference answer, as text."""
    family: str
    """Kind of problem, for tables by kind."""


@dataclass(frozen=True, eq=False)
class Response:
    """One response of a model."""

    tokens: IntArray
    """`[token]` Token ids, the end-of-sequence token included where the model gave one."""
    logprobs: FloatArray
    """`[token]` Log-probability of each token under what it was sampled from (temperature included)."""
    text: str
    """Decoded, without special tokens."""
    finish: Finish
    """Why it ended."""


@dataclass(frozen=True, eq=False)
class KeptResponse:
    """A response that goes into the update."""

    prompt: int
    """Number of the prompt in the step."""
    prompt_tokens: Sequence[int]
    """`[token]` The prompt."""
    response: Response
    """The response."""
    advantage: float
    """Its advantage."""
    masked: bool = False
    """Whether its group is silent and masked: its tokens count in the loss's denominator, and nothing else does."""


class Task(Protocol):
    """Prompts, and the score of a response to one; `load_task` of `llm.tasks` makes one from a config."""

    @property
    def name(self) -> str:
        """Short name, for logs."""

    def __len__(self) -> int:
        """Return the number of prompts."""

    def __getitem__(self, index: int, /) -> Prompt:
        """Return a prompt; the same one for the same index, always."""

    def score(self, prompt: Prompt, text: str) -> float:
        """Return the reward of a response, NaN for no score; it may raise or take long: `llm.verify` sees to that."""


class Sampler(Protocol):
    """Samples responses from the current weights of a model."""

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        """Sample one response to each entry.

        Parameters
        ----------
        prompts
            ``[response]`` token ids of the prompt of each response.
        ids
            ``[response, 2]`` number of the prompt and number of the response in its pool.
        seed
            The step's seed. What is sampled is a function of (seed, prompt number, response
            number) and the weights, so that a resumed run asks for the same samples.
        temperature
            Another temperature than the sampler's own, such as for an evaluation.
        """

    def sync(self, model: Any) -> None:
        """Take the weights of the model that is trained."""

    def close(self) -> None:
        """Free what the sampler holds."""
