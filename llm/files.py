"""Files that a kill leaves whole: written aside, forced to disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["force", "write_file", "write_text"]


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a kill leaves the old one or the new one, never a part.

    Parameters
    ----------
    path
        The file, which is replaced.
    write
        Writes the contents into the open file it is given.
    """
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    force(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_file` does."""
    write_file(path, lambda file: file.write(text.encode()))


def force(path: Path) -> None:
    """Have the system write a file's contents, or a folder's names, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
