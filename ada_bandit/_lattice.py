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


def first_part_law(logs: LongArray, total: int, more: int, pos: IntArray) -> FloatArray:
    """Return the chance that, of `total` + `more` responses with pos + j correct, the first `total` hold pos.

    The hypergeometric weight C(total, pos) C(more, j) / C(total + more, pos + j), by which a cell
    counts towards the cells that `more` further responses lead to.

    Parameters
    ----------
    logs
        `log_factorials` up to at least `total` + `more`.
    total, more
        Responses before, and in the round.
    pos
        ``[row]`` correct responses before.

    Returns
    -------
    FloatArray
        ``[j, row]`` for j = 0 .. `more`.
    """
    new = np.arange(more + 1)[:, None]
    logarithm = _log_choose(logs, total, pos) + _log_choose(logs, more, new)
    return np.asarray(np.exp(logarithm - _log_choose(logs, total + more, pos + new)), dtype=np.float64)


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
    first = int(draws[0, 0])
    seen = np.arange(correct, first - incorrect + 1)
    log_share = _log_choose(logs, first - fixed, seen - correct) - _log_choose(logs, first, seen)
    chance[seen, first - seen] = np.exp(log_share).astype(np.float64)
    for total in range(1, most):
        pos = np.arange(total + 1)
        here, wanted = chance[pos, total - pos], draws[pos, total - pos]
        for m in np.unique(wanted[(wanted > 0) & (here > 0)]).tolist():
            rows = pos[(wanted == m) & (here > 0)]
            for new, weight in enumerate(first_part_law(logs, total, m, rows)):
                chance[rows + new, total - rows + m - new] += here[rows] * weight
    return chance
