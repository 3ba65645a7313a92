"""What a policy does at every pass rate, from which its efficiency on many laws follows by sums.

Everything in gradient efficiency is a mean over prompts (`ada_bandit.efficiency`), so the values at
the rates of a law's grid serve the fitted law and all laws fitted to resamples alike. With
transfer t, progress is W = (1 - t) E[u p q f'] + t E[u] E[p q f'].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.efficiency import UpdateMoments, update_moments
from ada_bandit.exact import Analysis, analyze
from ada_bandit.policy import Policy
from sim.advise.settings import Setting
from sim.stopped.laws import LawFit
from sim.stopped.pools import Interval, interval

__all__ = ["Laws", "Profile", "over", "profile_of", "ratio"]


@dataclass(frozen=True, eq=False)
class Laws:
    """A fitted law and those fitted to resamples, on one grid of pass rates."""

    rates: FloatArray
    """`[rate]`."""
    weights: FloatArray
    """`[law, rate]` Weights, the fit's first."""

    @classmethod
    def of(cls, fit: LawFit) -> Laws:
        """Return the laws of a fit; rates that none of them has are left out."""
        weights = np.vstack([fit.weights, fit.replicates])
        return cls(fit.rates, weights)

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the mean over prompts of values ``[..., rate]``, ``[..., law]``."""
        return np.asarray(values @ self.weights.T)


@dataclass(frozen=True, eq=False)
class Profile:
    """What one prompt gets under a policy, by its pass rate."""

    policy: Policy
    """The policy."""
    rates: FloatArray
    """`[rate]` Pass rates."""
    moments: UpdateMoments
    """Its update at these."""

    @cached_property
    def analysis(self) -> Analysis:
        """Signal, rounds and rows in the loss at these, and all else that is exact."""
        return analyze(self.policy, self.rates)

    def responses(self, laws: Laws) -> FloatArray:
        """Return responses a prompt, ``[law]``."""
        return laws.mean(self.moments.samples)

    def tokens(self, laws: Laws, lengths: tuple[float, float]) -> FloatArray:
        """Return tokens a prompt, ``[law]``, for mean lengths of a correct and of an incorrect response.

        The number of draws is decided by what came before, so E[correct] = p E[N] (Wald).
        """
        p = laws.rates
        return laws.mean(self.moments.samples * (p * lengths[0] + (1 - p) * lengths[1]))

    def utility(self, setting: Setting, laws: Laws, batch: FloatArray | float = 0.0) -> FloatArray:
        """Return progress a prompt, W^2 / V, ``[law]``; 0 where no update is ever made.

        `batch` is c (B - 1), the overlap of prompts' directions and the others of a step: V grows by it times E[u]^2.
        """
        slope, t = setting.slope(laws.rates), setting.transfer
        nu_pos, nu_neg = setting.model.noise
        update, pull = laws.mean(self.moments.update), laws.mean(slope)
        progress = (1 - t) * laws.mean(self.moments.update * slope) + t * update * pull
        of, energy = self.moments, nu_pos * self.moments.energy_pos + nu_neg * self.moments.energy_neg
        noise = laws.mean(of.square + energy) + batch * update**2
        return np.divide(progress**2, noise, out=np.zeros(noise.shape), where=noise > 0)

    def efficiency(self, setting: Setting, laws: Laws) -> FloatArray:
        """Return progress per response, rows of the update at their cost included, ``[law]``."""
        return self.utility(setting, laws) / (self.responses(laws) + setting.update_cost * laws.mean(self.moments.rows))

    def efficiency_of_tokens(self, setting: Setting, laws: Laws, lengths: tuple[float, float]) -> FloatArray:
        """Return progress per token, ``[law]``; a row of the update costs as many responses of mean length."""
        tokens = self.tokens(laws, lengths)
        row = tokens / self.responses(laws) * setting.update_cost
        return self.utility(setting, laws) / (tokens + row * laws.mean(self.moments.rows))


def profile_of(policy: Policy, rates: FloatArray) -> Profile:
    """Return what a policy does at pass rates, exactly.

    Raises
    ------
    InputError
        If the policy shares a budget across the batch.
    """
    return Profile(policy, rates, update_moments(policy, rates))


def over(above: FloatArray, below: FloatArray) -> FloatArray:
    """Return the quotient; NaN where there is nothing to compare with."""
    return np.asarray(np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0))


def ratio(above: FloatArray, below: FloatArray, how: str = "") -> Interval:
    """Return a ratio of two quantities ``[law]``, the fit's first, with the interval that the resamples give it."""
    values = over(above, below)
    return interval(float(values[0]), values[1:], how, 0.0)
