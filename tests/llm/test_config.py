from __future__ import annotations

from pathlib import Path

import pytest

from ada_bandit.errors import InputError
from llm.config import RunConfig, parse_changes, read_config
from llm.logs import to_toml

CONFIGS = Path(__file__).parents[2] / "llm" / "configs"
LEAST = '[model]\npath = "models/x"\n[task]\nkind = "digits"\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "run.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_defaults_are_the_settings_of_the_paper(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, LEAST))
    train = config.train
    assert (train.prompts, train.mini_batch, train.steps, train.warmup_steps) == (512, 128, 600, 10)
    assert (train.learning_rate, train.clip_low, train.clip_high, train.entropy) == (1e-6, 0.2, 0.28, 1e-4)
    assert (config.policy, config.sampler.temperature) == ("reinforce-ada-balance", 1.0)


def test_all_mistakes_are_told_at_once_with_their_remedy(tmp_path: Path) -> None:
    text = '[model]\npth = "x"\n[task]\nkind = "jsonl"\n[train]\nstepz = 3\nprompts = 0\n'
    with pytest.raises(InputError) as caught:
        read_config(write(tmp_path, text))
    message = str(caught.value)
    assert "unknown key 'model.pth'; did you mean 'model.path'?" in message
    assert "model.path is missing" in message
    assert "a task of kind 'jsonl' needs file" in message
    assert "unknown key 'train.stepz'; did you mean 'train.steps'?" in message
    assert "train.prompts = 0" in message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[train]\nmini_batch = 600\n", "mini_batch 600 is more than the 512 prompts"),
        ("[train]\ndual_clip = 0.5\n", "dual_clip must be above 1, or 0 for none; got 0.5"),
        ('[eval.tasks.pool]\nkind = "digits"\n', "the name 'pool'"),
        ("[sampler]\ntemperature = 0\n", "sampler.temperature = 0"),
        ('[sampler]\nkind = "sglang"\n', "sampler.kind = 'sglang'"),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(write(tmp_path, LEAST + more))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("min_pass_rate = 0.5\n", "needs rollouts"),
        ('rollouts = "x"\nmin_pass_rate = 0.5\nmax_pass_rate = 0.1\n', "0.5 is above max_pass_rate 0.1"),
        ('instruction = "Say it."\n', "must hold {prompt}"),
    ],
)
def test_tasks_that_cannot_be(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(write(tmp_path, LEAST + more))


def test_changes_by_dotted_name(tmp_path: Path) -> None:
    changes = parse_changes(["train.steps=7", "policy=grpo", "model.path = y", "task.families={add={weight=1}}"])
    config = read_config(write(tmp_path, LEAST), changes)
    assert (config.train.steps, config.policy, config.model.path) == (7, "grpo", "y")
    assert config.task.families == {"add": {"weight": 1}}
    with pytest.raises(InputError, match="must be KEY=VALUE"):
        parse_changes(["train.steps"])
    with pytest.raises(InputError, match="'policy' is a value, no section"):
        read_config(write(tmp_path, 'policy = "grpo"\n' + LEAST), {"policy.preset": "grpo"})


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not exist; ready ones lie in llm/configs: .*tiny-add"):
        read_config(tmp_path / "nowhere.toml")
    with pytest.raises(InputError, match="can't be read"):
        read_config(write(tmp_path, "[model"))


def test_known_keys_are_listed_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_config(write(tmp_path, "zzz = 1\nyyy = 2\n" + LEAST))
    message = str(caught.value)
    assert "unknown key 'zzz'\n" in message
    assert "unknown key 'yyy'\n" in message
    assert message.count("sampler.memory_share") == 1


def test_an_experiment_is_no_run() -> None:
    with pytest.raises(InputError, match="is the config of an experiment, not of a run: 'python -m llm experiment'"):
        read_config(CONFIGS / "train-demo.toml")


@pytest.mark.parametrize("name", ["paper-1.5b", "paper-1.5b-hard", "tiny-add", "smollm2"])
def test_ready_files_can_be_read_and_written_back(name: str, tmp_path: Path) -> None:
    config = read_config(CONFIGS / f"{name}.toml")
    assert read_config(write(tmp_path, to_toml(config.model_dump()))) == config


def test_the_files_of_the_paper_hold_its_settings_and_differ_in_their_prompts_alone() -> None:
    plain, hard = (read_config(CONFIGS / f"paper-1.5b{each}.toml") for each in ("", "-hard"))
    assert plain.train == hard.train == RunConfig.model_validate({"model": plain.model, "task": plain.task}).train
    assert (plain.task.min_pass_rate, plain.task.max_pass_rate) == (1 / 16, 1.0)
    assert (hard.task.min_pass_rate, hard.task.max_pass_rate) == (1 / 16, 2 / 16)
