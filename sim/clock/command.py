"""``python -m sim clock``: what a training step takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.clock.figure import write_figures
from sim.clock.options import MachineOptions
from sim.clock.parts import Lengths
from sim.clock.study import ClockComparison, time_policies
from sim.options import Policies, RolloutLaw
from sim.readers import read_rollouts
from sim.sources import Source, built_in_rollouts

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["clock"]

_LENGTHS = "--lengths"


@command
def clock(
    *,
    policies: Policies,
    source: RolloutLaw,
    lengths: Annotated[
        str | None,
        typer.Option(
            _LENGTHS,
            metavar="POS,NEG",
            help="Mean tokens of correct and of incorrect responses, log-normal; by default those of the built-in "
            "rollouts, where these are the pass rates.",
            show_default=False,
        ),
    ] = None,
    cv: Annotated[
        float, typer.Option(min=0, help="Standard deviation over mean of the lengths of --lengths, by class.")
    ] = 0.5,
    lengths_from: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            allow_dash=True,
            help="A log with the tokens of every response, to take the lengths from.",
            show_default=False,
        ),
    ] = None,
    machine: MachineOptions,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of a step.")] = 512,
    steps: Annotated[int, typer.Option(min=0, help="Steps to simulate of each policy; 0 for the formula alone.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    output: Annotated[Output, output_options("clock", " and the figure", "out/clock")],
) -> None:
    """Time a training step: slots, rounds with or without barriers, the update.

    Pass rates are those of smollm2-reasoning-gym unless an option names others. The formula follows the mean of the
    queue; beside it stand steps that are simulated response by response.

    \b
    Examples:
      python -m sim clock
      python -m sim clock --slots 4096 --streaming --lengths 600,900 --cv 0.7
      python -m sim clock --curve qwen2.5-math-1.5b-base --at-least 1/16 --lengths 650,900 --slots 2048
      python -m sim clock --pass-rates counts.csv --lengths-from ada_pools.jsonl --policy grpo --policy mine.toml
    """  # noqa: D301 - \b keeps the lines of the examples apart
    known = _lengths(source, lengths, cv, lengths_from)
    run_study(
        output,
        lambda _, advance: time_policies(
            policies, source, known, machine, prompts=prompts, steps=steps, seed=seed, progress=advance
        ),
        _report,
        write_figures,
        doing="timing",
        total=len(policies),
    )


def _lengths(source: Source, text: str | None, cv: float, path: str | None) -> Lengths:
    """Return the lengths that the options name."""
    if text is not None and path is not None:
        msg = f"{_LENGTHS} {text!r} and --lengths-from {path!r} exclude each other; give one of them"
        raise InputError(msg)
    if text is not None:
        try:
            pos, neg = (float(part) for part in text.split(","))
        except ValueError as error:
            msg = f"{_LENGTHS} needs two mean lengths in tokens, such as 300,450; got {text!r}"
            raise InputError(msg) from error
        return Lengths.of_means(pos, neg, cv=cv)
    if path is None and source.settings.get("kind") == "rollouts":
        path = str(built_in_rollouts(source.settings["name"]).path)
    if path is None:
        msg = (
            f"the pass rates {source.label!r} say nothing of lengths; give the means of correct and of incorrect "
            f"responses, {_LENGTHS} 300,450, or a log with tokens, --lengths-from PATH"
        )
        raise InputError(msg)
    return Lengths.of_log(read_rollouts(Path(path)))


def _report(comparison: ClockComparison) -> Report:
    source = comparison.source
    return Report("Pass rates", source.label, _tables(comparison), comparison.notes, source.notes)


def _tables(comparison: ClockComparison) -> Iterator[Table]:
    """Give the comparison as tables that each fit a terminal of 80 columns."""
    first = comparison.rows[0]
    title = f"Seconds of a step, {comparison.prompts} prompts"
    table = new_table(title, "policy", "sampling", "simulated\n± std. error", "update", "step", "vs.\nfirst")
    for row in comparison.rows:
        simulated = "-" if row.simulated is None else row.simulated.text(1)
        cells = (f"{row.time.sampling:.1f}", simulated, f"{row.time.update:.1f}", f"{row.time.total:.1f}")
        table.add_row(escape(row.policy), *cells, f"{row.time.total / first.time.total:.2f}")
    yield table

    other = "streaming" if comparison.machine.barriers else "barriers"
    table = new_table("Sampling", "policy", "responses\na step", "tokens", "slots\nbusy", "rounds", f"if\n{other}")
    for row in comparison.rows:
        rounds = " + ".join(f"{seconds:.0f}" for seconds in row.time.rounds[:4])
        rounds += " + …" if row.time.rounds.size > 4 else ""
        cells = (f"{row.time.responses:,.0f}", f"{row.time.tokens:,.0f}", f"{row.time.busy:.0%}", rounds)
        table.add_row(escape(row.policy), *cells, f"{row.other.sampling:.1f}")
    yield table
