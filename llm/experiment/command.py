"""``python -m llm experiment``: arms x base models x seeds x learning rates of one config, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ada_bandit.errors import unknown_name
from ada_bandit.programs.console import new_table, open_console, print_notes, print_plain, print_written, progress
from ada_bandit.programs.folders import make_folder, write_results
from ada_bandit.programs.machine import available_cores
from ada_bandit.programs.records import to_json
from llm.commands.config_options import SetOption, fields_help
from llm.commands.errors import command
from llm.config import parse_changes
from llm.experiment.figure import write_figures
from llm.experiment.jobs import Failure, WarmProcesses, command_of, folder_lock, run_jobs
from llm.experiment.plan import ArmConfig, Axis, ExperimentConfig, Job, read_experiment
from llm.experiment.results import AXES, Results, SeedMean, chosen_rates, collect, place_of, tune_all

__all__ = ["experiment"]


@fields_help({"Fields of CONFIG and their defaults:": ExperimentConfig, "Fields of [arms.NAME]:": ArmConfig})
@command
def experiment(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The experiment's TOML file; ready ones lie in llm/configs.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs, the tables and the figures.")] = Path(
        "out/llm/experiment"
    ),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; one a core unless given.", show_default=False)
    ] = None,
    changes: SetOption = None,
    warm: Annotated[
        bool, typer.Option("--warm", help="Fork runs off processes that have loaded torch: seconds less a run.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of torch in a run; the cores over the workers.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ARM", help="Run and show this arm alone; repeatable.", show_default=False),
    ] = None,
) -> None:
    """Train every arm of an experiment on every seed, and compare them at equal steps, responses and tokens.

    \b
    With several learning rates each arm is first tuned, on seeds of its own.
    It may be killed at any moment: started again, it goes on where it was.
    Where a run fails the others go on; the exit code is then 1.

    \b
    Examples:
      python -m llm experiment llm/configs/train-demo.toml --out out/llm/demo
      python -m llm experiment llm/configs/hard-pool.toml --only grpo-4
    """  # noqa: D301 - \b keeps the lines of the examples apart
    plan = read_experiment(config, out, parse_changes(changes or []))
    for arm in only or []:
        if arm not in plan.config.arms:
            raise unknown_name("arm", arm, plan.config.arms)
    arms = [arm for arm in plan.config.arms if not only or arm in only]
    make_folder(out)
    count = workers or available_cores()
    each = threads or max(available_cores() // count, 1)
    with folder_lock(out) as lock, WarmProcesses(each, [lock]) as forks:
        run = partial(_run, workers=count, threads=each, lock=lock, forks=forks if warm else None)
        failures: list[Failure] = []
        tunings = tune_all(plan, arms, lambda what, jobs: failures.extend(run(what, jobs)))
        rates = chosen_rates(plan, arms, tunings)
        jobs = plan.final_jobs(rates)
        failures += run("training", jobs)
        results = collect(plan, jobs, tunings)
        shown = open_console()
        if results is not None:
            _show(results, shown)
            texts = {"results.json": to_json(results.to_dict()), "results.csv": results.to_csv()}
            print_written(out, write_results(out, texts, partial(write_figures, results)), shown)
    for failure in failures:
        print_plain(str(failure), shown, "red")
    if failures:
        raise typer.Exit(1)


def _run(
    what: str, jobs: Sequence[Job], *, workers: int, threads: int, lock: int, forks: WarmProcesses | None
) -> list[Failure]:
    """Run what hasn't finished, with a bar, or lines where there is no terminal; return what failed."""
    done = sum(job.finished for job in jobs)
    lines = open_console(stderr=True)
    ended = done

    with progress(what, len(jobs), done) as advance:

        def tell(job: Job, failure: Failure | None, seconds: float) -> None:
            nonlocal ended
            ended += 1
            how = f"{job.label}: {'finished' if failure is None else 'FAILED'} after {seconds:.0f} s"
            advance(1, f"{what}; {how}")
            if not lines.is_terminal:
                print_plain(f"{what} {ended}/{len(jobs)}: {how}", lines)

        return run_jobs(
            jobs,
            workers,
            command=lambda job: command_of(job, threads),
            threads=threads,
            inherit=[lock],
            warm=forks,
            tell=tell,
        )


def _show(results: Results, shown: Console) -> None:
    for table in _tables(results):
        shown.print()
        shown.print(table)
    shown.print()
    for text in results.verdicts():
        shown.print(f"- {text}", markup=False, highlight=False)
    shown.print(
        "Ahead and behind: the 95 % interval of the difference (Student's t over seeds, one comparison at a time) "
        "excludes 0. ± is one standard error.",
        style="dim",
        highlight=False,
    )
    print_notes(results.notes, shown)


def _tables(results: Results) -> Iterator[Table]:
    places = [(axis, point) for axis in AXES for point in results.points[axis]]
    for evaluation in results.evaluations:
        for some in _parts(places, 4):
            table = _new_table(f"pass rate: {evaluation}", "start", *(place_of(*place) for place in some))
            for arm in results.arms:
                cells = [_mean(results.at(arm, evaluation, *place)) for place in some]
                table.add_row(arm, _mean(results.start(arm, evaluation)), *cells)
            yield table
    if results.reference in results.arms and len(results.arms) > 1:
        for evaluation in results.evaluations:
            for some in _parts(places, 3):
                title = f"ahead of {results.reference}, {evaluation}: differences of the same seeds; * excludes 0"
                table = _new_table(title, *(place_of(*place) for place in some))
                for arm in results.arms:
                    if arm != results.reference:
                        table.add_row(arm, *(_interval(results.difference(arm, evaluation, *each)) for each in some))
                yield table
    yield _costs(results)


def _parts(places: Sequence[tuple[Axis, int]], columns: int) -> Iterator[Sequence[tuple[Axis, int]]]:
    """Yield as many columns at a time as a line of 100 characters holds."""
    for first in range(0, len(places), columns):
        yield places[first : first + columns]


def _costs(results: Results) -> Table:
    phases = ("sample", "update", "allocate", "eval")
    heads = ("learning\nrate", "responses\na step", "tokens\na step", *(f"{phase}\ns a step" for phase in phases))
    table = _new_table(f"a step, up to {max(results.points['steps']):,} steps", *heads, "total\ns a step")
    for name, arm in results.arms.items():
        seconds = results.seconds(name)
        table.add_row(
            name,
            f"{arm.rate:g}",
            f"{results.per_step(name, 'responses').mean:,.1f}",
            f"{results.per_step(name, 'tokens').mean:,.0f}",
            *(f"{seconds.get(phase, 0.0):.3f}" for phase in (*phases, "total")),
        )
    return table


def _new_table(title: str, *columns: str) -> Table:
    return new_table(title, "arm", *(column.replace(" ", "\n", 1) for column in columns))


def _mean(value: SeedMean) -> str:
    if not value.count:
        return "-"
    return f"{value.mean:.3f}" + ("" if value.count < 2 else f" ± {value.standard_error:.3f}")


def _interval(value: SeedMean) -> str:
    if not value.count:
        return "-"
    if value.count < 2:
        return f"{value.mean:+.3f}"
    return f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]{'*' if value.sign else ' '}"
