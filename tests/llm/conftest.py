"""A model with random weights, small enough to be made within a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CHARACTERS = "0123456789+-*=<> ,?m"
CONTEXT = 256


def make_model_dir(folder: Path, *, tied: bool = False, layers: int = 2, width: int = 64) -> Path:
    """Write a Qwen2 with random weights and a tokenizer of single characters."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    words = [*special.values(), *CHARACTERS]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=special["unk_token"]))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, padding_side="left", **special)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,  # vLLM on a CPU needs heads of 32 or more
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=tied,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        # Larger than usual, so that untrained tokens are far from equally likely.
        initializer_range=0.15,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = Qwen2ForCausalLM(config)
        # Biases start at zero; a mistake with one would not show.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(0, 0.15)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny Qwen2 with an output layer of its own."""
    return make_model_dir(tmp_path_factory.mktemp("untied"))


@pytest.fixture(scope="session")
def tiny_tied_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny Qwen2 whose output layer is its embedding."""
    return make_model_dir(tmp_path_factory.mktemp("tied"), tied=True)
