"""Commands: groups of options, and how errors end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from ada_bandit.errors import InputError
from ada_bandit.programs.options import Options, Output, command, output_options, plain_errors

made: list[Any] = []


def read_span(
    low: Annotated[int, typer.Option(help="The low end.")] = 0, high: Annotated[int, typer.Option()] = 9
) -> range:
    if low > high:
        msg = f"low must not exceed high; got {low} and {high}"
        raise InputError(msg)
    return range(low, high)


@command
def measure(
    name: Annotated[str, typer.Argument()],
    *,
    span: Annotated[range, Options(read_span)],
    often: Annotated[int, typer.Option(min=1)] = 1,
    output: Annotated[Output, output_options("sum", " and the figure", "out/sum")],
) -> None:
    """Measure a span."""
    made.append((name, span, often, output))


def read_pair(
    span: Annotated[range, Options(read_span)], factor: Annotated[int, typer.Option()] = 2
) -> tuple[range, int]:
    return span, factor


@command
def weigh(*, pair: Annotated[tuple[range, int], Options(read_pair)]) -> None:
    """Weigh a pair."""
    made.append(pair)


def test_a_group_within_a_group_becomes_one_value_of_it() -> None:
    app = typer.Typer()
    app.command()(weigh)
    made.clear()
    assert CliRunner().invoke(app, ["--low", "3", "--factor", "5"]).exit_code == 0
    assert made == [(range(3, 9), 5)]
    refused = CliRunner().invoke(app, ["--low", "10"])
    assert refused.exit_code == 2
    assert "low must not exceed high; got 10 and 9" in refused.output


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(measure)
    made.clear()
    return CliRunner().invoke(app, arguments)


def test_a_group_of_options_becomes_one_value() -> None:
    assert run("x").exit_code == 0
    assert made == [("x", range(9), 1, Output("sum", Path("out/sum"), figures=True, as_json=False))]
    assert run("y", "--high", "5", "--low", "2", "--often", "3", "--out", "a", "--no-figures", "--json").exit_code == 0
    assert made == [("y", range(2, 5), 3, Output("sum", Path("a"), figures=False, as_json=True))]


def test_every_option_of_a_group_is_in_the_help() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for text in ("Measure a span.", "--low", "The low end.", "--high", "--often", "sum.csv, sum.json and the figure"):
        assert text in " ".join(result.stdout.replace("│", " ").split())


def test_options_of_a_group_are_checked() -> None:
    result = run("x", "--low", "many")
    assert (result.exit_code, made) == (2, [])
    result = run("x", "--low", "7", "--high", "5")
    assert (result.exit_code, made) == (2, [])
    assert result.stderr == "error: low must not exceed high; got 7 and 5\n"


def test_errors_of_the_library_end_a_command_with_2() -> None:
    app = typer.Typer()

    @app.command()
    @plain_errors
    def fail(name: str) -> None:
        if name == "bug":
            raise ValueError(name)
        msg = f"no [red]{name}[/red]\n  give another"
        raise InputError(msg)

    result = CliRunner().invoke(app, ["x"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "error: no [red]x[/red]\n  give another\n"
    # What the library doesn't raise on purpose is a bug, and keeps its traceback.
    assert isinstance(CliRunner().invoke(app, ["bug"]).exception, ValueError)
