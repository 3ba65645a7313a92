"""The best that is possible: Bayes-optimal draws, groups and advantages under a pass-rate law.

In the score model of `ada_bandit.score_model`, write a = keep_pos adv_pos and
b = -keep_neg adv_neg, so that u = a q + b p. Given the exit cell, progress is v'(a, b), the mean
of u is h'(a, b) and noise (a, b) M (a, b)' with

    v = (E[q kappa | cell], E[p kappa | cell]),  h = (E[q | cell], E[p | cell]),
    M = E[[q^2, p q], [p q, p^2] | cell] + diag(nu_pos / keep_pos, nu_neg / keep_neg),

an empty class dropping its row. Without a batch term the best advantages are M^-1 v; then W = V = E[R]
with R(cell) = v' M^-1 v, and what is left is to stop so that E[R] / C is largest. With a price on a
response that is optimal stopping, solved by backward induction; the price at which it just
pays is the efficiency itself, found by Dinkelbach's iteration (each solution's ratio is the
next price; it rises and ends at the best ratio after a handful of steps).

With a batch term beta = c (B - 1) the utility of a policy is max W^2 / (V + beta E[u]^2) over its advantages,

    v' (M + beta h h')^-1 v = min over s of E[(v - s h)' M^-1 (v - s h)] + s^2 / beta,

summed over cells (Sherman and Morrison; the least s is beta E[u]). For a given s this is the problem
above with kappa - s in the place of kappa, so one number, the *shade* s, couples all cells and all
prompts of a step: progress that the rest of the batch brings anyway isn't worth paying for. As the
difference s - beta E[u] of the best policy at s rises with s, a root search finds the shade that a
policy casts on itself. Where it jumps over 0 no single table does; then the better of the two beside
the jump is taken, each with its own best advantages. A random choice between them would be better still,
by up to 5 % in extreme cases of a few responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from ada_bandit._parts import check_table
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import AdvantageTable, PoolMean
from ada_bandit.budgets import Rounds, check_most
from ada_bandit.errors import InputError, check_count, check_number, preview, unknown_name
from ada_bandit.groups import All, Balanced, SplitTable, balanced_counts
from ada_bandit.lattice import binomial_rows, first_part_law, log_factorials
from ada_bandit.laws import Law
from ada_bandit.rules import StopTable
from ada_bandit.score_model import ScoreModel, check_model, check_prior

__all__ = ["Choice", "ProblemOptions", "StoppingProblem", "Together", "Utility", "common_price", "solve_together"]

Utility: TypeAlias = Literal["gradient", "signal"] | npt.ArrayLike
"""What an exit is worth: gradient efficiency, signal in the group, or a table ``[pos, neg]`` of one's own."""

_HALVINGS = 40
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


@dataclass(frozen=True, eq=False)
class Choice:
    """The best policy of a problem at a price and a shade."""

    worth: float
    """E[utility]; E[R] = V for gradient efficiency, at the problem's shade."""
    update: float
    """E[u]; 0 for other utilities."""
    slope: float
    """By how much E[u] falls as the shade rises by 1, the tables but for the advantages as they are."""
    cost: float
    """C."""
    stop: BoolArray
    """`[pos, neg]` Where it stops."""
    keep_pos: IntArray
    """`[cell]` Positives kept."""
    keep_neg: IntArray
    """`[cell]` Negatives kept."""


class StoppingProblem:
    """One stopping problem on the lattice, which can be solved at any price of a response.

    Parameters
    ----------
    prior
        The law of p over prompts.
    model
        The score model; ``ScoreModel()`` unless given. Where its update cost is positive, the best
        number of rows is kept as well, which may be none.
    population
        The law of p over all prompts whose objective is climbed, where `prior` is that of some of them, such as
        the posterior of a prompt that is known; `prior` unless given.
    **options
        `ProblemOptions`.

    Raises
    ------
    InputError
        If an argument can't be used.
    """

    def __init__(
        self,
        prior: Law,
        model: ScoreModel | None = None,
        *,
        population: Law | None = None,
        **options: Unpack[ProblemOptions],
    ) -> None:
        for key in options:
            if key not in ProblemOptions.__annotations__:
                raise unknown_name("option of the problem", key, ProblemOptions.__annotations__)
        self.prior = check_prior(prior)
        self.population = self.prior if population is None else check_prior(population)
        self.model = check_model(model)
        if self.model.batch_weight and self.model.likeness is not None:
            msg = (
                "the best policy is not known for a batch term with a likeness, where no one number couples the "
                f"prompts; got overlap = {self.model.overlap:g} and {self.model.likeness!r}. Set overlap = 0, or leave "
                "the likeness out"
            )
            raise InputError(msg)
        self.samples = check_count("samples", options.get("samples", 1))
        self.most = check_most(check_count("max_samples", options.get("max_samples", 32)), "got max_samples =")
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
        self._menu_at: tuple[float, tuple[FloatArray, IntArray, IntArray]] | None = None
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
        rates, weights = self.prior.quadrature(self.model.quadrature_degree(self.most))
        p, q, pull = rates, 1 - rates, self.model.pull(rates, self.population)
        basis = np.stack([np.ones_like(p), q * q, p * q, p * p, q * pull, p * pull, q, p]) * weights
        sums = np.zeros((8, self.most + 1, self.most + 1))
        for total, row in enumerate(binomial_rows(rates, self.most)):
            pos = np.arange(total + 1)
            sums[:, pos, total - pos] = basis @ row.T
        joint = sums[:, self.pos, self.neg]
        self.mass = joint[0]
        self.most_pull = float(pull.max(initial=0.0))
        self.qq, self.pq, self.pp, self.v_pos, self.v_neg, self.h_pos, self.h_neg = np.divide(
            joint[1:], self.mass, out=np.zeros_like(joint[1:]), where=self.mass > 0
        )

    def _best_advantages(
        self, keep_pos: IntArray, keep_neg: IntArray, shade: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a, b and R = v' M^-1 v at every cell for given keep counts, ``[cell]`` each; v at a shade."""
        has_pos, has_neg = keep_pos > 0, keep_neg > 0
        m_pos = self.qq + self.noise[0] / np.maximum(keep_pos, 1)
        m_neg = self.pp + self.noise[1] / np.maximum(keep_neg, 1)
        v_pos = np.where(has_pos, self.v_pos - shade * self.h_pos, 0.0)
        v_neg = np.where(has_neg, self.v_neg - shade * self.h_neg, 0.0)
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

    def _menu(self, shade: float) -> tuple[FloatArray, IntArray, IntArray]:
        """Best utility by rows in the update, and the keep counts that give it, ``[rows, cell]`` each.

        Where rows cost nothing, one entry with the best split of all.
        """
        if self._menu_at is not None and self._menu_at[0] == shade:
            return self._menu_at[1]
        size = self.most if self.group_size is None else self.group_size
        shape = (size + 1 if self.update_cost else 1, self.pos.size)
        worth = np.full(shape, -np.inf)
        kept = np.zeros((2, *shape), dtype=np.int64)
        cells = np.arange(self.pos.size)
        for keep_pos, keep_neg in self._splits():
            a, b, value = self._best_advantages(keep_pos, keep_neg, shade)
            rows = keep_pos * (a != 0) + keep_neg * (b != 0) if self.update_cost else np.zeros_like(cells)
            better = value > worth[rows, cells]
            at = rows[better], cells[better]
            worth[at], kept[0][at], kept[1][at] = value[better], keep_pos[better], keep_neg[better]
        self._menu_at = shade, (worth, kept[0], kept[1])
        return self._menu_at[1]

    def _worth_at(self, price: float, shade: float) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
        """Return utility, rows in the update and keep counts of the best split at every cell."""
        if not self.gradient:
            keep_pos, keep_neg = self._balanced()
            # The pool mean gives a pool of one class no advantages.
            rows = np.where((self.pos > 0) & (self.neg > 0), keep_pos + keep_neg, 0.0)
            return self.worth, rows, keep_pos, keep_neg
        worth, keep_pos, keep_neg = self._menu(shade)
        net = worth - price * self.update_cost * np.arange(worth.shape[0])[:, None]
        # Rounding decides no tie: the fewest rows that are as good.
        rows = (net >= net.max(axis=0) - _TIE * worth.max(axis=0)).argmax(axis=0)
        at = rows, np.arange(self.pos.size)
        return worth[at], rows.astype(np.float64), keep_pos[at], keep_neg[at]

    def _update_at(self, keep_pos: IntArray, keep_neg: IntArray, shade: float) -> FloatArray:
        """Return the mean of u at every cell with the best advantages at a shade, ``[cell]``."""
        a, b, _ = self._best_advantages(keep_pos, keep_neg, shade)
        return np.asarray(a * self.h_pos + b * self.h_neg)

    def choose(self, price: float, shade: float = 0.0) -> Choice:
        """Return the best policy at a price of a response and a shade.

        Backward induction on masses instead of conditional values: every cell carries its
        chance, so the predictive law is the hypergeometric share of where its mass came from.
        A tie, up to rounding, stops. The first round is drawn in any case.
        """
        worth, rows, keep_pos, keep_neg = self._worth_at(price, shade)
        update = slope = np.zeros(worth.size)
        if self.model.batch_weight and self.gradient:
            update = self._update_at(keep_pos, keep_neg, shade)
            # The best advantages are linear in the shade, so a step of any length gives the slope.
            slope = (update - self._update_at(keep_pos, keep_neg, shade + self.most_pull)) / (self.most_pull or 1.0)
        spent = self.tokens[0] * self.pos + self.tokens[1] * self.neg + self.update_cost * rows
        side = (self.most + 1, self.most + 1)
        # Utility, mean of u and its slope, and cost.
        sums = np.zeros((4, *side))
        sums[:, self.pos, self.neg] = self.mass * np.stack([worth, update, slope, spent])
        stop = np.zeros(side, dtype=np.bool_)
        for total, weights in reversed(self.steps):
            pos = np.arange(total + 1)
            new = np.arange(self.samples + 1)[:, None]
            on = (weights * sums[:, pos + new, total - pos + self.samples - new]).sum(axis=1)
            if total:
                here = sums[:, pos, total - pos]
                going_on = on[0] - price * on[3] - _TIE * np.abs(on[0])
                stops = here[0] - price * here[3] >= going_on
                stop[pos, total - pos] = stops
                sums[:, pos, total - pos] = np.where(stops, here, on)
            else:
                sums[:, 0, 0] = on[:, 0]
        total_worth, total_update, total_slope, total_cost = sums[:, 0, 0].tolist()
        return Choice(total_worth, total_update, total_slope, total_cost, stop, keep_pos, keep_neg)

    def at_price(self, price: float) -> tuple[float, float, BoolArray, IntArray, IntArray]:
        """Return E[utility], cost, the stop table and the keep counts ``[cell]`` of the best policy at a price."""
        found = self._alone(price)
        choice = found.choices[0]
        return found.utility, found.cost, choice.stop, choice.keep_pos, choice.keep_neg

    def _alone(self, price: float) -> Together:
        """Return the best policy at a price where all prompts of a step are of this kind."""
        return _choose_together([self], np.ones(1), price, np.zeros(1, dtype=np.bool_))

    def best_price(self) -> float:
        """Return the largest E[utility] / C."""
        return common_price([self], [1.0])

    def parts_at(self, price: float) -> tuple[dict[str, Any], float, float]:
        """Return the parts of the best policy at a price, as `Policy` takes them, its E[utility] and its C."""
        found = self._alone(price)
        return self.parts_of(found.choices[0], found.shade), found.utility, found.cost

    def parts_of(self, choice: Choice, shade: float) -> dict[str, Any]:
        """Return the parts of the policy of a choice at a shade, as `Policy` takes them."""
        parts: dict[str, Any] = {
            "rule": StopTable(choice.stop),
            "budget": Rounds(self.samples, self.most // self.samples),
            "group_size": self.most if self.group_size is None else self.group_size,
            "group": All() if self.group_size is None else Balanced(),
            "advantage": PoolMean(),
        }
        if self.gradient:
            keep_pos, keep_neg = choice.keep_pos, choice.keep_neg
            a, b, _ = self._best_advantages(keep_pos, keep_neg, shade)
            everything = np.array_equal(keep_pos, self.pos) and np.array_equal(keep_neg, self.neg)
            parts["group"] = All() if everything else SplitTable(self._square(keep_pos), self._square(keep_neg))
            parts["advantage"] = AdvantageTable(
                self._square(a / np.maximum(keep_pos, 1)), self._square(-b / np.maximum(keep_neg, 1))
            )
        return parts

    def _square(self, values: npt.ArrayLike) -> FloatArray:
        square = np.zeros((self.most + 1, self.most + 1))
        square[self.pos, self.neg] = values
        return square


@dataclass(frozen=True, eq=False)
class Together:
    """The best policies of several kinds of prompts that share a step."""

    price: float
    """The price of a response."""
    shade: float
    """s = c (B - 1) E[u] of the step's update, with the best advantages for it; 0 without a batch term."""
    choices: tuple[Choice, ...]
    """Policy of each kind."""
    skipped: BoolArray
    """`[kind]` Kinds of which no prompt gets a response."""
    utility: float
    """Mean utility over prompts; for gradient efficiency W^2 / (V + c (B - 1) E[u]^2) of the policies as they are."""
    cost: float
    """Mean cost over prompts."""
    update: float
    """Mean of u over prompts at the shade at which the policies were chosen."""
    bound: float
    """The largest utility less price times cost, over random choices among policies."""
    bound_cost: float
    """Cost of the random choice that attains it."""


def solve_together(
    problems: Sequence[StoppingProblem], sizes: npt.ArrayLike, may_skip: npt.ArrayLike | None = None
) -> Together:
    """Return the policies of largest summed utility over summed cost, for several kinds of prompts.

    By Dinkelbach's iteration from below.

    Parameters
    ----------
    problems
        The problem of each kind, under one score model.
    sizes
        ``[kind]`` number of prompts, in any unit.
    may_skip
        ``[kind]`` whether prompts of the kind may get no response at all; none unless given.
    """
    weights = np.asarray(sizes, dtype=np.float64)
    weights = weights / weights.sum()
    free = np.zeros(weights.size, dtype=np.bool_) if may_skip is None else np.asarray(may_skip, dtype=np.bool_)
    price, best = 0.0, None
    while True:
        found = _choose_together(problems, weights, price, free)
        ratio = found.utility / found.cost if found.cost > 0 else 0.0
        # At its own ratio a tie may skip every prompt; the policies that had the ratio are those before it.
        if best is None or (found.cost > 0 and ratio >= best.price * (1 - 1e-12)):
            best = replace(found, price=ratio)
        # The first step may go down, where no utility is positive; the price rises from there to what a random choice
        # among policies attains, past policies of which the best is kept.
        further = price + found.bound / found.bound_cost if found.bound_cost > 0 else 0.0
        if not further or (price and further <= price + 4e-16 * abs(price)):
            return best
        price = further


def common_price(problems: Sequence[StoppingProblem], sizes: npt.ArrayLike) -> float:
    """Return the largest ratio of summed utility to summed cost over `sizes` prompts of each problem."""
    return solve_together(problems, sizes).price


def _choose_together(
    problems: Sequence[StoppingProblem], weights: FloatArray, price: float, may_skip: BoolArray
) -> Together:
    """Return the best policies at a price, at the shade that they themselves cast."""
    beta = problems[0].model.batch_weight if all(problem.gradient for problem in problems) else 0.0

    def at(shade: float) -> Together:
        choices = [problem.choose(price, shade) for problem in problems]
        values = np.array([[each.worth, each.update, each.slope, each.cost] for each in choices])
        net = values[:, 0] - price * values[:, 3]
        # A tie is sampled: at its own ratio, the only kind left has nothing to gain.
        skipped = may_skip & (net < -1e-12 * np.abs(values[:, 0]))
        worth, update, slope, cost = (weights * ~skipped) @ values
        # With D and H the sums of h' M^-1 v and h' M^-1 h, E[u] at a shade s is D - s H, and worth v' M^-1 v less
        # 2 s D - s^2 H: so much follows for the best shade of these tables, beta D / (1 + beta H).
        along = update + shade * slope
        own = beta * along / (1 + beta * slope)
        utility = worth + shade * (along + update) - own * along
        bound = worth - price * cost + (shade * shade / beta if beta else 0.0)
        numbers = (float(number) for number in (utility, cost, update, bound, cost))
        return Together(price, float(own), tuple(choices), skipped, *numbers)

    if not beta:
        return at(0.0)
    # s - beta E[u] rises with s, from at most 0 at s = 0 to at least 0 at the largest kappa.
    low, high = 0.0, max(problem.most_pull for problem in problems)
    sides = [at(low), at(high)]
    found = sides[0]
    for _ in range(_HALVINGS):
        # The shade that the last tables would cast by themselves is the root, if they are the best ones there.
        for shade in ((low + high) / 2, found.shade):
            if not low < shade < high:
                continue
            found = at(shade)
            if abs(found.shade - shade) <= 1e-13 * high:
                return found
            if shade < beta * found.update:
                low, sides[0] = shade, found
            else:
                high, sides[1] = shade, found
    # The mix of the two whose own shade is the one between them.
    gap = sides[0].update - sides[1].update
    share = float(np.clip((high / beta - sides[1].update) / gap, 0, 1)) if gap > 0 else 1.0
    mixed = share * sides[0].cost + (1 - share) * sides[1].cost
    better = max(sides, key=lambda side: side.utility - price * side.cost)
    return replace(better, bound=min(side.bound for side in sides), bound_cost=mixed)
