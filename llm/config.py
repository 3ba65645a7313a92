"""The configuration of a run: one model, read from TOML, with the settings of the paper as defaults."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ada_bandit.errors import InputError, did_you_mean

__all__ = [
    "CheckpointConfig",
    "EvalConfig",
    "LogConfig",
    "ModelConfig",
    "RunConfig",
    "SamplerConfig",
    "Section",
    "TaskConfig",
    "TrainConfig",
    "change_table",
    "config_for",
    "config_problem",
    "parse_changes",
    "read_config",
    "read_table",
    "to_config",
]

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A table of a config: unknown keys are refused, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


class ModelConfig(Section):
    """The model that is trained."""

    path: str = Field(description="Directory of the model: config.json, weights and tokenizer.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the trained weights and their optimizer state."
    )
    autocast: bool = Field(
        default=False, description="Compute in bfloat16 where that is safe, with weights of type dtype."
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute activations in the backward pass: less memory."
    )
    device: str = Field("auto", description="auto (CUDA, MPS or CPU, the first there is), cpu, cuda or mps.")
    chat: Literal["auto", "always", "never"] = Field(
        "auto", description="Whether prompts go through the tokenizer's chat template; auto: where there is one."
    )
    system: str = Field("", description="System message of the chat template; none when empty.")


class TaskConfig(Section):
    """Prompts and the score of a response."""

    kind: Literal["digits", "reasoning-gym", "jsonl", "python"] = Field(
        description="digits (sums, sorting and remainders in digits), reasoning-gym, jsonl (a file of prompts and "
        "answers, checked by math-verify) or python (a class of your own)."
    )
    families: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="reasoning-gym: options of each family by its name, such as {chain_sum = {min_terms = 2}}; "
        "digits: shares of add, sort and mod by {weight = …}.",
    )
    file: str = Field("", description='jsonl: file with one {"prompt": …, "answer": …} a line.')
    factory: str = Field(
        "", description="python: MODULE:FUNCTION or FILE.py:FUNCTION that returns the task, called with options."
    )
    options: dict[str, Any] = Field(default_factory=dict, description="python: what the function is called with.")
    instruction: str = Field(
        "", description="Text with {prompt} in it, around every prompt; the prompt alone when empty."
    )
    size: Positive = Field(
        1000, description="Prompts of a generated task; make it larger than a run needs, and every prompt is fresh."
    )
    seed: Natural = Field(0, description="Seed of a generated task's prompts.")
    answer: Literal["whole", "last-number", "last-line", "boxed", "tag"] = Field(
        "whole",
        description="What of a response is the answer: all of it, its last number, its last line, the last \\boxed{}, "
        "or what stands in <answer></answer>; jsonl leaves finding it to math-verify.",
    )
    rollouts: str = Field("", description="Log by 'python -m llm rollout' by which prompts are chosen.")
    min_pass_rate: Share = Field(0.0, description="Least pass rate in rollouts of a prompt that is used.")
    max_pass_rate: Share = Field(1.0, description="Greatest pass rate in rollouts of a prompt that is used.")
    first: Natural = Field(0, description="Use so many of the prompts (after the choice by pass rate); all when 0.")
    overlong: Literal["error", "skip"] = Field(
        "error", description="Prompts longer than the context: an error, or left out, counted and logged."
    )
    truncated: Literal["wrong", "no-score", "score"] = Field(
        "wrong", description="Responses cut at the length limit: reward 0, no score, or scored like any other."
    )
    time_limit: Annotated[float, Field(gt=0)] = Field(
        5.0, description="Seconds a verifier may take over one response; no score after that."
    )
    workers: Natural = Field(
        1, description="Processes that score responses and can be killed; 0 scores in the trainer, without a limit."
    )

    @model_validator(mode="after")
    def _complete(self) -> TaskConfig:
        wanted = {"jsonl": "file", "python": "factory", "reasoning-gym": "families"}.get(self.kind)
        if wanted and not getattr(self, wanted):
            raise ValueError(f"a task of kind {self.kind!r} needs {wanted}")
        if self.instruction and "{prompt}" not in self.instruction:
            raise ValueError(f"instruction must hold {{prompt}} where the prompt goes; got {self.instruction!r}")
        if self.min_pass_rate > self.max_pass_rate:
            raise ValueError(f"min_pass_rate {self.min_pass_rate} is above max_pass_rate {self.max_pass_rate}")
        if (self.min_pass_rate, self.max_pass_rate) != (0.0, 1.0) and not self.rollouts:
            raise ValueError("a choice by pass rate needs rollouts, the log that tells it")
        return self


class SamplerConfig(Section):
    """How responses are sampled."""

    kind: Literal["transformers", "vllm", "uniform"] = Field(
        "transformers", description="transformers, vllm (in this process), or uniform (random tokens, for tests)."
    )
    max_new_tokens: Positive = Field(1024, description="Tokens after which a response is cut.")
    temperature: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Temperature; the trained log-probabilities are taken at the same one."
    )
    batch_size: Positive = Field(256, description="transformers: responses sampled at a time.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Type of the sampler's weights; auto: the trained model's."
    )
    memory_share: Annotated[float, Field(gt=0, le=1)] = Field(0.4, description="vllm: share of the GPU's memory.")
    cache_gib: Positive = Field(1, description="vllm on a CPU: GiB of memory for the key-value cache.")
    check_sync: bool = Field(
        default=True,
        description="vllm: compare log-probabilities with the trained model after the first sync, or stop.",
    )
    check_tolerance: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="vllm: greatest mean difference of log-probabilities that the check lets pass; 0: 1e-3 in float32, "
        "0.2 in bfloat16, where rounding alone gives up to 0.1.",
    )


class TrainConfig(Section):
    """The update: PPO-clip on the groups that the policy keeps."""

    steps: Positive = Field(600, description="Steps of the run.")
    tokens: Natural = Field(
        0, description="Go on after the last step until so many tokens were generated in all; 0: stop there."
    )
    prompts: Positive = Field(512, description="Prompts of a step.")
    mini_batch: Positive = Field(128, description="Prompts of an update of the weights.")
    micro_batch: Positive = Field(
        8, description="Responses in memory at a time, at the most; changes nothing but rounding."
    )
    micro_tokens: Positive = Field(
        16384, description="Tokens in memory at a time, padding included, at the most; a longer response goes alone."
    )
    head_tile: Positive = Field(
        2**24, description="Logits in memory at a time, at the most: tokens x vocabulary, in float32."
    )
    check_memory: bool = Field(
        default=True,
        description="End before the first step where the estimated memory is more than there is; false: say so.",
    )
    epochs: Positive = Field(1, description="Passes over a step's groups.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(1e-6, description="AdamW's step size.")
    warmup_steps: Natural = Field(10, description="Steps over which the learning rate rises from 0.")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.01, description="AdamW's weight decay.")
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="AdamW's decay of the moments.")
    grad_clip: Annotated[float, Field(ge=0)] = Field(1.0, description="Greatest norm of a gradient; 0 for no limit.")
    clip_low: Annotated[float, Field(ge=0)] = Field(0.2, description="Ratios are clipped from below at 1 - clip_low.")
    clip_high: Annotated[float, Field(ge=0)] = Field(
        0.28, description="Ratios are clipped from above at 1 + clip_high."
    )
    dual_clip: Annotated[float, Field(ge=0)] = Field(
        0.0, description="With a negative advantage, no more than this times it is lost; above 1, or 0 for no limit."
    )
    entropy: float = Field(1e-4, description="Weight of the entropy bonus.")
    no_signal: Literal["policy", "mask", "leave_out", "keep"] = Field(
        "policy",
        description="Silent groups, whose rows have no advantage by correctness: what the policy says, or masked "
        "(tokens in the mean's denominator alone), left out, or trained on with what shaped rewards give them.",
    )
    mask_truncated: bool = Field(
        default=False,
        description="Responses cut at the length limit have no score for the policy: no vote in exit and baseline, "
        "never kept. Evaluation scores them as task.truncated says.",
    )
    max_unscored: Share = Field(
        1.0, description="Greatest share of a step's responses without a score; the run stops above it."
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip must be above 1, or 0 for none; got {self.dual_clip}")
        if self.mini_batch > self.prompts:
            raise ValueError(f"mini_batch {self.mini_batch} is more than the {self.prompts} prompts of a step")
        return self


class EvalConfig(Section):
    """Evaluation in the run; its responses count towards no budget."""

    every: Natural = Field(
        0, description="Steps between evaluations, also before the first and after the last; 0: none."
    )
    samples: Positive = Field(8, description="Responses to each prompt.")
    prompts: Positive = Field(256, description="Most prompts of each task.")
    temperature: Annotated[float, Field(gt=0)] = Field(1.0, description="Temperature of evaluation.")
    pool: bool = Field(default=False, description="Evaluate on the training prompts as well, by the name pool.")
    tasks: dict[str, TaskConfig] = Field(default_factory=dict, description="Tasks held out from training, by name.")

    @model_validator(mode="after")
    def _names(self) -> EvalConfig:
        if "pool" in self.tasks:
            raise ValueError("the name 'pool' of an evaluation is the training prompts'; give the task another one")
        return self


class CheckpointConfig(Section):
    """Checkpoints."""

    every: Natural = Field(50, description="Steps between checkpoints, also after the last; 0: only after the last.")
    keep: Positive = Field(2, description="Latest checkpoints that are kept.")
    rounds: bool = Field(
        default=True, description="Save what was sampled after each round of a step that starts at a checkpoint."
    )


class LogConfig(Section):
    """Logs beside metrics.jsonl, which is always written."""

    tensorboard: bool = Field(default=False, description="Write TensorBoard files as well.")
    responses: Natural = Field(0, description="Responses of each step that are written to responses.jsonl.")


class RunConfig(Section):
    """A training run."""

    seed: Natural = Field(0, description="Seed of everything that is left to chance.")
    policy: str | dict[str, Any] = Field(
        "reinforce-ada-balance",
        description="A preset (also NAME:key=value,...), a policy's TOML file, a Python file with an exit rule "
        "(FILE.py:RULE), {preset = NAME, its options}, a whole policy as in its file, or {empirical_bayes = {its "
        "options}}.",
    )
    memory: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Decay of a memory of each prompt's pass rate, for policies that look at it; 0: no memory."
    )
    model: ModelConfig
    task: TaskConfig
    sampler: SamplerConfig = SamplerConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()


def read_table(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    InputError
        If the file is missing or no TOML.
    """
    file = Path(path)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = sorted(each.stem for each in (Path(__file__).parent / "configs").glob("*.toml"))
        msg = f"the config {str(path)!r} does not exist; ready ones lie in llm/configs: {', '.join(known)}"
        raise InputError(msg) from error
    except IsADirectoryError as error:
        msg = f"the config {str(path)!r} is a folder; give a TOML file"
        raise InputError(msg) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"the config {str(path)!r} can't be read: {error}"
        raise InputError(msg) from error


def read_config(path: str | Path, changes: dict[str, Any] | None = None) -> RunConfig:
    """Read a run's config from a TOML file, with some values changed.

    Parameters
    ----------
    path
        The file.
    changes
        Values by dotted name, such as ``{"train.steps": 10}``.

    Raises
    ------
    InputError
        If the file can't be read, a key is unknown or a value can't be used; all such places
        are named.
    """
    return to_config(change_table(read_table(path), changes or {}, str(path)), str(path))


def config_for(
    model: str | Path, task: str | Path | None, config: str | Path | None, changes: Mapping[str, Any]
) -> RunConfig:
    """Make the config of a command that samples from a model directory.

    Parameters
    ----------
    model
        The directory.
    task
        TOML file with a section task, or with a task's keys alone.
    config
        TOML file of a run, in the place of `task`.
    changes
        Values by dotted name, as in `read_config`; those that are None change nothing.

    Raises
    ------
    InputError
        If not one of `task` and `config` is given, and as in `read_config`.
    """
    if (task is None) == (config is None):
        msg = "give the prompts by --task FILE or by --config FILE, one of them"
        raise InputError(msg)
    where = str(task if config is None else config)
    table = read_table(where)
    if config is None:
        table = {"task": table.get("task", table)}
    chosen = {name: value for name, value in changes.items() if value is not None}
    return to_config(change_table(table, {"model.path": str(model)} | chosen, where), where)


def change_table(table: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a copy of a nested table with values changed by dotted name; `where` names the table in errors.

    Raises
    ------
    InputError
        If a name leads through a value that is no section.
    """
    changed = copy.deepcopy(dict(table))
    for name, value in changes.items():
        *sections, last = name.split(".")
        inner = changed
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                msg = f"{name!r} can't be set: {section!r} is a value, no section, of {where!r}"
                raise InputError(msg)
        inner[last] = value
    return changed


def to_config(table: Mapping[str, Any], where: str) -> RunConfig:
    """Make a run's config of a table; `where` names it in errors.

    Raises
    ------
    InputError
        As in `read_config`.
    """
    if "arms" in table:
        msg = f"{where!r} is the config of an experiment, not of a run: 'python -m llm experiment' runs it"
        raise InputError(msg)
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise config_problem(error, RunConfig, where) from error


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Return values by dotted name from ``KEY=VALUE`` texts; a value that is no TOML is taken as text.

    Raises
    ------
    InputError
        If a text has no ``=``.
    """
    changes = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            msg = f"a changed value must be KEY=VALUE, such as train.steps=10; got {text!r}"
            raise InputError(msg)
        try:
            changes[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = value.strip()
    return changes


def config_problem(error: ValidationError, model: type[BaseModel], where: str) -> InputError:
    """Turn what pydantic found into one error that names each place, the value there and what is known."""
    lines: list[str] = []
    known: list[str] = []
    for each in error.errors():
        place = ".".join(map(str, each["loc"])) or "the config"
        if each["type"] == "extra_forbidden":
            known = sorted(_names(model))
            lines.append(f"unknown key {place!r}{did_you_mean(place, known)}")
        elif each["type"] == "missing":
            lines.append(f"{place} is missing")
        elif each["type"] == "value_error":
            lines.append(f"{place}: {each['ctx']['error']}")
        else:
            lines.append(f"{place} = {each['input']!r}: {each['msg']}")
    if known:
        lines.append(f"known keys: {', '.join(known)}")
    msg = f"the config {where!r} can't be used:\n  " + "\n  ".join(lines)
    return InputError(msg)


def _names(model: type[BaseModel], before: str = "") -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names += _names(inner, f"{before}{name}.")
        else:
            names.append(f"{before}{name}")
    return names
