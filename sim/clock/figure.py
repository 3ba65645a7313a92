"""The figure of step times: what a step is made of, and what slots and barriers do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, draw_figures
from ada_bandit.programs.looks import name_lines, policy_looks
from sim.clock.study import ClockComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

# Parts of a step in greys: colours are for policies.
_SAMPLING, _UPDATE, _FIXED = "#6B6B6B", "#BDBDBD", "#E6E6E6"


def write_figures(comparison: ClockComparison, folder: Path) -> list[Path]:
    """Write the figure as ``clock.png`` and ``clock.svg`` into an existing folder; return the files."""
    return draw_figures({"clock": partial(_draw, comparison)}, folder)


def _draw(comparison: ClockComparison, figure: Figure) -> None:
    figure.set_size_inches(12.4, 3.4 + 0.25 * len(comparison.rows))
    parts, slots = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _parts(comparison, parts)
    _slots(comparison, slots)
    name_lines(figure, [slots])


def _parts(comparison: ClockComparison, axes: Axes) -> None:
    """Draw a step of each policy as a bar: its rounds, the update, and what is fixed."""
    for at, row in enumerate(comparison.rows):
        left = 0.0
        for number, seconds in enumerate(row.time.rounds.tolist()):
            label = "sampling, round by round" if comparison.machine.barriers else "sampling"
            shown: dict[str, Any] = {"label": label} if at == number == 0 else {}
            axes.barh(at, seconds, 0.6, left, color=_SAMPLING, edgecolor="white", linewidth=0.8, **shown)
            left += seconds
        for name, seconds, colour in (("update", row.time.update, _UPDATE), ("fixed", row.time.fixed, _FIXED)):
            if seconds:
                shown = {} if at else {"label": name}
                axes.barh(at, seconds, 0.6, left, color=colour, edgecolor="white", linewidth=0.8, **shown)
                left += seconds
        if row.simulated is not None:
            line = {"label": "simulated ± 2 std. errors"} if at == 0 else {}
            shown = line | {"color": "black", "marker": "|", "markersize": 16, "capsize": 3, "linestyle": "none"}
            axes.errorbar(row.simulated.mean, at, xerr=2 * row.simulated.se, **shown)
    axes.set_yticks(np.arange(len(comparison.rows)), [row.policy for row in comparison.rows])
    axes.set_ylim(len(comparison.rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"seconds of a step of {comparison.prompts} prompts")
    axes.set_title(f"{comparison.machine.label}\n", color="#333333")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.985), ncols=4, fontsize=8.5, handlelength=1.2,
                columnspacing=1.0)  # fmt: skip


def _slots(comparison: ClockComparison, axes: Axes) -> None:
    """Draw sampling by slots, with barriers and without."""
    for row, look in zip(comparison.rows, policy_looks([row.policy for row in comparison.rows]), strict=True):
        axes.plot(comparison.slots, row.by_slots[0], color=look["color"], label=row.policy)
        axes.plot(comparison.slots, row.by_slots[1], color=look["color"], linestyle=(0, (4, 1.5)), linewidth=1.4)
    plain = axes.plot([], [], color=GREY, label="_barriers")
    dashed = axes.plot([], [], color=GREY, linestyle=(0, (4, 1.5)), linewidth=1.4, label="_streaming")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(comparison.slots, [f"{each:,}" for each in comparison.slots], fontsize=9)
    axes.minorticks_off()
    low, high = axes.get_ylim()
    ticks = [base * 10**power for power in range(-3, 7) for base in (1, 2, 5)]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(low, high)
    axes.set_xlabel("slots")
    axes.set_ylabel("seconds of sampling")
    axes.legend([*plain, *dashed], ["barriers", "streaming"], loc="upper right", fontsize=8.5)
