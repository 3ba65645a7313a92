"""A sweep of learning runs: policies x prompt sets x seeds, resumable, on any number of workers.

Runs are independent pure functions of (policy, task, setting, seed), so their results depend
neither on the number of workers nor on which of them were there before.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

import ada_bandit
from ada_bandit import Policy
from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count
from sim.labels import distinct_labels
from sim.learn.task import Task
from sim.learn.training import EVALUATION_FIELDS, STEP_FIELDS, Sampler, TrainingRun, TrainingSetting, train_sampler
from sim.statistics import SampleMean, mean_and_error, sample_mean

__all__ = ["AXES", "Axis", "Plan", "Scaling", "Standing", "Sweep", "measure_scaling", "run_sweep"]

Axis: TypeAlias = Literal["steps", "responses", "tokens", "time"]
AXES: tuple[Axis, ...] = ("steps", "responses", "tokens", "time")
"""What a run can be held against."""
ROOT = Path(__file__).parents[2]
"""Where the programs lie."""
SHARES = (0.25, 0.5, 1.0)
"""Where standings are taken, as shares of what all runs have spent."""
_BLOCK = 8
"""Runs a worker that a backend without a stream of results is given at a time."""
_MATCHED = "grpo matched to "
_Key: TypeAlias = tuple[str, str, float, int]
"""Task, policy, learning rate and seed."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be run."""

    policies: tuple[Policy, ...]
    """The policies; labels are made to differ."""
    tasks: tuple[Task, ...]
    """The tasks, told apart by their labels."""
    setting: TrainingSetting
    """How they are learned."""
    seeds: int = 20
    """Runs of a policy on a task."""
    first_seed: int = 0
    """The first seed; the others follow."""
    learning_rates: tuple[float, ...] = ()
    """Step sizes to try in place of the setting's: every policy is then taken at the best of them."""
    matched: Literal["auto", "off"] | int = "auto"
    """``auto``: beside every adaptive policy a GRPO with as many responses a prompt as that policy had on the task,
    rounded. A number: one GRPO with so many. ``off``: none."""

    def __post_init__(self) -> None:
        if not self.policies or not self.tasks:
            msg = "a sweep needs at least one policy and one prompt set"
            raise InputError(msg)
        check_count("seeds", self.seeds)
        check_count("first_seed", self.first_seed, 0)
        names = [task.label for task in self.tasks]
        if len(set(names)) < len(names):
            msg = f"the prompt sets must differ by name; got {', '.join(names)}"
            raise InputError(msg)
        if self.matched not in {"auto", "off"}:
            check_count("matched", self.matched)
        object.__setattr__(self, "policies", distinct_labels(self.policies))
        object.__setattr__(self, "learning_rates", tuple(dict.fromkeys(self.learning_rates)))

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are run."""
        return self.learning_rates or (self.setting.learning_rate,)

    @property
    def all_seeds(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def expected_runs(self) -> int:
        """How many runs there will be, the matched ones included."""
        labels = {policy.label for policy in self.policies}
        more = {f"grpo:group_size={self.matched}"} if isinstance(self.matched, int) else set()
        if self.matched == "auto":
            more = {_MATCHED + policy.label for policy in self.policies if _adaptive(policy)}
        return len(labels | more) * len(self.tasks) * self.seeds * len(self.rates)

    def to_dict(self) -> dict[str, Any]:
        """Return everything the sweep depends on as plain values for JSON."""
        return {
            "version": ada_bandit.__version__,
            "policies": [policy.to_dict() for policy in self.policies],
            "tasks": [task.to_dict() for task in self.tasks],
            "setting": self.setting.to_dict(),
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "learning_rates": list(self.rates),
            "matched": self.matched,
        }


@dataclass(frozen=True)
class Standing:
    """Where a policy stands on a task when so much is spent; held-out pass rates, means over seeds."""

    task: str
    """The prompt set."""
    axis: Axis
    """What is spent."""
    budget: float
    """How much of it."""
    policy: str
    """The policy."""
    pass_rate: SampleMean
    """Its held-out pass rate there."""
    to_best: SampleMean
    """Its difference to the best policy's, seed by seed: 0 for the best one itself."""
    to_reference: SampleMean
    """Its difference to the first plain policy's, seed by seed."""

    @property
    def level(self) -> bool:
        """Whether the difference to the best is within two standard errors, or can't be told from one seed."""
        return not abs(self.to_best.mean) > 2 * self.to_best.se


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a plan, and what they say."""

    plan: Plan
    """The plan."""
    policies: tuple[str, ...]
    """Labels of all policies, the matched ones last."""
    matched: dict[str, dict[str, int]]
    """By task and label of a matched policy: its n."""
    tried: dict[tuple[str, str], dict[float, tuple[TrainingRun, ...]]]
    """By task and policy, then by learning rate: a run for every seed, in order."""
    seconds: float
    """Wall-clock time."""
    computed: int
    """Runs that were computed; the others were there before."""
    workers: int
    """Processes that ran at a time."""

    @cached_property
    def learning_rates(self) -> dict[tuple[str, str], float]:
        """By task and policy: the learning rate with the highest mean held-out pass rate at the end."""
        return {
            key: max(by_rate, key=lambda rate: float(np.mean([run.held_out_pass_rate[-1] for run in by_rate[rate]])))
            for key, by_rate in self.tried.items()
        }

    @cached_property
    def runs(self) -> dict[tuple[str, str], tuple[TrainingRun, ...]]:
        """By task and policy: a run for every seed, in order, at the policy's best learning rate."""
        return {key: by_rate[self.learning_rates[key]] for key, by_rate in self.tried.items()}

    @property
    def reference(self) -> str:
        """The policy that differences are to: the first that gives every prompt as many responses, else the first."""
        plain = [policy.label for policy in self.plan.policies if not _adaptive(policy)]
        return plain[0] if plain else self.policies[0]

    def values(self, task: str, policy: str, name: str) -> FloatArray:
        """Return a quantity by seed and evaluation, ``[seed, evaluation]``.

        Parameters
        ----------
        task, policy
            Labels.
        name
            A field of `TrainingRun` by evaluation, such as ``held_out_pass_rate``; one by step, such as
            ``signal``, averaged over the steps since the evaluation before and NaN at the first
            one; or one of `AXES` with ``_spent``, such as ``tokens_spent``.
        """
        runs = self.runs[task, policy]
        if name.endswith("_spent"):
            axis: Any = name.removesuffix("_spent")
            return np.array([run.spent(axis) for run in runs])
        if name not in STEP_FIELDS:
            return np.array([getattr(run, name) for run in runs])
        out = np.full((len(runs), runs[0].at.size), np.nan)
        for row, run in zip(out, runs, strict=True):
            total = np.concatenate([[0.0], np.cumsum(getattr(run, name))])
            row[1:] = np.diff(total[run.at]) / np.diff(run.at)
        return out

    def curve(self, task: str, policy: str, name: str) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard error over seeds of a quantity of `values`, ``[evaluation]`` each."""
        return mean_and_error(self.values(task, policy, name))

    def at_budget(self, task: str, policy: str, axis: Axis, budget: float) -> FloatArray:
        """Return the held-out pass rate when so much is spent, ``[seed]``, between evaluations on a line.

        Where several learning rates were tried, that of the rate with the highest mean there:
        little money is spent best in large steps.
        """
        by_rate = (
            np.array([np.interp(budget, run.spent(axis), run.held_out_pass_rate) for run in runs])
            for runs in self.tried[task, policy].values()
        )
        return max(by_rate, key=lambda values: float(values.mean()))

    def by_budget(self, task: str, policy: str, axis: Axis) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return budgets up to all that the policy has spent, and mean and standard error of `at_budget` there."""
        spent = self.values(task, policy, f"{axis}_spent").mean(axis=0)
        curve = [sample_mean(self.at_budget(task, policy, axis, float(budget))) for budget in spent]
        return spent, np.array([one.mean for one in curve]), np.array([one.se for one in curve])

    def common_budget(self, task: str, axis: Axis) -> float:
        """Return the most that every run on the task has spent."""
        every = (
            run
            for (name, _), by_rate in self.tried.items()
            if name == task
            for runs in by_rate.values()
            for run in runs
        )
        return min(float(run.spent(axis)[-1]) for run in every)

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """Where every policy stands on every task, at the `SHARES` of the common budget of each of the `AXES`."""
        rows = []
        for task in (one.label for one in self.plan.tasks):
            for axis in AXES:
                end = self.common_budget(task, axis)
                for budget in (share * end for share in SHARES):
                    rates = {policy: self.at_budget(task, policy, axis, budget) for policy in self.policies}
                    best = rates[max(rates, key=lambda policy: rates[policy].mean())]
                    for policy, mine in rates.items():
                        differences = (sample_mean(mine - other) for other in (best, rates[self.reference]))
                        rows.append(Standing(task, axis, budget, policy, sample_mean(mine), *differences))
        return tuple(rows)

    def standing(self, task: str, axis: Axis, share: float = 1.0) -> tuple[Standing, ...]:
        """Return the standings on a task at one of the `SHARES` of an axis, the best first."""
        budget = share * self.common_budget(task, axis)
        rows = (one for one in self.standings if (one.task, one.axis, one.budget) == (task, axis, budget))
        return tuple(sorted(rows, key=lambda row: -row.pass_rate.mean))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the sweep says, in words."""
        return tuple(_notes(self))

    def to_csv(self) -> str:
        """Return all curves as CSV text: a row for every prompt set, policy and evaluation; means and `_se`."""
        names = [f"{axis}_spent" for axis in AXES]
        names += [f"{side}_{name}" for side in ("held_out", "train") for name in EVALUATION_FIELDS]
        names += STEP_FIELDS
        head = [column for name in names for column in (name, f"{name}_se")]
        head += [f"{side}_pass@{k}" for side in ("held_out", "train") for k in self.plan.setting.pass_k]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["prompt_set", "policy", "step", *head])
        for (task, policy), runs in self.runs.items():
            columns = [column for name in names for column in self.curve(task, policy, name)]
            for side in ("held_out", "train"):
                columns += list(np.mean([getattr(run, f"{side}_pass_at") for run in runs], axis=0).T)
            for step, *row in zip(runs[0].at.tolist(), *columns, strict=True):
                cells = ["" if np.isnan(value) else repr(float(value)) for value in row]
                writer.writerow([task, policy, step, *cells])
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Return configuration, standings and conclusions as plain values for JSON; the time taken is no part of it."""
        return {
            "configuration": self.plan.to_dict(),
            "matched": self.matched,
            "notes": list(self.notes),
            "reference": self.reference,
            "costs": [
                {"prompt_set": task, "policy": policy, "learning_rate": self.learning_rates[task, policy]}
                | {name: _plain(self.whole(task, policy, name)) for name in STEP_FIELDS}
                for task, policy in self.runs
            ],
            "standings": [
                {"prompt_set": one.task, "axis": one.axis, "budget": one.budget, "policy": one.policy}
                | {name: _plain(getattr(one, name)) for name in ("pass_rate", "to_best", "to_reference")}
                for one in self.standings
            ],
        }

    def whole(self, task: str, policy: str, name: str) -> SampleMean:
        """Return the mean over all steps of a quantity by step, and its standard error over seeds."""
        return sample_mean(np.array([getattr(run, name).mean() for run in self.runs[task, policy]]))


def _plain(value: SampleMean) -> dict[str, float | None]:
    return {"mean": value.mean, "se": None if np.isnan(value.se) else value.se}


def _adaptive(policy: Policy) -> bool:
    """Return whether the number of responses depends on rewards, or on a budget shared by the batch."""
    tables = policy.tables
    if tables.shared:
        return True
    total = np.indices(tables.draws.shape).sum(axis=0)
    return bool(np.unique(total[tables.exits]).size > 1)


# Running


@dataclass(frozen=True, eq=False)
class _Job:
    policy: str
    sampler: Sampler
    task: Task
    setting: TrainingSetting
    seed: int

    @property
    def key(self) -> _Key:
        return self.task.label, self.policy, self.setting.learning_rate, self.seed

    @cached_property
    def file(self) -> str:
        """A name that all that decides the result goes into, and nothing else."""
        plain = {"version": ada_bandit.__version__, "task": self.task.to_dict(), "setting": self.setting.to_dict()}
        text = json.dumps(plain | {"seed": self.seed}, sort_keys=True)
        return hashlib.sha256(text.encode() + self.sampler.to_bytes()).hexdigest()[:24] + ".npz"

    def load(self, folder: Path) -> TrainingRun | None:
        """Return the run if its file is there and whole."""
        try:
            run = TrainingRun.load(folder / self.file)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        return replace(run, policy=self.policy, prompt_set=self.task.label)


def _work(job: _Job) -> tuple[_Key, TrainingRun]:
    return job.key, replace(train_sampler(job.sampler, job.task, job.setting, job.seed), policy=job.policy)


def run_sweep(
    plan: Plan,
    folder: Path | None = None,
    *,
    resume: bool = False,
    workers: int = 1,
    backend: str = "loky",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Sweep:
    """Run a plan.

    Parameters
    ----------
    plan
        The plan.
    folder
        Where every run is written as soon as it ends; nowhere unless given.
    resume
        Whether to take the runs that are in the folder already, of this plan or of another one
        that shares them.
    workers
        Processes; with a cluster, tasks at a time.
    backend
        A backend of joblib: ``loky``, ``ray``, or another one that is registered.
    address
        Address of the Ray cluster; one on this machine unless given.
    progress
        Called with the number of runs just ended.

    Returns
    -------
    Sweep
        The same whatever the workers, and whatever was there before.

    Raises
    ------
    InputError
        If the backend is not to be had.
    """
    count = check_count("workers", workers)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    done: dict[_Key, TrainingRun] = {}
    settings = [replace(plan.setting, learning_rate=rate) for rate in plan.rates]
    computed = 0

    def finish(samplers: Iterable[tuple[str, Sampler, Task]], parallel: Any) -> None:
        nonlocal computed
        jobs = [
            _Job(name, sampler, task, setting, seed)
            for seed in plan.all_seeds
            for name, sampler, task in samplers
            for setting in settings
        ]
        missing = []
        for job in jobs:
            run = job.load(folder) if folder is not None and resume else None
            if run is None:
                missing.append(job)
            else:
                done[job.key] = run
        if progress is not None:
            progress(len(jobs) - len(missing))
        files = {job.key: job.file for job in missing}
        for key, run in parallel(missing):
            done[key] = run
            computed += 1
            if folder is not None:
                run.save(folder / files[key])
            if progress is not None:
                progress(1)

    compiled = [(policy.label, Sampler.of(policy)) for policy in plan.policies]
    with _pool(backend, count, address) as parallel:
        finish([(name, sampler, task) for task in plan.tasks for name, sampler in compiled], parallel)
        grpos, matched = _match(plan, done)
        finish(grpos, parallel)
    names = (*(name for name, _ in compiled), *dict.fromkeys(name for name, _, _ in grpos))
    tried = {
        (task.label, name): {
            rate: tuple(done[task.label, name, rate, seed] for seed in plan.all_seeds) for rate in plan.rates
        }
        for task in plan.tasks
        for name in names
    }
    return Sweep(plan, names, matched, tried, time.perf_counter() - began, computed, count)


def _match(
    plan: Plan, done: dict[_Key, TrainingRun]
) -> tuple[list[tuple[str, Sampler, Task]], dict[str, dict[str, int]]]:
    """Return the GRPOs that cost as much as the adaptive policies: label, compiled policy and task; and their n."""
    grpos: list[tuple[str, Sampler, Task]] = []
    sizes: dict[str, dict[str, int]] = {}
    for task in plan.tasks:
        wanted: dict[str, int] = {}
        if isinstance(plan.matched, int):
            wanted[f"grpo:group_size={plan.matched}"] = plan.matched
        elif plan.matched == "auto":
            for policy in filter(_adaptive, plan.policies):
                by_rate = [
                    [done[task.label, policy.label, rate, seed] for seed in plan.all_seeds] for rate in plan.rates
                ]
                runs = max(by_rate, key=lambda runs: float(np.mean([run.held_out_pass_rate[-1] for run in runs])))
                cost = np.mean([run.responses.mean() / run.batch for run in runs])
                wanted[_MATCHED + policy.label] = max(round(float(cost)), 1)
        wanted = {name: n for name, n in wanted.items() if name not in {policy.label for policy in plan.policies}}
        sizes[task.label] = wanted
        for name, n in wanted.items():
            grpos.append((name, Sampler.of(Policy.preset("grpo", group_size=n)), task))
    return grpos, sizes


@contextmanager
def _pool(backend: str, workers: int, address: str | None) -> Iterator[Callable[[Sequence[_Job]], Iterator[Any]]]:
    """Give a function that runs jobs and yields their results as they end."""
    try:
        joblib: Any = importlib.import_module("joblib")
    except ImportError as error:
        msg = "a sweep needs the package joblib: pip install joblib"
        raise InputError(msg) from error
    if address is not None and backend != "ray":
        msg = f"an address is for the backend 'ray'; got {address!r} with {backend!r}"
        raise InputError(msg)
    with _ray(address) if backend == "ray" else nullcontext():
        try:
            with joblib.parallel_config(backend=backend):
                # Ray's backend gives its results all at once; blocks of jobs keep what is written up to date.
                streams = joblib.parallel.get_active_backend()[0].supports_return_generator
                pool = joblib.Parallel(n_jobs=workers, return_as="generator_unordered" if streams else "list")
        except ValueError as error:
            msg = f"unknown backend {backend!r}; give loky, ray, or one that is registered with joblib"
            raise InputError(msg) from error

        def call(jobs: Sequence[_Job]) -> Iterator[Any]:
            size = max(len(jobs), 1) if streams else _BLOCK * workers
            for start in range(0, len(jobs), size):
                yield from parallel(joblib.delayed(_work)(job) for job in jobs[start : start + size])

        with pool as parallel:
            yield call


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    """Register joblib's Ray backend, on a cluster that is there or on one that lives as long as the body."""
    try:
        ray: Any = importlib.import_module("ray")
        register: Any = importlib.import_module("ray.util.joblib").register_ray
    except ImportError as error:
        msg = "the backend 'ray' needs the package ray: pip install ray, or take --backend loky"
        raise InputError(msg) from error
    mine = not ray.is_initialized()
    if mine:
        # Workers unpickle functions of this package by name, so they have to find it.
        ray.init(address=address, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}}, log_to_driver=False)
    try:
        register()
        yield
    finally:
        if mine:
            ray.shutdown()


@dataclass(frozen=True)
class Scaling:
    """How long a part of a sweep takes on a number of workers."""

    workers: int
    """Processes."""
    runs: int
    """Runs."""
    seconds: float
    """Wall-clock time, after the workers have started and loaded their kernels."""


def measure_scaling(plan: Plan, workers: Sequence[int], *, seeds: int = 2) -> tuple[Scaling, ...]:
    """Time the first seeds of a plan on each number of workers, without writing anything."""
    part = replace(plan, seeds=min(seeds, plan.seeds), matched="off", learning_rates=plan.rates[:1])
    short = replace(part, setting=replace(plan.setting, steps=1))
    timings = []
    for count in workers:
        run_sweep(short, workers=count)
        timed = run_sweep(part, workers=count)
        timings.append(Scaling(count, timed.computed, timed.seconds))
    return tuple(timings)


# Words


def _notes(sweep: Sweep) -> Iterator[str]:
    setting, seeds = sweep.plan.setting, sweep.plan.seeds
    what = (
        "one seed, so differences may be chance"
        if seeds == 1
        else f"{seeds} seeds; a difference counts from two standard errors of its mean over seeds"
    )
    yield f"simulated: {setting.steps} steps of {setting.batch} prompts on a small policy with exact gradients; {what}"
    rates = sweep.plan.rates
    if len(rates) == 1:
        yield (
            f"one learning rate, {rates[0]:g}, for all: where it limits a step more than noise does, more responses "
            "buy little; give several for each policy at its best"
        )
    else:
        yield (
            f"learning rates {', '.join(f'{rate:g}' for rate in rates)}: each policy is taken at the best one, chosen "
            "by the means that are shown, and anew for every budget where policies are held against each other"
        )
        at_end = sum(rate in {min(rates), max(rates)} for rate in sweep.learning_rates.values())
        if at_end:
            yield f"{at_end} of {len(sweep.learning_rates)} best learning rates are the smallest or largest one tried"
    for task in (one.label for one in sweep.plan.tasks):
        for axis, unit in (("steps", "step"), ("responses", "response"), ("tokens", "token"), ("time", "time")):
            yield _ahead(sweep, task, axis, unit)  # type: ignore[arg-type]
        yield from _against_match(sweep, task)


def _ahead(sweep: Sweep, task: str, axis: Axis, unit: str) -> str:
    end = sweep.common_budget(task, axis)
    best, *others = sweep.standing(task, axis)
    spent = f"{end:,.0f} steps" if axis == "steps" else f"{end:.3g} {axis if axis != 'time' else 'token times'}"
    head = f"{task}, per {unit}: after {spent}, {best.policy}"
    if sweep.plan.seeds == 1:
        rest = ", ".join(f"{row.policy} {row.to_best.mean:+.3f}" for row in others)
        return f"{head} had a held-out pass rate of {best.pass_rate.mean:.3f}" + (f"; {rest}" if rest else "")
    level = [row.policy for row in others if row.level]
    level_text = f", and level with it {_listed(level)}" if level else ""
    behind = [f"{row.policy} {row.to_best.mean:+.3f} ± {row.to_best.se:.3f}" for row in others if not row.level]
    behind_text = f"; {', '.join(behind)}" if behind else ""
    early = sweep.standing(task, axis, SHARES[0])[0].policy
    earlier = "" if early == best.policy else f" (at a quarter of that: {early})"
    return f"{head} is ahead with a held-out pass rate of {best.pass_rate.mean:.3f}{level_text}{behind_text}{earlier}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _against_match(sweep: Sweep, task: str) -> Iterator[str]:
    """Hold every adaptive policy against the GRPO that costs as much, step by step."""
    for name, n in sweep.matched[task].items():
        policy = name.removeprefix(_MATCHED)
        if policy == name or policy not in sweep.policies:
            continue
        parts = []
        for share in SHARES:
            budget = share * sweep.common_budget(task, "steps")
            gap = sample_mean(
                sweep.at_budget(task, policy, "steps", budget) - sweep.at_budget(task, name, "steps", budget)
            )
            parts.append(f"{gap.mean:+.3f}" + ("" if sweep.plan.seeds == 1 else f" ± {gap.se:.3f}"))
        yield (
            f"{task}, at as many responses a step: {policy} against GRPO with n = {n}, after a quarter, half and all "
            f"of the steps: {', '.join(parts)}"
        )
