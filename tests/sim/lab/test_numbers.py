"""The lab's numbers against the library's, over a grid of policies, laws and score models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ada_bandit import Policy, ScoreModel, analyze, gradient_efficiency, induced_objective
from ada_bandit.exact import analyze_law
from ada_bandit.laws import Beta, Law
from ada_bandit.rules import UserRule
from sim.sources import from_name, source_names

Run = Callable[..., Any]

RATES = (0.0, 0.003, 0.1, 0.5, 0.83, 1.0)
AGREE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}
BASE = {
    "rule": "balance",
    "pos": 1,
    "neg": 1,
    "expr": "",
    "m": 8,
    "later": 0,
    "r": 4,
    "n": 4,
    "group": "balanced",
    "adv": "pool_mean",
    "silent": "mask",
}
# Presets of the lab that the library has under the same name, with the same sizes.
SHARED = (
    "reinforce-ada-balance",
    "reinforce-ada-pos",
    "reinforce-ada-seq",
    "speed",
    "aero",
    "pods",
    "grpo",
    "dr-grpo",
    "rloo",
    "raft",
    "maxrl",
    "nsr",
)
# Every rule, group and advantage, and rounds of one and of several sizes.
OWN: tuple[dict[str, Any], ...] = (
    {"rule": "quota", "m": 4, "r": 8},
    {"rule": "quota", "pos": 3, "neg": 1, "n": 6, "adv": "leave_one_out"},
    {"rule": "positive", "pos": 2, "m": 1, "r": 32, "group": "uniform", "adv": "group_std"},
    {"rule": "positive", "m": 2, "later": 5, "r": 6, "n": 7, "group": "uniform", "adv": "unbiased"},
    {"rule": "balance", "n": 5, "adv": "unbiased"},
    {"rule": "balance", "n": 6, "group": "all", "adv": "max_rl_pool"},
    {"rule": "never", "m": 12, "r": 1, "n": 3, "group": "uniform", "adv": "max_rl"},
    {"rule": "screen", "m": 4, "later": 20, "r": 2, "n": 8, "adv": "ngrpo", "silent": "leave_out"},
    {"rule": "balance", "adv": "constant_baseline", "group": "matched", "n": 8},
    {"rule": "positive", "pos": 3, "m": 16, "later": 1, "r": 17, "adv": "group_mean", "n": 2},
    {"rule": "expression", "expr": "pos >= 2 and neg >= 2 or pos + neg >= 24", "m": 1, "r": 32},
    {
        "rule": "expression",
        "expr": "not (abs(pos - 2 * neg) < 3) | max(pos, neg) >= 9",
        "m": 3,
        "r": 9,
        "adv": "positives",
    },
    {"rule": "expression", "expr": "sqrt(pos) * log(neg + 1) > 1.5 & pos / (pos + neg) <= .7", "adv": "negatives"},
    {
        "rule": "expression",
        "expr": "-pos + min(pos, 3) * 2 != neg - 1",
        "m": 5,
        "r": 5,
        "group": "all",
        "adv": "unbiased",
    },
)
MODELS = (
    {"objective": "mean", "k": 8, "nuPos": 1, "nuNeg": 1, "transfer": 1, "updateCost": 0},
    {"objective": "log", "k": 8, "nuPos": 0, "nuNeg": 0.65, "transfer": 0, "updateCost": 2.5},
    {"objective": "pass", "k": 5, "nuPos": 11.5, "nuNeg": 12, "transfer": 0.3, "updateCost": 0.5},
)
LAWS = ("Beta(1, 1)", "Beta(0.05, 4)", "Beta(7, 0.6)", *source_names())


def law_of(name: str) -> Law:
    """Return a law by the name it has in a test."""
    if name.startswith("Beta"):
        a, b = name[5:-1].split(",")
        return Beta(float(a), float(b))
    return from_name(name).law


def model_of(model: dict[str, Any]) -> ScoreModel:
    """Return the library's score model for the lab's."""
    return ScoreModel(
        noise_ratio=(model["nuPos"], model["nuNeg"]),
        objective=f"pass@{model['k']}" if model["objective"] == "pass" else model["objective"],
        update_cost=model["updateCost"],
        transfer=model["transfer"],
    )


def pasted(run: Run, policy: dict[str, Any]) -> Policy:
    """Return the policy that the lab's Python text makes."""
    names: dict[str, Any] = {}
    exec(run("python", policy), names)  # noqa: S102 - the text is what a user runs
    made = names["policy"]
    assert isinstance(made, Policy)
    return made


@pytest.mark.parametrize("law_name", LAWS)
def test_agreement_with_the_library(run: Run, law_name: str) -> None:
    law = law_of(law_name)
    presets = {each["name"]: each["policy"] for each in run("(() => PRESETS)")}
    grid = [(Policy.preset(name), presets[name]) for name in SHARED]
    grid += [(pasted(run, BASE | own), BASE | own) for own in OWN]
    for policy, plain in grid:
        exact, at = analyze_law(policy, law), analyze(policy, RATES)
        for model in MODELS:
            ours = run("numbers", plain, law.to_dict(), model, RATES)
            sums, where = ours["sums"], f"{plain} on {law_name}"
            for key, field in (
                ("samples", "expected_samples"),
                ("rounds", "expected_rounds"),
                ("signal", "signal_probability"),
                ("resolved", "resolved_probability"),
                ("bias", "pool_mean_bias"),
            ):
                np.testing.assert_allclose(sums[key], exact[field], **AGREE, err_msg=f"{key}: {where}")
                np.testing.assert_allclose(ours["at"][key], getattr(at, field), **AGREE, err_msg=f"{key}: {where}")
            np.testing.assert_allclose(ours["at"]["weight"], at.gradient_weight, **AGREE, err_msg=f"w: {where}")
            np.testing.assert_allclose(
                ours["at"]["objective"], induced_objective(policy, RATES), **AGREE, err_msg=f"F: {where}"
            )
            efficiency = gradient_efficiency(policy, law, model_of(model))
            for own, theirs in (
                (sums["progress"], efficiency.progress),
                (sums["noise"], efficiency.noise),
                (sums["samples"] + model["updateCost"] * sums["kept"], efficiency.cost),
                (ours["efficiency"], efficiency.value),
            ):
                np.testing.assert_allclose(own, theirs, **AGREE, err_msg=where)


@pytest.mark.parametrize("law_name", ["Beta(1, 1)", "smollm2-reasoning-gym"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["objective"]))
def test_grpo_at_the_same_cost_is_a_mixture_of_two_group_sizes(run: Run, law_name: str, model: dict[str, Any]) -> None:
    law = law_of(law_name)
    ours = run("numbers", BASE, law.to_dict(), model, RATES)
    samples = analyze_law(Policy.preset("reinforce-ada-balance"), law)["expected_samples"]
    low = int(samples)
    chances = (low + 1 - samples, samples - low)
    policies = [Policy.preset("grpo", group_size=size) for size in (low, low + 1)]
    signal = sum(c * analyze_law(p, law)["signal_probability"] for c, p in zip(chances, policies, strict=True))
    parts = [gradient_efficiency(p, law, model_of(model)) for p in policies]
    progress, noise, cost = (
        sum(c * getattr(part, field) for c, part in zip(chances, parts, strict=True))
        for field in ("progress", "noise", "cost")
    )
    np.testing.assert_allclose(ours["grpo"]["samples"], samples, **AGREE)
    np.testing.assert_allclose(ours["grpo"]["signal"], signal, **AGREE)
    np.testing.assert_allclose(ours["grpoEfficiency"], progress**2 / (noise * cost), **AGREE)


@pytest.mark.parametrize("p", [0.0, 0.04, 0.5, 1.0])
@pytest.mark.parametrize("own", [{}, {"rule": "positive", "m": 1, "r": 30}, {"rule": "screen", "later": 16, "r": 2}])
def test_exit_law(run: Run, own: dict[str, Any], p: float) -> None:
    law = analyze(pasted(run, BASE | own), p).exit_law
    ours = {(pos, neg): chance for pos, neg, chance in run("exitLaw", BASE | own, p)}
    assert ours.keys() == law.keys()
    for cell, chance in law.items():
        np.testing.assert_allclose(ours[cell], chance, **AGREE)
    assert sum(ours.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", SHARED)
def test_presets_have_the_tables_of_the_library(run: Run, name: str) -> None:
    plain = next(each["policy"] for each in run("(() => PRESETS)") if each["name"] == name)
    policy = Policy.preset(name)
    tables, ours = policy.tables, run("allTables", plain)
    exits = tables.exits
    np.testing.assert_array_equal(np.array(ours["exits"]) > 0, exits)
    reached = tables.reach > 0
    np.testing.assert_array_equal(np.array(ours["draws"])[reached], tables.draws[reached])
    for own, theirs in (
        ("keepPos", tables.mean_keep_pos),
        ("keepNeg", tables.mean_keep_neg),
        ("gainPos", tables.gain_pos),
        ("gainNeg", tables.gain_neg),
    ):
        np.testing.assert_allclose(np.array(ours[own])[exits], theirs[exits], rtol=1e-12, atol=1e-12)
    made = pasted(run, plain)
    assert (made.n, made.no_signal) == (policy.n, policy.no_signal)


@pytest.mark.parametrize("own", [{}, *OWN], ids=str)
def test_what_to_paste_is_the_same_policy_in_every_form(run: Run, own: dict[str, Any]) -> None:
    plain = BASE | own
    policy = pasted(run, plain)
    rules = {"my_rule": policy.rule} if isinstance(policy.rule, UserRule) else None
    assert Policy.from_toml(run("toml", plain), rules) == policy
    trl = run("trl", plain)
    assert "policy=policy)" in trl
    compile(trl, "trl", "exec")
    assert run("python", plain) in trl


def test_unbiased_weights_climb_the_pass_rate_itself(run: Run) -> None:
    # w(p) = 1 whatever the rule (Girshick, Mosteller and Savage 1946), so F(p) = p.
    plain = BASE | {"rule": "quota", "m": 2, "r": 10, "group": "all", "adv": "unbiased"}
    at = run("numbers", plain, Beta(1, 1).to_dict(), MODELS[0], RATES)["at"]
    np.testing.assert_allclose(at["weight"], 1, rtol=1e-11)
    np.testing.assert_allclose(at["objective"], RATES, rtol=1e-11)
