"""What the learning simulator learns: prompt sets, prompts with features and answers, and lengths of responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.laws import Grid, Law, Mixture
from ada_bandit.uniforms import Stream, fold_seed, uniform
from sim.learn import kernels
from sim.montecarlo import draw_pass_rates
from sim.readers import read_rollouts
from sim.sources import from_curve, parse_share

__all__ = ["PROMPT_SETS", "ExactMeans", "LengthModel", "PromptSet", "Prompts", "Task"]

_CURVE = "qwen2.5-math-1.5b-base"
_LEAST = 1e-6
"""Start pass rates are kept this far from 0 and 1, where a logit has no value."""
_TRAIN, _HELD_OUT = 1, 2
"""Parts of a run's seed; the steps are part 0."""


@dataclass(frozen=True)
class PromptSet:
    """Prompts that start with `low` to `high` of `of` responses correct."""

    name: str
    """What tables and figures call it."""
    low: int
    """The fewest correct responses."""
    high: int
    """The most correct responses."""
    of: int = 16
    """Responses drawn to tell."""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= check_count("of", self.of):
            msg = f"a prompt set needs 0 <= low <= high <= of; got {self.low}, {self.high} and {self.of}"
            raise InputError(msg)

    def law(self, law: Law) -> Law:
        """Return the pass-rate law of the set's prompts, given that of all prompts."""
        counts = np.arange(self.low, self.high + 1)
        if isinstance(law, Grid):
            from scipy.stats import binom

            chance = binom.pmf(counts[:, None], self.of, law.pass_rates).sum(axis=0)
            if (law.weights * chance).sum() > 0:
                return Grid(law.pass_rates, law.weights * chance)
        shares = law.predictive(self.of)[counts]
        if shares.sum() <= 0:
            msg = f"no prompt of this law can have {self.low} to {self.high} of {self.of} responses correct"
            raise InputError(msg)
        seen = counts[shares > 0].tolist()
        return Mixture(tuple(law.posterior(k, self.of - k) for k in seen), tuple(shares[shares > 0].tolist()))

    @classmethod
    def parse(cls, text: str) -> PromptSet:
        """Read a name of `PROMPT_SETS`, or ``LOW-HIGH/OF`` such as ``1-2/16``.

        Raises
        ------
        InputError
            If the text is neither.
        """
        if text in PROMPT_SETS:
            return PROMPT_SETS[text]
        low, dash, rest = text.partition("-")
        if dash and low.strip().isdecimal():
            high, of = parse_share(rest)
            return cls(text, int(low), high, of)
        msg = f"unknown prompt set {text!r}; give {', '.join(PROMPT_SETS)}, or LOW-HIGH/OF such as 1-2/16"
        raise InputError(msg)


PROMPT_SETS: Mapping[str, PromptSet] = MappingProxyType(
    {
        one.name: one
        for one in (
            PromptSet("all", 1, 16),
            PromptSet("moderate", 1, 5),
            PromptSet("hard", 1, 2),
            PromptSet("easy", 3, 16),
        )
    }
)
"""Prompt sets by name: all training prompts and the hard ones of arXiv 2510.04996, the moderate ones that its public
selection script takes by default, and all without the hard ones."""


@cache
def _base_law() -> Law:
    return from_curve(_CURVE).law


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts and the model's frozen part on them."""

    features: FloatArray
    """`[prompt, feature]` phi, of length 1."""
    base: FloatArray
    """`[prompt, answer]` Logits before training; the correct answers come first."""
    right: int
    """Number of correct answers."""
    columns: int
    """Answers whose logit is learned: all of them, or the only correct one of the logistic policy."""

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the parameters, ``[feature, column]``."""
        return int(self.features.shape[1]), self.columns

    def answer_laws(self, weights: FloatArray, members: npt.ArrayLike | None = None) -> FloatArray:
        """Return the law of the answers, ``[member, answer]``; of all prompts unless `members` are given."""
        chosen = np.arange(len(self)) if members is None else np.asarray(members, dtype=np.int64)
        laws = np.empty((chosen.size, self.base.shape[1]))
        kernels.answer_laws(self.features, self.base, weights, chosen, laws)
        return laws

    def pass_rates(self, weights: FloatArray, members: npt.ArrayLike | None = None) -> FloatArray:
        """Return the pass rates, ``[member]``."""
        return np.asarray(np.minimum(self.answer_laws(weights, members)[:, : self.right].sum(axis=1), 1.0))

    def gradients(self, weights: FloatArray, members: npt.ArrayLike | None = None) -> FloatArray:
        """Return grad p of every member without its factor phi, ``[member, column]``: pi_c (1[c correct] - p)."""
        laws = self.answer_laws(weights, members)
        rates = laws[:, : self.right].sum(axis=1, keepdims=True)
        correct = np.arange(self.columns) < self.right
        return np.asarray(laws[:, : self.columns] * (correct - rates))

    def evaluate(self, weights: FloatArray, pass_k: Sequence[int] = ()) -> ExactMeans:
        """Return exact means over the prompts."""
        rates, entropy, diversity = np.empty((3, len(self)))
        kernels.evaluate(self.features, self.base, weights, self.right, rates, entropy, diversity)
        curve = np.array([np.mean(1 - (1 - rates) ** k) for k in pass_k])
        return ExactMeans(float(rates.mean()), float(entropy.mean()), float(diversity.mean()), curve)


@dataclass(frozen=True, eq=False)
class ExactMeans:
    """Exact means over prompts."""

    pass_rate: float
    """Mean pass rate."""
    entropy: float
    """Mean entropy of the answer, in nats."""
    diversity: float
    """Mean effective number of correct answers: exp of the entropy among them."""
    pass_at: FloatArray
    """`[k]` pass@k."""


@dataclass(frozen=True)
class Task:
    """What is learned: a model, how hard its prompts are, and how they are related."""

    prompt_set: PromptSet = PROMPT_SETS["all"]
    """Which prompts."""
    law: Law = field(default_factory=_base_law)
    """Law of the pass rate over all prompts at the start; the published base curve unless given."""
    model: Literal["logistic", "softmax"] = "softmax"
    """Which policy answers."""
    answers: int = 8
    """A, answers of the softmax policy; the logistic one has a right and a wrong one."""
    right: int = 2
    """Correct answers among them."""
    spread: float = 1.0
    """Standard deviation of the logits within the correct and within the incorrect answers at the start."""
    prompts: int = 2048
    """Distinct prompts to train on; each epoch goes through them in a new order."""
    held_out: int = 512
    """Prompts for evaluation alone."""
    features: int = 64
    """d, length of phi."""
    skills: int = 8
    """Groups of prompts by start pass rate that share a direction; 1 where easy prompts help hard ones in full."""
    alignment: float = 0.1
    """Mean cosine between the features of two prompts of a skill; that of prompts of different skills is 0."""

    def __post_init__(self) -> None:
        for name, least in (
            ("answers", 2),
            ("right", 1),
            ("prompts", 1),
            ("held_out", 1),
            ("features", 2),
            ("skills", 1),
        ):
            check_count(name, getattr(self, name), least)
        check_number("spread", self.spread, 0)
        check_number("alignment", self.alignment, 0, 1)
        if self.model not in {"logistic", "softmax"}:
            msg = f"model must be 'logistic' or 'softmax'; got {self.model!r}"
            raise InputError(msg)
        if self.skills >= self.features:
            msg = f"skills must be fewer than features; got {self.skills} skills and {self.features} features"
            raise InputError(msg)
        if self.right >= self.answers:
            msg = f"right must be less than answers; got {self.right} correct answers of {self.answers}"
            raise InputError(msg)

    @property
    def label(self) -> str:
        """What tables and figures call the task."""
        return self.prompt_set.name

    def draw(self, seed: int = 0) -> tuple[Prompts, Prompts]:
        """Return the prompts to train on and the held-out ones; a pure function of the seed."""
        law = self.prompt_set.law(self.law)
        return (
            self._prompts(law, self.prompts, fold_seed(seed, _TRAIN)),
            self._prompts(law, self.held_out, fold_seed(seed, _HELD_OUT)),
        )

    def _prompts(self, law: Law, count: int, seed: int) -> Prompts:
        return self.realise(draw_pass_rates(law, count, seed=seed), seed)

    def realise(self, pass_rates: npt.ArrayLike, seed: int = 0) -> Prompts:
        """Return prompts that have the given pass rates at the start, up to 1e-6 from 0 and 1.

        Parameters
        ----------
        pass_rates
            ``[prompt]``.
        seed
            Seed of features and of what the answers of a class differ by.
        """
        rates = np.clip(np.asarray(pass_rates, dtype=np.float64).ravel(), _LEAST, 1 - _LEAST)
        number = np.arange(rates.size)[:, None]
        # Directions of the skills: orthonormal, and with a part in every feature, so that none of Adam's
        # coordinates is special.
        wave = np.cos(np.pi * np.arange(self.skills)[:, None] * (np.arange(self.features) + 0.5) / self.features)
        wave /= np.sqrt((wave**2).sum(axis=1, keepdims=True))
        rank = np.argsort(np.argsort(rates, kind="stable"), kind="stable")
        own = _normal(seed, Stream.FEATURES, number, np.arange(self.features))
        own -= (own @ wave.T) @ wave
        own *= math.sqrt(1 - self.alignment) / np.sqrt((own**2).sum(axis=1, keepdims=True))
        features = own + math.sqrt(self.alignment) * wave[rank * self.skills // rates.size]
        if self.model == "logistic":
            base = np.stack([np.log(rates / (1 - rates)), np.zeros(rates.size)], axis=1)
            return Prompts(features, base, 1, 1)
        logits = self.spread * _normal(seed, Stream.ANSWERS, number, np.arange(self.answers))
        for part, mass in ((slice(None, self.right), rates), (slice(self.right, None), 1 - rates)):
            inner = -np.sort(-logits[:, part], axis=1)
            logits[:, part] = inner + np.log(mass / np.exp(inner).sum(axis=1))[:, None]
        return Prompts(features, logits, self.right, self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return the task as plain values for JSON."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"prompt_set": asdict(self.prompt_set), "law": self.law.to_dict()}


def _normal(seed: int, stream: int, prompt: IntArray, draw: IntArray) -> FloatArray:
    from scipy.special import ndtri

    return np.asarray(ndtri(uniform(seed, stream, prompt, draw)))


@dataclass(frozen=True)
class LengthModel:
    """How many tokens a response has: a mean by outcome, and a law about it."""

    correct: float = 700.0
    """Mean tokens of a correct response."""
    incorrect: float = 1100.0
    """Mean tokens of an incorrect response."""
    law: Literal["lognormal", "geometric", "constant"] = "lognormal"
    """Law of the length about its mean."""
    sigma: float = 0.6
    """Standard deviation of the logarithm, of the lognormal law."""
    limit: float | None = None
    """No response is longer, where given; the means stay those of the responses as they come out."""
    capacity: float | None = None
    """Tokens that are decoded side by side in the time of one token of a response, where that is bounded: a round
    takes as long as its longest response, or as long as its tokens take, whichever is more."""

    def __post_init__(self) -> None:
        for name in ("correct", "incorrect"):
            check_number(name, getattr(self, name), 0)
        check_number("sigma", self.sigma, 0)
        if self.limit is not None:
            check_number("limit", self.limit, max(self.correct, self.incorrect))
        if self.capacity is not None:
            check_number("capacity", self.capacity, 0, strict=True)
        if self.law not in {"lognormal", "geometric", "constant"}:
            msg = f"law must be 'lognormal', 'geometric' or 'constant'; got {self.law!r}"
            raise InputError(msg)

    @classmethod
    def from_log(cls, path: str | Path, **options: Any) -> LengthModel:
        """Take the means from a log of rollouts with rewards and tokens (see `sim.readers.read_rollouts`).

        Raises
        ------
        InputError
            If the log has no tokens, or no response of a class.
        """
        log = read_rollouts(path)
        if log.rewards is None or log.right is None or log.tokens is None:
            msg = (
                f"{str(path)!r} has no tokens by response ({log.notes[0]}); it needs lines with rewards and tokens "
                "beside them, or give both means yourself: --lengths 700,1100"
            )
            raise InputError(msg)
        known = ~np.isnan(log.rewards) & ~np.isnan(log.tokens)
        classes = {"correct": log.right & known, "incorrect": ~log.right & known}
        for name, mine in classes.items():
            if not mine.any():
                msg = (
                    f"{str(path)!r} has no {name} response of known length; give both means yourself: --lengths "
                    "700,1100"
                )
                raise InputError(msg)
        correct, incorrect = (float(log.tokens[mine].mean()) for mine in classes.values())
        return cls(correct, incorrect, **options)

    def tokens(self, pos: npt.ArrayLike, neg: npt.ArrayLike) -> FloatArray:
        """Return the mean tokens of so many responses, shaped like the counts."""
        return np.asarray(np.asarray(pos) * self.correct + np.asarray(neg) * self.incorrect)

    def round_times(self, pos: npt.ArrayLike, neg: npt.ArrayLike, uniforms: FloatArray) -> FloatArray:
        """Return how long synchronous rounds take, in the time of one token, ``[round]``.

        The longest of m independent responses has the distribution function F^m, so one uniform
        a class gives its law without drawing the others.

        Parameters
        ----------
        pos, neg
            ``[round]`` responses of each class.
        uniforms
            ``[round, 2]``.
        """
        longest = np.zeros(len(uniforms))
        for count, mean, u in zip((pos, neg), (self.correct, self.incorrect), uniforms.T, strict=True):
            some = np.asarray(count) > 0
            high = np.zeros(some.shape)
            # log of u^(1/m): close to 0 for many responses, so its complement is taken by expm1.
            share = np.log(u[some]) / np.asarray(count)[some]
            high[some] = self._quantile(share, mean)
            longest = np.maximum(longest, high)
        if self.limit is not None:
            longest = np.minimum(longest, self.limit)
        return longest if self.capacity is None else np.maximum(longest, self.tokens(pos, neg) / self.capacity)

    def _quantile(self, log_share: FloatArray, mean: float) -> FloatArray:
        """Return the length with log F = `log_share`."""
        from scipy.special import ndtri_exp

        if self.law == "lognormal":
            return np.asarray(mean * np.exp(self.sigma * ndtri_exp(log_share) - self.sigma**2 / 2))
        if self.law == "geometric" and mean > 1:
            beyond = -np.expm1(log_share)
            return np.asarray(np.maximum(np.ceil(np.log(beyond) / np.log1p(-1 / mean)), 1.0))
        return np.full(log_share.shape, mean)
