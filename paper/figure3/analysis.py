"""In how many settings an adaptive rule is ahead after as many steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, legend
from ada_bandit.programs.looks import policy_looks
from paper.claims import Measure
from paper.drawing import MARKS
from paper.figure1.analysis import late
from paper.results import ItemResult
from paper.training import NAMES
from sim.learn.study import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_SMALL = "a third of the step size"


def _gaps(sweeps: dict[str, Sweep]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the mean difference to GRPO and its standard error, by variant and rule."""
    gaps: dict[str, dict[str, tuple[float, float]]] = {}
    for name, runs in sweeps.items():
        label = runs.plan.tasks[0].label
        reference = late(runs, label, "grpo")
        gaps[name] = {}
        for rule in ("pos", "balance"):
            gap = late(runs, label, rule) - reference
            gaps[name][rule] = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(gap.size))
    return gaps


def analyse(sweeps: dict[str, Sweep]) -> ItemResult:
    """Return the numbers, measures and the figure."""
    gaps = _gaps(sweeps)
    total = len(gaps)
    ahead = {
        rule: [name for name in gaps if gaps[name][rule][0] > 2 * gaps[name][rule][1]] for rule in ("pos", "balance")
    }
    behind = {
        rule: [name for name in gaps if gaps[name][rule][0] < -2 * gaps[name][rule][1]] for rule in ("pos", "balance")
    }

    def words(rule: str) -> str:
        where = f" ({', '.join(behind[rule])})" if behind[rule] else ""
        return f"ahead in {len(ahead[rule])} of {total}, behind in {len(behind[rule])}{where}"

    mean, error = gaps[_SMALL]["balance"]
    numbers = {
        "seeds": next(iter(sweeps.values())).plan.seeds,
        "settings": total,
        "ahead": {rule: len(names) for rule, names in ahead.items()},
        "behind": {rule: len(names) for rule, names in behind.items()},
        "gaps": {
            name: {rule: {"mean": gap[0], "error": gap[1]} for rule, gap in one.items()} for name, one in gaps.items()
        },
    }
    measures = {
        rule: Measure(words(rule), wins=len(ahead[rule]), losses=len(behind[rule]), readings=total)
        for rule in ("pos", "balance")
    } | {
        "most": Measure(words("balance"), len(ahead["balance"]) / total),
        "step-size": Measure(
            f"{mean:+.4f} ± {error:.4f} at a third of the step size", mean / error if error > 0 else np.nan, 2.0
        ),
    }
    return ItemResult(numbers, measures, {"figure3": partial(_draw, gaps)})


def _draw(gaps: dict[str, dict[str, tuple[float, float]]], figure: Figure) -> None:
    figure.set_size_inches(7.6, 5.0)
    axes = figure.subplots()
    names = list(gaps)
    for rule in ("pos", "balance"):
        at = np.arange(len(names)) + (0.16 if rule == "balance" else -0.16)
        mean = [gaps[name][rule][0] for name in names]
        error = [2 * gaps[name][rule][1] for name in names]
        style: dict[str, Any] = {"color": policy_looks([rule])[0]["color"], "markersize": 6, "elinewidth": 1.6}
        axes.errorbar(mean, at, xerr=error, fmt=MARKS[rule], label=NAMES[rule], **style)
    axes.axvline(0, color=GREY, linewidth=1.2)
    words = {"main": "as in Figure 1: Adam, softmax policy"}
    axes.set_yticks(np.arange(len(names)), [words.get(name, name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(
        "mean pass rate over the second half, minus that of GRPO with n = 4\n(± 2 standard errors over seeds)"
    )
    axes.set_title("simulated: ahead of GRPO (right) or behind (left)")
    legend(figure, axes)
