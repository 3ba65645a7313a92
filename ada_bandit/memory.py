"""What is remembered of a prompt from step to step.

Pools that were stopped adaptively are counted like plain ones (`ada_bandit.fitting` says why).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit.errors import InputError, ProtocolError, check_counts, check_number
from ada_bandit.history import History

__all__ = ["PassRateMemory"]

STEPS = 64
"""Latest steps that are told from new ones."""


class PassRateMemory:
    """Counts of correct and incorrect responses by prompt, with older ones discounted.

    Parameters
    ----------
    decay
        Factor in [0, 1] on a prompt's counts each time it is visited again: 1 never forgets,
        0 remembers the last visit alone. (Reinforce-Ada v3 uses 0.9.)

    Examples
    --------
    >>> memory = PassRateMemory(decay=0.5)
    >>> memory.update(["a", "b"], pos=[2, 0], neg=[2, 4])
    >>> memory.update(["a"], pos=[3], neg=[1])
    >>> memory.recall(["a", "b", "c"]).pos
    array([4., 0., 0.])
    """

    def __init__(self, decay: float = 0.9) -> None:
        self.decay = check_number("decay", decay, 0, 1)
        self._row: dict[Hashable, int] = {}
        self._counts = np.zeros((2, 0))
        self._visits = np.zeros((3, 0), dtype=np.int64)
        self._steps: deque[str] = deque(maxlen=STEPS)

    def __len__(self) -> int:
        return len(self._row)

    def recall(self, keys: Sequence[Hashable]) -> History:
        """Return what is known of prompts by their stable keys; nothing, of prompts never seen."""
        rows = np.array([self._row.get(key, -1) for key in keys], dtype=np.int64)
        known = rows >= 0
        counts, visits = np.zeros((2, rows.size)), np.zeros((3, rows.size), dtype=np.int64)
        counts[:, known] = self._counts[:, rows[known]]
        visits[:, known] = self._visits[:, rows[known]]
        return History(pos=counts[0], neg=counts[1], visits=visits[0], solved_streak=visits[1], failed_streak=visits[2])

    def update(
        self,
        keys: Sequence[Hashable],
        pos: npt.ArrayLike,
        neg: npt.ArrayLike,
        *,
        step: str | None = None,
        skipped: npt.ArrayLike | None = None,
    ) -> None:
        """Enter the pools of a step. A prompt without a scored response is left as it was, unless it was skipped.

        Parameters
        ----------
        keys
            ``[prompt]`` stable keys, each at most once.
        pos, neg
            ``[prompt]`` correct and incorrect responses of the pools, such as those of `Groups`.
        step
            What tells this step from others (`Allocator.fingerprint`): the memory refuses one of the latest
            steps that it has seen. Not looked at unless given.

        Raises
        ------
        ProtocolError
            If the step was entered before.
        InputError
            If a key stands twice, the lengths differ, or a count is negative.
        """
        check_new(step, self._steps)
        new = np.stack([check_counts("pos", pos, len(keys)), check_counts("neg", neg, len(keys))])
        if len(set(keys)) != len(keys):
            seen: set[Hashable] = set()
            twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            msg = f"the key {twice!r} stands twice; add up a prompt's pools, or give every prompt a key of its own"
            raise InputError(msg)
        if step is not None:
            self._steps.append(step)
        scored = new.sum(axis=0) > 0
        for key, has_score in zip(keys, scored, strict=True):
            if has_score:
                self._row.setdefault(key, len(self._row))
        grown = len(self._row) - self._counts.shape[1]
        self._counts = np.pad(self._counts, ((0, 0), (0, grown)))
        self._visits = np.pad(self._visits, ((0, 0), (0, grown)))
        rows = np.array([self._row[key] for key, has in zip(keys, scored, strict=True) if has], dtype=np.int64)
        if skipped is not None:
            faded = np.asarray(skipped, dtype=np.bool_) & ~scored
            known = [self._row[key] for key, fades in zip(keys, faded, strict=True) if fades and key in self._row]
            self._counts[:, known] *= self.decay
        pos_new, neg_new = new[:, scored]
        self._counts[:, rows] = self.decay * self._counts[:, rows] + new[:, scored]
        self._visits[0, rows] += 1
        self._visits[1, rows] = np.where(neg_new == 0, self._visits[1, rows] + 1, 0)
        self._visits[2, rows] = np.where(pos_new == 0, self._visits[2, rows] + 1, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values, restored by `load_state_dict`; JSON keeps it where it keeps the keys."""
        return {
            "decay": self.decay,
            "keys": list(self._row),
            "counts": self._counts.tolist(),
            "visits": self._visits.tolist(),
            "steps": list(self._steps),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, its decay included.

        Raises
        ------
        InputError
            If the state lacks a part.
        """
        missing = [key for key in self.state_dict() if key not in state]
        if missing:
            msg = f"the state lacks {', '.join(missing)}; pass what state_dict() returned"
            raise InputError(msg)
        self.decay = check_number("decay", state["decay"], 0, 1)
        self._row = {hashable(key): row for row, key in enumerate(state["keys"])}
        self._counts = np.array(state["counts"], dtype=np.float64).reshape(2, -1)
        self._visits = np.array(state["visits"], dtype=np.int64).reshape(3, -1)
        self._steps = deque(state["steps"], maxlen=STEPS)


def hashable(key: Any) -> Hashable:
    """Return a key as it was before JSON made lists of its tuples."""
    return tuple(map(hashable, key)) if isinstance(key, (list, tuple)) else key


def check_new(step: str | None, seen: Iterable[str]) -> None:
    """Raise where a step is among those that were seen.

    Raises
    ------
    ProtocolError
        If it is.
    """
    if step is not None and step in seen:
        msg = (
            "this step was observed before: same seed, same pools. Observe every step once, also after a restart, and "
            "give every step a seed of its own, such as fold_seed(seed, step)"
        )
        raise ProtocolError(msg)
