"""The commands of ``python -m paper``: one an item, `all`, and `numbers` for the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.programs.options import plain_errors
from paper.items import ITEMS, help_of
from paper.numbers import write_numbers
from paper.run import run

__all__ = ["item_command", "numbers", "run_all"]

_Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds and steps: minutes in place of half an hour.")]
_Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for JSON, figures and the verdict.")]
_Figures = Annotated[bool, typer.Option("--figures/--no-figures", help="Whether to draw the figures.")]
_Resume = Annotated[
    bool, typer.Option("--resume/--fresh", help="Whether to take finished simulated runs from DIR/runs.")
]
_DEFAULT = Path("paper/out")


def item_command(name: str) -> Callable[..., None]:
    """Return the command of an item."""

    @plain_errors
    def command(quick: _Quick = False, out: _Out = _DEFAULT, figures: _Figures = True, resume: _Resume = True) -> None:
        run((name,), out, quick=quick, figures=figures, resume=resume)

    command.__doc__ = help_of(name)
    return command


@plain_errors
def run_all(quick: _Quick = False, out: _Out = _DEFAULT, figures: _Figures = True, resume: _Resume = True) -> None:
    """Run every item, and print the verdict: claim, published, ours, holds or not."""
    run(ITEMS, out, quick=quick, figures=figures, resume=resume)


@plain_errors
def numbers(out: _Out = _DEFAULT) -> None:
    """Write DIR/numbers.tex, the numbers of the report as macros, from the JSON of all items."""
    path, count = write_numbers(out)
    typer.echo(f"{count} numbers written to {path}")
