"""Any value of JSON in any place of any format: it is read, or refused in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ada_bandit.errors import InputError
from sim.readers import ReadOptions, read_rollouts
from tests.sim.readers import dumps

VALUES: tuple[Any, ...] = (None, True, -0.5, "", "x", [], [1], {"a": 1}, [[1], {"b": []}])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of everything inside a value: every key, and the first member of every list."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from places(inner, (*path, key))


def changed(row: Any, path: tuple[Any, ...], value: Any) -> Any:
    row = copy.deepcopy(row)
    at = row
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return row


def rows_of(file: Path) -> list[Any]:
    if file.suffix == ".parquet":
        return list(pl.read_parquet(file).to_dicts())
    text = file.read_text(encoding="utf-8")
    return [json.loads(text)] if file.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", [name for name in dumps.DUMPS if name not in {"inspect-eval", "slime"}])
def test_any_value_anywhere_is_read_or_refused_in_words(name: str, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    found = dumps.DUMPS[name][0](tmp_path / "dump")
    file = found if found.is_file() else min(each for each in found.rglob("*") if each.is_file())
    rows = rows_of(file)[:6]
    place = tmp_path / "1" / ("changed.json" if file.suffix == ".json" else "changed.jsonl")
    place.parent.mkdir()
    read = 0
    # In the first row the value may change what the format is taken for.
    at_first = [(0, path) for path in places(rows[0])]
    for at, path in at_first + [(1, path) for path in places(rows[-1]) if len(rows) > 1]:
        for value in VALUES:
            other = [changed(row, path, value) if number == at else row for number, row in enumerate(rows)]
            place.write_text("".join(json.dumps(row) + "\n" for row in other), encoding="utf-8")
            try:
                log = read_rollouts(place)
            except InputError as error:
                assert str(error)  # noqa: PT017 - either is fine, and nothing else is
            else:
                assert log.responses >= log.scored.sum() >= log.correct.sum()
                read += 1
    assert read


@pytest.mark.parametrize("idx", [None, "x", [], {}, float("nan")])
def test_the_number_of_a_row_is_a_number(idx: Any, tmp_path: Path) -> None:
    rows = [{"rewards": [1.0], "input_lengths": 9, "idx": 0}, {"rewards": [1.0], "input_lengths": 9, "idx": idx}]
    dumps.lines(tmp_path / "train_data_step5.jsonl", rows)
    with pytest.raises(InputError, match="idx must be the number of the row"):
        read_rollouts(tmp_path, ReadOptions(group_size=2))
