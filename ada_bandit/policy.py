"""A sampling policy: an exit rule, a budget, a group rule and an advantage rule; and published ones by name."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeAlias, get_args

from ada_bandit._toml import toml_key, toml_value
from ada_bandit.advantages import Advantage, PoolMean, advantage_from_dict
from ada_bandit.budgets import BatchBudget, Budget
from ada_bandit.errors import InputError, check_count, check_number, preview, unknown_name
from ada_bandit.groups import All, Balanced, GroupRule, group_from_dict
from ada_bandit.presets import PRESETS
from ada_bandit.rules import ExitRule, UserRule, rule_from_dict
from ada_bandit.sampling import SamplingTables, compile_sampling
from ada_bandit.shared import budget_from_dict
from ada_bandit.tables import NoSignal, Tables, compile_tables

__all__ = [
    "AnyPolicy",
    "Blend",
    "Policy",
    "check_is_policy",
    "check_together",
    "policy_from_toml",
]


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
    advantage: Advantage = field(default_factory=PoolMean)
    """With what weight a kept response enters the update."""
    threshold: float = 0.5
    """A response is correct when its reward exceeds this."""
    no_signal: NoSignal = "mask"
    """What becomes of a group whose rows have no advantage by their correctness: ``"mask"`` keeps them with
    advantage 0, ``"leave_out"`` keeps none of them, ``"keep"`` trains on what shaped rewards give them."""
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
        if self.no_signal not in get_args(NoSignal):
            raise unknown_name("value of no_signal", self.no_signal, get_args(NoSignal))
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

    @property
    def parts(self) -> tuple[tuple[float, Policy], ...]:
        """The policies that a prompt may get, with their chances: this one alone (see `Blend`)."""
        return ((1.0, self),)

    @cached_property
    def sampling(self) -> SamplingTables:
        """The first stage of the tables: when prompts exit, and what is kept of them."""
        return compile_sampling(self.rule, self.budget, self.group, self.n)

    @cached_property
    def tables(self) -> Tables:
        """The policy compiled to tables over (pos, neg)."""
        return compile_tables(self.sampling, self.advantage, self.no_signal)

    def with_advantage(self, advantage: Advantage) -> Policy:
        """Return the policy with another advantage; what was compiled of its sampling stays."""
        policy = replace(self, advantage=advantage)
        if "sampling" in vars(self):
            vars(policy)["sampling"] = self.sampling
        return policy

    def with_no_signal(self, no_signal: NoSignal) -> Policy:
        """Return the policy with another answer to what becomes of silent groups; the sampling compiled stays."""
        policy = replace(self, no_signal=no_signal)
        if "sampling" in vars(self):
            vars(policy)["sampling"] = self.sampling
        return policy

    def __getstate__(self) -> dict[str, Any]:
        """Give what pickle keeps: the parts, from which tables are compiled again."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def preset(cls, name: str, **options: float | str) -> Policy:
        """Return a published policy by name.

        Parameters
        ----------
        name
            One of `ada_bandit.presets.preset_names()`; that module says what each of them is.
        **options
            Options of the preset, such as ``group_size``.

        Raises
        ------
        InputError
            For an unknown name (the nearest one is suggested) or option, or a value that can't be used.
        """
        if name not in PRESETS:
            raise unknown_name("preset", name, PRESETS)
        return cls(**PRESETS[name].parts(**options))

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain values, read back by `from_dict`."""
        head: dict[str, Any] = {"name": self.name} if self.name else {}
        return head | {
            "group_size": self.n,
            "threshold": self.threshold,
            "no_signal": self.no_signal,
            "rule": self.rule.to_dict(),
            "budget": self.budget.to_dict(),
            "group": self.group.to_dict(),
            "advantage": self.advantage.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], rules: Mapping[str, UserRule] | None = None) -> Policy:
        """Build a policy from plain values; unknown keys are refused, and the nearest known one is suggested.

        Parameters
        ----------
        data
            What `to_dict` returned, or a policy file holds.
        rules
            A user's own rules by name, which the policy may use.
        """
        if not isinstance(data, Mapping):
            msg = f"a policy is a table of its parts; got {preview(data)}"
            raise InputError(msg)
        known = ("name", "group_size", "threshold", "no_signal", "rule", "budget", "group", "advantage")
        if {"low", "high"} <= set(data):
            msg = "this describes a blend of two policies; read it with Blend.from_dict, or by ada_bandit.specs"
            raise InputError(msg)
        for key in data:
            if key not in known:
                raise unknown_name("key of a policy", key, known)
        for key in ("rule", "budget"):
            if key not in data:
                msg = f"a policy needs a {key}; got only {', '.join(data) or 'an empty table'}"
                raise InputError(msg)
        return cls(**{**data, "rule": rule_from_dict(data["rule"], rules)})

    def to_toml(self) -> str:
        """Return the policy as TOML text, read back unchanged by `from_toml`."""
        return _to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, text: str, rules: Mapping[str, UserRule] | None = None) -> Policy:
        """Build a policy from TOML text; `rules` are as in `from_dict`.

        Raises
        ------
        InputError
            If the text is no TOML, or describes no policy.
        """
        return cls.from_dict(_from_toml(text), rules)


def _to_toml(data: Mapping[str, Any]) -> str:
    lines = [f"{key} = {toml_value(value)}" for key, value in data.items() if not isinstance(value, Mapping)]
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{key}]", *(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items())]
    return "\n".join(lines) + "\n"


def _from_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"this is not valid TOML: {error}"
        raise InputError(msg) from error


@dataclass(frozen=True)
class Blend:
    """Two policies, each prompt getting the second one with a given chance: a policy like any other.

    Which one a prompt gets is a pure function of the seed and the prompt's number. Of everything
    that is a mean over prompts the blend has the mean of its parts, so its analysis is exact.

    Raises
    ------
    InputError
        If the chance lies outside [0, 1], or the two could not sample one batch together.
    """

    low: Policy
    """The first policy; of a blend on a frontier, the one that spends less."""
    high: Policy
    """The second policy."""
    weight: float
    """Chance of `high`, in [0, 1]."""
    expected_cost: float = field(default=math.nan, compare=False)
    """Cost a prompt, over both chances, where `ada_bandit.optimal.policy_for_budget` made the blend; else NaN."""
    expected_utility: float = field(default=math.nan, compare=False)
    """Utility a prompt, over both chances, likewise."""
    name: str = field(default="", compare=False)
    """What tables and figures call it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, 0, 1))
        check_together((self.low, self.high))

    @property
    def parts(self) -> tuple[tuple[float, Policy], ...]:
        """The policies that a prompt may get, with their chances."""
        return ((1 - self.weight, self.low), (self.weight, self.high))

    @property
    def label(self) -> str:
        """The name, or a short description where there is none."""
        return self.name or f"{1 - self.weight:.3g} {self.low.label}, {self.weight:.3g} {self.high.label}"

    def with_no_signal(self, no_signal: NoSignal) -> Blend:
        """Return the blend with another answer to what becomes of silent groups, in both policies."""
        return replace(self, low=self.low.with_no_signal(no_signal), high=self.high.with_no_signal(no_signal))

    @property
    def n(self) -> int:
        """The group size n of both policies."""
        return self.low.n

    @property
    def threshold(self) -> float:
        """A response is correct when its reward exceeds this."""
        return self.low.threshold

    @property
    def budget(self) -> Budget:
        """The budget of both policies."""
        return self.low.budget

    def to_dict(self) -> dict[str, Any]:
        """Return the blend as plain values, read back by `from_dict`."""
        head: dict[str, Any] = {"name": self.name} if self.name else {}
        return head | {"weight": self.weight, "low": self.low.to_dict(), "high": self.high.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], rules: Mapping[str, UserRule] | None = None) -> Blend:
        """Build a blend from plain values; unknown keys are refused, and the nearest known one is suggested."""
        known = ("name", "weight", "low", "high")
        for key in data:
            if key not in known:
                raise unknown_name("key of a blend", key, known)
        if missing := [key for key in known[1:] if key not in data]:
            msg = f"a blend needs {', '.join(missing)}; got only {', '.join(data) or 'an empty table'}"
            raise InputError(msg)
        low, high = (Policy.from_dict(data[key], rules) for key in ("low", "high"))
        return cls(low, high, data["weight"], name=data.get("name", ""))

    def to_toml(self) -> str:
        """Return the blend as TOML text, read back unchanged by `from_toml`."""
        return _to_toml(self.to_dict())

    @classmethod
    def from_toml(cls, text: str, rules: Mapping[str, UserRule] | None = None) -> Blend:
        """Build a blend from TOML text."""
        return cls.from_dict(_from_toml(text), rules)


AnyPolicy: TypeAlias = Policy | Blend
"""A policy, or a blend of two."""


def policy_from_toml(text: str, rules: Mapping[str, UserRule] | None = None) -> AnyPolicy:
    """Build a policy or a blend from TOML text.

    Raises
    ------
    InputError
        If the text is no TOML, or describes neither.
    """
    data = _from_toml(text)
    return Blend.from_dict(data, rules) if {"low", "high"} & set(data) else Policy.from_dict(data, rules)


def check_together(policies: Sequence[Policy]) -> None:
    """Raise unless the policies can sample the prompts of one batch: what they must share is the same.

    Raises
    ------
    InputError
        If one is no policy, or two differ in their budget, group size, kind of split, threshold, what becomes of
        silent groups, or in an advantage that looks at rewards as they are.
    """
    for each in policies:
        check_is_policy(each)
    first = policies[0]
    for each in policies[1:]:
        for what, ours, theirs in (
            ("budget", first.budget, each.budget),
            ("group_size", first.n, each.n),
            ("kind of split", _split(first), _split(each)),
            ("advantage", _reward_advantage(first), _reward_advantage(each)),
            ("threshold", first.threshold, each.threshold),
            ("no_signal", first.no_signal, each.no_signal),
        ):
            if ours != theirs:
                msg = f"policies of one step must share their {what}; got {preview(ours)} and {preview(theirs)}"
                raise InputError(msg)


def _split(policy: Policy) -> str:
    return "random" if policy.group.random_split else "fixed"


def _reward_advantage(policy: Policy) -> object:
    """Return what policies of one step must share: a rule that applies to rewards as they are, options included."""
    return policy.advantage if policy.advantage.uses_rewards else None


def check_is_policy(policy: Policy) -> Policy:
    """Return `policy`, or raise where it is something else, such as the name of a preset."""
    if not isinstance(policy, Policy):
        msg = f"policy must be a Policy; got {preview(policy)}. For a preset use Policy.preset({str(policy)[:40]!r})"
        raise InputError(msg)
    return policy
