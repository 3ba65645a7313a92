"""The processes of an experiment's runs: several at a time, and one that dies takes no other with it.

A run is ``python -m llm train`` in a process of its own, which may be the fork of one that has loaded
torch already (`llm.experiment.warm`). It ends with the experiment, whatever ends that, and goes on from its
latest checkpoint at the next start; a run that has finished is never started again.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import write_text
from llm.experiment.plan import Job
from llm.logs import to_toml

__all__ = ["Failure", "Process", "WarmProcesses", "command_of", "folder_lock", "run_jobs"]

_SHOWN_LINES = 5


class Process(Protocol):
    """A run's process."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def kill(self) -> None:
        """End it."""

    def wait(self) -> int:
        """Wait for its end; return its exit code."""


@dataclass(frozen=True)
class Failure:
    """A run whose process ended with an error."""

    job: Job
    """The run."""
    code: int
    """Exit code of its process."""
    lines: tuple[str, ...]
    """The last lines of its log."""

    def __str__(self) -> str:
        """Tell it in a few lines."""
        text = "\n".join(f"  {line}" for line in self.lines) or "  (its log is empty)"
        return f"{self.job.label} failed with exit code {self.code}; the last lines of {str(self.job.log)!r}:\n{text}"


@contextmanager
def folder_lock(folder: Path, patience: float = 10.0) -> Iterator[int]:
    """Hold a folder for one experiment, its processes included; give the file descriptor that they are to inherit.

    Parameters
    ----------
    folder
        An existing folder.
    patience
        Seconds to wait for the processes of an experiment that was just killed.

    Raises
    ------
    InputError
        If another experiment is at work there.
    """
    with (folder / "lock").open("w") as file:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > until:
                    msg = f"another experiment is at work in {str(folder)!r}; wait for it, or give another one by --out"
                    raise InputError(msg) from error
                time.sleep(0.1)
        yield file.fileno()


def command_of(job: Job, threads: int) -> list[str]:
    """Return the command of a run's process, which ends with this one."""
    options = {"--out": job.folder, "--threads": threads, "--end-with": os.getpid()}
    train = [sys.executable, "-m", "llm", "train", str(job.folder / "config.toml"), "--resume"]
    return [*train, *(str(each) for pair in options.items() for each in pair)]


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    *,
    command: Callable[[Job], Sequence[str]],
    threads: int = 1,
    inherit: Sequence[int] = (),
    warm: WarmProcesses | None = None,
    tell: Callable[[Job, Failure | None, float], None] = lambda *_: None,
) -> list[Failure]:
    """Run what hasn't finished, several at a time, and return those that failed; the others go on.

    Parameters
    ----------
    jobs
        The runs, in the order in which they start.
    workers
        Runs at a time.
    command
        Command of a run's process.
    threads
        Threads of a process.
    inherit
        File descriptors that the processes hold while they live.
    warm
        Processes of which runs are forks; each run starts anew unless given.
    tell
        Called when a run has ended, with its failure or None, and its seconds.
    """
    waiting = [job for job in jobs if not job.finished]
    running: dict[Job, tuple[Process, float]] = {}
    failures = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                _prepare(job)
                process = _start(job, command(job), threads, inherit) if warm is None else warm.start(job, command(job))
                running[job] = process, time.monotonic()
            time.sleep(0.05)
            for job, (process, begun) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[job]
                failure = None if code == 0 else Failure(job, code, _last_lines(job.log))
                if failure is None:
                    job.mark_finished()
                else:
                    failures.append(failure)
                tell(job, failure, time.monotonic() - begun)
    finally:
        for process, _ in running.values():
            process.kill()
            process.wait()
    return failures


def _prepare(job: Job) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    write_text(job.folder / "config.toml", to_toml(job.config.model_dump(mode="json")))
    job.log.touch()


def _start(job: Job, command: Sequence[str], threads: int, inherit: Sequence[int]) -> Process:
    with job.log.open("ab") as log:
        # The command is this interpreter's.
        return subprocess.Popen(  # noqa: S603
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(threads),
            pass_fds=list(inherit),
        )


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads)}


class WarmProcesses:
    """Processes that have loaded torch, of which runs are forks; to be used in a ``with`` statement.

    Parameters
    ----------
    threads
        Threads of a run.
    inherit
        File descriptors that the processes hold while they live.
    """

    def __init__(self, threads: int = 1, inherit: Sequence[int] = ()) -> None:
        self._threads, self._inherit = threads, inherit
        self._idle: list[subprocess.Popen[bytes]] = []
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        for process in self._all:
            _pipe(process.stdin).close()
            process.wait()
            _pipe(process.stdout).close()

    def start(self, job: Job, command: Sequence[str]) -> Process:
        """Start a run; `command` begins with this interpreter and ``-m llm``."""
        python, *arguments = command
        if [python, *arguments[:2]] != [sys.executable, "-m", "llm"]:
            msg = f"a fork runs commands of 'python -m llm'; got {' '.join(command)!r}"
            raise InputError(msg)
        process = self._idle.pop() if self._idle else self._new()
        # Of an option that is given twice the last one counts: the fork's parent is not this process.
        own = [*arguments[2:], "--end-with", str(process.pid)]
        asked = {"arguments": own, "log": str(job.log)}
        _pipe(process.stdin).write((json.dumps(asked) + "\n").encode())
        _pipe(process.stdin).flush()
        return _Fork(process, self._idle)

    def _new(self) -> subprocess.Popen[bytes]:
        # The command is this interpreter's.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "llm.experiment.warm", str(self._threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(self._threads),
            pass_fds=list(self._inherit),
        )
        self._all.append(process)
        return process


class _Fork:
    """A run in a fork of a warm process, which is idle again when the run has ended."""

    def __init__(self, process: subprocess.Popen[bytes], idle: list[subprocess.Popen[bytes]]) -> None:
        self._process, self._idle = process, idle
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and select.select([_pipe(self._process.stdout)], [], [], 0)[0]:
            self._take()
        return self._code

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        return self._take() if self._code is None else self._code

    def _take(self) -> int:
        """Wait for the answer, which is none where the process itself has died."""
        line = _pipe(self._process.stdout).readline()
        if line:
            self._code = int(line)
            self._idle.append(self._process)
        else:
            self._code = self._process.wait()
        return self._code


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None  # noqa: S101 - for mypy; it was asked for
    return end


def _last_lines(path: Path) -> tuple[str, ...]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-_SHOWN_LINES:]
