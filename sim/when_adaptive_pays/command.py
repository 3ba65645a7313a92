"""``python -m sim when-adaptive-pays``: the most efficient policy by noise ratio, update cost and objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.options import CurveLaw, MoreSinglePolicies, TransferOption
from sim.when_adaptive_pays.figure import write_figures
from sim.when_adaptive_pays.study import COSTS, NOISE, EfficiencyMap, map_efficiency, objectives_of

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
            help="What is climbed: mean, log, or pass@k; repeatable, a panel each. By default mean, log, pass@8; one "
            "panel for all where the transfer is 1.",
            show_default=False,
        ),
    ] = None,
    transfer: TransferOption = 1.0,
    max_samples: Annotated[int, typer.Option(min=8, help="The most responses of any policy.")] = 32,
    output: Annotated[Output, output_options("when_adaptive_pays", " and the figure", "out/when-adaptive-pays")],
) -> None:
    """Map which way of sampling is the most efficient, over noise ratio, update cost and objective.

    Fixed numbers of responses and adaptive rules compete in several sizes each; policies given with --policy join them.

    Whose progress counts decides much: with --transfer 1 (fresh prompts) the objective is of no account, with
    --transfer 0 (a small pool that comes back) it decides. Each has its map.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim when-adaptive-pays --at-least 1/16
      python -m sim when-adaptive-pays --at-least 1/16 --transfer 0
      python -m sim when-adaptive-pays --objective log --transfer 0.5 --policy mine.toml --pass-rates counts.csv
    """  # noqa: D301 - \b keeps the lines of the examples apart
    source = source.meant_for(policies)
    objectives = tuple(dict.fromkeys(objective or objectives_of(transfer)))
    run_study(
        output,
        lambda _, advance: map_efficiency(
            source,
            objectives=objectives,
            transfer=transfer,
            policies=policies,
            max_samples=max_samples,
            progress=advance,
        ),
        _report,
        write_figures,
        doing="mapping",
        total=len(objectives) * len(COSTS) * len(NOISE),
    )


def _report(result: EfficiencyMap) -> Report:
    notes = (
        "numbers are times as efficient as GRPO with n = 4; the last three are the factors of the best policy of all",
        f"transfer {result.transfer:g}: how far what is learned on a prompt helps the others",
        *result.notes,
    )
    return Report("Pass rates", result.source.label, _tables(result), notes, result.source.notes)


def _tables(result: EfficiencyMap) -> Iterator[Table]:
    """Give a table for every objective, at a few noise ratios."""
    columns = (
        "update\ncost",
        "best fixed\nnumber",
        "",
        "best\nadaptive",
        "",
        "best\npossible",
        "by ad-\nvantages",
        "by\nnumber",
        "by adap-\ntivity",
    )
    for panel in result.panels:
        table = new_table(result.name_of(panel), "noise\nratio", *columns)
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
                    f"{spot.optimum_efficiency:.2f}",
                    f"{spot.optimum_same_efficiency:.2f}",
                    f"{spot.optimum_fixed_efficiency / spot.optimum_same_efficiency:.2f}",
                    f"{spot.optimum_efficiency / spot.optimum_fixed_efficiency:.2f}",
                )
        yield table
