"""``python -m sim log``: what a log of rollouts is, and what it says of its prompts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import Advance, new_table, part
from ada_bandit.programs.folders import write_text
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.log.figure import write_figures
from sim.log.study import SIZES, LogReport, of_log, of_scalars
from sim.options import LogReading, ScalarsOption
from sim.stopped.pools import Interval
from sim.stopped.scalars import law_of_scalars, parse_scalars

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["log"]

_READING, _STUDYING = 70, 30
"""Parts of the progress bar."""
_RESAMPLES = 400
"""Resamples of the prompts behind every interval."""


@command
def log(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            allow_dash=True,
            help="A file, a folder or a glob: dumps of training frameworks, evaluations, tables of responses or of "
            "counts. Its format is recognised, and what was taken for what is told.",
            show_default=False,
        ),
    ] = None,
    *,
    reading: LogReading,
    scalars: ScalarsOption = None,
    group_sizes: Annotated[
        list[int] | None,
        typer.Option("--group-size", min=2, metavar="N", help="Tell the signal of N plain responses; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples behind the intervals.")] = 0,
    output: Annotated[Output, output_options("log", ", the pools as rollouts.jsonl, and the figure", "out/log")],
) -> None:
    """Read a log of rollouts: what it is, how its pools came to their end, and the law of its pass rates.

    A pool that was stopped by its own rewards is no plain sample, so the share of groups with signal is never taken
    from parts of one: it rests on the rule's paths, on the first responses in logged order, or on the fitted law.
    Intervals are of 95 %, from resamples of the prompts. rollouts.jsonl is what all other commands read.

    \b
    Examples:
      python -m sim log runs/grpo/completions
      python -m sim log 'dump/*.jsonl' --group-size 8
      python -m sim log ada_pools.jsonl --stopped-by reinforce-ada-balance
      python -m sim log kept_rows.jsonl --holds kept --stopped-by reinforce-ada-balance
      python -m sim log results.csv --prompt task --correct solved --total 16
      python -m sim log --scalars mean=0.41,zero_std=0.55,n=8
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if (path is None) == (scalars is None):
        both = f"got the path {path!r} and --scalars {scalars!r}" if path else "got neither"
        msg = f"give the path of a log, or the scalars of a run as --scalars mean=0.41,zero_std=0.55,n=8; {both}"
        raise InputError(msg)
    sizes = tuple(group_sizes or SIZES)

    def compute(folder: Path, advance: Advance) -> LogReport:
        if path is None:
            text = str(scalars)
            return of_scalars(text, law_of_scalars(parse_scalars(text), seed=seed), sizes)
        read = reading.read(path, part(advance, _READING))
        advance(0, "estimating")
        study = reading.study(read, replicates=_RESAMPLES, seed=seed)
        report = of_log(read, study, sizes, part(advance, _STUDYING))
        if report.rollouts is not None:
            write_text(folder / "rollouts.jsonl", report.rollouts)
        return report

    run_study(
        output, compute, partial(_report, output.folder), write_figures, doing="reading", total=_READING + _STUDYING
    )


def _report(folder: Path, report: LogReport) -> Report:
    notes = [*report.notes, *_how(report)]
    if report.log is None:
        return Report("Scalars", report.label, _tables(report), notes)
    if report.rollouts is not None:
        file = folder / "rollouts.jsonl"
        notes.append(f"{file} holds the pools as all commands read them: python -m sim compare --pass-rates {file}")
    read = report.log
    head = f"{read.format}: {read.prompts:,} prompts, {read.lengths.size:,} pools, {read.responses:,} responses"
    head += f", {read.unscored:,} without a score" if read.unscored else ""
    return Report("Log", report.label, _tables(report), notes, (head, *read.notes))


def _how(report: LogReport) -> Iterator[str]:
    """Say what the estimates rest on, each way once."""
    ways: dict[str, list[str]] = {}
    named = {f"the signal of {n}": found for n, found in report.plain_signal.items()}
    for name, found in {"the mean pass rate": report.pass_rate, **named}.items():
        ways.setdefault(found.how, []).append(name)
    for how, names in ways.items():
        yield f"{', '.join(names)}: {how}"


def _tables(report: LogReport) -> Iterator[Table]:
    table = new_table("What the prompts are like", "", "value", "95 % interval")
    table.add_row("mean pass rate", *_cells(report.pass_rate))
    for n, found in report.plain_signal.items():
        table.add_row(f"signal of {n} plain responses", *_cells(found))
    yield table
    if report.steps:
        heads = (
            "pools",
            "mean\npass rate",
            "95 % interval",
            f"signal\nat n = {min(report.plain_signal)}",
            "95 % interval",
        )
        table = new_table("By step", "step", *heads)
        for each in report.steps:
            table.add_row(str(each.step), str(each.pools), *_cells(each.pass_rate), *_cells(each.signal))
        yield table


def _cells(found: Interval) -> tuple[str, str]:
    return f"{found.value:.3f}", f"{found.low:.3f} to {found.high:.3f}"
