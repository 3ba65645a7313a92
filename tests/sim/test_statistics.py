"""Means with standard errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sim.statistics import SampleMean, mean_and_error, sample_mean


def test_mean_and_error_by_hand() -> None:
    # Deviations -2, -1, 3 from 3: variance 14 / 2, over 3 values.
    mean = sample_mean(np.array([1.0, 2.0, 6.0]))
    assert mean.mean == 3
    assert mean.se == pytest.approx(math.sqrt(7 / 3))
    assert SampleMean(3.0, math.sqrt(7 / 3)).text(2) == "3.00 ± 1.53"
    means, errors = mean_and_error(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert means.tolist() == [2.0, 5.0]
    assert errors.tolist() == [1.0, 0.0]


def test_one_value_has_no_error() -> None:
    assert sample_mean(np.array([4.0])).mean == 4
    assert math.isnan(sample_mean(np.array([4.0])).se)
    assert np.isnan(mean_and_error(np.zeros((1, 3)))[1]).tolist() == [True] * 3
