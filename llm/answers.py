"""Where the answer stands in a response."""

from __future__ import annotations

import re
from collections.abc import Callable

from ada_bandit.errors import unknown_name

__all__ = ["extract"]

# A minus after a digit, a letter or a bracket is a difference.
_NUMBER = re.compile(r"(?:(?<![\w)\]}.])-)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+)")


def extract(text: str, mode: str = "whole") -> str | None:
    r"""Return the answer in a response, None where there is none.

    Parameters
    ----------
    text
        The response.
    mode
        ``whole``: the text as it is. ``last-number``: its last number, without commas between
        thousands; a minus counts where it can't be a difference. ``last-line``: its last line that
        isn't blank. ``boxed``: what stands in its last closed ``\boxed{}``, nested braces included.
        ``tag``: what stands in its last ``<answer></answer>``.

    Raises
    ------
    InputError
        If the mode is unknown.
    """
    if mode not in _FINDERS:
        raise unknown_name("way to find the answer", mode, _FINDERS)
    return _FINDERS[mode](text)


def _last_number(text: str) -> str | None:
    # U+2212 is the minus of typeset text.
    numbers = [each.group() for each in _NUMBER.finditer(text.replace("\u2212", "-"))]
    return numbers[-1].replace(",", "") if numbers else None


def _last_line(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def _boxed(text: str) -> str | None:
    opening = [each.end() for each in re.finditer(r"\\boxed\s*\{", text)]
    closed = (_until_closed(text, start) for start in reversed(opening))
    return next((inner.strip() for inner in closed if inner is not None), None)


def _until_closed(text: str, start: int) -> str | None:
    """Return the text from `start` to the brace that closes the one before it."""
    depth = 1
    # A brace after a backslash is text, so the pair is passed over as one.
    for each in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(each.group(), 0)
        if not depth:
            return text[start : start + each.start()]
    return None


def _tag(text: str) -> str | None:
    before, closing, _ = text.rpartition("</answer>")
    _, opening, inner = before.rpartition("<answer>")
    return inner.strip() if closing and opening else None


_FINDERS: dict[str, Callable[[str], str | None]] = {
    "whole": lambda text: text,
    "last-number": _last_number,
    "last-line": _last_line,
    "boxed": _boxed,
    "tag": _tag,
}
