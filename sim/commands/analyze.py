"""``python -m sim analyze``: policies at given pass rates, exactly."""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated

import typer

from sim.options import (
    POLICIES,
    FalseNegativeOption,
    FalsePositiveOption,
    JsonOption,
    PolicyOption,
    RulesOption,
    escape,
    new_table,
    output_console,
    plain_errors,
)

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


@plain_errors
def analyze(
    policy: PolicyOption = None,
    pass_rate: Annotated[
        list[float] | None,
        typer.Option(metavar="P", help="A pass rate in [0, 1]; repeatable.", show_default=False),
    ] = None,
    rules: RulesOption = None,
    false_positive: FalsePositiveOption = 0.0,
    false_negative: FalseNegativeOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Analyse policies exactly at given pass rates.

    \b
    Examples:
      python -m sim analyze --pass-rate 0.1 --pass-rate 0.5
      python -m sim analyze --policy reinforce-ada-balance:rounds=8 --pass-rate 0.1 --json
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from ada_bandit import analyze as exact
    from sim.policies import read_policies

    rates = pass_rate or list(_PASS_RATES)
    policies = read_policies(policy or POLICIES, rules or ())
    noise = {"false_positive": false_positive, "false_negative": false_negative}
    results = [(one.label, exact(one, rates, **noise)) for one in policies]
    if as_json:
        lines = []
        for label, analysis in results:
            for index, rate in enumerate(rates):
                numbers = {"pass_rate": rate} | {name: float(getattr(analysis, name)[index]) for name in _ANALYSIS}
                parts = [f'"policy": {json.dumps(label)}', *(f'"{k}": {_digits(v)}' for k, v in numbers.items())]
                lines.append("  {" + ", ".join(parts) + "}")
        sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
        return
    columns = ("responses", "rounds", "signal", "resolved", "pool-mean\nbias", "pool-mean\nmse", "w")
    console = output_console()
    for label, analysis in results:
        table = new_table(escape(label), "p", *columns)
        for index, rate in enumerate(rates):
            values = [float(getattr(analysis, name)[index]) for name in _ANALYSIS]
            # Adding 0 turns -0 into 0.
            table.add_row(f"{rate:g}", *(f"{round(value, 5) + 0.0:.5f}" for value in values))
        console.print(table)


def _digits(value: float) -> str:
    """Write a finite float in JSON with 17 significant digits: it is read back as the same float."""
    if not math.isfinite(value):
        msg = f"JSON has no number for {value!r}"
        raise ValueError(msg)
    text = f"{value:.17g}"
    return text if any(mark in text for mark in ".e") else f"{text}.0"
