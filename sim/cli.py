"""The command line, ``python -m sim``: one module of `sim.commands` a command.

Nothing heavy is imported at the top: ``--help`` answers at once, and what a command needs is
imported when it runs.
"""

from __future__ import annotations

import typer

from sim.commands.analyze import analyze
from sim.commands.budget import budget
from sim.commands.compare import compare
from sim.commands.empirical_bayes import empirical_bayes
from sim.commands.frontier import frontier
from sim.commands.learn import learn
from sim.commands.replay import replay
from sim.commands.show import show
from sim.commands.when_adaptive_pays import when_adaptive_pays

__all__ = ["app"]

app = typer.Typer(
    help="How many responses should each prompt get, and when may it stop? Compare sampling policies, exactly and by "
    "simulation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _command in (compare, analyze, show, frontier, when_adaptive_pays, budget, empirical_bayes, replay, learn):
    app.command()(_command)
