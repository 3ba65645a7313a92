"""Comparison of policies: exact values against closed forms, simulation, CSV, JSON and figures."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ada_bandit import Beta, Policy, Positive, Rounds, ScoreModel
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid, Law
from sim.compare.figure import FIGURES, write_figures
from sim.compare.study import Comparison, compare_policies
from sim.score_model import Scoring
from sim.sources import Source, from_array

NAMES = ("grpo", "reinforce-ada-pos", "reinforce-ada-balance")


def source(law: Law) -> Source:
    return Source(law, "law", settings={"kind": "law"})


def of_presets(law: Law, *names: str, prompts: int = 64, batches: int = 20) -> Comparison:
    policies = [Policy.preset(name) for name in names or NAMES]
    return compare_policies(policies, source(law), prompts=prompts, batches=batches, seed=3)


def test_one_rate_in_closed_form() -> None:
    grpo, pos = of_presets(Grid([0.5]), "grpo", "reinforce-ada-pos", prompts=100).rows
    assert grpo.responses == 4
    assert grpo.signal == pytest.approx(1 - 2 / 16)
    assert (grpo.short_of_positives, grpo.short_of_negatives) == pytest.approx((1 / 16, 1 / 16))
    assert (grpo.largest_bias, grpo.largest_bias_at) == (0.0, None)
    # Rounds of M until the first positive, at most R: M (1 - q^(MR)) / (1 - q^M).
    responses = 8 * (1 - 0.5**32) / (1 - 0.5**8)
    assert pos.responses == pytest.approx(responses, rel=1e-12)
    assert pos.cost == pytest.approx(responses / 4, rel=1e-12)
    assert pos.extra_responses == pytest.approx(100 * (responses - 4), rel=1e-12)
    assert pos.short_of_positives == pytest.approx(0.5**32)
    # A value derived apart from this code, at p = 0.1.
    assert pos.weights[0] == pytest.approx(2.8022701406, abs=1e-9)


def test_extra_is_told_where_every_group_is_filled() -> None:
    # Bayes and pilot-commit keep all that they draw, up to 32 and 256: responses - n says nothing there.
    result = of_presets(Grid([0.5]), "grpo", "bayes", "pods", "pilot-commit", prompts=100, batches=0)
    extra = {row.policy: row.extra_responses for row in result.rows}
    assert extra["grpo"] == pytest.approx(0)
    assert extra["pods"] == pytest.approx(100 * (16 - Policy.preset("pods").n))
    assert extra["bayes"] is extra["pilot-commit"] is None
    assert "no extra for bayes, pilot-commit: some prompts exit with fewer" in " ".join(result.notes)
    assert result.to_csv().splitlines()[2].split(",")[result.to_csv().split(",").index("extra_responses")] == ""


def test_averages_over_a_law() -> None:
    # Under Beta(1, 1) every number of correct responses is equally likely: 2 of 5 groups lack a class.
    (grpo,) = of_presets(Beta(1, 1), "grpo").rows
    assert grpo.signal == pytest.approx(3 / 5)
    assert grpo.short_of_positives == pytest.approx(1 / 5)


def test_largest_bias() -> None:
    _, pos, balance = of_presets(Grid([0.5]), prompts=0).rows
    assert pos.largest_bias > 0.0296942555  # that at p = 0.1
    assert pos.largest_bias_at == pytest.approx(0.082)
    assert balance.largest_bias > 0.0377260107  # that at p = 0.8
    # Balance is symmetric, so the bias is as large at the mirrored p; the smaller one is told.
    assert balance.largest_bias_at == pytest.approx(0.169)


def test_reference_of_cost() -> None:
    comparison = of_presets(Grid([0.5]), "reinforce-ada-pos", "grpo")
    assert comparison.reference == "grpo (4 responses per prompt)"
    assert comparison.rows[1].cost == 1
    sixteen = compare_policies([Policy.preset("grpo", group_size=16)], source(Grid([0.5])), batches=0)
    assert sixteen.reference == "grpo:group_size=16 (16 responses per prompt)"
    without = of_presets(Grid([0.5]), "reinforce-ada-pos")
    assert without.reference == "4 responses per prompt"
    assert without.rows[0].cost == pytest.approx(without.rows[0].responses / 4)


def test_efficiency_is_relative_to_grpo() -> None:
    model = ScoreModel((0.5, 4.0), "log", 2.0)
    policies = [Policy.preset("reinforce-ada-pos"), Policy.preset("grpo", group_size=8), Policy.preset("rloo")]
    comparison = compare_policies(policies, source(Beta(0.5, 1)), batches=0, scoring=Scoring(model))
    assert comparison.efficiency_reference == "grpo:group_size=8 (8 responses per prompt)"
    values = [gradient_efficiency(policy, Beta(0.5, 1), model).value for policy in policies]
    assert [row.efficiency for row in comparison.rows] == values
    assert [row.efficiency_ratio for row in comparison.rows] == pytest.approx([value / values[1] for value in values])
    without = of_presets(Beta(0.5, 1), "reinforce-ada-pos", prompts=0)
    assert without.efficiency_reference == "grpo (4 responses per prompt)"
    assert any("noise ratio 1, update cost 0" in note and "a guide, not a law" in note for note in without.notes)
    (nothing,) = of_presets(Grid([0.0]), "grpo", prompts=0).rows
    assert (nothing.efficiency, nothing.efficiency_ratio) == (0.0, None)


def test_simulation_agrees() -> None:
    comparison = of_presets(Beta(0.5, 1.5), prompts=512, batches=100)
    for row in comparison.rows:
        for name, value in row.simulated.items():
            exact = getattr(row, name)
            assert value.mean == pytest.approx(exact, abs=5 * value.se + 1e-4), (row.policy, name)
        assert 0 < row.simulated["signal"].se < 0.01
    assert comparison.notes[-1].startswith("simulated: 100 batches of 512 prompts; the largest of 18 differences")


def test_progress_and_seed() -> None:
    done: list[int] = []
    policies = [Policy.preset(name) for name in NAMES]
    first = compare_policies(policies, source(Beta(1, 1)), prompts=64, batches=20, seed=3, progress=done.append)
    assert sum(done) == 3 * 64 * 20
    again = of_presets(Beta(1, 1))
    assert first.rows == again.rows
    other = compare_policies(policies, source(Beta(1, 1)), prompts=64, batches=20, seed=4)
    assert other.rows[1].simulated != first.rows[1].simulated


@pytest.mark.parametrize(("prompts", "batches", "words"), [(0, 20, "0 prompts"), (64, 0, "0 batches")])
def test_nothing_to_simulate(prompts: int, batches: int, words: str) -> None:
    comparison = of_presets(Beta(1, 1), prompts=prompts, batches=batches)
    assert all(row.simulated == {} for row in comparison.rows)
    assert comparison.notes[-1] == f"{words}: nothing simulated, exact values only"
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_refuses() -> None:
    with pytest.raises(InputError, match="at least one policy"):
        compare_policies([], source(Beta(1, 1)))
    with pytest.raises(InputError, match="batches must be a whole number of at least 0; got -1"):
        compare_policies([Policy.preset("grpo")], source(Beta(1, 1)), batches=-1)


def test_equal_labels_are_told_apart() -> None:
    comparison = of_presets(Grid([0.5]), "grpo", "grpo", "grpo", batches=0)
    assert [row.policy for row in comparison.rows] == ["grpo", "grpo (2)", "grpo (3)"]


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ([0.0], "no prompt can ever be answered: p = 0 throughout"),
        ([1.0], "every response is correct: p = 1 throughout"),
        ([0.0, 0.0, 0.0, 1.0], "always or never answered (p = 1 for 25.0%, p = 0 for 75.0%)"),
        ([0.0, 0.5], "p = 0 for 50.0% of prompts and p = 1 for 0.0%: no budget finds a signal there"),
    ],
)
def test_findings(rates: list[float], words: str) -> None:
    (note,) = from_array(rates).findings()
    assert words in note


def test_no_finding_where_none_is_due() -> None:
    assert from_array([0.1, 0.9]).findings() == ()
    assert source(Beta(0.1, 0.1)).findings() == ()


@pytest.mark.parametrize(("rate", "short"), [(0.0, "short_of_positives"), (1.0, "short_of_negatives")])
def test_hopeless_and_trivial_prompts(rate: float, short: str) -> None:
    comparison = of_presets(Grid([rate]))
    assert [row.signal for row in comparison.rows] == [0, 0, 0]
    balance = comparison.rows[2]
    assert balance.responses == 32
    assert getattr(balance, short) == 1
    assert balance.simulated["responses"].mean == 32


def test_json_round_trip() -> None:
    comparison = of_presets(Beta(0.5, 1))
    data = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    rows = data["policies"]
    assert [row["policy"] for row in rows] == list(NAMES)
    assert rows[2]["responses"] == comparison.rows[2].responses
    assert rows[2]["weights"]["0.1"] == comparison.rows[2].weights[0]
    assert rows[2]["simulated"]["signal"]["se"] == comparison.rows[2].simulated["signal"].se
    configuration = data["configuration"]
    assert {key: configuration[key] for key in ("prompts", "batches", "seed")} == {
        "prompts": 64, "batches": 20, "seed": 3,
    }  # fmt: skip
    policies = [Policy.from_dict(policy) for policy in configuration["policies"]]
    again = compare_policies(policies, source(Beta(0.5, 1)), prompts=64, batches=20, seed=3)
    assert again.rows == comparison.rows


def test_csv() -> None:
    comparison = of_presets(Beta(0.5, 1))
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    assert [row["policy"] for row in rows] == list(NAMES)
    for row, ours in zip(rows, comparison.rows, strict=True):
        assert float(row["responses"]) == ours.responses
        assert float(row["w_0.5"]) == ours.weights[1]
        assert float(row["responses_simulated"]) == ours.simulated["responses"].mean
        assert float(row["responses_se"]) == ours.simulated["responses"].se
    assert rows[0]["largest_bias_at"] == ""


def check_figures(comparison: Comparison, folder: Path) -> None:
    paths = write_figures(comparison, folder)
    assert [path.name for path in paths] == [f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")]
    for path in paths:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            assert path.stat().st_size > 5_000
        else:
            assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - our own file


def test_figures(tmp_path: Path) -> None:
    check_figures(of_presets(Beta(0.5, 1)), tmp_path)


def test_figures_of_odd_cases(tmp_path: Path) -> None:
    # Nine policies, so colours repeat; one weight of 0 throughout, so no logarithms; dollars; no signal at all.
    policies = [Policy.preset("grpo", group_size=1), Policy.preset("reinforce-ada-pos")]
    policies += [
        Policy(Positive(1), Rounds(1, k), group_size=1, name=f"${k}$ tries of a name that is long") for k in range(2, 9)
    ]
    comparison = compare_policies(policies, from_array([0.0]), batches=0)
    check_figures(comparison, tmp_path)


def test_figures_are_reproducible(tmp_path: Path) -> None:
    comparison = of_presets(Beta(0.5, 1), "grpo", batches=0)
    first = [path.read_bytes() for path in write_figures(comparison, tmp_path)]
    assert first == [path.read_bytes() for path in write_figures(comparison, tmp_path)]
