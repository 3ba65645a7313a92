"""Monte Carlo of whole batches, in numba over all cores.

Every response is a counter-based uniform below its prompt's pass rate, so the numbers depend
on the seed alone, not on threads, chunks or the order of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit import _kernels
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import check_count, check_pass_rates
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy, Blend, Policy
from ada_bandit.programs.machine import available_cores
from ada_bandit.tables import Tables
from ada_bandit.uniforms import Stream, check_seed, uniform, uniform_rows
from ada_bandit.verifier import PERFECT, VerifierNoise

__all__ = ["Exits", "Simulation", "draw_pass_rates", "simulate", "simulate_law"]

_CHUNK = 1 << 15


@dataclass(frozen=True, eq=False)
class Exits:
    """Where simulated prompts came to rest; every array is `[prompt]`."""

    cells: IntArray
    """Exit cell as ``pos * (K + 1) + neg``."""
    rounds: IntArray
    """Rounds drawn."""
    max_samples: int
    """K, the most responses a prompt may get."""

    @property
    def pos(self) -> IntArray:
        """Correct responses of the pool."""
        return self.cells // (self.max_samples + 1)

    @property
    def neg(self) -> IntArray:
        """Incorrect responses of the pool."""
        return self.cells % (self.max_samples + 1)


@dataclass(frozen=True)
class Simulation:
    """Means over simulated prompts and their standard errors."""

    prompts: int
    """Prompts simulated in all."""
    responses: int
    """Responses drawn in all."""
    samples: float
    """Responses a prompt."""
    samples_se: float
    rounds: float
    """Rounds a prompt."""
    rounds_se: float
    signal: float
    """Share of prompts whose group holds both classes."""
    signal_se: float
    resolved: float
    """Share of prompts at whose exit the rule held."""
    resolved_se: float
    short_of_positives: float
    """Share of prompts that exit unresolved short of correct responses."""
    short_of_positives_se: float
    short_of_negatives: float
    """Share of prompts that exit unresolved short of incorrect responses."""
    short_of_negatives_se: float


def simulate(
    policy: Policy,
    pass_rates: npt.ArrayLike,
    *,
    seed: int = 0,
    first_prompt: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Exits:
    """Sample prompts of given pass rates until they exit.

    Parameters
    ----------
    policy
        The policy.
    pass_rates
        ``[prompt]`` pass rates in [0, 1].
    seed
        Key of the uniforms. The same seed gives two policies the same responses.
    first_prompt
        Number of the first prompt; prompts simulated in parts get the numbers they would have
        in one go.
    progress
        Called with the number of prompts that a chunk finished.

    Returns
    -------
    Exits
        One entry a prompt.

    Raises
    ------
    InputError
        If a pass rate is NaN or outside [0, 1].
    """
    rates = check_pass_rates(pass_rates).ravel()
    first, key = check_count("first_prompt", first_prompt, 0), check_seed(seed)
    draws = policy.tables.draws
    cells, rounds = np.empty((2, rates.size), dtype=np.int64)

    def run(start: int) -> None:
        part = slice(start, start + _CHUNK)
        number = np.uint64(first + start)
        _kernels.sample(key, np.uint64(Stream.REWARDS), number, rates[part], draws, cells[part], rounds[part])
        if progress is not None:
            progress(rates[part].size)

    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(run, range(0, rates.size, _CHUNK)))
    return Exits(cells, rounds, policy.tables.max_samples)


def draw_pass_rates(law: Law, prompts: int, *, seed: int = 0, first_prompt: int = 0) -> FloatArray:
    """Draw the pass rates of consecutive prompts from a law, ``[prompt]``."""
    uniforms = uniform_rows(seed, Stream.PASS_RATES, prompts, 1, first_prompt)
    return law.quantile(uniforms[:, 0])


def simulate_law(
    policy: AnyPolicy,
    law: Law,
    *,
    prompts: int = 512,
    batches: int = 200,
    seed: int = 0,
    verifier: VerifierNoise = PERFECT,
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """Simulate batches of prompts whose pass rates come from a law.

    Parameters
    ----------
    policy
        The policy.
    law
        The law of p over prompts.
    prompts
        Prompts in a batch.
    batches
        Number of batches.
    seed
        Key of the uniforms; the same seed gives two policies the same prompts and responses.
    verifier
        How often the verifier errs; classes, exits and signal are those of its rewards.
    progress
        Called with the number of prompts that were finished.

    Returns
    -------
    Simulation
        Means and standard errors over all prompts; NaN where there is none.
    """
    total = check_count("prompts", prompts, 0) * check_count("batches", batches, 0)
    policies = [part for _, part in policy.parts]
    side = policy.budget.max_samples + 1
    cells = np.zeros((len(policies), side * side), dtype=np.int64)
    rounds = np.zeros(side, dtype=np.int64)
    # Integer histograms hold every prompt, so memory stays flat and sums are exact.
    for start in range(0, total, 32 * _CHUNK):
        count = min(32 * _CHUNK, total - start)
        rates = verifier.reward_rates(draw_pass_rates(law, count, seed=seed, first_prompt=start))
        kind = np.zeros(count, dtype=np.int64)
        if isinstance(policy, Blend):
            kind = (uniform(seed, Stream.KIND, np.arange(start, start + count), 0) < policy.weight).astype(np.int64)
        for number, part in enumerate(policies):
            exits = simulate(part, rates, seed=seed, first_prompt=start, progress=None if number else progress)
            mine = kind == number
            cells[number] += np.bincount(exits.cells[mine], minlength=side * side)
            rounds += np.bincount(exits.rounds[mine], minlength=side)
    return _summarise([part.tables for part in policies], cells.reshape(-1, side, side), rounds)


def _summarise(stack: Sequence[Tables], cells: IntArray, rounds: IntArray) -> Simulation:
    """Summarise counts of prompts by policy and exit cell, ``[policy, pos, neg]``, and by rounds."""
    pos, neg = np.broadcast_arrays(*np.indices(cells.shape[1:]), np.empty(cells.shape))[:2]
    # For a random split the chance of signal at the cell stands in for the draw of the group.
    parts = {
        "samples": (pos + neg, cells),
        "rounds": (np.arange(rounds.size), rounds),
        "signal": (np.stack([tables.signal for tables in stack]), cells),
        "resolved": (np.stack([tables.resolved for tables in stack]), cells),
        "short_of_positives": (np.stack([tables.short_of_positives for tables in stack]), cells),
        "short_of_negatives": (np.stack([tables.short_of_negatives for tables in stack]), cells),
    }
    values: dict[str, float] = {}
    for name, (value, count) in parts.items():
        values[name], values[f"{name}_se"] = _mean_and_error(np.asarray(value, dtype=np.float64), count)
    return Simulation(prompts=int(cells.sum()), responses=int(((pos + neg) * cells).sum()), **values)


def _mean_and_error(value: FloatArray, count: IntArray) -> tuple[float, float]:
    """Return mean and standard error of a value that was seen `count` times, cell by cell."""
    total = int(count.sum())
    if total == 0:
        return np.nan, np.nan
    mean = float((value * count).sum() / total)
    variance = float(((value - mean) ** 2 * count).sum() / max(total - 1, 1))
    return mean, float(np.sqrt(variance / total)) if total > 1 else np.nan
