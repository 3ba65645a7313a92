"""What a log of rollouts says: how it was read, how its pools ended, and the law of its prompts. Computes only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ada_bandit.errors import InputError
from ada_bandit.programs.records import plain, to_csv, to_jsonl
from ada_bandit.programs.rollouts import MEAN_TOKENS
from sim.readers import RolloutLog
from sim.stopped.laws import LawFit
from sim.stopped.pools import Interval
from sim.stopped.scalars import ScalarLaw
from sim.stopped.study import StepSummary, Study

__all__ = ["SIZES", "LogReport", "of_log", "of_scalars"]

SIZES = (2, 4, 8, 16)
"""Group sizes whose share with signal is told."""


@dataclass(frozen=True, eq=False)
class LogReport:
    """What is known of a run's prompts, from its rollouts or from its scalars alone."""

    label: str
    """The file, folder or glob; or the scalars."""
    log: RolloutLog | None
    """What was read; None for scalars."""
    study: Study | None
    """Its pools, how they ended and which of them there are; None for scalars."""
    law: LawFit
    """The law of pass rates."""
    pass_rate: Interval
    """Mean pass rate over prompts."""
    plain_signal: dict[int, Interval]
    """Share of prompts of which n plain responses hold both classes, by n."""
    steps: tuple[StepSummary, ...]
    """Each training step, where there are at least two."""
    notes: tuple[str, ...]
    """What was found, a sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        found: dict[str, Any] = {"label": self.label, "log": None}
        if self.log is not None and self.study is not None:
            found["log"] = self.log.summary() | {
                "stopped": self.study.stopping.to_dict(),
                "censored": self.log.censored or self.study.selection in {"kept", "signal"},
                "selection": self.study.selection.value,
            }
            found["drift"] = None if self.study.drift is None else vars(self.study.drift)
        found |= {
            "pass_rate": self.pass_rate.to_dict(),
            "plain_signal": {str(n): each.to_dict() for n, each in self.plain_signal.items()},
            # Where all responses are of one class the fits to resamples are all alike; the mean has its bound.
            "law": self.law.to_dict() | ({} if self.study is None else {"mean": self.study.law_mean.to_dict()}),
            "steps": [_record(each) for each in self.steps],
            "notes": list(self.notes),
        }
        return dict(plain(found))

    def to_csv(self) -> str:
        """Return every estimate as a row of CSV text; a step's stand under its number."""
        return to_csv(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield _row("", "pass_rate", "", self.pass_rate)
        for n, found in self.plain_signal.items():
            yield _row("", "plain_signal", n, found)
        for each in self.steps:
            yield _row(each.step, "pass_rate", "", each.pass_rate)
            yield _row(each.step, "plain_signal", next(iter(self.plain_signal)), each.signal)

    @cached_property
    def rollouts(self) -> str | None:
        """The log in the form that every command reads, a pool a line; None where none can be made.

        A response's reward is 1 where the log calls it correct. A prompt of several steps has a line a step,
        under its key with the step behind it. Rows that were kept of larger pools are no pools, and make none.
        """
        log = self.log
        if log is None or self.study is None or self.study.selection in {"kept", "signal"}:
            return None
        return to_jsonl(_lines(log))


def _row(step: int | str, what: str, n: int | str, found: Interval) -> dict[str, Any]:
    return {"step": step, "quantity": what, "n": n} | found.to_dict()


def _record(each: StepSummary) -> dict[str, Any]:
    return {
        "step": each.step,
        "pools": each.pools,
        "pass_rate": each.pass_rate.to_dict(),
        "plain_signal": each.signal.to_dict(),
    }


def _lines(log: RolloutLog) -> Iterator[dict[str, Any]]:
    """Give the pools with a scored response."""
    for at in np.flatnonzero(log.scored > 0).tolist():
        key = log.names[at]
        part = slice(int(log.starts[at]), int(log.starts[at] + log.lengths[at]))
        if log.rewards is None or log.right is None:
            line: dict[str, Any] = {"prompt_id": key, "correct": int(log.correct[at]), "total": int(log.scored[at])}
            if log.mean_tokens is not None and not np.isnan(log.mean_tokens[at]):
                line[MEAN_TOKENS] = float(log.mean_tokens[at])
        else:
            missing = np.isnan(log.rewards[part])
            rewards = [None if gone else int(right) for gone, right in zip(missing, log.right[part], strict=True)]
            line = {"prompt_id": key, "rewards": rewards}
            if log.tokens is not None and not np.isnan(log.tokens[part]).any():
                line["tokens"] = log.tokens[part].astype(np.int64).tolist()
        yield line


def of_log(
    log: RolloutLog, study: Study, sizes: Sequence[int] = SIZES, progress: Callable[[float], None] | None = None
) -> LogReport:
    """Estimate what a log says of its prompts.

    Parameters
    ----------
    log
        What was read.
    study
        Its pools and how they ended.
    sizes
        Group sizes whose share with signal is told, at least 2 each.
    progress
        Called with the share that is done, from 0 to 1.

    Raises
    ------
    InputError
        If a size is below 2.
    """
    chosen = _sizes(sizes)
    signal = {n: study.plain_signal(n) for n in chosen}
    steps: list[StepSummary] = []
    if study.steps.size > 1:
        for done, step in enumerate(study.steps.tolist(), start=1):
            part = study.at_step(step)
            steps.append(StepSummary(step, part.pools.size, part.pass_rate, part.plain_signal(chosen[0])))
            if progress is not None:
                progress(done / study.steps.size)
    drift = () if study.drift is None else (study.drift.text,)
    notes = (*study.notes, *drift, *_ends(study))
    return LogReport(log.label, log, study, study.law, study.pass_rate, signal, tuple(steps), notes)


def of_scalars(text: str, scalars: ScalarLaw, sizes: Sequence[int] = SIZES) -> LogReport:
    """Estimate what the scalars of a run say of its prompts.

    Raises
    ------
    InputError
        If a size is below 2.
    """
    law = scalars.fit
    signal = {n: law.signal(n) for n in _sizes(sizes)}
    return LogReport(text, None, None, law, law.mean, signal, (), scalars.notes)


def _sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes, each once and ascending."""
    least = min(sizes, default=0)
    if least < 2:
        msg = f"a group that can hold both classes has at least 2 responses; got a group size of {least}"
        raise InputError(msg)
    return tuple(sorted(set(sizes)))


def _ends(study: Study) -> Iterator[str]:
    """Say what the pools can't tell."""
    if study.stopped:
        yield (
            "these pools ended by their own rewards: other policies are compared on the law, and a replay of these "
            "pools would draw responses that were left after looking at them"
        )
    never, always = int((study.pools.pos == 0).sum()), int((study.pools.neg == 0).sum())
    if never or always:
        yield (
            f"{never} of {study.pools.size} pools have no correct response and {always} no incorrect one; "
            f"the smallest pool has {study.pools.smallest}, which can't show that p is 0 or 1"
        )
