"""What is refused of the trainer's options, and what is warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from accelerate.logging import get_logger

from ada_bandit.adapters._checks import most_kept
from ada_bandit.advantages import Advantage, GroupMean, GroupStd
from ada_bandit.errors import InputError, unknown_name
from ada_bandit.policy import Blend, Policy
from ada_bandit.presets import PRESETS
from ada_bandit.steps import FixedPolicy, StepPolicy
from ada_bandit.tables import NoSignal

__all__ = [
    "check_group",
    "check_options",
    "check_plain",
    "check_rows",
    "check_supported",
    "check_text",
    "explain_correctness",
    "explain_scale",
    "explain_short_pools",
    "is_plain",
]

logger = get_logger(__name__)

_INSTEAD = "use policy='grpo', which leaves sampling to TRL"


def is_plain(steps: StepPolicy, config: Any) -> bool:
    """Whether the policy samples as TRL does by itself: one round of n, all of them kept, GRPO's advantages."""
    if not isinstance(steps, FixedPolicy) or steps.learns:
        return False
    policy = steps.policy
    if isinstance(policy, Blend):
        return False
    tables = policy.tables
    pos, neg = np.indices(tables.keep.shape)
    full = pos + neg == policy.n
    if tables.shared or policy.budget.sizes != (policy.n,) or policy.budget.replacements:
        return False
    if (tables.keep[full] < policy.n).any():
        return False
    # TRL scales as `scale_rewards` says, whatever the policy's name for it.
    unscaled = isinstance(policy.advantage, GroupMean) and config.scale_rewards == "none"
    return policy.advantage == GroupStd() or unscaled


def check_group(policy: Policy, n: int) -> None:
    """Raise unless the policy keeps at most n rows of a prompt, n being its group size."""
    if policy.n != n:
        msg = (
            f"the policy {policy.label!r} keeps group_size = {policy.n} responses a prompt, and TRL trains "
            f"num_generations = {n} rows a prompt; set GRPOConfig(num_generations={policy.n})"
            f"{_or_group_size(policy, n)}"
        )
        raise InputError(msg)
    most = most_kept(policy)
    if most > n:
        msg = (
            f"the policy {policy.label!r} keeps up to {most} responses a prompt by its group rule "
            f"{policy.group.name!r}, and TRL trains num_generations = {n} rows a prompt; use group='balanced', or "
            f"GRPOConfig(num_generations={most}) with group_size={most}"
        )
        raise InputError(msg)


def _or_group_size(policy: Policy, n: int) -> str:
    """Return the other remedy, where there is one: not every preset has a group size of its own."""
    preset = PRESETS.get(policy.name.partition(":")[0].strip())
    if preset is None or "group_size" in preset.options:
        return f" or group_size={n}"
    sizes = [key for key in preset.options if key in {"maximum", "max_samples", "screening", "more", "pilot", "commit"}]
    return f", or options of {preset.name!r} that add up to it ({', '.join(sizes)})" if sizes else ""


def check_options(
    steps: StepPolicy, memory_key: str | None, dataset: Any, *, max_unscored: float | None, rows_at_once: Any
) -> None:
    """Raise where the adapter's own options can't be used."""
    if max_unscored is not None and not (
        isinstance(max_unscored, (int, float)) and not isinstance(max_unscored, bool) and 0 <= max_unscored <= 1
    ):
        msg = f"max_unscored must be a share in [0, 1], or None to go on whatever the share; got {max_unscored!r}"
        raise InputError(msg)
    if rows_at_once is not None and not (
        isinstance(rows_at_once, int) and not isinstance(rows_at_once, bool) and rows_at_once > 0
    ):
        msg = f"rows_at_once must be a whole number of at least 1, or None; got {rows_at_once!r}"
        raise InputError(msg)
    if (steps.memory is None) != (memory_key is None):
        has, lacks = ("memory", "memory_key") if memory_key is None else ("memory_key", "memory")
        msg = f"a memory and the column that names its prompts go together; got a {has} and no {lacks}"
        raise InputError(msg)
    columns = getattr(dataset, "column_names", None)
    if memory_key is not None and columns is not None and memory_key not in columns:
        raise unknown_name("column for memory_key", memory_key, columns)


def check_supported(given: Mapping[str, Any], config: Any) -> None:
    """Raise where TRL's options can't be combined with a policy that samples by itself."""
    if given.get("rollout_func"):
        msg = (
            f"rollout_func = {given['rollout_func']!r} can't be combined with an adaptive policy: it returns a whole "
            f"batch at once, and a policy asks for a few responses more of some prompts; {_INSTEAD}"
        )
        raise InputError(msg)
    if config.multi_objective_aggregation != "sum_then_normalize":
        msg = (
            f"multi_objective_aggregation = {config.multi_objective_aggregation!r} normalises each reward within a "
            "group, where a policy weighs their sum by the whole pool; use 'sum_then_normalize'"
        )
        raise InputError(msg)
    if "seed" in (config.generation_kwargs or {}):
        msg = (
            f"generation_kwargs has seed = {config.generation_kwargs['seed']!r}: an adaptive policy asks for one "
            "response a row, and with one seed all responses of a prompt would be the same. Leave it out; "
            "GRPOConfig(seed=…) seeds the run"
        )
        raise InputError(msg)
    columns = getattr(given.get("train_dataset"), "column_names", None) or ()
    if found := [name for name in ("image", "images") if name in columns]:
        msg = f"the adapter does not carry images, and the dataset has the column {found[0]!r}; drop it, or {_INSTEAD}"
        raise InputError(msg)


def check_plain(config: Any, no_signal: NoSignal) -> None:
    """Raise where TRL samples, and the policy's promise can't be kept on top of what TRL does."""
    if config.multi_objective_aggregation != "sum_then_normalize" and no_signal != "keep":
        msg = (
            f"multi_objective_aggregation = {config.multi_objective_aggregation!r} gives every group an advantage by "
            f"what other groups got, so no_signal = {no_signal!r} can't be kept; use no_signal='keep', which leaves "
            "everything to TRL, or 'sum_then_normalize'"
        )
        raise InputError(msg)
    if "seed" in (config.generation_kwargs or {}) and config.use_vllm and config.vllm_mode == "colocate":
        msg = (
            "generation_kwargs has a seed, and TRL's colocate mode gives it to every row alone: all responses of a "
            "prompt will be the same, and nothing will be learned. Leave it out"
        )
        logger.warning(msg)


def check_rows(rows: list[dict[str, Any]], size: int, n: int) -> None:
    """Raise unless the batch of all ranks holds every prompt n times in a row."""
    whole = len(rows) == size and size % n == 0
    wrong = [i for i in range(len(rows)) if rows[i].get("prompt") != rows[i - i % n].get("prompt")] if whole else []
    if not whole or wrong:
        what = f"row {wrong[0]} differs from row {wrong[0] - wrong[0] % n}" if wrong else f"{len(rows)} rows for {size}"
        msg = (
            f"the batch of all ranks must hold every prompt num_generations = {n} times in a row; {what}. "
            "Keep TRL's own sampler and data loader"
        )
        raise InputError(msg)


def check_text(rows: list[dict[str, Any]]) -> None:
    """Refuse images on every rank at once: one that stopped alone would leave the others waiting."""
    for number, row in enumerate(rows):
        prompt = row.get("prompt", "")
        messages = [] if isinstance(prompt, str) else prompt
        contents = [message.get("content") for message in messages]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        if any(isinstance(part, dict) and part.get("type") == "image" for part in parts):
            msg = f"the adapter does not carry images, and prompt {number} holds some; use policy='grpo', or text alone"
            raise InputError(msg)


def explain_scale(advantage: Advantage, config: Any) -> None:
    """Warn that ``scale_rewards`` has no effect, where it would have had another one."""
    if config.scale_rewards != "none" and not isinstance(advantage, GroupStd):
        msg = (
            f"scale_rewards={config.scale_rewards!r} has no effect: the policy's advantage {advantage.name!r} is "
            "used as it is. Set scale_rewards='none' to say so"
        )
        logger.warning(msg)


def explain_correctness(names: Sequence[str], weights: Sequence[float], threshold: float) -> None:
    """Warn that the sum of several rewards decides on correctness."""
    parts = " + ".join(f"{weight:g} x {name}" for name, weight in zip(names, weights, strict=True))
    msg = (
        f"a response counts as correct where {parts} > {threshold:g}, and prompts exit on that: a reward for format "
        "alone may satisfy it, or a right answer miss it. Pass correct_func, such as "
        "lambda rewards, rows: rewards[:, 0] > 0.5"
    )
    logger.warning(msg)


def explain_short_pools(policy: Policy) -> None:
    """Warn where a prompt may exit with fewer responses than its rows, in a group that is trained on."""
    tables = policy.tables
    if tables.shared or tables.random_split:
        return
    trained = (tables.keep > 0) & ~(tables.silent & (policy.no_signal == "leave_out"))
    short = np.argwhere(tables.exits & trained & (tables.keep < policy.n))
    if short.size:
        fewest = int(short.sum(axis=1).min())
        first = policy.budget.sizes[0]
        what = f", such as with samples={policy.n} in place of {first}" if first < policy.n else ""
        msg = (
            f"under {policy.label!r} a prompt may exit with {fewest} responses, and TRL trains num_generations = "
            f"{policy.n} rows of it: the others stay empty (ada/empty_rows). Ask for {policy.n} or more in the first "
            f"round{what}, or lower num_generations"
        )
        logger.warning(msg)
