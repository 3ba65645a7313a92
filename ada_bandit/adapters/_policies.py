"""The policy of a run, from the text that a config holds, and what it remembers from step to step."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit.allocator import Allocator
from ada_bandit.errors import InputError
from ada_bandit.memory import PassRateMemory
from ada_bandit.policy import Policy

__all__ = ["StepPolicy", "read_policy", "state_from_json", "state_to_json"]


def read_policy(spec: str, group_size: int) -> Policy:
    """Return the policy of a TOML file or a preset; a preset takes `group_size` where it has that option."""
    from ada_bandit.presets import PRESETS

    if spec.endswith(".toml"):
        if not Path(spec).is_file():
            msg = f"the policy file {spec!r} does not exist; write one with Policy.to_toml, or name a preset"
            raise InputError(msg)
        return Policy.from_toml(Path(spec).read_text(encoding="utf-8"))
    known = spec in PRESETS and "group_size" in PRESETS[spec].options
    return Policy.preset(spec, **({"group_size": group_size} if known else {}))


class StepPolicy:
    """A policy with a memory, asked for each step's allocator and shown each step that has ended."""

    def __init__(self, policy: Policy, memory: PassRateMemory | None = None) -> None:
        self.policy = policy
        self.memory = memory

    def allocator(self, prompts: int, seed: int = 0, keys: Sequence[Hashable] | None = None) -> Allocator:
        """Return the allocator of the next step; `keys` are what the memory knows the prompts by."""
        history = None if self.memory is None or keys is None else self.memory.recall(keys)
        return Allocator(self.policy, prompts, seed, history=history)

    def observe(self, allocator: Allocator, keys: Sequence[Hashable] | None = None) -> None:
        """Take in a step that has ended. A batch may hold a prompt twice; its pools count as one."""
        if self.memory is None or keys is None:
            return
        groups, unique = allocator.groups(), list(dict.fromkeys(keys))
        at = [unique.index(key) for key in keys]
        self.memory.update(unique, np.bincount(at, groups.pos), np.bincount(at, groups.neg))

    def state_dict(self) -> dict[str, Any]:
        """Return the memory's state."""
        return {"memory": None if self.memory is None else self.memory.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of the same kind of policy.

        Raises
        ------
        InputError
            If one of the two has a memory and the other has not.
        """
        theirs = state.get("memory")
        if (theirs is None) != (self.memory is None):
            has = "no memory" if theirs is None else "a memory"
            msg = f"the saved state has {has}, and this run differs; start it with the same ada.memory"
            raise InputError(msg)
        if self.memory is not None and theirs is not None:
            self.memory.load_state_dict(theirs)


def state_to_json(state: Mapping[str, Any]) -> str:
    """Return a state of plain values and arrays as text."""
    return json.dumps(state, default=lambda value: value.tolist())


def state_from_json(text: str) -> dict[str, Any]:
    """Return the state that `state_to_json` wrote."""
    state: dict[str, Any] = json.loads(text)
    for pool in state.get("pools", ()):
        pool.update({key: np.asarray(value) for key, value in pool.items() if key != "keys"})
    return state
