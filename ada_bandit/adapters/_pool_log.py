"""The file in which a run writes down every pool: one JSON line a prompt and step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PoolLog"]

_FIELDS = ("rewards", "correct", "tokens", "kept", "policy")


class PoolLog:
    """Lines with ``step``, ``prompt`` (its key), ``policy``, and lists by draw.

    The lists are ``rewards``, ``correct``, ``tokens`` and ``kept``. A response without a score has
    null for reward and correctness. A run that resumes writes over the steps that it takes again.

    Parameters
    ----------
    path
        The file; None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._begun = False

    def write(self, pools: Sequence[Mapping[str, Any]]) -> None:
        """Add the pools of a step, each with ``step``, ``key`` and the fields by draw."""
        if self.path is None or not pools:
            return
        if not self._begun:
            self._begin(self.path, min(pool["step"] for pool in pools))
        with self.path.open("a", encoding="utf-8") as file:
            for pool in pools:
                line = {"step": pool["step"], "prompt": pool["key"]} | {name: pool[name] for name in _FIELDS}
                file.write(json.dumps(line) + "\n")

    def _begin(self, path: Path, step: int) -> None:
        self._begun = True
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            earlier = [line for line in lines if json.loads(line)["step"] < step]
            path.write_text("".join(f"{line}\n" for line in earlier), encoding="utf-8")
