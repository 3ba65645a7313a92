"""From a path to a log: find the files, tell what they are, read them in one pass, and say how."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ada_bandit.errors import InputError
from sim.readers.collect import Collector
from sim.readers.files import find
from sim.readers.log import RolloutLog
from sim.readers.options import ReadOptions
from sim.readers.plan import Plan
from sim.readers.pools import assemble
from sim.readers.streams import shown
from sim.words import plural

__all__ = ["read_rollouts"]

Progress = Callable[[float], None]
"""Is called with the share of the input, from 0 to 1, that was read."""


def read_rollouts(path: str | Path, options: ReadOptions | None = None, progress: Progress | None = None) -> RolloutLog:
    """Read logged rollouts: dumps of training frameworks, or tables of pass rates or of responses.

    Parameters
    ----------
    path
        A file, a folder (everything below it is read) or a glob.
    options
        Names of columns, conditions on rows and the threshold, where they are not to be guessed.
    progress
        Called while the files are read.

    Returns
    -------
    RolloutLog
        Pools by step and prompt; `RolloutLog.notes` say what was recognised and guessed.

    Raises
    ------
    InputError
        If nothing can be made of it: the message says what is there, what is missing, and what would work.
    """
    options = ReadOptions() if options is None else options
    notes: list[str] = []
    files = find(path, notes)
    plan = Plan.of(files, options, notes)
    read = 0
    others: list[Path] = []
    collector = Collector(plan.roles, comma=plan.comma, advantage=plan.advantage)
    dropped = Counter[str]()
    for number_of, file in enumerate(files):
        try:
            table = plan.open(file)
        except InputError:
            if len(files) == 1:
                raise
            table = None
        if table is None:
            others.append(file)
            continue
        read += 1
        step = plan.step_of(file)
        for batch in plan.batches(table, dropped):
            collector.add(batch, step)
            if progress is not None:
                progress((number_of + batch.done) / len(files))
        where = "" if len(files) == 1 else f" ({shown(file.name)})"
        notes += [note + where for note in table.notes]
    if others:
        names = ", ".join(shown(each.name) for each in others[:3]) + (", …" if len(others) > 3 else "")
        notes.append(f"{len(others)} {plural(len(others), 'file')} of another kind left out: {names}")
    notes += [f"{count} {plural(count, 'row')} left out: {why}" for why, count in dropped.items()]
    return assemble(os.fspath(path), files, plan, collector, options, notes, read)
