"""Building a named part (rule, budget, group, advantage, law) from plain values, with helpful errors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, preview, unknown_name

T = TypeVar("T")


def build(what: str, kinds: Mapping[str, type[T]], data: Any, example: str) -> T:
    """Build the part that `data` describes.

    Parameters
    ----------
    what
        The word for this sort of part in messages.
    kinds
        Constructors by name.
    data
        A name, or a mapping with the key ``name`` and the constructor's parameters.
    example
        What a correct description looks like, for messages.

    Raises
    ------
    InputError
        For an unknown name or key (the nearest one is suggested), a missing key, or a value
        that the constructor refuses.
    """
    if isinstance(data, str):
        data = {"name": data}
    if not isinstance(data, Mapping) or "name" not in data:
        msg = f"the {what} must be a name or a table with a name, such as {example}; got {data!r}"
        raise InputError(msg)
    options = dict(data)
    name = options.pop("name")
    if not isinstance(name, str) or name not in kinds:
        raise unknown_name(what, name, kinds)
    parameters = inspect.signature(kinds[name]).parameters
    for key in options:
        if key not in parameters:
            raise unknown_name(f"key of the {what} {name!r}", key, parameters)
    missing = [key for key, p in parameters.items() if p.default is p.empty and key not in options]
    if missing:
        msg = f"the {what} {name!r} needs {', '.join(missing)}; got {dict(data)!r}"
        raise InputError(msg)
    return kinds[name](**options)


def plain(part: Any) -> dict[str, Any]:
    """Describe a dataclass part by its name and fields; the inverse of `build`."""
    return {"name": part.name} | {field.name: getattr(part, field.name) for field in fields(part)}


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Square:
    """A table ``[pos, neg]`` that is part of a rule: read-only, equal and hashed by value, short to print.

    Raises
    ------
    InputError
        If the values are no square table of finite numbers; `name` says in the message whose they are.
    """

    values: npt.NDArray[Any]
    """`[pos, neg]` float64, int64 or bool."""

    def __init__(self, name: str, values: Any, dtype: npt.DTypeLike = np.float64) -> None:
        table = check_table(name, values).astype(dtype)
        table.setflags(write=False)
        object.__setattr__(self, "values", table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Square) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        """Show the size alone: a table of K = 128 has 16,641 entries."""
        return f"<{self.values.shape[0]} x {self.values.shape[0]} table>"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __getstate__(self) -> npt.NDArray[Any]:
        return self.values

    def __setstate__(self, values: npt.NDArray[Any]) -> None:
        # A pickled array forgets that it was read-only.
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def at(self, name: str, pos: IntArray, neg: IntArray) -> npt.NDArray[Any]:
        """Return the entries at cells, shaped like the counts; an error says that the budget leads beyond the table."""
        most = int(max(np.max(pos, initial=0), np.max(neg, initial=0)))
        if most >= self.values.shape[0]:
            msg = (
                f"the table {name} holds counts up to {self.values.shape[0] - 1}, and the budget leads to {most}; "
                "use the budget that the table was made for"
            )
            raise InputError(msg)
        return np.asarray(self.values[pos, neg])


def check_table(name: str, values: Any) -> FloatArray:
    """Return a square table ``[pos, neg]`` of finite numbers."""
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name} must be a square table of numbers by pos and neg; got {preview(values)}"
        raise InputError(msg) from error
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size or not np.isfinite(table).all():
        msg = (
            f"{name} must be a square table of finite numbers by pos and neg; got shape {table.shape}: "
            f"{preview(values)}"
        )
        raise InputError(msg)
    return table
