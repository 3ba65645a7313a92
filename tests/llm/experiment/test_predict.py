from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit.class_scores import ClassScores
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid
from ada_bandit.programs.scores import ProbedScores, write_scores
from llm.cli import app
from llm.experiment.plan import Experiment, read_experiment
from llm.experiment.predict import Prediction, bounds, known_responses, posteriors, predict, transfer_of

ROOT = Path(__file__).resolve().parents[3]

RATES = np.array([0.1, 0.3, 0.5, 0.8])
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
LAW = Grid(RATES, WEIGHTS)
POOL = 50

CONFIG = """
seeds = [0]
learning_rates = [1e-4]
bases = {{a = "x"}}
reference = "grpo"
[run]
task = {{kind = "digits", size = {pool}}}
[run.train]
steps = 10
tokens = 4000
prompts = 8
mini_batch = 8
[run.eval]
every = 1
tasks = {{held_out = {{kind = "digits", seed = 1}}}}
[arms.grpo]
policy = {{preset = "grpo", group_size = 4}}
{arms}
"""


def experiment(folder: Path, arms: str) -> Experiment:
    file = folder / "trial.toml"
    file.write_text(CONFIG.format(arms=arms, pool=POOL), encoding="utf-8")
    return read_experiment(file, folder / "out")


def probed(
    noise: tuple[float, float] | None = (1.5, 4.0), overlap: float | None = 0.02, tokens: float = 0.0
) -> ProbedScores:
    """Return a probe of eight prompts, whose directions are drawn at random, with `tokens` more a unit of pass rate."""
    generator = np.random.default_rng(3)
    pos = np.array([1, 2, 4, 7, 10, 12, 14, 15], dtype=np.float64)
    neg = 16 - pos
    sums = generator.normal(size=(8, 30)) * 4 + 1
    other = -sums
    gram = sums @ sums.T
    return ProbedScores(
        label="made up",
        keys=tuple(map(str, range(8))),
        families=("",) * 8,
        scores=ClassScores(pos, neg, pos * 60.0, neg * 60.0, gram, sums @ other.T, other @ other.T),
        tokens=3 + tokens * pos / 16,
        unscored=0,
        noise_ratio=noise,
        overlap=overlap,
        prior=LAW,
        refuted=(),
    )


def of_arms(found: list[Prediction]) -> Mapping[str, Prediction]:
    return {each.arm: each for each in found}


def mean(values: Any) -> float:
    return float(WEIGHTS @ values)


def test_one_response_has_the_efficiency_of_its_closed_form(tmp_path: Path) -> None:
    arms = """
[arms.raft]
policy = {preset = "raft", group_size = 1}
[arms.constant]
policy = {preset = "reinforce", group_size = 1, baseline = 0.25}
set = {"train.prompts" = 20, "train.mini_batch" = 20}
"""
    found = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed()}))
    p, q = RATES, 1 - RATES
    transfer = 0.02 / (0.02 + 0.98 / POOL)
    pull = (1 - transfer) * p * q + transfer * mean(p * q)
    for arm, baseline, batch in (("raft", 0.0, 8), ("constant", 0.25, 20)):
        # A correct response has u = (1 - b) q, an incorrect one u = b p: the mean is p q, whatever b.
        energy = p * (1 - baseline) ** 2 * (q**2 + 1.5) + q * baseline**2 * (p**2 + 4.0)
        noise = mean(energy) + 0.02 * (batch - 1) * mean(p * q) ** 2
        assert found[arm].efficiency == pytest.approx(mean(p * q * pull) ** 2 / noise, rel=1e-9)
        assert found[arm].responses == pytest.approx(1)
        assert found[arm].batch == batch
    assert found["raft"].transfer == pytest.approx(transfer)
    assert found["raft"].ratio_responses == pytest.approx(found["raft"].efficiency / found["grpo"].efficiency)
    assert found["grpo"].ratio_responses == 1


def test_groups_of_two_have_the_efficiency_of_their_enumeration(tmp_path: Path) -> None:
    arms = '[arms.two]\npolicy = {preset = "dr-grpo", group_size = 2}'
    found = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed()}))
    p, q = RATES, 1 - RATES
    # Mixed with chance 2 p q: advantages 1/2 and -1/2, u = (q + p) / 2.
    transfer = transfer_of(0.02, POOL)
    pull = (1 - transfer) * p * q + transfer * mean(p * q)
    noise = mean(2 * p * q * (0.25 + (1.5 + 4.0) / 4)) + 0.02 * 7 * mean(p * q) ** 2
    assert found["two"].efficiency == pytest.approx(mean(p * q * pull) ** 2 / noise / 2, rel=1e-9)


def test_a_refill_is_the_fixed_number_of_its_groups(tmp_path: Path) -> None:
    arms = '[arms.dapo]\npolicy = {preset = "dapo", group_size = 4, wanted = 3, rounds = 4}'
    found = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed(overlap=0.0)}))
    assert found["dapo"].ratio_responses == pytest.approx(1)
    signal = mean(1 - RATES**4 - (1 - RATES) ** 4)
    assert found["dapo"].batch == round(3 / signal)


def test_tokens_cost_what_prompts_of_a_rate_have(tmp_path: Path) -> None:
    arms = '[arms.pos]\npolicy = {preset = "reinforce-ada-pos", samples = 1, rounds = 2, group_size = 2}'
    plain = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed()}))
    dear = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed(tokens=2.0)}))
    assert plain["pos"].ratio_tokens == pytest.approx(plain["pos"].ratio_responses)
    # One response, and a second one where the first was wrong; 3 + 2 p tokens each.
    drawn, tokens = 1 + (1 - RATES), 3 + 2 * RATES
    a_token = mean(drawn) / mean(drawn * tokens) * mean(tokens)
    assert dear["pos"].ratio_tokens == pytest.approx(plain["pos"].ratio_responses * a_token)


def test_a_bayes_arm_is_the_optimum_at_the_probed_law(tmp_path: Path) -> None:
    arms = "[arms.one]\npolicy = {empirical_bayes = {max_samples = 1, noise_ratio = 99.0}}"
    found = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed(overlap=0.0)}))
    p, q = RATES, 1 - RATES
    # t = 0 and one response: each class has its own best advantage, worth E[q kappa]^2 / (E[q^2] + nu) where it comes.
    worth = 0.0
    for chance, score, nu in ((p, q, 1.5), (q, p, 4.0)):
        mass = mean(chance)
        pull = mean(chance * score * p * q) / mass
        worth += mass * pull**2 / (mean(chance * score**2) / mass + nu)
    assert found["one"].efficiency == pytest.approx(worth, rel=1e-9)


def test_posteriors_make_up_the_law() -> None:
    laws, sizes = posteriors(LAW, 3)
    for pos, (law, size) in enumerate(zip(laws, sizes, strict=True)):
        joint = WEIGHTS * math.comb(3, pos) * RATES**pos * (1 - RATES) ** (3 - pos)
        assert size == pytest.approx(joint.sum())
        assert law.quadrature(1)[1] == pytest.approx(joint / joint.sum())


def test_a_memory_is_worth_what_posteriors_tell(tmp_path: Path) -> None:
    arms = """
[arms.known]
policy = {empirical_bayes = {max_samples = 1}}
set = {memory = 0.5}
[arms.picky]
policy = {empirical_bayes = {max_samples = 1, skip = true}}
set = {memory = 0.5}
"""
    plan = experiment(tmp_path, arms)
    found = of_arms(predict("trial", plan, {"a": probed(overlap=0.0)}))
    config = plan.run_config("known", 1e-4, 0, "a")
    # 4000 tokens, about 3 a response, over 50 prompts: 13 responses half-way, of which 1 / (1 - 1/2) last.
    assert known_responses(config, 1.0, 3.0) == 2
    assert found["known"].efficiency == pytest.approx(np.dot(*by_history(2)), rel=1e-6)
    # A response costs 1 wherever it is drawn: only the kind that is worth most is sampled. Prompts are then known by
    # fewer responses, as they get fewer.
    known, drawn = 2, 0.0
    for _ in range(3):
        worths, chances = by_history(known)
        best = int(np.argmax(worths))
        drawn = chances[best]
        last, known = known, known_responses(config, drawn, 3.0)
    assert last == known
    assert found["picky"].efficiency == pytest.approx(worths[best], rel=1e-6)
    assert found["picky"].responses == pytest.approx(drawn, rel=1e-6)


def by_history(known: int) -> tuple[list[float], list[float]]:
    """Return what one response is worth at t = 0 by the correct ones of `known` earlier ones, and their chances."""
    worths, chances = [], []
    p, q = RATES, 1 - RATES
    for pos in range(known + 1):
        joint = WEIGHTS * math.comb(known, pos) * p**pos * q ** (known - pos)
        law = joint / joint.sum()
        worth = 0.0
        for chance, score, nu in ((p, q, 1.5), (q, p, 4.0)):
            mass = law @ chance
            worth += (law @ (chance * score * p * q)) ** 2 / mass / (law @ (chance * score**2) / mass + nu)
        worths.append(float(worth))
        chances.append(float(joint.sum()))
    return worths, chances


def test_bounds_rise_with_what_is_known(tmp_path: Path) -> None:
    plan = experiment(tmp_path, "[arms.one]\npolicy = {empirical_bayes = {max_samples = 1}}")
    (found,) = bounds("trial", plan, {"a": probed(overlap=0.0)})
    one = of_arms(predict("trial", plan, {"a": probed(overlap=0.0)}))["one"]
    assert found.one_response == pytest.approx(one.ratio_responses)
    # t = 0: of a prompt at p, kappa = p q, one response is worth kappa^2 (p q^2 / (q^2 + nu+) + q p^2 / (p^2 + nu-)).
    p, q = RATES, 1 - RATES
    worth = (p * q) ** 2 * (p * q**2 / (q**2 + 1.5) + q * p**2 / (p**2 + 4.0))
    four = of_arms(predict("trial", plan, {"a": probed(overlap=0.0)}))["grpo"].efficiency
    # A second response to a prompt repeats its direction, so the first one is worth most; prompts that are skipped cost
    # nothing, and where none may be skipped, the best ones make up for them with more responses each.
    assert found.known >= mean(worth) / four
    assert found.known_skipping == pytest.approx(worth.max() / four, rel=1e-6)
    assert found.one_response <= found.optimum <= found.known <= found.known_skipping


def test_measured_ratios_are_those_of_the_class_sums(tmp_path: Path) -> None:
    from ada_bandit import Policy
    from ada_bandit.measured import measure_efficiency

    arms = """
[arms.two]
policy = {preset = "dr-grpo", group_size = 2}
[arms.known]
policy = {empirical_bayes = {}}
set = {memory = 0.5}
"""
    found = of_arms(predict("trial", experiment(tmp_path, arms), {"a": probed()}))
    two, four = (
        measure_efficiency([Policy.preset(name, group_size=size)], probed().scores, pool=POOL, batch=8)[0].value
        for name, size in (("dr-grpo", 2), ("grpo", 4))
    )
    assert found["two"].measured == pytest.approx(two / four)
    assert math.isnan(found["known"].measured)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    plan = experiment(tmp_path, "")
    with pytest.raises(InputError, match="the base 'a' of 'trial' has no probe; give --probe a=FILE"):
        predict("trial", plan, {"b": probed()})
    with pytest.raises(InputError, match="the probe of 'a' has no noise ratio"):
        predict("trial", plan, {"a": probed(noise=None)})
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "trial.toml"), "--probe", "nothing"])
    assert result.exit_code == 2
    assert "a probe must be BASE=FILE" in " ".join(result.output.split())


def test_the_command_writes_what_was_predicted(tmp_path: Path) -> None:
    plan = experiment(tmp_path, '[arms.raft]\npolicy = {preset = "raft", group_size = 1}')
    write_scores(tmp_path / "scores.npz", probed())
    out = tmp_path / "told"
    arguments = ["predict", str(tmp_path / "trial.toml"), "--probe", f"a={tmp_path / 'scores.npz'}", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    rows = {row["arm"]: row for row in csv.DictReader((out / "predictions.csv").read_text().splitlines())}
    found = of_arms(predict("trial", plan, {"a": probed()}))
    assert float(rows["raft"]["ratio_responses"]) == pytest.approx(found["raft"].ratio_responses)
    table = (out / "predictions.md").read_text()
    assert f"| raft | 8 | 1.00 | 8 | {found['raft'].ratio_responses:.3f} |" in table


@pytest.mark.parametrize("name", ["trials-many", "trials-unique", "trials-long"])
def test_the_ready_configs_have_their_predictions_and_equal_responses_a_step(name: str, tmp_path: Path) -> None:
    plan = read_experiment(ROOT / "llm" / "configs" / f"{name}.toml", tmp_path)
    lines = (ROOT / "docs" / "score_model" / "predictions.csv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in csv.DictReader(lines) if row["task"] == name]
    assert {(row["base"], row["arm"]) for row in rows} == {
        (base, arm) for base in plan.config.bases for arm in plan.config.arms
    }
    for arm in plan.config.arms:
        own = [row for row in rows if row["arm"] == arm]
        drawn = np.mean([float(row["responses"]) * int(row["batch"]) for row in own])
        wanted = 4 * plan.run_config(plan.reference, 1e-4, 0, plan.bases[0]).train.prompts
        # Nearly: runs are compared at equal responses and tokens in all, whatever a step draws.
        assert drawn == pytest.approx(wanted, rel=0.15)
