"""The published numbers of arXiv 2510.04996v2, as data: typed from its tables, or read off its plots by eye."""

from __future__ import annotations

import csv
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray

__all__ = ["column", "rows", "settings"]

_DATA = Path(__file__).parent / "data"


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of ``data/NAME.csv``, values as text."""
    with (_DATA / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(line for line in lines if not line.startswith("#")))


def column(name: str, key: str) -> FloatArray:
    """Return one column as numbers, NaN where nothing was published."""
    return np.array([float(row[key] or "nan") for row in rows(name)])


@cache
def settings() -> dict[str, Any]:
    """Return the published settings and the numbers in the paper's text, from ``data/settings.toml``."""
    return tomllib.loads((_DATA / "settings.toml").read_text(encoding="utf-8"))
