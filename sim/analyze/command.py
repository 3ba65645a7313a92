"""``python -m sim analyze``: policies at given pass rates, exactly."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ada_bandit import analyze as analyze_exactly
from ada_bandit.errors import InputError
from ada_bandit.exact import Analysis
from ada_bandit.programs.console import escape, new_table, open_console, print_table, waiting
from ada_bandit.programs.options import JsonOption, command
from ada_bandit.unscored import UnscoredAnalysis, analyze_unscored
from sim.options import Policies, VerifierErrors

__all__ = ["analyze"]

_PASS_RATES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)
_ANALYSIS = (
    "expected_samples",
    "expected_rounds",
    "signal_probability",
    "resolved_probability",
    "pool_mean_bias",
    "pool_mean_mse",
    "gradient_weight",
)
_COLUMNS = ("responses", "rounds", "signal", "resolved", "pool-mean\nbias", "pool-mean\nmse", "w")
_UNSCORED = ("expected_samples", "expected_rows", "rows_in_loss", "signal_probability", "gradient_weight")
_UNSCORED_COLUMNS = ("responses", "rows kept", "rows in the\ndenominator", "signal", "w")


@command
def analyze(
    *,
    policies: Policies,
    pass_rate: Annotated[
        list[float] | None,
        typer.Option(metavar="P", help="A pass rate in [0, 1]; repeatable.", show_default=False),
    ] = None,
    verifier: VerifierErrors,
    unscored: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Chance that a response gets no score: shows what is then drawn, kept and trained on. A policy's "
            "option replace (grpo:replace=0.25) draws others in their place.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Analyse policies exactly at given pass rates.

    \b
    Examples:
      python -m sim analyze --pass-rate 0.1 --pass-rate 0.5
      python -m sim analyze --policy reinforce-ada-balance:rounds=8 --pass-rate 0.1 --json
      python -m sim analyze --unscored 0.05 --policy grpo --policy grpo:replace=1 --policy grpo:no_signal=leave_out
    """  # noqa: D301 - \b keeps the lines of the examples apart
    rates = pass_rate or list(_PASS_RATES)
    names: tuple[str, ...]
    columns: tuple[str, ...]
    analyses: list[tuple[str, Analysis | UnscoredAnalysis]]
    if unscored is None:
        names, columns = _ANALYSIS, _COLUMNS
        with waiting("analysing"):
            analyses = [(policy.label, analyze_exactly(policy, rates, verifier)) for policy in policies]
    else:
        if verifier:
            msg = (
                f"--unscored {unscored:g} and errors of the verifier are analysed one at a time; leave one of them out"
            )
            raise InputError(msg)
        names, columns = _UNSCORED, _UNSCORED_COLUMNS
        with waiting("analysing"):
            analyses = [(policy.label, analyze_unscored(policy, rates, unscored)) for policy in policies]
    if as_json:
        sys.stdout.write(_to_json(rates, names, analyses))
        return
    console = open_console()
    for label, analysis in analyses:
        table = new_table(escape(label), "p", *columns)
        for index, rate in enumerate(rates):
            values = [float(getattr(analysis, name)[index]) for name in names]
            # Adding 0 turns -0 into 0.
            table.add_row(f"{rate:g}", *(f"{round(value, 5) + 0.0:.5f}" for value in values))
        print_table(table, console)


def _to_json(
    rates: Sequence[float], names: Sequence[str], analyses: Sequence[tuple[str, Analysis | UnscoredAnalysis]]
) -> str:
    lines = []
    for label, analysis in analyses:
        for index, rate in enumerate(rates):
            numbers = {"pass_rate": rate} | {name: float(getattr(analysis, name)[index]) for name in names}
            parts = [f'"policy": {json.dumps(label)}', *(f'"{k}": {_digits(v)}' for k, v in numbers.items())]
            lines.append("  {" + ", ".join(parts) + "}")
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _digits(value: float) -> str:
    """Write a finite float in JSON with 17 significant digits: it is read back as the same float."""
    if not math.isfinite(value):
        msg = f"JSON has no number for {value!r}"
        raise ValueError(msg)
    text = f"{value:.17g}"
    return text if any(mark in text for mark in ".e") else f"{text}.0"
