"""What a probe keeps of scores: sums by class, and sketches of them for products of different prompts.

Of a prompt only sums over its responses' scores are kept, so no score needs to be, and everything that the score
model (`llm.probe.score_model`) and measured efficiency (`ada_bandit.measured`) ask for follows from
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray
from ada_bandit.class_scores import ClassScores
from ada_bandit.uniforms import Stream, uniform

__all__ = ["SKETCH", "PromptScores", "ScoreSums", "Sketch", "class_scores"]


SKETCH = 2**18
"""Most numbers that are kept of a vector."""
_BLOCK = 2**14


class Sketch:
    """A fixed map to fewer coordinates that keeps inner products without bias (count sketch; Charikar et al. 2002).

    Every coordinate goes to one bucket with one sign, both fixed by `uniform`. An inner product of
    two vectors x and y comes out with a standard error of at most
    sqrt((|x|^2 |y|^2 + <x, y>^2) / buckets). Vectors that are short enough are kept as they are.

    Parameters
    ----------
    size
        Length of the vectors.
    buckets
        Most coordinates that are kept.
    """

    def __init__(self, size: int, buckets: int = SKETCH) -> None:
        self.size = min(size, buckets)
        self.exact = size <= buckets
        if not self.exact:
            coordinates = np.arange(size)
            self._bucket = (uniform(0, Stream.BUCKETS, 0, coordinates) * buckets).astype(np.int64)
            self._sign = np.where(uniform(0, Stream.SIGNS, 0, coordinates) < 0.5, -1.0, 1.0)

    def __call__(self, vector: FloatArray) -> npt.NDArray[np.float32]:
        """Return the sketch of a vector, ``[coordinate]``."""
        if self.exact:
            return vector.astype(np.float32)
        return np.bincount(self._bucket, weights=vector * self._sign, minlength=self.size).astype(np.float32)


@dataclass(frozen=True, eq=False)
class PromptScores:
    """What is kept of the scores of one prompt's responses."""

    pos: int
    """Correct responses."""
    neg: int
    """Incorrect responses."""
    unscored: int
    """Responses without a reward; part of `mean_square` alone."""
    pos_energy: float
    """Sum of |s|^2 over the correct responses."""
    neg_energy: float
    """Sum of |s|^2 over the incorrect responses."""
    pos_square: float
    """|sum of s over the correct responses|^2."""
    neg_square: float
    """|sum of s over the incorrect responses|^2."""
    product: float
    """Inner product of these two sums."""
    mean_square: float
    """Unbiased estimate of |E s|^2 from all responses; NaN for fewer than two."""
    pos_sum: npt.NDArray[np.float32]
    """`[coordinate]` Sketch of the sum of s over the correct responses."""
    neg_sum: npt.NDArray[np.float32]
    """`[coordinate]` Sketch of the sum of s over the incorrect responses."""


class ScoreSums:
    """Running sums of the scores of one prompt: a vector a class, whatever the number of responses.

    Parameters
    ----------
    size
        Number of parameters.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._sums: dict[bool | None, FloatArray] = {}
        self._energy = dict.fromkeys((True, False, None), 0.0)
        self._counts = dict.fromkeys((True, False, None), 0)

    def add(self, score: FloatArray, correct: bool | None, times: int = 1) -> None:
        """Enter the score of a response.

        Parameters
        ----------
        score
            ``[parameter]`` gradient of the log-probability of the response.
        correct
            Whether it is correct; None for a response without a reward.
        times
            How many responses were this very one.
        """
        # Sums from which others are subtracted need double precision.
        vector = np.asarray(score, dtype=np.float64)
        self._sum(correct)[:] += times * vector
        self._energy[correct] += times * float(vector @ vector)
        self._counts[correct] += times

    def _sum(self, correct: bool | None) -> FloatArray:
        return self._sums.setdefault(correct, np.zeros(self._size))

    def finish(self, sketch: Sketch) -> PromptScores:
        """Return what is kept."""
        pos, neg = self._counts[True], self._counts[False]
        sum_pos, sum_neg = (self._sum(correct) for correct in (True, False))
        total, mean_square = sum(self._counts.values()), math.nan
        if total > 1:
            whole = sum_pos + sum_neg + self._sums.get(None, 0.0)
            mean_square = (float(whole @ whole) - sum(self._energy.values())) / (total * (total - 1))
        return PromptScores(
            pos,
            neg,
            self._counts[None],
            self._energy[True],
            self._energy[False],
            float(sum_pos @ sum_pos),
            float(sum_neg @ sum_neg),
            float(sum_pos @ sum_neg),
            mean_square,
            sketch(sum_pos),
            sketch(sum_neg),
        )


def class_scores(prompts: Sequence[PromptScores]) -> ClassScores:
    """Return the sums of many prompts: products of one prompt's are exact, those of two come from the sketches."""

    def column(name: str) -> FloatArray:
        return np.array([getattr(each, name) for each in prompts], dtype=np.float64)

    pos, neg = (np.stack([getattr(each, name) for each in prompts]) for name in ("pos_sum", "neg_sum"))
    grams = np.zeros((3, len(prompts), len(prompts)))
    # In double precision, and a block at a time for the memory's sake.
    for first in range(0, pos.shape[1], _BLOCK):
        wide_pos, wide_neg = (part[:, first : first + _BLOCK].astype(np.float64) for part in (pos, neg))
        grams += wide_pos @ wide_pos.T, wide_pos @ wide_neg.T, wide_neg @ wide_neg.T
    for gram, name in zip(grams, ("pos_square", "product", "neg_square"), strict=True):
        np.fill_diagonal(gram, column(name))
    gram_pos, gram_cross, gram_neg = grams
    return ClassScores(
        column("pos"), column("neg"), column("pos_energy"), column("neg_energy"), gram_pos, gram_cross, gram_neg
    )
