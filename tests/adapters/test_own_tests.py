"""The runner of TRL's own tests, on a file that stands in for theirs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.trl_own_tests import verdict

ROOT = Path(__file__).parents[2]
POLICY = ("--policy", "reinforce-ada-balance")
FAKE = """
from trl import GRPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer as Same
from tests.adapters import tiny


class TestTrainer:
    def build(self, folder, **keywords):
        options = tiny.config(folder, scale_rewards="group")
        return GRPOTrainer(
            tiny.model(), tiny.Seen(), options, tiny.prompts(), processing_class=tiny.tokenizer(), **keywords
        )

    def test_trains(self, tmp_path):
        self.build(tmp_path).train()

    def test_with_a_rollout_function(self, tmp_path):
        self.build(tmp_path, rollout_func=lambda prompts, trainer: {})

    def test_of_nothing(self):
        assert GRPOTrainer is Same
        assert object.__new__(GRPOTrainer) is not None

    def test_that_fails_anyway(self):
        raise ValueError("theirs")
"""


def test_the_differences_are_explained(tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "test_fake.py").write_text(FAKE, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "bench.trl_own_tests",
            str(tmp_path / "checkout"),
            "--tests",
            "test_fake.py",
            *POLICY,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("reinforce-ada-balance: 4 tests")
    assert "1  passes, trains nothing" in done.stdout
    assert "1  passes, trains otherwise" in done.stdout
    assert "TestTrainer::test_that_fails_anyway: not passed by TRL's own trainer (failed)" in done.stdout
    assert "TestTrainer::test_with_a_rollout_function: refused: InputError: rollout_func" in done.stdout


def test_a_failure_that_is_no_refusal_is_called_one() -> None:
    passed: dict[str, Any] = {"outcome": "passed", "reason": "", "runs": []}
    failed = {"outcome": "failed", "reason": "IndexError: list index out of range", "runs": []}
    assert verdict(passed, failed) == "FAILS: IndexError: list index out of range"
    assert verdict(failed, passed).startswith("not passed by TRL")
    runs = [{"logs": [{"loss": 0.5}], "parameters": 1.0}]
    assert verdict(passed | {"runs": runs}, passed | {"runs": runs}) == "passes, logs and parameters to the bit"
