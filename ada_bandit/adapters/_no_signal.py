"""The one option of a policy that an adapter's own option may set: what becomes of silent groups."""

from __future__ import annotations

from dataclasses import replace

from ada_bandit.errors import InputError
from ada_bandit.policy import Blend
from ada_bandit.steps import FixedPolicy, StepPolicy
from ada_bandit.tables import NoSignal

__all__ = ["with_no_signal"]


def with_no_signal(steps: StepPolicy, no_signal: NoSignal | None) -> StepPolicy:
    """Return the step policy with another `Policy.no_signal`, or as it is where nothing is given.

    Raises
    ------
    InputError
        If the step policy makes its own policies.
    """
    if no_signal is None:
        return steps
    if not isinstance(steps, FixedPolicy):
        msg = (
            f"no_signal={no_signal} can't be set for {type(steps).__name__}, which makes its own policies: their "
            f"no_signal is {steps.policy.parts[0][1].no_signal!r}. Leave the option out"
        )
        raise InputError(msg)
    policy = steps.policy
    if isinstance(policy, Blend):
        low, high = (replace(part, no_signal=no_signal) for _, part in policy.parts)
        return FixedPolicy(replace(policy, low=low, high=high), steps.memory)
    return FixedPolicy(replace(policy, no_signal=no_signal), steps.memory)
