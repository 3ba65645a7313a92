"""Means of what was simulated, with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ada_bandit._types import FloatArray

__all__ = ["SampleMean", "mean_and_error", "sample_mean"]


@dataclass(frozen=True)
class SampleMean:
    """A simulated mean with its standard error."""

    mean: float
    se: float
    """NaN where there is but one value."""

    def text(self, digits: int) -> str:
        """Return both with so many decimal places."""
        return f"{self.mean:.{digits}f} ± {self.se:.{digits}f}"


def sample_mean(values: FloatArray) -> SampleMean:
    """Return the mean of independent values, ``[value]``."""
    mean, error = mean_and_error(values)
    return SampleMean(float(mean), float(error))


def mean_and_error(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard error over the first axis of independent values, each ``values.shape[1:]``."""
    count = values.shape[0]
    spread = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(values.shape[1:], np.nan)
    return np.asarray(values.mean(axis=0)), np.asarray(spread)
