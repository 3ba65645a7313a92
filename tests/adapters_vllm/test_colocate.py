"""A real vLLM under the adapter, in colocate mode on a CPU (`make test-vllm`).

Stock TRL can't run there: what stands in its way is replaced here, and nothing of the adapter. It is vLLM's start,
which trips over numba's compiler, and the sync of weights, as vLLM packs them on a CPU (they go by a folder here).
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
import vllm
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.generation import vllm_generation

from tests.adapters import tiny

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def engine(**options: Any) -> Any:
    """Start vLLM with numba's compiler out of sight: on a CPU it reads the names of all modules."""
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "llvmlite"}
    try:
        return vllm.LLM(**options, dtype="float32", enforce_eager=True, enable_chunked_prefill=False)
    finally:
        sys.modules.update(hidden)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("vllm")
    syncs: list[int] = []

    def sync(self: Any) -> None:
        syncs.append(1)
        self.model.save_pretrained(folder / "synced")
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder / "synced")})
        self.llm.reset_prefix_cache()

    torch.manual_seed(0)
    # vLLM wants heads of 32 channels on a CPU.
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tiny.WORDS),
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            tie_word_embeddings=False,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    model.save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_generation, "LLM", engine)
        patch.setattr(vllm_generation.VLLMGeneration, "sync_weights", sync)
        options = {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": 64, "learning_rate": 0.02}
        made = tiny.Adaptive(
            str(folder / "model"),
            tiny.Seen(),
            tiny.config(folder, **options),
            tiny.prompts(),
            processing_class=tiny.tokenizer(),
            policy="reinforce-ada-balance",
        )
        made.train()
    made.syncs = len(syncs)
    return made


def test_the_rows_of_the_loss_are_those_of_the_pools(trainer: Any) -> None:
    (seen,) = trainer.reward_funcs
    pools = tiny.pools(seen.calls)
    assert sum(map(len, pools.values())) == sum(tiny.logged(trainer, "ada/responses")) > 32
    rows = tiny.rows(trainer)
    assert len(rows) == 32
    for row in rows:
        rewards = {entry[2]: entry[3] for entry in pools[row["digit"]]}
        mean = np.mean([entry[3] for entry in pools[row["digit"]]])
        assert row["advantage"] == pytest.approx(rewards[row["tokens"]] - mean, abs=1e-6)
    # A prompt's responses differ: no seed is shared by its rows.
    assert all(len({entry[2] for entry in pool}) > len(pool) // 2 for pool in pools.values())


def test_log_probabilities_of_the_engine_are_those_of_the_model(trainer: Any) -> None:
    assert trainer.syncs == 2
    for batch in trainer.batches:
        ratio = batch["importance_sampling_ratio"]
        assert torch.allclose(ratio, torch.ones_like(ratio), atol=1e-3)
    assert tiny.logged(trainer, "ada/dropped_rows") == [0, 0]
