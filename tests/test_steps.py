"""One protocol for what gives each step its allocator."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ada_bandit import EmpiricalBayes, PassRateMemory, Policy, ScoreModel, uniform
from ada_bandit.allocator import Allocator
from ada_bandit.errors import InputError, ProtocolError
from ada_bandit.policy import Blend
from ada_bandit.step_specs import read_step_policy
from ada_bandit.steps import FixedPolicy, StepPolicy, as_step_policy
from ada_bandit.uniforms import Stream

STEPS: dict[str, Callable[[], StepPolicy]] = {
    "fixed": lambda: FixedPolicy(Policy.preset("reinforce-ada-balance")),
    "fixed with a memory": lambda: FixedPolicy(Policy.preset("mopps", wanted=4), PassRateMemory()),
    "learned": lambda: EmpiricalBayes(model=ScoreModel(noise_ratio=5.0), samples=2, max_samples=8, refit_every=1),
    "learned with a memory": lambda: EmpiricalBayes(samples=2, max_samples=8, refit_every=1, memory=PassRateMemory()),
}


def drive(steps: StepPolicy, count: int, first: int = 0) -> list[Allocator]:
    """Run steps as any program does, without asking what gives the allocators."""
    allocators = []
    for step in range(first, first + count):
        keys = [f"prompt {number}" for number in range(8)] if steps.memory is not None else None
        allocator = steps.allocator(8, seed=step, keys=keys)
        while request := allocator.ask():
            u = uniform(step, Stream.REWARDS, request.prompts, request.draws)
            allocator.tell(request.ids, u < (request.prompts + 1) / 10)
        steps.observe(allocator, keys)
        allocators.append(allocator)
    return allocators


@pytest.mark.parametrize("name", STEPS)
def test_any_of_them_is_a_step_policy_and_goes_on_from_its_state(name: str) -> None:
    steps = STEPS[name]()
    assert isinstance(steps, StepPolicy)
    assert as_step_policy(steps) is steps
    drive(steps, 3)
    again = STEPS[name]()
    assert again.describe() == steps.describe()
    again.load_state_dict(steps.state_dict())
    for one, other in zip(drive(steps, 2, 3), drive(again, 2, 3), strict=True):
        np.testing.assert_array_equal(one.groups().ids, other.groups().ids)
        np.testing.assert_array_equal(one.groups().advantages, other.groups().advantages)
    assert steps.learns == (name != "fixed")


def test_a_fixed_policy_remembers_pools_and_counts_a_prompt_that_stands_twice_once() -> None:
    memory = PassRateMemory(decay=0.5)
    steps = as_step_policy(Policy.preset("grpo"), memory)
    allocator = steps.allocator(3, keys=["a", "b", "a"])
    request = allocator.ask()
    # Prompt 0: 4 of 4, prompt 1: none, prompt 2, the same as prompt 0: 1 of 4.
    allocator.tell(request.ids, [1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0])
    steps.observe(allocator, ["a", "b", "a"])
    recalled = memory.recall(["a", "b"])
    np.testing.assert_array_equal(recalled.pos, [5, 0])
    np.testing.assert_array_equal(recalled.neg, [3, 4])
    np.testing.assert_array_equal(recalled.visits, [1, 1])


@pytest.mark.parametrize("name", STEPS)
def test_keys_are_one_a_prompt(name: str) -> None:
    with pytest.raises(InputError, match="keys must be one a prompt; got 2 for 3 prompts"):
        STEPS[name]().allocator(3, keys=["a", "b"])


def test_a_step_that_has_not_ended_is_not_observed() -> None:
    steps = as_step_policy(Policy.preset("grpo"), PassRateMemory())
    allocator = steps.allocator(2, keys=["a", "b"])
    allocator.ask()
    with pytest.raises(ProtocolError, match="the step has not ended"):
        steps.observe(allocator, ["a", "b"])


@pytest.mark.parametrize("policy", ["grpo", None, 4, object()])
def test_what_is_no_policy(policy: object) -> None:
    with pytest.raises(InputError, match=r"policy must be a Policy or a step policy, such as EmpiricalBayes; got"):
        as_step_policy(policy)  # type: ignore[arg-type]


def test_what_is_no_memory() -> None:
    with pytest.raises(InputError, match=r"memory must be a PassRateMemory; got 0\.9"):
        as_step_policy(Policy.preset("grpo"), 0.9)  # type: ignore[arg-type]


def test_a_state_without_the_memory_is_refused() -> None:
    steps: Sequence[FixedPolicy] = [
        FixedPolicy(Policy.preset("grpo")),
        FixedPolicy(Policy.preset("grpo"), PassRateMemory()),
    ]
    for one, other in (steps, steps[::-1]):
        with pytest.raises(InputError, match="and this run differs; build it with the same options"):
            one.load_state_dict(other.state_dict())
    with pytest.raises(InputError, match="the state lacks memory"):
        steps[0].load_state_dict({})


@pytest.mark.parametrize("choice", ["mask", "leave_out", "keep"])
@pytest.mark.parametrize(
    "spec",
    [
        "grpo",
        "dapo",
        {"empirical_bayes": {"noise_ratio": 5.0, "max_samples": 4}},
        Blend(Policy.preset("reinforce-ada-pos"), Policy.preset("reinforce-ada-balance"), 0.5).to_dict(),
    ],
)
def test_a_run_may_say_what_becomes_of_silent_groups(spec: Any, choice: Any) -> None:
    steps = read_step_policy(spec, no_signal=choice)
    assert [policy.no_signal for _, policy in steps.policy.parts] == [choice] * len(steps.policy.parts)
    assert all(policy.no_signal == choice for policy in steps.allocator(3).policies)
    if isinstance(steps, EmpiricalBayes):
        # Also where prompts that are known from earlier steps have policies of their own.
        steps.memory = PassRateMemory()
        steps.memory.update(["a", "b"], [3.0, 0.0], [1.0, 4.0])
        policies = steps.allocator(3, 0, ["a", "b", "c"]).policies
        assert len(policies) > 1
        assert all(policy.no_signal == choice for policy in policies)
    # It is part of what a resumed run must have, and of nothing else.
    assert steps.describe() != read_step_policy(spec, no_signal="mask" if choice != "mask" else "keep").describe()
    if choice == "mask" and spec != "dapo":
        assert steps.describe() == read_step_policy(spec).describe()


def test_a_step_policy_that_is_made_is_not_told_what_becomes_of_silent_groups() -> None:
    with pytest.raises(InputError, match="no_signal = 'keep' can't be told to a FixedPolicy that is made"):
        read_step_policy(FixedPolicy(Policy.preset("grpo")), no_signal="keep")
    with pytest.raises(InputError, match="unknown value 'kept' of no_signal; did you mean 'keep'"):
        EmpiricalBayes(no_signal="kept")  # type: ignore[arg-type]
