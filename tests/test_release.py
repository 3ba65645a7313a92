"""What a release states more than once is the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ada_bandit

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert re.findall(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE) == [ada_bandit.__version__]


def test_the_hooks_run_the_ruff_that_is_pinned() -> None:
    pinned = [each for each in PROJECT["dependency-groups"]["dev"] if isinstance(each, str) and each.startswith("ruff")]
    (hook,) = re.findall(r"ruff-pre-commit\n\s+rev: v(\S+)", read(".pre-commit-config.yaml"))
    assert pinned == [f"ruff=={hook}"]


def test_the_workflow_tests_every_python_that_is_promised_and_the_oldest_numba() -> None:
    workflow = read(".github/workflows/tests.yml")
    promised = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.MULTILINE)
    assert re.findall(r"python: \[(.+)\]", workflow) == [", ".join(f'"{version}"' for version in promised)]
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"
    (floor,) = [each.partition(">=")[2] for each in PROJECT["project"]["dependencies"] if each.startswith("numba")]
    assert set(re.findall(r'numba: "(\d[^"]*)"', workflow)) == {f"{floor}.*"}


@pytest.mark.parametrize("name", [".github/workflows/tests.yml", ".github/workflows/release.yml", "CONTRIBUTING.md"])
def test_the_targets_that_are_named_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", read("Makefile"), re.MULTILINE))
    named = {each for each in re.findall(r"make ([a-z-]+)", read(name)) if not each.startswith("-")}
    named |= {each for line in re.findall(r"target: \[(.+)\]", read(name)) for each in line.split(", ")}
    assert named <= targets
    assert len(named) > 0
