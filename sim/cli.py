"""The command line, ``python -m sim``.

Nothing heavy is imported at the top: ``--help`` answers at once, and what a command needs is
imported when it runs.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sim.compare import Comparison, Row
    from sim.sources import Source

__all__ = ["app"]

P = ParamSpec("P")
T = TypeVar("T")

_POLICIES = ("grpo", "reinforce-ada-pos", "reinforce-ada-balance")
_CURVE = "qwen2.5-math-1.5b-base"
_PASS_RATES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)
_ANALYSIS = (
    "expected_samples",
    "expected_rounds",
    "signal_probability",
    "resolved_probability",
    "pool_mean_bias",
    "pool_mean_mse",
    "gradient_weight",
)
_WIDTH = 100

app = typer.Typer(
    help="How many responses should each prompt get, and when may it stop? Compare sampling policies, exactly and by "
    "simulation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class TableName(StrEnum):
    """The tables that `show` can draw."""

    draws = "draws"
    keep_pos = "keep_pos"
    keep_neg = "keep_neg"
    adv_pos = "adv_pos"
    adv_neg = "adv_neg"


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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


def _plain_errors(command: Callable[P, T]) -> Callable[P, T]:
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


@app.command()
@_plain_errors
def compare(
    policy: PolicyOption = None,
    pass_rates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take pass rates from a file of counts: .csv or .parquet with prompt_id, correct, total, or .jsonl "
            "with prompt_id and rewards.",
            show_default=False,
        ),
    ] = None,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Take pass rates from a published curve: qwen2.5-math-1.5b-base (the default) or "
            "qwen2.5-math-1.5b-rl.",
            show_default=False,
        ),
    ] = None,
    at_least: Annotated[
        str | None,
        typer.Option(
            metavar="K/N", help="Re-weight to prompts that get at least K of N responses correct, such as 1/16."
        ),
    ] = None,
    smooth: Annotated[
        bool | None,
        typer.Option(
            "--smooth/--no-smooth",
            help="Replace correct/total in a file by the posterior mean under a fitted Beta prior; done by default "
            "when the smallest total is below 64 responses.",
            show_default=False,
        ),
    ] = None,
    rules: RulesOption = None,
    prompts: Annotated[int, typer.Option(min=0, help="Prompts a batch.")] = 512,
    batches: Annotated[int, typer.Option(min=0, help="Batches to simulate; 0 gives exact values only.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for compare.csv, compare.json and the figures.")
    ] = Path("out/compare"),
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Whether to draw the figures, as PNG and SVG.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Compare policies on one law of pass rates: what they cost, what signal they find, what they climb.

    \b
    Examples:
      python -m sim compare
      python -m sim compare --at-least 1/16
      python -m sim compare --pass-rates counts.csv --policy mine.toml
      python -m sim compare --rules rules.py --policy grpo --policy my_rule
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from sim.compare import compare as run
    from sim.policies import read_policies

    policies = read_policies(policy or _POLICIES, rules or ())
    source = _source(pass_rates, curve, at_least, smooth=smooth)
    folder = _folder(out)
    with _progress(prompts * batches * len(policies)) as (advance, describe):
        comparison = run(policies, source, prompts=prompts, batches=batches, seed=seed, progress=advance)
        describe("drawing figures" if figures else "writing")
        text = json.dumps(comparison.to_dict(), indent=2, allow_nan=False)
        written = _write(comparison, text, folder, figures=figures)
    if as_json:
        sys.stdout.write(text + "\n")
        return
    console = _console()
    _print_comparison(comparison, console)
    console.print(f"written to {folder}: {', '.join(written)}", style="dim", highlight=False, soft_wrap=True)


def _source(pass_rates: Path | None, curve: str | None, at_least: str | None, *, smooth: bool | None) -> Source:
    from ada_bandit.errors import InputError
    from sim.sources import from_curve, from_file, parse_share

    if pass_rates is not None and curve is not None:
        msg = f"--pass-rates {str(pass_rates)!r} and --curve {curve!r} exclude each other; give one of them"
        raise InputError(msg)
    if smooth is not None and pass_rates is None:
        option = "--smooth" if smooth else "--no-smooth"
        msg = f"{option} is for a file of counts; give --pass-rates FILE as well, or leave it out"
        raise InputError(msg)
    share = None if at_least is None else parse_share(at_least)
    source = from_curve(curve or _CURVE) if pass_rates is None else from_file(pass_rates, smooth=smooth)
    return source if share is None else source.at_least(*share)


def _folder(out: Path) -> Path:
    """Make the output folder before anything is computed."""
    from ada_bandit.errors import InputError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the output folder {str(out)!r} can't be made: {error.strerror}; give another one with --out"
        raise InputError(msg) from error
    return out


def _write(comparison: Comparison, text: str, folder: Path, *, figures: bool) -> list[str]:
    """Write the CSV, the JSON and the figures; return their names."""
    from ada_bandit.errors import InputError
    from sim.plots import write_figures

    try:
        (folder / "compare.csv").write_text(comparison.to_csv(), encoding="utf-8")
        (folder / "compare.json").write_text(text + "\n", encoding="utf-8")
        drawn = write_figures(comparison, folder) if figures else []
    except OSError as error:
        msg = f"can't write to {str(folder)!r}: {error.strerror}; give another folder with --out"
        raise InputError(msg) from error
    return ["compare.csv", "compare.json", *(path.name for path in drawn)]


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Show a bar on standard error while the body runs, on a terminal; give its two handles."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    # A user's rule may print; standard output may have to be JSON.
    with redirect_stdout(sys.stderr), bar:
        task = bar.add_task("simulating", total=max(total, 1))
        yield lambda done: bar.advance(task, done), lambda what: bar.update(task, description=what)


def _print_comparison(comparison: Comparison, console: Console) -> None:
    console.print(f"[bold]Pass rates:[/bold] {_escape(comparison.source.label)}", highlight=False)
    _print_notes(comparison.source.notes, console)
    for table in _tables(comparison):
        console.print()
        console.print(table)
    words = (
        f"cost is relative to {comparison.reference}; extra is what a step of {comparison.prompts} prompts draws "
        "beyond the group sizes"
    )
    _print_notes((words, *comparison.notes), console)


def _console() -> Console:
    """Return the console of standard output; a file or pipe has a width of its own."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_notes(notes: tuple[str, ...], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for note in notes:
        text = Text("- " + note, style="dim")
        console.print(Padding(text, (0, 0, 0, 2), expand=False))


def _table(title: str, head: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(head, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _tables(comparison: Comparison) -> Iterator[Table]:
    """Give the comparison as tables that each fit a terminal of 80 columns."""
    from sim.compare import WEIGHT_RATES

    simulated = "simulated\n± std. error"
    table = _table("Cost", "policy", "responses\nper prompt", simulated, "cost", "extra\na step")
    for row in comparison.rows:
        extra = round(row.extra_responses) + 0  # an int has no -0
        cells = (f"{row.responses:.3f}", _simulated(row, "responses", 3), f"{row.cost:.2f}", f"{extra:,}")
        table.add_row(_escape(row.policy), *cells)
    yield table

    table = _table(
        "Signal, and prompts left unresolved",
        "policy",
        "signal",
        simulated,
        "short of\npositives",
        "short of\nnegatives",
    )
    for row in comparison.rows:
        short = (f"{row.short_of_positives:.4f}", f"{row.short_of_negatives:.4f}")
        table.add_row(_escape(row.policy), f"{row.signal:.4f}", _simulated(row, "signal", 4), *short)
    yield table

    weights = (f"w at\np = {rate}" for rate in WEIGHT_RATES)
    table = _table("Pool-mean bias and gradient weight", "policy", "largest\nbias", "at p", *weights)
    for row in comparison.rows:
        unbiased = row.largest_bias_at is None
        bias = ("0", "-") if unbiased else (f"{row.largest_bias:+.4f}", f"{row.largest_bias_at:.3f}")
        table.add_row(_escape(row.policy), *bias, *(f"{weight:.3f}" for weight in row.weights))
    yield table


def _simulated(row: Row, name: str, digits: int) -> str:
    if name not in row.simulated:
        return "-"
    value = row.simulated[name]
    return f"{value.mean:.{digits}f} ± {value.se:.{digits}f}"


@app.command()
@_plain_errors
def analyze(
    policy: PolicyOption = None,
    pass_rate: Annotated[
        list[float] | None,
        typer.Option(metavar="P", help="A pass rate in [0, 1]; repeatable.", show_default=False),
    ] = None,
    rules: RulesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Analyse policies exactly at given pass rates.

    \b
    Examples:
      python -m sim analyze --pass-rate 0.1 --pass-rate 0.5
      python -m sim analyze --policy reinforce-ada-balance:rounds=8 --pass-rate 0.1 --json
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from ada_bandit import analyze as exact
    from sim.policies import read_policies

    rates = pass_rate or list(_PASS_RATES)
    policies = read_policies(policy or _POLICIES, rules or ())
    results = [(one.label, exact(one, rates)) for one in policies]
    if as_json:
        lines = []
        for label, analysis in results:
            for index, rate in enumerate(rates):
                numbers = {"pass_rate": rate} | {name: float(getattr(analysis, name)[index]) for name in _ANALYSIS}
                parts = [f'"policy": {json.dumps(label)}', *(f'"{k}": {_digits(v)}' for k, v in numbers.items())]
                lines.append("  {" + ", ".join(parts) + "}")
        sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
        return
    columns = ("responses", "rounds", "signal", "resolved", "pool-mean\nbias", "pool-mean\nmse", "w")
    console = _console()
    for label, analysis in results:
        table = _table(_escape(label), "p", *columns)
        for index, rate in enumerate(rates):
            values = [float(getattr(analysis, name)[index]) for name in _ANALYSIS]
            # Adding 0 turns -0 into 0.
            table.add_row(f"{rate:g}", *(f"{round(value, 5) + 0.0:.5f}" for value in values))
        console.print(table)


def _digits(value: float) -> str:
    """Write a finite float in JSON with 17 significant digits: it is read back as the same float."""
    if not math.isfinite(value):
        msg = f"JSON has no number for {value!r}"
        raise ValueError(msg)
    text = f"{value:.17g}"
    return text if any(mark in text for mark in ".e") else f"{text}.0"


@app.command()
@_plain_errors
def show(
    policy: PolicyOption = None,
    table: Annotated[
        TableName | None, typer.Option(help="Draw this table alone; all five by default.", show_default=False)
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Cells of each axis to show, in responses from 0.")] = 16,
    rules: RulesOption = None,
) -> None:
    """Draw the tables of a policy as text, positives upwards and negatives to the right.

    \b
    Examples:
      python -m sim show --policy reinforce-ada-balance
      python -m sim show --policy mine.toml --table draws --size 24
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from ada_bandit.tables import draw_lattice
    from sim.policies import read_policies

    for one in read_policies(policy or _POLICIES[-1:], rules or ()):
        blocks = [one.to_toml().rstrip()]
        names = [item.value for item in TableName] if table is None else [table.value]
        blocks += [f"{name}: {_MEANINGS[name]}\n{draw_lattice(one.tables, name, size)}" for name in names]
        blocks.append(_SYMBOLS)
        typer.echo("\n\n".join(blocks) + "\n")


_MEANINGS: dict[str, Any] = {
    "draws": "responses of the next round",
    "keep_pos": "positives kept in the group (their mean where the split is random)",
    "keep_neg": "negatives kept in the group (their mean where the split is random)",
    "adv_pos": "advantage of a kept positive",
    "adv_neg": "advantage of a kept negative",
}
_SYMBOLS = (
    "+ exit, resolved; x exit, exhausted; - the prompt goes on; . no round can end here; "
    "pos and neg count correct and incorrect responses"
)
