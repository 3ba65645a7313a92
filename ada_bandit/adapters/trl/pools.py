"""The pools of a step as lines of the pool log, and the names of their prompts."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray

__all__ = ["pool_lines", "prompt_id"]


def pool_lines(
    step: int,
    names: Sequence[Hashable],
    policy: str,
    prompts: IntArray,
    rewards: FloatArray,
    correct: BoolArray,
    tokens: IntArray,
    truncated: BoolArray,
    kept: BoolArray,
) -> Iterator[dict[str, Any]]:
    """Give the lines of a step: `names` are ``[prompt]``, arrays ``[response]``, rewards NaN without a score."""
    for number in np.unique(prompts).tolist():
        mine = np.nonzero(prompts == number)[0]
        scored = [not math.isnan(reward) for reward in rewards[mine].tolist()]
        yield {
            "step": step,
            "prompt_id": names[number],
            "policy": policy,
            "rewards": _or_null(rewards[mine].tolist(), scored),
            "correct": _or_null(correct[mine].tolist(), scored),
            "tokens": tokens[mine].tolist(),
            "truncated": truncated[mine].tolist(),
            "kept": kept[mine].tolist(),
        }


def prompt_id(row: Mapping[str, Any], column: str | None, *, whole: bool) -> Hashable:
    """Return a stable name of a prompt: its key where there is a column of them, else a digest of its text.

    Of the whole row where the prompt alone doesn't tell the tasks apart, as with environments.
    """
    if column is not None:
        key: Hashable = row[column]
        return key
    text = json.dumps(dict(row) if whole else row["prompt"], sort_keys=True, default=repr)
    return sha256(text.encode()).hexdigest()[:16]


def _or_null(values: list[Any], scored: list[bool]) -> list[Any]:
    return [value if has else None for value, has in zip(values, scored, strict=True)]
