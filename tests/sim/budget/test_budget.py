"""Shared budgets at equal spend: sums, exact values, the same responses for all, and the command."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit import Allocator, Beta, Never, Policy, Rounds, ScoreModel, uniform
from ada_bandit.advantages import AdvantageTable, GroupStd, LeaveOneOut, MaxRL
from ada_bandit.efficiency import gradient_efficiency
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze_law
from ada_bandit.groups import All
from ada_bandit.laws import Grid, Law
from ada_bandit.optimal import policy_for_budget
from sim.budget.figure import write_figures
from sim.budget.moments import step_moments
from sim.budget.study import METHODS, BudgetComparison, BudgetSetting, compare_budgets, read_methods
from sim.cli import app
from sim.montecarlo import draw_pass_rates
from sim.score_model import Scoring
from sim.sources import Source, from_curve

SMALL = BudgetSetting(total=512, prompts=64, pool=128, steps=6)
ALLOCATIONS = (
    *("uniform", "neyman", "gvm", "reinforce-ada-est", "knapsack", "vip"),
    *("hora", "coba-rl", "dynamo", "e3", "greedy"),
)


def source(law: Law) -> Source:
    return Source(law, "law", settings={"kind": "law"})


@pytest.fixture(scope="module")
def comparison() -> BudgetComparison:
    return compare_budgets(METHODS, from_curve("qwen2.5-math-1.5b-base"), SMALL)


def run(*arguments: str | int | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize("total", [512, 519, 1023])
def test_costs_add_up_to_the_last_response(total: int) -> None:
    found = compare_budgets(ALLOCATIONS, source(Beta(0.3, 1)), replace(SMALL, total=total, steps=3))
    for row in found.rows:
        assert (row.responses.mean, row.responses.se, row.largest_miss) == (total, 0, 0)
        assert row.unsampled.mean == 0
        assert row.rounds.mean == 2


def test_a_selection_spends_the_total_where_its_group_size_divides_it() -> None:
    exact, short = (
        compare_budgets(["mopps"], source(Beta(1, 1)), replace(SMALL, group_size=size)) for size in (16, 30)
    )
    assert exact.rows[0].responses.mean == 512
    assert exact.rows[0].unsampled.mean == 32
    assert short.rows[0].responses.mean == 510
    assert short.rows[0].largest_miss == 2
    assert any("mopps: 30 responses of each prompt don't divide the total" in note for note in short.notes)
    assert not any("divide the total" in note for note in exact.notes)


@pytest.mark.parametrize(
    "model",
    [
        ScoreModel((2.0, 0.5), "log", 1.5, transfer=0.0),
        ScoreModel((2.0, 0.5), "log", 1.5),
        ScoreModel(5.0, "pass@4", transfer=0.3, overlap=0.02, batch=512),
    ],
)
def test_uniform_is_plain_sampling_exactly(model: ScoreModel) -> None:
    law = Beta(0.4, 0.9)
    setting = BudgetSetting(total=4096, prompts=512, pool=512, steps=30, warm_up=0, pilot=0)
    (row,) = compare_budgets(["uniform"], source(law), setting, Scoring(model)).rows
    # Given the pool of prompts as it was drawn.
    pool = Grid(draw_pass_rates(law, 512, seed=0))
    plain = Policy(Never(), Rounds(8), 8, All(), LeaveOneOut())
    expected = gradient_efficiency(plain, pool, model)
    for value, exact in (
        (row.equal.progress, expected.progress),
        (row.equal.noise, expected.noise),
        (row.equal.efficiency, expected.value),
        (row.signal, analyze_law(plain, pool)["signal_probability"]),
    ):
        assert value.se < 0.03 * exact
        assert abs(value.mean - exact) < 4 * value.se
    # With as many responses everywhere, both updates are the same.
    assert row.equal.averaged_efficiency.mean == pytest.approx(row.equal.efficiency.mean, rel=1e-12)
    assert row.equal.efficiency_ratio is not None
    assert (row.equal.efficiency_ratio.mean, row.equal.efficiency_ratio.se) == (1, 0)
    # It has no advantage of its own, and states no objective.
    assert row.own == row.equal


def test_the_best_tables_meet_the_total_and_their_utility_in_expectation() -> None:
    law = Grid([0.05, 0.3, 0.9])
    setting = BudgetSetting(total=2048, prompts=256, pool=768, steps=60, warm_up=0)
    model = ScoreModel(noise_ratio=10.0)
    bayes, signal = compare_budgets(["best-efficiency", "best-signal"], source(law), setting, Scoring(model)).rows
    pool = Grid(draw_pass_rates(law, 768, seed=0))
    blend = policy_for_budget(law, 8.0, model)
    parts = [gradient_efficiency(policy, pool, model) for policy in (blend.low, blend.high)]
    weights = (1 - blend.weight, blend.weight)
    progress = sum(w * part.progress for w, part in zip(weights, parts, strict=True))
    samples = sum(w * part.expected_samples for w, part in zip(weights, parts, strict=True))
    assert abs(bayes.own.progress.mean - progress) < 4 * bayes.own.progress.se
    assert abs(bayes.responses.mean - 256 * samples) < 4 * bayes.responses.se
    assert abs(256 * samples - 2048) < 0.05 * 2048
    # No allocation of as many responses finds more signal than the best tables of the law.
    assert signal.signal.mean > bayes.signal.mean


def test_all_methods_see_the_same_prompts_and_responses() -> None:
    twice = compare_budgets(["uniform", "uniform"], source(Beta(1, 1)), SMALL)
    first, second = twice.rows
    assert [row.policy for row in twice.rows] == ["uniform", "uniform (2)"]
    assert replace(second, policy="uniform") == first
    alone = compare_budgets(["vip"], source(Beta(1, 1)), SMALL).rows[0]
    beside = compare_budgets(["uniform", "vip"], source(Beta(1, 1)), SMALL).rows[1]
    for gains in ("own", "equal"):
        one, other = (
            replace(getattr(row, gains), efficiency_ratio=None, averaged_efficiency_ratio=None)
            for row in (alone, beside)
        )
        assert one == other
    assert replace(alone, own=beside.own, equal=beside.equal) == beside


def test_responses_do_not_depend_on_the_method_mix_or_on_a_run() -> None:
    law = source(Beta(1, 1))
    assert compare_budgets(["vip"], law, SMALL).to_dict() == compare_budgets(["vip"], law, SMALL).to_dict()
    other = compare_budgets(["vip"], law, replace(SMALL, seed=1))
    assert other.rows != compare_budgets(["vip"], law, SMALL).rows


def test_memory_tells_prompts_apart_and_a_pilot_stands_in_for_it() -> None:
    law = source(Grid([0.0, 0.5]))
    blind = replace(SMALL, pilot=0, warm_up=0, steps=2)
    # In the first epoch there is nothing to remember: without a pilot all prompts are alike.
    assert np.ptp(compare_budgets(["vip"], law, blind).group_responses) == 0
    for setting in (replace(blind, warm_up=2), replace(blind, pilot=4)):
        hopeless, even = compare_budgets(["vip"], law, setting).group_responses[0]
        assert even > hopeless + 1.5


def test_prompts_are_grouped_by_pass_rate(comparison: BudgetComparison) -> None:
    assert comparison.group_prompts.sum() == SMALL.pool
    ends = comparison.group_ends
    assert ends.shape == (comparison.group_prompts.size, 2)
    assert (np.diff(ends.ravel()) >= 0).all()
    assert (ends[1:, 0] > ends[:-1, 1]).all()
    for row, responses in zip(comparison.rows, comparison.group_responses, strict=True):
        # Every prompt is visited equally often here, so groups average to the mean of a prompt.
        mean = np.average(responses, weights=comparison.group_prompts)
        assert mean * SMALL.prompts == pytest.approx(row.responses.mean, rel=0.02)


def test_one_pass_rate_makes_one_group(tmp_path: Path) -> None:
    found = compare_budgets(["uniform", "greedy"], source(Grid([0.3])), SMALL)
    assert found.group_ends.tolist() == [[0.3, 0.3]]
    assert found.group_prompts.tolist() == [128]
    write_figures(found, tmp_path)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_law_without_signal_has_no_efficiency_and_no_nan(rate: float, tmp_path: Path) -> None:
    found = compare_budgets([*ALLOCATIONS, "mopps"], source(Grid([rate])), SMALL)
    for row in found.rows:
        assert row.responses.mean == 512
        assert row.signal.mean == 0
        for gains in (row.own, row.equal):
            assert gains.efficiency_ratio is None
            # Where every response is correct GVM has an update all the same; it leads nowhere.
            assert gains.efficiency.mean == gains.progress.mean == 0
    json.dumps(found.to_dict(), allow_nan=False)
    write_figures(found, tmp_path)


def test_every_method_has_its_own_advantages_beside_equal_ones() -> None:
    law, methods = Beta(0.3, 1), ["uniform", "reinforce-ada-est", "gvm", "knapsack", "best-efficiency", "best-signal"]
    read, _ = read_methods(methods, replace(SMALL, total=256), law, Scoring(ScoreModel(objective="pass@4")))
    even, est, gvm, knapsack, bayes, signal = read
    assert {policy.advantage for method in read for policy in method.equal} == {LeaveOneOut()}
    assert {policy.group for method in read for policy in method.equal} == {All()}
    for method, own in (
        (even, LeaveOneOut()),
        (est, MaxRL(power=0.5, eps=1e-3)),
        (gvm, MaxRL(eps=0.0, centred=False)),
        (knapsack, GroupStd()),
        (signal, LeaveOneOut()),
    ):
        assert method.policies[0].advantage == own
    assert isinstance(bayes.policies[0].advantage, AdvantageTable)
    # What states no objective is scored on the command's.
    assert [method.objective for method in read] == ["pass@4", "log", "log", "mean", "pass@4", "pass@4"]


def test_gains_are_those_of_the_method_alone_on_its_objective() -> None:
    law, model = source(Beta(0.5, 1)), ScoreModel(2.0, transfer=0.2)
    _, both = compare_budgets(["uniform", "reinforce-ada-est"], law, SMALL, Scoring(model)).rows
    own = replace(SMALL, advantage={"name": "max_rl", "power": 0.5, "eps": 1e-3})  # type: ignore[arg-type]
    alone = compare_budgets(["reinforce-ada-est"], law, own, Scoring(replace(model, objective="log"))).rows[0]
    assert (both.own.objective, both.equal.objective) == ("log", "mean")
    assert both.own.progress == alone.equal.progress
    assert both.own.averaged_efficiency == alone.equal.averaged_efficiency
    # Over the uniform share with the equal advantage, for log p.
    other = compare_budgets(["uniform"], law, SMALL, Scoring(replace(model, objective="log"))).rows[0]
    assert both.own.efficiency_ratio is not None
    assert both.own.efficiency_ratio.mean == pytest.approx(
        alone.equal.efficiency.mean / other.equal.efficiency.mean, rel=1e-12
    )


def test_at_full_transfer_no_ratio_depends_on_the_objective() -> None:
    law, methods = source(Beta(0.5, 1)), ["uniform", "gvm", "knapsack", "mopps"]
    found = [compare_budgets(methods, law, SMALL, Scoring(ScoreModel(objective=name))) for name in ("mean", "log")]
    for mean, log in zip(*(each.rows for each in found), strict=True):
        for value, other in (
            (mean.equal.efficiency_ratio, log.equal.efficiency_ratio),
            (mean.own.averaged_efficiency_ratio, log.own.averaged_efficiency_ratio),
        ):
            assert value is not None
            assert other is not None
            assert value.mean == pytest.approx(other.mean, rel=1e-12)
    assert any("At transfer 1 every objective is the same" in note for note in found[0].notes)


def test_a_likeness_is_refused_where_pairs_of_prompts_would_count() -> None:
    model = ScoreModel(overlap=0.1, batch=64, likeness=lambda p, other: 1 - np.abs(p - other))
    with pytest.raises(InputError, match="a likeness can't be used with overlap here"):
        compare_budgets(["uniform"], source(Beta(1, 1)), SMALL, Scoring(model))


@pytest.mark.parametrize(
    "policies",
    [
        [Policy.preset("dynamo")],
        [Policy.preset("gvm")],
        [Policy.preset("reinforce-ada-balance", rounds=2), Policy.preset("reinforce-ada-pos", rounds=2)],
    ],
)
def test_moments_are_those_of_the_rows_that_the_allocator_gives(policies: list[Policy]) -> None:
    rates = np.linspace(0.05, 0.95, 60)
    kind = np.arange(60) % len(policies)
    allocator = Allocator(policies, 60, kind=kind)
    while request := allocator.ask():
        allocator.tell(request.ids, uniform(0, 0, request.prompts, request.draws) < rates[request.prompts])
    groups = allocator.groups()
    model = ScoreModel((5.0, 2.0), update_cost=0.5)
    pulls = np.stack([rates * (1 - rates), 1 - rates])
    found = step_moments(policies, kind, groups.pos, groups.neg, rates, model, pulls)
    w, w_mean, v, mean_v, total, mean_total, updated = np.zeros(2), np.zeros(2), 0.0, 0.0, 0.0, 0.0, 0
    for prompt, p in enumerate(rates):
        u = energy = 0.0
        for advantage, correct in zip(
            groups.advantages[prompt][groups.mask[prompt]], groups.correct[prompt][groups.mask[prompt]], strict=True
        ):
            u += advantage * ((1 - p) if correct else -p)
            energy += advantage**2 * (5.0 if correct else 2.0)
            updated += advantage != 0
        kept = max(int(groups.mask[prompt].sum()), 1)
        w, w_mean = w + u * pulls[:, prompt], w_mean + u / kept * pulls[:, prompt]
        total, mean_total = total + u, mean_total + u / kept
        v, mean_v = v + u**2 + energy, mean_v + (u**2 + energy) / kept**2
    cost = (groups.pos + groups.neg).sum() + 0.5 * updated
    for at in range(2):
        np.testing.assert_allclose(found[at] * 60, [w[at], v, total, cost, w_mean[at], mean_v, mean_total], rtol=1e-12)


def test_a_best_table_that_no_total_is_too_large_for_is_left_out_and_told() -> None:
    found = compare_budgets(["uniform", "best-signal"], source(Grid([0.5])), SMALL)
    assert [row.policy for row in found.rows] == ["uniform"]
    assert any(note.startswith("best-signal left out: budget must lie between 1") for note in found.notes)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("dapo", "'dapo' spends whatever its groups take, so it can't be held to a total"),
        ("grpo", "'grpo' decides for each prompt by itself and shares no budget; compare it by python -m sim compare"),
        ("neymann", "unknown policy 'neymann'"),
    ],
)
def test_what_can_not_be_held_to_a_total(method: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_budgets([method], source(Beta(1, 1)), SMALL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total": 100}, "total must lie between 128 and 2048, the minimum .* of 64 prompts; got 100"),
        ({"total": 2049}, "total must lie between 128 and 2048.*got 2049"),
        ({"pool": 63}, "pool must hold the prompts of a step; got 63 distinct prompts for 64 a step"),
        ({"steps": 1}, "steps must be a whole number of at least 2; got 1"),
        ({"group_size": 33}, "group_size must not exceed maximum; got 33 and 32"),
        ({"decay": 2.0}, r"decay must be a finite number in \[0, 1\]; got 2\.0"),
        ({"advantage": "own"}, "unknown advantage 'own'"),
    ],
)
def test_settings_that_have_no_meaning(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, **changes)


def test_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="nothing to compare: give at least one method"):
        compare_budgets([], source(Beta(1, 1)), SMALL)


def test_csv_and_json_say_the_same(comparison: BudgetComparison) -> None:
    records = list(csv.DictReader(io.StringIO(comparison.to_csv())))
    data = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert [record["policy"] for record in records] == [row["policy"] for row in data["methods"]] == list(METHODS)
    for record, row in zip(records, data["methods"], strict=True):
        assert float(record["signal"]) == row["signal"]["mean"]
        assert float(record["own_efficiency_ratio_se"]) == row["own"]["efficiency_ratio"]["se"]
        assert float(record["equal_averaged_efficiency"]) == row["equal"]["averaged_efficiency"]["mean"]
        assert (record["own_objective"], record["own_advantage"]) == (row["own"]["objective"], row["own"]["advantage"])
        assert int(record["largest_miss"]) == row["largest_miss"]
    policies = [policy for method in data["configuration"]["methods"] for policy in method["policies"]]
    assert all(Policy.from_dict(policy).name == policy["name"] for policy in policies)


def test_the_command_writes_its_files_and_prints_tables(tmp_path: Path) -> None:
    toml = tmp_path / "mine.toml"
    toml.write_text(Policy.preset("knapsack").to_toml().replace('"knapsack"', '"mine"', 1), encoding="utf-8")
    result = run("budget", "--total", 512, "--prompts", 64, "--steps", 3, "--policy", "uniform", "--policy", toml,
                 "--out", tmp_path / "out")  # fmt: skip
    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"budget.{e}" for e in ("csv", "json", "png", "svg")
    }
    assert "mine" in result.stdout
    assert "Spend, of 512 responses" in result.stdout
    assert "Own advantages, each for the objective it states" in result.stdout
    assert "Equal advantages, one objective" in result.stdout
    assert "the two-component score model" in " ".join(result.stdout.split())


def test_the_command_prints_json_and_nothing_else(tmp_path: Path) -> None:
    result = run("budget", "--total", 512, "--prompts", 64, "--steps", 3, "--policy", "vip", "--no-figures", "--json",
                 "--out", tmp_path)  # fmt: skip
    data = json.loads(result.stdout)
    assert data == json.loads((tmp_path / "budget.json").read_text(encoding="utf-8"))
    assert data["configuration"]["pool"] == 128
    assert data["methods"][0]["responses"] == {"mean": 512.0, "se": 0.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("budget", "--policy", "dapo"), "error: the policy 'dapo' spends whatever its groups take"),
        (("budget", "--total", "1"), "error: total must lie between 1024 and 16384"),
        (("compare", "--policy", "vip"), "shares a budget across the batch.*python -m sim budget"),
        (("analyze", "--policy", "greso"), "shares a budget across the batch.*python -m sim budget"),
    ],
)
def test_errors_are_one_line_that_names_the_remedy(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    out = ("--out", tmp_path) if arguments[0] != "analyze" else ()
    result = run(*arguments, *out)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    with pytest.raises(InputError, match=message):
        raise InputError(result.stderr)


def test_show_says_that_a_shared_budget_has_no_table() -> None:
    result = run("show", "--policy", "vip")
    assert result.exit_code == 0
    assert Policy.preset("vip").to_toml().rstrip() in result.stdout
    assert "no table describes its draws" in result.stdout


@pytest.mark.parametrize("name", ["pods", "speed", "pilot-commit", "maxrl", "pkpo", "ngrpo", "bayes"])
def test_exact_presets_are_compared_and_shown(name: str, tmp_path: Path) -> None:
    result = run("compare", "--policy", name, "--policy", "grpo", "--prompts", 8, "--batches", 2, "--no-figures",
                 "--out", tmp_path)  # fmt: skip
    assert result.exit_code == 0
    assert name in result.stdout
    assert run("show", "--policy", name, "--table", "draws").exit_code == 0
