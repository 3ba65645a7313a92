"""The rows of training runs as curves: runs that differ in the seed alone are one arm, whose means they are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError
from llm.logs import read_metrics

__all__ = ["Arm", "Curve", "RunHistory", "arm_label", "read_run", "to_arms"]

_SEED = re.compile(r"(^|[-_.])(seed|s)[-_.]?\d+$")


@dataclass(frozen=True, eq=False)
class RunHistory:
    """The rows of one run."""

    folder: Path
    """Where they lie."""
    label: str
    """Name of its arm; runs of one label are averaged."""
    steps: list[dict[str, Any]]
    """Rows of training steps, by rising step."""
    evals: list[dict[str, Any]]
    """Rows of evaluations, by rising step."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Means over the runs of an arm; every array is `[step]`."""

    steps: IntArray
    """Steps that each run has."""
    mean: FloatArray
    """Mean over the runs that have a value there, NaN where none has."""
    error: FloatArray
    """Its standard error, NaN below two runs."""


@dataclass(frozen=True, eq=False)
class Arm:
    """Runs that differ in the seed alone."""

    label: str
    """Its name."""
    runs: Sequence[RunHistory]
    """Its runs, at least one."""

    def steps(self, name: str, smooth: int = 1) -> Curve:
        """Return a number of the training steps, such as ``pool_reward`` or ``time.total``.

        Each run's is first averaged over its latest `smooth` steps.
        """
        return self._curve([[(row["step"], _number(row, name)) for row in run.steps] for run in self.runs], smooth)

    def evals(self, name: str) -> Curve:
        """Return a number of the evaluations, such as ``eval.hard.pass_rate`` or ``total_tokens``."""
        return self._curve([[(row["step"], _number(row, name)) for row in run.evals] for run in self.runs], 1)

    @property
    def left_out(self) -> int:
        """Rows of steps and evaluations that not every run has, and which no curve shows."""
        kinds = ([[row["step"] for row in rows] for rows in each] for each in self._rows)
        return sum(sum(map(len, one)) - len(one) * len(set.intersection(*map(set, one))) for one in kinds)

    @property
    def _rows(self) -> tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]]:
        return [run.steps for run in self.runs], [run.evals for run in self.runs]

    def _curve(self, series: Sequence[Sequence[tuple[int, float]]], smooth: int) -> Curve:
        by_step = [dict(one) for one in series]
        # A mean whose runs change on the way would jump for no reason.
        steps = sorted(set.intersection(*(set(one) for one in by_step)))
        values = np.array(
            [_trailing_mean([one[step] for step in sorted(one)], smooth)[_places(one, steps)] for one in by_step]
        ).reshape(len(by_step), len(steps))
        there = np.isfinite(values)
        count = there.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(there, values, 0).sum(axis=0) / count
            squares = (np.where(there, values - mean, 0) ** 2).sum(axis=0)
            error = np.sqrt(squares / (count - 1) / count)
        error[count < 2] = math.nan
        return Curve(np.array(steps, dtype=np.int64), mean, error)


def read_run(
    folder: Path, label: str | None = None, group: Literal["folder", "policy", "run"] = "folder"
) -> RunHistory:
    """Read the rows of a run.

    Parameters
    ----------
    folder
        The run's folder.
    label
        Name of its arm, in place of the one that `group` gives.
    group
        ``folder``: the folder's name without a seed at its end, such as grpo for grpo-seed3 and
        for grpo/seed3. ``policy``: the policy's label in the run's rows. ``run``: the folder's
        path, so that each run is an arm of its own.

    Raises
    ------
    InputError
        If the folder has no rows, or none of a training step.
    """
    rows = read_metrics(folder)
    steps = sorted((row for row in rows if "eval" not in row), key=lambda row: row["step"])
    if not steps:
        msg = f"{str(folder)!r} has no row of a training step yet; wait for its first step"
        raise InputError(msg)
    if label is None:
        label = {"folder": arm_label(folder), "policy": str(steps[-1].get("policy")), "run": str(folder)}[group]
    evals = sorted((row for row in rows if "eval" in row), key=lambda row: row["step"])
    return RunHistory(folder, label, steps, evals)


def arm_label(folder: Path) -> str:
    """Return a folder's name without a seed at its end; its parent's where nothing else is left of it."""
    folder = folder.resolve()
    return _SEED.sub("", folder.name) or folder.parent.name or folder.name


def to_arms(runs: Sequence[RunHistory]) -> list[Arm]:
    """Group runs by their labels, in order of appearance."""
    labels = dict.fromkeys(run.label for run in runs)
    return [Arm(label, [run for run in runs if run.label == label]) for label in labels]


def _number(row: Mapping[str, Any], name: str) -> float:
    """Return a number of a row by its dotted name, NaN where it is absent or null."""
    value: Any = row
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return math.nan if value is None else float(value)


def _trailing_mean(values: Sequence[float], width: int) -> FloatArray:
    """Return the mean of each value and those before it, `width` in all, without those that are NaN."""
    array = np.asarray(values, dtype=np.float64)
    there = np.isfinite(array)
    sums = np.concatenate([[0.0], np.cumsum(np.where(there, array, 0.0))])
    counts = np.concatenate([[0], np.cumsum(there)])
    ends = np.arange(1, array.size + 1)
    starts = np.maximum(ends - width, 0)
    with np.errstate(invalid="ignore"):
        return np.asarray((sums[ends] - sums[starts]) / (counts[ends] - counts[starts]))


def _places(series: Mapping[int, float], steps: Sequence[int]) -> IntArray:
    return np.searchsorted(np.array(sorted(series), dtype=np.int64), np.array(steps, dtype=np.int64))
