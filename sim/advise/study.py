"""Advice from a log: what would pay, with which settings, and how sure that is. Computes only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.policy import Policy
from ada_bandit.presets import PRESETS
from ada_bandit.programs.records import plain, to_csv
from ada_bandit.score_model import ASSUMPTIONS
from sim.advise.candidates import Best, Candidate, prior_of, published
from sim.advise.gains import Gains, gains_of, turns_of
from sim.advise.groups import Groups, groups_of
from sim.advise.now import Now
from sim.advise.profiles import Laws, over, profile_of, ratio
from sim.advise.seconds import PROMPTS, Clock, lengths_of
from sim.advise.settings import Range
from sim.advise.verdict import Compared, Verdict, blind, interval_of, verdict_of
from sim.clock import Lengths, Machine
from sim.log.study import LogReport
from sim.readers import Selection
from sim.stopped.laws import LawFit
from sim.stopped.pools import Interval
from sim.stopped.study import Study

__all__ = ["EDGES", "Advice", "Share", "advise_on", "recent"]

EDGES = (0.0, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
"""Ends of the classes of pass rates by which a law is shown."""
_RECENT = 200
"""Pools of the last steps that stand for now, at least, where the law drifted."""
_FEW = 30
"""Prompts below which intervals are too narrow to be relied on."""


@dataclass(frozen=True)
class Share:
    """A class of pass rates."""

    low: float
    high: float
    share: Interval
    """Share of prompts with a pass rate in it."""
    signal: float
    """Share of their groups that hold both classes now."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"low": self.low, "high": self.high, "share": self.share.to_dict(), "signal": self.signal}


@dataclass(frozen=True, eq=False)
class Advice:
    """What a log says of which policy would pay."""

    report: LogReport
    """What the log is and how it was read."""
    law: LawFit
    """The law that the advice rests on: that of the last steps where it drifted."""
    shares: tuple[Share, ...]
    """The law by classes of pass rates."""
    plain_signal: dict[int, Interval]
    """Share of prompts with signal among n plain responses, by n."""
    now: Now
    """What is run now."""
    groups: Groups
    """Its groups, with and without signal."""
    lengths: Lengths | None
    """Lengths of responses by correctness; None where they aren't known."""
    clock: Clock | None
    """What a step takes; None where no lengths are known, or the log can't tell policies apart."""
    choices: Range
    """The settings of the score model."""
    compared: tuple[Compared, ...]
    """The policies; none where the log can't tell them apart."""
    gains: Gains | None
    """What could be gained, split in three; likewise."""
    best: Best | None
    """The best policies at the middle setting; likewise."""
    verdict: Verdict
    """The verdict."""
    responses_a_step: int | None
    """Responses that a step has, where the user said so."""
    notes: tuple[str, ...]
    """What is uncertain, a sentence each."""

    def policy(self, key: str) -> Compared:
        """Return a compared policy by its key."""
        return next(each for each in self.compared if each.candidate.key == key)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        head = self.report.to_dict()
        names = ("format", "prompts", "responses", "correct", "steps", "unscored", "censored", "stopped")
        log = head["log"]
        return dict(
            plain(
                {
                    "label": self.report.label,
                    "log": None if log is None else {name: log[name] for name in names},
                    "pass_rate": self.law.mean.to_dict() if self.law is not self.report.law else head["pass_rate"],
                    "law": self.law.to_dict() | {"shares": [each.to_dict() for each in self.shares]},
                    "plain_signal": {str(n): each.to_dict() for n, each in self.plain_signal.items()},
                    "now": self.now.to_dict() | self.groups.to_dict(),
                    "mean_response_tokens": None if self.lengths is None else list(self.lengths.means),
                    "clock": self._clock(),
                    "range": [each.to_dict() for each in self.choices.settings],
                    "middle": self.choices.middle.to_dict(),
                    "policies": [each.to_dict() for each in self.compared],
                    "gains": self._gains(),
                    "steps": head["steps"],
                    "drift": head.get("drift"),
                    "verdict": self.verdict.to_dict(),
                    "assumptions": ASSUMPTIONS,
                    "notes": list(self.notes),
                }
            )
        )

    def _clock(self) -> dict[str, Any] | None:
        if self.clock is None:
            return None
        return {"responses_a_step": self.clock.responses, **vars(self.clock.machine)}

    def _gains(self) -> dict[str, Any] | None:
        if self.gains is None:
            return None
        return {name: interval_of(values).to_dict() for name, values in self.split()}

    def split(self) -> Iterator[tuple[str, FloatArray]]:
        """Give the parts of what could be gained at the middle setting, ``[law]`` each."""
        if self.gains is None:
            return
        at = self.gains.settings.index(self.choices.middle)
        for name in ("advantages", "number", "adaptivity", "one_by_one", "knowledge"):
            yield name, getattr(self.gains, name)[at]

    def to_csv(self) -> str:
        """Return the policies as rows of CSV text."""
        return to_csv(_row(each) for each in self.compared)


def _row(each: Compared) -> dict[str, Any]:
    row: dict[str, Any] = {"policy": each.candidate.key, "adaptive": each.candidate.adaptive}
    for name in ("responses", "signal", "per_response", "per_token", "per_second"):
        found: Interval | None = getattr(each, name)
        for part in ("value", "low", "high"):
            row[f"{name}_{part}"] = "" if found is None else getattr(found, part)
    row["over_settings_low"], row["over_settings_high"] = each.ends
    return row


def recent(study: Study | None) -> Study | None:
    """Return the study of the last steps where the law drifted; None where it didn't, or no step is known.

    The last quarter of the pools in whole steps, and at least 200 pools.
    """
    if study is None or study.drift is None or not study.drift.changed or study.pools.step is None:
        return None
    step = study.pools.step
    wanted = max(_RECENT, step.size // 4)
    if wanted >= step.size:
        return None
    first = np.sort(step)[-wanted]
    part = step >= first
    return None if part.all() else replace(study, pools=study.pools.take(part), notes=())


def advise_on(
    report: LogReport,
    now_of: Callable[[LogReport], Now],
    choices: Range | None = None,
    *,
    machine: Machine | None = None,
    responses_a_step: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Advice:
    """Say what would pay.

    Parameters
    ----------
    report
        What the log says of its prompts.
    now_of
        Tells what is run now (`sim.advise.now.now_of`).
    choices
        What is known of the score model; nothing unless given.
    machine
        What a step's time is computed for; the defaults of `sim.clock.Machine` unless given.
    responses_a_step
        Responses that a step has; prompts a step follow from it.
    progress
        Called with the share that is done, from 0 to 1.
    """
    choices = choices or Range()
    study, notes = report.study, []
    late = recent(study)
    law, signal = report.law, report.plain_signal
    if late is not None and late.pools.step is not None:
        law, signal = late.law, {n: late.plain_signal(n) for n in report.plain_signal}
        first = int(late.pools.step.min())
        notes.append(
            f"the law changed over the steps, so what follows is of steps {first} and later ({late.pools.size} pools)"
        )
    now = now_of(report)
    smallest = (late or study).pools.smallest if study is not None else now.n
    if study is not None and study.resampling.prompts < _FEW:
        notes.append(f"{study.resampling.prompts} prompts are few: intervals from resamples of so few are too narrow")
    lengths = lengths_of(report.log)
    shares = tuple(_shares(law, now.policy))
    groups = groups_of(now.policy, law, smallest)
    why = _blind(report, law)
    if why is not None:
        verdict = blind(*why)
        if report.study is not None and int(report.study.pools.total.max()) == 1:
            signal = {n: _widest(law, n) for n in signal}
        return Advice(
            report, law, shares, signal, now, groups, lengths, None, choices, (), None, None, verdict, responses_a_step,
            (*notes, *report.notes),
        )  # fmt: skip
    laws, prior = Laws.of(law), prior_of(law)
    steps = len(choices.settings) + 4
    done = iter(np.arange(1, steps + 1) / steps)

    def one_done() -> None:
        if progress is not None:
            progress(float(next(done)))

    base = now.policy if not now.adaptive else Policy.preset("grpo", group_size=now.n)
    size = base.budget.max_samples
    gains, bests = gains_of(now.policy, base, prior, laws, choices.settings, one_done)
    best = bests[choices.settings.index(choices.middle)]
    candidates = [*_now_first(now, published(float(law.weights @ law.rates))), *_computed(best, size)]
    clock = None
    if lengths is not None:
        responses = responses_a_step or PROMPTS * float(profile_of(now.policy, laws.rates).responses(laws)[0])
        clock = Clock(prior, lengths, responses, machine or Machine())
    compared = _compared(candidates, laws, choices, clock)
    one_done()
    turns = turns_of(prior, choices, size, gains)
    if progress is not None:
        progress(1.0)
    verdict = verdict_of(now, compared, gains, turns, choices)
    if lengths is None and report.log is not None:
        notes.append("no lengths of single responses are known, so nothing is said per token or second")
    return Advice(
        report, law, shares, signal, now, groups, lengths, clock, choices, compared, gains, best, verdict,
        responses_a_step, (*notes, *report.notes),
    )  # fmt: skip


def _now_first(now: Now, others: Iterator[Candidate]) -> Iterator[Candidate]:
    """Give what is run now, then the others that differ from it."""
    spec = now.policy.label if now.policy.label.partition(":")[0] in PRESETS else ""
    yield Candidate("now", f"{now.label} (now)", now.policy, now.adaptive, spec)
    yield from (each for each in others if each.policy != now.policy)


def _computed(best: Best, n: int) -> Iterator[Candidate]:
    """Give the best policies of the middle setting."""
    size = best.fixed.budget.max_samples
    many = f"{n} responses" if n > 1 else "one response"
    yield Candidate("best-advantages", f"{many}, the best advantages", best.same_n, adaptive=False)
    if size != n:
        many = f"{size} responses" if size > 1 else "one response"
        yield Candidate(
            "best-fixed", f"{many}, the best fixed number, and the best advantages", best.fixed, adaptive=False
        )
    sizes = best.rounds.budget.sizes
    goes_on = best.rounds.tables.draws[np.arange(sizes[0] + 1), sizes[0] - np.arange(sizes[0] + 1)].any()
    label = f"the best rounds: {sizes[0]} at a time, {len(sizes)} times at the most"
    plain_label = f"{sizes[0]} responses, the best advantages (the best rounds never go on)"
    yield Candidate("best-rounds", label if goes_on else plain_label, best.rounds, adaptive=bool(goes_on))
    most = best.one_by_one.tables
    label = "the optimum, one response at a time"
    yield Candidate("best", label, best.one_by_one, adaptive=bool(most.draws[[0, 1], [1, 0]].any()))


def _compared(candidates: Sequence[Candidate], laws: Laws, choices: Range, clock: Clock | None) -> tuple[Compared, ...]:
    profiles = [profile_of(each.policy, laws.rates) for each in candidates]
    of_now, middle = profiles[0], choices.middle
    base = np.array([of_now.efficiency(setting, laws) for setting in choices.settings])

    # Both are None where no lengths are known.
    tokens: list[Interval | None] = [None] * len(profiles)
    seconds: list[Interval | None] = [None] * len(profiles)
    if clock is not None:
        means = clock.lengths.means
        by_token = [each.efficiency_of_tokens(middle, laws, means) for each in profiles]
        by_second = [clock.efficiency(each, middle, laws) for each in profiles]
        tokens = [ratio(each, by_token[0]) for each in by_token]
        seconds = [ratio(each, by_second[0]) for each in by_second]
    found = []
    for candidate, profile, token, second in zip(candidates, profiles, tokens, seconds, strict=True):
        values = np.array([profile.efficiency(setting, laws) for setting in choices.settings])
        factors = over(values, base)
        at = choices.settings.index(middle)
        found.append(
            Compared(
                candidate,
                interval_of(profile.responses(laws)),
                interval_of(laws.mean(profile.analysis.signal_probability), 1.0),
                float(laws.mean(profile.moments.rows)[0]),
                float(laws.mean(profile.analysis.expected_rounds)[0]),
                interval_of(factors[at]),
                token,
                second,
                factors,
            )
        )
    return tuple(found)


def _shares(law: LawFit, policy: Policy) -> Iterator[Share]:
    """Give the classes of pass rates, with the signal of a policy's groups in each."""
    signal = profile_of(policy, law.rates).analysis.signal_probability
    for low, high in pairwise(EDGES):
        inside = (law.rates > low) & (law.rates <= high) if low else law.rates <= high
        mass = float(law.weights @ inside)
        mixed = float(law.weights @ (inside * signal)) / mass if mass > 0 else 0.0
        yield Share(low, high, law.mean_of(inside.astype(np.float64)), mixed)


def _widest(law: LawFit, n: int) -> Interval:
    """Return the signal of n responses where only the mean pass rate is known: from none to that of equal prompts."""
    mean = float(law.weights @ law.rates)
    most = 1 - mean**n - (1 - mean) ** n
    return Interval(most / 2, 0.0, most, "one response a prompt: any share up to that of prompts that are all alike")


def _blind(report: LogReport, law: LawFit) -> tuple[str, str] | None:
    """Return headline and text where the log can't tell policies apart; None where it can."""
    study = report.study
    if study is None:
        return None
    pools = study.pools
    responses, correct = int(pools.total.sum()), int(pools.pos.sum())
    bound = min(1.0, 3.0 / responses)
    if correct == 0:
        text = (
            f"None of {responses:,} responses is correct. That is no proof that pass rates are 0: up to {bound:.2g} "
            "correct responses each would leave such a log with a chance of 5 %. One correct response then costs "
            f"{1 / bound:,.0f} or more, under any policy. Look at the verifier and the prompt's format first; then "
            "take "
            "easier prompts, or a model that was trained on such answers."
        )
        return "No response is correct: nothing to learn from, and nothing to choose between", text
    if correct == responses:
        text = (
            f"All of {responses:,} responses are correct: at most {bound:.2g} incorrect ones each are likely (a "
            "chance of "
            "5 %). Look at the verifier first; then take harder prompts. No way of sampling helps here."
        )
        return "Every response is correct: no policy finds a group with signal", text
    if int(pools.total.max()) == 1:
        text = (
            f"Of {responses:,} prompts with one response each, {correct:,} were answered right. That is the mean pass "
            "rate; how it is spread over prompts, on which every answer depends, can't be known from it. Draw at least "
            "4 responses to a few hundred prompts."
        )
        return "One response a prompt can't tell how pass rates differ between prompts", text
    if study.resampling.prompts == 1:
        text = (
            f"All {responses:,} responses are of one prompt. Which policy pays depends on how pass rates differ "
            "between "
            "prompts: read a log of at least a hundred."
        )
        return "One prompt says nothing of the others", text
    if study.selection is Selection.kept and study.policy is None:
        text = (
            "The log holds the rows that a policy kept of larger pools, and not the pools, so pass rates can't be read "
            "off it. State the policy by --stopped-by, or log whole pools."
        )
        return "Kept rows of a policy that isn't known", text
    if law.law.probability(0, 0) + law.law.probability(1, 1) > 1 - 1e-9:
        text = (
            "No pool holds both classes, so no policy that learns from their difference has any signal in these "
            "prompts. "
            "Take prompts in between, or more responses of each."
        )
        return "Every prompt is always or never answered right", text
    return None
