"""What a step's time depends on: lengths of responses, and the machine; and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ada_bandit._types import BoolArray, FloatArray
from ada_bandit.errors import InputError, check_count, check_number, preview
from ada_bandit.programs.records import plain
from sim.readers.log import RolloutLog

__all__ = ["Lengths", "Machine", "StepTime"]

_QUANTILES = 4096


@dataclass(frozen=True, eq=False)
class Lengths:
    """Lengths of responses in tokens by correctness: empirical laws.

    A length depends on whether the response is correct, and on nothing else of its prompt.

    Raises
    ------
    InputError
        If a class has no length, or one that is not above 0.
    """

    of_pos: FloatArray
    """`[sample]` Lengths of correct responses, equally likely; ascending."""
    of_neg: FloatArray
    """`[sample]` Lengths of incorrect responses, likewise."""
    borrowed: str = ""
    """``"pos"`` or ``"neg"`` where a log has no response of that class, which then has the other's lengths."""

    def __post_init__(self) -> None:
        for name in ("of_pos", "of_neg"):
            object.__setattr__(self, name, _lengths(name, getattr(self, name)))

    @classmethod
    def of_means(cls, pos_mean: float, neg_mean: float, *, cv: float = 0.5) -> Lengths:
        """Make log-normal lengths of given means.

        Parameters
        ----------
        pos_mean, neg_mean
            Mean tokens of a correct and of an incorrect response, above 0.
        cv
            Standard deviation over mean of both, at least 0.
        """
        from scipy.special import ndtri

        spread = np.sqrt(np.log1p(check_number("cv", cv, 0) ** 2))
        shape = np.exp(spread * ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES))
        shape /= shape.mean()
        pos = check_number("pos_mean", pos_mean, 0, strict=True)
        return cls(pos * shape, check_number("neg_mean", neg_mean, 0, strict=True) * shape)

    @classmethod
    def of_log(cls, log: RolloutLog) -> Lengths:
        """Take the lengths of a log's scored responses.

        A stopped pool is no hindrance: whether sampling goes on depends on rewards, not on lengths.

        Raises
        ------
        InputError
            If the log has no length of a scored response one by one.
        """
        if log.tokens is None or log.right is None or log.rewards is None:
            what = "mean lengths of pools alone" if log.mean_tokens is not None else "no lengths"
            msg = (
                f"{log.label!r} has {what}, and the time of a step needs the tokens of every response; name their "
                "column with --tokens, or give the mean lengths: --lengths POS,NEG"
            )
            raise InputError(msg)
        known: BoolArray = ~np.isnan(log.tokens) & ~np.isnan(log.rewards) & (log.tokens > 0)
        pos, neg = log.tokens[known & log.right], log.tokens[known & ~log.right]
        if not pos.size + neg.size:
            msg = (
                f"none of the {log.tokens.size} responses of {log.label!r} has both a reward and a length above 0; "
                "give the mean lengths: --lengths POS,NEG"
            )
            raise InputError(msg)
        borrowed = "" if pos.size and neg.size else "neg" if pos.size else "pos"
        return cls(pos if pos.size else neg, neg if neg.size else pos, borrowed)

    @property
    def means(self) -> tuple[float, float]:
        """Mean tokens of a correct and of an incorrect response."""
        return float(self.of_pos.mean()), float(self.of_neg.mean())

    @property
    def longest(self) -> float:
        """The longest response, in tokens."""
        return float(max(self.of_pos[-1], self.of_neg[-1]))

    @property
    def label(self) -> str:
        """Means and spreads in words."""
        parts = (
            f"{name} {values.mean():.4g} ± {values.std():.3g}"
            for name, values in (("correct", self.of_pos), ("incorrect", self.of_neg))
        )
        return ", ".join(parts) + " tokens"

    def to_dict(self) -> dict[str, Any]:
        """Return means, standard deviations and the longest as plain values."""
        return {
            "pos_mean": self.means[0],
            "neg_mean": self.means[1],
            "pos_sd": float(self.of_pos.std()),
            "neg_sd": float(self.of_neg.std()),
            "longest": self.longest,
        }


def _lengths(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        array = np.sort(np.array(values, dtype=np.float64).ravel())
    except (TypeError, ValueError) as error:
        msg = f"{name} must be lengths in tokens; got {preview(values)}"
        raise InputError(msg) from error
    if not array.size or not (np.isfinite(array).all() and array[0] > 0):
        msg = f"{name} must hold at least one length, all of them above 0; got {preview(values)}"
        raise InputError(msg)
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class Machine:
    """What samples and updates.

    All running responses go forward at one speed. A free slot is given to whichever response has
    waited longest. Sampling and the update take turns; neither overlaps the other.

    Raises
    ------
    InputError
        If a number is out of its range.
    """

    slots: int = 256
    """Responses that can be sampled at the same time, over all servers."""
    seconds_a_token: float = 0.02
    """Seconds that a response takes for a token while every slot is busy."""
    unloaded: float = 1.0
    """Time of a token on an almost idle server, over that at full load, in (0, 1]; linear in the busy slots between."""
    barriers: bool = True
    """Whether a round begins when all responses of the one before are in (TRL), or each prompt goes on by itself."""
    verify_seconds: float = 0.0
    """Seconds from a response's last token to its reward; its slot is free meanwhile."""
    seconds_a_round: float = 0.0
    """Further seconds of each barrier round."""
    update_seconds_a_row: float = 0.02
    """Seconds of the update for each row in the loss, all devices together."""
    update_seconds_a_token: float = 0.0
    """Further seconds for each token of these rows."""
    fixed_seconds: float = 0.0
    """Seconds of a step that depend on nothing."""

    def __post_init__(self) -> None:
        check_count("slots", self.slots)
        check_number("seconds_a_token", self.seconds_a_token, 0, strict=True)
        if check_number("unloaded", self.unloaded, 0, 1) == 0:
            msg = "unloaded must be above 0: a token takes time on an idle server as well; got 0"
            raise InputError(msg)
        for name in (
            "verify_seconds",
            "seconds_a_round",
            "update_seconds_a_row",
            "update_seconds_a_token",
            "fixed_seconds",
        ):
            check_number(name, getattr(self, name), 0)
        if self.seconds_a_round and not self.barriers:
            msg = f"seconds_a_round is for barriers, and streaming has no rounds; got {self.seconds_a_round:g}"
            raise InputError(msg)
        if self.verify_seconds and self.unloaded < 1 and not self.barriers:
            msg = (
                f"under streaming a verification time ({self.verify_seconds:g} s) can't go with a speed that depends "
                f"on the load (unloaded {self.unloaded:g}); set one of them to 0 or 1"
            )
            raise InputError(msg)

    @property
    def label(self) -> str:
        """Slots and rounds in words."""
        return f"{self.slots} slots, {'barriers' if self.barriers else 'streaming'}"

    def seconds(self, span: float, work: float) -> float:
        """Turn a span of sampling in tokens at full load into seconds.

        With b of s slots busy a token takes ``c (u + (1 - u) b / s)`` seconds. All responses share that
        speed, so the order of events doesn't depend on it, and the integral over the span is
        ``c (u span + (1 - u) work / s)``.

        Parameters
        ----------
        span
            Length of the schedule in tokens.
        work
            Tokens sampled in it.
        """
        return self.seconds_a_token * (self.unloaded * span + (1 - self.unloaded) * work / self.slots)


@dataclass(frozen=True, eq=False)
class StepTime:
    """Expected times of a step, in seconds."""

    sampling: float
    """Seconds of sampling, verification included."""
    update: float
    """Seconds of the update."""
    fixed: float
    """Seconds that depend on nothing."""
    rounds: FloatArray
    """`[round]` Seconds of each round, which sum to `sampling`; one entry, all of it, under streaming."""
    responses: float
    """Responses drawn in a step."""
    tokens: float
    """Tokens sampled in a step."""
    rows: float
    """Rows in the loss."""
    busy: float
    """Mean share of the slots that are busy during sampling, in [0, 1]."""

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return self.sampling + self.update + self.fixed

    def to_dict(self) -> dict[str, Any]:
        """Return all times as plain values."""
        names = ("sampling", "update", "fixed", "total", "rounds", "responses", "tokens", "rows", "busy")
        return {name: plain(getattr(self, name)) for name in names}
