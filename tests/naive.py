"""Slow, obvious twins of the library, straight from the definitions.

They look at every sequence of rewards, in exact fractions, and share no code with the
library: rules are Python predicates over (pos, neg), budgets are tuples of round sizes,
group and advantage rules are names.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

Predicate = Callable[[int, int], bool]
Rewards = tuple[int, ...]


@dataclass(frozen=True)
class Exit:
    """One way in which a prompt can go: its rewards in order, up to the exit."""

    rewards: Rewards
    rounds: int
    resolved: bool

    @property
    def cell(self) -> tuple[int, int]:
        """Counts (pos, neg) at the exit."""
        return sum(self.rewards), len(self.rewards) - sum(self.rewards)


def walk(holds: Predicate, sizes: Sequence[int]) -> list[Exit]:
    """Return every sequence of rewards, round by round, each followed to its exit."""

    def go(rewards: Rewards, rounds: int) -> Iterator[Exit]:
        pos = sum(rewards)
        resolved = rounds > 0 and holds(pos, len(rewards) - pos)
        if resolved or rounds == len(sizes):
            yield Exit(rewards, rounds, resolved)
            return
        for new in itertools.product((0, 1), repeat=sizes[rounds]):
            yield from go(rewards + new, rounds + 1)

    return list(go((), 0))


def paths(draws: Callable[[int, int], int]) -> dict[tuple[int, int], int]:
    """Return the number of reward sequences at every cell where a round ends, for any draws table."""
    found = {(0, 0): 1}
    at: list[Rewards] = [()]
    while at:
        rewards = at.pop()
        pos = sum(rewards)
        wanted = draws(pos, len(rewards) - pos)
        for new in itertools.product((0, 1), repeat=wanted) if wanted else ():
            cell = pos + sum(new), len(rewards) + wanted - pos - sum(new)
            found[cell] = found.get(cell, 0) + 1
            at.append(rewards + new)
    return found


def first_correct_share(exits: Sequence[Exit], cell: tuple[int, int]) -> Fraction:
    """Return the Girshick-Mosteller-Savage estimate: the share of paths to a cell that begin with a correct one."""
    paths = [end.rewards for end in exits if end.cell == cell]
    return Fraction(sum(path[0] for path in paths), len(paths))


def prefix_share(exits: Sequence[Exit], cell: tuple[int, int], prefix: Rewards) -> Fraction:
    """Return the share of paths to a cell that begin with `prefix`."""
    paths = [end.rewards for end in exits if end.cell == cell]
    return Fraction(sum(path[: len(prefix)] == prefix for path in paths), len(paths))


def groups(rule: str, pool: Rewards, n: int) -> list[tuple[int, ...]]:
    """Return every choice of responses that a group rule may keep, as indices; all equally likely."""
    if rule == "all":
        return [tuple(range(len(pool)))]
    if rule == "uniform":
        return list(itertools.combinations(range(len(pool)), min(n, len(pool))))
    correct = [i for i, reward in enumerate(pool) if reward]
    incorrect = [i for i, reward in enumerate(pool) if not reward]
    want_pos, want_neg = n // 2, n - n // 2
    if len(correct) < want_pos:
        want_neg += want_pos - len(correct)
    elif len(incorrect) < want_neg:
        want_pos += want_neg - len(incorrect)
    return [
        some + others
        for some in itertools.combinations(correct, min(want_pos, len(correct)))
        for others in itertools.combinations(incorrect, min(want_neg, len(incorrect)))
    ]


def _mean(values: Sequence[int]) -> Fraction:
    return Fraction(sum(values), len(values))


@dataclass(frozen=True)
class Weighing:
    """An advantage rule by name, with what it may look at besides the pool."""

    advantage: str
    option: float = 0.0
    """`eps` of group_std, `baseline` of unbiased."""

    def __call__(
        self, pool: Rewards, kept: tuple[int, ...], choices: list[tuple[int, ...]], estimate: Fraction, n: int
    ) -> list[Fraction]:
        """Return the advantage of every kept response, in the order of `kept`."""
        group = [pool[i] for i in kept]
        option = Fraction(self.option)
        if self.advantage == "pool_mean":
            return [pool[i] - _mean(pool) for i in kept]
        if self.advantage == "group_mean":
            return [pool[i] - _mean(group) for i in kept]
        if self.advantage == "group_std":
            if len(set(group)) == 1:
                return [Fraction(0)] * len(group)
            scale = Fraction(statistics.stdev([float(reward) for reward in group])) + option
            return [(reward - _mean(group)) / scale for reward in group]
        if self.advantage == "leave_one_out":
            others = [pool[:i] + pool[i + 1 :] for i in kept]
            return [pool[i] - (_mean(rest) if rest else Fraction(0)) for i, rest in zip(kept, others, strict=True)]
        if self.advantage == "unbiased":
            mean_pos = Fraction(sum(pool[i] for choice in choices for i in choice), len(choices))
            mean_neg = len(kept) - mean_pos
            return [
                n * estimate * (1 - option) / mean_pos if pool[i] else -n * (1 - estimate) * option / mean_neg
                for i in kept
            ]
        raise NotImplementedError(self.advantage)


@dataclass(frozen=True)
class Outcome:
    """What the library's `Analysis` holds, at one pass rate."""

    expected_samples: float
    expected_rounds: float
    signal_probability: float
    resolved_probability: float
    pool_mean_bias: float
    pool_mean_mse: float
    gradient_weight: float
    exit_law: dict[tuple[int, int], float]


def analyze(
    holds: Predicate, sizes: Sequence[int], n: int, group: str, weighing: Weighing, pass_rate: Fraction
) -> Outcome:
    """Enumerate everything that can happen to a prompt of the given pass rate, strictly between 0 and 1.

    The weight is that of a model whose only parameter is p itself: a correct response has
    score 1/p, an incorrect one -1/q, and w is the mean of the update.
    """
    p, q = pass_rate, 1 - pass_rate
    exits = walk(holds, sizes)
    score = {1: 1 / p, 0: -1 / q}
    of_cell: dict[tuple[int, int], tuple[Fraction, Fraction]] = {}
    for end in exits:
        if end.cell not in of_cell:
            # Given the counts, order plays no part in what is kept.
            pool = tuple(sorted(end.rewards))
            choices = groups(group, pool, n)
            estimate = first_correct_share(exits, end.cell)
            signal, update = Fraction(0), Fraction(0)
            for kept in choices:
                signal += len({pool[i] for i in kept}) == 2
                weights = weighing(pool, kept, choices, estimate, n)
                update += sum((w * score[pool[i]] for w, i in zip(weights, kept, strict=True)), Fraction(0))
            of_cell[end.cell] = signal / len(choices), update / len(choices) / n

    law: dict[tuple[int, int], Fraction] = {}
    sums = [Fraction(0)] * 7
    for end in exits:
        pos, neg = end.cell
        chance = p**pos * q**neg
        law[end.cell] = law.get(end.cell, Fraction(0)) + chance
        mean = _mean(end.rewards)
        signal, update = of_cell[end.cell]
        counts = Fraction(pos + neg), Fraction(end.rounds), Fraction(end.resolved)
        values = (*counts, signal, mean - p, (mean - p) ** 2, update)
        sums = [total + chance * value for total, value in zip(sums, values, strict=True)]
    assert sum(law.values()) == 1
    samples, rounds, resolved, signal_chance, bias, mse, weight = map(float, sums)
    cells = {cell: float(chance) for cell, chance in law.items()}
    return Outcome(samples, rounds, signal_chance, resolved, bias, mse, weight, cells)


def wilson(pos: int, neg: int, z: float) -> tuple[float, float]:
    """Return the ends of the Wilson interval: the p at which the score test with normal quantile z just rejects.

    They solve (mean - p)^2 = z^2 p (1 - p) / n, a quadratic in p.
    """
    n = pos + neg
    mean = pos / n
    a, b, c = 1 + z * z / n, -(2 * mean + z * z / n), mean * mean
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)
