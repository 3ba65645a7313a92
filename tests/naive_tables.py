"""Slow, obvious twins of the tables' splits and advantages: the rules themselves, asked about counts that came up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ada_bandit import Policy
from ada_bandit.advantages import Cell

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def splits(policy: Policy, pos: int, neg: int) -> Iterator[tuple[Fraction, int, int]]:
    """Give the chance of every split that a pool's group can have, with the class counts, by counting subsets."""
    keep_pos, keep_neg = (int(keep[0]) for keep in policy.group.split(np.array([pos]), np.array([neg]), policy.n))
    if not policy.group.random_split:
        yield Fraction(1), keep_pos, keep_neg
        return
    keep = keep_pos + keep_neg
    for kept in range(max(0, keep - neg), min(pos, keep) + 1):
        ways = math.comb(pos, kept) * math.comb(neg, keep - kept)
        yield Fraction(ways, math.comb(pos + neg, keep)), kept, keep - kept


def class_advantages(
    policy: Policy, pos: Counts, neg: Counts, keep_pos: Counts, keep_neg: Counts
) -> tuple[Values, Values]:
    """Return the advantages of a kept positive and negative for pools and groups that came up, ``[prompt]`` each."""
    expected_pos, expected_neg = keep_pos.astype(np.float64), keep_neg.astype(np.float64)
    if policy.group.random_split:
        share = (keep_pos + keep_neg) / (pos + neg)
        expected_pos, expected_neg = share * pos, share * neg
    estimate = policy.sampling.estimate[pos, neg]
    cell = Cell(pos, neg, keep_pos, keep_neg, expected_pos, expected_neg, estimate, policy.n)
    return policy.advantage.of_classes(cell)
