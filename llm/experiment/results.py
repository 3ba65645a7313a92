"""What an experiment found: pass rates where arms have spent the same, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.records import plain, to_csv
from llm.experiment.plan import Axis, Experiment, Job, RunKey, Tuning, choose_rate
from llm.histories import RunHistory, read_run

__all__ = [
    "AXES",
    "ArmRuns",
    "Results",
    "SeedMean",
    "chosen_rates",
    "collect",
    "mean_over_seeds",
    "place_of",
    "points_of",
    "seed_mean",
    "series",
    "tune",
    "tune_all",
    "value_at",
]

AXES: tuple[Axis, ...] = ("steps", "responses", "tokens")
"""The axes in the order in which they are shown."""

_COLUMNS: Mapping[Axis, str] = {"steps": "step", "responses": "total_responses", "tokens": "total_tokens"}


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds."""

    mean: float
    """The mean, NaN without a value."""
    standard_error: float
    """Its standard error, NaN below two values."""
    low: float
    """Lower end of its 95 % confidence interval by Student's t, NaN below two values."""
    high: float
    """Upper end of the interval."""
    count: int
    """Values."""

    @property
    def sign(self) -> int:
        """Return 1 or -1 where the interval lies on one side of 0, and 0 where it doesn't or there is none."""
        return int(self.low > 0) - int(self.high < 0)


def seed_mean(values: Sequence[float] | FloatArray) -> SeedMean:
    """Return the mean of independent values and its interval; values that are NaN are left out."""
    from scipy.special import stdtrit

    there = np.asarray(values, dtype=np.float64)
    there = there[~np.isnan(there)]
    n = there.size
    if not n:
        return SeedMean(math.nan, math.nan, math.nan, math.nan, 0)
    mean = float(there.mean())
    if n == 1:
        return SeedMean(mean, math.nan, math.nan, math.nan, 1)
    error = float(there.std(ddof=1)) / math.sqrt(n)
    half = float(stdtrit(n - 1, 0.975)) * error
    return SeedMean(mean, error, mean - half, mean + half, n)


def mean_over_seeds(values: FloatArray, bases: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Return the mean of runs, each base model weighing the same, and its standard error over seeds.

    How far base models lie apart is no part of the error: all arms start from the same ones.

    Parameters
    ----------
    values
        ``[run, point]``.
    bases
        ``[run]`` names of the base models.

    Returns
    -------
    tuple of FloatArray
        ``[point]`` each; the error is NaN where a base model has a single run.
    """
    groups = [values[[base == name for base in bases]] for name in dict.fromkeys(bases)]
    mean = np.mean([group.mean(axis=0) for group in groups], axis=0)
    if min(map(len, groups)) < 2:
        return mean, np.full(mean.shape, math.nan)
    variance = np.sum([group.var(axis=0, ddof=1) / len(group) for group in groups], axis=0)
    return mean, np.sqrt(variance) / len(groups)


def series(run: RunHistory, evaluation: str, axis: Axis) -> tuple[FloatArray, FloatArray]:
    """Return where a run was evaluated, and the pass rate there, ``[evaluation]`` each; those without one left out."""
    rows = [row for row in run.evals if (row["eval"].get(evaluation) or {}).get("pass_rate") is not None]
    where = np.array([row[_COLUMNS[axis]] for row in rows], dtype=np.float64)
    return where, np.array([row["eval"][evaluation]["pass_rate"] for row in rows], dtype=np.float64)


def value_at(run: RunHistory, evaluation: str, axis: Axis, point: float | FloatArray) -> Any:
    """Return the pass rate where so much was spent, on the line between the evaluations before and after.

    Parameters
    ----------
    run
        The run.
    evaluation
        Name of the evaluation.
    axis, point
        What was spent in training up to there, and how much of it; any shape.

    Returns
    -------
    float or FloatArray
        NaN beyond the run's last evaluation, and where it has none.
    """
    where, rates = series(run, evaluation, axis)
    if not where.size:
        return np.full(np.shape(point), math.nan)[()]
    return np.interp(point, where, rates, left=math.nan, right=math.nan)


@dataclass(frozen=True, eq=False)
class ArmRuns:
    """The finished runs of an arm."""

    rate: float
    """Its learning rate."""
    runs: Mapping[RunKey, RunHistory]
    """Its runs by seed, or by base model and seed; at least one."""
    tuning: Tuning | None = None
    """How the rate was chosen, where it was."""


def place_of(axis: Axis, point: float) -> str:
    """Return a point of an axis in words."""
    return f"{point:,.0f} {axis}"


def points_of(experiment: Experiment, runs: Sequence[RunHistory]) -> dict[Axis, list[int]]:
    """Return the points at which arms are compared, by axis; see `ExperimentConfig`."""
    config = experiment.config
    base = experiment.bases[0]
    plans = [experiment.run_config(arm, experiment.rates[0], config.seeds[0], base).train for arm in config.arms]

    def spent_by_all(axis: Axis) -> int:
        return min(int(run.evals[-1][_COLUMNS[axis]]) if run.evals else 0 for run in runs)

    return {
        "steps": config.steps_at or [min(plan.steps for plan in plans)],
        "responses": config.responses_at or [spent_by_all("responses")],
        "tokens": config.tokens_at or [min(plan.tokens for plan in plans) or spent_by_all("tokens")],
    }


def tune(experiment: Experiment, jobs: Sequence[Job]) -> dict[str, Tuning]:
    """Choose each arm's rate by the mean of its tuning runs; an arm of which no rate has all of them gets none."""
    metric = experiment.config.tuning_metric
    runs = {job: read_run(job.folder, job.arm) for job in jobs if job.finished}
    if not runs:
        return {}
    point = max(points_of(experiment, list(runs.values()))[metric.at])
    tried: dict[str, dict[float, list[float]]] = {}
    for job in jobs:
        value = float(value_at(runs[job], metric.evaluation, metric.at, point)) if job in runs else math.nan
        tried.setdefault(job.arm, {}).setdefault(job.rate, []).append(value)
    chosen = {
        arm: choose_rate({rate: float(np.mean(values)) for rate, values in by_rate.items()})
        for arm, by_rate in tried.items()
    }
    return {arm: tuning for arm, tuning in chosen.items() if tuning is not None}


def tune_all(
    experiment: Experiment, arms: Sequence[str], run: Callable[[str, Sequence[Job]], None] = lambda *_: None
) -> dict[str, Tuning]:
    """Choose the learning rates of arms, with more rates where the best is at the edge.

    Parameters
    ----------
    experiment
        The experiment.
    arms
        The arms' names.
    run
        Called with what is done, in words, and the runs that it takes; what has finished counts.
    """
    jobs = experiment.tuning_jobs(arms)
    run("tuning", jobs)
    tunings = tune(experiment, jobs)
    for _ in range(experiment.config.extensions):
        more = {arm: [tuning.beyond] for arm, tuning in tunings.items() if tuning.beyond is not None}
        if not more:
            break
        added = experiment.trial_jobs(more)
        run("tuning beyond the edge", added)
        jobs += added
        tunings = tune(experiment, jobs)
    return tunings


def chosen_rates(experiment: Experiment, arms: Sequence[str], tunings: Mapping[str, Tuning]) -> dict[str, float]:
    """Return the learning rate of each arm; where rates are tuned, an arm without one is left out."""
    if not experiment.tunes:
        return dict.fromkeys(arms, experiment.rates[0])
    return {arm: tuning.best for arm, tuning in tunings.items()}


def collect(experiment: Experiment, jobs: Sequence[Job], tunings: Mapping[str, Tuning]) -> Results | None:
    """Read the runs that have finished, None where none has."""
    arms: dict[str, dict[RunKey, RunHistory]] = {}
    rates = {}
    for job in jobs:
        if job.finished:
            arms.setdefault(job.arm, {})[job.key] = read_run(job.folder, job.arm)
            rates[job.arm] = job.rate
    if not arms:
        return None
    points = points_of(experiment, [run for runs in arms.values() for run in runs.values()])
    missing = [job.label for job in jobs if not job.finished]
    finished = {arm: ArmRuns(rates[arm], arms[arm], tunings.get(arm)) for arm in experiment.config.arms if arm in arms}
    return Results(finished, points, experiment.reference, missing)


@dataclass(frozen=True, eq=False)
class Results:
    """The finished runs of an experiment, and what they say."""

    arms: Mapping[str, ArmRuns]
    """By name, at least one."""
    points: Mapping[Axis, Sequence[int]]
    """Where arms are compared, by axis."""
    reference: str
    """Arm with which the others are compared; where it has no run there are no differences."""
    missing: Sequence[str] = ()
    """Runs that are wanted and have not finished, in words."""

    @cached_property
    def evaluations(self) -> list[str]:
        """Names of the evaluations, the training prompts' first."""
        rows = (row for arm in self.arms.values() for run in arm.runs.values() for row in run.evals)
        names = dict.fromkeys(name for row in rows for name in row["eval"])
        return sorted(names, key=lambda name: name != "pool")

    def at(self, arm: str, evaluation: str, axis: Axis, point: float) -> SeedMean:
        """Return an arm's pass rate at a point."""
        return seed_mean([value_at(run, evaluation, axis, point) for run in self.arms[arm].runs.values()])

    def start(self, arm: str, evaluation: str) -> SeedMean:
        """Return an arm's pass rate before the first step."""
        return self.at(arm, evaluation, "steps", 0)

    def difference(self, arm: str, evaluation: str, axis: Axis, point: float) -> SeedMean:
        """Return by how much an arm is ahead of the reference at a point: a mean of differences seed by seed."""
        reference = self.arms[self.reference].runs if self.reference in self.arms else {}
        own = self.arms[arm].runs
        return seed_mean(
            [
                value_at(own[seed], evaluation, axis, point) - value_at(reference[seed], evaluation, axis, point)
                for seed in own
                if seed in reference
            ]
        )

    def per_step(self, arm: str, name: str) -> SeedMean:
        """Return a number of the training steps, such as ``responses``, averaged over those that are compared.

        These are the steps up to the last point of that axis, so that an arm that went on for the
        sake of its tokens is compared at the same stage of training.
        """
        last_point = max(self.points["steps"])
        return seed_mean(
            [
                float(np.mean([row[name] for row in run.steps if row["step"] < last_point]))
                for run in self.arms[arm].runs.values()
            ]
        )

    def seconds(self, arm: str) -> dict[str, float]:
        """Return the mean seconds of a step by phase, over the same steps as `per_step`."""
        last_point = max(self.points["steps"])
        times = [row["time"] for run in self.arms[arm].runs.values() for row in run.steps if row["step"] < last_point]
        phases = dict.fromkeys(phase for each in times for phase in each)
        return {phase: sum(each.get(phase, 0.0) for each in times) / len(times) for phase in phases}

    def label(self, arm: str) -> str:
        """Return what the arm's rows call its policy."""
        return str(next(iter(self.arms[arm].runs.values())).steps[-1].get("policy"))

    @property
    def notes(self) -> list[str]:
        """What a reader has to know: how rates were chosen, what is missing."""
        notes = []
        for name, arm in self.arms.items():
            if arm.tuning is not None:
                tried = ", ".join(f"{rate:g}: {_shown(value)}" for rate, value in arm.tuning.values.items())
                edge = "; the best one is at the edge, so a better one may lie beyond" if arm.tuning.at_edge else ""
                notes.append(f"{name}: learning rate {arm.tuning.best:g}, the best of {tried}{edge}")
        notes += [f"missing: {each}" for each in self.missing]
        notes += [
            f"{arm} has a pass rate of {evaluation} at {place_of(axis, point)} in {reached} of its "
            f"{len(self.arms[arm].runs)} runs; the others end before"
            for arm, evaluation, axis, point in self._cells()
            if (reached := self.at(arm, evaluation, axis, point).count) < len(self.arms[arm].runs)
        ]
        return notes

    def verdicts(self) -> list[str]:
        """Return who has the largest mean at the last point of each axis, and who is ahead of the reference or behind.

        Those are the arms whose 95 % interval of the difference excludes 0.
        """
        return [
            self._verdict(evaluation, axis, max(self.points[axis])) for evaluation in self.evaluations for axis in AXES
        ]

    def _verdict(self, evaluation: str, axis: Axis, point: int) -> str:
        means = {arm: self.at(arm, evaluation, axis, point).mean for arm in self.arms}
        known = {arm: mean for arm, mean in means.items() if not math.isnan(mean)}
        head = f"{evaluation} at {place_of(axis, point)}: "
        if not known:
            return head + "no run got there"
        best = max(known, key=lambda arm: known[arm])
        head += f"{best} has the largest mean, {known[best]:.3f}"
        differences = {arm: self.difference(arm, evaluation, axis, point) for arm in self.arms if arm != self.reference}
        if self.reference not in known or not differences:
            return head
        told = f"{self.reference} ({known[self.reference]:.3f})"
        groups = {
            f"ahead of {told}": [arm for arm, each in differences.items() if each.sign > 0],
            f"behind {told}": [arm for arm, each in differences.items() if each.sign < 0],
            f"not told apart from {told}": [
                arm for arm, each in differences.items() if not each.sign and each.count > 1
            ],
            f"against {told}, without an interval": [arm for arm, each in differences.items() if each.count == 1],
        }
        parts = [
            f"{what}: {', '.join(f'{arm} {differences[arm].mean:+.3f}' for arm in arms)}"
            for what, arms in groups.items()
            if arms
        ]
        return "; ".join([head, *parts])

    def _cells(self) -> Iterator[tuple[str, str, Axis, int]]:
        for arm in self.arms:
            for evaluation in self.evaluations:
                for axis in AXES:
                    for point in self.points[axis]:
                        yield arm, evaluation, axis, point

    def records(self) -> list[dict[str, Any]]:
        """Return a record for every arm, evaluation and point; None where there is no number."""
        records: list[dict[str, Any]] = []
        for arm, evaluation, axis, point in self._cells():
            rate = self.at(arm, evaluation, axis, point)
            record = {
                "arm": arm,
                "policy": self.label(arm),
                "learning_rate": self.arms[arm].rate,
                "evaluation": evaluation,
                "axis": axis,
                "point": point,
                "start": self.start(arm, evaluation).mean,
                **_numbers("", rate),
                "reference": self.reference,
                **_numbers("difference_", self.difference(arm, evaluation, axis, point)),
            }
            records.append(plain(record))
        return records

    def to_csv(self) -> str:
        """Return the records as CSV text."""
        return to_csv(self.records())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values: what JSON can hold."""
        return {
            "reference": self.reference,
            "points": {axis: list(points) for axis, points in self.points.items()},
            "verdicts": self.verdicts(),
            "notes": self.notes,
            "arms": {name: self._arm(name, arm) for name, arm in self.arms.items()},
            "records": self.records(),
        }

    def _arm(self, name: str, arm: ArmRuns) -> dict[str, Any]:
        tuning = None
        if arm.tuning is not None:
            values = {f"{rate:g}": plain(value) for rate, value in arm.tuning.values.items()}
            tuning = {"pass_rates": values, "at_edge": arm.tuning.at_edge}
        return {
            "policy": self.label(name),
            "learning_rate": arm.rate,
            "tuning": tuning,
            "responses_per_step": plain(self.per_step(name, "responses").mean),
            "tokens_per_step": plain(self.per_step(name, "tokens").mean),
            "seconds_per_step": self.seconds(name),
            "runs": {
                str(seed): {
                    "folder": str(run.folder),
                    "evaluations": [
                        {column: row[column] for column in _COLUMNS.values()}
                        | {each: (row["eval"].get(each) or {}).get("pass_rate") for each in self.evaluations}
                        for row in run.evals
                    ],
                }
                for seed, run in arm.runs.items()
            },
        }


def _numbers(prefix: str, value: SeedMean) -> dict[str, Any]:
    names = ("mean", "standard_error", "low", "high", "count")
    return {f"{prefix}{name}": getattr(value, name) for name in names}


def _shown(value: float) -> str:
    return "failed" if math.isnan(value) else f"{value:.3f}"
