"""The section ``ada`` of a verl config, and what of the rest must fit it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from ada_bandit.adapters._checks import most_kept
from ada_bandit.budgets import BatchBudget
from ada_bandit.errors import InputError, unknown_name
from ada_bandit.memory import PassRateMemory
from ada_bandit.step_specs import read_step_policy
from ada_bandit.steps import StepPolicy
from ada_bandit.tables import NoSignal

__all__ = ["ESTIMATOR", "AdaOptions", "check_config", "read_options", "steps_of", "uses_ledger"]

ESTIMATOR = "ada_bandit"
_HERE = "ada_bandit.adapters.verl"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class AdaOptions:
    """The options under ``ada``, given as ``+ada.policy=…`` on verl's command line."""

    policy: str
    """A policy as `ada_bandit.step_specs` reads it: a preset with or without options, the path of a file, or
    ``empirical-bayes``. Its group size is ``rollout.n`` where it states none."""
    seed: int = 0
    """Seed of what the policy leaves to chance: which responses of a class are kept."""
    no_signal: NoSignal | None = None
    """What becomes of groups without signal (`Policy.no_signal`): ``mask``, ``leave_out`` or ``keep``; what the policy
    says unless given."""
    mask_truncated_completions: bool = False
    """A response as long as ``rollout.response_length`` counts as one without a score: it has no vote in exits and
    baselines, and is never kept."""
    correct_key: str | None = None
    """Key of the reward function's extra information that says whether a response is correct, such as ``acc``."""
    memory: bool = False
    """Whether the pools of earlier steps are remembered, for budgets that look at them."""
    memory_decay: float = 0.9
    """Factor on a prompt's remembered counts each time it comes back."""
    memory_key: str | None = None
    """What names a prompt: ``index`` for the dataset's ``extra_info.index``, another key of it, or a column."""
    reward_timeout: float | None = None
    """Seconds after which a response whose reward has not come is without a score; no limit unless given."""
    pool_log: str | None = "ada_pools.jsonl"
    """File with one line a prompt and step, under ``trainer.default_local_dir``; null switches it off."""
    max_restarts: int = 3
    """How often workers that died are started again before the run stops."""


def _boolean(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        msg = f"ada.{name} must be true or false; got {value!r}"
        raise InputError(msg)
    return text in _TRUE


def _number(name: str, value: Any, low: float, *, whole: bool) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= low and (not whole or number.is_integer())):
        kind = "a whole number" if whole else "a number"
        msg = f"ada.{name} must be {kind} of at least {low:g}; got {value!r}"
        raise InputError(msg)
    return number


def _no_signal(value: Any) -> str:
    if str(value) not in get_args(NoSignal):
        raise unknown_name("value of ada.no_signal", str(value), get_args(NoSignal))
    return str(value)


def read_options(config: Any) -> AdaOptions:
    """Return the options of a verl config.

    Raises
    ------
    InputError
        If there is no policy, or an option is unknown, can't be used, or can't be used with another one.
    """
    section = config.get("ada")
    if section is None or section.get("policy") is None:
        msg = "the config names no policy; add +ada.policy=reinforce-ada-balance, or the path of a TOML file"
        raise InputError(msg)
    known = [field.name for field in fields(AdaOptions)]
    given: dict[str, Any] = {}
    for name in section:
        if name not in known:
            raise unknown_name("option of ada", str(name), known)
        value = section.get(name)
        if name in ("mask_truncated_completions", "memory"):
            value = _boolean(name, value)
        elif name == "no_signal":
            value = None if value is None else _no_signal(value)
        elif name in ("seed", "max_restarts"):
            value = int(_number(name, value, 0, whole=True))
        elif name == "memory_decay" or (name == "reward_timeout" and value is not None):
            value = _number(name, value, 0, whole=False)
        elif value is not None:
            value = str(value)
        given[name] = value
    options = AdaOptions(**given)
    if options.memory != (options.memory_key is not None):
        has, lacks, remedy = (
            ("memory", "memory_key", "+ada.memory_key=index if every row of the dataset has its own extra_info.index")
            if options.memory
            else ("memory_key", "memory", "+ada.memory=true")
        )
        msg = f"a memory and what names its prompts go together; got ada.{has} and no ada.{lacks}. Add {remedy}"
        raise InputError(msg)
    return options


def steps_of(config: Any, options: AdaOptions) -> StepPolicy:
    """Return what the run asks for its allocators, checked against the group size that verl trains on.

    Raises
    ------
    InputError
        If it names no policy, or the policy keeps more responses a prompt than ``rollout.n``, or another number.
    """
    n = int(config.actor_rollout_ref.rollout.n)
    memory = PassRateMemory(options.memory_decay) if options.memory else None
    steps = read_step_policy(options.policy, memory, group_size=n, no_signal=options.no_signal)
    policy = steps.policy
    if policy.n != n:
        msg = (
            f"the policy {policy.label!r} keeps group_size = {policy.n} responses a prompt, and verl sizes its "
            f"mini-batches by rollout.n = {n}; set actor_rollout_ref.rollout.n={policy.n} or group_size={n}"
        )
        raise InputError(msg)
    for _, part in policy.parts:
        most = most_kept(part)
        if most > n:
            msg = (
                f"the policy {part.label!r} keeps up to {most} responses a prompt by its group rule "
                f"{part.group.name!r}, and verl sizes its mini-batches by rollout.n = {n}; use group='balanced', or "
                f"actor_rollout_ref.rollout.n={most} with group_size={most}"
            )
            raise InputError(msg)
    return steps


def uses_ledger(steps: StepPolicy) -> bool:
    """Whether the prompts of a batch decide together, or by what earlier steps left."""
    return steps.learns or isinstance(steps.policy.budget, BatchBudget)


def check_config(config: Any, steps: StepPolicy, *, has_reward_workers: bool) -> None:
    """Refuse what an adaptive policy can't be combined with.

    Raises
    ------
    InputError
        With the reason and the remedy.
    """
    mode = config.trainer.v1.trainer_mode
    sampler = config.trainer.v1.sampler.get("custom_sampler") or {}
    wanted = "AdaptiveReplayBuffer" if mode == "sync" else "AdaptiveReplayBufferAsync"
    if sampler.get("path") != f"pkg://{_HERE}" or sampler.get("name") != wanted:
        msg = (
            f"a run in the mode {mode!r} needs trainer.v1.sampler.custom_sampler.path=pkg://{_HERE} and "
            f"trainer.v1.sampler.custom_sampler.name={wanted}, which hand the pools to the advantage estimator; got "
            f"{sampler.get('path')!r} and {sampler.get('name')!r}"
        )
        raise InputError(msg)
    if config.algorithm.adv_estimator != ESTIMATOR:
        msg = (
            f"algorithm.adv_estimator={config.algorithm.adv_estimator} computes advantages from kept responses "
            f"alone, whose mean is not the pool's; set algorithm.adv_estimator={ESTIMATOR}"
        )
        raise InputError(msg)
    if not has_reward_workers:
        msg = (
            "a reward model that shares the GPUs of the rollout scores responses after sampling has ended, and a "
            "policy decides while it samples; set reward.reward_model.enable_resource_pool=true to give it GPUs of its "
            "own, or use a reward function"
        )
        raise InputError(msg)
    _check_loss(config)
    _check_checkpoint(config, steps)


def _check_loss(config: Any) -> None:
    actor = config.actor_rollout_ref.actor
    if actor.loss_agg_mode not in ("token-mean", "token-sum"):
        msg = (
            f"actor.loss_agg_mode={actor.loss_agg_mode} divides by ppo_mini_batch_size * rollout.n rows, in which verl "
            "counts the rows it pads with when groups have fewer than n responses; set "
            "actor_rollout_ref.actor.loss_agg_mode=token-mean"
        )
        raise InputError(msg)
    if config.algorithm.use_kl_in_reward:
        msg = (
            "algorithm.use_kl_in_reward changes rewards after the policy has decided by them, and its advantages are "
            "the policy's; use actor_rollout_ref.actor.use_kl_loss=true for a penalty on divergence"
        )
        raise InputError(msg)
    filtered: Mapping[str, Any] = config.algorithm.get("filter_groups") or {}
    if filtered.get("enable", False):
        msg = (
            "algorithm.filter_groups.enable replaces prompts without signal by new ones, and a policy of its own "
            "decides about them; switch it off and set +ada.no_signal=leave_out"
        )
        raise InputError(msg)


def _check_checkpoint(config: Any, steps: StepPolicy) -> None:
    named = config.trainer.get("checkpoint_callback_class")
    if steps.learns and not named:
        msg = (
            "what a run learns of its prompts is saved with verl's checkpoints by a callback; set "
            f"trainer.checkpoint_callback_class={_HERE}.AdaptiveCheckpoint (or a subclass of it)"
        )
        raise InputError(msg)
