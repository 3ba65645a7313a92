"""Counts from CSV, Parquet and files of rollouts, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ada_bandit.errors import InputError
from sim.counts import read_counts
from sim.sources import (
    from_file,
)

Write = Callable[[str, str], Path]


def test_csv(write: Write) -> None:
    path = write("a.csv", "prompt_id,mean_response_tokens,correct,total\na,9.5,0,4\nb,3,4,4\n,,,\nc,,2.0,8\n")
    counts = read_counts(path)
    assert counts.prompt_ids == ("a", "b", "c")
    np.testing.assert_array_equal(counts.correct, [0, 4, 2])
    np.testing.assert_array_equal(counts.total, [4, 4, 8])
    np.testing.assert_array_equal(counts.rates, [0, 1, 0.25])
    assert counts.notes == ("1 empty row left out",)


def test_csv_with_byte_order_mark_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "A.CSV"
    path.write_bytes(b'\xef\xbb\xbfprompt_id, correct, total\r\n"a, b", 1, 2\r\n')
    counts = read_counts(path)
    assert counts.prompt_ids == ("a, b",)
    assert (counts.correct[0], counts.total[0]) == (1, 2)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"prompt_id": [7, 8], "correct": [1, 2], "total": [2.0, 4.0]}).write_parquet(path)
    counts = read_counts(path)
    assert counts.prompt_ids == ("7", "8")
    np.testing.assert_array_equal(counts.total, [2, 4])


def test_jsonl_counts_what_it_leaves_out(write: Write) -> None:
    lines = [
        '{"prompt_id": "a", "rewards": [0, 1, true, null, NaN, 0.7, 0.5]}',
        '{"prompt_id": "b", "rewards": [null]}',
        "",
        '{"prompt_id": 3, "correct": 3, "total": 4}',
    ]
    counts = read_counts(write("a.jsonl", "\n".join(lines)))
    assert counts.prompt_ids == ("a", "3")
    np.testing.assert_array_equal(counts.correct, [3, 3])
    np.testing.assert_array_equal(counts.total, [5, 4])
    assert counts.notes == (
        "3 responses without a score (null or NaN) left out",
        "1 prompt without a scored response left out: 'b'",
        "2 rewards other than 0 and 1: above 0.5 counts as correct",
    )


def test_three_formats_agree(write: Write, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rewards = rng.integers(0, 2, (20, 6))
    frame = pl.DataFrame({"prompt_id": [f"p{i}" for i in range(20)], "correct": rewards.sum(1), "total": [6] * 20})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    lines = [json.dumps({"prompt_id": f"p{i}", "rewards": row.tolist()}) for i, row in enumerate(rewards)]
    write("a.ndjson", "\n".join(lines) + "\n")
    laws = [from_file(tmp_path / name).law for name in ("a.csv", "a.parquet", "a.ndjson")]
    assert laws[0] == laws[1] == laws[2]


CSV = "prompt_id,correct,total\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", r"a\.csv' is empty; it needs the columns prompt_id, correct, total"),
        ("a.jsonl", "", r"a\.jsonl' is empty; it needs a line such as"),
        ("a.csv", CSV, "has its columns but no prompts"),
        ("a.csv", "id,correct,n\na,1,2\n", "lacks the columns prompt_id, total; it has id, correct, n"),
        ("a.csv", "prompt_id,correct\na,1\n", "lacks the column total; it has prompt_id, correct"),
        ("a.csv", CSV + "a,1,2\nb,many,2\n", r"correct must be a whole number; got 'many' for prompt 'b' \(2 in"),
        ("a.csv", CSV + "a,1.5,2\n", "correct must be a whole number; got '1.5'"),
        ("a.csv", CSV + "a,1,nan\n", "total must be a whole number; got 'nan'"),
        ("a.csv", CSV + "a,1,1e300\n", "total is larger than any count; got '1e300'"),
        ("a.csv", CSV + "a,3,2\n", "correct must not exceed total; got 3 of 2 for prompt 'a'"),
        ("a.csv", CSV + "a,-3,2\n", "correct can't be negative; got '-3'"),
        ("a.csv", CSV + "a,0,0\n", "total is 0 for prompt 'a'"),
        ("a.csv", CSV + "a,1,2\nb,1,2\na,2,2\n", "prompt_id 'a' occurs twice in .* as prompts 1 and 3"),
        ("a.csv", CSV + "a,,2\n", "correct is missing for prompt 'a'"),
        ("a.csv", CSV + ",1,2\n", "prompt_id is missing at prompt 1"),
        ("a.csv", CSV + "a,1,2,5\n", r"can't be read as \.csv"),
        ("a.parquet", "no parquet", r"can't be read as \.parquet"),
        ("a.txt", CSV, r"must end in \.csv, \.parquet, \.jsonl, \.ndjson; got '\.txt'"),
        ("a", CSV, "got 'no ending'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [1]}\n{"prompt_id": "b"', "malformed JSON on line 2"),
        ("a.jsonl", "[1, 2]\n", r"every line must be an object such as .* got '\[1, 2\]' on line 1"),
        ("a.jsonl", '{"prompt_id": "a"}\n', "a line needs prompt_id and rewards.* got prompt_id on line 1"),
        ("a.jsonl", '{"rewards": [1]}\n', "a line needs prompt_id.* got rewards on line 1"),
        ("a.jsonl", '{"prompt_id": null, "rewards": [1]}\n', "prompt_id is missing on line 1"),
        ("a.jsonl", '{"prompt_id": [1], "rewards": [1]}\n', r"prompt_id must be text or a number; got \[1\]"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": []}\n', "rewards is empty for prompt 'a' on line 1"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": 1}\n', "rewards must be a list of numbers; got '1'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": ["1"]}\n', "every reward must be a finite number.* got '1'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [1e999]}\n', "every reward must be a finite number.* got inf"),
        ("a.jsonl", f'{{"prompt_id": "a", "rewards": [{"9" * 400}]}}\n', "every reward must be a finite number"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [null]}\n', "has no prompt with a scored response"),
        ("a.jsonl", "\n", "has no prompts"),
        ("a.jsonl", '{"prompt_id": "a", "correct": 3, "total": 2}\n', "got 3 of 2 for prompt 'a' on line 1"),
        ("a.jsonl", '{"prompt_id": "a", "correct": true, "total": 2}\n', "correct must be a whole number; got True"),
        ("a.jsonl", '{"prompt_id": "a", "correct": null, "total": 2}\n', "correct is missing"),
        ("a.jsonl", '{"prompt_id": 1, "rewards": [1]}\n{"prompt_id": "1", "rewards": [1]}\n', "occurs twice"),
    ],
)
def test_file_is_refused(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_file(write(name, text))


def test_parquet_of_mixed_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"prompt_id": ["a"], "correct": [[1]], "total": [2]}).write_parquet(path)
    with pytest.raises(InputError, match=r"correct must be a whole number; got \[1\]"):
        read_counts(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="can't be read"):
        read_counts(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.csv' does not exist"):
        read_counts(tmp_path / "nope.csv")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_counts(folder)
