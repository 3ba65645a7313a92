"""What programs show, and where it goes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rich")

from ada_bandit.programs.console import (
    escape,
    new_table,
    open_console,
    print_notes,
    print_plain,
    print_warning,
    print_written,
    progress,
)
from ada_bandit.programs.machine import available_cores


def test_what_is_no_terminal_is_100_columns_wide(capsys: pytest.CaptureFixture[str]) -> None:
    open_console().print("word " * 60)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) == 3
    print_plain("word " * 60, open_console())
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_markup_of_users_is_text(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    console = open_console()
    print_plain("a [bold]b[/bold] 1", console)
    console.print(escape("a [bold]b[/bold] 1"))
    print_written(tmp_path / "[red]", ["x.csv", "y.png"], console)
    print_notes(["a [note]"], console)
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["a [bold]b[/bold] 1"] * 2
    assert out[2] == f"written to {tmp_path / '[red]'}: x.csv, y.png"
    assert out[3].strip() == "- a [note]"


def test_warnings_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_warning("a [b]")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "warning: a [b]\n")


def test_numbers_of_a_table_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("Title", "name", "long\nhead")
    table.add_row("a", "1")
    open_console().print(table)
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].strip() == "Title"
    ends = {word: line.rindex(word) + len(word) for word in ("long", "head", "1") for line in rows if word in line}
    assert ends["long"] == ends["head"] == ends["1"]


def test_a_bar_leaves_standard_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 3, done=1) as advance:
        print("a rule printed this")  # noqa: T201
        advance(1)
        advance(1, "nearly done")
        advance(0, "writing")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "a rule printed this\n"


def test_cores_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7
