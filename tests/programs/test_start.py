"""How programs start: without a package that they need, and on terminals that can show little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ada_bandit
from ada_bandit.programs import start

ROOT = Path(__file__).parents[2]
PROGRAMS = ("sim", "llm", "paper")


def run(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    kept |= {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("arguments", [(), ("--help",), ("train", "nothing.toml")])
def test_without_the_packages_one_line_says_what_brings_them(
    program: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    # -S leaves out all that pip installed.
    done = run("-S", "-m", program, *arguments, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: python -m {program} needs the package typer")
    assert "make " in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


HIDE = (
    "import runpy, sys\n"
    "class Hide:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.partition('.')[0] == {hidden!r}:\n"
    "            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
    "sys.meta_path.insert(0, Hide())\n"
    "sys.argv[1:] = {arguments!r}\n"
    "runpy.run_module({program!r}, run_name='__main__', alter_sys=True)\n"
)


@pytest.mark.parametrize(
    ("program", "hidden", "arguments"),
    [
        ("sim", "numba", ["compare"]),
        ("sim", "matplotlib", ["compare", "--batches", "0", "--policy", "grpo"]),
        ("llm", "torch", ["train", str(ROOT / "llm" / "configs" / "tiny-add.toml")]),
        ("llm", "torch", ["make-tiny", "--out", "out/tiny"]),
        ("llm", "pydantic", ["train", "nothing.toml"]),
    ],
)
def test_a_command_without_its_package_leaves_no_traceback_and_no_empty_folder(
    program: str, hidden: str, arguments: list[str], tmp_path: Path
) -> None:
    code = HIDE.format(hidden=hidden, arguments=arguments, program=program)
    done = run("-c", code, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"error: python -m {program} needs the package {hidden}" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_dir() and not any(path.iterdir())] == []


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--batches", "2", "--prompts", "8", "--policy", "grpo", "--no-figures"],
        ["analyze", "--policy", "grpo"],
        ["compare", "--curve", "nöthing“at all”"],
        ["compare", "--help"],
    ],
)
def test_output_survives_an_ascii_locale(environment: dict[str, str], arguments: list[str], tmp_path: Path) -> None:
    done = run("-m", "sim", *arguments, folder=tmp_path, **environment)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if "--curve" in arguments else 0)
    assert (done.stdout + done.stderr).isascii()
    assert ("4.000 +- 0.000" in done.stdout) == ("--batches" in arguments)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0.5 ± 0.1", "0.5 +- 0.1"), ("2 × 3 … 4", "2 x 3 ... 4"), ("é ½ 日", "e 12 ?"), ("plain", "plain")],  # noqa: RUF001
)
def test_characters_that_an_encoding_lacks_are_shown_by_others(text: str, shown: str) -> None:
    start.make_output_safe()
    assert text.encode("ascii", errors="ada_bandit.ascii").decode() == shown


def test_a_module_of_ours_that_is_missing_is_a_fault_to_be_seen() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"sim\.nothing"):
        start.start("sim.nothing", "python -m sim", "nothing")


def test_the_version(tmp_path: Path) -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from ada_bandit.programs.start import main; main()"
    done = run("-c", code, folder=tmp_path)
    assert done.stdout == f"ada_bandit {ada_bandit.__version__}\n"
