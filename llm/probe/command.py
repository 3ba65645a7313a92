"""``python -m llm probe``: the score model's assumptions on a model and a task."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ada_bandit.programs.console import escape, new_table, open_console, print_notes, print_written, progress
from ada_bandit.programs.folders import make_folder, write_results
from ada_bandit.programs.options import FiguresOption, JsonOption
from ada_bandit.programs.records import to_json
from ada_bandit.programs.scores import write_scores
from llm.commands.errors import command
from llm.commands.sampling import ExactSampling, ModelArgument
from llm.logs import run_metadata
from llm.probe.figure import write_figure
from llm.probe.measure import Probe, run_probe

__all__ = ["probe"]


@command
def probe(
    *,
    model: ModelArgument,
    sampling: ExactSampling,
    prompts: Annotated[int, typer.Option(min=1, help="How many prompts of the task: the first ones.")] = 45,
    samples: Annotated[int, typer.Option(min=2, help="Responses to each prompt.")] = 48,
    parameters: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="Gradients of all parameters, last-layer (the last transformer block), lora:RANK (a random "
            "projection of every linear layer's gradient), or a regular expression on their names.",
        ),
    ] = "all",
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for probe.json, scores.npz, the figure, and what is kept of each prompt."
        ),
    ] = Path("out/probe"),
    figures: FiguresOption = True,
    as_json: JsonOption = False,
) -> None:
    """Measure noise ratios, |phi|^2, class means and cosines of scores; tell where the score model fails.

    A probe that was killed goes on when the same command is given again. `noise_ratio` and `prior`
    in probe.json are what bayes_policy takes; from scores.npz 'python -m sim frontier --probe'
    tells the efficiency of any policy on these prompts as it is measured.

    \b
    Examples:
      python -m llm probe out/tiny --task llm/configs/tiny-add.toml
      python -m llm probe out/smollm2 --config llm/configs/smollm2.toml --parameters last-layer --prompts 30
    """  # noqa: D301 - \b keeps the lines of the examples apart
    run = sampling.run_config(model)
    folder = make_folder(out)
    measured = run_probe(run, folder, prompts=prompts, samples=samples, parameters=parameters, progress=progress)
    text = to_json(measured.to_dict() | {"metadata": run_metadata(run)})
    draw = partial(write_figure, measured.summary, title=measured.label) if figures else None
    write_scores(folder / "scores.npz", measured.to_scores())
    written = [*write_results(folder, {"probe.json": text}, draw), "scores.npz"]
    if as_json:
        sys.stdout.write(text)
        return
    _print(measured)
    print_written(folder, written, open_console())


def _print(measured: Probe) -> None:
    """Print what was measured, and what it says of the model."""
    shown, summary, told = open_console(), measured.summary, measured.to_dict()
    shown.print(measured.label, style="bold", markup=False, highlight=False)
    print_notes(_notes(measured, told), shown)
    for table in (_numbers(summary.estimates), _thirds(measured), _checks(measured)):
        shown.print()
        shown.print(table)
    pair = summary.noise_ratio
    line = (
        f"noise_ratio = ({pair[0]:.3g}, {pair[1]:.3g})" if pair else "no noise ratio: |phi|^2 is not above 0 on average"
    )
    shown.print(line, style="bold", markup=False, highlight=False)


def _notes(measured: Probe, told: dict[str, Any]) -> list[str]:
    counts = told["counts"]
    kept_out = {
        "none correct": counts["no_correct"],
        "none incorrect": counts["no_incorrect"],
        "a single response of a class": counts["single_response_of_a_class"],
        "no response with a reward": counts["no_response_scored"],
    }
    notes = [*measured.notes]
    if any(kept_out.values()):
        reasons = ", ".join(f"{count} {reason}" for reason, count in kept_out.items() if count)
        notes.append(f"prompts that tell nothing of phi: {reasons}")
    notes.append(
        f"{counts['responses']} responses with a reward, {counts['correct']} of them correct; {counts['unscored']} "
        f"without; {counts['truncated']} cut at the length limit; {counts['tokens']} tokens"
    )
    notes.append(
        f"greatest difference of a log-probability between sampler and model: {told['sampler_max_difference']:.2g}"
    )
    if counts["negative_phi_square"]:
        notes.append(f"{counts['negative_phi_square']} prompts with a negative estimate of |phi|^2, used as it is")
    if measured.sketched:
        notes.append("scores were kept as sketches: a single cosine has a standard error of 0.002 from that alone")
    return notes


_NUMBERS = {
    "pass_rate": "pass rate",
    "phi_square": "|phi|^2, mean",
    "nu_pos": "nu_pos",
    "nu_neg": "nu_neg",
    "pos_mean_over_q_phi": "mean of positives over q phi",
    "neg_mean_over_minus_p_phi": "mean of negatives over -p phi",
    "mean_score_square": "|E s|^2 / |phi|^2",
    "log_slope_phi_square": "log |phi|^2, p = 1 less p = 0",
    "log_slope_pos_noise": "log noise of positives, likewise",
    "log_slope_neg_noise": "log noise of negatives, likewise",
    "cosine": "cosine of two prompts' phi, mean",
    "alignment": "<phi, phi'> / |phi|^2, ratio of means",
    "alignment_same_family": "  within families",
    "alignment_other_family": "  across families",
    "alignment_same_third": "  within thirds by pass rate",
    "alignment_other_third": "  across thirds",
}


def _numbers(estimates: dict[str, Any]) -> Table:
    table = new_table("Estimates", "", "value", "standard error")
    for name, label in _NUMBERS.items():
        value = estimates[name]
        table.add_row(label, f"{value.value:.3g}", f"{value.standard_error:.2g}")
    return table


def _thirds(measured: Probe) -> Table:
    columns = ("prompts", "|phi|^2,\nmedian", "mean", "nu_pos", "nu_neg")
    table = new_table("By pass rate, in thirds", "p", *columns)
    for third in measured.summary.thirds:
        values = (third.median_phi_square, third.phi_square, third.pos_noise_ratio, third.neg_noise_ratio)
        table.add_row(f"{third.low:.2f}-{third.high:.2f}", str(third.prompts), *map(str, values))
    return table


def _checks(measured: Probe) -> Table:
    table = new_table("The score model", "assumption", "measured", "verdict")
    for check in measured.summary.checks:
        style = {"holds": "green", "fails": "bold red"}.get(check.verdict, "yellow")
        table.add_row(escape(check.assumption), str(check.measured), f"[{style}]{check.verdict}[/]")
    table.caption = "holds, fails: two standard errors lie inside, outside the range; open: these prompts can't tell"
    table.caption_justify = "left"
    return table
