"""The price of log p: how large advantages must be to come within a tolerance of the weight 1 / p.

`docs/theory.md` has the statements and the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import check_count
from ada_bandit.lattice import binomial_rows
from ada_bandit.laws import Law

__all__ = [
    "RANGE",
    "coefficient_bound",
    "dear_multiple",
    "draws_needed",
    "draws_without_price",
    "least_miss",
    "moment_bound",
    "second_moment",
]

RANGE = (0.05, 0.95)
"""Where the weight is compared, unless another range is given."""


_ANGLES = 721
_ELLIPSES = 200


def _decay(low: float, high: float) -> float:
    """Return rho: by what factor each further response brings polynomials closer to 1 / p on [low, high]."""
    return float((np.sqrt(high) + np.sqrt(low)) / (np.sqrt(high) - np.sqrt(low)))


def least_miss(most: int, low: float = RANGE[0], high: float = RANGE[1]) -> float:
    """Return the least largest |w - 1 / p| on [low, high] of any policy of at most `most` responses (Chebyshev)."""
    return (high - low) / (2 * low * high) * _decay(low, high) ** (1 - check_count("most", most))


def draws_needed(tolerance: float, low: float = RANGE[0], high: float = RANGE[1]) -> float:
    """Return K at which `least_miss` is the tolerance; with fewer responses no advantages meet it."""
    return float(1 + np.log((high - low) / (2 * low * high * tolerance)) / np.log(_decay(low, high)))


def draws_without_price(tolerance: float, low: float = RANGE[0]) -> float:
    """Return K from which on the weight (1 - q^K) / p of the truncated logarithm is within the tolerance itself."""
    return float(np.log(low * tolerance) / np.log1p(-low))


def _ellipses(low: float, high: float) -> Iterator[tuple[float, float, float]]:
    """Give ellipses with foci `low` and `high` that hold p = 0, and the largest |p| and |p| + |1 - p| on each.

    By log R / log rho - 1, with R the sum of the half axes over half the focal distance.
    """
    rho, angles = _decay(low, high), np.linspace(0, np.pi, _ANGLES)
    for beyond in np.geomspace(1e-2, 10, _ELLIPSES).tolist():
        radius = rho ** (1 + beyond)
        p = (low + high) / 2 + (high - low) / 4 * (radius * np.exp(1j * angles) + np.exp(-1j * angles) / radius)
        yield beyond, float(np.abs(p).max()), float((np.abs(p) + np.abs(1 - p)).max())


def coefficient_bound(tolerance: float, most: int, low: float = RANGE[0], high: float = RANGE[1]) -> float:
    """Return a number that the largest Bernstein coefficient of w exceeds wherever |w - 1 / p| <= tolerance."""
    small = tolerance * high
    if small >= 1:
        return 0.0
    # In logarithms, as either side overflows by itself.
    logs = [
        -beyond * np.log(small) + np.log1p(-(small**beyond)) - np.log(reach) - (most - 1) * np.log(spread)
        for beyond, reach, spread in _ellipses(low, high)
    ]
    return float(np.exp(max(logs)))


def dear_multiple(low: float = RANGE[0], high: float = RANGE[1]) -> float:
    """Return m: with fewer than m times `draws_needed` the price grows as a power of 1 / tolerance at least."""
    paid = max(beyond / np.log(spread) for beyond, _, spread in _ellipses(low, high))
    return float(np.log(_decay(low, high)) * paid)


def _weights(prior: Law, most: int) -> FloatArray:
    """Return P(J = j) pi_j (1 - pi_j) ``[j]``, for J correct among `most` - 1 responses and pi_j = E[p | J = j]."""
    rates, nodes = prior.quadrature(most + 1)
    row = list(binomial_rows(rates, most - 1))[-1]
    up, down = row @ (nodes * rates), row @ (nodes * (1 - rates))
    return np.asarray(up * down / (up + down))


def second_moment(coefficients: FloatArray, prior: Law) -> float:
    """Return the least E[sum of the squared advantages] of K kept responses with a given weight w(p).

    Parameters
    ----------
    coefficients
        ``[K]`` c, the Bernstein coefficients of w in degree K - 1.
    prior
        The law of p that the second moment is averaged over.
    """
    most = coefficients.size
    return float(most * (coefficients**2 @ _weights(prior, most)))


def moment_bound(tolerance: float, most: int, prior: Law, low: float = RANGE[0], high: float = RANGE[1]) -> float:
    """Return a number that the second moment of K kept responses exceeds wherever |w - 1 / p| <= tolerance.

    The best of K - 1 tests of w, each a sum over the d + 1 Chebyshev points of the range with alternating signs: a
    polynomial of a degree below d gives 0 there, and 1 / p does not. Infinite below `least_miss`.
    """
    if tolerance < least_miss(most, low, high):
        return float("inf")
    root, weights = np.sqrt(low * high), _weights(prior, most)
    rho, best = _decay(low, high), 0.0
    for d in range(1, most):
        seen = 2 / root * rho**-d / (1 - rho ** (-2 * d))
        if seen <= tolerance:
            break
        points = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * np.arange(d + 1) / d)
        signs = (-1.0) ** np.arange(d + 1) / d
        signs[[0, -1]] /= 2
        test = list(binomial_rows(points, most - 1))[-1] @ signs
        best = max(best, float(most * (seen - tolerance) ** 2 / (test**2 / weights).sum()))
    return best
