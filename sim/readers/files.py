"""Which files a path means: a file, a folder with everything below it, or a glob."""

from __future__ import annotations

import glob
import os
import re
from difflib import get_close_matches
from pathlib import Path

from ada_bandit.errors import InputError
from sim.readers.streams import bare_suffix, shown
from sim.words import plural

__all__ = ["find"]

LONGEST_PATH = 400
"""Characters of a path beyond which it is cut in a message."""
_READ = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".parquet", ".eval", ".pt"}
_BESIDE = {"config", "run_config", "args", "metrics", "metadata", "readme", "summary", "scores_summary", "manifest"}


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort 2 before 10."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]


def find(path: str | Path, notes: list[str]) -> list[Path]:
    """Return the files of a path in natural order.

    Raises
    ------
    InputError
        If there is none.
    """
    text = os.fspath(path)
    where = shown(text, LONGEST_PATH)
    given = Path(text).expanduser()
    if given.is_dir():
        every = [each for each in given.rglob("*") if each.is_file() and not _hidden(each, given)]
        files = [each for each in every if bare_suffix(each) in _READ - {".txt"} and not _beside(each)]
        others = len(every) - len(files)
        files = _uncensored(files, notes)
        if not files:
            found = ", ".join(sorted({bare_suffix(each) or each.name for each in every})[:8])
            what = f"holds no file of rollouts, only {found}" if found else "is empty"
            msg = (
                f"the folder {where} {what}; give a folder with .jsonl, .json, "
                ".csv, .tsv or .parquet files, also as .gz or .zst"
            )
            raise InputError(msg)
        if others:
            notes.append(f"{others} other {plural(others, 'file')} in the folder left out")
        return sorted(files, key=_natural)
    if given.is_file():
        return [given]
    if any(mark in text for mark in "*?["):
        files = [Path(each) for each in glob.glob(str(given), recursive=True) if Path(each).is_file()]  # noqa: PTH207 - absolute patterns too
        if not files:
            msg = f"no file matches {where}; quote the pattern, and check it with: ls {text}"
            raise InputError(msg)
        return sorted(files, key=_natural)
    beside = sorted(each.name for each in given.parent.glob("*") if each.is_file()) if given.parent.is_dir() else []
    # What was mistyped comes first.
    near = list(dict.fromkeys([*get_close_matches(given.name, beside, n=3), *beside]))[:5]
    hint = f"; beside it are {', '.join(map(shown, near))}" if near else ""
    msg = f"{where} does not exist{hint}. Give a file, a folder or a quoted pattern such as 'dump/*.jsonl'"
    raise InputError(msg)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts if part != ".art")


def _beside(path: Path) -> bool:
    """Whether a file has the name of what stands beside rollouts."""
    return path.name.split(".", 1)[0].lower() in _BESIDE


def _uncensored(files: list[Path], notes: list[str]) -> list[Path]:
    """Of folders that hold the same rollouts twice take the fuller ones, and of train and eval the former."""
    for better, other in (("all", "effective"), ("train", "eval"), ("train", "val")):
        good = [each for each in files if better in each.parts[-4:-1]]
        left = [each for each in files if other in each.parts[-4:-1] and better not in each.parts[-4:-1]]
        if good and left:
            number = len(left)
            notes.append(f"{number} {plural(number, 'file')} under {other!r} left out in favour of {better!r}")
            files = [each for each in files if each not in set(left)]
    return files
