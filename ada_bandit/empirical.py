"""Empirical Bayes: the optimal policy under a prior that is learned while training.

Starts from a stated prior, refits the pass-rate law from the latest pools every few steps, and
recompiles its tables. Where a memory knows a prompt from earlier steps, the prompt is sampled
under its own posterior. All prompts of a step share one price of a response, so that the step
as a whole buys the most progress for its cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Unpack, get_args

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.allocator import Allocator
from ada_bandit.errors import InputError, check_count, unknown_name
from ada_bandit.fitting import default_grid, fit_prior
from ada_bandit.laws import Beta, Grid, Law, law_from_dict
from ada_bandit.memory import STEPS, PassRateMemory, check_new, hashable
from ada_bandit.optimal import Problem, ProblemOptions
from ada_bandit.policy import Policy
from ada_bandit.score_model import ScoreModel, check_model
from ada_bandit.steps import check_ended, check_keys, restore_memory
from ada_bandit.stopping import solve_together
from ada_bandit.tables import NoSignal

__all__ = ["EmpiricalBayes"]

_STRENGTHS = (2.0, 6.0, 18.0)
_BANDS = 9
_FADED = 0.5
# A law of its own gains about half its effective number of parameters in log-likelihood by chance;
# on pools of up to 32 that number is below ten.
_CHANCE = 10.0


@dataclass(frozen=True, eq=False)
class _Step:
    """The pools of a step; every array is `[prompt]`."""

    pos: IntArray
    neg: IntArray
    known_pos: FloatArray
    known_neg: FloatArray
    """What the memory held of the prompts when the step was sampled."""
    keys: list[Hashable] | None
    """The prompts, where the memory knows them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the pools as plain values."""
        return {
            "pos": self.pos.tolist(),
            "neg": self.neg.tolist(),
            "known_pos": self.known_pos.tolist(),
            "known_neg": self.known_neg.tolist(),
            "keys": self.keys,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Step:
        """Build the pools from the plain values of `to_dict`."""
        return cls(
            pos=np.array(data["pos"], dtype=np.int64),
            neg=np.array(data["neg"], dtype=np.int64),
            known_pos=np.array(data["known_pos"], dtype=np.float64),
            known_neg=np.array(data["known_neg"], dtype=np.float64),
            keys=None if data["keys"] is None else [hashable(key) for key in data["keys"]],
        )


class EmpiricalBayes:
    """The preset ``bayes`` as a run sees it: ask it for each step's allocator, then show it the step.

    Parameters
    ----------
    prior
        Pass-rate law before the first step.
    model
        The score model; ``ScoreModel()`` unless given.
    refit_every
        Steps between two fits of the law.
    window
        Steps whose pools a fit looks at, at the most; fewer where the law has drifted.
    memory
        What is remembered of prompts that come back; nothing unless given.
    skip
        Whether a prompt that the memory knows may get no response, where its posterior says that one is worth more
        elsewhere. Its counts fade each time, by the memory's decay; at less than half a response it counts as new.
    no_signal
        What becomes of silent groups, as in `ada_bandit.policy.Policy`.
    **options
        `ada_bandit.optimal.ProblemOptions`, as in `bayes_policy`.

    Notes
    -----
    It learns from what its policy draws. Where that is one response a prompt, as at low noise
    ratios, the pools tell the law's mean alone, and the rest stays as it was stated. A memory
    that forgets slowly holds on to what a prompt's rate was: after a sudden change it misleads
    until the prompt has been visited several times.

    Examples
    --------
    >>> from ada_bandit import ScoreModel, uniform
    >>> sampler = EmpiricalBayes(model=ScoreModel(noise_ratio=10.0), samples=4)
    >>> for step in range(3):
    ...     allocator = sampler.allocator(prompts=64, seed=step)
    ...     while request := allocator.ask():
    ...         allocator.tell(request.ids, uniform(step, 0, request.prompts, request.draws) < 0.3)
    ...     sampler.observe(allocator)
    >>> sampler.steps
    3
    """

    def __init__(
        self,
        prior: Law | None = None,
        model: ScoreModel | None = None,
        *,
        refit_every: int = 4,
        window: int = 32,
        memory: PassRateMemory | None = None,
        skip: bool = False,
        no_signal: NoSignal = "mask",
        **options: Unpack[ProblemOptions],
    ) -> None:
        self.prior: Law = Beta(1.0, 1.0) if prior is None else law_from_dict(prior)
        self.model = check_model(model)
        self.refit_every = check_count("refit_every", refit_every)
        self.memory = memory
        if not isinstance(skip, bool) or (skip and memory is None):
            msg = f"skip must be true or false, and needs a memory that knows which prompts to skip; got {skip!r}"
            raise InputError(msg)
        self.skip = skip
        if no_signal not in get_args(NoSignal):
            raise unknown_name("value of no_signal", no_signal, get_args(NoSignal))
        self.no_signal: NoSignal = no_signal
        self.steps = 0
        self._options = options
        self._pools: deque[_Step] = deque(maxlen=check_count("window", window))
        self._seen: deque[str] = deque(maxlen=STEPS)
        self._problem = self._pose(self.prior)
        self._policy: Policy | None = None

    def _pose(self, prior: Law) -> Problem:
        return Problem(prior, self.model, population=self.prior, **self._options)

    @property
    def policy(self) -> Policy:
        """The policy of a prompt that was never seen, under the present law."""
        if self._policy is None:
            self._policy = self._problem.best().policy.with_no_signal(self.no_signal)
        return self._policy

    def allocator(self, prompts: int, seed: int = 0, keys: Sequence[Hashable] | None = None) -> Allocator:
        """Return the allocator of the next step.

        Parameters
        ----------
        prompts
            Number of prompts.
        seed
            As in `Allocator`.
        keys
            ``[prompt]`` stable keys, by which the memory knows prompts again.

        Raises
        ------
        InputError
            If the number of keys isn't that of the prompts.
        """
        check_keys(keys, prompts)
        if self.memory is None or keys is None or not prompts:
            return Allocator(self.policy, prompts, seed)
        history = self.memory.recall(keys)
        # What has faded to next to nothing counts as new: only of a prompt that is known can one say to skip it.
        faded = self.skip & (history.pos + history.neg < _FADED)
        kind, centres = _known_kinds(np.where(faded, 0.0, history.pos), np.where(faded, 0.0, history.neg))
        sizes = np.bincount(kind, minlength=len(centres))
        problems = (
            [self._problem]
            + [
                self._pose(self.prior.posterior(pos, neg))  # type: ignore[arg-type]
                for pos, neg in centres[1:]
            ]
        )
        # Of a prompt that is new nothing says that it isn't worth a response.
        together = solve_together(problems, sizes, np.arange(sizes.size) > 0 if self.skip else None)
        policies = [
            problem.policy_of(choice, together.shade, "bayes").with_no_signal(self.no_signal)
            for problem, choice in zip(problems, together.choices, strict=True)
        ]
        return Allocator(policies, prompts, seed, kind=kind, skip=together.skipped[kind])

    def observe(self, allocator: Allocator, keys: Sequence[Hashable] | None = None) -> None:
        """Take in a step that has ended: its pools for the law, and for the memory where keys are given.

        Raises
        ------
        ProtocolError
            If a prompt of the step is still running, or the step was observed before.
        InputError
            If a key stands twice, or there is not one a prompt, or none although the step was
            sampled by what the memory knew.
        """
        check_ended(allocator)
        if len(allocator.policies) > 1 and keys is None:
            msg = "this step was sampled by what the memory knew of its prompts; give observe the same keys, got None"
            raise InputError(msg)
        fingerprint = allocator.fingerprint()
        check_new(fingerprint, self._seen)
        pos, neg = allocator.pools()
        known = np.zeros((2, allocator.prompts))
        named = None
        if self.memory is not None and keys is not None:
            history = self.memory.recall(keys)
            self.memory.update(keys, pos, neg, step=fingerprint, skipped=allocator.skipped)
            known, named = np.stack([history.pos, history.neg]), list(keys)
        self._seen.append(fingerprint)
        self._pools.append(_Step(pos, neg, known[0], known[1], named))
        self.steps += 1
        if self.steps % self.refit_every == 0:
            self.refit()

    def refit(self) -> None:
        """Fit the law now; nothing changes where no pool has a scored response.

        To all pools of the window, unless the law has drifted: where the newest quarter of them
        is explained better by a law of its own, by more than chance would have it, the older
        pools are dropped, half of them or all. Where the memory decides how a prompt is sampled,
        the prompt's pools and what the memory held before them count as one: the stopping rule
        cancels from their common chance, not from that of the last pool.
        """
        pools = list(self._pools)
        quarter = pools[-max(len(pools) // 4, 1) :]
        if not any(np.any(step.pos + step.neg) for step in pools):
            return
        recent = _joined(quarter)
        own = self._fit(*recent) if np.any(recent[0] + recent[1]) else None
        for keep in (len(pools), (len(pools) + 1) // 2, len(quarter)):
            law = self._fit(*_joined(pools[-keep:]))
            if own is None or _log_likelihood(own, *recent) - _log_likelihood(law, *recent) <= _CHANCE:
                break
        while len(self._pools) > keep:
            self._pools.popleft()
        self.prior = law
        self._problem, self._policy = self._pose(self.prior), None

    def _fit(self, pos: FloatArray, neg: FloatArray) -> Grid:
        """Fit the law to pools, starting from the present one.

        Only until no law is better by more than chance would have it. Few or short pools leave
        most of a law open: a prompt's single response tells its mean alone. What they leave open
        stays as it was, where full maximum likelihood would concentrate on a few rates.
        """
        pools = np.count_nonzero(pos + neg)
        law = fit_prior(pos, neg, start=_on_grid(self.prior), tolerance=_CHANCE / pools)
        # No rate is ruled out for ever: the memory may know a prompt whose pools say otherwise.
        return Grid(law.pass_rates, law.weights + 1e-6 / law.weights.size)

    @property
    def learns(self) -> bool:
        """Whether there is anything to save: always."""
        return True

    def describe(self) -> dict[str, Any]:
        """Return what never changes during a run, as plain values: model and options, not what was learned."""
        options = {
            key: np.asarray(value).tolist() if key == "utility" else value for key, value in self._options.items()
        }
        return {
            "empirical_bayes": self.model.to_dict()
            | options
            | {"refit_every": self.refit_every, "window": self._pools.maxlen, "no_signal": self.no_signal}
            | ({"skip": True} if self.skip else {})
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values, restored by `load_state_dict`; JSON keeps it where it keeps the keys."""
        return {
            "prior": self.prior.to_dict(),
            "steps": self.steps,
            "pools": [step.to_dict() for step in self._pools],
            "seen": list(self._seen),
            "memory": None if self.memory is None else self.memory.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of a sampler that was built with the same options.

        Raises
        ------
        InputError
            If the state lacks a part, or one of the two has a memory and the other has not.
        """
        missing = [key for key in self.state_dict() if key not in state]
        if missing:
            msg = f"the state lacks {', '.join(missing)}; pass what state_dict() returned"
            raise InputError(msg)
        restore_memory(self.memory, state)
        self.prior = law_from_dict(state["prior"])
        self.steps = int(state["steps"])
        self._pools.clear()
        self._pools.extend(_Step.from_dict(step) for step in state["pools"])
        self._seen = deque(state["seen"], maxlen=STEPS)
        self._problem, self._policy = self._pose(self.prior), None


def _joined(steps: Iterable[_Step]) -> tuple[FloatArray, FloatArray]:
    """Return the counts of all pools; those of one key, and what was known before the first of them, as one."""
    loose, joined = [np.zeros((0, 2))], dict[Hashable, FloatArray]()
    for step in steps:
        counts = np.stack([step.pos, step.neg], axis=1).astype(np.float64)
        if step.keys is None:
            loose.append(counts)
            continue
        known = np.stack([step.known_pos, step.known_neg], axis=1)
        for key, new, before in zip(step.keys, counts, known, strict=True):
            joined[key] = new + joined.get(key, before)
    pos, neg = np.concatenate([*loose, np.reshape(list(joined.values()), (-1, 2))]).T
    return pos, neg


def _on_grid(law: Law) -> Grid:
    """Return the law on the grid of fits, each pass rate with the mass that lies nearest to it."""
    rates = default_grid()
    if isinstance(law, Grid) and np.array_equal(law.pass_rates, rates):
        return law
    edges = np.concatenate([[0.0], (rates[1:] + rates[:-1]) / 2, [1.0]])
    return Grid(rates, [law.probability(low, high) for low, high in pairwise(edges.tolist())])


def _log_likelihood(law: Law, pos: FloatArray, neg: FloatArray) -> float:
    return float(law.log_evidence(pos, neg).sum())


def _known_kinds(pos: FloatArray, neg: FloatArray) -> tuple[IntArray, list[tuple[float, float]]]:
    """Sort prompts into kinds of like knowledge: unseen ones first, then by strength and rate.

    Returns the kind of each prompt and each kind's mean counts. The bands are even in
    arcsin(sqrt(rate)), where a rate's standard error is the same everywhere.
    """
    total = pos + neg
    strength = np.searchsorted(_STRENGTHS, total, side="right")
    rate = pos / np.maximum(total, 1e-300)
    band = np.minimum((np.arcsin(np.sqrt(rate)) / (np.pi / 2) * _BANDS).astype(np.int64), _BANDS - 1)
    label = np.where(total > 0, 1 + strength * _BANDS + band, 0)
    found = np.unique(np.append(label, 0))
    kind = np.searchsorted(found, label)
    centres = [(0.0, 0.0)]
    centres += [(float(pos[kind == k].mean()), float(neg[kind == k].mean())) for k in range(1, found.size)]
    return kind.astype(np.int64), centres
