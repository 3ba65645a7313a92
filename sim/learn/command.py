"""``python -m sim learn``: policies as they train a small model, per step and per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.console import escape, new_table, progress
from ada_bandit.programs.folders import make_folder
from ada_bandit.programs.machine import available_cores
from ada_bandit.programs.options import Output, command, output_options
from ada_bandit.programs.results import Report, run_study
from sim.learn.figure import write_figures
from sim.learn.study import Plan, Sweep, measure_scaling, run_sweep
from sim.learn.task import LengthModel, PromptSet, Task
from sim.learn.training import TrainingSetting
from sim.options import SinglePolicies, UnfilteredLaw
from sim.sources import Source
from sim.words import plural

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["learn"]


@command
def learn(
    *,
    policies: SinglePolicies,
    source: UnfilteredLaw,
    prompt_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="all, moderate, hard, easy, or LOW-HIGH/OF: prompts that start with so many correct of so many, "
            "such as 1-2/16; repeatable, all and hard by default.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Which policy learns: softmax or logistic.")] = "softmax",
    answers: Annotated[int, typer.Option(min=2, help="Answers of the softmax policy.")] = 8,
    right: Annotated[int, typer.Option(min=1, help="Correct answers among them.")] = 2,
    pool: Annotated[int, typer.Option(min=1, help="Distinct prompts to train on.")] = 2048,
    held_out: Annotated[int, typer.Option(min=1, help="Prompts for evaluation alone.")] = 512,
    features: Annotated[int, typer.Option(min=2, help="Features of a prompt.")] = 64,
    skills: Annotated[
        int, typer.Option(min=1, help="Groups of prompts by start pass rate; only prompts of a group help each other.")
    ] = 8,
    alignment: Annotated[
        float, typer.Option(help="Mean cosine between the features of two prompts of a group, in [0, 1].")
    ] = 0.1,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a run.")] = 400,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of a step.")] = 512,
    learning_rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Step size, 0.01 by default; repeatable, and then each policy is taken at its best one.",
            show_default=False,
        ),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    minibatches: Annotated[int, typer.Option(min=1, help="Updates that a step's prompts are split into.")] = 1,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over a step's prompts.")] = 1,
    clip: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH", help="Clip probability ratios to [1 - LOW, 1 + HIGH] as PPO does, such as 0.2,0.28."
        ),
    ] = None,
    lengths: Annotated[
        str,
        typer.Option(
            metavar="CORRECT,INCORRECT|LOG",
            help="Mean tokens of a response by outcome; or a log of rollouts with rewards and tokens, a file, a folder "
            "or a glob.",
        ),
    ] = "700,1100",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every policy on every prompt set.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    matched: Annotated[
        str,
        typer.Option(
            metavar="auto|off|N",
            help="Add GRPO with as many responses a prompt as every adaptive policy had; none; or one with N.",
        ),
    ] = "auto",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; one a core by default.", show_default=False)
    ] = None,
    backend: Annotated[str, typer.Option(help="Backend of joblib: loky, or ray.")] = "loky",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; a local one by default.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take the runs that are in the output folder already.")
    ] = False,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Time two seeds on 1, 2, 4, … workers first, and print it.")
    ] = False,
    output: Annotated[Output, output_options("learn", ", the figures, and the runs", "out/learn")],
) -> None:
    """Train a small model under each policy: what it learns per step, per response, per token and per time.

    Pass rates are those of qwen2.5-math-1.5b-base unless an option names others.

    \b
    Examples:
      python -m sim learn --seeds 5
      python -m sim learn --policy rloo --policy bayes --prompt-set hard --model logistic
      python -m sim learn --clip 0.2,0.28 --minibatches 4 --resume
    """  # noqa: D301 - \b keeps the lines of the examples apart
    source = source.meant_for(policies)
    kinds: Any = {"model": model, "optimizer": optimizer}
    tasks = tuple(
        Task(
            prompt_set=PromptSet.parse(name),
            law=source.law,
            model=kinds["model"],
            answers=answers,
            right=right,
            prompts=pool,
            held_out=held_out,
            features=features,
            skills=skills,
            alignment=alignment,
        )
        for name in dict.fromkeys(prompt_set or ("all", "hard"))
    )
    setting = TrainingSetting(
        steps=steps,
        batch=prompts,
        learning_rate=learning_rate[0] if learning_rate else 0.01,
        optimizer=kinds["optimizer"],
        minibatches=minibatches,
        epochs=epochs,
        clip=None if clip is None else _pair("--clip", clip, "0.2,0.28"),
        lengths=_lengths(lengths),
    )
    rates = tuple(learning_rate or ())
    plan = Plan(tuple(policies), tasks, setting, seeds, seed, learning_rates=rates, matched=_matched(matched))
    count = available_cores() if workers is None else workers
    make_folder(output.folder)
    timing = _time(plan, count) if scaling else ()
    run_study(
        output,
        lambda folder, advance: run_sweep(
            plan, folder / "runs", resume=resume, workers=count, backend=backend, address=address, progress=advance
        ),
        lambda sweep: _report(sweep, source, timing),
        write_figures,
        doing="training",
        total=plan.expected_runs,
        kept=_kept,
    )


def _kept(folder: Path) -> str:
    """Say what is kept of a sweep that was stopped."""
    count = sum(1 for path in (folder / "runs").glob("*") if path.is_file())
    return f"{count} finished runs are kept in {folder / 'runs'}; the same command with --resume goes on from there"


def _pair(option: str, text: str, example: str) -> tuple[float, float]:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        msg = f"{option} takes two numbers such as {example}; got {text!r}"
        raise InputError(msg) from None
    return first, second


def _lengths(text: str) -> LengthModel:
    if Path(text).exists() or any(mark in text for mark in "*?["):
        return LengthModel.from_log(text)
    return LengthModel(*_pair("--lengths", text, "700,1100, or the path of a log"))


def _matched(text: str) -> Literal["auto", "off"] | int:
    if text == "auto":
        return "auto"
    if text == "off":
        return "off"
    if text.isdecimal():
        return int(text)
    msg = f"--matched takes auto, off, or a number of responses; got {text!r}"
    raise InputError(msg)


def _time(plan: Plan, max_workers: int) -> list[str]:
    """Return what a part of the sweep takes on 1, 2, 4, … workers, in words."""
    counts = sorted({*(2**i for i in range(max_workers.bit_length()) if 2**i <= max_workers), max_workers})
    with progress("timing", 1):
        timed = measure_scaling(plan, counts)
    one = timed[0].seconds
    whole = plan.expected_runs / timed[0].runs
    return [
        f"{row.workers} {'worker' if row.workers == 1 else 'workers'}: {row.runs} runs in {row.seconds:.1f} s, "
        f"{one / row.seconds:.2f} times as fast as one; {whole * row.seconds:.0f} s for the whole sweep"
        for row in timed
    ]


def _report(sweep: Sweep, source: Source, timing: Sequence[str]) -> Report:
    there = sum(len(runs) for by_rate in sweep.tried.values() for runs in by_rate.values()) - sweep.computed
    workers = f"{sweep.workers} {plural(sweep.workers, 'worker')}"
    speed = f"{sweep.computed} runs in {sweep.seconds:.1f} s on {workers}"
    notes = (*sweep.notes, speed + (f"; {there} were there before" if there else ""), *timing)
    return Report("Pass rates", source.label, _tables(sweep), notes, source.notes)


def _tables(sweep: Sweep) -> Iterator[Table]:
    """Give the sweep as tables that each fit a terminal of 80 columns."""
    for task in (one.label for one in sweep.plan.tasks):
        columns = ("responses\na prompt", "signal", "tokens\na step", "time\na step", "entropy\nat the end")
        table = new_table(f"{task}: a step", "policy", *columns)
        for policy in sweep.policies:
            if (task, policy) in sweep.runs:
                batch = sweep.plan.setting.batch
                costs = {
                    name: sweep.whole(task, policy, name).mean for name in ("responses", "tokens", "time", "signal")
                }
                entropy = float(sweep.curve(task, policy, "held_out_entropy")[0][-1])
                row = (f"{costs['responses'] / batch:.2f}", f"{costs['signal']:.3f}", f"{costs['tokens']:.3g}")
                table.add_row(_name(sweep, task, policy), *row, f"{costs['time']:.4g}", f"{entropy:.3f}")
        yield table

        table = new_table(
            f"{task}: held-out pass rate when as much is spent", "policy", "steps", "responses", "tokens", "time"
        )
        for policy in sweep.policies:
            cells = []
            for axis in ("steps", "responses", "tokens", "time"):
                row_of = {row.policy: row for row in sweep.standing(task, axis)}
                one = row_of[policy].pass_rate
                cells.append(f"{one.mean:.3f}" + ("" if sweep.plan.seeds == 1 else f" ± {one.se:.3f}"))
            table.add_row(_name(sweep, task, policy), *cells)
        yield table


def _name(sweep: Sweep, task: str, policy: str) -> str:
    n = sweep.matched[task].get(policy)
    return escape(policy if n is None else f"{policy} (n = {n})")
