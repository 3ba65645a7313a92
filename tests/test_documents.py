"""The code of README and site: commands are run as they are written, TOML is read, and plain Python compiles.

Interactive Python is checked by doctest.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ada_bandit import Policy
from sim.init.samples import sample_files

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "generated" not in page.parts and "smollm2_demo" not in page.parts]

# Minutes of computing, a model, a GPU, or a file of the reader's own: these stand in tests of their own.
ELSEWHERE = ("-m sim learn", "--probe")


def blocks(language: str) -> list[tuple[str, str]]:
    """Return every fenced block of a language, with its page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        found += [(page.relative_to(ROOT).as_posix(), block) for block in fenced]
    return found


def commands() -> list[str]:
    """Return every distinct command of a program of ours."""
    found = []
    for _, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            command = line.partition(" #")[0].strip()
            if command.startswith("python -m sim") and not any(word in command for word in ELSEWHERE):
                found.append(" ".join(command.split()))
    return list(dict.fromkeys(found))


def test_pages_hold_commands() -> None:
    assert len(commands()) > 12
    assert len(blocks("toml")) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_every_command_runs_as_it_is_written(command: str, tmp_path: Path) -> None:
    for name, data in sample_files().items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    words = [word if word != "PATH" else "rollouts.jsonl" for word in shlex.split(command)[1:]]
    result = subprocess.run(  # noqa: S603 - a command of the documents
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "NO_COLOR": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip()


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_plain_python_compiles(page: str, text: str) -> None:
    if ">>>" not in text:
        compile(text, page, "exec")


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_toml_can_be_read(page: str, text: str) -> None:
    data = tomllib.loads(text)
    assert data
    if page.endswith("policy-files.md"):
        policy = Policy.from_toml(text)
        assert (policy.n, policy.budget.max_samples, policy.name) == (4, 32, "until balanced")


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
