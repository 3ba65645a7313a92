"""Exact analysis when some responses get no score: a verifier that fails, a response that is masked.

Let every response be left without a score with chance f, whatever it says. It is spent, enters
neither class and is never kept; where the budget replaces it, another one is drawn first. The
decision at a cell looks at scored responses alone, so the chance to exit there is still a
polynomial in p: with c the number of ways, weighted by f^lost (1 - f)^(pos + neg),

    law(pos, neg; p) = c(pos, neg) p^pos q^neg.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_number, check_pass_rates
from ada_bandit.exact import check_has_paths
from ada_bandit.gradient import weight_share
from ada_bandit.lattice import binomial_rows, diagonal
from ada_bandit.policy import AnyPolicy, Policy

__all__ = ["UnscoredAnalysis", "analyze_unscored", "exits_with_losses"]

_MOST = 256


@dataclass(frozen=True, eq=False, kw_only=True)
class UnscoredAnalysis:
    """What a policy does when responses go unscored; float64 arrays shaped like `pass_rates`."""

    policy: AnyPolicy
    """The policy that was analysed."""
    pass_rates: FloatArray
    """p."""
    unscored: float
    """f, chance that a response gets no score."""
    expected_samples: FloatArray
    """Responses a prompt, those without a score and their replacements included."""
    expected_rows: FloatArray
    """Mean number of kept rows."""
    signal_probability: FloatArray
    """Chance that the group holds both classes."""
    gradient_weight: FloatArray
    """w(p), with the sum over the group divided by the group size n, however many rows were kept."""
    rows_in_loss: FloatArray
    """Mean number of rows in the denominator of a mean over rows (`ada_bandit.exact.Analysis.rows_in_loss`)."""


def analyze_unscored(policy: AnyPolicy, pass_rates: npt.ArrayLike, unscored: float) -> UnscoredAnalysis:
    """Analyse a policy exactly when every response goes unscored with a given chance.

    Parameters
    ----------
    policy
        The policy; its budget says whether lost responses are replaced.
    pass_rates
        Pass rates in [0, 1], of any shape.
    unscored
        f, in [0, 1].

    Raises
    ------
    InputError
        If an argument can't be used, or a prompt may get more than 256 responses.

    Examples
    --------
    >>> from ada_bandit import Policy
    >>> analyze_unscored(Policy.preset("grpo"), [0.5], 0.05).expected_rows.round(3)
    array([3.8])
    >>> analyze_unscored(Policy.preset("grpo", replace=1.0), [0.5], 0.05).expected_rows.round(3)
    array([4.])
    """
    check_has_paths(policy)
    rates = check_pass_rates(pass_rates)
    share = check_number("unscored", unscored, 0, 1)
    sums = sum(chance * _sums(each, rates.ravel(), share) for chance, each in policy.parts)
    samples, rows, signal, weight, in_loss = (part.reshape(rates.shape) for part in np.asarray(sums))
    return UnscoredAnalysis(
        policy=policy,
        pass_rates=rates,
        unscored=share,
        expected_samples=samples,
        expected_rows=rows,
        signal_probability=signal,
        gradient_weight=weight,
        rows_in_loss=in_loss,
    )


def _sums(policy: Policy, rates: FloatArray, unscored: float) -> FloatArray:
    """Return samples, kept rows, signal, weight and rows in the loss, ``[value, pass_rate]``."""
    tables = policy.tables
    exits, spent = exits_with_losses(policy, unscored)
    values = np.zeros((5, rates.size))
    previous: FloatArray = np.ones((1, rates.size))
    for total, pmf in enumerate(binomial_rows(rates, tables.max_samples)):
        here = diagonal(exits, total)
        if here.any():
            parts = np.stack([diagonal(each, total) for each in (tables.keep, tables.signal, tables.rows_in_loss)])
            values[0] += diagonal(spent, total) @ pmf
            values[[1, 2, 4]] += (parts * here) @ pmf
            if total:
                gains = tables.gain_pos, tables.gain_neg
                values[3] += weight_share(here, *gains, total, tables.group_size) @ previous
        previous = pmf
    return values


def exits_with_losses(policy: Policy, unscored: float) -> tuple[FloatArray, FloatArray]:
    """Return the chance to exit at a cell, given its counts, and that times the responses spent.

    Parameters
    ----------
    policy
        The policy; no blend.
    unscored
        f, in [0, 1].

    Returns
    -------
    tuple of FloatArray
        ``[pos, neg]`` each.

    Raises
    ------
    InputError
        If a prompt may get more than 256 responses.
    """
    draws, budget = policy.tables.draws, policy.budget
    most, allowed = budget.max_samples, budget.replacements
    if most + allowed > _MOST:
        msg = (
            f"missing scores are analysed for at most {_MOST} responses a prompt, replacements included; got "
            f"{most + allowed}. Simulate larger budgets with the Allocator"
        )
        raise InputError(msg)
    # Ways to a state (pos, neg, lost, replaced), by the responses asked for: every round asks for more.
    waiting: list[dict[tuple[int, int, int, int], float]] = [defaultdict(float) for _ in range(most + allowed + 1)]
    waiting[0][0, 0, 0, 0] = 1.0
    exits, spent = np.zeros((2, *draws.shape))
    for asked, states in enumerate(waiting):
        for (pos, neg, lost, replaced), ways in states.items():
            again = min(lost, allowed) - replaced
            wanted = again if again > 0 else min(int(draws[pos, neg]), most + replaced - asked)
            if wanted == 0:
                chance = ways / comb(pos + neg, pos)
                exits[pos, neg] += chance
                spent[pos, neg] += chance * asked
                continue
            for missed in range(wanted + 1):
                scored = wanted - missed
                each = ways * comb(wanted, missed) * unscored**missed * (1 - unscored) ** scored
                for right in range(scored + 1) if each else ():
                    state = (pos + right, neg + scored - right, lost + missed, replaced + max(again, 0))
                    waiting[asked + wanted][state] += each * comb(scored, right)
    return exits, spent
