"""The pass-rate law of many prompts, fitted to their pools.

The exit decision looks at rewards alone, so the chance of a pool is paths(pos, neg) times
p^pos q^neg, and the number of paths, all that the stopping rule contributes, does not depend
on p: it cancels from every posterior and from every comparison of laws. Pools that were stopped
adaptively can therefore be counted like plain ones, in a memory and in `fit_prior`. A rule that looked
at a prompt's earlier pools cancels from the chance of all of them together, not from that of the
last one: then they are counted as one pool.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count, check_counts
from ada_bandit.laws import Grid

__all__ = ["default_grid", "fit_prior"]


def default_grid(size: int = 129) -> FloatArray:
    """Return pass rates from 0 to 1, dense at both ends: sin^2 of equally spaced angles, ``[size]``.

    On this scale (the arcsine transform) the precision of a binomial rate is the same everywhere.
    """
    return np.asarray(np.sin(np.linspace(0, np.pi / 2, size)) ** 2)


def fit_prior(
    pos: npt.ArrayLike,
    neg: npt.ArrayLike,
    *,
    grid: npt.ArrayLike | None = None,
    start: Grid | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 500,
) -> Grid:
    """Fit the pass-rate law to pools by non-parametric maximum likelihood (Kiefer and Wolfowitz 1956).

    The pools may have been stopped by any rule on their own rewards: its share in the likelihood
    does not depend on p (see the module). Expectation-maximisation on the weights of a grid,
    each step pair extrapolated (SQUAREM, Varadhan and Roland 2008) where that does not lower
    the likelihood; then constrained Newton steps (Wang 2007), if the tolerance asks for more.

    Parameters
    ----------
    pos, neg
        ``[prompt]`` correct and incorrect responses of each pool.
    grid
        Pass rates that may carry weight; `default_grid` unless given.
    start
        Law to start from, on the same grid: the last fit, where the law drifts slowly.
    tolerance
        The fit ends when no law on the grid has a mean log-likelihood a pool that is more than this higher.
        A large one leaves what the pools don't tell as it was at the start; a small one
        concentrates the law on few pass rates.
    max_iterations
        Steps of expectation-maximisation at the most.

    Returns
    -------
    Grid
        The law; atoms without weight are kept, so a fit may start from it.

    Raises
    ------
    InputError
        If there is no pool with a response, or the grid can't explain one.
    """
    pos_array = check_counts("pos", pos, np.size(pos))
    neg_array = check_counts("neg", neg, pos_array.size)
    scored = pos_array + neg_array > 0
    if not scored.any():
        msg = f"a law needs at least one pool with a scored response; got {pos_array.size} pools without"
        raise InputError(msg)
    cells, multiple = np.unique(np.stack([pos_array, neg_array])[:, scored], axis=1, return_counts=True)
    share = multiple / multiple.sum()
    rates = Grid(default_grid() if grid is None else grid)
    if start is not None and not np.array_equal(start.pass_rates, rates.pass_rates):
        msg = f"start must have the grid's {rates.pass_rates.size} pass rates; got {start.pass_rates.size} others"
        raise InputError(msg)
    logs = Grid(rates.pass_rates).log_joint(cells[0], cells[1])
    top = logs.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        at = int(np.nonzero(~np.isfinite(top))[0][0])
        msg = f"no pass rate of the grid explains {cells[0, at]:g} correct and {cells[1, at]:g} incorrect; widen it"
        raise InputError(msg)
    likelihood = np.exp(logs - top)
    # A law that starts with an empty atom could never fill it again.
    weights = rates.weights if start is None else 0.99 * start.weights + 0.01 * rates.weights

    def step(w: FloatArray) -> tuple[FloatArray, float, float]:
        """Return the next weights, the log-likelihood a pool, and a bound on what any law could add to it."""
        mixed = likelihood @ w
        slope = (share / mixed) @ likelihood
        return w * slope, float(share @ np.log(mixed)), float(slope.max() - 1)

    gap = np.inf
    for _ in range(check_count("max_iterations", max_iterations, 0) // 2):
        first, _, gap = step(weights)
        if gap <= tolerance:
            break
        second, value, _ = step(first)
        change, curve = first - weights, second - 2 * first + weights
        size = float(np.linalg.norm(curve))
        jump = max(float(np.linalg.norm(change)) / size, 1.0) if size > 0 else 1.0
        leap = np.maximum(weights + 2 * jump * change + jump**2 * curve, 0)
        leap = np.where(second > 0, np.maximum(leap, 1e-300), 0)
        leap /= leap.sum()
        weights = leap if step(leap)[1] >= value else second
    if gap > tolerance:
        weights = _newton(likelihood, share, weights, tolerance)
    return Grid(rates.pass_rates, weights / weights.sum())


def _newton(likelihood: FloatArray, share: FloatArray, weights: FloatArray, tolerance: float) -> FloatArray:
    """Return weights within `tolerance` of the largest mean log-likelihood (Wang 2007, CNM).

    Each step maximises the second-order model over the atoms in use and the peaks of the slope,
    a non-negative least-squares problem, and is shortened until the likelihood rises enough.
    """
    from scipy.optimize import nnls

    for _ in range(200):
        mixed = likelihood @ weights
        ratio = likelihood / mixed[:, None]
        slope = share @ ratio
        if slope.max() - 1 <= tolerance:
            break
        beside = np.pad(slope, 1, constant_values=-np.inf)
        used = np.nonzero((weights > 0) | ((slope >= beside[:-2]) & (slope >= beside[2:])))[0]
        # Minimise sum share (ratio w - 2)^2 over w >= 0 that sum to 1 (Dax 1990).
        root = np.asarray(np.linalg.qr(np.sqrt(share)[:, None] * (ratio[:, used] - 2), mode="r"))
        found, _ = nnls(np.vstack([root, np.ones(used.size)]), np.append(np.zeros(root.shape[0]), 1.0))
        direction = -weights
        direction[used] += found / found.sum()
        rise, value, size = float(slope @ direction), float(share @ np.log(mixed)), 1.0
        while size > 1e-12:
            new = np.maximum(weights + size * direction, 0)
            with np.errstate(divide="ignore"):
                if float(share @ np.log(likelihood @ new)) >= value + size * rise / 3:
                    weights = new
                    break
            size /= 2
        else:
            break  # nothing left but rounding
    return weights
