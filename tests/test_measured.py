"""Measured efficiency: unbiased by enumeration, equal to slow twins, and to updates that the allocator draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product

import numpy as np
import pytest

from ada_bandit import Balance, Never, Policy, Positive, Rounds, analyze
from ada_bandit.advantages import GroupMean, GroupStd, PoolMean
from ada_bandit.class_scores import ClassScores
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, Uniform
from ada_bandit.measured import measure_efficiency, measure_update
from ada_bandit.policy import Blend
from tests.enumerable import TEN, Answers, Array, check_agreement, exact_energy, generator, mean_update, softmax

SLOPES: dict[str, Callable[[Array], Array]] = {
    "mean": np.ones_like,
    "log": lambda p: 1 / p,
    "pass@2": lambda p: 2 * (1 - p),
}


def outcomes(samples: int, answers: int) -> Iterator[tuple[int, ...]]:
    """Yield every way in which responses can fall on answers."""
    for first in range(samples + 1) if answers > 1 else (samples,):
        for rest in outcomes(samples - first, answers - 1) if answers > 1 else ((),):
            yield (first, *rest)


def multinomial(counts: Sequence[int], chance: Array) -> float:
    ways = math.factorial(sum(counts)) / math.prod(math.factorial(each) for each in counts)
    return float(ways * np.prod(chance ** np.array(counts)))


SMALL = {
    "group mean": Policy(Never(), Rounds(4), 4, All(), GroupMean()),
    "balance by pairs": Policy(Balance(2), Rounds(2, 2), 2, Balanced(), PoolMean()),
    "random split": Policy(Positive(), Rounds(1, 4), 2, Uniform(), GroupStd()),
    "raft": Policy.preset("raft", group_size=3),
}


@pytest.fixture(scope="module")
def small() -> Answers:
    return softmax(prompts=2, answers=4, size=3, seed=1)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("objective", ["mean", "pass@2"])
def test_estimates_are_unbiased_by_enumeration(small: Answers, name: str, objective: str) -> None:
    # Every way in which 8 responses to each of two prompts can fall on 4 answers, weighted by its chance.
    policy, samples = SMALL[name], 8
    expected: dict[str, Array] = {}
    pos_sum, neg_sum = np.zeros((2, *small.gradient.shape))
    for counts in outcomes(samples, 4):
        scores = small.sums(np.array([counts, counts], dtype=np.float64))
        update = measure_update(policy, scores, objective)
        assert not update.plugged.any()
        chance = np.array([multinomial(counts, row) for row in small.chance])
        for part in ("samples", "kept", "energy", "own_progress"):
            expected[part] = expected.get(part, np.zeros(2)) + chance * getattr(update, part)
        pos, neg = small.class_sums(np.array([counts, counts], dtype=np.float64))
        pos_sum += (chance * update.pos_weight)[:, None] * pos
        neg_sum += (chance * update.neg_weight)[:, None] * neg
    analysis, mean = analyze(policy, small.rate), mean_update(small, policy)
    pull = SLOPES[objective](small.rate)
    np.testing.assert_allclose(expected["samples"], analysis.expected_samples, rtol=1e-10)
    np.testing.assert_allclose(pos_sum + neg_sum, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(expected["energy"], [exact_energy(small, policy, at) for at in (0, 1)], rtol=1e-10)
    np.testing.assert_allclose(expected["own_progress"], pull * (mean * small.gradient).sum(axis=1), rtol=1e-10)


def test_log_p_is_off_by_what_the_docstring_says(small: Answers) -> None:
    policy, samples = SMALL["group mean"], 8
    found = np.zeros(2)
    for counts in outcomes(samples, 4):
        update = measure_update(policy, small.sums(np.array([counts, counts], dtype=np.float64)), "log")
        found += [multinomial(counts, row) for row in small.chance] * update.own_progress
    exact = (mean_update(small, policy) * small.gradient).sum(axis=1) / small.rate
    np.testing.assert_allclose(found, exact, rtol=np.max((1 - small.rate) ** (samples - 1)))


def test_the_energy_is_the_mean_over_what_the_policy_would_do_with_these_responses() -> None:
    # A slow twin: the first responses of every order of the pool.
    chance = generator(2)
    correct = np.array([True, False, False, True, False, False])
    scores = chance.standard_normal((6, 3))
    pos, neg = scores[correct], scores[~correct]
    sums = ClassScores(
        pos=np.array([2.0]),
        neg=np.array([4.0]),
        pos_energy=np.array([(pos**2).sum()]),
        neg_energy=np.array([(neg**2).sum()]),
        gram_pos=np.array([[pos.sum(axis=0) @ pos.sum(axis=0)]]),
        gram_cross=np.array([[pos.sum(axis=0) @ neg.sum(axis=0)]]),
        gram_neg=np.array([[neg.sum(axis=0) @ neg.sum(axis=0)]]),
    )
    policy = Policy(Positive(), Rounds(1, 3), 3, All(), GroupMean())
    energies, spent = [], []
    for order in permutations(range(6)):
        drawn = order[:1]
        while len(drawn) < 3 and not correct[list(drawn)].any():
            drawn = order[: len(drawn) + 1]
        rewards = correct[list(drawn)].astype(np.float64)
        energies.append(float((((rewards - rewards.mean())[:, None] * scores[list(drawn)]).sum(axis=0) ** 2).sum()))
        spent.append(len(drawn))
    update = measure_update(policy, sums)
    assert update.energy[0] == pytest.approx(np.mean(energies), rel=1e-12)
    assert update.samples[0] == pytest.approx(np.mean(spent), rel=1e-12)


def test_means_over_pairs_are_those_of_a_loop() -> None:
    toy = softmax(prompts=6, answers=4, size=3, seed=3)
    scores, policy, pool, batch = toy.probe(12, 4), SMALL["group mean"], 5, 3
    update = measure_update(policy, scores)
    (found,) = measure_efficiency([policy], scores, pool=pool, batch=batch, update_cost=2, resamples=2)

    # The sums themselves, of the same draws.
    counts = generator(4).multinomial(12, toy.chance).astype(np.float64)
    pos, neg = toy.class_sums(counts)
    mean = update.pos_weight[:, None] * pos + update.neg_weight[:, None] * neg
    share = (counts * toy.right).sum(axis=1)[:, None] / 12
    gradient = ((1 - share) * pos - share * neg) / 11
    pairs = list(permutations(range(6), 2))
    cross = {(i, j): float(mean[i] @ gradient[j]) for i, j in pairs}
    alike = np.mean([mean[i] @ mean[j] for i, j in pairs])
    own = update.own_progress
    progress = (1 - 1 / pool) * np.mean(list(cross.values())) + own.mean() / pool
    moment = update.energy.mean() + (batch - 1) * alike
    cost = 4 + 2 * update.kept.mean()
    four = np.mean([cross[i, j] * cross[k, m] for (i, j), (k, m) in product(pairs, pairs) if len({i, j, k, m}) == 4])
    three = np.mean([cross[i, j] * own[k] for (i, j), k in product(pairs, range(6)) if k not in (i, j)])
    two = np.mean([own[i] * own[j] for i, j in pairs])
    square = (1 - 1 / pool) ** 2 * four + 2 * (1 - 1 / pool) / pool * three + two / pool**2
    assert found.progress == pytest.approx(progress, rel=1e-12)
    assert found.second_moment == pytest.approx(moment, rel=1e-12)
    assert found.cost == pytest.approx(cost, rel=1e-12)
    assert found.value == pytest.approx(np.sign(progress) * square / (moment * cost), rel=1e-10)
    assert found.against == 1


# Against updates that are really drawn


@pytest.fixture(scope="module")
def toy() -> Answers:
    return softmax(prompts=8, answers=6, size=5, seed=5, shared=1.0)


@pytest.mark.parametrize("name", TEN)
def test_measured_efficiency_agrees_with_drawn_updates(toy: Answers, name: str) -> None:
    check_agreement(toy, [toy.probe(48, 100 + at) for at in range(40)], name)


# Errors over prompts, and what is left of a rate that is plugged in


def test_bootstrap_errors_are_those_of_new_prompts() -> None:
    policies = [Policy.preset("raft"), Policy.preset("grpo")]
    found = []
    for seed in range(60):
        scores = softmax(prompts=40, answers=6, size=5, seed=20 + seed, shared=0.0).probe(12, 200 + seed)
        # The same shared part in every population: the answers' features.
        found.append(measure_efficiency(policies, scores, pool=8, batch=2, resamples=100, seed=seed))
    for place in (0, 1):
        for name in ("progress", "second_moment"):
            values = np.array([getattr(each[place], name) for each in found])
            errors = np.array([getattr(each[place], f"{name}_error") for each in found])
            # The spread of 60 values has a standard error of 9 %.
            assert values.std(ddof=1) == pytest.approx(np.sqrt((errors**2).mean()), rel=0.36), name
    assert all(each[0].against == 1 and each[0].against_error == 0 for each in found)


def test_more_draws_than_responses_plug_the_rates_in(toy: Answers) -> None:
    policy, scores = Policy.preset("reinforce-ada-seq"), toy.probe(48, 8)
    update = measure_update(policy, scores)
    assert update.plugged.all()
    assert measure_efficiency([policy], scores, resamples=2)[0].plugged == 8
    np.testing.assert_allclose(update.samples, analyze(policy, scores.pos / 48).expected_samples, rtol=1e-10)
    many = toy.probe(200_000, 8)
    energy = np.array([exact_energy(toy, policy, at) for at in range(8)])
    assert not measure_update(policy, many).plugged.any()
    np.testing.assert_allclose(measure_update(policy, many).energy, energy, rtol=0.05)
    # Two responses of a product of scores, and the powers of p and q beside the law's, must be other ones.
    grpo = SMALL["group mean"]
    assert measure_update(grpo, toy.probe(6, 9)).plugged.all()
    assert not measure_update(grpo, toy.probe(7, 9)).plugged.any()
    assert measure_update(grpo, toy.probe(7, 9), "pass@2").plugged.all()


def test_a_blend_is_the_mean_of_its_parts(toy: Answers) -> None:
    low, high = (Policy(rule, Rounds(1, 4), 2, Balanced(), PoolMean()) for rule in (Positive(), Balance(2)))
    scores = toy.probe(20, 10)
    parts = [measure_update(each, scores, "log") for each in (low, high)]
    blend = measure_update(Blend(low, high, 0.3), scores, "log")
    for name in ("samples", "kept", "energy", "pos_weight", "neg_weight", "own_progress"):
        expected = 0.7 * getattr(parts[0], name) + 0.3 * getattr(parts[1], name)
        np.testing.assert_allclose(getattr(blend, name), expected, err_msg=name)


def test_an_update_that_is_always_0_has_no_efficiency() -> None:
    chance = np.zeros((5, 4))
    chance[:, 3] = 10
    toy = softmax(prompts=5, answers=4, size=3, seed=11)
    (found,) = measure_efficiency([Policy.preset("grpo")], toy.sums(chance), resamples=4)
    assert (found.value, found.progress, found.second_moment, found.cost) == (0, 0, 0, 4)
    assert math.isnan(found.against)


def test_bad_input(toy: Answers) -> None:
    scores, policy = toy.probe(12, 12), SMALL["group mean"]
    with pytest.raises(InputError, match="knows the objectives 'mean', 'log' and 'pass@k'; got 'pass@0'"):
        measure_update(policy, scores, "pass@0")
    with pytest.raises(InputError, match=r"needs at least 3 responses with a reward.*prompt 0 has 2"):
        measure_update(policy, toy.probe(2, 12))
    with pytest.raises(InputError, match=r"at least 4 prompts; got 3\. Probe more prompts"):
        measure_efficiency([policy], scores.of(np.arange(3)))
    with pytest.raises(InputError, match="pool must be a whole number of at least 1; got 0"):
        measure_efficiency([policy], scores, pool=0)
    with pytest.raises(InputError, match=r"response_cost must be one number above 0, or one for each of 8 prompts"):
        measure_efficiency([policy], scores, response_cost=[1.0, 2.0])
