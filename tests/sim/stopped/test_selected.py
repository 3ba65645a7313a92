"""Files that hold part of what was drawn: groups with signal alone, rows kept of larger pools."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln, comb

from ada_bandit import Policy
from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from ada_bandit.laws import Beta
from sim.readers import Selection
from sim.stopped import Pools, Resampling, Study, fit_kept, fit_with_signal
from sim.stopped.selected import lacks_no_signal
from tests.sim.stopped.pools import RULES, prompts, simulate
from tests.sim.stopped.test_stopped import exact_signal


def with_signal(number: int, n: int, seed: int, a: float = 1.2, b: float = 2.5) -> Pools:
    """Groups of n under Beta(a, b), those without signal left out."""
    random = np.random.Generator(np.random.Philox(seed))
    pos = random.binomial(n, random.beta(a, b, number))
    pos = pos[(pos > 0) & (pos < n)]
    return Pools.from_counts(pos, np.full(pos.size, n))


def kept(policy: Policy, number: int, seed: int) -> Pools:
    """Groups that a policy keeps of its pools."""
    rates, random = prompts(number, seed)
    pools = simulate(policy, rates, random)
    pos, neg = policy.group.split(pools.pos, pools.neg, policy.n)
    return Pools.from_counts(pos, pos + neg)


def test_groups_with_signal_give_the_law_back() -> None:
    """The law of all prompts; as plain counts the same groups have their mean at that of what was left."""
    a, b, n = 1.2, 2.5, 8
    pools = with_signal(20_000, n, 1)
    fit = fit_with_signal(pools, Resampling(pools, 200))
    assert fit.mean.low < a / (a + b) < fit.mean.high
    assert fit.signal(n).low < exact_signal(n, a, b) < fit.signal(n).high
    assert fit.mean.high - fit.mean.low < 0.03
    naive = (pools.pos / n).mean()
    assert naive - a / (a + b) > 0.04


def test_the_truncated_fit_is_the_likelihoods_top() -> None:
    from scipy.optimize import minimize

    n = 6
    pools = with_signal(600, n, 2)

    def loss(log_shape: FloatArray) -> float:
        a, b = np.exp(log_shape)
        base = betaln(a, b)
        none = np.exp(betaln(a + n, b) - base) + np.exp(betaln(a, b + n) - base)
        chance = comb(n, pools.pos) * np.exp(betaln(a + pools.pos, b + pools.neg) - base)
        return float(-np.log(chance / (1 - none)).sum())

    best = minimize(loss, [0.0, 0.5], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 2000})
    law = fit_with_signal(pools, Resampling(pools, 2)).law
    assert isinstance(law, Beta)
    assert loss(np.log([law.a, law.b])) - best.fun < 0.01


def test_a_dump_without_groups_of_one_class_is_recognised() -> None:
    found, why = lacks_no_signal(with_signal(2000, 8, 3))
    assert found
    assert "groups without signal were left out" in why
    study = Study.of(with_signal(2000, 8, 3))
    assert study.selection is Selection.signal
    assert why in study.notes
    # From all of these prompts some groups have no signal: the share is that of the law, and not 1.
    truth = exact_signal(8, 1.2, 2.5)
    assert study.plain_signal(8).low < truth < study.plain_signal(8).high
    assert study.pass_rate.low < 1.2 / 3.7 < study.pass_rate.high


def test_prompts_near_one_half_lack_no_group() -> None:
    """Of 16 responses at p = 1/2 all are alike once in 32,768 groups: none among 200 is no evidence."""
    random = np.random.Generator(np.random.Philox(4))
    pools = Pools.from_counts(random.binomial(16, 0.5, 200), np.full(200, 16))
    assert not lacks_no_signal(pools)[0]
    assert Study.of(pools).selection is Selection.all


def test_one_group_without_signal_is_enough() -> None:
    pools = with_signal(2000, 8, 3)
    pos = np.append(pools.pos, 0)
    more = Pools.from_counts(pos, np.full(pos.size, 8))
    assert not lacks_no_signal(more)[0]
    with pytest.raises(InputError, match="holds groups without it"):
        fit_with_signal(more, Resampling(more, 2))


@pytest.mark.parametrize("name", ["pos", "balance", "batches until a success"])
def test_balanced_groups_of_a_known_policy_give_the_law_back(name: str) -> None:
    policy = RULES[name]
    groups = kept(policy, 4000, 5)
    fit = fit_kept(groups, policy, Resampling(groups, 200))
    assert fit.mean.low < 0.2 < fit.mean.high
    assert fit.signal(4).low < exact_signal(4) < fit.signal(4).high
    assert (groups.pos / groups.total).mean() - 0.2 > 0.05, "as plain counts they are far off"
    assert policy.label in fit.how


def test_a_study_of_kept_rows() -> None:
    """Corrected where the policy is stated, and said to be of kept rows where it isn't."""
    policy = RULES["balance"]
    groups = kept(policy, 3000, 12)
    known = Study.of(groups, policy, selection=Selection.kept)
    assert known.pass_rate.low < 0.2 < known.pass_rate.high
    assert known.plain_signal(4).low < exact_signal(4) < known.plain_signal(4).high
    blind = Study.of(groups, selection=Selection.kept)
    assert blind.pass_rate.low > 0.25
    assert "of kept rows" in blind.pass_rate.how
    assert any("--stopped-by" in note for note in blind.notes)


def test_chances_of_kept_groups_add_up_to_one() -> None:
    """Over all groups that the policy can keep, under any law; and each is what simulation gives."""
    policy = RULES["balance"]
    groups = kept(policy, 40_000, 6)
    fit = fit_kept(groups, policy, Resampling(groups, 2))
    law = fit.law
    assert isinstance(law, Beta)
    seen, times = np.unique(groups.pos * 10 + groups.neg, return_counts=True)
    assert {int(code) for code in seen} == {4, 13, 22, 31, 40}
    rates = np.random.Generator(np.random.Philox(7)).beta(law.a, law.b, 40_000)
    again = simulate(policy, rates, np.random.Generator(np.random.Philox(8)))
    pos, neg = policy.group.split(again.pos, again.neg, 4)
    for code, count in zip(seen, times, strict=True):
        other = int((pos * 10 + neg == code).sum())
        assert abs(count - other) < 5 * (2 * max(count, 1)) ** 0.5


def test_a_policy_that_cannot_keep_such_groups() -> None:
    groups = Pools.from_counts([2, 5], [4, 8])
    with pytest.raises(InputError, match="can't keep a group of 5 correct and 3 incorrect"):
        fit_kept(groups, RULES["balance"], Resampling(groups, 2))
    with pytest.raises(InputError, match="shares its budget"):
        fit_kept(groups, Policy.preset("gvm"), Resampling(groups, 2))


def test_only_groups_with_signal_of_a_policy() -> None:
    policy = RULES["balance"]
    groups = kept(policy, 30_000, 9)
    mixed = (groups.pos > 0) & (groups.neg > 0)
    groups = groups.take(mixed)
    fit = fit_kept(groups, policy, Resampling(groups, 100), signal_only=True)
    assert fit.mean.low < 0.2 < fit.mean.high


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["signal", "kept"])
def test_coverage_of_two_hundred_files(kind: str) -> None:
    """Of 95 % intervals of 200 files, between 92 and 98 % hold the truth."""
    hits = dict.fromkeys(("mean", "signal"), 0)
    for seed in range(200):
        if kind == "signal":
            pools = with_signal(1500, 8, 100 + seed)
            fit, mean, truth = fit_with_signal(pools, Resampling(pools, 200)), 1.2 / 3.7, exact_signal(4, 1.2, 2.5)
        else:
            pools = kept(RULES["balance"], 1500, 100 + seed)
            fit, mean, truth = fit_kept(pools, RULES["balance"], Resampling(pools, 200)), 0.2, exact_signal(4)
        hits["mean"] += fit.mean.low <= mean <= fit.mean.high
        hits["signal"] += fit.signal(4).low <= truth <= fit.signal(4).high
    assert {key: 184 <= count <= 196 for key, count in hits.items()} == dict.fromkeys(hits, True), str(hits)
