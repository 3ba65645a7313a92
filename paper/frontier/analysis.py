"""Progress per step and per response of each rule, relative to GRPO and to the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, equal_cost, legend
from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.drawing import MARKS
from paper.frontier.sweep import MODELS, NOISE, RULES, FrontierPlots, Step
from paper.results import ItemResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_NAMES = {"grpo": "GRPO, n = 4", "pos": "pos", "balance": "balance"}


def _ahead(steps: Mapping[str, Step], control: str) -> Measure:
    """Return in how many regimes a step is ahead of one with as many responses, and in how many behind."""
    ratios: dict[str, float] = {name: getattr(one, control) for name, one in steps.items()}
    each = ", ".join(f"{ratio:.2f} ({name})" for name, ratio in ratios.items())
    against = [one.grpo for one in steps.values()]
    return Measure(
        f"{each}; {min(against):.2f} to {max(against):.2f} of GRPO with n = 4",
        wins=sum(ratio > 1 for ratio in ratios.values()),
        losses=sum(ratio < 1 for ratio in ratios.values()),
        readings=len(steps),
    )


def analyse(data: FrontierPlots) -> ItemResult:
    """Return the numbers, measures and the figure."""
    settings: list[dict[str, Any]] = []
    for model, plot in zip(MODELS, data.plots, strict=True):
        grpo = plot.points[0]
        for name, point in zip(RULES, plot.points, strict=True):
            settings.append(
                {
                    "objective": model.objective,
                    "noise_ratio": model.noise_ratio,
                    "update_cost": model.update_cost,
                    "rule": name,
                    "responses": point.responses,
                    "per_step": point.utility / grpo.utility,
                    "per_cost": point.efficiency / grpo.efficiency,
                    "of_optimum": point.against_optimum,
                    "of_frontier": point.against_frontier,
                }
            )
    optimum = {
        f"{model.objective}, {model.noise_ratio:g}, {model.update_cost:g}": plot.optimum.efficiency
        / plot.points[0].efficiency
        for model, plot in zip(MODELS, data.plots, strict=True)
    }

    def pick(rule: str, key: str, objective: str, cost: float) -> list[float]:
        chosen = (objective, cost, rule)
        return [s[key] for s in settings if (s["objective"], s["update_cost"], s["rule"]) == chosen]

    step = pick("balance", "per_step", "mean", 0.0)
    response, of_pos = pick("balance", "per_cost", "mean", 0.0), pick("pos", "per_cost", "mean", 0.0)
    dear = pick("balance", "per_cost", "log", 10.0)
    nearest = [s["of_optimum"] for s in settings if s["rule"] == "balance"]
    best = max(range(len(nearest)), key=nearest.__getitem__)

    def regimes(values: Sequence[float], shared: Sequence[float]) -> str:
        return (
            f"{values[0]:.2f} and {values[1]:.2f} times (noise ratio {NOISE[0]:g} and {NOISE[1]:g}) with transfer 0, "
            f"{shared[0]:.2f} and {shared[1]:.2f} with transfer 1"
        )

    numbers = {
        "settings": settings,
        "transfer_1": data.shared,
        "steps": {name: asdict(one) for name, one in data.steps.items()},
        "optimum": optimum,
        "balance_per_step": step,
        "balance_per_response": response,
        "pos_per_step": pick("pos", "per_step", "mean", 0.0),
        "pos_per_response": of_pos,
        "balance_per_response_log": pick("balance", "per_cost", "log", 0.0),
        "pos_per_response_log": pick("pos", "per_cost", "log", 0.0),
        "balance_dear": dear,
        "balance_of_optimum": {"least": min(nearest), "most": nearest[best]},
        "responses": {name: float(point.responses) for name, point in zip(RULES, data.plots[0].points, strict=True)},
    }
    measures = {
        "per-step": _ahead(data.steps, "selected"),
        "per-step-all": _ahead(data.steps, "matched"),
        "per-response": Measure(regimes(response, data.shared["balance"]), max(*response, *data.shared["balance"])),
        "per-response-pos": Measure(regimes(of_pos, data.shared["pos"]), max(*of_pos, *data.shared["pos"])),
        "dear-updates": Measure(
            regimes(dear, data.shared["dear"]),
            wins=sum(ratio > 1 for ratio in (*dear, *data.shared["dear"])),
            losses=sum(ratio < 1 for ratio in (*dear, *data.shared["dear"])),
            readings=len(dear) + len(data.shared["dear"]),
        ),
        "near-optimal": Measure(f"{min(nearest):.2f} to {max(nearest):.2f} of the optimum", min(nearest)),
    }
    return ItemResult(numbers, measures, {"frontier": partial(_draw, data)})


def _draw(data: FrontierPlots, figure: Figure) -> None:
    figure.set_size_inches(10.6, 4.2)
    panels = figure.subplots(1, 2)
    plots = []
    for axes, objective in zip(panels, ("mean", "log"), strict=True):
        index = next(
            i for i, m in enumerate(MODELS) if (m.objective, m.noise_ratio, m.update_cost) == (objective, 1.0, 0.0)
        )
        plot = data.plots[index]
        plots.append(plot)
        unit = plot.grpo.utility
        costs = np.geomspace(plot.costs[0], 32, 300)
        axes.plot(
            costs,
            np.interp(costs, plot.costs, plot.utilities) / unit,
            color="black",
            label="frontier: the best\nat each cost",
        )
        axes.plot(
            plot.plain[:, 0],
            plot.plain[:, 1] / unit,
            color=GREY,
            linewidth=1.2,
            marker=".",
            label="GRPO, n responses",
        )
        axes.plot(
            costs,
            plot.grpo.efficiency / unit * costs,
            color=GREY,
            linestyle=":",
            linewidth=1.2,
            label="as efficient as\nGRPO, n = 4",
        )
        axes.set_title(f"objective: {'mean reward' if objective == 'mean' else 'mean of log p'}")
        axes.set_xlabel("responses a prompt")
        axes.set_xlim(0, 33)
        axes.set_ylim(0, 1.1 * float(np.interp(32, plot.costs, plot.utilities)) / unit)
    panels[0].set_ylabel("progress of a step (GRPO, n = 4: 1)")
    # Both panels have the same lines, which are named once; only marks are left to the legend.
    name_lines(figure, panels[1:])
    for line in [line for axes in panels for line in axes.lines]:
        line.set_label("_named")
    looks = policy_looks([_NAMES[name] for name in RULES])
    for axes, plot in zip(panels, plots, strict=True):
        unit = plot.grpo.utility
        points = [(point.cost, point.utility / unit) for point in plot.points]
        for name, place, look in zip(RULES, points, looks, strict=True):
            style: dict[str, Any] = {"color": look["color"], "linestyle": "none", "marker": MARKS[name]}
            axes.plot(*place, **style, markersize=9, zorder=3, label=_NAMES[name])
        equal_cost(axes, points, (plot.plain[:, 0], plot.plain[:, 1] / unit))
        star: dict[str, Any] = {"color": "black", "linestyle": "none", "marker": "*", "markersize": 13}
        label = "optimum: the most efficient for this law"
        axes.plot(plot.optimum.cost, plot.optimum.utility / unit, **star, label=label)
    legend(figure, panels[0])
