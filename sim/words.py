"""Words that sentences of several studies are made of."""

from __future__ import annotations

__all__ = ["plural"]


def plural(count: int, word: str) -> str:
    """Return the word with an s where the count asks for one."""
    return word if count == 1 else f"{word}s"
