"""Which package may import which: the programs stand on the library, and don't know each other."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "ada_bandit": {"sim", "llm", "paper"},
    "sim": {"llm", "paper"},
    "llm": {"sim", "paper"},
}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """Give the name and path of every module of a package, ``__main__`` aside: it runs."""
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path: Path) -> set[str]:
    """Return the top-level names that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_run_one_way(package: str) -> None:
    found = {name: sorted(imported(path) & FORBIDDEN[package]) for name, path in modules(package)}
    assert len(found) > 5
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(("package", "needs"), [("sim", "typer"), ("llm", "pydantic")])
def test_importing_a_program_leaves_the_other_out(package: str, needs: str) -> None:
    pytest.importorskip(needs)
    names = [name for name, _ in modules(package)]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n    importlib.import_module(name)\n"
        f"print('OTHERS', sorted({FORBIDDEN[package]!r} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    assert "OTHERS []" in done.stdout


@pytest.mark.parametrize("package", ["sim", "llm"])
def test_the_programs_are_those_of_this_repository(package: str) -> None:
    # Another distribution installs a package of the same name.
    found = importlib.import_module(package).__file__
    assert found is not None
    assert Path(found).is_relative_to(ROOT)
