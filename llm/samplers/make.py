"""The sampler that a config describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from llm.config import SamplerConfig
from llm.models import load_model
from llm.samplers.transformers import TransformersSampler
from llm.samplers.uniform import UniformSampler
from llm.samplers.vllm import VLLMSampler
from llm.types import Sampler

__all__ = ["make_sampler"]


def make_sampler(
    config: SamplerConfig,
    model_path: str | Path,
    tokenizer: Any,
    *,
    model: Any = None,
    device: str = "cpu",
    seed: int = 0,
    temperature: float | None = None,
    max_new_tokens: int | None = None,
) -> Sampler:
    """Return the sampler that a config describes.

    Parameters
    ----------
    config
        The config.
    model_path
        Directory of the model; vLLM loads its first weights from there.
    tokenizer
        From `llm.models.load_tokenizer`.
    model
        The model that is trained. Without one, the weights in `model_path` are sampled from, in
        float32 on a CPU and bfloat16 elsewhere unless the config names a type.
    device
        Where to compute, as from `llm.models.choose_device`.
    seed
        Seed of vLLM's engine; what is sampled depends on the seed given to ``generate`` alone.
    temperature, max_new_tokens
        Used in place of the config's, as evaluation does.

    Raises
    ------
    InputError
        If the model, or vLLM, can't be loaded, or the config's type isn't one that the model can
        be sampled in.
    """
    temperature = config.temperature if temperature is None else temperature
    longest = config.max_new_tokens if max_new_tokens is None else max_new_tokens
    dtype = config.dtype if config.dtype != "auto" else _dtype_of(model, device)
    if config.kind == "uniform":
        return UniformSampler(len(tokenizer), longest, tokenizer)
    if config.kind == "vllm":
        return VLLMSampler(
            model_path,
            tokenizer,
            temperature=temperature,
            max_new_tokens=longest,
            dtype=dtype,
            seed=seed,
            cache_gib=config.cache_gib,
            memory_share=config.memory_share,
            check_tolerance=config.check_tolerance if config.check_sync else None,
        )
    return TransformersSampler(
        load_model(model_path, dtype, device) if model is None else model,
        tokenizer,
        temperature=temperature,
        max_new_tokens=longest,
        batch_size=config.batch_size,
        dtype=dtype,
    )


def _dtype_of(model: Any, device: str) -> str:
    if model is None:
        return "float32" if device == "cpu" else "bfloat16"
    name = str(model.dtype).removeprefix("torch.")
    if name not in {"float32", "bfloat16"}:
        msg = f"a model of type {name!r} can't be sampled from; load it as float32 or bfloat16"
        raise InputError(msg)
    return name
