"""Counting paths on the (pos, neg) lattice.

Given its counts, every order of a prompt's responses is equally likely, so the chance that
sampling gets as far as a cell, *given the counts there*, does not depend on p:

    reach(pos, neg) = paths(pos, neg) / C(pos + neg, pos),
    law(pos, neg; p) = reach(pos, neg) * Binomial(pos; pos + neg, p).

One table thus serves all pass rates and all priors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray

LongArray = npt.NDArray[np.longdouble]


def log_factorials(most: int) -> LongArray:
    """Return log(k!) for k = 0 .. most in extended precision: differences of large ones stay exact to 1e-15."""
    logs = np.zeros(most + 1, dtype=np.longdouble)
    logs[1:] = np.cumsum(np.log(np.arange(1, most + 1, dtype=np.longdouble)))
    return logs


def _log_choose(logs: LongArray, n: npt.ArrayLike, k: npt.ArrayLike) -> LongArray:
    n, k = np.asarray(n), np.asarray(k)
    return np.asarray(logs[n] - logs[k] - logs[n - k])


def reach(draws: IntArray, prefix: tuple[int, int] = (0, 0)) -> FloatArray:
    """Return the chance that a round ends at a cell, given the counts there.

    Parameters
    ----------
    draws
        ``[pos, neg]`` draws table.
    prefix
        Count only the paths that begin with this many correct responses and then this many
        incorrect ones, all within the first round.

    Returns
    -------
    FloatArray
        ``[pos, neg]`` in [0, 1]; 1 at the empty cell.
    """
    most = draws.shape[0] - 1
    logs = log_factorials(most)
    chance = np.zeros(draws.shape)
    chance[0, 0] = 1.0
    correct, incorrect = prefix
    fixed = correct + incorrect
    for total in range(most):
        pos = np.arange(total + 1)
        here, wanted = chance[pos, total - pos], draws[pos, total - pos]
        for m in np.unique(wanted[(wanted > 0) & (here > 0)]).tolist():
            if total == 0:
                first = np.arange(correct, m - incorrect + 1)
                log_weight = _log_choose(logs, m - fixed, first - correct) - _log_choose(logs, m, first)
                chance[first, m - first] += np.exp(log_weight).astype(np.float64)
                continue
            rows = pos[(wanted == m) & (here > 0)]
            weight = here[rows]
            for new in range(m + 1):
                # Hypergeometric: of the total + m responses, these come first.
                log_weight = (
                    _log_choose(logs, total, rows)
                    + _log_choose(logs, m, new)
                    - _log_choose(logs, total + m, rows + new)
                )
                chance[rows + new, total - rows + m - new] += weight * np.exp(log_weight).astype(np.float64)
    return chance
