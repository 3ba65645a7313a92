"""A process that has loaded torch and runs one training after the other, each in a fork of itself.

A run of a tiny model takes seconds, and so does the start of a process that imports torch. A fork
starts at once and is as safe as a process of its own: nothing that a run does or breaks is seen by
the next one. The parent has made no tensor and started no thread, which forks don't survive.

Lines on standard input are runs, as JSON: ``arguments`` of ``python -m llm`` and ``log``, the file
that takes what is printed. Each is answered by a line on standard output, its exit code. The end
of the input ends the process and what it runs.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from llm.cli import app

__all__ = ["main"]

_MODULES = ("torch", "transformers.models.qwen2.modeling_qwen2", "llm.commands.train", "tokenizers", "scipy.special")
"""What a run imports, or would import from within."""


def main(threads: int) -> None:
    """Serve runs until the input ends.

    Parameters
    ----------
    threads
        Threads of torch in a run.
    """
    for name in _MODULES:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(threads)
    buffer = b""
    while True:
        while b"\n" not in buffer:
            read = os.read(sys.stdin.fileno(), 65536)
            if not read:
                return
            buffer += read
        line, _, buffer = buffer.partition(b"\n")
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(asked["arguments"], asked["log"])
        print(_wait(child), flush=True)


def _run(arguments: Sequence[str], log: str) -> NoReturn:
    """Run a command of ``python -m llm`` in this process, and end it with the command's exit code."""
    code = 1
    try:
        for place, target in ((os.open(os.devnull, os.O_RDONLY), 0), (os.open(log, os.O_WRONLY | os.O_APPEND), 1)):
            os.dup2(place, target)
        os.dup2(1, 2)
        app(list(arguments), prog_name="python -m llm")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # What the parent would do at its end is not the child's to do.
        os._exit(code)


def _wait(child: int) -> int:
    """Return a child's exit code; where the input ends before it does, end both."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if select.select([sys.stdin.fileno()], [], [], 0.02)[0]:
            # Runs are asked for one at a time, so this is the input's end.
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
