"""Files to begin with: they are what the examples in every command's help name."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ada_bandit import Policy
from ada_bandit.specs import read_policies
from sim.cli import app
from sim.init.samples import sample_files

ROOT = Path(__file__).parents[3]
# What an example writes, and what a probe of a language model wrote.
WRITTEN = {"best.toml", "out/probe/scores.npz"}
# Minutes of computing, or the scores of a probe.
ELSEWHERE = ("learn", "advise", "lab", "--probe", "empirical-bayes", "when-adaptive-pays", "~")


def examples() -> list[str]:
    """Return every example in the help of every command."""
    lines = []
    for path in sorted((ROOT / "sim").glob("*/command.py")):
        lines += re.findall(r"^ {6}python -m sim (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return lines


def begin(folder: Path) -> Any:
    return CliRunner().invoke(app, ["init", str(folder)], catch_exceptions=False)


def test_the_files_are_written_once(tmp_path: Path) -> None:
    result = begin(tmp_path / "new")
    assert result.exit_code == 0
    held = {path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert held == set(sample_files())
    (tmp_path / "new" / "mine.toml").write_text("my own")
    again = begin(tmp_path / "new")
    assert again.exit_code == 2
    assert "mine.toml" in again.stderr
    assert (tmp_path / "new" / "mine.toml").read_text() == "my own"


def test_the_examples_name_files_that_are_there() -> None:
    lines = examples()
    assert len(lines) > 25
    named = {word for line in lines for word in re.findall(r"[\w./*-]+\.(?:csv|jsonl|toml|py|npz)\b", line)}
    held = set(sample_files())
    folder = {name for name in named if "*" in name}
    assert named - folder - held - WRITTEN == set()
    assert all(any(name.startswith(each.partition("*")[0]) for name in held) for each in folder)


def test_the_logs_tell_one_story(tmp_path: Path) -> None:
    begin(tmp_path)
    rollouts = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    with (tmp_path / "counts.csv").open(newline="") as lines:
        counts = [(row["prompt_id"], int(row["correct"]), int(row["total"])) for row in csv.DictReader(lines)]
    assert counts == [(row["prompt_id"], sum(row["rewards"]), len(row["rewards"])) for row in rollouts]
    assert len({row["prompt_id"] for row in rollouts}) == len(rollouts) == 40


def test_the_pools_are_the_policys(tmp_path: Path) -> None:
    begin(tmp_path)
    policy = Policy.preset("reinforce-ada-balance")
    pools = [json.loads(line) for line in (tmp_path / "ada_pools.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in (tmp_path / "kept_rows.jsonl").read_text().splitlines()]
    for pool in pools:
        right = sum(pool["correct"])
        assert policy.sampling.exits[right, len(pool["correct"]) - right]
        assert sum(pool["kept"]) == policy.n
    assert len(rows) == policy.n * len(pools)
    kept = sum(sum(reward for reward, one in zip(pool["rewards"], pool["kept"], strict=True) if one) for pool in pools)
    assert sum(row["reward"] for row in rows) == kept


def test_the_rules_and_the_policy_are_read(tmp_path: Path) -> None:
    begin(tmp_path)
    rules = str(tmp_path / "my_rules.py")
    mixed, budgeted, first, mine = read_policies(
        [f"{rules}:mixed", f"{rules}:mixed,rounds=2,samples=16", f"{rules}:first_right", str(tmp_path / "mine.toml")]
    )
    assert (mixed.budget.max_samples, budgeted.budget.max_samples) == (32, 32)
    assert budgeted.budget.sizes == (16, 16)
    assert first.parts[0][1].tables.draws[1, 7] == 0
    assert mine == Policy.preset("reinforce-ada-pos", rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("example", [line for line in examples() if not any(word in line for word in ELSEWHERE)])
def test_every_example_runs(example: str, tmp_path: Path) -> None:
    begin(tmp_path)
    command, _, target = example.partition(" > ")
    done = subprocess.run(  # noqa: S603 - an example of ours
        [sys.executable, "-m", "sim", *shlex.split(command)], cwd=tmp_path, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    if example == "init":  # the files are there already
        assert done.returncode == 2
        return
    assert done.returncode == 0, done.stderr[-2000:]
    assert bool(target) == ("--toml" in example)
