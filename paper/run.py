"""Run items and report: ``verdict.json``, ``verdict.md`` and the table on the terminal."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper.claims import CANT_TELL, FAILS, HOLDS
from paper.items import ITEMS, Context, run_item, write_json
from sim.options import escape, make_folder, output_console

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["collect", "run", "to_latex", "to_markdown"]

_WHOSE = {"paper": "Claims of the paper", "ours": "Claims of ours: models of its figures, and what it doesn't have"}
_ORDER = (FAILS, CANT_TELL, HOLDS)
_COLOURS = {FAILS: "bold red", CANT_TELL: "yellow", HOLDS: "green"}


def run(names: Sequence[str], out: Path, *, quick: bool, figures: bool, resume: bool) -> None:
    """Run items one after the other, write everything into `out`, and print the verdict on them."""
    from rich.console import Console

    folder = make_folder(out)
    runs = folder / "runs"
    if not resume:
        shutil.rmtree(runs, ignore_errors=True)
    status = Console(stderr=True)
    context = Context(runs, quick=quick, progress=lambda line: status.print(line, style="dim", highlight=False))
    start = time.perf_counter()
    for name in names:
        began = time.perf_counter()
        run_item(name, folder, context, figures=figures)
        status.print(f"{name}: {time.perf_counter() - began:.1f} s", style="dim", highlight=False)
    verdicts = collect(folder)
    write_json(folder / "verdict.json", verdicts)
    (folder / "verdict.md").write_text(to_markdown(verdicts), encoding="utf-8")
    console = output_console()
    _print([verdict for verdict in verdicts if verdict["item"] in names], console)
    took = time.perf_counter() - start
    console.print(f"written to {folder}, in {took:.0f} s", style="dim", highlight=False, soft_wrap=True)


def collect(folder: Path) -> list[dict[str, Any]]:
    """Return the verdicts of every item that has been run into a folder, in the order of `ITEMS`."""
    found: list[dict[str, Any]] = []
    for name in ITEMS:
        path = folder / f"{name}.json"
        if path.is_file():
            record = json.loads(path.read_text(encoding="utf-8"))
            found += [verdict | {"quick": record["quick"]} for verdict in record["verdicts"]]
    return found


def _counts(verdicts: Sequence[dict[str, Any]]) -> str:
    fails, unknown, holds = (sum(v["outcome"] == outcome for v in verdicts) for outcome in _ORDER)
    return f"{holds} hold, {fails} don't, {unknown} can't be told"


def to_markdown(verdicts: Sequence[dict[str, Any]]) -> str:
    """Return the verdicts as Markdown, what doesn't hold first."""
    lines = ["# Verdict", ""]
    if any(verdict["quick"] for verdict in verdicts):
        lines += ["Of a quick run: simulated claims rest on few seeds and steps.", ""]
    for whose, title in _WHOSE.items():
        mine = [verdict for verdict in verdicts if verdict["whose"] == whose]
        lines += [f"## {title}", "", f"{len(mine)} claims: {_counts(mine)}.", ""]
        lines += ["| | item | claim | published | ours | tested |", "|---|---|---|---|---|---|"]
        for v in _sorted(mine):
            outcome = v["outcome"] if v["outcome"] == HOLDS else f"**{v['outcome']}**"
            tested = f"{v['how']}: {v['test']}"
            lines.append(f"| {outcome} | {v['item']} | {v['claim']} | {v['published']} | {v['ours']} | {tested} |")
        lines.append("")
    return "\n".join(lines)


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {char: "\\" + char for char in "&%$#_{}"} | {"<": "$<$", ">": "$>$"}


def to_latex(verdicts: Sequence[dict[str, Any]]) -> str:
    """Return the verdicts as a LaTeX table: item, claim, ours, outcome."""
    columns = "".join(rf">{{\raggedright\arraybackslash}}p{{{width}\linewidth}}" for width in (0.12, 0.35, 0.30, 0.12))
    lines = [rf"\begin{{longtable}}{{{columns}}}", r"\toprule item & claim & ours & \\ \midrule \endhead"]
    lines.append(r"\bottomrule \endfoot")
    for whose, title in _WHOSE.items():
        lines.append(rf"\multicolumn{{4}}{{l}}{{\textbf{{{_escaped(title)}}}}} \\ \midrule")
        for verdict in _sorted([verdict for verdict in verdicts if verdict["whose"] == whose]):
            item = rf"{_escaped(verdict['item'])}, {_escaped(verdict['how'])}"
            outcome = verdict["outcome"] if verdict["outcome"] == HOLDS else rf"\textbf{{{verdict['outcome']}}}"
            cells = (item, _escaped(verdict["claim"]), _escaped(verdict["ours"]), outcome)
            lines.append(" & ".join(cells) + r" \\ \addlinespace")
    lines.append(r"\end{longtable}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def _sorted(verdicts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdicts with what doesn't hold first."""
    return sorted(verdicts, key=lambda verdict: _ORDER.index(verdict["outcome"]))


def _print(verdicts: Sequence[dict[str, Any]], console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    for whose, title in _WHOSE.items():
        mine = [verdict for verdict in verdicts if verdict["whose"] == whose]
        if not mine:
            continue
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
        table.add_column("item", min_width=9, overflow="fold")
        for head, ratio in (("claim", 5), ("published", 3), ("ours", 5)):
            table.add_column(head, ratio=ratio, overflow="fold")
        table.add_column("", min_width=12, no_wrap=True)
        for verdict in _sorted(mine):
            cells = [escape(verdict[key]) for key in ("claim", "published", "ours")]
            colour = _COLOURS[verdict["outcome"]]
            item = f"{escape(verdict['item'])}\n[dim]{escape(verdict['how'])}[/dim]"
            table.add_row(item, *cells, f"[{colour}]{verdict['outcome']}[/{colour}]")
        console.print(table)
        console.print(f"{len(mine)} claims: {_counts(mine)}", style="bold", highlight=False)
        failed = [f"{verdict['item']}/{verdict['id']}" for verdict in mine if verdict["outcome"] == FAILS]
        if failed:
            console.print(f"Does not hold: {', '.join(failed)}", style="bold red", highlight=False)
        console.print()
