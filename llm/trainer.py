"""The trainer: prompts, rounds under a policy, PPO-clip on the groups it keeps, again and again.

Everything left to chance is a function of the run's seed, the step, the prompt and the number of
the response, and a checkpoint holds the rest. A run that was killed therefore ends with the same
losses as one that wasn't (to the bit on a CPU with the transformers sampler). CPU alone has been
tried; CUDA and MPS go through the same code, but no run of it was ever made on one.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit import PassRateMemory
from ada_bandit._types import IntArray
from ada_bandit.allocator import Groups
from ada_bandit.errors import InputError
from ada_bandit.programs.folders import make_folder
from ada_bandit.step_specs import read_step_policy
from ada_bandit.uniforms import fold_seed
from llm.checkpoint import Checkpoint, Checkpoints
from llm.config import RunConfig, TaskConfig
from llm.distributed import World
from llm.evaluate import evaluate_task
from llm.logs import MetricsLog, cut_rows, write_run_files
from llm.memory import check_memory
from llm.models import choose_device, context_length, encode_all, load_model, load_tokenizer
from llm.rounds import StepSample, sample_step
from llm.samplers.make import make_sampler
from llm.tasks import LoadedTask, load_task
from llm.types import KeptResponse, Progress, Prompt, Response, Sampler, no_progress
from llm.update import Update
from llm.verify import Verifier, verifier_for

__all__ = ["DataOrder", "Trainer"]

# Seeds of the parts of a run.
_ORDER, _STEP, _EVAL, _EVAL_PROMPTS = range(4)
_MANY_UNSCORED = 0.1
"""Share of responses without a score above which a run says so."""


class DataOrder:
    """Which prompts a step gets: the task in a new random order each epoch; what fills no step is left out of it.

    A pure function of the seed and the step, so that there is nothing to save.
    """

    def __init__(self, size: int, prompts: int, seed: int) -> None:
        if prompts > size:
            msg = f"train.prompts is {prompts}, but the task has {size} prompts; take fewer a step, or a larger task"
            raise InputError(msg)
        self._size, self._prompts, self._seed = size, prompts, seed
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def batch(self, step: int) -> IntArray:
        """Return the numbers of the step's prompts, ``[prompt]``; none twice."""
        epoch, place = divmod(step, self._size // self._prompts)
        if epoch != self._epoch:
            key = fold_seed(self._seed, _ORDER, epoch)
            self._epoch, self._order = epoch, np.random.Generator(np.random.Philox(key=key)).permutation(self._size)
        return self._order[place * self._prompts : (place + 1) * self._prompts]


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._begun = time.perf_counter()

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the body to a phase."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - begun

    def lap(self) -> dict[str, float]:
        """Return the seconds since the last lap by phase, with what no phase took as ``other``, and start anew."""
        now = time.perf_counter()
        total, phases = now - self._begun, dict(self.seconds)
        self._begun = now
        self.seconds.clear()
        return {**phases, "other": total - sum(phases.values()), "total": total}


def switch_off_dropout(model: Any) -> None:
    """Set every dropout of a model to 0."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


class _Shared:
    """A sampler at another temperature whose responses are shared among the processes."""

    def __init__(self, sampler: Sampler, world: World, temperature: float) -> None:
        self._sampler, self._world, self._temperature = sampler, world, temperature

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        mine = self._world.share(len(prompts))
        part = slice(mine.start, mine.stop)
        own = self._temperature if temperature is None else temperature
        return self._world.join(self._sampler.generate(prompts[part], ids[part], seed, own) if mine else [])

    def sync(self, model: Any) -> None:
        self._sampler.sync(model)

    def close(self) -> None:
        self._sampler.close()


@dataclass(frozen=True, eq=False)
class _EvalSet:
    """Prompts to evaluate on."""

    name: str
    """Name of the evaluation."""
    prompts: Sequence[Prompt]
    """`[prompt]` The prompts."""
    encoded: Sequence[Sequence[int]]
    """`[prompt][token]` Their tokens."""
    verifier: Verifier
    """What scores."""
    notes: tuple[str, ...]
    """What was left out, in words."""


class Trainer:
    """A run: from a config and an output folder to the trained model.

    Parameters
    ----------
    config
        The run.
    out
        Folder of its logs, checkpoints and final model.
    resume
        Go on from the latest checkpoint; where there is none, start.
    progress
        Shows how far the reading of the tasks is.

    Raises
    ------
    InputError
        If anything of the config can't be used, or the folder holds another run.
    """

    def __init__(
        self, config: RunConfig, out: str | Path, *, resume: bool = False, progress: Progress = no_progress
    ) -> None:
        self.config, self.out, self.world, self._resume = config, Path(out), World(), resume
        self.clock = Clock()
        self._responses = self.out / "responses.jsonl"
        self._prepare_folder(resume=resume)
        memory = PassRateMemory(config.memory) if config.memory else None
        no_signal = None if config.train.no_signal == "policy" else config.train.no_signal
        self.steps = read_step_policy(config.policy, memory, no_signal=no_signal)
        self.task = load_task(config.task, progress)
        self.verifier = verifier_for(self.task)
        self.order = DataOrder(len(self.task), config.train.prompts, config.seed)
        # A policy's file may have been changed since: what counts is what it said.
        told = {**config.model_dump(mode="json"), "policy": self.steps.describe()}
        self.checkpoints = Checkpoints(self.out / "checkpoints", config.checkpoint.keep, told)
        begun = self.checkpoints.latest() if resume else None
        source = config.model.path if begun is None else begun.path
        self.device = self.world.device or choose_device(config.model.device)
        crowded = check_memory(config, self.device, self.world.size)
        self._notes = (*self.world.notes, *((crowded,) if crowded else ()))
        self.tokenizer = load_tokenizer(config.model.path)
        self.model = load_model(source, config.model.dtype, self.device)
        if config.model.gradient_checkpointing:
            # It works in training mode alone, where dropout would change the ratios of the loss.
            self.model.gradient_checkpointing_enable()
            switch_off_dropout(self.model)
        self.update = Update(self.model, config, int(self.tokenizer.pad_token_id), self.device, self.world)
        self.step = 0
        self._saved: int | None = None
        self._warned = False
        # A policy that asks for nothing would never get to its tokens.
        self._idle = False
        self.total_responses = self.total_tokens = 0
        if begun is not None:
            self._restore(begun)
        self.sampler = make_sampler(
            config.sampler, config.model.path, self.tokenizer, model=self.model, device=self.device
        )
        self.evals = self._evaluations(progress)
        self.sampler.sync(self.model)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth telling before the run: of processes, memory, and prompts that were left out."""
        return (
            *self._notes,
            *self.task.notes,
            *self.update.notes,
            *(note for each in self.evals for note in each.notes),
        )

    def _prepare_folder(self, *, resume: bool) -> None:
        if not resume and self.world.is_main and (self.out / "metrics.jsonl").exists():
            msg = f"the folder {str(self.out)!r} holds a run; go on with it by --resume, or give another one by --out"
            raise InputError(msg)
        make_folder(self.out)

    def _evaluations(self, progress: Progress) -> list[_EvalSet]:
        config = self.config.eval
        if not config.every:
            return []
        tasks = ({"pool": self.task} if config.pool else {}) | {
            name: load_task(task, progress) for name, task in config.tasks.items()
        }
        return [self._eval_set(place, name, task) for place, (name, task) in enumerate(tasks.items())]

    def _eval_set(self, place: int, name: str, task: LoadedTask) -> _EvalSet:
        """Choose and encode the prompts of an evaluation, which are the same ones each time."""
        key = fold_seed(self.config.seed, _EVAL_PROMPTS, place)
        limit = self.config.eval.prompts
        order = np.sort(np.random.Generator(np.random.Philox(key=key)).permutation(len(task))[:limit])
        prompts, encoded = self._encode([task[int(i)] for i in order], task.config)
        notes = () if task is self.task else task.notes
        if len(prompts) < order.size:
            out = order.size - len(prompts)
            notes += (f"{out} prompts of the evaluation {name!r} left out: longer than the context",)
        verifier = self.verifier if task is self.task else verifier_for(task)
        return _EvalSet(name, prompts, encoded, verifier, notes)

    def _restore(self, begun: Checkpoint) -> None:
        import torch

        self.step = self._saved = begun.step
        self.total_responses = int(begun.state["total_responses"])
        self.total_tokens = int(begun.state["total_tokens"])
        self.update.optimizer.load_state_dict(torch.load(begun.path / "optimizer.pt", weights_only=True))
        self.steps.load_state_dict(begun.state["steps"])

    def run(self, report: Callable[[int, Mapping[str, Any]], None] | None = None) -> Path:
        """Train to the last step.

        Parameters
        ----------
        report
            Called after each step with its number and its row of metrics.

        Returns
        -------
        Path
            Folder of the final model.

        Raises
        ------
        DivergedError
            If a gradient, or what the model samples from, is not finite.
        TooManyUnscoredError
            If more of a step's responses have no score than `train.max_unscored` allows.
        """
        config = self.config
        begun = self.step
        log = None
        if self.world.is_main:
            write_run_files(self.out, config, device=self.device, step=begun, processes=self.world.size)
            if self._responses.exists():
                cut_rows(self._responses, begun)
            log = MetricsLog(self.out, tensorboard=config.log.tensorboard, resume_from=begun if self._resume else None)
        try:
            self.clock.lap()
            if config.checkpoint.every and self._saved is None:
                # Whatever happens in the first steps, there is something to go on from.
                self._save(log)
            while not self.finished:
                self._evaluate(log)
                row = self._train_step()
                self.step += 1
                row["time"] = self.clock.lap()
                if log is not None:
                    log.write(self.step - 1, row)
                if config.checkpoint.every and self.step % config.checkpoint.every == 0:
                    self._save(log)
                if report is not None:
                    report(self.step - 1, row)
            self._evaluate(log)
            if self._saved != self.step:
                self._save(log)
            return self.checkpoints.folder / f"step-{self.step:08d}"
        finally:
            if log is not None:
                log.close()
            self.close()

    @property
    def finished(self) -> bool:
        """Whether the run has had its steps, and its tokens where it goes on for them."""
        train = self.config.train
        return self.step >= train.steps and (self.total_tokens >= train.tokens or self._idle)

    @property
    def kept(self) -> str:
        """What is kept of the run if it ends now, and how to go on, in words."""
        if self._saved is None:
            return f"no checkpoint was saved yet in {self.out}; give the same command to begin anew"
        return f"step {self._saved} is kept in {self.out}; the same command with --resume goes on from there"

    def close(self) -> None:
        """Free the sampler and the verifiers."""
        self.sampler.close()
        self.verifier.close()
        for each in self.evals:
            each.verifier.close()

    def _train_step(self) -> dict[str, Any]:
        config, number = self.config, self.step
        with self.clock("prompts"):
            chosen = [self.task[int(i)] for i in self.order.batch(number)]
            prompts, encoded = self._encode(chosen, config.task)
        keys = [each.key for each in prompts] if self.steps.memory is not None else None
        seed = fold_seed(config.seed, _STEP, number)
        with self.clock("allocate"):
            allocator = self.steps.allocator(len(prompts), seed, keys)
            allocator.max_unscored = config.train.max_unscored
            step = StepSample(allocator, prompts, encoded, config.train.mask_truncated)
        saved = self.checkpoints.load_round(number) if self._saved == number else None
        if saved is not None:
            step.load_state_dict(saved)
        groups = sample_step(
            step,
            self.sampler,
            self.verifier,
            seed,
            world=self.world,
            timed=self.clock,
            after_round=self._save_round,
        )
        self.total_responses += len(step.responses)
        tokens = step.tokens
        self.total_tokens += tokens
        self._idle = tokens == 0
        with self.clock("allocate"):
            rows = step.kept(groups)
        with self.clock("update"):
            seen = self.update.step(number, rows, len(prompts))
        with self.clock("sync"):
            if seen["updates"]:
                self.sampler.sync(self.model)
        with self.clock("allocate"):
            self.steps.observe(step.allocator, keys)
            row = self._row(step, groups, rows, tokens)
            row["note"] = self._note(step, row["unscored_fraction"])
            self._write_responses(step, groups)
        return {**row, **seen, "overlong": len(chosen) - len(prompts)}

    def _encode(self, prompts: Sequence[Prompt], task: TaskConfig) -> tuple[list[Prompt], list[list[int]]]:
        longest = context_length(self.model) - self.config.sampler.max_new_tokens
        return encode_all(self.tokenizer, prompts, self.config.model, longest=longest, overlong=task.overlong)

    def _row(self, step: StepSample, groups: Groups, rows: list[KeptResponse], tokens: int) -> dict[str, Any]:
        return {
            "policy": self.steps.policy.label,
            **step.numbers(groups, rows),
            "tokens": tokens,
            "total_responses": self.total_responses,
            "total_tokens": self.total_tokens,
            "mean_tokens": tokens / max(len(step.responses), 1),
            "first_error": step.first_error or None,
        }

    def _note(self, step: StepSample, unscored: float) -> str | None:
        """Return what is worth telling of a step, once a run: that many of its responses have no score."""
        if self._warned or unscored <= _MANY_UNSCORED:
            return None
        self._warned = True
        cut = f", {step.counts['truncated']} cut at the length limit" if step.counts["truncated"] else ""
        return (
            f"{unscored:.0%} of the responses of step {self.step} have no score ({step.counts['raised']} failed, "
            f"{step.counts['timed_out']} ran out of time{cut}); they are in neither class and never kept. The rows of "
            "later steps say how many; train.max_unscored stops a run"
        )

    def _write_responses(self, step: StepSample, groups: Groups) -> None:
        """Add the first responses of a step to responses.jsonl, with their rewards and, where kept, advantages."""
        count = self.config.log.responses
        if not count or not self.world.is_main:
            return
        kept = dict(zip(groups.ids[groups.mask].tolist(), groups.advantages[groups.mask].tolist(), strict=True))
        chosen = sorted(step.responses)[:count]
        prompts, _ = step.allocator.locate(chosen)
        with self._responses.open("a", encoding="utf-8") as file:
            for id_, number in zip(chosen, prompts.tolist(), strict=True):
                prompt, response, reward = step.prompts[number], step.responses[id_], step.rewards[id_]
                row = {
                    "step": self.step,
                    "prompt_id": prompt.key,
                    "prompt": prompt.text,
                    "response": response.text,
                    "reward": None if math.isnan(reward) else reward,
                    "advantage": kept.get(id_),
                    "tokens": int(response.tokens.size),
                    "finish": response.finish,
                }
                file.write(json.dumps(row) + "\n")

    def _evaluate(self, log: MetricsLog | None) -> None:
        config = self.config.eval
        if not self.evals or (self.step % config.every and not self.finished):
            return
        evaluations = {}
        sampler = _Shared(self.sampler, self.world, config.temperature)
        with self.clock("eval"):
            for place, each in enumerate(self.evals):
                seed = fold_seed(self.config.seed, _EVAL, self.step, place)
                evaluations[each.name] = evaluate_task(
                    each.prompts, each.encoded, sampler, each.verifier, config.samples, seed
                )
        if log is not None:
            log.write(
                self.step,
                {
                    "total_responses": self.total_responses,
                    "total_tokens": self.total_tokens,
                    "eval": {name: each.as_dict() for name, each in evaluations.items()},
                },
            )

    def _save(self, log: MetricsLog | None) -> None:
        """Write a checkpoint, which is a model directory as well."""
        import torch

        def write(folder: Path) -> None:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            torch.save(self.update.optimizer.state_dict(), folder / "optimizer.pt")

        with self.clock("checkpoint"):
            state: dict[str, Any] = {"total_responses": self.total_responses, "total_tokens": self.total_tokens}
            state["steps"] = self.steps.state_dict()
            if log is not None:
                log.sync()
                self.checkpoints.save(self.step, write, state)
            self.world.wait()
        self._saved = self.step

    def _save_round(self, step: StepSample) -> None:
        if self.config.checkpoint.rounds and self._saved == self.step and self.world.is_main:
            with self.clock("checkpoint"):
                self.checkpoints.save_round(self.step, step.rounds, step.state_dict())
