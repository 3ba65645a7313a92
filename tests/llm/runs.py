"""Small runs for tests: a task that a random model is sometimes right at, and a config around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llm.config import RunConfig
from llm.types import Prompt

FACTORY = "tests.llm.runs:first_digit_task"


def evens(score: str) -> str:
    """Return the source of a task of six prompts of two families, with the body of its ``score(prompt, text)``."""
    return _EVENS.replace("SCORE", score)


_EVENS = """
from llm.types import Prompt


class Evens:
    name = "evens"

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return Prompt(index, f"evens/{index}", f"{index}+{index * 7}=", "even", "odd" if index % 2 else "even")

    def score(self, prompt, text):
        SCORE


def make():
    return Evens()
"""


class FirstDigit:
    """A response is right when it begins with a digit that leaves the same remainder by 3 as the prompt's number."""

    name = "first-digit"

    def __init__(self, size: int, raises: bool = False) -> None:
        self._size, self._raises = size, raises

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Prompt:
        return Prompt(index, f"first/{index}", f"{index}+{index * index}=", str(index % 3), "first")

    def score(self, prompt: Prompt, text: str) -> float:
        if self._raises:
            msg = "can't tell"
            raise RuntimeError(msg)
        return float(text[:1].isdigit() and int(text[:1]) % 3 == prompt.id % 3)


def first_digit_task(size: int = 32, *, raises: bool = False) -> FirstDigit:
    return FirstDigit(size, raises=raises)


def small_config(folder: Path, /, **changes: Any) -> RunConfig:
    table: dict[str, Any] = {
        "model": {"path": str(folder)},
        "task": {"kind": "python", "factory": FACTORY, "workers": 0},
        "sampler": {"max_new_tokens": 5},
        "train": {"steps": 4, "prompts": 8, "mini_batch": 4, "micro_batch": 16, "learning_rate": 1e-3},
        "checkpoint": {"every": 2},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            table.setdefault(section, {})[key] = value
        else:
            table[section] = value
    return RunConfig.model_validate(table)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return a run's rows without what differs from run to run: times."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row.pop("time", None)
    return rows
