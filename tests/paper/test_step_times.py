"""The wall-clock model of `sim.clock` against the published step times: the table of docs/clock.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ada_bandit import Policy
from ada_bandit._types import FloatArray
from paper.published import column
from sim.clock import Lengths, Machine, step_time
from sim.sources import from_curve

ROOT = Path(__file__).parents[2]
RULES = ("grpo", "reinforce-ada-pos", "reinforce-ada-balance")
PUBLISHED = column("table2", "step_seconds").reshape(2, 3)
"""`[model, rule]` Seconds of a step."""


def sampling(machine: Machine) -> FloatArray:
    """Return sampling of pos and balance over that of GRPO."""
    law = from_curve("qwen2.5-math-1.5b-base").at_least(1, 16).law
    lengths = Lengths.of_means(600, 1000, cv=0.6)
    times = np.array([step_time(Policy.preset(rule), law, 512, lengths, machine).sampling for rule in RULES])
    return np.asarray(times[1:] / times[0])


def fitted(ratios: FloatArray, seconds: FloatArray) -> tuple[float, FloatArray]:
    """Return sampling's share of GRPO's step by least squares, and the steps of pos and balance over GRPO's."""
    more, published = ratios - 1, seconds[1:] / seconds[0] - 1
    share = float(more @ published / (more @ more))
    return share, 1 + share * more


MACHINES = {
    "64 slots": Machine(slots=64),
    "256 slots": Machine(slots=256),
    "2,048 slots": Machine(slots=2048),
    "2,048 slots, unloaded 0.1": Machine(slots=2048, unloaded=0.1),
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_documented_table_is_what_the_model_says(name: str) -> None:
    text = (ROOT / "docs" / "clock.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", text, re.MULTILINE)
    shown = [float(number) for number in re.findall(r"\d+\.\d+", row)]
    ratios = sampling(MACHINES[name])
    values = [*ratios]
    for seconds in PUBLISHED:
        share, steps = fitted(ratios, seconds)
        values += [share, *steps]
    assert shown == pytest.approx(values, abs=0.0051)


def test_only_work_explains_the_published_times() -> None:
    """Few slots leave both rules of both models within 1 %; a slot for each response leaves 1.5B more than 7 % off."""
    published = PUBLISHED[:, 1:] / PUBLISHED[:, :1]
    few, many = (
        np.array([fitted(sampling(MACHINES[name]), seconds)[1] for seconds in PUBLISHED]) / published - 1
        for name in ("64 slots", "2,048 slots")
    )
    assert np.abs(few).max() < 0.01
    assert many[0, 0] > 0.07
    assert many[0, 1] < -0.07
