"""The one step of the build that pyproject.toml can't state: the simulator goes into the wheel under another name.

In the repository it is the package ``sim``. The wheel must not put a package of so common a name beside
others, so it holds ``ada_bandit._programs.sim``: the same files, with their imports rewritten, and with
``ada-bandit`` for ``python -m sim`` in what they say.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROGRAM = "sim"
HOME = "ada_bandit._programs"
LEFT_OUT = {"__pycache__", "node_modules"}


def rewritten(text: str) -> str:
    """Return a module's text as the wheel holds it."""
    text = re.sub(rf"^(\s*(?:>>> )?from ){PROGRAM}(?=[. ])", rf"\g<1>{HOME}.{PROGRAM}", text, flags=re.MULTILINE)
    return text.replace(f"python -m {PROGRAM}", "ada-bandit")


class Build(build_py):
    """Build the library, and the simulator inside it."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        library, programs = Path(self.build_lib, "ada_bandit"), Path(self.build_lib, *HOME.split("."))
        # What an earlier build left there may be no part of the program any more.
        shutil.rmtree(programs, ignore_errors=True)
        root = Path(__file__).parent
        for path in sorted((root / PROGRAM).rglob("*")):
            inside = path.relative_to(root)
            if path.is_file() and not LEFT_OUT & set(inside.parts):
                target = programs / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        (programs / "__init__.py").write_text('"""Programs of the repository that come with the library."""\n')
        for path in library.rglob("*.py"):
            path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


setup(cmdclass={"build_py": Build})
