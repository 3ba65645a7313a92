"""What a command does once it knows what to run: compute, write, draw, and show or print JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ada_bandit.programs.console import (
    Advance,
    escape,
    open_console,
    print_notes,
    print_plain,
    print_table,
    print_written,
    progress,
)
from ada_bandit.programs.folders import make_folder, write_results
from ada_bandit.programs.options import Output, StoppedError
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


def nothing_kept(folder: Path) -> str:
    """Say what is kept of a study that was stopped, where it writes all at its end."""
    return f"nothing of this run was written to {folder}; the same command begins anew"


def run_study(
    output: Output,
    compute: Callable[[Path, Advance], R],
    report: Callable[[R], Report],
    draw: Callable[[R, Path], Sequence[Path]],
    *,
    doing: str,
    total: int,
    kept: Callable[[Path], str] = nothing_kept,
) -> None:
    """Run a study, write ``NAME.csv``, ``NAME.json`` and its figures, and show it.

    Parameters
    ----------
    output
        Where the results go; the folder is made before anything is computed.
    compute
        Gets the folder and the progress bar's ``advance(step, text="")``, and returns the result.
    report
        Says what to show of it.
    draw
        Draws the figures of a result into a folder and returns the files.
    doing, total
        What the progress bar says, and what its steps add up to.
    kept
        Gets the folder, and says after Ctrl-C what was kept in it and how to go on.

    Raises
    ------
    InputError
        If the folder can't be made or written to.
    """
    folder = make_folder(output.folder)
    try:
        with progress(doing, total, quiet=output.quiet) as advance:
            result = compute(folder, advance)
            advance(0, "drawing" if output.figures else "writing")
            text = to_json(result.to_dict())
            texts = {f"{output.name}.csv": result.to_csv(), f"{output.name}.json": text}
            replaced = [name for name, new in texts.items() if _differs(folder / name, new)]
            written = write_results(folder, texts, partial(draw, result) if output.figures else None)
    except KeyboardInterrupt:
        raise StoppedError(kept(folder)) from None
    if output.as_json:
        sys.stdout.write(text)
    if replaced:
        print_plain(
            f"in {folder}, an earlier run's {' and '.join(replaced)} gave way", open_console(stderr=True), "dim"
        )
    if output.as_json or output.quiet:
        return
    console, shown = open_console(), report(result)
    console.print(f"[bold]{shown.subject}:[/bold] {escape(shown.label)}", highlight=False)
    print_notes(shown.subject_notes, console)
    for table in shown.tables:
        console.print()
        print_table(table, console)
    print_notes(shown.notes, console)
    print_written(folder, written, console)


def _differs(path: Path, text: str) -> bool:
    """Whether a file is there and holds something else."""
    try:
        return path.read_bytes() != text.encode()
    except OSError:
        return False
