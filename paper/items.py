"""The items: a folder for each table or figure, with ``claim.toml``, `analysis` and, where it computes, `sweep`.

Nothing but the standard library is imported, so that the command line starts at once.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["EXACT", "ITEMS", "claim_file", "help_of"]

ITEMS = (
    "figure1",
    "figure2",
    "figure3",
    "figure4",
    "figure5",
    "figure6",
    "table1",
    "table2",
    "bias",
    "objective",
    "frontier",
    "tokens",
    "confounds",
)
"""The items, those of the paper first."""
EXACT = ("figure2", "figure5", "table2", "bias", "objective", "frontier")
"""Items without a simulated run."""


def claim_file(name: str) -> Path:
    """Return where an item's title and claims stand."""
    return Path(__file__).parent / name / "claim.toml"


def help_of(name: str) -> str:
    """Return an item's title, and what its claims are tested with, in one line."""
    data: dict[str, Any] = tomllib.loads(claim_file(name).read_text(encoding="utf-8"))
    kinds = dict.fromkeys(claim["how"] for claim in data["claims"])
    return f"{data['title']} ({', '.join(kinds)})."
