"""The allocator: ask for responses, tell their rewards, take the update groups.

The object that a trainer drives. It knows a policy's tables and counts responses; it never
sees a model, a prompt's text or a clock.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit import _kernels
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.budgets import BatchBudget, BatchState
from ada_bandit.columns import id_column, number_column
from ada_bandit.errors import AdaBanditError, InputError, ProtocolError, check_count, check_number, preview
from ada_bandit.history import History
from ada_bandit.lattice import one_class_chance
from ada_bandit.policy import AnyPolicy, Blend, Policy, check_together
from ada_bandit.tables import Tables
from ada_bandit.uniforms import Stream, check_seed, uniform

__all__ = ["Allocator", "Groups", "Request", "UnscoredError"]


class UnscoredError(AdaBanditError, RuntimeError):
    """More responses are without a score than a run puts up with: the verifier may be down."""


@dataclass(frozen=True, eq=False)
class Request:
    """Responses that are wanted now, one entry each; falsy when there are none."""

    ids: IntArray
    """`[response]` Unique ids, for `Allocator.tell`."""
    prompts: IntArray
    """`[response]` Number of the prompt, from 0."""
    draws: IntArray
    """`[response]` Number of the response within its prompt's pool, from 0."""

    def __len__(self) -> int:
        return int(self.ids.size)

    def __bool__(self) -> bool:
        return self.ids.size > 0


@dataclass(frozen=True, eq=False)
class Groups:
    """The update groups of one step; slots beyond a group's rows are masked."""

    ids: IntArray
    """`[prompt, slot]` Ids of the kept responses, in the order in which they were asked for; -1 where masked."""
    mask: BoolArray
    """`[prompt, slot]` Whether the slot holds a response."""
    rewards: FloatArray
    """`[prompt, slot]` Rewards as told; 0 where masked."""
    advantages: FloatArray
    """`[prompt, slot]` Advantages; 0 where masked."""
    correct: BoolArray
    """`[prompt, slot]` Whether the response is correct; False where masked."""
    resolved: BoolArray
    """`[prompt]` Whether the exit rule held at the exit."""
    signal: BoolArray
    """`[prompt]` Whether the group holds both classes."""
    silent: BoolArray
    """`[prompt]` Whether no row of the group has an advantage by its correctness: `Policy.no_signal` says what then
    becomes of it. A group that the policy leaves out is silent and has no rows."""
    pos: IntArray
    """`[prompt]` Correct responses of the pool."""
    neg: IntArray
    """`[prompt]` Incorrect responses of the pool."""


class Allocator:
    """Drive one step of sampling under a policy.

    Parameters
    ----------
    policy
        The policy; or several ones that differ in rules alone, chosen by `kind`.
    prompts
        Number of prompts; they are numbered from 0.
    seed
        Key of what is left to chance, from 0 to 2**64 - 1. A run takes another one each step,
        such as ``fold_seed(seed, step)`` of `ada_bandit.uniforms`.
    history
        What is known of the prompts from earlier steps, for budgets that are shared by a batch
        (`ada_bandit.memory.PassRateMemory.recall`); nothing unless given.
    kind
        ``[prompt]`` which of several policies is the prompt's, such as one for each state of
        knowledge; the first unless given, and drawn by the seed where the policy is a `Blend`.
    skip
        ``[prompt]`` prompts that get no response in this step; none unless given. Budgets that a batch shares
        choose for themselves, and take none.
    max_unscored
        Share of responses without a score, in [0, 1], above which `ask` raises `UnscoredError` instead
        of spending more; any share is put up with unless given. May be set later.

    Raises
    ------
    InputError
        If an argument can't be used.

    Examples
    --------
    >>> from ada_bandit import Allocator, Policy, uniform
    >>> allocator = Allocator(Policy.preset("reinforce-ada-pos"), prompts=3, seed=0)
    >>> while request := allocator.ask():
    ...     rewards = uniform(0, 0, request.prompts, request.draws) < 0.2
    ...     allocator.tell(request.ids, rewards)
    >>> allocator.groups().resolved
    array([ True,  True,  True])
    """

    def __init__(
        self,
        policy: AnyPolicy | Sequence[Policy],
        prompts: int,
        seed: int = 0,
        *,
        history: History | None = None,
        kind: npt.ArrayLike | None = None,
        skip: npt.ArrayLike | None = None,
        max_unscored: float = 1.0,
    ) -> None:
        self.policies = _check_policies(policy)
        if isinstance(prompts, (list, tuple, np.ndarray)):
            msg = (
                f"prompts must be the number of prompts; got {len(prompts)} of them. Use prompts = {len(prompts)} "
                "and look yours up by request.prompts"
            )
            raise InputError(msg)
        self.prompts = check_count("prompts", prompts, 0)
        self.seed = int(check_seed(seed))
        self._tables = _Stack([each.tables for each in self.policies])
        self._most = self.policy.budget.max_samples
        self._width = self._most + self.policy.budget.replacements
        self.max_unscored = check_number("max_unscored", max_unscored, 0, 1)
        if isinstance(policy, Blend) and kind is None:
            kind = (uniform(self.seed, Stream.KIND, np.arange(self.prompts), 0) < policy.weight).astype(np.int64)
        self._label = policy.label if isinstance(policy, Blend) else self.policy.label
        self._kind = self._check_kind(kind)
        self.skipped = self._check_skip(skip)
        self._history = History.empty(self.prompts) if history is None else history
        if self._history.pos.size != self.prompts:
            msg = f"history must hold every prompt; got {self._history.pos.size} for {self.prompts} prompts"
            raise InputError(msg)
        shape = (self.prompts, self._width)
        self._status = np.full(shape, _kernels.UNASKED, dtype=np.uint8)
        self._rewards = np.zeros(shape)
        self._waiting, self._spent, self._rounds = np.zeros((3, self.prompts), dtype=np.int64)
        self._pos, self._neg, self._lost = np.zeros((3, self.prompts), dtype=np.int64)
        # Responses asked for that replace others, those to be asked for next included; and asked for by the budget.
        self._replaced, self._budgeted = np.zeros((2, self.prompts), dtype=np.int64)
        self._shaped = False
        self._asked_rounds = 0
        self._plan()

    @property
    def policy(self) -> Policy:
        """The policy; the first one where there are several."""
        return self.policies[0]

    def _check_kind(self, kind: npt.ArrayLike | None) -> IntArray:
        kinds = np.zeros(self.prompts, dtype=np.int64) if kind is None else np.asarray(kind)
        known = kinds.dtype.kind in "iu" and kinds.shape == (self.prompts,)
        if not known or (kinds.size and not (kinds.min() >= 0 and kinds.max() < len(self.policies))):
            msg = (
                f"kind must name one of the {len(self.policies)} policies for every prompt, from 0; got {preview(kind)}"
            )
            raise InputError(msg)
        return kinds.astype(np.int64)

    def _check_skip(self, skip: npt.ArrayLike | None) -> BoolArray:
        skipped = np.zeros(self.prompts, dtype=np.bool_) if skip is None else np.array(skip)
        if skipped.dtype != np.bool_ or skipped.shape != (self.prompts,):
            msg = f"skip must be one boolean for each of the {self.prompts} prompts; got {preview(skip)}"
            raise InputError(msg)
        if skipped.any() and isinstance(self.policy.budget, BatchBudget):
            msg = (
                f"the budget {self.policy.budget.name!r} chooses which prompts get a response; skip is for policies of "
                f"tables, got {int(skipped.sum())} prompts to skip"
            )
            raise InputError(msg)
        skipped.setflags(write=False)
        return skipped

    def _plan(self) -> None:
        """Set what every prompt wants next, when no response is outstanding: at the start, and after a restart."""
        budget = self.policy.budget
        left = self._most + self._replaced - self._spent
        if isinstance(budget, BatchBudget):
            wanted = np.asarray(budget.counts(self._batch_state()))
            if (
                wanted.shape != left.shape
                or wanted.dtype.kind not in "iu"
                or (wanted < 0).any()
                or (wanted > left).any()
            ):
                msg = f"the budget {budget.name!r} must give each prompt a whole number from 0 to what it has left"
                raise InputError(msg)
            self._wanted = wanted.astype(np.int64)
        else:
            wanted = np.minimum(self._tables.draws[self._kind, self._pos, self._neg], left)
            self._wanted = np.where(self.skipped, 0, wanted)
        self._ready = [np.nonzero(self._wanted)[0]]
        self._running = self._ready[0].size

    def _batch_state(self) -> BatchState:
        return BatchState(
            pos=self._pos.copy(),
            neg=self._neg.copy(),
            spent=self._spent - self._replaced,
            round=self._asked_rounds,
            history=self._history,
            group_size=self.policy.n,
            uniforms=partial(uniform, self.seed, Stream.SELECT, np.arange(self.prompts)),
        )

    def ask(self, *, again: bool = False) -> Request:
        """Return the responses that are wanted now: of every prompt that is ready.

        A prompt is ready when none of its responses is outstanding and it has not exited. It
        wants what the draws table says at its cell, and at most what is left of its budget; first,
        where the budget replaces them, as many responses as got no score. No id is ever returned
        twice, unless it is asked for again. An empty request means that every running prompt waits for
        replies, or that all have exited; `done` tells which.

        Parameters
        ----------
        again
            Return what was asked for and not told yet, and nothing else: what a run that was
            restarted in the middle of a round has to generate once more.

        Raises
        ------
        UnscoredError
            If more than `max_unscored` of the responses that were told so far have no score.
        """
        if again:
            ids = self.outstanding
            return Request(ids, *np.divmod(ids, self._width))
        self._check_unscored()
        ready = np.sort(np.concatenate(self._ready))
        counts = self._wanted[ready]
        prompts = np.repeat(ready, counts)
        ends = np.cumsum(counts)
        draws = np.arange(prompts.size) - np.repeat(ends - counts - self._spent[ready], counts)
        ids = prompts * self._width + draws
        self._status.ravel()[ids] = _kernels.OUTSTANDING
        self._waiting[ready] = counts
        self._spent[ready] += counts
        self._rounds[ready] += 1
        self._wanted[ready] = 0
        self._ready = [ready[:0]]
        budgeted = self._spent - self._replaced
        # A round that only replaces what got no score is none of the budget's.
        self._asked_rounds += bool((budgeted[ready] > self._budgeted[ready]).any())
        self._budgeted[ready] = budgeted[ready]
        return Request(ids, prompts, draws)

    def _check_unscored(self) -> None:
        lost, told = int(self._lost.sum()), int(self._spent.sum() - self._waiting.sum())
        if lost > self.max_unscored * told:
            msg = (
                f"{lost} of the {told} responses told so far have no score ({100 * lost / told:.0f} %), more than "
                f"max_unscored = {self.max_unscored:g} allows: is the verifier down? Nothing more was asked for; mend "
                "it and go on, or raise max_unscored"
            )
            raise UnscoredError(msg)

    def tell(
        self,
        ids: npt.ArrayLike,
        rewards: npt.ArrayLike | Sequence[float | None],
        correct: npt.ArrayLike | None = None,
    ) -> None:
        """Take the rewards of responses, in any order and any number of calls.

        Parameters
        ----------
        ids
            ``[response]`` ids from `ask`; a single id will do.
        rewards
            ``[response]`` rewards. NaN or None marks a response without a score: it counts as
            spent, enters neither class nor the baseline, and is never kept.
        correct
            ``[response]`` whether a response is correct, 0/1 or booleans; ``reward > threshold``
            of the policy unless given. Looked at only where there is a score.

        Raises
        ------
        InputError
            If an id is unknown, was told before or stands twice in the call, or if the lengths
            differ or a value can't be used. Nothing is taken from such a call.
        """
        id_array = id_column(ids)
        values = number_column("rewards", rewards, id_array.size)
        if np.isinf(values).any():
            first = int(np.nonzero(np.isinf(values))[0][0])
            msg = (
                f"rewards must be finite, or NaN for a response without a score; got {values[first]} "
                f"for id {id_array[first]}"
            )
            raise InputError(msg)
        scored = ~np.isnan(values)
        if (values < self._tables.least_reward).any():
            first = int(np.nonzero(values < self._tables.least_reward)[0][0])
            msg = (
                f"the advantage {self.policy.advantage.name!r} has no meaning for rewards below "
                f"{self._tables.least_reward:g}; got {values[first]:g} for id {id_array[first]}. Tell rewards of 0 and "
                "1, such as (reward + 1) / 2 for -1 and 1"
            )
            raise InputError(msg)
        if correct is None:
            is_correct = values > self.policy.threshold
        else:
            flags = number_column("correct", correct, id_array.size)
            wrong = scored & (flags != 0) & (flags != 1)
            if wrong.any():
                first = int(np.nonzero(wrong)[0][0])
                msg = f"correct must be booleans or 0/1; got {flags[first]} for id {id_array[first]}"
                raise InputError(msg)
            is_correct = flags == 1
        outcome = np.where(is_correct, _kernels.CORRECT, _kernels.INCORRECT)
        outcome = np.where(scored, outcome, _kernels.UNSCORED).astype(np.uint8)

        status = self._status.ravel()
        wrong_at = int(_kernels.find_wrong_id(id_array, status))
        if wrong_at >= 0:
            raise self._wrong_id(id_array, wrong_at)
        ready = np.empty(id_array.size, dtype=np.int64)
        found, exited = _kernels.take_replies(
            id_array,
            outcome,
            values,
            self._tables.draws,
            self._kind,
            status,
            self._rewards.ravel(),
            self._waiting,
            self._spent,
            self._pos,
            self._neg,
            self._lost,
            self._replaced,
            self._wanted,
            ready,
        )
        self._ready.append(ready[:found])
        self._running -= exited
        if self._running == 0 and isinstance(self.policy.budget, BatchBudget):
            # The round is complete: only now can the batch say whether there is another one.
            self._plan()
        self._shaped |= bool(np.any(scored & (values != is_correct)))

    @property
    def done(self) -> bool:
        """Whether every prompt has exited and no response is outstanding."""
        return self._running == 0

    def locate(self, ids: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        """Return the prompts and draws of ids, ``[id]`` each, as the request that gave them had them."""
        prompts, draws = np.divmod(id_column(ids), self._width)
        return prompts, draws

    @property
    def outstanding(self) -> IntArray:
        """`[response]` Ids that were asked for and not told yet."""
        return np.asarray(np.nonzero(self._status.ravel() == _kernels.OUTSTANDING)[0], dtype=np.int64)

    def fingerprint(self) -> str:
        """Return what tells this step from others: a digest of the seed and of every response's outcome."""
        digest = sha256(f"{self.seed} {self._width}".encode())
        digest.update(self._kind.tobytes())
        digest.update(self._status.tobytes())
        return digest.hexdigest()[:32]

    def pools(self) -> tuple[IntArray, IntArray]:
        """Return the correct and the incorrect responses of each prompt so far, ``[prompt]`` each."""
        return self._pos.copy(), self._neg.copy()

    def groups(self) -> Groups:
        """Return the update groups.

        Raises
        ------
        ProtocolError
            If a prompt has not exited yet.
        """
        if not self.done:
            missing = self.outstanding
            waiting = f"ids {_some(missing)} have not been told" if missing.size else "ask() has more to ask for"
            remedy = "Tell them (ask(again=True) returns them once more)" if missing.size else "Go on with ask and tell"
            msg = f"{self._running} of {self.prompts} prompts are still running: {waiting}. {remedy}"
            raise ProtocolError(msg)
        kept = self._select()
        keep_pos = self._kept_positives(kept)
        silent, of_pos, of_neg = (self._of_split(name, keep_pos) for name in ("silent", "adv_pos", "adv_neg"))
        if self.policy.no_signal == "leave_out":
            kept[silent] = -1
        ids = np.empty_like(kept)
        mask, correct = np.empty((2, *kept.shape), dtype=np.bool_)
        rewards, advantages = np.empty((2, *kept.shape))
        _kernels.fill_groups(kept, self._status, self._rewards, of_pos, of_neg, ids, mask, rewards, correct, advantages)
        advantages = self._of_rewards(kept, mask, advantages)
        if self.policy.no_signal == "mask":
            advantages[silent] = 0
        return Groups(
            ids=ids,
            mask=mask,
            rewards=rewards,
            advantages=advantages,
            correct=correct,
            resolved=self._resolved(),
            signal=_both_classes(mask, correct),
            silent=silent,
            pos=self._pos.copy(),
            neg=self._neg.copy(),
        )

    def _of_split(self, name: str, keep_pos: IntArray) -> Any:
        """Return a table's entry at the prompt's cell and number of kept positives, ``[prompt]``."""
        entries: Any = None
        for kind, policy in enumerate(self.policies):
            mine = slice(None) if len(self.policies) == 1 else self._kind == kind
            table = getattr(policy.tables, name)
            cell = (self._pos[mine], self._neg[mine])
            values = table[(np.minimum(keep_pos[mine], len(table) - 1), *cell) if self._tables.random_split else cell]
            if entries is None:
                entries = np.empty(self.prompts, dtype=table.dtype)
            entries[mine] = values
        return entries

    def _select(self) -> IntArray:
        """Return the kept draws, ``[prompt, slot]``, -1 beyond a group's rows."""
        # A group is never wider than n, except where the rule keeps whole pools.
        rows = int(self._tables.keep[self._kind, self._pos, self._neg].max(initial=0))
        kept = np.full((self.prompts, max(rows, self.policy.n)), -1)
        _kernels.select(
            np.uint64(self.seed),
            np.uint64(0),
            self._status,
            self._spent,
            self._pos,
            self._neg,
            self._tables.keep,
            self._tables.keep_pos,
            self._kind,
            self._tables.random_split,
            kept,
        )
        return kept

    def _kept_positives(self, kept: IntArray) -> IntArray:
        """Return how many positives each group holds, ``[prompt]``; the tables say so where the split is fixed."""
        if not self._tables.random_split:
            return np.asarray(self._tables.keep_pos[self._kind, self._pos, self._neg])
        rows = np.arange(self.prompts)[:, None]
        return np.asarray(((kept >= 0) & (self._status[rows, kept] == _kernels.CORRECT)).sum(axis=1))

    def _of_rewards(self, kept: IntArray, mask: BoolArray, advantages: FloatArray) -> FloatArray:
        """Return the advantages of rewards that are not 0 or 1; those of the tables where correctness is weighed."""
        of_rewards = self._tables.of_rewards
        if not self._shaped or of_rewards is None:
            return advantages
        rows = np.arange(self.prompts)[:, None]
        scored = (self._status == _kernels.CORRECT) | (self._status == _kernels.INCORRECT)
        width = int(self._spent.max(initial=1))
        chosen = np.zeros_like(scored)
        chosen[np.broadcast_to(rows, kept.shape)[mask], kept[mask]] = True
        every = of_rewards(self._rewards[:, :width], scored[:, :width], chosen[:, :width])
        return np.where(mask, every[rows, kept], 0.0)

    def _resolved(self) -> BoolArray:
        return np.asarray(self._tables.resolved[self._kind, self._pos, self._neg] & (self._rounds > 0))

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values that JSON keeps, restored by `load_state_dict`, also in mid-step."""
        asked = np.nonzero(self._status.ravel())[0]
        rewards = self._rewards.ravel()[asked]
        renewing = (self._wanted > 0) & (self._spent + self._wanted - self._replaced == self._budgeted)
        return {
            "policies": [policy.to_dict() for policy in self.policies],
            "prompts": self.prompts,
            "seed": self.seed,
            "kind": self._kind.tolist(),
            "skip": np.nonzero(self.skipped)[0].tolist(),
            "ids": asked.tolist(),
            "status": self._status.ravel()[asked].tolist(),
            "rewards": [None if math.isnan(reward) else reward for reward in rewards.tolist()],
            "rounds": self._rounds.tolist(),
            "replaced": (self._replaced - np.where(renewing, self._wanted, 0)).tolist(),
            "asked_rounds": self._asked_rounds,
            "history": self._history.to_dict(),
            "shaped": self._shaped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of an allocator with the same policy, prompts and seed.

        Raises
        ------
        InputError
            If the state is of another policy, number of prompts or seed, or isn't a state.
        """
        missing = [key for key in self.state_dict() if key not in state]
        if missing:
            msg = f"the state lacks {', '.join(missing)}; pass what state_dict() returned"
            raise InputError(msg)
        # A policy's name is no part of what it does.
        for key, ours in (
            ("policies", [{**policy.to_dict(), "name": ""} for policy in self.policies]),
            ("prompts", self.prompts),
            ("seed", self.seed),
            ("kind", self._kind.tolist()),
            ("skip", np.nonzero(self.skipped)[0].tolist()),
        ):
            theirs = np.asarray(state[key], dtype=np.int64).tolist() if key in {"kind", "skip"} else state[key]
            if key == "policies":
                theirs = [{**policy, "name": ""} for policy in theirs]
            if theirs != ours:
                where, their, our = _first_difference(theirs, ours, key)
                msg = (
                    f"the state is not this allocator's: {where} is {preview(their)} there and "
                    f"{preview(our)} here; build the allocator with the state's {key}"
                )
                raise InputError(msg)
        ids = np.asarray(state["ids"], dtype=np.int64)
        self._status[:] = _kernels.UNASKED
        self._status.ravel()[ids] = np.asarray(state["status"], dtype=np.uint8)
        self._rewards[:] = 0
        self._rewards.ravel()[ids] = np.asarray(state["rewards"], dtype=np.float64)
        self._rounds[:] = np.asarray(state["rounds"])
        self._shaped = bool(state["shaped"])
        self._spent[:] = (self._status != _kernels.UNASKED).sum(axis=1)
        self._waiting[:] = (self._status == _kernels.OUTSTANDING).sum(axis=1)
        self._pos[:] = (self._status == _kernels.CORRECT).sum(axis=1)
        self._neg[:] = (self._status == _kernels.INCORRECT).sum(axis=1)
        self._lost[:] = (self._status == _kernels.UNSCORED).sum(axis=1)
        self._replaced[:] = np.asarray(state["replaced"])
        self._budgeted[:] = self._spent - self._replaced
        self._asked_rounds = int(state["asked_rounds"])
        self._history = History.from_dict(state["history"])
        self._resume()

    def _resume(self) -> None:
        """Set what every prompt wants next, from its counts and what it waits for."""
        waits = self._waiting > 0
        again = np.where(waits, 0, np.minimum(self._lost, self._width - self._most) - self._replaced)
        again = np.maximum(again, 0)
        self._replaced += again
        if isinstance(self.policy.budget, BatchBudget) and (waits.any() or again.any()):
            # Only when the round is complete can the batch say whether there is another one.
            self._wanted = again
        else:
            self._plan()
            self._wanted = np.where(again > 0, again, np.where(waits, 0, self._wanted))
        self._ready = [np.nonzero(self._wanted)[0]]
        self._running = int(np.count_nonzero((self._wanted > 0) | waits))

    def metrics(self) -> dict[str, float]:
        """Return what the step did so far as a flat dict of numbers, for loggers.

        Returns
        -------
        dict
            ``prompts``, ``responses`` (asked for), ``responses_per_prompt``, ``rounds`` (the most
            of any prompt, or of the batch where the budget is shared), ``mean_rounds``; counts of
            prompts ``unsampled`` (no response was asked for; they are in none of the counts below),
            ``running``, ``resolved``, ``exhausted``, ``no_signal``, ``silent`` (no advantage by
            correctness), ``left_out`` and ``masked`` (silent, and what the policy makes of it),
            ``unresolved_no_positive``, ``unresolved_no_negative``; ``signal_fraction`` of the sampled
            prompts, NaN where there is none; ``plain_no_signal``, how many prompts n plain draws would
            have left without signal, and ``pass_rate``, both estimated without stopping bias and NaN
            while prompts are running or where there is no such estimate; ``unscored``, ``replaced``
            (asked for because another one got no score) and ``outstanding`` responses,
            ``unscored_fraction`` of the responses told.
        """
        tables, cell = self._tables, (self._kind, self._pos, self._neg)
        exited = (self._waiting == 0) & (self._wanted == 0)
        if tables.shared and not self.done:
            # What the next round brings a prompt is known only when this one has ended.
            exited[:] = False
        sampled = self._spent > 0
        unsampled = int((exited & ~sampled).sum())
        exited &= sampled
        resolved = exited & self._resolved()
        kept = self._select()
        mask = kept >= 0
        correct = mask & (self._status[np.arange(self.prompts)[:, None], kept] == _kernels.CORRECT)
        signal = _both_classes(mask, correct) & exited
        silent = int((exited & self._of_split("silent", correct.sum(axis=1))).sum())
        finished = self.done and bool(sampled.any())
        count, told = max(self.prompts, 1), int(self._spent.sum() - self._waiting.sum())
        plain = self._plain_no_signal()[sampled].sum() if finished else math.nan
        estimate = tables.estimate[cell][sampled].mean() if finished else math.nan
        return {
            "prompts": self.prompts,
            "responses": int(self._spent.sum()),
            "responses_per_prompt": float(self._spent.sum() / count),
            "rounds": self._asked_rounds if tables.shared else int(self._rounds.max(initial=0)),
            "mean_rounds": float(self._rounds.sum() / count),
            "unsampled": unsampled,
            "running": int(self.prompts - unsampled - exited.sum()),
            "resolved": int(resolved.sum()),
            "exhausted": int((exited & ~resolved).sum()),
            "signal_fraction": float(signal.sum() / sampled.sum()) if sampled.any() else math.nan,
            "no_signal": int((exited & ~signal).sum()),
            "silent": silent,
            "left_out": silent if self.policy.no_signal == "leave_out" else 0,
            "masked": silent if self.policy.no_signal == "mask" else 0,
            "plain_no_signal": float(plain),
            "pass_rate": float(estimate),
            "unresolved_no_positive": int((exited & tables.short_of_positives[cell]).sum()),
            "unresolved_no_negative": int((exited & tables.short_of_negatives[cell]).sum()),
            "unscored": int(self._lost.sum()),
            "unscored_fraction": float(self._lost.sum() / told) if told else 0.0,
            "replaced": int((self._spent - self._budgeted).sum()),
            "outstanding": int(self._waiting.sum()),
        }

    def _plain_no_signal(self) -> FloatArray:
        """Return an unbiased estimate of p^n + q^n for every prompt, ``[prompt]``; NaN where there is none."""
        n = self.policy.n
        values = np.full(self.prompts, np.nan)
        for kind, policy in enumerate(self.policies):
            mine = self._kind == kind
            values[mine] = policy.tables.one_class_estimate[self._pos[mine], self._neg[mine]]
        if self.prompts and np.isnan(values).all():
            return values
        # Pools with unscored responses end at cells that no path reaches: there the chance that
        # n responses picked from the pool are of one class stands in.
        lost = np.isnan(values)
        values[lost] = one_class_chance(self._pos[lost], self._neg[lost], n)
        return values

    def summary(self) -> str:
        """Return what the step did, in words and numbers."""
        m = self.metrics()
        if not self.prompts:
            return "0 prompts: nothing was asked for."
        n = self.policy.n
        sampled = self.prompts - int(m["unsampled"])
        share = 100 / max(sampled, 1)
        cost = f"{m['responses']} responses, {m['responses_per_prompt']:.2f} a prompt"
        rounds = f"in {m['rounds']} rounds ({m['mean_rounds']:.2f} a prompt)"
        lines = [f"{self.prompts} prompts under {self._label}: {cost}, {rounds}"]
        if m["running"]:
            lines.append(f"{m['running']} still running, {m['outstanding']} responses outstanding")
        short = f"{m['unresolved_no_positive']} short of positives, {m['unresolved_no_negative']} of negatives"
        lines.append(f"exited: {m['resolved']} resolved, {m['exhausted']} exhausted ({short})")
        without = f"without signal: {m['no_signal']} of {sampled} ({share * m['no_signal']:.1f} %)"
        if not math.isnan(m["plain_no_signal"]):
            plain = m["plain_no_signal"]
            without += f"; {n} plain responses would have left about {plain:.0f} ({share * plain:.1f} %)"
        elif not m["running"] and not self._tables.shared:
            without += f"; what {n} plain responses would have left can't be told from rounds shorter than {n}"
        lines.append(without)
        if m["left_out"]:
            lines.append(f"left out, as nothing in them has an advantage by correctness: {m['left_out']} groups")
        budget, ended = self.policy.budget, not m["running"]
        if ended and m["unsampled"]:
            lines.append(f"not sampled: {m['unsampled']} of {self.prompts}")
        if ended and isinstance(budget, BatchBudget) and (missing := budget.shortfall(self._batch_state())):
            lines.append(f"short of what was wanted: {missing}")
        if not math.isnan(m["pass_rate"]):
            lines.append(f"pool pass rate: {m['pass_rate']:.4f} (unbiased)")
        if m["unscored"]:
            again = f"; {m['replaced']} were drawn in their place" if m["replaced"] else ""
            lines.append(f"unscored responses: {m['unscored']} ({100 * m['unscored_fraction']:.1f} %){again}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Show what the allocator is and how far it has come."""
        state = "done" if self.done else f"{int(self._waiting.sum())} responses outstanding"
        return f"Allocator({self._label!r}, prompts={self.prompts}, seed={self.seed}): {state}"

    def _repr_html_(self) -> str:
        """Show the summary and the metrics in a notebook."""
        rows = "".join(f"<tr><td>{key}</td><td>{value:.6g}</td></tr>" for key, value in self.metrics().items())
        return f"<pre>{html.escape(self.summary())}</pre><table>{rows}</table>"

    def _wrong_id(self, ids: IntArray, at: int) -> InputError:
        number = int(ids[at])
        if (ids[:at] == number).any():
            return InputError(f"id {number} stands twice in this call; tell every id once. Nothing was taken")
        status = self._status.ravel()
        if not 0 <= number < status.size or status[number] == _kernels.UNASKED:
            return InputError(f"id {number} is unknown: ask() has not returned it. Nothing was taken")
        return InputError(f"id {number} was told before; tell every id once. Nothing was taken")


def _check_policies(policy: AnyPolicy | Sequence[Policy]) -> tuple[Policy, ...]:
    if isinstance(policy, Blend):
        return (policy.low, policy.high)
    policies = tuple(policy) if isinstance(policy, (list, tuple)) else (policy,)
    if not policies:
        msg = "policy must be a Policy, or several of them; got none"
        raise InputError(msg)
    check_together(policies)
    return policies


def _first_difference(theirs: Any, ours: Any, where: str) -> tuple[str, Any, Any]:
    """Return where two nested plain values differ first, and what stands there in each."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in dict.fromkeys([*theirs, *ours]):
            if theirs.get(key) != ours.get(key):
                return _first_difference(theirs.get(key), ours.get(key), f"{where}.{key}")
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"the length of {where}", len(theirs), len(ours)
        for index, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            if their != our:
                return _first_difference(their, our, f"{where}[{index}]")
    return where, theirs, ours


class _Stack:
    """The tables of the policies of a step, ``[kind, pos, neg]``; views where there is one."""

    def __init__(self, tables: Sequence[Tables]) -> None:
        self._tables = tables
        first = tables[0]
        self.shared, self.random_split = first.shared, first.random_split
        self.of_rewards, self.least_reward = first.of_rewards, first.least_reward
        self.draws = self._stacked("draws")
        self.resolved = self._stacked("resolved")
        self.keep = self._stacked("keep")
        # Where the split is random, the kernel looks at `keep` alone.
        self.keep_pos = self.keep if first.random_split else self._stacked("keep_pos")

    def _stacked(self, name: str) -> Any:
        arrays = [getattr(each, name) for each in self._tables]
        return np.stack(arrays) if len(arrays) > 1 else arrays[0][None]

    @cached_property
    def short_of_positives(self) -> BoolArray:
        return np.asarray(self._stacked("short_of_positives"))

    @cached_property
    def short_of_negatives(self) -> BoolArray:
        return np.asarray(self._stacked("short_of_negatives"))

    @cached_property
    def estimate(self) -> FloatArray:
        """NaN where the budget is shared: then no estimate is known to be free of bias."""
        stack = np.asarray(self._stacked("estimate"))
        return np.full_like(stack, np.nan) if self.shared else stack


def _both_classes(mask: BoolArray, correct: BoolArray) -> BoolArray:
    return np.asarray(correct.any(axis=1) & (mask & ~correct).any(axis=1))


def _some(ids: IntArray, most: int = 5) -> str:
    shown = ", ".join(str(i) for i in ids[:most])
    return shown if ids.size <= most else f"{shown}, … ({ids.size} in all)"
