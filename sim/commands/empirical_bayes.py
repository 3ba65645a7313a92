"""``python -m sim empirical-bayes``: how close a run comes to the optimum that learns its prior."""

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
    FiguresOption,
    JsonOption,
    ObjectiveOption,
    PassRatesOption,
    SmoothOption,
    SourceOption,
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

    from sim.empirical import Run

__all__ = ["empirical_bayes"]


@plain_errors
def empirical_bayes(
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    drift_to: Annotated[
        str, typer.Option(metavar="NAME", help="The published curve that the law drifts to.")
    ] = "qwen2.5-math-1.5b-rl",
    drift: Annotated[
        str, typer.Option(metavar="abrupt|gradual", help="Drift at half time at once, or over the third quarter.")
    ] = "abrupt",
    noise_ratio: Annotated[
        list[float] | None,
        typer.Option(
            metavar="NU",
            help="Noise energy of a response's score over |phi|^2; repeatable. 1 and 10 by default.",
            show_default=False,
        ),
    ] = None,
    objective: ObjectiveOption = "mean",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts a step, all of them new.")] = 128,
    steps: Annotated[int, typer.Option(min=4, help="Steps; the drift begins after half of them.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each with prompts and responses of its own.")] = 8,
    samples: Annotated[int, typer.Option(min=1, help="Responses a round.")] = 1,
    max_samples: Annotated[int, typer.Option(min=1, help="The most responses of a prompt.")] = 32,
    refit_every: Annotated[int, typer.Option(min=1, help="Steps between two fits of the law.")] = 4,
    window: Annotated[int, typer.Option(min=1, help="Steps whose pools a fit looks at, at the most.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and responses.")] = 0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for empirical_bayes.csv, empirical_bayes.json and the figure.")
    ] = Path("out/empirical-bayes"),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Learn the pass-rate law while sampling, and follow it when it drifts: what share of the optimum is reached.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim empirical-bayes
      python -m sim empirical-bayes --drift gradual --steps 200
      python -m sim empirical-bayes --samples 4 --noise-ratio 3 --at-least 1/16
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from sim.empirical import Setting, learn
    from sim.empirical_figure import write_figure
    from sim.sources import from_curve, parse_share

    source = load_source(pass_rates, curve, source_name, at_least, smooth=smooth)
    end = from_curve(drift_to)
    if at_least is not None:
        end = end.at_least(*parse_share(at_least))
    setting = Setting(
        tuple(noise_ratio or (1.0, 10.0)), objective, drift, prompts, steps, runs, samples, max_samples, refit_every,
        window, seed,
    )  # fmt: skip
    folder = make_folder(out)
    with progress("learning", len(setting.noise_ratios) * runs * steps) as (advance, describe):
        run = learn(setting, source, end, progress=advance)
        describe("drawing the figure" if figures else "writing")
        text = json.dumps(run.to_dict(), indent=2, allow_nan=False)
        texts = {"empirical_bayes.csv": run.to_csv(), "empirical_bayes.json": text + "\n"}
        written = write_files(folder, texts, partial(write_figure, run) if figures else None)
    if as_json:
        sys.stdout.write(text + "\n")
        return
    console = output_console()
    _print(run, console)
    print_written(folder, written, console)


def _print(run: Run, console: Console) -> None:
    print_source(run.start, console)
    for track in run.tracks:
        title = f"Share of the optimum's efficiency, noise ratio {track.noise_ratio:g}"
        table = new_table(title, "after step", "mean", "lowest", "highest", "responses\na prompt", "the optimum's")
        for step in run.milestones:
            shares = track.shares[:, step]
            table.add_row(
                str(step),
                f"{track.mean[step]:.3f}",
                f"{shares.min():.3f}",
                f"{shares.max():.3f}",
                f"{track.responses[:, step].mean():.2f}" if step else "-",
                f"{track.optimum_responses[step]:.2f}",
            )
        console.print()
        console.print(table)
    print_notes(run.notes, console)
