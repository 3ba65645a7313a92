"""The numbers of the report: ``numbers.tex``, one macro a number, read from the items' JSON."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import write_text
from paper.claims import CANT_TELL, EVIDENCE, FAILS, HOLDS, REPORTED
from paper.items import ITEMS
from paper.published import settings
from paper.verdict import to_latex

__all__ = ["MACROS", "REPORT", "format_number", "look_up", "macros", "used_macros", "write_numbers"]

REPORT = Path(__file__).parent / "report"
MACROS = REPORT / "macros.toml"
"""Which number each macro is: ``Name = ["item/path/to/number", "format"]``."""

_PREFIX = "num"
_OUTCOMES = {"hold": HOLDS, "fail": FAILS, "unknown": CANT_TELL, "reported": REPORTED}


def look_up(records: Mapping[str, Any], path: str) -> Any:
    """Return the value at ``item/key/key``; keys of lists are positions, and - stands before those from the end.

    Raises
    ------
    InputError
        If there is none; the message names the path.
    """
    item, *keys = path.split("/")
    value = records.get(item)
    try:
        for key in keys:
            value = value[int(key)] if isinstance(value, list) else value[key]  # type: ignore[index]
    except (KeyError, IndexError, TypeError, ValueError):
        value = None
    if value is None:
        msg = f"there is no number at {path!r}; run its item first: python -m paper {item}"
        raise InputError(msg)
    return value


def format_number(value: Any, style: str) -> str:
    """Return a value in a format of Python's as LaTeX: % and thousands are set apart, e becomes a power of ten."""
    text = format(value, style)
    if re.fullmatch(r"[-+]?[\d.]+e[-+]\d+", text):
        mantissa, _, power = text.partition("e")
        return rf"{mantissa}\times 10^{{{int(power)}}}"
    return text.replace(",", "{,}").replace("%", r"\,\%")


def macros(records: Mapping[str, Any]) -> dict[str, str]:
    """Return all macros of `MACROS` by name, with their LaTeX."""
    table = tomllib.loads(MACROS.read_text(encoding="utf-8"))
    return {name: format_number(look_up(records, path), style) for name, (path, style) in table.items()}


def used_macros(text: str) -> set[str]:
    """Return the names of the number macros that a LaTeX text uses."""
    return set(re.findall(rf"\\{_PREFIX}([A-Za-z]+)", text))


def write_numbers(out: Path) -> tuple[Path, int]:
    """Write ``numbers.tex`` and ``verdict.tex`` into a folder with the items' JSON.

    Returns
    -------
    path : Path
        ``numbers.tex``.
    count : int
        Number of macros.
    """
    records: dict[str, Any] = {}
    for name in ITEMS:
        path = out / f"{name}.json"
        if not path.is_file():
            msg = f"{str(path)!r} is missing: run python -m paper {name} (or all) with --out {str(out)!r} first"
            raise InputError(msg)
        record = json.loads(path.read_text(encoding="utf-8"))
        records[name] = record["numbers"]
        records.setdefault("verdict", []).extend(record["verdicts"])
        records.setdefault("quick", []).append(record["quick"])
    verdicts = records.pop("verdict")
    quick = any(records.pop("quick"))
    records["verdict"] = _tally(verdicts)
    records["settings"] = settings()
    values = macros(records)
    lines = [rf"\newcommand{{\{_PREFIX}{name}}}{{\ensuremath{{{value}}}}}" for name, value in values.items()]
    note = "These are the numbers of a quick run: simulated ones rest on few seeds." if quick else ""
    lines.append(rf"\newcommand{{\quicknote}}{{{note}}}")
    target = out / "numbers.tex"
    write_text(target, "\n".join(lines) + "\n")
    write_text(out / "verdict.tex", to_latex(verdicts))
    return target, len(values)


def _tally(verdicts: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    tally: dict[str, dict[str, int]] = {}
    for whose in ("paper", "ours"):
        mine = [verdict["outcome"] for verdict in verdicts if verdict["whose"] == whose]
        exact = [v["outcome"] for v in verdicts if v["whose"] == whose and v["evidence"] == EVIDENCE["exact"]]
        tally[whose] = {"all": len(mine), "exact": len(exact)}
        for key, outcome in _OUTCOMES.items():
            tally[whose] |= {key: mine.count(outcome), f"exact_{key}": exact.count(outcome)}
    return tally
