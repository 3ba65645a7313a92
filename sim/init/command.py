"""``python -m sim init``: files to begin with."""

from __future__ import annotations

from operator import methodcaller
from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import open_console, print_plain, print_written
from ada_bandit.programs.folders import make_folder, write_file
from ada_bandit.programs.options import command
from sim.init.samples import sample_files

__all__ = ["init"]


@command
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; it need not exist.")] = Path(),
) -> None:
    """Write files to begin with: a rule, a policy, and small logs of every kind that the commands read.

    The names are those of the examples in every command's help. The responses are made up.

    \b
    Examples:
      python -m sim init
      python -m sim init try-out
    """  # noqa: D301 - \b keeps the lines of the examples apart
    files = sample_files()
    if taken := [name for name in files if (folder / name).exists()]:
        msg = f"{', '.join(taken)} in {str(folder)!r} would be overwritten; give another folder, as in: init try-out"
        raise InputError(msg)
    for name, data in files.items():
        path = folder / name
        make_folder(path.parent, "DIR")
        write_file(path, methodcaller("write", data))
    shown = open_console()
    print_written(folder, list(files), shown)
    print_plain("next: python -m sim compare --policy my_rules.py:mixed --policy grpo --pass-rates counts.csv", shown)
