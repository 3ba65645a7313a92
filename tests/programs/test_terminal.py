"""What a terminal shows: progress, colours, and tables that don't fit; and what a pipe brings in."""

from __future__ import annotations

import inspect
import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ada_bandit import Policy
from ada_bandit.errors import InputError
from ada_bandit.programs.console import new_table, print_table, waiting
from ada_bandit.programs.lazy import function_of
from ada_bandit.programs.stdin import kind_of, save_stdin
from sim.cli import app

ROOT = Path(__file__).parents[2]
COUNTS = "prompt_id,correct,total\na,1,4\nb,2,4\nc,0,4\n"
SMALL = ("--prompts", "8", "--batches", "2", "--no-figures")


def on_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
    """Run a command with a terminal for its output and return all that it showed."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                return
            if not part:
                return
            shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    kept = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}}
    kept |= {"TERM": "xterm-256color", "COLUMNS": str(columns)} | environment
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "sim", *arguments],
        cwd=ROOT, env=kept, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, check=False,
    )  # fmt: skip
    os.close(theirs)
    reader.join()
    os.close(ours)
    assert done.returncode == 0
    return shown.decode()


def test_what_takes_a_second_is_shown(tmp_path: Path) -> None:
    # The rule's file takes its time whatever the machine: it waits.
    (tmp_path / "slow.py").write_text(
        "import time\n\nfrom ada_bandit import exit_rule\n\ntime.sleep(3)\n\n\n"
        "@exit_rule\ndef mixed(pos, neg):\n    return (pos >= 1) & (neg >= 1)\n"
    )
    policy = ("--policy", f"{tmp_path / 'slow.py'}:mixed")
    shown = on_terminal("compare", *policy, *SMALL, "--out", str(tmp_path))
    assert "reading what was given" in shown
    assert "simulating" in shown
    quiet = on_terminal("compare", *policy, *SMALL, "--quiet", "--out", str(tmp_path))
    assert quiet == ""


def test_no_colour_where_none_is_wanted(tmp_path: Path) -> None:
    arguments = ("compare", *SMALL, "--policy", "grpo", "--out", str(tmp_path))
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
    assert colour.search(on_terminal(*arguments))
    assert not colour.search(on_terminal(*arguments, NO_COLOR="1"))


@pytest.mark.parametrize("columns", [20, 40, 79, 200])
def test_no_number_is_cut_on_a_narrow_terminal(columns: int, tmp_path: Path) -> None:
    def tables(text: str) -> str:
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        return plain[plain.index("effi-") : plain.index("cost is relative")]

    arguments = ("compare", *SMALL, "--policy", "grpo", "--policy", "maxrl", "--out", str(tmp_path))
    narrow, wide = (tables(on_terminal(*arguments, columns=width)) for width in (columns, 160))
    assert "…" not in narrow
    assert re.findall(r"\d+\.\d+", narrow) == re.findall(r"\d+\.\d+", wide)


@pytest.mark.parametrize("width", [1, 10, 30, 100])
def test_a_table_is_as_wide_as_its_numbers(width: int) -> None:
    table = new_table("Title", "name", "first", "second")
    table.add_row("policy", "123.456789", "0.000001")
    console = Console(file=io.StringIO(), width=width)
    print_table(table, console)
    assert isinstance(console.file, io.StringIO)
    for number in ("123.456789", "0.000001"):
        assert number in console.file.getvalue()


def test_waiting_shows_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("counting", after=0.0):
        pass
    assert capsys.readouterr().err == ""


# Standard input


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (COUNTS, ".csv"),
        ("\ufeff" + COUNTS, ".csv"),
        ("# read by eye\nprompt_id,correct,total\n", ".csv"),
        ('{"prompt_id": "a", "rewards": [1, 0]}\n{"prompt_id": "b", "rewards": [0]}\n', ".jsonl"),
        ('{\n  "prompt_id": "a"\n}\n', ".json"),
        ('[{"prompt_id": "a"}]', ".json"),
        (Policy.preset("grpo").to_toml(), ".toml"),
        ("from ada_bandit import exit_rule\n@exit_rule\ndef own(pos, neg):\n    return pos > 1\n", ".py"),
        ("PAR1\0\0", ".parquet"),
        ("PK\x03\x04", ".npz"),
    ],
)
def test_the_kind_of_standard_input_is_recognised(data: str, kind: str) -> None:
    assert kind_of(data.encode()) == kind


@pytest.mark.parametrize(
    ("arguments", "data", "says"),
    [
        (("compare", *SMALL, "--pass-rates", "-"), COUNTS, "3 prompts with 4 responses each"),
        (("replay", "-", "--no-figures"), '{"prompt_id": "a", "rewards": [1, 0, 1, 1, 0, 1, 0, 0]}\n', "stdin.jsonl"),
        (("log", "-", "--no-figures"), COUNTS, "stdin.csv"),
        (("show", "--policy", "-"), Policy.preset("rloo", group_size=6).to_toml(), "group_size = 6"),
        (
            ("show", "--rules", "-", "--policy", "own"),
            "from ada_bandit import exit_rule\n@exit_rule\ndef own(pos, neg):\n    return pos > 1\n",
            'name = "own"',
        ),
    ],
)
def test_a_dash_is_standard_input(arguments: tuple[str, ...], data: str, says: str, tmp_path: Path) -> None:
    out = () if arguments[0] == "show" else ("--out", str(tmp_path))
    result = CliRunner().invoke(app, [*arguments, *out], input=data, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert says in result.stdout


def takes_files() -> list[tuple[str, str, bool]]:
    """Return every option that takes a file: its command, its name, and whether it takes standard input."""
    names = [path.parent.name for path in sorted((ROOT / "sim").glob("*/command.py"))]
    return [
        (command, name, bool(mark.allow_dash))
        for command in names
        for name, parameter in inspect.signature(function_of(f"sim.{command}.command", command)).parameters.items()
        for mark in getattr(parameter.annotation, "__metadata__", ())
        if re.match("FILE|PATH|PRESET_OR_TOML", str(getattr(mark, "metavar", "")))
    ]


def test_every_option_that_takes_a_file_takes_standard_input() -> None:
    options = takes_files()
    assert len(options) > 25
    # The files that are written.
    assert [each[:2] for each in options if not each[2]] == [("frontier", "save_policy"), ("lab", "out")]


def test_standard_input_that_is_empty_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b" \n")))
    with pytest.raises(InputError, match="standard input, which is empty or was read before"):
        save_stdin()


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "counts.csv").write_text(COUNTS)
    (tmp_path / "mine.toml").write_text(Policy.preset("grpo").to_toml())
    (tmp_path / "own.py").write_text(
        "from ada_bandit import exit_rule\n@exit_rule\ndef own(pos, neg):\n    return pos > 1\n"
    )
    given = ("--pass-rates", "~/counts.csv", "--policy", "~/mine.toml", "--policy", "~/own.py", "--rules", "~/own.py")
    result = CliRunner().invoke(app, ["compare", *SMALL, *given, "--out", "~/out"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "compare.csv").is_file()
