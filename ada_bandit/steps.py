"""What gives each step of a run its allocator, and learns from the step.

A `Policy` is fixed: its tables never change. A run asks a *step policy* instead, which may know the
prompts from earlier steps, or make new tables for every step (`ada_bandit.empirical.EmpiricalBayes`).
Trainers, adapters and simulators drive any of them in the same way::

    allocator = steps.allocator(prompts, seed, keys)
    ...                                               # ask and tell until it is done
    steps.observe(allocator, keys)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ada_bandit.allocator import Allocator
from ada_bandit.errors import InputError, ProtocolError, preview
from ada_bandit.memory import PassRateMemory
from ada_bandit.policy import AnyPolicy, Blend, Policy, check_is_policy

__all__ = ["FixedPolicy", "StepPolicy", "as_step_policy"]


@runtime_checkable
class StepPolicy(Protocol):
    """What a run asks for each step's allocator."""

    @property
    def policy(self) -> AnyPolicy:
        """The policy of a prompt that was never seen, as it is now."""

    @property
    def memory(self) -> PassRateMemory | None:
        """What is remembered of prompts, which then need keys; None where they need none."""

    @property
    def learns(self) -> bool:
        """Whether there is anything to save of the steps that were observed."""

    def allocator(self, prompts: int, seed: int = 0, keys: Sequence[Hashable] | None = None) -> Allocator:
        """Return the allocator of the next step; `keys` are stable names of its prompts, ``[prompt]``."""

    def observe(self, allocator: Allocator, keys: Sequence[Hashable] | None = None) -> None:
        """Take in a step that has ended, with the keys by which it was sampled."""

    def describe(self) -> dict[str, Any]:
        """Return what never changes during a run, as plain values: a resumed run must have the same."""

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned, restored by `load_state_dict`."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what was learned."""


class FixedPolicy:
    """A policy whose tables stay as they are, with or without a memory of prompts.

    Parameters
    ----------
    policy
        The policy.
    memory
        What is remembered of prompts, for budgets that a batch shares; nothing unless given.
    """

    def __init__(self, policy: AnyPolicy, memory: PassRateMemory | None = None) -> None:
        self._policy = policy if isinstance(policy, Blend) else check_is_policy(policy)
        self._memory = memory

    def __repr__(self) -> str:
        """Show the policy's label, and whether there is a memory."""
        return f"FixedPolicy({self._policy.label!r}{'' if self._memory is None else ', with a memory'})"

    @property
    def policy(self) -> AnyPolicy:
        """The policy."""
        return self._policy

    @property
    def memory(self) -> PassRateMemory | None:
        """The memory."""
        return self._memory

    @property
    def learns(self) -> bool:
        """Whether there is a memory."""
        return self._memory is not None

    def allocator(self, prompts: int, seed: int = 0, keys: Sequence[Hashable] | None = None) -> Allocator:
        """Return the allocator of the next step.

        Raises
        ------
        InputError
            If the number of keys isn't that of the prompts.
        """
        check_keys(keys, prompts)
        history = None if self._memory is None or keys is None else self._memory.recall(keys)
        return Allocator(self._policy, prompts, seed, history=history)

    def observe(self, allocator: Allocator, keys: Sequence[Hashable] | None = None) -> None:
        """Enter the pools of a step that has ended into the memory, if there is one and the prompts have keys.

        A prompt that stands twice in the step counts once, with both of its pools.

        Raises
        ------
        ProtocolError
            If a prompt of the step is still running, or the memory has seen the step.
        """
        check_ended(allocator)
        check_keys(keys, allocator.prompts)
        if self._memory is None or keys is None:
            return
        place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        at = np.array([place[key] for key in keys], dtype=np.int64)
        pos, neg = (np.bincount(at, counts, len(place)) for counts in allocator.pools())
        self._memory.update(list(place), pos, neg, step=allocator.fingerprint())

    def describe(self) -> dict[str, Any]:
        """Return the policy as plain values, without its name, which is no part of what it does."""
        return {**self._policy.to_dict(), "name": ""}

    def state_dict(self) -> dict[str, Any]:
        """Return the memory's state."""
        return {"memory": None if self._memory is None else self._memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memory's state.

        Raises
        ------
        InputError
            If the state has a memory and this run has none, or the reverse.
        """
        restore_memory(self._memory, state)


def as_step_policy(policy: AnyPolicy | StepPolicy, memory: PassRateMemory | None = None) -> StepPolicy:
    """Return what a run asks for its allocators: a fixed policy is wrapped, a step policy passes through.

    Parameters
    ----------
    policy
        A policy, or a step policy.
    memory
        What a fixed policy remembers of prompts; a step policy has its own.

    Raises
    ------
    InputError
        If it is neither, or a step policy comes with a second memory.
    """
    if memory is not None and not isinstance(memory, PassRateMemory):
        msg = f"memory must be a PassRateMemory; got {preview(memory)}"
        raise InputError(msg)
    if isinstance(policy, (Policy, Blend)):
        return FixedPolicy(policy, memory)
    if not isinstance(policy, StepPolicy):
        msg = f"policy must be a Policy or a step policy, such as EmpiricalBayes; got {preview(policy)}"
        raise InputError(msg)
    if memory is not None:
        msg = (
            f"{type(policy).__name__} has a memory of its own: give it {type(policy).__name__}(memory=…), and no other "
            "one beside it"
        )
        raise InputError(msg)
    return policy


def check_keys(keys: Sequence[Hashable] | None, prompts: int) -> None:
    """Raise unless there is one key a prompt, or none at all."""
    if keys is not None and len(keys) != prompts:
        msg = f"keys must be one a prompt; got {len(keys)} for {prompts} prompts"
        raise InputError(msg)


def check_ended(allocator: Allocator) -> None:
    """Raise where a prompt of the step is still running."""
    if not allocator.done:
        msg = "the step has not ended: go on with ask and tell until the allocator is done"
        raise ProtocolError(msg)


def restore_memory(memory: PassRateMemory | None, state: Mapping[str, Any]) -> None:
    """Restore a memory from the state of a step policy."""
    if "memory" not in state:
        msg = "the state lacks memory; pass what state_dict() returned"
        raise InputError(msg)
    if (memory is None) != (state["memory"] is None):
        has = "no memory" if state["memory"] is None else "a memory"
        msg = f"the state has {has} and this run differs; build it with the same options"
        raise InputError(msg)
    if memory is not None:
        memory.load_state_dict(state["memory"])
