"""Responses to the prompts of a task, sampled and scored batch by batch, as the commands need them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import force
from ada_bandit.programs.rollouts import RolloutLine, RolloutLog
from ada_bandit.uniforms import fold_seed
from llm.config import RunConfig
from llm.models import choose_device, context_length, encode_all, load_tokenizer
from llm.samplers.make import make_sampler
from llm.tasks import load_task
from llm.types import Progress, Prompt, Response, Sampler, no_progress
from llm.verify import Scores, Verifier, sample_and_score, verifier_for

__all__ = ["Rollouts", "fill", "prepare", "rollout_settings", "sample_batches", "sampler_and_verifier"]

_SEED = 0x726F6C6C
"""Tells a log's sampling seed from those of a run with the same seed."""
_EDGE = 1 << 20
"""Bytes at either end of a file of weights that tell it from another of its size."""


def sampler_and_verifier(rollouts: Rollouts) -> tuple[Sampler, Verifier]:
    """Make what `fill` samples and scores with, from the config."""
    config = rollouts.config
    device = choose_device(config.model.device)
    sampler = make_sampler(config.sampler, config.model.path, rollouts.tokenizer, device=device, seed=config.seed)
    return sampler, verifier_for(rollouts.task)


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Prompts to sample responses to, and all that is needed for it."""

    config: RunConfig
    """Model, task and sampler."""
    task: Any
    """The task."""
    prompts: Sequence[Prompt]
    """`[prompt]` The prompts that fit into the model's context."""
    encoded: Sequence[Sequence[int]]
    """`[prompt][token]` Their tokens."""
    tokenizer: Any
    """The tokenizer."""
    notes: tuple[str, ...]
    """What was left out, in words."""

    @property
    def seed(self) -> int:
        """What the sampler gets as the step's seed."""
        return fold_seed(self.config.seed, _SEED)


def prepare(config: RunConfig, prompts: int | None = None, progress: Progress = no_progress) -> Rollouts:
    """Load the task and encode its first `prompts` prompts, all of them by default.

    Raises
    ------
    InputError
        If model directory, task or a prompt can't be used, or no prompt is left.
    """
    from transformers import AutoConfig

    tokenizer = load_tokenizer(config.model.path)
    settings = AutoConfig.from_pretrained(config.model.path, local_files_only=True)
    longest = context_length(SimpleNamespace(config=settings)) - config.sampler.max_new_tokens
    task = load_task(config.task, progress)
    wanted = len(task) if prompts is None else min(prompts, len(task))
    kept: list[Prompt] = []
    encoded: list[list[int]] = []
    with progress("reading the prompts", wanted) as advance:
        for start in range(0, wanted, 100):
            some = [task[index] for index in range(start, min(start + 100, wanted))]
            fit, ids = encode_all(tokenizer, some, config.model, longest=longest, overlong=config.task.overlong)
            kept += fit
            encoded += ids
            advance(len(some), "")
    notes = list(task.notes)
    if prompts is not None and prompts > wanted:
        notes.append(f"{prompts} prompts were asked for; the task has {wanted}")
    if len(kept) < wanted:
        notes.append(f"{wanted - len(kept)} prompts left out: longer than the {longest} tokens that there is room for")
    if not kept:
        msg = f"none of {wanted} prompts fits into the {longest} tokens that there is room for; sample fewer new tokens"
        raise InputError(msg)
    return Rollouts(config, task, kept, encoded, tokenizer, tuple(notes))


def rollout_settings(config: RunConfig, samples: int) -> dict[str, Any]:
    """Return what the lines of a log depend on: not where the model lies, nor how many prompts there are."""
    task = config.task.model_dump(mode="json", exclude={"size", "first", "workers", "time_limit"})
    kept = {"kind", "max_new_tokens", "temperature", "dtype"}
    return {
        "model": {"name": Path(config.model.path).resolve().name, "weights": _fingerprint(Path(config.model.path))},
        "chat": config.model.chat,
        "system": config.model.system,
        "task": task,
        "sampler": config.sampler.model_dump(mode="json", include=kept),
        "samples": samples,
        "seed": config.seed,
    }


def _fingerprint(folder: Path) -> str:
    """Return a hash of the files that make a model: whole small ones, both ends of large ones."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin"), folder / "config.json"]):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE))
            file.seek(max(_EDGE, size - _EDGE))
            digest.update(file.read(_EDGE))
    return digest.hexdigest()[:16]


def sample_batches(
    rollouts: Rollouts,
    samples: int,
    sampler: Sampler,
    verifier: Verifier,
    wanted: Callable[[range], bool],
) -> Iterator[tuple[range, list[Response], Scores]]:
    """Sample and score batch by batch.

    Parameters
    ----------
    rollouts
        The prompts.
    samples
        Responses to each.
    sampler, verifier
        What samples and scores.
    wanted
        Whether anything is left to do of a batch, whose prompts' places it is given.

    Yields
    ------
    range
        Places of the batch's prompts. Batches are the same ones after a kill, so rounding that
        depends on what is in one is as well.
    list of Response
        Their responses, those to one prompt after the other.
    Scores
        The scores of these.
    """
    width = max(1, rollouts.config.sampler.batch_size // samples)
    for start in range(0, len(rollouts.prompts), width):
        places = range(start, min(start + width, len(rollouts.prompts)))
        if wanted(places):
            batch = slice(places.start, places.stop)
            prompts, encoded = rollouts.prompts[batch], rollouts.encoded[batch]
            yield places, *sample_and_score(prompts, encoded, sampler, verifier, samples, rollouts.seed)


def fill(
    log: RolloutLog,
    rollouts: Rollouts,
    samples: int,
    make: Callable[[], tuple[Sampler, Verifier]],
    progress: Callable[[int, str], None] = lambda _prompts, _text: None,
) -> str:
    """Sample and score responses until the log holds every prompt.

    Parameters
    ----------
    log
        The log.
    rollouts
        The prompts.
    samples
        Responses to each.
    make
        Makes the sampler and the verifier, where anything is left to do; they are closed at the end.
    progress
        Called with the prompts done since the last call, and what is going on.

    Returns
    -------
    str
        Why the first response that has no score has none; empty where all are scored.

    Raises
    ------
    InputError
        If the log's prompts are others.
    """
    done = [line.prompt_id for line in log.lines]
    for number, (there, prompt) in enumerate(zip(done, rollouts.prompts, strict=False), start=1):
        if there != prompt.key:
            msg = (
                f"line {number} of {str(log.path)!r} is the prompt {there!r}, where the task has {prompt.key!r}; the "
                "task has changed, so give another file"
            )
            raise InputError(msg)
    total = len(rollouts.prompts)
    if len(done) >= total:
        return ""
    progress(0, "loading the model")
    sampler, verifier = make()
    first_error = ""
    with closing(sampler), closing(verifier):
        begun = time.perf_counter()
        for places, responses, scores in sample_batches(
            rollouts, samples, sampler, verifier, lambda places: places.stop > len(done)
        ):
            first_error = first_error or scores.first_error
            prompts = rollouts.prompts[places.start : places.stop]
            lines = list(_lines(prompts, responses, scores, samples))
            skip = max(0, len(log.lines) - places.start)
            log.append(lines[skip:], _texts(prompts, responses, samples)[skip:])
            now = time.perf_counter()
            progress(len(lines) - skip, _rate(responses, now - begun))
            begun = now
    force(log.path.parent)
    return first_error


def _rate(responses: Sequence[Response], seconds: float) -> str:
    tokens = sum(each.tokens.size for each in responses)
    return f"{len(responses) / seconds:,.1f} responses/s, {tokens / seconds:,.0f} tokens/s"


def _lines(
    prompts: Sequence[Prompt], responses: Sequence[Response], scores: Scores, samples: int
) -> Iterator[RolloutLine]:
    for place, prompt in enumerate(prompts):
        of = slice(place * samples, (place + 1) * samples)
        tokens = tuple(each.tokens.size for each in responses[of])
        cut = sum(each.finish == "length" for each in responses[of])
        yield RolloutLine(prompt.key, prompt.family, scores.rewards[of], tokens, cut)


def _texts(prompts: Sequence[Prompt], responses: Sequence[Response], samples: int) -> list[str]:
    rows = []
    for place, prompt in enumerate(prompts):
        texts = [each.text for each in responses[place * samples : (place + 1) * samples]]
        row = {"prompt_id": prompt.key, "prompt": prompt.text, "answer": prompt.answer, "responses": texts}
        rows.append(json.dumps(row, ensure_ascii=False))
    return rows
