"""GRPOConfig's options: stock TRL, the policy `grpo` and an adaptive one, side by side."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import IterableDataset

from tests.adapters import tiny

GRPO = {"scale_rewards": "group"}
OPTIONS: dict[str, dict[str, Any]] = {
    **{f"loss {name}": {"loss_type": name} for name in ("grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo")},
    "loss luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "sequence level": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "bf16, checkpointing": {"bf16": True, "gradient_checkpointing": True},
    "reference model that follows": {"beta": 0.1, "sync_ref_model": True, "ref_model_sync_steps": 1},
    "kl, corrected": {"beta": 0.1, "use_bias_correction_kl": True, "num_iterations": 2, "max_steps": 4},
    "entropy bonus": {"entropy_coef": 0.05},
    "adaptive entropy": {"use_adaptive_entropy": True, "entropy_target": 9.0, "entropy_coef": 0.01},
    "entropy quantile": {"top_entropy_quantile": 0.5},
    "off-policy mask": {"off_policy_mask_threshold": 0.0, "num_iterations": 2, "max_steps": 4, "learning_rate": 0.05},
    "scale by batch": {"scale_rewards": "batch"},
    "clipping": {"epsilon": 0.1, "epsilon_high": 0.3, "delta": 2.0, "num_iterations": 2, "max_steps": 4},
    "padding": {"pad_to_multiple_of": 8},
    "sampling": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1},
    "generation_kwargs": {"generation_kwargs": {"typical_p": 0.9}},
    "no shuffling": {"shuffle_dataset": False},
    "eval": {"eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 2},
}


def run(folder: Path, kind: type, options: dict[str, Any], data: Any = None, **keywords: Any) -> Any:
    folder.mkdir(exist_ok=True)
    # TRL loads the reference model from where the model came from.
    tiny.model().save_pretrained(folder / "model")
    config = tiny.config(folder, **GRPO | options)
    if "eval_strategy" in options:
        keywords["eval_dataset"] = tiny.prompts(4)
    trainer = kind(
        str(folder / "model"),
        keywords.pop("seen", None) or tiny.Seen(),
        config,
        data or tiny.prompts(),
        processing_class=tiny.tokenizer(),
        **keywords,
    )
    trainer.train()
    return trainer


def same(a: Any, b: Any) -> bool:
    pairs = zip(a.model.parameters(), b.model.parameters(), strict=True)
    return a.losses == b.losses and all(torch.equal(x, y) for x, y in pairs)


def check_adaptive(trainer: Any, seen: tiny.Seen) -> None:
    """Check every row of the loss against its pool: one prompt comes up once in these runs."""
    assert all(math.isfinite(loss) for loss in trainer.losses)
    pools = tiny.pools(call for call in seen.calls)
    found = 0
    for row in tiny.rows(trainer):
        pool = pools[row["digit"]]
        rewards = {entry[2]: entry[3] for entry in pool}
        if row["in_loss"]:
            mean = np.mean([entry[3] for entry in pool])
            assert row["advantage"] == pytest.approx(rewards[row["tokens"]] - mean, abs=1e-6)
            found += 1
    assert found > 0


@pytest.mark.parametrize("name", OPTIONS)
def test_grpo_is_stock_and_balance_is_by_its_pools(tmp_path: Path, name: str) -> None:
    options = OPTIONS[name]
    stock, grpo = (
        run(tmp_path / kind.__name__, kind, options, **keywords)
        for kind, keywords in ((tiny.Stock, {}), (tiny.Adaptive, {"policy": "grpo"}))
    )
    assert same(stock, grpo)
    seen = tiny.Seen()
    balance = run(tmp_path / "balance", tiny.Adaptive, options, policy="reinforce-ada-balance", seen=seen)
    if name == "eval":
        # The first call of every evaluation holds its rows; none of them is in a pool.
        assert len(tiny.logged(balance, "eval_reward")) == len(tiny.logged(grpo, "eval_reward")) == 2
        assert not [key for entry in balance.state.log_history for key in entry if key.startswith("eval_ada")]
        return
    check_adaptive(balance, seen)
    if name == "off-policy mask":
        assert max(tiny.logged(balance, "ada/off_policy_rows")) > 0
        assert max(tiny.logged(grpo, "ada/off_policy_rows")) > 0
    else:
        assert not tiny.logged(balance, "ada/off_policy_rows")
    if name == "adaptive entropy":
        assert tiny.logged(balance, "entropy_coef") == tiny.logged(stock, "entropy_coef")


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_lora_with_and_without_a_reference(tmp_path: Path, beta: float) -> None:
    from peft import LoraConfig

    def lora() -> Any:
        return LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")

    options = {"beta": beta, "learning_rate": 0.05}
    stock = run(tmp_path / "stock", tiny.Stock, options, peft_config=lora())
    grpo = run(tmp_path / "grpo", tiny.Adaptive, options, policy="grpo", peft_config=lora())
    assert same(stock, grpo)
    seen = tiny.Seen()
    balance = run(
        tmp_path / "balance", tiny.Adaptive, options, policy="reinforce-ada-balance", peft_config=lora(), seen=seen
    )
    check_adaptive(balance, seen)
    assert [kl > 0 for kl in tiny.logged(balance, "kl")[1:]] == ([True] if beta else [])


def test_iterable_data(tmp_path: Path) -> None:
    def stream() -> Any:
        for i in range(8):
            yield {"prompt": f"{i} =", "digit": i}

    trainers = [
        run(tmp_path / kind.__name__, kind, {}, IterableDataset.from_generator(stream), **keywords)
        for kind, keywords in ((tiny.Stock, {}), (tiny.Adaptive, {"policy": "grpo"}))
    ]
    assert same(*trainers)


BLOCKS = {"num_blocks": 24, "block_size": 16, "max_batch_tokens": 64}


@pytest.mark.parametrize("policy", ["grpo", "reinforce-ada-balance"])
def test_continuous_batching_with_few_blocks(tmp_path: Path, policy: str) -> None:
    seen = tiny.Seen()
    options = {"use_transformers_continuous_batching": True, "transformers_continuous_batching_config": BLOCKS}
    trainer = run(tmp_path, tiny.Adaptive, options | {"scale_rewards": "none"}, policy=policy, seen=seen)
    if policy == "grpo":
        assert [len(call) for call in seen.calls] == [16, 16]
        return
    check_adaptive(trainer, seen)
