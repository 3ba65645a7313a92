"""What could be changed, one thing at a time, and what each is worth; and what a step of given size holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from sim.advise.profiles import Laws, over, profile_of
from sim.advise.study import Advice
from sim.advise.verdict import Compared, interval_of
from sim.stopped.pools import Interval

__all__ = ["OVERLAP", "Option", "StepChoice", "options_of", "step_choices"]

OVERLAP = 0.02
"""Overlap of different prompts' directions, as measured on a tiny model (0.019)."""


@dataclass(frozen=True)
class Option:
    """One thing to change."""

    name: str
    """What is changed."""
    how: str
    """To what, or what it is."""
    factor: Interval
    """Progress per response over now, at the middle setting."""
    ends: tuple[float, float]
    """The smallest and the largest factor over the settings."""
    rests: str
    """What the factor rests on."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "change": self.name,
            "how": self.how,
            "per_response": self.factor.to_dict(),
            "over_settings": {"low": self.ends[0], "high": self.ends[1]},
            "rests_on": self.rests,
        }


def options_of(advice: Advice) -> tuple[Option, ...]:
    """Return what could be changed; nothing where the log can't tell policies apart."""
    return tuple(_options(advice)) if advice.gains is not None else ()


def _options(advice: Advice) -> Iterator[Option]:
    gains, model = advice.gains, "the score model"
    if gains is None:
        return
    plain = [each for each in advice.compared[1:] if each.candidate.key.startswith("grpo")]
    if plain:
        yield _option("responses a prompt", max(plain, key=lambda each: each.mean))
    one = next((each for each in advice.compared[1:] if each.candidate.key.startswith("reinforce:")), None)
    if one is not None:
        yield _option("the baseline", one)
    yield _option("the advantages", advice.policy("best-advantages"))
    left = 1 - advice.groups.signal.value
    if left < 1:
        yield Option(
            "groups without signal left out",
            f"the same direction from {left:.0%} fewer rows; a larger step at the same learning rate",
            Interval(1.0, 1.0, 1.0),
            (1.0, 1.0),
            "exact: a group without signal has advantage 0",
        )
    yield _option("adaptive rounds", advice.policy("best-rounds"))
    at = gains.settings.index(advice.choices.middle)
    known = gains.knowledge * gains.number * gains.advantages * gains.base
    ends = float(known[:, 0].min()), float(known[:, 0].max())
    yield Option(
        "a memory of prompts",
        "a bound: rates known, and only the tenth of prompts asked that teaches most",
        interval_of(known[at]),
        ends,
        model,
    )


def _option(name: str, to: Compared) -> Option:
    return Option(name, to.candidate.label, to.per_response, to.ends, "the score model")


@dataclass(frozen=True)
class StepChoice:
    """What a step of given size holds under a policy."""

    label: str
    """The policy."""
    prompts: float
    """Prompts a step."""
    signal: float
    """Groups with signal among them."""
    apart: Interval
    """Progress of a step over that of now where prompts have no direction in common."""
    overlap: Interval
    """Likewise where they overlap by `OVERLAP`: larger batches then say the same thing twice."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "label": self.label,
            "prompts": self.prompts,
            "signal": self.signal,
            "progress": self.apart.to_dict(),
            "progress_with_overlap": self.overlap.to_dict() | {"overlap": OVERLAP},
        }


def step_choices(advice: Advice) -> tuple[StepChoice, ...]:
    """Return what a step holds under every policy, where its number of responses was given."""
    if advice.responses_a_step is None or not advice.compared:
        return ()
    laws, setting, budget = Laws.of(advice.law), advice.choices.middle, advice.responses_a_step
    found: list[StepChoice] = []
    bases: dict[float, FloatArray] = {}
    for each in advice.compared:
        profile = profile_of(each.candidate.policy, laws.rates)
        prompts = budget / profile.responses(laws)
        factors = []
        for overlap in (0.0, OVERLAP):
            progress = profile.utility(setting, laws, overlap * np.maximum(prompts - 1, 0)) * prompts
            base = bases.setdefault(overlap, progress)
            factors.append(interval_of(over(progress, base)))
        count = float(prompts[0])
        signal = float(laws.mean(profile.analysis.signal_probability)[0]) * count
        found.append(StepChoice(each.candidate.label, count, signal, factors[0], factors[1]))
    return tuple(found)
