from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ada_bandit import Allocator, Policy
from ada_bandit._types import IntArray
from ada_bandit.allocator import Groups
from ada_bandit.errors import InputError
from ada_bandit.specs import read_policy
from ada_bandit.step_specs import read_step_policy
from llm.distributed import World
from llm.errors import TooManyUnscoredError
from llm.rounds import StepSample, sample_step
from llm.types import Prompt, Response
from llm.verify import Verifier
from sim.montecarlo import simulate
from tests.llm.fakes import CoinTask, NamingSampler

RATES = np.linspace(0.02, 0.98, 60)
SEED = 11


def untimed(phase: str) -> AbstractContextManager[None]:
    return nullcontext()


def take(policy: Policy, task: CoinTask, seed: int = SEED) -> tuple[StepSample, Groups]:
    prompts = [task[i] for i in range(len(task))]
    step = StepSample(Allocator(policy, len(prompts), seed), prompts, [[1]] * len(prompts))
    with Verifier(task, truncated="wrong", time_limit=5.0, workers=0) as verifier:
        return step, sample_step(step, NamingSampler(), verifier, seed, world=World(), timed=untimed)


@pytest.mark.parametrize("preset", ["reinforce-ada-balance", "reinforce-ada-pos", "grpo", "reinforce-ada-seq", "bayes"])
def test_sim_and_llm_take_the_same_responses_groups_and_advantages_from_one_file(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(Policy.preset(preset).to_toml(), encoding="utf-8")
    simulated, trained = read_policy(str(file)), read_step_policy(str(file)).policy
    assert isinstance(simulated, Policy)
    assert isinstance(trained, Policy)
    assert isinstance(simulated, Policy)
    exits = simulate(simulated, RATES, seed=SEED)
    step, groups = take(trained, CoinTask(RATES, SEED))
    np.testing.assert_array_equal(groups.pos, exits.pos)
    np.testing.assert_array_equal(groups.neg, exits.neg)
    # The simulator keeps by an allocator of its own on the same uniforms.
    own = Allocator(simulated, RATES.size, SEED)
    rewards = CoinTask(RATES, SEED)
    while request := own.ask():
        pairs = zip(request.prompts.tolist(), request.draws.tolist(), strict=True)
        own.tell(request.ids, [rewards.score(rewards[i], f"{i} {draw}") for i, draw in pairs])
    np.testing.assert_array_equal(groups.ids, own.groups().ids)
    np.testing.assert_array_equal(groups.advantages, own.groups().advantages)
    assert len(step.responses) == int((exits.pos + exits.neg).sum())


@pytest.mark.parametrize("no_signal", ["mask", "leave_out", "keep"])
def test_rows_are_those_that_the_policy_keeps(no_signal: str) -> None:
    # Four responses each: always right, never right, and a fair coin with both classes under this seed.
    task = CoinTask([1.0, 0.0, 0.5], SEED)
    step, groups = take(Policy.preset("dr-grpo", no_signal=no_signal), task)
    assert 0 < groups.pos[2] < 4
    rows = step.kept(groups)
    share = groups.pos[2] / 4
    expected = [float(reward) - share for reward in groups.rewards[2]]
    assert [row.advantage for row in rows[-4:]] == pytest.approx(expected)
    silent = [] if no_signal == "leave_out" else [0] * 4 + [1] * 4
    assert [row.prompt for row in rows] == [*silent, *[2] * 4]
    assert [row.advantage for row in rows[:-4]] == [0.0] * len(silent)
    assert [row.masked for row in rows] == [no_signal == "mask"] * len(silent) + [False] * 4


def test_a_verifier_that_fails_gives_no_score_and_is_counted() -> None:
    class Raising(CoinTask):
        def score(self, prompt: Prompt, text: str) -> float:
            if prompt.id == 1:
                msg = "no idea"
                raise RuntimeError(msg)
            return super().score(prompt, text)

    step, groups = take(Policy.preset("grpo"), Raising([0.5, 0.5], SEED))
    assert groups.mask.sum(axis=1).tolist() == [4, 0]
    # The same text of a prompt is scored once, four different ones are not.
    assert step.counts["raised"] == 4
    assert "no idea" in step.first_error
    assert "coin/1" in step.first_error
    assert math.isnan(step.pool_means()[1])


class Cutting(NamingSampler):
    """Every third response to a prompt is cut at the length limit."""

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        made = super().generate(prompts, ids, seed, temperature)
        return [
            replace(each, finish="length") if draw % 3 == 0 else each
            for each, (_, draw) in zip(made, ids.tolist(), strict=True)
        ]


def test_masked_truncated_responses_have_no_vote_and_are_never_kept() -> None:
    # Always right where they end: at n = 4 of 8 drawn, the draws 0, 3 and 6 are cut.
    task, policy = CoinTask([1.0, 0.0], SEED), Policy.preset("reinforce-ada-pos", rounds=1, no_signal="keep")
    prompts = [task[i] for i in range(2)]
    step = StepSample(Allocator(policy, 2, SEED), prompts, [[1]] * 2, mask_truncated=True)
    with Verifier(task, truncated="score", workers=0) as verifier:
        groups = sample_step(step, Cutting(), verifier, SEED, world=World(), timed=untimed)
    assert groups.pos.tolist() == [5, 0]
    assert groups.neg.tolist() == [0, 5]
    draws = step.allocator.locate(groups.ids[groups.mask])[1]
    assert not set(draws.tolist()) & {0, 3, 6}
    metrics = step.allocator.metrics()
    assert (metrics["unscored"], metrics["unscored_fraction"]) == (6, 6 / 16)
    # Without the mask they count as they are scored.
    plain = StepSample(Allocator(policy, 2, SEED), prompts, [[1]] * 2)
    with Verifier(task, truncated="score", workers=0) as verifier:
        groups = sample_step(plain, Cutting(), verifier, SEED, world=World(), timed=untimed)
    assert groups.pos.tolist() == [8, 0]
    assert plain.counts["truncated"] == step.counts["truncated"] == 6


def test_lost_responses_are_replaced_and_located() -> None:
    # With K = 4 and a share of 1/2, an allocator's rows are six wide: ids can't be divided by K.
    task, policy = CoinTask([1.0, 0.0, 1.0], SEED), Policy.preset("grpo", replace=0.5)
    prompts = [task[i] for i in range(3)]
    step = StepSample(Allocator(policy, 3, SEED), prompts, [[1]] * 3, mask_truncated=True)
    with Verifier(task, truncated="score", workers=0) as verifier:
        groups = sample_step(step, Cutting(), verifier, SEED, world=World(), timed=untimed)
    # The draws 0 and 3 are cut, 4 and 5 come in their place.
    assert step.allocator.metrics()["replaced"] == 6
    assert [step.allocator.locate(ids)[1].tolist() for ids in groups.ids] == [[1, 2, 4, 5]] * 3
    assert step.pool_means().tolist() == [1.0, 0.0, 1.0]
    assert [row.prompt for row in step.kept(groups)] == [0] * 4 + [1] * 4 + [2] * 4
    assert step.rounds == 2


def test_a_step_with_too_many_unscored_responses_stops() -> None:
    task = CoinTask([0.5] * 4, SEED)
    for most, stops in ((0.3, True), (0.4, False)):
        # A third of the responses and a bit: the draws 0, 3 and 6 of 8.
        allocator = Allocator(Policy.preset("reinforce-ada-pos", rounds=1), 4, SEED, max_unscored=most)
        step = StepSample(allocator, [task[i] for i in range(4)], [[1]] * 4, mask_truncated=True)
        with Verifier(task, truncated="score", workers=0) as verifier:
            if not stops:
                sample_step(step, Cutting(), verifier, SEED, world=World(), timed=untimed)
                continue
            with pytest.raises(
                TooManyUnscoredError, match=r"12 of the 32 responses .* \(38 %\).*0.3 allows.* 12 .*cut"
            ):
                sample_step(step, Cutting(), verifier, SEED, world=World(), timed=untimed)


def test_what_was_outstanding_at_a_restart_is_sampled_first() -> None:
    policy, task = Policy.preset("reinforce-ada-balance"), CoinTask(RATES, SEED)
    prompts = [task[i] for i in range(len(task))]
    whole, groups = take(policy, task)
    begun = StepSample(Allocator(policy, len(prompts), SEED), prompts, [[1]] * len(prompts))
    request = begun.allocator.ask()
    # Half of the first round was told before the process ended.
    half = len(request) // 2
    sampler = NamingSampler()
    pairs = np.stack([request.prompts, request.draws], axis=1)[:half]
    with Verifier(task, workers=0) as verifier:
        responses = sampler.generate([[1]] * half, pairs, SEED)
        scores = verifier.score([prompts[i] for i in request.prompts[:half]], responses)
        begun.allocator.tell(request.ids[:half], scores.rewards)
        begun.responses.update(zip(request.ids[:half].tolist(), responses, strict=True))
        begun.rewards.update(zip(request.ids[:half].tolist(), scores.rewards.tolist(), strict=True))
        again = StepSample(Allocator(policy, len(prompts), SEED), prompts, [[1]] * len(prompts))
        again.load_state_dict(begun.state_dict())
        found = sample_step(again, NamingSampler(), verifier, SEED, world=World(), timed=untimed)
    np.testing.assert_array_equal(found.ids, groups.ids)
    np.testing.assert_array_equal(found.advantages, groups.advantages)
    assert sorted(again.responses) == sorted(whole.responses)
    assert again.rewards == whole.rewards


def test_a_step_restored_after_any_round_ends_with_the_same_groups() -> None:
    policy = Policy.preset("reinforce-ada-balance")
    task = CoinTask(RATES, SEED)
    states = []
    prompts = [task[i] for i in range(len(task))]
    step = StepSample(Allocator(policy, len(prompts), SEED), prompts, [[1]] * len(prompts))
    with Verifier(task, truncated="wrong", time_limit=5.0, workers=0) as verifier:

        def keep(now: StepSample) -> None:
            states.append({**now.state_dict(), "responses": dict(now.responses), "rewards": dict(now.rewards)})

        whole = sample_step(step, NamingSampler(), verifier, SEED, world=World(), timed=untimed, after_round=keep)
        assert len(states) == 4
        for rounds, state in enumerate(states, 1):
            again = StepSample(Allocator(policy, len(prompts), SEED), prompts, [[1]] * len(prompts))
            again.load_state_dict({**state, "counts": dict(state["counts"])})
            assert again.rounds == rounds
            sampler = NamingSampler()
            groups = sample_step(again, sampler, verifier, SEED, world=World(), timed=untimed)
            assert len(sampler.seeds) == 4 - rounds
            np.testing.assert_array_equal(groups.ids, whole.ids)
            np.testing.assert_array_equal(groups.advantages, whole.advantages)
            assert again.pool_means().tolist() == step.pool_means().tolist()


def test_shares_of_processes_cover_a_request_once_and_differ_by_one_at_most() -> None:
    for size in (1, 2, 3, 8):
        for count in range(40):
            shares = []
            for rank in range(size):
                world = World()
                world.size, world.rank = size, rank
                shares.append(world.share(count))
            assert [i for share in shares for i in share] == list(range(count))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
            assert world.padding(count) == size * max(map(len, shares)) - count


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("grpoo", "did you mean 'grpo'"),
        ("nowhere.toml", "does not exist"),
        ("grpo:group=16", "unknown option 'group' of the preset 'grpo'"),
        ({"preset": "grpo", "group": 4}, "group"),
        ({"empirical_bayes": {"noise": 1.0}}, "noise"),
        ({"empirical_bayes": {}, "preset": "grpo"}, "preset"),
        ({"file": "a.toml", "preset": "grpo"}, "takes no other key"),
    ],
)
def test_a_policy_that_is_none(given: str | dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_step_policy(given)
