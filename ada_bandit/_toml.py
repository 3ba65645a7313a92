"""Values and keys as TOML text, for whoever writes a file that `tomllib` reads back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ada_bandit.errors import InputError

__all__ = ["toml_key", "toml_value"]


def toml_key(key: str) -> str:
    """Return a key, quoted where it has to be."""
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else toml_value(key)


def toml_value(value: Any, what: str = "a policy file") -> str:
    """Return one value on one line; JSON's escapes of control characters are TOML's as well.

    Raises
    ------
    InputError
        If TOML has no word for it; `what` names in the message what is being written.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # JSON leaves DEL as it is, which TOML doesn't take.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item, what)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item, what) for item in value) + "]"
    msg = f"{what} holds numbers, text, booleans, lists and tables; got {value!r}"
    raise InputError(msg)
