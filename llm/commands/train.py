"""``python -m llm train``: train a model under a policy."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ada_bandit.programs.console import open_console, print_notes, print_plain, progress
from ada_bandit.programs.options import StoppedError
from llm.commands.config_options import SetOption, fields_help
from llm.commands.errors import command
from llm.commands.step_line import StepLine
from llm.config import RunConfig, parse_changes, read_config
from llm.processes import end_with
from llm.trainer import Trainer

__all__ = ["train"]


@fields_help({"Fields of CONFIG and their defaults, the paper's where it states one:": RunConfig})
@command
def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The run's TOML file; ready ones lie in llm/configs.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run: logs, checkpoints and the trained model.")] = Path(
        "out/llm/run"
    ),
    changes: SetOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the folder's latest checkpoint, or start where there is none.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch on a CPU; all cores unless given.", show_default=False)
    ] = None,
    parent: Annotated[
        int | None, typer.Option("--end-with", metavar="PID", help="End when this parent process does.", hidden=True)
    ] = None,
) -> None:
    """Train a model: rounds of responses under a policy, then PPO-clip on the groups that it keeps."""
    if parent is not None:
        end_with(parent)
    settings = read_config(config, parse_changes(changes or []))
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    trainer = Trainer(settings, out, resume=resume, progress=progress)
    is_main, shown = trainer.world.is_main, open_console()
    if is_main:
        print_notes(trainer.notes, shown)
    with StepLine(settings.train.steps, trainer.step) if is_main else nullcontext() as line:
        try:
            model = trainer.run(None if line is None else line.update)
        except KeyboardInterrupt:
            raise StoppedError(trainer.kept) from None
    trainer.world.close()
    if is_main:
        print_plain(f"trained model: {model}", shown)
        print_plain(f"draw it: python -m llm plot {out}", shown, "dim")
