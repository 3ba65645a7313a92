"""The library's errors, and the checks of input that raise them.

Every message quotes the value that was given and names the remedy.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray

__all__ = ["AdaBanditError", "InputError", "ProtocolError"]


class AdaBanditError(Exception):
    """Base class of every error that the library raises on purpose."""


class InputError(AdaBanditError, ValueError):
    """A value can't be used; the message quotes it and names the remedy."""


class ProtocolError(AdaBanditError, RuntimeError):
    """Methods were called in an order that has no meaning."""


def preview(value: Any, size: int = 80) -> str:
    """Return the repr of a value for a message, cut where it is long: no message prints a whole array."""
    text = " ".join(repr(value).split())
    return text if len(text) <= size else f"{text[:size]}…"


def check_count(name: str, value: Any, at_least: int = 1) -> int:
    """Return `value` as an int that is at least `at_least`."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least:
        msg = f"{name} must be a whole number of at least {at_least}; got {preview(value)}"
        raise InputError(msg)
    return number


def check_number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    strict: bool = False,
) -> float:
    """Return `value` as a finite float in [low, high], or in (low, high) where `strict`."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    inside = low < number < high if strict else low <= number <= high
    if not (math.isfinite(number) and inside):
        left = "[" if math.isfinite(low) and not strict else "("
        right = "]" if math.isfinite(high) and not strict else ")"
        span = f" in {left}{low:g}, {high:g}{right}" if (low, high) != (-math.inf, math.inf) else ""
        msg = f"{name} must be a finite number{span}; got {preview(value)}"
        raise InputError(msg)
    return number


def check_pass_rates(pass_rates: npt.ArrayLike, name: str = "pass_rates") -> FloatArray:
    """Return `pass_rates` as float64 with every entry in [0, 1]; quote the first that isn't."""
    try:
        values = np.asarray(pass_rates)
        # NumPy would read text such as "0.5" as a number.
        rates = values.astype(np.float64) if values.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        rates = None
    if rates is None:
        msg = f"{name} must be numbers in [0, 1]; got {preview(pass_rates)}"
        raise InputError(msg)
    # NaN makes the minimum NaN, and no comparison with it holds.
    if rates.size and not (rates.min() >= 0 and rates.max() <= 1):
        wrong = ~((rates >= 0) & (rates <= 1))
        first = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
        value = float(np.atleast_1d(rates)[first])
        where = f" at position {first[0] if len(first) == 1 else first}" if rates.ndim else ""
        msg = (
            f"{name} must lie in [0, 1]; got {value!r}{where} "
            f"({int(wrong.sum())} of {rates.size} outside). Drop these prompts or mend their rates"
        )
        raise InputError(msg)
    return rates


def check_counts(name: str, values: npt.ArrayLike, size: int) -> FloatArray:
    """Return counts of at least 0 as float64, ``[prompt]``, `size` of them."""
    try:
        array = np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        msg = f"{name} must be counts, one a prompt; got {preview(values)}"
        raise InputError(msg) from error
    if array.size != size or not (np.isfinite(array).all() and (array >= 0).all()):
        msg = f"{name} must be {size} counts of at least 0, one a prompt; got {preview(values)}"
        raise InputError(msg)
    return array


def unknown_name(kind: str, name: Any, known: Iterable[str]) -> InputError:
    """Build the error for a name that isn't known; it suggests the nearest one.

    Parameters
    ----------
    kind
        What it should be the name of, such as ``policy`` or ``option of the preset 'grpo'``.
    name
        What was given.
    known
        The names that there are.
    """
    known = sorted(known)
    hint = did_you_mean(name, known)
    kind, of, owner = kind.partition(" of ")
    return InputError(f"unknown {kind} {name!r}{of}{owner}{f'{hint} Known' if hint else '; known'}: {', '.join(known)}")


def did_you_mean(name: Any, known: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` with the known name that is nearest, or nothing where none is near."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
