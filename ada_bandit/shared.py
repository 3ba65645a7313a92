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

from ada_bandit._parts import build
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.budgets import AfterPilot, BatchBudget, BatchState, Budget, Rounds, Stages
from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.laws import Beta, Law, law_from_dict
from ada_bandit.totals import greedy_counts, largest_remainder

__all__ = [
    "GVM",
    "VIP",
    "Allocation",
    "CobaRL",
    "Dynamo",
    "Est",
    "Greedy",
    "Greso",
    "Hora",
    "Knapsack",
    "Mopps",
    "Neyman",
    "Ranked",
    "Refill",
    "Selection",
    "budget_from_dict",
]


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
    objective: ClassVar[str] = "log"
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
    objective: ClassVar[str] = "log"
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
        brings_pos, brings_neg = _chances(self.prior, state, self.maximum)
        gain = np.where(state.pos[:, None] == 0, brings_pos, 0.0) + np.where(state.neg[:, None] == 0, brings_neg, 0.0)
        return _by_gain(gain, state, total, low)


@dataclass(frozen=True)
class Hora(Allocation):
    """Maximise the expected number of prompts that get one more correct response (HORA, arXiv 2605.07114).

    With a = 1 + correct and b = 1 + incorrect responses so far, the l-th further response of a
    prompt gains a/(a+b) times the product of (b+j)/(a+b+j+1) over j < l - 1: the chance E[q^(l-1) p]
    that it is the first correct one of them.
    """

    name: ClassVar[str] = "hora"

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        return _by_gain(_chances(self.prior, state, self.maximum)[0], state, total, low)


def _chances(prior: Law, state: BatchState, maximum: int) -> tuple[FloatArray, FloatArray]:
    """Return the chances E[q^n p] and E[p^n q] that after n more responses of one class the other comes.

    Both ``[prompt, n]``, under each prompt's posterior.
    """
    n = np.arange(maximum)
    correct = state.history.pos[:, None] + state.pos[:, None]
    incorrect = state.history.neg[:, None] + state.neg[:, None]
    known = prior.log_evidence(correct, incorrect)
    brings_pos = np.exp(prior.log_evidence(correct + 1, incorrect + n) - known)
    return brings_pos, np.exp(prior.log_evidence(correct + n, incorrect + 1) - known)


def _by_gain(gain: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:
    """Split the total greedily on the gains of further responses, ``[prompt, response]``."""
    # A row holds the step's responses from the first, those already spent in front.
    n = np.arange(gain.shape[1])
    place = np.maximum(n - state.spent[:, None], 0)
    ahead = n < state.spent[:, None]
    return greedy_counts(
        np.where(ahead, gain.max(axis=1, keepdims=True), np.take_along_axis(gain, place, axis=1)), total, low
    )


@dataclass(frozen=True)
class CobaRL(Allocation):
    """Maximise the sum of (1 - exp(-n p q / tau)) BetaPDF(p; alpha, kappa - alpha) (CoBA-RL, arXiv 2602.03048).

    alpha, and with it the rate that is wanted most, follows the failure rate F of the batch:
    alpha = clip(least + slope g, least, most), with g = F above 1/2 and sigmoid(10 (F - 1/2)) below.
    The paper has a moving failure rate; here it is 1 less the mean of the prompts' predicted rates.
    It gives kappa alone; with the other defaults the density peaks at p = g.
    """

    name: ClassVar[str] = "coba_rl"
    tau: float = 1.0
    """How soon more responses of one prompt stop to pay, above 0."""
    kappa: float = 11.0
    """Sum of the density's parameters: how sharp it is."""
    least: float = 1.0
    """The smallest alpha, at least 1."""
    most: float = 10.0
    """The largest alpha, at most kappa - 1."""
    slope: float = 9.0
    """By how much alpha follows the failure rate, at least 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("tau", "kappa", "least", "most", "slope"):
            object.__setattr__(self, key, check_number(key, getattr(self, key), 0))
        if not (self.tau > 0 and 1 <= self.least <= self.most <= self.kappa - 1):
            msg = (
                "tau must be above 0, and 1 <= least <= most <= kappa - 1, so that the density is finite; got "
                f"tau = {self.tau!r}, least = {self.least!r}, most = {self.most!r}, kappa = {self.kappa!r}"
            )
            raise InputError(msg)

    def alpha(self, rates: FloatArray) -> float:
        """Return alpha for a batch whose prompts have these rates."""
        failure = 1 - float(rates.mean())
        follows = failure if failure > 0.5 else 1 / (1 + np.exp(-10 * (failure - 0.5)))
        return float(np.clip(self.least + self.slope * follows, self.least, self.most))

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        alpha = self.alpha(rates)
        # The density's constant is the same for all prompts.
        value = rates ** (alpha - 1) * (1 - rates) ** (self.kappa - alpha - 1)
        pace = rates * (1 - rates) / self.tau
        gain = np.exp(np.multiply.outer(-pace, np.arange(self.maximum))) * -np.expm1(-pace)[:, None]
        return greedy_counts(gain * value[:, None], total, low)


@dataclass(frozen=True)
class Dynamo(Allocation):
    """In proportion to the spread of a prompt's responses so far, beyond the minimum (DynaMO, arXiv 2602.19208).

    With k of G responses correct over all steps, the share is k (G - k) / (G (G - 1)) + 1e-6 (1 - k/G),
    at least `least`, and `least` where k/G is at least `solved`. A prompt with fewer than `seen`
    responses so far is brought up to these first. Counts are those of the memory, whose decay should be 1.
    """

    name: ClassVar[str] = "dynamo"
    least: float = 0.01
    """The smallest share, above 0."""
    solved: float = 0.85
    """Share of correct responses from which a prompt counts as solved, in [0, 1]."""
    seen: int = 4
    """Responses over all steps that every prompt gets first, at least 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "least", check_number("least", self.least, 0))
        object.__setattr__(self, "solved", check_number("solved", self.solved, 0, 1))
        object.__setattr__(self, "seen", check_count("seen", self.seen, 0))

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        correct = state.history.pos + state.pos
        so_far = correct + state.history.neg + state.neg
        mean = correct / np.maximum(so_far, 1)
        spread = mean * (so_far - correct) / np.maximum(so_far - 1, 1) + 1e-6 * (1 - mean)
        shares = np.where(mean >= self.solved, self.least, np.maximum(spread, self.least))
        # What a prompt lacks of the first responses, beyond what it gets in any case.
        lacks = np.ceil(self.seen - (so_far - state.pos - state.neg)).astype(np.int64)
        lacks = np.clip(np.minimum(lacks, self.maximum) - low, 0, None)
        low = low + largest_remainder(lacks, min(int(lacks.sum()), total - int(low.sum())), 0, lacks)
        return low + largest_remainder(shares, total - int(low.sum()), 0, self.maximum - low)


@dataclass(frozen=True)
class Ranked(Allocation):
    """In proportion to the rank of difficulty, beyond the minimum (E3, arXiv 2505.18573).

    The hardest prompt has the highest rank; prompts of one rate share their mean rank.
    """

    name: ClassVar[str] = "ranked"

    def allocate(self, rates: FloatArray, state: BatchState, total: int, low: IntArray) -> IntArray:  # noqa: ARG002
        _, place, count = np.unique(-rates, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(count) - (count - 1) / 2)[place]
        return low + largest_remainder(ranks, total - int(low.sum()), 0, self.maximum - low)


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
    kinds = (
        *(Rounds, Stages, AfterPilot, Neyman, GVM, Est, Knapsack, VIP, Greedy, Hora, CobaRL, Dynamo, Ranked),
        *(Refill, Greso, Mopps),
    )
    return build("budget", {kind.name: kind for kind in kinds}, data, "{name = 'rounds', samples = 8, rounds = 4}")
