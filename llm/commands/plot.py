"""``python -m llm plot``: figures of training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import open_console, print_plain
from ada_bandit.programs.folders import make_folder
from llm.commands.errors import command
from llm.histories import read_run, to_arms
from llm.run_figures import draw_runs

__all__ = ["plot"]


@command
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the figures go.")] = Path("out/plot"),
    smooth: Annotated[
        int, typer.Option(metavar="N", min=1, help="Average what is measured at every step over its latest N steps.")
    ] = 1,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Name of a run's arm, once for each run in their order; runs of one name are averaged.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        Literal["folder", "policy", "run"],
        typer.Option(
            help="Runs that are averaged, without --label: those whose folders differ in a seed at the end alone "
            "(grpo-seed0, grpo-seed1), those of one policy, or none.",
        ),
    ] = "folder",
) -> None:
    """Draw runs: reward against steps and against generated tokens, entropy, responses, and where the time went.

    Lines are means over an arm's runs, bands are one standard error to each side: between runs, or
    that of an evaluation where an arm has one run.

    \b
    Examples:
      python -m llm plot out/grpo-seed0 out/grpo-seed1 out/balance-seed0 out/balance-seed1
      python -m llm plot out/a out/b --label before --label after --smooth 10
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if label and len(label) != len(runs):
        msg = f"--label was given {len(label)} times for {len(runs)} runs; give it once for each run, in their order"
        raise InputError(msg)
    names: list[str | None] = [*label] if label else [None] * len(runs)
    arms = to_arms([read_run(run, name, group) for run, name in zip(runs, names, strict=True)])
    shown = open_console()
    for arm in arms:
        count = f"{len(arm.runs)} run{'s' if len(arm.runs) > 1 else ''}, {arm.steps('step').steps.size} steps"
        folders = ", ".join(str(run.folder) for run in arm.runs)
        print_plain(f"{arm.label}: {count}: {folders}", shown)
        if arm.left_out:
            shown.print(f"  {arm.left_out} rows of steps or evaluations that not all of them have are not drawn")
    for path in draw_runs(arms, make_folder(out), smooth):
        print_plain(f"wrote {path}", shown)
