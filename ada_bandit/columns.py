"""Rewards, flags and ids as people have them: lists, arrays, tensors of any kind and device, Decimals.

No message prints a whole array: what is quoted is the first value that can't be used, and where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, preview

__all__ = ["id_column", "number_column"]


def _untied(values: Any) -> Any:
    """Return a tensor's numbers as an array in this process's memory; anything else as it is.

    Tensors are told by their methods, so that none of their libraries is imported.
    """
    for method in ("detach", "cpu"):
        if callable(getattr(values, method, None)):
            values = getattr(values, method)()
    if callable(getattr(values, "double", None)) and callable(getattr(values, "numpy", None)):
        # NumPy has no bfloat16; a float64 holds every value of the narrower kinds. Complex ones would lose a part.
        complex_kind = callable(getattr(values, "is_complex", None)) and values.is_complex()
        return values.numpy() if complex_kind else values.double().numpy()
    return values


def _number(value: Any) -> float | None:
    """Return one value as a float, NaN for None; None for what is no number."""
    if value is None:
        return np.nan
    value = _untied(value)
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, (bool, np.bool_, Real, Decimal, Fraction)):
        return float(value)
    return None


def number_column(name: str, values: Any, size: int) -> FloatArray:
    """Return numbers as float64, ``[entry]``, NaN for None.

    Parameters
    ----------
    name
        What messages call them.
    values
        A number or a sequence of them: NumPy arrays of booleans, whole or real numbers; lists, also
        with None; tensors of any kind and device; Decimals and fractions.
    size
        How many there must be.

    Raises
    ------
    InputError
        For text, complex numbers or anything else that is no number (the first one is quoted), or another
        number of them.
    """
    values = _untied(values)
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.dtype.kind in "biuf":
        column = array.astype(np.float64)
    else:
        if array is not None and array.ndim == 0:
            entries: list[Any] = [array[()]]
        elif isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
            entries = list(values)
        else:
            entries = [values]
        numbers = [_number(entry) for entry in entries]
        if None in numbers:
            at = numbers.index(None)
            msg = (
                f"{name} must be numbers, one an id, or None for a response without a score; got "
                f"{preview(entries[at])} ({type(entries[at]).__name__}) at place {at} of {len(entries)}"
            )
            raise InputError(msg)
        column = np.array(numbers, dtype=np.float64)
    column = np.atleast_1d(column)
    if column.shape != (size,):
        msg = f"{name} must be one an id; got {name} of shape {column.shape} for {size} ids"
        raise InputError(msg)
    return column


def id_column(ids: Any) -> IntArray:
    """Return ids as int64, ``[entry]``.

    Raises
    ------
    InputError
        If they are no row of whole numbers.
    """
    # A tensor of whole numbers keeps its kind; `double` would make it one of real numbers.
    for method in ("detach", "cpu", "numpy"):
        if not isinstance(ids, np.ndarray) and callable(getattr(ids, method, None)):
            ids = getattr(ids, method)()
    array = np.atleast_1d(np.asarray(ids))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        msg = f"ids must be one row of whole numbers from ask(); got {preview(ids)}"
        raise InputError(msg)
    return array.astype(np.int64)
