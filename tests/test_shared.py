"""Batch budgets: splits, greedy, each allocation against an independent optimum, selections against naive twins."""

from __future__ import annotations

import heapq
import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import betaincinv, betaln
from scipy.stats import beta as beta_law

from ada_bandit import Allocator, Beta, Policy, Quota, uniform
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.advantages import LeaveOneOut
from ada_bandit.budgets import BatchState
from ada_bandit.errors import InputError
from ada_bandit.fitting import fit_prior
from ada_bandit.history import History
from ada_bandit.laws import Grid
from ada_bandit.memory import PassRateMemory
from ada_bandit.shared import (
    GVM,
    VIP,
    Allocation,
    CobaRL,
    Dynamo,
    Est,
    Greedy,
    Greso,
    Hora,
    Knapsack,
    Mopps,
    Neyman,
    Ranked,
    Refill,
    Selection,
    budget_from_dict,
)
from ada_bandit.totals import greedy_counts, largest_remainder


def state(
    pos: npt.ArrayLike,
    neg: npt.ArrayLike,
    *,
    at: int = 0,
    history: History | None = None,
    seed: int = 0,
    spent: npt.ArrayLike | None = None,
) -> BatchState:
    correct, incorrect = np.asarray(pos, dtype=np.int64), np.asarray(neg, dtype=np.int64)
    return BatchState(
        pos=correct,
        neg=incorrect,
        spent=correct + incorrect if spent is None else np.asarray(spent, dtype=np.int64),
        round=at,
        history=History.empty(correct.size) if history is None else history,
        group_size=2,
        uniforms=partial(uniform, seed, 3, np.arange(correct.size)),
    )


def remembered(pos: npt.ArrayLike, neg: npt.ArrayLike) -> History:
    correct, incorrect = np.asarray(pos, dtype=np.float64), np.asarray(neg, dtype=np.float64)
    return History(correct, incorrect, *np.zeros((3, correct.size), dtype=np.int64))


def visited(solved: IntArray, failed: IntArray) -> History:
    nothing = np.zeros(solved.size)
    return History(nothing, nothing, np.ones(solved.size, dtype=np.int64), solved, failed)


def best_by_dp(utilities: FloatArray, total: int, low: IntArray) -> float:
    """The multiple-choice knapsack, prompt by prompt; utilities ``[prompt, responses]`` from 0 responses on."""
    best = np.full(total + 1, -np.inf)
    best[0] = 0
    for row, least in zip(utilities, low, strict=True):
        new = np.full(total + 1, -np.inf)
        for n in range(int(least), row.size):
            for spent in range(total + 1 - n):
                new[spent + n] = max(new[spent + n], best[spent] + row[n])
        best = new
    return float(best[total])


def utility_of(utilities: FloatArray, counts: IntArray) -> float:
    return float(utilities[np.arange(counts.size), counts].sum())


class TestLargestRemainder:
    @given(st.data())
    def test_meets_the_sum_within_bounds_and_within_one_of_the_real_split(self, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, 12))
        # Shares of 0 and of very different sizes; no trace of share that the split takes for 0.
        shares = np.array(data.draw(st.lists(st.just(0.0) | st.floats(1e-3, 1e3), min_size=size, max_size=size)))
        low = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)))
        high = low + np.array(data.draw(st.lists(st.integers(0, 20), min_size=size, max_size=size)))
        total = data.draw(st.integers(int(low.sum()), int(high.sum())))
        counts = largest_remainder(shares, total, low, high)
        assert counts.dtype.kind == "i"
        assert counts.sum() == total
        assert (low <= counts).all()
        assert (counts <= high).all()
        positive = shares > 0
        if positive.any() and low[~positive].sum() + high[positive].sum() > total:
            # No share of 0 gets more than its minimum while a positive one has room.
            np.testing.assert_array_equal(counts[~positive], low[~positive])

            def excess(scale: float) -> float:
                return float(np.clip(scale * shares, low, high).sum() - total)

            top = float(high.max() / shares[positive].min()) + 1
            scale = brentq(excess, 0, top, xtol=1e-15, rtol=1e-14) if excess(0) < 0 else 0.0
            assert np.abs(counts - np.clip(scale * shares, low, high)).max() < 1 + 1e-6

    def test_by_hand(self) -> None:
        # 10 over 1:2:4 is 1.43, 2.86, 5.71: the two places go to the fractions .86 and .71.
        assert largest_remainder([1, 2, 4], 10, 0, 99).tolist() == [1, 3, 6]
        # At most 4: the third gets its 4, and 6 over 1:2 is 2, 4.
        assert largest_remainder([1, 2, 4], 10, 0, 4).tolist() == [2, 4, 4]
        # At least 3: the first gets its 3, and 7 over 2:4 would be 2.33, 4.67; the second is raised as well.
        assert largest_remainder([1, 2, 4], 10, 3, 99).tolist() == [3, 3, 4]

    @given(st.integers(1, 20), st.integers(0, 2**32 - 1))
    def test_prompts_in_another_order_get_the_same(self, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shares, low = rng.random(size), rng.integers(0, 4, size)
        high = low + rng.integers(0, 9, size)
        total = int(rng.integers(low.sum(), high.sum() + 1))
        order = rng.permutation(size)
        counts = largest_remainder(shares, total, low, high)
        np.testing.assert_array_equal(largest_remainder(shares[order], total, low[order], high[order]), counts[order])

    @pytest.mark.parametrize("share", [0.0, 1.0, 1e-300, 1e300])
    def test_equal_shares_get_equal_counts_up_to_one(self, share: float) -> None:
        for total in range(7, 36):
            counts = largest_remainder(np.full(7, share), total, 1, 5)
            assert counts.sum() == total
            assert np.ptp(counts) <= 1

    def test_the_sum_is_not_lost_to_rounding(self) -> None:
        # Rounding each share on its own, as CurES does, gives 3 * 33 = 99 of 100, and 3 * 34 = 102 of 101.
        assert largest_remainder([1, 1, 1], 100, 0, 99).sum() == 100
        rng = np.random.default_rng(0)
        shares = rng.random(1000)
        naive = np.round(4096 * shares / shares.sum()).sum()
        assert naive != 4096
        assert largest_remainder(shares, 4096, 1, 32).sum() == 4096

    def test_leftovers_stay_below_the_maximum(self) -> None:
        # One prompt has nearly all the share; what it can't take goes to the others, evenly.
        assert largest_remainder([1, 0, 0, 0], 20, 2, 8).tolist() == [8, 4, 4, 4]

    def test_no_prompts(self) -> None:
        assert largest_remainder([], 0, 0, 5).size == 0

    @pytest.mark.parametrize(
        ("shares", "total", "low", "high", "message"),
        [
            ([1, 1], 3, 2, 5, "a total of 3 responses lies outside of what the bounds allow, 4 to 10"),
            ([1, 1], 11, 2, 5, "a total of 11 responses .* 4 to 10"),
            ([], 1, 0, 5, "a total of 1 responses .* 0 to 0"),
            ([1, 1], 4, [3, 0], [2, 9], "a total of 4 responses"),
            ([1, -1], 4, 0, 5, r"shares must be finite and at least 0; got \[1, -1\]"),
            ([1, math.nan], 4, 0, 5, r"shares must be finite .*; got \[1, nan\]"),
            ([1, math.inf], 4, 0, 5, r"shares must be finite .*; got \[1, inf\]"),
        ],
    )
    def test_refuses(self, shares: Any, total: int, low: Any, high: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            largest_remainder(shares, total, low, high)


def with_a_heap(gains: FloatArray, total: int, low: IntArray) -> IntArray:
    """One response after the other; of equal gains, the prompt with the fewest responses, then the first one."""
    counts = low.copy()
    heap = [(-gains[i, n], n, i) for i, n in enumerate(low) if n < gains.shape[1]]
    heapq.heapify(heap)
    for _ in range(total - int(low.sum())):
        _, n, i = heapq.heappop(heap)
        counts[i] += 1
        if n + 1 < gains.shape[1]:
            heapq.heappush(heap, (-gains[i, n + 1], n + 1, i))
    return counts


class TestGreedy:
    @given(st.data())
    def test_equals_the_heap_and_the_knapsack_dynamic_programme(self, data: st.DataObject) -> None:
        size, most = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
        # Small whole numbers: ties are common, and sums exact.
        rows = data.draw(st.lists(st.lists(st.integers(-3, 6), min_size=most, max_size=most), min_size=size,
                                  max_size=size))  # fmt: skip
        gains = -np.sort(-np.array(rows, dtype=np.float64), axis=1)
        low = np.array(data.draw(st.lists(st.integers(0, most), min_size=size, max_size=size)))
        total = data.draw(st.integers(int(low.sum()), size * most))
        counts = greedy_counts(gains, total, low)
        np.testing.assert_array_equal(counts, with_a_heap(gains, total, low))
        utilities = np.pad(np.cumsum(gains, axis=1), ((0, 0), (1, 0)))
        assert utility_of(utilities, counts) == best_by_dp(utilities, total, low)

    def test_what_gains_nothing_is_spread_evenly(self) -> None:
        assert greedy_counts(np.zeros((4, 9)), 14).tolist() == [4, 4, 3, 3]
        assert greedy_counts(np.zeros((4, 9)), 14, [5, 0, 0, 0]).tolist() == [5, 3, 3, 3]

    def test_increasing_gains_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"gains must not increase along a row, .*; row 1 does"):
            greedy_counts([[3, 2, 1], [1, 2, 0]], 3)
        # Rounding is no increase.
        assert greedy_counts([[1, 1 + 1e-15, 0.5]], 2).tolist() == [2]

    @pytest.mark.parametrize(
        ("gains", "total", "minimum", "message"),
        [
            ([[1, 1]], 3, 0, "a total of 3 responses lies outside of what the bounds allow, 0 to 2"),
            ([[1, 1]], 0, 1, "a total of 0 responses .* 1 to 2"),
            ([[1, 1]], 2, 3, "a total of 2 responses"),
            ([1, 1], 1, 0, r"gains must be finite, by prompt and response; got shape \(2,\)"),
            ([[1, math.nan]], 1, 0, "gains must be finite"),
        ],
    )
    def test_refuses(self, gains: Any, total: int, minimum: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            greedy_counts(gains, total, minimum)

    def test_no_prompts(self) -> None:
        assert greedy_counts(np.zeros((0, 4)), 0).size == 0


# Rates 2/12, 6/12, 7/12, 11/12 and 1/12 under Beta(1, 1).
SEEN = remembered([1, 5, 6, 10, 0], [9, 5, 4, 0, 10])
RATES = np.array([2, 6, 7, 11, 1]) / 12


def one_round(budget: Allocation) -> IntArray:
    counts = budget.counts(state(np.zeros(5), np.zeros(5), history=SEEN))
    assert counts.sum() == budget.total(5)
    return counts


class TestFormulas:
    def test_neyman_is_in_proportion_to_the_spread(self) -> None:
        # sqrt(p q) ~ sqrt(20), sqrt(36), sqrt(35), sqrt(11), sqrt(11) over 12.
        spread = np.sqrt([20, 36, 35, 11, 11])
        exact = 500 * spread / spread.sum()
        counts = one_round(Neyman(average=100, maximum=400, minimum=0))
        assert np.abs(counts - exact).max() < 1
        # Neyman's optimum: no other split of the total has a smaller variance of the mean, sum p q / n.
        variance = (spread**2 / counts).sum()
        for i, j in itertools.permutations(range(5), 2):
            other = counts + np.eye(5, dtype=np.int64)[i] - np.eye(5, dtype=np.int64)[j]
            assert (spread**2 / other).sum() >= variance - 0.02

    def test_gvm_by_hand(self) -> None:
        shares = [1 / math.sqrt(p + 1e-3 / p) for p in RATES]
        exact = 500 * np.array(shares) / sum(shares)
        assert np.abs(one_round(GVM(average=100, maximum=400, minimum=0)) - exact).max() < 1
        # alpha holds back: with alpha = 1, the smallest rate has the smallest share.
        assert one_round(GVM(average=100, maximum=400, minimum=0, alpha=1.0)).argmin() == 4

    @pytest.mark.parametrize("power", [0.5, 1.0])
    def test_est_by_hand(self, power: float) -> None:
        # Beta(1, 16) and ten remembered responses.
        rates = (np.array([1, 5, 6, 10, 0]) + 1) / 27
        shares = (rates + 1e-3) ** -power
        exact = 500 * shares / shares.sum()
        assert np.abs(one_round(Est(average=100, maximum=400, minimum=0, power=power)) - exact).max() < 1

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5), st.data())
    def test_knapsack_is_the_optimum(self, seen: list[tuple[int, int]], data: st.DataObject) -> None:
        past = np.array(seen).T
        average = data.draw(st.floats(2, 7))
        budget = Knapsack(average=average, maximum=7)
        counts = budget.counts(state(0 * past[0], 0 * past[0], history=remembered(*past)))
        rates = (past[0] + 1) / (past.sum(axis=0) + 2)
        p, n = rates[:, None], np.arange(8)
        utilities = (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2
        best = best_by_dp(utilities, budget.total(len(seen)), np.full(len(seen), 2))
        assert utility_of(utilities, counts) == pytest.approx(best, abs=1e-12)

    @pytest.mark.parametrize("baseline", ["leave_one_out", "group_mean"])
    @given(seen=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5), data=st.data())
    def test_vip_is_the_optimum(self, baseline: Any, seen: list[tuple[int, int]], data: st.DataObject) -> None:
        past = np.array(seen).T
        least = 2 if baseline == "leave_one_out" else 3
        average = data.draw(st.floats(least, 7))
        budget = VIP(average=average, maximum=7, minimum=least, baseline=baseline)
        counts = budget.counts(state(0 * past[0], 0 * past[0], history=remembered(*past)))
        rates = (past[0] + 1) / (past.sum(axis=0) + 2)
        n = np.arange(least, 8)
        variance = np.full(8, np.inf)
        variance[least:] = 1 / (n - 1) if baseline == "leave_one_out" else (n - 1) / n**2
        utilities = -np.multiply.outer(rates * (1 - rates), variance)
        best = best_by_dp(utilities, budget.total(len(seen)), np.full(len(seen), least))
        assert utility_of(utilities, counts) == pytest.approx(best, abs=1e-12)

    def test_vip_lies_within_one_of_the_real_valued_water_filling(self) -> None:
        rng = np.random.default_rng(3)
        past = remembered(rng.integers(0, 30, 200), rng.integers(0, 30, 200))
        budget = VIP(average=9, maximum=24)
        counts = budget.counts(state(np.zeros(200), np.zeros(200), history=past))
        rates = (past.pos + 1) / (past.pos + past.neg + 2)
        spread = np.sqrt(4 * rates * (1 - rates))

        def split(price: float) -> FloatArray:
            return np.clip(1 + spread / math.sqrt(price), 2, 24)

        price = brentq(lambda price: split(price).sum() - 1800, 1e-6, 10, xtol=1e-15)
        assert np.abs(counts - split(price)).max() < 1 + 1e-9

    def test_greedy_is_the_optimum_of_expected_signal(self) -> None:
        # Under Beta posteriors; the pools of a pilot of 2, of which one holds both classes.
        pos, neg = np.array([0, 1, 2, 0]), np.array([2, 1, 0, 2])
        past = remembered([0.0, 3.0, 4.5, 1.8], [0.0, 1.0, 0.9, 7.2])
        prior = Beta(0.7, 1.3)
        for average in (2.0, 3.5, 4.75, 6.0):
            budget = Greedy(average=average, maximum=7, pilot=2, prior=prior)
            more = budget.counts(state(pos, neg, at=1, history=past))
            utilities = np.zeros((4, 8))
            for i in range(4):
                a, b = prior.a + past.pos[i] + pos[i], prior.b + past.neg[i] + neg[i]
                for n in range(2, 8):
                    # P(n - 2 more responses bring what the pool lacks), Beta-binomial.
                    none = math.exp(betaln(a, b + n - 2) - betaln(a, b)) if pos[i] == 0 else 0.0
                    every = math.exp(betaln(a + n - 2, b) - betaln(a, b)) if neg[i] == 0 else 0.0
                    utilities[i, n] = 1 - none - every
            best = best_by_dp(utilities, budget.total(4), np.full(4, 2))
            assert utility_of(utilities, 2 + more) == pytest.approx(best, abs=1e-12)
            # The pool with both classes gains nothing; it gets more only when the others are full.
            assert more[1] == 0 or (more[[0, 2, 3]] == 5).all()

    def test_greedy_without_a_pilot_is_the_optimum_as_well(self) -> None:
        past = remembered([1.0, 4.0, 0.0], [5.0, 0.0, 0.0])
        budget = Greedy(average=3, maximum=6, minimum=1)
        counts = budget.counts(state(np.zeros(3), np.zeros(3), history=past))
        a, b = past.pos[:, None] + 1, past.neg[:, None] + 1
        n = np.arange(7)
        chance = 1 - np.exp(betaln(a, b + n) - betaln(a, b)) - np.exp(betaln(a + n, b) - betaln(a, b))
        chance[:, 0] = 0
        assert utility_of(chance, counts) == pytest.approx(best_by_dp(chance, 9, np.ones(3, dtype=np.int64)), abs=1e-12)

    def test_hora_is_the_optimum_of_expected_first_successes(self) -> None:
        # P(a correct one among m more) = 1 - B(a, b + m) / B(a, b), Beta-binomial, whatever the pilot held.
        pos, neg = np.array([0, 1, 4, 2]), np.array([4, 3, 0, 2])
        past = remembered([0.0, 3.0, 4.5, 1.8], [0.0, 1.0, 0.9, 7.2])
        for average in (4.0, 5.5, 7.25, 9.0):
            budget = Hora(average=average, maximum=10, pilot=4)
            more = budget.counts(state(pos, neg, at=1, history=past))
            a, b = (1 + past.pos + pos)[:, None], (1 + past.neg + neg)[:, None]
            m = np.arange(7)
            utilities = np.pad(1 - np.exp(betaln(a, b + m) - betaln(a, b)), ((0, 0), (4, 0)))
            best = best_by_dp(utilities, budget.total(4), np.full(4, 4))
            assert utility_of(utilities, 4 + more) == pytest.approx(best, abs=1e-12)

    def test_hora_gives_its_first_extra_response_to_what_was_always_correct(self) -> None:
        # First gains (1 + c) / 6, second ones times (5 - c) / 7: 3/6 * 3/7 of c = 2 is above 1/6 of c = 0, and so are
        # the 4/21 of c = 1 and c = 3.
        pos = np.arange(5)
        for extra, expected in ((1, [0, 0, 0, 0, 1]), (4, [0, 1, 1, 1, 1]), (5, [0, 1, 2, 1, 1]), (8, [1, 2, 2, 2, 1])):
            budget = Hora(average=4 + extra / 5, maximum=64, pilot=4)
            assert budget.counts(state(pos, 4 - pos, at=1)).tolist() == expected

    @pytest.mark.parametrize("failing", [0.9, 0.3])
    def test_coba_rl_is_the_optimum(self, failing: float) -> None:
        past = remembered([1, 2, 1, 0, 4], [9, 8, 9, 10, 6]) if failing > 0.5 else remembered(*np.full((2, 5), 5.0))
        past = past if failing > 0.5 else remembered([9, 8, 9, 10, 6], [1, 2, 1, 0, 4])
        rates = (past.pos + 1) / (past.pos + past.neg + 2)
        # Failure rates 1 - 13/60 and 1 - 47/60; the sigmoid below one half.
        follows = 1 - 13 / 60 if failing > 0.5 else 1 / (1 + math.exp(-10 * (13 / 60 - 0.5)))
        budget = CobaRL(average=4.5, maximum=12, tau=0.5)
        assert budget.alpha(rates) == pytest.approx(1 + 9 * follows, rel=1e-12)
        counts = budget.counts(state(np.zeros(5), np.zeros(5), history=past))
        density = beta_law.pdf(rates, 1 + 9 * follows, 10 - 9 * follows)
        n = np.arange(13)
        utilities = density[:, None] * (1 - np.exp(-np.multiply.outer(rates * (1 - rates) / 0.5, n)))
        best = best_by_dp(utilities, budget.total(5), np.full(5, 2))
        assert utility_of(utilities, counts) == pytest.approx(best, rel=1e-12)

    def test_alpha_of_coba_rl_is_clipped(self) -> None:
        budget = CobaRL(least=2.0, most=4.0, slope=3.0)
        assert [budget.alpha(np.full(3, rate)) for rate in (1.0, 0.5, 0.0)] == pytest.approx(
            [2.02007, 3.5, 4.0], abs=1e-5
        )

    def test_dynamo_by_hand(self) -> None:
        # k of G over all steps, 24 beyond the minimum: k (G - k) / (G (G - 1)) + 1e-6 (1 - k/G).
        past = remembered([5, 1, 0, 9, 8], [5, 9, 10, 1, 2])
        shares = np.array([25 / 90 + 5e-7, 9 / 90 + 9e-7, 0.01, 0.01, 16 / 90 + 2e-7])
        counts = Dynamo(average=2 + 480, maximum=4096, minimum=2).counts(state(np.zeros(5), np.zeros(5), history=past))
        assert np.abs(counts - 2 - 2400 * shares / shares.sum()).max() < 1
        # 9 of 10 count as solved, 8 of 10 do not; where 3/4 is enough both do.
        counts = Dynamo(average=100, maximum=4096, solved=0.75).counts(state(np.zeros(5), np.zeros(5), history=past))
        assert counts[3] == counts[4] == counts[2]

    def test_dynamo_first_brings_every_prompt_to_four_responses(self) -> None:
        past = remembered([0, 1, 0, 5], [0, 1, 3, 5])
        # They lack 4, 2, 1 and 0 of the first four.
        assert Dynamo(average=1.75, minimum=0).counts(state([0] * 4, [0] * 4, history=past)).tolist() == [4, 2, 1, 0]
        assert Dynamo(average=1, minimum=1).counts(state([0] * 4, [0] * 4, history=past)).tolist() == [1] * 4
        # Where the total falls short, what is lacked is the share: 4 of 7 go to 2.29, 1.14 and 0.57.
        assert Dynamo(average=1, minimum=0).counts(state([0] * 4, [0] * 4, history=past)).tolist() == [2, 1, 1, 0]
        # A pilot counts for the four.
        more = Dynamo(average=3, minimum=0, pilot=2).counts(state([1] * 4, [1] * 4, at=1, history=past))
        assert more.tolist()[0] >= 2
        assert more.sum() == 4

    def test_ranks_by_hand(self) -> None:
        # Rates 2, 6, 7, 11 and 1 of 12: ranks 4, 3, 2, 1 and 5, which share 15 beyond the minimum of 2 each.
        assert one_round(Ranked(average=5, maximum=32, minimum=2)).tolist() == [6, 5, 4, 3, 7]
        # Two of one rate share the ranks 2 and 3.
        past = remembered([1, 5, 5, 10], [9, 5, 5, 0])
        counts = Ranked(average=4.5, maximum=32, minimum=2).counts(state([0] * 4, [0] * 4, history=past))
        assert counts.tolist() == [6, 5, 4, 3]
        counts = Ranked(average=7, maximum=32, minimum=2).counts(state([0] * 4, [0] * 4, history=past))
        assert counts.tolist() == [10, 7, 7, 4]

    def test_a_rate_of_exactly_0_or_1_keeps_its_minimum(self) -> None:
        # Only a prior on single rates believes in them; then every formula must stay finite.
        prior = Grid([0.0, 1.0])
        for kind in (Neyman, GVM, Est, Knapsack, VIP, Greedy, Hora, CobaRL, Dynamo, Ranked):
            budget = kind(average=5, maximum=9, pilot=2, prior=prior)
            more = budget.counts(state([2, 0, 2], [0, 2, 0], at=1))
            assert more.sum() == 9
            assert (more >= 0).all()
        with pytest.raises(InputError, match="the prior rules out 1 correct and 1 incorrect responses, which prompt 1"):
            Neyman(average=5, pilot=2, prior=prior).counts(state([2, 1], [0, 1], at=1))


ALLOCATIONS: list[Allocation] = [
    kind(average=average, maximum=maximum, minimum=minimum, pilot=pilot, **more)
    for kind, more in (
        (Neyman, {}),
        (GVM, {}),
        (Est, {"power": 1.0}),
        (Knapsack, {}),
        (VIP, {}),
        (VIP, {"baseline": "group_mean"}),
        (Greedy, {}),
        (Hora, {}),
        (CobaRL, {"kappa": 7.0, "most": 5.0}),
        (Dynamo, {"seen": 6}),
        (Ranked, {}),
    )
    for average, maximum, minimum, pilot in ((4.3, 9, 3, 0), (6.55, 12, 3, 4), (5.0, 5, 3, 5), (7.5, 8, 4, 2))
]
NAMES = [f"{b.name}, {b.average:g}, pilot {b.pilot}, {getattr(b, 'baseline', '')}" for b in ALLOCATIONS]


def policy_of(budget: Any) -> Policy:
    return Policy(rule=Quota(1, 1), budget=budget, group_size=min(2, budget.maximum), advantage=LeaveOneOut())


def rewards_of(ids: IntArray, prompts: IntArray, draws: IntArray, rates: FloatArray, unscored: float) -> FloatArray:
    rewards = np.where(uniform(9, 0, prompts, draws) < rates[prompts], 1.0, 0.0)
    return np.where(uniform(9, 7, prompts, draws) < unscored, math.nan, rewards)


def run(
    budget: Any, rates: npt.ArrayLike, unscored: float = 0.0, history: History | None = None, seed: int = 4
) -> tuple[Allocator, int]:
    p = np.asarray(rates, dtype=np.float64)
    allocator = Allocator(policy_of(budget), p.size, seed, history=history)
    rounds = 0
    while request := allocator.ask():
        rounds += 1
        allocator.tell(request.ids, rewards_of(request.ids, request.prompts, request.draws, p, unscored))
    return allocator, rounds


@pytest.mark.parametrize("budget", ALLOCATIONS, ids=NAMES)
class TestAllocations:
    @pytest.mark.parametrize("unscored", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("rates", [[], [0.3], [0.0] * 7, [1.0] * 7, [0.0, 0.02, 0.2, 0.5, 0.5, 0.9, 1.0] * 3])
    def test_spend_exactly_the_total_within_bounds(
        self, budget: Allocation, rates: list[float], unscored: float
    ) -> None:
        allocator, rounds = run(budget, rates, unscored)
        groups, metrics = allocator.groups(), allocator.metrics()
        spent = np.bincount(
            np.array(allocator.state_dict()["ids"], dtype=np.int64) // budget.maximum, minlength=len(rates)
        )
        assert spent.sum() == metrics["responses"] == math.floor(budget.average * len(rates) + 0.5)
        assert (spent <= budget.maximum).all()
        assert (spent >= max(budget.minimum, budget.pilot)).all()
        assert rounds == metrics["rounds"] <= (2 if budget.pilot else 1)
        assert metrics["running"] == 0
        np.testing.assert_array_equal(groups.mask.sum(axis=1), np.minimum(groups.pos + groups.neg, 2))

    def test_equal_prompts_get_equal_counts_up_to_one(self, budget: Allocation) -> None:
        # All unseen, and all alike after the pilot: none is favoured for its place in the batch.
        for rate in (0.0, 1.0):
            allocator, _ = run(budget, np.full(13, rate))
            spent = np.bincount(np.array(allocator.state_dict()["ids"], dtype=np.int64) // budget.maximum)
            assert np.ptp(spent) <= 1

    def test_the_history_is_used(self, budget: Allocation) -> None:
        # A prompt of which half the responses were right against prompts that were always wrong.
        known = remembered([0, 0, 0, 20, 0, 0], [400, 400, 400, 20, 400, 400])
        more = run(budget, np.zeros(6), history=known)[0].groups()
        counts = more.pos + more.neg
        assert counts[3] == (counts.min() if isinstance(budget, (Est, GVM, Ranked)) else counts.max())
        # Where there is anything to decide.
        assert counts.min() < counts.max() or budget.average == budget.maximum

    @pytest.mark.parametrize("when", ["half a round", "between rounds", "at the start"])
    def test_a_restart_changes_nothing_nor_does_the_order_of_replies(self, budget: Allocation, when: str) -> None:
        rates = np.linspace(0, 1, 11)
        rng = np.random.default_rng(1)
        known = remembered(rng.integers(0, 9, 11) * 0.9, rng.integers(0, 9, 11) * 0.9)
        expected = run(budget, rates, 0.2, known)[0]

        def again(old: Allocator) -> Allocator:
            # The history is part of the state: the memory may have moved on.
            new = Allocator(policy_of(budget), 11, 4)
            new.load_state_dict(old.state_dict())
            for key, value in old.state_dict().items():
                np.testing.assert_array_equal(new.state_dict()[key], value, err_msg=key)
            return new

        allocator = Allocator(policy_of(budget), 11, 4, history=known)
        if when == "at the start":
            allocator = again(allocator)
        while request := allocator.ask():
            rewards = rewards_of(request.ids, request.prompts, request.draws, rates, 0.2)
            for count, at in enumerate(rng.permutation(len(request))):
                if when == "half a round" and count == len(request) // 2:
                    allocator = again(allocator)
                assert not allocator.done
                # Nothing is asked before the round is complete.
                assert not allocator.ask()
                assert allocator.metrics()["running"] == 11
                allocator.tell([request.ids[at]], [rewards[at]])
            if when == "between rounds":
                allocator = again(allocator)
        assert allocator.done
        for name, value in vars(expected.groups()).items():
            np.testing.assert_array_equal(getattr(allocator.groups(), name), value, err_msg=name)
        assert allocator.metrics() == pytest.approx(expected.metrics(), nan_ok=True)

    def test_policy_files_hold_it(self, budget: Allocation) -> None:
        policy = policy_of(budget)
        assert Policy.from_toml(policy.to_toml()) == policy
        assert budget_from_dict(budget.to_dict()) == budget


class TestKnownFaults:
    """What public implementations get wrong, each with what it must be."""

    @pytest.mark.parametrize("kind", [Neyman, GVM, Knapsack, VIP, Greedy, Est, Hora, CobaRL, Dynamo, Ranked])
    def test_a_prompt_without_a_correct_response_is_not_starved_for_ever(self, kind: type[Allocation]) -> None:
        # GVM's code gives it nothing once p-hat is 0; so it never finds out.
        budget = kind(average=4, maximum=16, minimum=2)
        memory = PassRateMemory(decay=0.9)
        keys, rates = list(range(8)), np.array([0.0, *np.linspace(0.2, 0.9, 7)])
        for step in range(20):
            allocator, _ = run(budget, rates, history=memory.recall(keys), seed=step)
            groups = allocator.groups()
            assert (groups.pos + groups.neg >= 2).all()
            memory.update(keys, groups.pos, groups.neg)

    @pytest.mark.parametrize("kind", [Neyman, Knapsack, VIP, Greedy])
    def test_an_unseen_prompt_is_not_taken_for_a_hopeless_one(self, kind: type[Allocation]) -> None:
        # The knapsack's code takes p-hat = 0 for it.
        known = remembered([0, 0, 0], [0, 300, 300])
        counts = kind(average=4, maximum=8, minimum=2).counts(state(np.zeros(3), np.zeros(3), history=known))
        assert counts.tolist() == [8, 2, 2]

    def test_no_spread_does_not_mean_no_responses(self) -> None:
        # CurES: sigma = 0 gives n = 0.
        budget = Neyman(average=4, maximum=8, minimum=1, prior=Grid([0.0, 1.0]))
        known = remembered([0, 9, 0], [9, 0, 9])
        assert budget.counts(state(np.zeros(3), np.zeros(3), history=known)).tolist() == [4, 4, 4]

    def test_the_fewest_and_the_most_include_the_pilot(self) -> None:
        allocator, _ = run(Knapsack(average=6, maximum=8, minimum=5, pilot=4), [0.0, 0.0, 0.5, 0.5])
        spent = np.bincount(np.array(allocator.state_dict()["ids"], dtype=np.int64) // 8)
        assert spent.sum() == 24
        assert spent.min() >= 5
        assert spent.max() <= 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Neyman(average=1.5), "average must lie between minimum or pilot, 2, and maximum, 32; got 1.5"),
        (lambda: Neyman(average=3, pilot=4), "average must lie between minimum or pilot, 4, .*; got 3.0"),
        (lambda: Neyman(average=33), "and maximum, 32; got 33.0"),
        (lambda: Neyman(minimum=-1), "minimum must be a whole number of at least 0; got -1"),
        (lambda: Neyman(pilot=2.5), "pilot must be a whole number .*; got 2.5"),  # type: ignore[arg-type]
        (lambda: Neyman(prior="beta"), "the law 'beta' needs a, b"),  # type: ignore[arg-type]
        (lambda: VIP(minimum=1), "minimum must be at least 2 under 'vip' with leave_one_out, .*; got 1"),
        (lambda: VIP(baseline="group_mean"), "minimum must be at least 3 under 'vip' with group_mean, .*; got 2"),
        (lambda: VIP(baseline="loo"), "unknown baseline 'loo'; known: group_mean, leave_one_out"),  # type: ignore[arg-type]
        (lambda: GVM(alpha=-1), "alpha must be a finite number in .*; got -1"),
        (lambda: Est(eps=-0.5), "eps must be a finite number in .*; got -0.5"),
        (lambda: Mopps(target=2), "target must be a finite number in .*; got 2"),
        (lambda: Mopps(prior=Grid([0.5])), "the prior of 'mopps' must be a Beta law; got Grid"),
        (lambda: Greso(easy=1.5), "easy must be a finite number in .*; got 1.5"),
        (lambda: Refill(rounds=0), "rounds must be a whole number of at least 1; got 0"),
        (lambda: Refill(wanted=0), "wanted must be a whole number of at least 1; got 0"),
    ],
)
def test_refuses(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def naive_refill(rates: FloatArray, wanted: int, n: int, rounds: int, admitted: list[bool]) -> list[list[int]]:
    """The prompts of each round: the next admitted ones in order, as many as are missing."""
    queue = [i for i in range(rates.size) if admitted[i]]
    asked: list[list[int]] = []
    signal = 0
    while len(asked) < rounds and queue and signal < wanted:
        now, queue = queue[: wanted - signal], queue[wanted - signal :]
        asked.append(now)
        for i in now:
            outcome = uniform(9, 0, np.full(n, i), np.arange(n)) < rates[i]
            signal += 0 < outcome.sum() < n
    return asked


def asked_of(budget: Selection, rates: FloatArray, history: History | None = None, seed: int = 4) -> list[list[int]]:
    allocator = Allocator(policy_of(budget), rates.size, seed, history=history)
    asked = []
    while request := allocator.ask():
        prompts, counts = np.unique(request.prompts, return_counts=True)
        assert (counts == budget.maximum).all()
        asked.append(prompts.tolist())
        allocator.tell(request.ids, rewards_of(request.ids, request.prompts, request.draws, rates, 0.0))
    assert allocator.done
    return asked


class TestSelections:
    @given(
        rates=st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), max_size=30),
        wanted=st.integers(1, 12),
        n=st.integers(2, 4),
        rounds=st.integers(1, 6),
    )
    def test_refill_asks_for_no_more_prompts_than_are_missing(
        self, rates: list[float], wanted: int, n: int, rounds: int
    ) -> None:
        p = np.array(rates)
        ours = asked_of(Refill(wanted=wanted, maximum=n, rounds=rounds), p)
        assert ours == naive_refill(p, wanted, n, rounds, [True] * p.size)

    def test_refill_returns_what_it_has_when_the_cap_is_reached(self) -> None:
        # DAPO's code raises an error there.
        allocator, rounds = run(Refill(wanted=4, maximum=3, rounds=2), [0.0] * 3 + [0.5] * 3 + [0.0] * 9)
        groups = allocator.groups()
        assert rounds == 2
        assert 0 < groups.signal.sum() < 4
        assert allocator.metrics()["responses"] <= 3 * (4 + 4)
        # No candidate is left: the same.
        allocator, _ = run(Refill(wanted=5, maximum=3), [0.0, 1.0, 0.5])
        assert allocator.done
        assert allocator.metrics()["responses"] == 9
        assert allocator.groups().mask.sum(axis=1).tolist() == [2, 2, 2]

    def test_refill_without_a_score(self) -> None:
        allocator, rounds = run(Refill(wanted=2, maximum=2, rounds=3), [0.5] * 9, unscored=1.0)
        assert rounds == 3
        assert allocator.metrics()["unscored"] == 12
        assert not allocator.groups().mask.any()

    def test_greso_skips_by_streak_with_the_stated_chances(self) -> None:
        size = 40_000
        solved, failed = np.repeat([0, 1, 2, 9, 0, 0, 0, 0], size // 8), np.repeat([0, 0, 0, 0, 1, 2, 3, 9], size // 8)
        history = visited(solved, failed)
        budget = Greso(wanted=size, maximum=2, easy=0.5, hard=0.7, least=0.05)
        admitted = budget.counts(state(np.zeros(size), np.zeros(size), history=history, seed=8)) > 0
        share = admitted.reshape(8, -1).mean(axis=1)
        expected = np.array([1, 0.5, 0.25, 0.05, 0.7, 0.49, 0.343, 0.05])
        assert np.abs(share - expected).max() < 5 * math.sqrt(0.25 / (size / 8))

    def test_greso_is_refill_over_the_admitted_prompts(self) -> None:
        rng = np.random.default_rng(2)
        size = 60
        streaks = rng.integers(0, 4, (2, size)) * rng.integers(0, 2, size)
        streaks[1, streaks[0] > 0] = 0
        history = visited(streaks[0], streaks[1])
        rates = rng.choice([0.0, 0.3, 0.8], size)
        chance = np.maximum(np.minimum(0.5 ** streaks[0], 0.5 ** streaks[1]), 0.01)
        admitted = (uniform(4, 3, np.arange(size), 0) < chance).tolist()
        ours = asked_of(Greso(wanted=9, maximum=3, rounds=5), rates, history)
        assert ours == naive_refill(rates, 9, 3, 5, admitted)

    def test_mopps_takes_the_posterior_draws_closest_to_the_target(self) -> None:
        rng = np.random.default_rng(5)
        history = remembered(rng.integers(0, 12, 50) * 0.7, rng.integers(0, 12, 50) * 0.7)
        for seed in range(5):
            ours = asked_of(Mopps(wanted=7, maximum=3, target=0.4, prior=Beta(2, 1)), np.full(50, 0.5), history, seed)
            draws = [
                betaincinv(2 + history.pos[i], 1 + history.neg[i], float(uniform(seed, 3, i, 1))) for i in range(50)
            ]
            assert ours == [sorted(sorted(range(50), key=lambda i: abs(draws[i] - 0.4))[:7])]

    def test_mopps_prefers_medium_prompts_and_still_tries_unseen_ones(self) -> None:
        history = remembered([0] * 50 + [50] * 50 + [0] * 50, [100] * 50 + [50] * 50 + [0] * 50)
        chosen = np.zeros(150)
        for seed in range(60):
            chosen += Mopps(wanted=50, maximum=2).counts(
                state(np.zeros(150), np.zeros(150), history=history, seed=seed)
            )
        assert chosen[:50].sum() == 0
        assert chosen[50:100].sum() > 3 * chosen[100:].sum() > 0

    @pytest.mark.parametrize("budget", [Refill(wanted=3), Greso(wanted=3), Mopps(wanted=3)])
    def test_fewer_candidates_than_wanted(self, budget: Selection) -> None:
        for size in (0, 1, 2):
            allocator, _ = run(budget, np.full(size, 0.5))
            assert allocator.metrics()["responses"] == 4 * size
            assert allocator.groups().ids.shape[0] == size

    @pytest.mark.parametrize("budget", [Refill(wanted=3), Greso(wanted=3, easy=0.3), Mopps(wanted=3, prior=Beta(2, 2))])
    def test_policy_files_hold_it(self, budget: Selection) -> None:
        assert Policy.from_toml(policy_of(budget).to_toml()) == policy_of(budget)


def test_allocations_work_under_a_fitted_prior() -> None:
    prior = fit_prior([0, 0, 3, 4, 1], [4, 4, 1, 0, 3])
    for kind in (Neyman, GVM, Est, Knapsack, VIP, Greedy):
        assert kind(average=4, maximum=9, pilot=2, prior=prior).counts(state([0, 1, 2], [2, 1, 0], at=1)).sum() == 6
