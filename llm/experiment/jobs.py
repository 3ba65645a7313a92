"""The processes of an experiment's runs: several at a time, and one that dies takes no other with it.

A run is ``python -m llm train`` in a process of its own. It ends with the experiment, whatever ends
that, and goes on from its latest checkpoint at the next start; a run that has finished is never
started again.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ada_bandit.errors import InputError
from ada_bandit.programs.folders import write_text
from llm.experiment.plan import Job
from llm.logs import to_toml

__all__ = ["Failure", "command_of", "folder_lock", "run_jobs"]

_SHOWN_LINES = 5


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
    tell
        Called when a run has ended, with its failure or None, and its seconds.
    """
    waiting = [job for job in jobs if not job.finished]
    running: dict[Job, tuple[subprocess.Popen[bytes], float]] = {}
    failures = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                running[job] = _start(job, command(job), threads, inherit), time.monotonic()
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


def _start(job: Job, command: Sequence[str], threads: int, inherit: Sequence[int]) -> subprocess.Popen[bytes]:
    job.folder.mkdir(parents=True, exist_ok=True)
    write_text(job.folder / "config.toml", to_toml(job.config.model_dump(mode="json")))
    with job.log.open("ab") as log:
        # The command is this interpreter's.
        return subprocess.Popen(  # noqa: S603
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            pass_fds=list(inherit),
        )


def _last_lines(path: Path) -> tuple[str, ...]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-_SHOWN_LINES:]
