"""The trainer: how a step of ``GRPOTrainer`` goes under a policy.

TRL's sampler repeats each prompt ``num_generations`` times, and groups may straddle ranks. The
prompts of all ranks are numbered by global row, and every rank runs the same `Allocator` under the
same seed. Each request is split evenly over the ranks; all of them generate the same number of
responses, so no rank waits for another. What is generated beyond the request is scored like the
rest, as TRL gathers rewards over ranks, then thrown away and counted in ``ada/padding``. Every
reward function sees a response once. When all prompts have exited, the responses that the policy
keeps fill the prompt's rows, go to the ranks that own these, and take the policy's advantages into
TRL's own loss.

What is in the loss. The kept rows, and nothing else. Rows of the batch that hold no kept response (too
few responses got a score, the policy left the group out or did not sample the prompt) hold an empty
response whose loss mask is 0. They are in no denominator: a mean over tokens doesn't see them, and
a loss that is a mean over rows is scaled to the kept rows of the generation batch. A group
without signal that the policy masks keeps its rows, with advantage 0, in the denominator; the KL term
and an entropy bonus, which don't look at rewards, act on them as on all kept rows.

What has no vote. A response without a score, and under ``mask_truncated_completions`` one that was
truncated: neither exits nor baselines see it, it is never kept, so no kept row is masked later.

What is left to TRL: the loss, several iterations on a batch, reference and old log-probabilities,
importance sampling. What the policy decides instead: the advantages, so ``scale_rewards`` has no
effect. Evaluation is TRL's own, one round of ``num_generations_eval``. So is sampling under the policy
``grpo``: the same batches, random numbers and advantages. There the policy's word on groups without
signal, on truncated responses and on those without a score is kept on top, and ``no_signal="keep"``
leaves everything to TRL.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import trl
from accelerate.logging import get_logger
from accelerate.utils import gather, gather_object
from torch import nn
from trl import GRPOConfig, GRPOTrainer
from trl.data_utils import is_conversational

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.adapters._pool_log import FILE_NAME, PoolLog
from ada_bandit.adapters.trl.options import (
    check_group,
    check_options,
    check_plain,
    check_rows,
    check_supported,
    check_text,
    explain_correctness,
    explain_scale,
    explain_short_pools,
    is_plain,
)
from ada_bandit.adapters.trl.pools import pool_lines, prompt_id
from ada_bandit.adapters.trl.step import (
    Response,
    Round,
    Step,
    centred,
    copied,
    mean_over_prompts,
    memory_keys,
    part_columns,
    settled,
)
from ada_bandit.adapters.trl.surface import TRLSurfaceError, check_attributes, check_trl
from ada_bandit.allocator import Allocator, Groups
from ada_bandit.errors import InputError, ProtocolError
from ada_bandit.memory import PassRateMemory
from ada_bandit.policy import AnyPolicy, Blend, Policy
from ada_bandit.specs import Spec
from ada_bandit.step_specs import read_step_policy
from ada_bandit.steps import FixedPolicy, StepPolicy
from ada_bandit.tables import NoSignal
from ada_bandit.uniforms import fold_seed

__all__ = ["AdaptiveGRPOTrainer", "CorrectFunc"]

logger = get_logger(__name__)

CorrectFunc = Callable[[FloatArray, list[dict[str, Any]]], npt.ArrayLike]
"""From rewards ``[response, function]``, NaN where a function gave None, and one dict a response (the dataset's
columns and ``completion``) to whether each response is correct, ``[response]``."""

# Their denominators count rows, whatever is masked in them.
_ROW_MEANS = ("grpo", "sapo", "dr_grpo", "luspo")
_SCALE = "ada_scale"
_STATE_FILE = "ada_bandit.json"
_MUCH = 0.1
"""Share of responses without a score above which a step is warned of."""
_BARREN = 5
"""Steps in a row without any correct response after which the threshold is doubted."""


class _Collected(Exception):  # noqa: N818 - no error: it ends TRL's method where the adapter has what it wants
    """Carries what TRL has generated out of its own preparation of a batch."""

    def __init__(self, prompts: list[Any], output: tuple[Any, ...]) -> None:
        super().__init__()
        self.prompts = prompts
        self.output = output


class AdaptiveGRPOTrainer(GRPOTrainer):
    """TRL's ``GRPOTrainer`` whose responses are allocated, kept and weighed by a policy.

    Takes everything that ``GRPOTrainer`` takes, and the keywords below.

    Parameters
    ----------
    *args, **kwargs
        As for ``GRPOTrainer``. Not supported under any policy but plain GRPO: ``rollout_func``,
        vision-language models, and ``multi_objective_aggregation="normalize_then_sum"``.
    policy
        What decides, as `ada_bandit.specs` reads it: a preset (``"grpo"``, ``"dapo:wanted=64"``), whose
        group size becomes ``num_generations`` where it has that option and does not state it; a
        TOML file; a Python file with an exit rule; a `Policy`; or a step policy such as
        `EmpiricalBayes`. Its group size must be ``num_generations``.
    correct_func
        Says which responses are correct, so that prompts exit on correctness while training is
        on shaped rewards (`CorrectFunc`). Sum of the weighted rewards > ``policy.threshold``
        unless given.
    no_signal
        What becomes of a group whose rows have no advantage by their correctness, in place of what the
        policy says: ``"mask"``, ``"leave_out"`` or ``"keep"`` (`Policy.no_signal`).
    max_unscored
        Share of a step's responses without a score, in [0, 1], above which the run stops with
        `ada_bandit.allocator.UnscoredError`; any share is put up with unless given, and a warning
        tells of more than a tenth. Truncated responses count where they are masked.
    memory
        What is remembered of prompts from step to step, for budgets that look at it. Saved in
        checkpoints.
    memory_key
        Column of the dataset that names a prompt, strings or whole numbers; needed with a memory.
    pool_log
        Whether the pools are written to ``{output_dir}/ada_pools.jsonl`` (docs/adapters.md).
    rows_at_once
        Rows that transformers generates, and a reward model scores, in one call; as many as this
        rank has in a batch of plain GRPO unless given. More is faster and takes more memory.

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
    all their scored responses) and ``ada/selected_reward`` (of the kept ones, which is TRL's
    ``reward``); ``ada/responses`` and ``ada/tokens``, generated and asked for by the policy,
    where TRL's ``num_tokens`` and ``completions/*`` count kept rows; ``ada/rounds``; ``ada/threshold``;
    ``ada/signal_fraction`` of the sampled prompts; counts of prompts, ``ada/unsampled``, ``ada/silent``,
    ``ada/masked``, ``ada/left_out``, ``ada/unresolved_no_positive`` and ``ada/unresolved_no_negative``; counts of
    responses, ``ada/unscored``, ``ada/replaced`` and ``ada/padding``, and ``ada/unscored_fraction``;
    ``ada/empty_rows``, rows of the batch that are no kept response; ``ada/dropped_rows``, kept rows that TRL's
    importance sampling took out of the loss, where vLLM's log-probabilities are corrected for; ``ada/off_policy_rows``,
    those that its off-policy mask took out, the mean of a micro-batch.
    """

    beta: float
    _pending_extra_logs: Any
    _pending_metrics: Any

    # TRL's own tests, among others, make trainers without __init__.
    correct_func: CorrectFunc | None = None
    max_unscored: float | None = None
    memory_key: str | None = None
    rows_at_once: int | None = None
    _ada_ready = False
    _ada_plain = True
    _ada_exact = True
    _ada_step: Step | None = None
    _ada_latest: Allocator | None = None
    _ada_seeded = (-1, 0)
    _ada_barren = 0
    _ada_logged = False
    _ada_log: PoolLog | None = None

    def __init__(
        self,
        *args: Any,
        policy: Spec | StepPolicy,
        correct_func: CorrectFunc | None = None,
        no_signal: NoSignal | None = None,
        max_unscored: float | None = None,
        memory: PassRateMemory | None = None,
        memory_key: str | None = None,
        pool_log: bool = True,
        rows_at_once: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_trl()
        given = inspect.signature(GRPOTrainer).bind(*args, **kwargs).arguments
        config = GRPOConfig if given.get("args") is None else given["args"]
        self.steps = read_step_policy(policy, memory, group_size=config.num_generations, no_signal=no_signal)
        for _, part in self.policy.parts:
            check_group(part, config.num_generations)
        self.correct_func = correct_func
        self.max_unscored = max_unscored
        self.memory_key = memory_key
        self.rows_at_once = rows_at_once
        self._ada_plain = is_plain(self.steps, config)
        self._ada_exact = self._ada_plain and _no_signal(self.policy) == "keep"
        check_options(
            self.steps,
            memory_key,
            given.get("train_dataset"),
            max_unscored=max_unscored,
            rows_at_once=rows_at_once,
        )
        if self._ada_plain:
            check_plain(config, _no_signal(self.policy))
        else:
            check_supported(given, config)
        super().__init__(*args, **kwargs)
        check_attributes(self)
        if self._is_vlm and not self._ada_plain:
            msg = (
                f"the adapter does not carry images; got the processor {type(self.processing_class).__name__} of a "
                "vision-language model. Pass its tokenizer as processing_class, or use policy='grpo'"
            )
            raise InputError(msg)
        self._ada_ready = True
        self._ada_logged = pool_log
        if pool_log and self.accelerator.is_main_process:
            self._ada_log = PoolLog(Path(self.args.output_dir, FILE_NAME))
        if not self._ada_plain:
            explain_scale(self.policy.parts[0][1].advantage, self.args)
            if isinstance(self.steps, FixedPolicy):
                for _, part in self.policy.parts:
                    explain_short_pools(part)
        if correct_func is None and len(self.reward_funcs) > 1:
            explain_correctness(self.reward_func_names, self.reward_weights.tolist(), self.policy.threshold)

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
        if not self.model.training or not self._ada_ready:
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
            ids, every = step.groups.ids.ravel(), step.groups.advantages.ravel().copy()
            # An empty response that is kept has no token to train.
            every[[number >= 0 and not step.responses[number].tokens for number in ids.tolist()]] = 0
            self._ada_weigh(output, step.own, every)
            self._ada_normalise(output, int(step.groups.mask.sum()), step.groups.mask.size)
        elif not self._ada_exact:
            self._ada_mend(step, output)
        self._ada_finish(step, output)
        return output

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        step = self._ada_step
        if step is None or self._ada_plain or step.collecting:
            plain: tuple[Any, ...] = super()._generate(prompts)
            if step is not None and step.collecting:
                raise _Collected(prompts, plain)
            if step is not None:
                step.tool_masks = plain[2]
            return plain
        batch = self._ada_environment()
        while request := step.allocator.ask():
            self._ada_round(step, request.ids, request.prompts)
        for name, value in batch.items():
            setattr(self, name, value)
        return self._ada_select(step, prompts)

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, *args: Any, **kwargs: Any
    ) -> Any:
        if self._ada_step is not None and self._ada_step.collecting:
            # The rows of a round are no groups of num_generations.
            num_generations = 1
        return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, *args, **kwargs)

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> Any:
        step = self._ada_step
        if step is None or self._ada_plain:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            for column, values in part_columns(self._pending_extra_logs, len(prompts)).items():
                self._pending_extra_logs[column] = values
            if step is not None:
                step.scored = True
                self._ada_watch(step, rewards, inputs, completions, completion_ids_list)
            return rewards
        step.scored = True
        ids = settled(step.groups).ids.ravel()
        columns = {column for number in ids[step.own] if number >= 0 for column in step.responses[number].extra}
        for column in columns:
            values = [step.responses[number].extra.get(column) if number >= 0 else None for number in ids[step.own]]
            self._pending_extra_logs[column].extend(values)
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for name, (total, weight) in gather_object([(k, tuple(v)) for k, v in step.metrics.items()]):
            sums[name][0] += total
            sums[name][1] += weight
        for name, (total, weight) in sums.items():
            # TRL averages over ranks, all of which give the mean over all responses.
            self._pending_metrics[name] = [total / weight if weight else math.nan]
        every = step.joined(len(self.reward_funcs))
        order = np.argsort(every.ids)
        stored = np.full((ids.size, every.by_function.shape[1]), np.nan)
        stored[ids >= 0] = every.by_function[order[np.searchsorted(every.ids, ids[ids >= 0], sorter=order)]]
        return torch.as_tensor(stored, dtype=torch.float32, device=self.accelerator.device)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        scale, beta = inputs.get(_SCALE), self.beta
        if scale is not None:
            # Each of these losses is linear in advantages and beta, so its mean over rows becomes one over kept rows,
            # while an entropy bonus, a mean over tokens of its own, stays what it is.
            self.beta = beta * float(scale)
            inputs = inputs | {"advantages": inputs["advantages"] * scale}
        if self.off_policy_mask_threshold is not None and self.model.training:
            # TRL calls it on the trainer, so an attribute of the trainer comes first.
            self.get_off_policy_mask = self._ada_off_policy_mask
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = beta
            self.__dict__.pop("get_off_policy_mask", None)

    def _ada_off_policy_mask(self, *args: Any, **kwargs: Any) -> Any:
        """Return TRL's mask of rows, and log how many it takes out of the loss."""
        mask = GRPOTrainer.get_off_policy_mask(*args, **kwargs)
        dropped = ((mask == 0) & kwargs["mask"].bool().any(dim=1, keepdim=True)).sum()
        self._metrics["train"]["ada/off_policy_rows"].append(float(self.accelerator.gather(dropped).sum().item()))
        return mask

    # The parts of a step.

    def _ada_begin(self, inputs: list[dict[str, Any]]) -> Step:
        """Number the prompts of all ranks and start an allocator."""
        ranks, rank, batch = self.accelerator.num_processes, self.accelerator.process_index, len(inputs)
        every: list[dict[str, Any]] = [] if self._ada_plain else gather_object(inputs)
        rows = every[:: self.num_generations]
        prompts = batch * ranks // self.num_generations
        if not self._ada_plain:
            check_rows(every, batch * ranks, self.num_generations)
            check_text(rows)
        latest, count = self._ada_seeded
        now = self.state.global_step
        self._ada_seeded = (now, count + 1 if latest == now else 0)
        seed = fold_seed(self.args.seed % 2**64, *self._ada_seeded)
        keys = None if self.memory_key is None else memory_keys(rows, self.memory_key)
        allocator = self.steps.allocator(prompts, seed, keys)
        for policy in allocator.policies:
            check_group(policy, self.num_generations)
        if self.max_unscored is not None:
            allocator.max_unscored = self.max_unscored
        if self._ada_latest is None:
            rule = "by correct_func" if self.correct_func else f"where its reward exceeds {self.policy.threshold:g}"
            what = _no_signal(self.policy)
            msg = f"policy {self.policy.label!r}: a response is correct {rule}; groups without signal: {what!r}"
            logger.info(msg)
        step = Step(allocator, rows, slice(rank * batch, (rank + 1) * batch), batch, keys)
        if self._ada_logged:
            whole = bool(self.environment_factories)
            names = [prompt_id(row, self.memory_key, whole=whole) for row in (inputs if self._ada_plain else rows)]
            step.names = gather_object(names)[:: self.num_generations] if self._ada_plain else names
        return step

    def _ada_round(self, step: Step, ids: IntArray, prompts: IntArray) -> None:
        """Generate and score this rank's share of a request, and tell the allocator all of it."""
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        share = -(-ids.size // ranks)
        place = np.arange(rank * share, (rank + 1) * share)
        # All ranks take part in every collective call, so those beyond the request repeat its last response.
        numbers = prompts[np.minimum(place, ids.size - 1)].tolist()
        real = place < ids.size
        interactive = bool(self.tools or self.environment_factories)
        most = self.rows_at_once or step.batch
        responses = [] if interactive else self._ada_sample(step, numbers)
        # An environment is used again once its rollout has its score, and a reward model takes what fits in memory.
        chunked = interactive or any(isinstance(each, nn.Module) for each in self.reward_funcs)
        width = most if chunked else share
        parts = []
        for first in range(0, share, width):
            chunk = slice(first, min(first + width, share))
            rows = [dict(step.rows[number]) for number in numbers[chunk]]
            if interactive:
                texts, rolled = self._ada_interact(step, rows)
                responses += rolled
            else:
                texts = [copied(row["prompt"]) for row in rows]
            scores, extras = self._ada_score(step, rows, texts, responses[chunk], real[chunk])
            parts.append(scores.view(ranks, -1, scores.shape[1]))
            for i, response in enumerate(responses[chunk]):
                response.extra.update({column: values[i] for column, values in extras.items()})
        scores = torch.cat(parts, dim=1).flatten(0, 1)

        self._ada_tell(step, ids, prompts, scores, [step.rows[number] for number in numbers], responses)
        step.padding += share * ranks - ids.size
        for k in np.nonzero(real)[0].tolist():
            step.responses[int(ids[place[k]])] = responses[k]

    def _ada_sample(self, step: Step, numbers: list[int]) -> list[Response]:
        """Generate one response for each entry of `numbers`, by TRL's own means."""
        self._ada_tokenize(step, sorted(set(numbers) - step.prompt_ids.keys()))
        # transformers holds all rows in memory at once: no more of them than in a batch of plain GRPO.
        paged = self.use_vllm or self.use_transformers_continuous_batching
        most = len(numbers) if paged else self.rows_at_once or step.batch
        tokens: list[list[int]] = []
        logprobs: list[list[float | None]] = []
        for first in range(0, len(numbers), most):
            part = numbers[first : first + most]
            fields = {name: [step.fields[number][name] for number in part] for name in step.fields[part[0]]}
            more, logs = super()._generate_single_turn([step.prompt_ids[number] for number in part], None, fields, 1)
            tokens += more
            logprobs += logs or []
        prompt_ids = [step.prompt_ids[number] for number in numbers]
        completions = self._ada_decode(step.rows[numbers[0]]["prompt"], prompt_ids, tokens)
        return [
            Response(prompt, ids, completion, logprobs[i] if logprobs else None, None)
            for i, (prompt, ids, completion) in enumerate(zip(prompt_ids, tokens, completions, strict=True))
        ]

    def _ada_tokenize(self, step: Step, numbers: list[int]) -> None:
        if not numbers:
            return
        tokenized, images, fields = super()._tokenize_prompts([copied(step.rows[i]["prompt"]) for i in numbers])
        if images is not None:
            msg = "the adapter does not carry images, and a prompt holds some; use policy='grpo', or prompts of text"
            raise InputError(msg)
        for i, number in enumerate(numbers):
            step.prompt_ids[number] = tokenized[i]
            step.fields[number] = {name: values[i] for name, values in fields.items()}

    def _ada_decode(self, prompt: Any, prompt_ids: list[list[int]], tokens: list[list[int]]) -> list[Any]:
        """Decode responses as TRL's ``_generate`` does."""
        if not is_conversational({"prompt": prompt}):
            decoded: list[Any] = self.processing_class.batch_decode(tokens, skip_special_tokens=True)
            return decoded
        if any(getattr(self._tokenizer, name, None) is not None for name in ("response_template", "response_schema")):
            from trl.chat_template_utils import parse_response

            return [
                [parse_response(self._tokenizer, ids, prefix=prefix)]
                for ids, prefix in zip(tokens, prompt_ids, strict=True)
            ]
        texts = self.processing_class.batch_decode(tokens, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts]

    def _ada_environment(self) -> dict[str, Any]:
        """Return what TRL sets of environments and tools for a batch."""
        names = ("environments", "_batch_environments", "_sync_tool_dicts", "_async_tool_dicts")
        return {name: vars(self)[name] for name in names if name in vars(self)}

    def _ada_interact(self, step: Step, rows: list[dict[str, Any]]) -> tuple[list[Any], list[Response]]:
        """Roll out one response a row with tools or environments, prepared and run by TRL's own methods.

        Returns the prompts as the environments have completed them, and the responses.
        """
        if all("prompt" in row for row in rows):
            for row in rows:
                row["prompt"] = copied(row["prompt"])
        metrics, self._metrics["train"] = self._metrics["train"], defaultdict(list)
        seen = self.state.num_input_tokens_seen
        step.collecting = True
        try:
            super()._generate_and_score_completions(rows)
        except _Collected as collected:
            prompts, output = collected.prompts, collected.output
        else:
            msg = f"TRL {trl.__version__} no longer calls _generate() once a batch"
            raise TRLSurfaceError(msg)
        finally:
            step.collecting = False
            self.state.num_input_tokens_seen = seen
            logged, self._metrics["train"] = self._metrics["train"], metrics
        if len(output) != 8:
            msg = f"TRL {trl.__version__} returns other parts from _generate() than the adapter knows"
            raise TRLSurfaceError(msg)
        prompt_ids, tokens, mask, completions, logprobs, _, _, images = output
        if any(images):
            msg = "the adapter does not carry images, and a tool returned one; use policy='grpo', or tools of text"
            raise InputError(msg)
        size = len(rows) * self.accelerator.num_processes
        for i, name in enumerate(("tools/call_frequency", "tools/failure_frequency")):
            share = logged[name][-1] if logged.get(name) else 0.0
            step.tools[i] += share * (size if i == 0 else logged["tools/call_frequency"][-1] * size)
        step.tools[2] += size
        responses = [
            Response(ids, tokens[i], completions[i], logprobs[i] if logprobs else None, mask[i] if mask else None)
            for i, ids in enumerate(prompt_ids)
        ]
        return prompts, responses

    def _ada_score(
        self,
        step: Step,
        rows: list[dict[str, Any]],
        texts: list[Any],
        responses: Sequence[Response],
        real: BoolArray,
    ) -> tuple[Any, dict[str, list[Any]]]:
        """Score rows of this rank; return the rewards of all ranks, and this rank's extra columns."""
        held = self._pending_extra_logs, self._pending_metrics
        self._pending_extra_logs, self._pending_metrics = defaultdict(list), defaultdict(list)
        completions, tokens = ([getattr(each, name) for each in responses] for name in ("completion", "tokens"))
        try:
            scores = super()._calculate_rewards(rows, texts, completions, tokens)
            extras, metrics = part_columns(self._pending_extra_logs, len(rows)), self._pending_metrics
        finally:
            self._pending_extra_logs, self._pending_metrics = held
        for column, values in extras.items():
            if len(values) != len(rows):
                msg = f"log_extra({column!r}, …) needs a value for each of {len(rows)} responses; got {len(values)}"
                raise InputError(msg)
        weight = float(real.sum())
        for name, values in metrics.items():
            step.metrics[name][0] += weight * sum(values)
            step.metrics[name][1] += weight * len(values)
        return scores, extras

    def _ada_tell(
        self,
        step: Step,
        ids: IntArray,
        prompts: IntArray,
        scores: Any,
        rows: list[dict[str, Any]],
        responses: Sequence[Response],
    ) -> None:
        """Judge the responses of all ranks, and tell the allocator; `rows` and `responses` are this rank's."""
        eos = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        local = [(each.own, bool(each.tokens) and each.tokens[-1] not in eos) for each in responses]
        facts = gather(torch.tensor(local, dtype=torch.int64, device=self.accelerator.device).view(-1, 2))
        tokens, truncated = facts[: ids.size].cpu().numpy().T
        unscored = scores.isnan().all(dim=1)
        if self.mask_truncated_completions:
            unscored |= facts[:, 1].bool().to(unscored.device)
        sums = (scores * self.reward_weights.to(scores.device)).nansum(dim=1)
        sums = sums.masked_fill(unscored, torch.nan).double().cpu().numpy()[: ids.size]
        if self._ada_plain:
            # TRL trains on infinite rewards without a word: nothing but the metrics depends on them here.
            sums[np.isinf(sums)] = np.nan
        if self.correct_func is None:
            correct = sums > self.policy.threshold
        else:
            flags = self._ada_correct(scores, rows, responses)[: ids.size]
            wrong = ~np.isnan(sums) & (flags != 0) & (flags != 1)
            if wrong.any():
                msg = f"correct_func must return booleans or 0/1; got {flags[wrong][0]:g}"
                raise InputError(msg)
            correct = flags == 1
        step.allocator.tell(ids, sums, correct)
        by_function = scores[: ids.size].double().cpu().numpy()
        step.told.append(Round(ids, prompts, by_function, sums, correct, tokens, truncated.astype(np.bool_)))

    def _ada_correct(self, scores: Any, rows: list[dict[str, Any]], responses: Sequence[Response]) -> FloatArray:
        """Return what `correct_func` says of all ranks' responses."""
        inputs = [row | {"completion": each.completion} for row, each in zip(rows, responses, strict=True)]
        first = self.accelerator.process_index * len(rows)
        answer = cast("CorrectFunc", self.correct_func)(
            scores[first : first + len(rows)].double().cpu().numpy(), inputs
        )
        flags = np.asarray(answer, dtype=np.float64)
        if flags.shape != (len(rows),):
            msg = f"correct_func must return one value a response, {len(rows)} of them; got {answer!r}"
            raise InputError(msg)
        every = gather(torch.as_tensor(flags, dtype=torch.float32, device=self.accelerator.device))
        return np.asarray(every.double().cpu().numpy())

    def _ada_select(self, step: Step, prompts: list[Any]) -> tuple[Any, ...]:
        """Take the groups, and lay out this rank's rows as TRL's ``_generate`` does."""
        step.groups = groups = step.allocator.groups()
        kept = set(groups.ids[groups.mask].tolist())
        mine = [(number, step.responses[number]) for number in sorted(kept & step.responses.keys())]
        step.responses = dict(gather_object(mine))
        own = groups.ids.ravel()[step.own].tolist()
        rows = [step.responses.get(number) for number in own]
        if self.tools or self.environment_factories:
            missing = super()._tokenize_prompts(copy.deepcopy(prompts))[0] if None in rows else []
            prompt_ids = [missing[i] if row is None else row.prompt_ids for i, row in enumerate(rows)]
        else:
            numbers = [place // self.num_generations for place in range(step.own.start, step.own.stop)]
            self._ada_tokenize(step, sorted(set(numbers) - step.prompt_ids.keys()))
            prompt_ids = [step.prompt_ids[number] for number in numbers]
        conversational = is_conversational({"prompt": prompts[0]})
        blank: Any = [{"role": "assistant", "content": ""}] if conversational else ""
        tokens, masks, completions, logprobs = [], [], [], []
        for row in rows:
            # TRL looks at the last token of every row.
            empty = row is None or not row.tokens
            tokens.append([self._tokenizer.eos_token_id] if empty else cast("Response", row).tokens)
            completions.append(blank if row is None else row.completion)
            logprobs.append([0.0] if row is None or empty else row.logprobs)
            mask = [0] if row is None or empty else row.tool_mask or [1] * len(row.tokens)
            masks.append(mask)
        self._ada_log_lengths(step, prompt_ids)
        # TRL's mask of tool tokens: multiplied into the loss and its denominators, not into attention.
        masked = bool(self.tools) or not all(map(all, masks))
        # vLLM gives log-probabilities with its tokens, and TRL asks for them even if nothing was kept.
        shown = logprobs if self.use_vllm else None
        return prompt_ids, tokens, masks if masked else None, completions, shown, {}, None, []

    def _ada_log_lengths(self, step: Step, prompt_ids: list[list[int]]) -> None:
        """Log what TRL logs of a batch's tokens, of the kept responses of all ranks."""
        kept = list(step.responses.values())
        eos = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        lengths = np.array([each.own for each in kept], dtype=np.float64)
        ended = np.array([not each.tokens or each.tokens[-1] in eos for each in kept], dtype=np.bool_)
        in_prompts = torch.tensor([sum(map(len, prompt_ids))], device=self.accelerator.device)
        self.state.num_input_tokens_seen += int(gather(in_prompts).sum().item() + lengths.sum())
        metrics = self._metrics["train"]
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]
        for name, values in (("", lengths), ("terminated_", lengths[ended] if ended.any() else np.zeros(1))):
            for which, of in (("mean", np.mean), ("min", np.min), ("max", np.max)):
                value = float(of(values)) if values.size else math.nan
                metrics[f"completions/{which}_{name}length"].append(value)
        metrics["completions/clipped_ratio"].append(float(1 - ended.mean()) if kept else math.nan)
        if self.tools:
            calls, failures, responses = step.tools
            metrics["tools/call_frequency"].append(calls / max(responses, 1))
            metrics["tools/failure_frequency"].append(failures / calls if calls else 0.0)

    def _ada_weigh(self, output: dict[str, Any], own: slice, every: FloatArray) -> None:
        """Put the advantages of all ranks' rows into the batch, and into the table of completions."""
        theirs = output["advantages"]
        output["advantages"] = torch.as_tensor(every[own], dtype=theirs.dtype, device=theirs.device)
        shown = self._logs["advantages"]
        for _ in range(min(len(shown), every.size)):
            shown.pop()
        shown.extend(every.tolist())

    def _ada_normalise(self, output: dict[str, Any], kept: int, rows: int) -> None:
        """Let a loss that is a mean over rows be one over the kept rows."""
        if self.loss_type in _ROW_MEANS and 0 < kept < rows:
            output[_SCALE] = torch.tensor(rows / kept, device=self.accelerator.device)

    def _ada_watch(
        self, step: Step, scores: Any, inputs: list[dict[str, Any]], completions: list[Any], tokens: list[list[int]]
    ) -> None:
        """Tell the allocator of a batch that TRL has sampled by itself."""
        request = step.allocator.ask()
        masks: Sequence[list[int] | None] = step.tool_masks or [None] * len(tokens)
        rows = zip(tokens, completions, masks, strict=True)
        responses = [Response([], ids, text, None, mask) for ids, text, mask in rows]
        self._ada_tell(step, request.ids, request.prompts, scores, inputs, responses)
        # Asks for nothing more, but raises where too many scores are missing.
        step.allocator.ask()
        step.groups = step.allocator.groups()

    def _ada_mend(self, step: Step, output: dict[str, Any]) -> None:
        """Keep the policy's word on top of what TRL does: on silent groups, and on rows that have no score for it."""
        groups, every, n = settled(step.groups), step.told[0], self.num_generations
        unscored = np.isnan(every.sums).reshape(-1, n)
        truncated = (every.truncated & self.mask_truncated_completions).reshape(-1, n)
        kept = ~unscored
        if groups.silent.any() and _no_signal(self.policy) == "leave_out":
            kept[groups.silent] = False
        advantages = gather(output["advantages"]).double().cpu().numpy().reshape(-1, n)
        # TRL's baseline has seen the truncated ones.
        seen = truncated.any(axis=1)
        if seen.any():
            advantages[seen] = centred(every.sums.reshape(-1, n), self.scale_rewards)[seen]
        changed = seen | (groups.silent & (advantages != 0).any(axis=1))
        if changed.any():
            advantages[groups.silent] = 0
            self._ada_weigh(output, step.own, advantages.ravel())
        if (kept | truncated).all():
            self._ada_normalise(output, int(kept.sum()), kept.size)
            return
        mask = output.get("tool_mask")
        mask = torch.ones_like(output["completion_ids"]) if mask is None else mask
        stays = torch.as_tensor(kept.ravel()[step.own], dtype=mask.dtype, device=mask.device)
        output["tool_mask"] = mask = mask * stays[:, None]
        output["num_items_in_batch"] = gather((output["completion_mask"] * mask).sum()).sum()
        self._ada_normalise(output, int(kept.sum()), kept.size)

    def _ada_finish(self, step: Step, output: dict[str, Any]) -> None:
        """Log the step and remember it."""
        groups, counts = settled(step.groups), step.allocator.metrics()
        every = step.joined(len(self.reward_funcs))
        rewards = groups.rewards[groups.mask]
        logged = {
            "pool_reward": mean_over_prompts(every.prompts, every.sums),
            "selected_reward": float(rewards.mean()) if rewards.size else math.nan,
            "tokens": float(every.tokens.sum()),
            "threshold": self.policy.threshold,
            "padding": step.padding,
            "empty_rows": groups.mask.shape[0] * self.num_generations - int(groups.mask.sum()),
        }
        logged |= {name: counts[name] for name in _COUNTS}
        ratio = output.get("importance_sampling_ratio")
        if ratio is not None and self.loss_type != "vespo":
            mask = output["completion_mask"] * output.get("tool_mask", 1)
            dropped = ((ratio * mask).sum(dim=1) == 0) & mask.any(dim=1)
            logged["dropped_rows"] = float(gather(dropped.sum()).sum().item())
        for name, value in logged.items():
            self._metrics["train"][f"ada/{name}"].append(float(value))
        self._ada_warn(every, counts)
        if self._ada_log is not None:
            self._ada_write(step, every, groups)
        self.steps.observe(step.allocator, step.keys)

    def _ada_warn(self, every: Round, counts: dict[str, float]) -> None:
        """Warn of scores that are missing, and of a threshold that nothing passes."""
        share = counts["unscored_fraction"]
        if share > _MUCH:
            cut = int(every.truncated.sum()) if self.mask_truncated_completions else 0
            how = f", {cut} of them truncated and masked" if cut else ""
            msg = (
                f"step {self.state.global_step}: {counts['unscored']:g} of {counts['responses']:g} responses have no "
                f"score ({100 * share:.0f} %){how}; they are spent and never trained on. max_unscored stops a run, and "
                "a policy's option replace draws others"
            )
            logger.warning(msg)
        if self.correct_func is not None:
            return
        self._ada_barren = 0 if every.correct.any() else self._ada_barren + 1
        if self._ada_barren == _BARREN:
            most = np.nanmax(every.sums) if (~np.isnan(every.sums)).any() else math.nan
            msg = (
                f"no reward has exceeded the policy's threshold {self.policy.threshold:g} in {_BARREN} steps (the "
                f"largest of the last one is {most:g}): no response counts as correct. Pass correct_func, or a policy "
                "with another threshold"
            )
            logger.warning(msg)

    def _ada_write(self, step: Step, every: Round, groups: Groups) -> None:
        log = cast("PoolLog", self._ada_log)
        lines = pool_lines(
            self.state.global_step,
            step.names,
            self.policy.label,
            every.prompts,
            every.sums,
            every.correct,
            every.tokens,
            every.truncated,
            np.isin(every.ids, groups.ids[groups.mask]),
        )
        log.write(list(lines))
        if log.replaced:
            msg = f"{log.path}: {log.replaced} lines of an earlier run, from step {self.state.global_step} on, replaced"
            logger.info(msg)
            log.replaced = 0

    # Checkpoints.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.steps.learns and self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            (folder / _STATE_FILE).write_text(json.dumps(self.steps.state_dict()), encoding="utf-8")

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


_COUNTS = (
    "responses",
    "rounds",
    "signal_fraction",
    "unsampled",
    "silent",
    "masked",
    "left_out",
    "unresolved_no_positive",
    "unresolved_no_negative",
    "unscored",
    "unscored_fraction",
    "replaced",
)
"""Metrics of the allocator that are logged under their own names."""


def _no_signal(policy: AnyPolicy) -> NoSignal:
    first: Policy = policy.low if isinstance(policy, Blend) else policy
    return first.no_signal
