"""The options that describe a machine, in one group."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from ada_bandit.programs.options import Options
from sim.clock.parts import Machine

__all__ = ["MachineOptions"]


def _machine(
    slots: Annotated[
        int, typer.Option(min=1, help="Responses that are sampled at the same time, over all servers.")
    ] = 256,
    seconds_a_token: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time of a token while every slot is busy.")
    ] = 0.02,
    unloaded: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Time of a token on an almost idle server over that at full load; linear in between.",
        ),
    ] = 1.0,
    barriers: Annotated[
        bool,
        typer.Option(
            "--barriers/--streaming",
            help="Whether a round waits for all responses of the one before, or each prompt goes on by itself.",
        ),
    ] = True,
    verify_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="From a response's end to its reward; its slot is free meanwhile.")
    ] = 0.0,
    seconds_a_round: Annotated[
        float, typer.Option(metavar="SECONDS", help="What each barrier round takes besides its responses.")
    ] = 0.0,
    update_seconds_a_row: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time of the update for each row in the loss.")
    ] = 0.02,
    update_seconds_a_token: Annotated[
        float, typer.Option(metavar="SECONDS", help="Further time for each token of these rows.")
    ] = 0.0,
    fixed_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="What a step takes whatever is sampled.")
    ] = 0.0,
) -> Machine:
    return Machine(
        slots,
        seconds_a_token,
        unloaded,
        barriers,
        verify_seconds,
        seconds_a_round,
        update_seconds_a_row,
        update_seconds_a_token,
        fixed_seconds,
    )


MachineOptions: TypeAlias = Annotated[Machine, Options(_machine)]
"""Slots, speed, rounds and update of a training step."""
