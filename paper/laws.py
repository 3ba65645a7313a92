"""Pass-rate laws behind the paper's figures: fitted curves, filters of prompt sets, and moved laws."""

from __future__ import annotations

from functools import cache

import numpy as np

from ada_bandit import Policy
from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid, Law
from ada_bandit.specs import Spec, read_policy
from paper.published import settings
from sim.sources import from_curve

__all__ = ["balance", "base_law", "between", "grpo", "policy", "pos", "rl_law", "spread", "training_law"]


@cache
def base_law() -> Law:
    """Return the law fitted to Figure 2's curves of the base model."""
    return from_curve("qwen2.5-math-1.5b-base").law


@cache
def rl_law() -> Law:
    """Return the law fitted to Figure 2's curves of the model after RL."""
    return from_curve("qwen2.5-math-1.5b-rl").law


def between(law: Law, low: int, high: int, total: int) -> Grid:
    """Return the law among prompts with `low` to `high` of `total` responses correct; `law` is a grid."""
    from scipy.special import bdtr

    rates, weights = law.quadrature(total)
    below = bdtr(low - 1, total, rates) if low else 0.0
    return Grid(rates, weights * (bdtr(high, total, rates) - below))


def training_law() -> Law:
    """Return the base law among prompts that pass the paper's filter, at least 1 correct of 16."""
    setup = settings()
    return base_law().at_least(setup["filter_correct"], setup["filter_total"])


def spread(law: Law, shift: float, scale: float = 1.0) -> Grid:
    """Return the law of sigmoid(shift + scale logit p)."""
    from scipy.special import expit, logit

    rates, weights = law.quadrature(1)
    inner = np.clip(rates, 1e-12, 1 - 1e-12)
    moved: FloatArray = expit(shift + scale * logit(inner))
    return Grid(np.where((rates > 0) & (rates < 1), moved, rates), weights)


def policy(spec: Spec) -> Policy:
    """Read a policy, as every program does.

    Raises
    ------
    InputError
        If it is none, or a blend of two.
    """
    found = read_policy(spec)
    if not isinstance(found, Policy):
        msg = f"the paper's analyses follow one policy at a time; got the blend {found.label!r}"
        raise InputError(msg)
    return found


def grpo() -> Policy:
    """Return GRPO as in the paper: n responses, all kept."""
    return policy({"preset": "grpo", "group_size": settings()["group_size"]})


def pos() -> Policy:
    """Return Reinforce-Ada-pos with the paper's sizes."""
    setup = settings()
    sizes = {"samples": setup["round_size"], "rounds": setup["rounds"], "group_size": setup["group_size"]}
    return policy({"preset": "reinforce-ada-pos", **sizes})


def balance() -> Policy:
    """Return Reinforce-Ada-balance with the paper's sizes."""
    setup = settings()
    sizes = {"samples": setup["round_size"], "rounds": setup["rounds"], "group_size": setup["group_size"]}
    return policy({"preset": "reinforce-ada-balance", **sizes})
