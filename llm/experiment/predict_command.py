"""``python -m llm predict``: what the score model says of experiments before they are run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table, open_console, print_written
from ada_bandit.programs.folders import make_folder, write_results
from ada_bandit.programs.options import JsonOption
from ada_bandit.programs.records import plain, to_csv, to_json
from ada_bandit.programs.scores import ProbedScores, read_scores
from llm.commands.errors import command
from llm.experiment.plan import read_experiment
from llm.experiment.predict import Bounds, Prediction, bounds, predict

__all__ = ["predict_experiments"]


@command
def predict_experiments(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG...", help="Experiments' TOML files.")],
    probe: Annotated[
        list[str],
        typer.Option(metavar="BASE=FILE", help="A probe of each base model: its scores.npz; repeatable."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the tables.")] = Path("out/llm/predictions"),
    as_json: JsonOption = False,
) -> None:
    """Predict how many responses and tokens every arm needs, over those of the reference, from probes of the bases.

    \b
    Example:
      python -m llm predict llm/configs/trials-many.toml --probe many-a=out/llm/trials/probe-many-a/scores.npz
    """  # noqa: D301 - \b keeps the lines of the example apart
    probes = dict(_probe(text) for text in probe)
    found: list[Prediction] = []
    room: list[Bounds] = []
    for config in configs:
        plan = read_experiment(config, out)
        found += predict(config.stem, plan, probes)
        room += bounds(config.stem, plan, probes)
    rows = [dict(plain(asdict(each))) for each in found]
    if as_json:
        sys.stdout.write(to_json(rows))
        return
    texts = {
        "predictions.csv": to_csv(rows),
        "predictions.md": to_markdown(found),
        "bounds.csv": to_csv([asdict(each) for each in room]),
    }
    written = write_results(make_folder(out), texts)
    shown = open_console()
    for task in dict.fromkeys(each.task for each in found):
        shown.print()
        shown.print(_table(task, [each for each in found if each.task == task]))
    shown.print()
    shown.print(_bounds_table(room))
    print_written(out, written, shown)


def _bounds_table(room: Sequence[Bounds]) -> Table:
    table = new_table(
        "room, of the reference", "base", "one\nresponse", "optimum", "rates\nknown", "rates known,\nskipping"
    )
    for each in room:
        values = (each.one_response, each.optimum, each.known, each.known_skipping)
        table.add_row(escape(each.base), *(f"{value:.2f}" for value in values))
    return table


def _probe(text: str) -> tuple[str, ProbedScores]:
    base, equals, file = text.partition("=")
    if not equals:
        msg = f"a probe must be BASE=FILE, such as a=out/probe/scores.npz; got {text!r}"
        raise InputError(msg)
    return base, read_scores(Path(file))


def _mean_ratio(rows: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(rows))))


def _by_arm(found: Sequence[Prediction]) -> list[tuple[str, list[Prediction]]]:
    """Return the predictions by arm, the best one per response first."""
    arms: dict[str, list[Prediction]] = {}
    for each in found:
        arms.setdefault(each.arm, []).append(each)
    return sorted(arms.items(), key=lambda item: -_mean_ratio([each.ratio_responses for each in item[1]]))


def _cells(arm: str, rows: Sequence[Prediction]) -> list[str]:
    measured = [each.measured for each in rows]
    shown = "-" if np.isnan(measured).any() else " ".join(f"{value:.2f}" for value in measured)
    return [
        arm,
        f"{rows[0].batch}",
        f"{np.mean([each.responses for each in rows]):.2f}",
        f"{np.mean([each.responses * each.batch for each in rows]):.0f}",
        f"{_mean_ratio([each.ratio_responses for each in rows]):.3f}",
        " ".join(f"{each.ratio_responses:.2f}" for each in rows),
        f"{_mean_ratio([each.ratio_tokens for each in rows]):.3f}",
        shown,
    ]


_HEADS = (
    "arm",
    "prompts a step",
    "responses a prompt",
    "responses a step",
    "ratio per response",
    "of each base",
    "ratio per token",
    "from class sums, each base",
)


def _table(task: str, found: Sequence[Prediction]) -> Table:
    # The last column is too wide for a terminal; the file has it.
    table = new_table(task, *(head.replace(" ", "\n", 1) for head in _HEADS[:-1]))
    for arm, rows in _by_arm(found):
        name, *cells = _cells(arm, rows)[:-1]
        table.add_row(escape(name), *cells)
    return table


def to_markdown(found: Sequence[Prediction]) -> str:
    """Return a table a task in Markdown, the best arm per response first."""
    parts = []
    for task in dict.fromkeys(each.task for each in found):
        own = [each for each in found if each.task == task]
        bases = {each.base: each for each in own}.values()
        told = "; ".join(
            f"{each.base}: mean rate {each.mean:.3f}, noise ({each.noise_pos:.2f}, {each.noise_neg:.2f}), overlap "
            f"{each.overlap:.4f}, transfer {each.transfer:.2f}"
            for each in bases
        )
        parts.append(f"## {task}\n\n{told}.\n\n| {' | '.join(_HEADS)} |\n|{'---|' * len(_HEADS)}\n")
        parts[-1] += "".join(f"| {' | '.join(_cells(arm, rows))} |\n" for arm, rows in _by_arm(own))
    return "\n".join(parts)
