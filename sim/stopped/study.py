"""What a log says of its prompts, by the means that are right for how it came about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.lattice import one_class_chance, prefix_probability
from ada_bandit.policy import Policy
from sim.readers import RolloutLog, Selection
from sim.stopped.laws import LawFit, fit_grid
from sim.stopped.one_class import mean_bound, signal_bound
from sim.stopped.pools import Interval, Pools, Resampling
from sim.stopped.selected import fit_kept, fit_with_signal, lacks_no_signal
from sim.stopped.stopping import Stopping, StoppingKind, infer_stopping

__all__ = ["Drift", "StepSummary", "Study", "hypergeometric_signal"]


_KEPT_STATED = "the rows were kept of larger pools; the law is that under which the stated policy keeps such groups"
_KEPT_UNSTATED = (
    "the rows were kept of larger pools, by a policy that isn't stated (--stopped-by): what is said here describes the "
    "kept rows and not the prompts"
)


def hypergeometric_signal(pos: IntArray, total: IntArray, n: int) -> FloatArray:
    """Return the chance that n of a plain sample's responses hold both classes, ``[pool]``; NaN for smaller samples.

    Unbiased for 1 - p^n - q^n where the sample was drawn plainly, and only there.
    """
    return np.clip(1 - one_class_chance(pos, total - pos, n), 0, 1)


@dataclass(frozen=True)
class StepSummary:
    """One training step of a log."""

    step: int
    """The step."""
    pools: int
    """Its pools."""
    pass_rate: Interval
    """Mean pass rate of its prompts."""
    signal: Interval
    """Share of its prompts with signal among n plain responses."""


@dataclass(frozen=True)
class Drift:
    """Whether the law changed over the steps."""

    steps: int
    """Steps with pools."""
    paired: bool
    """Whether prompts came back, so that each is compared with itself."""
    slope: float
    """Change of the mean pass rate a step."""
    z: float
    """The slope over its standard error."""
    p_value: float
    """Of no change: of a slope this large, or of steps that differ this much (the smaller, doubled)."""
    changed: bool
    """Whether no change is out of the question (below 0.01)."""
    text: str
    """The finding in words."""


@dataclass(frozen=True, eq=False)
class Study:
    """A log's pools with how they ended and which of them there are.

    What is asked for is computed when it is asked for, from the same resamples.
    """

    pools: Pools
    """The pools that say something."""
    stopping: Stopping
    """How they ended."""
    selection: Selection
    """Which of the drawn responses are there."""
    policy: Policy | None
    """The policy that was stated, or inferred."""
    notes: tuple[str, ...]
    """What was found, a sentence each."""
    replicates: int = 400
    """Resamples of prompts behind every interval."""
    seed: int = 0
    """Fixes them."""

    @classmethod
    def of(
        cls,
        log: RolloutLog | Pools,
        stopped_by: Policy | None = None,
        *,
        selection: Selection | None = None,
        replicates: int = 400,
        seed: int = 0,
    ) -> Study:
        """Take a log apart.

        Parameters
        ----------
        log
            What was read.
        stopped_by
            The policy that sampled it, where it is known; else it is inferred.
        selection
            Which of the drawn responses the log holds, where the reader can't know; what it found, unless given.
        replicates
            Resamples of prompts behind every interval.
        seed
            Fixes them.

        Raises
        ------
        InputError
            If the stated policy can't have left these pools, or no pool has a score.
        """
        pools = log if isinstance(log, Pools) else Pools.of(log)
        stated = selection is not None
        if selection is None:
            selection = Selection.all if isinstance(log, Pools) else log.selection
        notes = []
        if pools.left_out:
            notes.append(f"{pools.left_out} pools without a scored response are left out")
        if selection in {Selection.trained, Selection.all} and not stated:
            lacking, why = lacks_no_signal(pools)
            if lacking:
                selection = Selection.signal
                notes.append(why)
        if selection is Selection.kept:
            stopping = Stopping(StoppingKind.unknown, stopped_by, stated=stopped_by is not None, evidence=())
            notes.append(_KEPT_STATED if stopped_by else _KEPT_UNSTATED)
        elif selection is Selection.signal:
            stopping = Stopping(StoppingKind.plain, None, stated=False, evidence=())
            notes.append(
                "groups without signal are missing, so prompts with a rate near 0 or 1 are; the law among the others "
                "is "
                "fitted given signal, and continued to them as a Beta law: that part is an assumption"
            )
        else:
            stopping = infer_stopping(pools, stopped_by)
            notes += stopping.evidence
        return cls(pools, stopping, selection, stopping.policy, tuple(notes), replicates, seed)

    @cached_property
    def resampling(self) -> Resampling:
        """The resamples."""
        return Resampling(self.pools, self.replicates, self.seed)

    @cached_property
    def law(self) -> LawFit:
        """The law of pass rates."""
        if self.selection is Selection.signal and (self.pools.total == self.pools.smallest).all():
            return fit_with_signal(self.pools, self.resampling)
        if self.selection is Selection.kept and self.policy is not None:
            return fit_kept(self.pools, self.policy, self.resampling)
        fit = fit_grid(self.pools, self.resampling)
        if self.selection is Selection.kept:
            return replace(fit, how=f"{fit.how}; of kept rows, which are no plain draws")
        return fit

    @property
    def law_mean(self) -> Interval:
        """The mean of the law; with a bound where all responses are of one class."""
        return mean_bound(self.pools) if self._one_class else self.law.mean

    @property
    def stopped(self) -> bool:
        """Whether the pools' sizes depend on their rewards."""
        return self.stopping.kind is not StoppingKind.plain

    @property
    def whole(self) -> bool:
        """Whether no response or group is known to be missing because of its rewards."""
        return self.selection in {Selection.all, Selection.trained}

    @property
    def plain(self) -> bool:
        """Whether correct / scored of a pool is a pass rate without bias."""
        return self.whole and not self.stopped

    @property
    def _one_class(self) -> bool:
        """Whether every response is of one class, so that resamples are all alike."""
        return self.whole and not (self.pools.pos.any() and self.pools.neg.any())

    def plain_signal(self, n: int) -> Interval:
        """Return the share of prompts of which n plain responses would hold both classes.

        From plain pools, by their counts. From stopped ones by the rule's unbiased estimate, by the first
        responses of the logged order, or by the fitted law; never by subsets of a stopped pool.
        """
        if self._one_class:
            return signal_bound(self.pools, n)
        values, how = self._signal_values(n)
        return self.law.signal(n) if values is None else self.resampling.mean(values, how)

    @property
    def pass_rate(self) -> Interval:
        """The mean pass rate over prompts."""
        if self._one_class:
            return mean_bound(self.pools)
        values, how = self._rates()
        return self.law.mean if values is None else self.resampling.mean(values, how)

    def _signal_values(self, n: int) -> tuple[FloatArray | None, str]:
        pools = self.pools
        if not self.whole or n < 2:
            return None, ""
        if self.stopping.kind is StoppingKind.plain:
            if n > pools.smallest:
                return None, ""
            return hypergeometric_signal(pools.pos, pools.total, n), "by counts of plain pools, unbiased"
        draws = self.stopping.draws
        if (
            self.stopping.kind is StoppingKind.rule
            and draws is not None
            and n <= int(draws[0, 0])
            and pools.unscored is None
        ):
            table = 1 - prefix_probability(draws, n, 0) - prefix_probability(draws, 0, n)
            return np.asarray(table[pools.pos, pools.neg]), "by the rule's paths, unbiased"
        if pools.right is not None and n <= pools.smallest:
            size = np.full(pools.size, pools.smallest)
            first = hypergeometric_signal(pools.first(pools.smallest), size, n)
            return first, f"by the first {pools.smallest} responses of every pool, unbiased"
        return None, ""

    def _rates(self) -> tuple[FloatArray | None, str]:
        """Return an unbiased estimate of each pool's pass rate, where there is one."""
        pools = self.pools
        if not self.whole:
            return None, ""
        if self.stopping.kind is StoppingKind.plain:
            return pools.pos / pools.total, "by counts of plain pools, unbiased"
        draws = self.stopping.draws
        if self.stopping.kind is StoppingKind.rule and draws is not None and pools.unscored is None:
            return np.asarray(prefix_probability(draws, 1, 0)[pools.pos, pools.neg]), "by the rule's paths, unbiased"
        if pools.right is not None:
            size = pools.smallest
            return pools.first(size) / size, f"by the first {size} responses of every pool, unbiased"
        return None, ""

    # Steps

    @cached_property
    def steps(self) -> IntArray:
        """`[step]` The steps, ascending."""
        return np.zeros(0, dtype=np.int64) if self.pools.step is None else np.unique(self.pools.step)

    def at_step(self, step: int) -> Study:
        """Return the study of one step's pools."""
        if self.pools.step is None or step not in self.steps:
            msg = f"there are no pools of step {step}"
            raise KeyError(msg)
        part = self.pools.take(self.pools.step == step)
        return Study(part, self.stopping, self.selection, self.policy, (), self.replicates, self.seed)

    def by_step(self, n: int) -> tuple[StepSummary, ...]:
        """Return mean pass rate and signal of every step."""
        found = []
        for step in self.steps.tolist():
            part = self.at_step(step)
            found.append(StepSummary(step, part.pools.size, part.pass_rate, part.plain_signal(n)))
        return tuple(found)

    @cached_property
    def drift(self) -> Drift | None:
        """Whether the law changed from step to step; None with fewer than two steps."""
        if self.steps.size < 2 or self.pools.step is None:
            return None
        values, _ = self._rates()
        values = self.pools.pos / self.pools.total if values is None else values
        return _drift(values, self.pools.step.astype(np.float64), self.pools.prompt)

    def to_dict(self, sizes: Sequence[int] = (2, 4, 8, 16)) -> dict[str, object]:
        """Return plain values."""
        drift = self.drift
        return {
            "stopped": self.stopping.to_dict(),
            "selection": self.selection.value,
            "pass_rate": self.pass_rate.to_dict(),
            "plain_signal": {str(n): self.plain_signal(n).to_dict() for n in sizes},
            "law": self.law.to_dict(),
            "drift": None if drift is None else vars(drift),
            "notes": list(self.notes),
        }


def _drift(values: FloatArray, step: FloatArray, prompt: IntArray) -> Drift:
    """Test whether the mean of the values changes with the step, with errors clustered by prompt."""
    from scipy.stats import chi2, norm

    steps, rank = np.unique(step, return_inverse=True)
    prompts = int(prompt.max()) + 1
    visits = np.bincount(prompt, minlength=prompts)
    again = visits[prompt] > 1
    low, high = np.full(prompts, np.inf), np.full(prompts, -np.inf)
    np.minimum.at(low, prompt, step)
    np.maximum.at(high, prompt, step)
    span = high > low
    paired = bool(span[prompt].mean() >= 0.5)
    if paired:
        # Each prompt against itself: what differs between prompts cancels.
        used = again & span[prompt]
        x, t, who = values[used], step[used], prompt[used]
        count = np.bincount(who, minlength=prompts)
        x = x - (np.bincount(who, weights=x, minlength=prompts) / np.maximum(count, 1))[who]
        t = t - (np.bincount(who, weights=t, minlength=prompts) / np.maximum(count, 1))[who]
    else:
        x, t, who = values - values.mean(), step - step.mean(), prompt
    scale = float((t * t).sum())
    slope = float((t * x).sum() / scale)
    score = np.bincount(who, weights=t * (x - slope * t), minlength=prompts)
    error = math.sqrt(float((score**2).sum())) / scale
    z = slope / error if error > 0 else 0.0
    of_slope = float(2 * norm.sf(abs(z)))
    p_value = of_slope
    if not paired and steps.size > 2:
        count = np.bincount(rank)
        mean = np.bincount(rank, weights=values) / count
        square = np.bincount(rank, weights=values**2) / count - mean**2
        variance = square / np.maximum(count - 1, 1)
        fine = (count >= 5) & (variance > 0)
        if fine.sum() > 2:
            weight = 1 / variance[fine]
            middle = (weight * mean[fine]).sum() / weight.sum()
            q = float((weight * (mean[fine] - middle) ** 2).sum())
            p_value = min(1.0, 2 * min(of_slope, float(chi2.sf(q, int(fine.sum()) - 1))))
    changed = p_value < 0.01
    how = "each prompt compared with itself" if paired else "over different prompts"
    text = (
        f"over steps {steps[0]:g} to {steps[-1]:g} the mean pass rate changes by {slope * (steps[-1] - steps[0]):+.3f} "
        f"({how}; p = {p_value:.2g}): {'it changed' if changed else 'no change can be told'}"
    )
    return Drift(int(steps.size), paired, slope, float(z), p_value, changed, text)
