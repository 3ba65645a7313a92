"""What a command does once it knows what to run: compute, write, draw, and show or print JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ada_bandit.programs.console import Advance, escape, open_console, print_notes, print_written, progress
from ada_bandit.programs.folders import make_folder, write_results
from ada_bandit.programs.records import to_json

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Report", "Result", "run_study"]


class Result(Protocol):
    """What a study comes to."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""

    def to_csv(self) -> str:
        """Return the rows as CSV text."""


@dataclass(frozen=True)
class Report:
    """What a command shows of a result."""

    subject: str
    """What kind of thing the result is about, such as ``Pass rates``."""
    label: str
    """Its name."""
    tables: Iterable[Table]
    """The tables, in order."""
    notes: Sequence[str] = ()
    """What is to be said of the result."""
    subject_notes: Sequence[str] = ()
    """What is to be said of the subject."""


R = TypeVar("R", bound=Result)


def run_study(
    name: str,
    out: Path,
    compute: Callable[[Path, Advance], R],
    report: Callable[[R], Report],
    *,
    doing: str,
    total: int,
    draw: Callable[[R, Path], Sequence[Path]] | None,
    as_json: bool,
) -> None:
    """Run a study, write ``NAME.csv``, ``NAME.json`` and its figures, and show it.

    Parameters
    ----------
    name
        Name of the files.
    out
        The output folder, made before anything is computed.
    compute
        Gets the folder and the progress bar's ``advance(step, text="")``, and returns the result.
    report
        Says what to show of it.
    doing, total
        What the progress bar says, and what its steps add up to.
    draw
        Draws the figures of a result into a folder and returns the files; None draws none.
    as_json
        Whether to print the JSON alone.

    Raises
    ------
    InputError
        If the folder can't be made or written to.
    """
    folder = make_folder(out)
    with progress(doing, total) as advance:
        result = compute(folder, advance)
        advance(0, "writing" if draw is None else "drawing")
        text = to_json(result.to_dict())
        texts = {f"{name}.csv": result.to_csv(), f"{name}.json": text}
        written = write_results(folder, texts, None if draw is None else partial(draw, result))
    if as_json:
        sys.stdout.write(text)
        return
    console, shown = open_console(), report(result)
    console.print(f"[bold]{shown.subject}:[/bold] {escape(shown.label)}", highlight=False)
    print_notes(shown.subject_notes, console)
    for table in shown.tables:
        console.print()
        console.print(table)
    print_notes(shown.notes, console)
    print_written(folder, written, console)
