"""Advantage rules: the weight with which a kept response enters the update.

A rule is written over a `Cell`: the counts of the pool and of the kept group. Rules that are
functions of the rewards themselves (pool mean, group mean, group standard deviation,
leave-one-out) also apply to shaped rewards as they are; the others weigh correctness.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ada_bandit._parts import Square, build, plain
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError, ProtocolError, check_count, check_number
from ada_bandit.fit_weight import OnMiss, fit_weight
from ada_bandit.laws import Beta, Law, law_from_dict
from ada_bandit.objectives import Objective
from ada_bandit.sampling import SamplingTables

__all__ = [
    "HADW",
    "NGRPO",
    "PKPO",
    "Advantage",
    "AdvantageTable",
    "Calibrated",
    "Cell",
    "ClassWeights",
    "ConstantBaseline",
    "GroupMean",
    "GroupStd",
    "LeaveOneOut",
    "MaxRL",
    "PoolMean",
    "Shrunk",
    "Unbiased",
    "advantage_from_dict",
]


@dataclass(frozen=True)
class Cell:
    """What an advantage rule may look at; all arrays have one shape, whatever it is."""

    pos: IntArray
    """Correct responses of the pool."""
    neg: IntArray
    """Incorrect responses of the pool."""
    keep_pos: IntArray
    """Positives kept in the group."""
    keep_neg: IntArray
    """Negatives kept in the group."""
    expected_keep_pos: FloatArray
    """Mean of `keep_pos` over the group rule's chance, given the pool; equal to it for fixed splits."""
    expected_keep_neg: FloatArray
    """Mean of `keep_neg` over the group rule's chance, given the pool."""
    estimate: FloatArray
    """Unbiased pass-rate estimate at the exit cell (`ada_bandit.lattice.unbiased_estimate`) where the rule's
    `needs_paths` asks for it, else NaN."""
    group_size: int
    """n, the group size of the policy."""


class Advantage(ABC):
    """Maps the counts at an exit cell to the advantages of a kept positive and negative."""

    name: ClassVar[str]
    uses_rewards: ClassVar[bool] = True
    """Whether the rule is a function of rewards, so that shaped rewards apply as they are."""
    least_reward: ClassVar[float] = -math.inf
    """The least reward that the rule has a meaning for."""
    needs_paths: ClassVar[bool] = False
    """Whether the rule depends on how the draws table leads to a cell, and so needs one."""

    @abstractmethod
    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        """Return the advantages of a kept positive and of a kept negative for 0/1 rewards.

        The value for a class that is not kept has no meaning; it may be anything finite.
        """

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:
        """Return the advantage of every response from its reward, shape ``[prompt, response]``.

        Parameters
        ----------
        rewards
            ``[prompt, response]`` rewards; entries outside `scored` are ignored.
        scored
            ``[prompt, response]`` whether the response has a reward: the pool.
        kept
            ``[prompt, response]`` whether the response is in the group; a subset of `scored`.

        Raises
        ------
        NotImplementedError
            If the rule weighs correctness, not rewards.
        """
        raise NotImplementedError(self.name)

    def compile(self, tables: SamplingTables) -> tuple[FloatArray, FloatArray]:
        """Return the advantages of a kept positive and of a kept negative at every cell and split.

        Parameters
        ----------
        tables
            What sampling does under the policy.

        Returns
        -------
        tuple of FloatArray
            Shaped like ``tables.keep_pos``; 0 where a class is not kept.

        Raises
        ------
        InputError
            If the rule gives anything but finite numbers of the counts' shape.
        """
        shape = tables.keep_pos.shape
        pos, neg = (np.broadcast_to(counts, shape) for counts in np.indices(tables.draws.shape, dtype=np.int64))
        estimate = tables.estimate if self.needs_paths else np.full(tables.draws.shape, np.nan)
        cell = Cell(
            pos=pos,
            neg=neg,
            keep_pos=tables.keep_pos,
            keep_neg=tables.keep_neg,
            expected_keep_pos=np.broadcast_to(tables.mean_keep_pos, shape),
            expected_keep_neg=np.broadcast_to(tables.mean_keep_neg, shape),
            estimate=np.broadcast_to(estimate, shape),
            group_size=tables.group_size,
        )
        of_pos, of_neg = self.of_classes(cell)
        return self._checked(of_pos, tables.keep_pos), self._checked(of_neg, tables.keep_neg)

    def _checked(self, values: FloatArray, keep: IntArray) -> FloatArray:
        """Return the values where rows are kept, and 0 elsewhere."""
        array = np.asarray(values, dtype=np.float64)
        if array.shape != keep.shape or not np.isfinite(array[keep > 0]).all():
            what = "NaN or infinite values" if array.shape == keep.shape else f"shape {array.shape}"
            msg = (
                f"the advantage {self.name!r} gave {what} for counts of shape {keep.shape}; it must give a finite "
                "number for every kept class (a rule that uses cell.estimate sets needs_paths = True)"
            )
            raise InputError(msg)
        return np.where(keep > 0, array, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return a description of plain values, read back by `advantage_from_dict`."""
        return plain(self)


def _mean(rewards: FloatArray, where: BoolArray) -> FloatArray:
    """Return the mean over the last axis of the entries in `where`, 0 where there are none; keeps the axis."""
    count = np.maximum(where.sum(axis=-1, keepdims=True), 1)
    return np.asarray(np.sum(rewards, axis=-1, keepdims=True, where=where) / count)


def _check_flag(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        msg = f"{name} must be true or false; got {value!r}"
        raise InputError(msg)
    return bool(value)


def _ratio(part: IntArray, whole: IntArray) -> FloatArray:
    return np.asarray(part / np.maximum(whole, 1))


@dataclass(frozen=True)
class ConstantBaseline(Advantage):
    """Reward minus a constant b (REINFORCE, Williams 1992); w(p) = 1 for plain responses, whatever b is."""

    name: ClassVar[str] = "constant_baseline"
    baseline: float = 0.5
    """b."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "baseline", check_number("baseline", self.baseline))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        shape = np.shape(cell.keep_pos)
        return np.full(shape, 1.0 - self.baseline), np.full(shape, 0.0 - self.baseline)

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:  # noqa: ARG002
        return np.asarray(rewards - self.baseline)


@dataclass(frozen=True)
class ClassWeights(Advantage):
    """One weight for every correct response and one for every incorrect one.

    With N plain responses w(p) = positive - negative; where `mixed` it is
    positive (1 - p^(N-1)) - negative (1 - q^(N-1)). (1, 0) is RAFT (as arXiv 2504.11343 has
    it) and PSR, (0, -1) NSR, (lam, -1) weighted REINFORCE (arXiv 2506.01347).
    """

    name: ClassVar[str] = "class_weights"
    uses_rewards: ClassVar[bool] = False
    positive: float = 1.0
    """Advantage of a correct response."""
    negative: float = -1.0
    """Advantage of an incorrect response."""
    mixed: bool = False
    """Whether groups that hold one class alone have advantage 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "positive", check_number("positive", self.positive))
        object.__setattr__(self, "negative", check_number("negative", self.negative))
        object.__setattr__(self, "mixed", _check_flag("mixed", self.mixed))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        counts = ((cell.keep_pos > 0) & (cell.keep_neg > 0)) | (not self.mixed)
        return np.where(counts, self.positive, 0.0), np.where(counts, self.negative, 0.0)


@dataclass(frozen=True)
class PoolMean(Advantage):
    """Reward minus the mean over the whole pool (Reinforce-Ada, arXiv 2510.04996, equation 3)."""

    name: ClassVar[str] = "pool_mean"

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        mean = _ratio(cell.pos, cell.pos + cell.neg)
        return 1.0 - mean, 0.0 - mean

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:  # noqa: ARG002
        return rewards - _mean(rewards, scored)


@dataclass(frozen=True)
class GroupMean(Advantage):
    """Reward minus the mean over the kept group (Dr. GRPO, arXiv 2503.20783)."""

    name: ClassVar[str] = "group_mean"

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        mean = _ratio(cell.keep_pos, cell.keep_pos + cell.keep_neg)
        return 1.0 - mean, 0.0 - mean

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:  # noqa: ARG002
        return rewards - _mean(rewards, kept)


@dataclass(frozen=True)
class GroupStd(Advantage):
    """Group mean divided by the group's standard deviation plus `eps` (GRPO, arXiv 2402.03300).

    The deviation has n - 1 in its denominator. A group whose rewards are all equal has
    advantage exactly 0, so rounding residue is never blown up; so has a group of one.
    """

    name: ClassVar[str] = "group_std"
    eps: float = 1e-4
    """Added to the deviation, at least 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", check_number("eps", self.eps, 0))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        n = cell.keep_pos + cell.keep_neg
        mean = _ratio(cell.keep_pos, n)
        std = np.sqrt(_ratio(cell.keep_pos * cell.keep_neg, n * np.maximum(n - 1, 1)))
        mixed = (cell.keep_pos > 0) & (cell.keep_neg > 0)
        scale = np.where(mixed, std + self.eps, 1.0)
        return np.where(mixed, 1.0 - mean, 0.0) / scale, np.where(mixed, 0.0 - mean, 0.0) / scale

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:  # noqa: ARG002
        centred = rewards - _mean(rewards, kept)
        n = kept.sum(axis=-1, keepdims=True)
        squares = np.sum(centred**2, axis=-1, keepdims=True, where=kept)
        low = np.min(rewards, axis=-1, keepdims=True, where=kept, initial=np.inf)
        high = np.max(rewards, axis=-1, keepdims=True, where=kept, initial=-np.inf)
        scale = np.where(high > low, np.sqrt(squares / np.maximum(n - 1, 1)) + self.eps, 1.0)
        return np.asarray(np.where(high > low, centred, 0.0) / scale)


@dataclass(frozen=True)
class LeaveOneOut(Advantage):
    """Reward minus the mean of the prompt's other responses in the pool (RLOO, arXiv 2402.14740).

    A pool of one response has no others; its baseline is 0, which keeps w(p) = 1.
    """

    name: ClassVar[str] = "leave_one_out"

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        others = cell.pos + cell.neg - 1
        return 1.0 - _ratio(np.maximum(cell.pos - 1, 0), others), 0.0 - _ratio(cell.pos, others)

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:  # noqa: ARG002
        others = np.maximum(scored.sum(axis=-1, keepdims=True) - 1, 1)
        total = np.sum(rewards, axis=-1, keepdims=True, where=scored)
        return np.asarray(rewards - (total - rewards) / others)


@dataclass(frozen=True)
class Shrunk(LeaveOneOut):
    """Reward minus (1 - weight) times the mean of the prompt's other responses, minus weight times `mean`.

    The James-Stein baseline of JSPO (arXiv 2511.03710), with constants for what it takes from the
    batch: the mean over the other prompts, and weight = v / (v + s) from the variance v of a group's
    mean and the spread s of the groups' means. In a large batch they tend to E[p] and v / (2 v + Var[p]),
    v = E[p q] / n.
    """

    name: ClassVar[str] = "shrunk"
    weight: float = 0.2
    """How far the baseline is drawn to `mean`, in [0, 1]."""
    mean: float = 0.5
    """Mean reward of the other prompts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, 0, 1))
        object.__setattr__(self, "mean", check_number("mean", self.mean))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        of_pos, of_neg = super().of_classes(cell)
        # The leave-one-out advantage is r - b, so that r - (1 - weight) b - weight mean is this.
        return self._drawn(1.0, of_pos), self._drawn(0.0, of_neg)

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:
        return self._drawn(rewards, super().of_rewards(rewards, scored, kept))

    def _drawn(self, rewards: FloatArray | float, left: FloatArray) -> FloatArray:
        return np.asarray((1 - self.weight) * left + self.weight * (rewards - self.mean))


@dataclass(frozen=True)
class MaxRL(Advantage):
    """Reward minus mean, over the mean plus `eps` (MaxRL, arXiv 2602.02710, as its public code centres it).

    With N plain responses and eps = 0, w(p) = (1 - q^(N-1)) / p: the first N - 1 terms of the
    series of 1/p. Not centred, it is reward over mean, the estimator of the paper's theorem: the
    update is the mean score of the correct responses, and w(p) = (1 - q^N) / p. `power` = 1/2 is
    the advantage of Reinforce-Ada-Est (arXiv 2510.04996 v3). For rewards of at least 0; rewards
    that are all 0 have advantage 0.
    """

    name: ClassVar[str] = "max_rl"
    least_reward: ClassVar[float] = 0.0
    power: float = 1.0
    """Power of the mean, at least 0."""
    eps: float = 1e-6
    """Added to the mean, at least 0."""
    pool: bool = False
    """Whether the mean is that of the whole pool; of the kept group unless set."""
    centred: bool = True
    """Whether the mean is taken off before; else only correct responses have an advantage."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "power", check_number("power", self.power, 0))
        object.__setattr__(self, "eps", check_number("eps", self.eps, 0))
        object.__setattr__(self, "pool", _check_flag("pool", self.pool))
        object.__setattr__(self, "centred", _check_flag("centred", self.centred))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        pos, neg = (cell.pos, cell.neg) if self.pool else (cell.keep_pos, cell.keep_neg)
        mean = _ratio(pos, pos + neg)
        scale, off = self._scale(mean), mean * self.centred
        return (1.0 - off) / scale, (0.0 - off) / scale

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:
        mean = _mean(rewards, scored if self.pool else kept)
        return np.asarray((rewards - mean * self.centred) / self._scale(mean))

    def _scale(self, mean: FloatArray) -> FloatArray:
        return np.where(mean > 0, mean + self.eps, 1.0) ** self.power


@dataclass(frozen=True)
class PKPO(Advantage):
    """Advantages for pass@k (PKPO, arXiv 2505.15201, as the public code of MaxRL computes it).

    Of N kept responses with c correct, a correct one is worth C(N - c, k - 1) / C(N - 1, k - 1), the
    chance that none of k - 1 others is correct; the mean of the other responses is taken off. So
    w(p) = (N-k)/(N-1) q^(k-1) + (k-1)/(N-1) q^(k-2), which tends to the derivative of pass@k over k.
    Not centred, w(p) = q^(k-1), which is that derivative at every N.
    A group of fewer than k responses says nothing of pass@k, and has advantage 0.
    """

    name: ClassVar[str] = "pkpo"
    uses_rewards: ClassVar[bool] = False
    k: int = 2
    """Responses of which one must be correct, at least 1."""
    centred: bool = True
    """Whether the mean of the other responses is taken off; else only correct responses have an advantage."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count("k", self.k))
        object.__setattr__(self, "centred", _check_flag("centred", self.centred))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        n = cell.keep_pos + cell.keep_neg
        worth = np.where((cell.keep_pos > 0) & (n >= self.k), 1.0, 0.0)
        for other in range(self.k - 1):
            worth *= np.maximum(cell.keep_neg - other, 0) / np.maximum(n - 1 - other, 1)
        if not self.centred:
            return worth, np.zeros(worth.shape)
        others = np.maximum(n - 1, 1)
        # A group of one has no others; its baseline is 0.
        baseline = np.where(n > 1, cell.keep_pos * worth / others, 0.0)
        own = np.where(n > 1, worth / others, 0.0)
        return worth - baseline + own, 0.0 - baseline


@dataclass(frozen=True)
class NGRPO(GroupStd):
    """Like `group_std`, with one more reward of 1 in mean and deviation (NGRPO, arXiv 2509.18851).

    So a group without a correct response has negative advantages; one without an incorrect
    response has none. The deviation has the number of rewards, the added one included, less 1
    in its denominator.
    """

    name: ClassVar[str] = "ngrpo"

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        return super().of_classes(replace(cell, keep_pos=cell.keep_pos + 1))

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:
        one = np.ones((*rewards.shape[:-1], 1))
        with_one = np.concatenate([rewards, one], axis=-1)
        scored, kept = (np.concatenate([flags, one > 0], axis=-1) for flags in (scored, kept))
        return super().of_rewards(with_one, scored, kept)[..., :-1]


@dataclass(frozen=True)
class HADW(GroupStd):
    """`group_std` times scale exp(-sign(A) (mean - centre)) (HA-DW, arXiv 2601.08521).

    On a group with a mean below the centre positive advantages grow and negative ones shrink; above it
    the other way round. The paper's centre is a moving mean over batches; here it is a constant.
    """

    name: ClassVar[str] = "ha_dw"
    scale: float = 1.3
    """Factor on every advantage, at least 0."""
    centre: float = 0.5
    """Mean reward of a prompt that is neither hard nor easy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", check_number("scale", self.scale, 0))
        object.__setattr__(self, "centre", check_number("centre", self.centre))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        mean = _ratio(cell.keep_pos, cell.keep_pos + cell.keep_neg)
        of_pos, of_neg = super().of_classes(cell)
        return self._weighed(of_pos, mean), self._weighed(of_neg, mean)

    def of_rewards(self, rewards: FloatArray, scored: BoolArray, kept: BoolArray) -> FloatArray:
        return self._weighed(super().of_rewards(rewards, scored, kept), _mean(rewards, kept))

    def _weighed(self, advantages: FloatArray, mean: FloatArray) -> FloatArray:
        return np.asarray(advantages * self.scale * np.exp(-np.sign(advantages) * (mean - self.centre)))


@dataclass(frozen=True)
class Unbiased(Advantage):
    """Weights with w(p) = 1 for every exit rule: the mean-reward gradient without stopping bias.

    With e the unbiased estimate at the exit cell (Girshick, Mosteller and Savage 1946) and b
    the constant baseline, a kept positive gets n e (1-b) / keep_pos and a kept negative
    -n (1-e) b / keep_neg; then w(p) = E[e] (1-b)/p + E[1-e] b/q = 1. Random splits use the
    expected keep counts, which leaves the mean as it is.
    """

    name: ClassVar[str] = "unbiased"
    uses_rewards: ClassVar[bool] = False
    needs_paths: ClassVar[bool] = True
    baseline: float = 0.5
    """b, in [0, 1]; 0 weighs positives alone, 1 negatives alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "baseline", check_number("baseline", self.baseline, 0, 1))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        def share(weight: FloatArray, keep: FloatArray) -> FloatArray:
            return np.asarray(np.divide(weight, keep, out=np.zeros(np.shape(keep)), where=keep > 0))

        n, b, e = cell.group_size, self.baseline, cell.estimate
        lost = (e > 0) & (cell.expected_keep_pos == 0) if b < 1 else np.zeros_like(e, dtype=np.bool_)
        lost |= (e < 1) & (cell.expected_keep_neg == 0) & (cell.pos + cell.neg > 0) & (b > 0)
        if np.any(lost):
            msg = (
                f"the advantage 'unbiased' must keep a response of every class that a pool holds, and group_size = "
                f"{n} leaves one out; use group_size >= 2, the group rule 'uniform', or baseline = 0 or 1"
            )
            raise InputError(msg)
        return share(n * e * (1 - b), cell.expected_keep_pos), -share(n * (1 - e) * b, cell.expected_keep_neg)


@dataclass(frozen=True, init=False)
class AdvantageTable(Advantage):
    """Advantages by cell: a rule without a formula, such as a computed optimum."""

    name: ClassVar[str] = "advantage_table"
    uses_rewards: ClassVar[bool] = False
    adv_pos: Square
    """`[pos, neg]` Advantage of a kept positive."""
    adv_neg: Square
    """`[pos, neg]` Advantage of a kept negative."""

    def __init__(self, adv_pos: npt.ArrayLike | Square, adv_neg: npt.ArrayLike | Square) -> None:
        object.__setattr__(self, "adv_pos", Square("adv_pos", adv_pos))
        object.__setattr__(self, "adv_neg", Square("adv_neg", adv_neg))

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:
        return self.adv_pos.at("adv_pos", cell.pos, cell.neg), self.adv_neg.at("adv_neg", cell.pos, cell.neg)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "adv_pos": self.adv_pos.values.tolist(),
            "adv_neg": self.adv_neg.values.tolist(),
        }


@dataclass(frozen=True)
class Calibrated(Advantage):
    """Weights with w(p) = f'(p) for an objective f of your choice, at the least second moment.

    Solved for when the policy is compiled; `ada_bandit.calibration.calibrate` does the same and reports how
    well the objective is hit.
    """

    name: ClassVar[str] = "calibrated"
    uses_rewards: ClassVar[bool] = False
    needs_paths: ClassVar[bool] = True
    objective: Objective
    """``"mean"``, ``"log"``, ``"pass@k"``, ``"truncated-log"``, or f' as a function."""
    prior: Law = field(default_factory=lambda: Beta(1.0, 1.0))
    """Pass-rate law that the second moment is averaged over."""
    tolerance: float = 0.05
    """The largest miss |w(p) - f'(p)| on [0.05, 0.95] that is accepted."""
    on_miss: OnMiss = "raise"
    """What to do where the policy can't come within the tolerance."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", law_from_dict(self.prior))
        object.__setattr__(self, "tolerance", check_number("tolerance", self.tolerance, 0))

    def compile(self, tables: SamplingTables) -> tuple[FloatArray, FloatArray]:
        fitted = fit_weight(tables, self.objective, self.prior, self.tolerance, on_miss=self.on_miss)
        shape = tables.keep_pos.shape
        # A random split has one advantage a class, whatever the split.
        return (
            self._checked(np.broadcast_to(fitted.adv_pos, shape), tables.keep_pos),
            self._checked(np.broadcast_to(fitted.adv_neg, shape), tables.keep_neg),
        )

    def of_classes(self, cell: Cell) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002 - the cell does not suffice
        msg = "calibrated advantages depend on the policy's draws: compile them with Policy.tables"
        raise ProtocolError(msg)

    def to_dict(self) -> dict[str, Any]:
        return plain(self) | {"prior": self.prior.to_dict()}


_KINDS: dict[str, type[Advantage]] = {
    rule.name: rule
    for rule in (
        ConstantBaseline,
        ClassWeights,
        PoolMean,
        GroupMean,
        GroupStd,
        LeaveOneOut,
        MaxRL,
        PKPO,
        NGRPO,
        HADW,
        Shrunk,
        Unbiased,
        Calibrated,
        AdvantageTable,
    )
}


def advantage_from_dict(data: Any) -> Advantage:
    """Build an advantage rule from its name, a table with its name, or its class; or pass one through.

    Raises
    ------
    InputError
        For an unknown name or key, or a value that the rule refuses.
    """
    if isinstance(data, Advantage):
        return data
    if isinstance(data, type) and issubclass(data, Advantage):
        try:
            return data()
        except TypeError as error:
            msg = f"the advantage {data.__name__} needs values of its own: call it, as in {data.__name__}(...)"
            raise InputError(msg) from error
    return build("advantage", _KINDS, data, "{name = 'group_std', eps = 1e-4}")
