from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit._types import IntArray
from ada_bandit.errors import InputError
from ada_bandit.programs.rollouts import RolloutLine, RolloutLog
from ada_bandit.programs.rollouts import read_log as read_lines
from ada_bandit.uniforms import Stream, uniform
from llm.cli import app
from llm.commands.rollout import histogram
from llm.config import RunConfig, read_config
from llm.rollout import Rollouts, fill, prepare
from llm.types import Response
from llm.verify import Verifier
from sim.readers import read_rollouts as read_pools
from tests.llm.fakes import CoinTask, NamingSampler

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "sim" / "data" / "smollm2_reasoning_gym.jsonl"
RATES = [0.0, 0.1, 0.3, 0.5, 0.9, 1.0, 0.2]
SAMPLES = 6
BATCH = 2  # prompts


class Killed(BaseException):
    """What ends a process in the middle."""


class MortalSampler(NamingSampler):
    """Ends the process when it is asked the n-th time."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        self.calls -= 1
        if self.calls < 0:
            raise Killed
        return super().generate(prompts, ids, seed, temperature)


def coins(rates: Sequence[float] = RATES) -> Rollouts:
    task = CoinTask(rates, seed=11)
    config = RunConfig.model_validate(
        {"model": {"path": "-"}, "task": {"kind": "digits"}, "sampler": {"batch_size": BATCH * SAMPLES}}
    )
    prompts = [task[index] for index in range(len(task))]
    return Rollouts(config, task, prompts, [[1]] * len(prompts), None, ())


def roll(path: Path, *, texts: Path | None = None, calls: int = 10**6, rates: Sequence[float] = RATES) -> RolloutLog:
    rollouts = coins(rates)
    log = RolloutLog(path, {"samples": SAMPLES}, {}, texts)
    fill(log, rollouts, SAMPLES, lambda: (MortalSampler(calls), Verifier(rollouts.task, workers=0)))
    return log


def test_rewards_are_those_of_the_responses_in_their_order(tmp_path: Path) -> None:
    roll(tmp_path / "log.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["prompt_id"] for row in rows] == [f"coin/{i}" for i in range(len(RATES))]
    for i, (row, rate) in enumerate(zip(rows, RATES, strict=True)):
        # The stand-ins' rule: response j to prompt i is right where its uniform is below the rate.
        assert row["rewards"] == [int(uniform(11, Stream.REWARDS, i, j) < rate) for j in range(SAMPLES)]
        assert row["tokens"] == [1] * SAMPLES
        assert (row["family"], row["truncated"]) == ("coin", 0)


def test_sim_reads_the_same_counts(tmp_path: Path) -> None:
    log = roll(tmp_path / "log.jsonl")
    pools = read_pools(log.path)
    assert pools.names == tuple(line.prompt_id for line in log.lines)
    assert pools.correct.tolist() == [line.correct for line in log.lines]
    assert pools.scored.tolist() == [SAMPLES] * len(RATES)
    assert pools.tokens is not None
    assert pools.tokens.tolist() == [1.0] * (SAMPLES * len(RATES))


@pytest.mark.parametrize("calls", range(4))
def test_a_log_that_was_killed_ends_as_one_that_was_not(calls: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    roll(whole, texts=tmp_path / "whole.texts")
    path, texts = tmp_path / "log.jsonl", tmp_path / "log.texts"
    with pytest.raises(Killed):
        roll(path, texts=texts, calls=calls)
    assert len(read_lines(path)) == min(BATCH * calls, len(RATES))
    roll(path, texts=texts)
    assert path.read_bytes() == whole.read_bytes()
    assert texts.read_bytes() == (tmp_path / "whole.texts").read_bytes()


def test_a_line_that_was_cut_is_written_again(tmp_path: Path) -> None:
    whole, texts = tmp_path / "whole.jsonl", tmp_path / "whole.texts"
    roll(whole, texts=texts)
    log, said = whole.read_bytes(), texts.read_bytes()
    for number, kept in enumerate(range(0, len(log), 37)):
        # Texts are written first, so at a kill they are at least as far.
        path, other = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.texts"
        meta = path.with_name(path.name + ".meta.json")
        meta.write_bytes(whole.with_name("whole.jsonl.meta.json").read_bytes())
        path.write_bytes(log[:kept])
        lines = said.splitlines(keepends=True)
        done = log[:kept].count(b"\n")
        other.write_bytes(b"".join(lines[:done]) + b"".join(lines[done:])[: number % 90])
        roll(path, texts=other)
        assert path.read_bytes() == log
        assert other.read_bytes() == said


def test_more_prompts_extend_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    roll(path, rates=RATES[:3])
    first = path.read_bytes()
    roll(path)
    assert path.read_bytes().startswith(first)
    assert len(read_lines(path)) == len(RATES)
    # Fewer leave it as it is, and need no model.
    rollouts = coins(RATES[:2])
    fill(RolloutLog(path, {"samples": SAMPLES}, {}), rollouts, SAMPLES, lambda: pytest.fail("a model was loaded"))
    assert len(read_lines(path)) == len(RATES)


def test_texts_stand_beside_their_prompts(tmp_path: Path) -> None:
    roll(tmp_path / "log.jsonl", texts=tmp_path / "texts.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["prompt_id"] for row in rows] == [f"coin/{i}" for i in range(len(RATES))]
    assert rows[4]["responses"] == [f"4 {draw}" for draw in range(SAMPLES)]


def test_what_can_not_be_gone_on_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    roll(path)
    with pytest.raises(InputError, match=r"other settings: samples = 6, now 7"):
        RolloutLog(path, {"samples": 7}, {})
    with pytest.raises(InputError, match=r"other settings: heat = None, now 2"):
        RolloutLog(path, {"samples": SAMPLES, "heat": 2}, {})
    with pytest.raises(InputError, match=r"holds the texts of 0 prompts, the log .* 7"):
        RolloutLog(path, {"samples": SAMPLES}, {}, tmp_path / "late.texts")
    path.with_name("log.jsonl.meta.json").unlink()
    with pytest.raises(InputError, match=r"but not log\.jsonl\.meta\.json, which says what it was made with"):
        RolloutLog(path, {"samples": SAMPLES}, {})


@pytest.mark.parametrize("line", ["{", "[]", '{"prompt_id": "a"}', "\0" * 9])
def test_a_line_that_is_none_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    roll(path)
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 8 of .*log\.jsonl.* is no line of a log"):
        RolloutLog(path, {"samples": SAMPLES}, {})


def test_a_log_of_other_prompts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    roll(path, rates=RATES[:3])
    path.write_text(path.read_text(encoding="utf-8").replace("coin/1", "coin/9"), encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of .* is the prompt 'coin/9', where the task has 'coin/1'"):
        roll(path)


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    roll(path, rates=RATES[:2])
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"No space left on device; .* first 2 prompts"):
            roll(path)
    assert path.read_bytes().startswith(before)
    roll(path)
    assert len(read_lines(path)) == len(RATES)


def test_a_line_keeps_what_rewards_there_are(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = RolloutLine("a", "f", np.array([1.0, math.nan, 0.25, 0.0]), (3, 4, 5, 6), 1)
    assert json.loads(line.to_json())["rewards"] == [1, None, 0.25, 0]
    path.write_text(line.to_json() + "\n", encoding="utf-8")
    (back,) = read_lines(path)
    np.testing.assert_array_equal(back.rewards, line.rewards)
    assert (back.correct, back.scored, back.truncated, back.tokens) == (1, 3, 1, (3, 4, 5, 6))
    np.testing.assert_array_equal(read_pools(path).rewards, line.rewards)


def test_histogram_has_its_edges_to_the_right() -> None:
    assert histogram(np.array([0, 0, 0.01, 0.25, 0.26, 0.5, 0.75, 0.76, 0.99, 1])) == [2, 2, 2, 1, 2, 1]
    assert histogram(np.array([])) == [0] * 6


def test_the_stored_log_is_of_the_prompts_of_its_config() -> None:
    from llm.tasks import load_task

    config = read_config(ROOT / "llm" / "configs" / "smollm2-reasoning-gym.toml")
    task = load_task(config.task)
    lines = read_lines(DATA)
    assert [line.prompt_id for line in lines] == [task[index].key for index in range(len(task))]
    assert [line.family for line in lines] == [task[index].family for index in range(len(task))]
    assert {line.rewards.size for line in lines} == {32}
    longest = config.sampler.max_new_tokens
    assert max(max(line.tokens) for line in lines) == longest
    for line in lines:
        # Only a response of full length was cut, and it is wrong; the last token of one may be its end.
        full = [reward for reward, tokens in zip(line.rewards, line.tokens, strict=True) if tokens == longest]
        assert len(full) >= line.truncated
        assert sum(reward == 0 for reward in full) >= line.truncated


# The command


RUN = """
[model]
path = "-"
[task]
kind = "digits"
size = {size}
[sampler]
kind = "{kind}"
max_new_tokens = 8
batch_size = 6
"""

pytorch = pytest.mark.torch


def write_run(folder: Path, size: int = 7, kind: str = "transformers", extra: str = "") -> Path:
    path = folder / f"run-{size}.toml"
    path.write_text(RUN.format(size=size, kind=kind).replace("[task]", f"[task]\n{extra}"), encoding="utf-8")
    return path


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["rollout", *map(str, arguments)])


@pytorch
def test_command_goes_on_with_the_same_bytes(tmp_path: Path, tiny_model_dir: Path) -> None:
    run = write_run(tmp_path)
    whole, path = tmp_path / "whole.jsonl", tmp_path / "log.jsonl"
    options = ("--config", run, "--samples", 3)
    done = command(tiny_model_dir, *options, "--out", whole)
    assert done.exit_code == 0, done.stderr
    lines = read_lines(whole)
    tokens = sum(map(sum, (line.tokens for line in lines)))
    assert f"7 prompts, 21 responses, {tokens} tokens" in done.stdout
    # Cut in the middle of the third line, which is in the middle of a batch of two prompts.
    kept = b"".join(whole.read_bytes().splitlines(keepends=True)[:3])[:-5]
    path.write_bytes(kept)
    path.with_name("log.jsonl.meta.json").write_bytes(whole.with_name("whole.jsonl.meta.json").read_bytes())
    assert command(tiny_model_dir, *options, "--out", path).exit_code == 0
    assert path.read_bytes() == whole.read_bytes()
    # Another seed gives other responses.
    assert command(tiny_model_dir, *options, "--seed", 1, "--out", tmp_path / "other.jsonl").exit_code == 0
    assert (tmp_path / "other.jsonl").read_bytes() != whole.read_bytes()


@pytorch
@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(tmp_path: Path, tiny_model_dir: Path) -> None:
    # Random tokens: quick, and a function of seed, prompt and draw like any other sampler's.
    run = write_run(tmp_path, size=400, kind="uniform")
    arguments = [str(tiny_model_dir), "--config", str(run), "--samples", "3", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "llm", "rollout", *arguments, str(tmp_path / "log.jsonl")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None and not _size(tmp_path / "log.jsonl"):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert 0 < len((tmp_path / "log.jsonl").read_bytes().splitlines()) < 400
    assert command(*arguments, tmp_path / "log.jsonl").exit_code == 0
    assert command(*arguments, tmp_path / "whole.jsonl").exit_code == 0
    assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytorch
def test_command_refuses_other_settings_and_other_weights(tmp_path: Path, tiny_model_dir: Path) -> None:
    import shutil

    from llm.models import load_model

    run, path = write_run(tmp_path, size=2), tmp_path / "log.jsonl"
    model = Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))
    options = (model, "--config", run, "--out", path, "--samples")
    assert command(*options, 2).exit_code == 0
    refused = command(*options, 2, "--temperature", 0.5)
    assert refused.exit_code == 2
    assert "'temperature': 1.0" in refused.stderr
    assert "'temperature': 0.5" in refused.stderr
    weights = load_model(model)
    with torch_no_grad():
        next(weights.parameters()).add_(1.0)
    weights.save_pretrained(model)
    refused = command(*options, 2)
    assert refused.exit_code == 2
    assert "was made with other settings: model = " in refused.stderr


def torch_no_grad() -> Any:
    import torch

    return torch.no_grad()


@pytorch
def test_overlong_prompts_are_an_error_or_counted(tmp_path: Path, tiny_model_dir: Path) -> None:
    # The model holds 256 tokens; with 249 new ones, 7 are left for a prompt of a token a character.
    run = write_run(tmp_path, size=50)
    options = ("--config", run, "--samples", 1, "--max-new-tokens", 249, "--out", tmp_path / "log.jsonl")
    refused = command(tiny_model_dir, *options)
    assert refused.exit_code == 2
    assert "task.overlong = 'skip'" in refused.stderr
    run = write_run(tmp_path, size=50, extra='overlong = "skip"')
    config = read_config(run, {"model.path": str(tiny_model_dir), "sampler.max_new_tokens": 249})
    found = prepare(config)
    texts = [found.task[index].text for index in range(50)]
    assert [prompt.text for prompt in found.prompts] == [text for text in texts if len(text) <= 7]
    left_out = sum(len(text) > 7 for text in texts)
    assert found.notes == (f"{left_out} prompts left out: longer than the 7 tokens that there is room for",)
    none = read_config(run, {"model.path": str(tiny_model_dir), "sampler.max_new_tokens": 255})
    with pytest.raises(InputError, match="none of 50 prompts fits into the 1 tokens"):
        prepare(none)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda run: ["no-model", "--config", run], "the model directory 'no-model' does not exist"),
        (lambda _: ["no-model"], "give the prompts by --task FILE or by --config FILE"),
        (lambda run: ["no-model", "--config", run, "--task", run], "one of them"),
        (lambda _: ["no-model", "--config", "none.toml"], "the config 'none.toml' does not exist"),
    ],
)
def test_command_refuses(arguments: Callable[[Path], list[object]], message: str, tmp_path: Path) -> None:
    refused = command(*arguments(write_run(tmp_path)), "--out", tmp_path / "log.jsonl")
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert not (tmp_path / "log.jsonl").exists()
