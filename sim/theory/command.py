"""``python -m sim theory``: results of our own in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ada_bandit.errors import unknown_name
from ada_bandit.programs.console import escape, new_table
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.theory.figure import write_figures
from sim.theory.study import PARTS, Number, Part, Theory, compute_theory

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["theory"]

_AT = {"adaptivity": "share or p", "price": "tolerance", "draws": "tolerance", "tokens": "p", "silent": "signal"}
_SIZE = {"adaptivity": "K", "price": "K", "draws": "% of least K", "tokens": "prompts", "silent": "prompts"}


@command
def theory(
    *,
    part: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"What to compute: {', '.join(PARTS)}; repeatable, all by default."),
    ] = None,
    output: Annotated[Output, output_options("theory", " and the figure", "out/theory")],
) -> None:
    """Compute the numbers of docs/theory.md: adaptivity's value, the price of log p, random denominators.

    It takes no pass rates: the laws are those of the statements. The proofs are in docs/theory.md.

    \b
    Examples:
      python -m sim theory
      python -m sim theory --part price --part tokens
    """  # noqa: D301 - \b keeps the lines of the examples apart
    parts = _parts(part or [])
    run_study(
        output,
        lambda _, advance: compute_theory(parts, advance),
        _report,
        write_figures,
        doing="computing",
        total=len(parts),
    )


def _parts(names: list[str]) -> tuple[Part, ...]:
    for name in names:
        if name not in PARTS:
            raise unknown_name("part", name, PARTS)
    return tuple(part for part in PARTS if not names or part in names)


def _report(result: Theory) -> Report:
    return Report("Results", ", ".join(result.parts), _tables(result), result.notes)


def _tables(result: Theory) -> Iterator[Table]:
    """Give a table a part: a row for each case and place, a column for each size."""
    for part in result.parts:
        numbers = [number for number in result.numbers if number.part == part]
        sizes = sorted({number.size for number in numbers})
        # A rate that the size decides is no place of its own.
        free = {case for case in result.cases(part) if len({n.size for n in numbers if n.case == case}) > 1}
        rows: dict[tuple[str, float | None], dict[int, Number]] = {}
        for number in numbers:
            alone = part == "adaptivity" and number.case in free
            rows.setdefault((number.case, None if alone else number.at), {})[number.size] = number
        table = new_table(part, "", _AT[part], *(f"{_SIZE[part]}\n{size}" for size in sizes))
        for (case, at), found in rows.items():
            cells = [_cell(part, found[size].value) if size in found else "" for size in sizes]
            table.add_row(escape(case), "" if at is None else f"{at:g}", *cells)
        yield table


def _cell(part: Part, value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:+.1%}" if part == "tokens" else f"{value:.3g}"
