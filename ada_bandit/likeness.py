"""How alike the directions of prompts are, where that depends on their pass rates (`ScoreModel.likeness`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_number
from ada_bandit.laws import Beta

__all__ = ["NearInDifficulty", "WithinFamilies"]


@dataclass(frozen=True)
class NearInDifficulty:
    """Directions are the more alike, the closer two prompts are in difficulty.

    k(p, p') = exp(-d^2 / (2 width^2)) with d the distance of 2 arcsin(sqrt(p)), a scale from 0 to pi on
    which a rate's standard error is the same everywhere.

    Parameters
    ----------
    width
        Distance at which the likeness has fallen to 0.61, above 0.

    Raises
    ------
    InputError
        If the width isn't positive.
    """

    width: float

    def __post_init__(self) -> None:
        if check_number("width", self.width, 0) == 0:
            msg = f"width must be above 0, such as 0.5 on a scale from 0 to pi; got {self.width!r}"
            raise InputError(msg)

    def __call__(self, pass_rates: FloatArray, others: FloatArray) -> FloatArray:
        """Return k(p, p'), by NumPy's rules of broadcasting."""
        distance = 2 * (np.arcsin(np.sqrt(pass_rates)) - np.arcsin(np.sqrt(others)))
        return np.asarray(np.exp(-(distance**2) / (2 * self.width**2)))


@dataclass(frozen=True)
class WithinFamilies:
    """Directions are alike within a family of prompts and not at all across families.

    A prompt's family is not known, only its pass rate: with w_f the share of family f and g_f its
    density, the likeness of two prompts is the chance that they are of one family, relative to
    independence in p: k(p, p') = sum of w_f g_f(p) g_f(p') / (g(p) g(p')), g = sum of w_f g_f. Its
    mean over p' is 1 / g(p) times the sum of w_f g_f(p), which is 1.

    Parameters
    ----------
    laws
        The law of p in each family.
    shares
        Share of each family among prompts; they are normalised.

    Raises
    ------
    InputError
        If the two differ in length, a law isn't a Beta law with both parameters above 0, or a share is negative.
    """

    laws: tuple[Beta, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        laws, shares = tuple(self.laws), tuple(float(share) for share in self.shares)
        if not laws or len(laws) != len(shares) or not all(isinstance(law, Beta) for law in laws):
            msg = f"give one Beta law and one share a family; got {self.laws!r} and {self.shares!r}"
            raise InputError(msg)
        total = sum(check_number("share", share, 0) for share in shares)
        if total == 0:
            msg = f"shares must not all be 0; got {self.shares!r}"
            raise InputError(msg)
        object.__setattr__(self, "laws", laws)
        object.__setattr__(self, "shares", tuple(share / total for share in shares))

    def __call__(self, pass_rates: FloatArray, others: FloatArray) -> FloatArray:
        """Return k(p, p'), by NumPy's rules of broadcasting."""
        ours, theirs = (
            [share * _density(law, rates) for law, share in zip(self.laws, self.shares, strict=True)]
            for rates in (pass_rates, others)
        )
        together = sum(a * b / share for a, b, share in zip(ours, theirs, self.shares, strict=True) if share > 0)
        return np.asarray(together / (sum(ours) * sum(theirs)))


def _density(law: Beta, pass_rates: FloatArray) -> FloatArray:
    scale = math.lgamma(law.a + law.b) - math.lgamma(law.a) - math.lgamma(law.b)
    # At an end of [0, 1] the density may be infinite; just inside it the ratio has its limit.
    p = np.clip(pass_rates, 1e-300, 1 - 1e-16)
    return np.asarray(np.exp(scale + (law.a - 1) * np.log(p) + (law.b - 1) * np.log1p(-p)))
