"""The verdicts of all items: collected from their JSON, as Markdown and as LaTeX, what doesn't hold first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper.claims import CANT_TELL, EVIDENCE, FAILS, HOLDS, REPORTED
from paper.items import ITEMS

__all__ = [
    "WHOSE",
    "changed",
    "collect",
    "count_outcomes",
    "evidence_cells",
    "failures_first",
    "headline",
    "to_latex",
    "to_markdown",
]

WHOSE = {"paper": "Claims of the paper", "ours": "Claims of ours: models of its figures, and what it doesn't have"}
"""Whose a claim can be, in words."""
_ORDER = (FAILS, CANT_TELL, HOLDS, REPORTED)


def collect(folder: Path) -> list[dict[str, Any]]:
    """Return the verdicts of every item that has been run into a folder, in the order of `ITEMS`."""
    verdicts: list[dict[str, Any]] = []
    for name in ITEMS:
        path = folder / f"{name}.json"
        if path.is_file():
            record = json.loads(path.read_text(encoding="utf-8"))
            verdicts += [verdict | {"quick": record["quick"]} for verdict in record["verdicts"]]
    return verdicts


def count_outcomes(verdicts: Sequence[dict[str, Any]]) -> str:
    """Say how many claims hold, don't, and can't be told."""
    fails, unknown, holds, reported = (sum(v["outcome"] == outcome for v in verdicts) for outcome in _ORDER)
    text = f"{holds} hold, {fails} don't, {unknown} can't be told"
    return f"{text}, {reported} only reported" if reported else text


def headline(verdicts: Sequence[dict[str, Any]]) -> str:
    """Count the outcomes by column of evidence, the exact ones first, and the claims that are only reported last."""
    parts = []
    for evidence in EVIDENCE.values():
        mine = [verdict for verdict in verdicts if verdict["evidence"] == evidence]
        parts.append(f"{evidence}: {count_outcomes(mine) if mine else 'none'}")
    reported = sum(verdict["outcome"] == REPORTED for verdict in verdicts)
    if reported:
        parts.append(f"only reported: {reported}")
    return f"{len(verdicts)} claims; {'; '.join(parts)}"


def evidence_cells(verdict: dict[str, Any]) -> list[str]:
    """Return a verdict's cells of the columns of evidence; what is only reported stands in none of them."""
    return [verdict["outcome"] if verdict["evidence"] == evidence else "" for evidence in EVIDENCE.values()]


def changed(verdicts: Sequence[dict[str, Any]]) -> list[str]:
    """Say where a plainer test comes to another verdict, and why that test is not taken."""
    return [
        f"{verdict['item']}/{verdict['id']}: {verdict['outcome']}, not {verdict['plain']!r}: {verdict['why']}"
        for verdict in verdicts
        if verdict["plain"] not in {"", verdict["outcome"]}
    ]


def to_markdown(verdicts: Sequence[dict[str, Any]]) -> str:
    """Return the verdicts as Markdown, what doesn't hold first."""
    lines = ["# Verdict", ""]
    if any(verdict["quick"] for verdict in verdicts):
        lines += ["Of a quick run: simulated claims rest on few seeds and steps.", ""]
    for whose, title in WHOSE.items():
        mine = [verdict for verdict in verdicts if verdict["whose"] == whose]
        lines += [f"## {title}", "", f"{headline(mine)}.", ""]
        lines += [f"| item | claim | published | ours | {' | '.join(EVIDENCE.values())} | tested |"]
        lines += ["|" + "---|" * (5 + len(EVIDENCE))]
        for v in failures_first(mine):
            cells = [_emphasised(cell) for cell in evidence_cells(v)]
            tested = f"{v['how']}: {v['test']}"
            if v["outcome"] == REPORTED:
                tested = f"{REPORTED}; {tested}"
            row = (v["item"], v["claim"], v["published"], v["ours"], *cells, tested)
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
        if other := changed(mine):
            lines += ["Where a plainer test says otherwise:", "", *(f"- {line}" for line in other), ""]
    return "\n".join(lines)


def _emphasised(outcome: str) -> str:
    return outcome if outcome in {"", HOLDS} else f"**{outcome}**"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {char: "\\" + char for char in "&%$#_{}"} | {"<": "$<$", ">": "$>$"}


def to_latex(verdicts: Sequence[dict[str, Any]]) -> str:
    """Return the verdicts as a LaTeX table: item, claim, ours, outcome."""
    columns = "".join(rf">{{\raggedright\arraybackslash}}p{{{width}\linewidth}}" for width in (0.12, 0.35, 0.30, 0.12))
    lines = [rf"\begin{{longtable}}{{{columns}}}", r"\toprule item & claim & ours & \\ \midrule \endhead"]
    lines.append(r"\bottomrule \endfoot")
    for whose, title in WHOSE.items():
        lines.append(rf"\multicolumn{{4}}{{l}}{{\textbf{{{_escaped(title)}}}}} \\ \midrule")
        for verdict in failures_first([verdict for verdict in verdicts if verdict["whose"] == whose]):
            item = rf"{_escaped(verdict['item'])}, {_escaped(verdict['evidence'] or verdict['how'])}"
            outcome = verdict["outcome"] if verdict["outcome"] == HOLDS else rf"\textbf{{{verdict['outcome']}}}"
            cells = (item, _escaped(verdict["claim"]), _escaped(verdict["ours"]), outcome)
            lines.append(" & ".join(cells) + r" \\ \addlinespace")
    lines.append(r"\end{longtable}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def failures_first(verdicts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdicts with what doesn't hold first."""
    return sorted(verdicts, key=lambda verdict: _ORDER.index(verdict["outcome"]))
