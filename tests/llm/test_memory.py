"""The estimate of a run's memory: by hand, against a measured update, and where it stops a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ada_bandit.errors import InputError
from llm.cli import app
from llm.config import RunConfig, read_config
from llm.logs import to_toml
from llm.memory import Shape, check_memory, estimate_memory, model_shape, room
from tests.llm.conftest import CONTEXT
from tests.llm.runs import small_config

ROOT = Path(__file__).parents[2]
GB = 1e9
# config.json of Qwen2.5-Math-1.5B; its embeddings are tied.
QWEN = Shape(1_543_714_304, vocabulary=151_936, hidden=1536, inner=8960, layers=28, keys=256, context=4096)


def test_sizes_are_those_of_the_model(tiny_model_dir: Path, tiny_tied_dir: Path) -> None:
    shape = model_shape(tiny_model_dir)
    assert (shape.vocabulary, shape.hidden, shape.inner, shape.layers) == (23, 64, 128, 2)
    assert (shape.keys, shape.context) == (32, CONTEXT)
    # By hand, a layer: queries 64 x 64 + 64, keys and values 2 (64 x 32 + 32), output 64 x 64, feed-forward
    # 3 x 64 x 128, two norms of 64; one more norm, and 23 x 64 for the embedding and for the output layer.
    layer = 64 * 64 + 64 + 2 * (64 * 32 + 32) + 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert shape.parameters == 2 * layer + 64 + 2 * 23 * 64
    assert model_shape(tiny_tied_dir).parameters == 2 * layer + 64 + 23 * 64


@pytest.mark.parametrize("name", ["paper-1.5b", "paper-1.5b-hard"])
def test_the_papers_settings_fit_the_card_that_they_are_meant_for(name: str) -> None:
    need = estimate_memory(read_config(f"llm/configs/{name}.toml"), QWEN, 80 * GB)
    # AdamW in float32: 16 bytes a parameter, and a copy in bfloat16.
    assert need.parts["weights"] + need.parts["gradients"] + need.parts["optimizer"] == 16 * QWEN.parameters
    assert need.parts["weights in bfloat16"] == 2 * QWEN.parameters
    assert need.parts["vLLM"] == pytest.approx(0.4 * 80 * GB)
    assert 16 * QWEN.parameters + 32 * GB < need.total < 80 * GB
    # All logits of eight rows of 3,072 tokens, seven times over in float32, could not.
    everything = read_config(f"llm/configs/{name}.toml", {"train.head_tile": 8 * 3072 * QWEN.vocabulary})
    assert estimate_memory(everything, QWEN, 80 * GB).total > 80 * GB


def test_the_estimate_grows_with_what_is_held() -> None:
    def total(**train: Any) -> float:
        model = {"path": "unused", "gradient_checkpointing": train.pop("checkpointing", False)}
        table = {"model": model, "task": {"kind": "digits"}, "train": train, "sampler": {"max_new_tokens": 64}}
        return estimate_memory(RunConfig.model_validate(table), QWEN).total

    assert total(micro_tokens=8192) < total(micro_tokens=16384)
    assert total(micro_tokens=16384, checkpointing=True) < total(micro_tokens=16384)
    assert total(head_tile=2**24) < total(head_tile=2**26)


@pytest.mark.torch
def test_a_run_that_cannot_fit_is_told_before_its_first_step(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm.memory.room", lambda _: (1e6, 0.0))
    with pytest.raises(
        InputError,
        match=r"needs about 0\.\d GiB of memory, and 0\.0 GiB are free for it on the CPU.*train\.micro_tokens",
    ):
        check_memory(small_config(tiny_model_dir), "cpu")
    file, out = tmp_path / "config.toml", tmp_path / "run"
    file.write_text(to_toml(small_config(tiny_model_dir, train__steps=1).model_dump()), encoding="utf-8")
    stopped = CliRunner().invoke(app, ["train", str(file), "--out", str(out)])
    assert stopped.exit_code == 2
    assert "train.check_memory = false" in stopped.stderr
    assert not (out / "metrics.jsonl").exists()
    gone_on = CliRunner().invoke(app, ["train", str(file), "--out", str(out), "--set", "train.check_memory=false"])
    assert gone_on.exit_code == 0, gone_on.output
    assert "needs about" in gone_on.output
    # Where nothing is known of the device, nothing is said.
    monkeypatch.setattr("llm.memory.room", lambda _: (0.0, 0.0))
    assert check_memory(small_config(tiny_model_dir), "mps") == ""


@pytest.mark.skipif(sys.platform != "linux", reason="MemAvailable is Linux's")
def test_room_on_a_cpu_is_what_is_available() -> None:
    there, gpu = room("cpu")
    assert 2**28 < there < 2**50
    assert gpu == 0


@pytest.mark.torch
def test_processes_share_a_cpu_and_not_a_gpu(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tiny_model_dir, sampler__kind="uniform")
    need = estimate_memory(config, model_shape(tiny_model_dir)).total
    monkeypatch.setattr("llm.memory.room", lambda _: (1.5 * need, 0.0))
    assert check_memory(config, "cpu") == ""
    with pytest.raises(InputError, match=r"GiB of memory a process, and .* GiB are free for it on the CPU"):
        check_memory(config, "cpu", 2)
    monkeypatch.setattr("llm.memory.room", lambda _: (1.5 * need, 2 * need))
    assert check_memory(config, "cuda:0", 2) == ""


_MEASURE = r"""
import re, sys
from pathlib import Path
import numpy as np, torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from llm.config import RunConfig
from llm.distributed import World
from llm.types import KeptResponse, Response
from llm.update import Update
torch.set_num_threads(1)
config = Qwen2Config(vocab_size=4096, hidden_size=128, intermediate_size=512, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=1024, tie_word_embeddings=True)
table = {"model": {"path": "unused"}, "task": {"kind": "digits"}, "train": {"prompts": 64, "mini_batch": 64,
    "micro_batch": 64, "micro_tokens": int(sys.argv[2]), "head_tile": 2**22}}
update = Update(Qwen2ForCausalLM(config), RunConfig.model_validate(table), 0, "cpu", World())
make = lambda size: Response(np.arange(size) % 4096, -np.ones(size), "", "stop")
update.step(0, [KeptResponse(0, [1], make(1), 1.0)], 64)
# ru_maxrss would begin at what the parent process held.
peak = lambda: 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
update.step(1, [KeptResponse(i, [1], make(255), 1.0) for i in range(int(sys.argv[1]))], 64)
print(peak() - before)
"""


def measured(rows: int, micro_tokens: int) -> int:
    command = [sys.executable, "-c", _MEASURE, str(rows), str(micro_tokens)]
    # Freed tensors go back to the system at once: what is measured is what is held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_an_update_takes_what_is_estimated_and_no_more_with_more_rows() -> None:
    # 16 rows of 256 tokens at a time.
    sixteen, sixty_four = measured(16, 4096), measured(64, 4096)
    shape = Shape(0, vocabulary=4096, hidden=128, inner=512, layers=4, keys=128, context=1024)
    sampler = {"kind": "uniform", "max_new_tokens": 255}
    table = {"model": {"path": "unused"}, "task": {"kind": "digits"}, "sampler": sampler}
    config = RunConfig.model_validate({**table, "train": {"micro_tokens": 4096, "head_tile": 2**22}})
    need = estimate_memory(config, shape)
    assert 0.5 < sixteen / need.total < 1.5
    # Four micro-batches, one after the other.
    assert sixty_four < 1.1 * sixteen
    # All of them at once.
    assert measured(64, 2**20) > 2 * sixteen
