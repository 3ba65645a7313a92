"""What memory a run needs, estimated from its config before anything is loaded.

An estimate of the largest parts, made so that what can't fit is told before hours are spent on it: it counts the
tensors of a decoder of the usual kind (attention and a gated feed-forward layer), and neither fragments, nor
libraries, nor what the machine's other processes take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from llm.config import RunConfig
from llm.models import check_directory

__all__ = ["Need", "Shape", "check_memory", "estimate_memory", "model_shape", "room"]

_GIB = 2**30
_FLOAT32 = 4


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that its memory depends on."""

    parameters: int
    """Numbers in its weights, tied ones once."""
    vocabulary: int
    """Tokens that there are."""
    hidden: int
    """Width of a hidden state."""
    inner: int
    """Width of the feed-forward layer."""
    layers: int
    """Blocks."""
    keys: int
    """Width of a token's keys in a layer, all heads together; its values are as wide."""
    context: int
    """Tokens that it can hold."""


@dataclass(frozen=True)
class Need:
    """Bytes that a run needs at its peak, by part."""

    parts: Mapping[str, float]
    """Bytes by what they are for."""

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        """Show the parts in GiB, the largest first."""
        shown = sorted(self.parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {size / _GIB:.1f}" for name, size in shown if size >= 0.05 * _GIB)


def model_shape(path: str | Path) -> Shape:
    """Return the sizes of the model in a directory; no weights are read.

    Raises
    ------
    InputError
        If the directory holds no model's config.
    """
    folder = check_directory(path)
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        msg = f"the model in {str(path)!r} can't be loaded: {type(error).__name__}: {first}"
        raise InputError(msg) from error
    config = config.get_text_config()
    heads = int(getattr(config, "num_attention_heads", None) or 1)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return Shape(
        parameters=sum(each.numel() for each in model.parameters()),
        vocabulary=int(config.vocab_size),
        hidden=int(config.hidden_size),
        inner=int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size),
        layers=int(config.num_hidden_layers),
        keys=int(getattr(config, "num_key_value_heads", None) or heads) * width,
        context=int(getattr(config, "max_position_embeddings", None) or 0),
    )


def estimate_memory(config: RunConfig, shape: Shape, gpu_bytes: float = 0.0) -> Need:
    """Return what a run needs at its peak.

    Parameters
    ----------
    config
        The run.
    shape
        The model's sizes.
    gpu_bytes
        Memory of the GPU, of which vLLM takes its share; 0 on a CPU, where it has a cache of its own size.
    """
    train, sampler = config.train, config.sampler
    own = _FLOAT32 if config.model.dtype == "float32" else 2
    computed = 2 if config.model.autocast else own
    static = {
        "weights": own * shape.parameters,
        "gradients": own * shape.parameters,
        "optimizer": 2 * own * shape.parameters,
    }
    if config.model.autocast and own > computed:
        static["weights in bfloat16"] = computed * shape.parameters
    # A micro-batch holds a row at the least.
    longest = sampler.max_new_tokens + min(shape.context or sampler.max_new_tokens, 2 * sampler.max_new_tokens)
    tokens = max(train.micro_tokens, min(longest, shape.context or longest))
    # What a block keeps of a token: both norms' inputs and outputs, queries, keys and values before and after
    # rotation, attention's output and its projection; gate, its activation, the other factor and the product.
    block = (6 * shape.hidden * own) + (4 * shape.hidden + 4 * shape.keys + 4 * shape.inner) * computed
    kept = shape.hidden * own
    checkpointed = config.model.gradient_checkpointing
    activations = tokens * (shape.layers * kept + block if checkpointed else shape.layers * (kept + block))
    # Two tiles, their cast and a hidden state and its gradient; the gradient of the weight before it is added.
    tile = max(train.head_tile, shape.vocabulary)
    head = (2 * _FLOAT32 + computed) * tile + 2 * own * tokens * shape.hidden
    head += (_FLOAT32 + computed) * shape.vocabulary * shape.hidden
    update = {"activations": activations, "output layer": head}
    if sampler.kind == "vllm":
        sampled = 2 if sampler.dtype == "bfloat16" else own
        on_cpu = sampler.cache_gib * _GIB + sampled * shape.parameters
        share = sampler.memory_share * gpu_bytes if gpu_bytes else on_cpu
        return Need({**static, **update, "vLLM": share})
    # The transformers sampler shares the weights, and its cache is gone when the update begins.
    width = 2 * shape.layers * shape.keys * computed
    cache = sampler.batch_size * min(longest, shape.context or longest) * width
    logits = 2 * _FLOAT32 * sampler.batch_size * shape.vocabulary
    if sampler.kind == "transformers" and cache + logits > sum(update.values()):
        update = {"sampler": cache + logits}
    return Need(static | update)


def room(device: str) -> tuple[float, float]:
    """Return the bytes that a device has free, 0 where that can't be told, and all bytes of it if it is a GPU, else 0.

    On a CPU they are what the system says to be available without swapping.
    """
    import torch

    if device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info(device)
        return float(free), float(total)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
        available = 1024.0 * sizes["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return 0.0, 0.0
    return available, 0.0


def check_memory(config: RunConfig, device: str, processes: int = 1) -> str:
    """Return a warning where a run seems not to fit, empty where it does or nothing can be told.

    Parameters
    ----------
    config
        The run.
    device
        The device in use.
    processes
        Processes that train together; on a CPU all of them share its memory.

    Raises
    ------
    InputError
        If it seems not to fit, unless `train.check_memory` is false.
    """
    there, gpu = room(device)
    if there <= 0:
        return ""
    there /= 1 if gpu else processes
    need = estimate_memory(config, model_shape(config.model.path), gpu)
    if need.total <= there:
        return ""
    text = (
        f"this run needs about {need.total / _GIB:.1f} GiB of memory{' a process' if processes > 1 else ''}, and "
        f"{there / _GIB:.1f} GiB are free for it on the {'GPU' if gpu else 'CPU'}. In GiB: "
        f"{need}. Less: train.micro_tokens (now {config.train.micro_tokens}), train.head_tile (now "
        f"{config.train.head_tile}), sampler.batch_size, sampler.memory_share, or model.gradient_checkpointing = true"
    )
    if not config.train.check_memory:
        return text
    msg = f"{text}; train.check_memory = false goes on anyway"
    raise InputError(msg)
