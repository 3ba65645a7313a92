"""What every adapter checks: the methods of a trainer that it relies on, and how many rows a policy keeps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ada_bandit.policy import Policy

__all__ = ["missing_methods", "most_kept"]


def missing_methods(holder: object, methods: Mapping[str, Sequence[str]], prefix: str = "") -> Iterator[str]:
    """Name the methods, and the parameters of methods, that a class or a module lacks.

    Parameters
    ----------
    holder
        The class or module.
    methods
        Names of parameters by method.
    prefix
        Stands before each method's name.
    """
    for name, parameters in methods.items():
        method = getattr(holder, name, None)
        if method is None:
            yield f"{prefix}{name}()"
            continue
        known = inspect.signature(method).parameters
        yield from (f"parameter {each!r} of {prefix}{name}()" for each in parameters if each not in known)


def most_kept(policy: Policy) -> int:
    """Return the most responses of one prompt that a policy keeps."""
    tables = policy.tables
    pos, neg = np.indices(tables.keep.shape)
    return int(tables.keep[pos + neg <= tables.max_samples].max(initial=0))
