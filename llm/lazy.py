"""A command line whose commands are imported when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

__all__ = ["CommandPlace", "lazy_app"]


class CommandPlace(NamedTuple):
    """Where a command stands."""

    module: str
    """Its module."""
    function: str
    """Its function there."""
    help: str
    """What the list of commands says of it: the function's own first sentence."""
    cls: str = ""
    """Name of its class in the module, where it has one of its own."""


def lazy_app(text: str, places: Mapping[str, CommandPlace]) -> typer.Typer:
    """Return a command line.

    A command's module is imported when the command is run or its own help is asked for, so the list
    of commands comes at once, and the modules have their imports at the top.

    Parameters
    ----------
    text
        What the command line is for.
    places
        Its commands by name, in the order in which they are listed.
    """

    class Commands(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, listed, rest = super().resolve_command(ctx, args)
            return name, listed if name is None else _load(places[name]), rest

    app = typer.Typer(
        help=text, cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    for name, place in places.items():
        app.command(name, help=place.help)(_not_run)
    return app


def _not_run() -> None:
    """Stand in the list for the command itself."""


def _load(place: CommandPlace) -> Any:
    module = import_module(place.module)
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    one.command(cls=getattr(module, place.cls) if place.cls else None)(getattr(module, place.function))
    return get_command(one)
