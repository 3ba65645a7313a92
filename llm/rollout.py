"""Logged responses: rewards and tokens of k responses to each prompt of a task, as `sim` reads them.

A log is a file of lines, one a prompt, written in the order of the prompts; what it was made with
stands in a file beside it. A run that was killed goes on where the log ends.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from ada_bandit.uniforms import fold_seed
from llm.checkpoint import force, write_text
from llm.config import RunConfig
from llm.types import Prompt, Response, Sampler
from llm.verify import Scores, Verifier, sample_and_score, verifier_for

__all__ = [
    "PromptLine",
    "RolloutLog",
    "Rollouts",
    "fill",
    "prepare",
    "read_lines",
    "rollout_settings",
    "sampler_and_verifier",
]

_SEED = 0x726F6C6C
"""Tells a log's sampling seed from those of a run with the same seed."""
_EDGE = 1 << 20
"""Bytes at either end of a file of weights that tell it from another of its size."""


@dataclass(frozen=True, eq=False)
class PromptLine:
    """The responses to one prompt."""

    prompt_id: str
    """The prompt's key."""
    family: str
    """Its family."""
    rewards: FloatArray
    """`[response]` Rewards; NaN without a score."""
    tokens: tuple[int, ...]
    """`[response]` Tokens."""
    truncated: int
    """Responses cut at the length limit."""

    @property
    def correct(self) -> int:
        """Responses with a reward above 0.5."""
        return int((self.rewards > 0.5).sum())

    @property
    def scored(self) -> int:
        """Responses with a score."""
        return int((~np.isnan(self.rewards)).sum())

    def to_json(self) -> str:
        """Return the line, without its end."""
        rewards = [None if math.isnan(each) else int(each) if each == int(each) else each for each in self.rewards]
        row = {"prompt_id": self.prompt_id, "family": self.family, "rewards": rewards, "tokens": list(self.tokens)}
        return json.dumps(row | {"truncated": self.truncated}, ensure_ascii=False)


class RolloutLog:
    """A log that lines are added to.

    Parameters
    ----------
    path
        Its file; ``path.meta.json`` holds what it was made with.
    settings
        What its lines depend on, as plain values. A log of other settings is refused.
    metadata
        Versions and the like, noted when the log is new.
    texts
        File for the responses' texts, one line a prompt; None for no such file.

    Raises
    ------
    InputError
        If what is there can't be gone on with.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], metadata: Mapping[str, Any], texts: Path | None = None
    ) -> None:
        self.path, self.texts = path, texts
        meta = meta_path(path)
        plain = json.loads(json.dumps(settings))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if meta.exists():
                self._check(_read_settings(meta), plain)
            elif path.exists():
                msg = (
                    f"{str(path)!r} is there, but not {meta.name}, which says what it was made with; move it away, or "
                    "give another file"
                )
                raise InputError(msg)
            else:
                write_text(meta, json.dumps({"settings": plain} | dict(metadata), indent=2) + "\n")
            path.touch()
            _keep_lines(path)
            self.lines = read_lines(path)
            self._keep_texts()
        except OSError as error:
            msg = f"the log {str(path)!r} can't be written: {error.strerror}; give another file"
            raise InputError(msg) from error

    def append(self, lines: Sequence[PromptLine], texts: Sequence[str] = ()) -> None:
        """Add lines, and the lines of the file of texts; they are on disk when it returns.

        Raises
        ------
        InputError
            If they can't be written, for want of space for instance; the same command goes on later.
        """
        try:
            # Texts first: a line of the log without its texts could not be completed.
            if self.texts is not None:
                _append(self.texts, texts)
            _append(self.path, [line.to_json() for line in lines])
        except OSError as error:
            msg = (
                f"the log {str(self.path)!r} can't be written: {error.strerror}; it is complete for its first "
                f"{len(self.lines)} prompts. Make room and give the same command again to go on"
            )
            raise InputError(msg) from error
        self.lines += lines

    def _check(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        differ = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
        if differ:
            shown = "; ".join(f"{name} = {before.get(name)!r}, now {now.get(name)!r}" for name in differ)
            msg = f"{str(self.path)!r} was made with other settings: {shown}. Give the same ones, or another file"
            raise InputError(msg)

    def _keep_texts(self) -> None:
        if self.texts is None:
            return
        self.texts.parent.mkdir(parents=True, exist_ok=True)
        self.texts.touch()
        there = _keep_lines(self.texts, len(self.lines))
        if there < len(self.lines):
            msg = (
                f"{str(self.texts)!r} holds the texts of {there} prompts, the log {str(self.path)!r} "
                f"{len(self.lines)}: texts can't be added afterwards. Give the file it began with, or start anew"
            )
            raise InputError(msg)


def meta_path(path: Path) -> Path:
    """Return where a log's settings stand."""
    return path.with_name(path.name + ".meta.json")


def read_lines(path: Path) -> list[PromptLine]:
    """Read the lines of a log.

    Raises
    ------
    InputError
        If a line isn't one of a log.
    """
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        msg = f"the log {str(path)!r} can't be read: {error.strerror}; 'python -m llm rollout' makes one"
        raise InputError(msg) from error
    lines = []
    for number, text in enumerate(texts, start=1):
        try:
            row = json.loads(text)
            rewards = np.array([math.nan if each is None else each for each in row["rewards"]], dtype=np.float64)
            # Logs of other programs hold rewards, and no more.
            tokens = tuple(map(int, row.get("tokens", ())))
            line = PromptLine(
                str(row["prompt_id"]), row.get("family", ""), rewards, tokens, int(row.get("truncated", 0))
            )
        except (ValueError, KeyError, TypeError) as error:
            msg = (
                f"line {number} of {str(path)!r} is no line of a log by 'python -m llm rollout' ({error!r}); move the "
                "file away, or give another one"
            )
            raise InputError(msg) from error
        lines.append(line)
    return lines


def _read_settings(meta: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(meta.read_text(encoding="utf-8"))["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{str(meta)!r} can't be read ({error!r}); move it and its log away, or give another file"
        raise InputError(msg) from error


def _keep_lines(path: Path, most: float = math.inf) -> int:
    """Cut a file after its last whole line, and after `most` lines; return how many there are."""
    kept = size = 0
    with path.open("r+b") as file:
        for line in file:
            if kept == most or not line.endswith(b"\n"):
                break
            kept, size = kept + 1, size + len(line)
        file.truncate(size)
    return kept


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


# Sampling


def sampler_and_verifier(rollouts: Rollouts) -> tuple[Sampler, Verifier]:
    """Make what `fill` samples and scores with, from the config."""
    from llm.models import choose_device
    from llm.samplers import make_sampler

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


def prepare(config: RunConfig, prompts: int | None = None, progress: Callable[[int], Any] | None = None) -> Rollouts:
    """Load the task and encode its first `prompts` prompts, all of them by default.

    Raises
    ------
    InputError
        If model directory, task or a prompt can't be used, or no prompt is left.
    """
    from transformers import AutoConfig

    from llm.models import context_length, encode_all, load_tokenizer
    from llm.tasks import load_task

    tokenizer = load_tokenizer(config.model.path)
    settings = AutoConfig.from_pretrained(config.model.path, local_files_only=True)
    longest = context_length(SimpleNamespace(config=settings)) - config.sampler.max_new_tokens
    task = load_task(config.task)
    wanted = len(task) if prompts is None else min(prompts, len(task))
    kept: list[Prompt] = []
    encoded: list[list[int]] = []
    for start in range(0, wanted, 100):
        some = [task[index] for index in range(start, min(start + 100, wanted))]
        fit, ids = encode_all(tokenizer, some, config.model, longest=longest, overlong=config.task.overlong)
        kept += fit
        encoded += ids
        if progress is not None:
            progress(len(some))
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
    width = max(1, rollouts.config.sampler.batch_size // samples)
    first_error = ""
    try:
        # Batches are the same ones after a kill, so rounding that depends on what is in one is as well.
        for start in range(len(done) // width * width, total, width):
            some = slice(start, min(start + width, total))
            prompts = rollouts.prompts[some]
            begin = time.perf_counter()
            encoded = rollouts.encoded[some]
            responses, scores = sample_and_score(prompts, encoded, sampler, verifier, samples, rollouts.seed)
            first_error = first_error or scores.first_error
            lines = list(_lines(prompts, responses, scores, samples))
            skip = max(0, len(log.lines) - start)
            log.append(lines[skip:], _texts(prompts, responses, samples)[skip:])
            progress(len(lines) - skip, _rate(responses, time.perf_counter() - begin))
    finally:
        sampler.close()
        verifier.close()
    force(log.path.parent)
    return first_error


def _rate(responses: Sequence[Response], seconds: float) -> str:
    tokens = sum(each.tokens.size for each in responses)
    return f"{len(responses) / seconds:,.1f} responses/s, {tokens / seconds:,.0f} tokens/s"


def _lines(
    prompts: Sequence[Prompt], responses: Sequence[Response], scores: Scores, samples: int
) -> Iterator[PromptLine]:
    for place, prompt in enumerate(prompts):
        of = slice(place * samples, (place + 1) * samples)
        tokens = tuple(each.tokens.size for each in responses[of])
        cut = sum(each.finish == "length" for each in responses[of])
        yield PromptLine(prompt.key, prompt.family, scores.rewards[of], tokens, cut)


def _texts(prompts: Sequence[Prompt], responses: Sequence[Response], samples: int) -> list[str]:
    rows = []
    for place, prompt in enumerate(prompts):
        texts = [each.text for each in responses[place * samples : (place + 1) * samples]]
        row = {"prompt_id": prompt.key, "prompt": prompt.text, "answer": prompt.answer, "responses": texts}
        rows.append(json.dumps(row, ensure_ascii=False))
    return rows
