"""Pools that were stopped by their rewards: what they say of plain sampling, and how sure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import betaln

from ada_bandit import Policy, Quota, Rounds
from ada_bandit.errors import InputError
from ada_bandit.laws import Beta
from sim.readers import read_rollouts
from sim.stopped import (
    Pools,
    Resampling,
    Stopping,
    StoppingKind,
    Study,
    fit_grid,
    fit_plain_beta,
    infer_stopping,
    signal,
)
from sim.stopped.study import hypergeometric_signal
from tests.sim.readers import dumps
from tests.sim.stopped.pools import RULES, A, B, prompts, simulate


def exact_signal(n: int, a: float = A, b: float = B) -> float:
    """E[1 - p^n - q^n] under Beta(a, b)."""
    return float(1 - np.exp(betaln(a + n, b) - betaln(a, b)) - np.exp(betaln(a, b + n) - betaln(a, b)))


def test_the_number_of_the_issue() -> None:
    assert exact_signal(4) == pytest.approx(0.4156, abs=5e-5)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("how", ["inferred", "stated", "order alone", "law alone"])
def test_plain_signal_and_mean_of_three_thousand_prompts(name: str, how: str) -> None:
    """Within 3 standard errors of the law's own; pools read as plain miss by far more."""
    rates, random = prompts(3000, 11)
    pools = simulate(RULES[name], rates, random, order=how != "law alone")
    if how in {"inferred", "stated"}:
        study = Study.of(pools, RULES[name] if how == "stated" else None)
    else:
        unknown = Stopping(StoppingKind.unknown, None, stated=False, evidence=())
        study = Study(pools, unknown, Study.of(pools).selection, None, ())
    for found, truth in ((study.plain_signal(4), exact_signal(4)), (study.pass_rate, A / (A + B))):
        error = (found.high - found.low) / 2 / 1.96
        assert abs(found.value - truth) < 3 * error
        assert 0.001 < error < 0.012
    naive = hypergeometric_signal(pools.pos, pools.total, 4)
    assert np.nanmean(naive) - exact_signal(4) > 3 * np.nanstd(naive) / 3000**0.5
    assert (pools.pos / pools.total).mean() - rates.mean() > 0.01


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("order", [True, False])
def test_the_rule_is_inferred_with_its_evidence(name: str, order: bool) -> None:
    rates, random = prompts(800, 3)
    pools = simulate(RULES[name], rates, random, order=order)
    found = infer_stopping(pools)
    assert found.kind is StoppingKind.rule
    assert found.draws is not None
    stated = infer_stopping(pools, RULES[name])
    assert stated.draws is not None
    # The same tables where pools can end; a rule of one class can't tell rounds that hold nothing else apart.
    assert found.draws.shape == stated.draws.shape
    assert np.array_equal(found.draws[pools.pos, pools.neg], stated.draws[pools.pos, pools.neg])
    assert any("ended where" in line for line in found.evidence)


def test_one_size_is_plain() -> None:
    pools = Pools.from_counts([0, 3, 8], [8, 8, 8])
    found = infer_stopping(pools)
    assert (found.kind, found.evidence) == (StoppingKind.plain, ("every pool has 8 scored responses",))


def test_sizes_that_do_not_look_at_rewards_are_plain() -> None:
    rates, random = prompts(600, 5)
    total = random.integers(4, 17, rates.size)
    pools = Pools.from_counts(random.binomial(total, rates), total)
    found = infer_stopping(pools)
    assert found.kind is StoppingKind.plain
    assert "no sign" in found.evidence[-1]


def test_a_rule_of_no_known_kind_is_unknown_and_the_first_responses_serve() -> None:
    """Stops at a share of one half among at least six: neither quota nor balance."""
    rates, random = prompts(2000, 6)
    right = random.random((rates.size, 30)) < rates[:, None]
    total = np.full(rates.size, 30)
    for size in range(29, 5, -1):
        total[(2 * right[:, :size].sum(axis=1) >= size) & (right[:, size - 1])] = size
    pos = np.array([right[at, : total[at]].sum() for at in range(rates.size)])
    pools = Pools(pos, total - pos, np.arange(rates.size), right=right[np.arange(30) < total[:, None]])
    study = Study.of(pools)
    assert study.stopping.kind is StoppingKind.unknown
    found = study.plain_signal(4)
    assert found.how == "by the first 6 responses of every pool, unbiased"
    assert found.low < exact_signal(4) < found.high


def test_the_stated_rule_has_to_explain_the_pools() -> None:
    rates, random = prompts(300, 1)
    pools = simulate(RULES["balance"], rates, random)
    with pytest.raises(InputError, match="of 300 pools can't have been left by reinforce-ada-pos"):
        Study.of(pools, RULES["pos"])
    # A pool of 8 with a success in each round is one that went on against the rule.
    early = Pools(np.array([2]), np.array([14]), np.array([0]), right=np.array([True] + [False] * 14 + [True]))
    with pytest.raises(InputError, match="2 correct of 16"):
        Study.of(early, RULES["pos"])


def test_counts_of_a_log_come_out_as_pools(tmp_path: Path) -> None:
    rates, random = prompts(300, 2)
    pools = simulate(RULES["pos"], rates, random)
    starts = np.cumsum(pools.total) - pools.total
    assert pools.right is not None
    with (tmp_path / "log.jsonl").open("w") as out:
        for at in range(300):
            part = pools.right[starts[at] : starts[at] + pools.total[at]]
            out.write(json.dumps({"prompt_id": at, "rewards": part.astype(int).tolist()}) + "\n")
    read = Pools.of(read_rollouts(tmp_path / "log.jsonl"))
    assert read.right is not None
    assert np.array_equal(read.pos, pools.pos)
    assert np.array_equal(read.right, pools.right)
    study = Study.of(read)
    assert study.stopping.policy is not None
    assert study.stopped
    assert study.plain_signal(4).value == Study.of(pools).plain_signal(4).value
    plain = json.loads(json.dumps(study.to_dict()))
    assert plain["stopped"]["kind"] == "rule"
    assert plain["plain_signal"]["4"]["low"] < plain["plain_signal"]["4"]["value"] < plain["plain_signal"]["4"]["high"]


def test_responses_without_score_and_pools_without_any() -> None:
    pools = Pools(np.array([1, 2]), np.array([3, 2]), np.arange(2), unscored=np.array([1, 0]), left_out=3)
    assert Study.of(pools).notes[0] == "3 pools without a scored response are left out"
    with pytest.raises(InputError, match="no pool with a scored response"):
        Pools.from_counts([], [])


@pytest.mark.parametrize("name", dumps.DUMPS)
def test_every_dump_has_a_study(name: str, tmp_path: Path) -> None:
    """Of six groups of four, two hold both classes, and 13 of 24 responses are correct."""
    study = Study.of(read_rollouts(dumps.DUMPS[name][0](tmp_path)), replicates=50)
    assert study.stopping.kind is StoppingKind.plain
    assert study.plain_signal(4).value == pytest.approx(1 / 3)
    assert study.pass_rate.value == pytest.approx(13 / 24)
    assert len(study.by_step(4)) == len(dumps.DUMPS[name][3])
    assert (study.drift is None) == (not dumps.DUMPS[name][3])


# Laws


def test_mixtures_and_not_posterior_means() -> None:
    """Two prompts in three never succeed, one succeeds half of the time.

    The signal at a posterior mean is far larger for a prompt that is either 0 or 1/2.
    """
    random = np.random.Generator(np.random.Philox(4))
    rates = np.where(random.random(4000) < 1 / 3, 0.5, 0.0)
    pools = Pools.from_counts(random.binomial(4, rates), np.full(4000, 4))
    fit = fit_grid(pools)
    assert fit.signal(8).value == pytest.approx(1 / 3 * (1 - 2 / 256), abs=0.02)
    none = fit.posterior_signal(0, 4, 8)
    # P(p = 1/2 | none of 4) = (1/3)(1/16) / ((1/3)(1/16) + 2/3) = 1/33.
    assert float(none) == pytest.approx((1 - 2 / 256) / 33, abs=0.01)
    each = fit.posterior_signal(pools.pos, pools.neg, 8)
    assert each.mean() == pytest.approx(fit.signal(8).value, abs=0.002)
    mean = np.exp(fit.law.log_evidence(pools.pos + 1, pools.neg) - fit.law.log_evidence(pools.pos, pools.neg))
    assert signal(mean, 8).mean() > fit.signal(8).value + 0.05


def test_a_beta_law_is_found_again() -> None:
    rates, random = prompts(20_000, 8)
    pools = simulate(RULES["pos"], rates, random, order=False)
    fit = fit_plain_beta(pools, Resampling(pools, 100))
    assert isinstance(fit.law, Beta)
    assert fit.law.a == pytest.approx(A, rel=0.05)
    assert fit.law.b == pytest.approx(B, rel=0.05)
    # The weights on the grid have the law's own mean, and its signal to within what a grid loses.
    assert fit.weights @ fit.rates == pytest.approx(fit.law.mean, abs=1e-9)
    assert fit.signal(8).value == pytest.approx(exact_signal(8, fit.law.a, fit.law.b), abs=2e-4)


def test_the_beta_fit_is_the_likelihoods_top() -> None:
    """Against a search of our own over both shapes."""
    from scipy.optimize import minimize

    rates, random = prompts(400, 9)
    pools = simulate(RULES["balance"], rates, random)

    def loss(log_shape: np.ndarray) -> float:
        a, b = np.exp(log_shape)
        return float(-(betaln(a + pools.pos, b + pools.neg) - betaln(a, b)).sum())

    best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    law = fit_plain_beta(pools, Resampling(pools, 2)).law
    assert isinstance(law, Beta)
    assert loss(np.log([law.a, law.b])) - best.fun < 0.002
    np.testing.assert_allclose([law.a, law.b], np.exp(best.x), rtol=0.01)


def test_resamples_of_prompts_keep_their_pools_together() -> None:
    """Two prompts with ten pools each: a resample holds one of them twice or both once, never a part."""
    prompt = np.repeat([0, 1], 10)
    pools = Pools(np.repeat([0, 1], 10), np.repeat([1, 0], 10), prompt)
    counts = Resampling(pools, 500).cell_counts(prompt, 2)
    assert set(counts[:, 0].tolist()) == {0.0, 10.0, 20.0}
    share = (counts[:, 0] == 10).mean()
    assert abs(share - 0.5) < 4 * (0.25 / 500) ** 0.5
    found = Resampling(pools, 500).mean(pools.pos.astype(float), "")
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_the_interval_of_a_mean_is_the_normal_one() -> None:
    random = np.random.Generator(np.random.Philox(0))
    values = random.integers(0, 9, 4000) / 8
    pools = Pools.from_counts(np.ones(4000), np.ones(4000))
    found = Resampling(pools, 4000).mean(values, "")
    half = 1.96 * values.std() / 4000**0.5
    assert found.high - found.value == pytest.approx(half, rel=0.08)
    assert found.value - found.low == pytest.approx(half, rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_coverage_of_two_hundred_logs(name: str) -> None:
    """Of 95 % intervals of 200 logs, between 92 and 98 % hold the truth: 190 within 2 sigma."""
    hits = dict.fromkeys(("rule", "order", "law", "law 8", "mean", "law mean"), 0)
    for seed in range(200):
        rates, random = prompts(400, seed)
        pools = simulate(RULES[name], rates, random)
        study = Study.of(pools, RULES[name], replicates=200)
        unknown = Stopping(StoppingKind.unknown, None, stated=False, evidence=())
        blind = Study(pools, unknown, study.selection, None, (), 200)
        for key, found, truth in (
            ("rule", study.plain_signal(4), exact_signal(4)),
            ("order", blind.plain_signal(4), exact_signal(4)),
            ("law", study.law.signal(4), exact_signal(4)),
            ("law 8", study.law.signal(8), exact_signal(8)),
            ("mean", study.pass_rate, 0.2),
            ("law mean", study.law.mean, 0.2),
        ):
            hits[key] += found.low <= truth <= found.high
    assert {key: 184 <= count <= 196 for key, count in hits.items()} == dict.fromkeys(hits, True), str(hits)


# Steps


def steps_of(rates_by_step: list[np.ndarray], random: np.random.Generator, *, same: bool) -> Pools:
    """Return pools of 8 for every prompt of every step."""
    size = rates_by_step[0].size
    pos = np.concatenate([random.binomial(8, rates) for rates in rates_by_step])
    step = np.repeat(np.arange(len(rates_by_step)), size)
    prompt = np.tile(np.arange(size), len(rates_by_step)) if same else np.arange(pos.size)
    return Pools(pos, 8 - pos, prompt, step)


@pytest.mark.parametrize("same", [True, False])
def test_a_law_that_does_not_change_is_not_told_to(same: bool) -> None:
    """At a level of 1 %, of 200 runs without drift two are expected; 8 would be 4 sigma."""
    told = 0
    for seed in range(200):
        random = np.random.Generator(np.random.Philox(seed))
        rates = random.beta(A, B, 60) if same else None
        by_step = [random.beta(A, B, 60) if rates is None else rates for _ in range(5)]
        drift = Study.of(steps_of(by_step, random, same=same)).drift
        assert drift is not None
        assert drift.paired is same
        told += drift.changed
    assert told < 8


@pytest.mark.parametrize("same", [True, False])
def test_a_law_that_rises_is_told_by_how_much(same: bool) -> None:
    random = np.random.Generator(np.random.Philox(1))
    first = random.beta(2, 2, 400) * 0.6
    by_step = [(first if same else random.beta(2, 2, 400) * 0.6) + 0.03 * step for step in range(6)]
    study = Study.of(steps_of(by_step, random, same=same))
    drift = study.drift
    assert drift is not None
    assert drift.changed
    error = drift.slope / drift.z
    assert abs(drift.slope - 0.03) < 3 * error
    assert error < (0.002 if same else 0.0035)
    summaries = study.by_step(4)
    assert [each.step for each in summaries] == list(range(6))
    for step, each in enumerate(summaries):
        assert each.pools == 400
        assert each.pass_rate.low < by_step[step].mean() + 0.01
        assert each.pass_rate.high > by_step[step].mean() - 0.01
        assert each.signal.low < each.signal.value < each.signal.high


def test_steps_that_differ_without_a_trend_are_told() -> None:
    random = np.random.Generator(np.random.Philox(2))
    by_step = [random.beta(2, 2, 300) * (0.9 if step in {0, 4} else 0.5) for step in range(5)]
    drift = Study.of(steps_of(by_step, random, same=False)).drift
    assert drift is not None
    assert abs(drift.z) < 3
    assert drift.changed


def test_one_step_has_no_drift() -> None:
    assert Study.of(Pools.from_counts([1, 2], [4, 4])).drift is None


def test_quota_in_single_draws_is_negative_binomial() -> None:
    """Until the second success, drawn one at a time: (K - 1)/(N - 1) is Haldane's unbiased estimate."""
    policy = Policy(Quota(2, 0), Rounds(1, 200), 4)
    random = np.random.Generator(np.random.Philox(3))
    rates = random.beta(4, 4, 500)
    pools = simulate(policy, rates, random)
    assert pools.total.max() < 200
    found = Study.of(pools, policy)
    haldane = ((pools.pos - 1) / (pools.total - 1)).mean()
    assert found.pass_rate.value == pytest.approx(haldane, abs=1e-9)


def test_a_batch_budget_has_no_table(tmp_path: Path) -> None:
    found = infer_stopping(Pools.from_counts([1, 2], [4, 8]), Policy.preset("gvm"))
    assert found.kind is StoppingKind.unknown
    assert "shares its budget" in found.evidence[0]
