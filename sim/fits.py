"""Laws fitted to data: a Beta prior to counts, and a grid to a published curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_number, check_pass_rates
from ada_bandit.laws import Beta, Grid, Law, Mixture

__all__ = ["BetaFit", "fit_beta", "fit_curve"]

# Outside of this span of a + b the likelihood is that of its limit to within rounding.
_LEAST_CONCENTRATION, _MOST_CONCENTRATION = 1e-6, 1e6


@dataclass(frozen=True, eq=False)
class BetaFit:
    """A Beta prior fitted to counts, by its mean and concentration, limits included."""

    mean: float
    """a / (a + b)."""
    concentration: float
    """a + b; 0 where all mass sits at p = 0 and 1, infinite where every prompt has the same p."""

    def posterior(self, correct: npt.ArrayLike, total: npt.ArrayLike) -> Law:
        """Return the law of p over prompts given their counts: the mixture of their posteriors, equally weighted.

        A mean over prompts of any function of p is read off it without bias, which posterior means don't give: what
        they leave out is the spread of p about each of them.

        Parameters
        ----------
        correct, total
            ``[prompt]`` counts.
        """
        pairs, prompts = np.unique(np.column_stack([correct, total]).astype(np.int64), axis=0, return_counts=True)
        if math.isinf(self.concentration) or self.mean in {0.0, 1.0}:
            return Grid([self.mean])
        if self.concentration == 0:
            rates, weights = np.unique(pairs[:, 0] > 0, return_inverse=True)
            return Grid(rates.astype(np.float64), np.bincount(weights, weights=prompts))
        a, b = self.mean * self.concentration, (1 - self.mean) * self.concentration
        laws = tuple(Beta(a + k, b + n - k) for k, n in pairs.tolist())
        return Mixture(laws, tuple(prompts.astype(np.float64).tolist()))

    def __str__(self) -> str:
        """Name the prior in words."""
        if self.mean in {0.0, 1.0} or math.isinf(self.concentration):
            return f"a single pass rate p = {self.mean:.4g}"
        if self.concentration == 0:
            return f"p = 1 for a share of {self.mean:.4g} and p = 0 for the rest"
        return f"Beta({self.mean * self.concentration:.4g}, {(1 - self.mean) * self.concentration:.4g})"


def fit_beta(correct: npt.ArrayLike, total: npt.ArrayLike) -> BetaFit:
    """Fit a Beta prior to counts by maximum likelihood (beta-binomial).

    Parameters
    ----------
    correct, total
        ``[prompt]`` counts, with correct <= total and total at least 1.

    Returns
    -------
    BetaFit
        The prior. Where the likelihood has no maximum inside, its limit: one pass rate for
        all (rates spread no wider than chance allows), or mass at 0 and 1 alone.

    Raises
    ------
    InputError
        If there is no prompt.
    """
    from scipy.optimize import minimize
    from scipy.special import betaln, digamma, expit, logit

    pairs, prompts = np.unique(np.column_stack([correct, total]).astype(np.float64), axis=0, return_counts=True)
    if pairs.size == 0:
        msg = "a prior is fitted to at least one prompt; got none"
        raise InputError(msg)
    k, n = pairs.T
    pooled = float((prompts * k).sum() / (prompts * n).sum())
    if pooled in {0.0, 1.0} or n.max() == 1:
        return BetaFit(pooled, math.inf)
    if np.all((k == 0) | (k == n)):
        return BetaFit(float((prompts * (k > 0)).sum() / prompts.sum()), 0.0)

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean negative log likelihood over prompts and its slope in (logit mean, log concentration)."""
        mean, concentration = expit(point[0]), np.exp(point[1])
        a, b = mean * concentration, (1 - mean) * concentration
        both = digamma(a + b) - digamma(a + b + n)
        by_a = digamma(a + k) - digamma(a) + both
        by_b = digamma(b + n - k) - digamma(b) + both
        slope = np.stack([a * (1 - mean) * (by_a - by_b), a * by_a + b * by_b])
        value = betaln(a + k, b + n - k) - betaln(a, b)
        return -float(value @ prompts) / prompts.sum(), -(slope @ prompts) / prompts.sum()

    span = (math.log(_LEAST_CONCENTRATION), math.log(_MOST_CONCENTRATION))
    # The likelihood is flat far out, so the walk starts from the best of a few concentrations.
    start = min((np.array([logit(pooled), value]) for value in np.linspace(*span, 25)), key=lambda x: loss(x)[0])
    options = {"ftol": 1e-15, "gtol": 1e-10}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-40, 40), span], options=options)
    mean, concentration = float(expit(best.x[0])), float(np.exp(best.x[1]))
    one_rate = -float((k * np.log(pooled) + (n - k) * np.log1p(-pooled)) @ prompts) / prompts.sum()
    if concentration > 0.99 * _MOST_CONCENTRATION or best.fun >= one_rate - 1e-9:
        return BetaFit(pooled, math.inf)
    return BetaFit(mean, concentration)


def fit_curve(k: Sequence[int], pass_at_k: Sequence[float], all_correct_at_k: Sequence[float]) -> tuple[Grid, float]:
    """Fit a pass-rate law to pass@k = E[1 - q^k] and all-correct@k = E[p^k].

    Non-negative least squares over weights on a grid of p that is even in logit(p) and holds
    0 and 1. Many laws fit a few moments equally well, and least squares alone picks one with
    a handful of atoms; a slight penalty on second differences of the weights picks a smooth
    one.

    Parameters
    ----------
    k
        ``[point]`` numbers of responses, at least 1.
    pass_at_k, all_correct_at_k
        ``[point]`` shares of prompts in [0, 1].

    Returns
    -------
    law : Grid
        The law.
    residual : float
        The largest absolute difference between a given share and the law's.

    Raises
    ------
    InputError
        If the sequences are empty or differ in length, a k is below 1, or a share is outside [0, 1].
    """
    from scipy.optimize import nnls

    draws = np.asarray(k, dtype=np.float64)
    shares = check_pass_rates([*pass_at_k, *all_correct_at_k], "pass_at_k and all_correct_at_k")
    if draws.size == 0 or shares.size != 2 * draws.size:
        msg = (
            "a curve needs one pass@k and one all-correct@k for every k; got "
            f"{draws.size} k, {len(pass_at_k)} pass@k and {len(all_correct_at_k)} all-correct@k"
        )
        raise InputError(msg)
    for value in draws:
        check_number("k", value, 1)
    inner = 1 / (1 + np.exp(-np.linspace(math.log(1e-4), -math.log(1e-4), 200)))
    p = np.concatenate([[0.0], inner, [1.0]])
    moments = np.vstack([1 - (1 - p) ** draws[:, None], p ** draws[:, None]])
    total_mass = 1e3  # against residuals of about 1e-3: the mass is 1 to about 1e-6 before it is normalised
    smoothness = 0.1 * np.pad(np.diff(np.eye(inner.size), 2, axis=0), ((0, 0), (1, 1)))
    rows = np.vstack([moments, np.full((1, p.size), total_mass), smoothness])
    aims = np.concatenate([shares, [total_mass], np.zeros(len(smoothness))])
    weights = nnls(rows, aims, maxiter=50 * p.size)[0]
    law = Grid(p[weights > 0], weights[weights > 0])
    residual = float(np.abs(moments[:, weights > 0] @ law.weights - shares).max())
    return law, residual
