"""Replay of logged rollouts: against paper, a naive twin, and the laws of drawing with and without replacement."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ada_bandit import Balance, Beta, Never, Policy, Positive, Quota, Rounds
from ada_bandit.budgets import Stages
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze_law
from ada_bandit.groups import All, Uniform
from ada_bandit.laws import Grid
from ada_bandit.uniforms import fold_seed
from sim.censored import extremes
from sim.cli import app
from sim.fits import fit_beta
from sim.logs import CountLog, Log, Order, RewardLog, to_replay
from sim.montecarlo import simulate
from sim.readers import read_rollouts
from sim.replay.figure import write_figures
from sim.replay.study import ORDERS, Replay, ReplayedPolicy, Span, plain_signal, replay_log
from sim.sources import built_in_rollouts, from_name

Write = Callable[[str, str], Path]
PAIRS = Policy(rule=Positive(1), budget=Rounds(2, 2), group_size=2, name="pairs")
LONGER = replace(PAIRS, budget=Rounds(2, 3), name="longer")


def read_log(path: Path) -> Log:
    return to_replay(read_rollouts(path))


def rewards(*rows: Sequence[float | None], tokens: Sequence[Sequence[float]] | None = None) -> RewardLog:
    flat = np.array([math.nan if value is None else value for row in rows for value in row], dtype=np.float64)
    spent = None if tokens is None else np.array([value for row in tokens for value in row], dtype=np.float64)
    return RewardLog(tuple("abcdefghij"[: len(rows)]), np.array([len(row) for row in rows]), flat, spent)


def counts(correct: Sequence[int], total: Sequence[int]) -> CountLog:
    return CountLog(tuple(f"p{i}" for i in range(len(total))), np.array(total), np.array(correct))


def one(policy: Policy, log: Log, **options: Any) -> ReplayedPolicy:
    (row,) = replay_log([policy], log, **options).rows
    return row


def ends(span: Span | None) -> tuple[float, float]:
    assert span is not None
    return span.low, span.high


# On paper


HAND = rewards([0, 0, 1, 0], [1, 0], [0, 0, 0], tokens=[[5, 6, 7, 8], [10, 20], [2, 4, 9]])
"""a gets its positive in the second pair, b in the first; the log of c ends in the middle of its second pair."""


def test_three_prompts_on_paper() -> None:
    row = one(PAIRS, HAND)
    # c would have had a second pair in any case, so its cost is known; what the pair held is not.
    assert ends(row.responses) == pytest.approx((10 / 3, 10 / 3))
    assert row.responses.spread is None
    assert ends(row.rounds) == pytest.approx((5 / 3, 5 / 3))
    assert ends(row.cost) == pytest.approx((10 / 12, 10 / 12))
    assert ends(row.signal) == ends(row.resolved) == pytest.approx((2 / 3, 1))
    assert ends(row.exhausted) == pytest.approx((0, 1 / 3))
    assert ends(row.short_of_positives) == pytest.approx((0, 1 / 3))
    assert ends(row.short_of_negatives) == (0, 0)
    assert (row.censored, row.censored_prompts) == (1, {"c": 1})
    # Each missing response of c has the mean of its log, 5 tokens: 2 + 4 + 2 * 5.
    assert ends(row.tokens) == pytest.approx(((26 + 30 + 16) / 3,) * 2)
    # Four plain responses: 26 for a; b has two and would need two more of 15; c one more of 5.
    assert ends(row.token_cost) == pytest.approx((72 / (26 + 60 + 20),) * 2)
    # The first response of a pair that was all wrong is wrong; of one that was mixed it is right in half the orders.
    assert ends(row.pass_rate) == pytest.approx((1 / 6, 1 / 6))
    assert row.log_pass_rate == pytest.approx((1 / 4 + 1 / 2 + 0) / 3)
    # Two of a, without its one positive: 3 of 6 pairs. Both of b differ. None of c do.
    assert row.plain_no_signal == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert (row.plain_unknown, row.unscored) == (0, 0)


def test_a_third_round_makes_the_cost_unknown() -> None:
    row = one(LONGER, HAND)
    assert ends(row.responses) == pytest.approx((10 / 3, 12 / 3))
    assert ends(row.rounds) == pytest.approx((5 / 3, 6 / 3))
    assert ends(row.tokens) == pytest.approx((72 / 3, 82 / 3))
    assert ends(row.signal) == pytest.approx((2 / 3, 1))


def test_what_is_left_of_a_log_counts() -> None:
    # The second pair holds a positive whatever its missing response is.
    row = one(LONGER, rewards([0, 0, 1]))
    assert row.censored == 1
    for span, value in ((row.responses, 4), (row.rounds, 2), (row.signal, 1), (row.resolved, 1), (row.exhausted, 0)):
        assert ends(span) == (value, value)


def test_a_group_that_is_split_at_random_may_go_either_way() -> None:
    policy = Policy(rule=Never(), budget=Rounds(4), group_size=2, group=Uniform())
    assert ends(one(policy, rewards([0, 0, 1])).signal) == (0, 1)
    assert ends(one(policy, rewards([1, 1, 1])).signal) == (0, 1)
    # All four are kept, and the first two differ.
    assert ends(one(replace(policy, group_size=4), rewards([0, 1])).signal) == (1, 1)


def test_a_log_shorter_than_the_first_round() -> None:
    row = one(Policy.preset("grpo"), rewards([0, 1], [1, 1, 1], [1, 0, 0, 0]))
    assert ends(row.responses) == (4, 4)
    assert ends(row.signal) == pytest.approx((2 / 3, 1))
    assert row.censored_prompts == {"a": 1, "b": 1}
    assert ends(row.pass_rate) == pytest.approx(((1 / 2 + 1 + 1 / 4) / 3,) * 2)
    assert row.plain_unknown == 2
    assert row.plain_no_signal == pytest.approx(0)


def test_unscored_responses_are_paid_for_and_belong_to_no_class() -> None:
    log = rewards([None, 0, 1, 0], [None, None], [None, 1])
    result = replay_log([PAIRS], log)
    (row,) = result.rows
    # b has no score and no log left: its second pair is certain, and nothing else.
    assert ends(row.responses) == pytest.approx((10 / 3, 10 / 3))
    assert row.unscored == 4
    assert ends(row.signal) == pytest.approx((1 / 3, 2 / 3))
    assert ends(row.resolved) == pytest.approx((2 / 3, 1))
    assert row.censored_prompts == {"b": 1}
    assert row.log_pass_rate == pytest.approx((1 / 3 + 1) / 2)
    assert "responses without a score that were paid for: pairs 4" in result.notes


def test_threshold_decides_what_is_correct() -> None:
    log = rewards([0.2, 0.9, 0.4, 0.7])
    policy = Policy(rule=Positive(2), budget=Rounds(1, 4), group_size=2)
    assert ends(one(policy, log).responses) == (4, 4)
    assert ends(one(replace(policy, threshold=0.3), log).responses) == (3, 3)
    assert ends(one(policy, log, threshold=0.1).responses) == (2, 2)
    assert one(policy, log, threshold=0.1).log_pass_rate == 1
    high = one(replace(policy, threshold=2.0), counts([1], [1]))
    assert high.log_pass_rate == 1


def test_tokens_of_counts_are_means() -> None:
    log = CountLog(("a", "b"), np.array([2, 3]), np.array([2, 0]), np.array([10.0, 40.0]))
    row = one(LONGER, log, repeats=3)
    assert ends(row.tokens) == pytest.approx(((20 + 160) / 2, (20 + 240) / 2))
    assert ends(row.token_cost) == pytest.approx((180 / 200, 260 / 200))


# A naive twin


NAMES = ("responses", "rounds", "signal", "resolved", "short_of_positives", "short_of_negatives")
Spans = dict[str, tuple[float, float]]


def twin(policy: Policy, row: Sequence[float | None]) -> tuple[Spans, bool]:
    """Follow one prompt response by response; where the log ends, follow everything that could come.

    Gives the lowest and highest value of everything in `NAMES`, and whether the prompt is censored.
    """
    tables, most = policy.tables, policy.budget.max_samples
    pos = neg = spent = rounds = 0
    while wanted := min(int(tables.draws[pos, neg]), most - spent):
        if spent + wanted > len(row):
            break
        new = row[spent : spent + wanted]
        pos += sum(value is not None and value > 0.5 for value in new)
        neg += sum(value is not None and value <= 0.5 for value in new)
        spent, rounds = spent + wanted, rounds + 1

    def outcome(pos: int, neg: int, spent: int, rounds: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        cell = pos, neg
        rest = (tables.resolved[cell], tables.short_of_positives[cell], tables.short_of_negatives[cell])
        signal = tables.signal[cell]
        return (spent, rounds, signal >= 1, *rest), (spent, rounds, signal > 0, *rest)

    def futures(pos: int, neg: int, rounds: int) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
        wanted = int(tables.draws[pos, neg])
        if not wanted:
            yield outcome(pos, neg, pos + neg, rounds)
        for more in range(wanted + 1 if wanted else 0):
            yield from futures(pos + more, neg + wanted - more, rounds + 1)

    if not wanted:
        low, high = outcome(pos, neg, spent, rounds)
        return dict(zip(NAMES, zip(low, high, strict=True), strict=True)), False
    left = row[spent:]
    if None in row[: spent + wanted]:
        last = spent + wanted
        wide = ((last, most), (rounds + 1, rounds + 1 + most - last), *[(0, 1)] * 4)
        return dict(zip(NAMES, wide, strict=True)), True
    known = sum(value is not None and value > 0.5 for value in left)
    missing = wanted - len(left)
    every = [
        end
        for more in range(missing + 1)
        for end in futures(pos + known + more, neg + len(left) - known + missing - more, rounds + 1)
    ]
    lows, highs = (np.array(part, dtype=float) for part in zip(*every, strict=True))
    return dict(zip(NAMES, zip(lows.min(axis=0), highs.max(axis=0), strict=True), strict=True)), True


RULES = (Positive(1), Positive(2), Balance(4), Quota(1, 2), Never())
BUDGETS = (Rounds(1, 6), Rounds(2, 3), Rounds(4, 2), Stages((3, 1, 2)), Rounds(5))
GROUPS = (None, All(), Uniform())


@given(
    rule=st.sampled_from(RULES),
    budget=st.sampled_from(BUDGETS),
    group=st.sampled_from(GROUPS),
    rows=st.lists(st.lists(st.sampled_from([0, 1, 0, 1, None]), min_size=1, max_size=8), min_size=1, max_size=5),
)
def test_every_span_is_that_of_the_naive_twin(rule: Any, budget: Any, group: Any, rows: list[list[Any]]) -> None:
    if all(value is None for row in rows for value in row):
        rows = [*rows, [1]]
    parts = {} if group is None else {"group": group}
    policy = Policy(rule=rule, budget=budget, group_size=4 if budget.max_samples >= 4 else 2, **parts)
    row = one(policy, rewards(*rows))
    twins = [twin(policy, each) for each in rows]
    assert row.censored == sum(censored for _, censored in twins)
    for name in NAMES:
        pairs = [spans[name] for spans, _ in twins]
        low, high = ends(getattr(row, name))
        if name == "signal":
            # A group that was split at random is drawn by the allocator: chance lies in between.
            assert np.mean([a for a, _ in pairs]) - 1e-12 <= low
            assert high <= np.mean([b for _, b in pairs]) + 1e-12
            if not policy.tables.random_split:
                assert (low, high) == pytest.approx(tuple(np.mean(pairs, axis=0)))
        else:
            assert (low, high) == pytest.approx(tuple(np.mean(pairs, axis=0))), name


@given(st.lists(st.lists(st.sampled_from([0, 1]), min_size=6, max_size=9), min_size=1, max_size=6), st.randoms())
def test_logged_order_knows_no_order_of_prompts_and_nothing_beyond_the_exit(rows: list[list[int]], rng: Any) -> None:
    policy = Policy(rule=Balance(4), budget=Rounds(2, 3), group_size=4)
    row = one(policy, rewards(*rows))
    mixed = rows.copy()
    rng.shuffle(mixed)
    again = one(policy, rewards(*([*each, 1, 1, 0] for each in mixed)))
    for name in ("responses", "rounds", "signal", "resolved", "exhausted", "short_of_positives", "pass_rate"):
        assert ends(getattr(again, name)) == pytest.approx(ends(getattr(row, name)))


@given(st.sampled_from(RULES), st.sampled_from(BUDGETS), st.data())
def test_a_longer_log_never_widens_a_range(rule: Any, budget: Any, data: Any) -> None:
    policy = Policy(rule=rule, budget=budget, group_size=2)
    row = data.draw(st.lists(st.sampled_from([0, 1]), min_size=2, max_size=8))
    short, long = (one(policy, rewards(row[:size])) for size in (len(row) // 2, len(row)))
    for name in NAMES:
        inner, outer = ends(getattr(long, name)), ends(getattr(short, name))
        assert outer[0] <= inner[0] <= inner[1] <= outer[1]


def test_extremes_on_paper() -> None:
    # One response at a time until the first positive, three at most.
    draws = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    total = np.indices(draws.shape).sum(axis=0).astype(np.float64)
    low, high = extremes(draws, total, total)
    assert [(low[0, k], high[0, k]) for k in range(4)] == [(1, 3), (2, 3), (3, 3), (3, 3)]
    low, high = extremes(draws, 0 * total, 0 * total, step=1)
    assert [(low[0, k], high[0, k]) for k in range(4)] == [(1, 3), (1, 2), (1, 1), (0, 0)]


# Without replacement


def shuffled_log(correct: int, total: int, prompts: int) -> list[Log]:
    rows = [[1] * correct + [0] * (total - correct)] * prompts
    flat = np.array([value for row in rows for value in row], dtype=np.float64)
    ids = tuple(map(str, range(prompts)))
    return [
        counts([correct] * prompts, [total] * prompts),
        RewardLog(ids, np.full(prompts, total), flat),
    ]


@pytest.mark.parametrize("log", shuffled_log(3, 8, 20_000), ids=["counts", "rewards"])
def test_first_positive_without_replacement_in_closed_form(log: Log) -> None:
    # Negative hypergeometric: E[N] = (t + 1) / (k + 1), Var = k (t - k) (t + 1) / ((k + 1)^2 (k + 2)).
    policy = Policy(rule=Positive(1), budget=Rounds(1, 6), group_size=2)
    row = one(policy, log, order=Order.shuffled, repeats=2, seed=4)
    k, t = 3, 8
    se = math.sqrt(k * (t - k) * (t + 1) / ((k + 1) ** 2 * (k + 2)) / 40_000)
    assert row.censored == 0
    assert row.responses.low == pytest.approx((t + 1) / (k + 1), abs=5 * se)
    assert row.resolved.low == 1


@pytest.mark.parametrize("log", shuffled_log(3, 8, 20_000), ids=["counts", "rewards"])
def test_plain_sampling_is_hypergeometric(log: Log) -> None:
    row = one(Policy.preset("grpo"), log, order=Order.shuffled, repeats=2)
    exact = 1 - (math.comb(3, 4) + math.comb(5, 4)) / math.comb(8, 4)
    assert row.plain_no_signal == pytest.approx(1 - exact)
    assert row.signal.low == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 40_000))


@pytest.mark.parametrize("length", [4, 9, 20])
def test_the_pass_rate_is_unbiased_though_logs_end(length: int) -> None:
    prompts = 20_000
    for log in shuffled_log(length // 4, length, prompts):
        row = one(Policy.preset("reinforce-ada-balance"), log, order=Order.shuffled, repeats=1)
        assert row.censored > 0
        low, high = ends(row.pass_rate)
        assert low == high
        # An estimate of a chance in [0, 1] has a variance of at most p q.
        p = row.log_pass_rate
        assert low == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / prompts))


def test_all_of_a_log_is_drawn_once() -> None:
    log = counts([0, 3, 7, 8], [5, 8, 9, 8])
    layout = log.layout(Order.shuffled, 12, seed=1)
    np.testing.assert_array_equal(np.nansum(layout.rewards, axis=1), log.correct)
    np.testing.assert_array_equal((~np.isnan(layout.rewards)).sum(axis=1), log.lengths)
    np.testing.assert_array_equal(layout.available, log.lengths)
    ragged = rewards([0.1, 0.2, 0.3], [0.4], [0.5, 0.6, None, 0.7, 0.8], tokens=[[1, 2, 3], [4], [5, 6, 9, 7, 8]])
    layout = ragged.layout(Order.shuffled, 6, seed=2)
    assert layout.tokens is not None
    for row, tokens, members in zip(layout.rewards, layout.tokens, ([1, 2, 3], [4], [5, 6, 7, 8, 9]), strict=True):
        assert sorted(tokens[tokens > 0]) == members
        # A response keeps its tokens; that of 9 has no score.
        np.testing.assert_allclose(row[(tokens > 0) & (tokens < 9)], tokens[(tokens > 0) & (tokens < 9)] / 10)


def test_every_order_is_as_likely() -> None:
    prompts = 12_000
    log = RewardLog(tuple(map(str, range(prompts))), np.full(prompts, 3), np.tile([1.0, 2.0, 3.0], prompts))
    rows = log.layout(Order.shuffled, 3, seed=0).rewards
    seen = Counter(map(tuple, rows.tolist()))
    assert set(seen) == set(itertools.permutations([1.0, 2.0, 3.0]))
    # Chi-squared with 5 degrees of freedom exceeds 25.7 once in 10,000.
    assert sum((number - prompts / 6) ** 2 / (prompts / 6) for number in seen.values()) < 25.7


def test_narrow_layouts_are_the_beginnings_of_wide_ones() -> None:
    for log in (counts([2, 5], [6, 9]), rewards([0, 1, 0, 1, 1, 1], [1, 0, None, 1])):
        for order in (Order.shuffled, Order.bootstrap):
            wide, narrow = (log.layout(order, width, seed=3) for width in (9, 4))
            np.testing.assert_array_equal(narrow.rewards, wide.rewards[:, :4])


# With replacement


RATES = ([0, 1, 4, 9, 10, 3], [10, 10, 10, 10, 10, 7])


@pytest.mark.parametrize("name", ["reinforce-ada-pos", "reinforce-ada-balance"])
def test_bootstrap_of_counts_is_the_simulation_at_correct_over_total(name: str) -> None:
    policy = Policy.preset(name)
    log = counts(*RATES)
    row = one(policy, log, order=Order.bootstrap, repeats=3, seed=7)
    exits = [simulate(policy, np.divide(*RATES), seed=fold_seed(7, repeat)) for repeat in range(3)]
    assert row.censored == 0
    assert row.responses.low == row.responses.high == pytest.approx(np.mean([each.pos + each.neg for each in exits]))
    assert row.rounds.low == pytest.approx(np.mean([each.rounds for each in exits]))


@pytest.mark.parametrize("name", ["grpo", "reinforce-ada-pos", "reinforce-ada-balance"])
def test_bootstrap_agrees_with_the_exact_analysis(name: str) -> None:
    policy = Policy.preset(name)
    copies = 800
    rows = [[1] * k + [0] * (t - k) for k, t in zip(*RATES, strict=True)] * copies
    log = RewardLog(
        tuple(map(str, range(len(rows)))),
        np.array([len(row) for row in rows]),
        np.array([value for row in rows for value in row], dtype=np.float64),
    )
    exact = analyze_law(policy, Grid(np.divide(*RATES)))
    result = replay_log([policy], log, order=Order.bootstrap, repeats=5)
    (row,) = result.rows
    seen = 5 * len(rows)
    # No variance exceeds that of a value at either end of its range.
    assert row.responses.low == pytest.approx(exact["expected_samples"], abs=5 * 16 / math.sqrt(seen))
    for name_, ours in (("signal_probability", row.signal), ("resolved_probability", row.resolved)):
        p = exact[name_]
        assert ours.low == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / seen) + 1e-12)
    assert row.plain_no_signal == pytest.approx(1 - analyze_law(Policy.preset("grpo"), Grid(np.divide(*RATES)))
                                                ["signal_probability"])  # fmt: skip
    assert any(note.startswith("bootstrap: drawn with replacement") for note in result.notes)


def test_plain_signal_is_that_of_every_subset() -> None:
    pool = [1, 1, 0, 0, 0, 0]
    for n in range(1, 7):
        groups = list(itertools.combinations(pool, n))
        share = Fraction(sum(len(set(group)) == 2 for group in groups), len(groups))
        assert plain_signal(np.array([2]), np.array([6]), n)[0] == pytest.approx(float(share))
        again = list(itertools.product(pool, repeat=n)) if n < 5 else []
        if again:
            share = Fraction(sum(len(set(group)) == 2 for group in again), len(again))
            assert plain_signal(np.array([2]), np.array([6]), n, replace=True)[0] == pytest.approx(float(share))
    assert np.isnan(plain_signal(np.array([2]), np.array([6]), 7)[0])
    assert np.isnan(plain_signal(np.array([0]), np.array([0]), 2, replace=True)[0])


# Seeds, orders, shared budgets


def test_seed_and_spread() -> None:
    log = counts([3, 5, 1] * 10, [16] * 30)
    policies = [Policy.preset("reinforce-ada-balance"), Policy.preset("grpo")]
    done: list[int] = []
    first = replay_log(policies, log, seed=1, progress=done.append)
    assert (first.order, first.repeats, sum(done)) == (Order.shuffled, ORDERS, 30 * 2 * ORDERS)
    assert replay_log(policies, log, seed=1).rows == first.rows
    assert replay_log(policies, log, seed=2).rows != first.rows
    assert replay_log(policies[::-1], log, seed=1).rows == first.rows[::-1]
    # More passes keep those before: the mean of two and the first give the second.
    alone, both = (one(policies[0], log, seed=1, repeats=repeats).responses for repeats in (1, 2))
    assert alone.spread is None
    apart = max(abs(2 * both.low - 2 * alone.low), abs(2 * both.high - 2 * alone.high))
    assert both.spread == pytest.approx(apart / math.sqrt(2))
    assert apart > 0
    assert first.rows[1].responses == Span(4, 4, 0)
    assert first.reference == "grpo (4 responses per prompt)"


def test_prompts_are_censored_in_some_of_the_orders() -> None:
    # The first pair resolves unless it is the one of two negatives: 1 order in 3.
    row = one(LONGER, counts([1], [3]), repeats=400, seed=1)
    (times,) = row.censored_prompts.values()
    assert times == pytest.approx(400 / 3, abs=5 * math.sqrt(400 * 2 / 9))
    assert row.censored == times / 400
    # In those the log still holds the positive.
    assert ends(row.signal) == (1, 1)


def test_order_that_is_not_known() -> None:
    log = counts([1], [4])
    with pytest.raises(InputError, match="no order of responses is known"):
        replay_log([PAIRS], log, order=Order.logged)
    with pytest.raises(InputError, match="the logged order is one pass, not 5"):
        replay_log([PAIRS], HAND, repeats=5)
    with pytest.raises(InputError, match=r"a threshold of 0\.9 is for rewards"):
        replay_log([PAIRS], log, threshold=0.9)
    with pytest.raises(InputError, match="at least one policy"):
        replay_log([], log)
    with pytest.raises(InputError, match="repeats must be a whole number of at least 1; got 0"):
        replay_log([PAIRS], log, repeats=0)


def test_a_sorted_log_is_told_from_one_in_random_order() -> None:
    sorted_log = rewards(*([[1] * 5 + [0] * 5] * 10))
    (note,) = (note for note in replay_log([PAIRS], sorted_log).notes if "independent draws" in note)
    # Each has one change where a random order has 2 * 5 * 5 / 10 = 5, with variance 50 * 40 / 900.
    assert "neighbours differ in class 10 times where a random order would make it 50" in note
    assert f"({40 / math.sqrt(10 * 50 * 40 / 900):.1f} standard deviations off)" in note
    assert not any("independent draws" in note for note in replay_log([PAIRS], sorted_log, order=Order.shuffled).notes)
    rng = np.random.default_rng(0)
    random = rewards(*rng.integers(0, 2, (10, 30)).tolist())
    assert not any("independent draws" in note for note in replay_log([PAIRS], random).notes)
    assert not any("independent draws" in note for note in replay_log([PAIRS], rewards([1, 1], [0], [None, 1])).notes)


def test_a_shared_budget_is_spent_to_the_last_response() -> None:
    from ada_bandit.shared import Neyman

    budget = Neyman(average=6.0, maximum=16, minimum=2, pilot=4)
    policy = Policy(rule=Never(), budget=budget, group_size=4, name="neyman")
    row = one(policy, counts([0, 4, 8, 2] * 8, [16] * 32), repeats=3)
    assert ends(row.responses) == pytest.approx((6, 6))
    assert row.pass_rate is None
    assert row.censored == 0
    result = replay_log([policy], counts([0, 2, 4, 2] * 8, [5] * 32), repeats=3)
    (row,) = result.rows
    assert row.censored > 0
    assert ends(row.responses) == pytest.approx((6, 6))
    assert row.signal.high - row.signal.low > 0
    assert any(note.startswith("neyman: the budget is shared") for note in result.notes)
    json.dumps(result.to_dict(), allow_nan=False)


# Tables and figures


def example() -> Replay:
    return replay_log([PAIRS, LONGER, Policy.preset("grpo")], HAND)


def test_csv_and_json() -> None:
    result = example()
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [row["policy"] for row in data["policies"]] == ["pairs", "longer", "grpo"]
    assert data["policies"][0]["censored_prompts"] == {"c": 1}
    assert data["policies"][0]["signal"] == {"low": pytest.approx(2 / 3), "high": 1.0, "spread": None}
    assert data["configuration"]["order"] == "logged"
    assert data["prompts"] == 3
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert float(rows[1]["responses_low"]) == pytest.approx(10 / 3)
    assert float(rows[1]["responses_high"]) == pytest.approx(4)
    assert rows[1]["responses_spread"] == ""
    assert rows[0]["censored"] == "1.0"
    policies = [Policy.from_dict(policy) for policy in data["configuration"]["policies"]]
    assert replay_log(policies, HAND).rows == result.rows


@pytest.mark.parametrize(
    "log",
    [
        HAND,
        counts([0, 0], [3, 3]),
        counts([1], [2]),
        counts(list(range(21)), [20] * 21),
        rewards([None, None], [0, 1]),
    ],
)
def test_figure(tmp_path: Path, log: Log) -> None:
    policies = [Policy.preset("reinforce-ada-pos"), Policy.preset("grpo"), LONGER]
    paths = write_figures(replay_log(policies, log, label="$log$"), tmp_path)
    assert [path.name for path in paths] == ["replay.png", "replay.svg"]
    assert all(path.stat().st_size > 5_000 for path in paths)


# Files


def test_logs_from_files(write: Write, tmp_path: Path) -> None:
    lines = (
        '{"prompt_id": "a", "rewards": [0, 1, null], "tokens": [3, 4, 5]}\n'
        '{"prompt_id": "b", "rewards": [1], "tokens": [7]}\n'
    )
    log = read_log(write("a.jsonl", lines))
    assert isinstance(log, RewardLog)
    assert log.prompt_ids == ("a", "b")
    np.testing.assert_array_equal(log.rewards, [0, 1, math.nan, 1])
    np.testing.assert_array_equal(log.tokens, [3, 4, 5, 7])
    np.testing.assert_array_equal(log.mean_tokens, [4, 7])
    assert log.right is not None
    assert log.right.tolist() == [False, True, False, True]
    assert "1 response without a score" in log.notes
    log = read_log(write("a.csv", "prompt_id,correct,total,mean_response_tokens\na,1,4,12.5\nb,0,2,3\n"))
    assert isinstance(log, CountLog)
    np.testing.assert_array_equal(log.mean_tokens, [12.5, 3])
    path = tmp_path / "a.parquet"
    pl.DataFrame({"prompt_id": ["a"], "correct": [1], "total": [2], "mean_response_tokens": [8.5]}).write_parquet(path)
    np.testing.assert_array_equal(read_log(path).mean_tokens, [8.5])
    log = read_log(write("b.jsonl", '{"prompt_id": "a", "rewards": [0, 1], "mean_response_tokens": 6}\n'))
    assert isinstance(log, RewardLog)
    np.testing.assert_array_equal(log.tokens, [6, 6])


def test_logs_that_lack_a_part(write: Write) -> None:
    log = read_log(write("a.csv", "prompt_id,correct,total,mean_response_tokens\na,1,4,\nb,0,2,3\n"))
    assert log.mean_tokens is None
    assert "tokens left out: 1 of 2 prompts have none" in log.notes
    log = read_log(write("a.jsonl", '{"prompt_id": "a", "rewards": [1]}\n{"prompt_id": "b", "rewards": [0]}\n'))
    assert log.mean_tokens is None
    assert not any("tokens" in note for note in log.notes)
    mixed = '{"prompt_id": "a", "rewards": [1, 0]}\n{"prompt_id": "b", "correct": 1, "total": 3}\n'
    log = read_log(write("b.jsonl", mixed))
    assert isinstance(log, CountLog)
    assert "some rows hold counts without an order, so all rows are taken as counts" in log.notes


def test_a_response_of_unknown_length_has_the_mean_of_its_prompt(write: Write) -> None:
    lines = (
        '{"prompt_id": "a", "rewards": [0, 1, 0], "tokens": [3, null, 5]}\n'
        '{"prompt_id": "b", "rewards": [1, 1], "tokens": [7, 9]}\n'
    )
    log = read_log(write("a.jsonl", lines))
    assert isinstance(log, RewardLog)
    np.testing.assert_array_equal(log.tokens, [3, 4, 5, 7, 9])


# The command


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def logged(write: Write) -> Path:
    rows = ([0, 0, 1, 0, 1, 1, 0, 1], [1, 0] * 4, [0] * 8)
    return write("log.jsonl", "".join(f'{{"prompt_id": "{i}", "rewards": {row}}}\n' for i, row in enumerate(rows)))


def test_command(logged: Path, tmp_path: Path) -> None:
    result = run(logged, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert result.stderr == ""
    for words in (
        "Log: log.jsonl",
        "reinforce-ada-balance",
        "10.67 to 16.00",
        "1 of 3",
        "3 prompts with 8 responses each",
        "drawn in logged order: one pass",
        "4 plain responses of the same log",
        "cost is relative to grpo (4 responses per prompt)",
        "a prompt is censored where its log ends",
    ):
        assert words in result.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "replay.csv", "replay.json", "replay.png", "replay.svg",
    }  # fmt: skip


def test_command_on_built_in_rollouts(tmp_path: Path) -> None:
    result = run("--source", "smollm2-reasoning-gym", "--no-figures", "--json", "--policy", "grpo", "--out", tmp_path)
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert (data["configuration"]["log"], data["configuration"]["order"]) == ("smollm2-reasoning-gym", "logged")
    assert "SmolLM2-135M-Instruct" in " ".join(data["notes"])
    lines = [json.loads(line) for line in built_in_rollouts("smollm2-reasoning-gym").path.read_text().splitlines()]
    assert data["prompts"] == len(lines)
    # GRPO takes the first four responses, as they were logged.
    first = [[reward > 0.5 for reward in line["rewards"][:4] if reward is not None] for line in lines]
    (row,) = data["policies"]
    assert row["signal"]["low"] == pytest.approx(np.mean([any(one) and not all(one) for one in first]))
    assert row["tokens"]["low"] == pytest.approx(np.mean([sum(line["tokens"][:4]) for line in lines]))


def test_built_in_rollouts_are_what_their_fitted_prior_predicts() -> None:
    counts = from_name("smollm2-reasoning-gym").counts
    assert counts is not None
    fit = fit_beta(counts.correct, counts.total)
    prior = Beta(fit.mean * fit.concentration, (1 - fit.mean) * fit.concentration)
    log = read_log(built_in_rollouts("smollm2-reasoning-gym").path)
    policies = [Policy.preset(name) for name in ("grpo", "reinforce-ada-pos", "reinforce-ada-balance")]
    # With replacement, the spread over passes is the error of one.
    again = replay_log(policies, log, order=Order.bootstrap, repeats=50)
    for policy, row, errors in zip(policies, replay_log(policies, log).rows, again.rows, strict=True):
        exact = analyze_law(policy, prior)
        for seen, error, expected in (
            (row.responses, errors.responses, exact["expected_samples"]),
            (row.signal, errors.signal, exact["signal_probability"]),
        ):
            assert error.spread is not None
            assert seen.low == pytest.approx(expected, abs=4 * error.spread + 1e-9)
            assert error.spread < 0.4


def test_the_law_of_the_built_in_rollouts_predicts_their_replay() -> None:
    source = from_name("smollm2-reasoning-gym")
    counts = source.counts
    assert counts is not None
    prior = fit_beta(counts.correct, counts.total)
    shift = prior.mean * prior.concentration
    means = Grid((counts.correct + shift) / (counts.total + prior.concentration))
    # Of README: replayed signal, and its standard error.
    for name, replayed, error in (
        ("grpo", 0.313, 0.019), ("reinforce-ada-pos", 0.557, 0.014), ("reinforce-ada-balance", 0.570, 0.011)
    ):  # fmt: skip
        policy = Policy.preset(name)
        predicted = analyze_law(policy, source.law)["signal_probability"]
        # By hand: the mean over prompts of the signal under each one's own posterior.
        laws = [
            Beta(shift + k, (1 - prior.mean) * prior.concentration + n - k)
            for k, n in zip(counts.correct.tolist(), counts.total.tolist(), strict=True)
        ]
        by_hand = np.mean([analyze_law(policy, law)["signal_probability"] for law in laws])
        assert predicted == pytest.approx(by_hand, rel=1e-9)
        assert abs(predicted - replayed) < error
        # What is plugged in for p decides: at the posterior means the adaptive rules are put too high.
        if name != "grpo":
            assert analyze_law(policy, means)["signal_probability"] - replayed > 2.5 * error


def test_command_prints_json_alone(logged: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text("from ada_bandit import exit_rule\n@exit_rule\ndef mine(pos, neg):\n    return pos > 1\n")
    options = ("--no-figures", "--json", "--shuffle", "--repeats", "3", "--seed", "5", "--threshold", "0.2")
    result = run(logged, "--out", tmp_path / "out", "--rules", rules, "--policy", "mine", *options)
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data == json.loads((tmp_path / "out" / "replay.json").read_text())
    assert {key: data["configuration"][key] for key in ("log", "order", "repeats", "seed", "threshold")} == {
        "log": "log.jsonl", "order": "shuffled", "repeats": 3, "seed": 5, "threshold": 0.2,
    }  # fmt: skip
    assert not (tmp_path / "out" / "replay.png").exists()


def test_command_by_bootstrap_with_tokens(write: Write, tmp_path: Path) -> None:
    path = write("a.csv", "prompt_id,correct,total,mean_response_tokens\na,1,4,100\nb,2,4,200\n")
    result = run(path, "--bootstrap", "--no-figures", "--out", tmp_path)
    assert result.exit_code == 0
    assert "Nothing is censored" in result.stdout
    assert "600 ± 0" in result.stdout
    assert "20 orders" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope.csv",), "'nope.csv' does not exist"),
        (("a.csv", "--source", "smollm2-reasoning-gym"), "the log 'a.csv' and --source 'smollm2-reasoning-gym' excl"),
        (("--shuffle", "--bootstrap"), "--shuffle draws without replacement and --bootstrap with it"),
        (("--repeats", "3"), "the logged order is one pass, not 3"),
        (("--policy", "nothing"), "unknown policy 'nothing'"),
        (("--threshold", "nan"), "threshold must be a finite number"),
    ],
)
def test_command_refuses(logged: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    named = arguments if arguments[0].endswith(".csv") else (str(logged), *arguments)
    result = run(*named, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to replay: give the PATH of logged rollouts, or --source smollm2-reasoning-gym"),
        (("--source", "smollm2"), "unknown source 'smollm2'"),
        (("--source", "qwen2.5-math-1.5b-base"), "is a curve, which holds no responses"),
    ],
)
def test_command_needs_a_log(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
