"""The verdict: adaptive or not, what to change first, what it depends on, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from sim.advise.candidates import Candidate
from sim.advise.gains import WORTH, Gains, Turn
from sim.advise.now import Now
from sim.advise.settings import Range
from sim.stopped.pools import Interval, interval

__all__ = ["SURE", "Change", "Compared", "Verdict", "verdict_of"]

SURE = 0.8
"""Share of settings and resamples that must agree."""
_AS_GOOD = 0.95
"""A simpler change that has this share of the best one's factor is preferred."""


@dataclass(frozen=True, eq=False)
class Compared:
    """A candidate against what is run now."""

    candidate: Candidate
    """The candidate."""
    responses: Interval
    """Responses a prompt."""
    signal: Interval
    """Share of prompts whose group holds both classes."""
    rows: float
    """Rows of the update a prompt."""
    rounds: float
    """Mean number of rounds."""
    per_response: Interval
    """Progress per response over that of now, at the middle setting."""
    per_token: Interval | None
    """Progress per token, likewise; None where no lengths are known."""
    per_second: Interval | None
    """Progress per second, likewise."""
    factors: FloatArray
    """`[setting, law]` Progress per response over that of now."""

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest factor over the settings, under the fitted law."""
        return float(self.factors[:, 0].min()), float(self.factors[:, 0].max())

    @property
    def mean(self) -> float:
        """The geometric mean of the factors over the settings, under the fitted law."""
        with np.errstate(divide="ignore"):
            return float(np.exp(np.log(self.factors[:, 0]).mean()))

    @property
    def better(self) -> float:
        """Share of settings and resamples in which it is at least as good as now."""
        return float((self.factors[:, 1:] >= 1).mean()) if self.factors.shape[1] > 1 else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        low, high = self.ends
        return {
            "name": self.candidate.key,
            "label": self.candidate.label,
            "adaptive": self.candidate.adaptive,
            "spec": self.candidate.spec or None,
            "responses": self.responses.to_dict(),
            "signal": self.signal.to_dict(),
            "rows": self.rows,
            "rounds": self.rounds,
            "per_response": self.per_response.to_dict(),
            "per_token": None if self.per_token is None else self.per_token.to_dict(),
            "per_second": None if self.per_second is None else self.per_second.to_dict(),
            "over_settings": {"low": low, "high": high, "geometric_mean": self.mean, "share_better": self.better},
            "rests_on": {"responses": "exact given the law", "signal": "exact given the law"}
            | dict.fromkeys(("per_response", "per_token", "over_settings"), "the score model")
            | {"per_second": "the score model and the model of a step's time"},
        }


@dataclass(frozen=True, eq=False)
class Change:
    """What to change first."""

    compared: Compared
    """The policy to go to."""
    text: str
    """The change in words."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """The verdict."""

    adaptive: str
    """``"yes"``, ``"no"`` or ``"unclear"``."""
    headline: str
    """The verdict in one line."""
    text: str
    """The verdict in one paragraph."""
    agree: float
    """Share of settings and resamples that agree with `adaptive`; of the larger side where it is unclear."""
    change: Change | None
    """What to change first; None to keep what there is."""
    turns: tuple[Turn, ...]
    """Where the answer to adaptive or not turns."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "adaptive": self.adaptive,
            "headline": self.headline,
            "text": self.text,
            "agree": self.agree,
            "change_first": None
            if self.change is None
            else {"policy": self.change.compared.candidate.key, "text": self.change.text},
            "turns_at": [each.to_dict() for each in self.turns],
        }


def blind(headline: str, text: str) -> Verdict:
    """Return the verdict on a log that can't answer."""
    return Verdict("unclear", headline, text, float("nan"), None, ())


def verdict_of(
    now: Now, compared: Sequence[Compared], gains: Gains, turns: tuple[Turn, ...], choices: Range
) -> Verdict:
    """Decide.

    Parameters
    ----------
    now
        What is run now.
    compared
        The candidates, the simplest change first.
    gains
        What could be gained, split in three.
    turns
        Where the answer turns.
    choices
        The settings that can't be ruled out.
    """
    pays = gains.pays()
    share = float(pays[:, 1:].mean()) if pays.shape[1] > 1 else float(pays.mean())
    adaptive = "yes" if share >= SURE else "no" if share <= 1 - SURE else "unclear"
    # Rounds gain by their number and advantages too: they are a change to make only where adaptivity itself pays.
    open_ = [each for each in compared if adaptive == "yes" or not each.candidate.adaptive]
    change = _first(now, open_)
    parts = [
        _on_adaptivity(adaptive, share, gains, choices),
        _on_change(now, change, open_),
        _on_turns(turns, choices),
    ]
    first = "keep what you have" if change is None else f"change first: {change.text}"
    if adaptive != "unclear":
        answer = {"yes": "Adaptive rounds pay here", "no": "Adaptive rounds don't pay here"}[adaptive]
        headline = f"{answer}; {first}"
    elif choices.noise_ratio is None:
        until = f"until then {first}" if change is None else first
        headline = f"Whether adaptive rounds pay depends on how noisy scores are: measure that, and {until}"
    else:
        headline = f"Whether adaptive rounds pay can't be told; {first}"
    return Verdict(adaptive, headline, " ".join(parts), max(share, 1 - share), change, turns)


def _first(now: Now, compared: Sequence[Compared]) -> Change | None:
    """Return the simplest of the best changes that are sure to gain; None where none is."""
    sure = [each for each in compared if each.mean >= WORTH and each.better >= SURE]
    if not sure:
        return None
    best = max(each.mean for each in sure)
    chosen = next(each for each in sure if each.mean >= _AS_GOOD * best)
    return Change(chosen, _change(now, chosen))


def _change(now: Now, to: Compared) -> str:
    """Say in words what changes."""
    label, n, there = to.candidate.label, now.n, to.responses.value
    if to.candidate.adaptive or now.adaptive:
        return label
    many = f", {n / there:.3g} times as many prompts a step" if there < n * 0.99 else ""
    few = f", {there / n:.3g} times fewer prompts a step" if there > n * 1.01 else ""
    return f"{label}{many}{few}"


def _on_adaptivity(adaptive: str, share: float, gains: Gains, choices: Range) -> str:
    at = gains.settings.index(choices.middle)
    middle, known = interval_of(gains.adaptivity[at]), gains.adaptivity[:, 0]
    answer = {"yes": "yes", "no": "no", "unclear": "it depends"}[adaptive]
    many = len(gains.settings)
    over = f"; over {many} settings, {known.min():.2f} to {known.max():.2f}" if many > 1 else ""
    where = "settings and resamples of prompts" if many > 1 else "resamples of prompts"
    return (
        f"Adaptive rounds: {answer}. At {choices.middle.label} they make {middle.value:.2f} ({middle.low:.2f} to "
        f"{middle.high:.2f}) times the progress per response of the best fixed number of responses, both with their "
        "best "
        f"advantages{over}. They make {WORTH:g} times or more, which we take to be worth the effort, in {share:.0%} "
        f"of {where}."
    )


def _on_change(now: Now, change: Change | None, compared: Sequence[Compared]) -> str:
    if change is not None:
        it = change.compared
        low, high = it.ends
        span = f", {low:.2f} to {high:.2f} over the settings" if high - low > 0.005 else ""
        return (
            f"Change first: {change.text}. It makes {it.per_response.value:.2f} ({it.per_response.low:.2f} to "
            f"{it.per_response.high:.2f}) times the progress per response of {now.label}{span}, and at least as much "
            "in "
            f"{it.better:.0%} of settings and resamples."
        )
    others = [each for each in compared if np.isfinite(each.mean)]
    if not others:
        return "Keep what you have."
    best = max(others, key=lambda each: each.mean)
    low, high = best.ends
    kind = "change" if any(each.candidate.adaptive for each in compared) else "other number or advantages"
    return (
        f"Keep what you have ({now.label}): no {kind} gains {WORTH - 1:.0%} or more on average and is at least as "
        "good in "
        f"{SURE:.0%} of settings and resamples. The nearest is {best.candidate.label}: {best.mean:.2f} times on "
        "average, "
        f"{low:.2f} to {high:.2f}."
    )


def _on_turns(turns: Sequence[Turn], choices: Range) -> str:
    if not turns:
        noise = "between 0.1 and 30" if choices.noise_ratio is None else "from a tenth to ten times the given one"
        where = f"at no noise ratio {noise}, no transfer, no update cost up to 8"
        return f"The answer on adaptive rounds turns nowhere: {where}."
    told = []
    for quantity in dict.fromkeys(each.quantity for each in turns):
        for above in (True, False):
            values = [each.value for each in turns if each.quantity == quantity and each.above is above]
            if values:
                low, high = f"{min(values):.2g}", f"{max(values):.2g}"
                at = low if low == high else f"{low} to {high}, by case"
                name = "multiple of the noise ratios" if _of_pair(turns, quantity) else quantity.replace("_", " ")
                told.append(f"{name} {at} (they pay {'above' if above else 'below'} it)")
    measure = " `python -m llm probe` measures your noise ratio." if choices.noise_ratio is None else ""
    return f"The answer on adaptive rounds turns at {'; '.join(told)}.{measure}"


def _of_pair(turns: Sequence[Turn], quantity: str) -> bool:
    return quantity == "noise_ratio" and any(isinstance(each.setting.noise_ratio, tuple) for each in turns)


def interval_of(values: FloatArray, most: float = math.inf) -> Interval:
    """Return the interval of a quantity ``[law]`` from 0 to `most`, the fit's first."""
    return interval(float(values[0]), values[1:], "", 0.0, most)
