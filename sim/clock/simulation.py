"""Steps sampled event by event, what the formula is held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import check_count
from ada_bandit.exact import check_has_paths
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy
from ada_bandit.tables import Tables
from ada_bandit.uniforms import Stream, fold_seed, uniform, uniform_rows
from sim.clock import kernels
from sim.clock.parts import Lengths, Machine
from sim.montecarlo import draw_pass_rates
from sim.statistics import SampleMean, sample_mean

__all__ = ["SimulatedSteps", "simulate_step"]


@dataclass(frozen=True, eq=False)
class SimulatedSteps:
    """Simulated steps; every array is `[step]`, in seconds unless it says otherwise."""

    samplings: FloatArray
    """Sampling."""
    updates: FloatArray
    """Updates."""
    totals: FloatArray
    """Whole steps."""
    responses: FloatArray
    """Responses drawn."""
    tokens: FloatArray
    """Tokens sampled."""
    rounds: tuple[FloatArray, ...]
    """Seconds of the barrier rounds of each step, `[round]`; one entry each under streaming."""

    @property
    def sampling(self) -> SampleMean:
        """Mean seconds of sampling."""
        return sample_mean(self.samplings)

    @property
    def update(self) -> SampleMean:
        """Mean seconds of the update."""
        return sample_mean(self.updates)

    @property
    def total(self) -> SampleMean:
        """Mean seconds of a step."""
        return sample_mean(self.totals)


def simulate_step(
    policy: AnyPolicy, law: Law, prompts: int, lengths: Lengths, machine: Machine, *, steps: int, seed: int = 0
) -> SimulatedSteps:
    """Simulate independent steps: every response takes one slot for as long as it is.

    Parameters
    ----------
    policy, law, prompts, lengths, machine
        As in `sim.clock.step_time`.
    steps
        Steps to simulate.
    seed
        Seed of pass rates, rewards and lengths.

    Raises
    ------
    InputError
        If an argument can't be used, or the policy shares a budget across the batch.
    """
    prompts, steps = check_count("prompts", prompts), check_count("steps", steps)
    shares, tables = zip(*((share, part.tables) for share, part in check_has_paths(policy).parts), strict=True)
    draws = np.stack([each.draws for each in tables])
    most = draws.shape[1] - 1
    verify = machine.verify_seconds / machine.seconds_a_token if not machine.barriers else 0.0
    found = np.empty((4, steps))
    rounds = []
    for number in range(steps):
        key = fold_seed(seed, number)
        rates = draw_pass_rates(law, prompts, seed=key)
        correct = uniform_rows(key, Stream.REWARDS, prompts, most) < rates[:, None]
        chosen = uniform_rows(key, Stream.LENGTHS, prompts, most)
        length = np.where(correct, _pick(lengths.of_pos, chosen), _pick(lengths.of_neg, chosen))
        kind = uniform(key, Stream.KIND, np.arange(prompts), np.zeros(prompts, dtype=np.int64))
        part = np.searchsorted(np.cumsum(shares)[:-1], kind, side="right")
        cells, ends = np.zeros((prompts, 2), dtype=np.int64), np.zeros(most)
        work, last = kernels.play(machine.slots, machine.barriers, verify, draws, part, correct, length, cells, ends)
        spans = np.diff(ends[:last], prepend=0.0)
        spent = machine.seconds_a_token * machine.unloaded * spans
        # The part of the time that goes with the load is shared among rounds by their span.
        spent += machine.seconds(0.0, work) * spans / spans.sum()
        if machine.barriers:
            spent += machine.verify_seconds + machine.seconds_a_round
        rounds.append(spent)
        sampling = float(spent.sum())
        update = _update(tables, part, cells, lengths, machine)
        found[:, number] = sampling, update, cells.sum(), work
    samplings, updates, responses, tokens = found
    totals = samplings + updates + machine.fixed_seconds
    return SimulatedSteps(samplings, updates, totals, responses, tokens, tuple(rounds))


def _pick(sample: FloatArray, uniforms: FloatArray) -> FloatArray:
    return np.asarray(sample[(uniforms * sample.size).astype(np.int64)])


def _update(tables: tuple[Tables, ...], part: IntArray, cells: IntArray, lengths: Lengths, machine: Machine) -> float:
    """Return the seconds of an update of the mean rows and tokens that are kept at the exit cells."""
    seconds = 0.0
    for number, each in enumerate(tables):
        pos, neg = cells[part == number].T
        counts = ~each.silent if each.no_signal == "leave_out" else np.ones(each.silent.shape, dtype=bool)
        rows = tokens = 0.0
        for split in range(each.chance.shape[0] if each.random_split else 1):
            at = (split, pos, neg) if each.random_split else (pos, neg)
            share = each.chance[at] * counts[at]
            rows += float(share @ (each.keep_pos[at] + each.keep_neg[at]))
            tokens += float(share @ (each.keep_pos[at] * lengths.means[0] + each.keep_neg[at] * lengths.means[1]))
        seconds += machine.update_seconds_a_row * rows + machine.update_seconds_a_token * tokens
    return seconds
