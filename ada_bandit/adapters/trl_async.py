"""Adaptive rollouts for TRL's asynchronous trainer: `AdaptiveRolloutWorker` in place of TRL's worker.

::

    from ada_bandit.adapters.trl_async import AdaptiveRolloutWorker

    worker = AdaptiveRolloutWorker.from_config(
        args, policy="reinforce-ada-balance", model_name=…, dataset=…, reward_funcs=…, processing_class=…,
        eos_token_ids=…,
    )
    trainer = AsyncGRPOTrainer(model, args=args, train_dataset=…, rollout_worker=worker, weight_transfer=…)

How it goes. TRL's worker runs conversations in a process of its own, as many at a time as it has
slots, and its trainer takes samples that carry their advantage and the number of their group, so
groups of any size are at home there. Here every prompt drives an `Allocator`. When the replies of
its round are in, they are scored together; the next round goes to the front of the line, and a
free slot takes it before it starts a new prompt. No prompt waits for another one. When a prompt
has exited, its kept responses go to the trainer with the policy's advantages.

Tools, environments, conversations of several turns and rows that fork are TRL's own: a conversation is
a response, its advantage goes to all of its rows.

Staleness. Each sample carries the version of the model that its conversation began with. Rounds
that follow one another may see different versions; ``ada/version_span_max`` tells how many lie
between the first and the last response of a pool. TRL drops samples that are older than
``max_staleness``, each by itself, so a group may lose rows; the advantages stay those of its pool.

Groups without signal are what `Policy.no_signal` says: samples with an advantage of 0, or none.

Prompts without a row. A prompt of which nothing is kept sends one sample with a mask of 0: TRL counts
epochs, and finds where to resume, by the groups that it has trained on.

Not supported: shared budgets, memories and policies that learn, as prompts come one by one and there
is no step to share or to learn from.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit.adapters._checks import missing_methods
from ada_bandit.adapters._pool_log import PoolLog
from ada_bandit.adapters.trl import CorrectFunc, TRLSurfaceError
from ada_bandit.allocator import Allocator
from ada_bandit.budgets import BatchBudget
from ada_bandit.errors import InputError
from ada_bandit.policy import AnyPolicy
from ada_bandit.specs import Spec
from ada_bandit.step_specs import read_step_policy
from ada_bandit.steps import FixedPolicy, StepPolicy
from ada_bandit.tables import NoSignal
from ada_bandit.uniforms import fold_seed

try:
    import trl
    from trl.experimental.async_grpo.async_rollout_worker import (
        AsyncRolloutWorker,
        RolloutGroup,
        RolloutSample,
        TrainingSequence,
        _AsyncRolloutLoop,
    )
except ImportError as error:
    msg = f"the adapter for TRL's asynchronous trainer needs TRL 1.16 ({error}): pip install 'ada_bandit[trl]'"
    raise ImportError(msg) from error

__all__ = ["AdaptiveRolloutLoop", "AdaptiveRolloutWorker", "check_trl_async"]

_METHODS: Mapping[str, tuple[str, ...]] = {
    "_repeat_iterator": (),
    "_score_group": ("group",),
    "_push_metrics": ("values",),
    "_generate_one": ("prompt", "tool_dict", "tools", "group_id"),
}
_GROUP = (
    "prompts",
    "reward_kwargs",
    "completions",
    "completions_ids",
    "completions_sequences",
    "tool_call_counts",
    "tool_failure_counts",
    "model_version",
    "group_id",
    "env_rewards",
    "rollout_rewards",
)
_SAMPLE = ("completion_mask", "advantage", "model_version", "group_id", "metrics")


def check_trl_async(loop: type = _AsyncRolloutLoop, version: str = trl.__version__) -> None:
    """Check that the installed TRL has the asynchronous worker that the adapter was written for.

    Raises
    ------
    TRLSurfaceError
        If the version was not tested, or a method, a parameter or a field is missing.
    """
    if version.split(".")[:2] != ["1", "16"]:
        msg = f"the asynchronous adapter is tested with TRL 1.16; got {version}. pip install 'trl>=1.16,<1.17'"
        raise TRLSurfaceError(msg)
    missing = list(missing_methods(loop, _METHODS))
    for owner, names in ((RolloutGroup, _GROUP), (RolloutSample, _SAMPLE)):
        known_fields = {each.name for each in dataclasses.fields(owner)}
        missing += [f"field {name!r} of {owner.__name__}" for name in names if name not in known_fields]
    if missing:
        msg = f"TRL {version} lacks what the adapter relies on: {', '.join(missing)}. pip install 'trl==1.16.0'"
        raise TRLSurfaceError(msg)


def _policy_of(policy: Spec | StepPolicy, group_size: int, no_signal: NoSignal | None) -> AnyPolicy:
    learns = isinstance(policy, StepPolicy)
    steps = read_step_policy(policy, group_size=group_size, no_signal=None if learns else no_signal)
    if steps.learns or not isinstance(steps, FixedPolicy):
        msg = (
            f"{type(steps).__name__} learns from whole steps, and an asynchronous trainer has none: prompts come one "
            "by one. Use a policy whose tables stay as they are, without a memory, or the synchronous trainer"
        )
        raise InputError(msg)
    found = steps.policy
    if isinstance(found.budget, BatchBudget):
        msg = (
            f"the budget {found.budget.name!r} is shared by the prompts of a batch, and an asynchronous trainer has "
            "none: prompts come one by one. Use a policy whose prompts decide on their own, or the synchronous trainer"
        )
        raise InputError(msg)
    return found


@dataclass(eq=False)
class _Response:
    samples: list[RolloutSample]
    reward: float
    correct: bool | None
    tokens: int
    version: int


@dataclass(eq=False)
class _Prompt:
    number: int
    row: dict[str, Any]
    allocator: Allocator
    ids: dict[int, int] = field(default_factory=dict)
    """The allocator's ids of the present round, by draw."""
    waiting: set[int] = field(default_factory=set)
    """Draws of the present round that are not in."""
    came: dict[int, RolloutGroup] = field(default_factory=dict)
    """Draws of the present round that are in."""
    pool: dict[int, _Response] = field(default_factory=dict)


class AdaptiveRolloutLoop(_AsyncRolloutLoop):
    """TRL's loop, whose prompts draw as many conversations as the policy asks for; runs in the worker's process.

    Takes what TRL's loop takes, and the keywords of `AdaptiveRolloutWorker`. To TRL's own code
    every conversation is a group of one.
    """

    def __init__(
        self,
        *args: Any,
        policy: AnyPolicy,
        seed: int = 0,
        correct_func: CorrectFunc | None = None,
        prompt_key: str | None = None,
        pool_log: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["num_generations"] = 1
        self._ada_first = int(kwargs.get("dataset_start_index", 0))
        super().__init__(*args, **kwargs)
        self._ada_policy = policy
        self._ada_seed = seed
        self._ada_correct = correct_func
        self._ada_key = prompt_key
        self._ada_log = PoolLog(None if pool_log is None else Path(pool_log))
        self._ada_ready: deque[tuple[_Prompt, int]] = deque()
        self._ada_running: dict[int, tuple[_Prompt, int]] = {}
        """By TRL's group number."""

    # What TRL calls.

    def _repeat_iterator(self) -> Iterator[tuple[int, dict[str, Any]]]:
        rows = super()._repeat_iterator()
        started = conversations = 0
        while True:
            if not self._ada_ready:
                _, row = next(rows)
                seed = fold_seed(self._ada_seed, self._ada_first + started)
                prompt = _Prompt(started, row, Allocator(self._ada_policy, 1, seed))
                started += 1
                self._ada_ask(prompt)
                continue
            prompt, draw = self._ada_ready.popleft()
            self._ada_running[conversations] = (prompt, draw)
            yield conversations, prompt.row
            conversations += 1

    async def _score_group(self, group: RolloutGroup) -> list[RolloutSample]:
        prompt, draw = self._ada_running.pop(group.group_id)
        prompt.came[draw] = group
        prompt.waiting.remove(draw)
        if prompt.waiting:
            return []
        await self._ada_score(prompt)
        return [] if self._ada_ask(prompt) else self._ada_finish(prompt)

    # The parts of a prompt.

    def _ada_ask(self, prompt: _Prompt) -> bool:
        """Put what the prompt wants now to the front of the line; return whether it wants anything."""
        request = prompt.allocator.ask()
        draws = request.draws.tolist()
        prompt.ids = dict(zip(draws, request.ids.tolist(), strict=True))
        prompt.waiting = set(draws)
        # The oldest prompts first, so that they end while the model that began them is near.
        self._ada_ready.extendleft((prompt, draw) for draw in reversed(draws))
        return bool(draws)

    async def _ada_score(self, prompt: _Prompt) -> None:
        """Score a round by TRL's own code, all of its conversations together, and tell the allocator."""
        draws = sorted(prompt.came)
        groups = [prompt.came.pop(draw) for draw in draws]
        # A conversation without a token to train gets a row all the same, to see its reward.
        sequences = [group.completions_sequences[0] or [TrainingSequence([], [], [], "")] for group in groups]
        together = RolloutGroup(
            prompts=[group.prompts[0] for group in groups],
            reward_kwargs={name: values * len(groups) for name, values in groups[0].reward_kwargs.items()},
            completions=[group.completions[0] for group in groups],
            completions_ids=[group.completions_ids[0] for group in groups],
            completions_sequences=sequences,
            tool_call_counts=[group.tool_call_counts[0] for group in groups],
            tool_failure_counts=[group.tool_failure_counts[0] for group in groups],
            model_version=groups[0].model_version,
            group_id=prompt.number,
            env_rewards=[each for group in groups for each in group.env_rewards],
            rollout_rewards=[group.rollout_rewards[0] for group in groups],
        )
        samples = iter(await super()._score_group(together))
        rows = [[next(samples) for _ in each] for each in sequences]
        rewards = [each[0].metrics["reward"] for each in rows]
        rewards = [reward if math.isfinite(reward) else math.nan for reward in rewards]
        correct = self._ada_judge(prompt, together, rows)
        ids = [prompt.ids[draw] for draw in draws]
        prompt.allocator.tell(ids, rewards, None if correct is None else [float(each) for each in correct])
        for at, draw in enumerate(draws):
            group = groups[at]
            for sample in rows[at]:
                sample.model_version = group.model_version
            prompt.pool[draw] = _Response(
                rows[at] if group.completions_sequences[0] else [],
                rewards[at],
                None if correct is None else correct[at],
                len(group.completions_ids[0]),
                group.model_version,
            )

    def _ada_judge(self, prompt: _Prompt, group: RolloutGroup, rows: list[list[RolloutSample]]) -> list[bool] | None:
        if self._ada_correct is None:
            return None
        names = [f"rewards/{name}" for name in self.reward_func_names]
        by_function = np.array([[each[0].metrics[name] for name in names] for each in rows])
        inputs = [prompt.row | {"completion": completion} for completion in group.completions]
        flags = np.asarray(self._ada_correct(by_function, inputs))
        if flags.shape != (len(rows),):
            msg = f"correct_func must return one value a response, {len(rows)} of them; got {flags!r}"
            raise InputError(msg)
        return [bool(flag) for flag in flags]

    def _ada_finish(self, prompt: _Prompt) -> list[RolloutSample]:
        """Return the samples of a prompt that has exited, and tell the trainer of its pool."""
        groups = prompt.allocator.groups()
        pool = [prompt.pool[draw] for draw in sorted(prompt.pool)]
        own = groups.mask[0]
        _, draws = prompt.allocator.locate(groups.ids[0][own])
        kept = dict(zip(draws.tolist(), groups.advantages[0][own].tolist(), strict=True))
        scored = [each.reward for each in pool if not math.isnan(each.reward)]
        std = float(np.std(scored)) if scored else math.nan
        samples = []
        for draw, advantage in kept.items():
            for sample in pool[draw].samples:
                sample.advantage = float(advantage)
                samples.append(sample)
        if not samples and (some := next((each.samples for each in pool if each.samples), None)) is not None:
            samples = some[:1]
            samples[0].advantage = 0.0
            samples[0].completion_mask = np.zeros_like(samples[0].completion_mask)
        for sample in samples:
            sample.group_id = prompt.number
            sample.metrics["reward_std"] = std
        self._ada_tell(prompt, pool, set(kept))
        return samples

    def _ada_tell(self, prompt: _Prompt, pool: list[_Response], kept: set[int]) -> None:
        scored = [each.reward for each in pool if not math.isnan(each.reward)]
        chosen = [pool[draw].reward for draw in kept]
        counts = prompt.allocator.metrics()
        versions = [each.version for each in pool]
        values: dict[str, float | tuple[float, float]] = {
            "ada/pool_reward": (float(np.mean(scored)), 1.0) if scored else (0.0, 0.0),
            "ada/selected_reward": (float(sum(chosen)), float(len(chosen))),
            "ada/signal_fraction": (float(counts["signal_fraction"]), 1.0),
            "ada/rounds": float(counts["rounds"]),
            "ada/responses_total": float(len(pool)),
            "ada/tokens_total": float(sum(each.tokens for each in pool)),
            "ada/unresolved_no_positive_total": float(counts["unresolved_no_positive"]),
            "ada/unresolved_no_negative_total": float(counts["unresolved_no_negative"]),
            "ada/silent_total": float(counts["silent"]),
            "ada/left_out_total": float(counts["left_out"]),
            "ada/masked_total": float(counts["masked"]),
            "ada/unscored_total": float(counts["unscored"]),
            "ada/unscored_fraction": (float(counts["unscored"]), float(len(pool))),
            "ada/replaced_total": float(counts["replaced"]),
            "ada/empty_rows_total": float(self._ada_policy.n - len(kept)),
            "ada/version_span_max": float(max(versions) - min(versions)),
        }
        self._push_metrics(values)
        threshold = self._ada_policy.threshold
        right = [each.reward > threshold if each.correct is None else each.correct for each in pool]
        key = self._ada_first + prompt.number if self._ada_key is None else prompt.row[self._ada_key]
        line = {
            "step": self.model_version,
            "prompt_id": key,
            "rewards": [None if math.isnan(each.reward) else each.reward for each in pool],
            "correct": [None if math.isnan(each.reward) else flag for each, flag in zip(pool, right, strict=True)],
            "tokens": [each.tokens for each in pool],
            "kept": [draw in kept for draw in range(len(pool))],
            "policy": self._ada_policy.label,
        }
        self._ada_log.write([line])


class AdaptiveRolloutWorker(AsyncRolloutWorker):
    """TRL's ``AsyncRolloutWorker`` whose conversations are allocated, kept and weighed by a policy.

    Takes everything that ``AsyncRolloutWorker`` takes, and the keywords below. As TRL's, it runs in
    a process of its own, so that reward functions, tools and `correct_func` must be picklable.

    Parameters
    ----------
    policy
        As `ada_bandit.specs.read_policy` takes it: a preset with or without options, the path of a
        file, a `Policy` or a `Blend`.
    num_generations
        Group size of a preset that states none.
    seed
        Seed of what the policy leaves to chance: which responses of a class are kept.
    correct_func
        As for `ada_bandit.adapters.trl.AdaptiveGRPOTrainer`.
    no_signal
        What becomes of groups without signal, if not what the policy says: ``"mask"``, ``"leave_out"``
        or ``"keep"`` (`Policy.no_signal`).
    prompt_key
        Column of the dataset that names a prompt in the pool log; its number in the run unless given.
    pool_log
        File with one JSON line a prompt; none unless given.
    **kwargs
        As for ``AsyncRolloutWorker``.

    Raises
    ------
    InputError
        If the policy can't be used without a batch.
    TRLSurfaceError
        If the installed TRL is none that the adapter knows.

    Notes
    -----
    Metrics, under the names of the synchronous adapter: ``ada/pool_reward``,
    ``ada/selected_reward``, ``ada/signal_fraction``, ``ada/rounds`` (mean over prompts); sums over
    what TRL logs at a time end in ``_total``; ``ada/version_span_max``.
    """

    _loop_cls = AdaptiveRolloutLoop

    def __init__(
        self,
        *,
        policy: Spec | StepPolicy,
        num_generations: int = 8,
        seed: int = 0,
        correct_func: CorrectFunc | None = None,
        no_signal: NoSignal | None = None,
        prompt_key: str | None = None,
        pool_log: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        check_trl_async()
        self.policy = _policy_of(policy, num_generations, no_signal)
        super().__init__(
            policy=self.policy,
            seed=seed,
            correct_func=correct_func,
            prompt_key=prompt_key,
            pool_log=None if pool_log is None else str(pool_log),
            **kwargs,
        )

    @classmethod
    def from_config(cls, args: Any, **kwargs: Any) -> AdaptiveRolloutWorker:
        """Return a worker with the sampling options of an ``AsyncGRPOConfig``, as the trainer would build its own.

        Parameters
        ----------
        args
            The trainer's config.
        **kwargs
            `policy`, ``model_name``, ``dataset``, ``reward_funcs``, ``processing_class``,
            ``eos_token_ids``; and what else the worker takes, before the config.
        """
        inflight = args.max_inflight_tasks
        if inflight < 0:
            ranks = int(os.environ.get("WORLD_SIZE", "1"))
            step = args.per_device_train_batch_size * args.gradient_accumulation_steps * ranks
            inflight = max(args.max_staleness, 1) * step
        same = (
            "num_generations queue_maxsize temperature top_p top_k min_p repetition_penalty request_timeout "
            "chat_template_kwargs max_tool_calling_iterations log_completions num_completions_to_print "
            "fork_threshold_tokens"
        )
        options = {name: getattr(args, name) for name in same.split()}
        options |= {
            "max_inflight_tasks": inflight,
            "max_tokens": args.max_completion_length,
            "vllm_server_url": args.vllm_server_base_url,
        }
        return cls(**options | kwargs)
