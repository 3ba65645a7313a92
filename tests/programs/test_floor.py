"""The base stands on the library, and the library doesn't know it."""

from __future__ import annotations

import ast
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "ada_bandit"


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return names | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def test_the_library_does_not_import_the_base() -> None:
    base = LIBRARY / "programs"
    assert any(name.startswith("ada_bandit.programs.") for name in imported(base / "results.py"))
    for path in LIBRARY.rglob("*.py"):
        if base not in path.parents:
            assert not [name for name in imported(path) if name.startswith("ada_bandit.programs")], path
