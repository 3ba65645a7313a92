"""Progress per step and per response of each rule, relative to GRPO and to the optimum."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY, legend, line_style
from paper.claims import Measure
from paper.frontier.sweep import MODELS, NOISE, RULES, FrontierPlots
from paper.results import ItemResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_NAMES = {"grpo": "GRPO, n = 4", "pos": "pos", "balance": "balance"}


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

    def both(values: list[float]) -> str:
        return f"{values[0]:.2f} and {values[1]:.2f} times (noise ratio {NOISE[0]:g} and {NOISE[1]:g})"

    numbers = {
        "settings": settings,
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
        "per-step": Measure(both(step), min(step)),
        "per-response": Measure(both(response), max(response)),
        "per-response-pos": Measure(both(of_pos), max(of_pos)),
        "dear-updates": Measure(both(dear), min(dear)),
        "near-optimal": Measure(f"{min(nearest):.2f} to {max(nearest):.2f} of the optimum", min(nearest)),
    }
    return ItemResult(numbers, measures, {"frontier": partial(_draw, data)})


def _draw(data: FrontierPlots, figure: Figure) -> None:
    figure.set_size_inches(9.6, 4.2)
    panels = figure.subplots(1, 2)
    for axes, objective in zip(panels, ("mean", "log"), strict=True):
        index = next(
            i for i, m in enumerate(MODELS) if (m.objective, m.noise_ratio, m.update_cost) == (objective, 1.0, 0.0)
        )
        plot = data.plots[index]
        unit = plot.grpo.utility
        costs = np.geomspace(plot.costs[0], 32, 300)
        axes.plot(
            costs,
            np.interp(costs, plot.costs, plot.utilities) / unit,
            color="black",
            label="frontier: the best at each cost",
        )
        axes.plot(
            plot.plain[:, 0],
            plot.plain[:, 1] / unit,
            color=GREY,
            linewidth=1.2,
            marker=".",
            label="n responses, group mean",
        )
        axes.plot(
            costs,
            plot.grpo.efficiency / unit * costs,
            color=GREY,
            linestyle=":",
            linewidth=1.2,
            label="as efficient as GRPO, n = 4",
        )
        axes.plot(
            plot.optimum.cost,
            plot.optimum.utility / unit,
            "*",
            color="black",
            markersize=13,
            label="the most efficient",
        )
        for number, (name, point) in enumerate(zip(RULES, plot.points, strict=True)):
            colour = line_style(number)["color"]
            axes.plot(point.cost, point.utility / unit, "o", color=colour, markersize=9, label=_NAMES[name])
        axes.set_title(f"objective: {'mean reward' if objective == 'mean' else 'mean of log p'}")
        axes.set_xlabel("responses a prompt")
        axes.set_xlim(0, 33)
        axes.set_ylim(0, 1.1 * float(np.interp(32, plot.costs, plot.utilities)) / unit)
    panels[0].set_ylabel("progress of a step (GRPO, n = 4: 1)")
    legend(figure, panels[0])
