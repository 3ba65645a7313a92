"""Records as CSV text, as every command writes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["to_csv"]


def to_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV text under one header: the keys of the longest record, the first of them."""
    rows = list(records)
    longest = max(rows, key=len)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(longest), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
