"""A log of the pools: one line of JSON a prompt and step, readable by ``python -m sim``.

A trainer's own logs hold the rows that were kept; statistics of pass rates need all that was drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray

__all__ = ["FILE_NAME", "PoolLog", "prompt_id"]

FILE_NAME = "ada_pools.jsonl"


class PoolLog:
    """Appends the pools of every step to a file.

    Each line has ``step`` (updates before it), ``prompt_id``, ``policy``, and one entry a response, in
    the order in which they were asked for: ``rewards`` and ``correct`` (null without a score), ``tokens``,
    ``truncated``, ``kept``.

    Parameters
    ----------
    file
        Where to write; lines of the step at which this run starts, or of later ones, are replaced.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.replaced = 0
        """Lines of an earlier run that this one replaced."""
        self._open = False

    def write(
        self,
        step: int,
        names: Sequence[Hashable],
        policy: str,
        prompts: IntArray,
        rewards: FloatArray,
        correct: BoolArray,
        tokens: IntArray,
        truncated: BoolArray,
        kept: BoolArray,
    ) -> None:
        """Append a step: `names` are ``[prompt]``, all arrays are ``[response]``, rewards NaN without a score."""
        if not self._open:
            self._begin(step)
        lines = []
        for number in np.unique(prompts).tolist():
            mine = np.nonzero(prompts == number)[0]
            scored = [not math.isnan(reward) for reward in rewards[mine].tolist()]
            line = {
                "step": step,
                "prompt_id": names[number],
                "policy": policy,
                "rewards": _or_null(rewards[mine].tolist(), scored),
                "correct": _or_null(correct[mine].tolist(), scored),
                "tokens": tokens[mine].tolist(),
                "truncated": truncated[mine].tolist(),
                "kept": kept[mine].tolist(),
            }
            lines.append(json.dumps(line) + "\n")
        with self.file.open("a", encoding="utf-8") as stream:
            stream.writelines(lines)

    def _begin(self, step: int) -> None:
        """Drop what a resumed run is about to write again, and a line that a killed run left unfinished."""
        self._open = True
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            return
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        stays = [line for line in lines if _step_of(line) < step]
        self.replaced = len(lines) - len(stays)
        if self.replaced:
            temporary = self.file.with_suffix(".tmp")
            temporary.write_text("".join(stays), encoding="utf-8")
            temporary.replace(self.file)


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


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
