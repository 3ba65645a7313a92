"""Group rules: which responses of a pool go into the update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ada_bandit._parts import build, plain
from ada_bandit._types import IntArray

__all__ = ["All", "Balanced", "GroupRule", "Uniform", "group_from_dict"]


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
        half = group_size // 2
        keep_pos = np.minimum(pos, np.maximum(half, group_size - neg))
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

    def split(self, pos: IntArray, neg: IntArray, group_size: int) -> tuple[IntArray, IntArray]:  # noqa: ARG002
        return pos, neg


def group_from_dict(data: Any) -> GroupRule:
    """Build a group rule from its name or a table with its name, or pass a group rule through.

    Raises
    ------
    InputError
        For an unknown name or key.
    """
    if isinstance(data, GroupRule):
        return data
    kinds: dict[str, type[GroupRule]] = {rule.name: rule for rule in (Balanced, Uniform, All)}
    return build("group rule", kinds, data, "'balanced'")
