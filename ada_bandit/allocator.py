"""The allocator: ask for responses, tell their rewards, take the update groups.

The object that a trainer drives. It knows a policy's tables and counts responses; it never
sees a model, a prompt's text or a clock.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit import _kernels
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError, ProtocolError, check_count
from ada_bandit.estimators import prefix_probability
from ada_bandit.policy import Policy
from ada_bandit.tables import class_advantages
from ada_bandit.uniforms import check_seed

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
        The policy.
    prompts
        Number of prompts; they are numbered from 0.
    seed
        Key of the random choice of groups, from 0 to 2**64 - 1. A run takes another one each
        step, such as ``fold_seed(seed, step)`` of `ada_bandit.uniforms`.

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

    def __init__(self, policy: Policy, prompts: int, seed: int = 0) -> None:
        if not isinstance(policy, Policy):
            msg = f"policy must be a Policy; got {policy!r}. For a preset use Policy.preset({str(policy)!r})"
            raise InputError(msg)
        if isinstance(prompts, (list, tuple, np.ndarray)):
            msg = (
                f"prompts must be the number of prompts; got {len(prompts)} of them. Use prompts = {len(prompts)} "
                "and look yours up by request.prompts"
            )
            raise InputError(msg)
        self.policy = policy
        self.prompts = check_count("prompts", prompts, 0)
        self.seed = int(check_seed(seed))
        self._tables = policy.tables
        self._most = self._tables.max_samples
        shape = (self.prompts, self._most)
        self._status = np.full(shape, _kernels.UNASKED, dtype=np.uint8)
        self._rewards = np.zeros(shape)
        self._waiting, self._spent, self._pos, self._neg, self._rounds = np.zeros((5, self.prompts), dtype=np.int64)
        self._wanted = np.full(self.prompts, self._tables.draws[0, 0])
        self._ready = [np.arange(self.prompts)]
        self._running = self.prompts
        self._shaped = False

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
            msg = f"ids must be one row of whole numbers from ask(); got {ids!r}"
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
        self._shaped |= bool(np.any(scored & (values != is_correct)))

    @property
    def done(self) -> bool:
        """Whether every prompt has exited and no response is outstanding."""
        return self._running == 0

    @property
    def outstanding(self) -> IntArray:
        """`[response]` Ids that were asked for and not told yet."""
        return np.asarray(np.nonzero(self._status.ravel() == _kernels.OUTSTANDING)[0], dtype=np.int64)

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
        mask = kept >= 0
        rows = np.arange(self.prompts)[:, None]
        ids = np.where(mask, rows * self._most + kept, -1)
        correct = mask & (self._status[rows, kept] == _kernels.CORRECT)
        rewards = np.where(mask, self._rewards[rows, kept], 0.0)
        return Groups(
            ids=ids,
            mask=mask,
            rewards=rewards,
            advantages=self._advantages(kept, mask, correct),
            correct=correct,
            resolved=self._resolved(),
            signal=_both_classes(mask, correct),
            pos=self._pos.copy(),
            neg=self._neg.copy(),
        )

    def _select(self) -> IntArray:
        """Return the kept draws, ``[prompt, slot]``, -1 beyond a group's rows."""
        tables = self._tables
        # A group is never wider than n, except where the rule keeps whole pools.
        rows = int(tables.keep[self._pos, self._neg].max(initial=0))
        kept = np.full((self.prompts, max(rows, self.policy.n)), -1)
        _kernels.select(
            np.uint64(self.seed),
            np.uint64(0),
            self._status,
            self._spent,
            self._pos,
            self._neg,
            tables.keep,
            tables.keep_pos.astype(np.int64),
            tables.random_split,
            kept,
        )
        return kept

    def _advantages(self, kept: IntArray, mask: BoolArray, correct: BoolArray) -> FloatArray:
        rows = np.arange(self.prompts)[:, None]
        if self._shaped and self.policy.advantage.uses_rewards:
            scored = (self._status == _kernels.CORRECT) | (self._status == _kernels.INCORRECT)
            width = int(self._spent.max(initial=1))
            chosen = np.zeros_like(scored)
            chosen[np.broadcast_to(rows, kept.shape)[mask], kept[mask]] = True
            every = self.policy.advantage.of_rewards(self._rewards[:, :width], scored[:, :width], chosen[:, :width])
            return np.where(mask, every[rows, kept], 0.0)
        keep_pos = correct.sum(axis=1)
        of_pos, of_neg = class_advantages(self.policy, self._pos, self._neg, keep_pos, mask.sum(axis=1) - keep_pos)
        return np.where(mask, np.where(correct, of_pos[:, None], of_neg[:, None]), 0.0)

    def _resolved(self) -> BoolArray:
        return np.asarray(self._tables.resolved[self._pos, self._neg] & (self._rounds > 0))

    def state_dict(self) -> dict[str, Any]:
        """Return the state: plain values and arrays, restored by `load_state_dict`, also in the middle of a step."""
        asked = np.nonzero(self._status.ravel())[0]
        return {
            "policy": self.policy.to_dict(),
            "prompts": self.prompts,
            "seed": self.seed,
            "ids": asked,
            "status": self._status.ravel()[asked],
            "rewards": self._rewards.ravel()[asked],
            "rounds": self._rounds.copy(),
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
        for key, ours in (("policy", self.policy.to_dict()), ("prompts", self.prompts), ("seed", self.seed)):
            theirs = state[key]
            same = {**theirs, "name": ""} == {**ours, "name": ""} if isinstance(ours, dict) else theirs == ours
            if not same:
                msg = f"the state is of {key} {theirs!r}, this allocator of {ours!r}; build it with the state's {key}"
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
        next_draws = np.minimum(self._tables.draws[self._pos, self._neg], self._most - self._spent)
        self._wanted[:] = np.where(self._waiting > 0, 0, next_draws)
        self._ready = [np.nonzero(self._wanted)[0]]
        self._running = int(np.count_nonzero((self._wanted > 0) | (self._waiting > 0)))

    def metrics(self) -> dict[str, float]:
        """Return what the step did so far as a flat dict of numbers, for loggers.

        Returns
        -------
        dict
            ``prompts``, ``responses`` (asked for), ``responses_per_prompt``, ``rounds`` (the most
            of any prompt), ``mean_rounds``; counts of prompts ``running``, ``resolved``, ``exhausted``,
            ``no_signal``, ``unresolved_no_positive``, ``unresolved_no_negative``; ``signal_fraction``;
            ``plain_no_signal``, how many prompts n plain draws would have left without signal, and
            ``pass_rate``, both estimated without stopping bias and NaN while prompts are running or
            where there is no such estimate; ``unscored`` and ``outstanding`` responses.
        """
        tables, pos, neg = self._tables, self._pos, self._neg
        exited = (self._waiting == 0) & (self._wanted == 0)
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
            "rounds": int(self._rounds.max(initial=0)),
            "mean_rounds": float(self._rounds.sum() / count),
            "running": int(self.prompts - exited.sum()),
            "resolved": int(resolved.sum()),
            "exhausted": int((exited & ~resolved).sum()),
            "signal_fraction": float(signal.sum() / count),
            "no_signal": int((exited & ~signal).sum()),
            "plain_no_signal": float(self._plain_no_signal().sum()) if finished else math.nan,
            "pass_rate": float(tables.estimate[pos, neg].mean()) if finished else math.nan,
            "unresolved_no_positive": int((exited & tables.short_of_positives[pos, neg]).sum()),
            "unresolved_no_negative": int((exited & tables.short_of_negatives[pos, neg]).sum()),
            "unscored": int((self._status == _kernels.UNSCORED).sum()),
            "outstanding": int(self._waiting.sum()),
        }

    def _plain_no_signal(self) -> FloatArray:
        """Return an unbiased estimate of p^n + q^n for every prompt, ``[prompt]``; NaN where there is none."""
        n = self.policy.n
        if n > int(self._tables.draws[0, 0]):
            return np.full(self.prompts, np.nan)
        chance = np.full(self._tables.draws.shape, 0.0)
        for correct, incorrect in ((n, 0), (0, n)):
            chance += prefix_probability(self._tables.draws, correct, incorrect)
        values = chance[self._pos, self._neg]
        # Pools with unscored responses end at cells that no path reaches: there the chance that
        # n responses picked from the pool are of one class stands in.
        for i in np.nonzero(np.isnan(values))[0]:
            pos, neg = int(self._pos[i]), int(self._neg[i])
            ways = math.comb(pos + neg, n)
            values[i] = (math.comb(pos, n) + math.comb(neg, n)) / ways if ways else math.nan
        return np.asarray(values)

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
        elif not m["running"]:
            without += f"; what {n} plain responses would have left can't be told from rounds shorter than {n}"
        lines.append(without)
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
            msg = f"{name} must be numbers, one an id; got {values!r}"
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


def _both_classes(mask: BoolArray, correct: BoolArray) -> BoolArray:
    return np.asarray(correct.any(axis=1) & (mask & ~correct).any(axis=1))


def _some(ids: IntArray, most: int = 5) -> str:
    shown = ", ".join(str(i) for i in ids[:most])
    return shown if ids.size <= most else f"{shown}, … ({ids.size} in all)"
