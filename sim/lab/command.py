"""``python -m sim lab``: the page on which policies are tried."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import make_folder, write_text
from ada_bandit.programs.options import command
from sim.lab.page import lab_page

__all__ = ["lab"]


@command
def lab(
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the page.")] = Path("out/lab.html"),
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Whether to open the page in your browser.")] = True,
) -> None:
    """Write one page on which to try policies, and open it.

    Choose a rule, a budget and the pass rates of your prompts, and see the tables, what they cost and find, and what
    to paste into your project. The page works without a network, and sends nothing.

    \b
    Examples:
      python -m sim lab
      python -m sim lab --out lab.html --no-open
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if out.is_dir():
        msg = (
            f"--out names the page's file, and {str(out)!r} is a folder; give a name such as {str(out / 'lab.html')!r}"
        )
        raise InputError(msg)
    make_folder(out.parent)
    write_text(out, lab_page())
    typer.echo(f"written: {out}")
    if opened and not (_has_screen() and webbrowser.open(out.resolve().as_uri())):
        typer.echo("there is no browser here: open this file in one")


def _has_screen() -> bool:
    """Return whether a browser would have a window: one that takes the terminal helps nobody."""
    return sys.platform in {"darwin", "win32"} or bool({"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ))
