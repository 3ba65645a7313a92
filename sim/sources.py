"""Where a pass-rate law comes from: an array, a log of rollouts or a table of counts, or what is built in.

Built in are published curves, and logged rollouts of a small model, which can be replayed as well.

A `Source` is a law with a label and notes that say, in words, what the law can't know.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_pass_rates, unknown_name
from ada_bandit.laws import Grid, Law
from ada_bandit.policy import AnyPolicy
from sim.counts import Counts
from sim.fits import fit_beta, fit_curve
from sim.readers import RolloutLog
from sim.reading import Reading, agree
from sim.stopped import Study
from sim.words import plural

__all__ = [
    "BuiltInRollouts",
    "Source",
    "built_in_rollouts",
    "curve_names",
    "from_array",
    "from_curve",
    "from_file",
    "from_name",
    "parse_share",
    "rollout_names",
    "source_names",
]

SMOOTH_BELOW = 64
"""Rates are smoothed unless told otherwise when a prompt has fewer responses than this."""

_DATA = Path(__file__).parent / "data"
_CURVES = _DATA / "pass_at_k.csv"


class BuiltInRollouts(NamedTuple):
    """Built-in logged rollouts."""

    path: Path
    """The file, ``.jsonl`` with rewards and tokens one by one."""
    origin: str
    """Where they come from, in words."""


_ROLLOUTS = {
    "smollm2-reasoning-gym": BuiltInRollouts(
        _DATA / "smollm2_reasoning_gym.jsonl",
        "responses of SmolLM2-135M-Instruct to prompts of reasoning-gym, sampled with temperature 0.7; "
        "sim/data/README.md says how",
    ),
}


@dataclass(frozen=True, eq=False)
class Source:
    """A pass-rate law and what is to be said about it."""

    law: Law
    """The law of p over prompts."""
    label: str
    """What tables and figures call it."""
    notes: tuple[str, ...] = ()
    """What the law is and what it can't know, one sentence or two each."""
    counts: Counts | None = None
    """The counts behind it, for a log."""
    log: RolloutLog | None = None
    """The log."""
    reading: Reading = field(default_factory=Reading)
    """How it was read."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The plain values that make it again: kind, name, filter, smoothing."""

    def to_dict(self) -> dict[str, Any]:
        """Return label and settings as plain values."""
        return {"label": self.label} | self.settings

    def findings(self) -> tuple[str, ...]:
        """Say in words what stands out about the law, so far as it decides what any policy can do."""
        never, always = self.law.probability(0, 0), self.law.probability(1, 1)
        if self.counts is not None and max(never, always) > 1 - 1e-12:
            what, rate = ("correct", "p = 0") if never > always else ("incorrect", "p = 1")
            found = (
                f"no response was {what}, so the law is {rate} throughout and no policy finds a signal there; that is "
                f"no proof: {int(self.counts.total.max())} responses a prompt can't tell {rate} from rates near it"
            )
            return (found,)
        if never > 1 - 1e-12:
            return ("no prompt can ever be answered: p = 0 throughout, so no policy finds a positive or a signal",)
        if always > 1 - 1e-12:
            return ("every response is correct: p = 1 throughout, so no policy finds a negative or a signal",)
        if never + always > 1 - 1e-12:
            split = f"p = 1 for {always:.1%}, p = 0 for {never:.1%}"
            return (f"every prompt is always or never answered ({split}), so no policy finds a signal",)
        # A fitted law says nothing of the share with p = 0 exactly.
        if self.settings.get("kind") == "curve" or self.settings.get("fitted") or never + always < 0.0005:
            return ()
        return (f"p = 0 for {never:.1%} of prompts and p = 1 for {always:.1%}: no budget finds a signal there",)

    def meant_for(self, policies: Sequence[AnyPolicy]) -> Source:
        """Return the source with what is to be said where policies class its responses otherwise (see `agree`).

        Raises
        ------
        InputError
            If a policy states a threshold that disagrees with the log.
        """
        said = () if self.log is None else agree(self.log, policies, self.reading)
        return replace(self, notes=(*self.notes, *said))

    def at_least(self, correct: int, total: int) -> Source:
        """Return the source re-weighted to prompts that get at least `correct` of `total` responses correct."""
        filtered = self.law.at_least(correct, total)
        passing = float(self.law.predictive(total)[correct:].sum())
        note = (
            f"re-weighted to the prompts that get at least {correct} of {total} responses correct, "
            f"{passing:.1%} of the law"
        )
        return replace(
            self,
            law=filtered,
            label=f"{self.label}, at least {correct} of {total}",
            notes=(*self.notes, note),
            settings=self.settings | {"at_least": [correct, total]},
        )


def parse_share(text: str) -> tuple[int, int]:
    """Read ``K/N``, such as ``1/16``, as two whole numbers.

    Raises
    ------
    InputError
        If the text has another form, or K > N.
    """
    correct, slash, total = text.partition("/")
    if not (slash and correct.strip().isdecimal() and total.strip().isdecimal()):
        msg = f"a filter is written K/N, such as 1/16 for at least 1 correct of 16 responses; got {text!r}"
        raise InputError(msg)
    share = int(correct), int(total)
    if share[0] > share[1] or share[1] < 1:
        msg = f"a filter K/N needs N of at least 1 and K of at most N, such as 1/16; got {text!r}"
        raise InputError(msg)
    return share


def from_array(pass_rates: npt.ArrayLike, weights: npt.ArrayLike | None = None, label: str = "array") -> Source:
    """Make a source of known pass rates.

    Parameters
    ----------
    pass_rates
        Pass rates in [0, 1], one a prompt.
    weights
        Their weights; equal ones unless given.
    label
        What tables and figures call the source.

    Raises
    ------
    InputError
        If there is no rate, or one is NaN or outside [0, 1].
    """
    rates = check_pass_rates(pass_rates).ravel()
    law = _law_of(rates) if weights is None else Grid(rates, np.asarray(weights, dtype=np.float64))
    return Source(law, label, (f"{rates.size} pass rates, taken as known",), settings={"kind": "array"})


def _law_of(rates: FloatArray) -> Grid:
    """Return the law of equally likely rates; equal ones share an atom, which makes averages cheap."""
    atoms, weights = np.unique(rates, return_counts=True)
    return Grid(atoms, weights.astype(np.float64))


# What is built in


def source_names() -> tuple[str, ...]:
    """Return the names of all built-in sources: curves, then rollouts."""
    return (*curve_names(), *rollout_names())


def rollout_names() -> tuple[str, ...]:
    """Return the names of the built-in logged rollouts."""
    return tuple(_ROLLOUTS)


def from_name(name: str, *, smooth: bool | None = None, reading: Reading | None = None) -> Source:
    """Make a source of what is built in.

    Parameters
    ----------
    name
        One of `source_names()`.
    smooth, reading
        For rollouts, as in `from_file`; a curve is never smoothed, nor read.

    Raises
    ------
    InputError
        For an unknown name; the nearest one is suggested. If a curve is to be smoothed or not.
    """
    if name not in source_names():
        raise unknown_name("source", name, source_names())
    if name not in _ROLLOUTS:
        if smooth is not None:
            msg = f"smoothing is for counts, and {name!r} is a curve; leave it out"
            raise InputError(msg)
        return from_curve(name)
    path, origin = _ROLLOUTS[name]
    source = from_file(path, smooth=smooth, reading=reading)
    settings = source.settings | {"kind": "rollouts", "name": name}
    return replace(source, label=name, notes=(origin, *source.notes), settings=settings)


def built_in_rollouts(name: str) -> BuiltInRollouts:
    """Return built-in rollouts by name.

    Raises
    ------
    InputError
        If the name is that of a curve, which holds no responses, or unknown.
    """
    if name in _ROLLOUTS:
        return _ROLLOUTS[name]
    if name in curve_names():
        msg = f"{name!r} is a curve, which holds no responses; take {' or '.join(map(repr, _ROLLOUTS))}, or a file"
        raise InputError(msg)
    raise unknown_name("source", name, rollout_names())


def curve_names() -> tuple[str, ...]:
    """Return the names of the built-in curves."""
    return tuple(dict.fromkeys(row["curve"] for row in _curve_rows()))


def _curve_rows() -> list[dict[str, str]]:
    with _CURVES.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def from_curve(name: str) -> Source:
    """Make a source of a built-in published curve.

    Parameters
    ----------
    name
        One of `curve_names()`.

    Raises
    ------
    InputError
        For an unknown name; the nearest one is suggested.
    """
    rows = [row for row in _curve_rows() if row["curve"] == name]
    if not rows:
        raise unknown_name("curve", name, curve_names())
    k = [int(row["k"]) for row in rows]
    law, residual = fit_curve(
        k, [float(row["pass_at_k"]) for row in rows], [float(row["all_correct_at_k"]) for row in rows]
    )
    notes = (
        f"a law fitted to published pass@k and all-correct@k for k = 1 .. {max(k)}; largest residual {residual:.4f}",
        "the published numbers were read off Figure 2 of arXiv 2510.04996v2 by eye, to about 0.005",
        f"the curve can't tell prompts with p = 0 from those with p well below 1/{max(k)}",
    )
    return Source(law, name, notes, settings={"kind": "curve", "name": name})


# Logs


def from_file(path: str | Path, *, smooth: bool | None = None, reading: Reading | None = None) -> Source:
    """Make a source of logged rollouts, or of a table of counts (see `sim.readers.read_rollouts`).

    Of plain pools the law is that of correct / total, or the mixture of the posteriors under a Beta
    prior fitted to all of them. Of pools that were stopped by their own rewards, and of logs that
    hold part of what was drawn, it is the law that `Study` fits to such ones.

    Parameters
    ----------
    path
        A file, a folder or a glob.
    smooth
        Whether to mix posteriors in place of correct / total. By default when the smallest total
        is below 64.
    reading
        Names of columns, threshold, how the log came about; whatever is left out is recognised.

    Raises
    ------
    InputError
        If nothing can be made of the path, or correct / total is asked for where it is no pass rate.
    """
    reading = Reading() if reading is None else reading
    log = reading.read(path)
    study, counts = reading.study(log), Counts.of(log)
    prompts, smallest, largest = log.prompts, int(counts.total.min()), int(counts.total.max())
    responses = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    visits = "" if log.lengths.size == prompts else f" in {log.lengths.size} pools"
    head = (
        f"{prompts} {plural(prompts, 'prompt')}{visits} with {responses} responses each, {counts.rates.mean():.1%} "
        "correct"
    )
    # That all pools are of one size is said already.
    found = () if study.plain and smallest == largest else study.notes
    drift = () if study.drift is None else (f"{study.drift.text}; the law here is that over all steps",)
    notes = [head, *counts.notes, *found, *drift]
    settings: dict[str, Any] = {"kind": "file", "name": str(path)} | reading.given
    if study.plain:
        law, said, how = _plain_law(counts, smooth)
    else:
        law, said, how = _fitted_law(study, smooth)
    return Source(law, Path(path).name or str(path), (*notes, *said), counts, log, reading, settings | how)


def _fitted_law(study: Study, smooth: bool | None) -> tuple[Law, list[str], dict[str, Any]]:
    """Return the law of a log that is no plain sample, what is to be said of it, and its settings."""
    what = "ended by their own rewards" if study.whole else "are a selection of what was drawn"
    if smooth is False:
        msg = (
            f"--no-smooth takes correct/total for pass rates, and these pools {what}, so it would be biased "
            f"({'; '.join(study.notes)}). Leave --no-smooth out for the fitted law"
            f"{', or say --holds all if nothing is missing' if not study.whole else ''}"
        )
        raise InputError(msg)
    said = [f"these pools {what}, so correct/total is no pass rate; taken is {study.law.how}"]
    return study.law.law, said, {"smooth": True, "fitted": study.law.how}


def _plain_law(counts: Counts, smooth: bool | None) -> tuple[Law, list[str], dict[str, Any]]:
    """Return the law of plain pools, what is to be said of it, and its settings."""
    smallest, largest = int(counts.total.min()), int(counts.total.max())
    asked, settings = smooth, {}
    smooth = smallest < SMOOTH_BELOW if smooth is None else smooth
    notes = [*_unknowable(counts)]
    if smooth and largest == 1:
        smooth = False
        notes.append("not smoothed: with one response a prompt the spread of p can't be told from chance")
    if smooth:
        prior = fit_beta(counts.correct, counts.total)
        why = f", as the smallest total, {smallest}, is below {SMOOTH_BELOW}" if asked is None else ""
        notes.append(
            f"smoothed{why}: the law is the mixture of the prompts' posteriors under a prior fitted by maximum "
            f"likelihood, {prior} (--no-smooth takes correct/total)"
        )
        finite = math.isfinite(prior.concentration)
        if 0 < prior.mean < 1 and not finite:
            notes.append("the rates differ no more than by chance, so every prompt gets the same one")
        law = prior.posterior(counts.correct, counts.total)
        settings["prior"] = {"mean": prior.mean, "concentration": prior.concentration if finite else None}
    else:
        if largest > 1:
            notes.append("not smoothed: each rate is correct/total (--smooth mixes posteriors under a fitted prior)")
        law = _law_of(counts.rates)
    return law, notes, {"smooth": smooth} | settings


def _unknowable(counts: Counts) -> Iterator[str]:
    """Say what correct / total can't know."""
    none, every = int((counts.correct == 0).sum()), int((counts.correct == counts.total).sum())
    if none or every:
        yield (
            f"{none} {plural(none, 'prompt')} without a correct response and {every} without an incorrect one: "
            f"{int(counts.total.min())} responses can't show that p is 0 or 1"
        )
    rates, repeated = counts.rates, counts.total > 1
    if rates.size > 1 and repeated.all():
        # The variance of a plug-in rate given p is pq / n, of which r (1 - r) / (n - 1) is an unbiased estimate.
        spread = rates.var(ddof=1)
        chance = float(np.mean(rates * (1 - rates) / (counts.total - 1)))
        if chance > 0:
            yield (
                f"correct/total is spread wider than p: its standard deviation is {math.sqrt(spread):.3f}, "
                f"that of p about {math.sqrt(max(spread - chance, 0)):.3f}"
            )
