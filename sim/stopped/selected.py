"""Files that hold part of what was drawn: which part is known, and what follows for the law.

Groups with signal alone: each group's chance is divided by that of signal. Rows kept of larger
pools, balanced: a group's chance is that of all pools that leave it.
"""

from __future__ import annotations

import math

import numpy as np

from ada_bandit._lattice import reach
from ada_bandit._types import BoolArray, IntArray
from ada_bandit.errors import InputError
from ada_bandit.policy import Policy
from sim.stopped.laws import LawFit, Outcomes, fit_beta
from sim.stopped.pools import Pools, Resampling

__all__ = ["fit_kept", "fit_plain_beta", "fit_with_signal", "lacks_no_signal"]

_CERTAIN = math.log(1e-4)


def lacks_no_signal(pools: Pools) -> tuple[bool, str]:
    """Return whether groups without signal were evidently left out, and why that is believed.

    Under the law that the groups with signal suggest, how likely is it that none of that many is without?
    """
    with_signal = (pools.pos > 0) & (pools.neg > 0)
    size = int(pools.total.max())
    if not with_signal.all() or (pools.total != size).any() or pools.size < 20 or size < 2:
        return False, ""
    fit = fit_with_signal(pools, Resampling(pools, 2))
    share = 1 - fit.signal(size).value
    chance = pools.size * math.log(max(1 - share, 1e-300))
    if chance > _CERTAIN:
        return False, ""
    told = (
        f"all {pools.size} groups of {size} have signal, where their law lets one expect {share:.0%} without; groups "
        "without signal were left out"
    )
    return True, told


def fit_with_signal(pools: Pools, resampling: Resampling) -> LawFit:
    """Fit a Beta law to groups of which those without signal were left out.

    Raises
    ------
    InputError
        If there is a group without signal, or groups differ in size.
    """
    sizes = np.unique(pools.total)
    if sizes.size > 1:
        msg = f"groups left over by a filter must have one size; got {sizes[0]} to {sizes[-1]}. Read one run at a time"
        raise InputError(msg)
    n = int(sizes[0])
    if ((pools.pos == 0) | (pools.neg == 0)).any():
        msg = "a file of groups with signal alone holds groups without it; it is no such file"
        raise InputError(msg)
    outcomes = Outcomes.with_signal(n)
    return _fitted(outcomes, pools.pos, resampling, f"a Beta law fitted to {pools.size} groups with signal, given that they have it")


def fit_plain_beta(pools: Pools, resampling: Resampling) -> LawFit:
    """Fit a Beta law to pools that were drawn plainly or stopped by any rule on their own rewards."""
    (pos, neg), cell = pools.cells
    return _fitted(Outcomes.of_cells(pos, neg), cell, resampling, f"a Beta law fitted to {pools.size} pools")


def _fitted(outcomes: Outcomes, outcome: IntArray, resampling: Resampling, how: str) -> LawFit:
    number = outcomes.paths.shape[0]
    counts = np.bincount(outcome, minlength=number).astype(np.float64)
    return fit_beta(outcomes, counts, resampling.cell_counts(outcome, number), how)


def fit_kept(pools: Pools, policy: Policy, resampling: Resampling, *, signal_only: bool = False) -> LawFit:
    """Fit a Beta law to groups that a policy kept of its pools.

    Parameters
    ----------
    pools
        The groups, as they stand in the file.
    policy
        What sampled, stopped and kept them.
    resampling
        Gives the resamples.
    signal_only
        Whether groups of one class were dropped afterwards.

    Raises
    ------
    InputError
        If the policy keeps groups at random, shares a budget, or can't have kept these groups.
    """
    from scipy.special import comb

    if policy.group.random_split:
        msg = f"{policy.label} keeps a random subset of its pool, and its rows can't be traced back; use a log of whole pools"
        raise InputError(msg)
    size = policy.budget.max_samples
    pos, neg = np.indices((size + 1, size + 1), dtype=np.int64)
    draws = np.asarray(policy.budget.draws(policy.rule.holds(pos, neg)))
    if not draws.any():
        msg = f"{policy.label} shares its budget over prompts, so no table says how its pools end; use a log of whole pools"
        raise InputError(msg)
    chance = reach(draws)
    ends = (chance > 0) & (draws == 0)
    end_pos, end_neg = np.nonzero(ends)
    # Of all orders of a cell's responses, the share that the rule lets through.
    paths = chance[ends] * comb(end_pos + end_neg, end_pos)
    keep_pos, keep_neg = policy.group.split(end_pos, end_neg, policy.n)
    code = keep_pos * (size + 1) + keep_neg
    every, outcome = np.unique(code, return_inverse=True)
    table = np.zeros((every.size, end_pos.size))
    table[outcome, np.arange(end_pos.size)] = paths
    mixed = ((every // (size + 1)) > 0) & ((every % (size + 1)) > 0)
    seen: BoolArray | None = mixed if signal_only else None
    place = np.searchsorted(every, pools.pos * (size + 1) + pools.neg)
    there = place < every.size
    there[there] &= every[place[there]] == (pools.pos * (size + 1) + pools.neg)[there]
    if signal_only:
        there[there] &= mixed[place[there]]
    if not there.all():
        at = int(np.argmax(~there))
        msg = (
            f"{policy.label} can't keep a group of {pools.pos[at]} correct and {pools.neg[at]} incorrect responses "
            f"({int((~there).sum())} of {pools.size} groups are like that); give the policy that made the file"
        )
        raise InputError(msg)
    outcomes = Outcomes(end_pos, end_neg, table, seen)
    how = f"a Beta law fitted to {pools.size} groups that {policy.label} kept of its pools"
    return _fitted(outcomes, place, resampling, how)
