"""Two ranks: they agree, share the groups, and survive that one of them is killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.adapters import tiny

ROOT = Path(__file__).parents[2]


def start(folder: Path, what: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.adapters.two_ranks", str(folder), what],
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def finish(started: list[subprocess.Popen[str]], seconds: float = 240) -> list[str]:
    try:
        return [process.communicate(timeout=seconds)[0] for process in started]
    finally:
        for process in started:
            process.kill()


def results(folder: Path, what: str) -> list[dict[str, Any]]:
    started = start(folder, what)
    for process, text in zip(started, finish(started), strict=True):
        assert process.returncode == 0, text[-3000:]
    return [json.loads((folder / f"{what}-{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    """Run the scenarios of `two_ranks.py` once on two processes; one result each."""
    return results(folder, "everything")


SCENARIOS = ("balance", "one at a time", "masked", "unscored", "truncated")


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks_agree_and_share_the_groups(ranks: list[dict[str, Any]], name: str) -> None:
    a, b = (each[name] for each in ranks)
    assert a["ada"] == b["ada"]
    assert a["parameters"] == b["parameters"]
    assert a["groups"] == b["groups"]
    # Three prompts of four rows on two ranks of six: the second group straddles them.
    for step, groups in enumerate(a["groups"]):
        rows = a["rows"][step] + b["rows"][step]
        assert Counter(row["digit"] for row in rows) == {row["digit"]: 4 for row in rows}
        assert len({row["digit"] for row in a["rows"][step]} & {row["digit"] for row in b["rows"][step]}) == 1
        expected = sorted(
            x for group, out in zip(groups["advantages"], groups["out"], strict=True) for x in group if not out
        )
        found = sorted(row["advantage"] for row in rows if row["in_loss"])
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks_score_every_response_once_and_take_its_advantage(ranks: list[dict[str, Any]], name: str) -> None:
    a, b = (each[name] for each in ranks)
    calls = [len(call) for call in a["calls"]]
    assert calls == [len(call) for call in b["calls"]]
    assert 2 * sum(calls) == sum(m["ada/responses"] + m["ada/padding"] for m in a["ada"])
    pools = tiny.pools([*a["calls"], *b["calls"]])
    tokens = sum(len(entry[2]) for pool in pools.values() for entry in pool)
    counted = sum(m["ada/tokens"] for m in a["ada"])
    assert counted < tokens if any(m["ada/padding"] for m in a["ada"]) else counted == tokens
    rewards = {(digit, tuple(e[2])): e[3] for digit, pool in pools.items() for e in pool}
    for step, groups in enumerate(a["groups"]):
        means = {digit: pos / (pos + neg) for digit, pos, neg in groups["counts"] if pos + neg}
        for row in a["rows"][step] + b["rows"][step]:
            if row["in_loss"]:
                expected = rewards[row["digit"], tuple(row["tokens"])] - means[row["digit"]]
                assert row["advantage"] == pytest.approx(expected, abs=1e-6)


def test_ranks_whose_prompts_exit_at_different_rounds_do_not_wait_for_each_other(ranks: list[dict[str, Any]]) -> None:
    for each in ranks:
        assert any(m["ada/padding"] > 0 for m in each["one at a time"]["ada"])
        assert any(m["ada/rounds"] > 2 for m in each["one at a time"]["ada"])


def test_two_ranks_of_grpo_have_the_losses_of_the_stock_trainer(ranks: list[dict[str, Any]]) -> None:
    for each in ranks:
        assert each["grpo"]["losses"] == each["stock"]["losses"]
        assert each["grpo"]["parameters"] == each["stock"]["parameters"]
        assert [m["ada/responses"] for m in each["grpo"]["ada"]] == [12, 12]


def test_two_ranks_leave_out_the_same_groups_on_top_of_trl(ranks: list[dict[str, Any]]) -> None:
    a, b = (each["left out"] for each in ranks)
    assert a["ada"] == b["ada"]
    assert a["parameters"] == b["parameters"]
    for step in range(2):
        rows = a["rows"][step] + b["rows"][step]
        out = int(a["ada"][step]["ada/left_out"])
        assert Counter(row["in_loss"] for row in rows)[False] == 4 * out
        assert sum(any(row["advantage"] for row in rows if row["digit"] == digit) for digit in range(10)) == 3 - out


def test_two_ranks_learn_the_same_law_and_remember_the_same_prompts(ranks: list[dict[str, Any]]) -> None:
    a, b = (each["bayes"] for each in ranks)
    assert a["ada"] == b["ada"]
    assert a["parameters"] == b["parameters"]
    a, b = (each["whole"] for each in ranks)
    assert a["memory"] == b["memory"]
    assert len(a["memory"]["keys"]) == 12


def test_extra_columns_and_metrics_of_two_ranks_are_those_of_all_responses(ranks: list[dict[str, Any]]) -> None:
    table = ranks[0]["table"]
    empty = [text == "" for text in table["completion"]]
    assert [note for note, out in zip(table["note"], empty, strict=True) if not out] == [
        f"{prompt}|{completion}"
        for prompt, completion, out in zip(table["prompt"], table["completion"], empty, strict=True)
        if not out
    ]
    assert len(table["note"]) == 12
    a, b = (each["noted"]["ada"] for each in ranks)
    assert a == b


def test_two_ranks_evaluate_as_trl_does(ranks: list[dict[str, Any]]) -> None:
    a, b = (each["eval"] for each in ranks)
    # The evaluations between the steps draw random numbers of their own, so the second step is another one.
    assert a["ada"][0] == b["ada"][0] == ranks[0]["balance"]["ada"][0]
    assert a["parameters"] == b["parameters"]


def test_a_run_of_which_a_rank_was_killed_ends_as_if_nothing_had_happened(
    folder: Path, ranks: list[dict[str, Any]]
) -> None:
    started = start(folder, "dies")
    try:
        assert started[1].wait(timeout=120) == -9
    finally:
        # The other one waits for an answer, or has given up.
        finish([started[1]])
        started[0].kill()
        finish([started[0]])
    assert (folder / "killed" / "checkpoint-2").is_dir()
    resumed = results(folder, "resumes")
    for again, whole in zip(resumed, (each["whole"] for each in ranks), strict=True):
        assert again["losses"] == whole["losses"][4:]
        assert again["ada"] == whole["ada"][2:]
        assert again["parameters"] == whole["parameters"]
        assert again["memory"] == whole["memory"]
        assert again["pools"] == whole["pools"]
