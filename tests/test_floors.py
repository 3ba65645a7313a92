"""The map of the repository, computed from the syntax trees: floors, circles and deferred imports.

An import counts wherever it stands: at the top, in a function, or for type checkers alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("ada_bandit", "sim", "llm", "paper", "bench", "examples", "tests")

FLOORS = {
    "words": (
        "_types errors _toml streams _kernels uniforms lattice _parts laws history columns objectives verifier "
        "score_model likeness class_scores"
    ),
    "parts": "rules rule_files budgets totals shared groups",
    "policy": "sampling gradient fit_weight advantages tables stopping presets policy",
    "readings": "exact unscored estimators efficiency measured calibration fitting optimal specs",
    "running": "memory allocator steps empirical step_specs",
}
"""The library from the ground up: a module imports from those before it alone."""


def sources() -> Iterator[tuple[str, Path]]:
    """Give the dotted name and the path of every module of the repository."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path, modules: Mapping[str, Path]) -> Iterator[tuple[str, ast.stmt]]:
    """Give every module of the repository that a file imports, with the statement."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules:
                    yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                # `from package import module` imports the module; anything else, what holds the name.
                inner = f"{node.module}.{alias.name}"
                if inner in modules:
                    yield inner, node
                elif node.module in modules:
                    yield node.module, node


def graph() -> dict[str, set[str]]:
    """Return what every module imports."""
    modules = dict(sources())
    return {name: {found for found, _ in imports(path, modules)} - {name} for name, path in modules.items()}


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected parts of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part: list[str] = []
            while not part or part[-1] != name:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_nothing_imports_in_a_circle() -> None:
    edges = graph()
    assert len(edges) > 150
    assert edges["ada_bandit.tables"] >= {"ada_bandit.sampling", "ada_bandit.advantages"}
    assert circles(edges) == []


def test_the_floors_hold_every_module_of_the_library() -> None:
    listed = [name for floor in FLOORS.values() for name in floor.split()]
    there = {path.stem for path in (ROOT / "ada_bandit").glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(there)


def test_the_library_imports_downwards() -> None:
    order = [f"ada_bandit.{name}" for floor in FLOORS.values() for name in floor.split()]
    edges = graph()
    wrong = {
        name: sorted(other for other in edges[name] if other not in order[:place]) for place, name in enumerate(order)
    }
    assert {name: others for name, others in wrong.items() if others} == {}


def test_adapters_and_programs_stand_on_the_library_and_nothing_in_it_on_them() -> None:
    edges = graph()
    above = ("ada_bandit.adapters", "ada_bandit.programs")
    library = {name for name in edges if name.startswith("ada_bandit") and not name.startswith(above)}
    assert {name: found for name in library if (found := {x for x in edges[name] if x.startswith(above)})} == {}


@pytest.mark.parametrize("package", ["ada_bandit", "sim", "llm", "paper"])
def test_own_modules_are_imported_at_the_top(package: str) -> None:
    modules = dict(sources())
    deferred = []
    for name, path in modules.items():
        if name.split(".")[0] == package and not name.endswith(".__main__"):
            deferred += [f"{name} imports {found}" for found, node in imports(path, modules) if node.col_offset]
    # The face of the library names for type checkers what it imports on first use.
    assert sorted(each for each in set(deferred) if not each.startswith("ada_bandit imports ")) == []


RULE_CALLS = {"holds", "split", "of_classes", "bound"}
"""Methods that ask a rule, a group rule or an advantage rule."""
COMPILATION = {"rules", "groups", "sampling", "advantages"}


def test_nothing_asks_a_rule_after_compilation() -> None:
    asked = []
    for name, path in sources():
        if name.startswith("ada_bandit.") and name.split(".")[-1] not in COMPILATION:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                # Text is split as well, without counts.
                if node.func.attr in RULE_CALLS and (node.func.attr != "split" or len(node.args) == 3):
                    asked.append(f"{name}:{node.lineno}: {ast.unparse(node.func)}")
    assert asked == []
