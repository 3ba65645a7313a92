"""Reward functions as verl's reward workers load them, by path and name."""

from __future__ import annotations

import os
import time
from typing import Any


def last_is_right(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **kwargs: Any) -> Any:
    """1 where the last word is the ground truth; what `extra_info` asks for goes wrong."""
    words = solution_str.replace("<eos>", "").split()
    trouble = (extra_info or {}).get("reward_trouble")
    if trouble == "raise":
        msg = "the verifier is gone"
        raise RuntimeError(msg)
    if trouble == "sleep":
        time.sleep(3)
    if trouble == "die":
        os._exit(1)
    if trouble == "nan":
        return float("nan")
    right = bool(words) and words[-1] == ground_truth
    if trouble == "shaped":
        # Every reward exceeds a half: correctness stands apart.
        return {"score": 0.7 + 0.3 * right - 0.01 * len(words), "acc": right}
    return float(right)
