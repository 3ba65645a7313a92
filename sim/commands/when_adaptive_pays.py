"""``python -m sim when-adaptive-pays``: the most efficient policy by noise ratio, update cost and objective."""

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
    PassRatesOption,
    PolicyOption,
    RulesOption,
    SmoothOption,
    SourceOption,
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

    from sim.pays import Map

__all__ = ["when_adaptive_pays"]

_NOISE = (0.3, 3.0, 30.0)


@plain_errors
def when_adaptive_pays(
    policy: PolicyOption = None,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    rules: RulesOption = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What is climbed: mean, log, or pass@k; repeatable, a panel each. By default mean, log, pass@8.",
            show_default=False,
        ),
    ] = None,
    max_samples: Annotated[int, typer.Option(min=8, help="The most responses of any policy.")] = 32,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for when_adaptive_pays.csv, .json and the figure.")
    ] = Path("out/when-adaptive-pays"),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Map which way of sampling is the most efficient, over noise ratio, update cost and objective.

    Fixed numbers of responses and adaptive rules compete in several sizes each; policies given with --policy join them.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim when-adaptive-pays --at-least 1/16
      python -m sim when-adaptive-pays --objective log --policy mine.toml --pass-rates counts.csv
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from sim.pays import COSTS, NOISE, OBJECTIVES
    from sim.pays import when_adaptive_pays as run
    from sim.pays_figure import write_figure
    from sim.policies import read_policies

    policies = read_policies(policy or (), rules or ())
    objectives = tuple(dict.fromkeys(objective or OBJECTIVES))
    source = load_source(pass_rates, curve, source_name, at_least, smooth=smooth)
    folder = make_folder(out)
    with progress("mapping", len(objectives) * len(COSTS) * len(NOISE)) as (advance, describe):
        found = run(source, objectives=objectives, policies=policies, max_samples=max_samples, progress=advance)
        describe("drawing the figure" if figures else "writing")
        text = json.dumps(found.to_dict(), indent=2, allow_nan=False)
        texts = {"when_adaptive_pays.csv": found.to_csv(), "when_adaptive_pays.json": text + "\n"}
        written = write_files(folder, texts, partial(write_figure, found) if figures else None)
    if as_json:
        sys.stdout.write(text + "\n")
        return
    console = output_console()
    print_source(found.source, console)
    for table in _tables(found):
        console.print()
        console.print(table)
    print_notes(("numbers are times as efficient as GRPO with n = 4", *found.notes), console)
    print_written(folder, written, console)


def _tables(found: Map) -> Iterator[Table]:
    """Give a table for every objective, at a few noise ratios."""
    columns = ("update\ncost", "best fixed\nnumber", "", "best\nadaptive", "", "Bayes,\nfixed", "Bayes")
    for panel in found.panels:
        table = new_table(panel.objective, "noise\nratio", *columns)
        table.collapse_padding = True
        for spot in found.spots:
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
