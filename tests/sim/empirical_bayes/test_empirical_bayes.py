"""A run that learns its prior: what is reported, the claim on the published curves, files, figure and command."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Beta, ScoreModel, uniform
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.empirical import EmpiricalBayes
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid, Mixture
from ada_bandit.optimal import Problem
from ada_bandit.uniforms import Stream, fold_seed
from sim.cli import app
from sim.empirical_bayes.figure import write_figures
from sim.empirical_bayes.study import DriftResult, DriftSetting, follow_drift
from sim.sources import Source, from_curve

SMALL = DriftSetting(noise_ratios=(10.0,), prompts=16, steps=8, runs=2, max_samples=8, refit_every=2)
MODEL = ScoreModel(noise_ratio=10.0)
START, END = Source(Beta(1, 3), "the first law"), Source(Beta(3, 1), "the other law")


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["empirical-bayes", *(str(one) for one in arguments)], catch_exceptions=False)


def small(**changes: Any) -> DriftResult:
    return follow_drift(replace(SMALL, **changes), START, END)


@pytest.mark.parametrize("drift", ["abrupt", "gradual"])
def test_the_shares_are_those_of_a_run_by_hand(drift: str) -> None:
    found = small(drift=drift, seed=3)
    track = found.tracks[0]
    weights = [0, 0, 0, 0, 1, 1, 1, 1] if drift == "abrupt" else [0, 0, 0, 0, 0.5, 1, 1, 1]
    for index in range(2):
        sampler = EmpiricalBayes(model=MODEL, max_samples=8, refit_every=2)
        shares = []
        for step, weight in enumerate(weights):
            # A mixture of weight 0 draws the same rates as the law alone.
            law = (
                Mixture((START.law, END.law), (1 - weight, weight)) if 0 < weight < 1 else (START, END)[int(weight)].law
            )
            seed = fold_seed(3, index, step)
            rates = law.quantile(uniform(seed, Stream.PASS_RATES, np.arange(16), 0))
            allocator = sampler.allocator(16, seed)
            while request := allocator.ask():
                allocator.tell(request.ids, uniform(seed, 0, request.prompts, request.draws) < rates[request.prompts])
            sampler.observe(allocator)
            assert track.responses[index, step + 1] == allocator.metrics()["responses_per_prompt"]
            best = Problem(law, MODEL, max_samples=8).best()
            assert track.optimum_responses[step + 1] == pytest.approx(best.cost)
            shares.append(gradient_efficiency(sampler.policy, law, MODEL).value / best.value)
        np.testing.assert_allclose(track.shares[index, 1:], shares, rtol=1e-9)


def test_references() -> None:
    track = small().tracks[0]
    stated = EmpiricalBayes(model=MODEL, max_samples=8).policy
    for step, law in ((0, START.law), (4, START.law), (5, END.law), (8, END.law)):
        best = Problem(law, MODEL, max_samples=8).best()
        kept = Problem(START.law, MODEL, max_samples=8).best().policy
        assert track.not_learning[step] == pytest.approx(gradient_efficiency(stated, law, MODEL).value / best.value)
        assert track.not_following[step] == pytest.approx(gradient_efficiency(kept, law, MODEL).value / best.value)
    # Before the first fit nothing has been learned, and the first law's optimum has all of it.
    np.testing.assert_allclose(track.shares[:, :2], track.not_learning[0])
    np.testing.assert_allclose(track.not_following[:5], 1)
    assert track.shares.max() <= 1 + 1e-9


def test_near_from() -> None:
    track = small().tracks[0]
    known = replace(track, shares=np.array([[0.5, 0.98, 0.9, 0.98, 0.99, 0.4, 0.98, 0.99, 1.0]]))
    assert known.near_from(0, 4) == 3
    assert known.near_from(5, 8) == 6
    assert known.near_from(0, 2) is None
    assert known.near_from(6, 8) == 6


def test_noise_ratios_see_the_same_prompts_and_runs_differ() -> None:
    both = small(noise_ratios=(1.0, 10.0))
    np.testing.assert_array_equal(both.tracks[1].shares, small().tracks[0].shares)
    assert (both.tracks[1].shares[0] != both.tracks[1].shares[1]).any()
    assert (small(seed=1).tracks[0].shares != both.tracks[1].shares).any()


@pytest.mark.parametrize(("noise_ratio", "mean", "worst"), [(1.0, 0.97, 0.94), (10.0, 0.99, 0.98)])
def test_comes_within_three_per_cent_on_the_published_curves_and_follows(
    noise_ratio: float, mean: float, worst: float
) -> None:
    """The claim: without transfer, 50 steps of 128 prompts from Beta(1, 1) on the base curve, then the RL curve."""
    setting = DriftSetting(noise_ratios=(noise_ratio,), runs=4, transfer=0.0)
    found = follow_drift(setting, from_curve("qwen2.5-math-1.5b-base"), from_curve("qwen2.5-math-1.5b-rl"))
    track = found.tracks[0]
    for step in (50, 62, 100):
        assert track.mean[step] > mean
        assert track.shares[:, step].min() > worst
    # It had something to learn, and something to follow.
    assert track.not_learning[50] < 0.85
    assert track.not_following[51] < 0.75
    assert track.mean[51] < 0.75


def test_a_learner_of_single_responses_is_told() -> None:
    found = small(noise_ratios=(0.05,), steps=12)
    assert any("ends with one response a prompt; such pools tell the law's mean alone" in note for note in found.notes)


def test_files() -> None:
    ticks: list[int] = []
    found = follow_drift(replace(SMALL, noise_ratios=(2.0, 10.0)), START, END, progress=ticks.append)
    assert sum(ticks) == 2 * 2 * 8
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["configuration"]["prompts"] == 16
    assert data["configuration"]["start"] == {"label": "the first law"}
    assert data["configuration"]["prior"] == {"name": "beta", "a": 1.0, "b": 1.0}
    assert np.array(data["tracks"][1]["shares"]).shape == (2, 9)
    assert list(data["tracks"][0]["milestones"]) == ["0", "4", "5", "8"]
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [(row["noise_ratio"], row["step"]) for row in rows] == [
        (nu, str(k)) for nu in ("2.0", "10.0") for k in range(9)
    ]
    assert [row["share_of_end_law"] for row in rows[:9]] == ["0.0"] * 5 + ["1.0"] * 4
    for row in rows:
        assert float(row["lowest"]) <= float(row["mean"]) <= float(row["highest"])
        assert row["responses"] == "" if row["step"] == "0" else float(row["responses"]) >= 1


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_figure(count: int, tmp_path: Path) -> None:
    found = small(noise_ratios=tuple(2.0 + k for k in range(count)), runs=1, drift="gradual")
    paths = write_figures(found, tmp_path)
    assert [path.name for path in paths] == ["empirical_bayes.png", "empirical_bayes.svg"]
    assert ET.parse(paths[1]).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    assert paths[0].stat().st_size > 10_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drift": "sudden"}, "unknown drift 'sudden'; known: abrupt, gradual"),
        ({"noise_ratios": ()}, "give at least one noise ratio"),
        ({"steps": 3}, "steps must be a whole number of at least 4; got 3"),
        ({"runs": 0}, "runs must be a whole number of at least 1; got 0"),
    ],
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, **changes)


def test_a_law_without_anything_to_gain() -> None:
    with pytest.raises(InputError, match="no policy has anything to gain"):
        follow_drift(SMALL, Source(Grid([0.0, 1.0]), "certain"), END)


def test_command(tmp_path: Path) -> None:
    options = ("--runs", "2", "--steps", "8", "--prompts", "16", "--max-samples", "8", "--out", tmp_path)
    result = run(*options, "--no-figures")
    assert result.exit_code == 0
    for words in ("noise ratio 1 ", "noise ratio 10", "after step 4 the law drifts to qwen2.5-math-1.5b-rl, at once"):
        assert words in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"empirical_bayes.csv", "empirical_bayes.json"}
    result = run(*options, "--no-figures", "--json", "--noise-ratio", "3", "--drift", "gradual", "--at-least", "1/16")
    data = json.loads(result.stdout)
    assert [track["noise_ratio"] for track in data["tracks"]] == [3.0]
    assert data["configuration"]["end"]["at_least"] == [1, 16]
    assert math.isfinite(data["tracks"][0]["milestones"]["8"]["mean"])
    result = run(*options, "--drift", "slow")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: unknown drift 'slow'")
