"""The file of rollouts: what is written is read back, what was cut goes on, and what is wrong is told."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from ada_bandit.errors import InputError
from ada_bandit.programs.rollouts import CountLine, RolloutLine, RolloutLog, meta_path, read_log, read_rollouts

SETTINGS = {"samples": 3, "task": {"kind": "sums", "sizes": (1, 2)}}
LINES = [
    RolloutLine("a", "f", np.array([1.0, math.nan, 0.25]), (3, 4, 5), 1),
    RolloutLine("b\u2028c", "", np.array([0.0, 1.0, 1.0]), (7, 8, 9)),
    RolloutLine("d", "f", np.array([0.0, 0.0, 0.0]), ()),
]
TEXTS = ['{"texts": "one"}', '{"texts": "two"}', '{"texts": "three"}']


def write(folder: Path, text: str) -> Path:
    path = folder / "log.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def same(one: RolloutLine, other: RolloutLine) -> bool:
    np.testing.assert_array_equal(one.rewards, other.rewards)
    names = ("prompt_id", "family", "tokens", "truncated")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    log = RolloutLog(tmp_path / "new" / "log.jsonl", SETTINGS, {"python": "3"})
    log.append(LINES)
    rows = [json.loads(line) for line in log.path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert rows[0] == {"prompt_id": "a", "family": "f", "rewards": [1, None, 0.25], "tokens": [3, 4, 5], "truncated": 1}
    assert '"rewards": [1, null, 0.25], "tokens": [3, 4, 5]' in log.path.read_text(encoding="utf-8")
    for read in (read_log(log.path), list(read_rollouts(log.path))):
        assert len(read) == 3
        assert all(isinstance(one, RolloutLine) and same(one, other) for one, other in zip(read, LINES, strict=True))
    assert [(line.correct, line.scored) for line in LINES] == [(1, 2), (2, 3), (0, 3)]
    meta = json.loads(meta_path(log.path).read_text(encoding="utf-8"))
    assert meta == {"settings": {"samples": 3, "task": {"kind": "sums", "sizes": [1, 2]}}, "python": "3"}


def test_a_file_that_was_cut_anywhere_goes_on(tmp_path: Path) -> None:
    whole = RolloutLog(tmp_path / "whole.jsonl", SETTINGS, {}, tmp_path / "whole.texts")
    whole.append(LINES, TEXTS)
    written, texts = whole.path.read_bytes(), (tmp_path / "whole.texts").read_bytes()
    for kept in range(len(written)):
        path, other = tmp_path / f"{kept}.jsonl", tmp_path / f"{kept}.texts"
        meta_path(path).write_bytes(meta_path(whole.path).read_bytes())
        path.write_bytes(written[:kept])
        # Texts are written first, so a kill leaves at least as many.
        other.write_bytes(texts[: len(texts) if kept % 2 else len(texts) - 3 * (kept < len(written) // 2)])
        log = RolloutLog(path, SETTINGS, {}, other)
        done = written[:kept].count(b"\n")
        assert len(log.lines) == done
        log.append(LINES[done:], TEXTS[done:])
        assert path.read_bytes() == written
        assert other.read_bytes() == texts


def test_what_can_not_be_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    RolloutLog(path, SETTINGS, {}).append(LINES)
    with pytest.raises(
        InputError, match=r"other settings: samples = 3, now 7; task = .*, now None; seed = None, now 2"
    ):
        RolloutLog(path, {"samples": 7, "seed": 2}, {})
    with pytest.raises(InputError, match=r"holds the texts of 0 prompts, the log .* 3"):
        RolloutLog(path, SETTINGS, {}, tmp_path / "late.texts")
    meta_path(path).write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"meta\.json' can't be read"):
        RolloutLog(path, SETTINGS, {})
    meta_path(path).unlink()
    with pytest.raises(InputError, match=r"but not log\.jsonl\.meta\.json, which says what it was made with"):
        RolloutLog(path, SETTINGS, {})


def test_a_full_disk_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RolloutLog(tmp_path / "log.jsonl", SETTINGS, {})
    log.append(LINES[:2])
    before = log.path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"No space left on device; it is complete for its first 2 prompts"):
        log.append(LINES[2:])
    assert log.path.read_bytes().startswith(before)
    assert len(log.lines) == 2


def test_counts_and_rewards_in_one_file(tmp_path: Path) -> None:
    text = (
        '\ufeff{"prompt_id": 3, "correct": "2", "total": 4.0, "mean_response_tokens": "8.5"}\n\n'
        '{"prompt_id": " x ", "rewards": [true, NaN, 0.5], "mean_response_tokens": 6, "tokens": null}\n'
    )
    count, line = read_rollouts(write(tmp_path, text))
    assert count == CountLine("3", 2, 4, 8.5)
    assert isinstance(line, RolloutLine)
    assert (line.prompt_id, line.tokens, line.mean_tokens, line.correct, line.scored) == ("x", (), 6.0, 1, 2)
    (count, _) = read_rollouts(tmp_path / "log.jsonl", tokens=False)
    assert math.isnan(count.mean_tokens)


def test_tokens_that_are_not_wanted_are_not_checked(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt_id": "a", "rewards": [1], "tokens": "many", "mean_response_tokens": []}\n')
    (line,) = read_rollouts(path, tokens=False)
    assert isinstance(line, RolloutLine)
    assert line.tokens == ()
    with pytest.raises(InputError, match=r"mean_response_tokens must be a number of at least 0; got \[\] for prompt"):
        list(read_rollouts(path))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"prompt_id": "a"}', "\0" * 9, '{"prompt_id": "a", "correct": 1, "total": 2}', ""]
)
def test_a_line_that_is_none_of_a_log(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, LINES[0].to_json() + "\n" + text + "\n" + LINES[1].to_json() + "\n")
    with pytest.raises(InputError, match=r"line 2 of .*log\.jsonl' is no line of a log by 'python -m llm rollout' \("):
        read_log(path)


def test_a_log_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"can't be read: No such file or directory; 'python -m llm rollout' makes"):
        read_log(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="can't be read: 'utf-8' codec"):
        read_log(tmp_path / "bytes.jsonl")
