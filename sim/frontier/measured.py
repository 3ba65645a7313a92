"""Policies by their efficiency as a probe measured it, beside what the score model predicts. Computes only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Policy, ScoreModel
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.measured import MeasuredEfficiency, measure_efficiency
from ada_bandit.optimal import Problem
from ada_bandit.policy import AnyPolicy
from ada_bandit.programs.records import plain, to_csv
from ada_bandit.programs.scores import ProbedScores
from sim.labels import distinct_labels
from sim.score_model import Scoring, has_efficiency
from sim.words import plural

__all__ = ["MeasuredFrontier", "MeasuredPolicy", "measure_policies"]

_FEWEST = 3
"""Responses of a prompt that can be measured."""
_OPTIMUM = "optimum of the model"


@dataclass(frozen=True)
class MeasuredPolicy:
    """One policy, as measured and as predicted; errors are standard errors over prompts."""

    policy: str
    """The policy's label."""
    responses: float
    """E[N] on the probe's prompts."""
    cost: float
    """C, responses a prompt, by their length where asked for, and the cost of the update."""
    measured: float
    """Measured efficiency over that of four responses of GRPO."""
    error: float
    """Its error."""
    predicted: float | None
    """What the score model predicts; None where the probe fits none."""
    log_ratio: float | None
    """Logarithm of measured over predicted; None where one of them is not positive."""
    efficiency: float
    """Measured P^2 / (M C), in squared units of a score."""
    efficiency_error: float
    """Its error."""
    progress: float
    """P, the mean update along the gradient of the objective."""
    progress_error: float
    """Its error."""
    second_moment: float
    """M, that of a step's mean update times the prompts a step."""
    second_moment_error: float
    """Its error."""
    plugged: int
    """Prompts whose pass rate was plugged in, as the policy may draw more than the probe has responses."""


@dataclass(frozen=True, eq=False)
class MeasuredFrontier:
    """The policies, and everything that is needed to measure them again."""

    policies: tuple[AnyPolicy, ...]
    """The policies, with labels that differ."""
    probed: ProbedScores
    """What the probe kept."""
    objective: str
    """What is climbed."""
    pool: int | None
    """Prompts that the objective is a mean over; None for fresh ones."""
    batch: int
    """Prompts a step."""
    per_token: bool
    """Whether a response costs what its length is."""
    model: ScoreModel | None
    """The score model with what the probe fits; None where it fits none."""
    points: tuple[MeasuredPolicy, ...]
    """One a policy, in order."""
    notes: tuple[str, ...]
    """What is to be said, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        told = {
            "configuration": {
                "version": ada_bandit.__version__,
                "probe": self.probed.label,
                "objective": self.objective,
                "pool": self.pool,
                "batch": self.batch,
                "per_token": self.per_token,
                "score_model": None if self.model is None else self.model.to_dict(),
                "policies": [policy.to_dict() for policy in self.policies],
            },
            "notes": self.notes,
            "policies": [asdict(point) for point in self.points],
        }
        return dict(plain(told))

    def to_csv(self) -> str:
        """Return the points as CSV text."""
        return to_csv(asdict(point) for point in self.points)


def measure_policies(
    policies: Sequence[AnyPolicy],
    probed: ProbedScores,
    scoring: Scoring,
    *,
    pool: int | None = None,
    per_token: bool = False,
    max_samples: int = 32,
    resamples: int = 1000,
    progress: Callable[[int], None] | None = None,
) -> MeasuredFrontier:
    """Measure policies on a probe's prompts, the score model's optimum with them.

    Parameters
    ----------
    policies
        Those that share a budget across the batch are left out, and named in the notes.
    probed
        What the probe kept.
    scoring
        Objective, update cost and batch; noise ratio, overlap, transfer and the law of the pass
        rate are the probe's.
    pool
        Prompts that the objective is a mean over; None for fresh ones.
    per_token
        Whether a response to a prompt costs as many as its mean number of tokens has it, with 1 for the mean of all
        prompts; the prediction knows no lengths.
    max_samples
        The most responses of the optimum.
    resamples
        Resamples of the bootstrap.
    progress
        Called with 1 after each policy, after GRPO, and after the search for the optimum.

    Raises
    ------
    InputError
        If an argument can't be used, or the probe has too few prompts.
    """
    _check(scoring)
    advance = progress or (lambda _: None)
    model, notes = _model(probed, scoring.model, pool)
    left_out = [policy.label for policy in policies if not has_efficiency(policy)]
    chosen = [policy for policy in policies if has_efficiency(policy)]
    if model is not None:
        best = Problem(probed.prior, model, max_samples=max_samples).best().policy
        chosen.append(replace(best, name=_OPTIMUM))
    advance(1)
    chosen_policies = distinct_labels(chosen)
    grpo = Policy.preset("grpo")
    usable = probed.scores.responses >= _FEWEST
    scores, tokens = probed.scores.of(usable), probed.tokens[usable]
    if per_token:
        notes.append(
            f"a response costs its prompt's mean number of tokens over {tokens.mean():.4g}, that of all prompts; the "
            "prediction takes all for equally long"
        )
    yardstick, *found = measure_efficiency(
        [grpo, *chosen_policies],
        scores,
        str(scoring.model.objective),
        update_cost=scoring.model.update_cost,
        response_cost=tokens / tokens.mean() if per_token else 1.0,
        pool=pool,
        batch=scoring.model.batch,
        resamples=resamples,
        progress=advance,
    )
    ratios: list[float | None] = [None] * len(found)
    if model is not None and (unit := gradient_efficiency(grpo, probed.prior, model).value) > 0:
        ratios = [gradient_efficiency(policy, probed.prior, model).value / unit for policy in chosen_policies]
    points = [_point(one, predicted) for one, predicted in zip(found, ratios, strict=True)]
    if (few := int((~usable).sum())) > 0:
        notes.append(f"{few} prompts have fewer than {_FEWEST} responses with a reward and are left out")
    if probed.unscored:
        notes.append(
            f"{probed.unscored} responses had no reward: policies are measured as if every response gets one, by the "
            "part of their updates along the gradients of the pass rates"
        )
    plugged = [f"{point.policy} ({point.plugged})" for point in points if point.plugged]
    if plugged:
        notes.append(
            "* may draw more responses than the probe has of a prompt, whose pass rate is then plugged in: a biased "
            f"result, of no account below; prompts in brackets: {', '.join(plugged)}"
        )
    if left_out:
        notes.append(f"left out, as they share a budget across the batch: {', '.join(left_out)}")
    notes += _signal(yardstick) + _agreement(points)
    return MeasuredFrontier(
        chosen_policies,
        probed,
        str(scoring.model.objective),
        pool,
        scoring.model.batch,
        per_token,
        model,
        tuple(points),
        tuple(notes),
    )


def _check(scoring: Scoring) -> None:
    """Raise where an option asks for what the probe itself tells."""
    model = scoring.model
    given = {
        "--noise-ratio": model.noise_ratio != ScoreModel().noise_ratio,
        "--overlap": model.overlap != ScoreModel().overlap,
        "--transfer": model.transfer != ScoreModel().transfer,
        "--false-positive or --false-negative": bool(scoring.verifier),
    }
    if wrong := [name for name, is_given in given.items() if is_given]:
        msg = (
            f"{', '.join(wrong)} can't be given with --probe, which measures them; leave them out, and say by --pool "
            "how many prompts the objective is a mean over"
        )
        raise InputError(msg)


def _model(probed: ProbedScores, model: ScoreModel, pool: int | None) -> tuple[ScoreModel | None, list[str]]:
    """Return the score model with the probe's numbers, and what there is to say of it."""
    where = "fresh prompts" if pool is None else f"a pool of {pool} {plural(pool, 'prompt')} that comes back"
    notes = [
        (
            f"efficiency is P^2 / (M C), the progress of {model.objective} on {where} with "
            f"{model.batch} {plural(model.batch, 'prompt')} a step, over that of GRPO with "
            "n = 4; ± is a standard error over prompts"
        )
    ]
    if probed.noise_ratio is None:
        return None, [*notes, "no prediction: the probe's |phi|^2 is not above 0 on average"]
    overlap = min(max(probed.overlap or 0.0, 0.0), 1.0)
    # On average over pools: a prompt helps itself in 1 case of N, and another one, by the overlap, in N - 1.
    transfer = 1.0 if pool is None else (pool - 1) * overlap / ((pool - 1) * overlap + 1)
    if not overlap:
        notes.append("the overlap of prompts came out at 0 or below and is taken for 0 in the prediction")
    fitted = replace(model, noise_ratio=probed.noise_ratio, overlap=overlap, transfer=transfer)
    notes.append(f"predicted by the score model with what the probe fits: {fitted.label}")
    notes += [f"an assumption of that model fails here: {each}" for each in probed.refuted]
    return fitted, notes


def _point(found: MeasuredEfficiency, predicted: float | None) -> MeasuredPolicy:
    both = predicted is not None and predicted > 0 and found.against > 0
    return MeasuredPolicy(
        policy=found.policy,
        responses=found.expected_samples,
        cost=found.cost,
        measured=found.against,
        error=found.against_error,
        predicted=predicted,
        log_ratio=math.log(found.against / predicted) if both and predicted else None,
        efficiency=found.value,
        efficiency_error=found.error,
        progress=found.progress,
        progress_error=found.progress_error,
        second_moment=found.second_moment,
        second_moment_error=found.second_moment_error,
        plugged=found.plugged,
    )


def _signal(grpo: MeasuredEfficiency) -> list[str]:
    """Say so where the yardstick itself is lost in noise."""
    if not 0 < abs(grpo.progress) < 3 * grpo.progress_error:
        return []
    note = (
        f"the progress of GRPO itself is {grpo.progress / grpo.progress_error:.1f} standard errors from 0, so that "
        "ratios to it tell little: probe more prompts (--prompts), or look at prompts that come back (--pool)"
    )
    return [note]


def _agreement(points: Sequence[MeasuredPolicy]) -> list[str]:
    """Say how far measured and predicted ratios agree, GRPO itself and biased results aside."""
    both = [
        (point.log_ratio, point.measured, point.predicted, point.error)
        for point in points
        if point.log_ratio is not None and point.error > 0 and not point.plugged
    ]
    if len(both) < 2:
        return []
    from scipy.stats import kendalltau

    ratios, measured, predicted, errors = np.array(both, dtype=np.float64).T
    tau = float(kendalltau(measured, predicted).statistic)
    off, noise = (math.sqrt(float(np.mean(part**2))) for part in (ratios, errors / measured))
    note = (
        f"log of measured over predicted, {len(both)} policies: root mean square {off:.2f}, of which "
        f"measurement errors explain {noise:.2f}; Kendall's tau {tau:.2f}"
    )
    return [note]
