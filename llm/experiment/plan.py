"""An experiment's config, and the runs that it asks for: arms x base models x seeds x learning rates of one run."""

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
from ada_bandit.memory import PassRateMemory
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
    "RunKey",
    "Tuning",
    "TuningMetric",
    "choose_rate",
    "read_experiment",
]

Axis: TypeAlias = Literal["steps", "responses", "tokens"]
"""What may be equal when arms are compared: steps, responses drawn, or tokens generated, in training."""

RunKey: TypeAlias = int | str
"""Which of an arm's runs: its seed, or where there are several base models BASE/SEED."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
        description="Learning rates; with several, each arm first runs with all of them on tuning_seeds, and then with "
        "its best one on all seeds. That of [run] when empty.",
    )
    tuning_seeds: list[Annotated[int, Field(ge=0)]] = Field(
        default=[100], description="Seeds of the runs that tune, whose mean counts; none of seeds."
    )
    bases: dict[str, str] = Field(
        default_factory=dict,
        description="Directories of the base models by name: every arm is trained from each of them. That of "
        "run.model.path alone when empty.",
    )
    tuning_bases: list[str] = Field(
        default_factory=list, description="Base models on which rates are chosen; the first one when empty."
    )
    extensions: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="How often an arm whose best rate is at the edge of learning_rates gets one more rate beyond it.",
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
        for kind, name in [*(("an arm", arm) for arm in self.arms), *(("a base", base) for base in self.bases)]:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{kind}'s name takes letters, digits, dots, - and _; got {name!r}")
        for key in ("seeds", "tuning_seeds"):
            if not getattr(self, key):
                raise ValueError(f"there is no seed in {key}; give at least one, such as {key} = [0, 1, 2]")
        for base in self.tuning_bases:
            if base not in self.bases:
                raise ValueError(str(unknown_name("base in tuning_bases", base, self.bases)))
        for key in ("seeds", "tuning_seeds", "learning_rates", "steps_at", "responses_at", "tokens_at"):
            values = getattr(self, key)
            if len(set(values)) < len(values):
                raise ValueError(f"{key} holds a value twice: {values!r}")
        for seed in self.tuning_seeds if len(self.learning_rates) > 1 else ():
            if seed in self.seeds:
                raise ValueError(
                    f"tuning_seeds holds {seed}, which is one of seeds; a rate chosen on a seed flatters its runs"
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
    base: str = ""
    """Name of its base model; empty where there is one without a name."""

    @property
    def key(self) -> RunKey:
        """What pairs it with the runs of other arms."""
        return f"{self.base}/{self.seed}" if self.base else self.seed

    @property
    def label(self) -> str:
        """Its name in texts."""
        base = f", base {self.base}" if self.base else ""
        return f"{self.arm}, learning rate {self.rate:g}{base}, seed {self.seed}"

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
    """Mean pass rate of the tuning runs by learning rate, NaN where one failed."""
    best: float
    """The rate of the largest pass rate."""

    @property
    def at_edge(self) -> bool:
        """Whether the best rate is the least or the largest of them, so that a better one may lie beyond."""
        return self.beyond is not None

    @property
    def beyond(self) -> float | None:
        """The next rate on the side where the best one is at the edge; None where it isn't."""
        rates = sorted(self.values)
        if self.best == rates[-1]:
            return self.best * (rates[-1] / rates[-2] if len(rates) > 1 else 2.0)
        return self.best * (rates[0] / rates[1]) if self.best == rates[0] else None


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
        if self.config.bases and "path" in run.get("model", {}):
            taken.append("model.path")
        if self.config.learning_rates and "learning_rate" in run.get("train", {}):
            taken.append("train.learning_rate")
        if taken:
            msg = f"remove run.{taken[0]} of {self.where!r}: it comes from the arms, bases, seeds or learning_rates"
            raise InputError(msg)
        self._check_arms()

    def _check_arms(self) -> None:
        known: dict[str, RunConfig] = {}
        for arm in self.config.arms:
            config = self.run_config(arm, self.rates[0], self.config.seeds[0], self.bases[0])
            try:
                read_step_policy(config.policy, PassRateMemory(config.memory) if config.memory else None)
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
        return [self._plain("", self._model(self.bases[0])).train.learning_rate]

    @property
    def tunes(self) -> bool:
        """Whether there is a rate to choose."""
        return len(self.rates) > 1

    @property
    def bases(self) -> list[str]:
        """The base models' names, at least one; "" for one without a name."""
        return list(self.config.bases) or [""]

    def _model(self, base: str) -> dict[str, Any]:
        return {"model.path": self.config.bases[base]} if base else {}

    @property
    def reference(self) -> str:
        """The arm with which the others are compared."""
        return self.config.reference or next(iter(self.config.arms))

    def _plain(self, arm: str, changes: Mapping[str, Any]) -> RunConfig:
        where = f"{self.where}, [run]" + (f" of arm {arm}" if arm else "")
        return to_config(change_table(self.config.run, changes, where), where)

    def run_config(self, arm: str, rate: float, seed: int, base: str = "") -> RunConfig:
        """Return the settings of one run.

        Raises
        ------
        InputError
            If they can't be used.
        """
        chosen = self.config.arms[arm]
        fixed = {"policy": chosen.policy, "seed": seed, "train.learning_rate": rate, **self._model(base)}
        for key in fixed:
            if key in chosen.changes:
                msg = (
                    f"arms.{arm}.set can't change {key}: it comes from the arm's policy, bases, seeds or learning_rates"
                )
                raise InputError(msg)
        return self._plain(arm, {**chosen.changes, **fixed})

    def job(self, arm: str, rate: float, seed: int, base: str = "") -> Job:
        """Return one run."""
        name = f"{arm}-{base}-lr{rate:g}-seed{seed}" if base else f"{arm}-lr{rate:g}-seed{seed}"
        return Job(arm, rate, seed, self.run_config(arm, rate, seed, base), self.folder / "runs" / name, base)

    def tuning_jobs(self, arms: Sequence[str]) -> list[Job]:
        """Return the runs by which the learning rates of arms are chosen; none where there is one rate."""
        return self.trial_jobs(dict.fromkeys(arms, self.rates)) if self.tunes else []

    def trial_jobs(self, rates: Mapping[str, Sequence[float]]) -> list[Job]:
        """Return the tuning runs of some rates of each arm: all arms of a seed and rate before the next one."""
        longest = max(map(len, rates.values()), default=0)
        return [
            self.job(arm, rates[arm][place], seed, base)
            for seed in self.config.tuning_seeds
            for base in self.config.tuning_bases or self.bases[:1]
            for place in range(longest)
            for arm in rates
            if place < len(rates[arm])
        ]

    def final_jobs(self, rates: Mapping[str, float]) -> list[Job]:
        """Return the runs that are compared, given each arm's rate: all arms and bases of a seed before the next."""
        return [
            self.job(arm, rate, seed, base)
            for seed in self.config.seeds
            for base in self.bases
            for arm, rate in rates.items()
        ]


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
