"""Bounds where no response is correct, or every one is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, binom
from typer.testing import CliRunner

from sim.cli import app
from sim.readers import Selection
from sim.stopped import Pools, Study


def study(prompts: int, size: int, *, right: bool = False) -> Study:
    return Study.of(Pools.from_counts([size * right] * prompts, [size] * prompts))


@pytest.mark.parametrize("prompts", [1, 2, 50, 3000])
def test_the_mean_has_the_bound_of_clopper_and_pearson_over_prompts(prompts: int) -> None:
    none, every = (study(prompts, 8, right=right).pass_rate for right in (False, True))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(beta.ppf(0.95, 1, prompts))
    assert (every.value, every.high) == (1, 1)
    assert every.low == pytest.approx(1 - none.high)
    assert "no pool has a correct response" in none.how
    assert "no pool has an incorrect response" in every.how


@pytest.mark.parametrize(("size", "n"), [(8, 2), (8, 8), (4, 8), (16, 4), (1, 2)])
def test_no_law_that_is_refused_shows_nothing_with_more_than_five_percent(size: int, n: int) -> None:
    # By brute force over laws of a rate p for a share x of the prompts, and 0 for the others.
    prompts = 40
    bound = study(prompts, size).plain_signal(n).high
    p = np.linspace(0.0005, 0.9995, 1000)[:, None]
    x = np.linspace(0, 1, 1001)
    signal = x * (1 - p**n - (1 - p) ** n)
    log_chance = prompts * np.log1p(-x * (1 - (1 - p) ** size) * (1 - 1e-12))
    allowed = signal[log_chance >= np.log(0.05)].max()
    # Where rates close to 0 are the worst, no share of at most 1 reaches the bound in full.
    assert allowed <= bound <= (1.01 if size >= n else 1.1) * allowed
    assert study(prompts, size, right=True).plain_signal(n).high == bound


def test_sizes_that_differ_and_visits_to_one_prompt() -> None:
    few = Study.of(Pools.from_counts([0] * 30, [4] * 10 + [64] * 20)).plain_signal(8)
    assert study(30, 64).plain_signal(8).high < few.high < study(30, 4).plain_signal(8).high
    pools = Pools(np.zeros(60, np.int64), np.full(60, 8), np.arange(60) // 2)
    assert Study.of(pools).pass_rate.high == pytest.approx(beta.ppf(0.95, 1, 30))


def test_coverage_of_the_mean() -> None:
    # Of 20 prompts with rate 0 or 1 at even chance for 1 in 10, how often is none seen? Then the bound holds 0.1.
    assert binom.pmf(0, 20, 0.1) > 0.05
    assert study(20, 8).pass_rate.high > 0.1
    assert binom.pmf(0, 40, 0.1) < 0.05
    assert study(40, 8).pass_rate.high < 0.1


def test_both_classes_and_selections_are_left_to_the_resamples() -> None:
    mixed = Study.of(Pools.from_counts([0] * 20 + [3], [8] * 21))
    assert "counts of plain pools" in mixed.pass_rate.how
    kept = Study.of(Pools.from_counts([0] * 20, [8] * 20), selection=Selection.kept)
    assert "one-sided" not in kept.pass_rate.how


def test_the_command_tells_the_bound(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    log.write_text("prompt_id,correct,total\n" + "".join(f"{i},0,8\n" for i in range(50)))
    out = ["--out", str(tmp_path / "out"), "--no-figures", "--json", "--group-size", "2"]
    found = json.loads(CliRunner().invoke(app, ["log", str(log), *out], catch_exceptions=False).stdout)
    bound = pytest.approx(1 - 0.05 ** (1 / 50))
    assert (found["pass_rate"]["high"], found["law"]["mean"]["high"]) == (bound, bound)
    assert 0 < found["plain_signal"]["2"]["high"] < 0.06
