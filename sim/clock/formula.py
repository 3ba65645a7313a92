"""The expected time of a step, without simulation.

Prompts are independent but for the queue. The queue is followed in the mean (`kernels.flow`): how
many responses wait, run and end at each time of a grid, first in, first out, with the slots as the
bound. Through it goes the chain over cells of `chain`, each round lasting as long as the longest of
its responses. That gives F(t), the chance that a prompt is finished by t, and with P prompts

    E[span] = integral over t of 1 - F(t)^P.

Without a queue (slots for all) this is exact. With one, the queue's length is replaced by its mean:
its fluctuations, of relative size 1 / sqrt(responses), are what is left out, and responses of one
prompt are taken to begin together. No span is below work over slots, which holds for every schedule.
Under barriers every round is such a queue of its own, with the prompts that are still active; the
spans add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import check_count
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy
from sim.clock import kernels
from sim.clock.chain import Chain, chain_of
from sim.clock.parts import Lengths, Machine, StepTime

__all__ = ["step_time"]

_STEPS = 600
"""Times of the grid that the span is to fill, where the chain has few edges."""
_EDGES = 250
"""Edges from which on the grid is coarser; the effort goes with edges times the square of the times."""
_FINEST = 64
"""Steps of the grid in the shorter mean length, at the most."""
_UNFINISHED = 1e-5
"""Mean number of unfinished prompts at which the integral ends."""


@dataclass(frozen=True, eq=False)
class _Laws:
    """Durations on the grid."""

    step: float
    """Tokens of a step of the grid."""
    of_pos: FloatArray
    """`[lag]` Law of the length of a correct response."""
    of_neg: FloatArray
    """`[lag]` Likewise of an incorrect one."""
    lasting: FloatArray
    """`[pair, lag]` Law of the time from the start of a round to its rewards, by what it holds."""


def step_time(policy: AnyPolicy, law: Law, prompts: int, lengths: Lengths, machine: Machine) -> StepTime:
    """Return the expected times of a training step.

    Parameters
    ----------
    policy
        The policy; blends are read as well.
    law
        The law of pass rates.
    prompts
        Prompts of a step.
    lengths
        Lengths of responses by correctness.
    machine
        Slots, speed, rounds and update.

    Raises
    ------
    InputError
        If an argument can't be used, or the policy shares a budget across the batch.

    Examples
    --------
    >>> from ada_bandit import Beta, Policy
    >>> from sim.clock import Lengths, Machine, step_time
    >>> time = step_time(Policy.preset("grpo"), Beta(0.5, 1), 512, Lengths.of_means(300, 400), Machine(slots=256))
    >>> f"{time.responses:.0f} responses, {time.sampling:.0f} s of sampling, {time.update:.0f} s of update"
    '2048 responses, 78 s of sampling, 41 s of update'
    """
    prompts = check_count("prompts", prompts)
    chain = chain_of(policy, law)
    visits = chain.visits.sum(axis=0)
    positives = float(visits @ chain.positives)
    drawn = float(visits @ chain.size)
    means = lengths.means
    work = prompts * (positives * means[0] + (drawn - positives) * means[1])
    if machine.barriers:
        rounds = _barriers(chain, prompts, lengths, machine)
    else:
        span = max(_streaming(chain, prompts, lengths, machine, work), work / machine.slots)
        rounds = np.array([machine.seconds(span, work)])
    sampling = float(rounds.sum())
    kept = float(chain.tokens_kept @ means)
    update = machine.update_seconds_a_row * chain.rows + machine.update_seconds_a_token * kept
    busy = work * machine.seconds_a_token / machine.slots / sampling
    return StepTime(
        sampling,
        prompts * update,
        machine.fixed_seconds,
        rounds,
        prompts * drawn,
        work,
        prompts * chain.rows,
        min(busy, 1.0),
    )


def _barriers(chain: Chain, prompts: int, lengths: Lengths, machine: Machine) -> FloatArray:
    """Return the expected seconds of every round."""
    most = int(chain.size.max())
    first = prompts * float(chain.root @ chain.size) / machine.slots
    laws = _laws(chain, lengths, 0.0, first * max(lengths.means) + _longest_of(lengths, prompts * most))
    none = np.zeros(0, dtype=np.int64)
    spans = []
    for visits in chain.visits:
        active = float(visits.sum())
        size, positives = float(visits @ chain.size), float(visits @ chain.positives)
        weights = np.bincount(
            chain.pair, weights=visits[chain.node] * chain.chance / active, minlength=len(chain.pairs)
        )
        # All prompts of the round as one node: cells differ in what a round holds, and share its queue.
        span = _span(
            machine.slots, prompts, laws, _Flow(
                np.array([size / active]), np.array([positives / active]), np.array([active]),
                np.zeros(2, dtype=np.int64), none, none, np.zeros(0), (weights @ laws.lasting)[None],
            ),
        )  # fmt: skip
        means = lengths.means
        work = prompts * (positives * means[0] + (size - positives) * means[1])
        # Nothing is waited for where no prompt is left.
        some = -np.expm1(prompts * np.log1p(-min(active, 1 - 1e-16)))
        span = max(span, work / machine.slots)
        spans.append(machine.seconds(span, work) + some * (machine.verify_seconds + machine.seconds_a_round))
    return np.array(spans)


def _streaming(chain: Chain, prompts: int, lengths: Lengths, machine: Machine, work: float) -> float:
    """Return the expected span of a step in which every prompt goes on by itself, in tokens."""
    verify = machine.verify_seconds / machine.seconds_a_token
    rounds, most = chain.visits.shape[0], int(chain.size.max())
    # About the longest chain of rounds: a sum of longest responses with its spread, and one that stands out.
    mean, deviation = _round_of(lengths, most)
    spread = deviation * np.sqrt(2 * rounds * np.log(prompts + 1))
    longest = rounds * (mean + verify) + spread + _longest_of(lengths, prompts * most)
    laws = _laws(chain, lengths, verify, work / machine.slots + longest, int((chain.target >= 0).sum()))
    leaving = chain.target < 0
    weights = np.zeros((chain.nodes, len(chain.pairs)))
    np.add.at(weights, (chain.node[leaving], chain.pair[leaving]), chain.chance[leaving])
    on = ~leaving
    first = np.searchsorted(chain.node[on], np.arange(chain.nodes + 1))
    return _span(
        machine.slots, prompts, laws, _Flow(
            chain.size.astype(np.float64), chain.positives, chain.root, first.astype(np.int64), chain.target[on],
            chain.pair[on], chain.chance[on], weights @ laws.lasting,
        ),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Flow:
    """What `kernels.flow` passes on, in the order of its parameters."""

    size: FloatArray
    positives: FloatArray
    root: FloatArray
    first: IntArray
    target: IntArray
    pair: IntArray
    chance: FloatArray
    leaving: FloatArray


def _span(slots: int, prompts: int, laws: _Laws, through: _Flow) -> float:
    """Return the expected time until all prompts are finished, in tokens."""
    steps = 2 * _STEPS
    while True:
        finished = np.empty(steps)
        lags = max(laws.of_pos.size, laws.lasting.shape[1])
        arrived = np.zeros((through.size.size, steps + lags))
        written = kernels.flow(
            slots / prompts,
            through.size,
            through.positives,
            through.root,
            through.first,
            through.target,
            through.pair,
            through.chance,
            laws.lasting,
            through.leaving,
            laws.of_pos,
            laws.of_neg,
            _UNFINISHED / prompts,
            arrived,
            finished,
        )
        if written:
            return laws.step * float(np.sum(1 - np.clip(finished[:written], 0, 1) ** prompts))
        steps *= 2


def _longest_of(lengths: Lengths, count: float) -> float:
    """Return about how long the longest of so many responses of the longer class is, to choose a grid by."""
    return float(np.quantile(_longer(lengths), 1 - 1 / (1 + count)))


def _round_of(lengths: Lengths, count: int) -> tuple[float, float]:
    """Return mean and standard deviation of the longest of so many responses of the longer class."""
    sample = _longer(lengths)
    chance = np.diff((np.arange(sample.size + 1) / sample.size) ** count)
    mean = float(chance @ sample)
    return mean, float(np.sqrt(chance @ (sample - mean) ** 2))


def _longer(lengths: Lengths) -> FloatArray:
    return max((lengths.of_pos, lengths.of_neg), key=lambda sample: float(sample.mean()))


def _laws(chain: Chain, lengths: Lengths, verify: float, horizon: float, edges: int = 1) -> _Laws:
    """Put lengths on a grid that suits a schedule of about `horizon` tokens, and as many edges."""
    shorter = min(lengths.means)
    steps = _STEPS / np.sqrt(max(1.0, edges / _EDGES))
    step = min(max(shorter / _FINEST, horizon / steps), shorter / 2)
    while True:
        wide = int(lengths.longest / step) + 3
        found = [_on_grid(sample, step, wide) for sample in (lengths.of_pos, lengths.of_neg)]
        of_pos, of_neg = found
        if of_pos is not None and of_neg is not None:
            break
        step /= 2
    below_pos, below_neg = np.cumsum(of_pos), np.cumsum(of_neg)
    pos, neg = chain.pairs.T
    # The longest is below t where all are.
    below = below_pos ** pos[:, None] * below_neg ** neg[:, None]
    whole, part = divmod(verify / step, 1)
    later = int(whole)
    lasting = np.zeros((len(chain.pairs), wide + later + 1))
    each = np.diff(below, axis=1, prepend=0.0)
    lasting[:, later : later + wide] += (1 - part) * each
    lasting[:, later + 1 : later + 1 + wide] += part * each
    return _Laws(step, of_pos, of_neg, lasting)


def _on_grid(sample: FloatArray, step: float, wide: int) -> FloatArray | None:
    """Return the law of a length on the grid's points from 1 on, with its mean kept, ``[lag]``.

    Every length is split between the two points around it. None where the grid is too coarse.
    """
    # E[(x - length)+] at the points; its second differences are the split law.
    at = step * np.arange(-1, wide + 1)
    below = np.searchsorted(sample, at)
    sums = np.append(0.0, np.cumsum(sample))
    short = (below * at - sums[below]) / sample.size
    law = np.maximum(np.diff(short, 2) / step, 0)
    # What falls on 0 goes to 1, and as much of the rest goes down by a step.
    nothing, rest = law[0], law[2:].sum()
    if nothing > rest:
        return None
    down = law[2:] * (nothing / rest) if rest > 0 else law[2:]
    law[2:] -= down
    law[1:-1] += down
    law[1] += nothing
    law[0] = 0
    return np.asarray(law / law.sum())
