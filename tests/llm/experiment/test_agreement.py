from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from llm.cli import app
from llm.experiment.agreement import (
    agreement,
    area,
    holm,
    kendall_tau,
    log_slope,
    mean_curve,
    measure_arms,
    monotone,
    spending_ratio,
    spent_to,
    two_sided,
)
from llm.experiment.plan import read_experiment
from llm.experiment.results import AXES, ArmRuns, Results, seed_mean
from llm.histories import RunHistory


def curve(rates: list[float], every: float = 10.0) -> tuple[Any, Any]:
    return np.arange(len(rates)) * every, np.array(rates)


def run_of(rates: list[float], every: int = 10, tokens: int = 3) -> RunHistory:
    evals = [
        {
            "step": place,
            "total_responses": place * every,
            "total_tokens": place * every * tokens,
            "eval": {"held_out": {"pass_rate": rate}},
        }
        for place, rate in enumerate(rates)
    ]
    steps: list[dict[str, Any]] = [
        {"step": place, "policy": "made up", "time": {"total": 1.0}} for place in range(len(rates) - 1)
    ]
    return RunHistory(Path("made-up"), "made up", steps, evals)


# Curves


def test_the_monotone_curve_averages_what_falls() -> None:
    # Pools of adjacent violators: 0.4, 0.2 give 0.3; then 0.3, 0.3, 0.15 give 0.25.
    assert monotone([0.1, 0.4, 0.2, 0.15, 0.5]) == pytest.approx([0.1, 0.25, 0.25, 0.25, 0.5])
    assert monotone([0.1, 0.2, 0.2]) == pytest.approx([0.1, 0.2, 0.2])


def test_what_is_spent_up_to_a_level_lies_on_the_line_between_evaluations() -> None:
    found = curve([0.1, 0.2, 0.2, 0.4])
    assert spent_to(found, 0.15) == pytest.approx(5)
    assert spent_to(found, 0.2) == pytest.approx(10)
    assert spent_to(found, 0.3) == pytest.approx(25)
    assert spent_to(found, 0.05) == 0
    assert math.isnan(spent_to(found, 0.41))


def test_the_mean_of_curves_holds_every_evaluation_as_far_as_all_go() -> None:
    where, rates = mean_curve([curve([0.0, 0.2, 0.4]), curve([0.0, 0.3], every=15.0)])
    assert where.tolist() == [0, 10, 15]
    # The first one is at 0.2 and 0.3 there, the second one at 0.2 and 0.3.
    assert rates == pytest.approx([0.0, 0.2, 0.3])


def test_the_ratio_of_lines_is_that_of_their_slopes() -> None:
    where = np.linspace(0, 100, 21)
    slow, fast = (where, 0.1 + 0.001 * where), (where, 0.1 + 0.0025 * where)
    # At 60 of 100 the slow one has 0.16, which the fast one has at 24.
    assert spending_ratio(slow, fast) == pytest.approx((2.5, 0.16))
    # The fast one has 0.25 at 60; the slow one ends at 0.2, which the fast one has at 40.
    assert spending_ratio(fast, slow) == pytest.approx((0.4, 0.2))


def test_an_arm_that_gains_nothing_has_the_least_ratio() -> None:
    where = np.linspace(0, 100, 21)
    base = (where, 0.1 + 0.001 * where)
    # All of the run is spent, and the reference spends no less than 2 % of its own.
    for rates in (0.1 - 0.0001 * where, np.full(21, 0.05), np.full(21, 0.1)):
        assert spending_ratio(base, (where, rates))[0] == pytest.approx(0.02)
    # What is gained and lost again counts by the average that the monotone curve makes of it: 0.12 from 10 on.
    rates = np.array([0.1, 0.11, 0.14, 0.1])
    assert spending_ratio(base, (where[[0, 1, 2, 20]], rates)) == pytest.approx((0.2, 0.12))


def test_an_arm_that_gains_later_needs_more_than_one_that_gains_nothing() -> None:
    where = np.linspace(0, 100, 21)
    base = (where, 0.1 + 0.001 * where)
    slow = (where, 0.1 + 0.0001 * where)
    # It ends at 0.11, which the reference has at 10 of 100.
    assert spending_ratio(base, slow)[0] == pytest.approx(0.1)


def test_the_area_is_the_mean_rate() -> None:
    # 0.1 to 0.3 over 10, then 0.3 to 0.4 over 5, the half of the way to 0.5.
    assert area(curve([0.1, 0.3, 0.5]), 15) == pytest.approx((0.2 * 10 + 0.35 * 5) / 15)
    assert area(curve([0.1, 0.3, 0.5]), 20) == pytest.approx(0.3)


# Statistics


def test_tau_counts_pairs() -> None:
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 5.0]
    signs = [np.sign((first[i] - first[j]) * (second[i] - second[j])) for i, j in itertools.combinations(range(5), 2)]
    assert kendall_tau(first, second) == pytest.approx(sum(signs) / 10)
    # Ties in one of the two: tau-b divides by sqrt(9 * 10), as one pair of ten is tied.
    assert kendall_tau(first, [1.0, 1.0, 2.0, 3.0, 4.0]) == pytest.approx(9 / math.sqrt(90))


def test_the_slope_is_of_logarithms() -> None:
    predicted = np.array([0.5, 1.0, 2.0, 4.0])
    assert log_slope(predicted, 3 * predicted**0.7) == pytest.approx(0.7)
    generator = np.random.default_rng(0)
    measured = np.exp(generator.normal(size=4))
    assert log_slope(predicted, measured) == pytest.approx(np.polyfit(np.log(predicted), np.log(measured), 1)[0])


def test_p_values_are_those_of_the_paired_t_test() -> None:
    from scipy.stats import ttest_1samp

    values = [0.1, 0.3, -0.05, 0.2, 0.12]
    assert two_sided(seed_mean(values)) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert math.isnan(two_sided(seed_mean([0.1])))
    assert two_sided(seed_mean([0.0, 0.0])) == 1
    assert two_sided(seed_mean([0.25, 0.25])) == 0


def test_holm_corrects_step_by_step() -> None:
    # 0.01 x 3, then 0.03 x 2, then 0.04 x 1, which may not be below the one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    found = holm([math.nan, 0.02])
    assert math.isnan(found[0])
    assert found[1] == pytest.approx(0.02)


def test_agreement_is_perfect_on_a_power_law_and_its_errors_are_jackknifes() -> None:
    predicted = np.array([0.4, 0.8, 1.5, 2.0, 3.0])
    found = agreement(predicted, predicted**0.5)
    assert found.tau == pytest.approx(1)
    assert found.count == 5
    assert found.slope == pytest.approx(0.5)
    assert found.slope_error == pytest.approx(0, abs=1e-12)
    assert found.rms == pytest.approx(math.sqrt(np.mean((0.5 * np.log(predicted)) ** 2)))
    measured = np.array([0.5, 0.7, 1.9, 1.6, 2.0])
    slopes = [log_slope(np.delete(predicted, i), np.delete(measured, i)) for i in range(5)]
    assert agreement(predicted, measured).slope_error == pytest.approx(math.sqrt(4 / 5 * 5 * np.var(slopes)))


# Arms


def test_arms_are_measured_by_base_and_paired() -> None:
    # On base a the arm is twice as fast, on base b half as fast; every seed has a level of its own.
    lines = {"a": (0.01, 0.02), "b": (0.02, 0.01)}
    runs: dict[str, dict[int | str, RunHistory]] = {"slow": {}, "arm": {}}
    for base, slopes in lines.items():
        for seed, shift in enumerate((0.0, 0.03)):
            for name, slope in zip(runs, slopes, strict=True):
                runs[name][f"{base}/{seed}"] = run_of([0.1 + shift + slope * place for place in range(11)])
    arms = {name: ArmRuns(1e-4, found) for name, found in runs.items()}
    results = Results(arms, {"steps": [1], "responses": [1], "tokens": [1]}, "slow")
    (found,) = measure_arms(results, "held_out", "responses")
    assert found.by_base == pytest.approx((2, 0.5))
    assert found.ratio == pytest.approx(1)
    assert found.log_ratio.count == 4
    assert found.log_ratio.mean == pytest.approx(0)
    # Areas differ by the half of what the ends differ by, 0.1 on either base, with opposite signs.
    assert found.area.mean == pytest.approx(0)
    assert found.area.standard_error == pytest.approx(0.05 * math.sqrt(4 / 3) / 2)
    assert found.p_holm == found.p_area == pytest.approx(1)
    (by_tokens,) = measure_arms(results, "held_out", "tokens")
    assert by_tokens.by_base == pytest.approx(found.by_base)


def test_what_was_spent_before_counts() -> None:
    arms = {
        name: ArmRuns(1e-4, {0: run_of([0.1 + slope * place for place in range(11)])})
        for name, slope in (("slow", 0.01), ("arm", 0.02))
    }
    results = Results(arms, {"steps": [1], "responses": [1], "tokens": [1]}, "slow")
    # The slow one has 0.16 at 60 responses, the other one at 30 and what it needed before.
    for before, ratio in ((0, 60 / 30), (10, 60 / 40), (30, 60 / 60)):
        for axis in AXES[1:]:
            (found,) = measure_arms(results, "held_out", axis, before={"arm": before})
            assert found.ratio == pytest.approx(ratio)
    # Until then it has what it starts with: 10 at 0.1, then from there to 0.28 over 90.
    (found,) = measure_arms(results, "held_out", "responses", before={"arm": 10})
    assert found.area.mean == pytest.approx((10 * 0.1 + 90 * 0.19) / 100 - 0.15)


CONFIG = """
seeds = [0, 1]
learning_rates = [1e-4]
bases = {a = "x", b = "y"}
[run]
task = {kind = "digits"}
[run.eval]
every = 1
tasks = {held_out = {kind = "digits", seed = 1}}
[arms.base]
policy = {preset = "grpo", group_size = 4}
[arms.fast]
policy = {preset = "raft", group_size = 1}
[arms.late]
policy = {preset = "grpo", group_size = 16}
"""


def write_experiment(folder: Path, slopes: Mapping[str, float]) -> Path:
    file = folder / "trial.toml"
    file.write_text(CONFIG, encoding="utf-8")
    experiment = read_experiment(file, folder / "runs")
    for job in experiment.final_jobs(dict.fromkeys(slopes, 1e-4)):
        run = run_of([0.1 + slopes[job.arm] * (1 + 0.01 * job.seed) * place for place in range(11)])
        job.folder.mkdir(parents=True)
        rows = sorted([*run.steps, *run.evals], key=lambda row: row["step"])
        (job.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        job.mark_finished()
    return file


def predictions(folder: Path, ratios: Mapping[str, float]) -> Path:
    file = folder / "predictions.csv"
    lines = ["task,base,arm,ratio_responses,ratio_tokens"]
    # The geometric mean over bases is the ratio.
    lines += [
        f"trial,{base},{arm},{ratio * by},{ratio * by}"
        for arm, ratio in ratios.items()
        for base, by in (("a", 2), ("b", 0.5))
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_the_report_sets_measured_beside_predicted(tmp_path: Path) -> None:
    config = write_experiment(tmp_path, {"base": 0.02, "fast": 0.04, "late": 0.01})
    told = predictions(tmp_path, {"base": 1.0, "fast": 3.0, "late": 0.4})
    arguments = [
        "report",
        "--run",
        f"{config}={tmp_path / 'runs'}",
        "--predictions",
        str(told),
        "--out",
        str(tmp_path / "out"),
    ]
    # Agreement over two arms has no jackknife of the slope: a third arm is needed, or a second task.
    result = CliRunner().invoke(app, [*arguments, "--run", f"{config}={tmp_path / 'runs'}"])
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((tmp_path / "out" / "measured.csv").read_text().splitlines()))
    by_arm = {row["arm"]: row for row in rows if row["axis"] == "responses"}
    assert float(by_arm["fast"]["measured"]) == pytest.approx(2)
    assert float(by_arm["fast"]["predicted"]) == pytest.approx(3)
    assert float(by_arm["late"]["measured"]) == pytest.approx(0.5)
    assert float(by_arm["fast"]["area_ratio"]) == pytest.approx(2)
    found = {row["of"]: row for row in csv.DictReader((tmp_path / "out" / "agreement.csv").read_text().splitlines())}
    assert float(found["ratio"]["tau"]) == pytest.approx(1)
    # log 2 - log 1/2 over log 3 - log 0.4.
    assert float(found["ratio"]["slope"]) == pytest.approx(math.log(4) / math.log(7.5))
    assert (tmp_path / "out" / "agreement.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    other = CliRunner().invoke(
        app, [*arguments, "--run", f"{config}={tmp_path / 'runs'}", "--reference", "late", "--json"]
    )
    assert other.exit_code == 0, other.output
    against = {each["arm"]: each for each in json.loads(other.stdout)["arms"] if each["axis"] == "tokens"}
    assert against["fast"]["measured"] == pytest.approx(4)
    assert against["fast"]["predicted"] == pytest.approx(7.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--evaluation", "held-out"], "did you mean 'held_out'"),
        (["--without", "fsat"], "did you mean 'fast'"),
        (["--run", "nothing"], "a run must be CONFIG=DIR"),
        (["--reference", "fsat"], "did you mean 'fast'"),
        (["--before", "fast"], "such as bayes=6400; got 'fast'"),
        (["--before", "fsat=5"], "did you mean 'fast'"),
    ],
)
def test_what_the_report_cant_use_is_named(tmp_path: Path, change: list[str], words: str) -> None:
    config = write_experiment(tmp_path, {"base": 0.02, "fast": 0.04, "late": 0.01})
    told = predictions(tmp_path, {"base": 1.0, "fast": 3.0, "late": 0.4})
    result = CliRunner().invoke(
        app, ["report", "--run", f"{config}={tmp_path / 'runs'}", "--predictions", str(told), "--json", *change]
    )
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_an_arm_without_a_prediction_is_named(tmp_path: Path) -> None:
    config = write_experiment(tmp_path, {"base": 0.02, "fast": 0.04, "late": 0.01})
    told = predictions(tmp_path, {"base": 1.0, "fast": 3.0})
    result = CliRunner().invoke(app, ["report", "--run", f"{config}={tmp_path / 'runs'}", "--predictions", str(told)])
    assert result.exit_code == 2
    assert "no arm 'late' of 'trial'" in " ".join(result.output.split())
