"""Standard input as a file: ``-`` where a command takes one."""

from __future__ import annotations

import atexit
import json
import sys
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

from ada_bandit.errors import InputError

__all__ = ["kind_of", "save_stdin"]


def save_stdin() -> Path:
    """Write standard input to a file that lives as long as the program, and return its path.

    Raises
    ------
    InputError
        If nothing comes.
    """
    data = sys.stdin.buffer.read()
    if not data.strip():
        msg = "'-' takes a file from standard input, which is empty or was read before; pipe a file in, or name it"
        raise InputError(msg)
    # Kept until the program ends: the file is read when the command wants it.
    folder = tempfile.TemporaryDirectory(prefix="ada-bandit-")
    atexit.register(folder.cleanup)
    path = Path(folder.name, f"stdin{kind_of(data)}")
    path.write_bytes(data)
    return path


def kind_of(data: bytes) -> str:
    """Return the ending of a file's name by what the file holds."""
    for head, ending in ((b"PAR1", ".parquet"), (b"PK\x03\x04", ".npz"), (b"\x1f\x8b", ".jsonl.gz")):
        if data.startswith(head):
            return ending
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
    if text.startswith(("{", "[{")):
        first = text.partition("\n")[0]
        with suppress(json.JSONDecodeError):
            return ".jsonl" if isinstance(json.loads(first), dict) else ".json"
        return ".json"
    with suppress(tomllib.TOMLDecodeError):
        return ".toml" if tomllib.loads(text) else ".csv"
    return ".py" if "exit_rule" in text else ".csv"
