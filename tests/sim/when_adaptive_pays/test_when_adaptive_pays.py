"""When adaptive sampling pays: the map against direct evaluation, its spots, files, figure and command."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Beta, Policy, ScoreModel
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid
from ada_bandit.optimal import Problem
from sim.cli import app
from sim.sources import Source
from sim.when_adaptive_pays.figure import write_figures
from sim.when_adaptive_pays.study import COSTS, NOISE, EfficiencyMap, families, map_efficiency

LAW = Beta(0.5, 1)
SOURCE = Source(LAW, "Beta(0.5, 1)")


@cache
def of_log() -> EfficiencyMap:
    return map_efficiency(SOURCE, objectives=["log"], max_samples=8)


def run(*arguments: str | Path) -> Any:
    words = ["when-adaptive-pays", *(str(one) for one in arguments)]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def test_the_competitors() -> None:
    for most in (8, 9, 32):
        found = families(0.4, most)
        assert [family.adaptive for family in found] == [False] * 3 + [True] * 3
        for family in found:
            assert family.policies
            for policy in family.policies:
                assert policy.budget.max_samples <= most
                # Rounds of 8 are one round where 8 is the cap.
                assert not len(policy.budget.sizes) > 1 or family.adaptive
    # The published sizes are among them.
    assert Policy.preset("reinforce-ada-balance") in found[-1].policies
    assert Policy.preset("reinforce-ada-pos") in found[-2].policies
    assert {Policy.preset(name) for name in ("grpo", "dr-grpo", "rloo")} <= set(found[1].policies)


def test_spots_are_those_of_the_library() -> None:
    found = of_log()
    members = [policy for family in found.families for policy in family.policies]
    assert len(found.spots) == len(NOISE) * len(COSTS)
    for spot in found.spots[::5]:
        setting = ScoreModel(spot.noise_ratio, "log", spot.update_cost, transfer=found.transfer)
        unit = gradient_efficiency(Policy.preset("grpo"), LAW, setting).value
        values = {id(policy): gradient_efficiency(policy, LAW, setting).value / unit for policy in members}
        for adaptive, value, key in (
            (False, spot.fixed_efficiency, spot.fixed_family),
            (True, spot.adaptive_efficiency, spot.adaptive_family),
        ):
            rivals = {
                family.key: max(values[id(policy)] for policy in family.policies)
                for family in found.families
                if family.adaptive == adaptive
            }
            assert value == pytest.approx(max(rivals.values()), rel=1e-9)
            assert rivals[key] == pytest.approx(value, rel=1e-9)
        best = Problem(LAW, setting, max_samples=8).best().value
        size = spot.optimum_fixed_size
        fixed = Problem(LAW, setting, samples=size, max_samples=size).best().value
        assert spot.optimum_efficiency == pytest.approx(best / unit, rel=1e-12)
        assert spot.optimum_fixed_efficiency == pytest.approx(fixed / unit, rel=1e-12)
        # Nothing beats the Bayes policies of its kind.
        assert spot.optimum_fixed_efficiency <= spot.optimum_efficiency * (1 + 1e-9)
        assert spot.fixed_efficiency <= spot.optimum_fixed_efficiency * (1 + 1e-9)
        assert spot.adaptive_efficiency <= spot.optimum_efficiency * (1 + 1e-9)


def test_the_fine_map_agrees_with_the_spots() -> None:
    found = of_log()
    (panel,) = found.panels
    assert panel.best.shape == panel.gain.shape == (found.costs.size, found.noise.size)
    for spot in found.spots:
        row, column = np.abs(found.costs - spot.update_cost).argmin(), np.abs(found.noise - spot.noise_ratio).argmin()
        if abs(found.costs[row] - spot.update_cost) < 1e-9 and abs(found.noise[column] - spot.noise_ratio) < 1e-9:
            ratio = spot.adaptive_efficiency / spot.fixed_efficiency
            assert panel.gain[row, column] == pytest.approx(ratio, rel=1e-9)
            winner = spot.adaptive_family if ratio > 1 else spot.fixed_family
            assert found.families[panel.best[row, column]].key == winner
    adaptive = np.array([family.adaptive for family in found.families])
    np.testing.assert_array_equal(adaptive[panel.best], panel.gain > 1)


def test_a_policy_that_is_another_in_disguise_takes_no_ground() -> None:
    # Two kept of three is two responses at three halves of the scale; the plainer family has the ground.
    found = map_efficiency(Source(Grid([0.5]), "half"), objectives=["mean"], max_samples=8)
    pods = [family.key for family in found.families].index("pods")
    dear = found.costs > 50
    assert not (found.panels[0].best[dear] == pods).any()


def test_given_policies_compete() -> None:
    own = Policy.preset("reinforce-ada-balance", samples=2, rounds=2, group_size=4)
    found = map_efficiency(SOURCE, objectives=["mean"], policies=[own, Policy.preset("grpo")], max_samples=8)
    given = found.families[-2:]
    assert [(family.key, family.adaptive) for family in given] == [
        (f"{own.label} (given)", True),
        ("grpo (given)", False),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transfer": 1.5}, "transfer must be .* got 1.5"),
        ({"objectives": ["maen"]}, "unknown objective 'maen'"),
        ({"max_samples": 7}, "max_samples must be .* at least 8; got 7"),
    ],
)
def test_bad_input_is_quoted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        map_efficiency(SOURCE, **options)


def test_a_law_on_which_nothing_moves() -> None:
    with pytest.raises(InputError, match="no policy moves an objective on 'ends': every pass rate is 0 or 1"):
        map_efficiency(Source(Grid([0.0, 1.0]), "ends"))


def test_csv_json_and_words() -> None:
    found = of_log()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == len(data["spots"]) == len(found.spots)
    assert float(rows[3]["optimum_efficiency"]) == data["spots"][3]["optimum_efficiency"]
    (objective,) = data["objectives"]
    assert sum(objective["family_shares"].values()) == pytest.approx(1)
    adaptive = sum(objective["family_shares"][family.key] for family in found.families if family.adaptive)
    assert objective["adaptive_share"] == pytest.approx(adaptive)
    assert f"any objective: an adaptive policy is the most efficient on {adaptive:.0%} of the map" in found.notes[0]


def test_figure(tmp_path: Path) -> None:
    paths = write_figures(of_log(), tmp_path)
    assert [path.name for path in paths] == ["when_adaptive_pays.png", "when_adaptive_pays.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert ET.parse(paths[1]).getroot().tag.endswith("svg")  # noqa: S314 - written a line above


def test_the_command(tmp_path: Path) -> None:
    common = ("--max-samples", "8", "--objective", "mean", "--out", tmp_path)
    result = run(*common)
    assert result.exit_code == 0
    for word in ("best fixed", "one response", "an adaptive policy is the most efficient on", "a guide, not a law"):
        assert word in result.stdout
    assert len(list(tmp_path.iterdir())) == 4
    data = json.loads(run("--json", "--no-figures", "--policy", "rloo", *common).stdout)
    assert data == json.loads((tmp_path / "when_adaptive_pays.json").read_text())
    assert data["configuration"]["families"][-1]["key"] == "rloo (given)"
