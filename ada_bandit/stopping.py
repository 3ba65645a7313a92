"""The best that is possible: Bayes-optimal draws, groups and advantages under a pass-rate law.

In the score model of `ada_bandit.score_model`, write a = keep_pos adv_pos and
b = -keep_neg adv_neg, so that u = a q + b p. Given the exit cell, progress is v'(a, b) and
noise (a, b) M (a, b)' with

    v = (E[p q^2 f' | cell], E[p^2 q f' | cell]),
    M = E[[q^2, p q], [p q, p^2] | cell] + diag(nu_pos / keep_pos, nu_neg / keep_neg),

an empty class dropping its row. The best advantages are M^-1 v; then W = V = E[R] with
R(cell) = v' M^-1 v, and what is left is to stop so that E[R] / C is largest. With a price on a
response that is optimal stopping, solved by backward induction; the price at which it just
pays is the efficiency itself, found by Dinkelbach's iteration (each solution's ratio is the
next price; it rises and ends at the best ratio after a handful of steps).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from ada_bandit._parts import check_table
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import AdvantageTable, PoolMean
from ada_bandit.budgets import Rounds
from ada_bandit.errors import InputError, check_count, check_number, preview, unknown_name
from ada_bandit.groups import All, Balanced, SplitTable, balanced_counts
from ada_bandit.lattice import binomial_rows, first_part_law, log_factorials
from ada_bandit.laws import Law
from ada_bandit.objectives import objective_slope, quadrature_degree
from ada_bandit.rules import StopTable
from ada_bandit.score_model import ScoreModel, check_model, check_prior

__all__ = ["ProblemOptions", "StoppingProblem", "Utility", "common_price"]

Utility: TypeAlias = Literal["gradient", "signal"] | npt.ArrayLike
"""What an exit is worth: gradient efficiency, signal in the group, or a table ``[pos, neg]`` of one's own."""

_TIE = 1e-14
"""Relative difference in utility below which two choices are as good."""


class ProblemOptions(TypedDict, total=False):
    """What a `StoppingProblem` takes beside the prior and the score model."""

    samples: int
    """Responses a round; 1 unless given."""
    max_samples: int
    """K, the most responses a prompt may get, a multiple of `samples`; 32 unless given."""
    group_size: int | None
    """The most responses that are kept, of the best split; all of them unless given."""
    mean_response_tokens: tuple[float, float]
    """Cost of a correct and of an incorrect response; 1 each unless given."""
    utility: Utility
    """What an exit is worth: ``"gradient"`` efficiency unless given; ``"signal"`` in the group, or a table
    ``[pos, neg]`` of one's own, both of which leave the advantages at the pool mean."""


class StoppingProblem:
    """One stopping problem on the lattice, which can be solved at any price of a response.

    Parameters
    ----------
    prior
        The law of p over prompts.
    model
        The score model; ``ScoreModel()`` unless given. Where its update cost is positive, the best
        number of rows is kept as well, which may be none.
    **options
        `ProblemOptions`.

    Raises
    ------
    InputError
        If an argument can't be used.
    """

    def __init__(self, prior: Law, model: ScoreModel | None = None, **options: Unpack[ProblemOptions]) -> None:
        for key in options:
            if key not in ProblemOptions.__annotations__:
                raise unknown_name("option of the problem", key, ProblemOptions.__annotations__)
        self.prior = check_prior(prior)
        self.model = check_model(model)
        self.samples = check_count("samples", options.get("samples", 1))
        self.most = check_count("max_samples", options.get("max_samples", 32))
        if self.most % self.samples:
            msg = f"max_samples must be a multiple of samples; got {self.most} and {self.samples}"
            raise InputError(msg)
        group_size = options.get("group_size")
        self.group_size = None if group_size is None else min(check_count("group_size", group_size), self.most)
        self.update_cost, self.noise = self.model.update_cost, self.model.noise
        tokens = options.get("mean_response_tokens", (1.0, 1.0))
        pair = tokens if isinstance(tokens, (tuple, list)) else ()
        self.tokens = tuple(check_number("mean_response_tokens", value, 0) for value in pair)
        if len(self.tokens) != 2 or not any(self.tokens):
            msg = f"mean_response_tokens must be a pair, not both 0; got {preview(tokens)}"
            raise InputError(msg)
        utility = options.get("utility", "gradient")
        self.gradient = isinstance(utility, str) and utility == "gradient"
        self.pos, self.neg = (axis[self._meaningful()] for axis in np.indices((self.most + 1, self.most + 1)))
        self._moments()
        if self.gradient:
            self.worth = np.zeros(0)
        elif isinstance(utility, str):
            if utility != "signal":
                msg = f"utility must be 'gradient', 'signal' or a table by pos and neg; got {utility!r}"
                raise InputError(msg)
            kept = self._balanced()
            self.worth = np.asarray((kept[0] > 0) & (kept[1] > 0), dtype=np.float64)
        else:
            values = check_table("utility", utility)
            if values.shape[0] <= self.most:
                msg = f"the utility's table must hold counts up to {self.most}; got shape {values.shape}"
                raise InputError(msg)
            self.worth = values[self.pos, self.neg]
        logs = log_factorials(self.most)
        self.steps = [
            (total, first_part_law(logs, total, self.samples, np.arange(total + 1)))
            for total in range(0, self.most, self.samples)
        ]

    def _meaningful(self) -> BoolArray:
        pos, neg = np.indices((self.most + 1, self.most + 1))
        return np.asarray(pos + neg <= self.most)

    def _moments(self) -> None:
        """Set the chance of every cell after its number of draws, and the conditional moments there."""
        rates, weights = self.prior.quadrature(quadrature_degree(self.most, self.model.objective))
        p, q, slope = rates, 1 - rates, objective_slope(self.model.objective, rates)
        basis = np.stack([np.ones_like(p), q * q, p * q, p * p, q * slope, p * slope]) * weights
        sums = np.zeros((6, self.most + 1, self.most + 1))
        for total, row in enumerate(binomial_rows(rates, self.most)):
            pos = np.arange(total + 1)
            sums[:, pos, total - pos] = basis @ row.T
        joint = sums[:, self.pos, self.neg]
        self.mass = joint[0]
        self.qq, self.pq, self.pp, self.v_pos, self.v_neg = np.divide(
            joint[1:], self.mass, out=np.zeros_like(joint[1:]), where=self.mass > 0
        )

    def _best_advantages(self, keep_pos: IntArray, keep_neg: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a, b and R = v' M^-1 v at every cell for given keep counts, ``[cell]`` each."""
        has_pos, has_neg = keep_pos > 0, keep_neg > 0
        m_pos = self.qq + self.noise[0] / np.maximum(keep_pos, 1)
        m_neg = self.pp + self.noise[1] / np.maximum(keep_neg, 1)
        v_pos, v_neg = np.where(has_pos, self.v_pos, 0.0), np.where(has_neg, self.v_neg, 0.0)
        cross = np.where(has_pos & has_neg, self.pq, 0.0)
        determinant = m_pos * m_neg - cross**2
        # Without noise and with p known, the two rows say the same: one of them will do.
        sound = determinant > 1e-13 * m_pos * m_neg
        safe = np.where(sound, determinant, 1.0)
        alone_pos = np.divide(v_pos, m_pos, out=np.zeros_like(v_pos), where=m_pos > 0)
        alone_neg = np.divide(v_neg, m_neg, out=np.zeros_like(v_neg), where=m_neg > 0)
        prefer_pos = v_pos * alone_pos >= v_neg * alone_neg
        a = np.where(sound, (m_neg * v_pos - cross * v_neg) / safe, np.where(prefer_pos, alone_pos, 0.0))
        b = np.where(sound, (m_pos * v_neg - cross * v_pos) / safe, np.where(prefer_pos, 0.0, alone_neg))
        return a, b, a * v_pos + b * v_neg

    def _splits(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield candidate keep counts, ``[cell]`` each: all responses, or every split that fits the group."""
        if self.group_size is None and self.update_cost == 0:
            yield self.pos, self.neg
            return
        size = self.most if self.group_size is None else self.group_size
        # More rows never hurt the utility: without a cost of rows, only full groups compete.
        rows = range(size + 1) if self.update_cost else (size,)
        for total in rows:
            for count in range(total + 1):
                keep_pos = np.minimum(self.pos, count)
                yield keep_pos, np.minimum(self.neg, total - keep_pos if not self.update_cost else total - count)

    def _balanced(self) -> tuple[IntArray, IntArray]:
        """Return the keep counts ``[cell]`` of a balanced group, or of everything."""
        size = self.most if self.group_size is None else self.group_size
        return balanced_counts(self.pos, self.neg, size)

    @cached_property
    def _menu(self) -> tuple[FloatArray, IntArray, IntArray]:
        """Best utility by rows in the update, and the keep counts that give it, ``[rows, cell]`` each.

        Where rows cost nothing, one entry with the best split of all.
        """
        size = self.most if self.group_size is None else self.group_size
        shape = (size + 1 if self.update_cost else 1, self.pos.size)
        worth = np.full(shape, -np.inf)
        kept = np.zeros((2, *shape), dtype=np.int64)
        cells = np.arange(self.pos.size)
        for keep_pos, keep_neg in self._splits():
            a, b, value = self._best_advantages(keep_pos, keep_neg)
            rows = keep_pos * (a != 0) + keep_neg * (b != 0) if self.update_cost else np.zeros_like(cells)
            better = value > worth[rows, cells]
            at = rows[better], cells[better]
            worth[at], kept[0][at], kept[1][at] = value[better], keep_pos[better], keep_neg[better]
        return worth, kept[0], kept[1]

    def _worth_at(self, price: float) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
        """Return utility, rows in the update and keep counts of the best split at every cell."""
        if not self.gradient:
            keep_pos, keep_neg = self._balanced()
            # The pool mean gives a pool of one class no advantages.
            rows = np.where((self.pos > 0) & (self.neg > 0), keep_pos + keep_neg, 0.0)
            return self.worth, rows, keep_pos, keep_neg
        worth, keep_pos, keep_neg = self._menu
        net = worth - price * self.update_cost * np.arange(worth.shape[0])[:, None]
        # Rounding decides no tie: the fewest rows that are as good.
        rows = (net >= net.max(axis=0) - _TIE * worth.max(axis=0)).argmax(axis=0)
        at = rows, np.arange(self.pos.size)
        return worth[at], rows.astype(np.float64), keep_pos[at], keep_neg[at]

    def at_price(self, price: float) -> tuple[float, float, BoolArray, IntArray, IntArray]:
        """Return E[utility], cost, the stop table and the keep counts ``[cell]`` of the best policy at a price.

        Backward induction on masses instead of conditional values: every cell carries its
        chance, so the predictive law is the hypergeometric share of where its mass came from.
        A tie, up to rounding, stops. The first round is drawn in any case.
        """
        worth, rows, keep_pos, keep_neg = self._worth_at(price)
        spent = self.tokens[0] * self.pos + self.tokens[1] * self.neg + self.update_cost * rows
        side = (self.most + 1, self.most + 1)
        utility, cost = np.zeros(side), np.zeros(side)
        utility[self.pos, self.neg] = self.mass * worth
        cost[self.pos, self.neg] = self.mass * spent
        stop = np.zeros(side, dtype=np.bool_)
        for total, weights in reversed(self.steps):
            pos = np.arange(total + 1)
            new = np.arange(self.samples + 1)[:, None]
            later = pos + new, total - pos + self.samples - new
            utility_on = (weights * utility[later]).sum(axis=0)
            cost_on = (weights * cost[later]).sum(axis=0)
            if total:
                here = pos, total - pos
                going_on = utility_on - price * cost_on - _TIE * np.abs(utility_on)
                stops = utility[here] - price * cost[here] >= going_on
                stop[here] = stops
                utility[here] = np.where(stops, utility[here], utility_on)
                cost[here] = np.where(stops, cost[here], cost_on)
            else:
                utility[0, 0], cost[0, 0] = utility_on[0], cost_on[0]
        return float(utility[0, 0]), float(cost[0, 0]), stop, keep_pos, keep_neg

    def best_price(self) -> float:
        """Return the largest E[utility] / C."""
        return common_price([self], [1.0])

    def parts_at(self, price: float) -> tuple[dict[str, Any], float, float]:
        """Return the parts of the best policy at a price, as `Policy` takes them, its E[utility] and its C."""
        utility, cost, stop, keep_pos, keep_neg = self.at_price(price)
        parts: dict[str, Any] = {
            "rule": StopTable(stop),
            "budget": Rounds(self.samples, self.most // self.samples),
            "group_size": self.most if self.group_size is None else self.group_size,
            "group": All() if self.group_size is None else Balanced(),
            "advantage": PoolMean(),
        }
        if self.gradient:
            a, b, _ = self._best_advantages(keep_pos, keep_neg)
            everything = np.array_equal(keep_pos, self.pos) and np.array_equal(keep_neg, self.neg)
            parts["group"] = All() if everything else SplitTable(self._square(keep_pos), self._square(keep_neg))
            parts["advantage"] = AdvantageTable(
                self._square(a / np.maximum(keep_pos, 1)), self._square(-b / np.maximum(keep_neg, 1))
            )
        return parts, utility, cost

    def _square(self, values: npt.ArrayLike) -> FloatArray:
        square = np.zeros((self.most + 1, self.most + 1))
        square[self.pos, self.neg] = values
        return square


def common_price(problems: Sequence[StoppingProblem], sizes: npt.ArrayLike) -> float:
    """Return the largest ratio of summed utility to summed cost over `sizes` prompts of each problem.

    By Dinkelbach's iteration from below.
    """
    weights = np.asarray(sizes, dtype=np.float64)
    price, last = 0.0, -np.inf
    while True:
        utility, cost = weights @ np.array([problem.at_price(price)[:2] for problem in problems])
        ratio = float(utility / cost) if cost > 0 else 0.0
        # The first step may go down, where no utility is positive; the ratio rises from there.
        if ratio <= last + 4e-16 * abs(last):
            return price
        price = last = ratio
