"""Commands of this program: the base's, with an exit code for what goes wrong in the course of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import typer

from ada_bandit.programs import options
from ada_bandit.programs.console import open_console, print_plain
from llm.errors import RunError

__all__ = ["command"]

P = ParamSpec("P")


def command(function: Callable[P, None]) -> Callable[..., None]:
    """Make a command of a function (see `ada_bandit.programs.options.command`).

    The exit code is 2 for a mistake in what the command was given, and 1 for what went wrong in the
    course of a run.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except RunError as error:
            print_plain(f"error: {error}", open_console(stderr=True), "bold red")
            raise typer.Exit(1) from None

    return options.command(wrapped)
