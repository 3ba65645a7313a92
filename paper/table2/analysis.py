"""What a model of generation time can say of the published costs, and what it can't."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.drawing import MARKS, NEUTRAL
from paper.published import column
from paper.results import ItemResult
from paper.table2.sweep import StepCosts
from paper.training import NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]


def analyse(data: StepCosts) -> ItemResult:
    """Return the numbers, measures and the figure."""
    small, large = data.seconds
    published = column("table2", "relative_cost").reshape(2, 3)[:, 1:]
    off = data.responses / published[0] - 1
    worst = int(np.argmax(np.abs(off)))
    one, other = data.times[small], data.times[large]
    wait = data.bands[small]["wait"]
    ratio = other.each / one.each
    numbers = {
        "extra": dict(zip(("pos", "balance"), data.extra, strict=True)),
        "responses": dict(zip(("pos", "balance"), data.responses, strict=True)),
        "plain": data.plain,
        "published": {
            model: dict(zip(("pos", "balance"), row, strict=True))
            for model, row in zip(data.seconds, published, strict=True)
        },
        "models": {
            model: {
                "seconds": data.seconds[model],
                "each": times.each,
                "wait": times.wait,
                "fixed": times.fixed,
                "shares": dict(zip(("pos", "balance"), times.shares, strict=True)),
                "waiting_shares": dict(zip(("pos", "balance"), times.waiting_shares, strict=True)),
                "bands": data.bands[model],
                "batch_seconds": times.each * data.plain,
            }
            for model, times in data.times.items()
        },
        "each_ratio": ratio,
    }
    measures = {
        "responses": Measure(
            f"{data.responses[0]:.2f} and {data.responses[1]:.2f} times the responses",
            float(data.responses[worst]),
            reference=float(published[0][worst]),
        ),
        "share": Measure(
            f"{one.shares[0]:.2f} from pos, {one.shares[1]:.2f} from balance "
            f"(7B: {other.shares[0]:.2f}, {other.shares[1]:.2f})",
            float(one.shares[0]),
            reference=float(one.shares[1]),
        ),
        "waits": Measure(
            f"{one.waiting_shares[0]:.2f} from pos, {one.waiting_shares[1]:.2f} from balance",
            float(one.waiting_shares[0]),
            reference=float(one.waiting_shares[1]),
        ),
        "rounds": Measure(
            f"{one.wait:.1f} s a round, {wait[0]:.1f} to {wait[1]:.1f}", float(np.mean(wait)), float(np.ptp(wait)) / 2
        ),
        "larger-model": Measure(
            f"{1e3 * other.each:.0f} against {1e3 * one.each:.0f} ms a response: {ratio:.2f}", ratio
        ),
    }
    return ItemResult(numbers, measures, {"table2": partial(_draw, data)})


def _draw(data: StepCosts, figure: Figure) -> None:
    figure.set_size_inches(7.2, 4.4)
    axes = figure.subplots()
    published = column("table2", "relative_cost").reshape(2, 3)
    line = np.linspace(1, 4.0, 2)
    x = np.append(1.0, data.responses)
    for index, (model, times) in enumerate(data.times.items()):
        share = float(times.shares.mean())
        label = f"{model}:\n{share:.2f} of GRPO's step\nis generation"
        axes.plot(line, 1 + share * (line - 1), **NEUTRAL[index], linewidth=1.2, label=label)
    axes.plot(line, line, **NEUTRAL[-1], linewidth=1.2, label="cost in proportion\nto responses")
    for place, (rule, look) in enumerate(zip(MARKS, policy_looks(list(MARKS)), strict=True)):
        style: dict[str, Any] = {"color": look["color"], "linestyle": "none", "marker": MARKS[rule]}
        axes.plot(np.full(len(published), x[place]), published[:, place], **style, markersize=8, label="_published")
        axes.annotate(NAMES[rule], (x[place], 0.62), ha="center", color=look["color"])
    axes.set_xlim(0.7, 4.0)
    axes.set_ylim(0.5, 4.0)
    axes.set_xlabel("responses a step, relative to GRPO (from Figure 5)")
    axes.set_ylabel("cost of a step, relative to GRPO")
    axes.set_title("marks: published; lines: the model of a step's time")
    name_lines(figure, [axes])
