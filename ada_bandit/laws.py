"""Pass-rate laws: how the pass rate p is spread over prompts. They serve as priors as well.

A law answers four questions: its moments (`mean`, `quadrature`), samples (`quantile`), what
is predicted of the next responses (`predictive`), and what is believed once some are seen
(`posterior`). All quantities of the exact analysis are polynomials in p, so a quadrature of
sufficient degree averages them over a law without error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ada_bandit._parts import build, plain
from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count, check_number, check_pass_rates

__all__ = ["Beta", "Grid", "Law", "Mixture", "law_from_dict"]


class Law(ABC):
    """A law of the pass rate p on [0, 1]."""

    name: ClassVar[str]
    """The name by which a policy file refers to the law."""

    @abstractmethod
    def quadrature(self, degree: int) -> tuple[FloatArray, FloatArray]:
        """Return pass rates and weights, each ``[node]``, exact for polynomials up to `degree`."""

    @abstractmethod
    def probability(self, low: float, high: float) -> float:
        """Return P(low <= p <= high)."""

    @abstractmethod
    def quantile(self, uniforms: FloatArray) -> FloatArray:
        """Return pass rates distributed by this law, shaped like `uniforms` in [0, 1)."""

    @abstractmethod
    def posterior(self, pos: int, neg: int) -> Law:
        """Return the law of p after `pos` correct and `neg` incorrect responses (Bayes)."""

    @abstractmethod
    def evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        """Return E[p^pos (1-p)^neg], the chance of one given sequence, shaped like the counts."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a description of plain values, read back by `law_from_dict`."""

    @property
    def mean(self) -> float:
        """E[p]."""
        return float(self.evidence(1, 0))

    def predictive(self, total: int) -> FloatArray:
        """Return P(k of `total` responses are correct) for k = 0 .. total, shape ``[total + 1]``."""
        from scipy.special import comb

        k = np.arange(check_count("total", total, 0) + 1)
        return np.asarray(comb(total, k) * self.evidence(k, total - k))

    def at_least(self, correct: int, total: int) -> Law:
        """Return the law among prompts with at least `correct` of `total` responses correct.

        The filter that training sets are built with: every k >= `correct` contributes the
        posterior at (k, total - k), weighted by how often it occurs.
        """
        total = check_count("total", total)
        correct = check_count("correct", correct, 0)
        if correct > total:
            msg = f"correct must not exceed total; got {correct} of {total}"
            raise InputError(msg)
        weights = self.predictive(total)[correct:]
        if weights.sum() <= 0:
            msg = (
                f"no prompt of this law can have {correct} of {total} responses correct; "
                f"ask for fewer (its mean pass rate is {self.mean:g})"
            )
            raise InputError(msg)
        seen = weights > 0
        laws = [self.posterior(k, total - k) for k in np.arange(correct, total + 1)[seen]]
        return Mixture(tuple(laws), tuple(weights[seen].tolist()))


@dataclass(frozen=True)
class Beta(Law):
    """The Beta(a, b) law, density proportional to p^(a-1) (1-p)^(b-1)."""

    name: ClassVar[str] = "beta"

    a: float
    """Shape a > 0: prior count of correct responses."""
    b: float
    """Shape b > 0: prior count of incorrect responses."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", check_number("a", self.a, 0, np.inf, strict=True))
        object.__setattr__(self, "b", check_number("b", self.b, 0, np.inf, strict=True))

    def quadrature(self, degree: int) -> tuple[FloatArray, FloatArray]:
        from scipy.special import roots_jacobi

        # Gauss-Jacobi with m nodes is exact up to degree 2m - 1; it lives on [-1, 1].
        nodes, weights = roots_jacobi(degree // 2 + 1, self.b - 1, self.a - 1)
        return (np.clip((1 + nodes) / 2, 0, 1), np.asarray(weights / weights.sum()))

    def probability(self, low: float, high: float) -> float:
        from scipy.special import betainc

        ends = betainc(self.a, self.b, np.clip([low, high], 0, 1))
        return max(float(ends[1] - ends[0]), 0.0)

    def quantile(self, uniforms: FloatArray) -> FloatArray:
        from scipy.special import betaincinv

        return np.asarray(betaincinv(self.a, self.b, uniforms))

    def posterior(self, pos: int, neg: int) -> Beta:
        return Beta(self.a + pos, self.b + neg)

    def evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        from scipy.special import betaln

        pos, neg = np.asarray(pos), np.asarray(neg)
        return np.asarray(np.exp(betaln(self.a + pos, self.b + neg) - betaln(self.a, self.b)))

    def to_dict(self) -> dict[str, Any]:
        return plain(self)


@dataclass(frozen=True, eq=False)
class Grid(Law):
    """A law on finitely many pass rates."""

    name: ClassVar[str] = "grid"

    pass_rates: FloatArray
    """`[atom]` The pass rates, in any order; sorted on construction."""
    weights: FloatArray | None = None
    """`[atom]` Non-negative weights; equal ones unless given, normalised to sum 1."""

    def __post_init__(self) -> None:
        rates = check_pass_rates(self.pass_rates).ravel()
        if rates.size == 0:
            msg = "a Grid needs at least one pass rate; got an empty array"
            raise InputError(msg)
        weights = np.ones_like(rates) if self.weights is None else np.array(self.weights, float).ravel()
        if weights.shape != rates.shape:
            msg = f"weights must match pass_rates, one each; got {weights.size} weights for {rates.size} pass rates"
            raise InputError(msg)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            msg = f"weights must be finite, non-negative and not all 0; got {weights!r}"
            raise InputError(msg)
        order = np.argsort(rates, kind="stable")
        for name, values in (("pass_rates", rates[order]), ("weights", weights[order] / weights.sum())):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @property
    def mass(self) -> FloatArray:
        """`[atom]` The normalised weights."""
        return np.asarray(self.weights)

    def __eq__(self, other: object) -> bool:
        """Two grids are equal when rates and weights are."""
        return (
            isinstance(other, Grid)
            and np.array_equal(self.pass_rates, other.pass_rates)
            and np.array_equal(self.mass, other.mass)
        )

    def __hash__(self) -> int:
        """Hash by value, as equality is."""
        return hash((self.pass_rates.tobytes(), self.mass.tobytes()))

    def quadrature(self, degree: int) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002 - exact at any degree
        return self.pass_rates, self.mass

    def probability(self, low: float, high: float) -> float:
        return float(self.mass[(self.pass_rates >= low) & (self.pass_rates <= high)].sum())

    def quantile(self, uniforms: FloatArray) -> FloatArray:
        index = np.searchsorted(np.cumsum(self.mass), uniforms, side="right")
        return np.asarray(self.pass_rates[np.minimum(index, self.pass_rates.size - 1)])

    def posterior(self, pos: int, neg: int) -> Grid:
        from scipy.special import xlog1py, xlogy

        with np.errstate(divide="ignore"):
            log_weights = np.log(self.mass)
        # Logs, shifted to a largest weight of 1: long pools would underflow otherwise.
        log_weights = log_weights + xlogy(pos, self.pass_rates) + xlog1py(neg, -self.pass_rates)
        if not np.isfinite(log_weights.max()):
            msg = f"this law rules out {pos} correct and {neg} incorrect responses; widen its support"
            raise InputError(msg)
        return Grid(self.pass_rates, np.exp(log_weights - log_weights.max()))

    def evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        pos, neg = np.broadcast_arrays(np.asarray(pos), np.asarray(neg))
        likelihood = self.pass_rates ** pos[..., None] * (1 - self.pass_rates) ** neg[..., None]
        return np.asarray(likelihood @ self.mass)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "pass_rates": self.pass_rates.tolist(), "weights": self.mass.tolist()}


@dataclass(frozen=True)
class Mixture(Law):
    """A mixture of laws."""

    name: ClassVar[str] = "mixture"

    laws: tuple[Law, ...]
    """The laws that are mixed."""
    weights: tuple[float, ...]
    """Non-negative weights, one a law; normalised to sum 1."""

    def __post_init__(self) -> None:
        laws, weights = tuple(law_from_dict(law) for law in self.laws), np.asarray(self.weights, dtype=np.float64)
        if not laws or len(laws) != weights.size:
            msg = f"a Mixture needs one weight a law; got {len(laws)} laws and {weights.size} weights"
            raise InputError(msg)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            msg = f"weights must be finite, non-negative and not all 0; got {weights!r}"
            raise InputError(msg)
        object.__setattr__(self, "laws", laws)
        object.__setattr__(self, "weights", tuple((weights / weights.sum()).tolist()))

    def quadrature(self, degree: int) -> tuple[FloatArray, FloatArray]:
        parts = [law.quadrature(degree) for law in self.laws]
        nodes = np.concatenate([nodes for nodes, _ in parts])
        return nodes, np.concatenate([w * mass for w, (_, mass) in zip(self.weights, parts, strict=True)])

    def probability(self, low: float, high: float) -> float:
        return sum(w * law.probability(low, high) for w, law in zip(self.weights, self.laws, strict=True))

    def quantile(self, uniforms: FloatArray) -> FloatArray:
        """Return pass rates distributed by the mixture.

        A uniform picks its component by its place among the cumulated weights and is
        stretched over [0, 1) for that component: right in law, though not monotone.
        """
        ends = np.cumsum(self.weights)
        uniforms = np.asarray(uniforms, dtype=np.float64)
        chosen = np.minimum(np.searchsorted(ends, uniforms, side="right"), len(self.laws) - 1)
        rates = np.empty(uniforms.shape)
        for index, (law, weight) in enumerate(zip(self.laws, self.weights, strict=True)):
            mine = chosen == index
            if mine.any():
                inner = (uniforms[mine] - (ends[index] - weight)) / weight
                rates[mine] = law.quantile(np.clip(inner, 0, np.nextafter(1, 0)))
        return rates

    def posterior(self, pos: int, neg: int) -> Mixture:
        weights = [w * float(law.evidence(pos, neg)) for w, law in zip(self.weights, self.laws, strict=True)]
        if sum(weights) <= 0:
            msg = f"this law rules out {pos} correct and {neg} incorrect responses; widen its support"
            raise InputError(msg)
        kept = [(law.posterior(pos, neg), w) for law, w in zip(self.laws, weights, strict=True) if w > 0]
        return Mixture(tuple(law for law, _ in kept), tuple(w for _, w in kept))

    def evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        parts = [w * law.evidence(pos, neg) for w, law in zip(self.weights, self.laws, strict=True)]
        return np.asarray(sum(parts))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "laws": [law.to_dict() for law in self.laws], "weights": list(self.weights)}


def law_from_dict(data: Any) -> Law:
    """Build a law from the plain values that `Law.to_dict` gives.

    Raises
    ------
    InputError
        For a name, key or value that no law has.
    """
    if isinstance(data, Law):
        return data
    kinds: dict[str, type[Law]] = {law.name: law for law in (Beta, Grid, Mixture)}
    return build("law", kinds, data, "{name = 'beta', a = 1.0, b = 1.0}")
