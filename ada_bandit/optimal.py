"""The best that is possible: the policy of largest utility per unit of cost under a law, and its frontier.

`ada_bandit.stopping` has the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.exact import check_has_paths
from ada_bandit.laws import Law
from ada_bandit.policy import Blend, Policy
from ada_bandit.score_model import ScoreModel
from ada_bandit.stopping import (
    Choice,
    ProblemOptions,
    StoppingProblem,
    Utility,
    common_price,
    solve_together,
)

__all__ = [
    "Frontier",
    "GainSplit",
    "Problem",
    "ProblemOptions",
    "Solution",
    "Utility",
    "bayes_policy",
    "common_price",
    "frontier",
    "policy_for_budget",
    "split_gain",
]


@dataclass(frozen=True, eq=False)
class Solution:
    """The best policy at one price of a response, and what it buys."""

    policy: Policy
    """The policy."""
    price: float
    """Utility that a unit of cost is worth."""
    expected_utility: float
    """E[R]; for gradient efficiency also its progress W and its noise V."""
    cost: float
    """C: responses, or tokens where `mean_response_tokens` is given, and the update's cost."""

    @property
    def value(self) -> float:
        """E[R] / C, the efficiency; 0 where nothing is spent."""
        return self.expected_utility / self.cost if self.cost > 0 else 0.0


class Problem(StoppingProblem):
    """A stopping problem (`ada_bandit.stopping.StoppingProblem` has the parameters) and its policies.

    Examples
    --------
    >>> from ada_bandit import Beta, ScoreModel
    >>> f"{Problem(Beta(0.5, 1), ScoreModel(noise_ratio=10.0)).best().value:.10f}"
    '0.0002217168'
    """

    def best(self, name: str = "bayes") -> Solution:
        """Return the policy of largest expected utility per unit of cost."""
        found = solve_together([self], [1.0])
        return Solution(self.policy_of(found.choices[0], found.shade, name), found.price, found.utility, found.cost)

    def solution(self, price: float, name: str) -> Solution:
        """Return the best policy at a price, with its tables."""
        parts, utility, cost = self.parts_at(price)
        return Solution(Policy(**parts, name=name), price, utility, cost)

    def policy_of(self, choice: Choice, shade: float, name: str) -> Policy:
        """Return the policy of a choice at a shade."""
        return Policy(**self.parts_of(choice, shade), name=name)


def bayes_policy(prior: Law, model: ScoreModel | None = None, **options: Unpack[ProblemOptions]) -> Policy:
    """Return the policy of largest expected utility per unit of cost under a prior.

    Parameters
    ----------
    prior
        The law of p over prompts.
    model
        The score model; ``ScoreModel()`` unless given.
    **options
        `ProblemOptions`: ``samples`` a round, ``max_samples``, ``group_size``,
        ``mean_response_tokens``, ``utility``.

    Raises
    ------
    InputError
        If an argument can't be used.

    Examples
    --------
    >>> from ada_bandit import Beta, ScoreModel, gradient_efficiency
    >>> model = ScoreModel(noise_ratio=10.0)
    >>> policy = bayes_policy(Beta(0.5, 1), model)
    >>> f"{gradient_efficiency(policy, Beta(0.5, 1), model).value:.10f}"
    '0.0002217168'
    """
    return Problem(prior, model, **options).best().policy


@dataclass(frozen=True, eq=False)
class Frontier:
    """The concave frontier of expected utility against expected cost."""

    vertices: tuple[Solution, ...]
    """Best policies, by ascending cost; every mix of two neighbours lies on the frontier."""

    @cached_property
    def costs(self) -> FloatArray:
        """`[vertex]` C."""
        return np.array([vertex.cost for vertex in self.vertices])

    @cached_property
    def utilities(self) -> FloatArray:
        """`[vertex]` E[R]."""
        return np.array([vertex.expected_utility for vertex in self.vertices])

    def utility_at(self, cost: npt.ArrayLike) -> FloatArray:
        """Return the frontier's utility at given costs, by the chord between the vertices found.

        Flat beyond the last vertex, and NaN below the first: the first round is always drawn.
        """
        cost = np.asarray(cost, dtype=np.float64)
        within = cost >= self.costs[0] * (1 - 1e-12)
        return np.where(within, np.interp(cost, self.costs, self.utilities), np.nan)


def frontier(
    prior: Law, model: ScoreModel | None = None, *, prices: int = 40, **options: Unpack[ProblemOptions]
) -> Frontier:
    """Return the concave frontier of expected utility against expected cost.

    From its two ends, the cheapest and the most useful policy, the widest gap is halved by
    solving at the price that is the chord's slope, until `prices` problems were solved or no
    gap is left.

    Parameters
    ----------
    prior, model, **options
        As in `bayes_policy`.
    prices
        Problems to solve at the most, at least 2.

    Returns
    -------
    Frontier
        Vertices by ascending cost; all of them where fewer than `prices` were needed.
    """
    problem = Problem(prior, model, **options)
    points = _ends(problem)
    # Chords that may hide a vertex, by the area of the triangle above them that is still open.
    open_chords = [0] if len(points) > 1 else []
    solved = 2
    while open_chords and solved < check_count("prices", prices, 2):
        widths = [_gap(points[i], points[i + 1]) for i in open_chords]
        at = open_chords.pop(int(np.argmax(widths)))
        vertex = _between(problem, points[at], points[at + 1])
        solved += 1
        if vertex is not None:
            points.insert(at + 1, vertex)
            open_chords = [i + (i > at) for i in open_chords] + [at, at + 1]
    return Frontier(tuple(problem.solution(price, f"frontier {cost:.3g}") for price, _, cost in points))


_Point: TypeAlias = tuple[float, float, float]
"""Price, utility, cost."""


def _ends(problem: Problem) -> list[_Point]:
    """Return the cheapest and the most useful policy; one point where they are the same."""
    dearest = 1e300
    cheap = (dearest, *problem.at_price(dearest)[:2])
    useful = (0.0, *problem.at_price(0.0)[:2])
    return [cheap] if useful[2] <= cheap[2] * (1 + 1e-12) else [cheap, useful]


def _gap(low: _Point, high: _Point) -> float:
    return (high[2] - low[2]) * (high[1] - low[1])


def _between(problem: Problem, low: _Point, high: _Point) -> _Point | None:
    """Return the vertex farthest above the chord of two points, or None where the chord is an edge."""
    price = (high[1] - low[1]) / (high[2] - low[2])
    utility, cost = problem.at_price(price)[:2]
    chord = low[1] - price * low[2]
    above = utility - price * cost - chord
    inside = low[2] < cost < high[2]
    return (price, utility, cost) if inside and above > 1e-12 * max(abs(high[1]), abs(chord)) else None


def policy_for_budget(
    prior: Law, budget: float, model: ScoreModel | None = None, **options: Unpack[ProblemOptions]
) -> Blend:
    """Return the best way to spend `budget` a prompt on average: a mix of two neighbouring frontier policies.

    Parameters
    ----------
    prior, model, **options
        As in `bayes_policy`.
    budget
        Expected cost a prompt, from that of the first round to that of the most useful policy.

    Returns
    -------
    Blend
        A policy like any other, for `Allocator`, `analyze` or a file; its expected cost is `budget` to rounding.

    Raises
    ------
    InputError
        If the budget doesn't pay for the first round, or exceeds what has any use.
    """
    problem = Problem(prior, model, **options)
    ends = _ends(problem)
    low, high = ends[0], ends[-1]
    check_number("budget", budget)
    if not low[2] * (1 - 1e-12) <= budget <= high[2] * (1 + 1e-12):
        msg = (
            f"budget must lie between {low[2]:.6g}, the cost of the first round, and {high[2]:.6g}, "
            f"that of the most useful policy; got {budget!r}"
        )
        raise InputError(msg)
    while low is not high and (vertex := _between(problem, low, high)) is not None:
        low, high = (vertex, high) if vertex[2] <= budget else (low, vertex)
    weight = min(max((budget - low[2]) / (high[2] - low[2]), 0.0), 1.0) if high[2] > low[2] else 0.0
    parts = [problem.solution(price, f"frontier {cost:.3g}") for price, _, cost in (low, high)]
    return Blend(
        low=parts[0].policy,
        high=parts[1].policy,
        weight=weight,
        expected_cost=(1 - weight) * low[2] + weight * high[2],
        expected_utility=(1 - weight) * low[1] + weight * high[1],
        name=f"frontier {(1 - weight) * low[2] + weight * high[2]:.3g}",
    )


@dataclass(frozen=True)
class GainSplit:
    """How many times as efficient the best policy is as a plain one, and why: the three factors of the gain."""

    advantages: float
    """The best advantages against the reference's own, at the same number of responses."""
    number: float
    """The best fixed number of responses against the reference's, both with their best advantages."""
    adaptivity: float
    """The best adaptive policy against the best fixed number, both with their best advantages."""
    best_fixed: int
    """The best fixed number of responses."""

    @property
    def total(self) -> float:
        """The whole gain, the product of the three."""
        return self.advantages * self.number * self.adaptivity


def split_gain(
    reference: Policy, prior: Law, model: ScoreModel | None = None, *, samples: int = 1, max_samples: int = 32
) -> GainSplit:
    """Return the gain of the best policy over a fixed number of responses, split in advantages, number and adaptivity.

    Parameters
    ----------
    reference
        A policy of one round, such as GRPO with 4 responses.
    prior, model
        As in `bayes_policy`.
    samples, max_samples
        Responses a round and at the most, of the adaptive policy; fixed numbers up to `max_samples` compete.

    Raises
    ------
    InputError
        If an argument can't be used, the reference has several rounds, or its update is always 0.

    Examples
    --------
    >>> from ada_bandit import Beta, Policy, ScoreModel
    >>> gain = split_gain(Policy.preset("dr-grpo"), Beta(0.5, 1), ScoreModel((5, 10.6)))
    >>> f"{gain.advantages:.2f} * {gain.number:.2f} * {gain.adaptivity:.2f} = {gain.total:.2f}"
    '1.29 * 1.00 * 1.13 = 1.46'
    """
    sizes = reference.budget.sizes
    if len(sizes) != 1 or check_has_paths(reference).sampling.shared:
        msg = f"the reference must draw a fixed number of responses in one round; got {reference.label!r}"
        raise InputError(msg)
    unit = gradient_efficiency(reference, prior, model).value
    if unit == 0:
        msg = f"the update of {reference.label!r} is always 0 under this law, so nothing can be held against it"
        raise InputError(msg)

    def value(samples: int, most: int) -> float:
        return Problem(prior, model, samples=samples, max_samples=most).best().value

    fixed = {n: value(n, n) for n in range(1, max(max_samples, *sizes) + 1)}
    # The fewest responses among those that are as good up to rounding.
    best_fixed = next(n for n in fixed if fixed[n] >= max(fixed.values()) * (1 - 1e-12))
    return GainSplit(
        advantages=fixed[sizes[0]] / unit,
        number=fixed[best_fixed] / fixed[sizes[0]],
        adaptivity=value(samples, max_samples) / fixed[best_fixed],
        best_fixed=best_fixed,
    )
