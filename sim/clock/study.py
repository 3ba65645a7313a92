"""The wall-clock time of a step under policies, by formula and event by event. Computes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count
from ada_bandit.policy import AnyPolicy
from ada_bandit.programs.records import plain, to_csv
from sim.clock.formula import step_time
from sim.clock.parts import Lengths, Machine, StepTime
from sim.clock.simulation import simulate_step
from sim.labels import distinct_labels
from sim.score_model import has_efficiency
from sim.sources import Source
from sim.statistics import SampleMean

__all__ = ["ClockComparison", "TimedPolicy", "time_policies"]

_SLOTS = tuple(2**k for k in range(-4, 3))
"""Slots of the figure, over responses of the first policy's first round."""


@dataclass(frozen=True, eq=False)
class TimedPolicy:
    """What a step of one policy takes."""

    policy: str
    """Its label."""
    time: StepTime
    """By formula."""
    simulated: SampleMean | None
    """Seconds of sampling, simulated; None where nothing was."""
    other: StepTime
    """By formula, if rounds were the other way: streaming for barriers, barriers for streaming."""
    by_slots: FloatArray
    """`[barriers or streaming, slots]` Seconds of sampling by slots of the machine."""

    @property
    def ratio(self) -> float | None:
        """Formula over simulation."""
        return None if self.simulated is None else self.time.sampling / self.simulated.mean

    def row(self, first: TimedPolicy) -> Any:
        """Return the numbers as one flat row; `first` is the policy that times are relative to."""
        values = self.time.to_dict()
        del values["rounds"]
        mean, error = (None, None) if self.simulated is None else (self.simulated.mean, self.simulated.se)
        relative = self.time.total / first.time.total
        return plain({"policy": self.policy, **values, "simulated": mean, "simulated_se": error, "relative": relative})


@dataclass(frozen=True, eq=False)
class ClockComparison:
    """Policies on one machine."""

    source: Source
    """The pass-rate law."""
    prompts: int
    """Prompts of a step."""
    lengths: Lengths
    machine: Machine
    rows: tuple[TimedPolicy, ...]
    """One a policy; times are relative to the first."""
    slots: tuple[int, ...]
    """Slots of `TimedPolicy.by_slots`."""
    steps: int
    """Steps that were simulated of each policy."""
    seed: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "source": self.source.to_dict(),
            "prompts": self.prompts,
            "lengths": self.lengths.to_dict(),
            "machine": asdict(self.machine),
            "steps": self.steps,
            "seed": self.seed,
            "slots": list(self.slots),
            "policies": [
                row.row(self.rows[0])
                | {
                    "rounds": row.time.rounds.tolist(),
                    "ratio": row.ratio,
                    "barriers_by_slots": row.by_slots[0].tolist(),
                    "streaming_by_slots": row.by_slots[1].tolist(),
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
        }

    def to_csv(self) -> str:
        """Return one row a policy as CSV text."""
        return to_csv(row.row(self.rows[0]) for row in self.rows)


def time_policies(
    policies: Sequence[AnyPolicy],
    source: Source,
    lengths: Lengths,
    machine: Machine,
    *,
    prompts: int = 512,
    steps: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> ClockComparison:
    """Time a step of every policy.

    Parameters
    ----------
    policies
        At least one with tables of its own; those that share a budget across the batch are left
        out, and named in the notes.
    source
        The pass-rate law.
    lengths, machine
        What a step takes.
    prompts
        Prompts of a step.
    steps
        Steps to simulate of each policy; 0 for the formula alone.
    seed
        Seed of the simulation.
    progress
        Called with 1 after each policy.

    Raises
    ------
    InputError
        If no policy is left, or an argument can't be used.
    """
    prompts, steps = check_count("prompts", prompts), check_count("steps", steps, 0)
    left_out = [policy.label for policy in policies if not has_efficiency(policy)]
    policies = distinct_labels([policy for policy in policies if has_efficiency(policy)])
    if not policies:
        what = f"{', '.join(left_out)} share a budget across the batch" if left_out else "none was given"
        msg = f"nothing to time: give at least one policy with tables of its own; {what}"
        raise InputError(msg)
    law = source.law
    largest = prompts * max(size for policy in policies for size in policy.budget.sizes[:1])
    slots = tuple(dict.fromkeys(max(1, round(largest * share)) for share in _SLOTS))
    # The server may slow down with load; verification under streaming can't go with that.
    ways = [replace(machine, barriers=True), _streaming(machine)]
    rows = []
    for policy in policies:
        time = step_time(policy, law, prompts, lengths, machine)
        simulated = None
        if steps:
            simulated = simulate_step(policy, law, prompts, lengths, machine, steps=steps, seed=seed).sampling
        by_slots = [
            [step_time(policy, law, prompts, lengths, replace(way, slots=each)).sampling for each in slots]
            for way in ways
        ]
        other = step_time(policy, law, prompts, lengths, ways[1 if machine.barriers else 0])
        rows.append(TimedPolicy(policy.label, time, simulated, other, np.array(by_slots)))
        if progress is not None:
            progress(1)
    notes = [*source.findings(), f"{machine.label}; {lengths.label}", *_agreement(rows, steps)]
    if lengths.borrowed:
        notes.append(f"the log has no response of the class {lengths.borrowed}, which has the other's lengths here")
    if left_out:
        notes.append(f"left out, as they share a budget across the batch: {', '.join(left_out)}")
    return ClockComparison(source, prompts, lengths, machine, tuple(rows), slots, steps, seed, tuple(notes))


def _streaming(machine: Machine) -> Machine:
    """Return the machine without barriers, and without what only barriers have."""
    unloaded = 1.0 if machine.verify_seconds else machine.unloaded
    return replace(machine, barriers=False, seconds_a_round=0.0, unloaded=unloaded)


def _agreement(rows: Sequence[TimedPolicy], steps: int) -> tuple[str, ...]:
    """Say how far formula and simulation are apart."""
    worst = max(rows, key=lambda row: abs((row.ratio or 1.0) - 1))
    if worst.ratio is None or worst.simulated is None:
        return ("nothing simulated: the formula alone",)
    off, error = worst.ratio - 1, worst.simulated.se / worst.simulated.mean
    words = (
        f"formula against {steps} simulated steps of each policy: at most {off:+.1%} apart ({worst.policy}), where "
        f"the simulation's standard error is {error:.1%}"
    )
    return (words,)
