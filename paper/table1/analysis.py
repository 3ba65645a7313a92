"""Sign tests of the order, on the published table and on simulated runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.figures import GREY, legend
from ada_bandit.programs.looks import policy_looks
from paper.claims import Measure, sign_test
from paper.drawing import MARKS
from paper.figure6.analysis import larger_on_hard
from paper.results import ItemResult
from paper.table1.sweep import Order
from paper.training import NAMES, SETS, paired, standard_error, unanimous

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_HARD = " (hard)"


def _counted(gaps: FloatArray, what: str) -> Measure:
    """Return the sign comparison of published differences, in points; equal numbers are ties."""
    # Differences of numbers with one decimal: what is left of them in binary is rounding.
    gaps = np.round(gaps, 6).ravel()
    wins, losses = int((gaps > 0).sum()), int((gaps < 0).sum())
    text = f"{wins} of {gaps.size} {what}, mean {gaps.mean():+.1f} points; p = {sign_test(wins, losses):.2g}"
    return Measure(text, float(gaps.mean()), wins=wins, losses=losses)


def analyse(data: Order) -> ItemResult:
    """Return the numbers, measures and the figure."""
    accuracy, average = data.accuracy, data.average
    pairs = [
        (data.models.index(model), data.models.index(model + _HARD))
        for model in data.models
        if model + _HARD in data.models
    ]
    plain, hard = (list(side) for side in zip(*pairs, strict=True))
    gain, gain_average = accuracy["balance"] - accuracy["grpo"], average["balance"] - average["grpo"]
    runs = data.runs
    end = {rule: {name: runs.values(name, rule, "held_out_pass_rate")[:, -1] for name in SETS} for rule in NAMES}
    mean = {rule: np.mean([one[name] for name in SETS], axis=0) for rule, one in end.items()}
    gains = {name: end["balance"][name] - end["grpo"][name] for name in SETS}
    measures = {
        "published-balance": _counted(gain, "comparisons"),
        "published-pos": _counted(accuracy["pos"] - accuracy["grpo"], "comparisons"),
        "published-order": _counted(accuracy["balance"] - accuracy["pos"], "comparisons"),
        "runs": _counted(gain_average, "training runs"),
        "published-hard": _counted(gain[hard] - gain[plain], "comparisons"),
        "runs-hard": _counted(gain_average[hard] - gain_average[plain], "pairs"),
        "simulated-balance": paired(mean["balance"], mean["grpo"], "pass rate"),
        "simulated-pos": paired(mean["pos"], mean["grpo"], "pass rate"),
        "simulated-order": paired(mean["balance"], mean["pos"], "pass rate"),
        "simulated-hard": unanimous(larger_on_hard(runs)),
    }
    numbers = {
        "seeds": runs.plan.seeds,
        "counts": {
            key: {"mean": one.value, "wins": one.wins, "losses": one.losses, "p": sign_test(one.wins, one.losses)}
            for key, one in measures.items()
        },
        "comparisons": gain.size,
        "held_out": {rule: {name: float(values.mean()) for name, values in one.items()} for rule, one in end.items()},
        "gain": {name: float(values.mean()) for name, values in gains.items()},
        "gain_error": {name: float(values.std(ddof=1) / np.sqrt(values.size)) for name, values in gains.items()},
    }
    return ItemResult(numbers, measures, {"table1": partial(_draw, data, gains)})


def _draw(data: Order, gains: dict[str, FloatArray], figure: Figure) -> None:
    figure.set_size_inches(9.6, 4.4)
    axes, ours = figure.subplots(1, 2, width_ratios=(3, 2))
    at = np.arange(len(data.models))
    for rule in ("pos", "balance"):
        gap = data.accuracy[rule] - data.accuracy["grpo"]
        colour = policy_looks([rule])[0]["color"]
        place = at + (0.15 if rule == "balance" else -0.15)
        for column in range(gap.shape[1]):
            axes.plot(gap[:, column], place, MARKS[rule], color=colour, markersize=4, alpha=0.55)
        axes.plot(
            data.average[rule] - data.average["grpo"], place, MARKS[rule], color=colour, markersize=8, label=NAMES[rule]
        )
    axes.axvline(0, color=GREY, linewidth=1.2)
    axes.set_yticks(at, data.models)
    axes.invert_yaxis()
    axes.set_xlabel("points above GRPO")
    axes.set_title("published: benchmarks (small), weighted average (large)", fontsize=9.5)
    for index, name in enumerate(SETS):
        ours.errorbar(
            gains[name].mean(), index, xerr=2 * standard_error(gains[name]), fmt=MARKS["balance"],
            color=policy_looks(["balance"])[0]["color"], markersize=7,
        )  # fmt: skip
    ours.axvline(0, color=GREY, linewidth=1.2)
    ours.set_yticks(range(len(SETS)), ["at least 1\nof 16 correct", "moderate:\n1-5 of 16", "hard:\n1-2 of 16"])
    ours.set_ylim(len(SETS) - 0.5, -0.5)
    ours.set_xlabel("pass rate above GRPO (± 2 s.e.)")
    ours.set_title("simulated: balance, held-out prompts", fontsize=9.5)
    legend(figure, axes)
