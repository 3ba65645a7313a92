"""Equal wall-clock time: progress per second of training steps that draw as many responses as now."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from ada_bandit.laws import Law
from sim.advise.profiles import Laws, Profile
from sim.advise.settings import Setting
from sim.clock import Lengths, Machine, step_time
from sim.readers import RolloutLog

__all__ = ["PROMPTS", "Clock", "lengths_of"]

PROMPTS = 256
"""Prompts a step that are assumed of what is run now."""


def lengths_of(log: RolloutLog | None) -> Lengths | None:
    """Return the lengths of a log's responses by correctness; None where they aren't known one by one."""
    if log is None:
        return None
    try:
        return Lengths.of_log(log)
    except InputError:
        return None


@dataclass(frozen=True, eq=False)
class Clock:
    """What a step takes."""

    prior: Law
    """The law of pass rates."""
    lengths: Lengths
    """Lengths of responses by correctness."""
    responses: float
    """Responses a step: every policy gets as many, in as many prompts as they make."""
    machine: Machine = field(default_factory=Machine)
    """Slots, speed, rounds and update."""

    def prompts(self, profile: Profile, laws: Laws) -> int:
        """Return prompts a step."""
        return max(1, round(self.responses / float(profile.responses(laws)[0])))

    def seconds(self, profile: Profile, laws: Laws) -> FloatArray:
        """Return the seconds of a prompt's share of a step, ``[law]``.

        The formula is computed under the fitted law. For resamples, sampling and update are scaled by
        their tokens and rows.
        """
        prompts = self.prompts(profile, laws)
        time = step_time(profile.policy, self.prior, prompts, self.lengths, self.machine)
        tokens, rows = profile.tokens(laws, self.lengths.means), laws.mean(profile.analysis.rows_in_loss)
        update = time.update * (rows / rows[0] if rows[0] > 0 else np.ones(rows.shape))
        return np.asarray((time.sampling * tokens / tokens[0] + update + time.fixed) / prompts)

    def efficiency(self, profile: Profile, setting: Setting, laws: Laws) -> FloatArray:
        """Return progress per second, ``[law]``; the update's cost is that of the machine."""
        return profile.utility(setting, laws) / self.seconds(profile, laws)
