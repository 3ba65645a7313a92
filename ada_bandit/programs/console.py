"""What a program shows: the console, tables, notes, warnings, and the progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "Advance",
    "escape",
    "new_table",
    "open_console",
    "part",
    "print_notes",
    "print_plain",
    "print_table",
    "print_warning",
    "print_written",
    "progress",
    "waiting",
]

Advance: TypeAlias = Callable[..., None]
"""``advance(step, text="")``: what a progress bar gives; `step` is what was done since the last call."""

_WIDTH = 100
_NAME = 16


def open_console(*, stderr: bool = False) -> Console:
    """Return the console of standard output or standard error; a file or a pipe is 100 columns wide."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDTH)


def escape(text: str) -> str:
    """Return the text with what rich would take for markup escaped."""
    from rich.markup import escape

    return escape(text)


def print_plain(text: str, console: Console, style: str | None = None) -> None:
    """Print text as it is: no markup, no colours of numbers, no breaks of lines."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_warning(text: str) -> None:
    """Print a warning on standard error."""
    print_plain(f"warning: {text}", open_console(stderr=True), "yellow")


def print_table(table: Table, console: Console) -> None:
    """Print a table; on a terminal that is too narrow for it lines break, and no number is cut."""
    from rich.measure import Measurement

    wide = console.options.update(width=10_000)
    for index, column in enumerate(table.columns):
        natural = max(Measurement.get(console, wide, cell).maximum for cell in (column.header, *column.cells))
        # Text may fold; a number may not.
        column.min_width = natural if column.no_wrap or index else min(natural, _NAME)
    width = console.width
    console.width = max(Measurement.get(console, wide, table).minimum, width)
    console.print(table)
    console.width = width


def print_written(folder: Path, names: Sequence[str], console: Console) -> None:
    """Print which files were written into a folder."""
    print_plain(f"written to {folder}: {', '.join(names)}", console, "dim")


def print_notes(notes: Sequence[str], console: Console) -> None:
    """Print notes as dim list entries."""
    from rich.padding import Padding
    from rich.text import Text

    for note in notes:
        text = Text("- " + note, style="dim")
        console.print(Padding(text, (0, 0, 0, 2), expand=False))


def new_table(title: str, head: str, *columns: str) -> Table:
    """Return a table whose first column is text and whose others are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(head, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


@contextmanager
def progress(what: str, total: int, done: int = 0, *, quiet: bool = False) -> Iterator[Advance]:
    """Show a bar on standard error while the body runs, on a terminal alone.

    Standard output goes to standard error meanwhile: a user's rule may print, and standard output
    may have to be JSON.

    Parameters
    ----------
    what
        What is being done, in a word or two.
    total, done
        How much there is to do, and how much of it is done already.
    quiet
        Whether to show no bar.

    Yields
    ------
    Advance
        ``advance(step, text="")``: call it with what was done since the last call; the text, where
        there is one, stands in for `what`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = open_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
    with redirect_stdout(sys.stderr), bar:
        task = bar.add_task(what, total=total or None, completed=done)

        def advance(step: int, text: str = "") -> None:
            bar.update(task, advance=step, description=text or what)

        yield advance


def part(advance: Advance, size: int) -> Callable[[float], None]:
    """Return what moves the progress bar over a part of it, told the share that is done."""
    done = 0

    def to(share: float) -> None:
        nonlocal done
        now = int(size * min(share, 1.0))
        if now > done:
            advance(now - done)
            done = now

    return to


@contextmanager
def waiting(what: str, after: float = 1.0) -> Iterator[None]:
    """Show on a terminal what the body is doing, and for how long, once it has taken a second.

    Parameters
    ----------
    what
        What is being done, in a word or two.
    after
        Seconds before it is shown.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=open_console(stderr=True), transient=True, redirect_stdout=False)
    bar.add_task(what, total=None)
    timer = Timer(after, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
