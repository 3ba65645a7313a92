"""Compare policies on one pass-rate law: exactly and by simulation. Computes only; prints and draws nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Policy, analyze
from ada_bandit.errors import InputError, check_count
from ada_bandit.exact import analyze_law
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy
from ada_bandit.programs.records import to_csv
from sim.labels import distinct_labels, first_grpo
from sim.montecarlo import simulate_law
from sim.score_model import ASSUMPTIONS, Scoring
from sim.sources import Source
from sim.statistics import SampleMean

__all__ = ["WEIGHT_RATES", "ComparedPolicy", "Comparison", "compare_policies"]

WEIGHT_RATES = (0.1, 0.5, 0.9)
"""Pass rates at which the gradient weight is tabulated."""

_PLAIN = 4
_BIAS_GRID = 1001


@dataclass(frozen=True)
class ComparedPolicy:
    """What one policy does on the law; averages over prompts unless said otherwise."""

    policy: str
    """The policy's label."""
    responses: float
    """Responses per prompt, exact."""
    rounds: float
    """Rounds per prompt, exact."""
    signal: float
    """Share of prompts whose group holds both classes, exact."""
    resolved: float
    """Share of prompts whose exit rule holds at the exit, exact."""
    short_of_positives: float
    """Share of prompts that exit unresolved short of positives, exact."""
    short_of_negatives: float
    """Share of prompts that exit unresolved short of negatives, exact."""
    cost: float
    """Responses per prompt over those of the reference (`Comparison.reference`)."""
    extra_responses: float | None
    """Responses of a batch beyond n per prompt: prompts a batch times (responses - n); None where a prompt may exit
    with fewer than n."""
    largest_bias: float
    """E[pool mean] - p where it is largest in size over p in [0, 1]; p is the true rate under verifier noise."""
    largest_bias_at: float | None
    """The smallest such p; None where the pool mean is unbiased everywhere."""
    weights: tuple[float, ...]
    """w at the pass rates `WEIGHT_RATES`."""
    efficiency: float
    """Gradient efficiency, exact."""
    efficiency_ratio: float | None
    """Gradient efficiency over that of `Comparison.efficiency_reference`; None where that is 0."""
    simulated: dict[str, SampleMean]
    """Simulated responses, rounds, signal, resolved, short_of_positives, short_of_negatives; empty for 0 prompts."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison of policies, with everything that is needed to make it again."""

    policies: tuple[AnyPolicy, ...]
    """The policies, with labels that differ."""
    source: Source
    """The pass-rate law they were compared on."""
    rows: tuple[ComparedPolicy, ...]
    """One a policy, in order."""
    prompts: int
    """Prompts a batch."""
    batches: int
    """Simulated batches."""
    seed: int
    """Seed of the simulation."""
    reference: str
    """What `ComparedPolicy.cost` is a ratio to, in words."""
    scoring: Scoring
    """The setting of the gradient efficiency."""
    efficiency_reference: str
    """What `ComparedPolicy.efficiency_ratio` is a ratio to, in words."""
    notes: tuple[str, ...]
    """What the comparison says, in words."""

    def configuration(self) -> dict[str, Any]:
        """Return everything the comparison depends on, as plain values."""
        return {
            "version": ada_bandit.__version__,
            "source": self.source.to_dict(),
            "prompts": self.prompts,
            "batches": self.batches,
            "seed": self.seed,
            "score_model": self.scoring.to_dict(),
            "policies": [policy.to_dict() for policy in self.policies],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON."""
        return {
            "configuration": self.configuration(),
            "notes": [*self.source.notes, *self.notes],
            "cost_reference": self.reference,
            "efficiency_reference": self.efficiency_reference,
            "policies": [
                asdict(row) | {"weights": dict(zip(map(str, WEIGHT_RATES), row.weights, strict=True))}
                for row in self.rows
            ],
        }

    def to_csv(self) -> str:
        """Return the rows as CSV text, simulated values in columns of their own."""
        records = []
        for row in self.rows:
            record = asdict(row)
            del record["weights"], record["simulated"]
            record |= {f"w_{rate}": weight for rate, weight in zip(WEIGHT_RATES, row.weights, strict=True)}
            for name, value in row.simulated.items():
                record |= {f"{name}_simulated": value.mean, f"{name}_se": value.se}
            records.append(record)
        return to_csv(records)


def compare_policies(
    policies: Sequence[AnyPolicy],
    source: Source,
    *,
    prompts: int = 512,
    batches: int = 200,
    seed: int = 0,
    scoring: Scoring | None = None,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare policies on one pass-rate law.

    All policies are simulated under one seed, so that they see the same responses.

    Parameters
    ----------
    policies
        At least one.
    source
        The pass-rate law.
    prompts, batches
        Prompts a batch and batches to simulate, each at least 0; 0 for the exact part alone.
    seed
        Seed of the simulation.
    scoring
        The setting of the gradient efficiency, and how often the verifier errs: exits, keeps and
        advantages see its rewards, w(p) and biases are held against the truth.
    progress
        Called with the number of prompts just simulated.

    Raises
    ------
    InputError
        If there is no policy, or a number is below 0.
    """
    if not policies:
        msg = "nothing to compare: give at least one policy"
        raise InputError(msg)
    prompts, batches = check_count("prompts", prompts, 0), check_count("batches", batches, 0)
    policies = distinct_labels(policies)
    scoring = scoring or Scoring()
    averages = [analyze_law(policy, source.law, scoring.verifier) for policy in policies]
    baseline = first_grpo(policies)
    grpo = Policy.preset("grpo") if baseline is None else policies[baseline]
    unit, reference = float(_PLAIN), f"{_PLAIN} responses per prompt"
    if baseline is not None:
        unit = averages[baseline]["expected_samples"]
        reference = f"{grpo.label} ({unit:g} responses per prompt)"
    yardstick = scoring.efficiency(grpo, source.law).value
    rows = []
    for policy, average in zip(policies, averages, strict=True):
        simulated = (
            _simulate(policy, source.law, prompts, batches, seed, scoring, progress) if prompts * batches else {}
        )
        bias, where = _largest_bias(policy, scoring)
        efficiency = scoring.efficiency(policy, source.law).value
        rows.append(
            ComparedPolicy(
                policy=policy.label,
                responses=average["expected_samples"],
                rounds=average["expected_rounds"],
                signal=average["signal_probability"],
                resolved=average["resolved_probability"],
                short_of_positives=average["short_of_positives"],
                short_of_negatives=average["short_of_negatives"],
                cost=average["expected_samples"] / unit,
                extra_responses=prompts * (average["expected_samples"] - policy.n) if _fills(policy) else None,
                largest_bias=bias,
                largest_bias_at=where,
                weights=tuple(analyze(policy, WEIGHT_RATES, scoring.verifier).gradient_weight.tolist()),
                efficiency=efficiency,
                efficiency_ratio=efficiency / yardstick if yardstick > 0 else None,
                simulated=simulated,
            )
        )
    label = f"{grpo.label} ({grpo.budget.max_samples} responses per prompt)"
    words = f"efficiency per response is relative to {label}; {scoring.label}, in {ASSUMPTIONS}"
    notes = (*source.findings(), words, *_verdict(rows, prompts, batches), *_unfilled(rows))
    return Comparison(policies, source, tuple(rows), prompts, batches, seed, reference, scoring, label, notes)


def _fills(policy: AnyPolicy) -> bool:
    """Whether every prompt exits with at least n responses."""
    return all(int(np.add(*np.nonzero(part.sampling.exits)).min()) >= part.n for _, part in policy.parts)


def _unfilled(rows: Sequence[ComparedPolicy]) -> Iterator[str]:
    names = [row.policy for row in rows if row.extra_responses is None]
    if names:
        yield f"no extra for {', '.join(names)}: some prompts exit with fewer responses than a group has places"


def _simulate(
    policy: AnyPolicy,
    law: Law,
    prompts: int,
    batches: int,
    seed: int,
    scoring: Scoring,
    progress: Callable[[int], None] | None,
) -> dict[str, SampleMean]:
    options = {"prompts": prompts, "batches": batches, "seed": seed}
    result = simulate_law(policy, law, **options, verifier=scoring.verifier, progress=progress)
    names = {
        "responses": "samples",
        "rounds": "rounds",
        "signal": "signal",
        "resolved": "resolved",
        "short_of_positives": "short_of_positives",
        "short_of_negatives": "short_of_negatives",
    }
    return {
        name: SampleMean(float(getattr(result, theirs)), float(getattr(result, f"{theirs}_se")))
        for name, theirs in names.items()
    }


def _largest_bias(policy: AnyPolicy, scoring: Scoring) -> tuple[float, float | None]:
    """Return the pool mean's bias where it is largest in size, and the smallest such p."""
    rates = np.linspace(0, 1, _BIAS_GRID)
    bias = analyze(policy, rates, scoring.verifier).pool_mean_bias
    size = np.abs(bias)
    if size.max() < 1e-12:  # rounding
        return 0.0, None
    index = int(np.argmax(size > size.max() - 1e-12))
    return float(bias[index]), float(rates[index])


def _verdict(rows: Sequence[ComparedPolicy], prompts: int, batches: int) -> tuple[str, ...]:
    """Say how far exact and simulated values are apart, in standard errors."""
    if not prompts * batches:
        what = "0 prompts" if not prompts else "0 batches"
        return (f"{what}: nothing simulated, exact values only",)
    total = prompts * batches
    largest, compared = 0.0, 0
    for row in rows:
        for name, value in row.simulated.items():
            exact = float(getattr(row, name))
            # An event too rare to have shown up has a standard error of 0; one of its kind in the sample is no alarm.
            se = max(value.se, 1 / total)
            if name not in {"responses", "rounds"}:
                se = max(se, math.sqrt(max(exact * (1 - exact), 0) / total))
            largest, compared = max(largest, abs(value.mean - exact) / se), compared + 1
    note = (
        f"simulated: {batches} batches of {prompts} prompts; the largest of {compared} differences between exact "
        f"and simulated values is {largest:.1f} standard errors"
    )
    return (note,)
