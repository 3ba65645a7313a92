"""Logged responses: rewards and tokens of k responses to each prompt of a task, as `sim` reads them.

A log is a file of lines, one a prompt, written in the order of the prompts; what it was made with
stands in a file beside it. A run that was killed goes on where the log ends.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from llm.files import write_text

__all__ = ["PromptLine", "RolloutLog", "meta_path", "read_lines"]


@dataclass(frozen=True, eq=False)
class PromptLine:
    """The responses to one prompt."""

    prompt_id: str
    """The prompt's key."""
    family: str
    """Its family."""
    rewards: FloatArray
    """`[response]` Rewards; NaN without a score."""
    tokens: tuple[int, ...]
    """`[response]` Tokens."""
    truncated: int
    """Responses cut at the length limit."""

    @property
    def correct(self) -> int:
        """Responses with a reward above 0.5."""
        return int((self.rewards > 0.5).sum())

    @property
    def scored(self) -> int:
        """Responses with a score."""
        return int((~np.isnan(self.rewards)).sum())

    def to_json(self) -> str:
        """Return the line, without its end."""
        rewards = [None if math.isnan(each) else int(each) if each == int(each) else each for each in self.rewards]
        row = {"prompt_id": self.prompt_id, "family": self.family, "rewards": rewards, "tokens": list(self.tokens)}
        return json.dumps(row | {"truncated": self.truncated}, ensure_ascii=False)


class RolloutLog:
    """A log that lines are added to.

    Parameters
    ----------
    path
        Its file; ``path.meta.json`` holds what it was made with.
    settings
        What its lines depend on, as plain values. A log of other settings is refused.
    metadata
        Versions and the like, noted when the log is new.
    texts
        File for the responses' texts, one line a prompt; None for no such file.

    Raises
    ------
    InputError
        If what is there can't be gone on with.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], metadata: Mapping[str, Any], texts: Path | None = None
    ) -> None:
        self.path, self.texts = path, texts
        meta = meta_path(path)
        plain = json.loads(json.dumps(settings))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if meta.exists():
                self._check(_read_settings(meta), plain)
            elif path.exists():
                msg = (
                    f"{str(path)!r} is there, but not {meta.name}, which says what it was made with; move it away, or "
                    "give another file"
                )
                raise InputError(msg)
            else:
                write_text(meta, json.dumps({"settings": plain} | dict(metadata), indent=2) + "\n")
            path.touch()
            _keep_lines(path)
            self.lines = read_lines(path)
            self._keep_texts()
        except OSError as error:
            msg = f"the log {str(path)!r} can't be written: {error.strerror}; give another file"
            raise InputError(msg) from error

    def append(self, lines: Sequence[PromptLine], texts: Sequence[str] = ()) -> None:
        """Add lines, and the lines of the file of texts; they are on disk when it returns.

        Raises
        ------
        InputError
            If they can't be written, for want of space for instance; the same command goes on later.
        """
        try:
            # Texts first: a line of the log without its texts could not be completed.
            if self.texts is not None:
                _append(self.texts, texts)
            _append(self.path, [line.to_json() for line in lines])
        except OSError as error:
            msg = (
                f"the log {str(self.path)!r} can't be written: {error.strerror}; it is complete for its first "
                f"{len(self.lines)} prompts. Make room and give the same command again to go on"
            )
            raise InputError(msg) from error
        self.lines += lines

    def _check(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        differ = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
        if differ:
            shown = "; ".join(f"{name} = {before.get(name)!r}, now {now.get(name)!r}" for name in differ)
            msg = f"{str(self.path)!r} was made with other settings: {shown}. Give the same ones, or another file"
            raise InputError(msg)

    def _keep_texts(self) -> None:
        if self.texts is None:
            return
        self.texts.parent.mkdir(parents=True, exist_ok=True)
        self.texts.touch()
        there = _keep_lines(self.texts, len(self.lines))
        if there < len(self.lines):
            msg = (
                f"{str(self.texts)!r} holds the texts of {there} prompts, the log {str(self.path)!r} "
                f"{len(self.lines)}: texts can't be added afterwards. Give the file it began with, or start anew"
            )
            raise InputError(msg)


def meta_path(path: Path) -> Path:
    """Return where a log's settings stand."""
    return path.with_name(path.name + ".meta.json")


def read_lines(path: Path) -> list[PromptLine]:
    """Read the lines of a log.

    Raises
    ------
    InputError
        If a line isn't one of a log.
    """
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        msg = f"the log {str(path)!r} can't be read: {error.strerror}; 'python -m llm rollout' makes one"
        raise InputError(msg) from error
    lines = []
    for number, text in enumerate(texts, start=1):
        try:
            row = json.loads(text)
            rewards = np.array([math.nan if each is None else each for each in row["rewards"]], dtype=np.float64)
            # Logs of other programs hold rewards, and no more.
            tokens = tuple(map(int, row.get("tokens", ())))
            line = PromptLine(
                str(row["prompt_id"]), row.get("family", ""), rewards, tokens, int(row.get("truncated", 0))
            )
        except (ValueError, KeyError, TypeError) as error:
            msg = (
                f"line {number} of {str(path)!r} is no line of a log by 'python -m llm rollout' ({error!r}); move the "
                "file away, or give another one"
            )
            raise InputError(msg) from error
        lines.append(line)
    return lines


def _read_settings(meta: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(meta.read_text(encoding="utf-8"))["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{str(meta)!r} can't be read ({error!r}); move it and its log away, or give another file"
        raise InputError(msg) from error


def _keep_lines(path: Path, limit: float = math.inf) -> int:
    """Cut a file after its last whole line, and after `most` lines; return how many there are."""
    kept = size = 0
    with path.open("r+b") as file:
        for line in file:
            if kept == limit or not line.endswith(b"\n"):
                break
            kept, size = kept + 1, size + len(line)
        file.truncate(size)
    return kept


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
