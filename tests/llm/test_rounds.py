from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from ada_bandit import Allocator, Policy
from ada_bandit.allocator import Groups
from ada_bandit.errors import InputError
from ada_bandit.specs import read_policy
from ada_bandit.step_specs import read_step_policy
from llm.distributed import World
from llm.rounds import StepSample, sample_step
from llm.types import Prompt
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


def test_rows_leave_out_groups_without_an_advantage_unless_asked_to_keep_them() -> None:
    # Four responses each: always right, never right, and a fair coin with both classes under this seed.
    task = CoinTask([1.0, 0.0, 0.5], SEED)
    step, groups = take(Policy.preset("dr-grpo"), task)
    assert 0 < groups.pos[2] < 4
    rows = step.kept(groups, keep_no_signal=False)
    assert [row.prompt for row in rows] == [2] * 4
    share = groups.pos[2] / 4
    expected = [float(reward) - share for reward in groups.rewards[2]]
    assert [row.advantage for row in rows] == pytest.approx(expected)
    kept = step.kept(groups, keep_no_signal=True)
    assert [row.prompt for row in kept] == [0] * 4 + [1] * 4 + [2] * 4
    assert [row.advantage for row in kept[:8]] == [0.0] * 8


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
        ("grpo:group=16", "unknown option of the preset 'grpo' 'group'"),
        ({"preset": "grpo", "group": 4}, "group"),
        ({"empirical_bayes": {"noise": 1.0}}, "noise"),
        ({"empirical_bayes": {}, "preset": "grpo"}, "preset"),
        ({"file": "a.toml", "preset": "grpo"}, "takes no other key"),
    ],
)
def test_a_policy_that_is_none(given: str | dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_step_policy(given)
