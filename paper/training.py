"""Simulated training runs that several figures share: `sim.learn` on prompts of the published base law.

The step size is set so that training takes the mean pass rate about as far as the paper's runs
do (from 0.29 to about 0.65 on prompts with at least 1 of 16 correct); Adam, as in the paper.
Simulated throughout: a small softmax policy with exact gradients, no language model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit import Policy
from ada_bandit._types import FloatArray
from paper.claims import Measure, sign_test
from paper.laws import balance, base_law, grpo, pos
from paper.published import settings
from paper.results import Context
from sim.learn.study import Plan, Sweep, run_sweep
from sim.learn.task import PromptSet, Task
from sim.learn.training import TrainingSetting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MATCHED",
    "NAMES",
    "RULES",
    "SETS",
    "Variant",
    "band",
    "deviation_runs",
    "main_runs",
    "matched_to",
    "paired",
    "standard_error",
    "unanimous",
    "variant_runs",
    "variants",
]

RULES: Mapping[str, Callable[[], Policy]] = {"grpo": grpo, "pos": pos, "balance": balance}
"""The paper's algorithms by short name."""
NAMES = {"grpo": "GRPO, n = 4", "pos": "pos", "balance": "balance"}
"""What figures call them."""
MATCHED = {"pos": "GRPO, as many\nresponses as pos", "balance": "GRPO, as many\nresponses as balance"}
"""What figures call the GRPO that draws as many responses as an adaptive rule does."""
SETS = ("all", "moderate", "hard")
"""The prompt sets: at least 1, 1 to 5, and 1 to 2 of 16 correct at the start."""

_RATE = 0.007
_STEPS = 400
_SEEDS, _QUICK_SEEDS = 40, 6
_VARIANT_SEEDS, _QUICK_VARIANT_SEEDS = 20, 5


def prompt_set(name: str) -> PromptSet:
    """Return one of `SETS`."""
    setup = settings()
    total = setup["filter_total"]
    high = {"all": total, "moderate": setup["moderate_most"], "hard": setup["hard_most"]}[name]
    return PromptSet(name, setup["filter_correct"], high, total)


def _task(name: str = "all") -> Task:
    """Return what is learned, every part of it stated."""
    return Task(
        prompt_set(name),
        law=base_law(),
        model="softmax",
        answers=8,
        right=2,
        spread=1.0,
        prompts=2048,
        held_out=512,
        features=64,
        skills=8,
        alignment=0.1,
    )


def _setting() -> TrainingSetting:
    return TrainingSetting(steps=_STEPS, batch=settings()["prompts"], learning_rate=_RATE)


def _run(plan: Plan, context: Context) -> Sweep:
    done = run_sweep(plan, context.runs, resume=True, workers=context.jobs)
    if done.computed:
        context.progress(f"{done.computed} simulated runs in {done.seconds:.0f} s")
    return done


@cache
def main_runs(context: Context) -> Sweep:
    """Return the runs of all rules on all prompt sets, and of a GRPO with as many responses as each adaptive rule."""
    policies = tuple(replace(rule(), name=name) for name, rule in RULES.items())
    tasks = tuple(_task(name) for name in SETS)
    return _run(Plan(policies, tasks, _setting(), context_seeds(context)), context)


def context_seeds(context: Context, quick: int = _QUICK_SEEDS, full: int = _SEEDS) -> int:
    """Return the number of seeds."""
    return quick if context.quick else full


def matched_to(rule: str) -> str:
    """Return the label of the GRPO that draws as many responses as a rule does."""
    return f"grpo matched to {rule}"


@dataclass(frozen=True)
class Variant:
    """A way to learn that differs from the main runs."""

    name: str
    """What tables and figures call it."""
    task: Task
    """What is learned."""
    setting: TrainingSetting
    """How."""


def variants() -> tuple[Variant, ...]:
    """Return the ways to learn: other step sizes, optimizers, models, prompts, and ties between prompts."""
    task, setting = _task(), _setting()
    clipped = replace(setting, minibatches=4, clip=(0.2, 0.28), learning_rate=_RATE / 3)
    return (
        Variant("main", task, setting),
        Variant("a third of the step size", task, replace(setting, learning_rate=_RATE / 3)),
        Variant("three times the step size", task, replace(setting, learning_rate=3 * _RATE)),
        Variant("plain gradient steps", task, replace(setting, optimizer="sgd", learning_rate=1.0)),
        Variant("4 minibatches, clipped", task, clipped),
        Variant("logistic policy", replace(task, model="logistic"), setting),
        Variant("easy prompts help hard ones", replace(task, skills=1), setting),
        Variant("prompts hardly tied", replace(task, alignment=0.02), setting),
        Variant("prompts closely tied", replace(task, alignment=0.4), setting),
        Variant("moderate prompts", _task("moderate"), setting),
        Variant("hard prompts", _task("hard"), setting),
    )


@cache
def variant_runs(context: Context) -> dict[str, Sweep]:
    """Return a sweep by variant."""
    policies = tuple(replace(rule(), name=name) for name, rule in RULES.items())
    seeds = context_seeds(context, _QUICK_VARIANT_SEEDS, _VARIANT_SEEDS)
    return {
        each.name: _run(Plan(policies, (each.task,), each.setting, seeds, matched="off"), context)
        for each in variants()
    }


@cache
def deviation_runs(policies: tuple[Policy, ...], context: Context) -> Sweep:
    """Return runs of the given policies on all prompts, as many seeds as a variant has."""
    seeds = context_seeds(context, _QUICK_VARIANT_SEEDS, _VARIANT_SEEDS)
    return _run(Plan(policies, (_task(),), _setting(), seeds, matched="off"), context)


def paired(ours: FloatArray, theirs: FloatArray, words: str) -> Measure:
    """Return the sign comparison of two arrays by seed, with the mean difference in words."""
    gap = ours - theirs
    error = gap.std(ddof=1) / np.sqrt(gap.size) if gap.size > 1 else np.nan
    wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
    text = f"{words} {gap.mean():+.4f} ± {error:.4f}; ahead in {wins} of {gap.size} seeds"
    return Measure(text, float(gap.mean()), 2 * float(error), 0.0, wins, losses)


def unanimous(readings: Mapping[str, tuple[FloatArray, FloatArray]], level: float = 0.95) -> Measure:
    """Return in how many readings of the same runs ours is ahead, and in how many behind, each by its sign test.

    Parameters
    ----------
    readings
        Values by seed of ours and of theirs, by what is read.
    level
        Confidence level of each test.
    """
    gaps = {name: ours - theirs for name, (ours, theirs) in readings.items()}
    sides = {name: (int((gap > 0).sum()), int((gap < 0).sum())) for name, gap in gaps.items()}
    ahead = [name for name, (wins, losses) in sides.items() if sign_test(wins, losses) <= 1 - level]
    behind = [name for name, (wins, losses) in sides.items() if sign_test(losses, wins) <= 1 - level]
    each = ", ".join(f"{name} {gap.mean():+.4f}" for name, gap in gaps.items())
    text = f"ahead in {len(ahead)}, behind in {len(behind)} of {len(gaps)} readings: {each}"
    return Measure(text, wins=len(ahead), losses=len(behind), readings=len(gaps))


def standard_error(values: FloatArray) -> FloatArray:
    """Return the standard error of the mean over seeds of ``[seed, ...]`` values; 0 for one seed."""
    if len(values) < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def band(axes: Axes, x: FloatArray, values: FloatArray, look: Mapping[str, Any], label: str) -> None:
    """Draw the mean over seeds of ``[seed, x]`` values, with a band of two standard errors.

    Parameters
    ----------
    axes, x, values
        Where, and what.
    look, label
        Colour and dashes, and the line's name.
    """
    mean = values.mean(axis=0)
    error = standard_error(values)
    axes.fill_between(x, mean - 2 * error, mean + 2 * error, color=look["color"], alpha=0.18, linewidth=0)
    axes.plot(x, mean, label=label, **look)
