"""Broken, contradictory and hostile input: clear errors, nothing silent, and no memory without end."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ada_bandit.errors import InputError
from sim.readers import ReadOptions, RolloutLog, read_rollouts, streams
from tests.sim.readers import dumps

ROOT = Path(__file__).parents[3]


def read(tmp_path: Path, text: str | bytes, name: str = "x.jsonl", **options: Any) -> RolloutLog:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return read_rollouts(path, ReadOptions(**options))


def test_one_response_a_line_far_apart(tmp_path: Path) -> None:
    between = "".join(f'{{"prompt_id":"p{number}","rewards":0.0}}\n' for number in range(5000))
    log = read(tmp_path, f'{{"prompt_id":"a","rewards":1.0}}\n{between}{{"prompt_id":"a","rewards":0.0}}\n')
    at = log.keys.index("a")
    assert (log.correct[at], log.lengths[at]) == (1, 2)
    assert log.prompts == 5001


def test_tokens_beside_a_null_reward(tmp_path: Path) -> None:
    log = read(tmp_path, '{"prompt_id": "a", "rewards": [1, 0, null, 1], "tokens": [300, 512, null, 280]}\n')
    assert (log.lengths[0], log.scored[0], log.correct[0]) == (4, 3, 2)
    assert log.tokens is not None
    np.testing.assert_array_equal(log.tokens, [300, 512, np.nan, 280])
    assert log.mean_tokens is not None
    assert log.mean_tokens[0] == (300 + 512 + 280) / 3
    assert "1 response without a score" in log.notes


def test_nan_has_no_score(tmp_path: Path) -> None:
    assert read(tmp_path, '{"prompt_id": "a", "rewards": [1, NaN, null]}\n').unscored == 2


@pytest.mark.parametrize("counts", ['"correct": 2, "total": 3', '"correct": 1, "total": 4'])
def test_rewards_beside_contradicting_counts(counts: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rewards of prompt 'a' hold 1 correct of 3, and the counts beside them say"):
        read(tmp_path, f'{{"prompt_id": "a", "rewards": [0, 1, 0], {counts}}}\n')


def test_rewards_beside_the_same_counts(tmp_path: Path) -> None:
    assert read(tmp_path, '{"prompt_id": "a", "rewards": [0, 1, 0], "correct": 1, "total": 3}\n').correct.tolist() == [
        1
    ]


@pytest.mark.parametrize("far", [0, 3000])
def test_a_key_that_stands_twice(far: int, tmp_path: Path) -> None:
    fine = '{"prompt_id": "b", "reward": 1.0}\n' * far
    with pytest.raises(InputError, match=rf"the key 'reward' stands twice in one object on line {far + 1} "):
        read(tmp_path, fine + '{"prompt_id": "a", "reward": 1.0, "reward": 0.0}\n')


@pytest.mark.parametrize("far", [0, 3000])
@pytest.mark.parametrize("key", ["prompt_id", "reward"])
def test_an_integer_of_thousands_of_digits(key: str, far: int, tmp_path: Path) -> None:
    row = {"prompt_id": "a", "reward": 1.0}
    line = json.dumps(row | {key: "X"}).replace('"X"', "9" * 5000)
    with pytest.raises(InputError, match=f"a number with thousands of digits|on line {far + 1}"):
        read(tmp_path, '{"prompt_id": "b", "reward": 1.0}\n' * far + line + "\n")


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_json_nested_without_end(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nested too deep"):
        read(tmp_path, '{"prompt_id": "a", "reward": ' + "[" * 100_000 + "]" * 100_000 + "}\n", name)
    with pytest.raises(InputError, match=r"nested too deep|every line must be an object|every entry must be an object"):
        read(tmp_path, "[" * 100_000 + "]" * 100_000, name)


@pytest.mark.parametrize("text", ["1e999", "-Infinity", "Infinity"])
def test_rewards_are_finite(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be finite.*got '-?inf' on line 2"):
        read(tmp_path, f'{{"prompt_id": "a", "reward": 1}}\n{{"prompt_id": "a", "reward": {text}}}\n')


def test_a_broken_last_line_is_told_and_the_rest_used(tmp_path: Path) -> None:
    log = read(tmp_path, '{"prompt_id": "a", "rewards": [0, 1]}\n{"prompt_id": "b", "rewa')
    assert log.keys == ("a",)
    assert any("line 2, the last, is broken off" in note for note in log.notes)
    log = read(tmp_path, "prompt_id,correct,total\na,1,4\nb,2", "x.csv")
    assert log.keys == ("a",)
    assert any("line 3, the last, is broken off" in note for note in log.notes)
    log = read(tmp_path, '[{"prompt_id": "a", "rewards": [0, 1]},\n {"prompt_id": "b", "rewa', "x.json")
    assert log.keys == ("a",)
    assert any("entry 2, the last, is broken off" in note for note in log.notes)
    cut = gzip.compress(
        b"".join(b'{"prompt_id": "%d", "rewards": [0, 1]}\n' % number for number in range(9000)), mtime=0
    )
    log = read(tmp_path, cut[: len(cut) // 2], "x.jsonl.gz")
    assert 0 < log.prompts < 9000
    assert any("ends in the middle of its compression" in note for note in log.notes)


def test_a_broken_line_elsewhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="malformed JSON on line 2 "):
        read(
            tmp_path,
            '{"prompt_id": "a", "rewards": [0, 1]}\n{"prompt_id": "b", "rewa\n{"prompt_id": "c", "rewards": [1]}\n',
        )
    with pytest.raises(InputError, match="2 values for 3 columns on line 3 "):
        read(tmp_path, "prompt_id,correct,total\na,1,4\nb,2\nc,1,4\n", "x.csv")


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FREE_GROWTH", 1 << 20)
    line = b'{"prompt_id": "a", "reward": 1}\n'
    bomb = gzip.compress(line * (1 << 19))
    assert len(bomb) * streams.MOST_GROWTH < len(line) << 19
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        read(tmp_path, bomb, "x.jsonl.gz")


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LONGEST_LINE", 1 << 16)
    monkeypatch.setattr(streams, "PIECE", 1 << 14)
    with pytest.raises(InputError, match="is longer than"):
        read(tmp_path, gzip.compress(b"a,b,c\n" + b"0" * (1 << 20)), "x.csv.gz")


def test_what_is_no_compression(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be unpacked"):
        read(tmp_path, b"hello", "x.csv.gz")


NOTHING: dict[str, tuple[str, bytes, str]] = {
    "empty": ("x.csv", b"", "is empty; was it ever written"),
    "blank csv": ("x.csv", b"\n \n", "holds blank lines alone"),
    "a step beyond all": (
        "x.jsonl",
        b'{"prompt_id": "a", "step": 1e20, "reward": 1}\n',
        r"a step must be a whole number; got 1e\+20 on line 1",
    ),
    "a total beyond all": (
        "x.csv",
        b"id,accuracy\na,5/1699999999999999999999\n",
        "number of responses must be a whole",
    ),
    "blank": ("x.jsonl", b"\n\n", "has no rows"),
    "columns alone": ("x.csv", b"prompt_id,correct,total\n", "prompt_id.*but no rows"),
    "values alone": ("x.csv", b"1,5,16\n2,0,16\n", "holds values and no names.*prompt_id,correct,total"),
    "no rewards": (
        "x.jsonl",
        b'{"prompt": "a", "answer": "4"}\n',
        r"no rewards, counts or rates.*'prompt', 'answer'.*--prompt prompt --reward answer",
    ),
    "no prompt": ("x.csv", b"reward\n1\n0\n", "no column that tells whose.*--prompt"),
    "losses": ("x.csv", b"iter_loss,lr\n1.5,0.1\n", "no rewards, counts or rates.*--reward"),
    "empty list": (
        "x.jsonl",
        b'{"prompt_id": "a", "rewards": []}\n',
        "no value to use in 'rewards'.*Fill it in or remove the row",
    ),
    "an empty list among others": (
        "x.jsonl",
        b'{"prompt_id": "a", "rewards": [1]}\n{"prompt_id": "b", "rewards": []}\n',
        "empty on line 2",
    ),
    "text among rewards": (
        "x.jsonl",
        b'{"prompt_id": "a", "rewards": [1]}\n{"prompt_id": "b", "rewards": ["x"]}\n',
        "must be a number; got 'x' on line 2",
    ),
    "too many correct": (
        "x.csv",
        b"prompt_id,correct,total\na,9,4\n",
        "correct must not exceed total; got 9 of 4 on line 2.*swapped",
    ),
    "half a response": (
        "x.csv",
        b"prompt_id,correct,total\na,3,4\nb,1.5,4\n",
        "must be a whole number; got '1.5' on line 3",
    ),
    "negative": ("x.csv", b"prompt_id,correct,total\na,-3,4\n", "can't be negative; got '-3' on line 2"),
    "no responses": ("x.csv", b"prompt_id,correct,total\na,0,0\n", "the number of responses is 0 on line 2"),
    "no id": (
        "x.jsonl",
        b'{"prompt_id": "a", "reward": 1}\n{"prompt_id": null, "reward": 1}\n',
        "id is missing on line 2",
    ),
    "column twice": ("x.csv", b"id,correct,correct\na,1,2\n", "column 'correct' stands twice"),
    "a scalar line": (
        "x.jsonl",
        b'{"prompt_id": "a", "reward": 1}\n3\n',
        "every line must be an object.*got '3' on line 2",
    ),
    "tokens of another length": (
        "x.jsonl",
        b'{"prompt_id": "a", "rewards": [1, 0], "tokens": [1]}\n',
        "list beside the 2 rewards; got 1 values on line 1",
    ),
    "binary": ("x.dat", b"\x00\x01\x02" * 99, "binary and of no kind"),
    "no table": ("x.txt", b"once upon a time " * 20, "no table|no rewards"),
    "nothing scored": (
        "x.jsonl",
        b'{"prompt_id": "a", "rewards": [null, null]}\n',
        "no rewards|no response with a score",
    ),
    "parquet that is none": ("x.parquet", b"PAR1hello", "can't be read as Parquet"),
    "unknown object": (
        "x.json",
        b'{"loss": {"a": [1]}, "lr": 3}',
        "without rows that can be told; its keys are 'loss', 'lr'",
    ),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_what_cannot_be_read_says_what_is_there_and_what_would_work(kind: str, tmp_path: Path) -> None:
    name, data, match = NOTHING[kind]
    with pytest.raises(InputError, match=match):
        read(tmp_path, data, name)


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "rollouts.jsonl").write_text("x")
    with pytest.raises(InputError, match=r"does not exist; beside it are 'rollouts.jsonl'"):
        read_rollouts(tmp_path / "rolouts.jsonl")
    for letter in "abcdefg":
        (tmp_path / f"{letter}.csv").write_text("x")
    with pytest.raises(InputError, match=r"beside it are 'rollouts.jsonl', 'a.csv', 'b.csv', 'c.csv', 'd.csv'\."):
        read_rollouts(tmp_path / "rolouts.jsonl")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.md").write_text("x")
    with pytest.raises(InputError, match=r"holds no file of rollouts, only .md"):
        read_rollouts(tmp_path / "empty")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"reward": "scor"}, r"no column 'scor' \(--reward\); its columns are 'prompt_id', 'rewards'"),
        ({"where": ("model=x",)}, r"no column 'model' \(--where model=x\)"),
        ({"where": ("prompt_id=z",)}, "no rows that meet prompt_id=z"),
    ],
)
def test_options_that_name_nothing(options: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=match):
        read(tmp_path, '{"prompt_id": "a", "rewards": [0, 1]}\n', **options)


def test_options_that_say_nothing_of_these_rows_are_refused(tmp_path: Path) -> None:
    path = dumps.verl_v1(tmp_path)
    with pytest.raises(InputError, match=r"--total-column 16 says how many .* one row per response; leave it out"):
        read_rollouts(path, ReadOptions(total="16"))
    with pytest.raises(InputError, match=r"--rows-per-prompt 4 is for rows without a name .* leave it out"):
        read_rollouts(path, ReadOptions(group_size=4))


def test_options_that_are_no_options() -> None:
    with pytest.raises(InputError, match="--where column=value; got 'model'"):
        ReadOptions(where=("model",))
    with pytest.raises(InputError, match="threshold"):
        ReadOptions(threshold=float("nan"))


def test_text_of_prompts_is_escaped_in_messages(tmp_path: Path) -> None:
    key = "\x1b[2J\u202eevil"
    with pytest.raises(InputError) as caught:
        read(tmp_path, json.dumps({"prompt_id": key, "rewards": [0, 1], "correct": 2, "total": 2}))
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)
    assert "\\x1b[2J\\u202eevil" in str(caught.value)


def test_half_a_surrogate_is_a_key_like_another(tmp_path: Path) -> None:
    log = read(tmp_path, '{"prompt_id": "\\ud800", "rewards": [1, 0]}\n{"prompt_id": "\\ud801", "rewards": [1, 1]}\n')
    assert log.correct.tolist() == [1, 2]


def test_prompts_as_keys_are_cut_and_stay_apart(tmp_path: Path) -> None:
    long = "x" * 5000
    log = read(tmp_path, "".join(json.dumps({"prompt": long + end, "reward": 1.0}) + "\n" for end in "abab"))
    assert log.lengths.tolist() == [2, 2]
    assert max(map(len, log.keys)) <= 120


# Thresholds


@pytest.mark.parametrize(
    ("rewards", "threshold", "correct", "certain"),
    [
        ([0, 1, 1], 0.5, 2, True),
        ([True, False], 0.5, 1, True),
        ([1, 1], 0.5, 2, True),
        ([-1, 1, -1], 0.0, 1, True),
        ([-1.0, -1.0], 0.0, 0, True),
        ([2, 2, 2, 3], 2.5, 1, True),
        ([0.1, 1.0, 0.0], 0.5, 1, False),
        ([0, 0.2, 1, 1.2], 0.6, 2, False),
        ([-2, -1.9, 1, 1.5, 0.9], -0.5, 3, False),
    ],
)
def test_threshold_from_the_values(
    rewards: list[float], threshold: float, correct: int, certain: bool, tmp_path: Path
) -> None:
    log = read(tmp_path, json.dumps({"prompt_id": "a", "rewards": rewards}) + "\n")
    assert log.threshold is not None
    assert log.threshold.value == pytest.approx(threshold)
    assert log.threshold.certain is certain
    assert log.correct[0] == correct
    assert any("counts as correct" in note or "is correct" in note for note in log.notes)


def test_one_reward_that_may_be_either(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"every reward is 3.*--threshold 2.5"):
        read(tmp_path, '{"prompt_id": "a", "rewards": [3, 3]}\n')
    assert read(tmp_path, '{"prompt_id": "a", "rewards": [3, 3]}\n', threshold=3).correct[0] == 0


def test_a_threshold_that_disagrees_is_refused(tmp_path: Path) -> None:
    log = read(tmp_path, '{"prompt_id": "a", "rewards": [2, 2, 2, 3]}\n')
    log.agreeing_with(2.5, "grpo")
    log.agreeing_with(2.9, "grpo")
    with pytest.raises(
        InputError, match=r"grpo takes a reward above 0.5 for correct.*3 responses, such as one with reward 2"
    ):
        log.agreeing_with(0.5, "grpo")


def test_a_threshold_for_counts_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"threshold of 0.7 is for rewards, and these rows hold counts"):
        read(tmp_path, "prompt_id,correct,total\na,1,4\n", "x.csv", threshold=0.7)


# Size


def test_fast_and_slow_lines_agree(tmp_path: Path) -> None:
    """A null in a line sends its block through the json module."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": f"q{rng.integers(50)}",
            "step": int(rng.integers(3)),
            "reward": float(rng.random() < 0.4),
            "tokens": int(rng.integers(900)),
        }
        for _ in range(4000)
    ]
    dumps.lines(tmp_path / "fast.jsonl", rows)
    dumps.lines(
        tmp_path / "slow.jsonl",
        [{**row, "é": None} for row in rows] + [{"id": "q0", "step": 0, "reward": None, "tokens": 1}],
    )
    fast, slow = read_rollouts(tmp_path / "fast.jsonl"), read_rollouts(tmp_path / "slow.jsonl")
    assert fast.keys == slow.keys
    assert slow.unscored == 1
    assert fast.correct.tolist() == slow.correct.tolist()
    assert fast.scored.tolist() == slow.scored.tolist()
    expected: dict[Any, list[Any]] = {}
    for row in rows:
        expected.setdefault((row["step"], row["id"]), []).append(row["reward"])
    found = {(step, key): rewards.tolist() for key, step, rewards in fast.pools() if rewards is not None}
    assert found == expected


def test_progress_ends_at_one(tmp_path: Path) -> None:
    dumps.lines(tmp_path / "x.jsonl", [{"id": number % 9, "reward": 1.0} for number in range(3000)])
    seen: list[float] = []
    read_rollouts(tmp_path / "x.jsonl", progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)


@pytest.mark.slow
def test_a_million_rows_in_time_and_memory(tmp_path: Path) -> None:
    """Under 15 s and 1 GB, interpreter and libraries included; measured in a process of its own."""
    path = tmp_path / "million.jsonl"
    with path.open("w") as out:
        for number in range(1_000_000):
            out.write(
                f'{{"prompt_id": "p{number * 7919 % 60000}", "reward": {number % 3 // 2}.0, "text": "{"so " * 20}"}}\n'
            )
    code = (
        "import re, sys, time\nfrom sim.readers import read_rollouts\nstart = time.perf_counter()\n"
        "log = read_rollouts(sys.argv[1])\nassert (log.prompts, log.responses, int(log.correct.sum())) == (60000, "
        "1000000, 333333)\n"
        "peak = re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]\n"
        "print(time.perf_counter() - start, int(peak) / 2**20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    seconds, gigabytes = map(float, done.stdout.split())
    assert seconds < 15
    assert gigabytes < 1
