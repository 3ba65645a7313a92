"""Records and results as text: CSV, JSON, JSON lines."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["plain", "to_csv", "to_json", "to_jsonl"]


def to_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV text under one header: the keys of the longest record, the first of them."""
    rows = list(records)
    longest: Mapping[str, Any] = max(rows, key=len, default={})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(longest), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(value: Any, indent: int = 2) -> str:
    """Return a value as indented JSON text with a line end.

    Raises
    ------
    ValueError
        If a number is not finite; `plain` turns such numbers into None.
    """
    return json.dumps(value, indent=indent, allow_nan=False) + "\n"


def to_jsonl(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as text of one JSON object a line; numbers that are not finite become null."""
    return "".join(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n" for record in records)


def plain(value: Any) -> Any:
    """Return a nested value as JSON can hold it.

    Tuples and arrays become lists, NumPy's and torch's numbers Python's, keys text, and numbers that
    are not finite None.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
