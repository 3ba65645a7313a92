"""An experiment's config, and the runs that it asks for: arms x seeds x learning rates of one run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationError, model_validator

from ada_bandit.errors import InputError, unknown_name
from ada_bandit.programs.folders import write_text
from ada_bandit.programs.records import to_json
from ada_bandit.step_specs import read_step_policy
from llm.config import RunConfig, Section, change_table, config_problem, read_table, to_config

__all__ = [
    "ArmConfig",
    "Axis",
    "Experiment",
    "ExperimentConfig",
    "Job",
    "Tuning",
    "TuningMetric",
    "choose_rate",
    "read_experiment",
]

Axis: TypeAlias = Literal["steps", "responses", "tokens"]
"""What may be equal when arms are compared: steps, responses drawn, or tokens generated, in training."""

_ARM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ArmConfig(Section):
    """One of the policies that are compared."""

    policy: str | dict[str, Any] = Field(description="The policy, as in a run's config.")
    changes: dict[str, Any] = Field(
        default_factory=dict,
        alias="set",
        description='Other values than those of [run] by dotted name, such as {"train.prompts" = 128}.',
    )


class TuningMetric(Section):
    """By what the learning rate of an arm is chosen."""

    evaluation: str = Field(default="held_out", description="Name of the evaluation whose pass rate counts.")
    at: Axis = Field(
        default="tokens", description="steps, responses or tokens: at the last of the points of that axis."
    )


class ExperimentConfig(Section):
    """An experiment."""

    run: dict[str, Any] = Field(
        description="The run that all arms share, a table as 'python -m llm train --help' lists it; without policy and "
        "seed, and without train.learning_rate where learning_rates are given."
    )
    arms: dict[str, ArmConfig] = Field(description="What is compared, by name: [arms.NAME].")
    seeds: list[Annotated[int, Field(ge=0)]] = Field(
        default=[0, 1, 2], description="Seeds of every arm's runs, the same ones for all arms."
    )
    learning_rates: list[Annotated[float, Field(gt=0)]] = Field(
        default_factory=list,
        description="Learning rates; with several, each arm first runs with all of them on tuning_seed, and then with "
        "its best one on all seeds. That of [run] when empty.",
    )
    tuning_seed: Annotated[int, Field(ge=0)] = Field(
        default=100, description="Seed of the runs that tune; none of seeds."
    )
    tuning_metric: TuningMetric = Field(
        default=TuningMetric(),
        description='What tells the best rate: {evaluation = "held_out", at = "tokens"} (or steps, or responses).',
    )
    reference: str = Field(default="", description="Arm with which the others are compared; the first one when empty.")
    steps_at: list[Annotated[int, Field(ge=0)]] = Field(
        default_factory=list, description="Steps at which arms are compared; the fewest train.steps when empty."
    )
    responses_at: list[Annotated[int, Field(ge=0)]] = Field(
        default_factory=list,
        description="Responses at which arms are compared; as many as every run has drawn when empty.",
    )
    tokens_at: list[Annotated[int, Field(ge=0)]] = Field(
        default_factory=list,
        description="Generated tokens at which arms are compared; train.tokens when empty, or as many as every run "
        "has generated. Let train.tokens reach the last point: a run goes on until it has so many.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentConfig:
        if not self.arms:
            raise ValueError("there is no arm; give at least one as [arms.NAME] with its policy")
        for name in self.arms:
            if not _ARM_NAME.fullmatch(name):
                raise ValueError(f"an arm's name takes letters, digits, dots, - and _; got {name!r}")
        if not self.seeds:
            raise ValueError("there is no seed; give at least one, such as seeds = [0, 1, 2]")
        for key in ("seeds", "learning_rates", "steps_at", "responses_at", "tokens_at"):
            values = getattr(self, key)
            if len(set(values)) < len(values):
                raise ValueError(f"{key} holds a value twice: {values!r}")
        if len(self.learning_rates) > 1 and self.tuning_seed in self.seeds:
            raise ValueError(
                f"tuning_seed {self.tuning_seed} is one of seeds; a rate chosen on a seed flatters its runs"
            )
        if self.reference and self.reference not in self.arms:
            raise ValueError(str(unknown_name("arm", self.reference, self.arms)))
        return self


@dataclass(frozen=True, eq=False)
class Job:
    """One run of an experiment."""

    arm: str
    """Its arm."""
    rate: float
    """Its learning rate."""
    seed: int
    """Its seed."""
    config: RunConfig
    """All of its settings."""
    folder: Path
    """Where it is, or will be."""

    @property
    def label(self) -> str:
        """Its name in texts."""
        return f"{self.arm}, learning rate {self.rate:g}, seed {self.seed}"

    @property
    def log(self) -> Path:
        """What its process prints."""
        return self.folder / "log.txt"

    @property
    def finished(self) -> bool:
        """Whether it has run to its end with these settings."""
        try:
            text = self._mark.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        return bool(json.loads(text) == self._settings)

    def mark_finished(self) -> None:
        """Write down that it has run to its end with these settings."""
        write_text(self._mark, to_json(self._settings))

    @property
    def _mark(self) -> Path:
        return self.folder / "finished.json"

    @property
    def _settings(self) -> Any:
        return json.loads(json.dumps(self.config.model_dump(mode="json")))


@dataclass(frozen=True)
class Tuning:
    """Which learning rate an arm got, and why."""

    values: Mapping[float, float]
    """Pass rate by learning rate, NaN where the run failed."""
    best: float
    """The rate of the largest pass rate."""

    @property
    def at_edge(self) -> bool:
        """Whether the best rate is the least or the largest of them, so that a better one may lie beyond."""
        return self.best in {min(self.values), max(self.values)}


@dataclass(frozen=True)
class Experiment:
    """An experiment whose every run is known."""

    config: ExperimentConfig
    """The experiment."""
    folder: Path
    """Where its runs and results go."""
    where: str = "the experiment"
    """Name of the config in errors."""

    def __post_init__(self) -> None:
        run = self.config.run
        taken: list[str] = [key for key in ("policy", "seed") if key in run]
        if self.config.learning_rates and "learning_rate" in run.get("train", {}):
            taken.append("train.learning_rate")
        if taken:
            msg = f"remove run.{taken[0]} of {self.where!r}: it comes from the arms, seeds or learning_rates"
            raise InputError(msg)
        self._check_arms()

    def _check_arms(self) -> None:
        known: dict[str, RunConfig] = {}
        for arm in self.config.arms:
            config = self.run_config(arm, self.rates[0], self.config.seeds[0])
            try:
                read_step_policy(config.policy)
            except InputError as error:
                msg = f"the policy of arm {arm!r} can't be used: {error}"
                raise InputError(msg) from error
            for other, other_config in known.items():
                if config == other_config:
                    msg = f"the arms {other!r} and {arm!r} are the same run; remove one, or change its policy or set"
                    raise InputError(msg)
            known[arm] = config
            self._check_metric(config)

    def _check_metric(self, config: RunConfig) -> None:
        names = [*config.eval.tasks, *(["pool"] if config.eval.pool else [])] if config.eval.every else []
        if not names:
            msg = f"no run of {self.where!r} has an evaluation; set run.eval.every, and run.eval.pool or run.eval.tasks"
            raise InputError(msg)
        if self.tunes and self.config.tuning_metric.evaluation not in names:
            raise unknown_name("evaluation in tuning_metric", self.config.tuning_metric.evaluation, names)

    @property
    def rates(self) -> list[float]:
        """The learning rates, at least one."""
        if self.config.learning_rates:
            return self.config.learning_rates
        return [self._plain("", {}).train.learning_rate]

    @property
    def tunes(self) -> bool:
        """Whether there is a rate to choose."""
        return len(self.rates) > 1

    @property
    def reference(self) -> str:
        """The arm with which the others are compared."""
        return self.config.reference or next(iter(self.config.arms))

    def _plain(self, arm: str, changes: Mapping[str, Any]) -> RunConfig:
        where = f"{self.where}, [run]" + (f" of arm {arm}" if arm else "")
        return to_config(change_table(self.config.run, changes, where), where)

    def run_config(self, arm: str, rate: float, seed: int) -> RunConfig:
        """Return the settings of one run.

        Raises
        ------
        InputError
            If they can't be used.
        """
        chosen = self.config.arms[arm]
        fixed = {"policy": chosen.policy, "seed": seed, "train.learning_rate": rate}
        for key in fixed:
            if key in chosen.changes:
                msg = f"arms.{arm}.set can't change {key}: it comes from the arm's policy, seeds or learning_rates"
                raise InputError(msg)
        return self._plain(arm, {**chosen.changes, **fixed})

    def job(self, arm: str, rate: float, seed: int) -> Job:
        """Return one run."""
        name = f"{arm}-lr{rate:g}-seed{seed}"
        return Job(arm, rate, seed, self.run_config(arm, rate, seed), self.folder / "runs" / name)

    def tuning_jobs(self, arms: Sequence[str]) -> list[Job]:
        """Return the runs by which the learning rates of arms are chosen; none where there is one rate."""
        if not self.tunes:
            return []
        return [self.job(arm, rate, self.config.tuning_seed) for rate in self.rates for arm in arms]

    def final_jobs(self, rates: Mapping[str, float]) -> list[Job]:
        """Return the runs that are compared, given each arm's rate: all arms of a seed before the next seed."""
        return [self.job(arm, rate, seed) for seed in self.config.seeds for arm, rate in rates.items()]


def read_experiment(path: str | Path, folder: Path, changes: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment from a TOML file, with some values changed.

    Parameters
    ----------
    path
        The file.
    folder
        Where its runs and results go.
    changes
        Values by dotted name, such as ``{"run.train.steps": 10}``.

    Raises
    ------
    InputError
        If the file can't be read, a key is unknown, a value can't be used, or an arm has no run.
    """
    table = change_table(read_table(path), changes or {}, str(path))
    if "model" in table and "run" not in table:
        msg = f"{str(path)!r} is the config of a run, not of an experiment: 'python -m llm train' runs it"
        raise InputError(msg)
    try:
        config = ExperimentConfig.model_validate(table)
    except ValidationError as error:
        raise config_problem(error, ExperimentConfig, str(path)) from error
    return Experiment(config, folder, str(path))


def choose_rate(values: Mapping[float, float]) -> Tuning | None:
    """Choose the learning rate of the largest pass rate, of equal ones the smallest; None where no run has a value."""
    known = [rate for rate in sorted(values) if not math.isnan(values[rate])]
    return Tuning(values, max(known, key=lambda rate: values[rate])) if known else None
