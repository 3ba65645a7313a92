"""What the score model says of an experiment before it is run: the efficiency of every arm, from probes of its bases.

Of each base model a probe gives the law of its pass rates, the noise ratios of both classes and the
overlap c of directions. With N prompts in the training task and B in a step, the transfer is
t = c / (c + (1 - c) / N) (`ada_bandit.score_model`), and an arm's efficiency per response follows:

- a policy of tables: its gradient efficiency, exactly;
- ``empirical_bayes``: the optimum at the probed law and noise, at the arm's samples and sizes. With a
  memory, each prompt's law is its posterior after as many responses as it has had half-way through the
  run, those that have faded left out; with ``skip``, prompts whose responses don't pay get none;
- a budget that refills a step (DAPO, ``refill``): groups without signal add nothing and are paid for, so
  per response it is the fixed number of its groups.

Two arms' ratio of efficiencies is that of the responses that they need, as long as pass rates are near the
base model's. Per token, a response costs what prompts of its pass rate have, on a line through the probe's.
Beside the model stands the same ratio from the probe's class sums (`ada_bandit.measured`), where the arm is a
policy of tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze
from ada_bandit.lattice import binomial_rows
from ada_bandit.laws import Grid, Law
from ada_bandit.measured import measure_efficiency
from ada_bandit.optimal import Problem
from ada_bandit.policy import AnyPolicy, Policy
from ada_bandit.programs.scores import ProbedScores
from ada_bandit.score_model import ScoreModel
from ada_bandit.shared import Refill
from ada_bandit.specs import read_policy
from ada_bandit.stopping import solve_together
from llm.config import RunConfig
from llm.experiment.plan import Experiment

__all__ = ["Bounds", "Prediction", "bounds", "known_responses", "posteriors", "predict", "transfer_of"]

_PROBLEM = ("samples", "max_samples", "group_size")


@dataclass(frozen=True)
class Prediction:
    """What is predicted of an arm on a base model; ratios are to the arm of reference."""

    task: str
    """Name of the experiment."""
    base: str
    """The base model."""
    arm: str
    """The arm."""
    responses: float
    """E[N], responses a prompt of the step, at the probed law."""
    batch: int
    """B, prompts that a step samples."""
    efficiency: float
    """Progress per response, in units of the score model."""
    ratio_responses: float
    """Efficiency per response over that of the reference."""
    ratio_tokens: float
    """Efficiency per generated token over that of the reference."""
    measured: float
    """The ratio per response from the probe's class sums; NaN where the arm is no policy of tables."""
    measured_error: float
    """Its standard error over prompts."""
    mean: float
    """Mean of the probed law."""
    noise_pos: float
    """Noise ratio of correct responses."""
    noise_neg: float
    """Noise ratio of incorrect responses."""
    overlap: float
    """c."""
    transfer: float
    """t."""


@dataclass(frozen=True)
class _Arm:
    """An arm as the score model sees it."""

    value: float
    samples: float
    tokens: float
    batch: int
    policy: AnyPolicy | None


@dataclass(frozen=True)
class Bounds:
    """The most that the score model has room for on a base model, over the arm of reference, per response."""

    task: str
    """Name of the experiment."""
    base: str
    """The base model."""
    one_response: float
    """Of one response a prompt with the best advantages."""
    optimum: float
    """Of the best policy that knows the law alone."""
    known: float
    """Of the best policy where every prompt's rate is known and each gets a response."""
    known_skipping: float
    """Of the best policy where every prompt's rate is known and prompts may be skipped."""


def bounds(task: str, experiment: Experiment, probes: Mapping[str, ProbedScores]) -> list[Bounds]:
    """Return how much there is to win on each base model; arguments and errors as of `predict`."""
    found = []
    for base in experiment.bases:
        probed = _probe_of(task, base, probes)
        config = experiment.run_config(experiment.reference, experiment.rates[0], experiment.config.seeds[0], base)
        model = _model(config, probed)
        least = _arm(config, model, probed).value
        law = probed.prior
        rates, weights = law.quadrature(32)
        there = weights > 1e-6
        known = [Problem(Grid([rate]), model, max_samples=16) for rate in rates[there].tolist()]
        best = [
            solve_together(problems, sizes, np.full(len(problems), skip)).price
            for problems, sizes, skip in (
                ([Problem(law, model, max_samples=1)], [1.0], False),
                ([Problem(law, model)], [1.0], False),
                (known, weights[there], False),
                (known, weights[there], True),
            )
        ]
        found.append(Bounds(task, base, *(value / least for value in best)))
    return found


def transfer_of(overlap: float, pool: int) -> float:
    """Return t = c / (c + (1 - c) / N)."""
    return overlap / (overlap + (1 - overlap) / pool) if overlap > 0 else 0.0


def predict(task: str, experiment: Experiment, probes: Mapping[str, ProbedScores]) -> list[Prediction]:
    """Return what is predicted of every arm on every base model.

    Parameters
    ----------
    task
        Name of the experiment in the predictions.
    experiment
        The experiment.
    probes
        A probe of each base model, by the base's name.

    Raises
    ------
    InputError
        If a base has no probe, a probe has no noise ratio, or an arm's budget is none that can be predicted.
    """
    found = []
    for base in experiment.bases:
        found += _on_base(task, base, experiment, _probe_of(task, base, probes))
    return found


def _probe_of(task: str, base: str, probes: Mapping[str, ProbedScores]) -> ProbedScores:
    if base not in probes:
        msg = f"the base {base!r} of {task!r} has no probe; give --probe {base}=FILE, the scores.npz of 'llm probe'"
        raise InputError(msg)
    if probes[base].noise_ratio is None:
        msg = f"the probe of {base!r} has no noise ratio, as |phi|^2 is not above 0 on average; take more prompts"
        raise InputError(msg)
    return probes[base]


def _model(config: RunConfig, probed: ProbedScores) -> ScoreModel:
    """Return the score model of a run: what was probed, and the transfer and batch that follow from its sizes."""
    overlap = min(max(probed.overlap or 0.0, 0.0), 1.0)
    return ScoreModel(
        probed.noise_ratio or 0.0,
        transfer=transfer_of(overlap, config.task.size),
        overlap=overlap,
        batch=config.train.prompts,
    )


def _on_base(task: str, base: str, experiment: Experiment, probed: ProbedScores) -> list[Prediction]:
    assert probed.noise_ratio is not None  # noqa: S101 - for mypy; it was looked at
    arms, configs, models = {}, {}, {}
    for arm in experiment.config.arms:
        config = configs[arm] = experiment.run_config(arm, experiment.rates[0], experiment.config.seeds[0], base)
        models[arm] = _model(config, probed)
        arms[arm] = _arm(config, models[arm], probed)
    reference = arms[experiment.reference]
    measured = _measured(arms, configs, experiment.reference, probed)
    return [
        Prediction(
            task=task,
            base=base,
            arm=name,
            responses=arm.samples,
            batch=arm.batch,
            efficiency=arm.value,
            ratio_responses=arm.value / reference.value,
            ratio_tokens=(arm.value * arm.samples / arm.tokens)
            / (reference.value * reference.samples / reference.tokens),
            measured=measured.get(name, (math.nan, math.nan))[0],
            measured_error=measured.get(name, (math.nan, math.nan))[1],
            mean=probed.prior.mean,
            noise_pos=probed.noise_ratio[0],
            noise_neg=probed.noise_ratio[1],
            overlap=models[name].overlap,
            transfer=models[name].transfer,
        )
        for name, arm in arms.items()
    ]


def _arm(config: RunConfig, model: ScoreModel, probed: ProbedScores) -> _Arm:
    law, spec = probed.prior, config.policy
    if isinstance(spec, Mapping) and "empirical_bayes" in spec:
        options = spec["empirical_bayes"]
        return _optimum(options, config, model, probed)
    policy = read_policy(spec)
    if isinstance(policy, Policy) and isinstance(policy.budget, Refill):
        size = policy.budget.maximum
        # So many prompts are sampled, on average, as bring the wanted groups.
        sampled = policy.budget.wanted / float(_mean(law, lambda p: 1 - p**size - (1 - p) ** size))
        policy = _once(size)
        model = replace(model, batch=max(round(sampled), 1))
    efficiency = gradient_efficiency(policy, law, model)
    rates, weights = law.quadrature(2 * policy.parts[0][1].tables.max_samples)
    drawn = analyze(policy, np.clip(rates, 0, 1)).expected_samples
    tokens = float(weights @ (drawn * _tokens_at(probed, rates)))
    return _Arm(efficiency.value, efficiency.expected_samples, tokens, model.batch, policy)


def _once(size: int) -> Policy:
    return read_policy({"preset": "grpo", "group_size": size})  # type: ignore[return-value]


def _mean(law: Law, function: Any) -> float:
    rates, weights = law.quadrature(64)
    return float(weights @ function(rates))


def _optimum(options: Mapping[str, Any], config: RunConfig, model: ScoreModel, probed: ProbedScores) -> _Arm:
    chosen: dict[str, Any] = {key: options[key] for key in _PROBLEM if key in options}
    law = probed.prior
    if not config.memory:
        policy = Problem(law, model, **chosen).best().policy
        efficiency = gradient_efficiency(policy, law, model)
        rates, weights = law.quadrature(2 * policy.tables.max_samples)
        tokens = float(weights @ (analyze(policy, rates).expected_samples * _tokens_at(probed, rates)))
        return _Arm(efficiency.value, efficiency.expected_samples, tokens, model.batch, policy)
    mean_rate = law.mean
    tokens_of = float(_tokens_at(probed, np.array([mean_rate]))[0])
    samples = 1.0
    found = None
    # The number of responses that a prompt is known by depends on how many it gets, and that on the number.
    for _ in range(3):
        known = known_responses(config, samples, tokens_of)
        laws, sizes = posteriors(law, known)
        problems = [Problem(each, model, **chosen) for each in laws]
        may_skip = np.full(len(problems), bool(options.get("skip", False)))
        found = solve_together(problems, sizes, may_skip)
        samples = float(
            sizes
            @ np.array([0.0 if skip else each.cost for skip, each in zip(found.skipped, found.choices, strict=True)])
        )
    assert found is not None  # noqa: S101 - for mypy; the loop has run
    return _Arm(found.price, samples, samples * tokens_of, model.batch, None)


def known_responses(config: RunConfig, samples: float, tokens: float) -> int:
    """Return by how many responses a prompt is known half-way through a run, those that faded left out, at least 1."""
    total = max(config.train.tokens / tokens, config.train.steps * config.train.prompts * samples)
    seen = total / 2 / config.task.size
    # Visits of `samples` responses, each of which leaves the share `memory` of what was known before.
    lasting = samples / (1 - config.memory)
    return max(round(min(seen, lasting)), 1)


def posteriors(law: Law, known: int) -> tuple[list[Law], FloatArray]:
    """Return the posterior laws after `known` responses by the number of correct ones, and their chances."""
    rates, weights = law.quadrature(2 * known)
    *_, row = binomial_rows(rates, known)
    chances = row @ weights
    there = chances > 1e-12
    laws = [law.posterior(pos, known - pos) for pos in range(known + 1) if there[pos]]
    return laws, np.asarray(chances[there] / chances[there].sum())


def _tokens_at(probed: ProbedScores, rates: FloatArray) -> FloatArray:
    """Return the mean tokens of a response to a prompt of a pass rate: the least-squares line through the probe's."""
    total = probed.scores.responses
    there = total > 0
    own = probed.scores.pos[there] / total[there]
    if np.ptp(own) == 0:
        return np.full(rates.shape, float(probed.tokens[there].mean()))
    slope, level = np.polyfit(own, probed.tokens[there], 1)
    return np.asarray(np.maximum(level + slope * rates, float(probed.tokens[there].min())))


def _measured(
    arms: Mapping[str, _Arm], configs: Mapping[str, RunConfig], reference: str, probed: ProbedScores
) -> dict[str, tuple[float, float]]:
    """Return the measured ratio and its error of every arm that is a policy of tables."""
    base = arms[reference].policy
    if base is None:
        return {}
    ratios = {}
    for name, arm in arms.items():
        if arm.policy is None:
            continue
        (found,) = measure_efficiency(
            [arm.policy],
            probed.scores,
            reference=base,
            pool=configs[name].task.size,
            batch=arm.batch,
            resamples=200,
        )
        ratios[name] = (found.against, found.against_error)
    return ratios
