"""The one reader of policies as people write them: a preset, a TOML file, a rule of a Python file, a table.

Every program and adapter reads its policies here, so that one text means one policy everywhere:

``reinforce-ada-balance``
    A preset.
``grpo:group_size=16``
    A preset with options.
``my_policy.toml``
    A policy file (`Policy.to_toml`), also of a blend of two.
``my_rules.py``, ``my_rules.py:mixed``, ``my_rules.py:mixed,rounds=2,length=6``
    An exit rule of a Python file, by name where there are several; with options of the rule, and
    with ``samples``, ``rounds`` and ``group_size``. At most 4 rounds of 8 responses and a balanced group
    of 4 unless set.
``mixed``, ``mixed:rounds=2``
    The same for a rule that was loaded before (`ada_bandit.rule_files.load_rules`).

`ada_bandit.step_specs` reads what drives a run in the same words.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ada_bandit.budgets import Rounds
from ada_bandit.errors import AdaBanditError, InputError, preview, unknown_name
from ada_bandit.policy import AnyPolicy, Blend, Policy, policy_from_toml
from ada_bandit.presets import COMMON, PRESETS
from ada_bandit.rule_files import load_rules
from ada_bandit.rules import UserRule

__all__ = ["Spec", "option_value", "read_policies", "read_policy", "save_policy", "split_options"]

Spec = str | Path | Mapping[str, Any] | AnyPolicy
"""A policy as people write it; a table is ``{preset, options…}``, ``{file}``, or a whole policy."""

_BUDGET = {"samples": 8, "rounds": 4, "group_size": 4}
"""What a rule without a budget gets."""


def read_policies(
    specs: Iterable[Spec], rules: Iterable[str | Path] = (), group_size: int | None = None
) -> list[AnyPolicy]:
    """Run rules files, then read every policy (see `read_policy`)."""
    known = load_rules(rules)
    for name in known:
        if name in PRESETS:
            msg = f"the rule {name!r} has the name of a preset; give the function another name"
            raise InputError(msg)
    return [read_policy(spec, known, group_size) for spec in specs]


def read_policy(spec: Spec, rules: Mapping[str, UserRule] | None = None, group_size: int | None = None) -> AnyPolicy:
    """Read one policy and compile it, so that a faulty rule is told here.

    Parameters
    ----------
    spec
        What names the policy (see the module).
    rules
        A user's exit rules by name, which the policy may use.
    group_size
        n of a preset, or of a rule without a budget, that does not state it; that of the policy unless given.

    Returns
    -------
    Policy or Blend
        The policy; without a name of its own it is called by what it was named by.

    Raises
    ------
    InputError
        If it names no policy (the nearest name is suggested), or the policy is faulty.

    Examples
    --------
    >>> read_policy("grpo:group_size=16").n
    16
    >>> read_policy("reinforce-ada-pos", group_size=8).n
    8
    """
    if isinstance(spec, (Policy, Blend)):
        return _compiled(spec, spec.label)
    if isinstance(spec, Mapping):
        return _compiled(_from_table(spec, rules or {}, group_size), preview(dict(spec)))
    if not isinstance(spec, (str, Path)):
        msg = f"a policy is named by text, a path or a table, or is a Policy; got {preview(spec)}"
        raise InputError(msg)
    return _compiled(_from_text(str(spec), rules or {}, group_size), str(spec))


def save_policy(policy: AnyPolicy, path: str | Path) -> None:
    """Write a policy file that `read_policy` reads back as an equal policy.

    Parameters
    ----------
    policy
        The policy, or a blend of two.
    path
        The file, which is replaced if it is there; its name ends in ``.toml``.

    Raises
    ------
    InputError
        If the name has another ending, or the file can't be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from ada_bandit import Policy
    >>> with TemporaryDirectory() as folder:
    ...     save_policy(Policy.preset("rloo"), f"{folder}/mine.toml")
    ...     read_policy(f"{folder}/mine.toml") == Policy.preset("rloo")
    True
    """
    file = Path(path).expanduser()
    if file.suffix.lower() != ".toml":
        msg = f"a policy is written as TOML; got the file {str(path)!r}. Give a name that ends in .toml"
        raise InputError(msg)
    try:
        file.write_text(policy.to_toml(), encoding="utf-8")
    except OSError as error:
        msg = f"the policy file {str(path)!r} can't be written: {error.strerror}; give another one"
        raise InputError(msg) from error


def _compiled(policy: AnyPolicy, spec: str) -> AnyPolicy:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a rule may print; standard output may have to be JSON
            for _, part in policy.parts:
                part.tables  # noqa: B018 - compiled on first use
    except AdaBanditError as error:
        msg = f"policy {spec!r}: {error}"
        raise InputError(msg) from error
    return policy


def _from_table(table: Mapping[str, Any], rules: Mapping[str, UserRule], group_size: int | None) -> AnyPolicy:
    if "file" in table:
        if len(table) > 1:
            msg = f"policy = {{file = …}} takes no other key; got {sorted(table)}"
            raise InputError(msg)
        return _from_text(str(table["file"]), rules, group_size)
    if "preset" in table:
        options = {key: value for key, value in table.items() if key != "preset"}
        return _preset(str(table["preset"]), options, group_size)
    return Blend.from_dict(table, rules) if {"low", "high"} & set(table) else Policy.from_dict(table, rules)


def _from_text(text: str, rules: Mapping[str, UserRule], group_size: int | None) -> AnyPolicy:
    name, colon, rest = text.partition(":")
    if name in PRESETS:
        defaults = {**COMMON, **PRESETS[name].options}
        pairs = split_options(text, rest if colon else "")
        return _preset(name, {key: _like(defaults.get(key, 0), key, value) for key, value in pairs}, group_size)
    if name in rules:
        return _from_rule(rules[name], text, split_options(text, rest if colon else ""), group_size)
    if name.lower().endswith(".py"):
        return _from_rules_file(name, rest if colon else "", text, group_size)
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path's own fails where there is no such user
    if text.lower().endswith(".toml") or path.is_file():
        return _from_file(path, rules)
    known = (*PRESETS, *rules)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? Give" if near else "give"
    msg = (
        f"unknown policy {text!r}; {hint} a preset ({', '.join(PRESETS)}), a TOML file, a Python file with an exit "
        f"rule, or a rule of a --rules file ({', '.join(rules) or 'none loaded'})"
    )
    raise InputError(msg)


def _preset(name: str, options: dict[str, Any], group_size: int | None) -> Policy:
    if name in PRESETS and group_size is not None and "group_size" in PRESETS[name].options:
        stated = "group_size" in options
        policy = Policy.preset(name, **({"group_size": group_size} | options))
        # The size that a trainer brings along is no option that somebody wrote.
        return policy if stated else replace(policy, name=Policy.preset(name, **options).name)
    return Policy.preset(name, **options)


def _from_rule(rule: UserRule, text: str, pairs: Sequence[tuple[str, str]], group_size: int | None) -> Policy:
    values = {key: option_value(value) for key, value in pairs}
    sizes = _BUDGET if group_size is None else _BUDGET | {"group_size": group_size}
    # An option of the rule comes before a part of the budget of the same name.
    sizes = sizes | {key: values.pop(key) for key in _BUDGET if key in values and key not in rule.defaults}
    known = {*rule.defaults, *_BUDGET}
    for key in values:
        if key not in known:
            raise unknown_name(f"option of the rule {rule.name!r}", key, known)
    return Policy(
        rule=rule.with_options(**values),
        budget=Rounds(sizes["samples"], sizes["rounds"]),
        group_size=sizes["group_size"],
        name=text,
    )


def _from_rules_file(path: str, rest: str, text: str, group_size: int | None) -> Policy:
    own = load_rules([path])
    head, _, options = rest.partition(",")
    name = head.strip()
    if "=" in name:
        name, options = "", rest
    if not name and len(own) > 1:
        msg = f"{path!r} has the rules {', '.join(own)}; say which one, as in {path}:{next(iter(own))}"
        raise InputError(msg)
    name = name or next(iter(own))
    if name not in own:
        raise unknown_name(f"rule of {path!r}", name, own)
    # The same rule is called the same, wherever its file lies.
    label = f"{name}:{options}" if options else name
    return _from_rule(own[name], label, split_options(text, options), group_size)


def _from_file(path: Path, rules: Mapping[str, UserRule]) -> AnyPolicy:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        msg = f"the policy file {str(path)!r} {what}; give an existing file or a preset: {', '.join(PRESETS)}"
        raise InputError(msg)
    try:
        policy = policy_from_toml(path.read_text(encoding="utf-8"), rules)
    except (InputError, OSError, UnicodeDecodeError) as error:
        own = "; a rule of your own needs --rules FILE.py" if str(error).startswith("unknown rule") else ""
        msg = f"policy file {str(path)!r}: {error}{own}"
        raise InputError(msg) from error
    return policy if policy.name else replace(policy, name=path.stem)


def split_options(text: str, options: str) -> list[tuple[str, str]]:
    """Split ``key=value,key=value``; `text` is the whole of what was written, for messages.

    Raises
    ------
    InputError
        If it has another form, or a key stands twice.
    """
    pairs: list[tuple[str, str]] = []
    for part in options.split(",") if options or text.endswith(":") else ():
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


def option_value(text: str) -> Any:
    """Read an option without a known kind: a number or a truth value where it is one, else text."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
