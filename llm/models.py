"""Model directories: loading, the device, and from a prompt's text to its tokens."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import force
from llm.config import ModelConfig
from llm.types import Prompt

__all__ = [
    "check_directory",
    "choose_device",
    "context_length",
    "encode",
    "encode_all",
    "load_model",
    "load_tokenizer",
    "new_directory",
    "torch_dtype",
]


def check_directory(path: str | Path) -> Path:
    """Return the path of a model directory.

    Raises
    ------
    InputError
        If it is missing, or no model that transformers can load.
    """
    folder = Path(path)
    if not folder.is_dir():
        msg = (
            f"the model directory {str(path)!r} does not exist. Give the path of a directory with config.json, weights "
            "and tokenizer; 'python -m llm get-smollm2' and 'python -m llm make-tiny' make one without a network"
        )
        raise InputError(msg)
    if not (folder / "config.json").is_file():
        msg = f"the model directory {str(path)!r} holds no config.json, so it is no model that transformers can load"
        raise InputError(msg)
    return folder


@contextmanager
def new_directory(path: Path, option: str = "--out") -> Iterator[Path]:
    """Give an empty directory beside `path` that gets its name when all is written: half a model is never there.

    Raises
    ------
    InputError
        If there is something by the name already, or the directory can't be made.
    """
    # A link to nothing is in the way too, and so is what a path means that leads through a missing folder and back.
    place = path.resolve()
    if os.path.lexists(path) or place.exists():
        msg = f"{str(path)!r} is there already; remove it, or give another directory by {option}"
        raise InputError(msg)
    building = place.with_name(place.name + ".partial")
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
    except OSError as error:
        msg = f"the directory {str(path)!r} can't be made: {error.strerror}; give another one by {option}"
        raise InputError(msg) from error
    try:
        yield building
        for each in [*building.rglob("*"), building]:
            force(each)
        building.rename(place)
        force(place.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def choose_device(name: str = "auto") -> str:
    """Return the device to compute on: the one named, else CUDA, MPS or the CPU, the first there is.

    Raises
    ------
    InputError
        If the device that is named isn't there.
    """
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there.get(name.partition(":")[0], False):
        msg = f"the device {name!r} is not there; this machine has {', '.join(k for k, v in there.items() if v)}"
        raise InputError(msg)
    return name


def torch_dtype(name: str) -> Any:
    """Return torch's type of that name."""
    import torch

    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def load_model(path: str | Path, dtype: str = "float32", device: str = "cpu") -> Any:
    """Load a causal language model from a directory, in evaluation mode (no dropout); nothing is downloaded.

    Raises
    ------
    InputError
        If the directory is missing or holds no model that can be loaded.
    """
    folder = check_directory(path)
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    # Its bars, one a file read or written, would tear the run's own line apart.
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch_dtype(dtype), local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        msg = f"the model in {str(path)!r} can't be loaded: {type(error).__name__}: {first}"
        raise InputError(msg) from error
    return model.to(device).eval()


def load_tokenizer(path: str | Path) -> Any:
    """Load a tokenizer that knows its pad and end-of-sequence tokens.

    Raises
    ------
    InputError
        If the directory is missing, holds no tokenizer, or the tokenizer lacks either token.
    """
    folder = check_directory(path)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        msg = f"the tokenizer in {str(path)!r} can't be loaded: {type(error).__name__}: {first}"
        raise InputError(msg) from error
    for token, name in ((tokenizer.pad_token, "pad"), (tokenizer.eos_token, "eos")):
        if token is None:
            msg = (
                f"the tokenizer in {str(path)!r} has no {name} token. Set {name}_token in its tokenizer_config.json"
                + ("; a model that was never padded takes its eos token" if name == "pad" else "")
            )
            raise InputError(msg)
    return tokenizer


def context_length(model: Any) -> int:
    """Return how many tokens the model can hold, prompt and response together."""
    return int(getattr(model.config, "max_position_embeddings", None) or 2**31)


def encode(tokenizer: Any, prompt: Prompt, *, chat: str = "auto", system: str = "") -> list[int]:
    """Return the token ids of a prompt.

    Parameters
    ----------
    tokenizer
        From `load_tokenizer`.
    prompt
        The prompt.
    chat
        ``always`` and ``never`` use a chat template or don't; ``auto`` does where there is one.
    system
        System message, with a chat template alone.

    Raises
    ------
    InputError
        If the prompt has no token at all, or a template is wanted that the tokenizer doesn't have.
    """
    return _encode(tokenizer, [prompt], chat, system)[0]


def _encode(tokenizer: Any, prompts: Sequence[Prompt], chat: str, system: str) -> list[list[int]]:
    if chat == "always" and not tokenizer.chat_template:
        msg = "chat = 'always', but the tokenizer has no chat template; set chat = 'never'"
        raise InputError(msg)
    if not prompts:
        return []
    texts = [prompt.text for prompt in prompts]
    templated = chat != "never" and bool(tokenizer.chat_template)
    if templated:
        before = [{"role": "system", "content": system}] if system else []
        asked = [[*before, {"role": "user", "content": text}] for text in texts]
        texts = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    # The template has the special tokens already.
    rows = tokenizer(texts, add_special_tokens=not templated)["input_ids"]
    for prompt, ids in zip(prompts, rows, strict=True):
        if not ids:
            msg = f"the prompt {prompt.key!r} has no tokens; its text is {prompt.text!r}"
            raise InputError(msg)
    return [list(map(int, ids)) for ids in rows]


def encode_all(
    tokenizer: Any,
    prompts: Sequence[Prompt],
    config: ModelConfig,
    *,
    longest: float = math.inf,
    overlong: str = "error",
) -> tuple[list[Prompt], list[list[int]]]:
    """Return the prompts that fit, and the token ids of each.

    Parameters
    ----------
    tokenizer, prompts
        As in `encode`.
    config
        Whether there is a chat template, and its system message.
    longest
        Most tokens a prompt may have: the context less the new tokens.
    overlong
        ``error``, or ``skip``: leave longer prompts out. How many is the difference in length.

    Raises
    ------
    InputError
        If a prompt is longer than `longest` and `overlong` is ``error``, and as in `encode`.
    """
    kept, encoded = [], []
    for prompt, ids in zip(prompts, _encode(tokenizer, prompts, config.chat, config.system), strict=True):
        if len(ids) <= longest:
            kept.append(prompt)
            encoded.append(ids)
        elif overlong == "error":
            msg = (
                f"the prompt {prompt.key!r} has {len(ids)} tokens, more than the {max(longest, 0):.0f} that the "
                "model's context leaves beside sampler.max_new_tokens. Shorten it, sample fewer new tokens, or leave "
                "such prompts out with task.overlong = 'skip'"
            )
            raise InputError(msg)
    return kept, encoded
