"""Pages of the reference that are written from the code: the API, every command's help, every preset."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

FLOORS = {
    "Words: laws, objectives, the score model": (
        "errors laws objectives verifier score_model likeness class_scores uniforms lattice history"
    ),
    "Parts: rules, budgets, groups, advantages": "rules budgets shared totals groups advantages",
    "Policies": "policy presets tables sampling specs step_specs",
    "Readings: what follows from a policy": (
        "exact unscored estimators efficiency measured calibration fitting optimal stopping"
    ),
    "Running: what a trainer drives": "allocator memory steps empirical",
}
"""The modules of the API pages."""


def api_pages(folder: Path) -> None:
    """Write one page a group of modules, and their list."""
    names = []
    for title, modules in FLOORS.items():
        name = re.sub(r"\W+", "-", title.partition(":")[0].lower()).strip("-")
        names.append(f"api/{name}")
        lines = [f"# {title}", ""]
        for module in modules.split():
            lines += [
                f"## ada_bandit.{module}",
                "",
                "```{eval-rst}",
                f".. automodule:: ada_bandit.{module}",
                "   :members:",
                "   :show-inheritance:",
                "```",
                "",
            ]
        write(folder / "api" / f"{name}.md", "\n".join(lines))
    toc = "\n".join(names)
    text = (
        "# Python API\n\nThe names at the top of the package are imported as `from ada_bandit import ...`; the "
        "families of parts are modules. The pages follow the floors of the library, from the ground up: a module "
        f"imports only from those before it.\n\n```{{toctree}}\n:maxdepth: 1\n\n{toc}\n```\n"
    )
    write(folder / "api.md", text)


def help_of(*words: str) -> str:
    """Return the help text of a command as a terminal of 100 columns shows it, without colour."""
    environment = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PATH": "", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", *words, "--help"], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return result.stdout.rstrip()


def commands_of(program: str) -> list[str]:
    """Return the names of a program's commands, in the order of its help."""
    return re.findall(r"^ *│? *([a-z][a-z0-9-]+)  +\S", help_of(program).partition("Commands")[2], flags=re.MULTILINE)


def command_pages(folder: Path) -> None:
    """Write a page a program, with the help text of every command."""
    for program, what in (("sim", "The simulator and the exact studies"), ("llm", "The trainer")):
        lines = [f"# {what}: `python -m {program}`", "", "```text", help_of(program), "```", ""]
        for name in commands_of(program):
            lines += [f"## {name}", "", "```text", help_of(program, name), "```", ""]
        write(folder / f"commands-{program}.md", "\n".join(lines))


def write(path: Path, text: str) -> None:
    """Write a page where it differs from what is there, so that an unchanged page isn't built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def build(app: Any) -> None:
    """Write all pages below docs/reference/generated."""
    folder = Path(app.srcdir) / "reference" / "generated"
    api_pages(folder)
    command_pages(folder)


def plain_bars(_app: Any, what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Keep |x| from being read as a substitution, and set the indented formulas of a module's docstring as they are."""
    out: list[str] = []
    for line in lines:
        literal = line.startswith((">>>", "...", "    "))
        previous = next((each for each in reversed(out) if each.strip()), "")
        if what == "module" and line.startswith("    ") and out and not out[-1].strip():
            inside = previous.startswith("    ")
            if previous and not inside and not previous.endswith("::"):
                out += ["::", ""]
        parts = re.split(r"(``.*?``)", line)
        escaped = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)
        out.append(line if literal and what == "module" else escaped)
    lines[:] = out


def lab(app: Any, error: Exception | None) -> None:
    """Put the lab's page beside the site's."""
    if error is None and app.builder.format == "html":
        from sim.lab.page import lab_page

        Path(app.outdir, "lab.html").write_text(lab_page(), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", build)
    app.connect("build-finished", lab)
    app.connect("autodoc-process-docstring", plain_bars, priority=900)
    return {"parallel_read_safe": True}
