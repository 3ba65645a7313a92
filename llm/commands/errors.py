"""Errors of the commands as plain text, with their exit codes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from ada_bandit.programs.console import open_console, print_plain
from ada_bandit.programs.options import plain_errors
from llm.errors import RunError

__all__ = ["plain_run_errors"]

P = ParamSpec("P")
T = TypeVar("T")


def plain_run_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Print errors without a traceback, on standard error.

    The exit code is 2 for a mistake in what the command was given, and 1 for what went wrong in the
    course of a run.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except RunError as error:
            print_plain(f"error: {error}", open_console(stderr=True), "bold red")
            raise typer.Exit(1) from None

    return plain_errors(wrapped)
