"""``python -m sim budget``: shared budgets at equal spend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.budget.figure import write_figures
from sim.budget.study import METHODS, BudgetComparison, BudgetSetting, Gains, compare_budgets
from sim.options import BudgetLaw, Scores
from sim.statistics import SampleMean

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["budget"]


@command
def budget(
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="uniform, neyman, greedy; a preset or TOML file with a shared budget, such as knapsack; "
            "best-efficiency or best-signal, the best tables of the law; repeatable, all of them by default.",
            show_default=False,
        ),
    ] = None,
    source: BudgetLaw,
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
        str,
        typer.Option(
            metavar="NAME",
            help="Advantage of all methods where they are compared under equal ones; the objective is then that of "
            "--objective. Beside it each method is shown with its own, for the objective that it states.",
        ),
    ] = "leave_one_out",
    scoring: Scores,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and responses.")] = 0,
    output: Annotated[Output, output_options("budget", " and the figure", "out/budget")],
) -> None:
    """Spend one total by different methods, on the same prompts and responses: who gets them, and what it buys.

    Each method is shown twice: with its own advantages, for the objective that it states, and with equal advantages,
    for one objective.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim budget --total 4096
      python -m sim budget --at-least 1/16 --noise-ratio 10 --objective log
      python -m sim budget --policy uniform --policy vip --policy shared.toml --pass-rates counts.csv
    """  # noqa: D301 - \b keeps the lines of the examples apart
    methods = policy or METHODS
    setting = BudgetSetting(
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
    run_study(
        output,
        lambda _, advance: compare_budgets(methods, source, setting, scoring, progress=advance),
        _report,
        write_figures,
        doing="sampling",
        total=len(methods) * (steps + warm_up * (setting.pool // prompts)),
    )


def _report(comparison: BudgetComparison) -> Report:
    source = comparison.source
    return Report("Pass rates", source.label, _tables(comparison), comparison.notes, source.notes)


def _tables(comparison: BudgetComparison) -> Iterator[Table]:
    """Give the comparison as tables that each fit a terminal of 80 columns."""
    columns = ("responses\na step", "off by\nat most", "rounds", "at the\nminimum", "not\nsampled")
    table = new_table(f"Spend, of {comparison.setting.total} responses", "method", *columns)
    for row in comparison.rows:
        counts = (f"{value.mean:.1f}" for value in (row.rounds, row.at_minimum, row.unsampled))
        table.add_row(escape(row.policy), f"{row.responses.mean:.1f}", str(row.largest_miss), *counts)
    yield table

    table = new_table("Own advantages, each for the objective it states", "method", "signal", *_GAINS)
    for row in comparison.rows:
        table.add_row(escape(row.policy), _cell(row.signal, 3), *_gains(row.own))
    yield table

    table = new_table("Equal advantages, one objective", "method", "W", "V", *_GAINS)
    for row in comparison.rows:
        moments = (f"{row.equal.progress.mean:.4g}", f"{row.equal.noise.mean:.4g}")
        table.add_row(escape(row.policy), *moments, *_gains(row.equal))
    yield table


_GAINS = ("objective", "efficiency,\nsummed", "averaged")


def _gains(gains: Gains) -> tuple[str, ...]:
    ratios = (gains.efficiency_ratio, gains.averaged_efficiency_ratio)
    return (gains.objective, *(_cell(ratio, 3) for ratio in ratios))


def _cell(value: SampleMean | None, digits: int) -> str:
    return "-" if value is None else value.text(digits)
