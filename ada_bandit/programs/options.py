"""Options that every program has, groups of options, and errors: plain text on standard error, exit code 2."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from ada_bandit.errors import AdaBanditError
from ada_bandit.programs.console import open_console, print_plain, waiting
from ada_bandit.programs.folders import no_empty_folders
from ada_bandit.programs.stdin import save_stdin

__all__ = [
    "FiguresOption",
    "JsonOption",
    "Options",
    "Output",
    "QuietOption",
    "StoppedError",
    "command",
    "output_options",
    "plain_errors",
]

P = ParamSpec("P")
T = TypeVar("T")

FiguresOption = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Whether to draw the figures, as PNG and SVG.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Write the files and show nothing, neither progress nor tables.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


class StoppedError(KeyboardInterrupt):
    """The user stopped the program; the message says what was kept and how to go on."""


def plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Print the library's own errors, without a traceback, on standard error; the exit code is 2.

    After Ctrl-C it says what was kept, so far as the command knows (`StoppedError`); the exit code is
    130. Either way no empty folder is left behind.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with no_empty_folders():
                return function(*args, **kwargs)
        except KeyboardInterrupt as stop:
            words = str(stop) or "what was written before stays as it is"
            print_plain(f"stopped: {words}", open_console(stderr=True), "yellow")
            raise typer.Exit(130) from None
        except AdaBanditError as error:
            print_plain(f"error: {error}", open_console(stderr=True), "bold red")
            raise typer.Exit(2) from None

    return wrapped


@dataclass(frozen=True)
class Options:
    """Marks a parameter of a command that is made of several options.

    ``source: Annotated[Source, Options(read_source)]`` gives the command the options that
    `read_source` has as parameters, and its body what `read_source` returns.
    """

    make: Callable[..., Any]
    """Makes the value; each of its parameters is an option, or a group of them again."""

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The options, those of groups within it included."""
        return [each for _, inner in _members(self.make) for each in inner]

    def value(self, values: dict[str, Any]) -> Any:
        """Take the options' values out of a dictionary, and return what is made of them."""
        return self.make(**_made(self.make, values))


def _members(function: Callable[..., Any]) -> list[tuple[Options | None, list[inspect.Parameter]]]:
    """Return each parameter of a function as options: itself, or those of the group that it stands for."""
    found: list[tuple[Options | None, list[inspect.Parameter]]] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        marks = [mark for mark in getattr(parameter.annotation, "__metadata__", ()) if isinstance(mark, Options)]
        found.append((marks[0], marks[0].parameters) if marks else (None, [parameter]))
    return found


def _made(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function, groups made in order; what belongs to groups leaves `values`."""
    names = inspect.signature(function).parameters
    pairs = zip(names, _members(function), strict=True)
    return {name: values.pop(name) if group is None else group.value(values) for name, (group, _) in pairs}


def _takes_stdin(parameter: inspect.Parameter) -> bool:
    return any(getattr(mark, "allow_dash", False) for mark in getattr(parameter.annotation, "__metadata__", ()))


def _named(value: Any, *, stdin: bool) -> Any:
    """Return a value with its home folder spelled out, and standard input as a file where it is taken."""
    if isinstance(value, list):
        return [_named(each, stdin=stdin) for each in value]
    if stdin and value in {"-", Path("-")}:
        path = save_stdin()
        return str(path) if isinstance(value, str) else path
    with suppress(RuntimeError):  # no such user
        if isinstance(value, Path):
            return value.expanduser()
        if stdin and isinstance(value, str) and value.startswith("~"):
            return str(Path(value).expanduser())
    return value


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function: groups of options are spelled out, and errors are plain (see `plain_errors`).

    ``~`` in a path is the home folder, and ``-`` is standard input for an option with ``allow_dash``.

    Parameters
    ----------
    function
        Its parameters are options, or groups of them (see `Options`), which are made in order.

    Returns
    -------
    Callable
        The function with one parameter an option, all of them by keyword.
    """
    parameters = [each for _, inner in _members(function) for each in inner]
    files = {each.name for each in parameters if _takes_stdin(each)}

    @plain_errors
    def wrapped(**values: Any) -> None:
        for name, value in values.items():
            values[name] = _named(value, stdin=name in files)
        with nullcontext() if values.get("quiet") else waiting("reading what was given"):
            made = _made(function, values)
        function(**made)

    wrapped.__name__, wrapped.__doc__, wrapped.__module__ = function.__name__, function.__doc__, function.__module__
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del wrapped.__wrapped__  # type: ignore[attr-defined]
    return wrapped


@dataclass(frozen=True)
class Output:
    """Where the results of a study go."""

    name: str
    """Name of the files, without ending."""
    folder: Path
    """The folder; it need not exist."""
    figures: bool
    """Whether to draw the figures."""
    as_json: bool
    """Whether to print the JSON alone."""
    quiet: bool = False
    """Whether to show nothing."""


def output_options(name: str, figures: str, folder: str) -> Options:
    """Return the options ``--out``, ``--figures``, ``--json`` and ``--quiet`` of a study.

    Parameters
    ----------
    name
        Name of its files.
    figures
        What else is in the folder, in words, such as ``and the figures``.
    folder
        The folder unless another one is given.
    """

    def make(
        out: Path, figures: FiguresOption = True, as_json: JsonOption = False, quiet: QuietOption = False
    ) -> Output:
        return Output(name, out, figures, as_json, quiet)

    option = typer.Option(metavar="DIR", help=f"Folder for {name}.csv, {name}.json{figures}.")
    make.__annotations__["out"] = Annotated[Path, option]
    make.__defaults__ = (Path(folder), True, False, False)
    return Options(make)
