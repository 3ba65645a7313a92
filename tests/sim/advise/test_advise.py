"""Advice from logs: its parts against the library's own analysis, searches and closed forms; its page loads nothing."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from ada_bandit import Policy, ScoreModel, gradient_efficiency
from ada_bandit.exact import analyze_law
from ada_bandit.laws import Grid
from ada_bandit.optimal import Problem
from ada_bandit.specs import read_policy
from sim.advise.candidates import adaptivity
from sim.advise.gains import WORTH, gains_of, known_rates
from sim.advise.groups import groups_of
from sim.advise.profiles import Laws, profile_of
from sim.advise.settings import NOISE, Range, Setting
from sim.cli import app
from sim.clock import Lengths, Machine, step_time
from sim.readers import ReadOptions, read_rollouts
from sim.stopped import Study
from tests.sim.readers import dumps

NARROW = ("--noise-ratio", "3", "--transfer", "1")


def run(*arguments: str | Path | float) -> Any:
    return CliRunner().invoke(app, ["advise", *map(str, arguments)], catch_exceptions=False)


def advice(*arguments: str | Path | float) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def write(path: Path, pools: list[list[float]], **more: list[Any]) -> Path:
    lines = [
        {"prompt_id": f"p{i}", "rewards": pool} | {key: values[i] for key, values in more.items()}
        for i, pool in enumerate(pools)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def drawn(prompts: int, n: int, a: float, b: float, seed: int = 0) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    p = rng.beta(a, b, prompts)
    return [(rng.random(n) < each).astype(float).tolist() for each in p]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pools = drawn(200, 8, 0.5, 1.5)
    tokens = [[100 + 50 * int(1 - reward) for reward in pool] for pool in pools]
    return write(tmp_path_factory.mktemp("log") / "log.jsonl", pools, tokens=tokens)


@pytest.fixture(scope="module")
def found(log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return advice(log, "--out", tmp_path_factory.mktemp("out"))


# What is said


def test_the_parts_of_the_answer(found: dict[str, Any]) -> None:
    assert set(found["log"]) == {
        "format",
        "prompts",
        "responses",
        "correct",
        "steps",
        "unscored",
        "censored",
        "stopped",
    }
    assert (found["log"]["prompts"], found["log"]["responses"]) == (200, 1600)
    assert set(found["plain_signal"]["4"]) >= {"value", "low", "high"}
    assert found["verdict"]["adaptive"] in {"yes", "no", "unclear"}
    assert found["verdict"]["text"]
    assert (found["now"]["policy"], found["now"]["n"]) == ("GRPO, n = 8", 8)
    for policy in found["policies"]:
        for name in ("responses", "signal", "per_response", "per_token", "per_second"):
            interval = policy[name]
            assert interval["low"] <= interval["value"] + 1e-9
            assert interval["value"] <= interval["high"] + 1e-9
        assert policy["rests_on"]["responses"] == "exact given the law"
        assert "score model" in policy["rests_on"]["per_response"]
    now = found["policies"][0]
    assert [now[name]["value"] for name in ("per_response", "per_token", "per_second")] == [1, 1, 1]
    # Every noise ratio with fresh prompts, and with each objective in a pool that comes back.
    assert len(found["range"]) == len(NOISE) * 4


def test_it_is_the_law_of_the_log_by_the_library(found: dict[str, Any]) -> None:
    law = Grid(found["law"]["pass_rates"], found["law"]["weights"])
    model = ScoreModel(3.0)
    unit = gradient_efficiency(Policy.preset("grpo", group_size=8), law, model).value
    for policy in found["policies"]:
        if policy["spec"] is None or policy["name"] == "now":
            continue
        preset = read_policy(policy["spec"])
        assert isinstance(preset, Policy)
        exact = analyze_law(preset, law)
        assert policy["responses"]["value"] == pytest.approx(exact["expected_samples"], rel=1e-9)
        assert policy["signal"]["value"] == pytest.approx(exact["signal_probability"], abs=1e-9)
        ratio = gradient_efficiency(preset, law, model).value / unit
        assert policy["per_response"]["value"] == pytest.approx(ratio, rel=1e-6)


def test_the_three_factors_are_the_library_s_optima(log: Path) -> None:
    fit = Study.of(read_rollouts(log, ReadOptions()), replicates=4).law
    laws, prior = Laws.of(fit), Grid(fit.rates, fit.weights)
    base, setting = Policy.preset("grpo", group_size=8), Setting(3.0)
    gains, _ = gains_of(base, base, prior, laws, [setting])
    value = {n: Problem(prior, setting.model, samples=n, max_samples=n).best().value for n in (1, 2, 4, 8, 16, 32)}
    plain = gradient_efficiency(base, prior, setting.model).value
    assert gains.advantages[0, 0] == pytest.approx(value[8] / plain, rel=1e-6)
    assert gains.number[0, 0] == pytest.approx(max(value.values()) / value[8], rel=1e-6)
    rounds = [
        Problem(prior, setting.model, samples=m, max_samples=m * r, group_size=8).best().value
        for m, r in ((2, 4), (4, 4), (8, 4))
    ]
    assert gains.adaptivity[0, 0] == pytest.approx(max(rounds) / max(value.values()), rel=1e-6)
    single = Problem(prior, setting.model, samples=1, max_samples=32).best().value
    assert gains.one_by_one[0, 0] == pytest.approx(single / max(value.values()), rel=1e-6)
    assert gains.knowledge[0, 0] * max(value.values()) >= single


def test_known_rates_by_hand() -> None:
    # Two kinds of prompts, a tenth at p = 1/2: with p known one response there has R = k^2 (1/8 / (1/4 + nu)) * 2.
    laws = Laws(np.array([0.01, 0.5]), np.array([[0.9, 0.1]]))
    kappa = 0.9 * 0.01 * 0.99 + 0.1 * 0.25
    expected = kappa**2 * 2 * 0.5 * 0.25 / (0.25 + 3.0)
    assert known_rates(Setting(3.0), laws)[0] == pytest.approx(expected, rel=1e-12)


def test_groups_without_signal_by_closed_forms(log: Path) -> None:
    fit = Study.of(read_rollouts(log, ReadOptions()), replicates=4).law
    p, w = fit.rates, fit.weights
    groups = groups_of(Policy.preset("grpo", group_size=4), fit, 8)
    assert groups.all_wrong.value == pytest.approx(float(w @ (1 - p) ** 4), rel=1e-12)
    assert groups.hard.value == pytest.approx(float(w @ (1 - p) ** 64), rel=1e-12)
    assert groups.easy.value == pytest.approx(float(w @ p**64), rel=1e-12)
    parts = groups.signal, groups.small, groups.hard, groups.easy
    assert sum(part.value for part in parts) == pytest.approx(1, rel=1e-12)
    # Going on to 8: signal of 8 plain responses; mean waits by summing the chances to be still waiting.
    eight = next(each for each in groups.recoveries if each.responses == 8)
    assert eight.signal.value == pytest.approx(float(w @ (1 - p**8 - (1 - p) ** 8)), rel=1e-12)
    waits = sum(float(w @ ((1 - p) ** k + p**k)) for k in range(4, 8))
    assert eight.extra.value == pytest.approx(waits, rel=1e-12)
    recovered = eight.signal.value - groups.signal.value
    assert eight.each.value == pytest.approx(waits / recovered, rel=1e-9)


def test_the_verdict_turns_where_it_says(found: dict[str, Any]) -> None:
    law = Grid(found["law"]["pass_rates"], found["law"]["weights"])
    turns = found["verdict"]["turns_at"]
    assert turns
    for turn in turns:
        at = {key: turn["others"].get(key) for key in ("noise_ratio", "objective", "transfer", "update_cost")}
        at[turn["quantity"]] = turn["value"]
        noise = at["noise_ratio"]
        noise = float(noise[0]) if isinstance(noise, list) else float(noise)

        def value(factor: float, at: dict[str, Any] = at, noise: float = noise, name: str = turn["quantity"]) -> float:
            moved = at | {"noise_ratio": noise}
            moved[name] = min(moved[name] * factor, 1.0) if name == "transfer" else moved[name] * factor
            model = Setting(moved["noise_ratio"], at["objective"], moved["transfer"], moved["update_cost"])
            return adaptivity(law, model, 8)

        below, above = value(0.97), value(1.03)
        assert min(below, above) <= WORTH <= max(below, above)
        assert (above >= WORTH) == (turn["adaptive_pays"] == "above")


def test_seconds_are_those_of_the_clock(found: dict[str, Any], log: Path) -> None:
    law = Grid(found["law"]["pass_rates"], found["law"]["weights"])
    lengths = Lengths.of_log(read_rollouts(log, ReadOptions()))
    budget, machine, seconds = found["clock"]["responses_a_step"], Machine(), {}
    assert budget == pytest.approx(256 * 8)
    for name, preset in (
        ("now", Policy.preset("grpo", group_size=8)),
        ("balance", Policy.preset("reinforce-ada-balance")),
    ):
        prompts = round(budget / analyze_law(preset, law)["expected_samples"])
        efficiency = gradient_efficiency(preset, law, ScoreModel(3.0))
        progress = efficiency.progress**2 / efficiency.noise
        seconds[name] = progress * prompts / step_time(preset, law, prompts, lengths, machine).total
    (balance,) = [each for each in found["policies"] if each["name"] == "reinforce-ada-balance"]
    assert balance["per_second"]["value"] == pytest.approx(seconds["balance"] / seconds["now"], rel=0.02)
    # Tokens: correct responses have 100 and others 150.
    profile = profile_of(Policy.preset("reinforce-ada-balance"), law.pass_rates)
    assert lengths.means == (100, 150)
    assert profile.tokens(Laws(law.pass_rates, law.weights[None]), lengths.means)[0] > 0


# Logs of every kind


@pytest.mark.parametrize("name", dumps.DUMPS)
def test_every_format_with_no_option_but_a_narrow_range(name: str, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    path = dumps.DUMPS[name][0](tmp_path / "dump")
    told = advice(path, *NARROW, "--no-figures", "--out", tmp_path / "out")
    assert (told["log"]["responses"], told["log"]["correct"]) == (dumps.RESPONSES, dumps.CORRECT)


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ([[0.0] * 8] * 20, "No response is correct"),
        ([[1.0] * 8] * 20, "Every response is correct"),
        ([[1.0], [0.0], [1.0]] * 9, "One response a prompt"),
        ([[0.0, 1.0, 1.0, 0.0]], "One prompt says nothing"),
        ([[0.0] * 8] * 9 + [[1.0] * 8] * 9, ""),
    ],
)
def test_logs_that_say_little(pools: list[list[float]], words: str, tmp_path: Path) -> None:
    told = advice(write(tmp_path / "log.jsonl", pools), *NARROW, "--out", tmp_path / "out")
    assert words in told["verdict"]["headline"]
    if words:
        assert told["verdict"]["adaptive"] == "unclear"
        assert told["policies"] == []
    assert "NaN" not in json.dumps(told)
    assert (tmp_path / "out" / "advise.html").exists()


def test_scalars_alone(tmp_path: Path) -> None:
    told = advice("--scalars", "mean=0.41,zero_std=0.55,n=8", *NARROW, "--responses-a-step", 1024, "--out", tmp_path)
    assert told["log"] is None
    assert told["now"]["signal"]["value"] == pytest.approx(0.45, abs=0.02)
    assert told["pass_rate"]["value"] == pytest.approx(0.41, abs=0.01)
    assert "With 1,024 responses a step" in (tmp_path / "advise.html").read_text()


def test_a_run_with_drift_is_advised_by_its_last_steps(tmp_path: Path) -> None:
    pools = [pool for step in range(10) for pool in drawn(64, 8, 0.3 + 0.4 * step, 2, seed=step)]
    path = write(tmp_path / "log.jsonl", pools, step=[i // 64 for i in range(640)])
    told = advice(path, *NARROW, "--no-figures", "--out", tmp_path / "out")
    assert told["drift"]["changed"]
    assert any("the law changed over the steps" in note for note in told["notes"])
    last = np.mean([np.mean(pool) for pool in pools[-200:]])
    assert told["pass_rate"]["value"] == pytest.approx(float(last), abs=0.08)


@pytest.mark.parametrize(("a", "b"), [(1.7, 1.5), (0.3, 1.5)])
def test_rounds_are_the_first_change_only_where_adaptivity_pays(a: float, b: float, tmp_path: Path) -> None:
    # Rounds gain over GRPO by their number and advantages as well, whether or not they ever go on.
    told = advice(write(tmp_path / "log.jsonl", drawn(512, 8, a, b, seed=3)), "--out", tmp_path / "out")
    for each in told["policies"]:
        varies = each["rounds"] > 1 + 1e-12
        assert each["adaptive"] == varies
        assert each["signal"]["high"] <= 1
    best = next(each for each in told["policies"] if each["name"] == "best-rounds")
    assert best["over_settings"]["geometric_mean"] > WORTH
    change = told["verdict"]["change_first"]
    adaptive = {each["name"] for each in told["policies"] if each["adaptive"]}
    assert change is None or change["policy"] not in adaptive or told["verdict"]["adaptive"] == "yes"


def test_a_pool_that_was_stopped_is_not_taken_for_plain(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pools = []
    for p in rng.beta(0.5, 2, 400):
        pool: list[float] = []
        while len(pool) < 32 and not any(pool):
            pool += (rng.random(8) < p).astype(float).tolist()
        pools.append(pool)
    told = advice(write(tmp_path / "log.jsonl", pools), *NARROW, "--no-figures", "--out", tmp_path / "out")
    assert told["log"]["stopped"]["kind"] == "rule"
    assert told["now"]["adaptive"]
    signal = told["plain_signal"]["4"]
    # E[1 - p^4 - q^4] under Beta(1/2, 2).
    assert signal["low"] <= 0.4156 <= signal["high"]


# The page


class Loads(HTMLParser):
    """Collects whatever would make a browser ask for something, and every tag."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [
            f"{tag} {name}={value}" for name, value in attrs if name in {"src", "srcset", "href", "action", "data"}
        ]


def test_the_page_loads_nothing_and_shows_no_markup_of_the_log(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    pools = drawn(60, 8, 0.5, 1.0)
    path = tmp_path / f"{evil.replace('/', '')}.jsonl"
    lines = [{"prompt_id": f"{evil}{i}", "rewards": pool} for i, pool in enumerate(pools)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(path, *NARROW, "--out", tmp_path / "out")
    assert result.exit_code == 0
    text = (tmp_path / "out" / "advise.html").read_text()
    parser = Loads()
    parser.feed(text)
    assert parser.found == []
    assert not parser.tags & {"script", "link", "iframe", "img", "object", "embed"}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    assert len(text.encode()) < 2_000_000
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text
    assert "alert(1)<" not in text
    for name in ("advise.csv", "advise.json"):
        assert (tmp_path / "out" / name).exists()
    for toml in (tmp_path / "out").glob("*.toml"):
        assert Policy.from_toml(toml.read_text()).budget.max_samples >= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scalars", "mean=0.4", "x.jsonl"), "and not both"),
        (("--noise-ratio", "high"), "got 'high'"),
        (("--transfer", "2"), "got 2.0"),
        (("--objective", "maen"), "did you mean 'mean'"),
        (("--now", "mopps"), "shares its budget"),
    ],
)
def test_bad_input_is_quoted(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["advise", *options, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_ranges() -> None:
    assert [each.noise_ratio for each in Range().settings[: len(NOISE)]] == list(NOISE)
    (only,) = Range(noise_ratio=(5.0, 10.6), transfer=1.0).settings
    assert only == Range(noise_ratio=(5.0, 10.6), transfer=1.0).middle
    assert math.isclose(only.model.noise[1], 10.6)
