"""Tables of any kind: how people's pass-rate files look."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ada_bandit.errors import InputError
from sim.readers import ReadOptions, RolloutLog, read_rollouts
from tests.sim.readers import dumps
from tests.sim.readers.tables import LISTS, RESPONSES, TEXTS


def read(tmp_path: Path, name: str, text: str | bytes, **options: Any) -> RolloutLog:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_rollouts(path, ReadOptions(**options))


def counts(log: RolloutLog) -> dict[str, tuple[int, int]]:
    return {
        log.keys[prompt]: (int(k), int(n)) for prompt, k, n in zip(log.prompt, log.correct, log.scored, strict=True)
    }


AB = {"a": (5, 16), "b": (0, 16)}


@pytest.mark.parametrize("kind", TEXTS)
def test_tables_of_counts_and_rates(kind: str, tmp_path: Path) -> None:
    name, text = TEXTS[kind]
    log = read(tmp_path, name, text)
    assert counts(log) == AB
    assert any("guessed" in note for note in log.notes)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_tables_are_read_compressed(kind: str, packing: str, tmp_path: Path) -> None:
    name, text = TEXTS[kind]
    if packing == ".gz":
        data = gzip.compress(text.encode())
    else:
        data = pytest.importorskip("zstandard").compress(text.encode())
    assert counts(read(tmp_path, name + packing, data)) == AB


@pytest.mark.parametrize("kind", ["csv", "jsonl counts", "json array", "semicolon"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_encodings(kind: str, encoding: str, tmp_path: Path) -> None:
    name, text = TEXTS[kind]
    log = read(tmp_path, name, _umlaut(text).encode(encoding))
    assert counts(log) == {"a": (5, 16), "bü": (0, 16)}


def _umlaut(text: str) -> str:
    for before, after in (('"b"', '"bü"'), ("\nb,", "\nbü,"), ("\nb;", "\nbü;")):
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize("kind", RESPONSES)
def test_one_row_per_response_not_adjacent(kind: str, tmp_path: Path) -> None:
    log = read(tmp_path, *RESPONSES[kind])
    assert counts(log) == {"a": (1, 2), "b": (0, 2)}
    assert log.right is not None
    assert log.right.tolist() == [True, False, False, False]


@pytest.mark.parametrize("kind", LISTS)
def test_lists(kind: str, tmp_path: Path) -> None:
    log = read(tmp_path, "x.jsonl", LISTS[kind])
    assert log.lengths.tolist() == [2, 2]
    assert log.correct.tolist() == [1, 0]


@pytest.mark.parametrize(
    "value",
    [
        {"task_1": [True, False], "task_2": [False, False]},
        {"meta": {"x": 1}, "scores": {"task_1": [1, 0], "task_2": [0, 0]}},
        {"task_1": [{"passed": True}, {"passed": False}], "task_2": [{"passed": False}, {"passed": False}]},
    ],
)
def test_json_objects_of_lists(value: Any, tmp_path: Path) -> None:
    assert counts(read(tmp_path, "x.json", json.dumps(value))) == {"task_1": (1, 2), "task_2": (0, 2)}


@pytest.mark.parametrize("indent", [None, 2])
def test_dotted_paths_name_columns(indent: int | None, tmp_path: Path) -> None:
    rows = [
        {
            "meta": {"key": "a"},
            "out": [{"rewards": {"accuracy": 1, "format": 1}}, {"rewards": {"accuracy": 0, "format": 1}}],
        },
        {"meta": {"key": "b"}, "out": [{"rewards": {"accuracy": 0, "format": 0}}]},
    ]
    log = read(tmp_path, "x.json", json.dumps(rows, indent=indent), prompt="meta.key", reward="out[].rewards.accuracy")
    assert counts(log) == {"a": (1, 2), "b": (0, 1)}
    both = read(
        tmp_path, "x.json", json.dumps(rows), prompt="meta.key", reward="out[].rewards.accuracy + out[].rewards.format"
    )
    assert both.rewards is not None
    assert both.rewards.tolist() == [2, 1, 0]


def test_parquet_ids_as_bytes_and_lists(tmp_path: Path) -> None:
    pl.DataFrame({"prompt_id": [b"a", b"\xff\x00"], "rewards": [[1.0, 0.0], [0.0, None]]}).write_parquet(
        tmp_path / "x.parquet"
    )
    log = read_rollouts(tmp_path / "x.parquet")
    assert counts(log) == {"a": (1, 2), "ff00": (0, 1)}
    assert log.unscored == 1


def test_parquet_with_a_row_per_k_is_refused_with_the_way_out(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        [
            {"problem_idx": prompt, "model": model, "k": k, "num_correct": 9 if prompt else 80, "num_samples": 128}
            for prompt in range(2)
            for model in ("m1", "m2")
            for k in (1, 2, 4)
        ]
    )
    frame.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="--where model=m1"):
        read_rollouts(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"80 of 128.* on 3 rows of prompt '0', which differ in 'k'.*--where k=1"):
        read_rollouts(tmp_path / "x.parquet", ReadOptions(where=("model=m1",)))
    log = read_rollouts(tmp_path / "x.parquet", ReadOptions(where=("model=m1", "k=1")))
    assert counts(log) == {"0": (80, 128), "1": (9, 128)}


def test_repeated_counts_are_never_added_in_silence(tmp_path: Path) -> None:
    text = "prompt_id,k,correct,total\na,1,5,128\na,2,5,128\n"
    with pytest.raises(
        InputError, match=r"the same counts \(5 of 128\) on 2 rows of prompt 'a', which differ in 'k'.*--where k=1"
    ):
        read(tmp_path, "x.csv", text)
    assert counts(read(tmp_path, "x.csv", text, where=("k=1",))) == {"a": (5, 128)}
    shards = "prompt_id,correct,total\na,5,128\na,2,64\n"
    with pytest.raises(InputError, match=r"nothing tells the rows apart.*--add-repeated"):
        read(tmp_path, "x.csv", shards)
    assert counts(read(tmp_path, "x.csv", shards, add_repeated=True)) == {"a": (7, 192)}


def test_counts_by_step_are_no_repetition(tmp_path: Path) -> None:
    log = read(tmp_path, "x.csv", "step,prompt_id,correct,total\n2,a,5,8\n1,a,1,8\n1,b,0,8\n")
    assert log.step is not None
    assert log.step.tolist() == [1, 1, 2]
    assert log.correct.tolist() == [1, 0, 5]


def test_responses_of_several_models_are_not_mixed(tmp_path: Path) -> None:
    text = "task_id,model,passed\na,m1,1\na,m2,0\nb,m1,0\nb,m2,0\n"
    with pytest.raises(InputError, match=r"several values of 'model': 'm1', 'm2'.*--where model=m1"):
        read(tmp_path, "x.csv", text)
    assert counts(read(tmp_path, "x.csv", text, where=("model=m2",))) == {"a": (0, 1), "b": (0, 1)}
    # One model a prompt is no mixture: prompts of two halves of a run.
    assert read(tmp_path, "x.csv", "task_id,model,passed\na,m1,1\na,m1,0\nb,m2,0\nb,m2,0\n").responses == 4


def test_total_as_a_number(tmp_path: Path) -> None:
    text = "id,solve_rate\na,0.3125\nb,0\n"
    with pytest.raises(InputError, match="--total-column 16"):
        read(tmp_path, "x.csv", text)
    assert counts(read(tmp_path, "x.csv", text, total="16")) == AB
    with pytest.raises(InputError, match=r"0.3125 is no whole number of 10 responses"):
        read(tmp_path, "x.csv", text, total="10")
    with pytest.raises(InputError, match="--total-column 16"):
        read(tmp_path, "x.csv", "id,correct\na,5\nb,0\n")
    assert counts(read(tmp_path, "x.csv", "id,correct\na,5\nb,0\n", total="16")) == AB


def test_rates_rounded_to_two_digits_still_count(tmp_path: Path) -> None:
    """Of 16, 5 are 0.3125: 0.31 is 4.96 and 0.38 (6 are 0.375) 6.08."""
    assert counts(read(tmp_path, "x.csv", "id,pass_rate\na,0.31\nb,0.38\n", total="16")) == {"a": (5, 16), "b": (6, 16)}


def test_counts_of_tokens_beside_counts(tmp_path: Path) -> None:
    log = read(tmp_path, "x.csv", "prompt_id,correct,total,mean_response_tokens\na,1,4,300.5\nb,1,4,\n")
    assert log.mean_tokens is not None
    np.testing.assert_array_equal(log.mean_tokens, [300.5, np.nan])


def test_some_lines_with_counts_make_all_counts(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        "x.jsonl",
        '{"prompt_id": "a", "rewards": [0, 1, null]}\n{"prompt_id": "b", "correct": 3, "total": 4}\n',
    )
    assert counts(log) == {"a": (1, 2), "b": (3, 4)}
    assert log.rewards is None
    assert not log.ordered
    assert "some rows hold counts without an order, so all rows are taken as counts" in log.notes


def test_a_folder_of_tables_and_other_files(tmp_path: Path) -> None:
    dumps.lines(tmp_path / "step_1.jsonl", [{"prompt_id": "a", "rewards": [0, 1]}])
    dumps.lines(tmp_path / "step_2.jsonl", [{"prompt_id": "a", "rewards": [1, 1]}])
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "README.md").write_text("x")
    dumps.lines(tmp_path / "other.jsonl", [{"loss": 3}])
    log = read_rollouts(tmp_path)
    assert log.steps.tolist() == [1, 2]
    assert log.correct.tolist() == [1, 2]
    assert "1 file of another kind left out: 'other.jsonl'" in log.notes
    assert "2 other files in the folder left out" in log.notes


def test_a_folder_of_our_log_beside_a_table_of_counts_is_headed_by_the_log(tmp_path: Path) -> None:
    dumps.lines(tmp_path / "log.jsonl", [{"prompt_id": "a", "rewards": [0, 1]}])
    (tmp_path / "counts.csv").write_text("prompt_id,correct,total\na,1,4\n")
    log = read_rollouts(tmp_path)
    assert (log.format, log.responses, log.files) == ("JSON Lines", 2, 1)
    assert "read as JSON Lines" in log.notes[0]
    assert [note for note in log.notes if "left out" in note] == ["1 file of another kind left out: 'counts.csv'"]


def test_a_glob(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        dumps.lines(tmp_path / f"{name}.jsonl", [{"prompt_id": name, "rewards": [0, 1]}])
    assert read_rollouts(f"{tmp_path}/a*.jsonl").keys == ("a1", "a2")
    with pytest.raises(InputError, match="no file matches"):
        read_rollouts(f"{tmp_path}/c*.jsonl")


@pytest.mark.parametrize(
    ("threshold", "correct", "said"),
    [
        (5.0, 0, "a reward above 5 is correct, as --threshold says; rewards lie between 0 and 2, so none is"),
        (-1.0, 3, "a reward above -1 is correct, as --threshold says; rewards lie between 0 and 2, so every one is"),
        (1.5, 1, "a reward above 1.5 is correct, as --threshold says"),
    ],
)
def test_a_stated_threshold_is_told_and_what_it_leaves(
    threshold: float, correct: int, said: str, tmp_path: Path
) -> None:
    log = read(tmp_path, "x.jsonl", '{"prompt_id": "a", "rewards": [0, 1, 2]}\n', threshold=threshold)
    assert counts(log) == {"a": (correct, 3)}
    assert said in log.notes
