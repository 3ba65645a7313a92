"""Every format is read by every command with no option, and its counts come out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from sim.cli import app
from tests.sim.readers import dumps
from tests.sim.readers.tables import LISTS, RESPONSES, TEXTS

COMMANDS: dict[str, Callable[[Path], Sequence[str | Path]]] = {
    "compare": lambda path: ("compare", "--pass-rates", path, "--batches", "0", "--policy", "grpo:group_size=2"),
    "budget": lambda path: (
        "budget", "--pass-rates", path, "--policy", "uniform", "--total", "16", "--prompts", "8", "--steps", "2",
    ),
    "replay": lambda path: ("replay", path, "--policy", "grpo:group_size=2"),
}  # fmt: skip


def told(command: str, path: Path, out: Path) -> dict[str, Any]:
    arguments = [str(part) for part in COMMANDS[command](path)]
    result = CliRunner().invoke(app, [*arguments, "--no-figures", "--json", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def check(command: str, path: Path, out: Path, pools: int, responses: str, rate: float) -> None:
    """Check that a command found so many pools of so many responses, and their mean rate."""
    found = told(command, path, out)
    notes = found["notes"]
    if command == "replay":
        assert found["prompts"] == pools
        assert notes[0].endswith(f"with {responses} responses each")
        assert found["policies"][0]["log_pass_rate"] == pytest.approx(rate)
    else:
        assert f"with {responses} responses each, {rate:.1%} correct" in notes[0]
        assert notes[0].startswith(f"{pools} prompts") or f" in {pools} pools" in notes[0]
    assert any("read as" in note for note in notes)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", dumps.DUMPS)
def test_dumps(name: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    path = dumps.DUMPS[name][0](tmp_path / "dump")
    check(command, path, tmp_path / "out", 6, "4", dumps.CORRECT / dumps.RESPONSES)


@pytest.mark.parametrize("command", ["compare", "budget", "replay"])
def test_lm_eval(command: str, tmp_path: Path) -> None:
    path = dumps.lm_eval(tmp_path)
    check(command, path, tmp_path / "out", dumps.RESPONSES, "1", dumps.CORRECT / dumps.RESPONSES)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", [*(("counts", kind) for kind in TEXTS), *(("rows", kind) for kind in RESPONSES)])
def test_tables(kind: tuple[str, str], command: str, tmp_path: Path) -> None:
    name, text = TEXTS[kind[1]] if kind[0] == "counts" else RESPONSES[kind[1]]
    (tmp_path / name).write_text(text, encoding="utf-8")
    expected = ("16", 5 / 32) if kind[0] == "counts" else ("2", 1 / 4)
    check(command, tmp_path / name, tmp_path / "out", 2, *expected)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", LISTS)
def test_lists(kind: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(LISTS[kind], encoding="utf-8")
    check(command, tmp_path / "x.jsonl", tmp_path / "out", 2, "2", 1 / 4)
