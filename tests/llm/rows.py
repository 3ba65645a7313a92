"""Rows of made-up runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROW = {
    "policy": "grpo",
    "pool_reward": 0.25,
    "selected_reward": math.nan,
    "responses": 1234,
    "tokens": np.int64(56789),
    "signal_fraction": np.float64(0.5),
    "entropy": None,
    "time": {"sample": 1.5, "total": 2.25},
}
"""Metrics with values of every kind."""


def write_run(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def step_row(step: int, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"step": step, "policy": "grpo n=4", "pool_reward": reward, "total_tokens": 100 * (step + 1)} | more


def eval_row(step: int, rate: float, error: float = 0.01) -> dict[str, Any]:
    rates = {"hard": {"pass_rate": rate, "standard_error": error}}
    return {"step": step, "total_tokens": 100 * step, "eval": rates}
