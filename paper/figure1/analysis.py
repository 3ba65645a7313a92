"""Who is ahead after as many steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit._types import FloatArray
from paper.claims import Measure
from paper.items import Result
from paper.training import MATCHED, NAMES, RULES, band, matched_to, paired
from sim.learning_sweep import Sweep
from sim.plots import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_SET = "all"


def late(found: Sweep, name: str, rule: str) -> FloatArray:
    """Return the mean training reward over the second half, ``[seed]``."""
    values = found.values(name, rule, "train_pass_rate")
    return np.asarray(values[:, values.shape[1] // 2 :].mean(axis=1))


def early(found: Sweep, name: str, rule: str) -> FloatArray:
    """Return the mean training reward over the first eighth, ``[seed]``."""
    values = found.values(name, rule, "train_pass_rate")
    return np.asarray(values[:, : max(values.shape[1] // 8, 2)].mean(axis=1))


def analyse(found: Sweep) -> Result:
    """Return the numbers, measures and the figure."""
    rules = {rule: late(found, _SET, rule) for rule in (*RULES, *map(matched_to, MATCHED))}
    first = {rule: early(found, _SET, rule) for rule in rules}
    pairs: dict[str, tuple[str, str, dict[str, FloatArray]]] = {
        "balance": ("balance", "grpo", rules),
        "pos": ("pos", "grpo", rules),
        "order": ("balance", "pos", rules),
        "matched": ("balance", matched_to("balance"), rules),
        "early": ("balance", "grpo", first),
    }
    measures: dict[str, Measure] = {
        key: paired(values[ours], values[theirs], "reward") for key, (ours, theirs, values) in pairs.items()
    }
    numbers = {
        "setting": found.plan.setting.to_dict(),
        "seeds": found.plan.seeds,
        "reward": {rule: float(values.mean()) for rule, values in rules.items()},
        "start": float(found.values(_SET, "grpo", "train_pass_rate")[:, 0].mean()),
        "end": {rule: float(found.values(_SET, rule, "train_pass_rate")[:, -1].mean()) for rule in rules},
        "gap": {
            key: {"mean": one.value, "error": one.error / 2, "wins": one.wins, "losses": one.losses}
            for key, one in measures.items()
        },
        "matched_n": found.matched[_SET],
        "responses": {rule: found.whole(_SET, rule, "responses").mean / found.plan.setting.batch for rule in rules},
    }
    return Result(numbers, measures, {"figure1": partial(_draw, found)})


def _draw(found: Sweep, figure: Figure) -> None:
    figure.set_size_inches(9.6, 4.2)
    axes, gaps = figure.subplots(1, 2)
    steps = found.values(_SET, "grpo", "steps_spent")[0]
    reference = found.values(_SET, "grpo", "train_pass_rate")
    labels = NAMES | {matched_to(rule): name for rule, name in MATCHED.items()}
    for index, (rule, label) in enumerate(labels.items()):
        values = found.values(_SET, rule, "train_pass_rate")
        axes.plot(steps, values.mean(axis=0), **look(index), label=label)
        if rule != "grpo":
            band(gaps, steps, values - reference, index)
    gaps.axhline(0, color=look(0)["color"], linewidth=1.2)
    axes.set_title("simulated; prompts with at least 1 of 16 correct")
    axes.set_ylabel("mean pass rate, training prompts")
    axes.legend(fontsize=9, loc="lower right")
    gaps.set_title("ahead of GRPO, n = 4 (± 2 standard errors)")
    gaps.set_ylabel("difference in pass rate")
    for each in (axes, gaps):
        each.set_xlabel("step")
        each.set_xlim(0, steps[-1])
