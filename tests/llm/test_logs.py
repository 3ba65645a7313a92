from __future__ import annotations

import builtins
import errno
import json
import math
import platform
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit.errors import InputError
from llm.config import RunConfig, read_config
from llm.errors import LogError
from llm.logs import MetricsLog, read_metrics, run_metadata, to_toml, write_run_files
from tests.llm.rows import ROW


def lines(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


def write_steps(log: MetricsLog, steps: range) -> None:
    for step in steps:
        log.write(step, {"eval": {"hard": {"pass_rate": step / 10}}})
        log.write(step, {"loss": step / 4})


def test_a_row_is_one_line_of_json(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        log.write(3, ROW | {"ratio_max": math.inf})
        # Readers see it while the run goes on.
        assert len(lines(tmp_path)) == 1
        log.sync()
    expected = ROW | {"step": 3, "selected_reward": None, "ratio_max": None}
    assert read_metrics(tmp_path) == [expected]
    assert lines(tmp_path)[0].startswith('{"step": 3, "policy": "grpo", ')


def test_a_resumed_run_computes_its_rows_again(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        write_steps(log, range(6))
    whole = lines(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(whole[-1][:9])
    # Half a line is no row.
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    with MetricsLog(tmp_path, resume_from=4) as log:
        assert lines(tmp_path) == whole[:8]
        write_steps(log, range(4, 6))
    assert lines(tmp_path) == whole


def test_a_run_killed_before_its_first_checkpoint_starts_from_nothing(tmp_path: Path) -> None:
    MetricsLog(tmp_path, resume_from=0).write(0, {"loss": 1})
    MetricsLog(tmp_path, resume_from=0).write(0, {"loss": 2})
    assert read_metrics(tmp_path) == [{"step": 0, "loss": 2}]


def test_a_new_run_keeps_off_the_rows_of_another(tmp_path: Path) -> None:
    MetricsLog(tmp_path).write(0, {"loss": 1})
    with pytest.raises(InputError, match="holds the rows of another run; resume that one or give another folder"):
        MetricsLog(tmp_path)
    assert read_metrics(tmp_path) == [{"step": 0, "loss": 1}]


@pytest.mark.parametrize("bad", ["nonsense", "[1, 2]", '{"loss": 1}', '{"step": null}', ""])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, bad: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 0}}\n{bad}\n{{"step": 1}}\n')
    with pytest.raises(InputError, match=r"line 2 of .*metrics.jsonl' is no row of a run: .*; delete that line"):
        read_metrics(tmp_path)
    with pytest.raises(InputError, match="line 2"):
        MetricsLog(tmp_path, resume_from=5)
    assert len(lines(tmp_path)) == 3


def test_a_folder_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere' holds no metrics\.jsonl; give the folder of a run"):
        read_metrics(tmp_path / "nowhere")
    (tmp_path / "metrics.jsonl").write_text('{"step": 0')
    with pytest.raises(InputError, match="holds no complete row yet"):
        read_metrics(tmp_path)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetricsLog(tmp_path)
    log.write(0, {"loss": 1})

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(LogError, match=r"can't write a row to .*: No space left on device\. Free space there"):
        log.write(1, {"loss": 2})


@pytest.mark.torch
def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with MetricsLog(tmp_path, tensorboard=True) as log:
        for step in range(5):
            log.write(step, ROW | {"loss": step})
    with MetricsLog(tmp_path, tensorboard=True, resume_from=3) as log:
        for step in range(3, 5):
            log.write(step, ROW | {"loss": 10 * step})
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    names = {"loss", "pool_reward", "responses", "tokens", "signal_fraction", "time/sample", "time/total"}
    assert set(board.Tags()["scalars"]) == names
    # What is computed again takes the place of what was there.
    assert [(each.step, each.value) for each in board.Scalars("loss")] == [(0, 0), (1, 1), (2, 2), (3, 30), (4, 40)]
    assert [each.value for each in board.Scalars("time/total")] == [2.25] * 5


def test_tensorboard_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    normal = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch.utils.tensorboard":
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return normal(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"log.tensorboard needs .* \(No module named 'tensorboard'\); install"):
        MetricsLog(tmp_path, tensorboard=True)


def make_config(**changes: Any) -> RunConfig:
    table = {
        "seed": 7,
        "policy": {"preset": "grpo", "group_size": 16},
        "model": {"path": "models/tiny", "device": "cpu"},
        "task": {"kind": "reasoning-gym", "families": {"chain_sum": {"min_terms": 2}, "a b": {"c": [1, 2.5]}}},
    }
    return RunConfig.model_validate(table | changes)


@pytest.mark.torch
def test_a_runs_files_tell_all_that_a_result_depends_on(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    config = make_config()
    write_run_files(tmp_path, config)
    assert read_config(tmp_path / "config.toml") == config
    (first,) = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert first["step"] == 0
    assert first["seed"] == 7
    assert first["python"] == ".".join(map(str, sys.version_info[:3]))
    assert first["packages"]["torch"] == version("torch")
    assert first["packages"]["ada_bandit"] == version("ada_bandit")
    assert first["device"] == "cpu"
    assert first["device_name"] == platform.machine()
    assert first["threads"] == torch.get_num_threads()
    # A resumed run adds its start, on whatever machine that is.
    write_run_files(tmp_path, make_config(train={"steps": 9}), device="cpu", step=5)
    starts = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert [each["step"] for each in starts] == [0, 5]
    assert starts[0] == first
    assert read_config(tmp_path / "config.toml").train.steps == 9
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"KeyError.*; move it away"):
        write_run_files(tmp_path, config)


@pytest.mark.torch
def test_the_commit_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path))

    def run(*command: str) -> str:
        done = subprocess.run((*git, *command), check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("init", "--quiet")
    (tmp_path / "logs.py").write_text("1")
    run("add", ".")
    run("commit", "--quiet", "--message", "one")
    monkeypatch.setattr("llm.logs.__file__", str(tmp_path / "logs.py"))
    commit = run("rev-parse", "HEAD")
    assert run_metadata(make_config())["git"] == {"commit": commit, "dirty": False}
    (tmp_path / "logs.py").write_text("2")
    assert run_metadata(make_config())["git"] == {"commit": commit, "dirty": True}
    monkeypatch.setenv("PATH", "")
    assert run_metadata(make_config())["git"] is None


TOML = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), TOML, max_size=4))
def test_a_table_comes_back_from_toml(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_what_toml_has_no_word_for_is_named() -> None:
    with pytest.raises(InputError, match=r"a config holds .*; got None"):
        to_toml({"a": {"b": None}})


def test_the_folder_of_an_experiment_points_to_its_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(InputError, match=r"holds no metrics.jsonl; .*, such as those in '.*runs'"):
        read_metrics(tmp_path)
