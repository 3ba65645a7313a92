"""What commands share that sample from a model directory: their options, and the way to a log of rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from ada_bandit.programs.console import progress
from ada_bandit.programs.rollouts import RolloutLog
from llm.config import RunConfig, config_for
from llm.logs import run_metadata
from llm.rollout import Rollouts, fill, prepare, rollout_settings, sampler_and_verifier

__all__ = [
    "BatchOption",
    "ConfigOption",
    "DtypeOption",
    "LengthOption",
    "ModelArgument",
    "PromptsOption",
    "SamplerOption",
    "SeedOption",
    "TaskOption",
    "TemperatureOption",
    "run_rollouts",
    "sampling_config",
]

ModelArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="MODEL_DIR", help="Directory of the model.", show_default=False)
]
TaskOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML file of a task, as in the section task of a run.", show_default=False),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Take task, sampler and seed from the config of a run.", show_default=False),
]
PromptsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="How many prompts of the task: the first ones; all by default.")
]
SamplerOption: TypeAlias = Annotated[
    Literal["transformers", "vllm"] | None,
    typer.Option(help="What samples: transformers unless the config says otherwise."),
]
TemperatureOption: TypeAlias = Annotated[float | None, typer.Option(help="Temperature; the config's, else 1.")]
LengthOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Tokens after which a response is cut; the config's, else 1024.")
]
DtypeOption: TypeAlias = Annotated[
    Literal["float32", "bfloat16"] | None,
    typer.Option(help="Type of the weights; the config's, else float32 on a CPU and bfloat16 elsewhere."),
]
BatchOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Responses sampled at a time, and written together; the config's, else 256.")
]
SeedOption: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Seed of sampling; the config's, else 0.")]


def sampling_config(
    model: Path,
    task: Path | None,
    config: Path | None,
    sampler: str | None,
    temperature: float | None,
    max_new_tokens: int | None,
    dtype: str | None,
    batch_size: int | None,
    seed: int | None,
) -> RunConfig:
    """Make the config of a command with these options."""
    changes = {
        "sampler.kind": sampler,
        "sampler.temperature": temperature,
        "sampler.max_new_tokens": max_new_tokens,
        "sampler.dtype": dtype,
        "sampler.batch_size": batch_size,
        "seed": seed,
    }
    return config_for(model, task, config, changes)


def run_rollouts(
    config: RunConfig, samples: int, prompts: int | None, out: Path, texts: Path | None = None
) -> tuple[RolloutLog, Rollouts, str]:
    """Write a log, or go on with it, with a progress bar; return it, its prompts, and why a response has no score."""
    rollouts = prepare(config, prompts, progress)
    metadata = {name: value for name, value in run_metadata(config).items() if name in {"python", "packages", "git"}}
    log = RolloutLog(out, rollout_settings(config, samples), metadata, texts)
    with progress("sampling", len(rollouts.prompts), done=len(log.lines)) as advance:
        first_error = fill(log, rollouts, samples, lambda: sampler_and_verifier(rollouts), advance)
    return log, rollouts, first_error
