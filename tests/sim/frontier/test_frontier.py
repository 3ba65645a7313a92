"""The frontier of a law and the policies beneath it: numbers, files, figure and command."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Beta, Policy, ScoreModel
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid, Law
from ada_bandit.optimal import Problem
from ada_bandit.presets import preset_names
from ada_bandit.verifier import VerifierNoise
from sim.cli import app
from sim.frontier.figure import write_figures
from sim.frontier.study import FrontierPlot, place_policies, plain_sizes, presets
from sim.score_model import Scoring, has_efficiency, parse_noise_ratio
from sim.sources import Source

NAMES = ("grpo", "dr-grpo", "reinforce-ada-pos", "reinforce-ada-balance")


def of_law(law: Law, scoring: Scoring | None = None, *names: str, **options: Any) -> FrontierPlot:
    policies = [Policy.preset(name) for name in names or NAMES]
    return place_policies(policies, Source(law, "law"), scoring or Scoring(), **options)


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["frontier", *(str(one) for one in arguments)], catch_exceptions=False)


@pytest.mark.parametrize("model", [ScoreModel(), ScoreModel((0.2, 5.0), "log", 3.0), ScoreModel(30.0, "pass@4", 0.0)])
def test_points_are_those_of_the_library(model: ScoreModel) -> None:
    law = Beta(0.5, 1)
    found = of_law(law, Scoring(model))
    best = Problem(law, model).best()
    grpo = gradient_efficiency(Policy.preset("grpo"), law, model)
    assert found.optimum.efficiency == pytest.approx(best.value, rel=1e-10)
    assert found.optimum.against_optimum == pytest.approx(1, rel=1e-10)
    assert found.optimum.against_frontier == pytest.approx(1, rel=1e-9)
    for name, point in zip(NAMES, found.points, strict=True):
        exact = gradient_efficiency(Policy.preset(name), law, model)
        assert (point.policy, point.responses, point.cost) == (name, exact.expected_samples, exact.cost)
        assert point.utility == pytest.approx(exact.progress**2 / exact.noise)
        assert point.against_grpo == pytest.approx(exact.value / grpo.value)
        assert point.against_optimum is not None
        assert point.against_frontier is not None
        assert point.against_optimum <= 1
        assert 0 < point.against_frontier <= 1
    assert found.points[0].against_grpo == 1
    assert (np.diff(found.costs) > 0).all()


def test_the_frontier_reaches_as_far_as_the_largest_budget() -> None:
    assert of_law(Beta(1, 1), None, "grpo").max_samples == 32
    large = place_policies([Policy.preset("grpo", group_size=40)], Source(Beta(1, 1), "law"), Scoring())
    assert large.max_samples == 40
    assert large.points[0].against_frontier is not None
    assert large.points[0].against_frontier <= 1
    assert of_law(Beta(1, 1), None, "grpo", max_samples=8).max_samples == 8
    assert len(of_law(Beta(1, 1), prices=3).costs) <= 3


def test_a_law_on_which_nothing_moves() -> None:
    found = of_law(Grid([0.0, 1.0]))
    for point in (*found.points, found.optimum):
        assert (point.utility, point.efficiency, point.against_grpo, point.against_optimum) == (0, 0, None, None)
    assert any("no policy finds a signal" in note for note in found.notes)


def test_verifier_noise_lowers_the_points_alone() -> None:
    clean, noisy = (of_law(Beta(1, 1), Scoring(verifier=VerifierNoise(rate))) for rate in (0.0, 0.1))
    np.testing.assert_array_equal(clean.utilities, noisy.utilities)
    assert clean.optimum == noisy.optimum.__class__(
        **vars(noisy.optimum) | {"against_grpo": clean.optimum.against_grpo}
    )
    assert all(a.utility < b.utility for a, b in zip(noisy.points, clean.points, strict=True))
    assert "verifier without errors" in " ".join(noisy.notes)


def test_what_shares_a_budget_is_left_out_and_told() -> None:
    policies = presets()
    assert [policy.label for policy in policies] == list(preset_names())
    coupled = [policy for policy in policies if not has_efficiency(policy)]
    if not coupled:
        pytest.skip("no preset shares a budget")
    found = place_policies([Policy.preset("grpo"), *coupled], Source(Beta(1, 1), "law"), Scoring())
    assert len(found.points) == 1
    assert f"left out, as they share a budget across the batch: {coupled[0].label}" in found.notes[-1]
    with pytest.raises(InputError, match=f"nothing to place.*{coupled[0].label} share a budget"):
        place_policies(coupled[:1], Source(Beta(1, 1), "law"), Scoring())


def test_nothing_to_place() -> None:
    with pytest.raises(InputError, match=r"nothing to place: .*none was given"):
        place_policies([], Source(Beta(1, 1), "law"), Scoring())


def test_csv_and_json_say_the_same() -> None:
    found = of_law(Beta(0.5, 1), Scoring(ScoreModel(10.0, "log")))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["policy"] for row in rows] == [*NAMES, "optimum"]
    for row, point in zip(rows, [*data["policies"], data["optimum"]], strict=True):
        for name in ("cost", "utility", "efficiency", "against_optimum"):
            assert float(row[name]) == point[name]
    assert data["configuration"]["score_model"]["noise_ratio"] == [10.0, 10.0]
    assert [vertex["cost"] for vertex in data["frontier"]] == found.costs.tolist()


def test_the_same_policy_twice_keeps_both_points() -> None:
    found = of_law(Beta(1, 1), None, "grpo", "grpo")
    assert [point.policy for point in found.points] == ["grpo", "grpo (2)"]


@pytest.mark.parametrize("law", [Beta(0.5, 1), Grid([0.3]), Grid([0.0, 1.0])])
@pytest.mark.parametrize("model", [ScoreModel(), ScoreModel(10.0, "log", 5.0)])
def test_figure(law: Law, model: ScoreModel, tmp_path: Path) -> None:
    paths = write_figures(of_law(law, Scoring(model), "grpo", *NAMES), tmp_path)
    assert [path.name for path in paths] == ["frontier.png", "frontier.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert ET.parse(paths[1]).getroot().tag.endswith("svg")  # noqa: S314 - written a line above


# Settings


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("0,0.65", (0.0, 0.65)), (" 2 , 3e1 ", (2.0, 30.0))])
def test_noise_ratios_are_read(text: str, value: float | tuple[float, float]) -> None:
    assert parse_noise_ratio(text) == value


@pytest.mark.parametrize("text", ["", "a", "1,2,3", "-1", "nan", "1,inf"])
def test_other_noise_ratios_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"noise.ratio"):
        parse_noise_ratio(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScoreModel(objective="maen"), "unknown objective 'maen'"),
        (lambda: ScoreModel(noise_ratio=-2.0), "got -2.0"),
        (lambda: ScoreModel(update_cost=math.nan), "update_cost must be .* got nan"),
        (lambda: VerifierNoise(false_positive=1.5), "got 1.5"),
    ],
)
def test_bad_settings_are_told_at_once(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# Command


def test_the_command(tmp_path: Path) -> None:
    result = run("--policy", "grpo:group_size=16", "--at-least", "1/16", "--noise-ratio", "10", "--out", tmp_path)
    assert result.exit_code == 0
    for word in ("optimum", *NAMES, "grpo:group_size=16", "noise ratio 10", "a guide, not a law", "written to"):
        assert word in " ".join(result.stdout.split())
    assert {path.name for path in tmp_path.iterdir()} == {f"frontier.{end}" for end in ("csv", "json", "png", "svg")}


def test_the_command_prints_json_alone(tmp_path: Path) -> None:
    result = run("--json", "--no-figures", "--no-presets", "--policy", "rloo", "--objective", "log", "--out", tmp_path)
    data = json.loads(result.stdout)
    assert data == json.loads((tmp_path / "frontier.json").read_text())
    assert [point["policy"] for point in data["policies"]] == ["rloo"]
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "pass@x"], "unknown objective 'pass@x'"),
        (["--noise-ratio", "1;2"], "got '1;2'"),
        (["--update-cost", "-1"], "update_cost must be a finite number in [0, inf); got -1.0"),
        (["--no-presets"], "nothing to place"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("--out", tmp_path, "--no-figures", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("largest", "last"), [(8, 8), (16, 16), (17, 24), (24, 24), (25, 32), (128, 128), (200, 128)])
def test_the_curve_of_plain_groups_reaches_as_far_as_the_policies(largest: int, last: int) -> None:
    sizes = plain_sizes(largest)
    assert sizes[-1] == last
    assert sizes[-2] < largest
