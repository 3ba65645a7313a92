"""``python -m sim when-adaptive-pays``: the most efficient policy by noise ratio, update cost and objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.options import CurveLaw, MoreSinglePolicies
from sim.when_adaptive_pays.figure import write_figures
from sim.when_adaptive_pays.study import COSTS, NOISE, OBJECTIVES, EfficiencyMap, map_efficiency

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["when_adaptive_pays"]

_NOISE = (0.3, 3.0, 30.0)


@command
def when_adaptive_pays(
    *,
    policies: MoreSinglePolicies,
    source: CurveLaw,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What is climbed: mean, log, or pass@k; repeatable, a panel each. By default mean, log, pass@8.",
            show_default=False,
        ),
    ] = None,
    max_samples: Annotated[int, typer.Option(min=8, help="The most responses of any policy.")] = 32,
    output: Annotated[Output, output_options("when_adaptive_pays", " and the figure", "out/when-adaptive-pays")],
) -> None:
    """Map which way of sampling is the most efficient, over noise ratio, update cost and objective.

    Fixed numbers of responses and adaptive rules compete in several sizes each; policies given with --policy join them.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim when-adaptive-pays --at-least 1/16
      python -m sim when-adaptive-pays --objective log --policy mine.toml --pass-rates counts.csv
    """  # noqa: D301 - \b keeps the lines of the examples apart
    objectives = tuple(dict.fromkeys(objective or OBJECTIVES))
    run_study(
        output,
        lambda _, advance: map_efficiency(
            source, objectives=objectives, policies=policies, max_samples=max_samples, progress=advance
        ),
        _report,
        write_figures,
        doing="mapping",
        total=len(objectives) * len(COSTS) * len(NOISE),
    )


def _report(result: EfficiencyMap) -> Report:
    notes = ("numbers are times as efficient as GRPO with n = 4", *result.notes)
    return Report("Pass rates", result.source.label, _tables(result), notes, result.source.notes)


def _tables(result: EfficiencyMap) -> Iterator[Table]:
    """Give a table for every objective, at a few noise ratios."""
    columns = ("update\ncost", "best fixed\nnumber", "", "best\nadaptive", "", "Bayes,\nfixed", "Bayes")
    for panel in result.panels:
        table = new_table(panel.objective, "noise\nratio", *columns)
        table.collapse_padding = True
        for spot in result.spots:
            if spot.objective == panel.objective and spot.noise_ratio in _NOISE:
                table.add_row(
                    f"{spot.noise_ratio:g}",
                    f"{spot.update_cost:g}",
                    escape(spot.fixed),
                    f"{spot.fixed_efficiency:.2f}",
                    escape(spot.adaptive),
                    f"{spot.adaptive_efficiency:.2f}",
                    f"{spot.bayes_fixed_efficiency:.2f}",
                    f"{spot.bayes_efficiency:.2f}",
                )
        yield table
