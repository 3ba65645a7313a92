"""Policies by measured efficiency: on scores that obey the score model, measured is what is predicted."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from ada_bandit import Policy, ScoreModel
from ada_bandit.class_scores import ClassScores
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid
from ada_bandit.measured import measure_update
from ada_bandit.programs.scores import ProbedScores, write_scores
from ada_bandit.uniforms import fold_seed
from sim.cli import app
from sim.frontier.measured import measure_policies
from sim.score_model import Scoring

NAMES = ("grpo", "dr-grpo", "raft", "reinforce-ada-balance", "maxrl", "nsr")
NOISE, OVERLAP = (0.5, 2.0), 0.25


def pass_rates(prompts: int, seed: int) -> npt.NDArray[np.float64]:
    return np.random.Generator(np.random.Philox(key=fold_seed(4, seed))).beta(0.6, 1.0, prompts)


def obeying(prompts: int, samples: int, seed: int) -> ProbedScores:
    """Draw scores of the model: q phi + noise and -p phi + noise, with |phi|^2 = 1 and 1/4 across prompts."""
    chance, size = np.random.Generator(np.random.Philox(key=fold_seed(5, seed))), 40
    rates = pass_rates(prompts, seed)
    own = chance.standard_normal((prompts, size))
    own[:, 0] = 0
    phi = np.sqrt(1 - OVERLAP) * own / np.linalg.norm(own, axis=1, keepdims=True)
    phi[:, 0] = np.sqrt(OVERLAP)
    correct = chance.random((prompts, samples)) < rates[:, None]
    part = np.where(correct, 1 - rates[:, None], -rates[:, None])
    spread = np.sqrt(np.where(correct, *NOISE) / size)
    scores = part[:, :, None] * phi[:, None] + spread[:, :, None] * chance.standard_normal((prompts, samples, size))
    pos, neg = ((scores * kind[:, :, None]).sum(axis=1) for kind in (correct, ~correct))
    energy = (scores**2).sum(axis=2)
    sums = ClassScores(
        correct.sum(axis=1),
        (~correct).sum(axis=1),
        (energy * correct).sum(axis=1),
        (energy * ~correct).sum(axis=1),
        pos @ pos.T,
        pos @ neg.T,
        neg @ neg.T,
    )
    keys = tuple(f"a/{number}" for number in range(prompts))
    return ProbedScores(
        "the model", keys, ("a",) * prompts, sums, np.full(prompts, 3.0), 0, NOISE, OVERLAP, Grid(rates), ()
    )


@pytest.fixture(scope="module")
def probed() -> ProbedScores:
    return obeying(150, 64, 1)


@pytest.mark.parametrize(
    ("objective", "pool", "batch", "transfer"),
    [("mean", None, 1, 1.0), ("mean", 1, 1, 0.0), ("log", 5, 8, 0.5), ("pass@4", 1, 1, 0.0), ("log", None, 16, 1.0)],
)
def test_measured_is_what_the_model_predicts(
    probed: ProbedScores, objective: str, pool: int | None, batch: int, transfer: float
) -> None:
    model = ScoreModel(objective=objective, batch=batch)
    policies = [Policy.preset(name) for name in NAMES]
    found = measure_policies(policies, probed, Scoring(model), pool=pool, max_samples=16, resamples=300)
    assert [point.policy for point in found.points] == [*NAMES, "optimum of the model"]
    assert (found.points[0].measured, found.points[0].predicted) == (1, 1)
    assert found.model is not None
    assert found.model.overlap == OVERLAP
    assert found.model.transfer == pytest.approx(transfer)
    for point in found.points[1:]:
        assert point.predicted is not None
        assert 0 < point.error < 0.4 * point.measured
        assert abs(point.measured - point.predicted) < 4 * point.error, point


def test_directions_that_break_the_model_are_seen_in_what_is_measured(probed: ProbedScores) -> None:
    # Three times the score on prompts above 1/2: the model knows one |phi|^2 and can't tell. Each prompt for itself,
    # what is measured is what the model has where these prompts are nine times as frequent.
    rates, sums = pass_rates(150, 1), probed.scores
    scale = np.where(rates > 0.5, 3.0, 1.0)
    both = np.multiply.outer(scale, scale)
    louder = replace(
        sums,
        pos_energy=sums.pos_energy * scale**2,
        neg_energy=sums.neg_energy * scale**2,
        gram_pos=sums.gram_pos * both,
        gram_cross=sums.gram_cross * both,
        gram_neg=sums.gram_neg * both,
    )
    model, policies = (
        ScoreModel(NOISE, transfer=0),
        [Policy.preset(name) for name in ("grpo", "nsr", "maxrl", "reinforce")],
    )
    found = measure_policies(policies, replace(probed, scores=louder), Scoring(), pool=1, resamples=100)
    exact = [gradient_efficiency(each, Grid(rates, scale**2), model).value for each in policies]
    # These draw as many responses from every prompt, so that the cost knows no weights.
    for point, value in zip(found.points[1:4], exact[1:], strict=True):
        expected = value / exact[0]
        assert abs(point.measured - expected) < 4 * point.error
        assert point.predicted is not None
        assert abs(point.predicted - expected) > 4 * point.error


def test_a_response_may_cost_its_length(probed: ProbedScores) -> None:
    # As many tokens as the prompt is hard: what adaptive rules draw is dearer, and by how much follows from E[N].
    policies = [Policy.preset(name) for name in ("grpo", "reinforce-ada-pos")]
    length = 1 + 20 * probed.scores.neg / 64
    long = replace(probed, tokens=length)
    plain, dear = (
        measure_policies(policies, long, Scoring(), per_token=per_token, resamples=20) for per_token in (False, True)
    )
    samples = [measure_update(policy, probed.scores).samples for policy in policies]
    for place in (0, 1):
        assert dear.points[place].responses == plain.points[place].responses
        assert dear.points[place].cost == pytest.approx(np.mean(samples[place] * length) / length.mean())
    ratio = plain.points[1].cost / plain.points[0].cost / (dear.points[1].cost / dear.points[0].cost)
    assert dear.points[1].measured == pytest.approx(plain.points[1].measured * ratio)
    assert ratio < 0.9
    assert "a response costs its prompt's mean number of tokens" in " ".join(dear.notes)


def test_what_is_left_out_or_biased_is_told(probed: ProbedScores) -> None:
    shared = "reinforce-ada-est"
    policies = [Policy.preset(name) for name in ("grpo", "reinforce-ada-seq", shared)]
    few = replace(
        probed,
        scores=replace(probed.scores, pos=np.where(np.arange(150) < 2, 1, probed.scores.pos),
                       neg=np.where(np.arange(150) < 2, 1, probed.scores.neg)),
        unscored=7,
        noise_ratio=None,
    )  # fmt: skip
    found = measure_policies(policies, few, Scoring(), resamples=20)
    told = " ".join(found.notes)
    assert [point.policy for point in found.points] == ["grpo", "reinforce-ada-seq"]
    assert all(point.predicted is None and point.log_ratio is None for point in found.points)
    assert f"left out, as they share a budget across the batch: {shared}" in told
    assert "no prediction: the probe's |phi|^2 is not above 0" in told
    assert "2 prompts have fewer than 3 responses" in told
    assert "7 responses had no reward" in told
    assert "prompts in brackets: reinforce-ada-seq (148)" in told
    refuted = ("noise is the same for all p: 3 ± 0.1",)
    changed = replace(probed, overlap=-0.1, refuted=refuted)
    negative = measure_policies(policies[:1], changed, Scoring(), pool=9, resamples=20)
    assert f"an assumption of that model fails here: {refuted[0]}" in negative.notes
    assert "taken for 0 in the prediction" in " ".join(negative.notes)
    assert negative.model is not None
    assert (negative.model.overlap, negative.model.transfer) == (0, 0)


def test_progress_that_is_lost_in_noise_is_told(probed: ProbedScores) -> None:
    # Directions of random sign have nothing in common: no fresh prompt gains.
    sign = np.where(np.random.Generator(np.random.Philox(key=3)).random(150) < 0.5, -1.0, 1.0)
    grams = {
        name: value * np.multiply.outer(sign, sign) for name, value in vars(probed.scores).items() if value.ndim == 2
    }
    lost = replace(probed, scores=replace(probed.scores, **grams))
    policies = [Policy.preset("grpo")]
    fresh, own = (measure_policies(policies, lost, Scoring(), pool=pool, resamples=100) for pool in (None, 1))
    assert "standard errors from 0, so that ratios to it tell little" in " ".join(fresh.notes)
    assert "tell little" not in " ".join(own.notes)
    before = measure_policies(policies, probed, Scoring(), resamples=100)
    assert "tell little" not in " ".join(before.notes)


@pytest.mark.parametrize(
    ("model", "option"),
    [
        (ScoreModel(2.0), "--noise-ratio"),
        (ScoreModel(overlap=0.1), "--overlap"),
        (ScoreModel(transfer=0.5), "--transfer"),
    ],
)
def test_what_the_probe_tells_can_not_be_given(probed: ProbedScores, model: ScoreModel, option: str) -> None:
    with pytest.raises(InputError, match=f"^{option} can't be given with --probe"):
        measure_policies([Policy.preset("grpo")], probed, Scoring(model))


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["frontier", *(str(one) for one in arguments)], catch_exceptions=False)


def test_command_writes_table_and_figure(probed: ProbedScores, tmp_path: Path) -> None:
    path, out = tmp_path / "scores.npz", tmp_path / "out"
    write_scores(path, probed)
    options = ("--no-presets", "--policy", "grpo", "--policy", "raft", "--max-samples", "8", "--out", out)
    done = run("--probe", path, *options)
    assert done.exit_code == 0, done.output
    assert {"frontier.csv", "frontier.json", "frontier.png", "frontier.svg"} == {each.name for each in out.iterdir()}
    told = json.loads((out / "frontier.json").read_text())
    rows = list(csv.DictReader(io.StringIO((out / "frontier.csv").read_text())))
    assert [row["policy"] for row in rows] == ["grpo", "raft", "optimum of the model"]
    for row, point in zip(rows, told["policies"], strict=True):
        assert float(row["measured"]) == point["measured"]
        assert point["policy"] in done.output
        assert point["policy"] in (out / "frontier.svg").read_text()
    exact = measure_policies([Policy.preset("raft")], probed, Scoring(), max_samples=8)
    assert told["policies"][1]["measured"] == pytest.approx(exact.points[0].measured)
    assert "fresh prompts" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--probe", "none.npz"), "can't be read as the scores of a probe"),
        (("--probe", "none.npz", "--at-least", "1/16"), "--at-least can't be given with --probe"),
        (("--pool", "8"), "--pool 8 says how a probe's scores are to be read; give --probe FILE as well"),
        (("--per-token",), "--per-token says how a probe's scores are to be read"),
        (("--probe", "none.npz", "--save-policy", "best.toml"), "can't be read as the scores of a probe"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = run("--out", tmp_path, "--no-figures", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
