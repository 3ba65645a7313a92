"""Batch budgets: how the prompts of a step share a total, and which of them are sampled at all.

Two kinds. *Allocations* spend exactly ``average`` responses a prompt over the batch, after a
pilot round or on what the memory predicts, by the formula of a published method or greedily on
marginal gains. *Selections* sample some of the candidate prompts, with n responses each.

Allocations keep promises that public implementations break: the sum is met to the last
response, the minimum and the maximum hold for every prompt, and a prompt whose responses were
all wrong or all right keeps its minimum, as its rate is a posterior mean, never 0 or 1.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ada_bandit._parts import build
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.budgets import BatchBudget, BatchState, Budget, Rounds, Stages
from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.laws import Beta, Law, law_from_dict

__all__ = [
    "GVM",
    "VIP",
    "Allocation",
    "Est",
    "Greedy",
    "Greso",
    "Knapsack",
    "Mopps",
    "Neyman",
    "Refill",
    "Selection",
    "budget_from_dict",
    "greedy_counts",
    "largest_remainder",
]


def largest_remainder(shares: npt.ArrayLike, total: int, minimum: npt.ArrayLike, maximum: npt.ArrayLike) -> IntArray:
    """Split `total` in proportion to shares, within bounds, exactly.

    The real-valued split is clip(scale * share, minimum, maximum) with the scale that meets the
    total; the fractions are then rounded up where they are largest. What prompts of positive
    share can't take goes to the others evenly.

    Parameters
    ----------
    shares
        ``[prompt]`` non-negative shares.
    total
        The sum, from that of `minimum` to that of `maximum`.
    minimum, maximum
        ``[prompt]`` or scalar bounds, whole numbers.

    Returns
    -------
    IntArray
        ``[prompt]`` counts that sum to `total`.

    Raises
    ------
    InputError
        If a share is negative or not finite, or the bounds don't admit the total.
    """
    weights = np.asarray(shares, dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        msg = f"shares must be finite and at least 0; got {shares!r}"
        raise InputError(msg)
    low = np.broadcast_to(np.asarray(minimum, dtype=np.int64), weights.shape)
    high = np.broadcast_to(np.asarray(maximum, dtype=np.int64), weights.shape)
    _check_total(total, low, high)
    if weights.size == 0:
        return np.zeros(0, dtype=np.int64)
    # A trace of share for everybody lets the rest go to prompts of share 0 when the others are full.
    weights = weights / weights.max() + 1e-12 if weights.max() > 0 else np.ones_like(weights)
    bottom, top = 0.0, float(high.max() + 1) / 1e-13
    for _ in range(200):
        scale = (bottom + top) / 2
        if np.clip(scale * weights, low, high).sum() < total:
            bottom = scale
        else:
            top = scale
    exact = np.clip(bottom * weights, low, high)
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = total - int(counts.sum())
    while missing > 0:
        fraction = np.where(counts < high, exact - counts, -np.inf)
        order = np.argsort(-fraction, kind="stable")[: min(missing, int((counts < high).sum()))]
        counts[order] += 1
        missing -= order.size
    while missing < 0:
        fraction = np.where(counts > low, exact - counts, np.inf)
        order = np.argsort(fraction, kind="stable")[: min(-missing, int((counts > low).sum()))]
        counts[order] -= 1
        missing += order.size
    return counts


def greedy_counts(gains: npt.ArrayLike, total: int, minimum: npt.ArrayLike = 0) -> IntArray:
    """Hand out `total` responses one by one, each where it gains most; optimal for concave utilities (Fox 1966).

    Only the largest gains matter, so they are selected at once instead of one by one from a heap.
    Of equal gains, those of prompts with the fewest responses come first: what gains nothing
    is spread evenly.

    Parameters
    ----------
    gains
        ``[prompt, response]`` gain of each further response, not increasing along a row.
    total
        The sum, from that of `minimum` to the size of `gains`.
    minimum
        ``[prompt]`` or scalar: responses that a prompt gets in any case.

    Returns
    -------
    IntArray
        ``[prompt]`` counts that sum to `total`.

    Raises
    ------
    InputError
        If gains increase along a row, or the bounds don't admit the total.
    """
    table = np.asarray(gains, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        msg = f"gains must be finite, by prompt and response; got shape {table.shape}"
        raise InputError(msg)
    rise = np.diff(table, axis=1)
    if rise.size and rise.max() > 1e-9 * max(float(np.abs(table).max()), 1e-300):
        row = int(np.unravel_index(np.argmax(rise), rise.shape)[0])
        msg = f"gains must not increase along a row, as greedy is optimal for concave utilities alone; row {row} does"
        raise InputError(msg)
    low = np.broadcast_to(np.asarray(minimum, dtype=np.int64), table.shape[:1])
    _check_total(total, low, np.full(table.shape[0], table.shape[1]))
    left = total - int(low.sum())
    counts = low.astype(np.int64)
    if left == 0:
        return counts
    # Columns first, so that of equal gains the earliest response comes first.
    columns, rows = np.nonzero((np.arange(table.shape[1]) >= low[:, None]).T)
    values = table[rows, columns]
    least = np.partition(values, values.size - left)[values.size - left]
    above, equal = np.nonzero(values > least)[0], np.nonzero(values == least)[0]
    chosen = np.concatenate([above, equal[: left - above.size]])
    return counts + np.bincount(rows[chosen], minlength=table.shape[0])


def _check_total(total: int, low: IntArray, high: IntArray) -> None:
    if (low > high).any() or not low.sum() <= total <= high.sum():
        msg = f"a total of {total} responses lies outside of what the bounds allow, {low.sum()} to {high.sum()}"
        raise InputError(msg)


@dataclass(frozen=True)
class Allocation(BatchBudget):
    """Spend exactly ``average`` responses a prompt over the batch, in one round or after a pilot round."""

    average: float = 8.0
    """Responses a prompt, on average over the batch; the total is rounded to the nearest whole number."""
    maximum: int = 32
    """The most responses of one prompt."""
    minimum: int = 2
    """The fewest responses of one prompt, the pilot's included."""
    pilot: int = 0
    """Responses of every prompt in a first round, whose outcome the rest is allocated on; 0 for none."""
    prior: Law = field(default_factory=lambda: Beta(1.0, 1.0))
    """Pass-rate law of an unseen prompt; rates are posterior means under it."""
    replace: float = field(default=0.0, kw_only=True)
    """Share of `maximum` that may be drawn on top, to replace responses without a score."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replace", check_number("replace", self.replace, 0, 1))
        object.__setattr__(self, "average", check_number("average", self.average, 0))
        object.__setattr__(self, "maximum", check_count("maximum", self.maximum))
        object.__setattr__(self, "minimum", check_count("minimum", self.minimum, 0))
        object.__setattr__(self, "pilot", check_count("pilot", self.pilot, 0))
        object.__setattr__(self, "prior", law_from_dict(self.prior))
        floor = max(self.minimum, self.pilot)
        if not floor <= self.average <= self.maximum:
            msg = (
                f"average must lie between minimum or pilot, {floor}, and maximum, {self.maximum}; got {self.average!r}"
            )
            raise InputError(msg)

    def total(self, prompts: int) -> int:
        """Return the responses that a batch of `prompts` shares."""
        return int(np.floor(self.average * prompts + 0.5))

    def counts(self, state: BatchState) -> IntArray:
        prompts = state.pos.size
        if state.round == 0 and self.pilot:
            return np.full(prompts, self.pilot, dtype=np.int64)
        if state.round > (1 if self.pilot else 0) or prompts == 0:
            return np.zeros(prompts, dtype=np.int64)
        rates = state.history.predict(self.prior, state.pos, state.neg)
        low = np.maximum(state.spent, self.minimum)
        return self.allocate(rates, state, self.total(prompts), low) - state.spent

    @abstractmethod
    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:
        """Return the responses of each prompt over the whole step, ``[prompt]``, at least `low`, summing to `total`."""


@dataclass(frozen=True)
class Neyman(Allocation):
    """In proportion to sqrt(p q), the spread of a response (Neyman 1934).

    Also the allocation of CurES (arXiv 2510.01037) where both classes have gradients of one norm.
    """

    name: ClassVar[str] = "neyman"

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        return largest_remainder(np.sqrt(rates * (1 - rates)), total, low, self.maximum)


@dataclass(frozen=True)
class GVM(Allocation):
    """In proportion to 1 / sqrt(p + alpha / p^(beta - 1)) (GVM-RAFT, arXiv 2505.02391), gradient norms taken as equal.

    The public code gives nothing to a prompt without a correct response in the pilot; here its
    rate is a posterior mean.
    """

    name: ClassVar[str] = "gvm"
    alpha: float = 1e-3
    """Weight of the term that holds back from very hard prompts, at least 0."""
    beta: float = 2.0
    """Its power."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", check_number("alpha", self.alpha, 0))
        object.__setattr__(self, "beta", check_number("beta", self.beta))

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        with np.errstate(divide="ignore"):  # at a rate of exactly 0, which a Grid prior may give
            shares = 1 / np.sqrt(rates + self.alpha * rates ** (1 - self.beta))
        return largest_remainder(shares, total, low, self.maximum)


@dataclass(frozen=True)
class Est(Allocation):
    """In proportion to 1 / (p + eps)^power (Reinforce-Ada-Est, arXiv 2510.04996 v3, power 1/2).

    The public code uses power 1, and a memory with decay 0.9 under Beta(1, 16).
    """

    name: ClassVar[str] = "est"
    prior: Law = field(default_factory=lambda: Beta(1.0, 16.0))
    """Pass-rate law of an unseen prompt."""
    power: float = 0.5
    """1/2 in the text, 1 in the public code."""
    eps: float = 1e-3
    """Keeps shares finite."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "power", check_number("power", self.power, 0))
        object.__setattr__(self, "eps", check_number("eps", self.eps, 0))

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        return largest_remainder((rates + self.eps) ** -self.power, total, low, self.maximum)


@dataclass(frozen=True)
class Knapsack(Allocation):
    """Maximise the sum of (1 - p^n - q^n) p q^2 (Knapsack RL, arXiv 2509.25849).

    Its increments p q^2 (p^n q + q^n p) fall with n, so greedy solves the knapsack exactly.
    """

    name: ClassVar[str] = "knapsack"

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        p, q, n = rates[:, None], 1 - rates[:, None], np.arange(self.maximum)
        return greedy_counts(p * q**2 * (p**n * q + q**n * p), total, low)


@dataclass(frozen=True)
class VIP(Allocation):
    """Minimise the summed variance of the prompts' gradients (VIP, arXiv 2602.01601).

    Under leave-one-out it is p q / (n - 1), convex from n = 2; under the group mean p q (n - 1) / n^2,
    convex from n = 3. The paper predicts p by a Gaussian process on embeddings; here the memory does.
    """

    name: ClassVar[str] = "vip"
    baseline: Literal["leave_one_out", "group_mean"] = "leave_one_out"
    """Which baseline's variance is minimised."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline not in ("leave_one_out", "group_mean"):
            raise unknown_name("baseline", self.baseline, ("leave_one_out", "group_mean"))
        if self.minimum < self._first:
            msg = (
                f"minimum must be at least {self._first} under 'vip' with {self.baseline}, as the variance is convex "
                f"from there; got {self.minimum}"
            )
            raise InputError(msg)

    @property
    def _first(self) -> int:
        """The number of responses from which the variance is convex."""
        return 2 if self.baseline == "leave_one_out" else 3

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        n = np.arange(self._first, self.maximum + 1, dtype=np.float64)
        variance = 1 / (n - 1) if self.baseline == "leave_one_out" else (n - 1) / n**2
        fall = -np.diff(variance)
        # The first ones are given in any case; they stand in front so that rows hold all responses.
        steps = np.concatenate([np.full(self._first, fall.max(initial=0.0)), fall])
        return greedy_counts(np.multiply.outer(rates * (1 - rates), steps), total, low)


@dataclass(frozen=True)
class Greedy(Allocation):
    """Maximise the expected number of pools that hold both classes, under each prompt's posterior.

    After n more responses without the missing class, the next one brings it with chance
    E[q^n p] (or E[p^n q]), which falls with n; a pool that holds both gains nothing more. The
    first response of all completes no pool, but counts as a sure gain: every prompt gets one
    before any gets two, which a minimum or pilot of at least 1 makes true in any case.
    """

    name: ClassVar[str] = "greedy"

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        n = np.arange(self.maximum)
        correct = state.history.pos[:, None] + state.pos[:, None]
        incorrect = state.history.neg[:, None] + state.neg[:, None]
        known = self.prior.log_evidence(correct, incorrect)
        brings_pos = np.exp(self.prior.log_evidence(correct + 1, incorrect + n) - known)
        brings_neg = np.exp(self.prior.log_evidence(correct + n, incorrect + 1) - known)
        gain = np.where(state.pos[:, None] == 0, brings_pos, 0.0) + np.where(state.neg[:, None] == 0, brings_neg, 0.0)
        # A row holds the step's responses from the first, those already spent in front.
        place = np.maximum(n - state.spent[:, None], 0)
        ahead = n < state.spent[:, None]
        return greedy_counts(
            np.where(ahead, gain.max(axis=1, keepdims=True), np.take_along_axis(gain, place, axis=1)), total, low
        )


@dataclass(frozen=True)
class Selection(BatchBudget):
    """Sample some of the candidate prompts, with ``maximum`` responses each; the others get none."""

    wanted: int = 128
    """Prompts wanted."""
    maximum: int = 4
    """Responses of a prompt that is sampled."""
    replace: float = field(default=0.0, kw_only=True)
    """Share of `maximum` that may be drawn on top, to replace responses without a score."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replace", check_number("replace", self.replace, 0, 1))
        object.__setattr__(self, "wanted", check_count("wanted", self.wanted))
        object.__setattr__(self, "maximum", check_count("maximum", self.maximum))

    def _sample(self, prompts: int, chosen: IntArray) -> IntArray:
        counts = np.zeros(prompts, dtype=np.int64)
        counts[chosen] = self.maximum
        return counts


@dataclass(frozen=True)
class Refill(Selection):
    """Sample candidates in order until ``wanted`` of them have signal (DAPO, arXiv 2503.14476).

    Each round asks for exactly as many prompts as are still missing, so no group is sampled
    and thrown away. It ends with what it has after ``rounds`` rounds or when there is no
    candidate left; the public code raises an error there.
    """

    name: ClassVar[str] = "refill"
    rounds: int = 10
    """Rounds at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounds", check_count("rounds", self.rounds))

    def counts(self, state: BatchState) -> IntArray:
        missing = self.wanted - int(np.count_nonzero((state.pos > 0) & (state.neg > 0)))
        fresh = np.nonzero((state.spent == 0) & self._admitted(state))[0]
        return self._sample(state.pos.size, fresh[: max(missing, 0) if state.round < self.rounds else 0])

    def _admitted(self, state: BatchState) -> BoolArray:
        return np.ones(state.pos.size, dtype=np.bool_)

    def shortfall(self, state: BatchState) -> str:
        found = int(np.count_nonzero((state.pos > 0) & (state.neg > 0)))
        if found >= self.wanted:
            return ""
        why = f"the cap of {self.rounds} rounds" if state.round >= self.rounds else "no admitted candidate is left"
        return f"{found} of {self.wanted} wanted groups with signal: {why}"


@dataclass(frozen=True)
class Greso(Refill):
    """Refill that skips prompts without signal in their latest visits (GRESO, arXiv 2506.02177).

    A prompt that was z times in a row all correct (all wrong) is admitted with chance
    max(easy^z, least) (max(hard^z, least)). The paper moves the two bases by 0.01 a step
    towards a share of prompts without signal; here they are parameters.
    """

    name: ClassVar[str] = "greso"
    easy: float = 0.5
    """Base for prompts that were all correct, in [0, 1]."""
    hard: float = 0.5
    """Base for prompts that were all wrong, in [0, 1]."""
    least: float = 0.01
    """Smallest chance, so that no prompt is shut out for ever."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("easy", "hard", "least"):
            object.__setattr__(self, key, check_number(key, getattr(self, key), 0, 1))

    def _admitted(self, state: BatchState) -> BoolArray:
        chance = np.minimum(self.easy**state.history.solved_streak, self.hard**state.history.failed_streak)
        return np.asarray(state.uniforms(0) < np.maximum(chance, self.least))


@dataclass(frozen=True)
class Mopps(Selection):
    """Sample the prompts whose rate, drawn from its posterior, lies closest to `target` (MoPPS, arXiv 2507.04632).

    Thompson sampling: the memory's counts under ``prior``, whose decay is the method's lambda.
    """

    name: ClassVar[str] = "mopps"
    target: float = 0.5
    """Rate that is wanted, in [0, 1]."""
    prior: Law = field(default_factory=lambda: Beta(1.0, 1.0))
    """Pass-rate law of an unseen prompt: a Beta law."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "target", check_number("target", self.target, 0, 1))
        object.__setattr__(self, "prior", law_from_dict(self.prior))
        if not isinstance(self.prior, Beta):
            msg = f"the prior of 'mopps' must be a Beta law; got {self.prior!r}"
            raise InputError(msg)

    def counts(self, state: BatchState) -> IntArray:
        from scipy.special import betaincinv

        prompts = state.pos.size
        if state.round or not isinstance(self.prior, Beta):
            return np.zeros(prompts, dtype=np.int64)
        a, b = self.prior.a + state.history.pos, self.prior.b + state.history.neg
        rates = betaincinv(a, b, state.uniforms(1))
        order = np.argsort(np.abs(rates - self.target), kind="stable")
        return self._sample(prompts, order[: self.wanted])


def budget_from_dict(data: Any) -> Budget:
    """Build a budget from the plain values of `Budget.to_dict`, or pass a budget through.

    Raises
    ------
    InputError
        For an unknown name, an unknown or missing key, or a value that the budget refuses.
    """
    if isinstance(data, Budget):
        return data
    kinds = (Rounds, Stages, Neyman, GVM, Est, Knapsack, VIP, Greedy, Refill, Greso, Mopps)
    return build("budget", {kind.name: kind for kind in kinds}, data, "{name = 'rounds', samples = 8, rounds = 4}")
