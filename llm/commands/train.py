"""``python -m llm train``: train a model under a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from llm.options import console, plain_errors

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["SetOption", "TrainCommand", "print_fields", "train"]

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="The run's TOML file; ready ones lie in llm/configs.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Another value than the file's, in TOML, such as train.steps=10 or policy=grpo; repeatable.",
    ),
]


class TrainCommand(TyperCommand):
    """The command, whose help lists every field of a config."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from llm.config import RunConfig

        print_fields(RunConfig, "Fields of CONFIG and their defaults, the paper's where it states one:")


@plain_errors
def train(
    config: ConfigArgument,
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
) -> None:
    """Train a model: rounds of responses under a policy, then PPO-clip on the groups that it keeps."""
    from llm.config import parse_changes, read_config
    from llm.logs import StepLine
    from llm.trainer import Trainer

    settings = read_config(config, parse_changes(changes or []))
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    trainer = Trainer(settings, out, resume=resume)
    shown = console()
    if trainer.world.is_main:
        for note in trainer.notes:
            shown.print(f"- {note}", style="dim", markup=False, highlight=False)
        with StepLine(settings.train.steps, trainer.step) as line:
            model = trainer.run(line)
    else:
        model = trainer.run()
    trainer.world.close()
    if trainer.world.is_main:
        shown.print(f"trained model: {model}", highlight=False, soft_wrap=True)
        shown.print(f"draw it: python -m llm plot {out}", style="dim", highlight=False, soft_wrap=True)


def print_fields(model: type[BaseModel], heading: str) -> None:
    """Print every field of a config by section, below a heading."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = console()
    shown.print(heading, markup=False, highlight=False)
    plain: list[tuple[str, Any]] = []
    sections: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner is None:
            plain.append((name, field))
        else:
            sections.append((name, inner))
    parts = [("", plain), *((f"[{name}]", list(inner.model_fields.items())) for name, inner in sections)]
    for title, fields in parts:
        table = Table(
            title=Text(title) if title else None,
            title_justify="left",
            box=SIMPLE_HEAD,
            show_header=False,
            pad_edge=False,
        )
        for _ in range(3):
            table.add_column(overflow="fold")
        for name, field in fields:
            default = "required" if field.is_required() else _shown(field)
            table.add_row(Text(field.alias or name, style="bold"), Text(default), Text(field.description or ""))
        shown.print(table)


def _section(annotation: Any) -> type[BaseModel] | None:
    from pydantic import BaseModel

    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _shown(field: Any) -> str:
    import json

    return json.dumps(field.get_default(call_default_factory=True))
