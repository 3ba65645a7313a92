"""What the adapter refuses, and how it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ada_bandit import Policy
from ada_bandit.adapters.verl import VerlSurfaceError, check_verl, policy_advantage
from ada_bandit.adapters.verl._options import check_config, read_options, steps_of
from ada_bandit.adapters.verl._surface import _METHODS
from ada_bandit.errors import InputError, ProtocolError
from ada_bandit.policy import Blend
from tests.adapters_verl import fakes


def check(made: Any, *, has_reward_workers: bool = True) -> None:
    options = read_options(made)
    check_config(made, steps_of(made, options), has_reward_workers=has_reward_workers)


def test_the_config_of_the_tests_is_accepted(folder: Path) -> None:
    check(fakes.config(folder))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("+ada.polcy=grpo",), "unknown option 'polcy' of ada"),
        (("+ada.mask_truncated_completions=maybe",), "true or false; got 'maybe'"),
        (("+ada.no_signal=masc",), r"unknown value 'masc' of ada\.no_signal.*mask"),
        (("+ada.seed=-1",), "whole number of at least 0; got -1"),
        (("+ada.reward_timeout=soon",), "a number of at least 0; got 'soon'"),
        (("+ada.memory=true",), r"got ada.memory and no ada.memory_key. Add \+ada.memory_key=index"),
        (("+ada.memory_key=index",), r"got ada.memory_key and no ada.memory. Add \+ada.memory=true"),
        (("+ada.memory=true", "+ada.memory_key=index"), "trainer.checkpoint_callback_class=ada_bandit"),
        (("actor_rollout_ref.rollout.n=8", "ada.policy=tests/none.toml"), "does not exist"),
        (("ada.policy=reinforce-ada-blance",), "reinforce-ada-balance"),
        (("algorithm.adv_estimator=grpo",), "set algorithm.adv_estimator=ada_bandit"),
        (("trainer.v1.sampler.custom_sampler.name=null",), "custom_sampler.name=AdaptiveReplayBuffer"),
        (("trainer.v1.trainer_mode=separate_async",), "custom_sampler.name=AdaptiveReplayBufferAsync"),
        (("actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",), "rows it pads with"),
        (('ada.policy="empirical-bayes:noise_ratio=5"',), "trainer.checkpoint_callback_class=ada_bandit"),
        (('ada.policy="empirical-bayes:noise_rato=5"',), "noise_ratio"),
        (("algorithm.use_kl_in_reward=true",), "use_kl_loss=true"),
        (("algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"), "no_signal=leave_out"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_with_the_remedy(
    folder: Path, overrides: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        check(fakes.config(folder, *overrides))


def test_a_colocated_reward_model_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="scores responses after sampling has ended"):
        check(fakes.config(folder), has_reward_workers=False)


def test_a_config_without_a_policy_is_refused() -> None:
    with pytest.raises(InputError, match=r"\+ada.policy=reinforce-ada-balance"):
        read_options({})


def test_a_group_size_other_than_verls_is_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(Policy.preset("reinforce-ada-balance", group_size=8, samples=8).to_toml(), encoding="utf-8")
    with pytest.raises(InputError, match=r"set actor_rollout_ref\.rollout\.n=8 or group_size=4"):
        check(fakes.config(folder, policy=str(file)))


def test_a_policy_has_its_options_and_the_config_may_say_what_silent_groups_become(folder: Path) -> None:
    def read(*overrides: str, policy: str) -> Any:
        made = fakes.config(folder, *overrides, policy=policy)
        return steps_of(made, read_options(made)).policy

    policy = read(policy='"grpo:replace=0.5"')
    assert policy == Policy.preset("grpo", group_size=4, replace=0.5)
    assert policy.no_signal == "mask"
    assert read("+ada.no_signal=keep", policy="grpo").no_signal == "keep"
    assert read("+ada.no_signal=null", policy="dapo").no_signal == "leave_out"


def test_a_blend_has_the_size_of_its_parts(folder: Path, tmp_path: Path) -> None:
    low, high = (Policy.preset("reinforce-ada-pos", group_size=4, rounds=rounds) for rounds in (2, 4))
    high = replace(high, budget=low.budget, rule="never")  # type: ignore[arg-type]
    file = tmp_path / "blend.toml"
    file.write_text(Blend(low, high, 0.25).to_toml(), encoding="utf-8")
    made = fakes.config(folder, "+ada.no_signal=leave_out", policy=str(file))
    policy = steps_of(made, read_options(made)).policy
    assert [(chance, part.no_signal) for chance, part in policy.parts] == [(0.75, "leave_out"), (0.25, "leave_out")]


def test_the_installed_verl_has_what_is_needed() -> None:
    check_verl()


def test_a_change_of_verl_is_named() -> None:
    class Changed:
        def _run_prompt(self, prompt: Any, params: Any) -> None: ...

    owner, _, methods = _METHODS[0]
    with pytest.raises(
        VerlSurfaceError, match=r"parameter 'sampling_params' of AgentLoopWorkerTQ\._run_prompt"
    ) as caught:
        check_verl("0.9.1", ((owner, Changed, methods), *_METHODS[1:]))
    assert "AgentLoopWorkerTQ._compute_score()" in str(caught.value)
    with pytest.raises(VerlSurfaceError, match="the class under AgentLoopWorkerTQ"):
        check_verl("0.9.1", ((owner, None, methods),))


@pytest.mark.parametrize("version", ["0.8.0", "0.10.0", "1.0.0"])
def test_versions_that_were_not_tested_are_refused(version: str) -> None:
    with pytest.raises(VerlSurfaceError, match=f"got {version}"):
        check_verl(version)


def test_the_estimator_refuses_rows_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    import ada_bandit.adapters.verl._trainer as module

    mask = torch.ones((1, 2))
    monkeypatch.setattr(module, "_running", [])
    with pytest.raises(ProtocolError, match="AdaptiveAgentLoopManager"):
        policy_advantage(mask, mask, ["a_0"])
    monkeypatch.setattr(module, "_running", [SimpleNamespace(advantages={"a_0": 0.5})])
    assert policy_advantage(mask, mask, ["a_0"])[0].tolist() == [[0.5, 0.5]]
    assert policy_advantage(mask, mask, ["pad0"])[0].tolist() == [[0.0, 0.0]]
    with pytest.raises(ProtocolError, match="a_1"):
        policy_advantage(mask, mask, ["a_1"])
