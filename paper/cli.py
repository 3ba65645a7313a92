"""The command line, ``python -m paper``: one command an item, `all`, and `numbers` for the report.

Nothing heavy is imported: ``--help`` answers at once, and an item is imported when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ada_bandit.programs.lazy import LazyCommand, command_of, function_of, lazy_app
from paper.items import ITEMS, help_of

__all__ = ["app"]

_COMMANDS = "paper.commands"


def _load_item(name: str) -> Callable[..., None]:
    command: Callable[..., None] = function_of(_COMMANDS, "item_command")(name)
    return command


app = lazy_app(
    "The tables and figures of arXiv 2510.04996: what is claimed, what comes out here, and whether it holds.",
    {"all": command_of(_COMMANDS, "run_all"), "numbers": command_of(_COMMANDS, "numbers")}
    | {name: LazyCommand(partial(help_of, name), partial(_load_item, name)) for name in ITEMS},
)
