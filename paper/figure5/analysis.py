"""Which reading of the labels any law can meet, and how far simple paths of laws explain the series."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import GREY
from ada_bandit.programs.looks import name_lines
from paper.claims import Measure
from paper.drawing import NEUTRAL
from paper.figure5.sweep import BALANCE, LABELS, Dynamics, Fit, Reading
from paper.published import settings
from paper.results import ItemResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["analyse", "errors_of"]

_FILTERED = "base, at least 1 of 16"


def errors_of(data: Dynamics, fit: Fit) -> dict[str, float]:
    """Return the median absolute relative error of every series along a path, over the steps with all series."""
    steps = data.fitted
    return {
        name: float(np.nanmedian(np.abs(fit.predicted[name][steps] / data.published[name][steps] - 1)))
        for name in LABELS
    }


def _pooled(data: Dynamics, fit: Fit, names: tuple[str, ...]) -> float:
    """Return the median absolute relative error over several series and all steps."""
    steps = data.fitted
    errors = [np.abs(fit.predicted[name][steps] / data.published[name][steps] - 1) for name in names]
    return float(np.median(np.concatenate(errors)))


_LOW, _HIGH = 200, 540
"""Steps between which balance draws more again."""


def _rise(data: Dynamics) -> tuple[float, float, float]:
    """Return the rise of balance's extra responses, the part of prompts short of negatives, and its share's error.

    A prompt that is short of negatives has had all rounds. Reading errors are taken as independent.
    """
    setup = settings()
    error = setup["reading_error_figure5"]
    at = [int(np.nonzero(data.steps == step)[0][0]) for step in (_LOW, _HIGH)]
    extra, short = data.published["extra_balance"][at], data.published["short_of_negatives"][at]
    rise = float(extra[1] - extra[0])
    explained = float(short[1] - short[0]) * setup["round_size"] * (setup["rounds"] - 1)
    spread = np.hypot(np.hypot(*extra) * error / rise, np.hypot(*short) * error / (short[1] - short[0]))
    return rise, explained, float(spread) * explained / rise


def analyse(data: Dynamics) -> ItemResult:
    """Return the numbers, measures and figures."""
    setup = settings()
    prompts, group, size = setup["prompts"], setup["group_size"], setup["round_size"]
    literal, chosen = Reading(group, 2), data.reading
    lowest = float(np.nanmin(data.published["extra_pos"]))
    least = prompts * (size - group)
    others = tuple(name for name in BALANCE if name != "extra_balance")
    pooled = {
        name: _pooled(data, fit, others if name.startswith("mixture") else BALANCE) for name, fit in data.fits.items()
    }
    rise, explained, error = _rise(data)
    worst = {reading: float(np.nanmax(values)) for reading, values in data.misfit.items()}
    literal_two = Reading(size, 2)
    numbers: dict[str, Any] = {
        "steps": data.steps,
        "published": data.published,
        "readings": [
            {
                "label": reading.label,
                "beyond": reading.beyond,
                "early": reading.early,
                "worst_balance": worst[reading],
                "worst_pos": float(np.nanmax(data.misfit_pos[reading])),
                "by_step": data.misfit[reading],
            }
            for reading in data.misfit
        ],
        "worst_misfit": {
            "beyond_n_two_rounds": worst[literal],
            "beyond_n_two_rounds_pos": float(np.nanmax(data.misfit_pos[literal])),
            "beyond_first_two_rounds": worst[literal_two],
            "beyond_first_one_round": worst[chosen],
        },
        "least_extra_beyond_n": least,
        "lowest_published_pos": lowest,
        "mean_pass_rate_bounds": data.mean_bounds,
        "start": data.start,
        "first": {name: float(data.published[name][0]) for name in ("extra_pos", "extra_balance")},
        "line": data.line,
        "paths": {
            name: {
                "parameters": one.parameters,
                "predicted": one.predicted,
                "mean_pass_rate": one.mean,
                "median_errors": errors_of(data, one),
                "pooled_error": pooled[name],
            }
            for name, one in data.fits.items()
        },
        "rise": rise,
        "rise_from_negatives": explained,
        "rise_share": explained / rise,
        "rise_share_error": error,
        "last_mean_bounds": data.mean_bounds[int(np.nonzero(data.fitted)[0][-1])],
        "first_mean_bounds": data.mean_bounds[int(np.nonzero(data.fitted)[0][0])],
    }
    start = data.start[_FILTERED]
    moderate = data.start["base, 1-5 of 16"]
    mixture = errors_of(data, data.fits["mixture"])
    measures = {
        "beyond-n": Measure(f"at least {least:,} for every law", least, reference=lowest),
        "two-rounds": Measure(
            f"no law comes closer than {worst[literal_two]:.0%} ({worst[literal]:.0%} with extra beyond n)",
            min(worst[literal_two], worst[literal]),
            # As much more than the assumed reading error as one pair of readings of Figure 2 is known to be off.
            setup["reading_error_figure5"] * (setup["reading_miss"] / setup["reading_error_share"] - 1),
            0.0,
        ),
        "one-round": Measure(f"largest error {abs(worst[chosen]):.1%}", worst[chosen], reference=0.0),
        "start-pos": Measure(
            f"{start['extra_pos']:,.0f}; {moderate['extra_pos']:,.0f} with 1-5 of 16",
            start["extra_pos"],
            reference=float(data.published["extra_pos"][0]),
        ),
        "start-balance": Measure(
            f"{start['extra_balance']:,.0f}; {moderate['extra_balance']:,.0f} with 1-5 of 16",
            start["extra_balance"],
            reference=float(data.published["extra_balance"][0]),
        ),
        "mixture": Measure(
            f"median error {pooled['mixture']:.0%}: short of negatives {mixture['short_of_negatives']:.0%}, "
            f"of positives {mixture['short_of_positives']:.0%}, both quotas {mixture['both_quotas']:.0%}",
            pooled["mixture"],
            reference=0.0,
        ),
        "spread": Measure(
            f"median error {pooled['spread']:.0%} ({pooled['spread, 1-5 of 16']:.0%} from 1-5 of 16); extra of pos, "
            f"another run, off by {errors_of(data, data.fits['spread'])['extra_pos']:.0%}",
            pooled["spread"],
            reference=0.0,
        ),
        "negatives": Measure(
            f"{explained:,.0f} of {rise:,.0f} responses: {explained / rise:.0%} ± {error:.0%}", explained / rise, error
        ),
    }
    return ItemResult(
        numbers, measures, {"figure5": partial(_draw, data), "figure5_readings": partial(_draw_readings, data)}
    )


_LOOKS = {
    "mixture": (NEUTRAL[2], "mixture of base\nand RL, at least\n1 of 16 correct"),
    "spread": (NEUTRAL[0], "logit shift and\nscale, at least\n1 of 16 correct"),
    "spread, 1-5 of 16": (NEUTRAL[1], "logit shift and\nscale, 1-5 of 16\ncorrect"),
}


def _draw(data: Dynamics, figure: Figure) -> None:
    figure.set_size_inches(10.6, 6.4)
    panels = figure.subplots(2, 3, sharex=True)
    axes: Axes
    for axes, (name, label) in zip(panels.flat, LABELS.items(), strict=True):
        dots: dict[str, Any] = {"color": "black", "markerfacecolor": "white", "markersize": 5, "zorder": 4}
        axes.plot(data.steps, data.published[name], "o", **dots, label="_published")
        for path, (look, words) in _LOOKS.items():
            predicted = data.fits[path].predicted[name]
            seen = np.isfinite(predicted)
            axes.plot(data.steps[seen], predicted[seen], **look, linewidth=1.7, label=words)
        axes.set_title(label)
        axes.set_ylim(0, None)
    for axes in panels[1]:
        axes.set_xlabel("training step")
    panels[0, 0].set_ylabel("responses a step")
    panels[1, 0].set_ylabel("prompts of 512")
    panels[0, 2].set_ylabel("prompts of 512")
    figure.suptitle("rings: published; lines: three paths of laws", x=0.01, ha="left", fontsize=10.5)
    name_lines(figure, panels[:, -1])


def _draw_readings(data: Dynamics, figure: Figure) -> None:
    figure.set_size_inches(11.6, 4.2)
    axes, mean = figure.subplots(1, 2)
    for look, (reading, values) in zip(NEUTRAL, data.misfit.items(), strict=True):
        seen = data.fitted
        label = reading.label.replace("; ", ";\n")
        axes.plot(data.steps[seen], values[seen], marker="o", markersize=4, **look, label=label)
    error = settings()["reading_error_figure5"]
    axes.axhspan(0, error, color="#efefef", zorder=0)
    axes.annotate("reading error", (data.steps[data.fitted][0], error), ha="left", va="bottom", color=GREY)
    axes.set_ylim(-0.01, 0.6)
    axes.set_title("balance run: least possible error over all laws")
    axes.set_ylabel("largest relative error")
    seen = data.fitted
    mean.fill_between(data.steps[seen], *data.mean_bounds[seen].T, color="#e2e2e2")
    for path, (look, words) in _LOOKS.items():
        mean.plot(data.steps[seen], data.fits[path].mean[seen], **look, label=words)
    mean.set_ylim(0, 1)
    mean.set_title("mean pass rate that the counts imply\n(grey: all laws within reading errors)")
    mean.set_ylabel("mean pass rate of the training prompts")
    for each in (axes, mean):
        each.set_xlabel("training step")
        each.set_xlim(0, 1.02 * data.steps[seen][-1])
    name_lines(figure, (axes, mean), size=8.5)
