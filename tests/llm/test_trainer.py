from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ada_bandit import Allocator
from ada_bandit.allocator import Request
from ada_bandit.errors import AdaBanditError, InputError
from llm.cli import app
from llm.config import RunConfig
from llm.distributed import World
from llm.errors import CheckpointError, DivergedError
from llm.logs import to_toml
from llm.models import load_model
from llm.trainer import Clock, DataOrder, Trainer
from tests.llm.runs import rows_of, small_config

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def weights(folder: Path) -> dict[str, Any]:
    return dict(load_model(folder).state_dict())


def same_weights(a: Path, b: Path) -> bool:
    ours, theirs = weights(a), weights(b)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_run_has_its_rows_its_checkpoint_and_its_metadata(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(tiny_model_dir, eval={"every": 2, "pool": True, "prompts": 4, "samples": 2})
    out = tmp_path / "run"
    folder = Trainer(config, out).run()
    rows = rows_of(out)
    assert [row["step"] for row in rows if "eval" not in row] == [0, 1, 2, 3]
    assert [row["step"] for row in rows if "eval" in row] == [0, 2, 4]
    trained = [row for row in rows if "eval" not in row]
    assert [row["total_responses"] for row in trained] == np.cumsum([row["responses"] for row in trained]).tolist()
    # At most 8 x 4 responses a prompt, at least one round of 8.
    assert all(64 <= row["responses"] <= 256 for row in trained)
    assert trained[0]["sampler_max_difference"] < 1e-4
    assert folder == out / "checkpoints" / "step-00000004"
    assert not same_weights(folder, tiny_model_dir)
    assert sorted(each.name for each in folder.parent.iterdir()) == ["step-00000002", "step-00000004"]
    start = json.loads((out / "run.json").read_text(encoding="utf-8"))["starts"][0]
    assert start["packages"]["torch"] == torch.__version__


def test_a_clock_tells_phases_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 1.0, 3.0, 3.5, 4.0, 5.0, 9.0, 10.0, 10.0, 12.0, 13.0])
    monkeypatch.setattr("llm.trainer.time.perf_counter", lambda: next(ticks))
    clock = Clock()
    with clock("sample"):  # from 1 to 3
        pass
    with pytest.raises(KeyError), clock("verify"):  # from 3.5 to 4, although it failed
        raise KeyError
    with clock("sample"):  # from 5 to 9
        pass
    assert clock.lap() == {"sample": 6.0, "verify": 0.5, "other": 3.5, "total": 10.0}
    with clock("update"):  # from 10 to 12
        pass
    assert clock.lap() == {"update": 2.0, "other": 1.0, "total": 3.0}


def test_the_times_of_the_phases_are_those_of_the_run(tiny_model_dir: Path, tmp_path: Path) -> None:
    trainer = Trainer(small_config(tiny_model_dir, train__steps=2), tmp_path / "run")
    begun = time.perf_counter()
    trainer.run()
    seconds = time.perf_counter() - begun
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    times = [json.loads(line)["time"] for line in lines]
    assert len(times) == 2
    # The steps of a run follow one another, and phases don't overlap: what none of them took is no negative number.
    assert 0 < sum(each["total"] for each in times) < seconds
    for each in times:
        assert {"prompts", "sample", "verify", "allocate", "update", "sync", "other"} <= set(each)
        assert min(each.values()) >= 0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": {"empirical_bayes": {"noise_ratio": 5.0, "samples": 2, "max_samples": 8, "refit_every": 1}}},
        {
            "policy": {"empirical_bayes": {"noise_ratio": 5.0, "samples": 2, "max_samples": 8, "refit_every": 1}},
            "memory": 0.9,
        },
        {"policy": {"preset": "mopps", "group_size": 4, "wanted": 4}, "memory": 0.9},
        {"train__epochs": 2, "sampler__temperature": 0.7, "policy": "grpo"},
    ],
    ids=["balance", "empirical-bayes", "empirical-bayes-memory", "mopps-memory", "epochs"],
)
def test_a_run_resumed_at_every_checkpoint_ends_as_one_that_was_never_stopped(
    tiny_model_dir: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    whole = Trainer(small_config(tiny_model_dir, checkpoint={"every": 1}, **changes), tmp_path / "whole").run()
    for steps in (1, 2, 4):
        config = small_config(tiny_model_dir, checkpoint={"every": 1}, train__steps=steps, **changes)
        parts = Trainer(config, tmp_path / "parts", resume=steps > 1).run()
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert same_weights(parts, whole)


class Killed(BaseException):
    """Stands for a kill inside a step."""


def test_a_step_resumed_in_the_middle_asks_for_what_is_left_alone(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tiny_model_dir)
    Trainer(config, tmp_path / "whole").run()
    trainer = Trainer(config, tmp_path / "parts")
    saved = trainer.checkpoints.save_round

    def kill_after_two(step: int, number: int, payload: Any) -> None:
        saved(step, number, payload)
        if (step, number) == (2, 2):
            raise Killed

    monkeypatch.setattr(trainer.checkpoints, "save_round", kill_after_two)
    with pytest.raises(Killed):
        trainer.run()
    again = Trainer(config, tmp_path / "parts", resume=True)
    asked: list[int] = []
    generate = again.sampler.generate

    def counting(prompts: Any, *rest: Any) -> Any:
        asked.append(len(prompts))
        return generate(prompts, *rest)

    monkeypatch.setattr(again.sampler, "generate", counting)
    again.run()
    whole, parts = rows_of(tmp_path / "whole"), rows_of(tmp_path / "parts")
    assert parts == whole
    # Two rounds of step 2 were sampled before: the first alone has 8 responses for each of the 8 prompts.
    assert sum(asked) <= whole[2]["responses"] + whole[3]["responses"] - 64


RUN = """
import sys, torch
from pathlib import Path
from llm.config import read_config
from llm.trainer import Trainer
torch.set_num_threads(1)
Trainer(read_config(sys.argv[1]), Path(sys.argv[2]), resume=True).run()
"""


def start(file: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(file), str(out)],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_as_one_that_was_never_killed(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(
        tiny_model_dir,
        train__steps=40,
        eval={"every": 8, "pool": True, "prompts": 8, "samples": 4},
        checkpoint={"every": 2},
        log={"responses": 3},
    )
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config.model_dump()), encoding="utf-8")
    begun = time.monotonic()
    whole = Trainer(config, tmp_path / "whole").run()
    longest = time.monotonic() - begun
    chance = random.Random(1)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    killed = 0
    for _ in range(3):
        process = start(file, tmp_path / "killed")
        before = metrics.stat().st_mtime_ns if metrics.exists() else 0
        # The first seconds are imports; wait for the run to get on before the moment is drawn.
        while process.poll() is None and (not metrics.exists() or metrics.stat().st_mtime_ns == before):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, longest / 3))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert start(file, tmp_path / "killed").wait() == 0
    # On a machine that got faster meanwhile, a run may have ended before its moment.
    assert killed >= 1
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")
    responses = [(tmp_path / each / "responses.jsonl").read_text(encoding="utf-8") for each in ("killed", "whole")]
    assert responses[0] == responses[1]
    assert len(responses[0].splitlines()) == 40 * 3
    assert same_weights(tmp_path / "killed" / "checkpoints" / "step-00000040", whole)


def test_a_batch_without_any_score_is_a_step_that_changes_nothing(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(tiny_model_dir, task__options={"raises": True}, task__truncated="no-score", train__steps=2)
    folder = Trainer(config, tmp_path / "run").run()
    for row in rows_of(tmp_path / "run"):
        assert row["updates"] == 0
        assert row["skipped_updates"] == 2
        assert row["unscored"] == row["responses"] == 8 * 32
        assert row["raised"] > 0
        assert "can't tell" in row["first_error"]
        assert row["loss"] is None
        assert row["pool_reward"] is None
    assert same_weights(folder, tiny_model_dir)


def test_many_unscored_responses_are_told_once_and_can_stop_the_run(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(tiny_model_dir, task__options={"raises": True}, train__steps=2, policy="grpo")
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config.model_dump()), encoding="utf-8")
    told = CliRunner().invoke(app, ["train", str(file), "--out", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    # Responses cut at five tokens are wrong by task.truncated; the verifier fails at the rest.
    first, second = rows_of(tmp_path / "run")
    assert first["unscored"] == first["responses"] - first["truncated"] > 3.2
    assert first["unscored_fraction"] == pytest.approx(first["unscored"] / 32)
    assert f"{first['unscored_fraction']:.0%} of the responses of step 0 have no score" in first["note"]
    assert second["note"] is None
    assert told.stderr.count("have no score") == 1
    stopped = CliRunner().invoke(
        app, ["train", str(file), "--out", str(tmp_path / "stopped"), "--set", "train.max_unscored=0.05"]
    )
    assert stopped.exit_code == 1
    assert "train.max_unscored = 0.05 allows" in stopped.stderr
    assert "can't tell" in stopped.stderr
    assert "--resume" in stopped.stderr
    # Nothing of the round is saved: a verifier that was mended scores it anew. And the limit may be changed.
    assert not list((tmp_path / "stopped").rglob("round.pt"))
    going_on = ["train", str(file), "--out", str(tmp_path / "stopped"), "--resume", "--set", "train.max_unscored=1.0"]
    assert CliRunner().invoke(app, going_on).exit_code == 0
    assert rows_of(tmp_path / "stopped") == rows_of(tmp_path / "run")


def test_masked_truncated_responses_are_no_row_of_a_run_and_evaluation_scores_them(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    evaluation = {"every": 2, "pool": True, "prompts": 8, "samples": 4}
    config = small_config(tiny_model_dir, train__mask_truncated=True, train__steps=2, eval=evaluation, policy="grpo")
    Trainer(config, tmp_path / "run").run()
    rows = rows_of(tmp_path / "run")
    for row in rows:
        if "eval" in row:
            assert row["eval"]["pool"]["unscored"] == 0 < row["eval"]["pool"]["truncated"]
        else:
            assert row["unscored"] == row["truncated"] > 0
            assert row["kept"] == row["responses"] - row["truncated"]


@pytest.mark.parametrize("name", ["reinforce-ada-balance", {"empirical_bayes": {"noise_ratio": 5.0, "max_samples": 4}}])
def test_what_a_run_says_of_silent_groups_counts(tiny_model_dir: Path, tmp_path: Path, name: Any) -> None:
    for how in ("policy", "mask", "leave_out", "keep"):
        trainer = Trainer(small_config(tiny_model_dir, policy=name, train__no_signal=how), tmp_path / how)
        allocator = trainer.steps.allocator(4, 0, None)
        assert allocator.policy.no_signal == ("mask" if how == "policy" else how)
        trainer.close()


def test_a_launcher_that_started_one_process_in_place_of_several_is_told_of(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert World().notes == ()
    # What `accelerate launch --cpu --num_processes 2` leaves in the environment of its only process.
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    assert World().notes == ()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    trainer = Trainer(small_config(tiny_model_dir, train__steps=1), tmp_path / "run")
    assert any("asked for several processes and started one" in note for note in trainer.notes)
    trainer.run()
    (start,) = json.loads((tmp_path / "run" / "run.json").read_text())["starts"]
    assert start["processes"] == 1


def test_a_run_goes_on_until_it_has_its_tokens(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(tiny_model_dir, policy="grpo", train__steps=2, train__tokens=1000)
    Trainer(config, tmp_path / "run").run()
    totals = [row["total_tokens"] for row in rows_of(tmp_path / "run")]
    assert totals[-1] >= 1000 > totals[-2]


def test_gradient_checkpointing_and_tokens_left_out_change_what_they_say(tiny_model_dir: Path, tmp_path: Path) -> None:
    plain = Trainer(small_config(tiny_model_dir, train__steps=2), tmp_path / "a").run()
    config = small_config(tiny_model_dir, train__steps=2)
    model = config.model.model_copy(update={"gradient_checkpointing": True})
    recomputed = Trainer(config.model_copy(update={"model": model}), tmp_path / "b").run()
    assert same_weights(plain, recomputed)
    left_out = Trainer(small_config(tiny_model_dir, train__steps=2, train__no_signal="leave_out"), tmp_path / "c").run()
    first, other = rows_of(tmp_path / "a")[0], rows_of(tmp_path / "c")[0]
    assert other["kept"] == 4 * other["kept_prompts"] < first["kept"] == 32
    assert first["masked"] == other["left_out"] == (first["kept"] - other["kept"]) / 4 > 0
    assert first["kept_masked"] == first["kept"] - other["kept"]
    assert (first["left_out"], other["masked"], other["kept_masked"]) == (0, 0, 0)
    # The same sum over a smaller number of tokens.
    assert first["loss_tokens"] > other["loss_tokens"]
    assert first["loss"] * first["loss_tokens"] == pytest.approx(other["loss"] * other["loss_tokens"], rel=1e-5)
    assert not same_weights(plain, left_out)


def test_autocast_in_bfloat16_runs(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(tiny_model_dir, train__steps=1)
    model = config.model.model_copy(update={"autocast": True})
    Trainer(config.model_copy(update={"model": model}), tmp_path / "run").run()
    row = rows_of(tmp_path / "run")[0]
    # bfloat16 has 8 bits of precision; log-probabilities of about -3 come out within a few percent.
    assert 0 < row["sampler_max_difference"] < 0.3


def test_overlong_prompts_are_an_error_or_are_counted(tiny_model_dir: Path, tmp_path: Path) -> None:
    # Prompts are i + i^2 =: 4 tokens up to i = 3, 5 up to 9, 7 up to 31. The context is 256.
    with pytest.raises(InputError, match=r"the prompt 'first/.*' has 7 tokens, more than the 6"):
        Trainer(small_config(tiny_model_dir, sampler__max_new_tokens=250), tmp_path / "a").run()
    config = small_config(
        tiny_model_dir, sampler__max_new_tokens=250, task__overlong="skip", train__steps=4, policy="grpo"
    )
    Trainer(config, tmp_path / "b").run()
    rows = rows_of(tmp_path / "b")
    assert sum(row["overlong"] for row in rows) == 22
    assert sum(row["prompts"] for row in rows) == 10


def test_evaluation_prompts_that_do_not_fit_are_told(tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(
        tiny_model_dir,
        sampler__max_new_tokens=250,
        task__overlong="skip",
        policy="grpo",
        eval={"every": 2, "pool": True, "prompts": 32, "samples": 2},
    )
    trainer = Trainer(config, tmp_path / "run")
    # 10 of the 32 prompts have no more than the 6 tokens that there is room for.
    assert trainer.notes == ("22 prompts of the evaluation 'pool' left out: longer than the context",)
    assert [len(each.prompts) for each in trainer.evals] == [10]
    trainer.close()


def test_order_shows_each_prompt_once_an_epoch() -> None:
    order = DataOrder(10, 3, seed=1)
    epochs = [np.concatenate([order.batch(3 * epoch + i) for i in range(3)]) for epoch in range(4)]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 9
    assert len({tuple(epoch) for epoch in epochs}) == 4
    np.testing.assert_array_equal(DataOrder(10, 3, seed=1).batch(7), epochs[2][3:6])


def test_two_processes_train_as_one(tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = {"every": 3, "pool": True, "prompts": 5, "samples": 2}
    # Three responses at a time to each of seven prompts: a number that two processes can't share evenly.
    policy = {"preset": "reinforce-ada-balance", "samples": 3, "rounds": 4}
    config = small_config(tiny_model_dir, train__steps=3, train__prompts=7, eval=evaluation, policy=policy)
    requests: list[list[int]] = [[]]
    ask = Allocator.ask

    def ask_and_count(allocator: Allocator, *, again: bool = False) -> Request:
        request = ask(allocator, again=again)
        if again:
            return request
        # An empty request ends the step.
        requests[-1].append(len(request)) if request else requests.append([])
        return request

    with monkeypatch.context() as patch:
        patch.setattr(Allocator, "ask", ask_and_count)
        Trainer(config, tmp_path / "one").run()
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config.model_dump()), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "llm", "train", str(file), "--out", str(tmp_path / "two"), "--threads", "1"],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "two" / "run.json").read_text())["starts"][0]["processes"] == 2
    one, two = rows_of(tmp_path / "one"), rows_of(tmp_path / "two")
    assert len(one) == len(two) == 5
    for ours, theirs in zip(one, two, strict=True):
        if "eval" in ours:
            assert theirs["eval"]["pool"]["pass_rate"] == ours["eval"]["pool"]["pass_rate"]
            continue
        for key in ("responses", "tokens", "pool_reward", "selected_reward", "kept", "updates", "rounds"):
            assert theirs[key] == ours[key], key
        for key in ("loss", "entropy", "grad_norm"):
            assert theirs[key] == pytest.approx(ours[key], rel=1e-4, abs=1e-6), key
        assert ours["padding"] == 0
    # Where two share an odd number of responses, one of them waits for the other's last.
    padding = [sum(size % 2 for size in rounds) for rounds in requests[:3]]
    assert sum(padding) > 0
    assert [row["padding"] for row in two if "eval" not in row] == padding


@pytest.mark.parametrize("where", ["gradient", "sampling"])
def test_weights_that_diverge_end_the_run_with_an_error_of_its_own(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    config = small_config(tiny_model_dir)
    trainer = Trainer(config, tmp_path / "run")
    if where == "gradient":
        monkeypatch.setattr("llm.update.objective", lambda *args, **_: (args[0] * math.inf, args[0] > 0))
        message = r"norm of the gradient is (nan|inf) in step 0: .*smaller train.learning_rate \(now 0.001\)"
    else:
        with torch.no_grad():
            trainer.model.lm_head.weight.fill_(math.nan)
        message = "logits are not finite, .* diverged. Go back to an earlier checkpoint"
    with pytest.raises(DivergedError, match=message):
        trainer.run()
    assert not issubclass(DivergedError, InputError)


def test_a_run_that_diverges_ends_the_command_with_code_1(tiny_model_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    # A step so large that nothing finite is left after it.
    config = small_config(tiny_model_dir, train__learning_rate=1e30, train__warmup_steps=0)
    file.write_text(to_toml(config.model_dump()), encoding="utf-8")
    done = CliRunner().invoke(app, ["train", str(file), "--out", str(tmp_path / "run")])
    assert done.exit_code == 1, done.output
    assert "diverged" in done.stderr
    assert "Traceback" not in done.stderr
    mistaken = CliRunner().invoke(app, ["train", str(tmp_path / "nowhere.toml"), "--out", str(tmp_path / "run")])
    assert mistaken.exit_code == 2
    assert "does not exist" in mistaken.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"path": "nowhere"}}, "model directory 'nowhere' does not exist"),
        ({"train__prompts": 64}, "64, but the task has 32 prompts"),
        ({"task__options": {"size": 0}}, "no prompt|empty"),
        ({"policy": "grpoo"}, "did you mean 'grpo'"),
    ],
)
def test_bad_input(tiny_model_dir: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Trainer(small_config(tiny_model_dir, **changes), tmp_path / "run")


def test_a_tokenizer_without_a_pad_token_is_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tmp_path / "model"
    load_model(tiny_model_dir).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(InputError, match=r"has no pad token. Set pad_token in its tokenizer_config.json"):
        Trainer(small_config(folder), tmp_path / "run")


def test_a_run_is_not_written_over_and_not_resumed_with_another_config(tiny_model_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    Trainer(small_config(tiny_model_dir, train__steps=2), out).run()
    with pytest.raises(InputError, match="holds a run; go on with it by --resume"):
        Trainer(small_config(tiny_model_dir), out)
    with pytest.raises(InputError, match=r"of another config: train.learning_rate was 0.001, now is 0.01"):
        Trainer(small_config(tiny_model_dir, train__learning_rate=0.01), out, resume=True)


def test_a_full_disk_leaves_the_last_good_checkpoint(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    config = small_config(tiny_model_dir)
    trainer = Trainer(config, out)
    save = torch.save
    saves: list[int] = []

    def full(value: Any, file: Any) -> None:
        saves.append(Path(getattr(file, "name", file)).name == "optimizer.pt")
        if sum(saves) == 3:
            raise OSError(28, "No space left on device")
        save(value, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*step 2 is untouched"):
        trainer.run()
    assert [each.name for each in sorted((out / "checkpoints").iterdir())] == ["step-00000000", "step-00000002"]
    monkeypatch.setattr(torch, "save", save)
    Trainer(config, out, resume=True).run()
    Trainer(config, tmp_path / "whole").run()
    assert rows_of(out) == rows_of(tmp_path / "whole")


def test_every_field_of_a_config_is_explained_by_the_command() -> None:
    shown = CliRunner().invoke(app, ["train", "--help"])
    assert shown.exit_code == 0
    for section in RunConfig.model_fields.values():
        inner = section.annotation
        for name, field in getattr(inner, "model_fields", {}).items():
            assert name in shown.output
            assert field.description, name
            assert field.description.endswith("."), name


def test_errors_of_the_package_are_its_own() -> None:
    assert issubclass(CheckpointError, AdaBanditError)
