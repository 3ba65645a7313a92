"""Policies: presets, plain values, and TOML that is read back unchanged."""

import tomllib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit.advantages import NGRPO, PKPO, Advantage, GroupMean, GroupStd, LeaveOneOut, MaxRL, PoolMean, Unbiased
from ada_bandit.budgets import Budget, Rounds, Stages
from ada_bandit.errors import InputError
from ada_bandit.groups import All, Balanced, GroupRule, Uniform
from ada_bandit.laws import Beta, Grid, Law, Mixture
from ada_bandit.policy import Policy
from ada_bandit.presets import preset_names
from ada_bandit.rules import (
    Balance,
    ConfidenceSequence,
    ExitRule,
    Interval,
    MeanBetween,
    Never,
    Positive,
    Posterior,
    Quota,
    exit_rule,
)


@exit_rule
def margin(
    pos: npt.NDArray[np.int64], neg: npt.NDArray[np.int64], *, by: float = 2, label: str = "", strict: bool = False
) -> npt.NDArray[np.bool_]:
    return abs(pos - neg) > by if strict else abs(pos - neg) >= by


OWN = {"margin": margin}


units = st.floats(0, 1, exclude_min=True, exclude_max=True, allow_subnormal=False)
regions = st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda ends: ends[0] != ends[1])
weights = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)
simple_laws: st.SearchStrategy[Law] = st.one_of(
    st.builds(Beta, st.floats(0.01, 1e6), st.floats(0.01, 1e6)),
    weights.map(lambda values: Grid(np.linspace(0, 1, len(values)), values)),
)
laws: st.SearchStrategy[Law] = st.recursive(
    simple_laws,
    lambda inner: st.lists(st.tuples(inner, st.floats(0.01, 9)), min_size=1, max_size=3).map(
        lambda parts: Mixture(tuple(law for law, _ in parts), tuple(weight for _, weight in parts))
    ),
    max_leaves=4,
)
simple_rules: st.SearchStrategy[ExitRule] = st.one_of(
    st.just(Never()),
    st.builds(Positive, st.integers(1, 99)),
    st.builds(Quota, st.integers(0, 9), st.integers(0, 9)),
    st.builds(Balance, st.integers(1, 64)),
    st.builds(Interval, units, units),
    regions.map(lambda ends: MeanBetween(min(ends), max(ends))),
    st.builds(lambda ends, alpha: ConfidenceSequence(min(ends), max(ends), alpha), regions, units),
    st.builds(
        lambda ends, mass, prior: Posterior(min(ends), max(ends), mass, prior),
        regions,
        st.floats(0.5, 1, exclude_min=True, exclude_max=True),
        laws,
    ),
    st.builds(
        lambda by, label, strict: margin.with_options(by=by, label=label, strict=strict),
        st.one_of(st.integers(), st.floats(allow_nan=False)),
        st.text(),
        st.booleans(),
    ),
)
rules: st.SearchStrategy[ExitRule] = st.recursive(
    simple_rules,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda rule: ~rule),
    ),
    max_leaves=5,
)
budgets: st.SearchStrategy[Budget] = st.one_of(
    st.builds(Rounds, st.integers(1, 64), st.integers(1, 64)),
    st.lists(st.integers(1, 99), min_size=1, max_size=9).map(Stages),
)
groups: st.SearchStrategy[GroupRule] = st.sampled_from([Balanced(), Uniform(), All(), All(at_least=9)])
advantages: st.SearchStrategy[Advantage] = st.one_of(
    st.sampled_from([PoolMean(), GroupMean(), LeaveOneOut()]),
    st.builds(GroupStd, st.floats(0, 1e300)),
    st.builds(MaxRL, st.floats(0, 9), st.floats(0, 1), st.booleans()),
    st.builds(PKPO, st.integers(1, 64)),
    st.just(NGRPO()),
    st.builds(Unbiased, st.floats(0, 1)),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    budget = draw(budgets)
    return Policy(
        rule=draw(rules),
        budget=budget,
        group_size=draw(st.integers(1, budget.max_samples)),
        group=draw(groups),
        advantage=draw(advantages),
        threshold=draw(st.floats(allow_nan=False, allow_infinity=False)),
        name=draw(st.text()),
    )


@given(policy=policies())
def test_toml_is_read_back_unchanged(policy: Policy) -> None:
    text = policy.to_toml()
    copy = Policy.from_toml(text, OWN)
    assert copy == policy
    assert copy.name == policy.name
    assert copy.to_toml() == text
    assert hash(copy) == hash(policy)
    assert Policy.from_dict(policy.to_dict(), OWN) == policy


@pytest.mark.parametrize(
    "name", ['a "quote"', "back\\slash", "tab\tline\nreturn\r\n", "\x00\x1f\x7f\x80", "π 🎲", "é", "'"]
)
def test_any_name_survives_toml(name: str) -> None:
    policy = Policy(Never(), Rounds(4), group_size=2, name=name)
    assert Policy.from_toml(policy.to_toml()).name == name


def test_numbers_of_numpy_survive_toml() -> None:
    rule = Positive(np.int64(2)) | margin.with_options(by=np.float64(0.1), strict=np.True_)  # type: ignore[arg-type]
    policy = Policy(rule, Rounds(np.int32(4)), group_size=np.int64(2), threshold=np.float32(0.25))  # type: ignore[arg-type]
    assert Policy.from_toml(policy.to_toml(), OWN) == policy


def test_toml_as_people_write_it() -> None:
    policy = Policy.from_toml("""
        name = "mine"
        group_size = 4
        group = "uniform"

        [rule]
        name = "any"
        rules = ["never", { name = "all", rules = [{ name = "positive" }, { name = "not", rule = "never" }] }]

        [budget]
        name = "stages"
        sizes = [8, 16]

        [advantage]
        name = "group_std"
        eps = 0
    """)
    expected = Policy(
        Never() | (Positive() & ~Never()), Stages((8, 16)), 4, group=Uniform(), advantage=GroupStd(eps=0), name="mine"
    )
    assert policy == expected
    assert policy.name == expected.name


def test_toml_text_of_a_preset() -> None:
    assert tomllib.loads(Policy.preset("reinforce-ada-pos").to_toml()) == {
        "name": "reinforce-ada-pos",
        "group_size": 4,
        "threshold": 0.5,
        "no_signal": "mask",
        "rule": {"name": "positive", "count": 1},
        "budget": {"name": "rounds", "samples": 8, "rounds": 4},
        "group": {"name": "balanced"},
        "advantage": {"name": "pool_mean"},
    }


def test_presets() -> None:
    plain: dict[str, Any] = {"rule": Never(), "budget": Rounds(4), "group_size": 4, "group": All()}
    assert Policy.preset("grpo") == Policy(**plain, advantage=GroupStd(eps=1e-4))
    assert Policy.preset("dr-grpo") == Policy(**plain, advantage=GroupMean())
    assert Policy.preset("rloo") == Policy(**plain, advantage=LeaveOneOut())
    adaptive: dict[str, Any] = {
        "budget": Rounds(8, 4),
        "group_size": 4,
        "group": Balanced(),
        "advantage": PoolMean(),
    }
    assert Policy.preset("reinforce-ada-pos") == Policy(rule=Positive(1), **adaptive)
    assert Policy.preset("reinforce-ada-balance") == Policy(rule=Balance(4), **adaptive)
    assert preset_names()[:5] == ("grpo", "dr-grpo", "rloo", "reinforce-ada-pos", "reinforce-ada-balance")
    assert all(Policy.preset(name).label == name for name in preset_names())


def test_presets_take_options() -> None:
    policy = Policy.preset("reinforce-ada-balance", group_size=6, samples=16, rounds=2)
    assert policy == Policy(Balance(6), Rounds(16, 2), group_size=6)
    assert policy.label == "reinforce-ada-balance:group_size=6, samples=16, rounds=2"
    assert Policy.preset("grpo", group_size=16).budget == Rounds(16)


def test_parts_by_name_table_or_class() -> None:
    policy = Policy("never", {"name": "rounds", "samples": 4}, 2, "all", LeaveOneOut)  # type: ignore[arg-type]
    assert policy == Policy(Never(), Rounds(4), 2, All(), LeaveOneOut())


def test_defaults() -> None:
    policy = Policy(Balance(4), Rounds(8, 4), group_size=4)
    assert policy == Policy.preset("reinforce-ada-balance")
    assert (policy.group, policy.advantage, policy.threshold, policy.name) == (Balanced(), PoolMean(), 0.5, "")
    assert policy.label == "balance, 8 x 4, n = 4"
    assert Policy(Never(), Stages((2, 5)), group=All()).n == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_size": 33}, "group_size = 33 is larger than the largest possible pool of 32.*at most 32 or a larger"),
        ({"group_size": 33, "group": All()}, "group_size = 33 is larger than the largest possible pool of 32"),
        ({"group_size": 0}, "group_size must be a whole number of at least 1; got 0"),
        ({"group_size": None}, "group_size must be a whole number of at least 1; got None"),
        ({"group_size": True}, "group_size must be a whole number of at least 1; got True"),
        ({"group_size": 4.0}, r"group_size must be a whole number of at least 1; got 4\.0"),
        ({"threshold": float("nan")}, "threshold must be a finite number; got nan"),
        ({"threshold": "half"}, "threshold must be a finite number; got 'half'"),
        ({"threshold": True}, "threshold must be a finite number; got True"),
        ({"name": 3}, "name must be text; got 3"),
        ({"rule": "balanse"}, r"unknown rule 'balanse'; did you mean 'balance'\?"),
        ({"budget": {"name": "rounds", "samples": 8, "round": 4}}, r"'round' of .*; did you mean 'rounds'\?"),
        ({"group": "uniformly"}, r"unknown group rule 'uniformly'; did you mean 'uniform'\?"),
        (
            {"advantage": "grpo"},
            "unknown advantage 'grpo'.*[Kk]nown: advantage_table, calibrated, class_weights, constant_baseline, group_",
        ),
    ],
)
def test_values_that_policies_refuse(changes: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"rule": Balance(4), "budget": Rounds(8, 4), "group_size": 4}
    with pytest.raises(InputError, match=message):
        Policy(**(parts | changes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group_size = 4 5", "this is not valid TOML: .*line 1, column 16"),
        ("grop_size = 4", r"unknown key 'grop_size' of a policy; did you mean 'group_size'\?"),
        ("", "a policy needs a rule; got only an empty table"),
        ('rule = "never"\ngroup_size = 4', "a policy needs a budget; got only rule, group_size"),
        ('rule = 4\nbudget = "rounds"', "the rule must be a name or a table with a name.*got 4"),
        ('rule = "never"\nbudget = [8, 16]', r"the budget must be a name or a table.*got \[8, 16\]"),
        ('rule = {name = ["never"]}\nbudget = "rounds"', r"unknown rule \['never'\]"),
        (
            'rule = "never"\nbudget = {name = "rounds", samples = "8"}\ngroup_size = 4',
            "samples must be a whole number of at least 1; got '8'",
        ),
        (
            'rule = {name = "posterior", low = 0.5, high = 1, prior = {name = "beta", a = 1}}\nbudget = "rounds"',
            r"the law 'beta' needs b; got \{'name': 'beta', 'a': 1\}",
        ),
    ],
)
def test_files_that_hold_no_policy(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Policy.from_toml(text)


def test_a_policy_is_a_table() -> None:
    with pytest.raises(InputError, match=r"a policy is a table of its parts; got \['rule'\]"):
        Policy.from_dict(["rule"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("reinforce-ada-pso", {}, r"unknown preset 'reinforce-ada-pso'; did you mean 'reinforce-ada-pos'\?"),
        ("reinforce-ada-pos", {"sample": 8}, r"option 'sample' of the preset .*; did you mean 'samples'\?"),
        ("grpo", {"rounds": 2}, "unknown option 'rounds' of the preset 'grpo'; known: group_size"),
        ("grpo", {"group_size": 0}, "group_size must be a whole number of at least 1; got 0"),
        ("reinforce-ada-pos", {"samples": 0}, "samples must be a whole number of at least 1; got 0"),
        ("reinforce-ada-seq", {"inverse_rate": "yes"}, "inverse_rate must be true or false; got 'yes'"),
        ("pkpo", {"k": 5}, "k must not exceed group_size.*got k = 5, group_size = 4"),
        ("vip", {"baseline": "mean"}, "unknown baseline 'mean'; known: group_mean, leave_one_out"),
        ("vip", {"baseline": "group_mean", "minimum": 2}, "minimum must be at least 3 under 'vip' with group_mean"),
        ("knapsack", {"average": 1}, "average must lie between minimum or pilot, 2, and maximum, 128; got 1"),
        ("reinforce-ada-balance", {"group_size": 40}, "group_size = 40 is larger than the largest possible pool of 32"),
    ],
)
def test_presets_that_there_are_not(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Policy.preset(name, **options)


def test_what_a_policy_file_can_not_hold() -> None:
    policy = Policy(margin.with_options(by=None), Rounds(4), group_size=2)
    with pytest.raises(InputError, match="a policy file holds numbers, text, booleans, lists and tables; got None"):
        policy.to_toml()
