"""Rows of made-up runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_run(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def step_row(step: int, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"step": step, "policy": "grpo n=4", "pool_reward": reward, "total_tokens": 100 * (step + 1)} | more


def eval_row(step: int, rate: float, error: float = 0.01) -> dict[str, Any]:
    rates = {"hard": {"pass_rate": rate, "standard_error": error}}
    return {"step": step, "total_tokens": 100 * step, "eval": rates}
