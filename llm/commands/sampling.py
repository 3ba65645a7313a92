"""What commands share that sample from a model directory: their options, and the way to a log of rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from ada_bandit.programs.console import progress
from ada_bandit.programs.options import Options, StoppedError
from ada_bandit.programs.rollouts import RolloutLog
from llm.config import RunConfig, config_for
from llm.logs import run_metadata
from llm.rollout import Rollouts, fill, prepare, rollout_settings, sampler_and_verifier

__all__ = ["ExactSampling", "ModelArgument", "PromptsOption", "Sampling", "SamplingOptions", "run_rollouts"]

ModelArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="MODEL_DIR", help="Directory of the model.", show_default=False)
]
_Task: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML file of a task, as in the section task of a run.", show_default=False),
]
_Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Take task, sampler and seed from the config of a run.", show_default=False),
]
PromptsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="How many prompts of the task: the first ones; all by default.")
]
_Sampler: TypeAlias = Annotated[
    Literal["transformers", "vllm"] | None,
    typer.Option(help="What samples: transformers unless the config says otherwise."),
]
_Temperature: TypeAlias = Annotated[float | None, typer.Option(help="Temperature; the config's, else 1.")]
_Length: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Tokens after which a response is cut; the config's, else 1024.")
]
_Dtype: TypeAlias = Annotated[
    Literal["float32", "bfloat16"] | None,
    typer.Option(help="Type of the weights; the config's, else float32 on a CPU and bfloat16 elsewhere."),
]
_Batch: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Responses sampled at a time, and written together; the config's, else 256.")
]
_Seed: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Seed of sampling; the config's, else 0.")]


@dataclass(frozen=True)
class SamplingOptions:
    """What a command is to sample from, and how."""

    task: Path | None
    """TOML file of a task."""
    config: Path | None
    """TOML file of a run, in its place."""
    changes: Mapping[str, Any]
    """Other values than the config's by dotted name; those that are None change nothing."""

    def run_config(self, model: Path) -> RunConfig:
        """Make the config of a run that samples from a model directory.

        Raises
        ------
        InputError
            As in `llm.config.config_for`.
        """
        return config_for(model, self.task, self.config, self.changes)


def _sampling(
    task: _Task = None,
    config: _Config = None,
    sampler: _Sampler = None,
    temperature: _Temperature = None,
    max_new_tokens: _Length = None,
    dtype: _Dtype = None,
    batch_size: _Batch = None,
    seed: _Seed = None,
) -> SamplingOptions:
    how = {
        "kind": sampler,
        "temperature": temperature,
        "max_new_tokens": max_new_tokens,
        "dtype": dtype,
        "batch_size": batch_size,
    }
    return SamplingOptions(task, config, {**{f"sampler.{name}": value for name, value in how.items()}, "seed": seed})


def _exact_sampling(
    task: _Task = None,
    config: _Config = None,
    sampler: _Sampler = None,
    temperature: _Temperature = None,
    max_new_tokens: _Length = None,
    batch_size: _Batch = None,
    seed: _Seed = None,
) -> SamplingOptions:
    return _sampling(task, config, sampler, temperature, max_new_tokens, None, batch_size, seed)


Sampling: TypeAlias = Annotated[SamplingOptions, Options(_sampling)]
"""The options of a command that samples from a model directory."""
ExactSampling: TypeAlias = Annotated[SamplingOptions, Options(_exact_sampling)]
"""Those of a command that needs the model's own type of weights."""


def run_rollouts(
    config: RunConfig, samples: int, prompts: int | None, out: Path, texts: Path | None = None
) -> tuple[RolloutLog, Rollouts, str]:
    """Write a log, or go on with it, with a progress bar; return it, its prompts, and why a response has no score."""
    rollouts = prepare(config, prompts, progress)
    metadata = {name: value for name, value in run_metadata(config).items() if name in {"python", "packages", "git"}}
    log = RolloutLog(out, rollout_settings(config, samples), metadata, texts)
    with progress("sampling", len(rollouts.prompts), done=len(log.lines)) as advance:
        try:
            first_error = fill(log, rollouts, samples, lambda: sampler_and_verifier(rollouts), advance)
        except KeyboardInterrupt:
            kept = f"{out} is complete for its first {len(log.lines)} prompts; the same command goes on from there"
            raise StoppedError(kept) from None
    return log, rollouts, first_error
