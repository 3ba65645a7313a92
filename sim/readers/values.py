"""Foreign values as ids, numbers and truth values; what can't be one is quoted with its place."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ada_bandit._types import BoolArray, FloatArray
from ada_bandit.errors import InputError
from sim.readers.streams import shown

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Column",
    "Place",
    "as_list",
    "follow",
    "is_list",
    "is_missing",
    "key_text",
    "number",
    "numbers",
    "objects",
    "parse_json",
    "share",
    "truths",
]

Column: TypeAlias = "list[Any] | pl.Series"
Place: TypeAlias = Callable[[int], str]
"""Says where the row of a number stands."""

LONGEST_KEY = 120
"""Characters of an id beyond which its start and a digest stand for it."""

_WORDS = {
    "true": 1.0, "yes": 1.0, "correct": 1.0, "pass": 1.0, "passed": 1.0, "c": 1.0,
    "false": 0.0, "no": 0.0, "incorrect": 0.0, "fail": 0.0, "failed": 0.0, "i": 0.0,
}  # fmt: skip
_MISSING = {"", "null", "none", "nan", "na", "n/a"}
_COMMA = re.compile(r"[+-]?\d+,\d+")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"the key {shown(twice)} stands twice in one object"
        raise InputError(msg)
    return row


def parse_json(text: str | bytes, place: str, *, strict: bool = True) -> Any:
    """Parse JSON of a stranger.

    Raises
    ------
    InputError
        For what is malformed, nested too deep, has a key twice in one object, or numbers of absurd length.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique if strict else None)
    except InputError as error:
        msg = f"{error} {place}; which value holds can't be told. Remove one"
        raise InputError(msg) from None
    except json.JSONDecodeError as error:
        got = shown(text.decode("utf-8", "replace").strip() if isinstance(text, bytes) else text.strip())
        msg = f"malformed JSON {place}: {error.msg} at column {error.colno}; got {got}"
        raise InputError(msg) from None
    except RecursionError:
        msg = f"JSON nested too deep to be read {place}; rollouts need no more than a few levels"
        raise InputError(msg) from None
    except ValueError as error:
        what = "a number with thousands of digits" if "digits" in str(error) else shown(str(error))
        msg = f"JSON that can't be used {place}: {what}. Mend or remove it"
        raise InputError(msg) from None


def follow(value: Any, path: str) -> Any:
    """Return what a dotted path leads to, None where it leads nowhere.

    >>> follow({"completions": [{"score": 1}, {"score": 0}]}, "completions[].score")
    [1, 0]
    >>> follow({"a.b": 3, "a": {"b": 4}}, "a.b")
    3
    """
    if isinstance(value, dict) and path:
        if path in value:
            return value[path]
        head, _, rest = path.partition(".")
        bare = head.removesuffix("[]")
        if bare not in value:
            # A key may hold dots itself.
            for at in [found.start() for found in re.finditer(r"\.", path)][1:]:
                if path[:at] in value:
                    return follow(value[path[:at]], path[at + 1 :])
            return None
        inner = value[bare]
        if isinstance(inner, str) and inner[:1] in {"{", "["}:
            inner = as_list(inner) if inner[0] == "[" else _object(inner)
        if bare != head:
            return [follow(member, rest) if rest else member for member in inner] if is_list(inner) else None
        return follow(inner, rest) if rest else inner
    return None


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_list(value: Any) -> bool:
    """Whether a value is a list, also one that polars made."""
    return isinstance(value, (list, tuple, np.ndarray))


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects that a list holds; none where it is no list."""
    return [member for member in value if isinstance(member, dict)] if is_list(value) else []


def is_missing(value: Any) -> bool:
    """Whether a value is None or not a number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def as_list(value: Any) -> list[Any] | None:
    """Return a value as a list: as it is, or as text in brackets; None where it is none."""
    if is_list(value):
        return list(value)
    if hasattr(value, "to_list"):
        return list(value.to_list())
    if isinstance(value, str) and value.strip().startswith("["):
        text = re.sub(r"\b(True|False|None)\b", lambda word: {"None": "null"}.get(word[0], word[0].lower()), value)
        found = _object(text)
        return found if isinstance(found, list) else None
    return None


def key_text(value: Any, where: str = "") -> str:
    """Return a prompt's id as text; long ones, such as a prompt itself, as their start and a digest.

    Raises
    ------
    InputError
        If there is none.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.hex()
    elif isinstance(value, str):
        text = value
    elif value is None or (isinstance(value, float) and math.isnan(value)):
        text = ""
    elif isinstance(value, (dict, list, tuple, np.ndarray)):
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    else:
        text = str(value)
    text = text.strip()
    if not text:
        msg = f"the prompt's id is missing {where}; give every row the id of its prompt"
        raise InputError(msg)
    if len(text) > LONGEST_KEY:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        text = f"{text[: LONGEST_KEY - 40]}… #{digest}"
    return text


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def number(value: Any, *, comma: bool = False) -> float | None:
    """Return a value as a number: NaN where there is none, None where it is something else.

    Truth values and their usual words are 1 and 0. A list of one is that value.
    """
    if value is None:
        return math.nan
    if isinstance(value, (bool, np.bool_)):
        return float(value)
    if isinstance(value, (int, float, np.number)):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, str):
        text = value.strip()
        low = text.lower()
        if low in _MISSING:
            return math.nan
        if low in _WORDS:
            return _WORDS[low]
        if comma and _COMMA.fullmatch(text):
            text = text.replace(",", ".")
        try:
            return float(text) if "_" not in text else None
        except ValueError:
            return None
    if is_list(value) and len(value) == 1 and not is_list(value[0]):
        return number(value[0], comma=comma)
    if isinstance(value, dict) and "value" in value:
        return number(value["value"], comma=comma)
    return None


def numbers(values: Column, what: str, place: Place, *, comma: bool = False) -> FloatArray:
    """Return a column as float64; NaN where it has no value.

    Raises
    ------
    InputError
        For a value that is no finite number; it is quoted.
    """
    fast = _fast_numbers(values)
    if fast is None:
        found = [number(value, comma=comma) for value in values]
        wrong = next((at for at, value in enumerate(found) if value is None), None)
        if wrong is not None:
            msg = f"{what} must be a number; got {shown(values[wrong])} {place(wrong)}"
            raise InputError(msg)
        fast = np.array(found, dtype=np.float64)
    infinite = np.isinf(fast)
    if infinite.any():
        at = int(np.argmax(infinite))
        msg = f"{what} must be finite, or null where there is none; got {shown(values[at])} {place(at)}"
        raise InputError(msg)
    return fast


def _fast_numbers(values: Column) -> FloatArray | None:
    if not isinstance(values, list):
        import polars as pl

        if values.dtype.is_numeric() or values.dtype == pl.Boolean:
            return np.asarray(values.cast(pl.Float64).fill_null(math.nan).to_numpy(), dtype=np.float64)
        if values.dtype == pl.Null:
            return np.full(len(values), math.nan)
        if values.dtype == pl.String:
            cast = values.cast(pl.Float64, strict=False)
            if cast.null_count() == values.null_count():
                return np.asarray(cast.fill_null(math.nan).to_numpy(), dtype=np.float64)
        return None
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        return None
    return array.astype(np.float64) if array.ndim == 1 and array.dtype.kind in "bif" else None


def truths(values: Column) -> BoolArray:
    """Return where a column says yes: true, a number other than 0, text or a list that is not empty."""

    def holds(value: Any) -> bool:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return False
        if isinstance(value, str):
            low = value.strip().lower()
            return low not in _MISSING and low not in {"false", "no", "0", "{}", "[]"}
        return len(value) > 0 if is_list(value) else bool(value)

    return np.fromiter((holds(value) for value in values), dtype=np.bool_, count=len(values))


def share(value: Any, *, comma: bool = False) -> tuple[float, float] | None:
    """Return a pass rate, and the number of responses where the text says it; None where it is no rate.

    >>> share("62.5%"), share("5/8")
    ((0.625, nan), (0.625, 8.0))
    """
    if isinstance(value, str):
        text = value.strip()
        if text.endswith("%"):
            percent = number(text[:-1], comma=comma)
            return None if percent is None else (percent / 100, math.nan)
        above, slash, below = text.partition("/")
        if slash:
            parts = number(above), number(below)
            if None in parts or not parts[1]:
                return None
            return float(parts[0] or 0.0) / float(parts[1]), float(parts[1])
    found = number(value, comma=comma)
    return None if found is None else (found, math.nan)
