"""Exact analysis when responses go unscored, against enumeration, closed forms and the allocator."""

from itertools import product

import numpy as np
import pytest

from ada_bandit import Allocator, Beta, Policy, Rounds, ScoreModel, analyze, gradient_efficiency, uniform
from ada_bandit.advantages import AdvantageTable
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, Uniform
from ada_bandit.rules import Balance, Never
from ada_bandit.uniforms import Stream
from ada_bandit.unscored import analyze_unscored

P = np.array([0.0, 0.05, 0.3, 0.5, 0.9, 1.0])
NAMES = ("grpo", "dr-grpo", "rloo", "reinforce-ada-pos", "reinforce-ada-balance", "pods", "speed", "maxrl")


@pytest.mark.parametrize("name", NAMES)
def test_without_failures_it_is_the_exact_analysis(name: str) -> None:
    policy = Policy.preset(name)
    exact, ours = analyze(policy, P), analyze_unscored(policy, P, 0.0)
    for field in ("expected_samples", "signal_probability", "gradient_weight", "rows_in_loss"):
        np.testing.assert_allclose(getattr(ours, field), getattr(exact, field), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["reinforce-ada-pos", "reinforce-ada-balance", "pods", "speed"])
def test_what_is_wholly_replaced_is_as_if_nothing_failed(name: str) -> None:
    # K more responses are enough for all losses but with a chance below 1e-8.
    exact, ours = analyze(Policy.preset(name), P), analyze_unscored(Policy.preset(name, replace=1.0), P, 0.05)
    for field in ("signal_probability", "gradient_weight", "rows_in_loss"):
        np.testing.assert_allclose(getattr(ours, field), getattr(exact, field), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.expected_samples, exact.expected_samples / 0.95, rtol=1e-6)
    one, other = (
        gradient_efficiency(policy, Beta(0.5, 1), unscored=share)
        for policy, share in ((Policy.preset(name), 0.0), (Policy.preset(name, replace=1.0), 0.05))
    )
    np.testing.assert_allclose(other.value, 0.95 * one.value, rtol=1e-6)


def test_plain_groups_in_closed_form() -> None:
    # Of n = 4 responses, m are scored with chance Bin(m; 4, 1 - f); r - mean over m of n slots has w = (m - 1) / 4.
    f = 0.2
    chance = (f**4, 4 * f**3 * (1 - f), 6 * f**2 * (1 - f) ** 2, 4 * f * (1 - f) ** 3, (1 - f) ** 4)
    ours = analyze_unscored(Policy.preset("dr-grpo"), P, f)
    np.testing.assert_allclose(ours.gradient_weight, sum(c * max(m - 1, 0) / 4 for m, c in enumerate(chance)))
    np.testing.assert_allclose(ours.expected_rows, 4 * (1 - f))
    np.testing.assert_allclose(ours.expected_samples, 4)
    wanted = sum(c * (1 - P**m - (1 - P) ** m) for m, c in enumerate(chance) if m)
    np.testing.assert_allclose(ours.signal_probability, wanted, atol=1e-15)


@pytest.mark.parametrize("replace", [0.0, 0.25, 0.5])
def test_every_outcome_enumerated(replace: float) -> None:
    # Two rounds of two and up to two replacements: all 3^6 outcomes of correct, incorrect and lost, told one by one.
    policy = Policy(Balance(2), Rounds(2, 2, replace=replace), 2)
    p, f = 0.3, 0.25
    samples, rows, signal = np.zeros(3)
    width = 4 + policy.budget.replacements
    for outcome in product((0, 1, None), repeat=width):
        allocator = Allocator(policy, 1)
        asked = 0
        while request := allocator.ask():
            allocator.tell(request.ids, [outcome[draw] for draw in request.draws.tolist()])
            asked += len(request)
        weight = np.prod([{0: (1 - f) * (1 - p), 1: (1 - f) * p, None: f}[each] for each in outcome])
        groups = allocator.groups()
        samples += weight * asked
        rows += weight * groups.mask.sum()
        signal += weight * groups.signal.sum()
    ours = analyze_unscored(policy, p, f)
    np.testing.assert_allclose(
        [ours.expected_samples, ours.expected_rows, ours.signal_probability], [samples, rows, signal]
    )


@pytest.mark.parametrize("replace", [0.0, 0.1])
@pytest.mark.parametrize("group", ["balanced", "uniform"])
def test_it_is_what_the_allocator_does(replace: float, group: str) -> None:
    kept = Uniform() if group == "uniform" else Balanced()
    policy = Policy(Balance(4), Rounds(8, 4, replace=replace), 4, kept)
    p, f, prompts = 0.1, 0.15, 40_000
    allocator = Allocator(policy, prompts, seed=3)
    while request := allocator.ask():
        u, v = (uniform(3, stream, request.prompts, request.draws) for stream in (Stream.REWARDS, 100))
        allocator.tell(request.ids, np.where(v < f, np.nan, u < p))
    groups, ours = allocator.groups(), analyze_unscored(policy, p, f)
    # E[update] = w grad p: a positive's score is grad p / p on average, a negative's -grad p / q.
    pulls = np.where(groups.correct, groups.advantages / p, -groups.advantages / (1 - p)) * groups.mask
    spent = np.bincount(allocator.locate(np.nonzero(allocator._status.ravel())[0])[0], minlength=prompts)
    for values, exact in (
        (spent, ours.expected_samples),
        (groups.mask.sum(axis=1), ours.expected_rows),
        (groups.signal, ours.signal_probability),
        (pulls.sum(axis=1) / 4, ours.gradient_weight),
    ):
        assert abs(values.mean() - exact) < 4.5 * values.std() / np.sqrt(prompts) + 1e-12


def test_efficiency_with_losses_in_closed_form() -> None:
    # One response, advantage r - 1/2; half of them are lost.
    policy = Policy(Never(), Rounds(1), 1, All(), AdvantageTable(np.full((2, 2), 0.5), np.full((2, 2), -0.5)))
    model = ScoreModel(noise_ratio=2.0)
    whole, half = (gradient_efficiency(policy, Beta(2, 1), model, unscored=f) for f in (0.0, 0.5))
    # Progress and noise are those of half as many responses; the cost stays.
    np.testing.assert_allclose([half.progress, half.noise], [whole.progress / 2, whole.noise / 2], rtol=1e-13)
    assert half.cost == whole.cost == 1.0
    np.testing.assert_allclose(half.value, whole.value / 2, rtol=1e-13)


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"unscored must be a finite number in \[0, 1\]; got 1.5"):
        analyze_unscored(Policy.preset("grpo"), 0.5, 1.5)
    with pytest.raises(InputError, match="at most 256 responses a prompt, replacements included; got 300"):
        analyze_unscored(Policy.preset("grpo", group_size=300), 0.5, 0.1)
    with pytest.raises(InputError, match="shares a budget across the batch"):
        analyze_unscored(Policy.preset("dapo"), 0.5, 0.1)
