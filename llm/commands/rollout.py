"""``python -m llm rollout``: a log of responses to the prompts of a task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ada_bandit.programs.console import open_console, print_plain
from ada_bandit.programs.rollouts import RolloutLine, RolloutLog
from llm.commands.errors import command
from llm.commands.sampling import ModelArgument, PromptsOption, Sampling, run_rollouts
from llm.rollout import Rollouts

__all__ = ["rollout"]

_EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)
_HEADS = ("0", "to 1/4", "to 1/2", "to 3/4", "below 1", "1")


@command
def rollout(
    *,
    model: ModelArgument,
    sampling: Sampling,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The log, one JSON line a prompt.", show_default=False)],
    samples: Annotated[int, typer.Option(min=1, help="Responses to each prompt.")] = 32,
    prompts: PromptsOption = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the responses' texts there, one JSON line a prompt.", show_default=False
        ),
    ] = None,
) -> None:
    """Sample responses to each prompt, score them, and write the log of rewards and tokens that sim reads.

    A log that was cut short goes on when the same command is given again; with more prompts it grows.

    \b
    Examples:
      python -m llm rollout models/smollm2 --config llm/configs/smollm2-reasoning-gym.toml --out rollouts.jsonl
      python -m sim replay rollouts.jsonl
    """  # noqa: D301 - \b keeps the lines of the examples apart
    log, rollouts, first_error = run_rollouts(sampling.run_config(model), samples, prompts, out, texts)
    _print(log, rollouts, first_error)


def _print(log: RolloutLog, rollouts: Rollouts, first_error: str) -> None:
    shown = open_console()
    lines = log.lines
    shown.print(_histogram(lines))
    responses = sum(line.rewards.size for line in lines)
    tokens = sum(sum(line.tokens) for line in lines)
    cut = sum(line.truncated for line in lines)
    unscored = responses - sum(line.scored for line in lines)
    notes = [
        *rollouts.notes,
        f"{len(lines)} prompts, {responses:,} responses, {tokens:,} tokens ({tokens / responses:.1f} a response)",
        f"truncated: {cut:,} ({cut / responses:.1%}); without a score: {unscored:,}",
    ]
    if len(lines) > len(rollouts.prompts):
        notes.append(f"the log holds {len(lines) - len(rollouts.prompts)} prompts more than were asked for")
    if first_error:
        notes.append(f"the first response without a score: {first_error}")
    for note in notes:
        print_plain(note, shown)
    print_plain(f"written to {log.path}", shown, "dim")


def _histogram(lines: Sequence[RolloutLine]) -> Table:
    """Return how many prompts have which pass rate, by family."""
    table = Table(title="Prompts by pass rate", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("family")
    for head in ("prompts", "pass rate", *_HEADS, "tokens"):
        table.add_column(head, justify="right")
    families = sorted({line.family for line in lines})
    groups: list[tuple[str, Sequence[RolloutLine]]] = [
        (f, [each for each in lines if each.family == f]) for f in families
    ]
    for name, group in [*groups, ("all", lines)]:
        rates = np.array([line.correct / line.scored for line in group if line.scored])
        counts = histogram(rates)
        tokens = np.mean([each for line in group for each in line.tokens])
        mean = f"{rates.mean():.3f}" if rates.size else "-"
        cells: list[Any] = [name, len(group), mean, *(int(each) or "." for each in counts), f"{tokens:.1f}"]
        table.add_row(*map(str, cells), end_section=name == (families or [""])[-1])
    return table


def histogram(rates: Any) -> list[int]:
    """Count rates that are 0, in (0, 1/4], (1/4, 1/2], (1/2, 3/4], (3/4, 1), and 1."""
    inner = rates[(rates > 0) & (rates < 1)]
    places = np.searchsorted(_EDGES[1:-1], inner, side="left")
    return [int((rates == 0).sum()), *np.bincount(places, minlength=4).tolist(), int((rates == 1).sum())]
