"""``python -m sim budget``: shared budgets at equal spend."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.options import (
    AtLeastOption,
    CurveOption,
    FiguresOption,
    JsonOption,
    NoiseRatioOption,
    ObjectiveOption,
    PassRatesOption,
    SmoothOption,
    SourceOption,
    UpdateCostOption,
    escape,
    load_source,
    make_folder,
    new_table,
    output_console,
    plain_errors,
    print_notes,
    print_source,
    print_written,
    progress,
    write_files,
)

if TYPE_CHECKING:
    from rich.table import Table

    from sim.budget import BudgetComparison
    from sim.compare import Simulated

__all__ = ["budget"]


@plain_errors
def budget(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="uniform, neyman, greedy; a preset or TOML file with a shared budget, such as knapsack; bayes or "
            "best-signal, the best tables of the law; repeatable, all of them by default.",
            show_default=False,
        ),
    ] = None,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    total: Annotated[int, typer.Option(min=1, help="Responses of a step, over all prompts.")] = 4096,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of a step.")] = 512,
    pool: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Distinct prompts, which come back every epoch; twice the prompts of a step by default.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=2, help="Steps that are measured.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, help="Epochs before that, in which memories fill.")] = 1,
    minimum: Annotated[int, typer.Option(min=0, help="The fewest responses of one prompt.")] = 2,
    maximum: Annotated[int, typer.Option(min=1, help="The most responses of one prompt.")] = 32,
    pilot: Annotated[
        int, typer.Option(min=0, help="Responses of every prompt before the rest is allocated; 0 for memory alone.")
    ] = 2,
    group_size: Annotated[int, typer.Option(min=1, help="Responses of each prompt that a selection samples.")] = 16,
    decay: Annotated[float, typer.Option(help="Factor on a memory's counts at each visit, in [0, 1].")] = 0.9,
    advantage: Annotated[
        str, typer.Option(metavar="NAME", help="Advantage of all methods but bayes; own for each method's own.")
    ] = "leave_one_out",
    objective: ObjectiveOption = "mean",
    noise_ratio: NoiseRatioOption = "1",
    update_cost: UpdateCostOption = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and responses.")] = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for budget.csv, budget.json and the figure.")] = Path(
        "out/budget"
    ),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Spend one total by different methods, on the same prompts and responses: who gets them, and what it buys.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim budget --total 4096
      python -m sim budget --at-least 1/16 --noise-ratio 10 --objective log
      python -m sim budget --policy uniform --policy vip --policy mine.toml --pass-rates counts.csv
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from sim.budget import METHODS, Setting, compare_budgets
    from sim.budget_figure import write_figure
    from sim.score_model import ScoreModel, parse_noise_ratio

    methods = policy or METHODS
    setting = Setting(
        total=total,
        prompts=prompts,
        pool=2 * prompts if pool is None else pool,
        steps=steps,
        warm_up=warm_up,
        maximum=maximum,
        minimum=minimum,
        pilot=pilot,
        group_size=group_size,
        decay=decay,
        advantage=advantage,
        seed=seed,
    )
    model = ScoreModel(objective, parse_noise_ratio(noise_ratio), update_cost)
    source = load_source(pass_rates, curve, source_name, at_least, smooth=smooth)
    folder = make_folder(out)
    taken = len(methods) * (steps + warm_up * (setting.pool // prompts))
    with progress("sampling", taken) as (advance, describe):
        comparison = compare_budgets(methods, source, setting, model, progress=advance)
        describe("drawing the figure" if figures else "writing")
        text = json.dumps(comparison.to_dict(), indent=2, allow_nan=False)
        texts = {"budget.csv": comparison.to_csv(), "budget.json": text + "\n"}
        written = write_files(folder, texts, partial(write_figure, comparison) if figures else None)
    if as_json:
        sys.stdout.write(text + "\n")
        return
    console = output_console()
    print_source(comparison.source, console)
    for table in _tables(comparison):
        console.print()
        console.print(table)
    print_notes(comparison.notes, console)
    print_written(folder, written, console)


def _tables(comparison: BudgetComparison) -> Iterator[Table]:
    """Give the comparison as tables that each fit a terminal of 80 columns."""
    columns = ("responses\na step", "off by\nat most", "rounds", "at the\nminimum", "not\nsampled")
    table = new_table(f"Spend, of {comparison.setting.total} responses", "method", *columns)
    for row in comparison.rows:
        counts = (f"{value.mean:.1f}" for value in (row.rounds, row.at_minimum, row.unsampled))
        table.add_row(escape(row.policy), f"{row.responses.mean:.1f}", str(row.largest_miss), *counts)
    yield table

    table = new_table("Signal and update", "method", "signal", "W", "V", "efficiency,\nsummed", "averaged")
    for row in comparison.rows:
        moments = (f"{row.progress.mean:.4g}", f"{row.noise.mean:.4g}")
        ratios = (_cell(row.efficiency_ratio, 3), _cell(row.averaged_efficiency_ratio, 3))
        table.add_row(escape(row.policy), _cell(row.signal, 3), *moments, *ratios)
    yield table


def _cell(value: Simulated | None, digits: int) -> str:
    return "-" if value is None else f"{value.mean:.{digits}f} ± {value.se:.{digits}f}"
