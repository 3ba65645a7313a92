"""What the commands share: options, errors as one line, the law that options name, console and progress bar.

Nothing heavy is imported at the top, so that ``--help`` answers at once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sim.sources import Source

__all__ = [
    "POLICIES",
    "ROLLOUTS",
    "AtLeastOption",
    "CurveOption",
    "FalseNegativeOption",
    "FalsePositiveOption",
    "FiguresOption",
    "JsonOption",
    "NoiseRatioOption",
    "ObjectiveOption",
    "PassRatesOption",
    "PolicyOption",
    "RulesOption",
    "SmoothOption",
    "SourceOption",
    "UpdateCostOption",
    "escape",
    "load_source",
    "make_folder",
    "new_table",
    "output_console",
    "plain_errors",
    "print_notes",
    "print_source",
    "print_written",
    "progress",
    "write_files",
]

P = ParamSpec("P")
T = TypeVar("T")

POLICIES = ("grpo", "reinforce-ada-pos", "reinforce-ada-balance")
"""The policies that a command takes unless told otherwise."""

ROLLOUTS = "smollm2-reasoning-gym"
"""The built-in source of logged rollouts."""

_CURVE = "qwen2.5-math-1.5b-base"
_WIDTH = 100

PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="PRESET_OR_TOML",
        help="A preset (also NAME:key=value,… such as grpo:group_size=16), a TOML file, or the name of an exit rule "
        "from --rules, which gets at most 4 rounds of 8 responses and a balanced group of 4; repeatable.",
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="FILE.py",
        help="A Python file to run, whose @exit_rule functions become available by name; repeatable.",
    ),
]
PassRatesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Take pass rates from a file of counts: .csv or .parquet with prompt_id, correct, total, or .jsonl "
        "with prompt_id and rewards.",
        show_default=False,
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="Take pass rates from a built-in source: smollm2-reasoning-gym, logged rollouts of a small model, or a "
        "published curve, qwen2.5-math-1.5b-base or qwen2.5-math-1.5b-rl. The default stands above.",
        show_default=False,
    ),
]
CurveOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The same as --source, for published curves alone.",
        show_default=False,
    ),
]
AtLeastOption = Annotated[
    str | None,
    typer.Option(metavar="K/N", help="Re-weight to prompts that get at least K of N responses correct, such as 1/16."),
]
SmoothOption = Annotated[
    bool | None,
    typer.Option(
        "--smooth/--no-smooth",
        help="Replace correct/total in a file, or in rollouts, by the posterior mean under a fitted Beta prior; done "
        "by default when the smallest total is below 64 responses.",
        show_default=False,
    ),
]
FiguresOption = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Whether to draw the figures, as PNG and SVG.")
]
ObjectiveOption = Annotated[
    str, typer.Option(metavar="NAME", help="What the efficiency climbs: mean, log, or pass@k such as pass@8.")
]
NoiseRatioOption = Annotated[
    str,
    typer.Option(
        metavar="NU|POS,NEG",
        help="Noise energy of a response's score over that of its signal; two numbers for positives and negatives.",
    ),
]
UpdateCostOption = Annotated[
    float, typer.Option(metavar="COST", help="Cost of a kept response in the update, in responses drawn.")
]
FalsePositiveOption = Annotated[
    float, typer.Option(metavar="RATE", help="Chance that the verifier takes an incorrect response for a correct one.")
]
FalseNegativeOption = Annotated[
    float, typer.Option(metavar="RATE", help="Chance that the verifier takes a correct response for an incorrect one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


def plain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Turn the library's errors into one line on standard error and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        from ada_bandit.errors import AdaBanditError

        try:
            return command(*args, **kwargs)
        except AdaBanditError as error:
            from rich.console import Console
            from rich.text import Text

            line = " ".join(str(error).split())
            Console(stderr=True).print(Text(f"error: {line}", style="bold red"), soft_wrap=True)
            raise typer.Exit(2) from None

    return wrapped


def load_source(
    pass_rates: Path | None,
    curve: str | None,
    name: str | None,
    at_least: str | None,
    *,
    smooth: bool | None,
    default: str = _CURVE,
) -> Source:
    """Make the pass-rate law that the options name; the built-in source `default` where they name none."""
    from ada_bandit.errors import InputError
    from sim.sources import curve_names, from_curve, from_file, from_name, parse_share

    given = {"--pass-rates": None if pass_rates is None else str(pass_rates), "--curve": curve, "--source": name}
    shown = [f"{option} {value!r}" for option, value in given.items() if value is not None]
    if len(shown) > 1:
        msg = f"{' and '.join(shown)} exclude each other; give one of them"
        raise InputError(msg)
    is_curve = pass_rates is None and (curve is not None or (name or default) in curve_names())
    if smooth is not None and is_curve:
        option = "--smooth" if smooth else "--no-smooth"
        msg = f"{option} is for a file of counts or for rollouts; give --pass-rates FILE as well, or leave it out"
        raise InputError(msg)
    share = None if at_least is None else parse_share(at_least)
    if pass_rates is not None:
        source = from_file(pass_rates, smooth=smooth)
    elif curve is not None:
        source = from_curve(curve)
    else:
        source = from_name(name or default, smooth=smooth)
    return source if share is None else source.at_least(*share)


def make_folder(out: Path) -> Path:
    """Make the output folder before anything is computed."""
    from ada_bandit.errors import InputError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the output folder {str(out)!r} can't be made: {error.strerror}; give another one with --out"
        raise InputError(msg) from error
    return out


def write_files(folder: Path, texts: Mapping[str, str], draw: Callable[[Path], Sequence[Path]] | None) -> list[str]:
    """Write texts by file name, then the figures that `draw` writes; return the names of all files."""
    from ada_bandit.errors import InputError

    try:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        drawn = [] if draw is None else draw(folder)
    except OSError as error:
        msg = f"can't write to {str(folder)!r}: {error.strerror}; give another folder with --out"
        raise InputError(msg) from error
    return [*texts, *(path.name for path in drawn)]


@contextmanager
def progress(what: str, total: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Show a bar on standard error while the body runs, on a terminal; give its two handles."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    # A user's rule may print; standard output may have to be JSON.
    with redirect_stdout(sys.stderr), bar:
        task = bar.add_task(what, total=max(total, 1))
        yield lambda done: bar.advance(task, done), lambda what: bar.update(task, description=what)


def output_console() -> Console:
    """Return the console of standard output; a file or pipe has a width of its own."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def escape(text: str) -> str:
    """Return the text with what rich would take for markup escaped."""
    from rich.markup import escape

    return escape(text)


def print_source(source: Source, console: Console) -> None:
    """Print the label of a law and what is to be said about it."""
    console.print(f"[bold]Pass rates:[/bold] {escape(source.label)}", highlight=False)
    print_notes(source.notes, console)


def print_written(folder: Path, names: Sequence[str], console: Console) -> None:
    """Print what was written."""
    console.print(f"written to {folder}: {', '.join(names)}", style="dim", highlight=False, soft_wrap=True)


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
