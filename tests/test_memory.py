"""The memory by hand, and the fit of the pass-rate law: its optimum, its certificate, adaptively stopped pools."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from ada_bandit import Allocator, Beta, Policy, Positive, Rounds, uniform
from ada_bandit._types import IntArray
from ada_bandit.errors import InputError
from ada_bandit.fitting import default_grid, fit_prior
from ada_bandit.history import History
from ada_bandit.laws import Grid, Law
from ada_bandit.memory import PassRateMemory
from ada_bandit.uniforms import Stream


class TestMemory:
    def test_decay_by_hand(self) -> None:
        memory = PassRateMemory(decay=0.5)
        memory.update(["a", "b"], [4, 0], [0, 4])
        memory.update(["b"], [1], [3])
        memory.update(["a", "b"], [2, 0], [2, 1])
        history = memory.recall(["b", "a", "c"])
        # b: neg 4/4 + 3/2 + 1, pos 0 + 1/2 + 0; a: pos 4/2 + 2, as it was visited twice only.
        assert history.pos.tolist() == [0.5, 4, 0]
        assert history.neg.tolist() == [3.5, 2, 0]
        assert history.visits.tolist() == [3, 2, 0]

    @pytest.mark.parametrize(("decay", "pos"), [(1.0, 6.0), (0.0, 3.0)])
    def test_decay_at_its_ends(self, decay: float, pos: float) -> None:
        memory = PassRateMemory(decay)
        for count in (1, 2, 3):
            memory.update([7], [count], [0])
        assert memory.recall([7]).pos.tolist() == [pos]

    def test_streaks(self) -> None:
        memory = PassRateMemory()
        seen = []
        for pos, neg in ((4, 0), (2, 0), (3, 1), (0, 4), (0, 1), (0, 0), (0, 2), (1, 1)):
            memory.update(["a"], [pos], [neg])
            history = memory.recall(["a"])
            seen.append((int(history.solved_streak[0]), int(history.failed_streak[0])))
        # The pool without a score leaves the streak as it was.
        assert seen == [(1, 0), (2, 0), (0, 0), (0, 1), (0, 2), (0, 2), (0, 3), (0, 0)]

    def test_pools_without_a_score_are_left_alone(self) -> None:
        memory = PassRateMemory(decay=0.5)
        memory.update(["a", "b"], [1, 0], [1, 0])
        assert len(memory) == 1
        before = pickle.dumps(memory.state_dict())
        memory.update(["a", "b"], [0, 0], [0, 0])
        assert pickle.dumps(memory.state_dict()) == before
        memory.update([], [], [])
        assert pickle.dumps(memory.state_dict()) == before

    def test_any_hashable_is_a_key(self) -> None:
        keys: list[Any] = ["a", 1, (1, "b"), frozenset({2}), None, 2.5]
        memory = PassRateMemory()
        memory.update(keys, range(6), [1] * 6)
        assert memory.recall(keys[::-1]).pos.tolist() == [5, 4, 3, 2, 1, 0]
        # A key may be asked for twice, and NumPy's whole numbers are Python's.
        assert memory.recall(np.array([1, 1])).pos.tolist() == [1, 1]  # type: ignore[arg-type]

    @given(st.data())
    def test_equals_the_naive_twin(self, data: st.DataObject) -> None:
        decay = data.draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
        memory = PassRateMemory(decay)
        naive: dict[int, list[float]] = {}
        for _ in range(data.draw(st.integers(0, 6))):
            keys = data.draw(st.lists(st.integers(0, 5), unique=True))
            counts = [data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3))) for _ in keys]
            memory.update(keys, [pos for pos, _ in counts], [neg for _, neg in counts])
            for key, (pos, neg) in zip(keys, counts, strict=True):
                if pos + neg:
                    a, b, visits, solved, failed = naive.get(key, [0, 0, 0, 0, 0])
                    naive[key] = [
                        decay * a + pos,
                        decay * b + neg,
                        visits + 1,
                        (solved + 1) * (neg == 0),
                        (failed + 1) * (pos == 0),
                    ]
            state = pickle.loads(pickle.dumps(memory.state_dict()))  # noqa: S301 - our own bytes
            memory = PassRateMemory()
            memory.load_state_dict(state)
        history = memory.recall(range(6))
        expected = np.array([naive.get(key, [0] * 5) for key in range(6)]).T
        np.testing.assert_allclose(np.stack(list(vars(history).values())), expected, rtol=1e-14)
        assert len(memory) == len(naive)

    def test_a_restored_memory_is_a_copy(self) -> None:
        memory, other = PassRateMemory(0.9), PassRateMemory(0.1)
        memory.update(["a"], [1], [2])
        other.load_state_dict(memory.state_dict())
        other.update(["a"], [1], [2])
        assert other.decay == 0.9
        assert other.recall(["a"]).neg.tolist() == [3.8]
        assert memory.recall(["a"]).neg.tolist() == [2]

    @pytest.mark.parametrize(
        ("keys", "pos", "neg", "message"),
        [
            (["a", "b", "a"], [1, 1, 1], [0, 0, 0], "the key 'a' stands twice; add up a prompt's pools"),
            (["a"], [1, 1], [0], r"pos must be 1 counts of at least 0, one a prompt; got \[1, 1\]"),
            (["a"], [1], [], r"neg must be 1 counts of at least 0, one a prompt; got \[\]"),
            (["a"], [-1], [0], r"pos must be 1 counts of at least 0, one a prompt; got \[-1\]"),
            (["a"], [1], [math.nan], r"neg must be 1 counts .*; got \[nan\]"),
            (["a"], ["x"], [0], r"pos must be counts, one a prompt; got \['x'\]"),
        ],
    )
    def test_wrong_updates_change_nothing(self, keys: list[str], pos: Any, neg: Any, message: str) -> None:
        memory = PassRateMemory()
        memory.update(["z"], [1], [1])
        before = pickle.dumps(memory.state_dict())
        with pytest.raises(InputError, match=message):
            memory.update(keys, pos, neg)
        assert pickle.dumps(memory.state_dict()) == before

    def test_wrong_construction_and_half_a_state(self) -> None:
        with pytest.raises(InputError, match=r"decay must be a finite number in \[0, 1\]; got 1.5"):
            PassRateMemory(1.5)
        with pytest.raises(InputError, match="the state lacks counts, visits"):
            PassRateMemory().load_state_dict({"decay": 1, "keys": []})


class TestPredict:
    @given(
        a=st.floats(0.1, 20), b=st.floats(0.1, 20), pos=st.floats(0, 50), neg=st.floats(0, 50), new=st.integers(0, 30)
    )
    def test_a_beta_prior_has_the_closed_form(self, a: float, b: float, pos: float, neg: float, new: int) -> None:
        history = History(np.array([pos]), np.array([neg]), *np.zeros((3, 1), dtype=np.int64))
        rate = history.predict(Beta(a, b), [new], [2 * new])[0]
        assert rate == pytest.approx((a + pos + new) / (a + b + pos + neg + 3 * new), rel=1e-9)

    def test_a_grid_prior_by_hand(self) -> None:
        history = History.empty(3)
        rates = history.predict(Grid([0.2, 0.8]), [0, 1, 2], [0, 0, 2])
        # (.04 + .64) / (.2 + .8) after a correct response; two of each leave the odds even.
        np.testing.assert_allclose(rates, [0.5, 0.68, 0.5], rtol=1e-14)

    def test_a_rate_is_never_beyond_its_ends(self) -> None:
        rates = History.empty(2).predict(Grid(default_grid()), [10**6, 0], [0, 10**6])
        assert rates[0] <= 1
        assert rates[1] >= 0
        np.testing.assert_allclose(rates, [1, 0], atol=1e-6)

    def test_a_prior_that_rules_out_what_was_seen(self) -> None:
        with pytest.raises(InputError, match="the prior rules out 1 correct and 2 incorrect responses, which prompt 1"):
            History.empty(2).predict(Grid([0.0, 1.0]), [0, 1], [3, 2])


def mean_log_likelihood(law: Law, pos: IntArray, neg: IntArray) -> float:
    cells, count = np.unique(np.stack([pos, neg]), axis=1, return_counts=True)
    return float(law.log_evidence(cells[0], cells[1]) @ count / count.sum())


def gap(law: Grid, pos: IntArray, neg: IntArray) -> float:
    """The largest slope of the mean log-likelihood towards an atom: no law on the grid gains more."""
    likelihood = law.pass_rates ** pos[:, None] * (1 - law.pass_rates) ** neg[:, None]
    return float((likelihood / (likelihood @ law.weights)[:, None]).mean(axis=0).max() - 1)


def plain_pools(law: Law, prompts: int, total: int, seed: int) -> tuple[IntArray, IntArray]:
    rates = law.quantile(uniform(seed, Stream.PASS_RATES, np.arange(prompts), 0))
    pos = np.random.default_rng(seed).binomial(total, rates)
    return pos, total - pos


def stopped_pools(policy: Policy, law: Law, prompts: int, seed: int) -> tuple[IntArray, IntArray]:
    rates = law.quantile(uniform(seed, Stream.PASS_RATES, np.arange(prompts), 0))
    allocator = Allocator(policy, prompts, seed)
    while request := allocator.ask():
        allocator.tell(request.ids, uniform(seed, 0, request.prompts, request.draws) < rates[request.prompts])
    groups = allocator.groups()
    return groups.pos, groups.neg


POOLS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(any), min_size=1, max_size=40)


class TestFit:
    def test_recovers_two_rates(self) -> None:
        # 20,000 pools of 24: the weights' standard error is .0035, the rates' about .001.
        law = Grid([0.1, 0.7], [0.6, 0.4])
        fit = fit_prior(*plain_pools(law, 20_000, 24, seed=1), tolerance=1e-7)
        assert fit.probability(0, 0.4) == pytest.approx(0.6, abs=0.02)
        assert fit.probability(0.06, 0.15) > 0.57
        assert fit.probability(0.65, 0.75) > 0.37
        for pos, neg in ((1, 0), (2, 0), (0, 4), (3, 3)):
            assert fit.evidence(pos, neg) == pytest.approx(law.evidence(pos, neg), abs=0.01)

    @pytest.mark.parametrize("rate", [0.0, 1.0])
    def test_pools_of_one_class(self, rate: float) -> None:
        pos, neg = plain_pools(Grid([rate]), 50, 8, seed=0)
        fit = fit_prior(pos, neg, tolerance=1e-9)
        assert fit.mean == pytest.approx(rate, abs=1e-6)
        assert mean_log_likelihood(fit, pos, neg) > -1e-8

    @given(pools=POOLS, tolerance=st.sampled_from([1e-2, 1e-4, 1e-8]), seed=st.integers(0, 99))
    def test_the_tolerance_is_kept_and_bounds_what_any_law_could_gain(
        self, pools: list[tuple[int, int]], tolerance: float, seed: int
    ) -> None:
        pos, neg = np.array(pools).T
        fit = fit_prior(pos, neg, tolerance=tolerance)
        assert gap(fit, pos, neg) <= tolerance * (1 + 1e-6) + 1e-12
        best = mean_log_likelihood(fit, pos, neg) + tolerance
        rng = np.random.default_rng(seed)
        for concentration in (0.02, 0.2, 2):
            other = Grid(default_grid(), rng.dirichlet(np.full(129, concentration)) + 1e-12)
            assert mean_log_likelihood(other, pos, neg) <= best

    @given(pools=POOLS)
    def test_equals_a_general_optimiser_on_a_small_grid(self, pools: list[tuple[int, int]]) -> None:
        pos, neg = np.array(pools).T
        grid = np.array([0.05, 0.3, 0.5, 0.8, 0.95])
        fit = fit_prior(pos, neg, grid=grid, tolerance=1e-10)
        likelihood = grid ** pos[:, None] * (1 - grid) ** neg[:, None]
        likelihood /= likelihood.max(axis=1, keepdims=True)
        found = minimize(
            lambda w: -np.log(likelihood @ w).mean(),
            np.full(5, 0.2),
            jac=lambda w: -(likelihood / (likelihood @ w)[:, None]).mean(axis=0),
            bounds=[(1e-12, 1)] * 5,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda _: np.ones(5)},
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        theirs = mean_log_likelihood(Grid(grid, np.maximum(found.x, 0)), pos, neg)
        ours = mean_log_likelihood(fit, pos, neg)
        assert theirs - ours <= 1e-9
        # The bound holds for a law that is no optimum as well.
        loose = fit_prior(pos, neg, grid=grid, tolerance=0.05)
        assert theirs - mean_log_likelihood(loose, pos, neg) <= max(gap(loose, pos, neg), 0) + 1e-9

    @pytest.mark.parametrize("iterations", [0, 3, 500])
    def test_the_optimum_is_the_same_from_anywhere(self, iterations: int) -> None:
        pos, neg = plain_pools(Beta(0.5, 1), 3000, 16, seed=2)
        cold = fit_prior(pos, neg, tolerance=1e-9)
        value = mean_log_likelihood(cold, pos, neg)
        # From a law with empty atoms, and from a law far off.
        for start in (Grid(default_grid(), np.arange(129) == 64), fit_prior([0], [30]), cold):
            warm = fit_prior(pos, neg, start=start, tolerance=1e-9, max_iterations=iterations)
            assert mean_log_likelihood(warm, pos, neg) == pytest.approx(value, abs=2e-9)
            np.testing.assert_allclose(warm.predictive(8), cold.predictive(8), atol=1e-5)

    def test_what_the_pools_leave_open_stays_as_it_was(self) -> None:
        # Single responses tell the mean alone: every law of this mean is a maximum.
        start = Grid(default_grid(), np.ones(129))
        fit = fit_prior([1] * 50 + [0] * 50, [0] * 50 + [1] * 50, start=start)
        np.testing.assert_allclose(fit.weights, start.weights, rtol=1e-12)

    def test_pools_without_a_score_and_the_order_of_pools_do_not_matter(self) -> None:
        fit = fit_prior([3, 1, 0], [0, 2, 3])
        assert fit_prior([0, 0, 1, 3], [3, 0, 2, 0]) == fit
        # Nor does how many prompts there are, if all are as many times over.
        np.testing.assert_allclose(fit_prior([3, 1, 0] * 7, [0, 2, 3] * 7).weights, fit.weights, rtol=1e-9)

    def test_long_pools_do_not_underflow(self) -> None:
        fit = fit_prior([0, 3000, 1500], [4000, 0, 1500])
        assert fit.probability(0, 0.01) == pytest.approx(1 / 3, abs=0.01)
        assert fit.probability(0.45, 0.55) == pytest.approx(1 / 3, abs=0.01)

    @pytest.mark.parametrize(
        ("pos", "neg", "options", "message"),
        [
            ([], [], {}, "a law needs at least one pool with a scored response; got 0 pools without"),
            ([0, 0], [0, 0], {}, "got 2 pools without"),
            ([1, 1], [1], {}, "neg must be 2 counts of at least 0"),
            ([-1], [1], {}, r"pos must be 1 counts of at least 0, one a prompt; got \[-1\]"),
            (["x"], [1], {}, r"pos must be counts, one a prompt; got \['x'\]"),
            ([1], [1], {"grid": [0.0, 1.0]}, "no pass rate of the grid explains 1 correct and 1 incorrect; widen it"),
            ([1], [1], {"start": Grid([0.5])}, "start must have the grid's 129 pass rates; got 1 others"),
            ([1], [1], {"max_iterations": -1}, "max_iterations must be a whole number of at least 0; got -1"),
        ],
    )
    def test_refuses(self, pos: Any, neg: Any, options: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            fit_prior(pos, neg, **options)


class TestTheStoppingRuleCancels:
    """A fit to adaptively stopped pools is a fit to plain ones, up to sampling error."""

    LAW = Beta(0.5, 1)
    PROMPTS = 12_000

    @pytest.mark.parametrize("name", ["reinforce-ada-balance", "reinforce-ada-pos", "one at a time"])
    def test_stopped_pools_give_the_law_of_plain_ones(self, name: str) -> None:
        policy = (
            Policy(rule=Positive(2), budget=Rounds(1, 24), group_size=4)
            if name == "one at a time"
            else Policy.preset(name)
        )
        pools = stopped_pools(policy, self.LAW, self.PROMPTS, seed=3)
        stopped = fit_prior(*pools, tolerance=1e-6)
        plain = fit_prior(*plain_pools(self.LAW, self.PROMPTS, 16, seed=4), tolerance=1e-6)
        # Every moment of the law lies in [0, 1] and has a standard error below .5 / sqrt(12,000) = .0046.
        for pos, neg in ((1, 0), (2, 0), (0, 2), (1, 1), (0, 8), (4, 0), (2, 6)):
            for fit in (stopped, plain):
                assert abs(fit.evidence(pos, neg) - self.LAW.evidence(pos, neg)) < 4 * 0.0046
        # On pools that neither has seen, both are as good as the law itself but for some parameters in 12,000.
        # Short ones: of long ones, a rule that ends easy prompts at two responses tells little.
        held_out = plain_pools(self.LAW, 50_000, 4, seed=5)
        best = mean_log_likelihood(self.LAW, *held_out)
        for fit in (stopped, plain):
            assert -1e-3 < mean_log_likelihood(fit, *held_out) - best < 5e-4
        # On its own pools a fit beats the law that they came from.
        assert mean_log_likelihood(stopped, *pools) > mean_log_likelihood(self.LAW, *pools)

    def test_the_law_of_the_pool_means_would_not_do(self) -> None:
        pos, neg = stopped_pools(Policy.preset("reinforce-ada-pos"), self.LAW, self.PROMPTS, seed=3)
        means = Grid(pos / (pos + neg))
        fit = fit_prior(pos, neg)
        assert means.mean - self.LAW.mean > 2 * 0.0046
        assert abs(fit.mean - self.LAW.mean) < 2 * 0.0046
        held_out = plain_pools(self.LAW, 50_000, 4, seed=5)
        best = mean_log_likelihood(self.LAW, *held_out)
        assert mean_log_likelihood(means, *held_out) - best < -2e-3
        assert mean_log_likelihood(fit, *held_out) - best > -2e-4
