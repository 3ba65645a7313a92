"""Commands that are imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from ada_bandit.programs.lazy import LazyCommand, command_of, function_of, lazy_app

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name for path in (ROOT / "sim").glob("*/command.py"))


def twice(number: Annotated[int, typer.Argument()]) -> None:
    """Double a number."""
    typer.echo(str(2 * number))


def no_import() -> Callable[..., None]:
    pytest.fail("imported, though another command was asked for")


APP = lazy_app(
    "What it is for.",
    {"twice": LazyCommand(lambda: "Double it.", lambda: twice), "never": LazyCommand(lambda: "Not now.", no_import)},
)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(APP, arguments)


def test_the_one_that_runs_is_imported_alone() -> None:
    assert run("twice", "21").stdout == "42\n"
    assert "Double a number." in run("twice", "--help").stdout
    result = run("twice", "many")
    assert (result.exit_code, "Invalid value for 'number'" in result.stderr) == (2, True)


def test_the_list_imports_nothing() -> None:
    for arguments, code in (((), 2), (("--help",), 0)):
        result = run(*arguments)
        assert result.exit_code == code
        lines = [line.split() for line in result.stdout.splitlines()]
        for line in ("What it is for.", "twice Double it.", "never Not now."):
            assert line.split() in lines


def test_an_unknown_command_is_told() -> None:
    result = run("twise")
    assert result.exit_code == 2
    assert "Did you mean 'twice'?" in result.stderr


@pytest.mark.parametrize("study", STUDIES)
def test_help_is_the_first_line_of_the_docstring(study: str) -> None:
    command = command_of(f"sim.{study}.command", study)
    loaded = command.load()
    assert str(loaded.__doc__).splitlines()[0] == command.help()
    assert loaded is function_of(f"sim.{study}.command", study)


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(LookupError, match="no function nothing with a docstring"):
        command_of("sim.compare.command", "nothing").help()
