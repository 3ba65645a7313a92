"""What a policy does at every pass rate, from which its efficiency on many laws follows by sums.

Everything in gradient efficiency is a mean over prompts (`ada_bandit.efficiency`), so the values at
the rates of a law's grid serve the fitted law and all laws fitted to resamples alike. With
transfer t, progress is W = (1 - t) E[u p q f'] + t E[u] E[p q f'].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.exact import check_has_paths
from ada_bandit.lattice import binomial_rows
from ada_bandit.policy import Policy
from sim.advise.settings import Setting
from sim.stopped.laws import LawFit
from sim.stopped.pools import Interval, interval

__all__ = ["Laws", "Profile", "profile_of", "ratio"]


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
    """What one prompt gets under a policy; every array is `[rate]`."""

    policy: Policy
    """The policy."""
    update: FloatArray
    """E[u]."""
    square: FloatArray
    """E[u^2]."""
    energy_pos: FloatArray
    """E[keep_pos adv_pos^2], what the noise of positives is multiplied by."""
    energy_neg: FloatArray
    """E[keep_neg adv_neg^2]."""
    samples: FloatArray
    """E[N], responses."""
    rows: FloatArray
    """Mean number of kept responses with an advantage."""
    in_loss: FloatArray
    """Mean number of rows in the loss: all kept ones, or those of groups that aren't silent."""
    signal: FloatArray
    """Chance that the group holds both classes."""
    rounds: FloatArray
    """Mean number of rounds."""

    def responses(self, laws: Laws) -> FloatArray:
        """Return responses a prompt, ``[law]``."""
        return laws.mean(self.samples)

    def tokens(self, laws: Laws, lengths: tuple[float, float]) -> FloatArray:
        """Return tokens a prompt, ``[law]``, for mean lengths of a correct and of an incorrect response.

        The number of draws is decided by what came before, so E[correct] = p E[N] (Wald).
        """
        p = laws.rates
        return laws.mean(self.samples * (p * lengths[0] + (1 - p) * lengths[1]))

    def utility(self, setting: Setting, laws: Laws, batch: FloatArray | float = 0.0) -> FloatArray:
        """Return progress a prompt, W^2 / V, ``[law]``; 0 where no update is ever made.

        `batch` is c (B - 1), the overlap of prompts' directions and the others of a step: V grows by it times E[u]^2.
        """
        slope, t = setting.slope(laws.rates), setting.transfer
        nu_pos, nu_neg = setting.model.noise
        update, pull = laws.mean(self.update), laws.mean(slope)
        progress = (1 - t) * laws.mean(self.update * slope) + t * update * pull
        noise = laws.mean(self.square + nu_pos * self.energy_pos + nu_neg * self.energy_neg) + batch * update**2
        return np.divide(progress**2, noise, out=np.zeros(noise.shape), where=noise > 0)

    def efficiency(self, setting: Setting, laws: Laws) -> FloatArray:
        """Return progress per response, rows of the update at their cost included, ``[law]``."""
        return self.utility(setting, laws) / (self.responses(laws) + setting.update_cost * laws.mean(self.rows))

    def efficiency_of_tokens(self, setting: Setting, laws: Laws, lengths: tuple[float, float]) -> FloatArray:
        """Return progress per token, ``[law]``; a row of the update costs as many responses of mean length."""
        tokens = self.tokens(laws, lengths)
        row = tokens / self.responses(laws) * setting.update_cost
        return self.utility(setting, laws) / (tokens + row * laws.mean(self.rows))


def profile_of(policy: Policy, rates: FloatArray) -> Profile:
    """Return what a policy does at pass rates, exactly.

    Raises
    ------
    InputError
        If the policy shares a budget across the batch.
    """
    tables = check_has_paths(policy).tables
    reach = np.where(tables.exits, tables.reach, 0.0)
    pos, neg = np.nonzero(reach)
    law, going_on = np.empty((pos.size, rates.size)), np.zeros(rates.size)
    asks = tables.reach * (tables.draws > 0)
    for total, row in enumerate(binomial_rows(rates, tables.max_samples)):
        here = pos + neg == total
        law[here] = row[pos[here]]
        count = np.arange(total + 1)
        going_on += asks[count, total - count] @ row
    law *= reach[pos, neg][:, None]
    update, square, energy_pos, energy_neg, rows = np.zeros((5, rates.size))
    for split in tables.splits():
        mass = law * split.chance[pos, neg][:, None]
        keep_pos, keep_neg = split.keep_pos[pos, neg], split.keep_neg[pos, neg]
        adv_pos, adv_neg = split.adv_pos[pos, neg], split.adv_neg[pos, neg]
        u = np.multiply.outer(keep_pos * adv_pos, 1 - rates) - np.multiply.outer(keep_neg * adv_neg, rates)
        update += (mass * u).sum(axis=0)
        square += (mass * u**2).sum(axis=0)
        energy_pos += (keep_pos * adv_pos**2) @ mass
        energy_neg += (keep_neg * adv_neg**2) @ mass
        rows += (keep_pos * (adv_pos != 0) + keep_neg * (adv_neg != 0)) @ mass
    return Profile(
        policy=policy,
        update=update,
        square=square,
        energy_pos=energy_pos,
        energy_neg=energy_neg,
        samples=(pos + neg).astype(np.float64) @ law,
        rows=rows,
        in_loss=tables.rows_in_loss[pos, neg] @ law,
        signal=np.asarray(tables.signal, dtype=np.float64)[pos, neg] @ law,
        rounds=going_on,
    )


def ratio(above: FloatArray, below: FloatArray, how: str = "") -> Interval:
    """Return a ratio of two quantities ``[law]``, the fit's first, with the interval that the resamples give it."""
    values = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
    return interval(float(values[0]), values[1:], how, 0.0)
