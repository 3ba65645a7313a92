"""Group rules: which responses of a pool go into the update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ada_bandit._parts import Square, build, check_table, plain
from ada_bandit._types import IntArray
from ada_bandit.errors import InputError, check_count, preview

__all__ = ["All", "Balanced", "GroupRule", "Matched", "SplitTable", "Uniform", "group_from_dict"]


class GroupRule(ABC):
    """How many positives and negatives of a pool are kept; which ones is left to chance.

    Within what a rule allows, every choice of responses is equally likely.
    """

    name: ClassVar[str]
    random_split: ClassVar[bool] = False
    """Whether the kept class counts are random: a uniform subset of the whole pool."""

    @abstractmethod
    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:
        """Return how many positives and negatives are kept, shaped like the counts.

        Where `random_split` holds only the sum has a meaning.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return a description of plain values, read back by `group_from_dict`."""
        return plain(self)


@dataclass(frozen=True)
class Balanced(GroupRule):
    """Half of the group from each class, ``n // 2`` positives and ``n - n // 2`` negatives.

    Where a class is short the other one fills its places, so a group holds min(n, pool) rows.
    (Reinforce-Ada, arXiv 2510.04996, whose public code keeps the first ones of each class.)
    """

    name: ClassVar[str] = "balanced"

    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:
        return balanced_counts(pos, neg, group_size)


def balanced_counts(pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:
    """Return how many positives and negatives a balanced group keeps of pools, shaped like the counts."""
    keep_pos = np.minimum(pos, np.maximum(group_size // 2, group_size - neg))
    return keep_pos, np.minimum(neg, group_size - keep_pos)


@dataclass(frozen=True)
class Uniform(GroupRule):
    """A uniformly random subset of min(n, pool) responses, whatever their class."""

    name: ClassVar[str] = "uniform"
    random_split: ClassVar[bool] = True

    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:
        keep_pos = np.minimum(pos, group_size)
        return keep_pos, np.minimum(neg, group_size - keep_pos)


@dataclass(frozen=True)
class All(GroupRule):
    """Every response of the pool; the group size is then only the unit of the gradient weight."""

    name: ClassVar[str] = "all"
    at_least: int = 0
    """A pool with fewer scored responses keeps nothing: a prompt that a first stage has screened out."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_least", check_count("at_least", self.at_least, 0))

    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:  # noqa: ARG002
        enough = pos + neg >= self.at_least
        return np.where(enough, pos, 0), np.where(enough, neg, 0)


@dataclass(frozen=True)
class Matched(GroupRule):
    """Every positive, and as many negatives at the most (AERO, arXiv 2602.14338).

    A pool without positives keeps nothing. The group size is only the unit of the gradient weight.
    """

    name: ClassVar[str] = "matched"

    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:  # noqa: ARG002
        return pos, np.minimum(pos, neg)


@dataclass(frozen=True, init=False)
class SplitTable(GroupRule):
    """As many positives and negatives as tables say: a rule without a formula, such as a computed optimum."""

    name: ClassVar[str] = "split_table"
    keep_pos: Square
    """`[pos, neg]` Positives kept, at most pos."""
    keep_neg: Square
    """`[pos, neg]` Negatives kept, at most neg."""

    def __init__(self, keep_pos: npt.ArrayLike | Square, keep_neg: npt.ArrayLike | Square) -> None:
        for name, axis, values in (("keep_pos", 0, keep_pos), ("keep_neg", 1, keep_neg)):
            table = check_table(name, values)
            if ((table < 0) | (table > np.indices(table.shape)[axis]) | (table != np.floor(table))).any():
                msg = f"{name} must hold whole numbers from 0 to the class's count; got {preview(values)}"
                raise InputError(msg)
            object.__setattr__(self, name, Square(name, table, np.int64))

    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:  # noqa: ARG002
        return self.keep_pos.at("keep_pos", pos, neg), self.keep_neg.at("keep_neg", pos, neg)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "keep_pos": self.keep_pos.values.tolist(),
            "keep_neg": self.keep_neg.values.tolist(),
        }


def group_from_dict(data: Any) -> GroupRule:
    """Build a group rule from its name or a table with its name, or pass a group rule through.

    Raises
    ------
    InputError
        For an unknown name or key.
    """
    if isinstance(data, GroupRule):
        return data
    kinds: dict[str, type[GroupRule]] = {rule.name: rule for rule in (Balanced, Uniform, All, Matched, SplitTable)}
    return build("group rule", kinds, data, "'balanced'")
