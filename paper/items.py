"""The items: a folder for each table or figure, with `sweep`, `analysis` and ``claim.toml``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper.claims import Claim, Measure, Verdict, judge, load_claims

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXACT", "ITEMS", "Context", "Result", "claims_of", "run_item", "title_of", "write_json"]

_ROOT = Path(__file__).parent

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
)
"""The items, those of the paper first."""
EXACT = ("figure2", "figure5", "table2", "bias", "objective", "frontier")
"""Items without a simulated run."""


@dataclass(frozen=True)
class Context:
    """How large a sweep is, and where its runs are kept."""

    runs: Path
    """Folder of finished runs; a sweep that was interrupted goes on from there."""
    quick: bool = False
    """Fewer seeds and steps."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes of a simulated sweep."""
    progress: Callable[[str], None] = field(default=lambda _: None)
    """Called with a line about what is being run."""


@dataclass(frozen=True)
class Result:
    """What an analysis found."""

    numbers: Mapping[str, Any]
    """Everything by name, as plain values."""
    measures: Mapping[str, Measure]
    """What was measured, by the id of the claim."""
    drawings: Mapping[str, Callable[[Figure], None]]
    """The figures by file name."""


def claims_of(name: str) -> tuple[Claim, ...]:
    """Return an item's claims."""
    return load_claims(_ROOT / name / "claim.toml")[1]


def title_of(name: str) -> str:
    """Return an item's title."""
    return load_claims(_ROOT / name / "claim.toml")[0]


def run_item(name: str, out: Path, context: Context, *, figures: bool = True) -> list[Verdict]:
    """Run one item's sweep and analysis, and write ``NAME.json`` and its figures.

    Parameters
    ----------
    name
        One of `ITEMS`.
    out
        An existing folder.
    context
        Size and place of the sweep.
    figures
        Whether to draw.

    Returns
    -------
    list of Verdict
        One a claim, in the order of ``claim.toml``.
    """
    title, claims = load_claims(_ROOT / name / "claim.toml")
    data = import_module(f"paper.{name}.sweep").sweep(context)
    result: Result = import_module(f"paper.{name}.analysis").analyse(data)
    verdicts = [judge(name, claim, result.measures[claim.id]) for claim in claims]
    record = {
        "item": name,
        "title": title,
        "quick": context.quick,
        "numbers": result.numbers,
        "measures": {key: asdict(measure) for key, measure in result.measures.items()},
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    write_json(out / f"{name}.json", record)
    if figures:
        from sim.plots import draw_figures

        draw_figures(result.drawings, out)
    return verdicts


def write_json(path: Path, values: Any) -> None:
    """Write plain values as JSON at once: no reader ever sees half a file. NaN becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(plain(values), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)


def plain(value: Any) -> Any:
    """Return NumPy values as lists and numbers, and numbers that are not finite as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
