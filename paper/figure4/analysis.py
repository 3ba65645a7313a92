"""Entropy at equal reward, and pass@k at the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.programs.looks import name_lines, policy_looks
from paper.claims import Measure
from paper.results import ItemResult, gaps
from paper.training import MATCHED, NAMES, RULES, band, matched_to, paired, standard_error
from sim.learn.study import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["analyse", "entropy_at_rewards"]

_SET = "all"
_LEVELS = 25


def entropy_at_rewards(rewards: FloatArray, entropies: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the entropy when the reward first reaches each level, ``[level]``, between evaluations on a line.

    Parameters
    ----------
    rewards, entropies
        ``[evaluation]``.
    levels
        ``[level]`` within the range of the rewards.
    """
    return np.asarray(np.interp(levels, np.maximum.accumulate(rewards), entropies))


def _tradeoff(sweep: Sweep, ours: str, theirs: str) -> tuple[FloatArray, FloatArray]:
    """Return the mean entropy of two rules at equal rewards, ``[seed]`` each."""
    columns = [
        (sweep.values(_SET, rule, "train_pass_rate"), sweep.values(_SET, rule, "train_entropy"))
        for rule in (ours, theirs)
    ]
    pairs = []
    for seed in range(sweep.plan.seeds):
        low = max(float(rewards[seed, 0]) for rewards, _ in columns)
        high = min(float(rewards[seed].max()) for rewards, _ in columns)
        levels = np.linspace(low, high, _LEVELS)
        pairs.append([entropy_at_rewards(rewards[seed], entropy[seed], levels).mean() for rewards, entropy in columns])
    first, second = np.array(pairs).T
    return first, second


def analyse(sweep: Sweep) -> ItemResult:
    """Return the numbers, measures and the figure."""
    k = sweep.plan.setting.pass_k
    rules = (*RULES, *map(matched_to, MATCHED))
    curves = {rule: sweep.values(_SET, rule, "held_out_pass_at") for rule in rules}
    end = {rule: curve[:, -1] for rule, curve in curves.items()}
    measures: dict[str, Measure] = {
        "entropy": paired(*_tradeoff(sweep, "balance", "grpo"), "entropy"),
        "entropy-pos": paired(*_tradeoff(sweep, "pos", "grpo"), "entropy"),
        "matched-entropy": paired(*_tradeoff(sweep, "balance", matched_to("balance")), "entropy"),
    }
    for size in (4, 256):
        at = k.index(size)
        measures[f"pass-at-{size}"] = paired(end["balance"][:, at], end["grpo"][:, at], f"pass@{size}")
    numbers = {
        "k": k,
        "seeds": sweep.plan.seeds,
        "start": curves["grpo"][:, 0].mean(axis=0),
        "pass_at": {rule: values.mean(axis=0) for rule, values in end.items()},
        "entropy": {rule: float(sweep.values(_SET, rule, "train_entropy")[:, -1].mean()) for rule in rules},
        "entropy_start": float(sweep.values(_SET, "grpo", "train_entropy")[:, 0].mean()),
        "gap": gaps(measures),
    }
    return ItemResult(numbers, measures, {"figure4": partial(_draw, sweep)})


def _draw(sweep: Sweep, figure: Figure) -> None:
    figure.set_size_inches(11.6, 4.3)
    axes, gaps = figure.subplots(1, 2)
    k = np.array(sweep.plan.setting.pass_k)
    reference = sweep.values(_SET, "grpo", "held_out_pass_at")[:, -1]
    labels = NAMES | {matched_to(rule): name for rule, name in MATCHED.items()}
    for (rule, label), look in zip(labels.items(), policy_looks(list(labels.values())), strict=True):
        reward, entropy = (sweep.values(_SET, rule, name) for name in ("train_pass_rate", "train_entropy"))
        axes.plot(reward.mean(axis=0), entropy.mean(axis=0), **look, label=label)
        (x, wide), (y, high) = ((v[:, -1].mean(), 2 * standard_error(v[:, -1])) for v in (reward, entropy))
        axes.errorbar(x, y, xerr=wide, yerr=high, fmt="none", color=look["color"], elinewidth=1.2)
        if rule != "grpo":
            band(gaps, k, sweep.values(_SET, rule, "held_out_pass_at")[:, -1] - reference, look, label)
    gaps.axhline(0, color=policy_looks(["grpo"])[0]["color"], linewidth=1.2, label="GRPO, n = 4")
    gaps.set_xscale("log", base=2)
    gaps.set_xticks(k, [str(one) for one in k])
    gaps.minorticks_off()
    gaps.set_xlabel("responses k")
    gaps.set_ylabel("held-out pass@k at the end, minus GRPO's")
    gaps.set_title("bands: ± 2 standard errors over seeds")
    axes.set_xlabel("mean pass rate, training prompts")
    axes.set_ylabel("mean entropy of the answer, nats")
    axes.set_title("simulated, at least 1 of 16 correct (crosses: ± 2 s.e.)")
    # Room for the names of lines that end together.
    for each in (axes, gaps):
        each.margins(y=0.12)
    name_lines(figure, (axes, gaps))
