"""Exit rules from Python files that the user names: the only place where the library runs somebody's code.

A rule of a file can be pickled: what is sent is the file's text, which is run again, once in a
process, where the rule arrives.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from ada_bandit.errors import AdaBanditError, InputError
from ada_bandit.rules import UserRule

__all__ = ["FileRule", "load_rules"]


@dataclass(frozen=True, repr=False)
class FileRule(UserRule):
    """A rule of a file; equal to another one where text, name and options are."""

    function: Callable[..., Any] = field(compare=False)
    path: str = field(default="", compare=False)
    """Where the file lay."""
    text: str = ""
    """What it held."""
    key: str = ""
    """The rule's name in the file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.path, self.text, self.key, self.options)


def load_rules(paths: Iterable[str | Path]) -> dict[str, UserRule]:
    """Run Python files and return the exit rules that they define, by name.

    Parameters
    ----------
    paths
        Python files with ``@exit_rule`` functions.

    Raises
    ------
    InputError
        If a file is missing, raises, or defines no rule, or if two files define one name.
    """
    rules: dict[str, UserRule] = {}
    for path in map(Path, paths):
        if not path.is_file():
            msg = (
                f"the rules file {str(path)!r} does not exist; give the path of a Python file with @exit_rule functions"
            )
            raise InputError(msg)
        own = _rules_of(str(path), path.read_bytes().decode("utf-8", errors="surrogateescape"))
        if not own:
            msg = (
                f"the rules file {str(path)!r} defines no exit rule; write a function of (pos, neg) and mark it with "
                "@exit_rule (from ada_bandit import exit_rule)"
            )
            raise InputError(msg)
        for name, rule in own.items():
            if rules.get(name, rule) != rule:
                msg = (
                    f"the rule {name!r} of {str(path)!r} has the name of a rule of another file; give the function "
                    "another name"
                )
                raise InputError(msg)
        rules |= own
    return rules


def _rules_of(path: str, text: str) -> dict[str, UserRule]:
    """Return the rules that a file's text defines, by name; each text is run once in a process."""
    module = _run(path, text)
    own = {rule.name: rule for rule in vars(module).values() if isinstance(rule, UserRule)}
    return {name: FileRule(rule.function, rule.options, path, text, name) for name, rule in own.items()}


def _restored(path: str, text: str, name: str, options: tuple[tuple[str, Any], ...]) -> UserRule:
    return _rules_of(path, text)[name].with_options(**dict(options))


def _run(path: str, text: str) -> ModuleType:
    """Run a Python file's text as a module; no bytecode is left beside it."""
    source = text.encode("utf-8", errors="surrogateescape")
    name = f"_rules_{sha256(path.encode('utf-8', errors='surrogateescape') + source).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = path
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        code = compile(source, path, "exec", dont_inherit=True)
        # What a rule prints must not get into the output of the program.
        with contextlib.redirect_stdout(sys.stderr):
            exec(code, vars(module))  # noqa: S102 - running the file is what it is named for
    except AdaBanditError as error:
        del sys.modules[name]
        msg = f"the rules file {path!r} can't be used: {error}"
        raise InputError(msg) from error
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f" on line {lines[-1]}" if lines else ""
        msg = f"the rules file {path!r} raised {type(error).__name__}{where}: {first_line(error)}"
        raise InputError(msg) from error
    return module


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text.partition("\n")[0] or "no message"
