"""Commands that are imported when they run, so that the list of them answers at once.

To list them neither NumPy, rich nor the library is imported: what the list says of a study is the
first line of its command's docstring, read as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ada_bandit import __version__

__all__ = ["LazyCommand", "command_of", "function_of", "lazy_app"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class LazyCommand:
    """A command that is known by one line of help until it runs."""

    help: Callable[[], str]
    """Returns what the list of commands says of it."""
    load: Callable[[], Callable[..., None]]
    """Imports and returns the function behind it, whose ``command_class``, where it has one, the command is of."""


def command_of(module: str, name: str) -> LazyCommand:
    """Return the command that a function of a module is.

    Parameters
    ----------
    module
        The module, by its full name.
    name
        The function.
    """
    return LazyCommand(partial(_first_line, module, name), partial(function_of, module, name))


def _first_line(module: str, name: str) -> str:
    """Return the first line of a function's docstring, without importing its module."""
    path = _ROOT.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    match = re.search(rf'^def {name}\(.*?\) -> None:\n    """(.+?)(?:"""|\n)', text, re.DOTALL | re.MULTILINE)
    if match is None:
        msg = f"{str(path)!r} has no function {name} with a docstring"
        raise LookupError(msg)
    return match[1]


def function_of(module: str, name: str) -> Callable[..., Any]:
    """Import a module and return a function of it."""
    loaded: Callable[..., Any] = getattr(import_module(module), name)
    return loaded


def lazy_app(text: str, commands: Mapping[str, LazyCommand], *, completion: bool = False) -> typer.Typer:
    """Return an application of commands that are imported when they run.

    Parameters
    ----------
    text
        What its help says above the list.
    commands
        The commands by name, in the order of the list.
    completion
        Whether to offer the completion of a shell, for a program with a name of its own.
    """

    class Commands(TyperGroup):
        """The commands; the one that is asked for takes the place of its stand-in."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if not args:
                typer.echo(ctx.get_help())
                ctx.exit(2)
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] in commands:
                alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
                function = commands[args[0]].load()
                alone.command(args[0], cls=getattr(function, "command_class", None))(function)
                self.commands[args[0]] = get_command(alone)
            return super().resolve_command(ctx, args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            # Without rich, which takes longer to import than all the rest; the commands' own help has it.
            super(TyperGroup, self).format_help(ctx, formatter)

        def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer's signature
            with formatter.section("Commands"):
                formatter.write_dl([(name, command.help()) for name, command in commands.items()])

    app = typer.Typer(cls=Commands, help=text, add_completion=completion, pretty_exceptions_enable=False)
    app.callback()(_options)
    for name in commands:
        app.command(name)(_stand_in)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ada_bandit {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def _stand_in() -> None:
    """Stand in for a command that is not imported yet."""
