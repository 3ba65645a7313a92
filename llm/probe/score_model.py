"""The two-component score model held against measured scores: its parameters, and where it fails.

The score of a response is s = grad log pi(response). The model of `ada_bandit.efficiency` takes a
correct response's score for ``q phi + noise`` and an incorrect one's for ``-p phi + noise``. As the
weights of the two sum to 1, phi is the difference of the class means. That these are q phi and
-p phi is no assumption but follows from E[s] = 0: it fails only where the responses were not
sampled from the model whose scores are taken. What is assumed is that |phi|^2 and the noise energy
of each class are the same for all p, and that phi has a part common to all prompts.

Everything is estimated from sums over the scores of each class, so no score needs to be kept. With
n scores in a class, S their sum and Q the sum of their squared norms,

    noise energy  (Q - |S|^2 / n) / (n - 1),
    |class mean|^2  (|S|^2 - Q) / (n (n - 1)),
    <mean of positives, mean of negatives>  <S_pos, S_neg> / (n_pos n_neg)

are unbiased given the counts, and so is what is linear in them: |phi|^2, which may come out
negative and is used as it is. Inner products of different prompts' phi are unbiased as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.class_scores import ClassScores
from ada_bandit.errors import InputError
from ada_bandit.fitting import fit_prior
from ada_bandit.programs.records import plain
from ada_bandit.uniforms import fold_seed
from llm.probe.sums import PromptScores, class_scores

__all__ = [
    "Check",
    "Geometry",
    "ProbeSummary",
    "Third",
    "ValueWithError",
    "geometry",
    "log_slope",
    "summarise",
]

_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Geometry:
    """Unbiased estimates for prompts, every array ``[prompt]``; NaN where the counts don't allow one."""

    pass_rate: FloatArray
    """Share of correct responses among those with a reward."""
    phi_square: FloatArray
    """|phi|^2; two responses of each class are needed. May be negative."""
    pos_projection: FloatArray
    """<mean of positives, phi>: q |phi|^2."""
    neg_projection: FloatArray
    """<mean of negatives, phi>: -p |phi|^2."""
    pos_noise: FloatArray
    """Noise energy of positives; two are needed."""
    neg_noise: FloatArray
    """Noise energy of negatives; two are needed."""
    mean_square: FloatArray
    """|E s|^2: 0."""

    @property
    def usable(self) -> BoolArray:
        """Whether a prompt tells |phi|^2, ``[prompt]``."""
        return np.isfinite(self.phi_square)


def geometry(prompts: Sequence[PromptScores]) -> Geometry:
    """Return the estimates of each prompt (the formulas of this module's docstring)."""

    def column(name: str) -> FloatArray:
        return np.array([getattr(each, name) for each in prompts], dtype=np.float64)

    pos, neg = column("pos"), column("neg")
    pos_energy, neg_energy = column("pos_energy"), column("neg_energy")
    pos_square, neg_square = column("pos_square"), column("neg_square")
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = column("product") / (pos * neg)
        mean_pos = np.where(pos > 1, (pos_square - pos_energy) / (pos * (pos - 1)), np.nan)
        mean_neg = np.where(neg > 1, (neg_square - neg_energy) / (neg * (neg - 1)), np.nan)
        return Geometry(
            pos / (pos + neg),
            mean_pos + mean_neg - 2 * cross,
            mean_pos - cross,
            cross - mean_neg,
            _noise(pos, pos_energy, pos_square),
            _noise(neg, neg_energy, neg_square),
            column("mean_square"),
        )


def _noise(count: FloatArray, energy: FloatArray, square: FloatArray) -> FloatArray:
    noise = np.where(count > 1, (energy - square / count) / (count - 1), np.nan)
    # Scores that are all the same have no noise; what is left of them is rounding.
    return np.where(noise < 1e-12 * energy, 0.0, noise)


@dataclass(frozen=True)
class ValueWithError:
    """A number and its standard error, by the jackknife over prompts unless said otherwise."""

    value: float
    """The estimate; NaN where the prompts don't allow one."""
    standard_error: float
    """Its standard error; NaN for fewer than two prompts."""

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.standard_error:.2g}"


def _jackknife(statistic: Callable[[IntArray], float], prompts: int) -> ValueWithError:
    """Return the statistic of all prompts, and its delete-one standard error (Quenouille 1956, Tukey 1958)."""
    everyone = np.arange(prompts)
    if prompts == 0:
        return ValueWithError(math.nan, math.nan)
    value = statistic(everyone)
    if prompts == 1:
        return ValueWithError(value, math.nan)
    without = np.array([statistic(np.delete(everyone, each)) for each in everyone])
    variance = (prompts - 1) / prompts * float(np.sum((without - without.mean()) ** 2))
    return ValueWithError(value, math.sqrt(variance))


def _ratio(above: FloatArray, below: FloatArray) -> ValueWithError:
    """Return sum(above) / sum(below): a ratio of means stays sound where single ratios don't."""

    def statistic(chosen: IntArray) -> float:
        total = float(below[chosen].sum())
        return float(above[chosen].sum()) / total if total else math.nan

    return _jackknife(statistic, above.size)


def _mean(values: FloatArray) -> ValueWithError:
    return _ratio(values, np.ones_like(values))


def _median(values: FloatArray, seed: int) -> ValueWithError:
    """Return the median, with a bootstrap standard error: the jackknife of a median is inconsistent."""
    if values.size == 0:
        return ValueWithError(math.nan, math.nan)
    generator = np.random.Generator(np.random.Philox(key=seed))
    resampled = np.median(values[generator.integers(values.size, size=(_RESAMPLES, values.size))], axis=1)
    error = float(resampled.std(ddof=1)) if values.size > 1 else math.nan
    return ValueWithError(float(np.median(values)), error)


def log_slope(values: npt.ArrayLike, pass_rates: npt.ArrayLike) -> float:
    """Return b of the fit E[value] = exp(a + b p).

    By quasi-likelihood with variance proportional to the mean (McCullagh and Nelder 1989): the
    values may be negative, as unbiased estimates of something positive are, and need no logarithm.

    Parameters
    ----------
    values, pass_rates
        ``[prompt]`` each.

    Returns
    -------
    float
        The slope; NaN where the sum of the values is not positive, the pass rates are all the
        same, or no finite slope fits.
    """
    y, p = np.asarray(values, dtype=np.float64), np.asarray(pass_rates, dtype=np.float64)
    if y.size < 2 or y.sum() <= 0 or np.ptp(p) == 0:
        return math.nan
    y, x = y / y.mean(), p - p.mean()

    def excess(slope: float) -> float:
        # The intercept solves its own equation: the weights sum to the values.
        shares = np.exp(slope * x - np.max(slope * x))
        return float((y @ x) / y.size - (shares @ x) / shares.sum())

    # Concave in the slope, so its derivative falls: one root, if the ends enclose it.
    low, high = -60.0, 60.0
    if excess(low) < 0 or excess(high) > 0:
        return math.nan
    from scipy.optimize import brentq

    # A slope of 60 is e^60 between the ends of p: no number to report.
    return float(brentq(excess, low, high, xtol=1e-12))


@dataclass(frozen=True)
class Third:
    """What a third of the prompts, by pass rate, says."""

    low: float
    """Least pass rate."""
    high: float
    """Greatest pass rate."""
    prompts: int
    """Number of prompts."""
    phi_square: ValueWithError
    """Mean of |phi|^2."""
    median_phi_square: ValueWithError
    """Median of |phi|^2, with a bootstrap standard error."""
    pos_noise_ratio: ValueWithError
    """nu_pos within the third."""
    neg_noise_ratio: ValueWithError
    """nu_neg within the third."""


@dataclass(frozen=True)
class Check:
    """One assumption and what the scores say of it."""

    assumption: str
    """The assumption, in words."""
    measured: ValueWithError
    """The number that tells."""
    tolerance: tuple[float, float]
    """Between these ends the assumption is as good as true."""

    @property
    def verdict(self) -> str:
        """``holds`` or ``fails`` where two standard errors around the number are inside or outside, else ``open``."""
        low, high = self.tolerance
        value, margin = self.measured.value, 2 * self.measured.standard_error
        if low <= value - margin and value + margin <= high:
            return "holds"
        return "fails" if value + margin < low or value - margin > high else "open"


@dataclass(frozen=True, eq=False)
class ProbeSummary:
    """What the scores of many prompts say of the model."""

    counts: dict[str, int]
    """Prompts and responses by what they can tell."""
    prior: dict[str, Any]
    """Pass-rate law of all prompts, for `ada_bandit.laws.law_from_dict`."""
    estimates: dict[str, ValueWithError]
    """The numbers."""
    thirds: tuple[Third, ...]
    """Prompts by pass rate, in thirds."""
    checks: tuple[Check, ...]
    """The model's assumptions."""
    cosines: FloatArray
    """`[pair]` Cosines of pairs of prompts whose |phi|^2 both came out positive."""
    geometry: Geometry = field(repr=False)
    """The estimates of each prompt."""

    @property
    def noise_ratio(self) -> tuple[float, float] | None:
        """(nu_pos, nu_neg), as `bayes_policy` takes it; None where |phi|^2 is not above 0 on average."""
        pos, neg = self.estimates["nu_pos"].value, self.estimates["nu_neg"].value
        return (pos, neg) if pos >= 0 and neg >= 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; NaN becomes None."""
        errors = (self.estimates["nu_pos"].standard_error, self.estimates["nu_neg"].standard_error)
        checks = [{**asdict(check), "verdict": check.verdict} for check in self.checks]
        told = {
            "noise_ratio": self.noise_ratio,
            "noise_ratio_standard_error": errors,
            "prior": self.prior,
            "counts": self.counts,
            "checks": checks,
            "estimates": {name: asdict(value) for name, value in self.estimates.items()},
            "thirds": [asdict(third) for third in self.thirds],
            "cosines": self.cosines.tolist(),
        }
        return dict(plain(told))


def summarise(prompts: Sequence[PromptScores], families: Sequence[str] | None = None, *, seed: int = 0) -> ProbeSummary:
    """ValueWithError the model's parameters and check its assumptions.

    Parameters
    ----------
    prompts
        What is kept of each prompt's scores. Prompts without two responses of each class tell
        nothing of phi and are left out of it, counted; they count for the prior and for E[s] = 0.
    families
        ``[prompt]`` kind of each prompt; one kind unless given.
    seed
        Seed of the bootstrap.

    Returns
    -------
    ProbeSummary
        The numbers with standard errors over prompts.

    Raises
    ------
    InputError
        If no prompt has two correct and two incorrect responses.
    """
    estimated = geometry(prompts)
    pos, neg = np.array([each.pos for each in prompts]), np.array([each.neg for each in prompts])
    usable = estimated.usable
    counts = {
        "prompts": len(prompts),
        "usable": int(usable.sum()),
        "no_response_scored": int(((pos == 0) & (neg == 0)).sum()),
        "no_correct": int(((pos == 0) & (neg > 0)).sum()),
        "no_incorrect": int(((neg == 0) & (pos > 0)).sum()),
        "single_response_of_a_class": int((((pos == 1) & (neg > 0)) | ((neg == 1) & (pos > 0))).sum()),
        "negative_phi_square": int((estimated.phi_square[usable] < 0).sum()),
        "responses": int(pos.sum() + neg.sum()),
        "correct": int(pos.sum()),
        "unscored": sum(each.unscored for each in prompts),
    }
    if not usable.any():
        raise _nothing_usable(counts)
    prior = fit_prior(pos, neg)
    held = prior.weights > 0
    rate, phi_square = estimated.pass_rate[usable], estimated.phi_square[usable]
    pos_noise, neg_noise = estimated.pos_noise[usable], estimated.neg_noise[usable]
    kinds = np.array(["" if families is None else families[at] for at in np.nonzero(usable)[0].tolist()])
    third_of = np.empty(rate.size, dtype=np.int64)
    parts = np.array_split(np.argsort(rate, kind="stable"), 3)
    for number, part in enumerate(parts):
        third_of[part] = number
    gram = _gram(class_scores(prompts).of(usable))
    estimates = {
        "pass_rate": _mean(estimated.pass_rate[np.isfinite(estimated.pass_rate)]),
        "phi_square": _mean(phi_square),
        "nu_pos": _ratio(pos_noise, phi_square),
        "nu_neg": _ratio(neg_noise, phi_square),
        "pos_mean_over_q_phi": _ratio(estimated.pos_projection[usable], (1 - rate) * phi_square),
        "neg_mean_over_minus_p_phi": _ratio(-estimated.neg_projection[usable], rate * phi_square),
        "mean_score_square": _mean_score_square(estimated),
        "log_slope_phi_square": _slope(phi_square, rate),
        "log_slope_pos_noise": _slope(pos_noise, rate),
        "log_slope_neg_noise": _slope(neg_noise, rate),
        **_alignments(gram, phi_square, kinds, third_of),
    }
    cosines = _cosines(gram, phi_square)
    estimates["cosine"] = _jackknife(lambda chosen: _mean_cosine(gram, phi_square, chosen), rate.size)
    thirds = tuple(
        Third(
            float(rate[part].min()),
            float(rate[part].max()),
            part.size,
            _mean(phi_square[part]),
            _median(phi_square[part], fold_seed(seed, number)),
            _ratio(pos_noise[part], phi_square[part]),
            _ratio(neg_noise[part], phi_square[part]),
        )
        for number, part in enumerate(parts)
        if part.size
    )
    law = {"name": "grid", "pass_rates": prior.pass_rates[held].tolist(), "weights": prior.weights[held].tolist()}
    return ProbeSummary(counts, law, estimates, thirds, _checks(estimates), cosines, estimated)


def _nothing_usable(counts: dict[str, int]) -> InputError:
    msg = (
        f"no prompt of {counts['prompts']} has two correct and two incorrect responses, so no phi can be estimated: "
        f"{counts['no_correct']} had none correct, {counts['no_incorrect']} none incorrect, "
        f"{counts['single_response_of_a_class']} a single one of a class, {counts['no_response_scored']} no response "
        "with a reward. Take more responses a prompt (--samples), more prompts (--prompts), or prompts that the model "
        "gets right sometimes: an easier task, or min_pass_rate and max_pass_rate with a log by "
        "'python -m llm rollout'"
    )
    return InputError(msg)


def _slope(values: FloatArray, rate: FloatArray) -> ValueWithError:
    return _jackknife(lambda chosen: log_slope(values[chosen], rate[chosen]), rate.size)


def _mean_score_square(estimated: Geometry) -> ValueWithError:
    """Return |E s|^2 over |phi|^2, means over all prompts that tell either."""
    told = np.isfinite(estimated.mean_square)
    mean_square, phi_square = estimated.mean_square[told], estimated.phi_square[told]

    def statistic(chosen: IntArray) -> float:
        known = phi_square[chosen][np.isfinite(phi_square[chosen])]
        return float(mean_square[chosen].mean() / known.mean()) if known.size and known.mean() else math.nan

    return _jackknife(statistic, mean_square.size)


def _gram(scores: ClassScores) -> FloatArray:
    """Return the inner products of different prompts' phi, ``[prompt, prompt]``, with 0 on the diagonal."""
    pos, neg = 1 / scores.pos, 1 / scores.neg
    across = scores.gram_cross * np.multiply.outer(pos, neg)
    products = scores.gram_pos * np.multiply.outer(pos, pos) + scores.gram_neg * np.multiply.outer(neg, neg)
    products -= across + across.T
    np.fill_diagonal(products, 0.0)
    return np.asarray(products)


def _alignments(gram: FloatArray, phi_square: FloatArray, kinds: Any, third_of: IntArray) -> dict[str, ValueWithError]:
    """Return mean <phi_i, phi_j> over mean |phi|^2 of these prompts, for different sets of pairs.

    A ratio of means, so that negative |phi|^2 may take part.
    """
    kind, third = kinds[:, None] == kinds, third_of[:, None] == third_of
    ends = np.abs(third_of[:, None] - third_of) == 2
    sets = {
        "": np.ones_like(kind),
        "_same_family": kind,
        "_other_family": ~kind,
        "_same_third": third,
        "_other_third": ~third,
        "_first_with_last_third": ends,
    }
    size = (phi_square[:, None] + phi_square) / 2
    alone = np.eye(size.shape[0], dtype=bool)

    def ratio(pairs: BoolArray, chosen: IntArray) -> float:
        at = np.ix_(chosen, chosen)
        among = (pairs & ~alone)[at]
        total = float(size[at][among].sum())
        return float(gram[at][among].sum()) / total if total else math.nan

    def across(same: BoolArray, chosen: IntArray) -> float:
        within = ratio(same, chosen)
        return ratio(~same, chosen) / within if within else math.nan

    alignments = {f"alignment{name}": _jackknife(partial(ratio, pairs), size.shape[0]) for name, pairs in sets.items()}
    for name, same in (("family", kind), ("third", third)):
        alignments[f"alignment_other_over_same_{name}"] = _jackknife(partial(across, same), size.shape[0])
    return alignments


def _cosines(gram: FloatArray, phi_square: FloatArray) -> FloatArray:
    """Return the cosines of all pairs with positive |phi|^2, ``[pair]``; the norms are free of noise on average."""
    positive = np.nonzero(phi_square > 0)[0]
    rows, columns = np.triu_indices(positive.size, 1)
    first, second = positive[rows], positive[columns]
    return np.asarray(gram[first, second] / np.sqrt(phi_square[first] * phi_square[second]))


def _mean_cosine(gram: FloatArray, phi_square: FloatArray, chosen: IntArray) -> float:
    cosines = _cosines(gram[np.ix_(chosen, chosen)], phi_square[chosen])
    return float(cosines.mean()) if cosines.size else math.nan


def _checks(estimates: dict[str, ValueWithError]) -> tuple[Check, ...]:
    fold = (-math.log(2), math.log(2))
    same = "does not depend on p: log of its ratio between p = 1 and p = 0, within a factor of 2"
    checks = [
        Check("E[s] = 0: |E s|^2 over |phi|^2, below 0.01", estimates["mean_score_square"], (-0.01, 0.01)),
        Check(
            "positives have mean q phi: <mean, phi> over q |phi|^2, within 10 %",
            estimates["pos_mean_over_q_phi"],
            (0.9, 1.1),
        ),
        Check(
            "negatives have mean -p phi: <mean, phi> over -p |phi|^2, within 10 %",
            estimates["neg_mean_over_minus_p_phi"],
            (0.9, 1.1),
        ),
        Check(f"|phi|^2 {same}", estimates["log_slope_phi_square"], fold),
    ]
    # Noise of no account may depend on p as it likes.
    checks += [
        Check(f"noise of {kind} {same}", estimates[f"log_slope_{short}_noise"], fold)
        for kind, short in (("positives", "pos"), ("negatives", "neg"))
        if not estimates[f"nu_{short}"].value < 0.01
    ]
    checks += [
        Check(
            "phi has a part common to all prompts: mean <phi, phi'> over |phi|^2, above 0",
            estimates["alignment"],
            (0.0, math.inf),
        ),
        Check(
            "that part does not depend on p: <phi, phi'> of other thirds by pass rate over the same one, 1/2 to 2",
            estimates["alignment_other_over_same_third"],
            (0.5, 2.0),
        ),
    ]
    if not math.isnan(estimates["alignment_other_family"].value):
        checks.append(
            Check(
                "nor on the family: <phi, phi'> of other families over the same one, 1/2 to 2",
                estimates["alignment_other_over_same_family"],
                (0.5, 2.0),
            )
        )
    return tuple(checks)
