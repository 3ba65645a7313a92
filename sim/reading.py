"""How a log is read, how it came about, and whether it and the policies agree on what is correct."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit.policy import AnyPolicy, Policy
from sim.readers import ReadOptions, RolloutLog, Selection, read_rollouts
from sim.stopped import Study
from sim.words import plural

__all__ = ["Reading", "agree"]

_FEW = 2
"""Resamples where nobody asks for an interval."""


@dataclass(frozen=True)
class Reading:
    """What a user says of a log; what is left out is recognised, and told."""

    options: ReadOptions = field(default_factory=ReadOptions)
    """Columns, conditions and threshold."""
    stopped_by: Policy | None = None
    """The policy that sampled it."""
    holds: Selection | None = None
    """Which of the drawn responses it holds."""

    def read(self, path: str | Path, progress: Callable[[float], None] | None = None) -> RolloutLog:
        """Read a file, a folder or a glob (see `sim.readers.read_rollouts`)."""
        return read_rollouts(path, self.options, progress)

    def study(self, log: RolloutLog, *, replicates: int = _FEW, seed: int = 0) -> Study:
        """Take the log apart (see `sim.stopped.Study.of`); intervals ask for more replicates."""
        return Study.of(log, self.stopped_by, selection=self.holds, replicates=replicates, seed=seed)

    @property
    def given(self) -> dict[str, Any]:
        """What was said, as plain values by the name of its option."""
        said = {name.replace("group_size", "rows_per_prompt"): value for name, value in vars(self.options).items()}
        said |= {"stopped_by": self.stopped_by and self.stopped_by.label, "holds": self.holds and self.holds.value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items() if value}


def agree(log: RolloutLog, policies: Sequence[AnyPolicy], reading: Reading) -> tuple[str, ...]:
    """Say where policies and a log differ in what is correct; what the log was read by holds.

    A threshold that a policy states, which is any but the default one, has to give the log's classes, unless
    ``--threshold`` was stated for both.

    Raises
    ------
    InputError
        If a stated threshold of a policy gives other classes than the log.
    """
    return tuple(dict.fromkeys(_differences(log, policies, reading)))


def _differences(log: RolloutLog, policies: Sequence[AnyPolicy], reading: Reading) -> Iterator[str]:
    for policy in policies:
        differing = int(np.count_nonzero(log.differing(policy.threshold)))
        if not differing:
            continue
        if reading.options.threshold is None and policy.threshold != Policy.threshold:
            log.agreeing_with(policy.threshold, policy.label)
        own = "the policies' default" if policy.threshold == Policy.threshold else f"the threshold of {policy.label}"
        yield (
            f"{own}, a reward above {policy.threshold:g}, would class {differing} {plural(differing, 'response')} "
            "otherwise than this log was read; the log's classes hold here, and in a run the policy needs their "
            "threshold or a function of correctness"
        )
