"""Calibration: a policy with advantages that climb the objective you choose, and how well they do.

`ada_bandit.fit_weight` has the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.advantages import AdvantageTable
from ada_bandit.exact import check_has_paths
from ada_bandit.fit_weight import OnMiss, fit_weight
from ada_bandit.laws import Law
from ada_bandit.objectives import Objective
from ada_bandit.policy import Policy, check_is_policy
from ada_bandit.score_model import check_prior

__all__ = ["Calibration", "calibrate"]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A policy with advantages that climb a chosen objective, and how well they do."""

    policy: Policy
    """The policy that was given, its advantage replaced by the two tables."""
    grid: FloatArray
    """`[point]` p, where target and weight are compared."""
    target: FloatArray
    """`[point]` f'(p)."""
    weights: FloatArray
    """`[point]` w(p) of `policy`."""
    reachable: FloatArray
    """`[point]` For "log" (1 - P(no positive kept)) / p, the weight of the truncated objective that the
    draws table can hit at every p without weighing negatives; for other objectives `weights`."""
    largest_miss: float
    """Largest |w(p) - f'(p)| on the grid."""
    second_moment: float
    """E[sum of the squared advantages of a prompt's kept responses] under the prior."""
    exact: bool
    """Whether w = f' as polynomials, at every p in [0, 1], to rounding."""


def calibrate(
    policy: Policy,
    objective: Objective,
    prior: Law,
    tolerance: float = 0.05,
    *,
    pass_rates: npt.ArrayLike | None = None,
    on_miss: OnMiss = "raise",
) -> Calibration:
    """Return the advantage tables of least second moment that make a policy climb an objective.

    "mean", "pass@k" and "truncated-log" have a polynomial f' and are hit at every p wherever
    the policy can (K >= k, and both classes kept). "log" and functions are hit within the
    tolerance on the grid. A narrower tolerance has its price: to come ten times closer to 1/p
    than the pool's size suggests takes advantages that are many times as large.

    Tables are 0 at cells where no prompt exits while every response gets a score. Time and memory
    grow as K^2 times the number of exit cells: about a second for K = 128 one at a time.

    Parameters
    ----------
    policy
        The policy, whose draws and keeps stay as they are. Its own advantage plays no part.
        Where the split of its group is random, the mean keep counts are used.
    objective
        ``"mean"``, ``"log"``, ``"pass@k"``, or f' as a vectorised function on (0, 1); also
        ``"truncated-log"``, f' = (1 - P(no positive kept)) / p, which is as much of log p as a
        bounded pool can hit without cancellation: for a fixed pool of N that is
        f = -sum over k <= N of q^k / k.
    prior
        The law of p that the second moment is averaged over.
    tolerance
        The largest |w(p) - f'(p)| that is accepted on the grid, at least 0.
    pass_rates
        The grid, inside (0, 1); 16 K + 1 Chebyshev points on [0.05, 0.95] unless given.
    on_miss
        What to do where no tables come within the tolerance: ``"raise"``, or ``"warn"`` and
        return tables whose largest miss is within a few per cent of the least one.

    Returns
    -------
    Calibration
        The policy with its new tables, and what they reach.

    Raises
    ------
    InputError
        If an argument can't be used, or the tolerance can't be met.

    Examples
    --------
    >>> from ada_bandit import Beta, Policy
    >>> from ada_bandit.calibration import calibrate
    >>> calibration = calibrate(Policy.preset("reinforce-ada-balance"), "mean", Beta(1, 1))
    >>> calibration.exact, round(calibration.second_moment, 4)
    (True, 0.5751)
    """
    sampling = check_has_paths(check_is_policy(policy)).sampling
    fitted = fit_weight(sampling, objective, check_prior(prior), tolerance, pass_rates=pass_rates, on_miss=on_miss)
    return Calibration(
        policy=policy.with_advantage(AdvantageTable(fitted.adv_pos, fitted.adv_neg)),
        grid=fitted.grid,
        target=fitted.target,
        weights=fitted.weights,
        reachable=fitted.truncated if objective == "log" else fitted.weights,
        largest_miss=fitted.largest_miss,
        second_moment=fitted.second_moment,
        exact=fitted.exact,
    )
