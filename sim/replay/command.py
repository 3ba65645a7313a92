"""``python -m sim replay``: policies on logged rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.logs import Order, to_replay
from sim.options import ROLLOUTS, LogReading, SinglePolicies
from sim.readers import RolloutLog
from sim.reading import Reading, agree
from sim.replay.figure import write_figures
from sim.replay.study import ORDERS, Replay, Span, replay_log
from sim.sources import built_in_rollouts

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["replay"]


@command
def replay(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            allow_dash=True,
            help="Logged rollouts, a file, a folder or a glob: dumps of training frameworks, or tables of responses or "
            "of counts. What was recognised and guessed is told.",
            show_default=False,
        ),
    ] = None,
    source_name: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Replay built-in rollouts in place of a file: smollm2-reasoning-gym.",
            show_default=False,
        ),
    ] = None,
    *,
    policies: SinglePolicies,
    shuffle: Annotated[
        bool,
        typer.Option("--shuffle", help="Draw rewards in random orders without replacement, as counts always are."),
    ] = False,
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap",
            help="Draw with replacement, so that no log ends; takes correct/total of each prompt as its pass rate.",
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, help="Random orders to replay; 20 by default.", show_default=False),
    ] = None,
    reading: LogReading,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the orders and of the groups.")] = 0,
    output: Annotated[Output, output_options("replay", " and the figure", "out/replay")],
) -> None:
    """Replay logged rollouts: what each policy would have cost, and what it would have caught.

    \b
    Examples:
      python -m sim replay rollouts.jsonl
      python -m sim replay --source smollm2-reasoning-gym
      python -m sim replay rollouts.jsonl --shuffle --policy mine.toml --policy grpo
      python -m sim replay runs/grpo/completions
      python -m sim replay counts.csv --repeats 100
      python -m sim replay counts.csv --bootstrap
    """  # noqa: D301 - \b keeps the lines of the examples apart
    order = _order(shuffle=shuffle, bootstrap=bootstrap)
    label, read = _read(path, source_name, reading)
    log = to_replay(read)
    log = replace(log, notes=(*log.notes, *agree(read, policies, reading)))
    passes = repeats or ORDERS if order or not log.ordered else 1
    run_study(
        output,
        lambda _, advance: replay_log(
            policies,
            log,
            label=label,
            order=order,
            repeats=repeats,
            seed=seed,
            threshold=reading.options.threshold,
            study=reading.study(read),
            progress=advance,
        ),
        _report,
        write_figures,
        doing="replaying",
        total=passes * len(log.prompt_ids) * len(policies),
    )


def _report(result: Replay) -> Report:
    notes = (f"cost is relative to {result.reference}", *result.notes)
    return Report("Log", result.label, _tables(result), notes)


def _read(path: str | None, source_name: str | None, reading: Reading) -> tuple[str, RolloutLog]:
    """Return the label and the log of a path or of built-in rollouts."""
    if path is not None and source_name is not None:
        msg = f"the log {path!r} and --source {source_name!r} exclude each other; give one of them"
        raise InputError(msg)
    if source_name is not None:
        built_in = built_in_rollouts(source_name)
        log = reading.read(built_in.path)
        return source_name, replace(log, notes=(built_in.origin, *log.notes))
    if path is None:
        msg = f"nothing to replay: give the PATH of logged rollouts, or --source {ROLLOUTS}"
        raise InputError(msg)
    return Path(path).name or path, reading.read(path)


def _order(*, shuffle: bool, bootstrap: bool) -> Order | None:
    if shuffle and bootstrap:
        msg = "--shuffle draws without replacement and --bootstrap with it; give one of them"
        raise InputError(msg)
    return Order.shuffled if shuffle else Order.bootstrap if bootstrap else None


def _tables(result: Replay) -> Iterator[Table]:
    """Give the replay as tables that each fit 100 columns with ranges and spreads, 80 without."""
    rows, prompts, digits = result.rows, len(result.log.prompt_ids), 0 if result.repeats == 1 else 1
    table = new_table("Cost", "policy", "responses\nper prompt", "cost", "rounds\nper prompt", "censored\nprompts")
    for row in rows:
        cost = replace(row.cost, spread=None)
        cells = (
            _cell(row.responses, 2),
            _cell(cost, 2),
            _cell(row.rounds, 2),
            f"{row.censored:.{digits}f} of {prompts}",
        )
        table.add_row(escape(row.policy), *cells)
    yield table

    if any(row.tokens is not None for row in rows):
        table = new_table("Tokens", "policy", "tokens\nper prompt", "cost in\ntokens")
        for row in rows:
            table.add_row(escape(row.policy), _cell(row.tokens, 0), _cell(row.token_cost, 2))
        yield table

    table = new_table(
        "Signal and pass rate", "policy", "signal", "of n plain\nresponses", "unbiased\npass rate", "of the\nlog"
    )
    for row in rows:
        plain = "-" if row.plain_no_signal is None else f"{1 - row.plain_no_signal:.3f}"
        cells = (_cell(row.signal, 3), plain, _cell(row.pass_rate, 3), f"{row.log_pass_rate:.3f}")
        table.add_row(escape(row.policy), *cells)
    yield table

    title = "Exits: a prompt that is not resolved is exhausted"
    table = new_table(title, "policy", "resolved", "short of\npositives", "short of\nnegatives")
    for row in rows:
        spans = (row.resolved, row.short_of_positives, row.short_of_negatives)
        table.add_row(escape(row.policy), *(_cell(span, 3) for span in spans))
    yield table


def _cell(span: Span | None, digits: int) -> str:
    if span is None:
        return "-"
    text = f"{span.low:.{digits}f}" if span.known else f"{span.low:.{digits}f} to {span.high:.{digits}f}"
    return text if span.spread is None else f"{text} ± {span.spread:.{digits}f}"
