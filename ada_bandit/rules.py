"""Exit rules: when a prompt has had enough responses.

A rule is a predicate over (pos, neg), the counts of correct and incorrect responses so far.
It is looked at when a round ends; the first round is drawn in any case. Rules combine with
``&``, ``|`` and ``~``, and a user's own rule is one vectorised function::

    @exit_rule
    def streak(pos, neg, *, length=6):
        return (pos >= length) | (neg >= length)
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ada_bandit._parts import Square, build, plain
from ada_bandit._types import BoolArray, IntArray
from ada_bandit.errors import AdaBanditError, InputError, check_count, check_number, preview, unknown_name
from ada_bandit.laws import Beta, Grid, Law, Mixture, law_from_dict

__all__ = [
    "Balance",
    "ConfidenceSequence",
    "ExitRule",
    "Interval",
    "MeanBetween",
    "Never",
    "Positive",
    "Posterior",
    "Quota",
    "StopTable",
    "UserRule",
    "exit_rule",
    "rule_from_dict",
    "rule_names",
]

_ELEMENTWISE = "write it elementwise in (pos, neg), with & | ~ and numpy.where in place of and, or, not, if"


class ExitRule(ABC):
    """A predicate over (pos, neg): where it holds, a prompt is resolved and exits."""

    name: ClassVar[str]
    """The name by which a policy file refers to the rule."""

    @abstractmethod
    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        """Return where the rule holds; `pos`, `neg` and the result have one shape."""

    def to_dict(self) -> dict[str, Any]:
        """Return a description of plain values, read back by `rule_from_dict`."""
        return plain(self)

    def __and__(self, other: ExitRule) -> ExitRule:
        """Hold where both rules hold."""
        return AllOf(_joined(AllOf, self, other))

    def __or__(self, other: ExitRule) -> ExitRule:
        """Hold where either rule holds."""
        return AnyOf(_joined(AnyOf, self, other))

    def __invert__(self) -> ExitRule:
        """Hold where the rule does not hold."""
        return self.rule if isinstance(self, Not) else Not(self)

    def holds(self, pos: IntArray, neg: IntArray) -> BoolArray:
        """Return where the rule holds, having checked what the rule returned.

        Raises
        ------
        InputError
            If the rule returns another shape than that of the counts, or no booleans.
        """
        # Rates such as pos / (pos + neg) have no value at the empty cell, and need none.
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                result = np.asarray(self(pos, neg))
        except AdaBanditError:
            raise
        except Exception as error:
            first = str(error).partition("\n")[0] or "no message"
            msg = f"the exit rule {self.name!r} raised {type(error).__name__}: {first}; {_ELEMENTWISE}"
            raise InputError(msg) from error
        if result.shape != np.shape(pos):
            msg = (
                f"the exit rule {self.name!r} returned shape {result.shape} for counts of shape {np.shape(pos)}; "
                f"{_ELEMENTWISE}"
            )
            raise InputError(msg)
        if result.dtype != np.bool_:
            msg = (
                f"the exit rule {self.name!r} returned {result.dtype} values; it must return booleans, such as pos >= 2"
            )
            raise InputError(msg)
        return result


def _joined(kind: type[AllOf | AnyOf], *rules: ExitRule) -> tuple[ExitRule, ...]:
    """Return the rules, those of the same kind taken apart: ``a & (b & c)`` is one conjunction of three."""
    for rule in rules:
        if not isinstance(rule, ExitRule):
            msg = f"& and | combine exit rules; got {rule!r}. Mark your own function with @exit_rule"
            raise InputError(msg)
    return tuple(part for rule in rules for part in (rule.rules if isinstance(rule, kind) else (rule,)))


def _check_members(rules: Any) -> tuple[ExitRule, ...]:
    if not isinstance(rules, (list, tuple)) or not rules:
        msg = f"a combination of rules needs a list of at least one rule; got {rules!r}"
        raise InputError(msg)
    return tuple(rule_from_dict(rule) for rule in rules)


@dataclass(frozen=True)
class AllOf(ExitRule):
    """Hold where all of `rules` hold; written ``a & b``."""

    name: ClassVar[str] = "all"
    rules: tuple[ExitRule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", _check_members(self.rules))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return np.asarray(np.logical_and.reduce([rule.holds(pos, neg) for rule in self.rules]))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "rules": [rule.to_dict() for rule in self.rules]}


@dataclass(frozen=True)
class AnyOf(ExitRule):
    """Hold where any of `rules` holds; written ``a | b``."""

    name: ClassVar[str] = "any"
    rules: tuple[ExitRule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", _check_members(self.rules))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return np.asarray(np.logical_or.reduce([rule.holds(pos, neg) for rule in self.rules]))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "rules": [rule.to_dict() for rule in self.rules]}


@dataclass(frozen=True)
class Not(ExitRule):
    """Hold where `rule` does not; written ``~a``."""

    name: ClassVar[str] = "not"
    rule: ExitRule

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", rule_from_dict(self.rule))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return np.logical_not(self.rule.holds(pos, neg))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "rule": self.rule.to_dict()}


@dataclass(frozen=True)
class Never(ExitRule):
    """Hold nowhere: the budget alone ends a prompt. With one round it is plain sampling."""

    name: ClassVar[str] = "never"

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:  # noqa: ARG002 - needs the shape alone
        return np.zeros(np.shape(pos), dtype=np.bool_)


@dataclass(frozen=True)
class Positive(ExitRule):
    """Hold once `count` responses are correct (Reinforce-Ada-pos, arXiv 2510.04996, with count = 1)."""

    name: ClassVar[str] = "positive"
    count: int = 1
    """Correct responses that are enough, at least 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", check_count("count", self.count))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:  # noqa: ARG002 - one class decides
        return pos >= self.count


@dataclass(frozen=True)
class Quota(ExitRule):
    """Hold once there are `positives` correct and `negatives` incorrect responses."""

    name: ClassVar[str] = "quota"
    positives: int
    """Correct responses wanted, at least 0."""
    negatives: int
    """Incorrect responses wanted, at least 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "positives", check_count("positives", self.positives, 0))
        object.__setattr__(self, "negatives", check_count("negatives", self.negatives, 0))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return (pos >= self.positives) & (neg >= self.negatives)


@dataclass(frozen=True)
class Balance(ExitRule):
    """Hold once a balanced group can be filled (Reinforce-Ada-balance, arXiv 2510.04996).

    An odd group size asks for ``n // 2`` correct and ``n - n // 2`` incorrect responses.
    """

    name: ClassVar[str] = "balance"
    group_size: int
    """Size n of the group to be filled, at least 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "group_size", check_count("group_size", self.group_size))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return (pos >= self.group_size // 2) & (neg >= self.group_size - self.group_size // 2)


@dataclass(frozen=True)
class MeanBetween(ExitRule):
    """Hold where the pool mean lies in [low, high]; with ``~`` it screens prompts out.

    A rule of the plain mean, whatever the size of the pool, as first stages use it. `Posterior` and
    `ConfidenceSequence` know how sure they are.
    """

    name: ClassVar[str] = "mean_between"
    low: float = 0.0
    """Lower end, in [0, 1]."""
    high: float = 1.0
    """Upper end, in [0, 1], above `low`."""

    def __post_init__(self) -> None:
        _set_region(self)

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        n = pos + neg
        # A mean that equals an end is inside, whatever rounding makes of low * n.
        slack = 1e-9 * n
        return np.asarray((n > 0) & (pos >= self.low * n - slack) & (pos <= self.high * n + slack))


@dataclass(frozen=True)
class Interval(ExitRule):
    """Hold once the Wilson score interval of p (Wilson 1927) is at most `width` wide.

    A fixed-sample interval looked at again and again: its coverage under stopping is below
    `confidence`. `ConfidenceSequence` is the rule that keeps its promise.
    """

    name: ClassVar[str] = "interval"
    width: float
    """Widest interval that is precise enough, in (0, 1)."""
    confidence: float = 0.95
    """Nominal coverage of the interval, in (0, 1)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_number("width", self.width, 0, 1, strict=True))
        object.__setattr__(self, "confidence", check_number("confidence", self.confidence, 0, 1, strict=True))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        from scipy.special import ndtri

        z2 = float(ndtri((1 + self.confidence) / 2)) ** 2
        n = np.maximum(pos + neg, 1)
        half = np.sqrt(z2 * (pos * neg / n + z2 / 4)) / (n + z2)
        return np.where(pos + neg == 0, False, 2 * half <= self.width)  # noqa: FBT003 - a value, not a flag


@dataclass(frozen=True)
class ConfidenceSequence(ExitRule):
    """Hold once a confidence sequence puts p inside or outside [low, high].

    The beta-binomial mixture sequence with a uniform mixture,
    ``{p : B(1+pos, 1+neg) / (p^pos q^neg) < 1/alpha}`` (Howard et al. 2021; Waudby-Smith and
    Ramdas 2024): with probability 1 - `alpha` it holds p at every moment, so a prompt is put
    on the wrong side with probability at most `alpha`, whenever one looks.
    """

    name: ClassVar[str] = "confidence_sequence"
    low: float
    """Lower end of the region, in [0, 1]."""
    high: float
    """Upper end of the region, in [0, 1], above `low`."""
    alpha: float = 0.05
    """Chance of ever excluding the true p, in (0, 1)."""

    def __post_init__(self) -> None:
        _set_region(self)
        object.__setattr__(self, "alpha", check_number("alpha", self.alpha, 0, 1, strict=True))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        from scipy.special import betaln, xlog1py, xlogy

        def excluded(p: float) -> BoolArray:
            # The set is an interval around the pool mean, as p^pos q^neg is log-concave in p.
            log_ratio = betaln(1 + pos, 1 + neg) - (xlogy(pos, p) + xlog1py(neg, -p))
            return np.asarray(log_ratio >= -np.log(self.alpha))

        mean = pos / np.maximum(pos + neg, 1)
        # Nothing lies beyond 0 and 1, so a region that reaches them is open to that side.
        low_cleared = excluded(self.low) & (mean > self.low) if self.low > 0 else np.ones(np.shape(pos), np.bool_)
        high_cleared = excluded(self.high) & (mean < self.high) if self.high < 1 else np.ones(np.shape(pos), np.bool_)
        below = excluded(self.low) & (mean < self.low)
        above = excluded(self.high) & (mean > self.high)
        return np.asarray((low_cleared & high_cleared) | below | above)


@dataclass(frozen=True)
class Posterior(ExitRule):
    """Hold once the posterior puts at least `mass` of p inside [low, high], or outside of it."""

    name: ClassVar[str] = "posterior"
    low: float
    """Lower end of the region, in [0, 1]."""
    high: float
    """Upper end of the region, in [0, 1], above `low`."""
    mass: float = 0.95
    """Posterior mass that is enough, in (0.5, 1)."""
    prior: Law = field(default_factory=lambda: Beta(1.0, 1.0))
    """Pass-rate law before the first response; uniform unless given."""

    def __post_init__(self) -> None:
        _set_region(self)
        object.__setattr__(self, "mass", check_number("mass", self.mass, 0.5, 1, strict=True))
        object.__setattr__(self, "prior", law_from_dict(self.prior))

    def to_dict(self) -> dict[str, Any]:
        return plain(self) | {"prior": self.prior.to_dict()}

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        inside = _posterior_mass(self.prior, pos, neg, self.low, self.high)
        return np.asarray((inside >= self.mass) | (inside <= 1 - self.mass))


def _set_region(rule: MeanBetween | ConfidenceSequence | Posterior) -> None:
    low, high = check_number("low", rule.low, 0, 1), check_number("high", rule.high, 0, 1)
    if low >= high:
        msg = f"low must be below high; got low = {rule.low!r}, high = {rule.high!r}"
        raise InputError(msg)
    object.__setattr__(rule, "low", low)
    object.__setattr__(rule, "high", high)


def _posterior_mass(prior: Law, pos: IntArray, neg: IntArray, low: float, high: float) -> Any:
    """Return P(low <= p <= high | pos, neg), shaped like the counts; NaN where they are impossible."""
    if isinstance(prior, Beta):
        from scipy.special import betainc

        a, b = prior.a + pos, prior.b + neg
        return betainc(a, b, high) - betainc(a, b, low)
    if isinstance(prior, (Grid, Mixture)):
        # By logs: the chance of one long sequence underflows.
        share = np.exp(prior.log_joint(pos, neg) - prior.log_evidence(pos, neg)[..., None])
        if isinstance(prior, Grid):
            return share[..., (prior.pass_rates >= low) & (prior.pass_rates <= high)].sum(axis=-1)
        masses = [np.nan_to_num(_posterior_mass(law, pos, neg, low, high)) for law in prior.laws]
        return (share * np.stack(masses, axis=-1)).sum(axis=-1)
    return np.vectorize(lambda k, m: prior.posterior(k, m).probability(low, high))(pos, neg)


@dataclass(frozen=True, init=False)
class StopTable(ExitRule):
    """Hold where a table says so: a rule without a formula, such as a computed optimum.

    Parameters
    ----------
    rows
        A square boolean array ``[pos, neg]``; or, as policy files have it, a text for every pos,
        from 0, with a character for every neg: ``"1"`` where the rule holds, else ``"0"``.
    """

    name: ClassVar[str] = "stop_table"
    rows: Square
    """`[pos, neg]` Where the rule holds."""

    def __init__(self, rows: BoolArray | Sequence[str]) -> None:
        if not (isinstance(rows, np.ndarray) and rows.dtype == np.bool_ and rows.ndim == 2):
            texts = tuple(rows) if isinstance(rows, (list, tuple)) else ()
            if not texts or any(
                not isinstance(row, str) or set(row) - {"0", "1"} or len(row) != len(texts) for row in texts
            ):
                msg = (
                    "rows must be as many texts of 0 and 1 as each is long, or a square boolean array; "
                    f"got {preview(rows)}"
                )
                raise InputError(msg)
            rows = np.array([[mark == "1" for mark in row] for row in texts])
        object.__setattr__(self, "rows", Square("rows", rows, np.bool_))

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return self.rows.at("rows", pos, neg)

    def to_dict(self) -> dict[str, Any]:
        rows = ["".join("1" if holds else "0" for holds in row) for row in self.rows.values.tolist()]
        return {"name": self.name, "rows": rows}


@dataclass(frozen=True)
class UserRule(ExitRule):
    """A user's function of (pos, neg), made a rule by `exit_rule`."""

    function: Callable[..., Any]
    """``function(pos, neg, **options)``, vectorised, returning booleans."""
    options: tuple[tuple[str, Any], ...] = ()
    """Keyword options that were set, sorted by name."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """The function's name."""
        return self.function.__name__

    def __call__(self, pos: IntArray, neg: IntArray) -> BoolArray:
        return self.function(pos, neg, **dict(self.options))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        """Show the rule as it is called."""
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options)})"

    @property
    def defaults(self) -> dict[str, Any]:
        """The keyword options and their defaults."""
        return {
            p.name: p.default
            for p in list(inspect.signature(self.function).parameters.values())[2:]
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        }

    def with_options(self, **options: Any) -> UserRule:
        """Return the same rule with other values of its keyword options."""
        known = self.defaults
        for key in options:
            if key not in known:
                raise unknown_name(f"option of the rule {self.name!r}", key, known)
        return replace(self, options=tuple(sorted((dict(self.options) | options).items())))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name} | dict(self.options)


_BUILT_IN: Mapping[str, type[ExitRule]] = {
    rule.name: rule
    for rule in (
        AllOf,
        AnyOf,
        Not,
        Never,
        Positive,
        Quota,
        Balance,
        MeanBetween,
        Interval,
        ConfidenceSequence,
        Posterior,
        StopTable,
    )
}


def exit_rule(function: Callable[..., Any]) -> UserRule:
    """Make a vectorised function of (pos, neg) an exit rule.

    Parameters
    ----------
    function
        Takes two int64 arrays of one shape and returns booleans of that shape. Further
        parameters are options: keyword values that a policy file may set.

    Returns
    -------
    UserRule
        Usable wherever a rule is, also in ``&``, ``|`` and ``~``. It can be pickled wherever its function's
        module can be imported. A policy file knows it by the function's name, once it is handed to
        what reads the file (`rule_from_dict`); the name of a built-in rule is refused.

    Raises
    ------
    InputError
        If it is no named function, or its name is that of a built-in rule.
    """
    if not callable(function) or not hasattr(function, "__name__"):
        msg = f"@exit_rule takes a named function of (pos, neg); got {preview(function)}"
        raise InputError(msg)
    if function.__name__ in _BUILT_IN:
        msg = f"{function.__name__!r} is a built-in rule; give your function another name"
        raise InputError(msg)
    # In its module the name now stands for the rule: pickle finds the function as the rule's attribute.
    if not function.__qualname__.endswith(".function"):
        function.__qualname__ += ".function"
    return UserRule(function)


def rule_names(rules: Mapping[str, UserRule] | None = None) -> tuple[str, ...]:
    """Return the names that a policy file may use for its rule, those of a user's rules last."""
    return (*_BUILT_IN, *(rules or {}))


def rule_from_dict(data: Any, rules: Mapping[str, UserRule] | None = None) -> ExitRule:
    """Build a rule from its name, from the plain values of `ExitRule.to_dict`, or pass a rule through.

    Parameters
    ----------
    data
        What describes the rule.
    rules
        A user's own rules by name, which `data` may name as well.

    Raises
    ------
    InputError
        For an unknown name (the nearest one is suggested), an unknown or missing key, or a
        value that the rule refuses.
    """
    if isinstance(data, ExitRule):
        return data
    name = data if isinstance(data, str) else data.get("name") if isinstance(data, Mapping) else None
    if rules and isinstance(name, str) and name in rules:
        options = {key: value for key, value in data.items() if key != "name"} if name is not data else {}
        return rules[name].with_options(**options)
    if callable(data):
        msg = f"a rule is an exit rule or its name; got the function {data!r}. Mark it with @exit_rule"
        raise InputError(msg)
    if isinstance(name, str) and name not in _BUILT_IN:
        raise unknown_name("rule", name, rule_names(rules))
    if isinstance(data, Mapping):
        # The members of a combination may be a user's rules too.
        if isinstance(data.get("rules"), (list, tuple)):
            data = {**data, "rules": [rule_from_dict(member, rules) for member in data["rules"]]}
        if name == Not.name and "rule" in data:
            data = {**data, "rule": rule_from_dict(data["rule"], rules)}
    return build("rule", _BUILT_IN, data, "{name = 'positive', count = 1}")
