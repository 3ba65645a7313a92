"""The command line, ``python -m llm``: one module of `llm.commands` a command.

Nothing heavy is imported at the top: ``--help`` answers at once.
"""

from __future__ import annotations

import typer

from llm.commands.eval import evaluate
from llm.commands.experiment import ExperimentCommand, experiment
from llm.commands.get_smollm2 import get_smollm2
from llm.commands.make_tiny import make_tiny
from llm.commands.plot import plot
from llm.commands.probe import probe
from llm.commands.rollout import rollout
from llm.commands.train import TrainCommand, train

__all__ = ["app"]

app = typer.Typer(
    help="Train language models with the policies of ada_bandit, and measure what they assume.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command("train", cls=TrainCommand)(train)
app.command("experiment", cls=ExperimentCommand)(experiment)
for _name, _command in (
    ("plot", plot),
    ("rollout", rollout),
    ("eval", evaluate),
    ("probe", probe),
    ("get-smollm2", get_smollm2),
    ("make-tiny", make_tiny),
):
    app.command(_name)(_command)
