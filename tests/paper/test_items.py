"""Every item's numbers against values that are derived otherwise."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

from ada_bandit import Policy, analyze
from paper import training
from paper.claims import load_claims
from paper.cli import app
from paper.confounds.sweep import arm
from paper.figure4.analysis import entropy_at_rewards
from paper.figure5.sweep import Reading, feasible, series_of
from paper.items import EXACT, ITEMS, claim_file
from paper.laws import balance, base_law, between, grpo, pos, spread, training_law
from paper.objective.sweep import est_weight
from paper.published import column, rows, settings
from paper.results import Context, ItemResult
from paper.run import ANALYSES
from paper.table2.sweep import mean_extra, solve_times

ROOT = Path(__file__).parents[2]


@cache
def found(name: str) -> ItemResult:
    return ANALYSES[name](Context(Path("unused"), quick=True))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The main runs and the results of the simulated items, few and short ones."""
    folder = tmp_path_factory.mktemp("runs")
    patch = pytest.MonkeyPatch()
    patch.setattr(training, "_STEPS", 20)
    patch.setattr(training, "_QUICK_SEEDS", 2)
    patch.setattr(training, "_QUICK_VARIANT_SEEDS", 2)
    chosen = training.variants()[:2]
    patch.setattr(training, "variants", lambda: (chosen[0], replace(chosen[1], name="a third of the step size")))
    training.main_runs.cache_clear()
    training.variant_runs.cache_clear()
    context = Context(folder, quick=True, jobs=1)
    yield training.main_runs(context), {name: ANALYSES[name](context) for name in ITEMS if name not in EXACT}
    patch.undo()
    training.main_runs.cache_clear()
    training.variant_runs.cache_clear()


@pytest.mark.parametrize("name", EXACT)
def test_every_claim_is_measured(name: str) -> None:
    assert set(found(name).measures) == {claim.id for claim in load_claims(claim_file(name))[1]}


def test_published_data_is_complete() -> None:
    assert len(rows("table1")) == 18
    assert len(rows("pass_at_k")) == 18
    assert column("table2", "step_seconds")[:3].tolist() == [102, 228, 290]
    # The relative costs are the ratios of the step times.
    seconds = column("table2", "step_seconds").reshape(2, 3)
    assert np.abs(seconds / seconds[:, :1] - column("table2", "relative_cost").reshape(2, 3)).max() < 0.05


def test_policies_have_the_published_sizes() -> None:
    assert balance() == Policy.preset("reinforce-ada-balance")
    assert pos() == Policy.preset("reinforce-ada-pos")
    assert grpo() == Policy.preset("grpo")


# Figure 2


def test_signal_lost_follows_from_the_published_curves() -> None:
    models = found("figure2").numbers["models"]
    for model in ("base", "rl"):
        table = {int(row["k"]): row for row in rows("pass_at_k") if row["model"] == model}
        lost = {k: 1 - float(table[k]["pass_at_k"]) + float(table[k]["all_correct_at_k"]) for k in (4, 256)}
        assert models[model]["no_signal"] == pytest.approx(lost[4], abs=0.01)
        assert models[model]["recovered"] == pytest.approx(1 - lost[256] / lost[4], abs=0.02)
    # No law is at both 0.490 and 0.503.
    assert models["rl"]["largest_residual"] >= (0.503 - 0.490) / 2
    assert models["rl"]["apart_at_1"] == pytest.approx(0.013)


# Figure 5


def test_series_of_one_pass_rate_by_hand() -> None:
    p, q, prompts = 0.3, 0.7, 512
    series = {name: float(values[0]) for name, values in series_of(np.array([p]), Reading(8, 1), prompts).items()}
    expected = 8 * (q**8 + q**16 + q**24)
    assert series["extra_pos"] == pytest.approx(prompts * expected)
    early = binom.cdf(6, 8, p) - binom.cdf(1, 8, p)
    assert series["both_quotas"] == pytest.approx(prompts * early)
    assert series["positive_quota"] == pytest.approx(prompts * binom.sf(1, 8, p))
    assert series["short_of_positives"] == pytest.approx(prompts * binom.cdf(1, 32, p))
    two = series_of(np.array([p]), Reading(4, 2), prompts)
    assert float(two["both_quotas"][0]) > series["both_quotas"]
    assert float(two["extra_balance"][0]) == pytest.approx(series["extra_balance"] + 4 * prompts)


def test_feasible_finds_the_law_that_made_the_moments() -> None:
    rates = np.linspace(0, 1, 21)
    weights = np.random.default_rng(1).dirichlet(np.ones(21))
    moments = [rates, rates**2, (1 - rates) ** 8]
    values = [float(weights @ moment) for moment in moments]
    assert feasible(moments, values) == pytest.approx(0, abs=1e-9)
    # A second moment below the square of the mean belongs to no law: (1 - t) m^2 must reach (1 - t)^2 m^2 ...
    off = feasible([rates, rates**2], [0.5, 0.125])
    # ... that is mean 0.5 (1 - t) and square 0.125 (1 + t), where 0.25 (1 - t)^2 = 0.125 (1 + t).
    t = (5 - math.sqrt(17)) / 4
    assert off == pytest.approx(t, abs=0.01)


def test_readings_of_figure5() -> None:
    numbers = found("figure5").numbers
    assert numbers["least_extra_beyond_n"] == 512 * (8 - 4)
    assert numbers["lowest_published_pos"] == 1230
    # At p = 1 pos draws the least: the bound is attained, so that the misfit has a closed form.
    literal = next(one for one in numbers["readings"] if (one["beyond"], one["early"]) == (4, 2))
    assert literal["worst_pos"] == pytest.approx(2048 / 1230 - 1, rel=1e-6)
    assert numbers["worst_misfit"]["beyond_first_one_round"] == pytest.approx(0, abs=1e-6)
    assert numbers["worst_misfit"]["beyond_first_two_rounds"] > 0.2


def test_two_rounds_need_no_programme_to_be_refuted() -> None:
    # A prompt that isn't done in two rounds draws at least 16 beyond the first, one that is never done 24.
    for row in rows("figure5"):
        if row["two_rounds_both_quotas"]:
            late = 512 - float(row["two_rounds_both_quotas"])
            short = float(row["short_of_positives"]) + float(row["short_of_negatives"])
            assert 16 * (late - short) + 24 * short > 1.1 * float(row["extra_samples_balance"])


def test_rise_of_balance() -> None:
    numbers = found("figure5").numbers
    assert numbers["rise"] == 3820 - 3160
    assert numbers["rise_from_negatives"] == 24 * (55 - 27)


def test_mixture_and_moved_laws() -> None:
    law = between(base_law(), 1, 16, 16)
    assert law.mean == pytest.approx(base_law().at_least(1, 16).mean, rel=1e-12)
    assert between(base_law(), 1, 5, 16).mean < law.mean
    still = spread(law, 0.0)
    assert np.abs(still.pass_rates - law.pass_rates).max() < 1e-9
    line = found("figure5").numbers["line"]
    start = found("figure5").numbers["start"]
    assert line["extra_pos"][0] == pytest.approx(start["base, at least 1 of 16"]["extra_pos"])
    assert line["extra_pos"][-1] == pytest.approx(start["RL, at least 1 of 16"]["extra_pos"])


# Table 2


def test_mean_extra_by_hand() -> None:
    steps = [0, 30, 50, 100, 150, 200, 250, 300, 350, 400, 450, 480]
    values = [3620, 3620, 2750, 1930, 1660, 1500, 1430, 1360, 1320, 1280, 1240, 1230]
    area = sum((b - a) * (u + v) / 2 for a, b, u, v in zip(steps, steps[1:], values, values[1:], strict=False))
    assert mean_extra("extra_samples_pos") == pytest.approx(area / 480)


def test_times_are_solved() -> None:
    responses, rounds = np.array([2048.0, 6000.0, 8000.0]), np.array([1.0, 4.0, 4.0])
    times = solve_times(10 + 3 * rounds + 0.02 * responses, responses, rounds)
    assert (times.each, times.wait, times.fixed) == pytest.approx((0.02, 3.0, 10.0))


def test_shares_of_generation() -> None:
    numbers = found("table2").numbers
    drawn = (4096 + mean_extra("extra_samples_balance")) / 2048
    share = numbers["models"]["Qwen2.5-Math-1.5B"]["shares"]["balance"]
    assert share == pytest.approx((290 / 102 - 1) / (drawn - 1))
    waiting = numbers["models"]["Qwen2.5-Math-1.5B"]["waiting_shares"]
    assert [waiting["pos"], waiting["balance"]] == pytest.approx([126 / 306, 188 / 306])


# What the paper doesn't have


def test_bias_of_pos_in_closed_form() -> None:
    # Exit after round i with probability q^(8(i-1)) (1 - q^8), and the mean is then E[k | k >= 1] / (8 i).
    rules = found("bias").numbers["rules"]
    p, q = rules["pos"]["at"], 1 - rules["pos"]["at"]
    mean = sum(q ** (8 * i) * 8 * p / (8 * (i + 1)) for i in range(4))
    assert rules["pos"]["signed"] == pytest.approx(mean - p, rel=1e-9)
    assert rules["balance"]["largest_bias"] == pytest.approx(
        abs(analyze(balance(), rules["balance"]["at"]).pool_mean_bias)
    )
    assert rules["grpo"]["largest_bias"] < 1e-15


def test_objective_numbers() -> None:
    numbers = found("objective").numbers
    assert numbers["skew"]["balance"] == pytest.approx(1, abs=1e-9)
    # Dr. GRPO has w = (n - 1) / n.
    assert numbers["weights"]["dr-grpo"]["0.1"] == pytest.approx(0.75)
    assert numbers["limit_error"] < 0.01
    # F(0.9) - F(1/2) of the limit is log(9) / 2 - 0.4; balance with its cap has less.
    assert numbers["balance_high"] == pytest.approx(math.log(9) / 2 - 0.4, rel=0.1)
    assert numbers["balance_high"] == pytest.approx(-numbers["balance_low"], rel=1e-6)


def test_frontier_agrees_with_the_findings() -> None:
    numbers = found("frontier").numbers
    assert numbers["balance_per_response"][0] == pytest.approx(0.33, abs=0.01)
    ratio = numbers["responses"]["balance"] / numbers["responses"]["grpo"]
    step, response = numbers["balance_per_step"], numbers["balance_per_response"]
    assert [a / ratio for a in step] == pytest.approx(response, rel=1e-9)
    assert all(0 < one["of_optimum"] <= 1 + 1e-9 for one in numbers["settings"])


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_version_3_by_enumeration(rate: float) -> None:
    """n w(n) by hand: sum over k of P(k) [k a+ / p - (n - k) a- / q] with a = (r - k/n) / sqrt(k/n + eps)."""
    eps, average = 0.001, 8
    nodes, weights = training_law().quadrature(1)
    share = average * (rate + eps) ** -0.5 / float(weights @ (nodes + eps) ** -0.5)

    def total(count: int) -> float:
        k = np.arange(count + 1)
        mean = k / count
        update = (k * (1 - mean) / rate + (count - k) * mean / (1 - rate)) / np.sqrt(mean + eps)
        return float(binom.pmf(k, count, rate) @ update)

    low = math.floor(share)
    expected = (low + 1 - share) * total(low) + (share - low) * total(low + 1)
    assert float(est_weight(average, np.array([rate]))[0]) == pytest.approx(expected, rel=1e-9)


def test_version_3_tends_to_log_p() -> None:
    """With many responses n w is in proportion to 1 / (p + eps): (0.9 + eps) / (0.1 + eps) = 8.92 where log p has 9."""
    (low, high), limit = est_weight(128, np.array([0.1, 0.9])), 0.901 / 0.101
    assert low / high == pytest.approx(limit, rel=2e-3)


def test_the_matched_mean_is_binomial() -> None:
    """Four plain responses have p q / 4; so has the control, with balance's E[N] in the place of 4."""
    numbers = found("bias").numbers
    nodes, weights = training_law().quadrature(40)
    expected = float(weights @ analyze(balance(), nodes).expected_samples)
    assert numbers["matched_responses"] == pytest.approx(expected, rel=1e-6)
    assert numbers["mse_ratio_matched"] == pytest.approx(numbers["mse_ratio"] * 4 / expected, rel=1e-6)


def test_steps_beside_their_controls() -> None:
    numbers = found("frontier").numbers
    for noise, step in zip(("1", "10"), numbers["balance_per_step"], strict=True):
        one = numbers["steps"][f"transfer 0, noise {noise}"]
        assert one["grpo"] == pytest.approx(step, rel=1e-9)
    ratio = numbers["responses"]["balance"] / numbers["responses"]["grpo"]
    for one, response in zip(("1", "10"), numbers["transfer_1"]["balance"], strict=True):
        assert numbers["steps"][f"transfer 1, noise {one}"]["grpo"] / ratio == pytest.approx(response, rel=1e-9)
    # A control that trains on everything it draws has more of it than one that keeps four.
    assert all(one["matched"] < one["selected"] for one in numbers["steps"].values())


def test_arms_of_the_public_comparison() -> None:
    """The scripts run GRPO with the deviation against Ada without: the paper's own two rules."""
    assert arm("grpo, deviation") == replace(grpo(), name="grpo, deviation")
    assert arm("balance") == replace(balance(), name="balance")
    rates = np.linspace(0.05, 0.95, 7)
    # A mean of n responses taken from them leaves (n - 1) / n of the gradient at every p.
    assert analyze(arm("grpo"), rates).gradient_weight == pytest.approx(np.full(7, 0.75))
    # A balanced group of 4 with both classes has mean 1/2 and deviation s: an advantage of 1/(2 (s + eps)) either way.
    weights = analyze(arm("balance, deviation"), rates).gradient_weight
    assert weights == pytest.approx(weights[::-1])


# Table 1 and what is simulated


def test_published_order(simulated: Any) -> None:
    counts = simulated[1]["table1"].numbers["counts"]
    assert (counts["published-balance"]["wins"], counts["published-balance"]["losses"]) == (24, 0)
    assert (counts["runs"]["wins"], counts["runs-hard"]["wins"]) == (6, 2)
    assert (counts["published-hard"]["wins"], counts["published-hard"]["losses"]) == (7, 1)
    assert counts["published-hard"]["p"] == pytest.approx(9 / 256)
    # Qwen3-4B: pos is behind GRPO on Minerva; balance level with pos on AIME, and behind on Olympiad.
    assert (counts["published-pos"]["wins"], counts["published-pos"]["losses"]) == (23, 1)
    assert counts["published-order"]["losses"] == 1


def test_simulated_items(simulated: Any) -> None:
    runs, results = simulated
    for name, result in results.items():
        assert set(result.measures) == {claim.id for claim in load_claims(claim_file(name))[1]}
    result = results["figure1"]
    rewards = runs.values("all", "balance", "train_pass_rate")
    other = runs.values("all", "grpo", "train_pass_rate")
    half = rewards.shape[1] // 2
    gap = rewards[:, half:].mean(axis=1) - other[:, half:].mean(axis=1)
    assert result.measures["balance"].value == pytest.approx(gap.mean())
    assert result.measures["balance"].wins == int((gap > 0).sum())
    assert result.numbers["start"] == pytest.approx(base_law().at_least(1, 16).mean, abs=0.02)
    # The first step draws what the exact analysis says, on the law of the prompts.
    nodes, weights = base_law().at_least(1, 16).quadrature(40)
    expected = float(weights @ analyze(balance(), nodes).expected_samples)
    first = np.mean([run.responses[0] / run.batch for run in runs.runs["all", "balance"]])
    assert first == pytest.approx(expected, rel=0.05)


def test_entropy_at_rewards() -> None:
    levels = np.array([0.25, 0.35])
    entropy = entropy_at_rewards(np.array([0.2, 0.3, 0.28, 0.4]), np.array([2.0, 1.0, 0.9, 0.0]), levels)
    assert entropy[0] == pytest.approx(1.5)
    assert entropy[1] == pytest.approx(0.45)


# The program


def test_exact_items_end_to_end(tmp_path: Path) -> None:
    for name in ("figure2", "table2", "bias"):
        result = CliRunner().invoke(app, [name, "--quick", "--out", str(tmp_path)], catch_exceptions=False)
        assert result.exit_code == 0
        record = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert [verdict["id"] for verdict in record["verdicts"]] == [
            claim.id for claim in load_claims(claim_file(name))[1]
        ]
        for ending in ("png", "svg"):
            assert (tmp_path / f"{name}.{ending}").stat().st_size > 1000
    verdicts = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert {verdict["item"] for verdict in verdicts} == {"figure2", "table2", "bias"}
    text = (tmp_path / "verdict.md").read_text(encoding="utf-8")
    rows_of_bias = [line for line in text.splitlines() if line.startswith("| bias | The mean over all responses")]
    assert len(rows_of_bias) == 1
    assert "| **doesn't hold** |  |  |" in rows_of_bias[0]
    assert "Does not hold: bias/unbiased" in result.output


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom paper.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as done:\n    assert not done.code\n"
        "print('HEAVY', sorted({'numpy', 'scipy', 'numba', 'matplotlib'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    assert "HEAVY []" in done.stdout
    assert "figure5" in done.stdout


def test_settings_are_those_of_the_paper() -> None:
    given = settings()
    assert (given["prompts"], given["group_size"], given["round_size"], given["rounds"]) == (512, 4, 8, 4)
    assert given["hard_most"] / given["filter_total"] == 0.125
    assert given["moderate_most"] / given["filter_total"] == pytest.approx(0.313, abs=0.001)
