"""A sampling policy: an exit rule, a budget, a group rule and an advantage rule."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np

from ada_bandit.advantages import Advantage, advantage_from_dict, group_mean, group_std, leave_one_out, pool_mean
from ada_bandit.budgets import Budget, Rounds, budget_from_dict
from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.groups import All, Balanced, GroupRule, group_from_dict
from ada_bandit.rules import Balance, ExitRule, Never, Positive, rule_from_dict
from ada_bandit.tables import Tables, compile_tables

__all__ = ["Policy", "preset_names"]


@dataclass(frozen=True)
class Policy:
    """How prompts are sampled, when they exit, what is kept and how it is weighed.

    Every part may be given as an object, as its name, or as a table with its name.

    >>> from ada_bandit import Balance, Policy, Rounds
    >>> policy = Policy(rule=Balance(group_size=4), budget=Rounds(samples=8, rounds=4), group_size=4)
    >>> policy == Policy.preset("reinforce-ada-balance")
    True

    Raises
    ------
    InputError
        If a part is unknown, or if the group is larger than the largest possible pool.
    """

    rule: ExitRule
    """When a prompt has had enough."""
    budget: Budget
    """How many responses are asked for at a time, and how many at most."""
    group_size: int | None = None
    """n, responses kept for the update; K where the group rule is `All` and nothing is given."""
    group: GroupRule = field(default_factory=Balanced)
    """Which responses are kept."""
    advantage: Advantage = field(default_factory=pool_mean)
    """With what weight a kept response enters the update."""
    threshold: float = 0.5
    """A response is correct when its reward exceeds this."""
    name: str = field(default="", compare=False)
    """What tables and figures call the policy; no part of its identity."""

    def __post_init__(self) -> None:
        for part, coerce in (
            ("rule", rule_from_dict),
            ("budget", budget_from_dict),
            ("group", group_from_dict),
            ("advantage", advantage_from_dict),
        ):
            object.__setattr__(self, part, coerce(getattr(self, part)))
        object.__setattr__(self, "threshold", check_number("threshold", self.threshold))
        if not isinstance(self.name, str):
            msg = f"name must be text; got {self.name!r}"
            raise InputError(msg)
        most = self.budget.max_samples
        size = most if self.group_size is None and isinstance(self.group, All) else self.group_size
        size = check_count("group_size", size)
        if size > most:
            msg = (
                f"group_size = {size} is larger than the largest possible pool of {most} responses; "
                f"use a group of at most {most} or a larger budget"
            )
            raise InputError(msg)
        object.__setattr__(self, "group_size", size)

    @property
    def n(self) -> int:
        """The group size n, resolved."""
        return check_count("group_size", self.group_size)

    @property
    def label(self) -> str:
        """The name, or a short description where there is none."""
        return self.name or f"{self.rule.name}, {self.budget.sizes[0]} x {len(self.budget.sizes)}, n = {self.n}"

    @cached_property
    def tables(self) -> Tables:
        """The policy compiled to tables over (pos, neg)."""
        return compile_tables(self)

    @classmethod
    def preset(cls, name: str, **options: int) -> Policy:
        """Return a published policy by name.

        Parameters
        ----------
        name
            One of `preset_names()`.
        **options
            ``group_size`` for all; ``samples`` and ``rounds`` for the adaptive ones.

        Raises
        ------
        InputError
            For an unknown name (the nearest one is suggested) or option.
        """
        if name not in _PRESETS:
            raise unknown_name("preset", name, _PRESETS)
        known = signature(_PRESETS[name]).parameters
        for key in options:
            if key not in known:
                raise unknown_name(f"option of the preset {name!r}", key, known)
        given = ", ".join(f"{key}={value}" for key, value in options.items())
        parts = _PRESETS[name](**options)
        return cls(**parts, name=f"{name}:{given}" if given else name)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain values, read back by `from_dict`."""
        head: dict[str, Any] = {"name": self.name} if self.name else {}
        return head | {
            "group_size": self.n,
            "threshold": self.threshold,
            "rule": self.rule.to_dict(),
            "budget": self.budget.to_dict(),
            "group": self.group.to_dict(),
            "advantage": self.advantage.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Build a policy from plain values; unknown keys are refused, and the nearest known one is suggested."""
        if not isinstance(data, Mapping):
            msg = f"a policy is a table of its parts; got {data!r}"
            raise InputError(msg)
        known = ("name", "group_size", "threshold", "rule", "budget", "group", "advantage")
        for key in data:
            if key not in known:
                raise unknown_name("key of a policy", key, known)
        for key in ("rule", "budget"):
            if key not in data:
                msg = f"a policy needs a {key}; got only {', '.join(data) or 'an empty table'}"
                raise InputError(msg)
        return cls(**data)

    def to_toml(self) -> str:
        """Return the policy as TOML text, read back unchanged by `from_toml`."""
        data = self.to_dict()
        lines = [f"{key} = {_toml(value)}" for key, value in data.items() if not isinstance(value, dict)]
        for key, value in data.items():
            if isinstance(value, dict):
                lines += ["", f"[{key}]", *(f"{_key(k)} = {_toml(v)}" for k, v in value.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """Build a policy from TOML text.

        Raises
        ------
        InputError
            If the text is no TOML, or describes no policy.
        """
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            msg = f"this is not valid TOML: {error}"
            raise InputError(msg) from error
        return cls.from_dict(data)


def _key(key: str) -> str:
    return key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else _toml(key)


def _toml(value: Any) -> str:
    """Write one value as TOML; JSON's escapes of control characters are TOML's as well."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    msg = f"a policy file holds numbers, text, booleans, lists and tables; got {value!r}"
    raise InputError(msg)


def _plain(advantage: Advantage) -> Callable[..., dict[str, Any]]:
    """Take one round of n responses and keep them all."""

    def parts(group_size: int = 4) -> dict[str, Any]:
        size = check_count("group_size", group_size)
        return {
            "rule": Never(),
            "budget": Rounds(size),
            "group_size": size,
            "group": All(),
            "advantage": advantage,
        }

    return parts


def _reinforce_ada(rule: Callable[[int], ExitRule]) -> Callable[..., dict[str, Any]]:
    """Draw rounds until the rule holds; a balanced group; the pool mean as baseline (arXiv 2510.04996)."""

    def parts(samples: int = 8, rounds: int = 4, group_size: int = 4) -> dict[str, Any]:
        return {"rule": rule(group_size), "budget": Rounds(samples, rounds), "group_size": group_size}

    return parts


_PRESETS: dict[str, Callable[..., dict[str, Any]]] = {
    "grpo": _plain(group_std()),
    "dr-grpo": _plain(group_mean()),
    "rloo": _plain(leave_one_out()),
    "reinforce-ada-pos": _reinforce_ada(lambda _: Positive(1)),
    "reinforce-ada-balance": _reinforce_ada(Balance),
}


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets."""
    return tuple(_PRESETS)
