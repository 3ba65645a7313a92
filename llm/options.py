"""What the commands share: errors as plain text, the console, folders and the progress bar."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "folder_for", "plain_errors", "progress"]

P = ParamSpec("P")
T = TypeVar("T")


def console(*, stderr: bool = False) -> Console:
    """Return a console; what goes into a file or a pipe is 100 columns wide."""
    from rich.console import Console

    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=100)


def plain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Print the package's own errors, without a traceback, on standard error.

    The exit code is 2 for a mistake in what was given, and 1 for what went wrong in the course of a run.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        from ada_bandit.errors import AdaBanditError, InputError

        try:
            return command(*args, **kwargs)
        except AdaBanditError as error:
            console(stderr=True).print(
                f"error: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True
            )
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None

    return wrapped


def folder_for(path: Path, option: str = "--out") -> Path:
    """Make a folder for results before anything is computed."""
    from ada_bandit.errors import InputError

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the folder {str(path)!r} can't be made: {error.strerror}; give another one by {option}"
        raise InputError(msg) from error
    return path


@contextmanager
def progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on standard error, on a terminal alone; give the function that advances it and tells what is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)
    with bar:
        task = bar.add_task(what, total=total, completed=done)

        def advance(step: int, text: str = "") -> None:
            bar.update(task, advance=step, description=text or what)

        yield advance


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
