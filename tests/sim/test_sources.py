"""Pass-rate laws from arrays, files and published curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ada_bandit import Policy, Quota, Rounds
from ada_bandit.errors import InputError
from ada_bandit.exact import analyze_law
from ada_bandit.laws import Beta, Grid, Mixture
from sim.sources import (
    built_in_rollouts,
    curve_names,
    from_array,
    from_curve,
    from_file,
    from_name,
    parse_share,
    source_names,
)

BASE = "qwen2.5-math-1.5b-base"
ROLLOUTS = "smollm2-reasoning-gym"
Write = Callable[[str, str], Path]


def grid(law: object) -> Grid:
    assert isinstance(law, Grid)
    return law


# Curves


def test_curve_names() -> None:
    assert curve_names() == (BASE, "qwen2.5-math-1.5b-rl")


@pytest.mark.parametrize(
    ("curve", "published", "tolerance"),
    [
        (BASE, {1: (0.176, 0.176), 4: (0.375, 0.041), 16: (0.574, 0.006), 256: (0.813, 0.0)}, 0.0055),
        ("qwen2.5-math-1.5b-rl", {1: (0.490, 0.503), 4: (0.650, 0.353), 256: (0.861, 0.102)}, 0.0085),
    ],
)
def test_curve_meets_published_points(curve: str, published: dict[int, tuple[float, float]], tolerance: float) -> None:
    law = from_curve(curve).law
    for k, (pass_at_k, all_correct) in published.items():
        assert 1 - law.evidence(0, k) == pytest.approx(pass_at_k, abs=tolerance)
        assert law.evidence(k, 0) == pytest.approx(all_correct, abs=tolerance)


def test_base_curve_gives_the_cost_of_a_step() -> None:
    # The paper measured 3.6k and 6.1k extra responses at step 30, among prompts that pass the filter.
    law = from_curve(BASE).at_least(1, 16).law
    extra = {
        name: 512 * (analyze_law(Policy.preset(name), law)["expected_samples"] - 4)
        for name in ("reinforce-ada-pos", "reinforce-ada-balance")
    }
    assert extra["reinforce-ada-pos"] == pytest.approx(4000, abs=50)
    assert extra["reinforce-ada-balance"] == pytest.approx(6300, abs=50)


def test_one_response_at_a_time_finds_the_same_signal_for_less() -> None:
    law = from_curve(BASE).law
    balance = analyze_law(Policy.preset("reinforce-ada-balance"), law)
    single = analyze_law(Policy(rule=Quota(1, 1), budget=Rounds(1, 32), group_size=4), law)
    assert balance["signal_probability"] == pytest.approx(0.651, abs=0.001)
    assert balance["expected_samples"] == pytest.approx(22.4, abs=0.1)
    assert single["signal_probability"] == pytest.approx(balance["signal_probability"], abs=1e-9)
    assert single["expected_samples"] == pytest.approx(16.0, abs=0.1)


def test_curve_says_what_it_is() -> None:
    source = from_curve(BASE)
    notes = " ".join(source.notes)
    assert "largest residual 0.005" in notes
    assert "arXiv 2510.04996v2" in notes
    assert source.settings == {"kind": "curve", "name": BASE}


def test_unknown_curve_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown curve 'qwen2.5-math-base'; did you mean 'qwen2.5-math-1.5b-base'"):
        from_curve("qwen2.5-math-base")


# Rollouts


def lines_of_the_rollouts() -> list[dict[str, Any]]:
    return [json.loads(line) for line in built_in_rollouts(ROLLOUTS).path.read_text().splitlines()]


def test_source_names() -> None:
    assert source_names() == (*curve_names(), ROLLOUTS)
    assert all(from_name(name).label == name for name in source_names())


def test_rollouts_are_what_the_sample_data_should_be() -> None:
    lines = lines_of_the_rollouts()
    assert len({line["prompt_id"] for line in lines}) == len(lines) == 300
    assert all(len(line["rewards"]) == len(line["tokens"]) == 32 for line in lines)
    # Mixed difficulty: prompts that are never right, seldom, and mostly, and not all of one family.
    correct = [line["rewards"].count(1) for line in lines]
    assert min(correct) == 0
    assert max(correct) > 24
    inside = [line["family"] for line, k in zip(lines, correct, strict=True) if 0 < k < 32]
    assert len(inside) >= 100
    assert len(set(inside)) >= 6
    assert built_in_rollouts(ROLLOUTS).path.stat().st_size < 1_000_000


def test_rollouts_are_read_like_a_file_of_counts() -> None:
    lines = lines_of_the_rollouts()
    plain = from_name(ROLLOUTS, smooth=False)
    assert plain.counts is not None
    assert plain.counts.total.tolist() == [sum(reward is not None for reward in line["rewards"]) for line in lines]
    correct = [line["rewards"].count(1) for line in lines]
    assert plain.counts.correct.tolist() == correct
    assert plain.law.mean == pytest.approx(np.mean(plain.counts.rates))
    assert plain.settings == {"kind": "rollouts", "name": ROLLOUTS, "smooth": False}
    assert "SmolLM2-135M-Instruct" in plain.notes[0]
    never, always = correct.count(0), sum(k == 32 for k in correct)
    assert f"{never} prompts without a correct response and {always} without an incorrect one" in " ".join(plain.notes)


def test_rollouts_are_smoothed_as_a_file_is() -> None:
    source, file = from_name(ROLLOUTS), from_file(built_in_rollouts(ROLLOUTS).path)
    assert source.law == file.law
    assert source.notes[1:] == file.notes
    assert source.settings["smooth"] is True
    assert source.settings["prior"] == file.settings["prior"]


def test_built_in_sources_that_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown source 'smolm2-reasoning'; did you mean 'smollm2-reasoning-gym'"):
        from_name("smolm2-reasoning")
    with pytest.raises(InputError, match=r"smoothing is for counts, and 'qwen2.5-math-1.5b-base' is a curve"):
        from_name(BASE, smooth=True)
    with pytest.raises(InputError, match=r"'qwen2.5-math-1.5b-base' is a curve, which holds no responses; take 'smol"):
        built_in_rollouts(BASE)
    with pytest.raises(InputError, match="unknown source 'smol'"):
        built_in_rollouts("smol")


# The filter


def test_filter_of_two_rates_by_hand() -> None:
    # P(at least 1 of 2) is 3/4 at p = 1/2 and 0 at p = 0.
    source = from_array([0.0, 0.5, 0.5]).at_least(1, 2)
    assert source.law.mean == pytest.approx(0.5)
    assert source.law.probability(0, 0.1) == pytest.approx(0)
    assert source.label == "array, at least 1 of 2"
    assert "50.0% of the law" in source.notes[-1]
    assert source.settings["at_least"] == [1, 2]


def test_filter_that_nothing_passes() -> None:
    with pytest.raises(InputError, match="no prompt of this law can have 1 of 16"):
        from_array([0.0]).at_least(1, 16)


def test_share() -> None:
    assert parse_share("1/16") == (1, 16)
    assert parse_share(" 2 / 8 ") == (2, 8)


@pytest.mark.parametrize("text", ["16", "1/", "/16", "a/b", "-1/16", "0.5/1", "5/4", "0/0", ""])
def test_share_refuses(text: str) -> None:
    with pytest.raises(InputError, match="such as 1/16") as error:
        parse_share(text)
    assert repr(text) in str(error.value)


# Arrays


def test_array_shares_atoms() -> None:
    law = grid(from_array([0.5, 0.25, 0.5, 0.5]).law)
    np.testing.assert_array_equal(law.pass_rates, [0.25, 0.5])
    np.testing.assert_allclose(law.weights, [0.25, 0.75])
    assert from_array([0.1, 0.9], [1, 3]).law.mean == pytest.approx(0.7)


@pytest.mark.parametrize("rates", [[1.5], [math.nan], []])
def test_array_refuses(rates: list[float]) -> None:
    with pytest.raises(InputError):
        from_array(rates)


# Files and smoothing


def pairs(write: Write, total: int = 2) -> Path:
    counts = [0] * 4 + [total // 2] * 2 + [total] * 4
    rows = [f"{i},{k},{total}" for i, k in enumerate(counts)]
    return write(f"pairs{total}.csv", "prompt_id,correct,total\n" + "\n".join(rows))


def test_few_responses_are_smoothed_and_say_so(write: Write) -> None:
    source = from_file(pairs(write))
    # Posteriors under Beta(1/3, 1/3) after 0, 1 and 2 of 2.
    assert isinstance(source.law, Mixture)
    shapes = [(law.a, law.b) for law in source.law.laws if isinstance(law, Beta)]
    np.testing.assert_allclose(shapes, [(1 / 3, 7 / 3), (4 / 3, 4 / 3), (7 / 3, 1 / 3)], rtol=1e-5)
    np.testing.assert_allclose(source.law.weights, [0.4, 0.2, 0.4])
    notes = " ".join(source.notes)
    assert "smoothed, as the smallest total, 2, is below 64" in notes
    assert "Beta(0.3333, 0.3333)" in notes
    assert "the mixture of the prompts' posteriors" in notes
    assert "4 prompts without a correct response and 4 without an incorrect one" in notes
    assert source.settings["smooth"] is True
    assert source.settings["prior"]["concentration"] == pytest.approx(2 / 3, rel=1e-5)


def test_plug_in_rates_on_request(write: Write) -> None:
    source = from_file(pairs(write), smooth=False)
    np.testing.assert_array_equal(grid(source.law).pass_rates, [0, 0.5, 1])
    assert any(note.startswith("not smoothed: each rate is correct/total") for note in source.notes)
    # The variance is 1/5 * 10/9; chance takes mean of r (1 - r) / (n - 1) = 0.05 of it.
    assert f"deviation is {math.sqrt(2 / 9):.3f}, that of p about {math.sqrt(2 / 9 - 0.05):.3f}" in " ".join(
        source.notes
    )


def test_many_responses_are_not_smoothed(write: Write) -> None:
    assert from_file(pairs(write, 64)).settings["smooth"] is False
    assert from_file(pairs(write, 64), smooth=True).settings["smooth"] is True
    assert from_file(pairs(write, 63 - 1)).settings["smooth"] is True


@pytest.mark.parametrize(("correct", "rate"), [(0, 0.0), (8, 1.0), (2, 0.25)])
def test_equal_counts(write: Write, correct: int, rate: float) -> None:
    path = write("equal.csv", f"prompt_id,correct,total\na,{correct},8\nb,{correct},8\n")
    source = from_file(path)
    np.testing.assert_allclose(grid(source.law).pass_rates, [rate])
    assert source.settings["prior"] == {"mean": rate, "concentration": None}


def test_one_response_a_prompt(write: Write) -> None:
    source = from_file(write("one.csv", "prompt_id,correct,total\na,0,1\nb,1,1\n"))
    assert source.settings["smooth"] is False
    assert any("with one response a prompt" in note for note in source.notes)
