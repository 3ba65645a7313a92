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
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit import _kernels
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.budgets import BatchBudget, BatchState
from ada_bandit.errors import InputError, ProtocolError, check_count, preview
from ada_bandit.history import History
from ada_bandit.policy import Policy, check_is_policy
from ada_bandit.tables import Tables
from ada_bandit.uniforms import Stream, check_seed, uniform

__all__ = ["Allocator", "Groups", "Request"]


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
        knowledge; the first unless given.

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
        policy: Policy | Sequence[Policy],
        prompts: int,
        seed: int = 0,
        *,
        history: History | None = None,
        kind: npt.ArrayLike | None = None,
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
        self._kind = self._check_kind(kind)
        self._history = History.empty(self.prompts) if history is None else history
        if self._history.pos.size != self.prompts:
            msg = f"history must hold every prompt; got {self._history.pos.size} for {self.prompts} prompts"
            raise InputError(msg)
        shape = (self.prompts, self._most)
        self._status = np.full(shape, _kernels.UNASKED, dtype=np.uint8)
        self._rewards = np.zeros(shape)
        self._waiting, self._spent, self._pos, self._neg, self._rounds = np.zeros((5, self.prompts), dtype=np.int64)
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

    def _plan(self) -> None:
        """Set what every prompt wants next, when no response is outstanding: at the start, and after a restart."""
        budget = self.policy.budget
        left = self._most - self._spent
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
            self._wanted = np.minimum(self._tables.draws[self._kind, self._pos, self._neg], left)
        self._ready = [np.nonzero(self._wanted)[0]]
        self._running = self._ready[0].size

    def _batch_state(self) -> BatchState:
        return BatchState(
            pos=self._pos.copy(),
            neg=self._neg.copy(),
            spent=self._spent.copy(),
            round=self._asked_rounds,
            history=self._history,
            group_size=self.policy.n,
            uniforms=partial(uniform, self.seed, Stream.SELECT, np.arange(self.prompts)),
        )

    def ask(self) -> Request:
        """Return the responses that are wanted now: of every prompt that is ready.

        A prompt is ready when none of its responses is outstanding and it has not exited. It
        wants what the draws table says at its cell, and at most what is left of its budget. No
        id is ever returned twice. An empty request means that every running prompt waits for
        replies, or that all have exited; `done` tells which.
        """
        ready = np.sort(np.concatenate(self._ready))
        counts = self._wanted[ready]
        prompts = np.repeat(ready, counts)
        ends = np.cumsum(counts)
        draws = np.arange(prompts.size) - np.repeat(ends - counts - self._spent[ready], counts)
        ids = prompts * self._most + draws
        self._status.ravel()[ids] = _kernels.OUTSTANDING
        self._waiting[ready] = counts
        self._spent[ready] += counts
        self._rounds[ready] += 1
        self._wanted[ready] = 0
        self._ready = [ready[:0]]
        self._asked_rounds += ready.size > 0
        return Request(ids, prompts, draws)

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
        id_array = np.atleast_1d(np.asarray(ids))
        if id_array.size == 0:
            id_array = id_array.astype(np.int64)
        if id_array.dtype.kind not in "iu" or id_array.ndim != 1:
            msg = f"ids must be one row of whole numbers from ask(); got {preview(ids)}"
            raise InputError(msg)
        id_array = id_array.astype(np.int64)
        values = self._column("rewards", rewards, id_array.size)
        if np.isinf(values).any():
            first = int(np.nonzero(np.isinf(values))[0][0])
            msg = (
                f"rewards must be finite, or NaN for a response without a score; got {values[first]} "
                f"for id {id_array[first]}"
            )
            raise InputError(msg)
        scored = ~np.isnan(values)
        if correct is None:
            is_correct = values > self.policy.threshold
        else:
            flags = self._column("correct", correct, id_array.size)
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

    @property
    def outstanding(self) -> IntArray:
        """`[response]` Ids that were asked for and not told yet."""
        return np.asarray(np.nonzero(self._status.ravel() == _kernels.OUTSTANDING)[0], dtype=np.int64)

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
            msg = f"{self._running} of {self.prompts} prompts are still running: {waiting}. Go on with ask and tell"
            raise ProtocolError(msg)
        kept = self._select()
        ids = np.empty_like(kept)
        mask, correct = np.empty((2, *kept.shape), dtype=np.bool_)
        rewards, advantages = np.empty((2, *kept.shape))
        of_pos, of_neg = self._tables.advantages(self._kind, self._pos, self._neg, self._kept_positives(kept))
        _kernels.fill_groups(kept, self._status, self._rewards, of_pos, of_neg, ids, mask, rewards, correct, advantages)
        return Groups(
            ids=ids,
            mask=mask,
            rewards=rewards,
            advantages=self._of_rewards(kept, mask, advantages),
            correct=correct,
            resolved=self._resolved(),
            signal=_both_classes(mask, correct),
            pos=self._pos.copy(),
            neg=self._neg.copy(),
        )

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
        """Return the state: plain values and arrays, restored by `load_state_dict`, also in the middle of a step."""
        asked = np.nonzero(self._status.ravel())[0]
        return {
            "policies": [policy.to_dict() for policy in self.policies],
            "prompts": self.prompts,
            "seed": self.seed,
            "kind": self._kind.copy(),
            "ids": asked,
            "status": self._status.ravel()[asked],
            "rewards": self._rewards.ravel()[asked],
            "rounds": self._rounds.copy(),
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
        ):
            theirs = np.asarray(state[key]).tolist() if key == "kind" else state[key]
            if key == "policies":
                theirs = [{**policy, "name": ""} for policy in theirs]
            if theirs != ours:
                where, their, our = _first_difference(theirs, ours, key)
                msg = (
                    f"the state is of another {key} than this allocator: {where} is {preview(their)} there and "
                    f"{preview(our)} here; build the allocator with the state's {key}"
                )
                raise InputError(msg)
        ids, status = np.asarray(state["ids"]), np.asarray(state["status"], dtype=np.uint8)
        self._status[:] = _kernels.UNASKED
        self._status.ravel()[ids] = status
        self._rewards[:] = 0
        self._rewards.ravel()[ids] = np.asarray(state["rewards"])
        self._rounds[:] = np.asarray(state["rounds"])
        self._shaped = bool(state["shaped"])
        self._spent[:] = (self._status != _kernels.UNASKED).sum(axis=1)
        self._waiting[:] = (self._status == _kernels.OUTSTANDING).sum(axis=1)
        self._pos[:] = (self._status == _kernels.CORRECT).sum(axis=1)
        self._neg[:] = (self._status == _kernels.INCORRECT).sum(axis=1)
        self._asked_rounds = int(state["asked_rounds"])
        self._history = History.from_dict(state["history"])
        if isinstance(self.policy.budget, BatchBudget) and self._waiting.any():
            self._wanted = np.zeros_like(self._spent)
            self._ready = [self._wanted[:0]]
            self._running = int(np.count_nonzero(self._waiting))
            return
        self._plan()
        waits = self._waiting > 0
        self._wanted[waits] = 0
        self._ready = [np.nonzero(self._wanted)[0]]
        self._running = int(np.count_nonzero((self._wanted > 0) | waits))

    def metrics(self) -> dict[str, float]:
        """Return what the step did so far as a flat dict of numbers, for loggers.

        Returns
        -------
        dict
            ``prompts``, ``responses`` (asked for), ``responses_per_prompt``, ``rounds`` (the most
            of any prompt, or of the batch where the budget is shared), ``mean_rounds``; counts of
            prompts ``running``, ``resolved``, ``exhausted``, ``no_signal``,
            ``unresolved_no_positive``, ``unresolved_no_negative``; ``signal_fraction``;
            ``plain_no_signal``, how many prompts n plain draws would have left without signal, and
            ``pass_rate``, both estimated without stopping bias and NaN while prompts are running or
            where there is no such estimate; ``unscored`` and ``outstanding`` responses.
        """
        tables, cell = self._tables, (self._kind, self._pos, self._neg)
        exited = (self._waiting == 0) & (self._wanted == 0)
        if tables.shared and not self.done:
            # What the next round brings a prompt is known only when this one has ended.
            exited[:] = False
        resolved = exited & self._resolved()
        kept = self._select()
        mask = kept >= 0
        correct = mask & (self._status[np.arange(self.prompts)[:, None], kept] == _kernels.CORRECT)
        signal = _both_classes(mask, correct) & exited
        finished = self.done and self.prompts > 0
        count = max(self.prompts, 1)
        return {
            "prompts": self.prompts,
            "responses": int(self._spent.sum()),
            "responses_per_prompt": float(self._spent.sum() / count),
            "rounds": self._asked_rounds if tables.shared else int(self._rounds.max(initial=0)),
            "mean_rounds": float(self._rounds.sum() / count),
            "running": int(self.prompts - exited.sum()),
            "resolved": int(resolved.sum()),
            "exhausted": int((exited & ~resolved).sum()),
            "signal_fraction": float(signal.sum() / count),
            "no_signal": int((exited & ~signal).sum()),
            "plain_no_signal": float(self._plain_no_signal().sum()) if finished else math.nan,
            "pass_rate": float(tables.estimate[cell].mean()) if finished else math.nan,
            "unresolved_no_positive": int((exited & tables.short_of_positives[cell]).sum()),
            "unresolved_no_negative": int((exited & tables.short_of_negatives[cell]).sum()),
            "unscored": int((self._status == _kernels.UNSCORED).sum()),
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
        for i in np.nonzero(np.isnan(values))[0]:
            pos, neg = int(self._pos[i]), int(self._neg[i])
            ways = math.comb(pos + neg, n)
            values[i] = (math.comb(pos, n) + math.comb(neg, n)) / ways if ways else math.nan
        return values

    def summary(self) -> str:
        """Return what the step did, in words and numbers."""
        m = self.metrics()
        if not self.prompts:
            return "0 prompts: nothing was asked for."
        n, policy = self.policy.n, self.policy.label
        share = 100 / self.prompts
        cost = f"{m['responses']} responses, {m['responses_per_prompt']:.2f} a prompt"
        rounds = f"in {m['rounds']} rounds ({m['mean_rounds']:.2f} a prompt)"
        lines = [f"{self.prompts} prompts under {policy}: {cost}, {rounds}"]
        if m["running"]:
            lines.append(f"{m['running']} still running, {m['outstanding']} responses outstanding")
        short = f"{m['unresolved_no_positive']} for want of positives, {m['unresolved_no_negative']} of negatives"
        lines.append(f"exited: {m['resolved']} resolved, {m['exhausted']} exhausted ({short})")
        without = f"without signal: {m['no_signal']} of {self.prompts} ({share * m['no_signal']:.1f} %)"
        if not math.isnan(m["plain_no_signal"]):
            plain = m["plain_no_signal"]
            without += f"; {n} plain responses would have left about {plain:.0f} ({share * plain:.1f} %)"
        elif not m["running"] and not self._tables.shared:
            without += f"; what {n} plain responses would have left can't be told from rounds shorter than {n}"
        lines.append(without)
        budget = self.policy.budget
        if isinstance(budget, BatchBudget) and not m["running"]:
            unsampled = int(np.count_nonzero(self._spent == 0))
            if unsampled:
                lines.append(f"not sampled: {unsampled} of {self.prompts}")
            if missing := budget.shortfall(self._batch_state()):
                lines.append(f"short of what was wanted: {missing}")
        if not math.isnan(m["pass_rate"]):
            lines.append(f"pool pass rate: {m['pass_rate']:.4f} (unbiased)")
        if m["unscored"]:
            lines.append(f"unscored responses: {m['unscored']} ({100 * m['unscored'] / m['responses']:.1f} %)")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Show what the allocator is and how far it has come."""
        state = "done" if self.done else f"{int(self._waiting.sum())} responses outstanding"
        return f"Allocator({self.policy.label!r}, prompts={self.prompts}, seed={self.seed}): {state}"

    def _repr_html_(self) -> str:
        """Show the summary and the metrics in a notebook."""
        rows = "".join(f"<tr><td>{key}</td><td>{value:.6g}</td></tr>" for key, value in self.metrics().items())
        return f"<pre>{html.escape(self.summary())}</pre><table>{rows}</table>"

    @staticmethod
    def _column(name: str, values: npt.ArrayLike | Sequence[float | None], size: int) -> FloatArray:
        try:
            column = np.atleast_1d(np.asarray(values, dtype=np.float64))
        except (TypeError, ValueError) as error:
            msg = f"{name} must be numbers, one an id; got {preview(values)}"
            raise InputError(msg) from error
        if column.shape != (size,):
            msg = f"{name} must be one an id; got {name} of shape {column.shape} for {size} ids"
            raise InputError(msg)
        return column

    def _wrong_id(self, ids: IntArray, at: int) -> InputError:
        number = int(ids[at])
        if (ids[:at] == number).any():
            return InputError(f"id {number} stands twice in this call; tell every id once. Nothing was taken")
        status = self._status.ravel()
        if not 0 <= number < status.size or status[number] == _kernels.UNASKED:
            return InputError(f"id {number} is unknown: ask() has not returned it. Nothing was taken")
        return InputError(f"id {number} was told before; tell every id once. Nothing was taken")


def _check_policies(policy: Policy | Sequence[Policy]) -> tuple[Policy, ...]:
    policies = tuple(policy) if isinstance(policy, (list, tuple)) else (policy,)
    for each in policies:
        check_is_policy(each)
    if not policies:
        msg = "policy must be a Policy, or several of them; got none"
        raise InputError(msg)
    first = policies[0]
    for each in policies[1:]:
        for what, ours, theirs in (
            ("budget", first.budget, each.budget),
            ("group_size", first.n, each.n),
            ("kind of split", first.tables.random_split, each.tables.random_split),
            ("advantage", _reward_advantage(first), _reward_advantage(each)),
            ("threshold", first.threshold, each.threshold),
        ):
            if ours != theirs:
                msg = f"policies of one step must share their {what}; got {preview(ours)} and {preview(theirs)}"
                raise InputError(msg)
    return policies


def _reward_advantage(policy: Policy) -> object:
    """Return what policies of one step must share: a rule that applies to rewards as they are, options included."""
    return policy.advantage if policy.advantage.uses_rewards else None


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
        self.shared, self.random_split, self.of_rewards = first.shared, first.random_split, first.of_rewards
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

    def advantages(
        self, kind: IntArray, pos: IntArray, neg: IntArray, keep_pos: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the advantages of a kept positive and negative of every prompt, ``[prompt]`` each."""
        of_pos, of_neg = np.zeros((2, kind.size))
        for number, tables in enumerate(self._tables):
            mine = slice(None) if len(self._tables) == 1 else kind == number
            cell = (pos[mine], neg[mine])
            at = (np.minimum(keep_pos[mine], len(tables.adv_pos) - 1), *cell) if tables.random_split else cell
            of_pos[mine], of_neg[mine] = tables.adv_pos[at], tables.adv_neg[at]
        return of_pos, of_neg


def _both_classes(mask: BoolArray, correct: BoolArray) -> BoolArray:
    return np.asarray(correct.any(axis=1) & (mask & ~correct).any(axis=1))


def _some(ids: IntArray, most: int = 5) -> str:
    shown = ", ".join(str(i) for i in ids[:most])
    return shown if ids.size <= most else f"{shown}, … ({ids.size} in all)"
