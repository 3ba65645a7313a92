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
    def log_evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        """Return log E[p^pos (1-p)^neg], shaped like the counts; -inf where they are impossible.

        The chance of one given sequence; its logarithm, as that of a long pool underflows.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a description of plain values, read back by `law_from_dict`."""

    @property
    def mean(self) -> float:
        """E[p]."""
        return float(self.evidence(1, 0))

    def evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        """Return E[p^pos (1-p)^neg], the chance of one given sequence, shaped like the counts."""
        return np.asarray(np.exp(self.log_evidence(pos, neg)))

    def predictive(self, total: int) -> FloatArray:
        """Return P(k of `total` responses are correct) for k = 0 .. total, shape ``[total + 1]``."""
        from scipy.special import betaln

        k = np.arange(check_count("total", total, 0) + 1)
        log_choose = -betaln(k + 1, total - k + 1) - np.log(total + 1)
        return np.asarray(np.exp(log_choose + self.log_evidence(k, total - k)))

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
        return self._filtered(correct, weights)

    def _filtered(self, correct: int, weights: FloatArray) -> Law:
        """Return the mixture of the posteriors at (k, total - k), k from `correct` on, with these weights."""
        total = correct + weights.size - 1
        seen = (np.nonzero(weights)[0] + correct).tolist()
        return Mixture(tuple(self.posterior(k, total - k) for k in seen), tuple(weights[weights > 0].tolist()))


def _normalised(weights: npt.ArrayLike) -> FloatArray:
    """Return the weights divided by their sum; as they are where that is 1 to rounding.

    Dividing again would change a policy file a little each time it is read and written.
    """
    try:
        values = np.array(weights, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        msg = f"weights must be numbers, one for each part; got {weights!r}"
        raise InputError(msg) from error
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        msg = f"weights must be finite, non-negative and not all 0; got {weights!r}"
        raise InputError(msg)
    total = values.sum()
    return values if abs(total - 1) <= np.finfo(np.float64).eps * values.size else np.asarray(values / total)


def _log_sum(logs: FloatArray) -> FloatArray:
    """Return the log of the sum of exp(logs) over the last axis; -inf for a sum of 0."""
    top = np.max(logs, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - top).sum(axis=-1)) + top[..., 0])


def _ruled_out(pos: int, neg: int) -> InputError:
    return InputError(f"this law rules out {pos} correct and {neg} incorrect responses; widen its support")


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
        from scipy.linalg import eigh_tridiagonal

        # Gauss-Jacobi: m nodes are exact up to degree 2m - 1. They are the eigenvalues of the
        # recurrence's matrix (Golub and Welsch 1969), which exists for any a and b;
        # scipy.special.roots_jacobi overflows for large ones.
        a, b, total = self.a, self.b, self.a + self.b
        k = np.arange(1, degree // 2 + 1)
        size = 2 * k + total - 2
        centre = (1 + (a - b) * (total - 2) / (size * (size + 2))) / 2
        spread = k * (k + a - 1) * (k + b - 1) * (k + total - 2)
        # At k = 1 the factor total - 1 stands above and below, and may be 0.
        spread[:1], size[:1] = a * b, total
        below = size**2 * (size + 1) * np.where(k > 1, size - 1, 1)
        nodes, vectors = eigh_tridiagonal(np.append(a / total, centre), np.sqrt(spread / below))
        return np.clip(nodes, 0, 1), np.asarray(vectors[0] ** 2)

    def probability(self, low: float, high: float) -> float:
        from scipy.special import betainc

        ends = betainc(self.a, self.b, np.clip([low, high], 0, 1))
        return max(float(ends[1] - ends[0]), 0.0)

    def quantile(self, uniforms: FloatArray) -> FloatArray:
        from scipy.special import betaincinv

        return np.asarray(betaincinv(self.a, self.b, uniforms))

    def posterior(self, pos: int, neg: int) -> Beta:
        return Beta(self.a + pos, self.b + neg)

    def log_evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        from scipy.special import betaln

        pos, neg = np.asarray(pos), np.asarray(neg)
        return np.asarray(betaln(self.a + pos, self.b + neg) - betaln(self.a, self.b))

    def to_dict(self) -> dict[str, Any]:
        return plain(self)


@dataclass(frozen=True, eq=False, init=False)
class Grid(Law):
    """A law on finitely many pass rates."""

    name: ClassVar[str] = "grid"
    pass_rates: FloatArray
    """`[atom]` The pass rates, ascending."""
    weights: FloatArray
    """`[atom]` Their weights, which sum to 1."""

    def __init__(self, pass_rates: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """Take pass rates in any order and non-negative weights, equal ones unless given."""
        rates = check_pass_rates(pass_rates).ravel()
        if rates.size == 0:
            msg = "a Grid needs at least one pass rate; got an empty array"
            raise InputError(msg)
        shares = _normalised(np.ones_like(rates) if weights is None else weights)
        if shares.shape != rates.shape:
            msg = f"weights must match pass_rates, one each; got {shares.size} weights for {rates.size} pass rates"
            raise InputError(msg)
        order = np.argsort(rates, kind="stable")
        for name, values in (("pass_rates", rates[order]), ("weights", shares[order])):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    def __eq__(self, other: object) -> bool:
        """Two grids are equal when rates and weights are."""
        return (
            isinstance(other, Grid)
            and np.array_equal(self.pass_rates, other.pass_rates)
            and np.array_equal(self.weights, other.weights)
        )

    def __repr__(self) -> str:
        """Show the size and the mean alone."""
        return f"Grid(<{self.pass_rates.size} pass rates, mean {self.mean:.4g}>)"

    def __hash__(self) -> int:
        """Hash by value, as equality is."""
        return hash((self.pass_rates.tobytes(), self.weights.tobytes()))

    def quadrature(self, degree: int) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002 - exact at any degree
        return self.pass_rates, self.weights

    def probability(self, low: float, high: float) -> float:
        return float(self.weights[(self.pass_rates >= low) & (self.pass_rates <= high)].sum())

    def quantile(self, uniforms: FloatArray) -> FloatArray:
        index = np.searchsorted(np.cumsum(self.weights), uniforms, side="right")
        return np.asarray(self.pass_rates[np.minimum(index, self.pass_rates.size - 1)])

    def _filtered(self, correct: int, weights: FloatArray) -> Grid:
        from scipy.special import bdtrc

        total = correct + weights.size - 1
        passed = bdtrc(correct - 1, total, self.pass_rates) if correct else 1.0
        return Grid(self.pass_rates, self.weights * passed)

    def log_joint(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        """Return log(weight p^pos (1-p)^neg), shaped like the counts and then ``[atom]``."""
        from scipy.special import xlog1py, xlogy

        pos, neg = np.asarray(pos)[..., None], np.asarray(neg)[..., None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights) + xlogy(pos, self.pass_rates) + xlog1py(neg, -self.pass_rates))

    def posterior(self, pos: int, neg: int) -> Grid:
        log_weights = self.log_joint(pos, neg)
        if not np.isfinite(log_weights.max()):
            raise _ruled_out(pos, neg)
        return Grid(self.pass_rates, np.exp(log_weights - log_weights.max()))

    def log_evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        return _log_sum(self.log_joint(pos, neg))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "pass_rates": self.pass_rates.tolist(), "weights": self.weights.tolist()}


@dataclass(frozen=True)
class Mixture(Law):
    """A mixture of laws."""

    name: ClassVar[str] = "mixture"

    laws: tuple[Law, ...]
    """The laws that are mixed."""
    weights: tuple[float, ...]
    """Non-negative weights, one a law; normalised to sum 1."""

    def __post_init__(self) -> None:
        if not isinstance(self.laws, (list, tuple)) or not self.laws:
            msg = f"a Mixture needs a list of at least one law; got {self.laws!r}"
            raise InputError(msg)
        laws, weights = tuple(law_from_dict(law) for law in self.laws), _normalised(self.weights)
        if len(laws) != weights.size:
            msg = f"a Mixture needs one weight a law; got {weights.size} weights for {len(laws)} laws"
            raise InputError(msg)
        object.__setattr__(self, "laws", laws)
        object.__setattr__(self, "weights", tuple(weights.tolist()))

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

    def log_joint(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        """Return log(weight E[p^pos (1-p)^neg | law]), shaped like the counts and then ``[law]``."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        return np.stack([law.log_evidence(pos, neg) for law in self.laws], axis=-1) + log_weights

    def posterior(self, pos: int, neg: int) -> Mixture:
        log_weights = self.log_joint(pos, neg)
        if not np.isfinite(log_weights.max()):
            raise _ruled_out(pos, neg)
        weights = np.exp(log_weights - log_weights.max())
        seen = np.nonzero(weights)[0]
        return Mixture(tuple(self.laws[i].posterior(pos, neg) for i in seen), tuple(weights[seen].tolist()))

    def log_evidence(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        return _log_sum(self.log_joint(pos, neg))

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
