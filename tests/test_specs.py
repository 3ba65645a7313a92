"""The one reader of policies, and what it says of those it can't read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ada_bandit import EmpiricalBayes, PassRateMemory, Policy, Rounds
from ada_bandit.errors import InputError
from ada_bandit.policy import Blend
from ada_bandit.presets import PRESETS
from ada_bandit.rule_files import load_rules
from ada_bandit.rules import Positive, UserRule
from ada_bandit.specs import read_policies, read_policy, save_policy
from ada_bandit.step_specs import read_step_policy
from ada_bandit.steps import FixedPolicy

RULES = """
from ada_bandit import exit_rule

@exit_rule
def mixed(pos, neg, *, least=1):
    return (pos >= least) & (neg >= least)

@exit_rule
def any_three(pos, neg):
    return pos + neg >= 3
"""


def single(spec: Any, rules: Mapping[str, UserRule] | None = None, group_size: int | None = None) -> Policy:
    """Read a policy that is no blend."""
    policy = read_policy(spec, rules, group_size)
    assert isinstance(policy, Policy)
    return policy


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "my_rules.py"
    file.write_text(RULES, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_by_name(name: str) -> None:
    assert single(name) == Policy.preset(name)
    assert single({"preset": name}) == Policy.preset(name)
    assert single(name).label == name


def test_options_of_a_preset() -> None:
    policy = single("reinforce-ada-pos:samples=4,rounds=2,group_size=8")
    assert policy == Policy(Positive(1), Rounds(4, 2), 8)
    assert policy == single({"preset": "reinforce-ada-pos", "samples": 4, "rounds": 2, "group_size": 8})
    assert single("reinforce-ada-seq:inverse_rate=true").advantage.name == "max_rl"


def test_the_group_size_of_a_trainer_is_taken_where_none_is_stated(rules: Path) -> None:
    assert single("grpo", group_size=16).n == 16
    assert single("grpo", group_size=16).label == "grpo"
    assert single("grpo:group_size=2", group_size=16).n == 2
    assert single(f"{rules}:mixed", group_size=8).n == 8
    # SPEED keeps whole pools: its sizes are its own.
    assert single("speed", group_size=16).n == 24


def test_a_policy_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(Policy(Positive(2), Rounds(4, 4), 4).to_toml(), encoding="utf-8")
    for spec in (str(file), file, {"file": str(file)}):
        policy = single(spec)
        assert policy == Policy(Positive(2), Rounds(4, 4), 4)
        assert policy.label == "own"


def test_a_rule_of_a_python_file(rules: Path) -> None:
    policy = single(f"{rules}:mixed")
    assert (policy.budget, policy.n, policy.label) == (Rounds(8, 4), 4, "mixed")
    assert policy.tables.resolved[1, 1]
    other = single(f"{rules}:mixed,least=2,rounds=2,samples=16")
    assert other.budget == Rounds(16, 2)
    assert not other.tables.resolved[1, 1]
    assert other.tables.resolved[2, 2]
    known = load_rules([rules])
    assert single("mixed:least=2,rounds=2,samples=16", known) == other
    assert read_policies(["mixed", "any_three"], [rules])[0] == policy


def test_a_policy_file_may_name_a_rule_that_was_loaded(rules: Path, tmp_path: Path) -> None:
    known = load_rules([rules])
    policy = Policy(known["mixed"].with_options(least=3) | ~known["any_three"], Rounds(2, 4), 4)
    file = tmp_path / "own.toml"
    file.write_text(policy.to_toml(), encoding="utf-8")
    assert single(file, known) == policy
    with pytest.raises(InputError, match="a rule of your own needs --rules"):
        single(file)


def test_what_a_run_is_driven_by() -> None:
    memory = PassRateMemory()
    fixed = read_step_policy("dapo:wanted=4", memory)
    assert isinstance(fixed, FixedPolicy)
    assert (fixed.policy.label, fixed.memory) == ("dapo:wanted=4", memory)
    for spec in (
        "empirical-bayes:noise_ratio=10,samples=4,max_samples=16",
        {"empirical_bayes": {"noise_ratio": 10, "samples": 4, "max_samples": 16}},
    ):
        learned = read_step_policy(spec, memory, group_size=4)
        assert isinstance(learned, EmpiricalBayes)
        assert learned.memory is memory
        assert learned.model.noise == (10.0, 10.0)
        assert (learned.policy.n, learned.policy.budget) == (4, Rounds(4, 4))
        assert read_step_policy(learned) is learned
    pair = read_step_policy({"empirical_bayes": {"noise_ratio": [0.0, 0.6], "prior": {"name": "beta", "a": 1, "b": 3}}})
    assert isinstance(pair, EmpiricalBayes)
    assert pair.model.noise == (0.0, 0.6)
    assert pair.prior.mean == 0.25


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("reinforce-ada-ballance", r"unknown policy 'reinforce-ada-ballance'; did you mean 'reinforce-ada-balance'\?"),
        ("grpo:grup_size=4", r"unknown option 'grup_size' of the preset 'grpo'; did you mean 'group_size'\?"),
        ("grpo:group_size", r"options are written NAME:key=value,key=value; got 'grpo:group_size'"),
        ("grpo:", r"options are written NAME:key=value"),
        ("grpo:group_size=4,group_size=8", r"the option 'group_size' is given twice"),
        ("grpo:group_size=four", r"the option 'group_size' of a preset is a whole number; got 'four'"),
        ("nowhere.toml", r"the policy file 'nowhere.toml' does not exist"),
        ("nowhere.py", r"the rules file 'nowhere.py' does not exist"),
        ({"preset": "grpo", "size": 4}, r"unknown option 'size' of the preset 'grpo'"),
        ({"file": "a.toml", "n": 3}, r"takes no other key; got \['file', 'n'\]"),
        ({"rule": "positive"}, r"a policy needs a budget"),
        (7, r"a policy is named by text, a path or a table, or is a Policy; got 7"),
    ],
)
def test_what_names_no_policy(spec: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_policy(spec)  # type: ignore[arg-type]


def test_mistakes_in_rules_files(rules: Path, tmp_path: Path) -> None:
    for spec, message in {
        f"{rules}": "has the rules mixed, any_three; say which one, as in .*:mixed",
        f"{rules}:mixd": "unknown rule 'mixd' of .*; did you mean 'mixed'",
        f"{rules}:mixed,leest=2": "unknown option 'leest' of the rule 'mixed'; did you mean 'least'",
        f"{rules}:mixed,least": "options are written",
    }.items():
        with pytest.raises(InputError, match=message):
            single(spec)
    other = tmp_path / "other.py"
    other.write_text(RULES.replace("least=1", "least=2"), encoding="utf-8")
    with pytest.raises(InputError, match=r"the rule 'mixed' of .*other.py' has the name of a rule of another file"):
        load_rules([rules, other])
    for text, message in {
        "x = 1\n": "defines no exit rule",
        "x = 1 +\n": "raised SyntaxError on line 1",
        "def f():\n    raise KeyError('a')\nf()\n": "raised KeyError on line 2: 'a'",
        "raise SystemExit(3)\n": "raised SystemExit on line 1: 3",
    }.items():
        other.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            load_rules([other])


def test_a_faulty_rule_is_told_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(RULES.replace("(pos >= least) & (neg >= least)", "pos >= 1 and neg >= 1"))
    with pytest.raises(
        InputError, match=r"the exit rule '.*' raised ValueError: .*write it elementwise in \(pos, neg\)"
    ):
        single(f"{file}:mixed")


def test_options_of_a_learned_policy_are_checked() -> None:
    with pytest.raises(InputError, match="unknown option 'noise' of empirical-bayes; did you mean 'noise_ratio'"):
        read_step_policy("empirical-bayes:noise=3")
    with pytest.raises(InputError, match="takes a table of options and no other key"):
        read_step_policy({"empirical_bayes": {}, "threshold": 0.5})
    with pytest.raises(InputError, match="EmpiricalBayes has a memory of its own"):
        read_step_policy(EmpiricalBayes(), PassRateMemory())


def test_a_policy_is_saved_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for policy in (
        Policy.preset("reinforce-ada-balance"),
        Blend(Policy.preset("grpo"), Policy.preset("grpo", threshold=0.5), 0.25),
    ):
        save_policy(policy, "~/mine.toml")
        assert read_policy(tmp_path / "mine.toml") == read_policy("~/mine.toml") == policy
    with pytest.raises(InputError, match=r"got the file 'mine\.json'\. Give a name that ends in \.toml"):
        save_policy(Policy.preset("grpo"), "mine.json")
    with pytest.raises(InputError, match="can't be written: No such file or directory"):
        save_policy(Policy.preset("grpo"), tmp_path / "nowhere" / "mine.toml")
