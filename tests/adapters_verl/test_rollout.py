"""The worker against a plain `Allocator`, and all that can happen to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import transfer_queue as tq
from verl.utils import tensordict_utils

from ada_bandit import Allocator, Policy, Rounds
from ada_bandit.adapters.verl import NoScoreError
from ada_bandit.policy import Blend
from ada_bandit.tables import NoSignal
from ada_bandit.uniforms import fold_seed
from tests.adapters_verl import fakes, runs

RATES = [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.2]

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture
def start(folder: Path, cluster: Any, handles: list[Any]) -> Any:
    def make(*overrides: str, server: Any = None, **options: Any) -> runs.Run:
        made = fakes.config(folder, *overrides, **options)
        return runs.Run(made, handles, server or fakes.RandomServer({}))

    return make


def told(rewards: list[float]) -> Callable[[int], float]:
    return lambda draw: rewards[draw]


def scripted(place: int, rates: list[float] = RATES) -> Callable[[int], float]:
    return lambda draw: float(fakes.is_right(place, draw, rates[place]))


@pytest.mark.parametrize(
    ("name", "n"), [("reinforce-ada-balance", 4), ("reinforce-ada-pos", 4), ("grpo", 4), ("dr-grpo", 8), ("rloo", 6)]
)
def test_counts_rows_and_advantages_are_those_of_an_allocator_with_the_same_rewards(
    start: Any, name: str, n: int
) -> None:
    run = start("+ada.seed=5", policy=name, n=n)
    policy = Policy.preset(name, group_size=n)
    for number in (1, 2):
        step = run.step(fakes.batch(RATES, step=number), number)
        for place in range(len(RATES)):
            runs.check_equal(step, place, runs.plain(policy, place, scripted(place), seed=5, step=number))


def test_verls_own_agent_loop_with_a_server_that_answers_at_random(start: Any) -> None:
    run = start(server=fakes.RandomServer(dict(enumerate(RATES))))
    step = run.step(fakes.batch(RATES, loop="single_turn_agent"))
    policy = Policy.preset("reinforce-ada-balance", group_size=4)
    for place in range(len(RATES)):
        rewards = step.lines[place]["rewards"]
        assert set(rewards) <= {0.0, 1.0}
        runs.check_equal(step, place, runs.plain(policy, place, told(rewards)))
    # A group of four from pools of 8 to 32 responses: every row's reward is that of its draw.
    for name, row in step.rows.items():
        uid, draw = name.split("_")
        assert row["reward"] == step.lines[step.uids.index(uid)]["rewards"][int(draw)]
    assert (
        run.server.calls == step.metrics["ada/responses"] == sum(len(line["rewards"]) for line in step.lines.values())
    )


def test_a_policy_from_a_file(start: Any, tmp_path: Path) -> None:
    policy = Policy.preset("reinforce-ada-pos", group_size=2, samples=3, rounds=5)
    file = tmp_path / "policy.toml"
    file.write_text(policy.to_toml(), encoding="utf-8")
    step = start(policy=str(file), n=2).step(fakes.batch(RATES))
    for place in range(len(RATES)):
        runs.check_equal(step, place, runs.plain(policy, place, scripted(place)))


def test_metrics_are_those_of_the_pools(start: Any) -> None:
    step = start().step(fakes.batch(RATES))
    pools = [
        [scripted(place)(draw) for draw in range(len(step.lines[place]["rewards"]))] for place in range(len(RATES))
    ]
    groups = [step.kept(place) for place in range(len(RATES))]
    kept = [pools[place][draw] for place in range(len(RATES)) for draw in groups[place]]
    both = [len({pools[place][draw] for draw in groups[place]}) == 2 for place in range(len(RATES))]
    wanted = {
        "pool_reward": sum(sum(pool) / len(pool) for pool in pools) / len(pools),
        "selected_reward": sum(kept) / len(kept),
        "responses": sum(map(len, pools)),
        "tokens": 3 * sum(map(len, pools)),
        "rounds": max(map(len, pools)) / 8,
        "signal_fraction": sum(both) / len(both),
        # Balance wants two of each class; a pool of 32 has ended without.
        "unresolved_no_positive": sum(sum(pool) < 2 for pool in pools),
        "unresolved_no_negative": sum(len(pool) - sum(pool) < 2 for pool in pools),
        "unsampled": 0,
        "silent": len(both) - sum(both),
        "masked": len(both) - sum(both),
        "left_out": 0,
        "unscored": 0,
        "unscored_fraction": 0,
        "replaced": 0,
        "failed": 0,
        "truncated": 0,
        "empty_rows": 0,
        "failed_prompts": 0,
    }
    assert {name.removeprefix("ada/"): pytest.approx(value) for name, value in step.metrics.items()} == wanted


def test_a_response_without_a_score_is_spent_and_never_kept(start: Any) -> None:
    trouble = {"0": "raise", "1": "cancel", "2": "none", "3": "nan", "4": "inf"}
    step = start().step(fakes.batch([0.5, 0.5], trouble=trouble))
    policy = Policy.preset("reinforce-ada-balance", group_size=4)
    for place in range(2):
        reward = lambda draw, place=place: None if draw < 5 else scripted(place, [0.5, 0.5])(draw)  # noqa: E731
        runs.check_equal(step, place, runs.plain(policy, place, reward))
        assert step.lines[place]["rewards"][:5] == step.lines[place]["correct"][:5] == [None] * 5
    assert step.metrics["ada/unscored"] == 10
    assert step.metrics["ada/unscored_fraction"] == 10 / step.metrics["ada/responses"]
    assert step.metrics["ada/failed"] == 6


@pytest.mark.parametrize(("trouble", "options"), [("raise", ()), ("nan", ()), ("sleep", ("+ada.reward_timeout=0.5",))])
def test_a_reward_worker_that_raises_answers_nonsense_or_does_not_answer(
    start: Any, trouble: str, options: tuple[str, ...]
) -> None:
    run = start(*options, policy="grpo", n=2)
    step = run.step(fakes.batch([0.5, 0.5, 0.5], reward_trouble=["", trouble, ""]))
    assert step.lines[1]["rewards"] == [None, None]
    assert step.kept(1) == []
    assert step.metrics["ada/unscored"] == 2
    assert step.metrics["ada/empty_rows"] == 2
    for place in (0, 2):
        runs.check_equal(
            step, place, runs.plain(Policy.preset("grpo", group_size=2), place, scripted(place, [0.5] * 3))
        )
    if trouble == "sleep":
        # The worker that was slow must be free again before the next test.
        asyncio.run(asyncio.sleep(6))


def test_a_step_without_a_score_stops_the_run_and_says_where_to_look(start: Any) -> None:
    run = start(policy="grpo", n=2)
    uids = run.submit(fakes.batch([0.5, 0.5], reward_trouble="raise"))
    run.work()
    with pytest.raises(NoScoreError, match="none of the 4 responses"):
        run.collect(uids)


def test_a_prompt_whose_every_session_fails_is_marked_as_failed_and_leaves_no_rows(start: Any) -> None:
    run = start(policy="grpo", n=2)
    step = run.step(fakes.batch([0.5, 0.5], trouble=[{"0": "raise", "1": "raise"}, {}]))
    assert step.metrics["ada/failed_prompts"] == 1
    assert step.kept(0) == []
    assert step.kept(1) == [0, 1]
    alone = run.submit(fakes.batch([0.5], step=2, trouble={"0": "raise", "1": "cancel"}), 2)
    run.work()
    assert tq.kv_list("train")["train"][alone[0]]["status"] == "failure"
    with pytest.raises(NoScoreError, match="1 of them failed altogether"):
        run.collect(alone, 2)


def test_a_cancelled_prompt_ends_as_failed(start: Any) -> None:
    async def cancel(worker: Any) -> None:
        await asyncio.sleep(0.3)
        for task in worker.background_tasks:
            task.cancel()

    run = start(policy="grpo", n=2)
    uids = run.submit(fakes.batch([0.5, 0.5], delay=60.0))
    run.work(cancel)
    found = tq.kv_list("train")["train"]
    assert [found[uid]["status"] for uid in uids] == ["failure", "failure"]
    assert set(found) == set(uids)


def test_responses_without_a_score_are_drawn_again_where_the_budget_says_so(start: Any) -> None:
    # The second response is lost, and so is the fifth, which replaces it.
    run = start(policy='"grpo:replace=0.5"', n=4)
    step = run.step(fakes.batch([0.5, 0.5], trouble=[{"1": "raise", "4": "nan"}, {}]))
    policy = Policy.preset("grpo", group_size=4, replace=0.5)
    runs.check_equal(
        step, 0, runs.plain(policy, 0, lambda draw: None if draw in (1, 4) else scripted(0, [0.5] * 2)(draw))
    )
    runs.check_equal(step, 1, runs.plain(policy, 1, scripted(1, [0.5] * 2)))
    assert [len(step.lines[place]["rewards"]) for place in (0, 1)] == [6, 4]
    assert step.kept(0) == [0, 2, 3, 5]
    assert step.metrics["ada/replaced"] == 2
    assert step.metrics["ada/empty_rows"] == 0


def test_a_prompt_of_a_blend_has_one_of_its_policies(start: Any, tmp_path: Path) -> None:
    low = Policy(rule="never", budget=Rounds(4, 2), group_size=4)  # type: ignore[arg-type]
    blend = Blend(low, replace(low, rule="positive"), 0.5)  # type: ignore[arg-type]
    file = tmp_path / "blend.toml"
    file.write_text(blend.to_toml(), encoding="utf-8")
    rates = [1.0] * 12
    step = start(policy=str(file)).step(fakes.batch(rates))
    drawn = [len(step.lines[place]["rewards"]) for place in range(12)]
    # Without a wrong response the second one exits after its first round.
    assert set(drawn) == {4, 8}
    for place in range(12):
        runs.check_equal(step, place, runs.plain(blend, place, scripted(place, rates)))


@pytest.mark.parametrize("no_signal", ["mask", "leave_out", "keep"])
def test_groups_without_signal_are_what_the_policy_says(start: Any, no_signal: NoSignal) -> None:
    rates = [0.0, 0.5, 1.0]
    # Shaped rewards go down with the length, so that a group of one class has advantages from shaping alone.
    trouble = {str(draw): "long" for draw in range(0, 32, 3)}
    run = start("+ada.correct_key=acc", f"+ada.no_signal={no_signal}")
    step = run.step(fakes.batch(rates, reward_trouble="shaped", trouble=trouble))
    policy = replace(Policy.preset("reinforce-ada-balance", group_size=4), no_signal=no_signal)
    for place in range(3):
        right = scripted(place, rates)
        reward = lambda draw, right=right: 0.7 + 0.3 * right(draw) - 0.01 * (3 if draw % 3 else 16)  # noqa: E731
        expected = runs.plain(policy, place, reward, lambda draw, right=right: right(draw) > 0)  # type: ignore[misc]
        runs.check_equal(step, place, expected)
        if place != 1:
            weights = list(expected[1].values())
            assert len(weights) == (0 if no_signal == "leave_out" else 4)
            assert any(weights) == (no_signal == "keep")
    # Every row counts in the denominator.
    assert all(all(map(all, row["masks"])) for row in step.rows.values())
    assert step.metrics["ada/signal_fraction"] == pytest.approx(1 / 3)
    assert step.metrics["ada/silent"] == 2
    assert step.metrics["ada/left_out"] == 2 * (no_signal == "leave_out")
    assert step.metrics["ada/masked"] == 2 * (no_signal == "mask")
    # Nothing of what was left out stays behind in the queue.
    found = {key for key in tq.kv_list("train")["train"] if "_" in key}
    assert found == set(step.keys)
    assert len(step.lines) == 3


@pytest.mark.parametrize(("option", "rows"), [("mask", 8), ("leave_out", 1)])
def test_a_batch_without_signal_has_rows_of_no_weight(start: Any, option: str, rows: int) -> None:
    step = start(f"+ada.no_signal={option}").step(fakes.batch([0.0, 0.0]))
    assert len(step.rows) == rows
    for row in step.rows.values():
        assert any(row["masks"][0])
        assert not any(row["advantages"][0])


def test_truncated_responses_count_or_have_no_vote(start: Any) -> None:
    trouble = {str(draw): "long" for draw in range(0, 32, 2)}
    for option, voteless in (("false", False), ("true", True)):
        step = start(f"+ada.mask_truncated_completions={option}").step(fakes.batch([0.5, 0.5], trouble=trouble))
        policy = Policy.preset("reinforce-ada-balance", group_size=4)
        cut = sum(-(-len(line["rewards"]) // 2) for line in step.lines.values())
        assert step.metrics["ada/truncated"] == cut
        assert step.metrics["ada/unscored"] == cut * voteless
        for place in range(2):
            told = scripted(place, [0.5, 0.5])
            reward = lambda draw, told=told: None if voteless and draw % 2 == 0 else told(draw)  # noqa: E731, B023
            runs.check_equal(step, place, runs.plain(policy, place, reward))
            assert not voteless or all(draw % 2 for draw in step.kept(place))
            assert all(all(row["masks"][0]) for row in step.rows.values())


def test_a_step_of_truncated_responses_alone_says_so(start: Any) -> None:
    run = start("+ada.mask_truncated_completions=true", policy="grpo", n=2)
    uids = run.submit(fakes.batch([0.5, 0.5], trouble={"0": "long", "1": "long"}))
    run.work()
    with pytest.raises(NoScoreError, match="4 of them were truncated"):
        run.collect(uids)


def test_prompts_that_a_shared_budget_never_sampled_are_told_from_failures(start: Any) -> None:
    run = start(policy='"dapo:wanted=2"')
    rates = [0.5] * 8
    step = run.step(fakes.batch(rates))
    allocator = Allocator(Policy.preset("dapo", group_size=4, wanted=2), 8, fold_seed(0, 1, 0))
    while request := allocator.ask():
        pairs = zip(request.prompts.tolist(), request.draws.tolist(), strict=True)
        allocator.tell(request.ids, [scripted(prompt, rates)(draw) for prompt, draw in pairs])
    counts = allocator.metrics()
    assert counts["unsampled"] > 0
    names = "responses unsampled silent left_out masked unscored unscored_fraction replaced rounds signal_fraction"
    assert {name: step.metrics[f"ada/{name}"] for name in names.split()} == {
        name: counts[name] for name in names.split()
    }
    assert step.metrics["ada/failed_prompts"] == 0
    groups = allocator.groups()
    sampled = set(np.nonzero(groups.pos + groups.neg)[0].tolist())
    assert set(step.lines) == sampled
    for place in sampled:
        drawn = int(groups.pos[place] + groups.neg[place])
        runs.check_equal(step, place, (drawn, runs.kept_of(allocator, groups, place)))


def test_an_empty_response_counts_and_makes_no_row(start: Any) -> None:
    step = start(policy="grpo", n=4).step(fakes.batch([1.0], trouble={"1": "empty"}))
    assert step.lines[0]["rewards"] == [1.0, 0.0, 1.0, 1.0]
    assert step.kept(0) == [0, 2, 3]
    assert step.metrics["ada/empty_rows"] == 1


def test_a_trajectory_of_several_outputs_has_one_reward_and_one_advantage(start: Any) -> None:
    step = start().step(fakes.batch([0.5], outputs=3))
    policy = Policy.preset("reinforce-ada-balance", group_size=4)
    # The last of the outputs is scored, and carries the response's answer.
    runs.check_equal(step, 0, runs.plain(policy, 0, scripted(0, [0.5])))
    assert len(step.keys) == 12
    for row in step.rows.values():
        assert [len(mask) for mask in row["masks"]] == [3, 4, 5]
        assert len({value for part in row["advantages"] for value in part}) == 1
    assert step.metrics["ada/tokens"] == 12 * len(step.lines[0]["rewards"])


def test_correctness_may_stand_apart_from_a_shaped_reward(start: Any) -> None:
    run = start("+ada.correct_key=acc")
    step = run.step(fakes.batch([0.3, 0.6], reward_trouble="shaped"))
    policy = Policy.preset("reinforce-ada-balance", group_size=4)
    for place in range(2):
        right = scripted(place, [0.3, 0.6])
        drawn, kept = runs.plain(policy, place, shaped(right), lambda draw, right=right: right(draw) > 0)  # type: ignore[misc]
        assert len(step.lines[place]["rewards"]) == drawn
        assert step.lines[place]["correct"] == [right(draw) > 0 for draw in range(drawn)]
        assert step.kept(place) == sorted(kept)
        for draw, advantage in kept.items():
            assert step.advantages[f"{step.uids[place]}_{draw}"] == advantage
            assert step.lines[place]["rewards"][draw] == shaped(right)(draw)


def shaped(right: Callable[[int], float]) -> Callable[[int], float]:
    """What the reward function of that trouble gives for three words."""
    return lambda draw: 0.7 + 0.3 * right(draw) - 0.01 * 3


def test_validation_is_verls_own(start: Any) -> None:
    run = start()
    made = fakes.batch([0.5, 0.5])
    tensordict_utils.assign_non_tensor_data(made, "validate", True)  # noqa: FBT003 - verl's signature
    uids = fakes.announce(made, partition="val")
    run.manager.agent_loop_workers = [run.worker]

    async def go() -> None:
        await run.worker.generate_sequences(made)
        await asyncio.gather(*list(run.worker.background_tasks))

    runs.loop.run_until_complete(go())
    found = tq.kv_list("val")["val"]
    # val_kwargs.n is 1: one row a prompt, under verl's own key.
    assert set(found) == {*uids, *(f"{uid}_0_0" for uid in uids)}
    assert [found[uid]["status"] for uid in uids] == ["finished", "finished"]
    batch, metrics = run.buffer.sample(1, "val", 2)
    assert len(batch.keys) == 2
    assert metrics == {}


def test_a_dead_reward_worker_is_passed_over(folder: Path, cluster: Any) -> None:
    made = fakes.config(folder, "reward.num_workers=2", policy="grpo", n=4)
    handles = fakes.reward_workers(made)
    run = runs.Run(made, handles)
    ray.get([handle.__ray_ready__.remote() for handle in handles])
    ray.kill(handles[0])
    step = run.step(fakes.batch([0.5] * 4))
    assert step.metrics["ada/unscored"] == 0
    for place in range(4):
        runs.check_equal(
            step, place, runs.plain(Policy.preset("grpo", group_size=4), place, scripted(place, [0.5] * 4))
        )
    ray.kill(handles[1])
    uids = run.submit(fakes.batch([0.5] * 2, step=2), 2)
    run.work()
    with pytest.raises(NoScoreError, match="none of the 8 responses"):
        run.collect(uids, 2)


def test_the_pool_log_can_be_switched_off_and_is_written_over_where_a_run_resumes(start: Any) -> None:
    off = start("+ada.pool_log=null").step(fakes.batch([0.5]))
    assert off.lines == {}
    run = start()
    for number in (1, 2, 3):
        run.step(fakes.batch([0.5], step=number), number)
    again = runs.Run(run.config, run.handles)
    again.step(fakes.batch([0.5, 0.5], step=2), 2)
    path = run.manager.pool_log.path
    steps = [line.split(",")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    assert steps == ['{"step": 1', '{"step": 2', '{"step": 2']
