from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llm.cli import COMMANDS, app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_commands_say(name: str) -> None:
    place = COMMANDS[name]
    command = getattr(import_module(place.module), place.function)
    assert command.__doc__.startswith(place.help)
    own = CliRunner().invoke(app, [name, "--help"])
    assert own.exit_code == 0
    assert all(word in own.output for word in place.help.split())


def test_the_list_needs_no_command() -> None:
    code = (
        "import sys; from llm.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print('LOADED', sorted({'numpy', 'pydantic', 'torch', 'llm.trainer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "make-tiny" in done.stdout
    assert "LOADED []" in done.stdout


def test_an_unknown_command_gets_the_nearest_name() -> None:
    done = CliRunner().invoke(app, ["trian"])
    assert done.exit_code == 2
    assert "Did you mean 'train'?" in done.output
