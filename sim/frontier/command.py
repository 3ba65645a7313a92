"""``python -m sim frontier``: policies beneath the best that is possible at their cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ada_bandit import specs
from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from ada_bandit.programs.scores import ProbedScores
from sim.frontier.figure import write_figures
from sim.frontier.measured import MeasuredFrontier, measure_policies
from sim.frontier.measured_figure import write_measured
from sim.frontier.study import FrontierPlot, best_policy, place_policies
from sim.frontier.study import presets as all_presets
from sim.options import CurveLawOrProbe, MorePolicies, VerifierScores

__all__ = ["frontier"]


@command
def frontier(
    *,
    more: MorePolicies,
    source: CurveLawOrProbe,
    scoring: VerifierScores,
    presets: Annotated[
        bool, typer.Option("--presets/--no-presets", help="Whether to place every preset beside the given policies.")
    ] = True,
    max_samples: Annotated[
        int, typer.Option(min=1, help="The most responses of the frontier's policies; at least the largest budget.")
    ] = 32,
    pool: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --probe: prompts that the objective is a mean over, where they come back; fresh ones unless "
            "given. 1 counts what a prompt's update does for that prompt alone.",
            show_default=False,
        ),
    ] = None,
    per_token: Annotated[
        bool,
        typer.Option(
            "--per-token", help="With --probe: let a response cost what its length is, on average over its prompt's."
        ),
    ] = False,
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

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others. With --probe, policies are measured on
    the scores that a probe kept, and stand beside what the score model predicts with the probe's numbers.

    \b
    Examples:
      python -m sim frontier --at-least 1/16
      python -m sim frontier --objective log --noise-ratio 10 --update-cost 5
      python -m sim frontier --no-presets --policy grpo --policy mine.toml --pass-rates counts.csv
      python -m sim frontier --noise-ratio 10 --spend 6 --save-policy best.toml
      python -m sim frontier --probe out/probe/scores.npz --batch 32
    """  # noqa: D301 - \b keeps the lines of the examples apart
    policies = [*(preset for preset in all_presets() if presets and preset not in more), *more]
    if isinstance(source, ProbedScores):
        if save_policy is not None:
            msg = "--save-policy is for a pass-rate law: leave it out, or leave out --probe"
            raise InputError(msg)
        run_study(
            output,
            lambda _, advance: measure_policies(
                policies, source, scoring, pool=pool, per_token=per_token, max_samples=max_samples, progress=advance
            ),
            _report_measured,
            write_measured,
            doing="measuring",
            total=len(policies) + 3,
        )
        return
    if pool is not None or per_token:
        option = "--per-token" if pool is None else f"--pool {pool}"
        msg = f"{option} says how a probe's scores are to be read; give --probe FILE as well"
        raise InputError(msg)
    named = source.meant_for(more)
    if spend is not None and save_policy is None:
        msg = f"--spend {spend:g} says what the policy of --save-policy may cost; give a file to write it to as well"
        raise InputError(msg)
    if save_policy is not None:
        specs.save_policy(best_policy(named.law, scoring.model, max_samples, spend), save_policy)
    run_study(
        output,
        lambda _, advance: place_policies(
            policies, named, scoring, max_samples=max_samples, prices=prices, progress=advance
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


def _report_measured(placed: MeasuredFrontier) -> Report:
    table = new_table(
        "Efficiency over that of GRPO, most efficient first",
        "policy",
        "responses\na prompt",
        "cost",
        "measured",
        "predicted",
        "measured over\npredicted",
    )
    for point in sorted(placed.points, key=lambda point: -point.measured):
        table.add_row(
            escape(point.policy) + (" *" if point.plugged else ""),
            f"{point.responses:.2f}",
            f"{point.cost:.2f}",
            f"{point.measured:.2f} ± {point.error:.2f}",
            "-" if point.predicted is None else f"{point.predicted:.2f}",
            "-" if point.log_ratio is None else f"{math.exp(point.log_ratio):.2f}",
        )
    return Report("Probe", placed.probed.label, (table,), placed.notes)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
