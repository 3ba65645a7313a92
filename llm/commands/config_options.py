"""What commands share that read a config: ``--set``, and help that lists every field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ParamSpec, TypeAlias, TypeVar

import typer
from pydantic import BaseModel
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from ada_bandit.programs.console import open_console

__all__ = ["SetOption", "fields_help"]

P = ParamSpec("P")
T = TypeVar("T")

SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Another value than the file's, in TOML, such as train.steps=10 or policy=grpo; repeatable.",
    ),
]


def fields_help(configs: Mapping[str, type[BaseModel]]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have the help of a command list the fields of configs, given by the heading that each gets."""

    class FieldsCommand(TyperCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            super().format_help(ctx, formatter)
            for heading, model in configs.items():
                _print_fields(model, heading)

    def mark(command: Callable[P, T]) -> Callable[P, T]:
        command.command_class = FieldsCommand  # type: ignore[attr-defined]
        return command

    return mark


def _print_fields(model: type[BaseModel], heading: str) -> None:
    """Print every field of a config by section, below a heading."""
    shown = open_console()
    shown.print(heading, markup=False, highlight=False)
    plain: list[tuple[str, Any]] = []
    sections: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            sections.append((name, inner))
        else:
            plain.append((name, field))
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
            default = "required" if field.is_required() else json.dumps(field.get_default(call_default_factory=True))
            table.add_row(Text(field.alias or name, style="bold"), Text(default), Text(field.description or ""))
        shown.print(table)
