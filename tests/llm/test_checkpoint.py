from __future__ import annotations

import errno
import itertools
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ada_bandit import Allocator, PassRateMemory, Policy
from ada_bandit.errors import InputError, ProtocolError
from ada_bandit.programs.folders import write_file
from ada_bandit.uniforms import uniform
from llm.checkpoint import Checkpoints, _read_state, _write_state
from llm.errors import CheckpointError
from llm.types import Response

pytestmark = pytest.mark.torch

CONFIG = {
    "seed": 1,
    "policy": {"preset": "grpo", "group_size": 4},
    "train": {"steps": 10, "learning_rate": 1e-3, "betas": (0.9, 0.999)},
    "checkpoint": {"keep": 2},
}
ROOT = Path(__file__).resolve().parents[2]


def same(one: Any, other: Any) -> bool:
    """Equal in type and value, to the bit."""
    if isinstance(one, Response):
        return isinstance(other, Response) and same(list(vars(one).values()), list(vars(other).values()))
    if isinstance(one, np.ndarray):
        alike = isinstance(other, np.ndarray) and one.shape == other.shape and one.dtype == other.dtype
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and one == other


def write_weights(step: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "model.bin").write_bytes(bytes([step % 256]) * 5000)
        (folder / "inner" / "optimizer.bin").write_bytes(bytes([step % 256]) * 3000)

    return write


def write_nothing(_folder: Path) -> None:
    pass


def save(checkpoints: Checkpoints, step: int) -> Path:
    return checkpoints.save(step, write_weights(step), {"total": step * 7, "array": np.arange(step)})


def assert_complete(checkpoints: Checkpoints, step: int) -> None:
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == step
    assert latest.state["total"] == step * 7
    assert latest.state["array"].tolist() == list(range(step))
    assert (latest.path / "model.bin").read_bytes() == bytes([step]) * 5000
    assert (latest.path / "inner" / "optimizer.bin").read_bytes() == bytes([step]) * 3000


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    npst.arrays(st.sampled_from(["f8", "f4", "i8", "u1", "?", "<U3"]), npst.array_shapes(min_dims=0, min_side=0)),
)


@given(
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner), st.dictionaries(st.text(), inner), st.dictionaries(st.integers(), inner)
        ),
        max_leaves=10,
    )
)
def test_what_is_stored_comes_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "state.pt"
    write_file(path, lambda file: _write_state(file, {"value": value}))
    assert same({"value": value}, _read_state(path))


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    response = Response(np.array([3, 2**40]), np.array([-0.1, -np.inf]), "é\n", "length")
    state = {
        "pair": (1, 2.5),
        "nan": math.nan,
        "by number": {7: response, 3: None},
        "scalar": np.float32(0.1),
        "#": "a key like a mark",
        "counts": np.array([[0.1, np.nan], [1e-300, -0.0]]),
    }
    path = Checkpoints(tmp_path / "new" / "folder", 2, CONFIG).save(12, write_nothing, state)
    assert path == tmp_path / "new" / "folder" / "step-00000012"
    latest = Checkpoints(tmp_path / "new" / "folder", 2, CONFIG).latest()
    assert latest is not None
    assert (latest.step, latest.path) == (12, path)
    assert same(state, latest.state)


def test_a_value_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a state holds .* got <object object"):
        Checkpoints(tmp_path, 1, CONFIG).save(1, write_nothing, {"a": [object()]})
    with pytest.raises(InputError, match=r"got array\(\[None\]"):
        Checkpoints(tmp_path, 1, CONFIG).save(1, write_nothing, {"a": np.array([None])})
    assert names(tmp_path) == []


def test_the_latest_k_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2, CONFIG)
    assert checkpoints.latest() is None
    assert Checkpoints(tmp_path / "nowhere", 2, CONFIG).latest() is None
    for step in (0, 5, 10, 15):
        save(checkpoints, step)
    assert names(tmp_path) == ["step-00000010", "step-00000015"]
    assert_complete(checkpoints, 15)
    with pytest.raises(InputError, match="keep must be a whole number of at least 1; got 0"):
        Checkpoints(tmp_path, 0, CONFIG)


def test_what_a_killed_run_left_half_written_is_ignored_and_cleared(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2, CONFIG)
    save(checkpoints, 5)
    for name in ("step-00000010.partial", "step-00000015.partial"):
        shutil.copytree(tmp_path / "step-00000005", tmp_path / name)
        (tmp_path / name / "left over").touch()
    assert_complete(checkpoints, 5)
    path = save(checkpoints, 10)
    assert_complete(checkpoints, 10)
    assert not (path / "left over").exists()
    assert names(tmp_path) == ["step-00000005", "step-00000010"]


def _cut_state(path: Path) -> None:
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text[: len(text) // 2])


def _cut_weights(path: Path) -> None:
    os.truncate(path / "model.bin", 4999)


def _flip_bit(path: Path) -> None:
    data = bytearray((path / "state.pt").read_bytes())
    data[data.index(b"\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0")] ^= 1
    (path / "state.pt").write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: (path / "state.json").unlink(), "No such file"),
        (_cut_state, "Expecting|Unterminated|delimiter"),
        (lambda path: (path / "state.json").write_text("[1]"), "list indices"),
        (_cut_weights, "model.bin has 4999 bytes in place of 5000"),
        (lambda path: (path / "inner" / "optimizer.bin").unlink(), "optimizer.bin"),
        (_flip_bit, "CRC"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_told(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, 1, CONFIG, say=said.append)
    save(checkpoints, 8)
    shutil.copytree(tmp_path / "step-00000008", tmp_path / "keep")
    path = save(checkpoints, 20)
    (tmp_path / "keep").rename(tmp_path / "step-00000008")
    damage(path)
    assert_complete(checkpoints, 8)
    assert len(said) == 1
    assert "step-00000020' can't be read and is passed over" in said[0]
    assert re.search(reason, said[0])
    # The damaged one is later, but doesn't push out what the resumed run saves.
    save(checkpoints, 12)
    assert_complete(checkpoints, 12)
    # Once the run is there, it is replaced.
    save(checkpoints, 20)
    said.clear()
    assert_complete(checkpoints, 20)
    assert said == []
    assert names(tmp_path) == ["step-00000020"]


def test_no_readable_checkpoint_is_an_error_and_no_new_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path, 2, CONFIG)
    for step in (1, 2):
        (save(checkpoints, step) / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"none of the 2 checkpoints in .* can be read"):
        checkpoints.latest()
    assert capsys.readouterr().err.count("warning: the checkpoint") == 2


def test_a_checkpoint_of_another_config_is_refused(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path, 2, CONFIG), 3)
    other = {
        "seed": 2,
        "policy": "reinforce-ada-pos",
        "train": {"steps": 10, "learning_rate": 1e-3, "betas": [0.9, 0.999]},
        "checkpoint": {"keep": 2},
    }
    with pytest.raises(InputError) as caught:
        Checkpoints(tmp_path, 2, other).latest()
    message = str(caught.value)
    assert "is of another config: seed was 1, now is 2; policy.preset was 'grpo', now is 'nothing'" in message
    assert "policy was 'nothing', now is 'reinforce-ada-pos'" in message
    assert "betas" not in message
    assert "another output folder" in message


def test_what_no_step_depends_on_may_change(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path, 2, CONFIG), 3)
    changed = {
        **CONFIG,
        "train": {"steps": 99, "learning_rate": 1e-3, "betas": (0.9, 0.999)},
        "checkpoint": {"keep": 5},
        "log": {"tensorboard": True},
        "eval": {"every": 3},
    }
    assert_complete(Checkpoints(tmp_path, 2, changed), 3)


@pytest.mark.parametrize("preset", ["grpo", "reinforce-ada-balance", "reinforce-ada-pos"])
def test_a_step_goes_on_after_its_rounds_are_loaded(tmp_path: Path, preset: str) -> None:
    def play(allocator: Allocator, rounds: int) -> list[list[int]]:
        asked = []
        for _ in range(rounds):
            request = allocator.ask()
            asked.append(request.ids.tolist())
            rates = np.linspace(0, 1, 20)[request.prompts]
            allocator.tell(request.ids, uniform(9, 0, request.prompts, request.draws) < rates)
        return asked

    checkpoints = Checkpoints(tmp_path, 2, CONFIG)
    save(checkpoints, 4)
    whole, half = (Allocator(Policy.preset(preset), 20, seed=5) for _ in range(2))
    before = 1
    play(half, before)
    checkpoints.save_round(4, before, {"allocator": half.state_dict(), "rewards": {3: 1.0, 1: math.nan}})
    loaded = checkpoints.load_round(4)
    assert loaded is not None
    assert same(half.state_dict(), loaded["allocator"])
    assert same({3: 1.0, 1: math.nan}, loaded["rewards"])
    resumed = Allocator(Policy.preset(preset), 20, seed=5)
    resumed.load_state_dict(loaded["allocator"])
    assert play(resumed, 4) == play(whole, 5)[before:]
    assert resumed.groups().advantages.tolist() == whole.groups().advantages.tolist()


def test_a_memory_comes_back(tmp_path: Path) -> None:
    memory = PassRateMemory(decay=0.9)
    memory.update(["a", "b"], pos=[2, 0], neg=[2, 4])
    memory.update(["b"], pos=[1], neg=[3])
    checkpoints = Checkpoints(tmp_path, 1, CONFIG)
    checkpoints.save(1, write_nothing, memory.state_dict())
    latest = checkpoints.latest()
    assert latest is not None
    assert same(memory.state_dict(), latest.state)


def test_rounds_are_replaced_and_go_with_their_checkpoint(tmp_path: Path) -> None:
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, 1, CONFIG, say=said.append)
    with pytest.raises(ProtocolError, match="step 4 does not start at a checkpoint"):
        checkpoints.save_round(4, 1, {})
    save(checkpoints, 4)
    assert checkpoints.load_round(4) is None
    for number in (1, 2):
        checkpoints.save_round(4, number, {"number": number})
    assert checkpoints.load_round(4) == {"number": 2}
    assert_complete(checkpoints, 4)
    file = tmp_path / "step-00000004" / "round.pt"
    os.truncate(file, file.stat().st_size // 2)
    assert said == []
    assert checkpoints.load_round(4) is None
    assert len(said) == 1
    assert "sampled from its start" in said[0]
    save(checkpoints, 5)
    assert checkpoints.load_round(4) is None
    assert checkpoints.load_round(5) is None
    assert len(said) == 1


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def fail(file: Any) -> None:
        file.write(b"new, but")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, fail)
    assert path.read_text() == "old"
    write_file(path, lambda file: file.write(b"new"))
    assert path.read_text() == "new"
    assert names(tmp_path) == ["run.json"]


class _Failing:
    """Makes the operation of a number on files fail: `os` and `shutil` count them."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
        self.left, self.error = number, error
        for owner, name in ((os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "unlink"), (shutil, "rmtree")):
            patch.setattr(owner, name, self._counted(getattr(owner, name), name))

    def _counted(self, operation: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if name == "rmtree" and (Path(args[0]) / "model.bin").exists():
                    # Half of the folder is gone. (`remove` isn't counted.)
                    os.remove(Path(args[0]) / "model.bin")  # noqa: PTH107
                raise self.error
            return operation(*args, **kwargs)

        return counted


class Killed(BaseException):
    pass


@pytest.mark.parametrize("again", [False, True])
def test_a_kill_between_any_two_operations_leaves_a_complete_checkpoint(tmp_path: Path, *, again: bool) -> None:
    step = 2 if again else 3
    seen = set()
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        checkpoints = Checkpoints(folder, 1, CONFIG, say=pytest.fail)
        for old in (1, 2):
            save(checkpoints, old)
        with pytest.MonkeyPatch.context() as patch:
            failing = _Failing(patch, number, Killed())
            try:
                save(checkpoints, step)
            except Killed:
                pass
            else:
                break
        assert failing.left == 0
        latest = checkpoints.latest()
        assert latest is not None
        seen.add(latest.step)
        assert_complete(checkpoints, latest.step)
        # The run goes on.
        save(checkpoints, step)
        assert_complete(checkpoints, step)
        assert names(folder) == [f"step-{step:08d}"]
    assert seen == {2, step}
    # At least the four files, two folders and their parent that are forced to disk, the new folders and the rename.
    assert number > 10


def test_a_full_disk_at_any_moment_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    failures = 0
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        checkpoints = Checkpoints(folder, 2, CONFIG, say=pytest.fail)
        save(checkpoints, 1)
        with pytest.MonkeyPatch.context() as patch:
            _Failing(patch, number, OSError(errno.ENOSPC, "No space left on device"))
            try:
                save(checkpoints, 2)
                break
            except CheckpointError as error:
                message = str(error)
        failures += 1
        assert message.startswith(f"can't save into {str(folder)!r}: [Errno 28] No space left on device")
        assert "Free space" in message
        assert not list(folder.glob("*.partial"))
        # Only the last force of the parent folder can fail after the rename.
        last = 2 if (folder / "step-00000002").exists() else 1
        assert f"the checkpoint of step {last} is untouched" in message
        assert_complete(checkpoints, last)
    assert failures > 8


def test_an_error_that_is_no_disks_stays_what_it_is(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_bytes(b"1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Checkpoints(tmp_path, 1, CONFIG).save(1, write, {})
    assert names(tmp_path) == []


LIMITED = """
import resource, signal, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from llm.checkpoint import Checkpoints
from llm.errors import CheckpointError

# A file over the limit is an error of the write in place of a signal, as on a full disk.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
how, checkpoints = sys.argv[1], Checkpoints(Path(sys.argv[2]), 2, {})

def write(folder):
    tensors = {"weight": torch.ones(size)}
    if how == "torch":
        torch.save(tensors, folder / "model.bin")
    elif how == "safetensors":
        save_file(tensors, folder / "model.bin")
    else:
        (folder / "model.bin").write_bytes(b"1" * size)

size = 100
checkpoints.save(1, write, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
size = 300_000
try:
    checkpoints.save(2, write, {})
except CheckpointError as error:
    print(error)
"""


@pytest.mark.torch
@pytest.mark.parametrize("how", ["plain", "torch", "safetensors"])
def test_a_write_that_the_system_refuses_leaves_the_last_good_checkpoint(tmp_path: Path, how: str) -> None:
    pytest.importorskip("safetensors")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, how, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith(f"can't save into {str(tmp_path)!r}: ")
    assert "the checkpoint of step 1 is untouched. Free space there" in done.stdout
    assert names(tmp_path) == ["step-00000001"]
    latest = Checkpoints(tmp_path, 2, {}, say=pytest.fail).latest()
    assert latest is not None
    assert latest.step == 1


SAVING = """
import sys
from pathlib import Path
import numpy as np
from llm.checkpoint import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]), 2, {})
latest = checkpoints.latest()
step = 0 if latest is None else latest.step

def write(folder):
    for name in ("model", "optimizer"):
        (folder / name).write_bytes(bytes([step % 256]) * 200_000)

while True:
    step += 1
    checkpoints.save(step, write, {"step": step, "array": np.full(1000, step)})
    print("saved", flush=True)
    for number in (1, 2):
        checkpoints.save_round(step, number, {"number": number, "array": np.full(1000 * number, step)})
"""


def test_a_process_killed_at_random_moments_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    delays = uniform(1, 2, np.arange(8), np.zeros(8, dtype=np.int64)) * 0.1
    checkpoints = Checkpoints(tmp_path, 2, {}, say=pytest.fail)
    before = 0
    for delay in delays:
        command = (sys.executable, "-c", SAVING, str(tmp_path))
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as run:
            assert run.stdout is not None
            # What it prints later fits into the pipe's buffer.
            assert run.stdout.readline() == b"saved\n"
            time.sleep(delay)
            run.send_signal(signal.SIGKILL)
        latest = checkpoints.latest()
        assert latest is not None
        step = latest.step
        assert step > before
        before = step
        assert latest.state["array"].tolist() == [step] * 1000
        assert latest.state["step"] == step
        for name in ("model", "optimizer"):
            assert (latest.path / name).read_bytes() == bytes([step % 256]) * 200_000
        rounds = checkpoints.load_round(step)
        if rounds is not None:
            assert rounds["array"].tolist() == [step] * 1000 * rounds["number"]
