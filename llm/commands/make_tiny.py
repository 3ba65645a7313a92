"""``python -m llm make-tiny``: a tiny model that can do some sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.programs.console import open_console, print_plain, progress
from llm.commands.errors import command
from llm.tiny import make_tiny as train_tiny

__all__ = ["make_tiny"]


@command
def make_tiny(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the model; it must not be there yet.")] = Path(
        "models/tiny"
    ),
    steps: Annotated[int, typer.Option(min=1, help="Steps of supervised training.")] = 350,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and problems.")] = 0,
) -> None:
    """Train a tiny model (3 layers, 645,000 parameters) from scratch on sums, sorting and remainders in digits.

    It takes a few minutes on two cores, and ends with a model that is right about a third of the time.

    \b
    Example:
      python -m llm make-tiny --out models/tiny
    """  # noqa: D301 - \b keeps the lines of the example apart
    with progress("training", steps) as advance:
        rate = train_tiny(out, steps=steps, seed=seed, report=lambda _, loss: advance(1, f"training, loss {loss:.3f}"))
    shown = open_console()
    shown.print(f"pass rate on new problems at temperature 1: {rate:.3f}", highlight=False)
    print_plain(f"written to {out}", shown, "dim")
