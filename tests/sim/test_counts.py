"""Counts of a log as a law is fitted to them, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ada_bandit.errors import InputError
from sim.counts import Counts
from sim.readers import read_rollouts
from sim.sources import from_file

Write = Callable[[str, str], Path]


def read_counts(path: Path) -> Counts:
    return Counts.of(read_rollouts(path))


def test_csv(write: Write) -> None:
    path = write("a.csv", "prompt_id,mean_response_tokens,correct,total\na,9.5,0,4\nb,3,4,4\n,,,\nc,,2.0,8\n")
    counts = read_counts(path)
    assert counts.prompt_ids == ("a", "b", "c")
    np.testing.assert_array_equal(counts.correct, [0, 4, 2])
    np.testing.assert_array_equal(counts.total, [4, 4, 8])
    np.testing.assert_array_equal(counts.rates, [0, 1, 0.25])
    assert counts.tokens is None
    assert "tokens left out: 1 of 3 prompts have none" in counts.notes


def test_csv_with_byte_order_mark_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "A.CSV"
    path.write_bytes(b'\xef\xbb\xbfprompt_id, correct, total\r\n"a, b", 1, 2\r\n')
    counts = read_counts(path)
    assert counts.prompt_ids == ("a, b",)
    assert (counts.correct[0], counts.total[0]) == (1, 2)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = {"prompt_id": [7, 8], "correct": [1, 2], "total": [2.0, 4.0], "mean_response_tokens": [8.5, 2]}
    pl.DataFrame(frame).write_parquet(path)
    counts = read_counts(path)
    assert counts.prompt_ids == ("7", "8")
    np.testing.assert_array_equal(counts.total, [2, 4])
    np.testing.assert_array_equal(counts.tokens, [8.5, 2])


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
    for said in (
        "3 responses without a score",
        "1 pool without any scored response",
        "some rows hold counts without an order, so all rows are taken as counts",
    ):
        assert said in counts.notes
    assert any("one above 0.5 counts as correct" in note for note in counts.notes)


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


def test_a_prompt_of_several_steps_has_a_name_a_step(write: Write) -> None:
    rows = ["prompt_id,step,correct,total", "a,1,1,4", "b,1,0,4", "a,2,3,4"]
    counts = read_counts(write("a.csv", "\n".join(rows)))
    assert counts.prompt_ids == ("a@1", "b", "a@2")
    np.testing.assert_array_equal(counts.correct, [1, 0, 3])


CSV = "prompt_id,correct,total\n"
LINE = '{"prompt_id": "a", "rewards": [1]}\n'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", r"a\.csv' is empty; was it ever written"),
        ("a.jsonl", "", r"a\.jsonl' is empty; was it ever written"),
        ("a.jsonl", "\n", r"has no rows; it needs lines such as \{"),
        ("a.csv", CSV, r"has a line of columns \('prompt_id', 'correct', 'total'\) but no rows"),
        ("a.csv", "prompt_id,correct\na,2\n", "'correct' holds counts such as 2, .*: --total-column 16"),
        ("a.csv", CSV + "a,1,2\nb,many,2\n", r"must be a number; got 'many' on line 3 of"),
        ("a.csv", CSV + "a,1.5,2\n", "'correct' must be a whole number; got '1.5' on line 2"),
        ("a.csv", CSV + "a,1,1e300\n", "'total' must be a whole number; got '1e300'"),
        ("a.csv", CSV + "a,3,2\n", "correct must not exceed total; got 3 of 2 on line 2"),
        ("a.csv", CSV + "a,-3,2\n", "'correct' can't be negative; got '-3'"),
        ("a.csv", CSV + "a,0,0\n", "the number of responses is 0 on line 2"),
        ("a.csv", CSV + "a,1,2\nb,1,2\na,2,2\n", r"counts \(1 of 2, 2 of 2\) on 2 rows of prompt 'a'.*--add-repeated"),
        ("a.csv", CSV + "a,,2\n", "no value to use in 'correct'; its first row begins .*--reward COLUMN"),
        ("a.csv", CSV + "a,1,2\n,1,2\n", "the prompt's id is missing on line 3"),
        ("a.csv", CSV + "a,1,2,5\n", "4 values for 3 columns on line 2 of"),
        ("a.parquet", "no parquet", "can't be read as Parquet"),
        ("a.jsonl", LINE + '{"prompt_id": "b"\n' + LINE, "malformed JSON on line 2"),
        ("a.jsonl", "[1, 2]\n", "every entry must be an object such as .* got '1'"),
        ("a.jsonl", '{"prompt_id": "a"}\n', "its columns are 'prompt_id'.*--reward COLUMN"),
        ("a.jsonl", LINE + '{"prompt_id": null, "rewards": [1]}\n', "the prompt's id is missing on line 2"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": []}\n', "no value to use in 'rewards'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": ["x"]}\n', r"its first row begins .*\['x'\].*--reward COLUMN"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [1e999]}\n', "must be finite.* got 'inf' on line 1"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [null]}\n', "no response with a score; name the rewards: --reward"),
        ("a.jsonl", '{"prompt_id": "a", "correct": 3, "total": 2}\n', "got 3 of 2 on line 1"),
        ("a.jsonl", '{"prompt_id": "a", "correct": null, "total": 2}\n', "no value to use in 'correct'"),
        (
            "a.jsonl",
            '{"prompt_id": "a", "rewards": [1, 0], "tokens": [1]}',
            "tokens must be a list beside the 2 rewards",
        ),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [1], "tokens": [-1]}', "tokens can't be negative; got -1 on line 1"),
    ],
)
def test_file_is_refused(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_file(write(name, text))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="malformed JSON on line 1"):
        read_counts(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.csv' does not exist"):
        from_file(tmp_path / "nope.csv")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(InputError, match="is empty; give a folder with"):
        from_file(folder)
    (folder / "a.csv").write_text(CSV + "a,1,2\n")
    assert from_file(folder).label == "folder.csv"
