"""Policies as the command line names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ada_bandit import Balance, Policy, Rounds
from ada_bandit.errors import InputError
from ada_bandit.rule_files import load_rules
from ada_bandit.specs import read_policies, read_policy

RULES = """
from __future__ import annotations
from dataclasses import dataclass
from ada_bandit import exit_rule

@dataclass
class Unrelated:
    size: int = 1

print("a rule may print")

@exit_rule
def streak(pos, neg, *, length=6, strict=False):
    return (pos > length if strict else pos >= length) | (neg >= length)
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    return path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_preset() -> None:
    assert read_policy("grpo") == Policy.preset("grpo")


def test_preset_with_options() -> None:
    policy = read_policy("reinforce-ada-balance:rounds=8, samples=4")
    assert policy == Policy(rule=Balance(4), budget=Rounds(4, 8), group_size=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grop", r"unknown policy 'grop'; did you mean 'grpo'\? Give a preset \(grpo, dr-grpo"),
        ("zzzz", "unknown policy 'zzzz'; give a preset"),
        ("nope.toml", "policy file 'nope.toml' does not exist; give an existing file or a preset: grpo, dr-grpo"),
        ("grpo:", "written NAME:key=value,key=value; got 'grpo:'"),
        ("grpo:group_size", "written NAME:key=value"),
        ("grpo:group_size=4,group_size=8", "'group_size' is given twice"),
        ("grpo:group_size=four", "the option 'group_size' of a preset is a whole number; got 'four'"),
        ("grpo:groupsize=4", "'groupsize' of the preset 'grpo'; did you mean 'group_size'"),
        ("grpo:group_size=0", "group_size must be a whole number of at least 1; got 0"),
        ("reinforce-ada-pos:rounds=0", "rounds must be a whole number of at least 1; got 0"),
        ("reinforce-ada-pos:group_size=33", "group_size = 33 is larger than the largest possible pool of 32"),
    ],
)
def test_unusable_text(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_policy(text)


def test_toml_round_trip_and_name(tmp_path: Path) -> None:
    policy = Policy(rule=Balance(4), budget=Rounds(8, 4), group_size=4)
    path = write(tmp_path, "mine.toml", policy.to_toml())
    assert read_policy(str(path)) == policy
    assert read_policy(str(path)).label == "mine"
    named = write(tmp_path, "named.toml", Policy.preset("grpo").to_toml())
    assert read_policy(str(named)).label == "grpo"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = [", "faulty.toml': this is not valid TOML"),
        ("group_sizes = 4", "unknown key 'group_sizes' of a policy; did you mean 'group_size'"),
        ('rule = "positive"', "a policy needs a budget"),
        ('rule = "os.system"\nbudget = {name = "rounds", samples = 2}', "unknown rule 'os.system'.*needs --rules"),
    ],
)
def test_faulty_toml(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_policy(str(write(tmp_path, "faulty.toml", text)))


def test_folder_is_no_policy(tmp_path: Path) -> None:
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_policy(str(folder))


def test_users_rule_by_name_and_in_toml(tmp_path: Path, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml = write(
        tmp_path, "mine.toml", 'rule = {name = "streak", length = 2}\nbudget = {name = "rounds", samples = 3}\n'
        "group_size = 3\n",
    )  # fmt: skip
    plain, strict, mine = read_policies(["streak", "streak:length=2,strict=true", str(toml)], [rules])
    assert (plain.budget, plain.n, plain.label) == (Rounds(8, 4), 4, "streak")
    assert plain.to_dict()["rule"] == {"name": "streak"}
    assert strict.to_dict()["rule"] == {"name": "streak", "length": 2, "strict": True}
    assert mine.to_dict()["rule"] == {"name": "streak", "length": 2}
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "__pycache__").exists()


def test_option_that_a_users_rule_lacks(rules: Path) -> None:
    with pytest.raises(InputError, match="'lenght' of the rule 'streak'; did you mean 'length'"):
        read_policies(["streak:lenght=2"], [rules])
    with pytest.raises(InputError, match="the exit rule 'streak' raised"):
        read_policies(["streak:length=text"], [rules])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = 1\n\nx / 0\n", "raised ZeroDivisionError on line 3: division by zero"),
        ("def f(:\n", "raised SyntaxError on line 1"),
        ("raise SystemExit(1)\n", "raised SystemExit on line 1: 1"),
        ("import no_such_module_here\n", "raised ModuleNotFoundError on line 1: No module named"),
        ("x = 1\n", "defines no exit rule"),
        (
            "from ada_bandit import exit_rule\n@exit_rule\ndef positive(pos, neg):\n    return pos > 1\n",
            "can't be used: 'positive' is a built-in rule",
        ),
    ],
)
def test_faulty_rules_file(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_rules([write(tmp_path, "faulty.py", body)])


def test_rules_files_that_are_missing_or_collide(tmp_path: Path, rules: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.py' does not exist"):
        load_rules([tmp_path / "nope.py"])
    other = write(tmp_path, "other.py", RULES + "# another file\n")
    with pytest.raises(InputError, match="has the name of a rule of another file"):
        load_rules([rules, other])


def test_a_rule_of_the_name_of_a_preset_would_never_be_read(tmp_path: Path) -> None:
    text = "from ada_bandit import exit_rule\n@exit_rule\ndef rloo(pos, neg):\n    return pos > 1\n"
    with pytest.raises(InputError, match="the rule 'rloo' has the name of a preset; give the function another name"):
        read_policies(["grpo"], [write(tmp_path, "own.py", text)])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("True", r"policy 'own': the exit rule 'own' returned shape \(\)"),
        ("pos + neg", "returned int64 values; it must return booleans"),
        ("pos > 1 and neg > 1", "the exit rule '.*' raised ValueError: The truth value .* with & | ~"),
        ("undefined_name", "the exit rule '.*' raised NameError"),
    ],
)
def test_faulty_rule(tmp_path: Path, body: str, message: str) -> None:
    text = f"from ada_bandit import exit_rule\n@exit_rule\ndef own(pos, neg):\n    return {body}\n"
    with pytest.raises(InputError, match=message):
        read_policies(["own"], [write(tmp_path, "own.py", text)])
