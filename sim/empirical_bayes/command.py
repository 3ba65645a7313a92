"""``python -m sim empirical-bayes``: how close a run comes to the optimum that learns its prior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.programs.console import new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.empirical_bayes.figure import write_figures
from sim.empirical_bayes.study import DriftResult, DriftSetting, follow_drift
from sim.options import CurveLaw, ObjectiveOption, TransferOption
from sim.sources import from_curve

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["empirical_bayes"]


@command
def empirical_bayes(
    *,
    source: CurveLaw,
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
    transfer: TransferOption = 1.0,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts a step, all of them new.")] = 128,
    steps: Annotated[int, typer.Option(min=4, help="Steps; the drift begins after half of them.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each with prompts and responses of its own.")] = 8,
    samples: Annotated[int, typer.Option(min=1, help="Responses a round.")] = 1,
    max_samples: Annotated[int, typer.Option(min=1, help="The most responses of a prompt.")] = 32,
    refit_every: Annotated[int, typer.Option(min=1, help="Steps between two fits of the law.")] = 4,
    window: Annotated[int, typer.Option(min=1, help="Steps whose pools a fit looks at, at the most.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and responses.")] = 0,
    output: Annotated[Output, output_options("empirical_bayes", " and the figure", "out/empirical-bayes")],
) -> None:
    """Learn the pass-rate law while sampling, and follow it when it drifts: what share of the optimum is reached.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim empirical-bayes
      python -m sim empirical-bayes --drift gradual --steps 200
      python -m sim empirical-bayes --samples 4 --noise-ratio 3 --at-least 1/16
    """  # noqa: D301 - \b keeps the lines of the examples apart
    end = from_curve(drift_to)
    if (share := source.settings.get("at_least")) is not None:
        end = end.at_least(*share)
    setting = DriftSetting(
        tuple(noise_ratio or (1.0, 10.0)), objective, transfer, drift, prompts, steps, runs, samples, max_samples,
        refit_every, window, seed,
    )  # fmt: skip
    run_study(
        output,
        lambda _, advance: follow_drift(setting, source, end, progress=advance),
        _report,
        write_figures,
        doing="learning",
        total=len(setting.noise_ratios) * runs * steps,
    )


def _report(result: DriftResult) -> Report:
    return Report("Pass rates", result.start.label, _tables(result), result.notes, result.start.notes)


def _tables(result: DriftResult) -> Iterator[Table]:
    for track in result.tracks:
        title = f"Share of the optimum's efficiency, noise ratio {track.noise_ratio:g}"
        table = new_table(title, "after step", "mean", "lowest", "highest", "responses\na prompt", "the optimum's")
        for step in result.milestones:
            shares = track.shares[:, step]
            table.add_row(
                str(step),
                f"{track.mean[step]:.3f}",
                f"{shares.min():.3f}",
                f"{shares.max():.3f}",
                f"{track.responses[:, step].mean():.2f}" if step else "-",
                f"{track.optimum_responses[step]:.2f}",
            )
        yield table
