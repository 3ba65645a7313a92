"""``python -m sim advise``: whether another way of sampling would pay, from what a run has on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.policy import Policy
from ada_bandit.programs.console import Advance, escape, new_table, part
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from ada_bandit.score_model import ASSUMPTIONS
from ada_bandit.specs import read_policy
from sim.advise.changes import options_of, step_choices
from sim.advise.now import now_of
from sim.advise.page import write_page
from sim.advise.paste import pastes_of
from sim.advise.settings import Range
from sim.advise.study import Advice, advise_on
from sim.advise.verdict import interval_of
from sim.clock.options import MachineOptions
from sim.log.study import SIZES, LogReport, of_log, of_scalars
from sim.options import ROLLOUTS, LogReading, ScalarsOption
from sim.score_model import parse_noise_ratio
from sim.sources import built_in_rollouts
from sim.stopped.pools import Interval
from sim.stopped.scalars import law_of_scalars, parse_scalars

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["advise"]

_READING, _STUDYING, _ADVISING = 30, 20, 50
"""Parts of the progress bar."""
_RESAMPLES = 200
"""Resamples of the prompts behind every interval."""


@command
def advise(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            allow_dash=True,
            help="A file, a folder or a glob: dumps of training frameworks, evaluations, tables of responses or of "
            "counts. The built-in rollouts unless given.",
            show_default=False,
        ),
    ] = None,
    *,
    reading: LogReading,
    scalars: ScalarsOption = None,
    now: Annotated[
        str | None,
        typer.Option(
            metavar="PRESET_OR_TOML",
            allow_dash=True,
            help="The policy that you run now; what the log shows unless given.",
            show_default=False,
        ),
    ] = None,
    noise_ratio: Annotated[
        str | None,
        typer.Option(
            metavar="NU|POS,NEG",
            help="Noise energy of a response's score over that of its signal, as 'python -m llm probe' measures it; "
            "0.1 to 30 are tried unless given.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What you want to climb: mean, log, or pass@k; mean, log and pass@8 are tried unless given.",
            show_default=False,
        ),
    ] = None,
    transfer: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="1 where every step has fresh prompts, 0 where a small pool of unlike prompts comes back; both are "
            "tried unless given.",
            show_default=False,
        ),
    ] = None,
    update_cost: Annotated[
        float, typer.Option(metavar="COST", help="Cost of a kept response in the update, in responses drawn.")
    ] = 0.0,
    responses_a_step: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="X",
            help="Responses that a step has: prompts a step and responses a prompt are then one choice.",
            show_default=False,
        ),
    ] = None,
    machine: MachineOptions,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples behind the intervals.")] = 0,
    output: Annotated[Output, output_options("advise", ", the report advise.html and policy files", "out/advise")],
) -> None:
    """Say from a log whether another way of sampling would pay, with which settings, and how sure that is.

    What is exact given the law of pass rates, and what rests on the score model, is marked. Intervals are of 95 %, from
    resamples of the prompts. The report is one HTML file, which loads nothing.

    \b
    Examples:
      python -m sim advise runs/grpo/completions
      python -m sim advise 'dump/*.jsonl' --noise-ratio 5,10.6 --transfer 1
      python -m sim advise ada_pools.jsonl --stopped-by reinforce-ada-balance --responses-a-step 4096
      python -m sim advise --scalars mean=0.41,zero_std=0.55,n=8
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if path is not None and scalars is not None:
        msg = f"give the path of a log or the scalars of a run, and not both; got {path!r} and --scalars {scalars!r}"
        raise InputError(msg)
    noise = None if noise_ratio is None else parse_noise_ratio(noise_ratio)
    choices = Range(noise, objective, transfer, update_cost)
    stated = None if now is None else _stated(now)
    known = None if scalars is None else parse_scalars(scalars)

    def compute(_: Path, advance: Advance) -> Advice:
        if known is not None:
            report: LogReport = of_scalars(str(scalars), law_of_scalars(known, seed=seed), SIZES)
            advance(_READING + _STUDYING)
        else:
            log = reading.read(path or built_in_rollouts(ROLLOUTS).path, part(advance, _READING))
            study = reading.study(log, replicates=_RESAMPLES, seed=seed)
            report = of_log(log, study, SIZES, part(advance, _STUDYING))
            if path is None:
                report = replace(report, label=ROLLOUTS)

        group = None if known is None else round(float(known["n"]))
        advance(0, "weighing policies")
        return advise_on(
            report,
            partial(now_of, stated=stated, n=group),
            choices,
            machine=machine,
            responses_a_step=responses_a_step,
            progress=part(advance, _ADVISING),
        )

    run_study(output, compute, _report, write_page, doing="reading", total=_READING + _STUDYING + _ADVISING)


def _stated(spec: str) -> Policy:
    policy = read_policy(spec)
    if not isinstance(policy, Policy):
        msg = f"--now takes one policy, and {spec!r} is a blend; give the part that most prompts get"
        raise InputError(msg)
    return policy


def _report(advice: Advice) -> Report:
    log = advice.report.log
    read: tuple[str, ...] = ()
    if log is not None:
        head = f"{log.format}: {log.prompts:,} prompts, {log.responses:,} responses"
        read = (head + (f", {log.unscored:,} without a score" if log.unscored else ""), *log.notes)
    guess = " (assumed)" if advice.now.assumed else ""
    notes = (
        f"now: {advice.now.label}{guess}: {advice.now.why}",
        *advice.notes,
        *_pasted(advice),
        f"settings of the score model: {advice.choices.label}",
        f"responses and signal are exact given the law; progress rests on the score model: {ASSUMPTIONS}",
    )
    return Report("Log", advice.report.label, _tables(advice), notes, read)


def _pasted(advice: Advice) -> Iterator[str]:
    for each in pastes_of(advice):
        trl = f"; for TRL: {each.trl}" if each.trl else ""
        yield f"to paste, {each.why}: {each.title}, {each.file}{trl}"


def _tables(advice: Advice) -> Iterator[Table]:
    yield _verdict(advice)
    yield _groups(advice)
    if not advice.compared:
        return
    yield _policies(advice)
    heads = ("times now", "95 % interval", "over settings")
    table = new_table("What you could change, one thing at a time", "change", *heads)
    for change in options_of(advice):
        table.add_row(
            escape(f"{change.name}: {change.how}"),
            f"{change.factor.value:.2f}",
            _ends(change.factor),
            _span(*change.ends),
        )
    yield table
    table = new_table("Where a gain comes from", "part", "factor", "95 % interval")
    for name, values in advice.split():
        found = interval_of(values)
        table.add_row(name.replace("_", " "), f"{found.value:.2f}", _ends(found))
    yield table
    if steps := step_choices(advice):
        title = f"With {advice.responses_a_step:,} responses a step"
        table = new_table(title, "policy", "prompts", "groups with\nsignal", "progress a step,\ntimes now")
        for step in steps:
            table.add_row(escape(step.label), f"{step.prompts:,.0f}", f"{step.signal:,.0f}", f"{step.apart.value:.2f}")
        yield table


def _verdict(advice: Advice) -> Table:
    table = new_table("Verdict", escape(advice.verdict.headline))
    table.add_row(escape(advice.verdict.text.replace("`", "")))
    return table


def _groups(advice: Advice) -> Table:
    groups = advice.groups
    table = new_table(f"Groups under {advice.now.label}", "", "share", "95 % interval")
    for name, found in (
        ("hold both classes: signal", groups.signal),
        ("no correct response", groups.all_wrong),
        ("no incorrect response", groups.all_right),
        ("without signal, as n is too small", groups.small),
        ("too hard for 64 responses as well", groups.hard),
        ("too easy for 64 responses as well", groups.easy),
    ):
        table.add_row(name, f"{found.value:.1%}", f"{found.low:.1%} to {found.high:.1%}")
    for each in groups.recoveries:
        table.add_row(
            f"signal with up to {each.responses} responses, {each.extra.value:.1f} more a prompt",
            f"{each.signal.value:.1%}",
            f"{each.signal.low:.1%} to {each.signal.high:.1%}",
        )
    return table


def _policies(advice: Advice) -> Table:
    heads = ["responses\na prompt", "signal", "progress per\nresponse", "95 % interval", "over\nsettings"]
    tokens = any(each.per_token is not None for each in advice.compared)
    if tokens:
        heads += ["per\ntoken", "per\nsecond"]
    table = new_table(f"Policies, times now, at {advice.choices.middle.label}", "policy", *heads)
    for each in advice.compared:
        row = [
            escape(each.candidate.label),
            f"{each.responses.value:.1f}",
            f"{each.signal.value:.0%}",
            f"{each.per_response.value:.2f}",
            _ends(each.per_response),
            _span(*each.ends),
        ]
        if tokens:
            row += ["" if found is None else f"{found.value:.2f}" for found in (each.per_token, each.per_second)]
        table.add_row(*row)
    return table


def _ends(found: Interval) -> str:
    return _span(found.low, found.high)


def _span(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"
