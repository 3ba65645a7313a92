"""Folders and files: there in full or not at all, and errors that name the remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import make_folder, write_file, write_results, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"taken' can't be made: .*; give another one with --into"):
        make_folder(tmp_path / "taken", "--into")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, error: Any) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old: é")

    def fail(file: Any) -> None:
        file.write(b"new, but")
        raise error

    with pytest.raises((KeyboardInterrupt, OSError)):
        write_file(path, fail)
    assert path.read_text(encoding="utf-8") == "old: é"
    assert names(tmp_path) == ["a.json"]
    write_file(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"


def test_a_file_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, forced = tmp_path / "a", []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        forced.append(path.exists())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(path, "text")
    # The contents before the name, the name afterwards.
    assert forced == [False, True]


def test_results_are_named_in_order(tmp_path: Path) -> None:
    def draw(folder: Path) -> list[Path]:
        path = folder / "c.png"
        path.write_bytes(b"")
        return [path]

    assert write_results(tmp_path, {"b.csv": "1\n", "a.json": "{}"}, draw) == ["b.csv", "a.json", "c.png"]
    assert (tmp_path / "b.csv").read_text() == "1\n"
    assert names(tmp_path) == ["a.json", "b.csv", "c.png"]


def test_results_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match=r"can't write to .*: .*; give another folder with --out"):
        write_results(tmp_path, {"a.csv": "1"})
    assert names(tmp_path) == ["a.csv"]
