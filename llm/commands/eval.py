"""``python -m llm eval``: Ave@k and pass@k of a model on a task, or of a log of responses."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table, open_console, print_plain
from ada_bandit.programs.options import JsonOption
from ada_bandit.programs.records import to_json
from ada_bandit.programs.rollouts import RolloutLine, read_log
from llm.commands.errors import command
from llm.commands.sampling import PromptsOption, Sampling, SamplingOptions, run_rollouts
from llm.config import RunConfig
from llm.evaluate import INTERVAL, LogReport, PromptsReport, check_ks, summarize
from llm.models import load_tokenizer
from llm.rollout import rollout_settings

__all__ = ["evaluate"]

_LOGS = Path("out/eval")


@command
def evaluate(
    *,
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL_DIR", help="Directory of the model; none to evaluate --log alone.", show_default=False
        ),
    ] = None,
    sampling: Sampling,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Responses to each prompt; 16 by default.", show_default=False)
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            metavar="K,K,…",
            help="Each k of pass@k; by default the powers of 4 up to the responses to a prompt.",
            show_default=False,
        ),
    ] = None,
    prompts: PromptsOption = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Log of the responses, gone on with where it is there; by default a file in out/eval, another one for "
            "each model and setting.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate Ave@k and pass@k with 95 % confidence intervals over prompts, overall and by family.

    Responses are sampled to a log, as by 'python -m llm rollout': an evaluation
    that was cut short goes on when the same command is given again.
    Without a model, --log is evaluated as it is.

    \b
    Examples:
      python -m llm eval out/llm/tiny --task task.toml --samples 16 --k 1,4,16
      python -m llm eval --log rollouts.jsonl --json
    """  # noqa: D301 - \b keeps the lines of the examples apart
    ks = None if k is None else _parse_ks(k)
    if model is None:
        log = _log_alone(log, sampling, samples)
        lines, notes = _read(log, prompts)
    else:
        count = 16 if samples is None else samples
        if ks is not None:
            # Before anything is sampled.
            check_ks(ks, count)
        run = sampling.run_config(model)
        log = log or _default_log(run, count)
        lines, notes = _sample(run, count, prompts, log)
    report = summarize(lines, ks)
    if as_json:
        told = {"log": str(log)} | report.to_dict() | {"notes": notes}
        sys.stdout.write(to_json(told))
    else:
        _print(report, notes, log)


def _parse_ks(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as error:
        msg = f"--k must be whole numbers with commas between them, such as 1,4,16; got {text!r}"
        raise InputError(msg) from error


def _log_alone(log: Path | None, sampling: SamplingOptions, samples: int | None) -> Path:
    """Return the log that is evaluated without a model, where nothing else is asked for."""
    values = {"task": sampling.task, "config": sampling.config, "samples": samples, **sampling.changes}
    names = {"sampler.kind": "sampler"}
    named = [
        f"--{names.get(name, name).removeprefix('sampler.').replace('_', '-')} {value}"
        for name, value in values.items()
        if value is not None
    ]
    if log is None or named:
        got = f"got {' '.join(named)}, and no model" if named else "got neither"
        msg = f"give MODEL_DIR to sample from, or --log FILE to evaluate a log as it is; {got}"
        raise InputError(msg)
    return log


def _default_log(run: RunConfig, samples: int) -> Path:
    """Return a file that no other model, task or setting shares, so that none stands in another's way."""
    # Tells what is wrong with a directory before its weights are read.
    load_tokenizer(run.model.path)
    settings = rollout_settings(run, samples)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    return _LOGS / f"{settings['model']['name']}-{digest}.jsonl"


def _read(log: Path, prompts: int | None) -> tuple[Sequence[RolloutLine], list[str]]:
    lines = read_log(log)
    short = prompts is not None and prompts > len(lines)
    return lines[:prompts], [f"{prompts} prompts were asked for; the log has {len(lines)}"] if short else []


def _sample(run: RunConfig, samples: int, prompts: int | None, log: Path) -> tuple[Sequence[RolloutLine], list[str]]:
    """Return the lines of the prompts asked for, sampling those that the log lacks."""
    done, rollouts, first_error = run_rollouts(run, samples, prompts, log)
    notes = [*rollouts.notes]
    wanted = len(rollouts.prompts)
    if len(done.lines) > wanted:
        notes.append(f"the log holds {len(done.lines) - wanted} prompts more than were asked for, left out here")
    if first_error:
        notes.append(f"the first response without a score: {first_error}")
    return done.lines[:wanted], notes


def _print(report: LogReport, notes: Sequence[str], log: Path) -> None:
    shown, overall = open_console(), report.overall
    shown.print(_table(report))
    fewest, largest = report.samples
    tokens = "" if math.isnan(overall.tokens) else f", {overall.tokens:.1f} tokens a response"
    each = f"{largest} to each" if fewest == largest else f"{fewest} to {largest} to each that has any"
    cut = f"{overall.truncated:,} ({overall.truncated / overall.responses:.1%})"
    told = [
        f"{overall.prompts:,} prompts, {overall.responses:,} responses ({each}){tokens}",
        f"truncated: {cut}; without a score: {overall.unscored:,}, left out",
    ]
    short = {name: measure.left_out for name, measure in overall.measures.items() if measure.left_out}
    if short:
        left_out = ", ".join(f"{count} of {name}" for name, count in short.items())
        told.append(f"prompts left out, with too few scored responses: {left_out}")
    for note in [*told, *notes]:
        print_plain(note, shown)
    for note in (INTERVAL, f"log: {log}"):
        print_plain(note, shown, "dim")


def _table(report: LogReport) -> Table:
    table = new_table("Evaluation", "family")
    table.add_column("measure", no_wrap=True)
    for head in ("prompts", "estimate", "from", "to"):
        table.add_column(head, justify="right", no_wrap=True)
    families = [*report.families.items()] if len(report.families) > 1 else []
    for name, group in [*families, ("all", report.overall)]:
        rows = _rows(group)
        for place, row in enumerate(rows):
            table.add_row("" if place else escape(name), *row, end_section=place == len(rows) - 1)
    return table


def _rows(group: PromptsReport) -> list[list[str]]:
    def number(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:.3f}"

    return [
        [name, f"{each.prompts:,}", number(each.value), number(each.low), number(each.high)]
        for name, each in group.measures.items()
    ]
