"""Options that every program has, and its errors: plain text on standard error, exit code 2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import typer

from ada_bandit.errors import AdaBanditError
from ada_bandit.programs.console import open_console, print_plain

__all__ = ["FiguresOption", "JsonOption", "plain_errors"]

P = ParamSpec("P")
T = TypeVar("T")

FiguresOption = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Whether to draw the figures, as PNG and SVG.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


def plain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Print the library's own errors, without a traceback, on standard error; the exit code is 2."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except AdaBanditError as error:
            print_plain(f"error: {error}", open_console(stderr=True), "bold red")
            raise typer.Exit(2) from None

    return wrapped
