"""The gain of the adaptive rules by how hard the prompts are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ada_bandit._types import FloatArray
from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.figure1.analysis import late
from paper.results import ItemResult, gaps
from paper.training import NAMES, RULES, SETS, band, paired, unanimous
from sim.learn.study import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse", "larger_on_hard"]

_TITLES = {"all": "at least 1 of 16", "moderate": "moderate: 1-5 of 16", "hard": "hard: 1-2 of 16"}


def larger_on_hard(sweep: Sweep) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return the gain of balance over GRPO on hard and on moderate prompts by reading, ``[seed]``.

    Held-out pass rates stand for benchmarks. Each set has held-out prompts of its own difficulty; there is no common
    benchmark, so the gain is read as it is and relative to GRPO's rise.
    """
    gain, relative = {}, {}
    for name in ("hard", "moderate"):
        curves = {rule: sweep.values(name, rule, "held_out_pass_rate") for rule in ("balance", "grpo")}
        gain[name] = curves["balance"][:, -1] - curves["grpo"][:, -1]
        relative[name] = gain[name] / (curves["grpo"][:, -1] - curves["grpo"][:, 0])
    return {
        "held out": (gain["hard"], gain["moderate"]),
        "held out, relative": (relative["hard"], relative["moderate"]),
    }


def analyse(sweep: Sweep) -> ItemResult:
    """Return the numbers, measures and the figure."""
    rewards = {name: {rule: late(sweep, name, rule) for rule in RULES} for name in SETS}
    gains = {name: one["balance"] - one["grpo"] for name, one in rewards.items()}
    rises = {name: rewards[name]["grpo"] - sweep.values(name, "grpo", "train_pass_rate")[:, 0] for name in SETS}
    relative = {name: gains[name] / rises[name] for name in SETS}
    measures: dict[str, Measure] = {
        "hard": paired(rewards["hard"]["balance"], rewards["hard"]["grpo"], "reward"),
        "moderate": paired(rewards["moderate"]["balance"], rewards["moderate"]["grpo"], "reward"),
        "larger": unanimous(
            {"training reward": (gains["hard"], gains["moderate"])} | larger_on_hard(sweep),
        ),
        "larger-relative": paired(relative["hard"], relative["moderate"], "hard minus moderate"),
    }
    numbers = {
        "seeds": sweep.plan.seeds,
        "reward": {name: {rule: float(values.mean()) for rule, values in one.items()} for name, one in rewards.items()},
        "gain": {name: float(gain.mean()) for name, gain in gains.items()},
        "relative": {name: float(gain.mean()) for name, gain in relative.items()},
        "gap": gaps(
            {key: measures[key] for key in ("hard", "moderate", "larger-relative")}
            | {"larger": paired(gains["hard"], gains["moderate"], "hard minus moderate")}
        ),
    }
    return ItemResult(numbers, measures, {"figure6": partial(_draw, sweep)})


def _draw(sweep: Sweep, figure: Figure) -> None:
    figure.set_size_inches(11.2, 6.0)
    panels = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(3, 2))
    for column, name in enumerate(SETS):
        steps = sweep.values(name, "grpo", "steps_spent")[0]
        reference = sweep.values(name, "grpo", "train_pass_rate")
        for (rule, label), look in zip(NAMES.items(), policy_looks(list(NAMES.values())), strict=True):
            values = sweep.values(name, rule, "train_pass_rate")
            band(panels[0, column], steps, values, look, label)
            if rule != "grpo":
                band(panels[1, column], steps, values - reference, look, label)
        panels[1, column].axhline(0, color=policy_looks(["grpo"])[0]["color"], linewidth=1.2, label="GRPO, n = 4")
        panels[1, column].set_xlim(0, steps[-1])
        panels[0, column].set_title(_TITLES[name])
        panels[1, column].set_xlabel("step")
    panels[0, 0].set_ylim(0, None)
    panels[0, 0].set_ylabel("mean pass rate,\ntraining prompts (simulated)")
    panels[1, 0].set_ylabel("ahead of GRPO, n = 4\n± 2 standard errors")
    name_lines(figure, panels[:, -1])
