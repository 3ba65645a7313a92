"""Ctrl-C, and results that are there already: what is kept, what gives way, and what is said of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import make_folder, no_empty_folders
from ada_bandit.programs.options import StoppedError, plain_errors
from sim.cli import app

ROOT = Path(__file__).parents[2]
RULE = "@exit_rule\ndef own(pos, neg):\n    return pos > 1\n"
SMALL = ("--no-figures", "--prompts", "8", "--batches", "2", "--policy", "grpo")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stopped(*arguments: str | Path, until: Path) -> tuple[int, str]:
    """Run a program, press Ctrl-C once a file or folder is there, and return exit code and standard error."""
    program = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(3000):
        if until.exists() or program.poll() is not None:
            break
        time.sleep(0.02)
    os.kill(program.pid, signal.SIGINT)
    _, told = program.communicate(timeout=60)
    return program.returncode, told


def test_a_study_that_is_stopped_leaves_earlier_results_and_no_folder(tmp_path: Path) -> None:
    long = ("--no-figures", "--batches", "1000000000", "--policy", "grpo", "--out")
    code, told = stopped("sim", "compare", *long, tmp_path / "new" / "out", until=tmp_path / "new" / "out")
    assert (code, told.count("\n")) == (130, 1)
    assert told.startswith("stopped: nothing of this run was written to")
    assert list(tmp_path.iterdir()) == []
    CliRunner().invoke(app, ["compare", *SMALL, "--out", str(tmp_path)], catch_exceptions=False)
    before = files(tmp_path)
    assert set(before) == {"compare.csv", "compare.json"}
    rules, begun = tmp_path / "rules.py", tmp_path / "begun"
    rules.write_text(f"from ada_bandit.rules import exit_rule\nopen({str(begun)!r}, 'w').close()\n{RULE}")
    code, _ = stopped("sim", "compare", *long, tmp_path, "--rules", rules, until=begun)
    assert code == 130
    assert {name: text for name, text in files(tmp_path).items() if name in before} == before


def test_a_sweep_that_is_stopped_says_which_runs_are_kept(tmp_path: Path) -> None:
    arguments = ("--no-figures", "--seeds", "400", "--steps", "40", "--policy", "grpo", "--workers", "1")
    code, told = stopped("sim", "learn", *arguments, "--out", tmp_path, until=tmp_path / "runs")
    assert code == 130
    last = told.strip().splitlines()[-1]
    kept = int(last.removeprefix("stopped: ").split()[0])
    assert kept == len(files(tmp_path / "runs"))
    assert "--resume" in last


def test_a_repeated_run_says_what_gives_way(tmp_path: Path) -> None:
    command = ["compare", *SMALL, "--out", str(tmp_path)]
    first, again = (CliRunner().invoke(app, command, catch_exceptions=False) for _ in range(2))
    other = CliRunner().invoke(app, [*command, "--seed", "1", "--json"], catch_exceptions=False)
    assert first.stderr == again.stderr == ""
    assert "an earlier run's compare.csv and compare.json gave way" in " ".join(other.stderr.split())
    json.loads(other.stdout)


def test_a_run_that_fails_leaves_earlier_results(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["compare", *SMALL, "--out", str(tmp_path)], catch_exceptions=False)
    before = files(tmp_path)
    failed = CliRunner().invoke(app, ["compare", *SMALL, "--policy", "nothing", "--out", str(tmp_path)])
    assert failed.exit_code == 2
    assert files(tmp_path) == before


def test_quiet_shows_nothing_and_writes_all(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", *SMALL, "--quiet", "--out", str(tmp_path)], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "")
    assert set(files(tmp_path)) == {"compare.csv", "compare.json"}


def test_folders_go_only_where_nothing_is_in_them(tmp_path: Path) -> None:
    @no_empty_folders()
    def begin(inside: str, *, write: bool) -> None:
        folder = make_folder(tmp_path / inside)
        if write:
            (folder / "file").write_text("kept")
        raise InputError("no")

    def fail(inside: str, *, write: bool) -> None:
        with pytest.raises(InputError):
            begin(inside, write=write)

    fail("a/b", write=False)
    assert list(tmp_path.iterdir()) == []
    fail("a/b", write=True)
    fail("a/c/d", write=False)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    with no_empty_folders():
        make_folder(tmp_path / "a" / "c")
    assert (tmp_path / "a" / "c").is_dir()


@pytest.mark.parametrize(
    ("error", "says"),
    [(KeyboardInterrupt(), "what was written before stays"), (StoppedError("3 of 4 are kept"), "3 of 4 are kept")],
)
def test_what_is_said_after_ctrl_c(error: KeyboardInterrupt, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    @plain_errors
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err.startswith(f"stopped: {says}")
