"""The law of pass rates with what is uncertain about it: a fit, and the same fit to resamples.

Pools that were stopped by a rule on their own rewards are counted like plain ones: their stopping
rule's share in the likelihood doesn't depend on p. What does depend on it is which pools a file
holds at all; then the likelihood is that of the outcomes that can be seen (`Outcomes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError
from ada_bandit.fitting import default_grid, fit_prior
from ada_bandit.laws import Beta, Grid, Law
from sim.stopped.pools import Interval, Pools, Resampling, interval

__all__ = ["LawFit", "Outcomes", "fit_beta", "fit_grid", "no_signal", "signal"]

_LOGIT = np.linspace(-9, 9, 121)
_LOG_SIZE = np.linspace(np.log(0.02), np.log(600.0), 93)
_ITERATIONS = 24


def no_signal(rates: npt.ArrayLike, n: int) -> FloatArray:
    """Return the chance that n plain responses are of one class, shaped like the rates."""
    p = np.asarray(rates, dtype=np.float64)
    return np.asarray(p**n + (1 - p) ** n)


def signal(rates: npt.ArrayLike, n: int) -> FloatArray:
    """Return the chance that n plain responses hold both classes, shaped like the rates."""
    return 1 - no_signal(rates, n)


@dataclass(frozen=True, eq=False)
class LawFit:
    """A law of pass rates, fitted to pools and to resamples of them.

    Whatever is a mean over prompts of a function of p is read off it, with its interval, by `mean_of`:
    the mixture of all posteriors is the law itself, so nothing is read off posterior means.
    """

    law: Law
    """The fit."""
    rates: FloatArray
    """`[rate]` Pass rates on which the weights stand."""
    weights: FloatArray
    """`[rate]` The fit's weights there."""
    replicates: FloatArray
    """`[replicate, rate]` Those of the fits to resamples."""
    how: str
    """What it was fitted to, in words."""

    def mean_of(self, values: npt.ArrayLike | Callable[[FloatArray], npt.ArrayLike], how: str = "") -> Interval:
        """Return the mean over prompts of a function of the pass rate.

        Parameters
        ----------
        values
            ``[rate]`` its values at `rates`, or the function.
        how
            Said of the estimate; what the law was fitted to, unless given.
        """
        found = np.asarray(values(self.rates) if callable(values) else values, dtype=np.float64)
        ends = float(found.min()), float(found.max())
        return interval(float(self.weights @ found), self.replicates @ found, how or self.how, *ends)

    def signal(self, n: int) -> Interval:
        """Return the share of prompts of which n plain responses hold both classes."""
        return self.mean_of(signal(self.rates, n))

    @property
    def mean(self) -> Interval:
        """The mean pass rate."""
        return self.mean_of(self.rates)

    def posterior_signal(self, pos: npt.ArrayLike, neg: npt.ArrayLike, n: int) -> FloatArray:
        """Return the chance that n new responses of a prompt hold both classes, given its pool, shaped like the counts.

        The mean of 1 - p^n - q^n over the posterior of p, not its value at the posterior mean.
        """
        pos, neg = np.asarray(pos), np.asarray(neg)
        seen = self.law.log_evidence(pos, neg)
        all_right = np.exp(self.law.log_evidence(pos + n, neg) - seen)
        all_wrong = np.exp(self.law.log_evidence(pos, neg + n) - seen)
        return np.asarray(np.clip(1 - all_right - all_wrong, 0, 1))

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {"how": self.how, "mean": self.mean.to_dict(), **self.law.to_dict()}


def fit_grid(pools: Pools, resampling: Resampling | None = None, size: int = 129) -> LawFit:
    """Fit the law by non-parametric maximum likelihood, and again to each resample.

    Resamples start from the fit to all pools, smoothed, and take extrapolated steps of
    expectation-maximisation, all of them at once.

    Parameters
    ----------
    pools
        Pools that were drawn plainly, or stopped by any rule on their own rewards.
    resampling
        Gives the resamples; 400 of them unless given.
    size
        Pass rates of the grid.
    """
    resampling = Resampling(pools) if resampling is None else resampling
    (pos, neg), cell = pools.cells
    rates = default_grid(size)
    fitted = fit_prior(pools.pos, pools.neg, grid=rates, tolerance=1e-5)
    logs = Grid(rates).log_joint(pos, neg)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    counts = resampling.cell_counts(cell, pos.size)
    share = counts / counts.sum(axis=1, keepdims=True)
    start = 0.95 * fitted.weights + 0.05 / rates.size
    replicates = _maximised(likelihood, share, np.tile(start, (share.shape[0], 1)))
    how = f"a law fitted to {pools.size} pools, as the mixture of their posteriors"
    return LawFit(fitted, rates, fitted.weights, replicates, how)


def _maximised(likelihood: FloatArray, share: FloatArray, weights: FloatArray) -> FloatArray:
    """Raise the likelihood of all resamples at once, by SQUAREM steps (Varadhan and Roland 2008)."""

    def step(w: FloatArray) -> FloatArray:
        mixed = w @ likelihood.T
        return np.asarray(w * ((share / np.maximum(mixed, 1e-300)) @ likelihood))

    def value(w: FloatArray) -> FloatArray:
        return np.asarray((share * np.log(np.maximum(w @ likelihood.T, 1e-300))).sum(axis=1))

    for _ in range(_ITERATIONS):
        first = step(weights)
        second = step(first)
        change, curve = first - weights, second - 2 * first + weights
        size = np.linalg.norm(curve, axis=1)
        jump = np.clip(np.linalg.norm(change, axis=1) / np.maximum(size, 1e-300), 1.0, 1e6)[:, None]
        leap = np.maximum(weights + 2 * jump * change + jump**2 * curve, 1e-300)
        leap = step(leap / leap.sum(axis=1, keepdims=True))
        better = value(leap) >= value(second)
        weights = np.where(better[:, None], leap, second)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What of a pool can be seen, as sums over the cells at which it can end.

    Chance of outcome y: sum over cells of `paths` [y, cell] p^pos q^neg; a pool is seen if its outcome is.
    """

    pos: IntArray
    """`[cell]` Correct responses."""
    neg: IntArray
    """`[cell]` Incorrect responses."""
    paths: FloatArray
    """`[outcome, cell]` Paths to a cell that show as an outcome."""
    seen: BoolArray | None = None
    """`[outcome]` Whether such pools stand in the file; None where all of them do."""

    @classmethod
    def of_cells(cls, pos: IntArray, neg: IntArray) -> Outcomes:
        """Return the outcomes of pools that are all seen as they are: paths don't matter."""
        return cls(pos, neg, np.eye(pos.size))

    @classmethod
    def with_signal(cls, n: int) -> Outcomes:
        """Return the outcomes of n plain responses of which groups of one class are left out."""
        from scipy.special import comb

        pos = np.arange(n + 1)
        inside = (pos > 0) & (pos < n)
        return cls(pos, n - pos, np.diag(comb(n, pos)), inside)

    def log_chance(self, log_evidence: FloatArray) -> FloatArray:
        """Return the log chance of each outcome given that it is seen, ``[..., outcome]``.

        Parameters
        ----------
        log_evidence
            ``[..., cell]`` log E[p^pos q^neg] under a law.
        """
        if self.paths.shape[0] == self.paths.shape[1] and self.seen is None and (np.diag(self.paths) == 1).all():
            return log_evidence
        top = log_evidence.max(axis=-1, keepdims=True)
        chance = np.exp(log_evidence - top) @ self.paths.T
        with np.errstate(divide="ignore"):
            logs = np.log(chance) + top
            if self.seen is not None:
                logs = logs - np.log(chance[..., self.seen].sum(axis=-1, keepdims=True)) - top
        return np.asarray(logs)


def fit_beta(outcomes: Outcomes, counts: FloatArray, replicates: FloatArray, how: str) -> LawFit:
    """Fit a Beta law by maximum likelihood to outcomes, and again to each resample.

    The likelihood is computed once on a lattice of means and sizes a + b; each fit is its largest
    point, moved to the top of the parabola through it and its neighbours.

    Parameters
    ----------
    outcomes
        What of a pool is seen.
    counts
        ``[outcome]`` pools of each.
    replicates
        ``[replicate, outcome]`` those of resamples.
    how
        What it is fitted to, in words.

    Raises
    ------
    InputError
        If no pool is seen, or all show one outcome that any law explains.
    """
    from scipy.special import betaln

    if counts.sum() <= 0:
        msg = "there are no groups that a law could be fitted to"
        raise InputError(msg)
    logit, log_size = np.meshgrid(_LOGIT, _LOG_SIZE, indexing="ij")
    mean, size = 1 / (1 + np.exp(-logit)), np.exp(log_size)
    a, b = mean * size, (1 - mean) * size
    used = np.nonzero((counts > 0) | (replicates > 0).any(axis=0))[0]
    surface = np.empty((used.size, a.size))
    flat_a, flat_b = a.ravel(), b.ravel()
    log_base = betaln(flat_a, flat_b)
    for start in range(0, a.size, 2000):
        part = slice(start, start + 2000)
        evidence = betaln(flat_a[part, None] + outcomes.pos, flat_b[part, None] + outcomes.neg) - log_base[part, None]
        surface[:, part] = outcomes.log_chance(evidence)[:, used].T
    surface = np.maximum(surface, -1e6)
    every = np.vstack([counts[used], replicates[:, used]])
    tops = _tops((every @ surface).reshape(every.shape[0], *a.shape))
    found_mean, found_size = 1 / (1 + np.exp(-tops[:, 0])), np.exp(tops[:, 1])
    shapes = np.stack([found_mean * found_size, (1 - found_mean) * found_size], axis=1)
    rates = default_grid(257)
    weights = hat_weights(shapes, rates)
    law = Beta(float(shapes[0, 0]), float(shapes[0, 1]))
    return LawFit(law, rates, weights[0], weights[1:], how)


def _tops(values: FloatArray) -> FloatArray:
    """Return where each surface is highest, ``[surface, 2]``, in logit of the mean and log of the size."""
    count = values.shape[0]
    row, column = np.unravel_index(values.reshape(count, -1).argmax(axis=1), values.shape[1:])
    found = np.stack([_LOGIT[row], _LOG_SIZE[column]], axis=1)
    inside = (row > 0) & (row < _LOGIT.size - 1) & (column > 0) & (column < _LOG_SIZE.size - 1)
    at = np.nonzero(inside)[0]
    if not at.size:
        return found
    i, j = row[at], column[at]
    v = {(x, y): values[at, i + x, j + y] for x in (-1, 0, 1) for y in (-1, 0, 1)}
    gradient = np.stack([(v[1, 0] - v[-1, 0]) / 2, (v[0, 1] - v[0, -1]) / 2], axis=1)
    xx, yy = v[1, 0] - 2 * v[0, 0] + v[-1, 0], v[0, 1] - 2 * v[0, 0] + v[0, -1]
    xy = (v[1, 1] - v[1, -1] - v[-1, 1] + v[-1, -1]) / 4
    det = xx * yy - xy**2
    fine = (det > 1e-12) & (xx < 0)
    safe = np.where(fine, det, 1.0)
    dx = np.where(fine, -(yy * gradient[:, 0] - xy * gradient[:, 1]) / safe, 0.0)
    dy = np.where(fine, -(xx * gradient[:, 1] - xy * gradient[:, 0]) / safe, 0.0)
    found[at, 0] += np.clip(dx, -1, 1) * (_LOGIT[1] - _LOGIT[0])
    found[at, 1] += np.clip(dy, -1, 1) * (_LOG_SIZE[1] - _LOG_SIZE[0])
    return found


def hat_weights(shapes: FloatArray, rates: FloatArray) -> FloatArray:
    """Return Beta laws as weights on pass rates, ``[law, rate]``, with their masses and means as they are.

    The mass between two rates is split between them so that its mean stays; a function's mean is
    then that of its interpolation.
    """
    from scipy.special import betainc

    a, b = shapes[:, :1], shapes[:, 1:]
    mass = np.diff(betainc(a, b, rates), axis=1)
    moment = np.diff(betainc(a + 1, b, rates), axis=1) * (a / (a + b))
    gap = np.diff(rates)
    upper = np.clip((moment - mass * rates[:-1]) / gap, 0, mass)
    weights = np.zeros((shapes.shape[0], rates.size))
    weights[:, 1:] += upper
    weights[:, :-1] += mass - upper
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
