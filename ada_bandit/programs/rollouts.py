"""The file of rollouts: the rewards of k responses to each prompt, in the order in which they were drawn.

One JSON object a line, one line a prompt::

    {"prompt_id": "a", "family": "sums", "rewards": [0, 1, null], "tokens": [31, 18, 64], "truncated": 1}

``prompt_id`` and ``rewards`` alone are needed. ``null`` and NaN mark a response without a score.
``mean_response_tokens`` may stand in for ``tokens``, and ``correct`` and ``total`` for ``rewards``: the line
holds counts then, and no order. `RolloutLog` writes such a file, and goes on with one that was cut short.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from ada_bandit.programs.folders import write_text
from ada_bandit.programs.records import plain

__all__ = [
    "EXAMPLE",
    "MEAN_TOKENS",
    "CountLine",
    "RolloutLine",
    "RolloutLog",
    "check_counts",
    "check_mean_tokens",
    "check_prompt_id",
    "meta_path",
    "read_log",
    "read_rollouts",
]

EXAMPLE = '{"prompt_id": "a", "rewards": [0, 1, 1]}'
"""The shortest line."""
MEAN_TOKENS = "mean_response_tokens"
"""The key, or column, of a prompt's mean tokens a response."""


@dataclass(frozen=True, eq=False)
class RolloutLine:
    """The responses to one prompt, one by one."""

    prompt_id: str
    """The prompt's key."""
    family: str
    """Its family; empty where it has none."""
    rewards: FloatArray
    """`[response]` Rewards in the order of the draws, at least one; NaN without a score."""
    tokens: tuple[float, ...]
    """`[response]` Tokens; empty where they are not known."""
    truncated: int = 0
    """Responses cut at the length limit."""
    mean_tokens: float = math.nan
    """Mean tokens of a response as the line has them, NaN where it doesn't."""

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
        row = {"prompt_id": self.prompt_id, "family": self.family, "rewards": rewards}
        if self.tokens:
            row["tokens"] = list(self.tokens)
        return json.dumps(row | {"truncated": self.truncated}, ensure_ascii=False)


@dataclass(frozen=True)
class CountLine:
    """The counts of one prompt's responses."""

    prompt_id: str
    """The prompt's key."""
    correct: int
    """Correct responses."""
    total: int
    """Responses with a score, at least 1."""
    mean_tokens: float = math.nan
    """Mean tokens of a response, NaN where they are not known."""


# Reading


def read_rollouts(path: Path, *, tokens: bool = True) -> Iterator[RolloutLine | CountLine]:
    """Give the lines of a file of rollouts; blank ones are passed over.

    Parameters
    ----------
    path
        The file.
    tokens
        Whether tokens and truncations are wanted; otherwise they are neither read nor checked.

    Raises
    ------
    InputError
        If a line can't be used; the message quotes the value and names the line.
    """
    # By the json module: a malformed line is told by its number, and NaN is understood.
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _parse(line, f"on line {number} of {str(path)!r}", tokens=tokens)


def read_log(path: Path) -> list[RolloutLine]:
    """Read a file that `RolloutLog` wrote, or one that holds rewards alone.

    Raises
    ------
    InputError
        If it can't be read, or a line holds no rewards.
    """
    try:
        # Not splitlines, which also splits at characters that JSON may hold in a string.
        texts = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"the log {str(path)!r} can't be read: {reason}; 'python -m llm rollout' makes one"
        raise InputError(msg) from error
    lines = []
    for number, text in enumerate(texts if texts[-1] else texts[:-1], start=1):
        try:
            line = _parse(text, f"on line {number}", tokens=True)
            reason = "it holds counts, no rewards"
        except InputError as error:
            line, reason = None, str(error)
        if not isinstance(line, RolloutLine):
            msg = (
                f"line {number} of {str(path)!r} is no line of a log by 'python -m llm rollout' ({reason}); move the "
                "file away, or give another one"
            )
            raise InputError(msg)
        lines.append(line)
    return lines


def _parse(text: str, place: str, *, tokens: bool) -> RolloutLine | CountLine:
    row = _parse_object(text, place)
    prompt = check_prompt_id(row["prompt_id"], place)
    where = f"for prompt {prompt!r} {place}"
    mean = check_mean_tokens(row.get(MEAN_TOKENS), where) if tokens else math.nan
    if "rewards" not in row:
        return CountLine(prompt, *check_counts(row["correct"], row["total"], where), mean)
    rewards = _check_rewards(row["rewards"], where)
    each = _check_tokens(row.get("tokens"), len(rewards), where) if tokens else ()
    truncated = _check_whole(row.get("truncated") or 0, "truncated", where) if tokens else 0
    return RolloutLine(prompt, str(row.get("family", "")), np.array(rewards), each, truncated, mean)


def _parse_object(text: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"malformed JSON {place}: {error.msg} at column {error.colno}; got {_short(text.strip())}"
        raise InputError(msg) from error
    if not isinstance(row, dict):
        msg = f"every line must be an object such as {EXAMPLE}; got {_short(text.strip())} {place}"
        raise InputError(msg)
    if "prompt_id" not in row or not ("rewards" in row or {"correct", "total"} <= row.keys()):
        msg = (
            f"a line needs prompt_id and rewards, or prompt_id, correct and total; got "
            f"{', '.join(row) or 'an empty object'} {place}"
        )
        raise InputError(msg)
    return row


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")


def _check_rewards(values: Any, where: str) -> list[float]:
    """Return the rewards of a prompt as floats, NaN for a response without a score."""
    if not isinstance(values, list):
        msg = f"rewards must be a list of numbers; got {_short(json.dumps(values))} {where}"
        raise InputError(msg)
    if not values:
        msg = f"rewards is empty {where}: without a response there is no pass rate. Remove it"
        raise InputError(msg)
    rewards = []
    for value in values:
        try:
            reward = math.nan if value is None else float(value) if isinstance(value, (bool, int, float)) else math.inf
        except OverflowError:
            reward = math.inf
        if math.isinf(reward):
            msg = f"every reward must be a finite number, or null without a score; got {value!r} {where}"
            raise InputError(msg)
        rewards.append(reward)
    return rewards


def _check_tokens(values: Any, responses: int, where: str) -> tuple[float, ...]:
    """Return the tokens of every response of a line; nothing where there are none."""
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) != responses:
        got = f"{len(values)} values" if isinstance(values, list) else repr(values)
        msg = f"tokens must be a list beside the {responses} reward{'s' * (responses != 1)}; got {got} {where}"
        raise InputError(msg)
    for value in values:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (number and 0 <= value < math.inf):
            msg = f"every count of tokens must be a number of at least 0; got {value!r} {where}"
            raise InputError(msg)
    return tuple(values)


# Values of a line, or of a row of a table


def check_prompt_id(value: Any, where: str) -> str:
    """Return a prompt's id as text."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip():
        msg = f"prompt_id is missing {where}; give every prompt an id of its own"
        raise InputError(msg)
    if isinstance(value, (dict, list)):
        msg = f"prompt_id must be text or a number; got {value!r} {where}"
        raise InputError(msg)
    return str(value).strip()


def check_counts(correct: Any, total: Any, where: str) -> tuple[int, int]:
    """Return correct and total, written as numbers or as text, checked against each other."""
    k, n = _check_whole(correct, "correct", where), _check_whole(total, "total", where)
    if n == 0:
        msg = f"total is 0 {where}: without a response there is no pass rate. Remove the prompt"
        raise InputError(msg)
    if k > n:
        msg = f"correct must not exceed total; got {k} of {n} {where}. Are the columns swapped?"
        raise InputError(msg)
    return k, n


def check_mean_tokens(value: Any, where: str) -> float:
    """Return the mean tokens of a prompt's responses, written as number or as text; NaN where they are missing."""
    if _is_missing(value):
        return math.nan
    number = _to_float(value)
    if not (math.isfinite(number) and number >= 0):
        msg = f"{MEAN_TOKENS} must be a number of at least 0; got {value!r} {where}. Mend the value or leave it empty"
        raise InputError(msg)
    return number


def _check_whole(value: Any, column: str, where: str) -> int:
    """Return a count that is a whole number of at least 0, written as number or as text."""
    if _is_missing(value):
        msg = f"{column} is missing {where}; fill it in or remove the prompt"
        raise InputError(msg)
    number = _to_float(value)
    if not (math.isfinite(number) and number == int(number)):
        msg = f"{column} must be a whole number; got {value!r} {where}. Mend the value or remove the prompt"
        raise InputError(msg)
    if number < 0:
        msg = f"{column} can't be negative; got {value!r} {where}. Mend the value or remove the prompt"
        raise InputError(msg)
    if number > 2**53:
        msg = f"{column} is larger than any count; got {value!r} {where}. Mend the value or remove the prompt"
        raise InputError(msg)
    return int(number)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _to_float(value: Any) -> float:
    """Return a number, also one written as text; NaN for anything else."""
    try:
        return math.nan if isinstance(value, (bool, np.bool_)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


# Writing


class RolloutLog:
    """A file of rollouts that lines are added to, in the order of the prompts.

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
        wanted = plain(settings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if meta.exists():
                self._check(_read_settings(meta), wanted)
            elif path.exists():
                msg = (
                    f"{str(path)!r} is there, but not {meta.name}, which says what it was made with; move it away, or "
                    "give another file"
                )
                raise InputError(msg)
            else:
                write_text(meta, json.dumps({"settings": wanted} | dict(metadata), indent=2) + "\n")
            path.touch()
            _cut(path)
            self.lines = read_log(path)
            self._keep_texts()
        except OSError as error:
            msg = f"the log {str(path)!r} can't be written: {error.strerror}; give another file"
            raise InputError(msg) from error

    def append(self, lines: Sequence[RolloutLine], texts: Sequence[str] = ()) -> None:
        """Add lines, and the lines of the file of texts; they are on disk when it returns.

        Raises
        ------
        InputError
            If they can't be written, for instance because the disk is full; the same command goes on later.
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
        there = _cut(self.texts, len(self.lines))
        if there < len(self.lines):
            msg = (
                f"{str(self.texts)!r} holds the texts of {there} prompts, the log {str(self.path)!r} "
                f"{len(self.lines)}: texts can't be added afterwards. Give the file it began with, or start anew"
            )
            raise InputError(msg)


def meta_path(path: Path) -> Path:
    """Return where a log's settings stand."""
    return path.with_name(path.name + ".meta.json")


def _read_settings(meta: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(meta.read_text(encoding="utf-8"))["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{str(meta)!r} can't be read ({error!r}); move it and its log away, or give another file"
        raise InputError(msg) from error


def _cut(path: Path, limit: float = math.inf) -> int:
    """Cut a file after its last whole line, and after `limit` lines; return how many there are."""
    count = size = 0
    with path.open("r+b") as file:
        for line in file:
            if count == limit or not line.endswith(b"\n"):
                break
            count, size = count + 1, size + len(line)
        file.truncate(size)
    return count


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
