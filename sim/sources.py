"""Where a pass-rate law comes from: an array, a file of counts or rewards, or what is built in.

Built in are published curves, and logged rollouts of a small model, which can be replayed as well.

A `Source` is a law with a label and notes that say, in words, what the law can't know.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ada_bandit import Grid
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_number, check_pass_rates, unknown_name
from ada_bandit.laws import Law

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "BetaFit",
    "Counts",
    "Rollouts",
    "Source",
    "built_in_rollouts",
    "curve_names",
    "fit_beta",
    "fit_curve",
    "from_array",
    "from_curve",
    "from_file",
    "from_name",
    "parse_share",
    "read_counts",
    "rollout_names",
    "source_names",
]

SMOOTH_BELOW = 64
"""Rates are smoothed unless told otherwise when a prompt has fewer responses than this."""

_ENDINGS = (".csv", ".parquet", ".jsonl", ".ndjson")
TOKENS = "mean_response_tokens"
"""The column, or key, of a prompt's mean tokens a response."""
_LINE = '{"prompt_id": "a", "rewards": [0, 1, 1]}'
_DATA = Path(__file__).parent / "data"
_CURVES = _DATA / "pass_at_k.csv"


class Rollouts(NamedTuple):
    """Built-in logged rollouts."""

    path: Path
    """The file, ``.jsonl`` with rewards and tokens one by one."""
    origin: str
    """Where they come from, in words."""


_ROLLOUTS = {
    "smollm2-reasoning-gym": Rollouts(
        _DATA / "smollm2_reasoning_gym.jsonl",
        "responses of SmolLM2-135M-Instruct to prompts of reasoning-gym, sampled with temperature 0.7; "
        "sim/data/README.md says how",
    ),
}


class Prompts(Protocol):
    """What a file is read as: something that holds prompts by id."""

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        """Ids as text, in the file's order."""


R = TypeVar("R", bound=Prompts)

# Outside of this span of a + b the likelihood is that of its limit to within rounding.
_LEAST_CONCENTRATION, _MOST_CONCENTRATION = 1e-6, 1e6


@dataclass(frozen=True, eq=False)
class Counts:
    """Responses of each prompt in a file."""

    prompt_ids: tuple[str, ...]
    """Ids as text, in the file's order."""
    correct: IntArray
    """`[prompt]` Correct responses."""
    total: IntArray
    """`[prompt]` Scored responses, at least 1."""
    notes: tuple[str, ...] = ()
    """What was left out or read in a way worth telling."""
    tokens: FloatArray | None = None
    """`[prompt]` Mean tokens of a response, where they were asked for and every prompt has them."""

    @property
    def rates(self) -> FloatArray:
        """`[prompt]` The plug-in rates correct / total."""
        return np.asarray(self.correct / self.total)


@dataclass(frozen=True, eq=False)
class BetaFit:
    """A Beta prior fitted to counts, by its mean and concentration, limits included."""

    mean: float
    """a / (a + b)."""
    concentration: float
    """a + b; 0 where all mass sits at p = 0 and 1, infinite where every prompt has the same p."""

    def posterior_mean(self, correct: npt.ArrayLike, total: npt.ArrayLike) -> FloatArray:
        """Return E[p | counts], shaped like the counts, with `total` at least 1."""
        correct, total = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
        if math.isinf(self.concentration):
            return np.full(np.broadcast(correct, total).shape, self.mean)
        return np.asarray((self.mean * self.concentration + correct) / (self.concentration + total))

    def __str__(self) -> str:
        """Name the prior in words."""
        if self.mean in {0.0, 1.0} or math.isinf(self.concentration):
            return f"a single pass rate p = {self.mean:.4g}"
        if self.concentration == 0:
            return f"p = 1 for a share of {self.mean:.4g} and p = 0 for the rest"
        return f"Beta({self.mean * self.concentration:.4g}, {(1 - self.mean) * self.concentration:.4g})"


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
    """The counts behind it, for a file."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The plain values that make it again: kind, name, filter, smoothing."""

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


def from_name(name: str, *, smooth: bool | None = None) -> Source:
    """Make a source of what is built in.

    Parameters
    ----------
    name
        One of `source_names()`.
    smooth
        For rollouts, as in `from_file`; a curve is never smoothed.

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
    source = from_file(path, smooth=smooth)
    settings = source.settings | {"kind": "rollouts", "name": name}
    return replace(source, label=name, notes=(origin, *source.notes), settings=settings)


def built_in_rollouts(name: str) -> Rollouts:
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


def fit_curve(k: Sequence[int], pass_at_k: Sequence[float], all_correct_at_k: Sequence[float]) -> tuple[Grid, float]:
    """Fit a pass-rate law to pass@k = E[1 - q^k] and all-correct@k = E[p^k].

    Non-negative least squares over weights on a grid of p that is even in logit(p) and holds
    0 and 1. Many laws fit a few moments equally well, and least squares alone picks one with
    a handful of atoms; a slight penalty on second differences of the weights picks a smooth
    one.

    Parameters
    ----------
    k
        ``[point]`` numbers of responses, at least 1.
    pass_at_k, all_correct_at_k
        ``[point]`` shares of prompts in [0, 1].

    Returns
    -------
    law : Grid
        The law.
    residual : float
        The largest absolute difference between a given share and the law's.

    Raises
    ------
    InputError
        If the sequences are empty or differ in length, a k is below 1, or a share is outside [0, 1].
    """
    from scipy.optimize import nnls

    draws = np.asarray(k, dtype=np.float64)
    shares = check_pass_rates([*pass_at_k, *all_correct_at_k], "pass_at_k and all_correct_at_k")
    if draws.size == 0 or shares.size != 2 * draws.size:
        msg = (
            "a curve needs one pass@k and one all-correct@k for every k; got "
            f"{draws.size} k, {len(pass_at_k)} pass@k and {len(all_correct_at_k)} all-correct@k"
        )
        raise InputError(msg)
    for value in draws:
        check_number("k", value, 1)
    inner = 1 / (1 + np.exp(-np.linspace(math.log(1e-4), -math.log(1e-4), 200)))
    p = np.concatenate([[0.0], inner, [1.0]])
    moments = np.vstack([1 - (1 - p) ** draws[:, None], p ** draws[:, None]])
    total_mass = 1e3  # against residuals of about 1e-3: the mass is 1 to about 1e-6 before it is normalised
    smoothness = 0.1 * np.pad(np.diff(np.eye(inner.size), 2, axis=0), ((0, 0), (1, 1)))
    rows = np.vstack([moments, np.full((1, p.size), total_mass), smoothness])
    aims = np.concatenate([shares, [total_mass], np.zeros(len(smoothness))])
    weights = nnls(rows, aims, maxiter=50 * p.size)[0]
    law = Grid(p[weights > 0], weights[weights > 0])
    residual = float(np.abs(moments[:, weights > 0] @ law.weights - shares).max())
    return law, residual


# Files


def from_file(path: str | Path, *, smooth: bool | None = None) -> Source:
    """Make a source of a file of counts or rewards (see `read_counts`).

    Parameters
    ----------
    path
        The file.
    smooth
        Whether to replace correct / total by the posterior mean under a Beta prior fitted to
        all prompts. By default when the smallest total is below 64.

    Raises
    ------
    InputError
        If the file can't be read as counts; the message quotes the value and names the remedy.
    """
    counts = read_counts(path)
    prompts, least, most = len(counts.prompt_ids), int(counts.total.min()), int(counts.total.max())
    responses = f"{least}" if least == most else f"{least} to {most}"
    head = f"{prompts} {plural(prompts, 'prompt')} with {responses} responses each, {counts.rates.mean():.1%} correct"
    settings: dict[str, Any] = {"kind": "file", "name": str(path)}
    asked = smooth
    smooth = least < SMOOTH_BELOW if smooth is None else smooth
    notes = [head, *counts.notes, *_unknowable(counts)]
    if smooth and most == 1:
        smooth = False
        notes.append("not smoothed: with one response a prompt the spread of p can't be told from chance")
    if smooth:
        prior = fit_beta(counts.correct, counts.total)
        why = f", as the smallest total, {least}, is below {SMOOTH_BELOW}" if asked is None else ""
        notes.append(
            f"smoothed{why}: each rate is the posterior mean under a prior fitted by maximum likelihood, {prior} "
            "(--no-smooth takes correct/total)"
        )
        finite = math.isfinite(prior.concentration)
        if finite and prior.concentration > 0:
            notes.append("posterior means are spread less than p")
        elif 0 < prior.mean < 1 and not finite:
            notes.append("the rates differ no more than by chance, so every prompt gets the same one")
        law = _law_of(np.clip(prior.posterior_mean(counts.correct, counts.total), 0, 1))
        settings["prior"] = {"mean": prior.mean, "concentration": prior.concentration if finite else None}
    else:
        if most > 1:
            notes.append("not smoothed: each rate is correct/total (--smooth shrinks them to a fitted prior)")
        law = _law_of(counts.rates)
    settings["smooth"] = smooth
    return Source(law, Path(path).name, tuple(notes), counts, settings)


def plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


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


def fit_beta(correct: npt.ArrayLike, total: npt.ArrayLike) -> BetaFit:
    """Fit a Beta prior to counts by maximum likelihood (beta-binomial).

    Parameters
    ----------
    correct, total
        ``[prompt]`` counts, with correct <= total and total at least 1.

    Returns
    -------
    BetaFit
        The prior. Where the likelihood has no maximum inside, its limit: one pass rate for
        all (rates spread no wider than chance allows), or mass at 0 and 1 alone.

    Raises
    ------
    InputError
        If there is no prompt.
    """
    from scipy.optimize import minimize
    from scipy.special import betaln, digamma, expit, logit

    pairs, prompts = np.unique(np.column_stack([correct, total]).astype(np.float64), axis=0, return_counts=True)
    if pairs.size == 0:
        msg = "a prior is fitted to at least one prompt; got none"
        raise InputError(msg)
    k, n = pairs.T
    pooled = float((prompts * k).sum() / (prompts * n).sum())
    if pooled in {0.0, 1.0} or n.max() == 1:
        return BetaFit(pooled, math.inf)
    if np.all((k == 0) | (k == n)):
        return BetaFit(float((prompts * (k > 0)).sum() / prompts.sum()), 0.0)

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean negative log likelihood over prompts and its slope in (logit mean, log concentration)."""
        mean, concentration = expit(point[0]), np.exp(point[1])
        a, b = mean * concentration, (1 - mean) * concentration
        both = digamma(a + b) - digamma(a + b + n)
        by_a = digamma(a + k) - digamma(a) + both
        by_b = digamma(b + n - k) - digamma(b) + both
        slope = np.stack([a * (1 - mean) * (by_a - by_b), a * by_a + b * by_b])
        value = betaln(a + k, b + n - k) - betaln(a, b)
        return -float(value @ prompts) / prompts.sum(), -(slope @ prompts) / prompts.sum()

    span = (math.log(_LEAST_CONCENTRATION), math.log(_MOST_CONCENTRATION))
    # The likelihood is flat far out, so the walk starts from the best of a few concentrations.
    start = min((np.array([logit(pooled), value]) for value in np.linspace(*span, 25)), key=lambda x: loss(x)[0])
    options = {"ftol": 1e-15, "gtol": 1e-10}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-40, 40), span], options=options)
    mean, concentration = float(expit(found.x[0])), float(np.exp(found.x[1]))
    one_rate = -float((k * np.log(pooled) + (n - k) * np.log1p(-pooled)) @ prompts) / prompts.sum()
    if concentration > 0.99 * _MOST_CONCENTRATION or found.fun >= one_rate - 1e-9:
        return BetaFit(pooled, math.inf)
    return BetaFit(mean, concentration)


def read_counts(path: str | Path, *, tokens: bool = False) -> Counts:
    """Read the counts of every prompt from a file.

    Parameters
    ----------
    path
        ``.csv`` or ``.parquet`` with the columns prompt_id, correct and total; or ``.jsonl``
        (``.ndjson``) with one object a line, ``{"prompt_id": …, "rewards": […]}`` or
        ``{"prompt_id": …, "correct": …, "total": …}``. Other columns are ignored. A reward
        above 0.5 is correct; null and NaN mark a response without a score, which is left out
        and counted.
    tokens
        Whether to read mean_response_tokens as well, where the file has it.

    Raises
    ------
    InputError
        If the file is missing, empty or of another kind, lacks a column, or holds a value
        that is no count; the message quotes the value and names the remedy.
    """
    return read_prompts(path, partial(_read_table, tokens=tokens), partial(_read_lines, tokens=tokens))


def read_prompts(path: str | Path, of_table: Callable[[Path], R], of_lines: Callable[[Path], R]) -> R:
    """Read a file by one of two readers, after its ending; tell what is wrong with it, and refuse repeated ids."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        msg = f"the file {str(path)!r} must end in {', '.join(_ENDINGS)}; got {path.suffix or 'no ending'!r}"
        raise InputError(msg)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        msg = f"the file {str(path)!r} {what}; give the path of a file, relative to the current folder"
        raise InputError(msg)
    if path.stat().st_size == 0:
        msg = f"the file {str(path)!r} is empty; it needs {_wanted(ending)}"
        raise InputError(msg)
    read = of_lines if ending in {".jsonl", ".ndjson"} else of_table
    try:
        found = read(path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the file {str(path)!r} can't be read: {error}"
        raise InputError(msg) from error
    seen: dict[str, int] = {}
    for row, prompt in enumerate(found.prompt_ids, start=1):
        if prompt in seen:
            msg = (
                f"prompt_id {prompt!r} occurs twice in {str(path)!r}, as prompts {seen[prompt]} and {row}; "
                "add up its counts or give the prompts different ids"
            )
            raise InputError(msg)
        seen[prompt] = row
    return found


def _wanted(ending: str) -> str:
    if ending in {".jsonl", ".ndjson"}:
        return f"a line such as {_LINE} for every prompt"
    return "the columns prompt_id, correct, total and a row for every prompt"


def _whole(value: Any, column: str, where: str) -> int:
    """Return a count that is a whole number of at least 0, written as number or as text."""
    try:
        number = math.nan if isinstance(value, (bool, np.bool_)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if value is None or (isinstance(value, str) and not value.strip()):
        msg = f"{column} is missing {where}; fill it in or remove the prompt"
        raise InputError(msg)
    if not (math.isfinite(number) and number == int(number)):
        msg = f"{column} must be a whole number; got {value!r} {where}. Mend the value or remove the prompt"
        raise InputError(msg)
    if number < 0:
        msg = f"{column} can't be negative; got {value!r} {where}. Mend the value or remove the prompt"
        raise InputError(msg)
    if number > 2**53:
        msg = f"{column} is larger than any count; got {value!r} {where}. Mend the value or remove the prompt"
        raise InputError(msg)
    return int(number)


def _pair(correct: Any, total: Any, where: str) -> tuple[int, int]:
    """Return correct and total, checked against each other."""
    k, n = _whole(correct, "correct", where), _whole(total, "total", where)
    if n == 0:
        msg = f"total is 0 {where}: without a response there is no pass rate. Remove the prompt"
        raise InputError(msg)
    if k > n:
        msg = f"correct must not exceed total; got {k} of {n} {where}. Are the columns swapped?"
        raise InputError(msg)
    return k, n


def _prompt_id(value: Any, where: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip():
        msg = f"prompt_id is missing {where}; give every prompt an id of its own"
        raise InputError(msg)
    if isinstance(value, (dict, list)):
        msg = f"prompt_id must be text or a number; got {value!r} {where}"
        raise InputError(msg)
    return str(value).strip()


def _read_table(path: Path, *, tokens: bool) -> Counts:
    """Read a ``.csv`` or ``.parquet`` file."""
    import polars as pl

    frame = _load_table(path)
    names = {name.strip(): name for name in frame.columns}
    missing = [column for column in ("prompt_id", "correct", "total") if column not in names]
    if missing:
        msg = (
            f"{str(path)!r} lacks the {plural(len(missing), 'column')} {', '.join(missing)}; it has "
            f"{', '.join(names) or 'none'}. Rename the columns to prompt_id, correct, total"
        )
        raise InputError(msg)
    rows = frame.filter(~pl.all_horizontal(pl.all().is_null())) if path.suffix.lower() == ".csv" else frame
    blank = frame.height - rows.height
    if rows.height == 0:
        msg = f"{str(path)!r} has its columns but no prompts; it needs a row for every prompt"
        raise InputError(msg)
    ids, pairs = [], []
    columns = (rows[names[column]].to_list() for column in ("prompt_id", "correct", "total"))
    for row, (prompt, correct, total) in enumerate(zip(*columns, strict=True), start=1):
        ids.append(_prompt_id(prompt, f"at prompt {row} of {str(path)!r}"))
        pairs.append(_pair(correct, total, f"for prompt {ids[-1]!r} ({row} in {str(path)!r})"))
    counts = np.array(pairs, dtype=np.int64)
    notes = [f"{blank} empty {plural(blank, 'row')} left out"] if blank else []
    means = None
    if tokens and TOKENS in names:
        places = (f"for prompt {prompt!r} ({row} in {str(path)!r})" for row, prompt in enumerate(ids, start=1))
        column = rows[names[TOKENS]].to_list()
        means = all_tokens([mean_tokens(value, place) for value, place in zip(column, places, strict=True)], notes)
    return Counts(tuple(ids), counts[:, 0], counts[:, 1], tuple(notes), means)


def mean_tokens(value: Any, where: str) -> float:
    """Return the mean tokens of a prompt's responses, written as number or as text; NaN where they are missing."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    try:
        number = math.nan if isinstance(value, (bool, np.bool_)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        msg = f"{TOKENS} must be a number of at least 0; got {value!r} {where}. Mend the value or leave it empty"
        raise InputError(msg)
    return number


def all_tokens(means: Sequence[float], notes: list[str]) -> FloatArray | None:
    """Return the mean tokens of every prompt; None, and a note, where some prompts have none."""
    values = np.array(means)
    missing = int(np.isnan(values).sum())
    if not missing:
        return values
    if missing < values.size:
        notes.append(f"tokens left out: {missing} of {values.size} prompts have none")
    return None


def _load_table(path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        # As text: a column of mixed types is then told by the value at fault, not by the type guessed first.
        if path.suffix.lower() == ".csv":
            return pl.read_csv(path, infer_schema=False)
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        msg = f"{str(path)!r} can't be read as {path.suffix.lower()}: {reason}. Is the file complete?"
        raise InputError(msg) from error


def _read_lines(path: Path, *, tokens: bool) -> Counts:
    """Read a ``.jsonl`` file."""
    ids, pairs, means = [], [], []
    unscored = shaped = 0
    dropped: list[str] = []
    for prompt, row, where in read_objects(path):
        if "rewards" in row:
            rewards = read_rewards(row["rewards"], where)
            scored = [reward for reward in rewards if not math.isnan(reward)]
            unscored += len(rewards) - len(scored)
            shaped += sum(reward not in {0.0, 1.0} for reward in scored)
            if not scored:
                dropped.append(prompt)
                continue
            pairs.append((sum(reward > 0.5 for reward in scored), len(scored)))
        else:
            pairs.append(_pair(row["correct"], row["total"], where))
        ids.append(prompt)
        means.append(mean_tokens(row.get(TOKENS), where) if tokens else math.nan)
    if not ids:
        what = "no prompt with a scored response" if dropped else "no prompts"
        msg = f"{str(path)!r} has {what}; it needs {_wanted('.jsonl')}"
        raise InputError(msg)
    notes = []
    if unscored:
        notes.append(f"{unscored} {plural(unscored, 'response')} without a score (null or NaN) left out")
    if dropped:
        shown = ", ".join(repr(prompt) for prompt in dropped[:3]) + (", …" if len(dropped) > 3 else "")
        notes.append(f"{len(dropped)} {plural(len(dropped), 'prompt')} without a scored response left out: {shown}")
    if shaped:
        notes.append(f"{shaped} {plural(shaped, 'reward')} other than 0 and 1: above 0.5 counts as correct")
    counts = np.array(pairs, dtype=np.int64)
    every = all_tokens(means, notes)
    return Counts(tuple(ids), counts[:, 0], counts[:, 1], tuple(notes), every)


def read_objects(path: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Give the prompt id, the object and the place, in words, of every line of a ``.jsonl`` file.

    By the json module and not by polars: a malformed line is told by its number, rows of
    unequal types stay as they are, and NaN is understood.
    """
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                place = f"on line {number} of {str(path)!r}"
                row = _parse_line(line, place)
                prompt = _prompt_id(row.get("prompt_id"), place)
                yield prompt, row, f"for prompt {prompt!r} {place}"


def _parse_line(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        msg = f"malformed JSON {place}: {error.msg} at column {error.colno}; got {_short(line.strip())}"
        raise InputError(msg) from error
    if not isinstance(row, dict):
        msg = f"every line must be an object such as {_LINE}; got {_short(line.strip())} {place}"
        raise InputError(msg)
    if "prompt_id" not in row or not ("rewards" in row or {"correct", "total"} <= row.keys()):
        msg = (
            f"a line needs prompt_id and rewards, or prompt_id, correct and total; got "
            f"{', '.join(row) or 'an empty object'} {place}"
        )
        raise InputError(msg)
    return row


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[:most] + "…")


def read_rewards(values: Any, where: str) -> list[float]:
    """Return the rewards of a prompt as floats, NaN for a response without a score."""
    if not isinstance(values, list):
        msg = f"rewards must be a list of numbers; got {_short(json.dumps(values))} {where}"
        raise InputError(msg)
    if not values:
        msg = f"rewards is empty {where}: without a response there is no pass rate. Remove it"
        raise InputError(msg)
    rewards = []
    for value in values:
        try:
            reward = math.nan if value is None else float(value) if isinstance(value, (bool, int, float)) else math.inf
        except OverflowError:
            reward = math.inf
        if math.isinf(reward):
            msg = f"every reward must be a finite number, or null without a score; got {value!r} {where}"
            raise InputError(msg)
        rewards.append(reward)
    return rewards
