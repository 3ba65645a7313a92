"""What a prompt leaves behind: its pool, the group on its way to the trainer, and the metrics.

A record is a dict of plain values, as it travels in a tag of TransferQueue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from ada_bandit.allocator import Allocator, Groups
from ada_bandit.policy import Policy

__all__ = ["Group", "Record", "group_of", "metrics_of", "row_name"]


class Group(TypedDict):
    """The decision on one prompt; draws are numbered from 0 in the prompt's pool."""

    kept: list[int]
    advantages: list[float]
    """Of the kept responses."""
    signal: bool
    rounds: int
    """Of the prompt, or of the batch where the budget is shared."""
    no_positive: int
    no_negative: int
    """Prompts that exited unresolved for want of a class; those of a whole batch stand in one of its prompts."""


class Record(TypedDict):
    """A prompt's pool, every list by draw, and its group."""

    step: int
    key: str | int
    policy: str
    rewards: list[float | None]
    correct: list[bool | None]
    tokens: list[int]
    kept: list[bool]
    truncated: list[bool]
    failed: int
    """Responses that never came: their session raised or was cancelled."""
    group: Group
    rows: dict[str, list[str]]
    """By row name: the keys under which the responses lie in the queue."""
    advantages: dict[str, float]
    """By row name."""
    masked: list[str]
    """Names of rows that were truncated."""
    filler: str | None
    """Name of a row that stands in where nothing was kept, so that a batch is never empty."""


def row_name(uid: str, draw: int) -> str:
    """Return what the trainer calls a response: unlike verl's uid, it tells the responses of a prompt apart."""
    return f"{uid}_{draw}"


def group_of(allocator: Allocator, groups: Groups, prompt: int, totals: Mapping[str, float] | None) -> Group:
    """Return the decision on one prompt; `totals` are the metrics of a batch, given to one of its prompts."""
    own = groups.mask[prompt]
    first = prompt * (allocator.policy.budget.max_samples)
    return Group(
        kept=[int(number) - first for number in groups.ids[prompt][own]],
        advantages=[float(value) for value in groups.advantages[prompt][own]],
        signal=bool(groups.signal[prompt]),
        rounds=0 if totals is None else int(totals["rounds"]),
        no_positive=0 if totals is None else int(totals["unresolved_no_positive"]),
        no_negative=0 if totals is None else int(totals["unresolved_no_negative"]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def metrics_of(records: Sequence[Record], policy: Policy) -> dict[str, float]:
    """Return the metrics of a step, under the names that the adapter for TRL logs."""
    scored = [[reward for reward in record["rewards"] if reward is not None] for record in records]
    kept = [
        reward
        for record in records
        for reward, keep in zip(record["rewards"], record["kept"], strict=True)
        if keep and reward is not None
    ]
    groups = [record["group"] for record in records]
    values = {
        "pool_reward": _mean([_mean(rewards) for rewards in scored if rewards]),
        "selected_reward": _mean(kept),
        "responses": sum(len(record["rewards"]) for record in records),
        "tokens": sum(sum(record["tokens"]) for record in records),
        "rounds": max((group["rounds"] for group in groups), default=0),
        "signal_fraction": _mean([float(group["signal"]) for group in groups]),
        "unresolved_no_positive": sum(group["no_positive"] for group in groups),
        "unresolved_no_negative": sum(group["no_negative"] for group in groups),
        "unscored": sum(reward is None for record in records for reward in record["rewards"]),
        "failed": sum(record["failed"] for record in records),
        "truncated": sum(sum(record["truncated"]) for record in records),
        "empty_rows": sum(policy.n - len(record["advantages"]) for record in records),
    }
    return {f"ada/{name}": float(value) for name, value in values.items()}
