"""``python -m sim show``: the tables of a policy as text."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from ada_bandit.errors import InputError
from ada_bandit.programs.options import command
from ada_bandit.tables import draw_lattice
from sim.options import BalancePolicy

__all__ = ["show"]


class TableName(StrEnum):
    """The tables that `show` can draw."""

    draws = "draws"
    keep_pos = "keep_pos"
    keep_neg = "keep_neg"
    adv_pos = "adv_pos"
    adv_neg = "adv_neg"


@command
def show(
    *,
    policies: BalancePolicy,
    table: Annotated[
        TableName | None, typer.Option(help="Draw this table alone; all five by default.", show_default=False)
    ] = None,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print the policy file alone, which --policy reads; one policy at a time.")
    ] = False,
    size: Annotated[int, typer.Option(min=1, help="Cells of each axis to show, in responses from 0.")] = 16,
) -> None:
    """Draw the tables of a policy as text, positives upwards and negatives to the right.

    \b
    Examples:
      python -m sim show --policy reinforce-ada-balance
      python -m sim show --policy reinforce-ada-pos --toml > mine.toml
      python -m sim show --policy mine.toml --table draws --size 24
    """  # noqa: D301 - \b keeps the lines of the examples apart
    if toml:
        if len(policies) > 1:
            msg = f"--toml prints one policy file; got {len(policies)} policies. Give one --policy"
            raise InputError(msg)
        typer.echo(policies[0].to_toml(), nl=False)
        return
    for one in policies:
        blocks = [one.to_toml().rstrip()]
        for share, policy in one.parts:
            if len(one.parts) > 1:
                blocks.append(f"{100 * share:.3g} % of the prompts: {policy.label}")
            if policy.tables.shared:
                blocks.append(_SHARED)
                continue
            names = [item.value for item in TableName] if table is None else [table.value]
            blocks += [f"{name}: {_MEANINGS[name]}\n{draw_lattice(policy.tables, name, size)}" for name in names]
            blocks.append(_SYMBOLS)
        typer.echo("\n\n".join(blocks) + "\n")


_MEANINGS: dict[str, Any] = {
    "draws": "responses of the next round",
    "keep_pos": "positives kept in the group (their mean where the split is random)",
    "keep_neg": "negatives kept in the group (their mean where the split is random)",
    "adv_pos": "advantage of a kept positive",
    "adv_neg": "advantage of a kept negative",
}
_SHARED = (
    "no table describes its draws: the budget is shared by the prompts of a step, so what one gets depends on the "
    "others (python -m sim budget)"
)
_SYMBOLS = (
    "+ exit, resolved; x exit, exhausted; - the prompt goes on; . no round can end here; "
    "pos and neg count correct and incorrect responses"
)
