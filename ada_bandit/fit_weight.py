"""Advantages with a weight w(p) of one's choice: w(p) = f'(p) for any draws table, at the least second moment.

With x = sqrt(mass * keep) * advantage for every class of every exit cell, where mass is the
chance under a prior to exit there, the expected squared advantage of the update is |x|^2, and
w is linear in x. As a share of w a cell's class is a Bernstein polynomial,

    law(pos, neg; p) / p = reach * total / pos * Binomial(pos - 1; total - 1, p),

which the basis of degree K - 1 holds with coefficients in [0, 1]: the well-conditioned way to
write the K equations between x and w. An objective whose f' is such a polynomial is hit at
every p by the solution of least norm. For any other one the least norm within a tolerance on
a grid is a least-distance problem, solved as non-negative least squares (Lawson and Hanson
1974, chapter 23).
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_number, check_pass_rates, preview, unknown_name
from ada_bandit.gradient import gradient_weight
from ada_bandit.lattice import binomial_rows, diagonal, first_part_law, log_factorials
from ada_bandit.laws import Law
from ada_bandit.objectives import Objective, objective_slope
from ada_bandit.sampling import SamplingTables

__all__ = ["FittedWeight", "OnMiss", "fit_weight"]

OnMiss: TypeAlias = Literal["raise", "warn"]
"""What to do where no advantages come within the tolerance."""

_RANGE = (0.05, 0.95)
# Of singular values below this share of the largest one nothing is left but rounding.
_CUTOFF = 1e-13
# Equations count as solved when they hold to this share of the largest one.
_SOLVED = 1e-10
# A cell that a prior all but rules out would have advantages without a price, hence without a bound.
_RAREST = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedWeight:
    """Advantages that climb a chosen objective, and how well they do."""

    adv_pos: FloatArray
    """`[pos, neg]` Advantage of a kept positive; 0 where no prompt exits while every response gets a score."""
    adv_neg: FloatArray
    """`[pos, neg]` Advantage of a kept negative, likewise."""
    grid: FloatArray
    """`[point]` p, where target and weight are compared."""
    target: FloatArray
    """`[point]` f'(p)."""
    weights: FloatArray
    """`[point]` w(p)."""
    truncated: FloatArray
    """`[point]` (1 - P(no positive kept)) / p, the weight of the truncated logarithm."""
    largest_miss: float
    """Largest |w(p) - f'(p)| on the grid."""
    second_moment: float
    """E[sum of the squared advantages of a prompt's kept responses] under the prior."""
    exact: bool
    """Whether w = f' as polynomials, at every p in [0, 1], to rounding."""


def fit_weight(
    tables: SamplingTables,
    objective: Objective,
    prior: Law,
    tolerance: float = 0.05,
    *,
    pass_rates: npt.ArrayLike | None = None,
    on_miss: OnMiss = "raise",
) -> FittedWeight:
    """Return the advantages of least second moment whose weight is that of an objective.

    Parameters
    ----------
    tables
        Draws and keeps; where the split of a group is random, the mean keep counts are used.
    objective, prior, tolerance, pass_rates, on_miss
        As in `ada_bandit.calibration.calibrate`.

    Raises
    ------
    InputError
        If an argument can't be used, or the tolerance can't be met.
    """
    tolerance = check_number("tolerance", tolerance, 0)
    if on_miss not in ("raise", "warn"):
        raise unknown_name("value of on_miss", on_miss, ("raise", "warn"))
    grid = _grid(tables.max_samples, pass_rates)
    problem = _Problem(tables, prior)
    basis = list(binomial_rows(grid, problem.degree))[-1].T
    coefficients = _polynomial(objective, problem)
    truncated = basis @ problem.truncated_log()
    target = _target(objective, grid, truncated)

    x = None if coefficients is None else problem.solve(coefficients)
    exact = x is not None
    nearest = tolerance
    if x is None:
        x, nearest = problem.nearest(basis, target, tolerance)
    adv_pos, adv_neg = problem.tables(x)
    weights = gradient_weight(tables, problem.keep_pos * adv_pos, problem.keep_neg * adv_neg, grid)
    miss = float(np.max(np.abs(weights - target)))
    # An exact solution may miss a tolerance of 0 by its rounding.
    if nearest > tolerance or miss > max(tolerance, _SOLVED * float(np.max(np.abs(target)))):
        other = ". What this policy can hit at every p is 'truncated-log'" if objective == "log" else ""
        msg = (
            f"no advantages bring w within tolerance = {tolerance!r} of the objective on "
            f"[{grid.min():.4g}, {grid.max():.4g}]; the nearest ones found miss it by {miss:.3g}. "
            f"Ask for {1.01 * nearest:.3g} or more, for a narrower range of pass_rates, or for a larger budget{other}"
        )
        if on_miss == "raise":
            raise InputError(msg)
        warnings.warn(msg, stacklevel=2)
    return FittedWeight(
        adv_pos=adv_pos,
        adv_neg=adv_neg,
        grid=grid,
        target=target,
        weights=weights,
        truncated=truncated,
        largest_miss=miss,
        second_moment=problem.second_moment(adv_pos, adv_neg),
        exact=exact,
    )


def _grid(most: int, pass_rates: npt.ArrayLike | None) -> FloatArray:
    if pass_rates is None:
        # Between points that dense, a polynomial of degree K - 1 exceeds its largest value there by a factor of
        # 1 / cos(pi / 32) = 1.0048 at the most (Ehlich and Zeller 1964).
        steps = 16 * most
        low, high = _RANGE
        return np.asarray(low + (high - low) * (1 - np.cos(np.pi * np.arange(steps + 1) / steps)) / 2)
    grid = check_pass_rates(pass_rates).ravel()
    if grid.size == 0 or grid.min() <= 0 or grid.max() >= 1:
        msg = f"pass_rates must hold rates inside (0, 1), where f' is finite; got {preview(pass_rates)}"
        raise InputError(msg)
    return grid


def _target(objective: Objective, grid: FloatArray, truncated: FloatArray) -> FloatArray:
    """Return f' on the grid."""
    if isinstance(objective, str) and objective == "truncated-log":
        return truncated
    return np.asarray(objective_slope(objective, grid) / (grid * (1 - grid)))


def _polynomial(objective: Objective, problem: _Problem) -> FloatArray | None:
    """Return the Bernstein coefficients of f', ``[K]``, or None where f' isn't a polynomial of degree K - 1 at most."""
    if not isinstance(objective, str):
        return None
    if objective == "truncated-log":
        return problem.truncated_log()
    if objective == "mean":
        return np.ones(problem.degree + 1)
    match = re.fullmatch(r"pass@(\d+)", objective)
    if match and 1 <= int(match[1]) <= problem.degree + 1:
        k = int(match[1])
        return k * problem.raised(k - 1, np.zeros(1, dtype=np.int64))[:, 0]
    return None


class _Problem:
    """The linear map from scaled advantages to w, in the Bernstein basis of degree K - 1."""

    def __init__(self, tables: SamplingTables, prior: Law) -> None:
        self.degree = tables.max_samples - 1
        self.n = tables.group_size
        self.logs = log_factorials(tables.max_samples)
        self.side = tables.draws.shape
        self.keep_pos, self.keep_neg = tables.mean_keep_pos, tables.mean_keep_neg
        exits = np.where(tables.exits, tables.reach, 0.0)
        self.mass = np.zeros(self.side)
        columns: list[FloatArray] = []
        scales: list[FloatArray] = []
        # Class (0 positives, 1 negatives), pos and neg of every unknown.
        classes: list[IntArray] = []
        for total in range(1, tables.max_samples + 1):
            reach = diagonal(exits, total)
            predicted = prior.predictive(total)
            pos = np.arange(total + 1)
            self.mass[pos, total - pos] = reach * predicted
            priced = reach * np.maximum(predicted, _RAREST)
            for side, keep in enumerate((diagonal(self.keep_pos, total), diagonal(self.keep_neg, total))):
                rows = pos[(reach > 0) & (keep > 0)]
                if rows.size:
                    own = total - rows if side else rows
                    scale = np.sqrt(priced[rows] * keep[rows])
                    gain = reach[rows] * keep[rows] * total / (own * self.n)
                    columns.append(self.raised(total - 1, rows - 1 + side) * (gain / scale))
                    scales.append(scale)
                    classes.append(np.stack([np.full(rows.size, side), rows, total - rows]))
        if not columns:
            msg = (
                "the policy keeps no response at any exit, so that no advantage has an effect; use another group rule "
                "or a larger budget"
            )
            raise InputError(msg)
        self.matrix = np.concatenate(columns, axis=1)
        self.scale = np.concatenate(scales)
        self.classes = np.concatenate(classes, axis=1)
        left, sizes, right = np.linalg.svd(self.matrix, full_matrices=False)
        sound = sizes > _CUTOFF * sizes[0]
        self.left, self.sizes, self.right = left[:, sound], sizes[sound], right[sound]

    def raised(self, degree: int, index: IntArray) -> FloatArray:
        """Return Binomial(index; degree, p) in the basis of degree K - 1, ``[K, index]``."""
        more = self.degree - degree
        coefficients = np.zeros((self.degree + 1, index.size))
        weights = first_part_law(self.logs, degree, more, index)
        for new, weight in enumerate(weights):
            coefficients[index + new, np.arange(index.size)] = weight
        return coefficients

    def truncated_log(self) -> FloatArray:
        """Return the coefficients of (1 - P(no positive kept)) / p: every kept positive weighs n / keep_pos."""
        side, pos, neg = self.classes
        x = np.where(side == 0, self.scale * self.n / np.maximum(self.keep_pos[pos, neg], 1e-300), 0.0)
        return np.asarray(self.matrix @ x)

    def solve(self, coefficients: FloatArray) -> FloatArray | None:
        """Return the scaled advantages of least norm with these coefficients of w, or None where there are none."""
        x = np.zeros(self.scale.size)
        # The second pass solves for the rounding of the first.
        for _ in range(2):
            x += self.right.T @ ((self.left.T @ (coefficients - self.matrix @ x)) / self.sizes)
        residual = np.max(np.abs(self.matrix @ x - coefficients))
        return x if residual <= _SOLVED * np.max(np.abs(coefficients)) else None

    def nearest(self, basis: FloatArray, target: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
        """Return the scaled advantages of least norm within the tolerance, and the tolerance.

        Where there are none, those for a tolerance within 5 % of the least one that has any.
        """
        rows = basis @ (self.left * self.sizes)
        largest = float(np.max(np.abs(target)))
        found = _least_distance(rows, target, tolerance)
        if found is not None:
            return self.right.T @ found, tolerance
        # No advantages at all are within `largest`; below that share of it no solution is sound.
        low, high = max(tolerance, largest * 1e-9), largest * (1 + 1e-9)
        best = np.zeros(self.sizes.size)
        while high > 1.05 * low:
            middle = float(np.sqrt(low * high))
            found = _least_distance(rows, target, middle)
            if found is None:
                low = middle
            else:
                high, best = middle, found
        return self.right.T @ best, high

    def tables(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the advantage tables of a kept positive and negative, ``[pos, neg]`` each."""
        side, pos, neg = self.classes
        advantages = np.zeros((2, *self.side))
        # A negative adds -advantage / q to the weight.
        advantages[side, pos, neg] = np.where(side == 0, x, -x) / self.scale
        return advantages[0], advantages[1]

    def second_moment(self, adv_pos: FloatArray, adv_neg: FloatArray) -> float:
        """Return E[keep_pos adv_pos^2 + keep_neg adv_neg^2] under the prior."""
        return float(np.sum(self.mass * (self.keep_pos * adv_pos**2 + self.keep_neg * adv_neg**2)))


def _least_distance(rows: FloatArray, target: FloatArray, tolerance: float) -> FloatArray | None:
    """Return the z of least norm with |rows z - target| <= tolerance, or None where none is found.

    Lawson and Hanson (1974), chapter 23: with the constraints as G z >= h, the residual r of
    the non-negative least squares [G', h'] u = (0, 1) gives z = -r[:-1] / r[-1].
    """
    from scipy.optimize import nnls

    # A margin for rounding and for what lies between the points of the grid; a unit of z in which r[-1] stays near 1.
    inner, unit = tolerance * (1 - 5e-3), 100.0
    constraints = np.concatenate([rows, -rows]) * unit
    bounds = np.concatenate([target - inner, -target - inner])
    system = np.vstack([constraints.T, bounds])
    goal = np.zeros(system.shape[0])
    goal[-1] = 1.0
    try:
        u, _ = nnls(system, goal, maxiter=100 * system.shape[1])
    except RuntimeError:
        return None
    residual = system @ u - goal
    if not residual[-1] < 0:
        return None
    z = residual[:-1] / -residual[-1] * unit
    return z if np.max(np.abs(rows @ z - target)) <= tolerance else None
