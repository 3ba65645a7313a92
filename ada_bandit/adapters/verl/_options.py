"""The section ``ada`` of a verl config, and what of the rest must fit it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ada_bandit.adapters._policies import read_policy
from ada_bandit.budgets import BatchBudget
from ada_bandit.errors import InputError, unknown_name
from ada_bandit.policy import Policy

__all__ = ["ESTIMATOR", "AdaOptions", "check_config", "policy_of", "read_options"]

ESTIMATOR = "ada_bandit"
_HERE = "ada_bandit.adapters.verl"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class AdaOptions:
    """The options under ``ada``, given as ``+ada.policy=…`` on verl's command line."""

    policy: str
    """Name of a preset, whose group size becomes ``rollout.n`` where it has that option; or path of a TOML file."""
    seed: int = 0
    """Seed of what the policy leaves to chance: which responses of a class are kept."""
    mask_unresolved: bool = False
    """Groups without signal, those that don't hold both classes, stay in the batch with a loss mask of 0."""
    drop_unresolved: bool = False
    """Groups without signal are left out of the batch."""
    mask_truncated_completions: bool = False
    """A response as long as ``rollout.response_length`` counts in its pool, and its row has a loss mask of 0."""
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
        if name in ("mask_unresolved", "drop_unresolved", "mask_truncated_completions", "memory"):
            value = _boolean(name, value)
        elif name in ("seed", "max_restarts"):
            value = int(_number(name, value, 0, whole=True))
        elif name == "memory_decay" or (name == "reward_timeout" and value is not None):
            value = _number(name, value, 0, whole=False)
        elif value is not None:
            value = str(value)
        given[name] = value
    options = AdaOptions(**given)
    if options.mask_unresolved and options.drop_unresolved:
        msg = "ada.mask_unresolved keeps the rows of a group without signal, and ada.drop_unresolved leaves them out"
        raise InputError(f"{msg}; set one of the two")
    if options.memory != (options.memory_key is not None):
        has, lacks, remedy = (
            ("memory", "memory_key", "+ada.memory_key=index if every row of the dataset has its own extra_info.index")
            if options.memory
            else ("memory_key", "memory", "+ada.memory=true")
        )
        msg = f"a memory and what names its prompts go together; got ada.{has} and no ada.{lacks}. Add {remedy}"
        raise InputError(msg)
    return options


def policy_of(config: Any, options: AdaOptions) -> Policy:
    """Return the policy, checked against the group size that verl trains on.

    Raises
    ------
    InputError
        If the policy keeps more responses a prompt than ``rollout.n``, or another number.
    """
    n = int(config.actor_rollout_ref.rollout.n)
    policy = read_policy(options.policy, group_size=n)
    if policy.n != n:
        msg = (
            f"the policy {policy.label!r} keeps group_size = {policy.n} responses a prompt, and verl sizes its "
            f"mini-batches by rollout.n = {n}; set actor_rollout_ref.rollout.n={policy.n} or group_size={n}"
        )
        raise InputError(msg)
    tables = policy.tables
    pos, neg = np.indices(tables.keep.shape)
    most = int(tables.keep[pos + neg <= tables.max_samples].max(initial=0))
    if most > n:
        msg = (
            f"the policy {policy.label!r} keeps up to {most} responses a prompt by its group rule "
            f"{policy.group.name!r}, and verl sizes its mini-batches by rollout.n = {n}; use group='balanced', or "
            f"actor_rollout_ref.rollout.n={most} with group_size={most}"
        )
        raise InputError(msg)
    return policy


def uses_ledger(policy: Policy, options: AdaOptions) -> bool:
    """Whether the prompts of a batch decide together, or by what earlier steps left."""
    return options.memory or isinstance(policy.budget, BatchBudget)


def check_config(config: Any, options: AdaOptions, *, has_reward_workers: bool) -> None:
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
    _check_loss(config, options)
    _check_checkpoint(config, options)


def _check_loss(config: Any, options: AdaOptions) -> None:
    actor = config.actor_rollout_ref.actor
    if actor.loss_agg_mode not in ("token-mean", "token-sum"):
        msg = (
            f"actor.loss_agg_mode={actor.loss_agg_mode} divides by ppo_mini_batch_size * rollout.n rows, in which verl "
            "counts the rows it pads with when groups have fewer than n responses; set "
            "actor_rollout_ref.actor.loss_agg_mode=token-mean"
        )
        raise InputError(msg)
    masks = [name for name in ("mask_unresolved", "mask_truncated_completions") if getattr(options, name)]
    if masks and int(actor.ppo_mini_batch_size) < int(config.data.train_batch_size):
        msg = (
            f"ada.{masks[0]} may leave a mini-batch of {actor.ppo_mini_batch_size} prompts without a token, and verl "
            "divides by their number; set actor_rollout_ref.actor.ppo_mini_batch_size to data.train_batch_size = "
            f"{config.data.train_batch_size}, or use ada.drop_unresolved"
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
            "decides about them; switch it off and set +ada.drop_unresolved=true"
        )
        raise InputError(msg)


def _check_checkpoint(config: Any, options: AdaOptions) -> None:
    named = config.trainer.get("checkpoint_callback_class")
    if options.memory and not named:
        msg = (
            "a memory is saved with verl's checkpoints by a callback; set "
            f"trainer.checkpoint_callback_class={_HERE}.AdaptiveCheckpoint (or a subclass of it)"
        )
        raise InputError(msg)
