"""The command line, ``python -m paper``: one command an item, `all`, and `numbers` for the report.

Nothing heavy is imported at the top, so that ``--help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sim.options import plain_errors

__all__ = ["app"]

# Kept here, and checked against `paper.items` by a test, as that module imports the library.
_TITLES = {
    "figure1": "Reward against steps (simulated).",
    "figure2": "Pass@k and all-correct@k before and after RL (exact).",
    "figure3": "Reward against steps on other prompts and with other step sizes (simulated).",
    "figure4": "Reward against entropy, and pass@k (simulated).",
    "figure5": "Sampling dynamics: extra responses, unresolved prompts (exact).",
    "figure6": "Moderate against hard prompts (simulated).",
    "table1": "The order of the algorithms (published data and simulated).",
    "table2": "Relative cost of a step (exact).",
    "bias": "Ours: the bias of the pool-mean baseline, by rule and p (exact).",
    "objective": "Ours: the objective that each rule climbs (exact).",
    "frontier": "Ours: how far each rule is from the best that is possible (exact).",
    "tokens": "Ours: reward against responses and tokens in place of steps (simulated).",
}

app = typer.Typer(
    help="The tables and figures of arXiv 2510.04996: what is claimed, what comes out here, and whether it holds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds and steps: minutes in place of half an hour.")]
_Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for JSON, figures and the verdict.")]
_Figures = Annotated[bool, typer.Option("--figures/--no-figures", help="Whether to draw the figures.")]
_Resume = Annotated[
    bool, typer.Option("--resume/--fresh", help="Whether to take finished simulated runs from DIR/runs.")
]
_DEFAULT = Path("paper/out")


@app.command("all")
@plain_errors
def run_all(quick: _Quick = False, out: _Out = _DEFAULT, figures: _Figures = True, resume: _Resume = True) -> None:
    """Run every item, and print the verdict: claim, published, ours, holds or not."""
    _run(tuple(_TITLES), out, quick=quick, figures=figures, resume=resume)


@app.command("numbers")
@plain_errors
def numbers(out: _Out = _DEFAULT) -> None:
    """Write DIR/numbers.tex, the numbers of the report as macros, from the JSON of all items."""
    from paper.numbers import write_numbers

    path, count = write_numbers(out)
    typer.echo(f"{count} numbers written to {path}")


def _command(name: str, title: str) -> None:
    @plain_errors
    def command(quick: _Quick = False, out: _Out = _DEFAULT, figures: _Figures = True, resume: _Resume = True) -> None:
        _run((name,), out, quick=quick, figures=figures, resume=resume)

    command.__doc__ = title
    register: Callable[[Callable[..., None]], object] = app.command(name, help=title)
    register(command)


for _name, _title in _TITLES.items():
    _command(_name, _title)


def _run(names: Sequence[str], out: Path, *, quick: bool, figures: bool, resume: bool) -> None:
    from paper.run import run

    run(names, out, quick=quick, figures=figures, resume=resume)
