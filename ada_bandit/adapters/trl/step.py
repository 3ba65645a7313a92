"""The records of a step, and what is computed of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import trl

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.adapters.trl.surface import TRLSurfaceError
from ada_bandit.allocator import Allocator, Groups
from ada_bandit.errors import InputError

__all__ = [
    "Response",
    "Round",
    "Step",
    "centred",
    "copied",
    "mean_over_prompts",
    "memory_keys",
    "part_columns",
    "settled",
]


@dataclass(frozen=True, eq=False)
class Response:
    """What this rank generated for one id."""

    prompt_ids: list[int]
    tokens: list[int]
    completion: Any
    logprobs: list[float | None] | None
    tool_mask: list[int] | None
    """Whether the model wrote the token; None where it wrote all of them."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What the reward functions logged of the response by ``log_extra``."""

    @property
    def own(self) -> int:
        """Tokens that the model wrote."""
        return len(self.tokens) if self.tool_mask is None else sum(self.tool_mask)


@dataclass(frozen=True, eq=False)
class Round:
    """What all ranks learned of a request; every array is ``[response]``."""

    ids: IntArray
    prompts: IntArray
    by_function: FloatArray
    """`[response, function]`"""
    sums: FloatArray
    """Weighted sums of the rewards, NaN where the policy has no score."""
    correct: BoolArray
    tokens: IntArray
    truncated: BoolArray


@dataclass(eq=False)
class Step:
    """One generation batch; `row` counts the rows of all ranks, `n` to a prompt."""

    allocator: Allocator
    rows: list[dict[str, Any]]
    """`[prompt]` Rows of the dataset."""
    own: slice
    """The rows of this rank."""
    batch: int
    """Their number."""
    keys: list[Hashable] | None
    """`[prompt]` What the memory knows the prompts by."""
    names: list[Hashable] = field(default_factory=list)
    """`[prompt]` What the pool log calls them, where there is one."""
    prompt_ids: dict[int, list[int]] = field(default_factory=dict)
    fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    responses: dict[int, Response] = field(default_factory=dict)
    """By id: at first this rank's, at last the kept ones of all ranks."""
    told: list[Round] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    """What this rank's reward functions logged by ``log_metric``: sum weighted by responses, and the weights."""
    tools: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Tool calls, failed ones, and responses of all ranks."""
    tool_masks: list[list[int]] | None = None
    """What TRL's own rows hold of the model's tokens, where TRL samples."""
    padding: int = 0
    """Responses of all ranks that were thrown away."""
    groups: Groups | None = None
    scored: bool = False
    """Whether TRL has taken the rewards."""
    collecting: bool = False
    """Whether TRL is preparing a round of the adapter's, with environments and tools, and not the batch."""

    def joined(self, functions: int) -> Round:
        """Return all rounds as one."""
        if not self.told:
            none, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
            return Round(none, none, np.zeros((0, functions)), np.zeros(0), flags, none, flags)
        parts = zip(*(vars(each).values() for each in self.told), strict=True)
        return Round(*(np.concatenate(each) for each in parts))


def settled(groups: Groups | None) -> Groups:
    """Return the groups, which are there once all responses are."""
    if groups is None:
        msg = f"TRL {trl.__version__} asks for rewards before responses"
        raise TRLSurfaceError(msg)
    return groups


def part_columns(logged: dict[str, list[Any]], rows: int) -> dict[str, list[Any]]:
    """Part columns that several reward functions have logged under one name: name, name_2, and so on."""
    found: dict[str, list[Any]] = {}
    for column, values in logged.items():
        times = len(values) // rows if rows and len(values) % rows == 0 else 1
        for k in range(max(times, 1)):
            name = column if k == 0 else f"{column}_{k + 1}"
            found[name] = values if times <= 1 else values[k * rows : (k + 1) * rows]
    return found


def centred(sums: FloatArray, scale: Any) -> FloatArray:
    """Return TRL's advantages of the rows that have a score, ``[prompt, slot]``; 0 for the others."""
    scored = ~np.isnan(sums)
    count = scored.sum(axis=1, keepdims=True)
    filled = np.where(scored, sums, 0.0)
    shifted = np.where(scored, filled - filled.sum(axis=1, keepdims=True) / np.maximum(count, 1), 0.0)
    if scale == "none":
        return shifted
    if scale == "batch":
        std = np.full((len(sums), 1), np.std(sums[scored], ddof=1) if scored.sum() > 1 else 0.0)
    else:
        std = np.sqrt((shifted**2).sum(axis=1, keepdims=True) / np.maximum(count - 1, 1))
    return shifted / (std + 1e-4)


def mean_over_prompts(prompts: IntArray, sums: FloatArray) -> float:
    """Return the mean over prompts of the mean reward of their scored responses; both arrays are ``[response]``."""
    scored = ~np.isnan(sums)
    count = np.bincount(prompts[scored])
    total = np.bincount(prompts[scored], sums[scored])
    return float((total[count > 0] / count[count > 0]).mean()) if count.any() else math.nan


def copied(prompt: Any) -> Any:
    """Copy the messages of a prompt: TRL hands every response its own, and reward functions may change them."""
    if isinstance(prompt, str):
        return prompt
    return [dict(message) for message in prompt]


def memory_keys(rows: list[dict[str, Any]], column: str) -> list[Hashable]:
    """Return what a memory knows the rows' prompts by, or raise where a row has no such name."""
    keys: list[Hashable] = []
    for row in rows:
        key = row.get(column)
        if not isinstance(key, (str, int)):
            msg = (
                f"memory_key = {column!r} must be a column of strings or whole numbers that name the prompts; got "
                f"{key!r} in a row with the columns {', '.join(row)}. Add such a column, and keep "
                "remove_unused_columns=False"
            )
            raise InputError(msg)
        keys.append(key)
    return keys
