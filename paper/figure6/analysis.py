"""The gain of the adaptive rules by how hard the prompts are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from paper.claims import Measure
from paper.figure1.analysis import late
from paper.items import Result
from paper.training import NAMES, RULES, SETS, band, paired
from sim.learning_sweep import Sweep
from sim.plots import legend, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_TITLES = {"all": "at least 1 of 16", "moderate": "moderate: 1-5 of 16", "hard": "hard: 1-2 of 16"}


def analyse(found: Sweep) -> Result:
    """Return the numbers, measures and the figure."""
    rewards = {name: {rule: late(found, name, rule) for rule in RULES} for name in SETS}
    gains = {name: one["balance"] - one["grpo"] for name, one in rewards.items()}
    rises = {name: rewards[name]["grpo"] - found.values(name, "grpo", "train_pass_rate")[:, 0] for name in SETS}
    relative = {name: gains[name] / rises[name] for name in SETS}
    measures: dict[str, Measure] = {
        "hard": paired(rewards["hard"]["balance"], rewards["hard"]["grpo"], "reward"),
        "moderate": paired(rewards["moderate"]["balance"], rewards["moderate"]["grpo"], "reward"),
        "larger": paired(gains["hard"], gains["moderate"], "hard minus moderate"),
        "larger-relative": paired(relative["hard"], relative["moderate"], "hard minus moderate"),
    }
    numbers = {
        "seeds": found.plan.seeds,
        "reward": {name: {rule: float(values.mean()) for rule, values in one.items()} for name, one in rewards.items()},
        "gain": {name: float(gain.mean()) for name, gain in gains.items()},
        "relative": {name: float(gain.mean()) for name, gain in relative.items()},
        "gap": {
            key: {"mean": one.value, "error": one.error / 2, "wins": one.wins, "losses": one.losses}
            for key, one in measures.items()
        },
    }
    return Result(numbers, measures, {"figure6": partial(_draw, found)})


def _draw(found: Sweep, figure: Figure) -> None:
    figure.set_size_inches(9.6, 6.0)
    panels = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(3, 2))
    for column, name in enumerate(SETS):
        steps = found.values(name, "grpo", "steps_spent")[0]
        reference = found.values(name, "grpo", "train_pass_rate")
        for index, (rule, label) in enumerate(NAMES.items()):
            values = found.values(name, rule, "train_pass_rate")
            panels[0, column].plot(steps, values.mean(axis=0), **look(index), label=label)
            if rule != "grpo":
                band(panels[1, column], steps, values - reference, index)
        panels[1, column].axhline(0, color=look(0)["color"], linewidth=1.2)
        panels[1, column].set_xlim(0, steps[-1])
        panels[0, column].set_title(_TITLES[name])
        panels[1, column].set_xlabel("step")
    panels[0, 0].set_ylim(0, None)
    panels[0, 0].set_ylabel("mean pass rate,\ntraining prompts (simulated)")
    panels[1, 0].set_ylabel("ahead of GRPO, n = 4\n± 2 standard errors")
    legend(figure, panels[0, 0])
