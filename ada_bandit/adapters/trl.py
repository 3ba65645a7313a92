"""Adaptive rollouts for TRL: `AdaptiveGRPOTrainer` is ``GRPOTrainer`` with a policy.

Datasets, reward functions, vLLM, PEFT, accelerate and logging stay as they are::

    from ada_bandit.adapters.trl import AdaptiveGRPOTrainer

    trainer = AdaptiveGRPOTrainer(model, reward_funcs, args, train_dataset, policy="reinforce-ada-balance")

How a step goes. TRL's sampler repeats each prompt ``num_generations`` times, and groups may
straddle ranks. The prompts of all ranks are numbered by global row, and every rank runs the
same `Allocator` under the same seed. Each request is split evenly over the ranks; all of them
generate the same number of responses, so no rank waits for another. What is generated beyond
the request is scored like the rest, as TRL gathers rewards over ranks, then thrown away and
counted in ``ada/padding``. Every reward function sees a response once. When all prompts have
exited, the responses that the policy keeps fill the prompt's rows, go to the ranks that own
these, and take the policy's advantages into TRL's own loss.

Rows without a response. A group has fewer than ``num_generations`` rows when too few responses
got a score, or when the policy did not sample the prompt. The rest of its rows hold an empty
response whose loss mask is 0: it is in no token-wise denominator, and where the loss is a mean
over rows it counts as a row with advantage 0, so a kept row has the same weight in every group.
An empty response that is kept has a mask of 0 as well, as it holds no token to train.

What is left to TRL: the loss, several iterations on a batch, reference and old log-probabilities,
importance sampling, ``mask_truncated_completions``. What the policy decides instead: the
advantages, so ``scale_rewards`` has no effect. Evaluation is TRL's own, one round of
``num_generations_eval``. So is training under the policy ``grpo``: the same batches, random
numbers and losses, with the metrics of the pool logged on top.
"""

from __future__ import annotations

import inspect
import json
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import Advantage, GroupMean, GroupStd
from ada_bandit.allocator import Allocator, Groups
from ada_bandit.errors import AdaBanditError, InputError, ProtocolError, unknown_name
from ada_bandit.memory import PassRateMemory
from ada_bandit.policy import AnyPolicy, Blend, Policy
from ada_bandit.step_specs import read_step_policy
from ada_bandit.steps import FixedPolicy, StepPolicy
from ada_bandit.uniforms import fold_seed

try:
    import torch
    import trl
    from accelerate.logging import get_logger
    from accelerate.utils import gather, gather_object
    from trl import GRPOConfig, GRPOTrainer
    from trl.data_utils import is_conversational
except ImportError as error:
    msg = f"the adapter for TRL needs what isn't installed ({error}): pip install 'ada_bandit[trl]'"
    raise ImportError(msg) from error

__all__ = ["AdaptiveGRPOTrainer", "CorrectFunc", "TRLSurfaceError", "check_trl"]

logger = get_logger(__name__)

CorrectFunc = Callable[[FloatArray, list[dict[str, Any]]], npt.ArrayLike]
"""From rewards ``[response, function]``, NaN where a function gave None, and one dict a response (the dataset's
columns and ``completion``) to whether each response is correct, ``[response]``."""

_MINOR = (1, 16)
_SURFACE: Mapping[str, tuple[str, ...]] = {
    "_generate_and_score_completions": ("inputs",),
    "_generate": ("prompts",),
    "_generate_single_turn": ("prompt_ids", "images", "multimodal_fields", "num_generations"),
    "_tokenize_prompts": ("prompts",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_save_checkpoint": ("model", "trial"),
    "_get_output_dir": ("trial",),
    "_load_optimizer_and_scheduler": ("checkpoint",),
}
_ATTRIBUTES = (
    "_is_vlm",
    "_logs",
    "_metrics",
    "_pending_extra_logs",
    "_tokenizer",
    "eos_token_ids",
    "multi_objective_aggregation",
    "num_generations",
    "reward_funcs",
    "reward_weights",
    "tools",
)
# A mean over rows has the same denominator whatever the mask.
_TOKEN_MEANS = ("bnpo", "cispo", "dapo", "vespo")
_STATE_FILE = "ada_bandit.json"


class TRLSurfaceError(AdaBanditError, RuntimeError):
    """The installed TRL lacks something that the adapter relies on; the message names it."""


def check_trl(trainer: type = GRPOTrainer, version: str = trl.__version__) -> None:
    """Check that the installed TRL is one that the adapter knows, down to the private methods it overrides or calls.

    Raises
    ------
    TRLSurfaceError
        If the version lies outside the tested range, or a method or a parameter is missing.
    """
    wanted = ".".join(map(str, _MINOR))
    following = f"{_MINOR[0]}.{_MINOR[1] + 1}"
    if version.split(".")[:2] != wanted.split("."):
        msg = f"the adapter is tested with TRL {wanted}; got {version}. pip install 'trl>={wanted},<{following}'"
        raise TRLSurfaceError(msg)
    missing = []
    for name, parameters in _SURFACE.items():
        method = getattr(trainer, name, None)
        if method is None:
            missing.append(f"{name}()")
            continue
        known = inspect.signature(method).parameters
        missing += [f"parameter {each!r} of {name}()" for each in parameters if each not in known]
    if missing:
        msg = f"TRL {version} lacks what the adapter relies on: {', '.join(missing)}. pip install 'trl=={wanted}.0'"
        raise TRLSurfaceError(msg)


@dataclass(frozen=True, eq=False)
class _Response:
    """What this rank generated for one id."""

    tokens: list[int]
    logprobs: list[float | None] | None
    extra: dict[str, Any]
    """What the reward functions logged of the response by ``log_extra``."""


@dataclass(eq=False)
class _Step:
    """One generation batch; `row` counts the rows of all ranks, `n` to a prompt."""

    allocator: Allocator
    rows: list[dict[str, Any]]
    """`[prompt]` Rows of the dataset."""
    own: slice
    """The rows of this rank."""
    batch: int
    """Their number."""
    keys: list[Hashable] | None
    """`[prompt]` What the memory knows the prompts by."""
    prompt_ids: dict[int, list[int]] = field(default_factory=dict)
    fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    responses: dict[int, _Response] = field(default_factory=dict)
    """By id: at first this rank's, at last the kept ones of all ranks."""
    asked: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = field(default_factory=list)
    """By round: ids, prompts, rewards ``[response, function]``, weighted sums."""
    tokens: int = 0
    """Generated by this rank, padding left out."""
    padding: int = 0
    """Responses of all ranks that were thrown away."""
    groups: Groups | None = None
    excluded: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """`[row]` Left out of the loss."""
    selected: tuple[list[list[int]], list[Any] | None] | None = None
    """What `_generate_single_turn` hands to TRL: tokens and log-probabilities of this rank's rows."""
    scored: bool = False
    """Whether TRL has taken the rewards."""


class AdaptiveGRPOTrainer(GRPOTrainer):
    """TRL's ``GRPOTrainer`` whose responses are allocated, kept and weighed by a policy.

    Takes everything that ``GRPOTrainer`` takes, and the keywords below.

    Parameters
    ----------
    *args, **kwargs
        As for ``GRPOTrainer``. Not supported under any policy but plain GRPO: tools,
        environments, ``rollout_func``, vision-language models, and
        ``multi_objective_aggregation="normalize_then_sum"``.
    policy
        What decides, as `ada_bandit.specs` reads it: a preset (``"grpo"``, ``"dapo:wanted=64"``), whose
        group size becomes ``num_generations`` where it has that option and does not state it; a
        TOML file; a Python file with an exit rule; a `Policy`; or a step policy such as
        `EmpiricalBayes`. Its group size must be ``num_generations``.
    correct_func
        Says which responses are correct, so that prompts exit on correctness while training is
        on shaped rewards (`CorrectFunc`). Sum of the weighted rewards > ``policy.threshold``
        unless given.
    mask_unresolved
        Leave groups without signal, those that don't hold both classes, out of the loss and of
        its denominator. For losses that are means over tokens: ``dapo``, ``bnpo``, ``cispo``,
        ``vespo``.
    memory
        What is remembered of prompts from step to step, for budgets that look at it. Saved in
        checkpoints.
    memory_key
        Column of the dataset that names a prompt, strings or whole numbers; needed with a memory.

    Attributes
    ----------
    steps : StepPolicy
        What gives each generation batch its allocator.

    Raises
    ------
    InputError
        If an option can't be used, or can't be used with another one.
    TRLSurfaceError
        If the installed TRL is none that the adapter knows.

    Notes
    -----
    Metrics, the same on all ranks: ``ada/pool_reward`` (mean over prompts of the mean reward of
    all their responses) and ``ada/selected_reward`` (of the kept ones, which is TRL's
    ``reward``); ``ada/responses`` and ``ada/tokens``, generated and asked for by the policy,
    where TRL's ``num_tokens`` counts kept rows; ``ada/rounds``; ``ada/signal_fraction``; counts
    of prompts, ``ada/unresolved_no_positive`` and ``ada/unresolved_no_negative``; counts of
    responses, ``ada/unscored`` and ``ada/padding``; ``ada/empty_rows``, rows without a response.
    """

    _pending_extra_logs: Any

    def __init__(
        self,
        *args: Any,
        policy: str | Path | Policy | StepPolicy,
        correct_func: CorrectFunc | None = None,
        mask_unresolved: bool = False,
        memory: PassRateMemory | None = None,
        memory_key: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_trl()
        given = inspect.signature(GRPOTrainer).bind(*args, **kwargs).arguments
        config = GRPOConfig if given.get("args") is None else given["args"]
        self.steps = read_step_policy(policy, memory, group_size=config.num_generations)
        for _, part in self.policy.parts:
            _check_group(part, config.num_generations)
        self.correct_func = correct_func
        self.mask_unresolved = mask_unresolved
        self.memory_key = memory_key
        self._ada_latest: Allocator | None = None
        self._ada_plain = _is_plain(self.steps, config) and not mask_unresolved
        self._ada_step: _Step | None = None
        self._ada_seeded = (-1, 0)
        _check_options(self.steps, config, mask_unresolved, memory_key, given.get("train_dataset"))
        if not self._ada_plain:
            _check_supported(given, config)
        super().__init__(*args, **kwargs)
        if missing := [name for name in _ATTRIBUTES if not hasattr(self, name)]:
            msg = f"TRL {trl.__version__} lacks attributes that the adapter relies on: {', '.join(missing)}"
            raise TRLSurfaceError(msg)
        if self._is_vlm and not self._ada_plain:
            msg = (
                f"the adapter does not carry images; got the processor {type(self.processing_class).__name__} of a "
                "vision-language model. Pass its tokenizer as processing_class, or use policy='grpo'"
            )
            raise InputError(msg)
        if not self._ada_plain:
            _explain_scale(self.policy.parts[0][1].advantage, self.args)

    @property
    def policy(self) -> AnyPolicy:
        """The policy of a prompt that was never seen, as it is now."""
        return self.steps.policy

    @property
    def allocator(self) -> Allocator:
        """That of the latest generation batch, such as for ``print(trainer.allocator.summary())``.

        Raises
        ------
        ProtocolError
            If no batch was sampled yet.
        """
        if self._ada_latest is None:
            msg = "no batch was sampled yet: there is an allocator after the first step of train()"
            raise ProtocolError(msg)
        return self._ada_latest

    # What TRL calls, in this order.

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            return output
        self._ada_step = step = self._ada_begin(inputs)
        self._ada_latest = step.allocator
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            self._ada_step = None
        if not step.scored or step.groups is None:
            msg = f"TRL {trl.__version__} no longer calls _generate() and _calculate_rewards() once a batch"
            raise TRLSurfaceError(msg)
        if not self._ada_plain:
            every = np.where(step.excluded, 0.0, step.groups.advantages.ravel())
            theirs = output["advantages"]
            output["advantages"] = torch.as_tensor(every[step.own], dtype=theirs.dtype, device=theirs.device)
            shown = self._logs["advantages"]
            for _ in range(min(len(shown), every.size)):
                shown.pop()
            shown.extend(every.tolist())
        self._ada_finish(step)
        return output

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        step = self._ada_step
        if step is None or self._ada_plain:
            plain: tuple[Any, ...] = super()._generate(prompts)
            return plain
        while request := step.allocator.ask():
            self._ada_round(step, request.ids, request.prompts)
        self._ada_select(step)
        # TRL decodes and counts the rows, and asks `_generate_single_turn` for them.
        output: tuple[Any, ...] = super()._generate(prompts)
        if len(output) != 8 or output[2] is not None:
            msg = f"TRL {trl.__version__} returns other parts from _generate() than the adapter knows"
            raise TRLSurfaceError(msg)
        excluded = step.excluded[step.own]
        # TRL's mask of tool tokens: multiplied into the loss and its denominators, not into attention.
        mask = [[int(not out)] * len(ids) for ids, out in zip(output[1], excluded, strict=True)]
        return (*output[:2], mask if excluded.any() else None, *output[3:])

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: dict[str, Any],
        num_generations: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        step = self._ada_step
        if step is not None and step.selected is not None:
            selected, step.selected = step.selected, None
            return selected
        generated: tuple[Any, Any] = super()._generate_single_turn(
            prompt_ids, images, multimodal_fields, num_generations, *args, **kwargs
        )
        return generated

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> Any:
        step = self._ada_step
        if step is None:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        step.scored = True
        if self._ada_plain:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            self._ada_watch(step, rewards, inputs, completions, completion_ids_list)
            return rewards
        ids = _of(step.groups).ids.ravel()
        columns = {column for number in ids[step.own] if number >= 0 for column in step.responses[number].extra}
        for column in columns:
            values = [step.responses[number].extra.get(column) if number >= 0 else None for number in ids[step.own]]
            self._pending_extra_logs[column].extend(values)
        told, _, by_function, _ = _joined(step.asked, len(self.reward_funcs))
        order = np.argsort(told)
        stored = np.full((ids.size, by_function.shape[1]), np.nan)
        stored[ids >= 0] = by_function[order[np.searchsorted(told, ids[ids >= 0], sorter=order)]]
        return torch.as_tensor(stored, dtype=torch.float32, device=self.accelerator.device)

    # The parts of a step.

    def _ada_begin(self, inputs: list[dict[str, Any]]) -> _Step:
        """Number the prompts of all ranks and start an allocator."""
        ranks, rank, batch = self.accelerator.num_processes, self.accelerator.process_index, len(inputs)
        every: list[dict[str, Any]] = [] if self._ada_plain else gather_object(inputs)
        rows = every[:: self.num_generations]
        prompts = batch * ranks // self.num_generations
        if not self._ada_plain:
            _check_rows(every, batch * ranks, self.num_generations)
            _check_text(rows)
        latest, count = self._ada_seeded
        now = self.state.global_step
        self._ada_seeded = (now, count + 1 if latest == now else 0)
        seed = fold_seed(self.args.seed % 2**64, *self._ada_seeded)
        keys = None if self.memory_key is None else _memory_keys(rows, self.memory_key)
        allocator = self.steps.allocator(prompts, seed, keys)
        for policy in allocator.policies:
            _check_group(policy, self.num_generations)
        return _Step(allocator, rows, slice(rank * batch, (rank + 1) * batch), batch, keys)

    def _ada_round(self, step: _Step, ids: IntArray, prompts: IntArray) -> None:
        """Generate and score this rank's share of a request, and tell the allocator all of it."""
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        share = -(-ids.size // ranks)
        place = np.arange(rank * share, (rank + 1) * share)
        # All ranks take part in every collective call, so those beyond the request repeat its last response.
        numbers = prompts[np.minimum(place, ids.size - 1)].tolist()
        self._ada_tokenize(step, sorted(set(numbers) - step.prompt_ids.keys()))
        tokens, logprobs = self._ada_sample(step, numbers)
        rows = [step.rows[number] for number in numbers]
        texts = [_copied(row["prompt"]) for row in rows]
        completions = self._ada_decode(texts, [step.prompt_ids[number] for number in numbers], tokens)

        logged, self._pending_extra_logs = self._pending_extra_logs, defaultdict(list)
        try:
            scores = super()._calculate_rewards(rows, texts, completions, tokens)
        finally:
            extras, self._pending_extra_logs = self._pending_extra_logs, logged
        for column, values in extras.items():
            if len(values) != share:
                msg = f"log_extra({column!r}, …) needs a value for each of {share} responses; got {len(values)}"
                raise InputError(msg)
        sums, correct = self._ada_judge(scores, rows, completions, place)
        by_function = scores[: ids.size].double().cpu().numpy()
        step.allocator.tell(ids, sums[: ids.size], None if correct is None else correct[: ids.size])

        step.asked.append((ids, prompts, by_function, sums[: ids.size]))
        step.padding += share * ranks - ids.size
        for i in np.nonzero(place < ids.size)[0]:
            extra = {column: values[i] for column, values in extras.items()}
            own = None if logprobs is None else logprobs[i]
            step.responses[int(ids[place[i]])] = _Response(tokens[i], own, extra)
            step.tokens += len(tokens[i])

    def _ada_tokenize(self, step: _Step, numbers: list[int]) -> None:
        if not numbers:
            return
        tokenized, images, fields = super()._tokenize_prompts([_copied(step.rows[i]["prompt"]) for i in numbers])
        if images is not None:
            msg = "the adapter does not carry images, and a prompt holds some; use policy='grpo', or prompts of text"
            raise InputError(msg)
        for i, number in enumerate(numbers):
            step.prompt_ids[number] = tokenized[i]
            step.fields[number] = {name: values[i] for name, values in fields.items()}

    def _ada_sample(self, step: _Step, numbers: list[int]) -> tuple[list[list[int]], list[list[float | None]] | None]:
        """Generate one response for each entry of `numbers`, by TRL's own means."""
        # transformers holds all rows in memory at once: no more of them than in a batch of plain GRPO.
        most = len(numbers) if self.use_vllm or self.use_transformers_continuous_batching else step.batch
        tokens: list[list[int]] = []
        logprobs: list[list[float | None]] = []
        for first in range(0, len(numbers), most):
            part = numbers[first : first + most]
            fields = {name: [step.fields[number][name] for number in part] for name in step.fields[part[0]]}
            more, logs = super()._generate_single_turn([step.prompt_ids[number] for number in part], None, fields, 1)
            tokens += more
            logprobs += logs or []
        return tokens, logprobs or None

    def _ada_decode(self, prompts: list[Any], prompt_ids: list[list[int]], tokens: list[list[int]]) -> list[Any]:
        """Decode responses as TRL's ``_generate`` does."""
        if not is_conversational({"prompt": prompts[0]}):
            decoded: list[Any] = self.processing_class.batch_decode(tokens, skip_special_tokens=True)
            return decoded
        if any(getattr(self._tokenizer, name, None) is not None for name in ("response_template", "response_schema")):
            from trl.chat_template_utils import parse_response

            return [
                [parse_response(self._tokenizer, ids, prefix=prefix, tools=self.tools)]
                for ids, prefix in zip(tokens, prompt_ids, strict=True)
            ]
        texts = self.processing_class.batch_decode(tokens, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts]

    def _ada_judge(
        self, scores: Any, rows: list[dict[str, Any]], completions: list[Any], place: IntArray
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return the weighted sums of all ranks' responses, and whether they are correct where a function says so.

        NaN where no function gave a score.
        """
        sums = (scores * self.reward_weights.to(scores.device)).nansum(dim=1)
        sums = sums.masked_fill(scores.isnan().all(dim=1), torch.nan).double().cpu().numpy()
        if self.correct_func is None:
            return sums, None
        inputs = [row | {"completion": completion} for row, completion in zip(rows, completions, strict=True)]
        answer = self.correct_func(scores[place].double().cpu().numpy(), inputs)
        flags = np.asarray(answer, dtype=np.float64)
        if flags.shape != place.shape:
            msg = f"correct_func must return one value a response, {place.size} of them; got {answer!r}"
            raise InputError(msg)
        every = gather(torch.as_tensor(flags, dtype=torch.float32, device=self.accelerator.device))
        return sums, every.double().cpu().numpy()

    def _ada_select(self, step: _Step) -> None:
        """Take the groups, and lay out this rank's rows for TRL."""
        step.groups = groups = step.allocator.groups()
        kept = set(groups.ids[groups.mask].tolist())
        mine = [(number, step.responses[number]) for number in sorted(kept & step.responses.keys())]
        step.responses = dict(gather_object(mine))
        ids = groups.ids.ravel()
        empty = np.array([number < 0 or not step.responses[number].tokens for number in ids.tolist()], dtype=np.bool_)
        unwanted = np.repeat(~groups.signal & self.mask_unresolved, self.num_generations)
        step.excluded = empty | unwanted
        tokens, logprobs = [], []
        for number, is_empty in zip(ids[step.own].tolist(), empty[step.own], strict=True):
            # TRL looks at the last token of every row.
            tokens.append([self._tokenizer.eos_token_id] if is_empty else step.responses[number].tokens)
            logprobs.append([0.0] if is_empty else step.responses[number].logprobs)
        # vLLM gives log-probabilities with its tokens, and TRL asks for them even if nothing was kept.
        step.selected = (tokens, logprobs if self.use_vllm else None)

    def _ada_watch(
        self, step: _Step, scores: Any, inputs: list[dict[str, Any]], completions: list[Any], tokens: list[list[int]]
    ) -> None:
        """Take note of a batch that was sampled by TRL itself, for the metrics."""
        request = step.allocator.ask()
        sums, correct = self._ada_judge(scores, inputs, completions, np.arange(step.own.start, step.own.stop))
        sums[np.isinf(sums)] = np.nan
        step.allocator.tell(request.ids, sums, correct)
        step.asked.append((request.ids, request.prompts, scores.double().cpu().numpy(), sums))
        step.tokens = sum(len(ids) for ids in tokens)
        step.groups = step.allocator.groups()

    def _ada_finish(self, step: _Step) -> None:
        """Log the step and remember it."""
        groups, counts = _of(step.groups), step.allocator.metrics()
        _, prompts, _, sums = _joined(step.asked, len(self.reward_funcs))
        tokens = gather(torch.tensor([step.tokens], device=self.accelerator.device)).sum().item()
        for name, value in {
            "pool_reward": _mean_over_prompts(prompts, sums),
            "selected_reward": float(groups.rewards[groups.mask].mean()) if groups.mask.any() else math.nan,
            "responses": counts["responses"],
            "tokens": tokens,
            "rounds": counts["rounds"],
            "signal_fraction": counts["signal_fraction"],
            "unresolved_no_positive": counts["unresolved_no_positive"],
            "unresolved_no_negative": counts["unresolved_no_negative"],
            "unscored": counts["unscored"],
            "padding": step.padding,
            "empty_rows": int((~groups.mask).sum()),
        }.items():
            self._metrics["train"][f"ada/{name}"].append(float(value))
        self.steps.observe(step.allocator, step.keys)

    # Checkpoints.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.steps.learns and self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            text = json.dumps(self.steps.state_dict(), default=lambda value: value.tolist())
            (folder / _STATE_FILE).write_text(text, encoding="utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or not self.steps.learns:
            return
        file = Path(checkpoint, _STATE_FILE)
        if not file.exists():
            msg = f"{file} is missing: what the run remembered of its prompts is not restored"
            logger.warning(msg)
            return
        self.steps.load_state_dict(json.loads(file.read_text(encoding="utf-8")))


def _of(groups: Groups | None) -> Groups:
    if groups is None:
        msg = f"TRL {trl.__version__} asks for rewards before responses"
        raise TRLSurfaceError(msg)
    return groups


def _joined(
    asked: Sequence[tuple[IntArray, IntArray, FloatArray, FloatArray]], functions: int
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return ids, prompts, rewards ``[response, function]`` and weighted sums of all rounds."""
    none = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros((0, functions)), np.zeros(0))
    ids, prompts, by_function, sums = (np.concatenate(parts) for parts in zip(none, *asked, strict=True))
    return ids, prompts, by_function, sums


def _mean_over_prompts(prompts: IntArray, sums: FloatArray) -> float:
    scored = ~np.isnan(sums)
    count = np.bincount(prompts[scored])
    total = np.bincount(prompts[scored], sums[scored])
    return float((total[count > 0] / count[count > 0]).mean()) if count.any() else math.nan


def _copied(prompt: Any) -> Any:
    """Copy the messages of a prompt: TRL hands every response its own, and reward functions may change them."""
    if isinstance(prompt, str):
        return prompt
    return [dict(message) for message in prompt]


def _check_rows(rows: list[dict[str, Any]], size: int, n: int) -> None:
    whole = len(rows) == size and size % n == 0
    wrong = [i for i in range(len(rows)) if rows[i]["prompt"] != rows[i - i % n]["prompt"]] if whole else []
    if not whole or wrong:
        what = f"row {wrong[0]} differs from row {wrong[0] - wrong[0] % n}" if wrong else f"{len(rows)} rows for {size}"
        msg = (
            f"the batch of all ranks must hold every prompt num_generations = {n} times in a row; {what}. "
            "Keep TRL's own sampler and data loader"
        )
        raise InputError(msg)


def _check_text(rows: list[dict[str, Any]]) -> None:
    """Refuse images on every rank at once: one that stopped alone would leave the others waiting."""
    for number, row in enumerate(rows):
        messages = [] if isinstance(row["prompt"], str) else row["prompt"]
        contents = [message.get("content") for message in messages]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        if any(isinstance(part, dict) and part.get("type") == "image" for part in parts):
            msg = f"the adapter does not carry images, and prompt {number} holds some; use policy='grpo', or text alone"
            raise InputError(msg)


def _memory_keys(rows: list[dict[str, Any]], column: str) -> list[Hashable]:
    keys: list[Hashable] = []
    for row in rows:
        key = row.get(column)
        if not isinstance(key, (str, int)):
            msg = (
                f"memory_key = {column!r} must be a column of strings or whole numbers that name the prompts; got "
                f"{key!r} in a row with the columns {', '.join(row)}. Add such a column, and keep "
                "remove_unused_columns=False"
            )
            raise InputError(msg)
        keys.append(key)
    return keys


def _check_group(policy: Policy, n: int) -> None:
    if policy.n != n:
        msg = (
            f"the policy {policy.label!r} keeps group_size = {policy.n} responses a prompt, and TRL trains "
            f"num_generations = {n} rows a prompt; set GRPOConfig(num_generations={policy.n}) or group_size={n}"
        )
        raise InputError(msg)
    tables = policy.tables
    pos, neg = np.indices(tables.keep.shape)
    most = int(tables.keep[pos + neg <= tables.max_samples].max(initial=0))
    if most > n:
        msg = (
            f"the policy {policy.label!r} keeps up to {most} responses a prompt by its group rule "
            f"{policy.group.name!r}, and TRL trains num_generations = {n} rows a prompt; use group='balanced', or "
            f"GRPOConfig(num_generations={most}) with group_size={most}"
        )
        raise InputError(msg)


def _is_plain(steps: StepPolicy, config: Any) -> bool:
    """Whether the policy is what TRL does by itself: one round of n, all of them kept."""
    if not isinstance(steps, FixedPolicy) or steps.learns:
        return False
    policy = steps.policy
    if isinstance(policy, Blend):
        return False
    tables = policy.tables
    pos, neg = np.indices(tables.keep.shape)
    full = pos + neg == policy.n
    if tables.shared or policy.budget.sizes != (policy.n,) or (tables.keep[full] < policy.n).any():
        return False
    # TRL scales as `scale_rewards` says, whatever the policy's name for it.
    unscaled = isinstance(policy.advantage, GroupMean) and config.scale_rewards == "none"
    return policy.advantage == GroupStd() or unscaled


def _check_options(steps: StepPolicy, config: Any, mask_unresolved: bool, memory_key: str | None, dataset: Any) -> None:
    if mask_unresolved and config.loss_type not in _TOKEN_MEANS:
        msg = (
            f"mask_unresolved leaves groups out of the loss's denominator, and loss_type = {config.loss_type!r} "
            f"divides by all rows whatever is masked; use one of {', '.join(map(repr, _TOKEN_MEANS))}"
        )
        raise InputError(msg)
    if (steps.memory is None) != (memory_key is None):
        has, lacks = ("memory", "memory_key") if memory_key is None else ("memory_key", "memory")
        msg = f"a memory and the column that names its prompts go together; got a {has} and no {lacks}"
        raise InputError(msg)
    columns = getattr(dataset, "column_names", None)
    if memory_key is not None and columns is not None and memory_key not in columns:
        raise unknown_name("column for memory_key", memory_key, columns)


def _check_supported(given: Mapping[str, Any], config: Any) -> None:
    instead = "use policy='grpo', which leaves sampling to TRL"
    for name in ("tools", "rollout_func", "environment_factory"):
        if given.get(name):
            msg = (
                f"{name} = {given[name]!r} can't be combined with an adaptive policy: responses are one turn; {instead}"
            )
            raise InputError(msg)
    if config.multi_objective_aggregation != "sum_then_normalize":
        msg = (
            f"multi_objective_aggregation = {config.multi_objective_aggregation!r} normalises each reward within a "
            "group, where a policy weighs their sum by the whole pool; use 'sum_then_normalize'"
        )
        raise InputError(msg)
    columns = getattr(given.get("train_dataset"), "column_names", None) or ()
    if found := [name for name in ("image", "images") if name in columns]:
        msg = f"the adapter does not carry images, and the dataset has the column {found[0]!r}; drop it, or {instead}"
        raise InputError(msg)


def _explain_scale(advantage: Advantage, config: Any) -> None:
    if config.scale_rewards != "none" and not isinstance(advantage, GroupStd):
        msg = (
            f"scale_rewards={config.scale_rewards!r} has no effect: the policy's advantage {advantage.name!r} is "
            "used as it is. Set scale_rewards='none' to say so"
        )
        logger.warning(msg)
