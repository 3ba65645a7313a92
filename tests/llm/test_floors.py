"""What the engines of `llm` may import: neither studies nor anything of a command line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND_LINE = {"cli.py", "lazy.py", "__main__.py"}
ENGINES = [
    *(path for path in sorted((ROOT / "llm").glob("*.py")) if path.name not in COMMAND_LINE),
    *sorted((ROOT / "llm" / "samplers").glob("*.py")),
]
ABOVE = (
    "typer",
    "rich",
    "llm.cli",
    "ada_bandit.programs.lazy",
    "llm.commands",
    "llm.experiment",
    "llm.probe",
    "ada_bandit.programs.console",
    "ada_bandit.programs.options",
    "ada_bandit.programs.results",
)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Give each module that a file imports, and whether at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in top


@pytest.mark.parametrize("path", ENGINES, ids=lambda path: path.stem)
def test_engines_know_neither_studies_nor_the_command_line(path: Path) -> None:
    found = {name for name, _ in imports(path)}
    assert {name for name in found for above in ABOVE if f"{name}.".startswith(f"{above}.")} == set()


@pytest.mark.parametrize("path", sorted((ROOT / "llm").rglob("*.py")), ids=lambda path: path.stem)
def test_what_is_ours_is_imported_at_the_top(path: Path) -> None:
    late = {name for name, at_top in imports(path) if not at_top}
    assert {name for name in late if name.partition(".")[0] in {"llm", "ada_bandit"}} == set()
