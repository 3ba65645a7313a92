"""What pip installs: the wheel, and the source distribution, in an empty environment outside the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import ada_bandit

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name.replace("_", "-") for path in (ROOT / "sim").glob("*/command.py"))


class Installed(NamedTuple):
    """An environment that holds nothing but a distribution, and an empty folder to work in."""

    python: Path
    """Its Python."""
    folder: Path
    """The folder."""

    def run(self, *command: str, code: int = 0, **environment: str) -> str:
        """Run a command of the environment and return its output."""
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(  # noqa: S603
            [self.python.parent / command[0], *command[1:]],
            cwd=self.folder, env=kept | environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr


def environment(folder: Path, *packages: str | Path) -> Path:
    """Make an environment, install packages into it and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)  # noqa: S603
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)  # noqa: S603
    return python


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    builder = environment(tmp_path_factory.mktemp("builder") / "env", "build")
    subprocess.run([builder, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)  # noqa: S603
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the wheel."""
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"])
def installed(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel, then the source distribution, with the extra ``sim``."""
    folder = tmp_path_factory.mktemp("installed")
    python = environment(folder / "env", f"{next(built.glob(request.param))}[sim]")
    return Installed(python, tmp_path_factory.mktemp("cwd"))


def test_the_wheel_holds_one_package(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ada_bandit"}


def test_the_wheel_from_the_repository_is_that_of_the_source_distribution(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)  # noqa: S603
    one, other = (zipfile.ZipFile(path) for path in (wheel, next(tmp_path.glob("*.whl"))))
    assert {name: one.read(name) for name in one.namelist()} == {name: other.read(name) for name in other.namelist()}


def test_every_file_of_the_simulator_is_in_the_wheel(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "sim"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    assert "sim/data/pass_at_k.csv" in listed
    held = set(zipfile.ZipFile(wheel).namelist())
    assert [name for name in listed.split() if f"ada_bandit/_programs/{name}" not in held] == []


def test_nothing_in_the_wheel_names_the_repository_s_package(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    for name in held.namelist():
        if name.endswith(".py") and name != "ada_bandit/programs/start.py":  # which looks for either
            text = held.read(name).decode()
            assert not re.search(r"python -m sim|^\s*(from|import) sim\b|[\"']sim\.", text, re.MULTILINE), name


def test_extras_bring_what_the_wheel_can_use(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    metadata = held.read(next(name for name in held.namelist() if name.endswith("METADATA"))).decode()
    assert sorted(re.findall(r"^Provides-Extra: (.+)$", metadata, re.MULTILINE)) == ["sim", "trl", "verl"]
    assert f"\nVersion: {ada_bandit.__version__}\n" in metadata


def test_only_the_library_can_be_imported(installed: Installed) -> None:
    code = "from importlib.util import find_spec; print([find_spec(name) for name in ('sim', 'llm', 'paper', 'tests')])"
    assert installed.run("python", "-c", code).strip() == "[None, None, None, None]"


@pytest.mark.parametrize("command", STUDIES)
def test_help(installed: Installed, command: str) -> None:
    text = installed.run("ada-bandit", command, "--help")
    assert f"ada-bandit {command}" in text
    assert "python -m sim" not in text
    assert f" {command} " in installed.run("ada-bandit", "--help")


def test_the_numbers_are_those_of_the_repository(installed: Installed) -> None:
    arguments = ("compare", "--prompts", "32", "--batches", "4", "--no-figures", "--json")
    text = installed.run("ada-bandit", *arguments)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "sim", *arguments, "--out", installed.folder / "repository"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(text)["policies"] == json.loads(done.stdout)["policies"]
    assert (installed.folder / "out" / "compare" / "compare.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--version",), ada_bandit.__version__),
        (("analyze", "--policy", "grpo", "--pass-rate", "0.5"), "grpo"),
        (("show", "--table", "draws"), "draws"),
        (("replay", "--source", "smollm2-reasoning-gym", "--no-figures"), "reinforce-ada-pos"),
        (("log", "--scalars", "mean=0.41,zero_std=0.55,n=8", "--no-figures"), "Beta"),
        (("budget", "--total", "64", "--prompts", "16", "--no-figures"), "uniform"),
        (("--show-completion", "bash"), "_ADA_BANDIT_COMPLETE"),
    ],
)
def test_commands_run_anywhere(installed: Installed, arguments: tuple[str, ...], says: str) -> None:
    if arguments[0] == "--show-completion":
        text = installed.run("ada-bandit", *arguments, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    else:
        text = installed.run("ada-bandit", *arguments)
    assert says in text


def test_without_the_extra_the_command_says_what_brings_it(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare = Installed(environment(tmp_path_factory.mktemp("bare") / "env", wheel), tmp_path_factory.mktemp("cwd"))
    told = bare.run("ada-bandit", "compare", code=1)
    assert told.startswith("error: ada-bandit needs the package typer")
    assert "pip install 'ada_bandit[sim]'" in told
    assert told.count("\n") == 1
    assert list(bare.folder.iterdir()) == []
    bare.run("python", "-c", "import ada_bandit; ada_bandit.analyze(ada_bandit.Policy.preset('grpo'), [0.5])")
