"""Measure what the score model assumes on a model and a task: sample, score, and take per-response gradients.

Of a prompt only sums over its responses' scores are kept (`llm.probe.sums`), so the memory needed
is that of a few gradients, whatever the number of responses. A response that was sampled several
times has its gradient taken once. What is done of a prompt is written to a file of its own, so a
probe that was killed goes on where it was.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count
from ada_bandit.laws import law_from_dict
from ada_bandit.programs.folders import write_file, write_text
from ada_bandit.programs.records import plain, to_json
from ada_bandit.programs.scores import ProbedScores
from ada_bandit.uniforms import fold_seed
from llm.config import RunConfig
from llm.loss import collate, token_statistics
from llm.models import choose_device, load_model
from llm.probe.score_model import ProbeSummary, summarise
from llm.probe.sums import PromptScores, ScoreSums, Sketch, class_scores
from llm.rollout import Rollouts, prepare, rollout_settings, sample_batches
from llm.samplers.make import make_sampler
from llm.types import KeptResponse, Progress, Prompt, Response, no_progress
from llm.verify import verifier_for

__all__ = ["Probe", "PromptRecord", "ScoreGradients", "run_probe", "score_prompt"]

_PROJECTION = 0x70726F6A
"""Tells the seed of projections from others of a run."""
_LAYER = re.compile(r"\.(\d+)\.")
_LORA = re.compile(r"lora:([1-9]\d*)")


class ScoreGradients:
    """Gradients of the log-probability of single responses, exact, on a subset of a model's parameters.

    Parameters
    ----------
    model
        A causal language model in evaluation mode. Which of its parameters require a gradient is
        changed.
    parameters
        ``all``; ``last-layer``, the last transformer block without the norm and the output layer
        after it; ``lora:RANK``, the matrices B of adapters W x + B A x on every linear layer but
        the output layer, at B = 0, where the gradient is G A' for a layer's gradient G: with the
        entries of A normal of variance 1 / RANK, fixed by `seed`, a random projection that keeps
        inner products on average; else a regular expression that is searched in parameters' names.
    temperature
        Temperature that responses are sampled at.
    pad
        The tokenizer's pad token.
    seed
        Seed of the random projections.

    Raises
    ------
    InputError
        If `parameters` chooses none, or is no regular expression.
    """

    def __init__(
        self, model: Any, parameters: str = "all", *, temperature: float = 1.0, pad: int = 0, seed: int = 0
    ) -> None:
        self.model, self._temperature, self._pad = model, temperature, pad
        model.requires_grad_(False)  # noqa: FBT003 - torch's own signature
        self._adapters: list[tuple[Any, Any, Any]] = []
        lora = _LORA.fullmatch(parameters)
        if lora:
            self._adapters = list(_adapters(model, int(lora[1]), seed))
            self._chosen = [up for _, _, up in self._adapters]
        else:
            self._chosen = _choose(model, parameters)
        for parameter in self._chosen:
            parameter.requires_grad_(True)  # noqa: FBT003 - torch's own signature
        self.size = sum(int(parameter.numel()) for parameter in self._chosen)
        """Number of parameters."""

    def __call__(self, prompt: Sequence[int], response: Response) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the log-probabilities of a response.

        Returns
        -------
        gradient
            ``[parameter]`` gradient of the response's log-probability at the sampling
            temperature, float32.
        logprobs
            ``[token]`` log-probability of each of its tokens.
        """
        import torch

        device = str(self._chosen[0].device)
        batch = collate([KeptResponse(0, prompt, response, 0.0)], self._pad, device)
        with ExitStack() as hooks:
            for module, down, up in self._adapters:
                hooks.enter_context(closing(_Hook(module, down, up)))
            logprobs, _ = token_statistics(self.model, batch, self._temperature, entropy=False)
        # A parameter that a response does not reach has gradient 0.
        parts = torch.autograd.grad(logprobs.sum(), self._chosen, materialize_grads=True)
        flat = torch.cat([part.detach().float().reshape(-1) for part in parts])
        return flat.cpu().numpy(), logprobs[0].detach().cpu().numpy().astype(np.float64)


class _Hook:
    """An adapter on a linear layer, until it is closed."""

    def __init__(self, module: Any, down: Any, up: Any) -> None:
        from torch.nn.functional import linear

        def add(_: Any, inputs: tuple[Any, ...], output: Any) -> Any:
            return output + linear(linear(inputs[0], down), up)

        self.close: Callable[[], None] = module.register_forward_hook(add).remove


def _adapters(model: Any, rank: int, seed: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the linear layers with A ``[rank, input]`` and B = 0 ``[output, rank]`` of each."""
    import torch

    output = model.get_output_embeddings()
    layers = [each for each in model.modules() if isinstance(each, torch.nn.Linear) and each is not output]
    if not layers:
        msg = f"lora:{rank} needs linear layers, and the model has none; choose parameters by a regular expression"
        raise InputError(msg)
    for number, layer in enumerate(layers):
        generator = np.random.Generator(np.random.Philox(key=fold_seed(seed, _PROJECTION, number)))
        normal = generator.standard_normal((rank, layer.in_features)) / np.sqrt(rank)
        weight = layer.weight
        down = torch.from_numpy(normal).to(weight.device, weight.dtype)
        yield layer, down, torch.zeros(layer.out_features, rank, device=weight.device, dtype=weight.dtype)


def _choose(model: Any, parameters: str) -> list[Any]:
    named = dict(model.named_parameters())
    if parameters == "all":
        return list(named.values())
    if parameters == "last-layer":
        numbers = {name: int(match[1]) for name in named if (match := _LAYER.search(name))}
        last = max(numbers.values(), default=None)
        chosen = [named[name] for name, number in numbers.items() if number == last]
    else:
        try:
            pattern = re.compile(parameters)
        except re.error as error:
            msg = f"the parameters {parameters!r} are no regular expression: {error}; {_CHOICES}"
            raise InputError(msg) from error
        chosen = [parameter for name, parameter in named.items() if pattern.search(name)]
    if not chosen:
        few = ", ".join(list(named)[:4])
        msg = f"the parameters {parameters!r} choose none of the model's {len(named)}, such as {few}; {_CHOICES}"
        raise InputError(msg)
    return chosen


_CHOICES = "give all, last-layer, lora:RANK with a rank of at least 1, or a regular expression on their names"


@dataclass(frozen=True, eq=False)
class PromptRecord:
    """What is kept of a prompt."""

    key: str
    """The prompt's key."""
    family: str
    """Its family."""
    scores: PromptScores
    """The sums over its responses' scores."""
    truncated: int
    """Responses cut at the length limit."""
    tokens: int
    """Tokens of all its responses."""
    max_difference: float
    """Greatest difference of a token's log-probability between the sampler and the model."""

    def save(self, path: Path) -> None:
        """Write it; a kill leaves no half of a file."""
        parts = {**vars(self), **vars(self.scores)}
        del parts["scores"]
        write_file(path, lambda file: np.savez(file, allow_pickle=False, **parts))

    @classmethod
    def load(cls, path: Path) -> PromptRecord:
        """Read it.

        Raises
        ------
        InputError
            If the file is none of a probe.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                values: dict[str, Any] = {
                    name: file[name] if file[name].ndim else file[name].item() for name in file.files
                }
            scores = PromptScores(**{each.name: values.pop(each.name) for each in fields(PromptScores)})
            return cls(scores=scores, **values)
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"{str(path)!r} can't be read ({error!r}); delete it, and its prompt is sampled again"
            raise InputError(msg) from error


def score_prompt(
    gradients: ScoreGradients,
    sketch: Sketch,
    prompt: Prompt,
    encoded: Sequence[int],
    responses: Sequence[Response],
    rewards: FloatArray,
) -> PromptRecord:
    """Take the gradients of a prompt's responses and keep their sums.

    Parameters
    ----------
    gradients, sketch
        How gradients are taken, and what is kept of their sums.
    prompt, encoded
        The prompt and its tokens.
    responses
        ``[response]`` responses to it.
    rewards
        ``[response]`` their rewards: above 0.5 is correct, NaN has no reward.
    """
    sums = ScoreSums(gradients.size)
    same: Counter[tuple[tuple[int, ...], bool | None]] = Counter()
    first: dict[tuple[tuple[int, ...], bool | None], Response] = {}
    for response, reward in zip(responses, rewards, strict=True):
        kind = tuple(response.tokens.tolist()), None if np.isnan(reward) else bool(reward > 0.5)
        same[kind] += 1
        first.setdefault(kind, response)
    difference = 0.0
    for kind, times in same.items():
        score, logprobs = gradients(encoded, first[kind])
        if not np.isfinite(score).all():
            msg = (
                f"the gradient of a response to {prompt.key!r} is not finite (the response: {first[kind].text!r}); "
                "take a model of type float32 whose weights are finite"
            )
            raise InputError(msg)
        sums.add(score, kind[1], times)
        difference = max(difference, float(np.abs(logprobs - first[kind].logprobs).max(initial=0.0)))
    return PromptRecord(
        prompt.key,
        prompt.family,
        sums.finish(sketch),
        sum(each.finish == "length" for each in responses),
        sum(each.tokens.size for each in responses),
        difference,
    )


@dataclass(frozen=True, eq=False)
class Probe:
    """A finished probe."""

    records: tuple[PromptRecord, ...]
    """`[prompt]` What was kept."""
    summary: ProbeSummary
    """What it says of the model."""
    settings: Mapping[str, Any]
    """What it was made with."""
    parameters: int
    """Number of parameters that gradients were taken of."""
    sketched: bool
    """Whether sums of scores were kept as sketches, which adds noise to inner products of different prompts."""
    notes: tuple[str, ...]
    """What was left out, in words."""

    @property
    def label(self) -> str:
        """The model, the task and the size of the probe, in words."""
        counts, settings = self.summary.counts, self.settings
        return (
            f"{settings['model']['name']} on {settings['task']['kind']}: {counts['usable']} of "
            f"{counts['prompts']} prompts x {settings['samples']} responses, {self.parameters:,} parameters "
            f"({settings['parameters']})"
        )

    def to_scores(self) -> ProbedScores:
        """Return what measured efficiency needs."""
        kept = [record.scores for record in self.records]
        overlap = self.summary.estimates["alignment"].value
        return ProbedScores(
            label=self.label,
            keys=tuple(record.key for record in self.records),
            families=tuple(record.family for record in self.records),
            scores=class_scores(kept),
            tokens=np.array([record.tokens for record in self.records]) / self.settings["samples"],
            unscored=sum(each.unscored for each in kept),
            noise_ratio=self.summary.noise_ratio,
            overlap=overlap if math.isfinite(overlap) else None,
            prior=law_from_dict(self.summary.prior),
            refuted=tuple(
                f"{check.assumption}: {check.measured}" for check in self.summary.checks if check.verdict == "fails"
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        geometry = self.summary.geometry
        rows = [
            {
                "key": record.key,
                "family": record.family,
                "pos": record.scores.pos,
                "neg": record.scores.neg,
                "unscored": record.scores.unscored,
                "truncated": record.truncated,
                "tokens": record.tokens,
                **{name: float(values[at]) for name, values in vars(geometry).items()},
            }
            for at, record in enumerate(self.records)
        ]
        told = self.summary.to_dict()
        told["counts"] |= {
            "truncated": sum(record.truncated for record in self.records),
            "tokens": sum(record.tokens for record in self.records),
            "parameters": self.parameters,
        }
        more = {
            "phi_sketched": self.sketched,
            "sampler_max_difference": max(record.max_difference for record in self.records),
            "notes": self.notes,
            "settings": self.settings,
            "prompts": rows,
        }
        return told | dict(plain(more))


def run_probe(
    config: RunConfig,
    folder: Path,
    *,
    prompts: int = 45,
    samples: int = 48,
    parameters: str = "all",
    progress: Progress = no_progress,
) -> Probe:
    """Probe a model, or go on with a probe that was killed.

    Parameters
    ----------
    config
        Model, task, sampler and seed; the rest of it is not looked at.
    folder
        An existing folder; ``settings.json`` and what is kept of each prompt go there.
    prompts
        How many of the task's prompts: the first ones.
    samples
        Responses to each.
    parameters
        As in `ScoreGradients`.
    progress
        Shows how many prompts are done.

    Returns
    -------
    Probe
        What was found.

    Raises
    ------
    InputError
        If anything can't be used, the folder holds a probe of other settings, or no prompt has
        two correct and two incorrect responses.
    """
    each = check_count("samples", samples)
    rollouts = prepare(config, check_count("prompts", prompts), progress)
    settings = {**rollout_settings(config, each), "parameters": parameters}
    _check_settings(folder, settings)
    model = load_model(config.model.path, config.model.dtype, choose_device(config.model.device))
    pad = int(rollouts.tokenizer.pad_token_id)
    gradients = ScoreGradients(model, parameters, temperature=config.sampler.temperature, pad=pad, seed=config.seed)
    sketch = Sketch(gradients.size)
    paths = [folder / f"prompt-{prompt.id:08d}.npz" for prompt in rollouts.prompts]
    notes = list(rollouts.notes)
    done = sum(path.exists() for path in paths)
    if done < len(paths):
        with progress("probing", len(paths)) as advance:
            advance(done, "")
            error = _fill(paths, rollouts, each, gradients, sketch, advance)
        notes += [f"the first response without a reward: {error}"] if error else []
    records = tuple(PromptRecord.load(path) for path in paths)
    for path, record, prompt in zip(paths, records, rollouts.prompts, strict=True):
        if record.key != prompt.key:
            msg = (
                f"{str(path)!r} is of the prompt {record.key!r}, where the task has {prompt.key!r}; give another folder"
            )
            raise InputError(msg)
    summary = summarise([record.scores for record in records], [record.family for record in records], seed=config.seed)
    return Probe(records, summary, settings, gradients.size, sketched=not sketch.exact, notes=tuple(notes))


def _fill(
    paths: Sequence[Path],
    rollouts: Rollouts,
    samples: int,
    gradients: ScoreGradients,
    sketch: Sketch,
    advance: Callable[[int, str], None],
) -> str:
    """Write the files that are missing; return why the first response without a reward has none."""
    config, first_error = rollouts.config, ""
    model, device = gradients.model, str(gradients.model.device)
    sampler = make_sampler(config.sampler, config.model.path, rollouts.tokenizer, model=model, device=device)
    with closing(sampler), verifier_for(rollouts.task) as verifier:
        batches = sample_batches(
            rollouts, samples, sampler, verifier, lambda places: not all(paths[at].exists() for at in places)
        )
        for places, responses, scores in batches:
            first_error = first_error or scores.first_error
            for place, at in enumerate(places):
                if paths[at].exists():
                    continue
                mine = slice(place * samples, (place + 1) * samples)
                prompt, encoded = rollouts.prompts[at], rollouts.encoded[at]
                record = score_prompt(gradients, sketch, prompt, encoded, responses[mine], scores.rewards[mine])
                record.save(paths[at])
                advance(1, "")
    return first_error


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings into a new folder; in an old one, raise unless they are the same."""
    path = folder / "settings.json"
    if not path.exists():
        write_text(path, to_json(settings))
        return
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        msg = f"{str(path)!r} can't be read ({error}); give another folder by --out"
        raise InputError(msg) from error
    if before == settings:
        return
    differ = [name for name in settings if before.get(name) != settings[name]]
    shown = "; ".join(f"{name} = {before.get(name)!r}, now {settings[name]!r}" for name in differ)
    msg = (
        f"the folder {str(folder)!r} holds a probe of other settings ({shown}); give another folder by --out, or the "
        "same settings to go on"
    )
    raise InputError(msg)
