"""Folders and files of results: made before anything is computed, and written in full or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from ada_bandit.errors import InputError

__all__ = ["force", "make_folder", "no_empty_folders", "write_file", "write_results", "write_text"]

_MADE: ContextVar[list[Path] | None] = ContextVar("_MADE", default=None)


@contextmanager
def no_empty_folders() -> Iterator[None]:
    """Remove the folders that `make_folder` made in the body, where it fails before anything is in them."""
    made: list[Path] = []
    token = _MADE.set(made)
    try:
        yield
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir()
        raise
    finally:
        _MADE.reset(token)


def make_folder(path: Path, option: str = "--out") -> Path:
    """Make the output folder before anything is computed, and return it.

    Raises
    ------
    InputError
        If it can't be made; the message names the option that gives another one.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        if (made := _MADE.get()) is not None:
            made += reversed(missing)
    except OSError as error:
        msg = f"the output folder {str(path)!r} can't be made: {error.strerror}; give another one with {option}"
        raise InputError(msg) from error
    return path


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a kill or a power cut leaves the old one or the new one, never a part.

    Parameters
    ----------
    path
        The file, which is replaced.
    write
        Writes the contents into the open file it is given.
    """
    # Two processes may write the same file at the same time.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    force(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_file` does."""
    write_file(path, lambda file: file.write(text.encode()))


def write_results(
    folder: Path, texts: Mapping[str, str], draw: Callable[[Path], Sequence[Path]] | None = None, option: str = "--out"
) -> list[str]:
    """Write texts by file name, then the figures that `draw` writes; return the names of all files.

    Raises
    ------
    InputError
        If one can't be written; the message names the option that gives another folder.
    """
    try:
        for name, text in texts.items():
            write_text(folder / name, text)
        drawn = [] if draw is None else draw(folder)
    except OSError as error:
        msg = f"can't write to {str(folder)!r}: {error.strerror}; give another folder with {option}"
        raise InputError(msg) from error
    return [*texts, *(path.name for path in drawn)]


def force(path: Path) -> None:
    """Have the system write a file's contents, or a folder's names, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
