"""Run items and report: their JSON and figures, ``verdict.json``, ``verdict.md`` and the table on the terminal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ada_bandit.programs.console import escape, open_console, print_plain
from ada_bandit.programs.figures import draw_figures
from ada_bandit.programs.folders import make_folder, write_text
from ada_bandit.programs.records import plain, to_json
from paper import training
from paper.bias import analysis as bias
from paper.bias.sweep import sweep as sweep_bias
from paper.claims import CANT_TELL, EVIDENCE, FAILS, HOLDS, REPORTED, Verdict, judge, load_claims
from paper.confounds import analysis as confounds
from paper.confounds.sweep import sweep as sweep_confounds
from paper.figure1 import analysis as figure1
from paper.figure2 import analysis as figure2
from paper.figure2.sweep import sweep as sweep_figure2
from paper.figure3 import analysis as figure3
from paper.figure4 import analysis as figure4
from paper.figure5 import analysis as figure5
from paper.figure5.sweep import sweep as sweep_figure5
from paper.figure6 import analysis as figure6
from paper.frontier import analysis as frontier
from paper.frontier.sweep import sweep as sweep_frontier
from paper.items import claim_file
from paper.objective import analysis as objective
from paper.objective.sweep import sweep as sweep_objective
from paper.results import Context, ItemResult
from paper.table1 import analysis as table1
from paper.table1.sweep import sweep as sweep_table1
from paper.table2 import analysis as table2
from paper.table2.sweep import sweep as sweep_table2
from paper.tokens import analysis as tokens
from paper.verdict import WHOSE, changed, collect, evidence_cells, failures_first, headline, to_markdown

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ANALYSES", "run", "run_item"]

ANALYSES: Mapping[str, Callable[[Context], ItemResult]] = MappingProxyType(
    {
        "figure1": lambda context: figure1.analyse(training.main_runs(context)),
        "figure2": lambda _: figure2.analyse(sweep_figure2()),
        "figure3": lambda context: figure3.analyse(training.variant_runs(context)),
        "figure4": lambda context: figure4.analyse(training.main_runs(context)),
        "figure5": lambda _: figure5.analyse(sweep_figure5()),
        "figure6": lambda context: figure6.analyse(training.main_runs(context)),
        "table1": lambda context: table1.analyse(sweep_table1(context)),
        "table2": lambda _: table2.analyse(sweep_table2()),
        "bias": lambda _: bias.analyse(sweep_bias()),
        "objective": lambda _: objective.analyse(sweep_objective()),
        "frontier": lambda context: frontier.analyse(sweep_frontier(context)),
        "tokens": lambda context: tokens.analyse(training.main_runs(context)),
        "confounds": lambda context: confounds.analyse(sweep_confounds(context)),
    }
)
"""What each item computes, and how it is analysed."""

_COLOURS = {FAILS: "bold red", CANT_TELL: "yellow", HOLDS: "green", REPORTED: "dim"}


def run(names: Sequence[str], out: Path, *, quick: bool, figures: bool, resume: bool) -> None:
    """Run items one after the other, write everything into `out`, and print the verdict on them."""
    folder = make_folder(out)
    runs = folder / "runs"
    if not resume:
        shutil.rmtree(runs, ignore_errors=True)
    status = open_console(stderr=True)
    context = Context(runs, quick=quick, progress=lambda line: print_plain(line, status, "dim"))
    start = time.perf_counter()
    for name in names:
        began = time.perf_counter()
        run_item(name, folder, context, figures=figures)
        context.progress(f"{name}: {time.perf_counter() - began:.1f} s")
    verdicts = collect(folder)
    _write_json(folder / "verdict.json", verdicts)
    write_text(folder / "verdict.md", to_markdown(verdicts))
    console = open_console()
    _print([verdict for verdict in verdicts if verdict["item"] in names], console)
    print_plain(f"written to {folder}, in {time.perf_counter() - start:.0f} s", console, "dim")


def run_item(name: str, out: Path, context: Context, *, figures: bool = True) -> list[Verdict]:
    """Run one item's sweep and analysis, and write ``NAME.json`` and its figures.

    Parameters
    ----------
    name
        One of `ITEMS`.
    out
        An existing folder.
    context
        Size and place of the sweep.
    figures
        Whether to draw.

    Returns
    -------
    list of Verdict
        One a claim, in the order of ``claim.toml``.
    """
    title, claims = load_claims(claim_file(name))
    result = ANALYSES[name](context)
    verdicts = [judge(name, claim, result.measures[claim.id]) for claim in claims]
    record = {
        "item": name,
        "title": title,
        "quick": context.quick,
        "numbers": result.numbers,
        "measures": {key: asdict(measure) for key, measure in result.measures.items()},
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    _write_json(out / f"{name}.json", record)
    if figures:
        draw_figures(result.drawings, out)
    return verdicts


def _write_json(path: Path, values: Any) -> None:
    write_text(path, to_json(plain(values), indent=1))


def _print(verdicts: Sequence[dict[str, Any]], console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    for whose, title in WHOSE.items():
        mine = [verdict for verdict in verdicts if verdict["whose"] == whose]
        if not mine:
            continue
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
        table.add_column("item", min_width=9, overflow="fold")
        for head, ratio in (("claim", 5), ("published", 3), ("ours", 5)):
            table.add_column(head, ratio=ratio, overflow="fold")
        for head in EVIDENCE.values():
            table.add_column(head, min_width=9, overflow="fold")
        for verdict in failures_first(mine):
            cells = [escape(verdict[key]) for key in ("claim", "published", "ours")]
            colour = _COLOURS[verdict["outcome"]]
            mark = f"\n[{colour}]{REPORTED}[/{colour}]" if verdict["outcome"] == REPORTED else ""
            item = f"{escape(verdict['item'])}\n[dim]{escape(verdict['id'])}[/dim]{mark}"
            columns = [f"[{colour}]{cell}[/{colour}]" if cell else "" for cell in evidence_cells(verdict)]
            table.add_row(item, *cells, *columns)
        console.print(table)
        console.print(headline(mine), style="bold", highlight=False)
        failed = [f"{verdict['item']}/{verdict['id']}" for verdict in mine if verdict["outcome"] == FAILS]
        if failed:
            console.print(f"Does not hold: {', '.join(failed)}", style="bold red", highlight=False)
        other = changed(mine)
        if other:
            console.print("Where a plainer test says otherwise:", style="bold", highlight=False)
        for line in other:
            console.print(f"  {escape(line)}", highlight=False)
        console.print()
