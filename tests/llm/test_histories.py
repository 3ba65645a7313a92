from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ada_bandit.errors import InputError
from llm.histories import Arm, arm_label, read_run, to_arms
from tests.llm.rows import eval_row, step_row, write_run


def test_an_arm_is_the_mean_of_its_runs(tmp_path: Path) -> None:
    values = ((0.1, 0.2, 0.4), (0.3, 0.6, None), (0.5, 0.7, None))
    runs = [
        read_run(write_run(tmp_path / f"a-seed{seed}", (step_row(step, one) for step, one in enumerate(each))))
        for seed, each in enumerate(values)
    ]
    (arm,) = to_arms(runs)
    curve = arm.steps("pool_reward")
    assert curve.steps.tolist() == [0, 1, 2]
    # The last step has one value, which has no spread.
    np.testing.assert_allclose(curve.mean, [0.3, 0.5, 0.4], rtol=1e-12)
    # Deviations 0.2, 0, 0.2 and 0.3, 0.1, 0.2: standard deviations 0.2 and sqrt(0.14 / 2), over the root of 3.
    np.testing.assert_allclose(curve.error, [0.2 / 3**0.5, (0.07 / 3) ** 0.5, math.nan], rtol=1e-12)
    assert arm.left_out == 0


def test_steps_that_not_every_run_has_are_left_out_and_counted(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a-seed0", [*(step_row(step, 0.5) for step in range(5)), eval_row(0, 0.1)])
    second = write_run(tmp_path / "a-seed1", [*(step_row(step, 0.7) for step in range(1, 3)), eval_row(4, 0.2)])
    (arm,) = to_arms([read_run(first), read_run(second)])
    assert arm.steps("pool_reward").steps.tolist() == [1, 2]
    np.testing.assert_allclose(arm.steps("pool_reward").mean, 0.6, rtol=1e-12)
    assert arm.evals("eval.hard.pass_rate").steps.size == 0
    # Steps 0, 3 and 4 of the first, and an evaluation of each.
    assert arm.left_out == 5


def test_runs_are_smoothed_over_their_latest_steps_before_they_are_averaged(tmp_path: Path) -> None:
    rows = [step_row(step, value) for step, value in enumerate((1.0, 3.0, None, 5.0, 9.0))]
    (arm,) = to_arms([read_run(write_run(tmp_path / "a", rows))])
    np.testing.assert_allclose(arm.steps("pool_reward", 2).mean, [1, 2, 3, 5, 7], rtol=1e-12)
    np.testing.assert_array_equal(arm.steps("pool_reward", 1).mean, [1, 3, math.nan, 5, 9])
    np.testing.assert_allclose(arm.steps("pool_reward", 99).mean, [1, 2, 2, 3, 4.5], rtol=1e-12)
    # A run's first steps count in its mean also where another run lacks them.
    other = read_run(write_run(tmp_path / "b", [step_row(4, 1.0)]), label="a")
    assert Arm("a", [*arm.runs, other]).steps("pool_reward", 2).mean.tolist() == [4.0]


def test_numbers_lie_deep_in_a_row(tmp_path: Path) -> None:
    run = read_run(
        write_run(tmp_path / "a", [step_row(0, 1, time={"total": 2.5}), eval_row(0, 0.25), eval_row(9, 0.5)])
    )
    arm = Arm("a", [run])
    assert arm.steps("time.total").mean.tolist() == [2.5]
    assert arm.evals("eval.hard.pass_rate").mean.tolist() == [0.25, 0.5]
    assert arm.evals("total_tokens").mean.tolist() == [0.0, 900.0]
    assert np.isnan(arm.steps("time.nowhere").mean).all()
    assert np.isnan(arm.steps("pool_reward.deeper").mean).all()


@pytest.mark.parametrize(
    ("folder", "label"),
    [
        ("out/grpo-seed3", "grpo"),
        ("out/grpo_s12", "grpo"),
        ("out/grpo/seed-0", "grpo"),
        ("out/grpo/seed0", "grpo"),
        ("out/grpo-n16", "grpo-n16"),
        ("out/n=4, lr 1e-4.seed.2", "n=4, lr 1e-4"),
        ("out/bayes5", "bayes5"),
        ("out/seeds", "seeds"),
    ],
)
def test_the_seed_is_no_part_of_an_arms_name(folder: str, label: str) -> None:
    assert arm_label(Path(folder)) == label


def test_runs_are_grouped_as_told(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, [step_row(0, 0.5)]) for name in ("a-seed0", "b-seed0", "a-seed1")]
    arms = to_arms([read_run(folder) for folder in folders])
    assert [(arm.label, len(arm.runs)) for arm in arms] == [("a", 2), ("b", 1)]
    arms = to_arms([read_run(folder, group="policy") for folder in folders])
    assert [(arm.label, len(arm.runs)) for arm in arms] == [("grpo n=4", 3)]
    assert [run.label for run in (read_run(folder, group="run") for folder in folders)] == list(map(str, folders))
    assert read_run(folders[0], "mine", "policy").label == "mine"


def test_a_run_without_a_step_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [eval_row(0, 0.5)])
    with pytest.raises(InputError, match="has no row of a training step yet"):
        read_run(folder)
