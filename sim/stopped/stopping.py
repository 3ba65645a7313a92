"""By what rule the pools of a log came to their end: stated, or read off the pools themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.fitting import fit_prior
from ada_bandit.lattice import reach
from ada_bandit.policy import Policy
from ada_bandit.rules import Balance, ExitRule, Positive, Quota
from sim.stopped.pools import Pools

__all__ = ["Stopping", "StoppingKind", "infer_stopping"]

_MOST_SAMPLES = 256
"""Largest pools for which rules are tried."""
_QUOTAS = 8
_CERTAIN = math.log(1e-4)
"""Log chance below which pools that only happen to end where a rule ends are no explanation."""
_UNEQUAL = 4.0
"""Standard errors from which on totals are said to depend on rewards."""


class StoppingKind(StrEnum):
    """What is known of the rule."""

    plain = "plain"
    """How many responses a prompt got has nothing to do with their rewards."""
    rule = "rule"
    """A rule is known."""
    unknown = "unknown"
    """Totals depend on rewards, by a rule that isn't known."""


@dataclass(frozen=True, eq=False)
class Stopping:
    """How the pools ended."""

    kind: StoppingKind
    policy: Policy | None
    """The rule, where one is known."""
    stated: bool
    """Whether the user gave it."""
    evidence: tuple[str, ...]
    """Why, a sentence each."""

    @property
    def draws(self) -> IntArray | None:
        """`[pos, neg]` Draws table of the rule."""
        return None if self.policy is None else self.policy.tables.draws

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "kind": self.kind.value,
            "rule": None if self.policy is None else self.policy.label,
            "stated": self.stated,
            "evidence": list(self.evidence),
        }


def _at_exit(draws: IntArray, pools: Pools) -> BoolArray:
    """Return whether each pool stands where the rule lets a pool end, ``[pool]``."""
    ends = (reach(draws) > 0) & (draws == 0)
    most = draws.shape[0] - 1
    inside = pools.total <= most
    at = np.minimum(pools.pos, most), np.minimum(pools.neg, most)
    return np.asarray(inside & ends[at])


def _kept_going(draws: IntArray, pools: Pools) -> BoolArray:
    """Return whether no pool's earlier responses, in their order, had met the rule, ``[pool]``."""
    if pools.right is None:
        return np.ones(pools.size, dtype=np.bool_)
    starts = np.cumsum(pools.total) - pools.total
    cumulated = np.append(0, np.cumsum(pools.right))
    fine = np.ones(pools.size, dtype=np.bool_)
    size = np.full(pools.size, int(draws[0, 0]))
    for _ in range(draws.shape[0]):
        on = size < pools.total
        if not on.any():
            break
        pos = cumulated[starts + np.minimum(size, pools.total)] - cumulated[starts]
        wanted = draws[pos * on, (size - pos) * on]
        fine &= ~on | (wanted > 0)
        size = np.where(on & (wanted > 0), size + wanted, np.where(on, pools.total, size))
    return fine


def infer_stopping(pools: Pools, stated: Policy | None = None) -> Stopping:
    """Return how the pools ended.

    Pools of one size are taken for plain. Where sizes differ, rules of the form *until so many
    correct and so many incorrect, in rounds* are tried: one is believed if every pool ended where it
    lets pools end, went on (where the order is known) while it had to, and pools of these sizes would
    hardly do so by chance.

    Parameters
    ----------
    pools
        The pools.
    stated
        The rule by which they were stopped, where it is known.

    Raises
    ------
    InputError
        If the stated rule can't have left these pools.
    """
    if stated is not None:
        return _stated(pools, stated)
    totals = np.unique(pools.total)
    if totals.size == 1:
        return Stopping(
            StoppingKind.plain, None, stated=False, evidence=(f"every pool has {totals[0]} scored responses",)
        )
    span = f"pools have {totals[0]} to {totals[-1]} scored responses"
    full = pools if pools.unscored is None else pools.take(pools.unscored == 0)
    found = _best_rule(full) if full.size >= 10 and full.total.min() < full.total.max() <= _MOST_SAMPLES else None
    if found is not None:
        policy, log_chance = found
        ended = int((full.total < full.total.max()).sum())
        order = " and went on, in their order, while it did not hold" if pools.right is not None else ""
        evidence = (
            span,
            (
                f"all {full.size} pools ended where {policy.label} ends{order}; {ended} of them before "
                f"{full.total.max()} responses. By chance pools of these sizes would do so with probability "
                f"{_power(log_chance)}"
            ),
        )
        return Stopping(StoppingKind.rule, policy, stated=False, evidence=evidence)
    z, what = _dependence(pools)
    if abs(z) >= _UNEQUAL:
        told = f"{what} ({abs(z):.1f} standard errors), and no rule of the known kinds explains all pools"
        return Stopping(StoppingKind.unknown, None, stated=False, evidence=(span, told))
    told = f"no sign that the number of responses depends on rewards ({what}, {abs(z):.1f} standard errors)"
    return Stopping(StoppingKind.plain, None, stated=False, evidence=(span, told))


def _power(log_chance: float) -> str:
    return f"below 10^{math.floor(log_chance / math.log(10)) + 1}"


def _stated(pools: Pools, policy: Policy) -> Stopping:
    draws = policy.tables.draws
    if not draws.any():
        # A budget of the whole batch: its draws are no table.
        told = f"{policy.label} shares its budget over prompts, so single pools follow no table"
        return Stopping(StoppingKind.unknown, policy, stated=True, evidence=(told,))
    full = pools if pools.unscored is None else pools.take(pools.unscored == 0)
    if not full.pos.size:
        return Stopping(StoppingKind.unknown, policy, stated=True, evidence=("every pool has unscored responses",))
    ended = _at_exit(draws, full)
    fine = ended & _kept_going(draws, full)
    wrong = int((~fine).sum())
    if wrong:
        at = int(np.argmax(~fine))
        such = f"such as {full.pos[at]} correct of {full.total[at]}"
        told = f"{wrong} of {full.size} pools can't have been left by {policy.label} ({such})"
        if wrong > 0.01 * full.size:
            msg = f"{told}. Give the rule by which they were stopped, or leave --stopped-by out to have it inferred"
            raise InputError(msg)
        return Stopping(StoppingKind.unknown, policy, stated=True, evidence=(told,))
    kind = (
        StoppingKind.plain
        if np.unique(draws[draws > 0]).size == 1 and draws.any(axis=None) and not _stops(draws)
        else StoppingKind.rule
    )
    return Stopping(kind, policy, stated=True, evidence=(f"all {full.size} pools ended where {policy.label} ends",))


def _stops(draws: IntArray) -> bool:
    """Whether a rule looks at rewards: not all paths to its end are equally long."""
    ends = (reach(draws) > 0) & (draws == 0)
    pos, neg = np.nonzero(ends)
    return np.unique(pos + neg).size > 1


def _candidates() -> Iterator[ExitRule]:
    yield Positive(1)
    for correct in range(_QUOTAS + 1):
        for incorrect in range(_QUOTAS + 1):
            if correct + incorrect and (correct, incorrect) != (1, 0):
                balanced = correct == incorrect
                yield Balance(2 * correct) if balanced else Quota(correct, incorrect)
    yield ~Quota(1, 1)


def _schedule(total: IntArray) -> Rounds | Stages:
    sizes = np.unique(total)
    first, step = int(sizes[0]), int(np.gcd.reduce(np.diff(sizes)))
    more = (int(sizes[-1]) - first) // step
    return Rounds(step, more + 1) if step == first else Stages((first, *[step] * more))


def _best_rule(pools: Pools) -> tuple[Policy, float] | None:
    """Return the rule that explains all pools and would least do so by chance, and the log of that chance."""
    budget = _schedule(pools.total)
    pos, neg = np.indices((budget.max_samples + 1,) * 2, dtype=np.int64)
    law = fit_prior(pools.pos, pools.neg, tolerance=1e-3)
    sizes, times = np.unique(pools.total, return_counts=True)
    predicted: dict[int, FloatArray] = {int(size): law.predictive(int(size)) for size in sizes}
    best: tuple[Policy, float] | None = None
    for rule in _candidates():
        draws = np.asarray(budget.draws(rule.holds(pos, neg)))
        if not (_at_exit(draws, pools).all() and _kept_going(draws, pools).all()):
            continue
        ends = (reach(draws) > 0) & (draws == 0)
        chance = 0.0
        for size, number in zip(sizes.tolist(), times.tolist(), strict=True):
            right = np.arange(size + 1)
            allowed = float(predicted[size][ends[right, size - right]].sum())
            chance += number * math.log(max(allowed, 1e-300))
        if chance < (_CERTAIN if best is None else best[1] - 1e-9):
            best = Policy(rule, budget, min(4, budget.max_samples), name=_label(rule, budget)), chance
    return best


def _label(rule: ExitRule, budget: Rounds | Stages) -> str:
    sizes = budget.sizes
    rounds = f"{sizes[0]} x {len(sizes)}" if len(set(sizes)) == 1 else f"{sizes[0]} + {sizes[1]} x {len(sizes) - 1}"
    options = ", ".join(
        f"{value}" for key, value in rule.to_dict().items() if key != "name" and not isinstance(value, dict)
    )
    return f"{rule.name}({options}), rounds {rounds}"


def _dependence(pools: Pools) -> tuple[float, str]:
    """Return by how many standard errors totals depend on rewards, and what was looked at."""
    low = pools.smallest
    if pools.right is not None:
        on = pools.total > low
        pos, total = pools.pos[on].astype(np.float64), pools.total[on].astype(np.float64)
        first = pools.first(low)[on]
        variance = (low * (pos / total) * (1 - pos / total) * (total - low) / (total - 1)).sum()
        if variance > 0:
            z = float((first - low * pos / total).sum() / math.sqrt(variance))
            return z, f"the first {low} responses of longer pools differ from their later ones"
    short = pools.total == low
    rates = pools.pos / pools.total
    if short.all() or not short.any() or short.sum() < 2 or (~short).sum() < 2:
        return 0.0, "one size"
    a, b = rates[short], rates[~short]
    error = math.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size)
    z = float((a.mean() - b.mean()) / error) if error > 0 else 0.0
    return z, "pools of the smallest size differ from larger ones in their mean"
