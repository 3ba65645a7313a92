"""The command that reads logs: what it says of plain pools, stopped ones, kept rows and scalars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit.adapters._pool_log import FILE_NAME, PoolLog
from sim.cli import app
from sim.counts import Counts
from sim.log.study import of_log, of_scalars
from sim.readers import Selection, read_rollouts
from sim.stopped import Study, law_of_scalars, parse_scalars
from tests.sim.readers import dumps
from tests.sim.stopped.pools import RULES, A, B, prompts, simulate


def run(*arguments: str | Path | int) -> Any:
    return CliRunner().invoke(app, ["log", *map(str, arguments)], catch_exceptions=False)


def found(*arguments: str | Path | int) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


# A dump of plain groups: its counts are known


def test_a_dump_and_its_steps(tmp_path: Path) -> None:
    dump = dumps.verl_v1(tmp_path / "dump")
    out = tmp_path / "out"
    told = found(dump, "--group-size", 2, "--out", out)
    assert told["log"]["prompts"] == 3
    assert (told["log"]["responses"], told["log"]["correct"]) == (dumps.RESPONSES, dumps.CORRECT)
    assert told["log"]["stopped"]["kind"] == "plain"
    assert told["log"]["steps"] == [1, 2]
    assert told["pass_rate"]["value"] == pytest.approx(dumps.CORRECT / dumps.RESPONSES)
    # Of 6 pairs of prompt a, 4 are mixed with two correct of four, and 3 with three; other prompts have none.
    assert told["plain_signal"]["2"]["value"] == pytest.approx((4 / 6 + 3 / 6) / 6)
    assert [each["pass_rate"]["value"] for each in told["steps"]] == pytest.approx([6 / 12, 7 / 12])
    assert [each["plain_signal"]["value"] for each in told["steps"]] == pytest.approx([4 / 18, 3 / 18])
    assert {path.name for path in out.iterdir()} == {"log.csv", "log.json", "log.png", "log.svg", "rollouts.jsonl"}


def test_what_is_shown(tmp_path: Path) -> None:
    result = run(dumps.verl_v1(tmp_path / "dump"), "--out", tmp_path / "out", "--group-size", 2, "--no-figures")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in (
        "verl: 3 prompts, 6 pools, 24 responses",
        "mean pass rate 0.542",
        "signal of 2 plain responses 0.194",
        "rollouts.jsonl",
        "unbiased",
        "By step",
    ):
        assert part in text
    shown = run("--scalars", "mean=0.41,zero_std=0.55,n=8", "--out", tmp_path / "out", "--no-figures").stdout
    assert "Scalars: mean=0.41,zero_std=0.55,n=8" in shown
    assert "signal of 8 plain responses 0.450" in " ".join(shown.split())


def test_other_commands_read_what_it_writes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found(dumps.verl_legacy(tmp_path / "dump"), "--out", out, "--no-figures")
    counts = Counts.of(read_rollouts(out / "rollouts.jsonl"))
    assert (counts.correct.sum(), counts.total.sum()) == (dumps.CORRECT, dumps.RESPONSES)
    assert len(counts.prompt_ids) == 6
    assert all(each.endswith(("@1", "@2")) for each in counts.prompt_ids)
    compared = CliRunner().invoke(
        app,
        ["compare", "--pass-rates", str(out / "rollouts.jsonl"), "--batches", "0", "--out", str(out), "--no-figures"],
    )
    assert compared.exit_code == 0, compared.stderr


def test_counts_stay_counts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt_id,correct,total,mean_response_tokens\na,1,4,12.5\nb,3,8,\n")
    found(tmp_path / "a.csv", "--out", tmp_path, "--no-figures")
    lines = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert lines == [
        {"prompt_id": "a", "correct": 1, "total": 4, "mean_response_tokens": 12.5},
        {"prompt_id": "b", "correct": 3, "total": 8},
    ]


def test_responses_on_lines_far_apart_with_one_without_a_score(tmp_path: Path) -> None:
    rows = [
        {"prompt_id": each, "rewards": reward} for each, reward in (("a", 1.0), ("b", 0.0), ("a", None), ("a", 0.0))
    ]
    dumps.lines(tmp_path / "a.jsonl", rows)
    told = found(tmp_path / "a.jsonl", "--out", tmp_path, "--no-figures")
    assert told["log"]["unscored"] == 1
    lines = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert lines == [{"prompt_id": "a", "rewards": [1, None, 0]}, {"prompt_id": "b", "rewards": [0]}]


# Stopped pools: E[2pq] = 2ab/(s(s+1)) under Beta(a, b), s = a + b


@pytest.mark.parametrize("rule", ["pos", "balance"])
def test_stopped_pools_are_told_and_not_read_as_plain(rule: str, tmp_path: Path) -> None:
    rates, random = prompts(2_000, 5)
    pools = simulate(RULES[rule], rates, random)
    assert pools.right is not None
    ends = np.cumsum(pools.total)
    rewards = np.split(pools.right.astype(int), ends[:-1])
    dumps.lines(tmp_path / "a.jsonl", [{"prompt_id": str(i), "rewards": r.tolist()} for i, r in enumerate(rewards)])
    told = found(tmp_path / "a.jsonl", "--out", tmp_path, "--no-figures", "--group-size", 2)
    assert told["log"]["stopped"]["kind"] == "rule"
    size = A + B
    for value, truth in ((told["pass_rate"], A / size), (told["plain_signal"]["2"], 2 * A * B / (size * (size + 1)))):
        error = (value["high"] - value["low"]) / (2 * 1.96)
        assert abs(value["value"] - truth) < 4 * error
        assert error < 0.02
    naive = float(np.mean(pools.pos / pools.total))
    assert abs(naive - A / size) > 2 * abs(told["pass_rate"]["value"] - A / size)
    assert any("replay" in note for note in told["notes"])


def test_kept_rows_are_no_pools(tmp_path: Path) -> None:
    log = read_rollouts(dumps.trl_text(tmp_path / "completions"))
    report = of_log(log, Study.of(log, RULES["balance"], selection=Selection.kept), [2])
    assert report.rollouts is None
    assert report.to_dict()["log"]["censored"] is True


# Scalars: a Beta law with mean m and size s has E[2pq] = 2 m (1 - m) s / (s + 1)


def test_scalars() -> None:
    told = found("--scalars", "mean=0.41,zero_std=0.55,n=8", "--group-size", "2", "--group-size", "8")
    size = told["law"]["a"] + told["law"]["b"]
    assert told["law"]["a"] / size == pytest.approx(0.41)
    assert told["plain_signal"]["8"]["value"] == pytest.approx(0.45, abs=2e-3)
    assert told["plain_signal"]["2"]["value"] == pytest.approx(2 * 0.41 * 0.59 * size / (size + 1), abs=2e-3)
    assert told["log"] is None
    assert told["pass_rate"]["low"] < 0.41 < told["pass_rate"]["high"]


def test_scalars_make_no_rollouts() -> None:
    text = "mean=0.5,mixed=0.5,n=4"
    assert of_scalars(text, law_of_scalars(parse_scalars(text))).rollouts is None


# What can't be done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "got neither"),
        (["a.jsonl", "--scalars", "mean=0.5,mixed=0.5,n=4"], "'a.jsonl'"),
        (["missing.jsonl"], "missing.jsonl"),
        (["--scalars", "mean=0.5,n=4"], "share of groups without signal is missing"),
        (["--scalars", "mean=0.5,mixed=0.5,n=4", "--stopped-by", "reinforce-ada-poss"], "reinforce-ada-pos"),
    ],
)
def test_what_is_refused(arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_group_of_one_is_refused() -> None:
    text = "mean=0.5,mixed=0.5,n=4"
    with pytest.raises(ValueError, match="at least 2 responses; got a group size of 1"):
        of_scalars(text, law_of_scalars(parse_scalars(text)), [1])


# The log that the adapters write


def test_the_pool_log_of_an_adapter_is_read(tmp_path: Path) -> None:
    log = PoolLog(tmp_path / FILE_NAME)
    more: dict[str, Any] = {"policy": "grpo, n = 4", "tokens": [5, 6, 7, 8], "kept": [True] * 4}
    for step in (0, 1):
        pools: list[dict[str, Any]] = [
            {"step": step, "prompt_id": "a", "rewards": [1.2, 0.2, None, 1.2], "correct": [True, False, None, True]},
            # Correctness is not the reward here: a format reward alone exceeds 0.5.
            {"step": step, "prompt_id": "b", "rewards": [0.6, 0.6, 0.6, 0.6], "correct": [False] * 4},
        ]
        log.write([pool | more for pool in pools])
    told = found(tmp_path / FILE_NAME, "--out", tmp_path, "--no-figures", "--stopped-by", "grpo")
    assert [told["log"][name] for name in ("prompts", "pools", "responses", "correct", "unscored")] == [2, 4, 16, 4, 2]
    assert told["log"]["steps"] == [0, 1]
    lines = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert lines[0] == {"prompt_id": "a@0", "rewards": [1, 0, None, 1], "tokens": [5, 6, 7, 8]}
    assert lines[1] == {"prompt_id": "b@0", "rewards": [0, 0, 0, 0], "tokens": [5, 6, 7, 8]}
