"""Pass-rate laws from arrays, files and published curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ada_bandit import Grid, Policy, Quota, Rounds, analyze_law
from ada_bandit.errors import InputError
from sim.counts import read_counts
from sim.fits import fit_beta, fit_curve
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


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return put


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


def test_fit_of_the_uniform_law() -> None:
    # For p uniform on [0, 1], E[p^k] = E[q^k] = 1 / (k + 1).
    k = [1, 2, 4, 8, 16, 32, 64]
    law, residual = fit_curve(k, [i / (i + 1) for i in k], [1 / (i + 1) for i in k])
    assert residual < 2e-4
    assert law.weights.sum() == pytest.approx(1)
    assert law.mean == pytest.approx(0.5, abs=2e-4)
    assert law.evidence(3, 0) == pytest.approx(1 / 4, abs=1e-3)
    assert law.probability(0.25, 0.75) == pytest.approx(0.5, abs=0.02)


def test_fit_of_laws_at_the_ends() -> None:
    law, residual = fit_curve([1, 2, 8], [0.25] * 3, [0.25] * 3)
    assert residual < 1e-3
    assert law.probability(0, 0.01) == pytest.approx(0.75, abs=0.01)
    assert law.probability(0.99, 1) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("k", "pass_at_k", "all_correct", "message"),
    [
        ([], [], [], "needs one pass@k"),
        ([1, 2], [0.5], [0.5, 0.2], "got 2 k, 1 pass@k and 2 all-correct@k"),
        ([0], [0.5], [0.5], "k must be a finite number"),
        ([1], [1.5], [0.5], r"must lie in \[0, 1\]; got 1.5"),
    ],
)
def test_fit_refuses(k: list[int], pass_at_k: list[float], all_correct: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_curve(k, pass_at_k, all_correct)


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


# Smoothing


@pytest.mark.parametrize("prompts", [(4, 2, 4), (5, 3, 2), (70, 1, 2)])
def test_prior_of_pairs_in_closed_form(prompts: tuple[int, int, int]) -> None:
    # With 2 responses each, mean and concentration reproduce the three frequencies:
    # P(1 of 2) = 2 m (1 - m) s / (s + 1).
    share = np.array(prompts) / sum(prompts)
    mean = share[1] / 2 + share[2]
    ratio = share[1] / (2 * mean * (1 - mean))
    fit = fit_beta(np.repeat([0, 1, 2], prompts), np.full(sum(prompts), 2))
    assert fit.mean == pytest.approx(mean, rel=1e-6)
    assert fit.concentration == pytest.approx(ratio / (1 - ratio), rel=1e-5)


def test_posterior_means_by_hand() -> None:
    # Frequencies 4, 2, 4 give a = b = 1/3: posterior means (1/3 + k) / (2/3 + 2).
    fit = fit_beta(np.repeat([0, 1, 2], (4, 2, 4)), np.full(10, 2))
    np.testing.assert_allclose(fit.posterior_mean([0, 1, 2], 2), [1 / 8, 1 / 2, 7 / 8], rtol=1e-6)


def test_prior_is_recovered() -> None:
    rng = np.random.default_rng(1)
    total = rng.integers(4, 40, 40_000)
    fit = fit_beta(rng.binomial(total, rng.beta(0.4, 1.6, total.size)), total)
    assert fit.mean == pytest.approx(0.2, abs=0.005)
    assert fit.concentration == pytest.approx(2.0, rel=0.03)
    assert str(fit).startswith("Beta(0.")


@pytest.mark.parametrize(
    ("correct", "total", "mean", "concentration", "words"),
    [
        ([0, 0, 0], [8, 8, 8], 0.0, math.inf, "a single pass rate p = 0"),
        ([8, 4], [8, 4], 1.0, math.inf, "a single pass rate p = 1"),
        ([2, 2, 2], [8, 8, 8], 0.25, math.inf, "a single pass rate p = 0.25"),
        ([3], [4], 0.75, math.inf, "a single pass rate p = 0.75"),
        ([0, 8, 8, 8], [8, 8, 8, 8], 0.75, 0.0, "p = 1 for a share of 0.75 and p = 0 for the rest"),
        ([0, 1, 1, 1], [1, 1, 1, 1], 0.75, math.inf, "a single pass rate p = 0.75"),
    ],
)
def test_prior_at_its_limits(
    correct: list[int], total: list[int], mean: float, concentration: float, words: str
) -> None:
    fit = fit_beta(correct, total)
    assert (fit.mean, fit.concentration, str(fit)) == (mean, concentration, words)
    smoothed = fit.posterior_mean(correct, total)
    expected = np.full(len(correct), mean) if concentration else np.divide(correct, total)
    np.testing.assert_allclose(smoothed, expected)


def test_prior_of_nothing() -> None:
    with pytest.raises(InputError, match="at least one prompt"):
        fit_beta([], [])


# Files that are read


def test_csv(write: Write) -> None:
    path = write("a.csv", "prompt_id,mean_response_tokens,correct,total\na,9.5,0,4\nb,3,4,4\n,,,\nc,,2.0,8\n")
    counts = read_counts(path)
    assert counts.prompt_ids == ("a", "b", "c")
    np.testing.assert_array_equal(counts.correct, [0, 4, 2])
    np.testing.assert_array_equal(counts.total, [4, 4, 8])
    np.testing.assert_array_equal(counts.rates, [0, 1, 0.25])
    assert counts.notes == ("1 empty row left out",)


def test_csv_with_byte_order_mark_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "A.CSV"
    path.write_bytes(b'\xef\xbb\xbfprompt_id, correct, total\r\n"a, b", 1, 2\r\n')
    counts = read_counts(path)
    assert counts.prompt_ids == ("a, b",)
    assert (counts.correct[0], counts.total[0]) == (1, 2)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"prompt_id": [7, 8], "correct": [1, 2], "total": [2.0, 4.0]}).write_parquet(path)
    counts = read_counts(path)
    assert counts.prompt_ids == ("7", "8")
    np.testing.assert_array_equal(counts.total, [2, 4])


def test_jsonl_counts_what_it_leaves_out(write: Write) -> None:
    lines = [
        '{"prompt_id": "a", "rewards": [0, 1, true, null, NaN, 0.7, 0.5]}',
        '{"prompt_id": "b", "rewards": [null]}',
        "",
        '{"prompt_id": 3, "correct": 3, "total": 4}',
    ]
    counts = read_counts(write("a.jsonl", "\n".join(lines)))
    assert counts.prompt_ids == ("a", "3")
    np.testing.assert_array_equal(counts.correct, [3, 3])
    np.testing.assert_array_equal(counts.total, [5, 4])
    assert counts.notes == (
        "3 responses without a score (null or NaN) left out",
        "1 prompt without a scored response left out: 'b'",
        "2 rewards other than 0 and 1: above 0.5 counts as correct",
    )


def test_three_formats_agree(write: Write, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rewards = rng.integers(0, 2, (20, 6))
    frame = pl.DataFrame({"prompt_id": [f"p{i}" for i in range(20)], "correct": rewards.sum(1), "total": [6] * 20})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    lines = [json.dumps({"prompt_id": f"p{i}", "rewards": row.tolist()}) for i, row in enumerate(rewards)]
    write("a.ndjson", "\n".join(lines) + "\n")
    laws = [from_file(tmp_path / name).law for name in ("a.csv", "a.parquet", "a.ndjson")]
    assert laws[0] == laws[1] == laws[2]


# Files and smoothing


def pairs(write: Write, total: int = 2) -> Path:
    counts = [0] * 4 + [total // 2] * 2 + [total] * 4
    rows = [f"{i},{k},{total}" for i, k in enumerate(counts)]
    return write(f"pairs{total}.csv", "prompt_id,correct,total\n" + "\n".join(rows))


def test_few_responses_are_smoothed_and_say_so(write: Write) -> None:
    source = from_file(pairs(write))
    np.testing.assert_allclose(grid(source.law).pass_rates, [1 / 8, 1 / 2, 7 / 8], rtol=1e-6)
    np.testing.assert_allclose(grid(source.law).weights, [0.4, 0.2, 0.4])
    notes = " ".join(source.notes)
    assert "smoothed, as the smallest total, 2, is below 64" in notes
    assert "Beta(0.3333, 0.3333)" in notes
    assert "posterior means are spread less than p" in notes
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


# Files that are refused

CSV = "prompt_id,correct,total\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", r"a\.csv' is empty; it needs the columns prompt_id, correct, total"),
        ("a.jsonl", "", r"a\.jsonl' is empty; it needs a line such as"),
        ("a.csv", CSV, "has its columns but no prompts"),
        ("a.csv", "id,correct,n\na,1,2\n", "lacks the columns prompt_id, total; it has id, correct, n"),
        ("a.csv", "prompt_id,correct\na,1\n", "lacks the column total; it has prompt_id, correct"),
        ("a.csv", CSV + "a,1,2\nb,many,2\n", r"correct must be a whole number; got 'many' for prompt 'b' \(2 in"),
        ("a.csv", CSV + "a,1.5,2\n", "correct must be a whole number; got '1.5'"),
        ("a.csv", CSV + "a,1,nan\n", "total must be a whole number; got 'nan'"),
        ("a.csv", CSV + "a,1,1e300\n", "total is larger than any count; got '1e300'"),
        ("a.csv", CSV + "a,3,2\n", "correct must not exceed total; got 3 of 2 for prompt 'a'"),
        ("a.csv", CSV + "a,-3,2\n", "correct can't be negative; got '-3'"),
        ("a.csv", CSV + "a,0,0\n", "total is 0 for prompt 'a'"),
        ("a.csv", CSV + "a,1,2\nb,1,2\na,2,2\n", "prompt_id 'a' occurs twice in .* as prompts 1 and 3"),
        ("a.csv", CSV + "a,,2\n", "correct is missing for prompt 'a'"),
        ("a.csv", CSV + ",1,2\n", "prompt_id is missing at prompt 1"),
        ("a.csv", CSV + "a,1,2,5\n", r"can't be read as \.csv"),
        ("a.parquet", "no parquet", r"can't be read as \.parquet"),
        ("a.txt", CSV, r"must end in \.csv, \.parquet, \.jsonl, \.ndjson; got '\.txt'"),
        ("a", CSV, "got 'no ending'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [1]}\n{"prompt_id": "b"', "malformed JSON on line 2"),
        ("a.jsonl", "[1, 2]\n", r"every line must be an object such as .* got '\[1, 2\]' on line 1"),
        ("a.jsonl", '{"prompt_id": "a"}\n', "a line needs prompt_id and rewards.* got prompt_id on line 1"),
        ("a.jsonl", '{"rewards": [1]}\n', "a line needs prompt_id.* got rewards on line 1"),
        ("a.jsonl", '{"prompt_id": null, "rewards": [1]}\n', "prompt_id is missing on line 1"),
        ("a.jsonl", '{"prompt_id": [1], "rewards": [1]}\n', r"prompt_id must be text or a number; got \[1\]"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": []}\n', "rewards is empty for prompt 'a' on line 1"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": 1}\n', "rewards must be a list of numbers; got '1'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": ["1"]}\n', "every reward must be a finite number.* got '1'"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [1e999]}\n', "every reward must be a finite number.* got inf"),
        ("a.jsonl", f'{{"prompt_id": "a", "rewards": [{"9" * 400}]}}\n', "every reward must be a finite number"),
        ("a.jsonl", '{"prompt_id": "a", "rewards": [null]}\n', "has no prompt with a scored response"),
        ("a.jsonl", "\n", "has no prompts"),
        ("a.jsonl", '{"prompt_id": "a", "correct": 3, "total": 2}\n', "got 3 of 2 for prompt 'a' on line 1"),
        ("a.jsonl", '{"prompt_id": "a", "correct": true, "total": 2}\n', "correct must be a whole number; got True"),
        ("a.jsonl", '{"prompt_id": "a", "correct": null, "total": 2}\n', "correct is missing"),
        ("a.jsonl", '{"prompt_id": 1, "rewards": [1]}\n{"prompt_id": "1", "rewards": [1]}\n', "occurs twice"),
    ],
)
def test_file_is_refused(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_file(write(name, text))


def test_parquet_of_mixed_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"prompt_id": ["a"], "correct": [[1]], "total": [2]}).write_parquet(path)
    with pytest.raises(InputError, match=r"correct must be a whole number; got \[1\]"):
        read_counts(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="can't be read"):
        read_counts(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.csv' does not exist"):
        read_counts(tmp_path / "nope.csv")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_counts(folder)
