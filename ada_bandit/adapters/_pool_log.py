"""A log of the pools: one line of JSON a prompt and step, the same from every trainer, read by ``python -m sim log``.

A trainer's own logs hold the rows that were kept; statistics of pass rates need all that was drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FILE_NAME", "PoolLog"]

FILE_NAME = "ada_pools.jsonl"

_FIELDS = ("step", "prompt_id", "policy", "rewards", "correct", "tokens", "truncated", "kept")
_OPTIONAL = {"truncated"}


class PoolLog:
    """Appends the pools of every step to a file.

    Each line has ``step`` (updates before it), ``prompt_id`` (its key), ``policy``, and one entry a response,
    in the order in which they were asked for: ``rewards`` and ``correct`` (null without a score), ``tokens``,
    ``kept`` and, where the trainer tells it, ``truncated``.

    Parameters
    ----------
    path
        Where to write; None writes nothing. Lines of the step at which this run starts, or of later ones, are
        replaced.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.replaced = 0
        """Lines of an earlier run that this one replaced."""
        self._open = False

    def write(self, pools: Sequence[Mapping[str, Any]]) -> None:
        """Append pools, each with the fields of a line; other keys are passed over."""
        if self.path is None or not pools:
            return
        if not self._open:
            self._begin(self.path, min(pool["step"] for pool in pools))
        with self.path.open("a", encoding="utf-8") as stream:
            for pool in pools:
                fields = (name for name in _FIELDS if name in pool or name not in _OPTIONAL)
                stream.write(json.dumps({name: pool[name] for name in fields}) + "\n")

    def _begin(self, path: Path, step: int) -> None:
        """Drop what a resumed run is about to write again, and a line that a killed run left unfinished."""
        self._open = True
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        stays = [line for line in lines if _step_of(line) < step]
        self.replaced = len(lines) - len(stays)
        if self.replaced:
            temporary = path.with_suffix(".tmp")
            temporary.write_text("".join(stays), encoding="utf-8")
            temporary.replace(path)


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
