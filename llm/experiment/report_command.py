"""``python -m llm report``: what experiments measured, beside what was predicted of them."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from ada_bandit.errors import InputError, unknown_name
from ada_bandit.programs.console import escape, new_table, open_console, print_notes, print_plain, print_written
from ada_bandit.programs.folders import make_folder, write_results
from ada_bandit.programs.options import FiguresOption, JsonOption
from ada_bandit.programs.records import plain, to_csv, to_json
from llm.commands.errors import command
from llm.experiment.agreement import LEVEL, Agreement, ArmMeasure, agreement, measure_arms
from llm.experiment.agreement_figure import Point, write_agreement
from llm.experiment.plan import Axis, read_experiment
from llm.experiment.results import Results, SeedMean, chosen_rates, collect, tune_all

__all__ = ["report"]

_AXES: tuple[Axis, ...] = ("responses", "tokens")


@dataclass(frozen=True)
class _Row:
    """An arm of a task, measured and predicted."""

    task: str
    measure: ArmMeasure
    predicted: float
    rate: float
    runs: int
    note: str
    sums: float
    """The ratio per response that the probe's class sums told; NaN where they tell none."""


@command
def report(
    run: Annotated[
        list[str],
        typer.Option(metavar="CONFIG=DIR", help="An experiment's TOML file and the folder of its runs; repeatable."),
    ],
    predictions: Annotated[Path, typer.Option(metavar="FILE", help="predictions.csv of 'llm predict'.")],
    evaluation: Annotated[str, typer.Option(help="The evaluation that counts.")] = "held_out",
    level: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of the reference's spending whose pass rate is the level.")
    ] = LEVEL,
    reference: Annotated[
        str, typer.Option(metavar="ARM", help="Arm with which the others are compared; the config's unless given.")
    ] = "",
    before: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARM=RESPONSES",
            help="Responses that an arm needs before its runs, such as those of a probe; repeatable.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="ARM", help="Leave an arm out of the agreement; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the tables and the figure.")] = Path(
        "out/llm/report"
    ),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Compare what every arm spent with what was predicted: ratios, areas, intervals, tau and slope.

    \b
    Example:
      python -m llm report --predictions docs/score_model/predictions.csv
        --run llm/configs/trials-many.toml=out/llm/trials/many
    """  # noqa: D301 - \b keeps the lines of the example apart
    rows: list[_Row] = []
    notes: list[str] = []
    told, sums = _predicted(predictions)
    earlier = dict(_responses(text) for text in before or [])
    for text in run:
        config, equals, folder = text.partition("=")
        if not equals:
            msg = f"a run must be CONFIG=DIR, such as trials.toml=out/trials; got {text!r}"
            raise InputError(msg)
        found, more = _measured(
            Path(config),
            Path(folder),
            told,
            sums,
            evaluation=evaluation,
            level=level,
            reference=reference,
            before=earlier,
        )
        rows += found
        notes += more
    known = dict.fromkeys(row.measure.arm for row in rows)
    for arm in [*(without or []), *earlier]:
        if arm not in known:
            raise unknown_name("arm", arm, known)
    agreements = {axis: _agreement(rows, axis, set(without or [])) for axis in _AXES}
    known_sums = [row for row in rows if row.measure.arm not in (without or []) and row.measure.axis == "responses"]
    known_sums = [row for row in known_sums if row.sums > 0]
    if len(known_sums) > 2:
        by_sums = agreement([row.sums for row in known_sums], [row.measure.ratio for row in known_sums])
        by_model = agreement([row.predicted for row in known_sums], [row.measure.ratio for row in known_sums])
        # The same arms by the model, or the two couldn't be compared.
        agreements["responses"] |= {"ratio, class sums": by_sums, "ratio, same arms by the model": by_model}
    records = [_record(row) for row in rows]
    if as_json:
        document = {
            "arms": records,
            "agreement": {axis: _plain(each) for axis, each in agreements.items()},
            "notes": notes,
        }
        sys.stdout.write(to_json(document))
        return
    make_folder(out)
    texts = {
        "measured.csv": to_csv(records),
        "measured.md": to_markdown(rows),
        "agreement.csv": to_csv(
            [{"axis": axis, "of": of, **_plain(each)} for axis, both in agreements.items() for of, each in both.items()]
        ),
    }
    points: dict[str, list[Point]] = {}
    for row in rows:
        if row.measure.axis == "responses":
            points.setdefault(row.task, []).append(_point(row))
    main = agreements["responses"]["ratio"]
    draw = partial(write_agreement, points, main, reference="the reference") if figures else None
    written = write_results(out, texts, None if draw is None else (lambda where: draw(folder=where)))
    shown = open_console()
    for task in points:
        for axis in _AXES:
            shown.print()
            shown.print(_table(task, axis, [row for row in rows if (row.task, row.measure.axis) == (task, axis)]))
    shown.print()
    for axis, both in agreements.items():
        for of, each in both.items():
            print_plain(
                f"{axis}, by {of}: tau {each.tau:.2f} ± {each.tau_error:.2f}, slope {each.slope:.2f} ± "
                f"{each.slope_error:.2f}, rms of log ratios {each.rms:.2f}, {each.count} arms",
                shown,
            )
    print_notes(notes, shown)
    print_written(out, written, shown)


def _responses(text: str) -> tuple[str, int]:
    arm, equals, count = text.partition("=")
    if not equals or not count.isdecimal():
        msg = f"what an arm needs before must be ARM=RESPONSES, such as bayes=6400; got {text!r}"
        raise InputError(msg)
    return arm, int(count)


def _predicted(path: Path) -> tuple[dict[tuple[str, str, Axis], float], dict[tuple[str, str], float]]:
    """Return the predicted ratio of an arm by task, arm and axis, and that of class sums by task and arm.

    Geometric means over base models; NaN where class sums tell no ratio on one of them.
    """
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        values: dict[tuple[str, str, Axis], list[float]] = {}
        sums: dict[tuple[str, str], list[float]] = {}
        for line in lines:
            told = float(line.get("measured") or math.nan)
            sums.setdefault((line["task"], line["arm"]), []).append(math.log(told) if told > 0 else math.nan)
            for axis in _AXES:
                values.setdefault((line["task"], line["arm"], axis), []).append(math.log(float(line[f"ratio_{axis}"])))
    except (OSError, KeyError, ValueError) as error:
        msg = f"{str(path)!r} can't be read as predictions ({error!r}); make it by 'python -m llm predict'"
        raise InputError(msg) from error
    means = {key: math.exp(float(np.mean(logs))) for key, logs in values.items()}
    return means, {key: math.exp(float(np.mean(logs))) for key, logs in sums.items()}


def _measured(
    config: Path,
    folder: Path,
    told: Mapping[tuple[str, str, Axis], float],
    sums: Mapping[tuple[str, str], float],
    *,
    evaluation: str,
    level: float,
    reference: str,
    before: Mapping[str, int],
) -> tuple[list[_Row], list[str]]:
    plan = read_experiment(config, folder, {"reference": reference} if reference else None)
    arms = list(plan.config.arms)
    tunings = tune_all(plan, arms)
    results = collect(plan, plan.final_jobs(chosen_rates(plan, arms, tunings)), tunings)
    if results is None or plan.reference not in results.arms:
        msg = (
            f"the folder {str(folder)!r} has no finished run of {plan.reference!r}; "
            f"run 'python -m llm experiment {config} --out {folder}'"
        )
        raise InputError(msg)
    if evaluation not in results.evaluations:
        raise unknown_name("evaluation", evaluation, results.evaluations)
    task = config.stem
    rows = []
    for axis in _AXES:
        for measure in measure_arms(results, evaluation, axis, level, before):
            keys = [(task, arm, axis) for arm in (measure.arm, plan.reference)]
            for key in keys:
                if key not in told:
                    msg = (
                        f"the predictions hold no arm {key[1]!r} of {task!r}; make them anew by "
                        f"'python -m llm predict {config}'"
                    )
                    raise InputError(msg)
            predicted = told[keys[0]] / told[keys[1]]
            own = results.arms[measure.arm]
            own_sums = sums[task, measure.arm] / sums[task, plan.reference]
            rows.append(_Row(task, measure, predicted, own.rate, len(own.runs), _note(own.tuning), own_sums))
    return rows, [f"{task}: {note}" for note in _short(results)]


def _note(tuning: Any) -> str:
    return "edge" if tuning is not None and tuning.at_edge else ""


def _short(results: Results) -> list[str]:
    edges = [name for name, arm in results.arms.items() if arm.tuning is not None and arm.tuning.at_edge]
    notes = (
        [f"the best rate is at the edge of the grid, so a better one may lie beyond: {', '.join(edges)}"]
        if edges
        else []
    )
    if results.missing:
        notes.append(f"{len(results.missing)} of the runs haven't finished")
    return notes


def _agreement(rows: Sequence[_Row], axis: Axis, left_out: set[str]) -> dict[str, Agreement]:
    """Return the agreement of the predicted ratio with the measured one, and with that of areas."""
    own = [row for row in rows if row.measure.axis == axis and row.measure.arm not in left_out]
    predicted = [row.predicted for row in own]
    return {
        "ratio": agreement(predicted, [row.measure.ratio for row in own]),
        # Where an arm gains nothing, its area has no logarithm.
        "area": agreement(predicted, [max(row.measure.area_ratio, 0.02) for row in own]),
    }


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return dict(plain(asdict(value)))


def _interval(prefix: str, value: SeedMean) -> dict[str, float]:
    return {f"{prefix}_{name}": getattr(value, name) for name in ("mean", "low", "high", "count")}


def _record(row: _Row) -> dict[str, Any]:
    measure = row.measure
    return dict(
        plain(
            {
                "task": row.task,
                "arm": measure.arm,
                "axis": measure.axis,
                "learning_rate": row.rate,
                "rate_at_edge": bool(row.note),
                "runs": row.runs,
                "predicted": row.predicted,
                "class_sums": row.sums,
                "measured": measure.ratio,
                "measured_by_base": " ".join(f"{value:.4f}" for value in measure.by_base),
                "level": measure.level,
                **_interval("log_ratio", measure.log_ratio),
                "area_ratio": measure.area_ratio,
                **_interval("area", measure.area),
                **_interval("end", measure.end),
                "p_area": measure.p_area,
                "p_holm": measure.p_holm,
            }
        )
    )


def _point(row: _Row) -> Point:
    # The interval of single runs around their own mean, moved to the point.
    log = row.measure.log_ratio
    low, high = (math.exp(end - log.mean) * row.measure.ratio for end in (log.low, log.high))
    return row.measure.arm, row.predicted, row.measure.ratio, low, high


def to_markdown(rows: Sequence[_Row]) -> str:
    """Return a table a task in Markdown, the largest measured ratio first."""
    heads = (
        "arm",
        "learning rate",
        "runs",
        "predicted",
        "from class sums",
        "measured, responses",
        "measured, tokens",
        "of each base, responses",
        "single runs, 95 %",
        "area less the reference's, 95 %",
        "p, Holm",
        "end less the reference's",
    )
    parts = []
    for task in dict.fromkeys(row.task for row in rows):
        tokens = {row.measure.arm: row.measure for row in rows if row.task == task and row.measure.axis == "tokens"}
        own = [row for row in rows if row.task == task and row.measure.axis == "responses"]
        lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for row in sorted(own, key=lambda each: -each.measure.ratio):
            measure, single = row.measure, row.measure.log_ratio
            cells = (
                measure.arm,
                f"{row.rate:g}{', at the edge' if row.note else ''}",
                str(row.runs),
                f"{row.predicted:.2f}",
                "-" if math.isnan(row.sums) else f"{row.sums:.2f}",
                f"{measure.ratio:.2f}",
                f"{tokens[measure.arm].ratio:.2f}",
                " ".join(f"{value:.2f}" for value in measure.by_base),
                f"{math.exp(single.low):.2f} to {math.exp(single.high):.2f}",
                f"{measure.area.mean:+.3f} [{measure.area.low:+.3f}, {measure.area.high:+.3f}]",
                f"{measure.p_holm:.2g}",
                f"{measure.end.mean:+.3f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
        parts.append(f"### {task}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _table(task: str, axis: Axis, rows: Sequence[_Row]) -> Table:
    heads = ("rate", "runs", "predicted", "measured", "single runs", "area", "end", "Holm")
    table = new_table(f"{task}, {axis}: of the reference over the arm's", "arm", *heads)
    for row in sorted(rows, key=lambda each: -each.measure.ratio):
        measure = row.measure
        single = measure.log_ratio
        table.add_row(
            escape(measure.arm),
            f"{row.rate:g}{'!' if row.note else ''}",
            str(row.runs),
            f"{row.predicted:.2f}",
            f"{measure.ratio:.2f}",
            f"{math.exp(single.low):.2f}-{math.exp(single.high):.2f}",
            f"{measure.area.mean:+.3f}",
            f"{measure.end.mean:+.3f}",
            f"{measure.p_holm:.2g}{'*' if measure.p_holm < 0.05 else ''}",
        )
    table.caption = (
        "area, end: mean and last pass rate less the reference's; Holm: p of area; !: at the edge of the grid"
    )
    table.caption_justify = "left"
    return table
