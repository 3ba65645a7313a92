"""How a program starts: with plain words where a package is missing, and with output that any terminal can show.

Of other packages nothing is imported before the program itself is.
"""

from __future__ import annotations

import codecs
import sys
import unicodedata
from importlib import import_module
from pathlib import Path
from typing import NoReturn

__all__ = ["main", "start"]

_LIBRARY = Path(__file__).parents[1]
_OWN = {"ada_bandit", "sim", "llm", "paper", "bench"}
_ASCII = {
    "\N{PLUS-MINUS SIGN}": "+-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{EN DASH}": "-",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{MIDDLE DOT}": "*",
    "\N{SQUARE ROOT}": "sqrt",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
}


def main() -> None:
    """Run the command ``ada-bandit``: the simulator that came with the wheel, or that of the clone."""
    home = "ada_bandit._programs.sim"
    if not (_LIBRARY / "_programs").is_dir():
        home, root = "sim", _LIBRARY.parent
        if not (root / home / "cli.py").is_file():
            _give_up(f"ada-bandit finds no program beside {_LIBRARY}; install it again")
        sys.path.insert(0, str(root))
    start(f"{home}.cli", "ada-bandit", "pip install 'ada_bandit[sim]' brings all of them", "installed_app")


def start(module: str, program: str, remedy: str, name: str = "app") -> None:
    """Import an application and run it.

    Parameters
    ----------
    module
        The module that holds it.
    program
        What its help and its messages call the program.
    remedy
        What brings the packages that it needs, in words.
    name
        The application's name in the module.
    """
    make_output_safe()
    try:
        getattr(import_module(module), name)(prog_name=program)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in _OWN:
            raise
        _give_up(f"{program} needs the package {missing}, which {sys.executable} doesn't have; {remedy}")
    except KeyboardInterrupt:
        # Before a command began.
        sys.exit(130)


def make_output_safe() -> None:
    """Have characters that the terminal's encoding lacks shown by others, ``±`` as ``+-``."""
    codecs.register_error("ada_bandit.ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        encoding = getattr(stream, "encoding", None)
        if encoding and not encoding.lower().startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="ada_bandit.ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_nearest, error.object[error.start : error.end])), error.end


def _nearest(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _ASCII.get(character, plain or "?")


def _give_up(text: str) -> NoReturn:
    sys.stderr.write(f"error: {text}\n")
    sys.exit(1)
