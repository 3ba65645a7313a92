"""Counts of correct responses by prompt, read from CSV, Parquet, or a file of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError
from ada_bandit.programs.rollouts import (
    EXAMPLE,
    MEAN_TOKENS,
    RolloutLine,
    check_counts,
    check_mean_tokens,
    check_prompt_id,
    read_rollouts,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Counts", "all_tokens", "plural", "read_counts", "read_prompts"]

_ENDINGS = (".csv", ".parquet", ".jsonl", ".ndjson")
_COLUMNS = ("prompt_id", "correct", "total")


class HasPromptIds(Protocol):
    """What a file is read as: something that holds prompts by id."""

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        """Ids as text, in the file's order."""


R = TypeVar("R", bound=HasPromptIds)


@dataclass(frozen=True, eq=False)
class Counts:
    """Responses of each prompt in a file."""

    prompt_ids: tuple[str, ...]
    """Ids as text, in the file's order."""
    correct: IntArray
    """`[prompt]` Correct responses."""
    total: IntArray
    """`[prompt]` Scored responses, at least 1."""
    notes: tuple[str, ...] = ()
    """What was left out or read in a way worth telling."""
    tokens: FloatArray | None = None
    """`[prompt]` Mean tokens of a response, where they were asked for and every prompt has them."""

    @property
    def rates(self) -> FloatArray:
        """`[prompt]` The plug-in rates correct / total."""
        return np.asarray(self.correct / self.total)


def read_counts(path: str | Path, *, tokens: bool = False) -> Counts:
    """Read the counts of every prompt from a file.

    Parameters
    ----------
    path
        ``.csv`` or ``.parquet`` with the columns prompt_id, correct and total; or ``.jsonl``
        (``.ndjson``) with one object a line, ``{"prompt_id": …, "rewards": […]}`` or
        ``{"prompt_id": …, "correct": …, "total": …}``. Other columns are ignored. A reward
        above 0.5 is correct; null and NaN mark a response without a score, which is left out
        and counted.
    tokens
        Whether to read mean_response_tokens as well, where the file has it.

    Raises
    ------
    InputError
        If the file is missing, empty or of another kind, lacks a column, or holds a value
        that is no count; the message quotes the value and names the remedy.
    """
    return read_prompts(path, partial(_read_table, tokens=tokens), partial(_read_lines, tokens=tokens))


def read_prompts(path: str | Path, of_table: Callable[[Path], R], of_lines: Callable[[Path], R]) -> R:
    """Read a file by one of two readers, after its ending; tell what is wrong with it, and refuse repeated ids."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        msg = f"the file {str(path)!r} must end in {', '.join(_ENDINGS)}; got {path.suffix or 'no ending'!r}"
        raise InputError(msg)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        msg = f"the file {str(path)!r} {what}; give the path of a file, relative to the current folder"
        raise InputError(msg)
    if path.stat().st_size == 0:
        msg = f"the file {str(path)!r} is empty; it needs {_wanted(ending)}"
        raise InputError(msg)
    read = of_lines if ending in {".jsonl", ".ndjson"} else of_table
    try:
        prompts = read(path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the file {str(path)!r} can't be read: {error}"
        raise InputError(msg) from error
    seen: dict[str, int] = {}
    for row, prompt in enumerate(prompts.prompt_ids, start=1):
        if prompt in seen:
            msg = (
                f"prompt_id {prompt!r} occurs twice in {str(path)!r}, as prompts {seen[prompt]} and {row}; "
                "add up its counts or give the prompts different ids"
            )
            raise InputError(msg)
        seen[prompt] = row
    return prompts


def _wanted(ending: str) -> str:
    if ending in {".jsonl", ".ndjson"}:
        return f"a line such as {EXAMPLE} for every prompt"
    return "the columns prompt_id, correct, total and a row for every prompt"


def _read_table(path: Path, *, tokens: bool) -> Counts:
    """Read a ``.csv`` or ``.parquet`` file."""
    import polars as pl

    frame = _load_table(path)
    names = {name.strip(): name for name in frame.columns}
    missing = [column for column in _COLUMNS if column not in names]
    if missing:
        msg = (
            f"{str(path)!r} lacks the {plural(len(missing), 'column')} {', '.join(missing)}; it has "
            f"{', '.join(names) or 'none'}. Rename the columns to prompt_id, correct, total"
        )
        raise InputError(msg)
    rows = frame.filter(~pl.all_horizontal(pl.all().is_null())) if path.suffix.lower() == ".csv" else frame
    blank = frame.height - rows.height
    if rows.height == 0:
        msg = f"{str(path)!r} has its columns but no prompts; it needs a row for every prompt"
        raise InputError(msg)
    ids, pairs = [], []
    columns = (rows[names[column]].to_list() for column in _COLUMNS)
    for row, (prompt, correct, total) in enumerate(zip(*columns, strict=True), start=1):
        ids.append(check_prompt_id(prompt, f"at prompt {row} of {str(path)!r}"))
        pairs.append(check_counts(correct, total, f"for prompt {ids[-1]!r} ({row} in {str(path)!r})"))
    counts = np.array(pairs, dtype=np.int64)
    notes = [f"{blank} empty {plural(blank, 'row')} left out"] if blank else []
    means = None
    if tokens and MEAN_TOKENS in names:
        places = (f"for prompt {prompt!r} ({row} in {str(path)!r})" for row, prompt in enumerate(ids, start=1))
        column = rows[names[MEAN_TOKENS]].to_list()
        means = all_tokens(
            [check_mean_tokens(value, place) for value, place in zip(column, places, strict=True)], notes
        )
    return Counts(tuple(ids), counts[:, 0], counts[:, 1], tuple(notes), means)


def all_tokens(means: Sequence[float], notes: list[str]) -> FloatArray | None:
    """Return the mean tokens of every prompt; None, and a note, where some prompts have none."""
    values = np.array(means)
    missing = int(np.isnan(values).sum())
    if not missing:
        return values
    if missing < values.size:
        notes.append(f"tokens left out: {missing} of {values.size} prompts have none")
    return None


def _load_table(path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        # As text: a column of mixed types is then told by the value at fault, not by the type guessed first.
        if path.suffix.lower() == ".csv":
            return pl.read_csv(path, infer_schema=False)
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        msg = f"{str(path)!r} can't be read as {path.suffix.lower()}: {reason}. Is the file complete?"
        raise InputError(msg) from error


def _read_lines(path: Path, *, tokens: bool) -> Counts:
    """Read a file of rollouts."""
    ids, pairs, means = [], [], []
    unscored = shaped = 0
    dropped: list[str] = []
    for line in read_rollouts(path, tokens=tokens):
        if isinstance(line, RolloutLine):
            scores = line.rewards[~np.isnan(line.rewards)]
            unscored += line.rewards.size - scores.size
            shaped += int(np.count_nonzero((scores != 0) & (scores != 1)))
            if not scores.size:
                dropped.append(line.prompt_id)
                continue
            pairs.append((line.correct, line.scored))
        else:
            pairs.append((line.correct, line.total))
        ids.append(line.prompt_id)
        means.append(line.mean_tokens)
    if not ids:
        what = "no prompt with a scored response" if dropped else "no prompts"
        msg = f"{str(path)!r} has {what}; it needs {_wanted('.jsonl')}"
        raise InputError(msg)
    notes = []
    if unscored:
        notes.append(f"{unscored} {plural(unscored, 'response')} without a score (null or NaN) left out")
    if dropped:
        shown = ", ".join(repr(prompt) for prompt in dropped[:3]) + (", …" if len(dropped) > 3 else "")
        notes.append(f"{len(dropped)} {plural(len(dropped), 'prompt')} without a scored response left out: {shown}")
    if shaped:
        notes.append(f"{shaped} {plural(shaped, 'reward')} other than 0 and 1: above 0.5 counts as correct")
    counts = np.array(pairs, dtype=np.int64)
    return Counts(tuple(ids), counts[:, 0], counts[:, 1], tuple(notes), all_tokens(means, notes))


def plural(count: int, word: str) -> str:
    """Return the word with an s where the count asks for one."""
    return word if count == 1 else f"{word}s"
