"""Files of rows as batches of columns: JSON Lines, JSON, CSV and its kin, Parquet.

A batch is a polars frame where columns are simple, and a list of objects where they are not.
JSON Lines go through polars only where nothing can get lost on the way: it takes no other type
than the one that was found, and a block in which it can't tell is parsed line by line.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.errors import InputError
from sim.readers.streams import LONGEST_LINE, Block, TextStream, bare_suffix, named, read_whole, shown
from sim.readers.values import Column, Place, follow, is_list, parse_json
from sim.words import plural

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SNIFFED", "Batch", "Table", "in_batches", "open_table", "plain_kind"]

SNIFFED = 500
"""Rows from which the shape of a file is read."""
BATCH = 50_000
"""Rows of a batch, where the rows aren't counted in bytes."""
_DELIMITERS = ",\t;|"
_PICKLES = {".pkl", ".pickle", ".joblib", ".npy", ".npz", ".bin"}
_MOST_PARQUET_ROWS = 200_000_000


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of a file."""

    frame: pl.DataFrame | None
    """The rows as columns of plain types; or"""
    rows: list[dict[str, Any]] | None
    """one object each."""
    place: Place
    """Says where a row of the batch stands."""
    done: float
    """Share of the file that was read."""

    def __len__(self) -> int:
        return len(self.rows) if self.rows is not None else self._frame.height

    @property
    def _frame(self) -> pl.DataFrame:
        if self.frame is None:
            raise RuntimeError
        return self.frame

    def column(self, path: str) -> Column:
        """Return what the rows hold under a dotted path, None where they lack it."""
        if self.rows is not None:
            return [follow(row, path) for row in self.rows]
        if path in self._frame.columns:
            return self._frame[path]
        head = re.split(r"[.\[]", path, maxsplit=1)[0]
        if head not in self._frame.columns:
            return [None] * len(self)
        return [follow({head: value}, path) for value in self._frame[head].to_list()]

    def take(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Batch:
        """Return the rows that are chosen."""
        at = np.nonzero(chosen)[0]
        place = self.place

        def there(row: int) -> str:
            return place(int(at[row]))

        if self.rows is not None:
            return Batch(None, [self.rows[i] for i in at], there, self.done)
        return Batch(self._frame[at], None, there, self.done)

    def objects(self) -> list[dict[str, Any]]:
        """Return the rows as objects."""
        return self.rows if self.rows is not None else self._frame.to_dicts()


@dataclass(frozen=True, eq=False)
class Table:
    """A file of rows, opened."""

    path: Path
    kind: str
    """The format in words."""
    head: list[dict[str, Any]]
    """The first rows."""
    read: Callable[[Mapping[str, str | None] | None], Iterator[Batch]]
    """Gives all rows. The argument names the columns that are wanted and their plain types
    ('number', 'truth', 'text', 'numbers'), None where a column has no such type in `head`."""
    notes: list[str] = field(default_factory=list)
    """What was told on the way; complete when all rows were read."""

    @cached_property
    def names(self) -> list[str]:
        """Columns, in the order in which they come up in the first rows."""
        return list(dict.fromkeys(name for row in self.head for name in row))


def open_table(path: Path, *, record: Callable[[dict[str, Any]], bool] = lambda _: False) -> Table:
    """Open a file of rows and look at the first ones.

    Parameters
    ----------
    path
        The file.
    record
        Whether an object that is a whole file is one row, in place of a collection of rows.

    Raises
    ------
    InputError
        If it is of no kind that is read, or has no rows.
    """
    suffix = bare_suffix(path)
    if suffix in _PICKLES:
        msg = (
            f"{named(path)} may hold pickled objects, which run code when they are read, so it isn't opened. "
            "Write the rewards from the program that made it, one JSON object a line: "
            '{"prompt_id": "a", "rewards": [0, 1]}'
        )
        raise InputError(msg)
    if suffix == ".parquet":
        return _parquet(path)
    if path.stat().st_size == 0:
        msg = f"{named(path)} is empty; was it ever written?"
        raise InputError(msg)
    start = TextStream(path, []).head(1 << 20)
    text = start.lstrip()
    if b"\x00" in text[:4096] or text[:4] in {b"PK\x03\x04", b"PAR1"}:
        if text[:4] == b"PAR1":
            return _parquet(path)
        msg = f"{named(path)} is binary and of no kind that is read here; {_KINDS}"
        raise InputError(msg)
    if text[:1] == b"{" and suffix != ".csv":
        return _object_file(path, text, record) if _is_one_object(text, suffix) else _json_lines(path)
    if text[:1] == b"[" and suffix not in {".csv", ".tsv"}:
        first = text.split(b"\n", 1)[0].strip()
        if suffix in {".jsonl", ".ndjson"} and first.endswith(b"]") and b"\n" in text.strip():
            msg = (
                f"every line must be an object such as {_LINE}; got {shown(first.decode())} on line 1 of {named(path)}"
            )
            raise InputError(msg)
        return _json_array(path)
    if suffix in {".jsonl", ".ndjson", ".json"}:
        return _json_lines(path)
    return _delimited(path, text)


_LINE = '{"prompt_id": "a", "rewards": [0, 1, 1]}'
_KINDS = "give CSV, TSV, JSON, JSON Lines or Parquet, also as .gz or .zst"


def _is_one_object(text: bytes, suffix: str) -> bool:
    """Whether a file that starts with an object is that object, and not a line for each row."""
    first, _, rest = text.partition(b"\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        # Spread over lines, unless the file is named otherwise or the line is simply broken.
        return suffix not in {".jsonl", ".ndjson"} and not re.match(rb"\s*\{.*\}\s*$", first)
    return not rest.strip() and suffix not in {".jsonl", ".ndjson"}


# JSON Lines


def _json_lines(path: Path) -> Table:
    notes: list[str] = []

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:
        notes.clear()
        plain = {name: kind for name, kind in (wanted or {}).items() if kind is not None}
        if len(plain) < len(wanted or {}):
            plain = {}
        stream = TextStream(path, notes)
        for block in _last_marked(stream.blocks()):
            done = block.done / max(stream.size, 1)
            frame = _fast_lines(block, plain) if plain else None
            if frame is not None:
                yield Batch(frame, None, _lines_place(path, block), done)
            else:
                rows, lines = _slow_lines(path, block, notes)
                if rows:
                    yield Batch(None, rows, _numbered(path, lines), done)

    head: list[dict[str, Any]] = []
    early: list[str] = []
    for block in TextStream(path, early).blocks(1 << 18):
        # The head may end in the middle of a file, so no broken line is forgiven here.
        whole = Block(b"\n".join(block.data.split(b"\n")[: SNIFFED + 1]), block.first_line, last=block.last, done=0)
        head += _slow_lines(path, whole, early)[0]
        if len(head) >= SNIFFED or block.last:
            break
    if not head:
        told = f": {early[-1]}" if early else ""
        msg = f"{named(path)} has no rows{told}; it needs lines such as {_LINE}"
        raise InputError(msg)
    return Table(path, "JSON Lines", head[:SNIFFED], read, notes)


def _last_marked(blocks: Iterator[Block]) -> Iterator[Block]:
    """Mark the last block that holds anything."""
    waiting: Block | None = None
    for block in blocks:
        if waiting is not None and (not block.data or block.data.isspace()):
            waiting = Block(waiting.data, waiting.first_line, last=block.last or waiting.last, done=block.done)
            continue
        if waiting is not None:
            yield waiting
        waiting = block
    if waiting is not None:
        yield waiting


def _slow_lines(path: Path, block: Block, notes: list[str]) -> tuple[list[dict[str, Any]], list[int]]:
    rows, numbers = [], []
    lines = block.data.split(b"\n")
    final = max((at for at, line in enumerate(lines) if line.strip()), default=-1)
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        number = block.first_line + at
        place = f"on line {number} of {named(path)}"
        try:
            row = parse_json(line, place)
        except InputError as error:
            if block.last and at == final and number > 1 and "malformed" in str(error):
                notes.append(f"line {number}, the last, is broken off and left out (a run that goes on, or was killed)")
                continue
            raise
        if not isinstance(row, dict):
            msg = f"every line must be an object such as {_LINE}; got {shown(line.decode('utf-8', 'replace'))} {place}"
            raise InputError(msg)
        rows.append(row)
        numbers.append(number)
    return rows, numbers


def _fast_lines(block: Block, wanted: Mapping[str, str]) -> pl.DataFrame | None:
    """Read a block by polars; None where something in it may get lost."""
    import polars as pl

    data = block.data
    kinds = {"number": pl.Float64(), "truth": pl.Boolean(), "text": pl.String(), "numbers": pl.List(pl.Float64())}
    try:
        frame = pl.read_ndjson(io.BytesIO(data), schema={name: kinds[kind] for name, kind in wanted.items()})
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    for name, kind in wanted.items():
        # A key that stands twice in a line, or an escaped name, shows in the number of times that it is written.
        if frame[name].null_count() or data.count(json.dumps(name, ensure_ascii=False).encode()) != frame.height:
            return None
        # Half a surrogate becomes a zero there.
        if kind == "text" and frame[name].str.contains("\0", literal=True).any():
            return None
    return frame


def _lines_place(path: Path, block: Block) -> Place:
    def place(row: int) -> str:
        full = [at for at, line in enumerate(block.data.split(b"\n")) if line.strip()]
        return f"on line {block.first_line + full[row]} of {named(path)}"

    return place


def _numbered(path: Path, lines: Sequence[int]) -> Place:
    return lambda row: f"on line {lines[row]} of {named(path)}"


def _rows_place(path: Path, first: int) -> Place:
    return lambda row: f"in row {first + row} of {named(path)}"


def in_batches(path: Path, rows: Sequence[dict[str, Any]]) -> Iterator[Batch]:
    """Give rows that are in memory in batches."""
    for start in range(0, len(rows), BATCH):
        part = list(rows[start : start + BATCH])
        yield Batch(None, part, _rows_place(path, start + 1), (start + len(part)) / len(rows))


# JSON


def _json_array(path: Path) -> Table:
    notes: list[str] = []

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:  # noqa: ARG001 - one way
        notes.clear()
        first = 1
        for rows, done in _array_members(path, notes):
            yield Batch(None, rows, _rows_place(path, first), done)
            first += len(rows)

    head = next((rows for rows, _ in _array_members(path, [])), [])[:SNIFFED]
    if not head:
        msg = f"{named(path)} is an empty list; it needs objects such as {_LINE}"
        raise InputError(msg)
    return Table(path, "a JSON list", head, read, notes)


def _array_members(path: Path, notes: list[str]) -> Iterator[tuple[list[dict[str, Any]], float]]:
    """Give the members of a list that is a whole file, as far as they can be read."""
    stream = TextStream(path, notes)
    text, at, entry = "", -1, 0
    last = False
    # A list may stand on one line, so pieces are taken and not lines.
    for piece, done in stream.pieces():
        last = piece is None
        text, at = text[max(at, 0) :] + (piece or ""), min(at, 0)
        if at < 0:
            start = text.find("[")
            if start < 0:
                continue
            at = start + 1
        rows: list[dict[str, Any]] = []
        while True:
            at = _blank.match(text, at).end()  # type: ignore[union-attr]
            if at >= len(text) or text[at] == "]":
                break
            place = f"in entry {entry + 1} of {named(path)}"
            try:
                member, end = _decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                if last:
                    if entry == 0 or (error.pos < len(text.rstrip()) - 1 and not _broken_off(text, at)):
                        msg = f"malformed JSON {place}: {error.msg}; got {shown(text[at:])}"
                        raise InputError(msg) from None
                    notes.append(f"entry {entry + 1}, the last, is broken off and left out")
                    at = len(text)
                break
            except (InputError, RecursionError, ValueError):
                parse_json(text[at : at + LONGEST_LINE], place)  # says it in words
                raise
            if not isinstance(member, dict):
                msg = f"every entry must be an object such as {_LINE}; got {shown(repr(member))} {place}"
                raise InputError(msg)
            rows.append(member)
            entry, at = entry + 1, end
        if rows:
            yield rows, done / max(stream.size, 1)


_blank = re.compile(r"[\s,]*")


def _broken_off(text: str, at: int) -> bool:
    """Whether an object that starts here is not closed before the text ends."""
    depth, inside, escaped = 0, False, False
    for letter in text[at:]:
        if escaped:
            escaped = False
        elif inside:
            inside, escaped = letter != '"', letter == "\\"
        elif letter == '"':
            inside = True
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return False
    return True


def _strict_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        msg = "a key stands twice"
        raise InputError(msg)
    return row


_decoder = json.JSONDecoder(object_pairs_hook=_strict_pairs)


def _object_file(path: Path, text: bytes, record: Callable[[dict[str, Any]], bool]) -> Table:  # noqa: ARG001
    notes: list[str] = []
    value = parse_json(read_whole(path, notes), f"in {named(path)}")
    if record(value):
        rows, how = [value], "a JSON object"
    else:
        rows, how = _collection(value, path)
    fixed = list(notes)

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:  # noqa: ARG001 - one way
        return in_batches(path, rows)

    return Table(path, how, rows[:SNIFFED], read, fixed)


def _collection(value: dict[str, Any], path: Path) -> tuple[list[dict[str, Any]], str]:
    """Return the rows that an object holds: by prompt, by column, or in a list under some key."""
    found = _rows_of(value)
    if found is not None:
        return found
    waiting: list[tuple[str, Any]] = list(value.items())
    for _ in range(3):
        best: tuple[list[dict[str, Any]], str] | None = None
        for name, inner in waiting:
            if is_list(inner) and inner and all(isinstance(member, dict) for member in inner):
                rows = list(inner), f"a JSON list under {shown(name)}"
            elif isinstance(inner, dict) and (deeper := _rows_of(inner)) is not None:
                rows = deeper[0], f"{deeper[1]} under {shown(name)}"
            else:
                continue
            if best is None or len(rows[0]) > len(best[0]):
                best = rows
        if best is not None:
            return best
        waiting = [
            (f"{name}.{key}", deep) for name, inner in waiting if isinstance(inner, dict) for key, deep in inner.items()
        ]
    if value and all(not isinstance(inner, (dict, list)) for inner in value.values()):
        return [value], "a JSON object"
    keys = ", ".join(shown(key) for key in list(value)[:8]) or "none"
    msg = (
        f"{named(path)} is a JSON object without rows that can be told; its keys are {keys}. Write the rows as JSON "
        f"Lines, for example: jq -c '.{next(iter(value), 'rows')}[]' {path.name} > rollouts.jsonl"
    )
    raise InputError(msg)


_ROLE_WORDS = {
    "prompt",
    "prompt_id",
    "task_id",
    "problem_id",
    "correct",
    "total",
    "reward",
    "rewards",
    "score",
    "question",
}


def _rows_of(value: dict[str, Any]) -> tuple[list[dict[str, Any]], str] | None:
    """Return the rows of an object whose members are all alike."""
    members = list(value.values())
    if len(members) == 0:
        return None
    named = len(_ROLE_WORDS & value.keys()) >= 2
    if named and all(is_list(member) for member in members) and len({len(member) for member in members}) == 1:
        return [dict(zip(value, row, strict=True)) for row in zip(*members, strict=True)], "a JSON object of columns"
    if named and all(isinstance(member, dict) for member in members):
        ids = list(members[0])
        return [
            {"prompt_id": key, **{name: column.get(key) for name, column in value.items()}} for key in ids
        ], "a JSON object of columns"
    if named:
        return None
    if all(is_list(member) and not any(is_list(inner) for inner in member) for member in members) and any(members):
        # By prompt only where the lists hold numbers or truth values, or objects for several prompts.
        first = next(inner for member in members for inner in member)
        if isinstance(first, dict) and len(members) == 1:
            return None
        if len(members) == 1 and len(members[0]) == 1:
            return None
        if isinstance(first, (bool, int, float, dict)) or first is None:
            return [{"prompt_id": key, "rewards": member} for key, member in value.items()], "a JSON object by prompt"
        return None
    if len(members) > 1 and all(isinstance(member, dict) for member in members):
        shared = set.intersection(*({*member} for member in members))
        if shared and not any(
            isinstance(inner, (dict, list))
            for member in members
            for inner in member.values()
            if is_list(inner) and inner and isinstance(inner[0], dict)
        ):
            return [{"prompt_id": key, **member} for key, member in value.items()], "a JSON object by prompt"
        return None
    if len(members) > 1 and all(_is_rate(member) for member in members):
        return [{"prompt_id": key, "pass_rate": member} for key, member in value.items()], "a JSON object by prompt"
    return None


def _is_rate(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"\s*(\d+(\.\d+)?\s*%|\d+\s*/\s*\d+)\s*", value) is not None
    return isinstance(value, float) and 0 <= value <= 1


# CSV and its kin


def _delimited(path: Path, text: bytes) -> Table:
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    data = [line for line in lines if not line.startswith("#")] or lines
    if not data:
        msg = f"{named(path)} holds blank lines alone; was it ever written?"
        raise InputError(msg)
    delimiter = _delimiter(data[:20])
    if delimiter is None and len(data[0]) > 200:
        msg = f"{named(path)} is no table: its first line is {shown(data[0])}; {_KINDS}"
        raise InputError(msg)
    notes: list[str] = []
    what = {",": "CSV", "\t": "TSV", None: "CSV"}.get(delimiter, f"CSV with {delimiter!r}")

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:  # noqa: ARG001 - one way
        notes.clear()
        return _delimited_batches(path, delimiter or ",", notes)

    first = next(_delimited_batches(path, delimiter or ",", [], SNIFFED), None)
    if first is None:
        columns = ", ".join(shown(name.strip()) for name in data[0].split(delimiter or ",")[:8])
        msg = f"{named(path)} has a line of columns ({columns}) but no rows; it needs a row for every prompt"
        raise InputError(msg)
    return Table(path, what, first.objects(), read, notes)


def _delimiter(lines: Sequence[str]) -> str | None:
    def score(mark: str) -> tuple[bool, int]:
        counts = [len(row) - 1 for row in csv.reader(lines, delimiter=mark)]
        return len(set(counts)) == 1, counts[0] if counts else 0

    found = max(_DELIMITERS, key=score)
    return found if score(found)[1] > 0 else None


def _delimited_batches(path: Path, delimiter: str, notes: list[str], most: int = BATCH) -> Iterator[Batch]:
    import polars as pl

    csv.field_size_limit(LONGEST_LINE)
    stream = TextStream(path, notes)
    state = {"done": 0, "ended": 1}

    def lines() -> Iterator[str]:
        for block in stream.blocks():
            state["done"] = block.done
            if block.last and block.data:
                state["ended"] = 0
            yield from io.StringIO(block.data.decode("utf-8", "replace"), newline="")

    reader = csv.reader(lines(), delimiter=delimiter)
    header: list[str] = []
    rows: list[list[str]] = []
    numbers: list[int] = []
    comments = blank = 0
    for row in reader:
        if not any(cell.strip() for cell in row):
            blank += bool(header) and bool(row)
            continue
        if row[0].lstrip().startswith("#") and (not header or len(row) != len(header)):
            comments += 1
            continue
        if not header:
            header = [name.strip() for name in row]
            _check_header(header, path)
            continue
        if len(row) != len(header):
            place = f"on line {reader.line_num} of {named(path)}"
            following = next(reader, None)
            if following is None and len(row) < len(header) and (rows or numbers):
                notes.append(f"line {reader.line_num}, the last, is broken off and left out")
                break
            msg = f"{len(row)} values for {len(header)} columns {place}: {shown(delimiter.join(row))}. Mend the line"
            raise InputError(msg)
        rows.append(row)
        numbers.append(reader.line_num)
        if len(rows) == most:
            yield _text_batch(pl, path, header, rows, numbers, state["done"] / max(stream.size, 1))
            rows, numbers = [], []
    if comments:
        notes.append(f"{comments} {plural(comments, 'line')} of comment (#) left out")
    if blank:
        notes.append(f"{blank} empty {plural(blank, 'row')} left out")
    if rows:
        yield _text_batch(pl, path, header, rows, numbers, 1.0)


def _check_header(header: list[str], path: Path) -> None:
    twice = {name for name in header if header.count(name) > 1 and name}
    if twice:
        msg = f"the column {shown(min(twice))} stands twice in {named(path)}; give every column a name of its own"
        raise InputError(msg)
    if all(re.fullmatch(r"[-+]?\d+([.,]\d+)?", name) for name in header if name):
        msg = (
            f"the first line of {named(path)} holds values and no names: {shown(','.join(header))}. Put a line of "
            "names above it, for example: prompt_id,correct,total"
        )
        raise InputError(msg)


def _text_batch(
    pl: Any, path: Path, header: list[str], rows: list[list[str]], numbers: list[int], done: float
) -> Batch:
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    frame = pl.DataFrame({name: pl.Series(name, values, dtype=pl.String) for name, values in columns.items()})
    return Batch(frame, None, _numbered(path, numbers), done)


# Parquet


def _parquet(path: Path) -> Table:
    import polars as pl

    notes: list[str] = []
    source: Any = path
    try:
        if path.suffix.lower() != ".parquet" and bare_suffix(path) == ".parquet":
            source = io.BytesIO(TextStream(path, notes).whole())
        lazy = pl.scan_parquet(source)
        names = lazy.collect_schema().names()
        total = int(lazy.select(pl.len()).collect().item())
        head = lazy.head(SNIFFED).collect().to_dicts() if total else []
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _no_parquet(path, error) from error
    if total == 0 or total > _MOST_PARQUET_ROWS:
        what = "no rows" if total == 0 else f"{total:,} rows, more than any log has"
        msg = f"{named(path)} has {what}; its columns are {', '.join(map(shown, names)) or 'none'}"
        raise InputError(msg)

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:
        columns = [name for name in (wanted or names) if name in names]
        for start in range(0, total, BATCH):
            try:
                frame = lazy.select(columns).slice(start, BATCH).collect()
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
                raise _no_parquet(path, error) from error
            yield Batch(frame, None, _rows_place(path, start + 1), min((start + BATCH) / total, 1.0))

    return Table(path, "Parquet", head, read, notes)


def _no_parquet(path: Path, error: BaseException) -> InputError:
    reason = str(error).partition("\n")[0]
    return InputError(f"{named(path)} can't be read as Parquet: {shown(reason, 120)}. Is it complete?")


def plain_kind(values: Sequence[Any]) -> str | None:
    """Return the one plain type of some values, None where they have several or another."""
    kinds = set()
    for value in values:
        if isinstance(value, bool):
            kinds.add("truth")
        elif isinstance(value, (int, float)) and math.isfinite(value):
            kinds.add("number")
        elif isinstance(value, str):
            kinds.add("text")
        elif is_list(value) and all(type(inner) in {int, float} for inner in value):
            kinds.add("numbers")
        else:
            return None
    return kinds.pop() if len(kinds) == 1 else None
