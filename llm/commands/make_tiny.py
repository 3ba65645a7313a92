"""``python -m llm make-tiny``: a tiny model that can do some sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import open_console, print_plain, progress
from llm.commands.errors import command
from llm.config import read_table
from llm.digits import Families
from llm.tiny import make_tiny as train_tiny

__all__ = ["make_tiny"]


@command
def make_tiny(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the model; it must not be there yet.")] = Path(
        "models/tiny"
    ),
    steps: Annotated[int, typer.Option(min=1, help="Steps of supervised training.")] = 350,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and problems.")] = 0,
    task: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file of a task of kind digits: its families; sums, sorting, remainders unless given.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Problems of a step.")] = 256,
    width: Annotated[int, typer.Option(min=1, help="Channels of the model.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 3,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch; all cores unless given.", show_default=False)
    ] = None,
) -> None:
    """Train a tiny model (3 layers, 645,000 parameters) from scratch on problems in digits.

    It takes a few minutes on two cores, and ends with a model that is right about a third of the time.

    \b
    Examples:
      python -m llm make-tiny --out models/tiny
      python -m llm make-tiny --task llm/configs/trials-many.toml --width 64 --layers 2 --out models/many
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with progress("training", steps) as advance:
        rate = train_tiny(
            out,
            steps=steps,
            seed=seed,
            batch=batch,
            width=width,
            layers=layers,
            families=_families(task),
            report=lambda _, loss: advance(1, f"training, loss {loss:.3f}"),
        )
    shown = open_console()
    shown.print(f"pass rate on new problems at temperature 1: {rate:.3f}", highlight=False)
    print_plain(f"written to {out}", shown, "dim")


def _families(path: Path | None) -> Families | None:
    """Return the families of a task's file, which may be the config of a run or an experiment."""
    if path is None:
        return None
    table = read_table(path)
    table = table.get("run", table)
    table = table.get("task", table)
    if table.get("kind") != "digits":
        kind = table.get("kind")
        msg = f"the task of {str(path)!r} must be of kind 'digits', whose problems can be trained on; got {kind!r}"
        raise InputError(msg)
    return Families.of(table.get("families", {}))
