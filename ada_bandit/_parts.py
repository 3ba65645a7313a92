"""Building a named part (rule, budget, group, advantage, law) from plain values, with helpful errors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, unknown_name

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


def check_table(name: str, values: Any) -> FloatArray:
    """Return a square table ``[pos, neg]`` of finite numbers."""
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name} must be a square table of numbers by pos and neg; got {values!r}"
        raise InputError(msg) from error
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size or not np.isfinite(table).all():
        msg = f"{name} must be a square table of finite numbers by pos and neg; got shape {table.shape}: {values!r}"
        raise InputError(msg)
    return table


def look_up(name: str, table: Any, pos: IntArray, neg: IntArray) -> FloatArray:
    """Return the entries of a table at cells; an error names the budget that leads beyond it."""
    values = np.array(table, dtype=np.float64)
    most = int(max(np.max(pos, initial=0), np.max(neg, initial=0)))
    if most >= values.shape[0]:
        msg = (
            f"the table {name} holds counts up to {values.shape[0] - 1}, and the budget leads to {most}; "
            "use the budget that the table was made for"
        )
        raise InputError(msg)
    return np.asarray(values[pos, neg])
