from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import llm.experiment.command
from ada_bandit.errors import InputError
from llm.cli import app
from llm.experiment.jobs import Failure, WarmProcesses, command_of, folder_lock, run_jobs
from llm.experiment.plan import Experiment, Job, Tuning, choose_rate, read_experiment
from llm.experiment.results import ArmRuns, Results, collect, mean_over_seeds, points_of, seed_mean, tune, value_at
from llm.histories import RunHistory, read_run

ROOT = Path(__file__).resolve().parents[3]

CONFIG = """
seeds = [0, 1]
{top}

[run]
{model}
task = {{kind = "digits"}}
{run}

[run.eval]
every = 10
pool = true
tasks = {{held_out = {{kind = "digits", seed = 1}}}}

[arms.few]
policy = {{preset = "grpo", group_size = 2}}

[arms.many]
policy = {{preset = "grpo", group_size = 8}}
{arms}
"""


def plan(
    folder: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    top: str = "",
    run: str = "",
    arms: str = "",
    model: str = 'model = {path = "nowhere"}',
) -> Experiment:
    file = folder / "experiment.toml"
    file.write_text(CONFIG.format(top=top, run=run, arms=arms, model=model), encoding="utf-8")
    return read_experiment(file, folder / "out", changes)


def evaluation(step: int, responses: int, tokens: int, **rates: float | None) -> dict[str, Any]:
    told = {name: {"pass_rate": rate, "standard_error": 0.01} for name, rate in rates.items()}
    return {"step": step, "total_responses": responses, "total_tokens": tokens, "eval": told}


def step_row(step: int, responses: int, tokens: int) -> dict[str, Any]:
    spent = {"responses": responses, "tokens": tokens}
    spent |= {"total_responses": (step + 1) * responses, "total_tokens": (step + 1) * tokens}
    seen = {"policy": "made up", "pool_reward": 0.2, "entropy": 0.5, "signal_fraction": 0.5}
    return {"step": step, **spent, **seen, "time": {"sample": 0.3, "update": 0.1, "eval": 0.2, "total": 0.6}}


def run_of(rates: Sequence[float | None], *, every: int = 10, responses: int = 5, tokens: int = 20) -> RunHistory:
    evals = [
        evaluation(place * every, place * every * responses, place * every * tokens, pool=rate, held_out=rate)
        for place, rate in enumerate(rates)
    ]
    steps = [step_row(step, responses, tokens) for step in range(every * (len(rates) - 1))]
    return RunHistory(Path("made-up"), "made up", steps, evals)


def write_run(folder: Path, run: RunHistory) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = sorted([*run.steps, *run.evals], key=lambda row: row["step"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def finish(job: Job, run: RunHistory) -> None:
    write_run(job.folder, run)
    job.mark_finished()


# Numbers


def test_the_mean_of_seeds_has_students_interval() -> None:
    found = seed_mean([1.0, 2.0, 3.0, 4.0])
    # Variance 5/3, so the standard error is sqrt(5/12); the 0.975 quantile of t with 3 degrees of freedom is 3.182446.
    assert found.mean == 2.5
    assert found.standard_error == pytest.approx(math.sqrt(5 / 12))
    assert found.low == pytest.approx(2.5 - 3.182446 * math.sqrt(5 / 12), abs=1e-6)
    assert found.high == pytest.approx(2.5 + 3.182446 * math.sqrt(5 / 12), abs=1e-6)
    assert found.sign == 1


def test_an_interval_across_zero_has_no_sign_and_one_value_has_no_interval() -> None:
    # Two values: t with 1 degree of freedom is Cauchy, whose 0.975 quantile is tan(0.475 pi) = 12.7062.
    both = seed_mean([-1.0, 1.5])
    assert both.low == pytest.approx(0.25 - math.tan(0.475 * math.pi) * 1.25)
    assert both.sign == 0
    assert seed_mean([-3.0, -3.1, -2.9]).sign == -1
    one = seed_mean([0.5, math.nan])
    assert (one.mean, one.count, one.sign) == (0.5, 1, 0)
    assert math.isnan(one.low)
    assert seed_mean([]).count == 0


def test_a_pass_rate_lies_on_the_line_between_evaluations() -> None:
    run = RunHistory(
        Path(),
        "",
        [],
        [
            evaluation(0, 0, 0, pool=0.1),
            evaluation(10, 40, 1000, pool=0.3),
            evaluation(20, 90, 2000, pool=None),
            evaluation(30, 140, 3000, pool=0.5),
        ],
    )
    assert value_at(run, "pool", "steps", 0) == pytest.approx(0.1)
    assert value_at(run, "pool", "steps", 5) == pytest.approx(0.2)
    assert value_at(run, "pool", "responses", 10) == pytest.approx(0.15)
    # Without a score at 2000 tokens the line goes from 1000 to 3000.
    assert value_at(run, "pool", "tokens", 1500) == pytest.approx(0.35)
    assert value_at(run, "pool", "tokens", 3000) == pytest.approx(0.5)
    assert math.isnan(value_at(run, "pool", "tokens", 3001))
    assert np.isnan(value_at(run, "held_out", "steps", np.array([1.0, 2.0]))).all()


def results_of(arms: Mapping[str, Sequence[RunHistory]], **points: list[int]) -> Results:
    found = {name: ArmRuns(1e-4, dict(enumerate(runs))) for name, runs in arms.items()}
    where: Any = {"steps": [20], "responses": [100], "tokens": [400], **points}
    return Results(found, where, next(iter(arms)))


def test_differences_are_paired_by_seed() -> None:
    base = [run_of([0.1, 0.2, 0.30]), run_of([0.1, 0.2, 0.50]), run_of([0.1, 0.2, 0.70])]
    other = [run_of([0.1, 0.2, 0.41]), run_of([0.1, 0.2, 0.62]), run_of([0.1, 0.2, 0.83])]
    found = results_of({"base": base, "other": other}).difference("other", "pool", "steps", 20)
    # Differences 0.11, 0.12, 0.13: standard error 0.01/sqrt(3); the quantile of t with 2 degrees is 4.302653.
    assert found.mean == pytest.approx(0.12)
    assert found.low == pytest.approx(0.12 - 4.302653 * 0.01 / math.sqrt(3), abs=1e-6)
    # Unpaired, a standard deviation of 0.2 in either arm would drown that.
    assert found.sign == 1


def test_only_common_seeds_are_compared() -> None:
    base = ArmRuns(1e-4, {0: run_of([0.1, 0.2]), 1: run_of([0.1, 0.3])})
    other = ArmRuns(1e-4, {1: run_of([0.1, 0.5]), 2: run_of([0.1, 0.9])})
    results = Results({"base": base, "other": other}, {"steps": [10], "responses": [50], "tokens": [200]}, "base")
    found = results.difference("other", "pool", "steps", 10)
    assert found.count == 1
    assert found.mean == pytest.approx(0.2)


def test_equal_steps_and_equal_tokens_may_disagree_and_both_are_said() -> None:
    # The second arm learns 0.3 a 10 steps at 4 times the tokens of the first one, which learns 0.1.
    cheap = [run_of([0.1, 0.2, 0.3, 0.4, 0.5 + noise], tokens=20) for noise in (0, 0.001, 0.002)]
    dear = [run_of([0.1, 0.4 + noise], tokens=80, responses=20) for noise in (0, 0.001, 0.002)]
    results = results_of({"cheap": cheap, "dear": dear}, steps=[10], tokens=[600], responses=[150])
    assert results.at("cheap", "pool", "steps", 10).mean == pytest.approx(0.2)
    assert results.at("dear", "pool", "steps", 10).mean == pytest.approx(0.401)
    assert results.at("cheap", "pool", "tokens", 600).mean == pytest.approx(0.4)
    assert results.at("dear", "pool", "tokens", 600).mean == pytest.approx(0.1 + 0.301 * 600 / 800)
    verdicts = {text.partition(":")[0]: text for text in results.verdicts()}
    steps, tokens = verdicts["pool at 10 steps"], verdicts["pool at 600 tokens"]
    assert steps == "pool at 10 steps: dear has the largest mean, 0.401; ahead of cheap (0.200): dear +0.201"
    # 0.1 + 0.301 * 3/4 = 0.32575, and 0.4 - 0.32575 = 0.07425.
    assert tokens == "pool at 600 tokens: cheap has the largest mean, 0.400; behind cheap (0.400): dear -0.074"


def test_costs_are_of_the_steps_that_are_compared() -> None:
    run = run_of([0.1, 0.2, 0.3], responses=5, tokens=20)
    late = [row | {"responses": 1000} if row["step"] >= 10 else row for row in run.steps]
    results = results_of({"one": [RunHistory(run.folder, "", late, run.evals)]}, steps=[10])
    assert results.per_step("one", "responses").mean == 5
    assert results.seconds("one") == pytest.approx({"sample": 0.3, "update": 0.1, "eval": 0.2, "total": 0.6})


def test_what_a_run_did_not_reach_is_told() -> None:
    results = results_of({"one": [run_of([0.1, 0.2, 0.3]), run_of([0.1, 0.2])]}, tokens=[100], responses=[25])
    assert results.at("one", "pool", "steps", 20).count == 1
    notes = [note for note in results.notes if "20 steps" in note]
    assert notes == [
        "one has a pass rate of pool at 20 steps in 1 of its 2 runs; the others end before",
        "one has a pass rate of held_out at 20 steps in 1 of its 2 runs; the others end before",
    ]


def test_tables_hold_the_same_numbers() -> None:
    base = [run_of([0.1, 0.2, 0.3]), run_of([0.1, 0.2, 0.5])]
    results = results_of({"base": base, "other": [run_of([0.1, 0.2, 0.4]), run_of([0.1, 0.2, 0.7])]})
    rows = list(csv.DictReader(results.to_csv().splitlines()))
    assert len(rows) == 2 * 2 * 3  # arms, evaluations, axes
    row = next(row for row in rows if (row["arm"], row["evaluation"], row["axis"]) == ("other", "held_out", "steps"))
    assert float(row["mean"]) == pytest.approx(0.55)
    assert float(row["start"]) == pytest.approx(0.1)
    assert float(row["difference_mean"]) == pytest.approx(0.15)
    document = json.loads(json.dumps(results.to_dict(), allow_nan=False))
    assert document["records"][0]["mean"] == pytest.approx(0.4)
    assert document["arms"]["base"]["responses_per_step"] == 5


# Tuning


def test_the_best_rate_is_chosen() -> None:
    found = choose_rate({1e-4: 0.3, 2e-4: 0.5, 4e-4: math.nan, 8e-4: 0.4})
    assert found is not None
    assert (found.best, found.at_edge) == (2e-4, False)
    edge = choose_rate({1e-4: 0.3, 2e-4: 0.5, 4e-4: math.nan})
    assert edge is not None
    assert not edge.at_edge
    last = choose_rate({2e-4: 0.5, 1e-4: 0.5})
    assert last is not None
    assert (last.best, last.at_edge) == (1e-4, True)
    assert choose_rate({1e-4: math.nan}) is None


def test_each_arm_gets_its_own_rate(tmp_path: Path) -> None:
    experiment = plan(tmp_path, top="learning_rates = [1e-4, 2e-4, 4e-4]")
    jobs = experiment.tuning_jobs(["few", "many"])
    assert {(job.arm, job.rate, job.seed) for job in jobs} == {
        (arm, rate, 100) for arm in ("few", "many") for rate in (1e-4, 2e-4, 4e-4)
    }
    ends = {("few", 1e-4): 0.2, ("few", 2e-4): 0.4, ("few", 4e-4): 0.3, ("many", 1e-4): 0.1, ("many", 2e-4): 0.2}
    for job in jobs:
        if (job.arm, job.rate) in ends:
            finish(job, run_of([0.1, ends[job.arm, job.rate]]))
    found = tune(experiment, jobs)
    assert {arm: (each.best, each.at_edge) for arm, each in found.items()} == {
        "few": (2e-4, False),
        "many": (2e-4, False),
    }
    assert math.isnan(found["many"].values[4e-4])
    rates = {arm: each.best for arm, each in found.items()}
    assert [(job.arm, job.seed) for job in experiment.final_jobs(rates)] == [
        ("few", 0),
        ("many", 0),
        ("few", 1),
        ("many", 1),
    ]


def test_a_rate_counts_by_the_mean_over_its_tuning_runs(tmp_path: Path) -> None:
    top = (
        "learning_rates = [1e-4, 2e-4]\ntuning_seeds = [7, 8]\n"
        'bases = {small = "a", large = "b"}\ntuning_bases = ["large"]'
    )
    experiment = plan(tmp_path, {}, top=top, model="")
    jobs = experiment.tuning_jobs(["few", "many"])
    # A whole round of arms at each rate, before the next seed.
    assert [(job.arm, job.rate, job.base, job.seed) for job in jobs] == [
        (arm, rate, "large", seed) for seed in (7, 8) for rate in (1e-4, 2e-4) for arm in ("few", "many")
    ]
    ends = {
        ("few", 1e-4): (0.2, 0.6),
        ("few", 2e-4): (0.5, 0.2),
        ("many", 1e-4): (0.9, math.nan),
        ("many", 2e-4): (0.3, 0.4),
    }
    for job in jobs:
        end = ends[job.arm, job.rate][job.seed - 7]
        if not math.isnan(end):
            finish(job, run_of([0.1, end]))
    found = tune(experiment, jobs)
    assert found["few"].values == pytest.approx({1e-4: 0.4, 2e-4: 0.35})
    # A rate of which one run failed is none to choose.
    assert (found["few"].best, found["many"].best) == (1e-4, 2e-4)


def test_the_rate_beyond_the_edge_keeps_the_grids_ratio() -> None:
    beyond = {best: Tuning({1e-4: 0.0, 3e-4: 0.0, 6e-4: 0.0}, best).beyond for best in (1e-4, 3e-4, 6e-4)}
    assert beyond[3e-4] is None
    assert beyond[1e-4] == pytest.approx(1e-4 / 3)
    assert beyond[6e-4] == pytest.approx(12e-4)


def test_every_arm_is_trained_from_every_base_and_a_part_of_the_runs_is_balanced(tmp_path: Path) -> None:
    experiment = plan(tmp_path, {}, top='bases = {small = "a", large = "b"}', model="")
    jobs = experiment.final_jobs({"few": 1e-4, "many": 2e-4})
    assert [(job.seed, job.base, job.arm) for job in jobs] == [
        (seed, base, arm) for seed in (0, 1) for base in ("small", "large") for arm in ("few", "many")
    ]
    assert [job.config.model.path for job in jobs[:4]] == ["a", "a", "b", "b"]
    assert len({job.folder for job in jobs}) == len(jobs)
    for place, job in enumerate(jobs):
        finish(job, run_of([0.1, 0.2 + 0.1 * (job.base == "large") + 0.01 * place]))
    results = collect(experiment, jobs, {})
    assert results is not None
    # Pairs are of one base and seed: the arms are neighbours in the list everywhere.
    found = results.difference("many", "pool", "steps", 10)
    assert found.mean == pytest.approx(0.01)
    assert found.count == 4
    assert found.standard_error == pytest.approx(0, abs=1e-12)


def test_tuning_looks_at_the_evaluation_and_the_axis_that_it_is_told(tmp_path: Path) -> None:
    top = 'learning_rates = [1e-4, 2e-4]\nsteps_at = [10]\ntuning_metric = {evaluation = "pool", at = "steps"}'
    experiment = plan(tmp_path, top=top)
    jobs = experiment.tuning_jobs(["few"])
    # The second one is ahead at 10 steps and behind at the end.
    finish(jobs[0], run_of([0.1, 0.2, 0.9]))
    finish(jobs[1], run_of([0.1, 0.3, 0.3]))
    assert tune(experiment, jobs)["few"].best == 2e-4


# Configs


def test_runs_get_their_policy_seed_and_rate(tmp_path: Path) -> None:
    arms = '[arms.other]\npolicy = "rloo"\nset = {"train.prompts" = 16, "train.mini_batch" = 8}'
    experiment = plan(tmp_path, top="learning_rates = [1e-4]", run="train = {steps = 7}", arms=arms)
    config = experiment.job("other", 1e-4, 3).config
    assert (config.policy, config.seed, config.train.learning_rate) == ("rloo", 3, 1e-4)
    assert (config.train.prompts, config.train.mini_batch, config.train.steps) == (16, 8, 7)
    assert experiment.job("few", 1e-4, 3).config.train.prompts == 512
    assert experiment.tuning_jobs(["few"]) == []
    assert experiment.reference == "few"


def test_points_come_from_the_config_or_from_what_all_runs_spent(tmp_path: Path) -> None:
    runs = [run_of([0.1, 0.2], tokens=20), run_of([0.1, 0.2], tokens=30)]
    open_end = points_of(plan(tmp_path, run="train = {steps = 10}"), runs)
    assert open_end == {"steps": [10], "responses": [50], "tokens": [200]}
    fixed = points_of(plan(tmp_path, run="train = {steps = 10, tokens = 150}"), runs)
    assert fixed["tokens"] == [150]
    told = points_of(plan(tmp_path, top="tokens_at = [5, 10]\nresponses_at = [3]"), runs)
    assert (told["tokens"], told["responses"], told["steps"]) == ([5, 10], [3], [600])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"top": "sedes = [1]"}, "did you mean 'seeds'"),
        ({"run": "train = {step = 3}"}, "did you mean 'train.steps'"),
        ({"arms": '[arms.few]\npolicy = "rloo"'}, "can't be read"),
        ({"arms": '[arms.same]\npolicy = {preset = "grpo", group_size = 8}'}, "'many' and 'same' are the same run"),
        (
            {"arms": '[arms.x]\npolicy = "gpro"'},
            "the policy of arm 'x' can't be used: unknown policy 'gpro'; did you mean 'grpo'",
        ),
        ({"arms": '[arms.x]\npolicy = "rloo"\nset = {"train.prompt" = 3}'}, "did you mean 'train.prompts'"),
        ({"arms": '[arms.x]\npolicy = "rloo"\nset = {seed = 3}'}, "arms.x.set can't change seed"),
        ({"arms": '[arms."a b"]\npolicy = "rloo"'}, "'a b'"),
        (
            {"top": "learning_rates = [1e-4, 2e-4]\ntuning_seeds = [7, 1]"},
            "tuning_seeds holds 1, which is one of seeds",
        ),
        ({"top": "tuning_seeds = []"}, "there is no seed in tuning_seeds"),
        ({"top": 'bases = {"a b" = "x"}', "run": ""}, "a base's name"),
        ({"top": 'tuning_bases = ["x"]'}, "unknown base in tuning_bases 'x'"),
        ({"top": 'bases = {small = "x"}'}, "remove run.model.path"),
        ({"top": "learning_rates = [1e-4, 1e-4]"}, "holds a value twice"),
        ({"top": "learning_rates = [1e-4]", "run": "train = {learning_rate = 1e-5}"}, "remove run.train.learning_rate"),
        ({"run": "seed = 3"}, "remove run.seed"),
        ({"top": 'reference = "fwe"'}, "did you mean 'few'"),
        (
            {"top": 'learning_rates = [1e-4, 2e-4]\ntuning_metric = {evaluation = "held-out"}'},
            "did you mean 'held_out'",
        ),
    ],
)
def test_what_can_t_be_used_is_named(tmp_path: Path, parts: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(tmp_path, None, **parts)
    assert words in str(caught.value)


def test_a_run_without_evaluations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set run\.eval\.every"):
        plan(tmp_path, {"run.eval.every": 0})


# Processes

CHILD = """
import sys, time
from pathlib import Path
folder, code, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
with (folder / "starts").open("a") as file:
    file.write("x")
print("first line", flush=True)
time.sleep(seconds)
print("the reason", file=sys.stderr)
sys.exit(code)
"""


def child(job: Job, code: int = 0, seconds: float = 0.0) -> list[str]:
    return [sys.executable, "-c", CHILD, str(job.folder), str(code), str(seconds)]


def starts(job: Job) -> int:
    file = job.folder / "starts"
    return len(file.read_text()) if file.exists() else 0


def test_a_run_that_fails_stops_no_other_and_shows_its_log(tmp_path: Path) -> None:
    jobs = plan(tmp_path).final_jobs({"few": 1e-4, "many": 1e-4})
    told: list[tuple[Job, Failure | None]] = []
    failures = run_jobs(
        jobs,
        2,
        command=lambda job: child(job, code=3 if job is jobs[1] else 0),
        tell=lambda job, failure, _: told.append((job, failure)),
    )
    assert [job.finished for job in jobs] == [True, False, True, True]
    assert [failure.job for failure in failures] == [jobs[1]]
    assert failures[0].code == 3
    assert failures[0].lines == ("first line", "the reason")
    assert "many, learning rate 0.0001, seed 0 failed with exit code 3" in str(failures[0])
    assert {job.folder for job, _ in told} == {job.folder for job in jobs}


def test_what_has_finished_is_not_run_again_unless_its_settings_changed(tmp_path: Path) -> None:
    jobs = plan(tmp_path).final_jobs({"few": 1e-4})
    run_jobs(jobs[:1], 1, command=child)
    again = plan(tmp_path).final_jobs({"few": 1e-4})
    run_jobs(again, 1, command=child)
    assert [starts(job) for job in jobs] == [1, 1]
    longer = plan(tmp_path, {"run.train.steps": 1000}).final_jobs({"few": 1e-4})
    assert [job.finished for job in longer] == [False, False]


def test_no_more_run_at_a_time_than_workers(tmp_path: Path) -> None:
    jobs = plan(tmp_path).final_jobs({"few": 1e-4, "many": 1e-4})
    spans = tmp_path / "spans"
    code = (
        "import sys, time; a = time.monotonic(); time.sleep(0.3); b = time.monotonic(); "
        f"open({str(spans)!r}, 'a').write(f'{{a}} {{b}}\\n')"
    )
    run_jobs(jobs, 2, command=lambda _: [sys.executable, "-c", code])
    begun_ended = [tuple(map(float, line.split())) for line in spans.read_text().splitlines()]
    at_once = [sum(a <= start < b for a, b in begun_ended) for start, _ in begun_ended]
    assert len(at_once) == 4
    assert max(at_once) <= 2


KILLED = """
import os, sys
from pathlib import Path
from llm.experiment.jobs import folder_lock, run_jobs
from llm.experiment.plan import read_experiment
plan = read_experiment(sys.argv[1], Path(sys.argv[2]))
jobs = plan.final_jobs({"few": 1e-4, "many": 1e-4})
code = '''
import os, sys, time
from pathlib import Path
from llm.processes import end_with
end_with(int(sys.argv[3]))
with (Path(sys.argv[1]) / "starts").open("a") as file:
    file.write("x")
time.sleep(float(sys.argv[2]))
'''
plan.folder.mkdir()
with folder_lock(plan.folder) as lock:
    seconds = lambda job: "0" if job is jobs[0] else "600"
    command = lambda job: [sys.executable, "-c", code, str(job.folder), seconds(job), str(os.getpid())]
    run_jobs(jobs, 1, command=command, inherit=[lock])
"""


def test_a_killed_experiment_leaves_no_process_and_loses_nothing(tmp_path: Path) -> None:
    experiment = plan(tmp_path)
    jobs = experiment.final_jobs({"few": 1e-4, "many": 1e-4})
    command = [sys.executable, "-c", KILLED, str(tmp_path / "experiment.toml"), str(experiment.folder)]
    process = subprocess.Popen(command, cwd=ROOT)
    until = time.monotonic() + 120
    while not starts(jobs[1]):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    with pytest.raises(InputError, match="another experiment is at work"), folder_lock(experiment.folder, 0.0):
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # The run in the middle held the lock as well, and ends on its own.
    with folder_lock(experiment.folder, 60):
        run_jobs(jobs, 2, command=child)
    assert [starts(job) for job in jobs] == [1, 2, 1, 1]
    assert all(job.finished for job in jobs)


def experiment_of_real_runs(folder: Path, model: Path) -> Path:
    file = folder / "experiment.toml"
    file.write_text(
        f"""
seeds = [0]
[run]
model = {{path = "{model}", device = "cpu"}}
task = {{kind = "digits", families = {{add = {{weight = 1}}}}, size = 64, workers = 0}}
sampler = {{max_new_tokens = 3}}
train = {{steps = 1, tokens = 60, prompts = 4, mini_batch = 4, learning_rate = 1e-4}}
eval = {{every = 1, samples = 1, prompts = 4, pool = true}}
[arms.two]
policy = {{preset = "grpo", group_size = 2}}
[arms.four]
policy = {{preset = "grpo", group_size = 4}}
""",
        encoding="utf-8",
    )
    return file


@pytest.mark.torch
def test_forks_of_a_warm_process_run_as_processes_of_their_own_do(tmp_path: Path, tiny_model_dir: Path) -> None:
    file = experiment_of_real_runs(tmp_path, tiny_model_dir)
    losses = []
    for name in ("warm", "cold"):
        jobs = read_experiment(file, tmp_path / name).final_jobs({"two": 1e-4, "four": 1e-4})
        # A run that fails on the way breaks nothing for the next one.
        broken = replace(jobs[0], folder=tmp_path / name / "broken")
        with ExitStack() as stack:
            warm = stack.enter_context(WarmProcesses()) if name == "warm" else None

            def command(job: Job, broken: Job = broken) -> list[str]:
                wrong = ["--set", "train.prompts=1000"] if job is broken else []
                return [*command_of(job, 1), *wrong]

            failures = run_jobs([jobs[0], broken, jobs[1]], 1, command=command, warm=warm)
        assert [(failure.job, failure.code) for failure in failures] == [(broken, 2)]
        assert "train.prompts is 1000" in " ".join(failures[0].lines)
        assert all(job.finished for job in jobs)
        losses.append([[row["loss"] for row in read_run(job.folder).steps] for job in jobs])
    assert losses[0] == losses[1]


def test_a_fork_runs_no_other_program(tmp_path: Path) -> None:
    (job, *_) = plan(tmp_path).final_jobs({"few": 1e-4})
    with WarmProcesses() as warm, pytest.raises(InputError, match="a fork runs commands of 'python -m llm'"):
        warm.start(job, child(job))


# The command

WRITER = """
import json, sys
from pathlib import Path
folder, end = Path(sys.argv[1]), float(sys.argv[2])
if end < 0:
    sys.exit("diverged")
rows = json.loads(sys.argv[3])
for row in rows:
    if "eval" in row and row["step"]:
        for told in row["eval"].values():
            told["pass_rate"] = end
(folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""


def writes(ends: Mapping[tuple[str, float, int], float]) -> Any:
    run = run_of([0.1, 0.2])
    rows = json.dumps([*run.steps, *run.evals])

    def command(job: Job, threads: int) -> list[str]:
        return [sys.executable, "-c", WRITER, str(job.folder), str(ends[job.arm, job.rate, job.seed]), rows]

    return command


def test_the_command_tunes_compares_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = plan(tmp_path, top="learning_rates = [1e-4, 2e-4, 4e-4]\nsteps_at = [10]")
    ends = {("few", 1e-4, 100): 0.3, ("few", 2e-4, 100): 0.5, ("few", 4e-4, 100): -1.0}
    ends |= {("many", 1e-4, 100): 0.6, ("many", 2e-4, 100): 0.5, ("many", 4e-4, 100): 0.4}
    ends |= {("few", 2e-4, 0): 0.40, ("few", 2e-4, 1): 0.42, ("many", 1e-4, 0): 0.50, ("many", 1e-4, 1): 0.53}
    monkeypatch.setattr(llm.experiment.command, "command_of", writes(ends))
    arguments = ["experiment", str(tmp_path / "experiment.toml"), "--out", str(experiment.folder), "--workers", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1  # one of the runs that tune diverged
    assert "few, learning rate 0.0004, seed 100 failed with exit code 1" in result.output
    assert "diverged" in result.output
    assert "few: learning rate 0.0002, the best of 0.0001: 0.300, 0.0002: 0.500, 0.0004: failed" in result.output
    assert "many: learning rate 0.0001" in result.output
    assert "at the edge" in result.output
    document = json.loads((experiment.folder / "results.json").read_text())
    ahead = next(r for r in document["records"] if (r["arm"], r["evaluation"], r["axis"]) == ("many", "pool", "steps"))
    # Differences 0.10 and 0.11.
    assert ahead["mean"] == pytest.approx(0.515)
    assert ahead["difference_mean"] == pytest.approx(0.105)
    for name in ("pass_rate", "responses", "time"):
        assert (experiment.folder / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert "<svg" in (experiment.folder / f"{name}.svg").read_text()[:1000]


def test_only_one_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = plan(tmp_path, top="learning_rates = [1e-4]")
    monkeypatch.setattr(llm.experiment.command, "command_of", writes({("many", 1e-4, 0): 0.3, ("many", 1e-4, 1): 0.4}))
    arguments = ["experiment", str(tmp_path / "experiment.toml"), "--out", str(experiment.folder)]
    result = CliRunner().invoke(app, [*arguments, "--only", "many"])
    assert result.exit_code == 0, result.output
    assert list(json.loads((experiment.folder / "results.json").read_text())["arms"]) == ["many"]
    wrong = CliRunner().invoke(app, [*arguments, "--only", "mayn"])
    assert wrong.exit_code == 2
    assert "did you mean 'many'" in wrong.output


def test_what_has_not_finished_is_missing_from_the_results_and_told(tmp_path: Path) -> None:
    experiment = plan(tmp_path)
    jobs = experiment.final_jobs({"few": 1e-4, "many": 1e-4})
    assert collect(experiment, jobs, {}) is None
    for job in jobs[:3]:
        finish(job, run_of([0.1, 0.2]))
    write_run(jobs[3].folder, run_of([0.1, 0.9]))
    results = collect(experiment, jobs, {})
    assert results is not None
    assert {arm: list(each.runs) for arm, each in results.arms.items()} == {"few": [0, 1], "many": [0]}
    assert "missing: many, learning rate 0.0001, seed 1" in results.notes


@pytest.mark.torch
@pytest.mark.slow
def test_real_runs_from_the_config_to_the_results(tmp_path: Path, tiny_model_dir: Path) -> None:
    file = experiment_of_real_runs(tmp_path, tiny_model_dir)
    result = CliRunner().invoke(app, ["experiment", str(file), "--out", str(tmp_path / "out"), "--workers", "2"])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {arm: each["responses_per_step"] for arm, each in document["arms"].items()} == {"two": 8.0, "four": 16.0}
    # Each run went on until it had 60 tokens, and no further.
    for arm in document["arms"].values():
        *before, last = arm["runs"]["0"]["evaluations"]
        assert last["total_tokens"] >= 60 > before[-1]["total_tokens"]
    assert document["points"]["tokens"] == [60]


def test_help_shows_the_fields() -> None:
    result = CliRunner().invoke(app, ["experiment", "--help"])
    assert result.exit_code == 0
    for word in ("tuning_seeds", "bases", "extensions", "tokens_at", "policy", "set "):
        assert word in result.output


@pytest.mark.parametrize("name", ["train-demo", "hard-pool", "fresh-prompts"])
def test_ready_configs_can_be_read(name: str, tmp_path: Path) -> None:
    experiment = read_experiment(ROOT / "llm" / "configs" / f"{name}.toml", tmp_path)
    assert len(experiment.config.seeds) >= 3
    assert set(experiment.config.arms) >= {"grpo-4", "grpo-16", "balance", "bayes"}


def test_a_run_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is the config of a run, not of an experiment: 'python -m llm train'"):
        read_experiment(ROOT / "llm" / "configs" / "tiny-add.toml", tmp_path)


def test_the_band_is_the_error_over_seeds_within_base_models() -> None:
    values = np.array([[0.1, 0.5], [0.3, 0.5], [0.8, 0.6], [0.9, 0.7], [1.0, 0.8]])
    mean, error = mean_over_seeds(values, ["a", "a", "b", "b", "b"])
    # Base a: mean .2 with variance .02 / 2, base b: .9 with .01 / 3; at the second point .5 with 0, .7 with .01 / 3.
    np.testing.assert_allclose(mean, [0.55, 0.6], rtol=1e-12)
    np.testing.assert_allclose(error, [math.sqrt(0.01 + 0.01 / 3) / 2, math.sqrt(0.01 / 3) / 2], rtol=1e-12)
    # One base model: the usual standard error; a single run has none.
    mean, error = mean_over_seeds(values[2:], [""] * 3)
    np.testing.assert_allclose(error, values[2:].std(axis=0, ddof=1) / math.sqrt(3), rtol=1e-12)
    assert np.isnan(mean_over_seeds(values[:3], ["a", "a", "b"])[1]).all()
