"""Evaluation: Ave@k and pass@k of a model on a task, with confidence intervals over the prompts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit.errors import InputError, check_count
from ada_bandit.programs.records import plain
from ada_bandit.programs.rollouts import RolloutLine
from llm.types import Prompt, Sampler
from llm.verify import Verifier, sample_and_score

__all__ = [
    "INTERVAL",
    "LogReport",
    "Measure",
    "PromptsReport",
    "RunEvaluation",
    "check_ks",
    "evaluate_task",
    "mean_interval",
    "pass_at_k",
    "summarize",
]

INTERVAL = (
    "95 % confidence interval over prompts, taken as independent: Wilson's, with the variance measured between prompts "
    "and the quantile of Student's t"
)
"""How the intervals of a `LogReport` are made, for those who read them."""


@dataclass(frozen=True)
class RunEvaluation:
    """What an evaluation in a run found."""

    pass_rate: float
    """Mean over prompts of the mean reward of the scored responses; NaN where none has a score."""
    standard_error: float
    """Of `pass_rate`, over prompts; NaN with fewer than two."""
    mean_tokens: float
    """Tokens of a response."""
    unscored: int
    """Responses without a score."""
    truncated: int
    """Responses cut at the length limit."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def evaluate_task(
    prompts: Sequence[Prompt],
    encoded: Sequence[Sequence[int]],
    sampler: Sampler,
    verifier: Verifier,
    samples: int,
    seed: int,
) -> RunEvaluation:
    """Sample and score `samples` responses to each prompt.

    Parameters
    ----------
    prompts
        ``[prompt]`` the prompts, at least one.
    encoded
        ``[prompt][token]`` their tokens.
    sampler, verifier
        What samples and scores.
    samples
        Responses to each prompt.
    seed
        The sampler's seed.

    Returns
    -------
    RunEvaluation
        Responses without a score are left out of the means and counted; a prompt without any score
        is left out of the mean over prompts.

    Raises
    ------
    InputError
        If there is no prompt, or nothing to sample.
    """
    check_count("samples", samples)
    if not prompts:
        msg = "there are 0 prompts to evaluate on; give a task with at least one"
        raise InputError(msg)
    responses, scores = sample_and_score(prompts, encoded, sampler, verifier, samples, seed)
    rewards = scores.rewards.reshape(len(prompts), samples)
    means = np.array([row[~np.isnan(row)].mean() for row in rewards if not np.isnan(row).all()])
    return RunEvaluation(
        pass_rate=float(means.mean()) if means.size else math.nan,
        standard_error=float(means.std(ddof=1) / math.sqrt(means.size)) if means.size > 1 else math.nan,
        mean_tokens=float(np.mean([each.tokens.size for each in responses])),
        unscored=int(np.isnan(rewards).sum()),
        truncated=scores.truncated,
    )


# Estimates


def pass_at_k(correct: int, scored: int, k: int) -> float:
    """Estimate, without bias, the chance that at least one of k responses is correct.

    ``1 - C(n - c, k) / C(n, k)``, the share of all choices of k out of the n scored responses that
    hold one of the c correct ones (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Parameters
    ----------
    correct
        Correct responses, c.
    scored
        Responses with a score, n.
    k
        From 1 to n.

    Raises
    ------
    InputError
        If k is more than n, or c is.
    """
    check_count("k", k)
    check_count("correct", correct, 0)
    if k > scored or correct > scored:
        msg = f"k and correct must not exceed scored; got k = {k}, correct = {correct}, scored = {scored}"
        raise InputError(msg)
    # Whole numbers up to the division: it alone rounds, also where both are beyond any float.
    ways = math.comb(scored, k)
    return (ways - math.comb(scored - correct, k)) / ways


def mean_interval(values: npt.ArrayLike) -> tuple[float, float]:
    """Return the ends of a 95 % confidence interval of the mean that prompts like these have.

    With the mean x of m values in [0, 1] and their variance v, the interval holds every mu with

        ``|x - mu| <= t sqrt(d mu (1 - mu) / m)``,    ``d = v / (x (1 - x))``,

    t the 0.975 quantile of Student's t with m - 1 degrees of freedom. For values that are 0 or 1 it
    is Wilson's score interval (1927) but for t and m - 1 in the place of m; for others d is the design
    effect by which their variance is less than that of such values. Unlike x +- t sqrt(v / m) and the
    bootstrap, which are too short near 0 and 1, it covers the mean about 95 % of the time with few
    prompts or rare successes as well. No method does where a few prompts that are not among these
    make up most of the distance to 0 or 1.

    Parameters
    ----------
    values
        ``[prompt]`` one value for each prompt.

    Returns
    -------
    tuple[float, float]
        Both NaN below two values, which tell nothing of their variance. Where all values are equal,
        d is 1, its most. Values outside [0, 1] get Student's interval, x +- t sqrt(v / m).
    """
    from scipy.special import stdtrit

    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return math.nan, math.nan
    t = float(stdtrit(x.size - 1, 0.975))
    mean, variance = float(x.mean()), float(x.var(ddof=1))
    if x.min() < 0 or x.max() > 1:
        half = t * math.sqrt(variance / x.size)
        return mean - half, mean + half
    largest_variance = mean * (1 - mean)
    spread = variance / largest_variance if largest_variance > 0 and x.min() < x.max() else 1.0
    a = spread * t * t / x.size
    middle, half = (mean + a / 2) / (1 + a), math.sqrt(a * largest_variance + a * a / 4) / (1 + a)
    return max(middle - half, 0.0), min(middle + half, 1.0)


@dataclass(frozen=True)
class Measure:
    """A mean over prompts."""

    value: float
    """The mean; NaN where no prompt tells."""
    low: float
    """Lower end of its 95 % confidence interval; NaN below two prompts."""
    high: float
    """Upper end of the interval."""
    prompts: int
    """Prompts that it is the mean of."""
    left_out: int
    """Prompts with too few scored responses."""


@dataclass(frozen=True)
class PromptsReport:
    """What was found on all prompts, or on those of a family."""

    prompts: int
    """Prompts."""
    responses: int
    """Responses."""
    tokens: float
    """Tokens of a response; NaN where the log holds none."""
    truncated: int
    """Responses cut at the length limit."""
    unscored: int
    """Responses without a score."""
    measures: dict[str, Measure]
    """Ave@n and pass@k by name."""


@dataclass(frozen=True)
class LogReport:
    """An evaluation of a log."""

    samples: tuple[int, int]
    """Fewest and most responses to a prompt that has any."""
    overall: PromptsReport
    """All prompts."""
    families: dict[str, PromptsReport]
    """Those of each family by its name."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is NaN is None."""
        fields: dict[str, Any] = plain(asdict(self))
        return fields | {"interval": INTERVAL}


def check_ks(ks: Sequence[int], samples: int) -> None:
    """Check that pass@k can be had from so many responses to a prompt.

    Raises
    ------
    InputError
        If there is no k, or one is no whole number from 1 to `samples`.
    """
    if not ks:
        msg = "pass@k needs at least one k; got none"
        raise InputError(msg)
    for k in ks:
        if check_count("k", k) > samples:
            msg = f"k = {k} is more than the n = {samples} responses to a prompt; give a smaller k, or sample more"
            raise InputError(msg)


def summarize(lines: Sequence[RolloutLine], ks: Sequence[int] | None = None) -> LogReport:
    """Compute Ave@n and pass@k of logged responses, overall and by family.

    Ave@n is the mean over prompts of the mean reward of a prompt's scored responses. It estimates the
    same for every n; the more responses, the smaller its error. A response is correct with a reward
    above 0.5. What has no score is left out and counted: from a prompt its responses, from a measure
    the prompts with fewer scored responses than it needs.

    Parameters
    ----------
    lines
        ``[prompt]`` lines of a log, each of another prompt.
    ks
        Each k of pass@k; the powers of 4 up to the fewest responses to a prompt by default.

    Raises
    ------
    InputError
        If there is no response, a prompt occurs twice, or a k is above the most responses to a prompt.
    """
    counts = [line.rewards.size for line in lines if line.rewards.size]
    if not counts:
        msg = (
            f"the log holds {len(lines)} prompts and 0 responses, so there is nothing to evaluate; 'python -m llm eval "
            "MODEL_DIR' and 'python -m llm rollout' sample some"
        )
        raise InputError(msg)
    prompt, times = Counter(line.prompt_id for line in lines).most_common(1)[0]
    if times > 1:
        msg = f"the prompt {prompt!r} occurs {times} times in the log; intervals need each prompt on one line"
        raise InputError(msg)
    fewest, largest = min(counts), max(counts)
    chosen = [4**power for power in range(fewest.bit_length()) if 4**power <= fewest] if ks is None else sorted({*ks})
    check_ks(chosen, largest)
    average = f"ave@{largest}" if fewest == largest else "ave"
    families: dict[str, list[RolloutLine]] = {}
    for line in lines:
        families.setdefault(line.family, []).append(line)
    return LogReport(
        (fewest, largest),
        _group(lines, chosen, average),
        {name: _group(families[name], chosen, average) for name in sorted(families)},
    )


def _group(lines: Sequence[RolloutLine], ks: Sequence[int], average: str) -> PromptsReport:
    tokens = [each for line in lines for each in line.tokens]
    responses = sum(line.rewards.size for line in lines)
    means = [float(np.nanmean(line.rewards)) for line in lines if line.scored]
    measures = {average: _measure(means, len(lines))}
    for k in ks:
        values = [pass_at_k(line.correct, line.scored, k) for line in lines if line.scored >= k]
        measures[f"pass@{k}"] = _measure(values, len(lines))
    return PromptsReport(
        prompts=len(lines),
        responses=responses,
        tokens=sum(tokens) / len(tokens) if tokens else math.nan,
        truncated=sum(line.truncated for line in lines),
        unscored=responses - sum(line.scored for line in lines),
        measures=measures,
    )


def _measure(values: Sequence[float], prompts: int) -> Measure:
    mean = float(np.mean(values)) if values else math.nan
    return Measure(mean, *mean_interval(values), prompts=len(values), left_out=prompts - len(values))
