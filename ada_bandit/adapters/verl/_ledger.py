"""Who tells a prompt how many responses to draw: an allocator of its own, or one of the whole batch.

A worker asks its `Course`. Where prompts decide on their own, the course is an `Allocator` of one
prompt in the worker's process. Where they share a budget, or what earlier steps taught, it speaks
with the `Ledger`, an actor that holds the allocator of the batch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ada_bandit.adapters.verl._records import Group, group_of
from ada_bandit.allocator import Allocator, Groups
from ada_bandit.errors import ProtocolError
from ada_bandit.policy import AnyPolicy
from ada_bandit.steps import StepPolicy

__all__ = ["Course", "Ledger", "OwnCourse", "SharedCourse"]

logger = logging.getLogger(__name__)


class Course(Protocol):
    """What a worker asks about one prompt."""

    async def begin(self) -> tuple[list[int], dict[int, Any]]:
        """Return the draws wanted first, and the responses that a worker that died had already got."""

    async def tell(
        self, draws: list[int], rewards: list[float], correct: list[float] | None, responses: list[Any]
    ) -> list[int]:
        """Take a round's rewards, NaN without a score; return the draws of the next round, none at the end."""

    async def group(self) -> Group:
        """Return the decision, when no more draws are wanted."""

    async def give_up(self) -> None:
        """Say that nobody samples the prompt any longer."""


class OwnCourse:
    """A prompt that decides on its own."""

    def __init__(self, policy: AnyPolicy, seed: int) -> None:
        self._allocator = Allocator(policy, 1, seed)
        self._ids: dict[int, int] = {}
        """Of the present round, by draw."""

    async def begin(self) -> tuple[list[int], dict[int, Any]]:
        return self._next(), {}

    async def tell(
        self,
        draws: list[int],
        rewards: list[float],
        correct: list[float] | None,
        responses: list[Any],  # noqa: ARG002 - they stay with the worker
    ) -> list[int]:
        self._allocator.tell([self._ids[draw] for draw in draws], rewards, correct)
        return self._next()

    def _next(self) -> list[int]:
        request = self._allocator.ask()
        self._ids = dict(zip(request.draws.tolist(), request.ids.tolist(), strict=True))
        return list(self._ids)

    async def group(self) -> Group:
        return group_of(self._allocator, self._allocator.groups(), 0, self._allocator.metrics())

    async def give_up(self) -> None:
        return


class SharedCourse:
    """A prompt of a batch that decides together."""

    def __init__(self, ledger: Any, batch: str, prompt: int) -> None:
        self._ledger, self._batch, self._prompt = ledger, batch, prompt

    async def begin(self) -> tuple[list[int], dict[int, Any]]:
        draws, sent = await self._ledger.begin.remote(self._batch, self._prompt)
        return draws, {draw: pickle.loads(blob) for draw, blob in sent.items()}  # noqa: S301 - our own worker's

    async def tell(
        self, draws: list[int], rewards: list[float], correct: list[float] | None, responses: list[Any]
    ) -> list[int]:
        # Its rewards count in the batch: what a worker has got must outlive it.
        blobs = [pickle.dumps(response) for response in responses]
        wanted: list[int] = await self._ledger.tell.remote(self._batch, self._prompt, draws, rewards, correct, blobs)
        return wanted

    async def group(self) -> Group:
        group: Group = await self._ledger.group.remote(self._batch, self._prompt)
        return group

    async def give_up(self) -> None:
        await self._ledger.give_up.remote(self._batch, self._prompt)


@dataclass(eq=False)
class _Batch:
    allocator: Allocator
    keys: list[Hashable] | None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    wanted: dict[int, dict[int, int]] = field(default_factory=dict)
    """By prompt: the ids that were asked for and not told, by draw."""
    sent: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """By prompt: responses of earlier rounds, by draw."""
    given_up: set[int] = field(default_factory=set)
    groups: Groups | None = None
    fetched: set[int] = field(default_factory=set)
    """Prompts whose decision was handed on, or that were given up."""
    teller: int | None = None


class Ledger:
    """The allocators of batches whose prompts decide together, and what the run learns; an actor of Ray."""

    def __init__(self, policy: StepPolicy) -> None:
        self._policy = policy
        self._batches: dict[str, _Batch] = {}

    async def open(self, name: str, prompts: int, seed: int, keys: Sequence[Hashable] | None) -> None:
        """Start a batch."""
        known = None if keys is None else list(keys)
        # Batches that were handed on stay until the next one, as a worker may die with a group in its hands.
        over = [each for each, batch in self._batches.items() if len(batch.fetched) == batch.allocator.prompts]
        for each in over:
            del self._batches[each]
        self._batches[name] = batch = _Batch(self._policy.allocator(prompts, seed, known), known)
        self._settle(batch)

    async def begin(self, name: str, prompt: int) -> tuple[list[int], dict[int, bytes]]:
        """Return the draws that a prompt is to bring, and what was sent of it before."""
        batch = self._batches[name]
        draws = await self._next(batch, prompt)
        return draws, dict(batch.sent.get(prompt, {}))

    async def tell(
        self,
        name: str,
        prompt: int,
        draws: list[int],
        rewards: list[float],
        correct: list[float] | None,
        blobs: list[bytes],
    ) -> list[int]:
        """Take a round of a prompt and return its next draws when they are known, none at the end of the batch."""
        batch = self._batches[name]
        wanted = batch.wanted.pop(prompt)
        batch.sent.setdefault(prompt, {}).update(zip(draws, blobs, strict=True))
        batch.allocator.tell([wanted[draw] for draw in draws], rewards, correct)
        await self._advance(batch)
        return await self._next(batch, prompt)

    async def give_up(self, name: str, prompt: int) -> None:
        """Count all further responses of a prompt as unscored, so that the others go on."""
        batch = self._batches.get(name)
        if batch is not None:
            batch.given_up.add(prompt)
            batch.fetched.add(prompt)
            await self._advance(batch)

    async def group(self, name: str, prompt: int) -> Group:
        """Return the decision on a prompt of a batch that is done."""
        batch = self._batches[name]
        groups = batch.allocator.groups() if batch.groups is None else batch.groups
        # The totals of the batch stand in the prompt that asks first, also where it asks twice.
        batch.teller = prompt if batch.teller is None else batch.teller
        totals = batch.allocator.metrics() if batch.teller == prompt else None
        batch.fetched.add(prompt)
        return group_of(batch.allocator, groups, prompt, totals)

    async def save(self) -> str:
        """Return what is remembered of the steps that have ended, as text."""
        return json.dumps(self._policy.state_dict())

    async def load(self, text: str) -> None:
        """Restore what `save` returned."""
        self._policy.load_state_dict(json.loads(text))

    def _settle(self, batch: _Batch) -> None:
        """Ask for what is wanted now, and look at the groups once when nothing more is."""
        while True:
            request = batch.allocator.ask()
            numbers = zip(request.ids.tolist(), request.prompts.tolist(), request.draws.tolist(), strict=True)
            for number, prompt, draw in numbers:
                batch.wanted.setdefault(prompt, {})[draw] = number
            lost = [number for prompt in batch.given_up for number in batch.wanted.pop(prompt, {}).values()]
            if not lost:
                break
            batch.allocator.tell(lost, np.full(len(lost), np.nan))
        if batch.groups is None and batch.allocator.done:
            batch.groups = batch.allocator.groups()
            try:
                self._policy.observe(batch.allocator, batch.keys)
            except ProtocolError:
                # A run that was cut takes the step again, and got the same replies.
                logger.warning("a step was learned from before, and counts once")

    async def _advance(self, batch: _Batch) -> None:
        self._settle(batch)
        async with batch.changed:
            batch.changed.notify_all()

    async def _next(self, batch: _Batch, prompt: int) -> list[int]:
        async with batch.changed:
            await batch.changed.wait_for(lambda: prompt in batch.wanted or batch.allocator.done)
        return sorted(batch.wanted.get(prompt, {}))
