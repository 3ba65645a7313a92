"""``python -m sim frontier``: policies beneath the best that is possible at their cost."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.options import (
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

    from sim.frontier import Trace

__all__ = ["frontier"]


@plain_errors
def frontier(
    policy: PolicyOption = None,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    rules: RulesOption = None,
    objective: ObjectiveOption = "mean",
    noise_ratio: NoiseRatioOption = "1",
    update_cost: UpdateCostOption = 0.0,
    false_positive: FalsePositiveOption = 0.0,
    false_negative: FalseNegativeOption = 0.0,
    presets: Annotated[
        bool, typer.Option("--presets/--no-presets", help="Whether to place every preset beside the given policies.")
    ] = True,
    max_samples: Annotated[
        int, typer.Option(min=1, help="The most responses of the frontier's policies; at least the largest budget.")
    ] = 32,
    prices: Annotated[int, typer.Option(min=2, help="Vertices of the frontier to look for.")] = 40,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for frontier.csv, frontier.json and the figure.")
    ] = Path("out/frontier"),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Place policies by cost and utility beneath the frontier, the best that is possible at each cost.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim frontier --at-least 1/16
      python -m sim frontier --objective log --noise-ratio 10 --update-cost 5
      python -m sim frontier --no-presets --policy grpo --policy mine.toml --pass-rates counts.csv
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from sim.frontier import presets as all_presets
    from sim.frontier import trace
    from sim.frontier_figure import write_figure
    from sim.policies import read_policies
    from sim.score_model import ScoreModel, parse_noise_ratio

    own = read_policies(policy or (), rules or ())
    policies = [*(one for one in all_presets() if presets and one not in own), *own]
    source = load_source(pass_rates, curve, source_name, at_least, smooth=smooth)
    model = ScoreModel(objective, parse_noise_ratio(noise_ratio), update_cost, false_positive, false_negative)
    folder = make_folder(out)
    with progress("tracing the frontier", len(policies) + 1) as (advance, describe):
        found = trace(policies, source, model, max_samples=max_samples, prices=prices, progress=advance)
        describe("drawing the figure" if figures else "writing")
        text = json.dumps(found.to_dict(), indent=2, allow_nan=False)
        texts = {"frontier.csv": found.to_csv(), "frontier.json": text + "\n"}
        written = write_files(folder, texts, partial(write_figure, found) if figures else None)
    if as_json:
        sys.stdout.write(text + "\n")
        return
    console = output_console()
    _print(found, console)
    print_written(folder, written, console)


def _print(found: Trace, console: Console) -> None:
    print_source(found.source, console)
    table = new_table(
        "Efficiency, most efficient first",
        "policy",
        "responses\na prompt",
        "cost",
        "vs.\nGRPO",
        "of the\noptimum",
        "utility, of the\nfrontier's",
    )
    rows = sorted(found.points, key=lambda point: -point.efficiency)
    for point in (found.optimum, *rows):
        table.add_row(
            escape(point.policy),
            f"{point.responses:.2f}",
            f"{point.cost:.2f}",
            "-" if point.against_grpo is None else f"{point.against_grpo:.2f}",
            _percent(point.against_optimum),
            _percent(point.against_frontier),
        )
    console.print()
    console.print(table)
    print_notes(found.notes, console)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
