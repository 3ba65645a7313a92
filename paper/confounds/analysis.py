"""What normalisation by the deviation does to each side of the comparison, and what stays confounded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY
from ada_bandit.programs.looks import policy_looks
from paper.claims import Measure
from paper.confounds.sweep import ARMS, Separated
from paper.drawing import MARKS, name_within
from paper.figure1.analysis import late
from paper.published import rows
from paper.results import ItemResult, gaps
from paper.training import band, paired

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse"]

_SET = "all"
_PUBLIC = "grpo, deviation"


def _ahead(data: Separated, ours: str, theirs: str) -> Measure:
    """Return in how many regimes a step of one arm makes more progress than a step of another."""
    ratios = {name: one[ours] / one[theirs] for name, one in data.utilities.items()}
    text = ", ".join(f"{ratio:.2f} ({name})" for name, ratio in ratios.items())
    wins, losses = (sum(sign * (ratio - 1) > 0 for ratio in ratios.values()) for sign in (1, -1))
    return Measure(text, wins=wins, losses=losses, readings=len(ratios))


def analyse(data: Separated) -> ItemResult:
    """Return the numbers, measures and the figure."""
    ratios = np.array([one[_PUBLIC] / one["grpo"] for one in data.utilities.values()])
    furthest = float(ratios[np.abs(ratios - 1).argmax()])
    rewards = {name: late(data.runs, _SET, name) for name in ARMS}
    compared = {
        "runs": paired(rewards["balance"], rewards["grpo"], "reward"),
        "runs-deviation": paired(rewards["balance, deviation"], rewards[_PUBLIC], "reward"),
        "runs-grpo": paired(rewards[_PUBLIC], rewards["grpo"], "reward"),
    }
    measures = compared | {
        "deviation": Measure(f"{ratios.min():.3f} to {ratios.max():.3f}", furthest, reference=1.0),
        "alike": _ahead(data, "balance", "grpo"),
        "alike-deviation": _ahead(data, "balance, deviation", _PUBLIC),
    }
    numbers = {
        "seeds": data.runs.plan.seeds,
        "confounds": list(rows("confounds")),
        "utilities": data.utilities,
        "reward": {name: float(values.mean()) for name, values in rewards.items()},
        "gap": gaps(compared),
    }
    return ItemResult(numbers, measures, {"confounds": partial(_draw, data)})


_NAMES = {
    "grpo, deviation": "GRPO, divided by the deviation",
    "balance": "balance",
    "balance, deviation": "balance, divided by the deviation",
}
"""What the figure calls the arms; the fourth is what they are compared with."""
_NAMED_AT = {"grpo, deviation": 0.3, "balance": 0.35, "balance, deviation": 0.35}
"""Where, as a share of the steps, a line's name stands."""


def _draw(data: Separated, figure: Figure) -> None:
    figure.set_size_inches(11.6, 4.2)
    axes, runs = figure.subplots(1, 2)
    at = np.arange(len(data.utilities))
    reference = data.runs.values(_SET, "grpo", "train_pass_rate")
    steps = data.runs.values(_SET, "grpo", "steps_spent")[0]
    lines = {}
    # Without the deviation first: these are the rules of the other figures, with plain lines as there.
    arms = sorted(ARMS, key=lambda name: (not name.startswith("grpo"), name.endswith("deviation")))
    for index, (name, look) in enumerate(zip(arms, policy_looks(arms), strict=True)):
        if name == "grpo":
            continue
        ratios = [one[name] / one["grpo"] for one in data.utilities.values()]
        divided = name.endswith("deviation")
        style: dict[str, Any] = {"color": look["color"], "markerfacecolor": "white" if divided else look["color"]}
        mark = MARKS[name.removesuffix(", deviation")]
        axes.plot(ratios, at + 0.12 * (index - 1.5), mark, markersize=6.5, **style, label=_NAMES[name])
        band(runs, steps, data.runs.values(_SET, name, "train_pass_rate") - reference, look, "_" + name)
        lines[name] = runs.lines[-1]
    axes.set_yticks(at, [name.replace(", ", "\n") for name in data.utilities])
    axes.invert_yaxis()
    axes.axvline(1, color=GREY, linewidth=1.2)
    axes.set_xlabel("progress of a step, over GRPO without the deviation")
    axes.set_title("exact, score model")
    axes.legend(fontsize=9, loc="upper right")
    runs.axhline(0, color=GREY, linewidth=1.2)
    runs.set_xlabel("step")
    runs.set_ylabel("pass rate above GRPO without the deviation")
    runs.set_title("simulated (± 2 standard errors)")
    runs.set_xlim(0, steps[-1])
    # Both lines of balance end together: they are named where they are apart.
    for name, where in _NAMED_AT.items():
        words = _NAMES[name].replace("divided ", "divided\n")
        name_within(runs, lines[name], where * steps[-1], above=name.startswith("grpo"), label=words)
