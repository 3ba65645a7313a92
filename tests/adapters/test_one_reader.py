"""One text, one policy: the simulator, the trainer, the paper's analyses and the adapter read it alike."""

from pathlib import Path

import pytest

from ada_bandit import Policy
from ada_bandit.adapters.trl import AdaptiveGRPOTrainer
from ada_bandit.step_specs import read_step_policy
from tests.adapters import tiny

pytest.importorskip("typer")
pytest.importorskip("pydantic")
pytest.importorskip("polars")

from typer.testing import CliRunner

from llm.config import RunConfig
from paper.laws import policy as read_for_the_paper
from sim.cli import app

RULES = """
from ada_bandit import exit_rule

@exit_rule
def mixed(pos, neg, *, least=1):
    return (pos >= least) & (neg >= least)
"""


@pytest.mark.parametrize(
    "spec", ["reinforce-ada-pos", "reinforce-ada-balance:rounds=2,replace=0.5", "own.toml", "own.py:mixed,rounds=2"]
)
def test_one_text_is_one_policy_everywhere(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(RULES, encoding="utf-8")
    Path("own.toml").write_text(Policy.preset("reinforce-ada-balance", rounds=2).to_toml(), encoding="utf-8")

    config = RunConfig.model_validate({"policy": spec, "model": {"path": "m"}, "task": {"kind": "digits"}})
    trained = read_step_policy(config.policy).policy
    assert isinstance(trained, Policy)
    assert trained == read_for_the_paper(spec)
    trainer = AdaptiveGRPOTrainer(
        tiny.model(),
        lambda completions, **_: [float(len(completion)) for completion in completions],
        args=tiny.config(tmp_path / "out", num_generations=trained.n),
        train_dataset=tiny.prompts(),
        processing_class=tiny.tokenizer(),
        policy=spec,
    )
    assert trainer.policy == trained
    shown = CliRunner().invoke(app, ["show", "--policy", spec, "--table", "draws"], catch_exceptions=False)
    text = shown.stdout.partition("\n\ndraws:")[0]
    # A rule of a file is known to a policy's text by its name alone.
    rules = {trained.rule.name: trained.rule} if spec.startswith("own.py") else None
    simulated = Policy.from_toml(text, rules)  # type: ignore[arg-type]
    assert simulated == trained
    assert simulated.label == trained.label == trainer.policy.label
