"""The figure of a replay: responses against signal, and where the responses go."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.programs.figures import GREY, draw_figures, equal_cost, label_points, legend
from ada_bandit.programs.looks import policy_looks
from sim.logs import Order
from sim.replay.study import Replay, plain_signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

_GROUPS = 5
"""Groups of prompts with 0 < correct/total < 1, of about equal size."""
_BAR: dict[str, Any] = {"linewidth": 5, "alpha": 0.35, "solid_capstyle": "butt", "zorder": 2}


def write_figures(result: Replay, folder: Path) -> list[Path]:
    """Write the figure as ``replay.png`` and ``replay.svg`` into an existing folder; return the files."""
    return draw_figures({"replay": partial(_draw, result)}, folder)


def _draw(result: Replay, figure: Figure) -> None:
    figure.set_size_inches(10.4, 4.6)
    signal_axes, responses_axes = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _signal(result, signal_axes)
    _responses(result, responses_axes)
    legend(figure, signal_axes)
    middles = [
        ((row.responses.low + row.responses.high) / 2, (row.signal.low + row.signal.high) / 2) for row in result.rows
    ]
    label_points(
        figure,
        signal_axes,
        [
            (*middle, row.policy, look["color"])
            for middle, row, look in zip(middles, result.rows, _looks(result), strict=True)
        ],
    )


def _looks(result: Replay) -> list[dict[str, Any]]:
    return policy_looks([row.policy for row in result.rows])


def _signal(result: Replay, axes: Axes) -> None:
    """Draw responses against signal; a bar goes from the worst to the best case of the censored prompts."""
    from matplotlib.ticker import MaxNLocator

    right = max(2.0, *(row.responses.high for row in result.rows)) * 1.1
    correct, total = result.log.counts(result.log.threshold(_threshold(result)))
    curve = [plain_signal(correct, total, n, replace=result.order is Order.bootstrap) for n in range(1, int(right) + 1)]
    # Where a log is shorter than n, nothing is known of n responses of all prompts.
    known = [values.mean() for values in curve if not np.isnan(values).any()]
    axes.plot(np.arange(1, len(known) + 1), known, color=GREY, linewidth=1.2, zorder=1,
              label="GRPO with n responses, mean over all orders of the log")  # fmt: skip
    top = max([0.0, *known])
    points = [
        ((row.responses.low + row.responses.high) / 2, (row.signal.low + row.signal.high) / 2) for row in result.rows
    ]
    equal_cost(axes, points, (np.arange(1, len(known) + 1), known), near=0.02)
    axes.errorbar([], [], xerr=[], yerr=[], color=GREY, fmt="o", markersize=8, markerfacecolor="none",
                  label="replayed ± 2 standard errors over prompts")  # fmt: skip
    for row, look, middle, (low, high) in zip(result.rows, _looks(result), points, result.responses, strict=True):
        x, y, colour = row.responses, row.signal, look["color"]
        if x.known and y.known:
            count = max(len(low), 1)
            errors = {
                "xerr": 2 * float((low + high).std()) / 2 / count**0.5,
                "yerr": 2 * (y.low * (1 - y.low) / count) ** 0.5,
            }
            axes.errorbar(*middle, **errors, color=colour, elinewidth=1.2, zorder=2)
            top = max(top, middle[1] + errors["yerr"])
            axes.plot(*middle, color=colour, marker="o", markersize=8, markerfacecolor="none", markeredgewidth=2,
                      zorder=3, clip_on=False)  # fmt: skip
        else:
            axes.plot([x.low, x.high], [middle[1]] * 2, color=colour, **_BAR)
            axes.plot([middle[0]] * 2, [y.low, y.high], color=colour, **_BAR)
        top = max(top, y.high)
    axes.set_xlim(0, right)
    axes.set_ylim(0, min(top * 1.2, 1.1) if top > 0 else 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("responses per prompt")
    axes.set_ylabel("signal: share of prompts whose\ngroup holds both classes")
    axes.set_title(result.label, color="#333333")


def _threshold(result: Replay) -> float:
    return result.policies[0].threshold if result.threshold is None else result.threshold


def _responses(result: Replay, axes: Axes) -> None:
    """Draw the responses of prompts by the pass rate of their log, bars as in the other panel."""
    labels, members = _grouped(result.rates)
    at = np.arange(len(labels))
    step = 0.7 / len(result.rows)
    for index, (look, (low, high)) in enumerate(zip(_looks(result), result.responses, strict=True)):
        colour = look["color"]
        ends = np.array([[low[chosen].mean(), high[chosen].mean()] for chosen in members]).reshape(-1, 2)
        x = at + (index - (len(result.rows) - 1) / 2) * step
        known = ends[:, 1] - ends[:, 0] < 1e-9
        axes.vlines(x[~known], ends[~known, 0], ends[~known, 1], color=colour, linewidth=5, alpha=0.35, zorder=2)
        axes.plot(x[known], ends[known, 0], color=colour, linestyle="none", marker="o", markersize=5,
                  markerfacecolor="white", markeredgewidth=1.6, zorder=3)  # fmt: skip
    axes.set_xticks(at, labels, fontsize=8)
    axes.set_ylim(0, None)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("pass rate of the prompt's log (number of prompts)")
    axes.set_ylabel("responses per prompt")
    if any(row.censored for row in result.rows):
        axes.set_title("bars: worst to best case of censored prompts", color="#333333")


def _grouped(rates: FloatArray) -> tuple[list[str], list[IntArray]]:
    """Return labels and members of groups of prompts by rate: 0, some in between, 1; empty ones are left out."""
    inner = rates[(rates > 0) & (rates < 1)]
    edges = np.unique(np.quantile(inner, np.linspace(0, 1, _GROUPS + 1))) if inner.size else np.empty(0)
    groups = [("0\n", rates == 0)]
    for index in range(max(edges.size - 1, min(edges.size, 1))):
        low, high = edges[index], edges[min(index + 1, edges.size - 1)]
        last = index >= edges.size - 2
        chosen = (rates >= low) & ((rates <= high) if last else (rates < high)) & (rates > 0) & (rates < 1)
        members = rates[chosen]
        if members.size:
            ends = dict.fromkeys(f"{value:.2g}" for value in (members.min(), members.max()))
            groups.append((" to\n".join(ends), chosen))
    groups.append(("1\n", rates == 1))
    kept = [
        (
            f"{text}\n({int(chosen.sum())})" if "\n" in text else f"{text}\n\n({int(chosen.sum())})",
            np.nonzero(chosen)[0],
        )
        for text, chosen in groups
        if chosen.any()
    ]
    return [text for text, _ in kept], [members for _, members in kept]
