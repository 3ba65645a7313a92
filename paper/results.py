"""What a sweep is given, and what an analysis gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ada_bandit.programs.machine import available_cores
from paper.claims import Measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Context", "ItemResult", "gaps"]


@dataclass(frozen=True)
class Context:
    """How large a sweep is, and where its runs are kept."""

    runs: Path
    """Folder of finished runs; a sweep that was interrupted goes on from there."""
    quick: bool = False
    """Fewer seeds and steps."""
    jobs: int = field(default_factory=available_cores)
    """Processes of a simulated sweep."""
    progress: Callable[[str], None] = field(default=lambda _: None)
    """Called with a line about what is being run."""


@dataclass(frozen=True)
class ItemResult:
    """What an analysis comes to."""

    numbers: Mapping[str, Any]
    """Everything by name, as plain values."""
    measures: Mapping[str, Measure]
    """What was measured, by the id of the claim."""
    drawings: Mapping[str, Callable[[Figure], None]]
    """The figures by file name."""


def gaps(measures: Mapping[str, Measure]) -> dict[str, dict[str, float]]:
    """Return paired measures as plain values: mean difference, its standard error, and seeds on either side."""
    return {
        key: {"mean": one.value, "error": one.error / 2, "wins": one.wins, "losses": one.losses}
        for key, one in measures.items()
    }
