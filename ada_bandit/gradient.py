"""The gradient weight w(p) of what is kept at the exits.

With s the score and the exit decision a function of rewards alone, E[s | correct] = grad p / p
and E[s | incorrect] = -grad p / q, so for every policy, exactly,

    E[update] = w(p) grad p,
    w(p) = sum over exit cells of law(pos, neg; p) (gain_pos / p - gain_neg / q) / n,

where the gains are E[keep_pos adv_pos] and E[keep_neg adv_neg] at the cell.
"""

from __future__ import annotations

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.lattice import binomial_rows, diagonal
from ada_bandit.sampling import SamplingTables

__all__ = ["gradient_weight", "weight_coefficients", "weight_share"]


def weight_coefficients(tables: SamplingTables, gain_pos: FloatArray, gain_neg: FloatArray, total: int) -> FloatArray:
    """Return c with sum_i c_i Binomial(i; total - 1, p) = the share of w(p) of the exits with `total` responses.

    Uses C(t, k) p^k q^(t-k) / p = t/k C(t-1, k-1) p^(k-1) q^(t-k), and likewise for q, so that
    nothing is divided by p or q: w is right at 0 and 1 as well.

    Parameters
    ----------
    tables
        Draws, exits and the group size n.
    gain_pos, gain_neg
        ``[pos, neg]`` kept responses of a class times their advantage.
    total
        Responses at the exits, at least 1.

    Returns
    -------
    FloatArray
        ``[total]``.
    """
    reach = diagonal(np.where(tables.exits, tables.reach, 0.0), total)
    return weight_share(reach, gain_pos, gain_neg, total, tables.group_size)


def weight_share(
    reach: FloatArray, gain_pos: FloatArray, gain_neg: FloatArray, total: int, group_size: int
) -> FloatArray:
    """Return `weight_coefficients` for exits that are reached, given their counts, with chance `reach`, ``[pos]``."""
    up, down = reach * diagonal(gain_pos, total), reach * diagonal(gain_neg, total)
    count = np.arange(1, total + 1)
    return np.asarray(total / group_size * (up[1:] / count - down[:-1] / count[::-1]))


def gradient_weight(
    tables: SamplingTables, gain_pos: FloatArray, gain_neg: FloatArray, pass_rates: FloatArray
) -> FloatArray:
    """Return w(p), ``[pass_rate]``, for gains ``[pos, neg]`` at the exits."""
    weight = np.zeros(pass_rates.size)
    for total, row in enumerate(binomial_rows(pass_rates, tables.max_samples - 1), start=1):
        if diagonal(tables.exits, total).any():
            weight += weight_coefficients(tables, gain_pos, gain_neg, total) @ row
    return weight
