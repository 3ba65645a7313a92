"""``python -m sim compare``: policies side by side on one law of pass rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.compare.figure import write_figures
from sim.compare.study import WEIGHT_RATES, ComparedPolicy, Comparison, compare_policies
from sim.options import Policies, RolloutLaw, VerifierScores

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["compare"]


@command
def compare(
    *,
    policies: Policies,
    source: RolloutLaw,
    prompts: Annotated[int, typer.Option(min=0, help="Prompts a batch.")] = 512,
    batches: Annotated[int, typer.Option(min=0, help="Batches to simulate; 0 gives exact values only.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    scoring: VerifierScores,
    output: Annotated[Output, output_options("compare", " and the figures", "out/compare")],
) -> None:
    """Compare policies on one law of pass rates: what they cost, what signal they find, what they climb.

    Pass rates are those of smollm2-reasoning-gym unless an option names others.

    \b
    Examples:
      python -m sim compare
      python -m sim compare --curve qwen2.5-math-1.5b-base --at-least 1/16
      python -m sim compare --pass-rates counts.csv --policy mine.toml
      python -m sim compare --pass-rates ada_pools.jsonl --stopped-by reinforce-ada-balance
      python -m sim compare --rules my_rules.py --policy grpo --policy mixed
    """  # noqa: D301 - \b keeps the lines of the examples apart
    source = source.meant_for(policies)
    run_study(
        output,
        lambda _, advance: compare_policies(
            policies, source, prompts=prompts, batches=batches, seed=seed, scoring=scoring, progress=advance
        ),
        _report,
        write_figures,
        doing="simulating",
        total=prompts * batches * len(policies),
    )


def _report(comparison: Comparison) -> Report:
    words = (
        f"cost is relative to {comparison.reference}; extra is what a step of {comparison.prompts} prompts draws "
        "beyond the group sizes"
    )
    source = comparison.source
    return Report("Pass rates", source.label, _tables(comparison), (words, *comparison.notes), source.notes)


def _tables(comparison: Comparison) -> Iterator[Table]:
    """Give the comparison as tables that each fit a terminal of 80 columns."""
    simulated = "simulated\n± std. error"
    table = new_table(
        "Cost", "policy", "responses\nper prompt", simulated, "cost", "extra\na step", "effi-\nciency\nvs. GRPO"
    )
    for row in comparison.rows:
        extra = "-" if row.extra_responses is None else f"{round(row.extra_responses) + 0:,}"  # an int has no -0
        ratio = "-" if row.efficiency_ratio is None else f"{row.efficiency_ratio:.2f}"
        cells = (f"{row.responses:.3f}", _simulated(row, "responses", 3), f"{row.cost:.2f}", extra, ratio)
        table.add_row(escape(row.policy), *cells)
    yield table

    table = new_table(
        "Signal, and prompts left unresolved",
        "policy",
        "signal",
        simulated,
        "short of\npositives",
        "short of\nnegatives",
    )
    for row in comparison.rows:
        short = (f"{row.short_of_positives:.4f}", f"{row.short_of_negatives:.4f}")
        table.add_row(escape(row.policy), f"{row.signal:.4f}", _simulated(row, "signal", 4), *short)
    yield table

    weights = (f"w at\np = {rate}" for rate in WEIGHT_RATES)
    table = new_table("Pool-mean bias and gradient weight", "policy", "largest\nbias", "at p", *weights)
    for row in comparison.rows:
        unbiased = row.largest_bias_at is None
        bias = ("0", "-") if unbiased else (f"{row.largest_bias:+.4f}", f"{row.largest_bias_at:.3f}")
        table.add_row(escape(row.policy), *bias, *(f"{weight:.3f}" for weight in row.weights))
    yield table


def _simulated(row: ComparedPolicy, name: str, digits: int) -> str:
    return row.simulated[name].text(digits) if name in row.simulated else "-"
