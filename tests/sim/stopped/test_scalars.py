"""Scalars of a finished run as a law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln

from ada_bandit.errors import InputError
from ada_bandit.laws import Beta
from sim.stopped import ScalarLaw, law_of_scalars, parse_scalars


def ends(a: float, b: float, n: int) -> tuple[float, float]:
    """E[p^n] and E[q^n] under Beta(a, b)."""
    base = betaln(a, b)
    return float(np.exp(betaln(a + n, b) - base)), float(np.exp(betaln(a, b + n) - base))


def shapes(found: ScalarLaw) -> tuple[float, float]:
    law = found.fit.law
    assert isinstance(law, Beta)
    return law.a, law.b


@given(a=st.floats(0.05, 20), b=st.floats(0.05, 20), n=st.integers(2, 32))
def test_mean_and_share_give_the_law_back(a: float, b: float, n: int) -> None:
    good, bad = ends(a, b, n)
    found = law_of_scalars({"mean": a / (a + b), "zero_std": good + bad, "n": n}, replicates=4)
    again = ends(*shapes(found), n)
    assert sum(again) == pytest.approx(good + bad, abs=1e-8)
    assert shapes(found)[0] / sum(shapes(found)) == pytest.approx(a / (a + b), abs=1e-9)


def test_other_ways_to_say_the_same() -> None:
    good, bad = ends(0.5, 2, 8)
    by_mean = law_of_scalars({"mean": 0.2, "zero_std": good + bad, "n": 8})
    assert shapes(by_mean) == pytest.approx((0.5, 2), rel=1e-6)
    for other in (
        {"mean": 0.2, "mixed": 1 - good - bad, "n": 8},
        {"mean": 0.2, "all_good": good, "all_bad": bad, "n": 8},
        {"mean": -0.6, "zero_std": good + bad, "n": 8, "low": -1, "high": 1},
    ):
        assert shapes(law_of_scalars(other)) == pytest.approx((0.5, 2), rel=1e-6)
    assert shapes(law_of_scalars({"all_good": good, "all_bad": bad, "n": 8})) == pytest.approx((0.5, 2), rel=1e-3)


def test_the_example_with_its_rounding() -> None:
    """Given digits are half a unit wrong at most: the ends of the interval are those of the corners."""
    found = law_of_scalars(parse_scalars("mean=0.41,zero_std=0.55,n=8"))
    signal = found.fit.signal(8)
    assert signal.value == pytest.approx(0.45, abs=5e-4)
    assert 0.444 < signal.low < 0.4465
    assert 0.4535 < signal.high < 0.456
    assert found.fit.mean.value == pytest.approx(0.41, abs=1e-6)
    assert 0.404 < found.fit.mean.low < 0.4065
    assert any("groups=NUMBER" in note for note in found.notes)
    finer = law_of_scalars(parse_scalars("mean=0.410,zero_std=0.5500,n=8")).fit.signal(8)
    assert finer.high - finer.low < 0.02 * (signal.high - signal.low)


@pytest.mark.slow
def test_coverage_with_the_number_of_groups() -> None:
    """Of 95 % intervals from the scalars of 200 runs of 500 groups, between 92 and 98 % hold the truth."""
    a, b, n = 0.5, 2.0, 8
    truth = {"mean": 0.2, "signal 4": 1 - sum(ends(a, b, 4)), "signal 16": 1 - sum(ends(a, b, 16))}
    hits = dict.fromkeys(truth, 0)
    for seed in range(200):
        random = np.random.Generator(np.random.Philox(seed))
        pos = random.binomial(n, random.beta(a, b, 500))
        found = law_of_scalars(
            {"mean": pos.mean() / n, "zero_std": ((pos == 0) | (pos == n)).mean(), "n": n, "groups": 500}, seed=seed
        )
        for key, interval in (
            ("mean", found.fit.mean),
            ("signal 4", found.fit.signal(4)),
            ("signal 16", found.fit.signal(16)),
        ):
            hits[key] += interval.low <= truth[key] <= interval.high
    assert {key: 184 <= count <= 196 for key, count in hits.items()} == dict.fromkeys(hits, True), str(hits)


@pytest.mark.parametrize(
    ("scalars", "match"),
    [
        ({"mean": 0.4, "zero_std": 0.5}, "the group size is missing: add n=8"),
        ({"mean": 0.4, "n": 8}, "share of groups without signal is missing"),
        ({"mean": 0.4, "zero_std": 0.5, "mixed": 0.5, "n": 8}, "given twice"),
        ({"zero_std": 0.5, "n": 8}, "the mean reward is missing"),
        ({"mean": 1.4, "zero_std": 0.5, "n": 8}, r"mean must be a finite number in \[0, 1\]; got 1.4"),
        ({"mean": "x", "zero_std": 0.5, "n": 8}, "mean must be a number; got 'x'"),
        # At n = 2 and mean 1/2, at least 1/2 of the groups are alike whatever the law.
        ({"mean": 0.5, "zero_std": 0.4, "n": 2}, "at least 0.5 of groups of 2 are without signal, and 0.4 was given"),
        ({"mean": 0.5, "zero_std": 1.0, "n": 2}, "leaves no group with both classes"),
        ({"mean": 0.5, "zero_stdd": 1.0, "n": 2}, "did you mean 'zero_std'"),
        ({"mean": 0.4, "zero_std": 0.5, "n": 8, "low": 1, "high": 1}, "high must exceed low"),
        ({"mean": 0.4, "zero_std": 0.5, "n": 1}, "n must be a whole number of at least 2"),
    ],
)
def test_scalars_that_say_too_little_or_what_cannot_be(scalars: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        law_of_scalars(scalars)


def test_scalars_as_text() -> None:
    assert parse_scalars("mean=0.41, zero_std=0.55,n=8") == {"mean": "0.41", "zero_std": "0.55", "n": "8"}
    for text, match in (("mean", "are written"), ("mean=1,mean=2", "given twice"), ("men=1", "did you mean 'mean'")):
        with pytest.raises(InputError, match=match):
            parse_scalars(text)
