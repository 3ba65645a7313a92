"""The command line: output, errors, exit codes and start-up."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ada_bandit import Policy, analyze
from ada_bandit.specs import read_policy
from ada_bandit.stopping import StoppingProblem
from sim.cli import app

ROOT = Path(__file__).parents[2]
FIELDS = [
    "policy",
    "pass_rate",
    "expected_samples",
    "expected_rounds",
    "signal_probability",
    "resolved_probability",
    "pool_mean_bias",
    "pool_mean_mse",
    "gradient_weight",
]


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


BASE = ("--curve", "qwen2.5-math-1.5b-base")


def compared(out: Path, *arguments: str | Path) -> Any:
    return run("compare", "--no-figures", "--batches", "4", "--prompts", "32", "--out", out, *arguments)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from sim.cli import app\n"
        "try:\n    app(['--help'])\n"
        "except SystemExit as done:\n    assert not done.code\n"
        "heavy = {'numpy', 'rich', 'scipy', 'numba', 'polars', 'matplotlib'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    assert "HEAVY []" in done.stdout
    assert "compare" in done.stdout


def test_exact_analysis_needs_no_compiled_kernels() -> None:
    code = (
        "import sys\n"
        "from sim.cli import app\n"
        "try:\n    app(['analyze', '--json'])\n"
        "except SystemExit as done:\n    assert not done.code\n"
        "print('HEAVY', sorted({'numba', 'polars', 'matplotlib'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    assert "HEAVY []" in done.stdout


def test_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim", "analyze", "--policy", "nothing"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown policy 'nothing'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "compare",
        "analyze",
        "show",
        "frontier",
        "when-adaptive-pays",
        "budget",
        "empirical-bayes",
        "replay",
        "learn",
        "log",
        "clock",
        "theory",
    ],
)
def test_help_of_commands(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"python -m sim {command}" in result.stdout
    assert f" {command} " in run("--help").stdout


# compare


def test_compare_by_default(tmp_path: Path) -> None:
    result = compared(tmp_path)
    assert result.exit_code == 0
    for word in (
        "smollm2-reasoning-gym",
        "grpo",
        "reinforce-ada-pos",
        "reinforce-ada-balance",
        "300 prompts with 32 responses each",
        "smoothed, as the smallest total",
        "cost is relative to grpo (4 responses per prompt)",
        "4.000 ± 0.000",
        "+0.0386",
        "3.946",
        "written to",
    ):
        assert word in result.stdout
    assert result.stderr == ""
    with (tmp_path / "compare.csv").open(newline="") as lines:
        assert [row["policy"] for row in csv.DictReader(lines)][1:] == ["reinforce-ada-pos", "reinforce-ada-balance"]
    configuration = json.loads((tmp_path / "compare.json").read_text())["configuration"]
    assert configuration["batches"] == 4
    assert (configuration["source"]["kind"], configuration["source"]["name"]) == ("rollouts", "smollm2-reasoning-gym")


def test_compare_on_a_built_in_source(tmp_path: Path) -> None:
    curve = json.loads(compared(tmp_path, *BASE, "--json").stdout)
    assert curve["configuration"]["source"] == {"label": BASE[1], "kind": "curve", "name": BASE[1]}
    assert json.loads(compared(tmp_path, "--source", BASE[1], "--json").stdout) == curve
    default = json.loads(compared(tmp_path, "--json").stdout)
    assert json.loads(compared(tmp_path, "--source", "smollm2-reasoning-gym", "--json").stdout) == default
    plain = json.loads(compared(tmp_path, "--no-smooth", "--json").stdout)
    assert plain["configuration"]["source"]["smooth"] is False


@pytest.mark.parametrize(
    ("command", "default"),
    [("compare", "smollm2-reasoning-gym")]
    + [(name, BASE[1]) for name in ("frontier", "when-adaptive-pays", "budget", "empirical-bayes", "learn")],
)
def test_every_command_that_takes_a_law_takes_a_source(command: str, default: str, tmp_path: Path) -> None:
    assert f"Pass rates are those of {default} unless" in " ".join(run(command, "--help").stdout.split())
    result = run(command, "--source", "qwen", "--out", tmp_path)
    assert result.exit_code == 2
    assert "unknown source 'qwen'" in result.stderr
    # The sources exclude each other in every command.
    result = run(command, "--source", "qwen", "--curve", "rl", "--out", tmp_path)
    assert "--curve 'rl' and --source 'qwen' exclude each other" in result.stderr


def test_compare_tells_the_efficiency(tmp_path: Path) -> None:
    options = (*BASE, "--objective", "log", "--noise-ratio", "10", "--update-cost", "10", "--at-least", "1/16")
    result = compared(tmp_path, *options, "--transfer", "0", "--policy", "dr-grpo", "--policy", "reinforce-ada-balance")
    setting = "objective log, noise ratio 10, update cost 10, transfer 0"
    assert setting in " ".join(result.stdout.split())
    data = json.loads((tmp_path / "compare.json").read_text())
    assert data["efficiency_reference"] == "grpo (4 responses per prompt)"
    assert data["configuration"]["score_model"]["update_cost"] == 10
    plain, balance = data["policies"]
    # Worked out apart from this code, on the same law: 1.32 times the efficiency of r - group mean with n = 4.
    assert balance["efficiency"] / plain["efficiency"] == pytest.approx(1.32, rel=0.03)
    with (tmp_path / "compare.csv").open(newline="") as lines:
        assert float(list(csv.DictReader(lines))[1]["efficiency_ratio"]) == balance["efficiency_ratio"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "loog"], "unknown objective 'loog'; did you mean 'log'?"),
        (["--noise-ratio", "x"], "a noise ratio is written as one number"),
        (["--update-cost", "nan"], "update_cost must be a finite number in [0, inf); got nan"),
    ],
)
def test_settings_of_the_efficiency_are_checked(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = compared(tmp_path, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_compare_draws_figures(tmp_path: Path) -> None:
    result = run("compare", "--policy", "grpo", "--batches", "0", "--out", tmp_path / "new" / "folder")
    assert result.exit_code == 0
    names = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert {"compare.csv", "compare.json", "signal_cost.png", "weight.svg", "bias.png", "responses.svg"} <= names


def test_compare_prints_json_alone(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "from ada_bandit import exit_rule\nprint('loaded')\n"
        "@exit_rule\ndef noisy(pos, neg):\n    print('called')\n    return pos > 1\n"
    )
    result = compared(tmp_path, "--json", "--rules", rules, "--policy", "noisy", "--policy", "grpo", "--seed", "5")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data == json.loads((tmp_path / "compare.json").read_text())
    assert [row["policy"] for row in data["policies"]] == ["noisy", "grpo"]
    assert data["configuration"]["seed"] == 5
    assert data["configuration"]["version"]


def test_compare_with_the_papers_filter(tmp_path: Path) -> None:
    options = ("--at-least", "1/16", "--prompts", "512", "--batches", "0", "--json")
    data = json.loads(compared(tmp_path, *BASE, *options).stdout)
    extra = {row["policy"]: row["extra_responses"] for row in data["policies"]}
    assert extra["reinforce-ada-pos"] == pytest.approx(4000, abs=50)
    assert extra["reinforce-ada-balance"] == pytest.approx(6300, abs=50)
    assert data["configuration"]["source"]["at_least"] == [1, 16]


def test_compare_on_a_file(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("prompt_id,correct,total\na,0,2\nb,1,2\nc,2,2\nd,0,2\ne,2,2\n")
    result = compared(tmp_path / "out", "--pass-rates", path)
    assert "smoothed, as the smallest total, 2, is below 64" in result.stdout
    result = compared(tmp_path / "out", "--pass-rates", path, "--no-smooth", "--json")
    source = json.loads(result.stdout)["configuration"]["source"]
    assert source == {"label": "counts.csv", "kind": "file", "name": str(path), "smooth": False}


@pytest.mark.parametrize(
    ("correct", "words"),
    [(0, "no response was correct, so the law is p = 0"), (4, "no response was incorrect, so the law is p = 1")],
)
def test_compare_says_what_it_found(tmp_path: Path, correct: int, words: str) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(f"prompt_id,correct,total\na,{correct},4\nb,{correct},4\n")
    result = compared(tmp_path / "out", "--pass-rates", path)
    assert result.exit_code == 0
    told = " ".join(result.stdout.split())
    assert words in told
    assert "that is no proof: 4 responses a prompt can't tell p =" in told


def test_compare_without_prompts(tmp_path: Path) -> None:
    result = compared(tmp_path, "--prompts", "0")
    assert result.exit_code == 0
    assert "0 prompts: nothing simulated" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--curve", "nope"), "unknown curve 'nope'"),
        (("--curve", "a", "--pass-rates", "b.csv"), "--pass-rates 'b.csv' and --curve 'a' exclude each other"),
        (("--source", "smollm2-reasoning"), "did you mean 'smollm2-reasoning-gym'"),
        (("--curve", "smollm2-reasoning-gym"), "unknown curve 'smollm2-reasoning-gym'"),
        (("--curve", "a", "--source", "b"), "--curve 'a' and --source 'b' exclude each other"),
        (("--pass-rates", "a.csv", "--source", "b"), "--pass-rates 'a.csv' and --source 'b' exclude each other"),
        (("--at-least", "16"), "a filter is written K/N"),
        (("--at-least", "17/16"), "K of at most N"),
        ((*BASE, "--smooth"), "--smooth is for a file of counts or for rollouts"),
        (("--source", BASE[1], "--no-smooth"), "--no-smooth is for a file of counts or for rollouts"),
        (("--pass-rates", "nope.csv"), "'nope.csv' does not exist"),
        (("--policy", "reinforce-ada-balanced"), "did you mean 'reinforce-ada-balance'"),
        (("--policy", "nope.toml"), "'nope.toml' does not exist; give an existing file or a preset"),
        (("--rules", "nope.py"), "'nope.py' does not exist"),
        (("--seed", "99999999999999999999999"), "got 99999999999999999999999"),
    ],
)
def test_compare_refuses(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = compared(tmp_path, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_output_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = compared(tmp_path / "taken")
    assert result.exit_code == 2
    assert "can't be made" in result.stderr


def test_output_file_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "compare.csv").mkdir()
    result = compared(tmp_path)
    assert result.exit_code == 2
    assert "can't write to" in result.stderr


@pytest.mark.parametrize("arguments", [("--prompts", "-1"), ("--batches", "x"), ("--nothing",)])
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    result = run("compare", *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


# analyze


def test_analyze_json_is_exact() -> None:
    result = run(
        "analyze", "--json", "--policy", "grpo", "--policy", "reinforce-ada-balance",
        "--pass-rate", "0.1", "--pass-rate", "0.8", "--pass-rate", "1",
    )  # fmt: skip
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert all(list(row) == FIELDS for row in rows)
    assert [(row["policy"], row["pass_rate"]) for row in rows] == [
        (name, rate) for name in ("grpo", "reinforce-ada-balance") for rate in (0.1, 0.8, 1.0)
    ]
    for start, name in ((0, "grpo"), (3, "reinforce-ada-balance")):
        analysis = analyze(Policy.preset(name), [0.1, 0.8, 1.0])
        for index, row in enumerate(rows[start : start + 3]):
            assert all(isinstance(row[field], float) for field in FIELDS[1:])
            assert [row[field] for field in FIELDS[2:]] == [getattr(analysis, field)[index] for field in FIELDS[2:]]
    # Values derived apart from this code, to 1e-9.
    derived = (20.9624819855, 2.6203102482, 0.9656631618, 0.8435766260, 0.0321308540)
    assert [rows[3][field] for field in FIELDS[2:7]] == pytest.approx(derived, abs=1e-9)
    assert '"pass_rate": 0.10000000000000001' in result.stdout


def test_a_verifier_that_errs_reaches_analyze_and_compare(tmp_path: Path) -> None:
    result = run("analyze", "--json", "--policy", "rloo", "--pass-rate", "0.5", "--false-positive", "0.1")
    row = json.loads(result.stdout)[0]
    # RLOO has w = 1 for the rewards it sees; 1 - 0.1 of that is left of the true gradient. They come at rate 0.55.
    assert row["gradient_weight"] == pytest.approx(0.9, abs=1e-12)
    assert row["pool_mean_bias"] == pytest.approx(0.05, abs=1e-12)
    result = compared(tmp_path, "--policy", "rloo", "--false-negative", "0.25", "--json")
    data = json.loads(result.stdout)
    assert data["policies"][0]["weights"]["0.5"] == pytest.approx(0.75, abs=1e-12)
    # The bias, -0.25 p, is largest at p = 1.
    assert data["policies"][0]["largest_bias"] == pytest.approx(-0.25, abs=1e-12)
    assert data["configuration"]["score_model"]["false_negative"] == 0.25
    refused = run("analyze", "--false-positive", "0.6", "--false-negative", "0.4")
    assert refused.exit_code == 2
    assert "must be less than 1" in refused.stderr


def test_analyze_as_a_table() -> None:
    result = run("analyze", "--policy", "reinforce-ada-balance")
    assert result.exit_code == 0
    assert "20.96248" in result.stdout
    assert "-0.00000" not in result.stdout


@pytest.mark.parametrize(("rate", "shown"), [("1.5", "1.5"), ("nan", "nan"), ("-0.1", "-0.1")])
def test_analyze_refuses(rate: str, shown: str) -> None:
    result = run("analyze", "--pass-rate", rate)
    assert result.exit_code == 2
    assert f"must lie in [0, 1]; got {shown}" in result.stderr


# show


def test_show() -> None:
    result = run("show")
    assert result.exit_code == 0
    assert Policy.preset("reinforce-ada-balance").to_toml().rstrip() in result.stdout
    for name in ("draws", "keep_pos", "keep_neg", "adv_pos", "adv_neg"):
        assert f"\n{name}: " in result.stdout
    assert "+ exit, resolved; x exit, exhausted" in result.stdout


def test_show_one_table() -> None:
    result = run("show", "--policy", "reinforce-ada-pos:samples=2,rounds=2", "--table", "draws", "--size", "3")
    picture = "  2 |  +  .  +\n  1 |  .  +  .\n  0 |  2  .  2\n"
    assert picture in result.stdout
    assert "keep_pos:" not in result.stdout


def test_show_prints_a_policy_file(tmp_path: Path) -> None:
    result = run("show", "--policy", "bayes:max_samples=8", "--toml")
    (tmp_path / "mine.toml").write_text(result.stdout)
    assert result.stdout == run("show", "--policy", tmp_path / "mine.toml", "--toml").stdout
    assert read_policy(tmp_path / "mine.toml") == Policy.preset("bayes", max_samples=8)
    refused = run("show", "--toml", "--policy", "grpo", "--policy", "rloo")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "got 2 policies. Give one --policy" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("frontier", "--max-samples", "5000"),
        ("frontier", "--max-samples", "5000", "--save-policy", "best.toml"),
        ("empirical-bayes", "--max-samples", "5000"),
        ("when-adaptive-pays", "--max-samples", "5000"),
        ("compare", "--policy", "bayes:max_samples=5000"),
        ("analyze", "--policy", "bayes:max_samples=5000"),
        ("show", "--policy", "grpo:group_size=5000"),
    ],
)
def test_limits_are_checked_before_the_work(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = StoppingProblem._moments

    def work(problem: StoppingProblem) -> None:
        assert problem.most <= 4096, "began to work"
        begin(problem)

    monkeypatch.setattr(StoppingProblem, "_moments", work)
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert "a prompt may get at most 4096 responses" in result.stderr
    assert "5000" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_show_refuses_an_unknown_table() -> None:
    result = run("show", "--table", "nothing")
    assert result.exit_code == 2
    assert "keep_pos" in result.stderr


def test_missing_scores_are_analysed() -> None:
    result = run(
        "analyze", "--json", "--unscored", "0.2", "--policy", "dr-grpo", "--policy", "dr-grpo:no_signal=leave_out",
        "--pass-rate", "0.5",
    )  # fmt: skip
    one, other = json.loads(result.stdout)
    # n = 4: 4 x 0.8 rows; w = E[max(m - 1, 0)] / 4 for m ~ Binomial(4, 0.8) scored responses: (3.2 - 1 + 0.2^4) / 4.
    assert one["expected_rows"] == pytest.approx(3.2)
    assert one["gradient_weight"] == other["gradient_weight"] == pytest.approx((2.2 + 0.2**4) / 4)
    assert one["rows_in_loss"] == pytest.approx(3.2)
    # A group of m has one class with chance 2 / 2^m.
    chance = {m: math.comb(4, m) * 0.8**m * 0.2 ** (4 - m) for m in range(1, 5)}
    assert other["rows_in_loss"] == pytest.approx(sum(c * m * (1 - 2 / 2**m) for m, c in chance.items()))
    assert "rows in the" in run("analyze", "--unscored", "0.05").stdout
    refused = run("analyze", "--unscored", "0.1", "--false-positive", "0.1")
    assert "are analysed one at a time" in refused.stderr
