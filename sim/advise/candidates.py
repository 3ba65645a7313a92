"""The policies worth having: published ones, and the best of three kinds under a law and a score model.

Three kinds, so that a gain can be split: the best advantages at a given number of responses, the
best number, and the best way to let a prompt's own responses decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ada_bandit.laws import Grid
from ada_bandit.optimal import Problem, Solution
from ada_bandit.policy import Policy
from sim.advise.settings import Setting
from sim.stopped.laws import LawFit

__all__ = [
    "FIXED",
    "MOST",
    "ROUNDS",
    "Best",
    "Candidate",
    "adaptivity",
    "best",
    "best_of_all",
    "best_of_fixed",
    "best_of_rounds",
    "prior_of",
    "published",
]

FIXED = (1, 2, 4, 8, 16, 32)
"""Numbers of responses among which the best one is sought."""
ROUNDS = ((2, 4), (4, 4), (8, 4))
"""Responses a round, and rounds, of adaptive policies that a trainer can run."""
MOST = 32
"""The most responses of a prompt under a computed policy."""
GROUP = 8
"""The most rows of a prompt in the update of such a policy, unless groups are larger now."""


@dataclass(frozen=True)
class Candidate:
    """A policy that is compared."""

    key: str
    """Its name in JSON."""
    label: str
    """What tables call it."""
    policy: Policy
    """The policy."""
    adaptive: bool
    """Whether the number of responses depends on their rewards."""
    spec: str = ""
    """The preset and its options as every program reads them; empty for a computed policy, which is a file."""


def published(mean: float) -> Iterator[Candidate]:
    """Give the published policies; `mean` is the law's mean pass rate, the baseline of a single response."""
    for n in (2, 4, 8, 16):
        yield _preset(f"GRPO, n = {n}", "grpo", group_size=n)
    yield _preset("one response, mean pass rate as baseline", "reinforce", group_size=1, baseline=round(mean, 3))
    yield _preset("RAFT: one response, correct ones alone", "raft", group_size=1)
    yield _preset("SPEED: 8, then 16 more where both classes came up", "speed")
    yield _preset("Reinforce-Ada-pos: rounds of 8 until one is correct", "reinforce-ada-pos")
    yield _preset("Reinforce-Ada-balance: rounds of 8 until balanced", "reinforce-ada-balance")


def _preset(label: str, name: str, **options: float) -> Candidate:
    policy = Policy.preset(name, **options)
    return Candidate(policy.label, label, policy, len(policy.budget.sizes) > 1, policy.label)


@dataclass(frozen=True)
class Best:
    """The best policies of each kind under a law and a setting."""

    setting: Setting
    """The setting."""
    same_n: Policy
    """The best advantages at the number of responses that is taken now."""
    fixed: Policy
    """The best fixed number, with its best advantages."""
    rounds: Policy
    """The best adaptive policy of rounds and groups that a trainer can run."""
    one_by_one: Policy
    """The best policy of all with `MOST` responses at the most: one at a time, all kept."""


def prior_of(fit: LawFit) -> Grid:
    """Return the fitted law on its grid."""
    some = fit.weights > 0
    return Grid(fit.rates[some], fit.weights[some])


def best_of_fixed(prior: Grid, setting: Setting, sizes: tuple[int, ...] = FIXED) -> Solution:
    """Return the best advantages at the best of some fixed numbers of responses."""
    return _best(prior, setting, ((n, n, None) for n in sizes), "best plain")


def best_of_rounds(prior: Grid, setting: Setting, rows: int = GROUP) -> Solution:
    """Return the best policy of rounds, with at most `rows` rows of a prompt in the update."""
    return _best(
        prior, setting, ((size, size * rounds, min(rows, size * rounds)) for size, rounds in ROUNDS), "best rounds"
    )


def best_of_all(prior: Grid, setting: Setting) -> Solution:
    """Return the best policy, one response at a time and all of them kept."""
    return _best(prior, setting, ((1, MOST, None),), "best one by one")


def adaptivity(prior: Grid, setting: Setting, rows: int = GROUP) -> float:
    """Return progress per response of the best rounds over that of the best fixed number; NaN where neither has any."""
    fixed = best_of_fixed(prior, setting).value
    return best_of_rounds(prior, setting, rows).value / fixed if fixed > 0 else float("nan")


def _best(prior: Grid, setting: Setting, shapes: Iterable[tuple[int, int, int | None]], name: str) -> Solution:
    """Return the best of several shapes: responses a round, the most responses, and rows in the update."""
    model = setting.model
    found = [
        Problem(prior, model, samples=samples, max_samples=most, group_size=rows).best(name)
        for samples, most, rows in shapes
    ]
    return max(found, key=lambda each: each.value)


def best(prior: Grid, setting: Setting, n: int) -> Best:
    """Return the best policies of each kind; `n` is the number of responses that is taken now."""
    rows = max(GROUP, min(n, MOST))
    return Best(
        setting,
        best_of_fixed(prior, setting, (n,)).policy,
        best_of_fixed(prior, setting).policy,
        best_of_rounds(prior, setting, rows).policy,
        best_of_all(prior, setting).policy,
    )
