"""Who is ahead when it is cost that is equal, not steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.results import ItemResult, gaps
from paper.training import MATCHED, NAMES, RULES, SETS, band, matched_to, paired, unanimous
from sim.learn.study import AXES, Axis, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_SET = "all"
_UNITS = {
    "steps": "steps",
    "responses": "responses, thousands",
    "tokens": "tokens, millions",
    "time": "synchronous time, million token times",
}
_SCALE = {"steps": 1.0, "responses": 1e3, "tokens": 1e6, "time": 1e6}


def analyse(sweep: Sweep) -> ItemResult:
    """Return the numbers, measures and the figure."""
    rules = (*RULES, *map(matched_to, MATCHED))
    at: dict[str, dict[str, float]] = {}
    measures: dict[str, Measure] = {}
    for axis in AXES:
        budget = sweep.common_budget(_SET, axis)
        rates = {rule: sweep.at_budget(_SET, rule, axis, budget) for rule in rules}
        at[axis] = {"budget": budget} | {rule: float(values.mean()) for rule, values in rates.items()}
        if axis != "steps":
            measures[axis] = paired(rates["balance"], rates["grpo"], "pass rate")
    other = matched_to("balance")
    readings = {}
    for name in SETS:
        # What both have spent for certain: GRPO with n = 4 is no part of this, and would end the comparison early.
        pair = [run for rule in ("balance", other) for run in sweep.runs[name, rule]]
        budget = min(float(run.spent("responses")[-1]) for run in pair)
        for part, when in ((0.25, "a quarter"), (1.0, "the end")):
            ours, theirs = (sweep.at_budget(name, rule, "responses", part * budget) for rule in ("balance", other))
            readings[f"{name}, {when}"] = ours, theirs
    first = sweep.common_budget(_SET, "responses")
    ours, theirs = (sweep.at_budget(_SET, rule, "responses", first) for rule in ("balance", other))
    single = paired(ours, theirs, "pass rate")
    gap = gaps(measures | {"matched-responses": single})
    measures["matched-responses"] = unanimous(readings)
    numbers = {
        "seeds": sweep.plan.seeds,
        "at": at,
        "gap": gap,
        "lengths": sweep.plan.setting.to_dict()["lengths"],
    }
    return ItemResult(numbers, measures, {"tokens": partial(_draw, sweep)})


def _draw(sweep: Sweep, figure: Figure) -> None:
    figure.set_size_inches(12.4, 6.6)
    labels = NAMES | {matched_to(rule): name for rule, name in MATCHED.items()}
    panels = figure.subplots(2, 2, sharey=True)
    axis: Axis
    for axes, axis in zip(panels.flat, AXES, strict=True):
        end = sweep.common_budget(_SET, axis)
        grid = np.linspace(0, end, 80)
        for (rule, label), look in zip(labels.items(), policy_looks(list(labels.values())), strict=True):
            values = np.transpose([sweep.at_budget(_SET, rule, axis, float(budget)) for budget in grid])
            band(axes, grid / _SCALE[axis], values, look, label)
        axes.set_xlabel(_UNITS[axis])
        axes.set_xlim(0, end / _SCALE[axis])
    for axes in panels[:, 0]:
        axes.set_ylabel("held-out pass rate (simulated)")
    # Room for the names of lines that end together.
    panels[0, 0].margins(y=0.12)
    panels[0, 0].set_title("bands: ± 2 standard errors over seeds", fontsize=9.5)
    name_lines(figure, panels.flat)
