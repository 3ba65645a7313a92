"""Who is ahead after as many steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.results import ItemResult, gaps
from paper.training import MATCHED, NAMES, RULES, SETS, band, matched_to, paired, unanimous
from sim.learn.study import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_SET = "all"


def late(sweep: Sweep, name: str, rule: str) -> FloatArray:
    """Return the mean training reward over the second half, ``[seed]``."""
    values = sweep.values(name, rule, "train_pass_rate")
    return np.asarray(values[:, values.shape[1] // 2 :].mean(axis=1))


def last(sweep: Sweep, name: str, rule: str) -> FloatArray:
    """Return the training reward at the last evaluation, ``[seed]``."""
    return np.asarray(sweep.values(name, rule, "train_pass_rate")[:, -1])


def early(sweep: Sweep, name: str, rule: str) -> FloatArray:
    """Return the mean training reward over the first eighth, ``[seed]``."""
    values = sweep.values(name, rule, "train_pass_rate")
    return np.asarray(values[:, : max(values.shape[1] // 8, 2)].mean(axis=1))


def analyse(sweep: Sweep) -> ItemResult:
    """Return the numbers, measures and the figure."""
    rules = {rule: late(sweep, _SET, rule) for rule in (*RULES, *map(matched_to, MATCHED))}
    first = {rule: early(sweep, _SET, rule) for rule in rules}
    pairs: dict[str, tuple[str, str, dict[str, FloatArray]]] = {
        "balance": ("balance", "grpo", rules),
        "pos": ("pos", "grpo", rules),
        "order": ("balance", "pos", rules),
        "early": ("balance", "grpo", first),
    }
    measures: dict[str, Measure] = {
        key: paired(values[ours], values[theirs], "reward") for key, (ours, theirs, values) in pairs.items()
    }
    half = paired(rules["balance"], rules[matched_to("balance")], "reward")
    measures["matched"] = unanimous(
        {
            f"{name}, {when}": (read(sweep, name, "balance"), read(sweep, name, matched_to("balance")))
            for name in SETS
            for when, read in (("second half", late), ("end", last))
        }
    )
    numbers = {
        "setting": sweep.plan.setting.to_dict(),
        "seeds": sweep.plan.seeds,
        "reward": {rule: float(values.mean()) for rule, values in rules.items()},
        "start": float(sweep.values(_SET, "grpo", "train_pass_rate")[:, 0].mean()),
        "end": {rule: float(sweep.values(_SET, rule, "train_pass_rate")[:, -1].mean()) for rule in rules},
        "gap": gaps({key: measures[key] for key in pairs} | {"matched": half}),
        "matched_n": sweep.matched[_SET],
        "responses": {rule: sweep.whole(_SET, rule, "responses").mean / sweep.plan.setting.batch for rule in rules},
    }
    return ItemResult(numbers, measures, {"figure1": partial(_draw, sweep)})


def _draw(sweep: Sweep, figure: Figure) -> None:
    figure.set_size_inches(11.6, 4.2)
    axes, gaps = figure.subplots(1, 2)
    steps = sweep.values(_SET, "grpo", "steps_spent")[0]
    reference = sweep.values(_SET, "grpo", "train_pass_rate")
    labels = NAMES | {matched_to(rule): name for rule, name in MATCHED.items()}
    for (rule, label), look in zip(labels.items(), policy_looks(list(labels.values())), strict=True):
        values = sweep.values(_SET, rule, "train_pass_rate")
        band(axes, steps, values, look, label)
        if rule != "grpo":
            band(gaps, steps, values - reference, look, label)
    gaps.axhline(0, color=policy_looks(["grpo"])[0]["color"], linewidth=1.2, label="GRPO, n = 4")
    # Room for the names of lines that end together.
    axes.margins(y=0.12)
    axes.set_title("simulated; prompts with at least 1 of 16 correct")
    axes.set_ylabel("mean pass rate, training prompts")
    gaps.set_title("ahead of GRPO, n = 4 (bands: ± 2 standard errors)")
    gaps.set_ylabel("difference in pass rate")
    for each in (axes, gaps):
        each.set_xlabel("step")
        each.set_xlim(0, steps[-1])
    name_lines(figure, (axes, gaps))
