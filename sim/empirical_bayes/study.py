"""Empirical Bayes at work: how close to the true optimum a run comes that learns its prior. Computes only.

Every step takes fresh prompts from a pass-rate law, samples them under `EmpiricalBayes` and
shows it the pools. What is reported is exact: the gradient efficiency of the policy that it
has then, on the law that the step came from, over that of the optimum for this law. In the
second half of the run the law drifts to another one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Policy, ScoreModel, uniform
from ada_bandit._types import FloatArray
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.empirical import EmpiricalBayes
from ada_bandit.errors import InputError, check_count, unknown_name
from ada_bandit.laws import Beta, Law, Mixture
from ada_bandit.optimal import Problem
from ada_bandit.uniforms import Stream, fold_seed
from sim.score_model import ASSUMPTIONS
from sim.sources import Source

__all__ = ["DRIFTS", "NEAR", "DriftResult", "DriftSetting", "Track", "follow_drift"]

DRIFTS = ("abrupt", "gradual")
"""At half time at once, or over the third quarter of the run."""
NEAR = 0.97
"""What counts as close to the optimum."""

_START = Beta(1.0, 1.0)


@dataclass(frozen=True)
class DriftSetting:
    """What is run."""

    noise_ratios: tuple[float, ...] = (1.0, 10.0)
    """Noise ratios of the score model, each a run of its own on the same prompts and responses."""
    objective: str = "mean"
    """Objective that is climbed."""
    transfer: float = 1.0
    """How far what is learned on a prompt helps the others, as in `ScoreModel`."""
    drift: str = "abrupt"
    """How the law goes over to the other one, from `DRIFTS`."""
    prompts: int = 128
    """Prompts a step, all of them new."""
    steps: int = 100
    """Steps; the drift begins after half of them."""
    runs: int = 8
    """Runs, each with prompts and responses of its own."""
    samples: int = 1
    """Responses a round."""
    max_samples: int = 32
    """The most responses of a prompt."""
    refit_every: int = 4
    """Steps between two fits of the law."""
    window: int = 32
    """Steps whose pools a fit looks at, at the most."""
    seed: int = 0
    """Seed of prompts and responses."""

    def __post_init__(self) -> None:
        if not self.noise_ratios:
            msg = "there is nothing to run: give at least one noise ratio"
            raise InputError(msg)
        if self.drift not in DRIFTS:
            raise unknown_name("drift", self.drift, DRIFTS)
        for key, least in (("prompts", 1), ("steps", 4), ("runs", 1)):
            check_count(key, getattr(self, key), least)

    def model(self, noise_ratio: float) -> ScoreModel:
        """Return the score model at a noise ratio."""
        return ScoreModel(noise_ratio, self.objective, transfer=self.transfer)

    def share(self, step: int) -> float:
        """Return the weight of the other law in a step, counted from 0."""
        half, length = self.steps // 2, self.steps // 4
        if self.drift == "abrupt":
            return float(step >= half)
        return min(max((step - half + 1) / length, 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class Track:
    """The run under one noise ratio; after 0, 1, 2, … steps, on the law of the step just taken."""

    noise_ratio: float
    """The noise ratio."""
    shares: FloatArray
    """`[run, step]` Efficiency over that of the optimum."""
    responses: FloatArray
    """`[run, step]` Responses a prompt of the step just taken; NaN after 0 steps."""
    not_learning: FloatArray
    """`[step]` What the policy of the first step would have of the optimum."""
    not_following: FloatArray
    """`[step]` What the optimum for the first law would have of it."""
    optimum_responses: FloatArray
    """`[step]` Responses a prompt of the optimum."""

    @property
    def mean(self) -> FloatArray:
        """`[step]` The runs' mean share."""
        return np.asarray(self.shares.mean(axis=0))

    def near_from(self, first: int, last: int) -> int | None:
        """Return the step from which on the mean stays at `NEAR` or above, in first .. last; None if there is none."""
        below = np.nonzero(self.mean[first : last + 1] < NEAR)[0]
        start = first + (int(below[-1]) + 1 if below.size else 0)
        return start if start <= last else None


@dataclass(frozen=True, eq=False)
class DriftResult:
    """All tracks, and everything that is needed to make them again."""

    setting: DriftSetting
    """The setting."""
    start: Source
    """The law of the first half."""
    end: Source
    """The law that it drifts to."""
    tracks: tuple[Track, ...]
    """One a noise ratio, in order."""
    notes: tuple[str, ...]
    """What is to be said, in words."""

    @property
    def milestones(self) -> tuple[int, ...]:
        """Steps worth a row: before and after the drift begins, ten steps on, and the end."""
        half = self.setting.steps // 2
        steps = (0, min(8, half), half, half + 1, min(half + 10, self.setting.steps), self.setting.steps)
        return tuple(dict.fromkeys(steps))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        half, last = self.setting.steps // 2, self.setting.steps
        return {
            "configuration": {
                "version": ada_bandit.__version__,
                "start": self.start.to_dict(),
                "end": self.end.to_dict(),
                "prior": _START.to_dict(),
            }
            | asdict(self.setting),
            "notes": [*self.start.notes, *self.notes],
            "tracks": [
                {
                    "noise_ratio": track.noise_ratio,
                    "near_from": track.near_from(0, half),
                    "near_again_from": track.near_from(half + 1, last),
                    "milestones": {
                        str(step): {
                            "mean": float(track.mean[step]),
                            "lowest": float(track.shares[:, step].min()),
                            "highest": float(track.shares[:, step].max()),
                        }
                        for step in self.milestones
                    },
                    "shares": track.shares.tolist(),
                    "not_learning": track.not_learning.tolist(),
                    "not_following": track.not_following.tolist(),
                }
                for track in self.tracks
            ],
        }

    def to_csv(self) -> str:
        """Return one row a noise ratio and step as CSV text."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["noise_ratio", "step", "share_of_end_law", "mean", "lowest", "highest", "not_learning", "not_following",
             "responses", "optimum_responses"]
        )  # fmt: skip
        for track in self.tracks:
            for step in range(self.setting.steps + 1):
                shares = track.shares[:, step]
                writer.writerow(
                    [track.noise_ratio, step, self.setting.share(max(step - 1, 0)), shares.mean(), shares.min(),
                     shares.max(), track.not_learning[step], track.not_following[step],
                     track.responses[:, step].mean() if step else "", track.optimum_responses[step]]
                )  # fmt: skip
        return text.getvalue()


def follow_drift(
    setting: DriftSetting, start: Source, end: Source, progress: Callable[[int], None] | None = None
) -> DriftResult:
    """Run empirical Bayes on a law that drifts to another one.

    Parameters
    ----------
    setting
        What is run.
    start, end
        The law of the first half, and the one that it drifts to.
    progress
        Called with the number of steps just taken, of ``len(noise_ratios) * runs * steps``.

    Raises
    ------
    InputError
        If an option of `EmpiricalBayes` can't be used.
    """
    # The law of every step; equal neighbours are one object, so that what is known of it is computed once.
    laws: list[Law] = []
    for step in range(setting.steps):
        share = setting.share(step)
        same = step > 0 and share == setting.share(step - 1)
        laws.append(laws[-1] if same else _between(start.law, end.law, share))
    tracks = tuple(_track(setting, noise_ratio, laws, progress) for noise_ratio in setting.noise_ratios)
    return DriftResult(setting, start, end, tracks, _notes(setting, end, tracks))


def _between(start: Law, end: Law, share: float) -> Law:
    return {0.0: start, 1.0: end}.get(share) or Mixture((start, end), (1 - share, share))


def _sampler(setting: DriftSetting, noise_ratio: float) -> EmpiricalBayes:
    return EmpiricalBayes(
        _START,
        setting.model(noise_ratio),
        samples=setting.samples,
        max_samples=setting.max_samples,
        refit_every=setting.refit_every,
        window=setting.window,
    )


def _track(
    setting: DriftSetting, noise_ratio: float, laws: Sequence[Law], progress: Callable[[int], None] | None
) -> Track:
    model = setting.model(noise_ratio)
    efficiencies: dict[tuple[int, int], float] = {}
    kept: list[Policy] = []

    def efficiency(policy: Policy, law: Law) -> float:
        key = id(policy), id(law)
        if key not in efficiencies:
            kept.append(policy)  # as long as it is known by its id
            efficiencies[key] = gradient_efficiency(policy, law, model).value
        return efficiencies[key]

    # After 0 steps the law is that of the first one.
    after = [laws[0], *laws]
    best = {
        id(law): Problem(law, model, samples=setting.samples, max_samples=setting.max_samples).best()
        for law in dict.fromkeys(laws)
    }
    optimum = [best[id(law)] for law in after]
    values = np.array([solution.value for solution in optimum])
    if values.min() <= 0:
        msg = "on this law no policy has anything to gain, so nothing can be told of one; choose another law"
        raise InputError(msg)
    unlearned = _sampler(setting, noise_ratio).policy
    shares = np.empty((setting.runs, setting.steps + 1))
    responses = np.full((setting.runs, setting.steps + 1), np.nan)
    for run in range(setting.runs):
        sampler = _sampler(setting, noise_ratio)
        shares[run, 0] = efficiency(unlearned, laws[0])
        for step, law in enumerate(laws):
            seed = fold_seed(setting.seed, run, step)
            rates = law.quantile(uniform(seed, Stream.PASS_RATES, np.arange(setting.prompts), 0))
            allocator = sampler.allocator(setting.prompts, seed)
            while request := allocator.ask():
                correct = uniform(seed, Stream.REWARDS, request.prompts, request.draws) < rates[request.prompts]
                allocator.tell(request.ids, correct)
            responses[run, step + 1] = allocator.metrics()["responses_per_prompt"]
            sampler.observe(allocator)
            shares[run, step + 1] = efficiency(sampler.policy, law)
            if progress is not None:
                progress(1)
    return Track(
        noise_ratio,
        shares / values,
        responses,
        not_learning=np.array([efficiency(unlearned, law) for law in after]) / values,
        not_following=np.array([efficiency(optimum[0].policy, law) for law in after]) / values,
        optimum_responses=np.array([solution.cost for solution in optimum]),
    )


def _notes(setting: DriftSetting, end: Source, tracks: Sequence[Track]) -> tuple[str, ...]:
    half, last = setting.steps // 2, setting.steps
    size = f"{setting.runs} runs, {setting.prompts} new prompts a step"
    notes = [
        f"efficiency of the policy learned from {_START} on, over that of the optimum for the step's law; {size}",
        f"after step {half} the law drifts to {end.label}, {_how(setting)}",
    ]
    for track in tracks:
        first, again = track.near_from(0, half), track.near_from(half + 1, last)
        reached = "does not come" if first is None else f"is there from step {first} on"
        back = "is not there again by the end" if again is None else f"is there again {again - half} steps into it"
        notes.append(
            f"within {1 - NEAR:.0%} of the optimum at noise ratio {track.noise_ratio:g}: the mean {reached} before the "
            f"drift, and {back}"
        )
        if np.nanmean(track.responses[:, -1]) < 1.02:
            notes.append(
                f"at noise ratio {track.noise_ratio:g} the learned policy ends with one response a prompt; such pools "
                "tell the law's mean alone, so it has no way to learn more"
            )
    return (*notes, ASSUMPTIONS)


def _how(setting: DriftSetting) -> str:
    return "at once" if setting.drift == "abrupt" else f"over {setting.steps // 4} steps"
