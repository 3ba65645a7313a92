"""``python -m sim frontier``: policies beneath the best that is possible at their cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.folders import write_text
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.frontier.figure import write_figures
from sim.frontier.study import FrontierPlot, best_policy, place_policies
from sim.frontier.study import presets as all_presets
from sim.options import CurveLaw, MorePolicies, VerifierScores

__all__ = ["frontier"]


@command
def frontier(
    *,
    more: MorePolicies,
    source: CurveLaw,
    scoring: VerifierScores,
    presets: Annotated[
        bool, typer.Option("--presets/--no-presets", help="Whether to place every preset beside the given policies.")
    ] = True,
    max_samples: Annotated[
        int, typer.Option(min=1, help="The most responses of the frontier's policies; at least the largest budget.")
    ] = 32,
    prices: Annotated[int, typer.Option(min=2, help="Vertices of the frontier to look for.")] = 40,
    save_policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Write the most efficient policy to a file that every command and trainer reads; with --spend, the "
            "best one at that cost, which may be a blend of two.",
            show_default=False,
        ),
    ] = None,
    spend: Annotated[
        float | None,
        typer.Option(metavar="COST", help="Cost a prompt of the policy of --save-policy.", show_default=False),
    ] = None,
    output: Annotated[Output, output_options("frontier", " and the figure", "out/frontier")],
) -> None:
    """Place policies by cost and utility beneath the frontier, the best that is possible at each cost.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim frontier --at-least 1/16
      python -m sim frontier --objective log --noise-ratio 10 --update-cost 5
      python -m sim frontier --no-presets --policy grpo --policy mine.toml --pass-rates counts.csv
      python -m sim frontier --noise-ratio 10 --spend 6 --save-policy best.toml
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if spend is not None and save_policy is None:
        msg = f"--spend {spend:g} says what the policy of --save-policy may cost; give a file to write it to as well"
        raise InputError(msg)
    if save_policy is not None:
        write_text(save_policy, best_policy(source.law, scoring.model, max_samples, spend).to_toml())
    policies = [*(preset for preset in all_presets() if presets and preset not in more), *more]
    run_study(
        output,
        lambda _, advance: place_policies(
            policies, source, scoring, max_samples=max_samples, prices=prices, progress=advance
        ),
        _report,
        write_figures,
        doing="tracing the frontier",
        total=len(policies) + 1,
    )


def _report(placed: FrontierPlot) -> Report:
    table = new_table(
        "Efficiency, most efficient first",
        "policy",
        "responses\na prompt",
        "cost",
        "vs.\nGRPO",
        "of the\noptimum",
        "utility, of the\nfrontier's",
    )
    rows = sorted(placed.points, key=lambda point: -point.efficiency)
    for point in (placed.optimum, *rows):
        table.add_row(
            escape(point.policy),
            f"{point.responses:.2f}",
            f"{point.cost:.2f}",
            "-" if point.against_grpo is None else f"{point.against_grpo:.2f}",
            _percent(point.against_optimum),
            _percent(point.against_frontier),
        )
    source = placed.source
    return Report("Pass rates", source.label, (table,), placed.notes, source.notes)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
