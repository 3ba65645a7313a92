from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llm.cli import COMMANDS, app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_commands_say(name: str) -> None:
    text = COMMANDS[name].help()
    command = COMMANDS[name].load()
    assert (command.__doc__ or "").splitlines()[0] == text
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert all(word in shown.output for word in text.split())
    listed = CliRunner().invoke(app, ["--help"]).output
    assert f"  {name} " in listed
    assert text.split()[0] in listed


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
