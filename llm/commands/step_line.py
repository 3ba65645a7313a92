"""The line that shows how a training run is doing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ada_bandit.programs.console import open_console, print_plain

__all__ = ["StepLine"]


class StepLine:
    """The line that shows how a run is doing, on standard error: live on a terminal, else now and then.

    Parameters
    ----------
    steps
        Steps of the run.
    done
        Steps behind it already.
    every
        Seconds between lines where standard error is no terminal; the first and the last step
        always have one.
    clock
        Gives the time in seconds.
    """

    def __init__(
        self,
        steps: int,
        done: int = 0,
        *,
        every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps, self._first, self._every, self._clock = steps, done, every, clock
        self._start, self._printed = clock(), -math.inf
        self._console = open_console(stderr=True)
        columns = (MofNCompleteColumn(), BarColumn(bar_width=16), TextColumn("{task.description}"))
        self._live = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._live.add_task("first step", total=steps, completed=done)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, step: int, row: Mapping[str, Any]) -> None:
        """Show a step that is over.

        Parameters
        ----------
        step
            Its number, from 0.
        row
            Its row of metrics.
        """
        if row.get("note"):
            print_plain(f"warning: {row['note']}", self._console, "yellow")
        now, done = self._clock(), step + 1
        left = (now - self._start) / max(done - self._first, 1) * (self._steps - done)
        # A run that goes on for the sake of its tokens has no step at which it is known to end.
        text = _summary(row) + (f" · {_duration(left)} left" if left >= 0 else "")
        self._live.update(self._task, completed=done, description=text)
        if not self._console.is_terminal and (done == self._steps or now - self._printed >= self._every):
            self._printed = now
            print_plain(f"step {done}/{self._steps} · {text}", self._console)


def _summary(row: Mapping[str, Any]) -> str:
    def show(name: str, form: str) -> str:
        value = row.get(name)
        return "-" if value is None or not math.isfinite(value) else form.format(value)

    seconds = (row.get("time") or {}).get("total")
    return " · ".join(
        (
            f"reward {show('pool_reward', '{:.3f}')} (selected {show('selected_reward', '{:.3f}')})",
            f"{show('responses', '{:,}')} responses",
            f"{show('tokens', '{:,}')} tokens",
            f"signal {show('signal_fraction', '{:.0%}')}",
            "-" if seconds is None else f"{seconds:.1f} s",
        )
    )


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
