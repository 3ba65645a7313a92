"""A plugin of pytest: TRL's own tests with the adapter in place of ``GRPOTrainer`` (`bench.trl_own_tests`).

``ADA_POLICY`` names the policy, and nothing but recording happens where it is empty; ``ADA_RECORD`` is the file of
results.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trl
import trl.trainer.grpo_trainer
from trl import GRPOTrainer

from ada_bandit.adapters.trl import AdaptiveGRPOTrainer

_TIMES = ("_runtime", "_per_second", "step_time", "profiling/")
_found: dict[str, dict[str, Any]] = {}
_now: list[str] = []


class _Recording:
    """Notes what a run has logged, and the sum of its parameters."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        output = super().train(*args, **kwargs)  # type: ignore[misc]
        logs = [
            {
                key: value
                for key, value in entry.items()
                if not key.startswith(("ada/", "eval_ada/")) and not any(part in key for part in _TIMES)
            }
            for entry in self.state.log_history  # type: ignore[attr-defined]
        ]
        total = sum(float(p.detach().double().sum()) for p in vars(self)["model"].parameters())
        _found[_now[-1]]["runs"].append({"logs": logs, "parameters": total})
        return output


class _Stock(_Recording, GRPOTrainer):  # type: ignore[misc, unused-ignore]
    pass


class _Adaptive(_Recording, AdaptiveGRPOTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, policy=os.environ["ADA_POLICY"], **kwargs)


def pytest_configure() -> None:
    """Put the recording trainer where TRL's tests look for theirs."""
    kind = _Adaptive if os.environ.get("ADA_POLICY") else _Stock
    kind.__name__ = kind.__qualname__ = "GRPOTrainer"
    for module in (trl, trl.trainer, trl.trainer.grpo_trainer):
        setattr(module, "GRPOTrainer", kind)  # noqa: B010 - TRL's modules are untyped and lazy


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _now.append(item.nodeid.partition("::")[2])
    _found[_now[-1]] = {"outcome": "skipped", "reason": "", "runs": []}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    entry = _found[item.nodeid.partition("::")[2]]
    if report.when == "call" or report.failed:
        entry["outcome"] = report.outcome
        if call.excinfo is not None and report.failed:
            entry["reason"] = f"{call.excinfo.type.__name__}: {call.excinfo.value}".splitlines()[0][:300]


def pytest_sessionfinish() -> None:
    Path(os.environ["ADA_RECORD"]).write_text(json.dumps(_found), encoding="utf-8")
