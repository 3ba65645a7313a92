"""Laws and replays of logs that are no plain samples, and thresholds that disagree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from ada_bandit import Policy
from ada_bandit.errors import InputError
from sim.cli import app
from sim.readers import ReadOptions, Selection
from sim.reading import Reading
from sim.sources import from_file
from tests.sim.readers import dumps
from tests.sim.stopped.pools import RULES, A, B, prompts, simulate

PROMPTS = 2_000
MEAN, SIGNAL = A / (A + B), 2 * A * B / ((A + B) * (A + B + 1))
"""E[p] and E[2pq] under the law of the pools."""


@pytest.fixture(scope="module", params=["pos", "batches until a success"])
def stopped(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rates, random = prompts(PROMPTS, 5)
    pools = simulate(RULES[request.param], rates, random)
    assert pools.right is not None
    rewards = np.split(pools.right.astype(int), np.cumsum(pools.total)[:-1])
    path = tmp_path_factory.mktemp("stopped") / "pools.jsonl"
    dumps.lines(path, [{"prompt_id": str(i), "rewards": r.tolist()} for i, r in enumerate(rewards)])
    return path


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)


def told(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json", "--no-figures")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_law_of_stopped_pools_is_that_of_the_prompts(stopped: Path) -> None:
    source = from_file(stopped)
    # The mean over so many prompts has this standard error, drawn plainly with n responses each or more.
    spread = np.sqrt(A * B / ((A + B) ** 2 * (A + B + 1)) / PROMPTS)
    assert source.law.mean == pytest.approx(MEAN, abs=5 * spread)
    assert source.law.predictive(2)[1] == pytest.approx(SIGNAL, abs=0.02)
    assert source.counts is not None
    naive = source.counts.rates
    assert abs(naive.mean() - MEAN) > 2 * abs(source.law.mean - MEAN)
    words = " ".join(source.notes)
    assert "ended by their own rewards, so correct/total is no pass rate; taken is a law fitted" in words
    assert "By chance pools of these sizes would do so" in words
    assert not source.findings()


def test_correct_over_total_of_stopped_pools_is_refused(stopped: Path) -> None:
    with pytest.raises(InputError, match=r"--no-smooth takes correct/total .* Leave --no-smooth out"):
        from_file(stopped, smooth=False)


def test_every_command_says_that_pools_were_stopped(stopped: Path, tmp_path: Path) -> None:
    small = ("--pass-rates", stopped, "--out", tmp_path)
    for command in (
        ("compare", *small, "--batches", "0", "--policy", "grpo"),
        ("frontier", *small, "--no-presets", "--max-samples", "4", "--prices", "2", "--policy", "grpo:group_size=2"),
        ("budget", *small, "--policy", "uniform", "--total", "16", "--prompts", "8", "--steps", "2"),
        ("replay", stopped, "--out", tmp_path, "--policy", "grpo"),
    ):
        assert any("ended by their own rewards" in note for note in told(*command)["notes"]), command[0]


def test_a_replay_of_stopped_pools_says_what_it_means(stopped: Path, tmp_path: Path) -> None:
    found = told("replay", stopped, "--policy", "grpo:group_size=2", "--out", tmp_path)
    (row,) = found["policies"]
    # GRPO takes the first two responses, which are plain draws.
    assert row["signal"]["low"] == row["signal"]["high"] == pytest.approx(SIGNAL, abs=0.035)
    assert 1 - row["plain_no_signal"] == pytest.approx(SIGNAL, abs=0.02)
    assert row["log_pass_rate"] == pytest.approx(MEAN, abs=0.03)
    words = " ".join(found["notes"])
    assert "the first responses in logged order are plain draws" in words
    assert "(exact)" not in words
    shuffled = " ".join(told("replay", stopped, "--shuffle", "--repeats", "1", "--out", tmp_path)["notes"])
    assert "responses drawn in a random order are no plain ones, and what is replayed is biased" in shuffled


def test_the_rule_may_be_stated(tmp_path: Path) -> None:
    rates, random = prompts(300, 6)
    pools = simulate(RULES["pos"], rates, random, order=False)
    lines = [f"{i},{k},{n}" for i, (k, n) in enumerate(zip(pools.pos, pools.total, strict=True))]
    path = tmp_path / "a.csv"
    path.write_text("prompt_id,correct,total\n" + "\n".join(lines) + "\n")
    source = from_file(path, reading=Reading(stopped_by=RULES["pos"]))
    assert "all 300 pools ended where reinforce-ada-pos ends" in source.notes
    assert source.settings["stopped_by"] == "reinforce-ada-pos"
    found = told(
        "compare", "--pass-rates", path, "--stopped-by", "reinforce-ada-pos", "--batches", "0", "--out", tmp_path
    )
    assert found["configuration"]["source"]["stopped_by"] == "reinforce-ada-pos"
    result = run("compare", "--pass-rates", path, "--stopped-by", "grpo", "--out", tmp_path)
    assert result.exit_code == 2
    assert "can't have been left by grpo" in result.stderr
    assert run("compare", "--stopped-by", "grpo", "--curve", "qwen2.5-math-1.5b-base").exit_code == 2


def test_groups_with_signal_alone_are_continued_to_all_prompts(tmp_path: Path) -> None:
    rates, random = prompts(4_000, 7)
    correct = random.binomial(8, rates)
    inside = (correct > 0) & (correct < 8)
    lines = [f"{i},{k},8" for i, k in enumerate(correct[inside])]
    path = tmp_path / "a.csv"
    path.write_text("prompt_id,correct,total\n" + "\n".join(lines) + "\n")
    source = from_file(path)
    assert source.law.mean == pytest.approx(MEAN, abs=0.06)
    assert any("groups without signal were left out" in note for note in source.notes)
    assert any("are a selection of what was drawn" in note for note in source.notes)
    plain = from_file(path, reading=Reading(holds=Selection.all))
    assert plain.law.mean == pytest.approx((correct[inside] / 8).mean(), abs=0.01)
    replayed = " ".join(told("replay", path, "--repeats", "1", "--out", tmp_path)["notes"])
    assert "this replay says what the rows at hand would do" in replayed


def test_rows_kept_of_larger_pools_have_the_law_of_the_prompts_where_the_policy_is_stated(tmp_path: Path) -> None:
    policy = RULES["balance"]
    pools = simulate(policy, *prompts(3_000, 3))
    cells = pools.pos, pools.neg
    kept = np.stack([policy.tables.keep_pos[cells], policy.tables.keep_neg[cells]], axis=1).tolist()
    baseline = (pools.pos / pools.total).tolist()
    rows = [
        {"step": 1, "prompt": str(i), "completion": "so", "accuracy": float(x), "advantage": x - baseline[i]}
        for i, (right, wrong) in enumerate(kept)
        for x in [1] * right + [0] * wrong
    ]
    dumps.lines(tmp_path / "completions_1.jsonl", rows)
    blind = from_file(tmp_path)
    assert any("describes the kept rows and not the prompts" in note for note in blind.notes)
    source = from_file(tmp_path, reading=Reading(stopped_by=policy))
    assert source.law.mean == pytest.approx(MEAN, abs=0.02)
    assert abs(blind.law.mean - MEAN) > 0.1
    assert any("groups that reinforce-ada-balance kept of its pools" in note for note in source.notes)


# Thresholds


SHAPED = ([2, 2, 2, 3], [3, 3, 2, 2], [2, 2, 2, 2])
RIGHT = [1, 2, 0]


@pytest.fixture
def shaped(tmp_path: Path) -> Path:
    path = tmp_path / "shaped.jsonl"
    dumps.lines(path, [{"prompt_id": str(i), "rewards": row} for i, row in enumerate(SHAPED)])
    return path


@pytest.mark.parametrize("threshold", [None, 2.5, 1.0, 3.0])
def test_compare_and_replay_class_alike(threshold: float | None, shaped: Path, tmp_path: Path) -> None:
    right = RIGHT if threshold in {None, 2.5} else [4, 4, 4] if threshold == 1 else [0, 0, 0]
    said = () if threshold is None else ("--threshold", str(threshold))
    compared = told("compare", "--pass-rates", shaped, "--batches", "0", "--policy", "grpo", "--out", tmp_path, *said)
    replayed = told("replay", shaped, "--policy", "grpo", "--out", tmp_path, *said)
    assert f"{sum(right) / 12:.1%} correct" in compared["notes"][0]
    assert replayed["policies"][0]["log_pass_rate"] == pytest.approx(sum(right) / 12)
    mixed = np.mean([0 < k < 4 for k in right])
    assert replayed["policies"][0]["signal"]["low"] == pytest.approx(mixed)
    # The default threshold of 0.5 calls all twelve correct.
    differing = 12 - sum(right)
    for notes in (compared["notes"], replayed["notes"]):
        note = [each for each in notes if "would class" in each]
        assert len(note) == (differing > 0)
        assert not differing or f"would class {differing} responses otherwise" in note[0]


def test_a_policy_that_states_its_threshold_must_agree_with_the_log(shaped: Path, tmp_path: Path) -> None:
    for threshold, code in ((2.5, 0), (2.2, 0), (1.5, 2), (3.5, 2)):
        policy = tmp_path / "policy.toml"
        policy.write_text(replace(Policy.preset("grpo"), threshold=threshold, name="mine").to_toml())
        for command in (("compare", "--pass-rates", shaped, "--batches", "0"), ("replay", shaped)):
            result = run(*command, "--policy", policy, "--out", tmp_path / "out", "--no-figures")
            assert result.exit_code == code, result.stderr
            if code:
                assert f"mine takes a reward above {threshold:g} for correct" in result.stderr
                assert f"--threshold {threshold:g}" in result.stderr
                stated = ("--threshold", str(threshold), "--out", tmp_path / "out", "--no-figures")
                assert run(*command, "--policy", policy, *stated).exit_code == 0


def test_a_column_of_correctness_holds_against_every_threshold(tmp_path: Path) -> None:
    rows = [{"prompt_id": "a", "reward": 0.9, "correct": False}, {"prompt_id": "a", "reward": 0.2, "correct": True}]
    dumps.lines(tmp_path / "a.jsonl", rows * 2)
    found = told("replay", tmp_path / "a.jsonl", "--policy", "grpo", "--out", tmp_path / "out")
    assert found["policies"][0]["log_pass_rate"] == 0.5
    assert any("would class 4 responses otherwise" in note for note in found["notes"])


def test_reading_options_need_a_log(tmp_path: Path) -> None:
    result = run("compare", "--curve", "qwen2.5-math-1.5b-base", "--threshold", "2", "--out", tmp_path)
    assert result.exit_code == 2
    assert "--threshold 2.0 says how a log is to be read; give --pass-rates PATH as well" in result.stderr


def test_what_was_said_stands_in_the_settings(shaped: Path) -> None:
    reading = Reading(ReadOptions(prompt="prompt_id", threshold=2.5, where=("prompt_id=1",)), holds=Selection.all)
    source = from_file(shaped, reading=reading)
    assert source.settings | {"prior": None} == {
        "kind": "file", "name": str(shaped), "prompt": "prompt_id", "threshold": 2.5, "where": ["prompt_id=1"],
        "holds": "all", "smooth": True, "prior": None,
    }  # fmt: skip
