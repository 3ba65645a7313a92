"""Evaluation: estimates against enumeration, intervals against their equation and by simulation, and the command."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, t
from typer.testing import CliRunner

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError
from ada_bandit.programs.rollouts import RolloutLine
from ada_bandit.uniforms import Stream, fold_seed, uniform
from llm.cli import app
from llm.evaluate import evaluate_task, mean_interval, pass_at_k, summarize
from llm.types import Prompt
from llm.verify import Verifier
from tests.llm.fakes import CoinTask, NamingSampler
from tests.llm.runs import evens

TASK = evens(
    """if prompt.id == 5:
            raise ValueError("no scale")
        return float(text.count("1") + text.count("2") > 1)"""
)


def line(
    name: str, rewards: Sequence[float], family: str = "sums", tokens: Sequence[int] = (), truncated: int = 0
) -> RolloutLine:
    return RolloutLine(name, family, np.array(rewards, dtype=np.float64), tuple(tokens), truncated)


# pass@k


@pytest.mark.parametrize("scored", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_response(scored: int) -> None:
    for correct in range(scored + 1):
        responses = [1] * correct + [0] * (scored - correct)
        for k in range(1, scored + 1):
            subsets = [any(chosen) for chosen in itertools.combinations(responses, k)]
            assert pass_at_k(correct, scored, k) == pytest.approx(sum(subsets) / len(subsets), rel=1e-15)


def test_pass_at_k_is_unbiased() -> None:
    for p in (0.01, 0.3, 0.95):
        for k in (1, 4, 16):
            mean = sum(binom.pmf(c, 16, p) * pass_at_k(c, 16, k) for c in range(17))
            assert mean == pytest.approx(1 - (1 - p) ** k, rel=1e-12)


def test_pass_at_k_of_many_responses() -> None:
    # One correct response is among k of n with the chance k / n; the binomials have thousands of digits.
    assert pass_at_k(1, 20_000, 5_000) == 0.25
    assert pass_at_k(15_001, 20_000, 5_000) == 1.0


@pytest.mark.parametrize(("correct", "scored", "k"), [(1, 3, 4), (4, 3, 2), (-1, 3, 2), (1, 3, 0)])
def test_pass_at_k_refuses_what_has_no_value(correct: int, scored: int, k: int) -> None:
    with pytest.raises(InputError, match="got"):
        pass_at_k(correct, scored, k)


# Intervals


@pytest.mark.parametrize("values", [[0.25, 0.5, 1.0, 0.0625], [0.0, 0.0, 0.0, 0.125], [1.0, 0.0], [0.9, 1.0, 1.0]])
def test_interval_ends_where_its_inequality_does(values: list[float]) -> None:
    low, high = mean_interval(values)
    x, m = float(np.mean(values)), len(values)
    d, quantile = float(np.var(values, ddof=1)) / (x * (1 - x)), float(t.ppf(0.975, m - 1))

    def beyond(mu: float) -> float:
        return (x - mu) ** 2 - quantile**2 * d * mu * (1 - mu) / m

    assert low == pytest.approx(brentq(beyond, 0, x, xtol=1e-14), rel=1e-9)
    assert high == pytest.approx(brentq(beyond, x, 1, xtol=1e-14), rel=1e-9)


def test_interval_of_zeros_and_ones_is_wilsons() -> None:
    # 30 ones among 100: Wilson's interval for 99 trials at the same share, with t in the place of z.
    low, high = mean_interval([1.0] * 30 + [0.0] * 70)
    z, n = float(t.ppf(0.975, 99)), 99
    half = z / (1 + z * z / n) * math.sqrt(0.3 * 0.7 / n + z * z / (4 * n * n))
    middle = (0.3 + z * z / (2 * n)) / (1 + z * z / n)
    assert (low, high) == pytest.approx((middle - half, middle + half), rel=1e-12)


def test_interval_of_equal_values_is_not_empty() -> None:
    # x = 0 and d = 1: mu <= t^2 (1 - mu) / m up to t^2 / (t^2 + m), with t = 2.776445 for 4 degrees of freedom.
    end = 2.776445**2 / (2.776445**2 + 5)
    assert mean_interval([0.0] * 5) == pytest.approx((0.0, end), rel=1e-6, abs=0.0)
    assert mean_interval([1.0] * 5) == pytest.approx((1 - end, 1.0), rel=1e-6)
    # The mean of three times 0.1 is not 0.1 in floats; that must not make the variance 1e-34.
    low, high = mean_interval([0.1] * 3)
    assert low < 0.02
    assert high > 0.5


def test_interval_of_rewards_beyond_0_and_1_is_students() -> None:
    values = [-1.0, 0.5, 2.0, 0.0]
    expected = t.interval(0.95, 3, loc=np.mean(values), scale=np.std(values, ddof=1) / 2)
    assert mean_interval(values) == pytest.approx(expected, rel=1e-12)


def test_one_value_has_no_interval() -> None:
    assert np.isnan(mean_interval([0.4])).all()


# Pass rates by name: many of them, rare success, and prompts that are all alike.
LAWS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "spread": lambda u: u,
    "rare": lambda u: 0.2 * u**3,
    "alike": lambda u: np.full_like(u, 0.5),
}


@pytest.mark.parametrize(
    ("law", "prompts", "samples", "k"),
    [
        ("spread", 5, 16, 1),
        ("spread", 30, 16, 4),
        ("spread", 30, 1, 1),
        ("rare", 30, 16, 4),
        ("rare", 30, 1, 1),
        ("rare", 100, 16, 1),
        ("alike", 20, 16, 1),
        ("alike", 20, 8, 8),
    ],
)
def test_interval_covers(law: str, prompts: int, samples: int, k: int) -> None:
    runs, seed = 2000, fold_seed(0, prompts, samples, k)
    of = np.arange(runs * prompts)
    rates = LAWS[law](uniform(seed, 2, of, 0))
    correct = (uniform(seed, Stream.REWARDS, of[:, None], np.arange(samples)) < rates[:, None]).sum(axis=1)
    table = np.array([pass_at_k(c, samples, k) for c in range(samples + 1)])
    values = table[correct].reshape(runs, prompts)
    middles = LAWS[law]((np.arange(100_000) + 0.5) / 100_000)
    truth = float(np.mean(1 - (1 - middles) ** k))
    ends = np.array([mean_interval(row) for row in values])
    covered = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    # 0.95 less four standard errors of the simulation, and what few prompts and rare success may cost.
    assert covered > 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs) - 0.01
    if prompts >= 20 and k < samples:
        # Not by being wide: the shortest interval that knows the variance has this width.
        shortest = 2 * 1.96 * values.mean(axis=1).std()
        assert 0.9 * shortest < np.mean(ends[:, 1] - ends[:, 0]) < 1.25 * shortest


def test_plain_interval_would_not_cover_rare_success() -> None:
    # What the choice of the interval is about: no correct response in 30 has the chance 0.95^30 = 0.21.
    low, high = mean_interval([0.0] * 30)
    assert 0.95**30 > 0.2
    assert low <= 0.05 <= high


# A log's summary


def test_summary_by_hand() -> None:
    lines = [
        line("a/0", [1, 0, 0, 0], "a", [3, 4, 5, 8], 1),
        line("b/0", [1, 1, 1, 1], "b", [2, 2, 2, 2]),
        line("a/1", [0, 0, 0, 0], "a", [8, 8, 8, 8], 4),
    ]
    found = summarize(lines, [2, 1, 2])
    assert list(found.overall.measures) == ["ave@4", "pass@1", "pass@2"]
    assert list(found.families) == ["a", "b"]
    # One of four is correct: 1/4 at k = 1, and 3 of the 6 pairs.
    values = {name: measure.value for name, measure in found.overall.measures.items()}
    assert values == pytest.approx({"ave@4": 1.25 / 3, "pass@1": 1.25 / 3, "pass@2": 0.5})
    assert found.families["a"].measures["pass@2"].value == pytest.approx(0.25)
    assert found.families["b"].measures["pass@2"].value == 1.0
    a = found.families["a"]
    assert (a.prompts, a.responses, a.tokens, a.truncated, a.unscored) == (2, 8, 52 / 8, 5, 0)
    pair = a.measures["pass@2"]
    assert (pair.low, pair.high) == mean_interval([0.5, 0.0])
    assert np.isnan([found.families["b"].measures["pass@1"].low, found.families["b"].measures["pass@1"].high]).all()


def test_average_is_of_rewards_and_pass_of_correct_responses() -> None:
    found = summarize([line("a", [0.2, 0.4, 0.6, 1.0])])
    # Two of four are above 0.5; both pairs of the others would be needed to miss.
    assert found.overall.measures["ave@4"].value == pytest.approx(0.55)
    assert found.overall.measures["pass@1"].value == pytest.approx(0.5)
    assert summarize([line("a", [0.2, 0.4, 0.6, 1.0])], [2]).overall.measures["pass@2"].value == pytest.approx(5 / 6)


def test_unscored_responses_are_left_out_and_counted() -> None:
    lost = math.nan
    lines = [
        line("a", [1, 0, lost, lost]),
        line("b", [lost] * 4, truncated=4),
        line("c", [1, 1, 0, 0]),
        line("d", [0, 0, 0, lost]),
    ]
    overall = summarize(lines, [2, 3, 4]).overall
    assert (overall.prompts, overall.responses, overall.unscored, overall.truncated) == (4, 16, 7, 4)
    told = {name: (each.prompts, each.left_out) for name, each in overall.measures.items()}
    assert told == {"ave@4": (3, 1), "pass@2": (3, 1), "pass@3": (2, 2), "pass@4": (1, 3)}
    # a: its two scored responses hold a correct one; c: 1 - 1/6; d: none.
    assert overall.measures["pass@2"].value == pytest.approx((1 + 5 / 6 + 0) / 3)
    assert overall.measures["ave@4"].value == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_log_without_any_score_has_no_value() -> None:
    found = summarize([line("a", [math.nan] * 2), line("b", [math.nan] * 2)])
    for measure in found.overall.measures.values():
        assert np.isnan([measure.value, measure.low, measure.high]).all()
        assert (measure.prompts, measure.left_out) == (0, 2)
    plain = found.to_dict()["overall"]["measures"]["pass@1"]
    assert plain == {"value": None, "low": None, "high": None, "prompts": 0, "left_out": 2}


def test_k_by_default_goes_up_to_the_fewest_responses() -> None:
    def names(*counts: int) -> list[str]:
        return list(summarize([line(str(i), [0.0] * count) for i, count in enumerate(counts)]).overall.measures)

    assert names(15, 15) == ["ave@15", "pass@1", "pass@4"]
    assert names(16) == ["ave@16", "pass@1", "pass@4", "pass@16"]
    assert names(16, 3) == ["ave", "pass@1"]
    assert names(1, 0) == ["ave@1", "pass@1"]


@pytest.mark.parametrize(
    ("lines", "ks", "message"),
    [
        ([line("a", [1, 0])], [4], "k = 4 is more than the n = 2"),
        ([line("a", [1, 0])], [0], "k must be a whole number of at least 1; got 0"),
        ([line("a", [1, 0])], [], "at least one k"),
        ([], None, "0 prompts and 0 responses"),
        ([line("a", []), line("b", [])], None, "2 prompts and 0 responses"),
        ([line("a", [1]), line("b", [1]), line("a", [0])], None, "'a' occurs 2 times"),
    ],
)
def test_summary_refuses(lines: list[RolloutLine], ks: list[int] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        summarize(lines, ks)


# In a run


class PartlyScored(CoinTask):
    """Coins; responses 0 and 1 to prompt 0, and all responses to prompt 2, can't be scored."""

    def score(self, prompt: Prompt, text: str) -> float:
        if prompt.id == 2 or (prompt.id == 0 and int(text.split()[1]) < 2):
            return math.nan
        return super().score(prompt, text)


def evaluate_coins(task: CoinTask, samples: int) -> Any:
    prompts = [task[i] for i in range(len(task))]
    with Verifier(task, workers=0) as verifier:
        return evaluate_task(prompts, [[0]] * len(prompts), NamingSampler(), verifier, samples, seed=1)


def test_evaluation_in_a_run() -> None:
    rates = np.array([0.5, 0.9, 0.3])
    found = evaluate_coins(PartlyScored(rates, 7), 8)
    coins = uniform(7, Stream.REWARDS, np.arange(3)[:, None], np.arange(8)) < rates[:, None]
    means = [coins[0, 2:].mean(), coins[1].mean()]
    assert found.pass_rate == pytest.approx(np.mean(means))
    # Of two values, the standard error of the mean is half their distance.
    assert found.standard_error == pytest.approx(abs(means[0] - means[1]) / 2)
    assert found.as_dict() == {
        "pass_rate": found.pass_rate,
        "standard_error": found.standard_error,
        "mean_tokens": 1.0,
        "unscored": 10,
        "truncated": 0,
    }


def test_evaluation_of_one_prompt_has_no_standard_error() -> None:
    found = evaluate_coins(CoinTask([1.0], 0), 2)
    assert found.pass_rate == 1.0
    assert math.isnan(found.standard_error)
    with pytest.raises(InputError, match="0 prompts"):
        evaluate_coins(CoinTask([], 0), 2)


# The command


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["eval", *map(str, arguments)], catch_exceptions=False)


def write_log(path: Path) -> Path:
    rows = [
        {"prompt_id": "a", "family": "[x]", "rewards": [1, 0, None, 0], "tokens": [2, 2, 2, 2], "truncated": 1},
        {"prompt_id": "b", "family": "y", "rewards": [1, 1, 1, 0], "tokens": [4, 4, 4, 4], "truncated": 0},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_command_evaluates_a_log_alone(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl")
    done = run("--log", log, "--k", "1,2,4")
    assert done.exit_code == 0, done.output
    for text in ("[x]", "ave@4", "0.542", "pass@2", "0.833", "2 prompts, 8 responses (4 to each), 3.0 tokens"):
        assert text in done.output, text
    assert "truncated: 1 (12.5%); without a score: 1, left out" in done.output
    assert "prompts left out, with too few scored responses: 1 of pass@4" in done.output
    told = json.loads(run("--log", log, "--k", "2", "--prompts", "1", "--json").stdout)
    assert told["overall"]["measures"]["pass@2"]["value"] == pytest.approx(2 / 3)
    assert told["overall"]["prompts"] == 1
    assert told["overall"]["measures"]["pass@2"]["low"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "got neither"),
        (["--log", "LOG", "--samples", "8", "--temperature", "0.5"], "got --samples 8 --temperature 0.5, and no model"),
        (["--log", "LOG", "--k", "1;4"], "such as 1,4,16; got '1;4'"),
        (["--log", "LOG", "--k", "8"], "k = 8 is more than the n = 4"),
        (["--log", "EMPTY"], "0 prompts and 0 responses"),
        (["--log", "MISSING"], "MISSING' can't be read"),
        (["MODEL", "--task", "TASK", "--samples", "4", "--k", "8"], "k = 8 is more than the n = 4"),
    ],
)
def test_command_refuses(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "LOG")
    (tmp_path / "EMPTY").touch()
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.torch
def test_command_samples_and_goes_on(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        monkeypatch.chdir(tmp_path)
        Path("evens.py").write_text(TASK)
        Path("task.toml").write_text('kind = "python"\nfactory = "evens.py:make"\nworkers = 0\ntruncated = "score"\n')
        options = (tiny_model_dir, "--task", "task.toml", "--samples", "4", "--max-new-tokens", "12")
        missing = run("none", *options[1:])
        assert missing.exit_code == 2
        assert "'none' does not exist" in missing.output
        # Three prompts, then all six: the log has grown as if it had been made at once.
        assert run(*options, "--prompts", "3").exit_code == 0
        done = run(*options)
        assert done.exit_code == 0, done.output
        assert "1 of ave@4, 1 of pass@1, 1 of pass@4" in done.output
        assert "ValueError: no scale (prompt 'evens/5')" in done.output
        (log,) = Path("out/eval").glob("*.jsonl")
        whole = run(*options, "--log", "whole.jsonl", "--json")
        assert Path("whole.jsonl").read_bytes() == log.read_bytes()
        monkeypatch.setattr("llm.rollout.sampler_and_verifier", lambda _: pytest.fail("nothing is left to sample"))
        told, alone = json.loads(run(*options, "--json").stdout), json.loads(run("--log", log, "--json").stdout)
        assert told["overall"] == alone["overall"] == json.loads(whole.stdout)["overall"]
        assert told["overall"]["unscored"] == 4
        assert told["families"]["odd"]["measures"]["ave@4"]["left_out"] == 1
        rewards = [json.loads(row)["rewards"] for row in log.read_text().splitlines()[:5]]
        assert told["overall"]["measures"]["ave@4"]["value"] == pytest.approx(np.mean(rewards))
        first = run(*options, "--prompts", "2")
        assert "the log holds 4 prompts more than were asked for" in first.output
        other = run(*options, "--log", log, "--temperature", "0.5")
        assert other.exit_code == 2
        assert "made with other settings" in other.output
    finally:
        torch.set_num_threads(threads)
