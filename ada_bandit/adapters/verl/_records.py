"""What a prompt leaves behind: its pool, the group on its way to the trainer, and the metrics.

A record is a dict of plain values, as it travels in a tag of TransferQueue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from ada_bandit.allocator import Allocator, Groups
from ada_bandit.policy import AnyPolicy

__all__ = ["Group", "Record", "group_of", "metrics_of", "row_name"]


class Group(TypedDict):
    """The decision on one prompt; draws are numbered from 0 in the prompt's pool."""

    kept: list[int]
    advantages: list[float]
    """Of the kept responses."""
    signal: bool
    silent: bool
    """Whether no row has an advantage by its correctness."""
    rounds: int
    """Of the prompt, or of the batch where the budget is shared."""
    replaced: int
    """Responses that were drawn because others got no score."""
    no_positive: int
    no_negative: int
    """Prompts that exited unresolved short of a class. Like the two above, the number of a whole batch stands in
    one of its prompts."""


class Record(TypedDict):
    """A prompt's pool, every list by draw, and its group."""

    step: int
    prompt_id: str | int
    policy: str
    rewards: list[float | None]
    """None without a score."""
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
    filler: str | None
    """Name of a row that stands in where nothing was kept, so that a batch is never empty."""


def row_name(uid: str, draw: int) -> str:
    """Return what the trainer calls a response: unlike verl's uid, it tells the responses of a prompt apart."""
    return f"{uid}_{draw}"


def group_of(allocator: Allocator, groups: Groups, prompt: int, totals: Mapping[str, float] | None) -> Group:
    """Return the decision on one prompt; `totals` are the metrics of a batch, given to one of its prompts."""
    own = groups.mask[prompt]
    _, draws = allocator.locate(groups.ids[prompt][own])
    return Group(
        kept=draws.tolist(),
        advantages=[float(value) for value in groups.advantages[prompt][own]],
        signal=bool(groups.signal[prompt]),
        silent=bool(groups.silent[prompt]),
        rounds=0 if totals is None else int(totals["rounds"]),
        replaced=0 if totals is None else int(totals["replaced"]),
        no_positive=0 if totals is None else int(totals["unresolved_no_positive"]),
        no_negative=0 if totals is None else int(totals["unresolved_no_negative"]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def metrics_of(records: Sequence[Record], policy: AnyPolicy) -> dict[str, float]:
    """Return the metrics of a step, under the names of `Allocator.metrics` and of the adapter for TRL."""
    scored = [[reward for reward in record["rewards"] if reward is not None] for record in records]
    kept = [
        reward
        for record in records
        for reward, keep in zip(record["rewards"], record["kept"], strict=True)
        if keep and reward is not None
    ]
    groups = [record["group"] for record in records]
    # A prompt that a shared budget gave no response has no group that could have failed.
    sampled = [record["group"] for record in records if record["rewards"]]
    responses = sum(len(record["rewards"]) for record in records)
    unscored = sum(reward is None for record in records for reward in record["rewards"])
    silent, no_signal = sum(group["silent"] for group in sampled), policy.parts[0][1].no_signal
    values = {
        "pool_reward": _mean([_mean(rewards) for rewards in scored if rewards]),
        "selected_reward": _mean(kept),
        "responses": responses,
        "tokens": sum(sum(record["tokens"]) for record in records),
        "rounds": max((group["rounds"] for group in groups), default=0),
        "signal_fraction": _mean([float(group["signal"]) for group in sampled]),
        "unresolved_no_positive": sum(group["no_positive"] for group in groups),
        "unresolved_no_negative": sum(group["no_negative"] for group in groups),
        "unsampled": len(records) - len(sampled),
        "silent": silent,
        "left_out": silent if no_signal == "leave_out" else 0,
        "masked": silent if no_signal == "mask" else 0,
        "unscored": unscored,
        "unscored_fraction": unscored / responses if responses else 0.0,
        "replaced": sum(group["replaced"] for group in groups),
        "failed": sum(record["failed"] for record in records),
        "truncated": sum(sum(record["truncated"]) for record in records),
        "empty_rows": sum(policy.n - len(record["advantages"]) for record in records),
    }
    return {f"ada/{name}": float(value) for name, value in values.items()}
