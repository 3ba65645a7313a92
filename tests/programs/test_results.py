"""The tail of a command: files, figures, what is shown, and JSON alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ada_bandit.errors import InputError
from ada_bandit.programs.console import Advance, new_table
from ada_bandit.programs.options import Output
from ada_bandit.programs.results import Report, run_study


@dataclass
class Sum:
    """A result."""

    total: float

    def to_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def to_csv(self) -> str:
        return f"total\n{self.total}\n"


def report(result: Sum) -> Report:
    table = new_table("Sums", "name", "total")
    table.add_row("all", str(result.total))
    return Report("Numbers", "[1, 2]", (table,), ("a note",), ("where from",))


def draw(result: Sum, folder: Path) -> Sequence[Path]:
    path = folder / "sum.svg"
    path.write_text(str(result.total))
    return [path]


def study(out: Path, drawing: Callable[[Sum, Path], Sequence[Path]] = draw, **options: bool) -> None:
    def compute(folder: Path, advance: Advance) -> Sum:
        # The folder is there before anything is computed, and what is printed goes elsewhere.
        assert folder.is_dir()
        print("noise")  # noqa: T201
        advance(2)
        return Sum(3)

    output = Output("sum", out, **({"figures": True, "as_json": False} | options))
    run_study(output, compute, report, drawing, doing="adding", total=2)


def test_everything_is_written_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    study(out)
    assert sorted(path.name for path in out.iterdir()) == ["sum.csv", "sum.json", "sum.svg"]
    assert json.loads((out / "sum.json").read_text()) == {"total": 3}
    assert (out / "sum.csv").read_text() == "total\n3\n"
    said = capsys.readouterr()
    lines = [line.strip() for line in said.out.splitlines()]
    assert lines[:2] == ["Numbers: [1, 2]", "- where from"]
    assert "- a note" in lines
    assert lines[-1] == f"written to {out}: sum.csv, sum.json, sum.svg"
    assert said.err == "noise\n"


def test_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(tmp_path, as_json=True, figures=False)
    assert capsys.readouterr().out == (tmp_path / "sum.json").read_text()
    assert not (tmp_path / "sum.svg").exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    def full(result: Sum, folder: Path) -> Sequence[Path]:
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left on device; give another folder with --out"):
        study(tmp_path, full)
