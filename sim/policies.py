"""Policies as the command line names them: presets, TOML files and a user's exit rules."""

from __future__ import annotations

import contextlib
import difflib
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ada_bandit import Policy, Rounds
from ada_bandit.errors import AdaBanditError, InputError
from ada_bandit.presets import PRESETS, preset_names
from ada_bandit.rules import UserRule

__all__ = ["load_rules", "read_policies", "read_policy"]

_USER_BUDGET = Rounds(samples=8, rounds=4)
_USER_GROUP = 4


def load_rules(paths: Sequence[Path]) -> dict[str, UserRule]:
    """Run Python files and return the exit rules that they define.

    This is the only way that code is loaded; the rules are then known to policy files by name.

    Parameters
    ----------
    paths
        Python files with ``@exit_rule`` functions.

    Returns
    -------
    dict
        The rules by name.

    Raises
    ------
    InputError
        If a file is missing, raises, defines no rule, or defines a name that is taken.
    """
    rules: dict[str, UserRule] = {}
    for path in paths:
        if not path.is_file():
            msg = (
                f"the rules file {str(path)!r} does not exist; give the path of a Python file with @exit_rule functions"
            )
            raise InputError(msg)
        found = {value.name: value for value in vars(_run(path)).values() if isinstance(value, UserRule)}
        if not found:
            msg = (
                f"the rules file {str(path)!r} defines no exit rule; write a function of (pos, neg) and mark it with "
                "@exit_rule (from ada_bandit import exit_rule)"
            )
            raise InputError(msg)
        for name, rule in found.items():
            taken = "a preset" if name in preset_names() else "a rule of another file" if name in rules else ""
            if taken and rules.get(name) != rule:
                msg = f"the rule {name!r} of {str(path)!r} has the name of {taken}; give the function another name"
                raise InputError(msg)
        rules |= found
    return rules


def _run(path: Path) -> ModuleType:
    """Run a Python file as a module; no bytecode is left beside it."""
    module = ModuleType(f"_rules_{path.stem}")
    module.__file__ = str(path)
    # Dataclasses look their module up by name.
    sys.modules[module.__name__] = module
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(sys.stderr):
            exec(code, vars(module))  # noqa: S102 - running the file is what the option is for
    except AdaBanditError as error:
        msg = f"the rules file {str(path)!r} can't be used: {error}"
        raise InputError(msg) from error
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f" on line {lines[-1]}" if lines else ""
        msg = f"the rules file {str(path)!r} raised {type(error).__name__}{where}: {_first(error)}"
        raise InputError(msg) from error
    return module


def _first(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text.partition("\n")[0] or "no message"


def read_policies(texts: Sequence[str], rules: Sequence[Path] = ()) -> list[Policy]:
    """Load rules files, then read every policy (see `read_policy`)."""
    known = load_rules(rules)
    return [read_policy(text, known) for text in texts]


def read_policy(text: str, rules: dict[str, UserRule] | None = None) -> Policy:
    """Read one policy and compile it, so that a faulty rule is told here.

    Parameters
    ----------
    text
        A preset; a preset with options, ``NAME:key=value,…``; a TOML file; or the name of a
        rule in `rules`, also with options, which gets ``Rounds(8, 4)`` and a balanced group
        of 4.
    rules
        A user's exit rules by name.

    Raises
    ------
    InputError
        If the text is none of these (the nearest name is suggested), or the policy is faulty.
    """
    rules = rules or {}
    name, colon, options = text.partition(":")
    if name in preset_names():
        defaults = PRESETS[name].options
        pairs = _options(text, colon, options)
        policy = Policy.preset(name, **{key: _like(defaults.get(key, 0), key, value) for key, value in pairs})
    elif name in rules:
        rule = rules[name].with_options(**{key: _value(value) for key, value in _options(text, colon, options)})
        policy = Policy(rule=rule, budget=_USER_BUDGET, group_size=_USER_GROUP, name=text)
    elif text.lower().endswith(".toml") or Path(text).is_file():
        policy = _from_file(Path(text))
    else:
        known = (*preset_names(), *rules)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? Give" if near else "give"
        msg = (
            f"unknown policy {text!r}; {hint} a preset ({', '.join(preset_names())}), a TOML file, "
            f"or a rule of a --rules file ({', '.join(rules) or 'none loaded'})"
        )
        raise InputError(msg)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a rule may print; standard output may have to be JSON
            policy.tables  # noqa: B018 - compiled on first use
    except AdaBanditError as error:
        msg = f"policy {text!r}: {error}"
        raise InputError(msg) from error
    except Exception as error:
        msg = (
            f"policy {text!r}: its exit rule raised {type(error).__name__}: {_first(error)}; write it elementwise in "
            "(pos, neg), with & | ~ and numpy.where in place of and, or, not, if"
        )
        raise InputError(msg) from error
    return policy


def _from_file(path: Path) -> Policy:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        msg = f"the policy file {str(path)!r} {what}; give an existing file or a preset: {', '.join(preset_names())}"
        raise InputError(msg)
    try:
        policy = Policy.from_toml(path.read_text(encoding="utf-8"))
    except (InputError, OSError, UnicodeDecodeError) as error:
        # The library knows no command line; a rule of the user's own is missing most often for want of the option.
        own = "; a rule of your own needs --rules FILE.py" if str(error).startswith("unknown rule") else ""
        msg = f"policy file {str(path)!r}: {error}{own}"
        raise InputError(msg) from error
    return policy if policy.name else replace(policy, name=path.stem)


def _options(text: str, colon: str, options: str) -> list[tuple[str, str]]:
    """Split ``key=value,key=value``."""
    if not colon:
        return []
    pairs: list[tuple[str, str]] = []
    for part in options.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            msg = f"options are written NAME:key=value,key=value; got {text!r}"
            raise InputError(msg)
        if key in dict(pairs):
            msg = f"the option {key!r} is given twice in {text!r}; give it once"
            raise InputError(msg)
        pairs.append((key, value))
    return pairs


def _like(default: Any, key: str, text: str) -> Any:
    """Read an option of a preset as what its default is: truth value, whole number, number or text."""
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text in {"true", "false"}:
            return text == "true"
        msg = f"the option {key!r} of a preset is true or false; got {text!r}"
        raise InputError(msg)
    kind, what = (int, "a whole number") if isinstance(default, int) else (float, "a number")
    try:
        return kind(text)
    except ValueError:
        msg = f"the option {key!r} of a preset is {what}; got {text!r}"
        raise InputError(msg) from None


def _value(text: str) -> Any:
    """Read an option of a user's rule: a number or a truth value where it is one, else text."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
