"""A sampling policy: an exit rule, a budget, a group rule and an advantage rule."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ada_bandit._toml import toml_key, toml_value
from ada_bandit._types import FloatArray
from ada_bandit.advantages import Advantage, advantage_from_dict, pool_mean
from ada_bandit.budgets import BatchBudget, Budget, budget_from_dict
from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.estimators import prefix_probability
from ada_bandit.groups import All, Balanced, GroupRule, group_from_dict
from ada_bandit.rules import ExitRule, rule_from_dict
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
        if isinstance(self.budget, BatchBudget) and self.advantage.needs_paths:
            msg = (
                f"the advantage {self.advantage.name!r} depends on the paths of one prompt's draws table, "
                f"and the shared budget {self.budget.name!r} has none; use another advantage, such as 'leave_one_out'"
            )
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
    def bound_advantage(self) -> Advantage:
        """The advantage rule, solved for under this policy's draws where it depends on them."""
        return self.advantage.bound(self)

    @cached_property
    def tables(self) -> Tables:
        """The policy compiled to tables over (pos, neg)."""
        return compile_tables(self)

    @cached_property
    def one_class_estimate(self) -> FloatArray:
        """Unbiased estimate of p^n + q^n at the exit cell, ``[pos, neg]``: that n plain responses are of one class.

        NaN throughout where the first round is shorter than n, as there is no such estimate then.
        """
        draws = self.tables.draws
        if self.n > int(draws[0, 0]):
            return np.full(draws.shape, np.nan)
        return prefix_probability(draws, self.n, 0) + prefix_probability(draws, 0, self.n)

    @classmethod
    def preset(cls, name: str, **options: float | str) -> Policy:
        """Return a published policy by name.

        Parameters
        ----------
        name
            One of `preset_names()`; `ada_bandit.presets` says what each of them is.
        **options
            Options of the preset, such as ``group_size``.

        Raises
        ------
        InputError
            For an unknown name (the nearest one is suggested) or option, or a value that can't be used.
        """
        from ada_bandit.presets import PRESETS

        if name not in PRESETS:
            raise unknown_name("preset", name, PRESETS)
        return PRESETS[name].policy(**options)

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
        lines = [f"{key} = {toml_value(value)}" for key, value in data.items() if not isinstance(value, dict)]
        for key, value in data.items():
            if isinstance(value, dict):
                lines += ["", f"[{key}]", *(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items())]
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


def check_is_policy(policy: Policy) -> Policy:
    """Return `policy`, or raise where it is something else, such as the name of a preset."""
    if not isinstance(policy, Policy):
        msg = f"policy must be a Policy; got {policy!r}. For a preset use Policy.preset({str(policy)!r})"
        raise InputError(msg)
    return policy


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets."""
    from ada_bandit.presets import PRESETS

    return tuple(PRESETS)
