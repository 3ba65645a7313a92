"""``python -m sim compare``: policies side by side on one law of pass rates."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.options import (
    POLICIES,
    ROLLOUTS,
    AtLeastOption,
    CurveOption,
    FalseNegativeOption,
    FalsePositiveOption,
    FiguresOption,
    JsonOption,
    NoiseRatioOption,
    ObjectiveOption,
    PassRatesOption,
    PolicyOption,
    RulesOption,
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
    from rich.console import Console
    from rich.table import Table

    from sim.compare import Comparison, Row

__all__ = ["compare"]


@plain_errors
def compare(
    policy: PolicyOption = None,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    rules: RulesOption = None,
    prompts: Annotated[int, typer.Option(min=0, help="Prompts a batch.")] = 512,
    batches: Annotated[int, typer.Option(min=0, help="Batches to simulate; 0 gives exact values only.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    objective: ObjectiveOption = "mean",
    noise_ratio: NoiseRatioOption = "1",
    update_cost: UpdateCostOption = 0.0,
    false_positive: FalsePositiveOption = 0.0,
    false_negative: FalseNegativeOption = 0.0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for compare.csv, compare.json and the figures.")
    ] = Path("out/compare"),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Compare policies on one law of pass rates: what they cost, what signal they find, what they climb.

    Pass rates are those of smollm2-reasoning-gym unless an option names others.

    \b
    Examples:
      python -m sim compare
      python -m sim compare --curve qwen2.5-math-1.5b-base --at-least 1/16
      python -m sim compare --pass-rates counts.csv --policy mine.toml
      python -m sim compare --rules rules.py --policy grpo --policy my_rule
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from sim.compare import compare as run
    from sim.plots import write_figures
    from sim.policies import read_policies
    from sim.score_model import ScoreModel, parse_noise_ratio

    policies = read_policies(policy or POLICIES, rules or ())
    source = load_source(pass_rates, curve, source_name, at_least, smooth=smooth, default=ROLLOUTS)
    model = ScoreModel(objective, parse_noise_ratio(noise_ratio), update_cost, false_positive, false_negative)
    folder = make_folder(out)
    with progress("simulating", prompts * batches * len(policies)) as (advance, describe):
        comparison = run(policies, source, prompts=prompts, batches=batches, seed=seed, model=model, progress=advance)
        describe("drawing figures" if figures else "writing")
        text = json.dumps(comparison.to_dict(), indent=2, allow_nan=False)
        texts = {"compare.csv": comparison.to_csv(), "compare.json": text + "\n"}
        written = write_files(folder, texts, partial(write_figures, comparison) if figures else None)
    if as_json:
        sys.stdout.write(text + "\n")
        return
    console = output_console()
    _print_comparison(comparison, console)
    print_written(folder, written, console)


def _print_comparison(comparison: Comparison, console: Console) -> None:
    print_source(comparison.source, console)
    for table in _tables(comparison):
        console.print()
        console.print(table)
    words = (
        f"cost is relative to {comparison.reference}; extra is what a step of {comparison.prompts} prompts draws "
        "beyond the group sizes"
    )
    print_notes((words, *comparison.notes), console)


def _tables(comparison: Comparison) -> Iterator[Table]:
    """Give the comparison as tables that each fit a terminal of 80 columns."""
    from sim.compare import WEIGHT_RATES

    simulated = "simulated\n± std. error"
    table = new_table(
        "Cost", "policy", "responses\nper prompt", simulated, "cost", "extra\na step", "effi-\nciency\nvs. GRPO"
    )
    for row in comparison.rows:
        extra = round(row.extra_responses) + 0  # an int has no -0
        ratio = "-" if row.efficiency_ratio is None else f"{row.efficiency_ratio:.2f}"
        cells = (f"{row.responses:.3f}", _simulated(row, "responses", 3), f"{row.cost:.2f}", f"{extra:,}", ratio)
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


def _simulated(row: Row, name: str, digits: int) -> str:
    if name not in row.simulated:
        return "-"
    value = row.simulated[name]
    return f"{value.mean:.{digits}f} ± {value.se:.{digits}f}"
