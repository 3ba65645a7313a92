"""Scores of responses, with a time limit: what can't be scored has no score, and is counted.

Scoring runs in processes of its own, which can be killed. A limit by signals would need the main
thread, and one by threads would leave running what hangs.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, ProtocolError, check_count, check_number, unknown_name
from llm.config import TaskConfig
from llm.processes import end_with
from llm.tasks import LoadedTask, load_scorer
from llm.types import Prompt, Response, Sampler, Task

__all__ = ["Scores", "Verifier", "sample_and_score", "verifier_for"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Rewards of responses, and how many have none and why."""

    rewards: FloatArray
    """`[response]` Rewards; NaN for no score."""
    raised: int
    """Responses whose scoring raised, ended its process, or gave no finite number."""
    timed_out: int
    """Responses whose scoring took longer than the limit."""
    truncated: int
    """Responses that were cut at the length limit, whatever became of their reward."""
    first_error: str
    """Why the first response that is counted in `raised` or `timed_out` has no score, and its prompt's key."""


class _Outcome(NamedTuple):
    reward: float
    error: str = ""
    timed_out: bool = False


class Verifier:
    """Scores responses to a task's prompts; to be closed, or used in a ``with`` statement.

    It may be used from several threads, which then wait for each other.

    Parameters
    ----------
    task
        The task. With processes it must come from `llm.tasks.load_task`, or be picklable.
    truncated
        Responses cut at the length limit: reward 0 (``wrong``), NaN (``no-score``), or scored like
        any other (``score``).
    time_limit
        Seconds that scoring one response may take; then it has no score.
    workers
        Processes that score. With 0 this process scores, and there is no limit.

    Raises
    ------
    InputError
        If an argument can't be used.
    """

    def __init__(
        self,
        task: Task,
        *,
        truncated: Literal["wrong", "no-score", "score"] = "wrong",
        time_limit: float = 5.0,
        workers: int = 1,
    ) -> None:
        if truncated not in {"wrong", "no-score", "score"}:
            raise unknown_name("use of truncated responses", truncated, ["wrong", "no-score", "score"])
        self._task = task
        self._truncated = truncated
        self._limit = check_number("time_limit", time_limit, 0, strict=True)
        self._count = check_count("workers", workers, 0)
        self._source = _pickled(task) if self._count else b""
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        # Also at the interpreter's exit, so that none outlives it.
        self._finish = weakref.finalize(self, _close_all, self._workers)
        # They load the task while the model is loaded here.
        self._fill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; nothing can be scored after that."""
        self._finish()

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
        """Score responses; equal texts for the same prompt are scored once.

        Parameters
        ----------
        prompts
            ``[response]`` the prompt of each.
        responses
            ``[response]`` the responses.

        Raises
        ------
        InputError
            If the lengths differ, or a process that scores can't be started.
        ProtocolError
            If the verifier was closed.
        """
        if len(prompts) != len(responses):
            msg = f"prompts and responses must be of one length; got {len(prompts)} and {len(responses)}"
            raise InputError(msg)
        if not self._finish.alive:
            msg = "this verifier was closed; make another one"
            raise ProtocolError(msg)
        cut = np.array([response.finish == "length" for response in responses], dtype=bool)
        rewards = np.where(cut, 0.0 if self._truncated == "wrong" else math.nan, math.nan)
        scored = np.flatnonzero(~cut | (self._truncated == "score")).tolist()
        items = [(prompts[each], responses[each].text) for each in scored]
        unique = list(dict.fromkeys(items))
        if self._count:
            with self._lock:
                scored_once = self._score_in_workers(unique)
        else:
            scored_once = [_score_one(self._task, *item) for item in unique]
        known = dict(zip(unique, scored_once, strict=True))
        outcomes = [known[item] for item in items]
        rewards[scored] = [each.reward for each in outcomes]
        failed = [(each, prompt) for each, (prompt, _) in zip(outcomes, items, strict=True) if each.error]
        late = sum(each.timed_out for each, _ in failed)
        first = next((f"{each.error} (prompt {prompt.key!r})" for each, prompt in failed), "")
        return Scores(rewards, len(failed) - late, late, int(cut.sum()), first)

    def _score_in_workers(self, items: list[tuple[Prompt, str]]) -> list[_Outcome]:
        outcomes: dict[int, _Outcome] = {}
        todo = deque(range(len(items)))
        try:
            while len(outcomes) < len(items):
                self._fill()
                self._hand_out(items, todo)
                self._await(outcomes)
                self._end_stuck(outcomes, todo)
        except BaseException:
            # What was handed out would be reported to the next call.
            _close_all(self._workers)
            raise
        return [outcomes[each] for each in range(len(items))]

    def _fill(self) -> None:
        """Start processes for those that are missing."""
        while len(self._workers) < self._count:
            self._workers.append(_Worker(self._source))

    def _hand_out(self, items: list[tuple[Prompt, str]], todo: deque[int]) -> None:
        """Give work to those that have none: half of an equal share of the rest, so that all end together."""
        for worker in self._workers:
            if todo and worker.ready and not worker.open:
                share = [todo.popleft() for _ in range(math.ceil(len(todo) / (2 * self._count)))]
                if not worker.give(share, [items[each] for each in share], self._limit):
                    todo.extendleft(reversed(share))

    def _await(self, outcomes: dict[int, _Outcome]) -> None:
        """Take in reports until there are none, or the first time limit is over."""
        until = min((worker.deadline for worker in self._workers if worker.open), default=math.inf)
        left = None if until == math.inf else max(0.0, until - time.monotonic())
        readable = wait([worker.pipe for worker in self._workers], left)
        for worker in self._workers:
            if worker.pipe in readable:
                outcomes.update(worker.take(self._limit))

    def _end_stuck(self, outcomes: dict[int, _Outcome], todo: deque[int]) -> None:
        """Take out the processes that died or are over the limit, with no score for what they were at."""
        for worker in list(self._workers):
            late = bool(worker.open) and time.monotonic() > worker.deadline and not worker.pipe.poll()
            if not (late or worker.dead):
                continue
            self._workers.remove(worker)
            code = worker.close()
            if worker.open:
                stuck = worker.open.popleft()
                error = (
                    f"no score within {self._limit:g} s" if late else f"the process that scored it ended (code {code})"
                )
                outcomes[stuck] = _Outcome(math.nan, error, timed_out=late)
                todo.extendleft(reversed(worker.open))


def verifier_for(task: LoadedTask) -> Verifier:
    """Return the verifier that a task's config asks for."""
    config = task.config
    return Verifier(task, truncated=config.truncated, time_limit=config.time_limit, workers=config.workers)


def sample_and_score(
    prompts: Sequence[Prompt],
    encoded: Sequence[Sequence[int]],
    sampler: Sampler,
    verifier: Verifier,
    samples: int,
    seed: int,
) -> tuple[list[Response], Scores]:
    """Sample and score the responses 0 to ``samples - 1`` to each prompt, those to one prompt after the other.

    Parameters
    ----------
    prompts
        ``[prompt]`` the prompts.
    encoded
        ``[prompt][token]`` their tokens.
    sampler, verifier
        What samples and scores.
    samples
        Responses to each prompt.
    seed
        The sampler's seed.
    """
    asked = [prompt for prompt in prompts for _ in range(samples)]
    ids = np.array([[prompt.id, draw] for prompt in prompts for draw in range(samples)], dtype=np.int64)
    responses = sampler.generate([tokens for tokens in encoded for _ in range(samples)], ids, seed)
    return responses, verifier.score(asked, responses)


def _pickled(task: Task) -> bytes:
    try:
        return pickle.dumps(task.config if isinstance(task, LoadedTask) else task)
    # Pickling calls code of the task's own.
    except Exception as error:
        msg = (
            f"the task {task.name!r} can't be sent to the processes that score ({type(error).__name__}: {error}); load "
            "it as a task of kind 'python', or set workers = 0, which has no time limit"
        )
        raise InputError(msg) from error


def _close_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().close()


def _score_one(task: Task, prompt: Prompt, text: str) -> _Outcome:
    try:
        value: Any = task.score(prompt, text)
        if isinstance(value, (numbers.Real, np.bool_)) and math.isfinite(value):
            return _Outcome(float(value))
        return _Outcome(math.nan, f"the score {value!r:.200} is no finite number")
    # Whatever a scorer raises means that there is no score.
    except Exception as error:  # noqa: BLE001
        return _Outcome(math.nan, f"{type(error).__name__}: {error}"[:500])


# The process that scores


class _Worker:
    """A process that scores, seen from this side.

    Not one of multiprocessing's, on which library pools such as pebble's stand: those import the main
    module anew, so a script needs a guard and every process all of its imports. Such a pool also breaks
    where an idle process dies, and takes one that ended with code 0 for one that hangs.
    """

    def __init__(self, source: bytes) -> None:
        self.pipe, theirs = Pipe()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from llm.verify import _work; "
            f"_work({theirs.fileno()}, {os.getpid()})"
        )
        # What a scorer prints must not get into what the command prints.
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with code from here
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2
        )
        theirs.close()
        self.ready = False
        self.dead = False
        self.open: deque[int] = deque()
        """Numbers of the items that are not reported yet, in the order in which they are scored."""
        self.deadline = math.inf
        self._send(source)

    def give(self, places: list[int], items: list[tuple[Prompt, str]], limit: float) -> bool:
        """Hand items over; tell whether the process was there to take them."""
        if not self._send(pickle.dumps(items)):
            self.dead = True
            return False
        self.open.extend(places)
        self.deadline = time.monotonic() + limit
        return True

    def take(self, limit: float) -> dict[int, _Outcome]:
        """Take in all reports that have come; each one gives the next item its whole time.

        Raises
        ------
        InputError
            If the process could not start.
        """
        outcomes = {}
        try:
            while self.pipe.poll():
                report = self.pipe.recv()
                if self.ready:
                    outcomes[self.open.popleft()] = _Outcome(*report)
                elif report:
                    raise _no_start(report)
                self.ready = True
                self.deadline = time.monotonic() + limit
        except (EOFError, OSError) as error:
            self.dead = True
            if not self.ready:
                raise _no_start(f"it ended with code {self._process.wait()}") from error
        return outcomes

    def close(self) -> int:
        """Kill the process and return its exit code."""
        if self.dead:
            # It closed its end of the pipe on its way out, with an exit code worth telling.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        self._process.kill()
        self.pipe.close()
        return self._process.wait()

    def _send(self, data: bytes) -> bool:
        try:
            self.pipe.send_bytes(data)
        except OSError:
            return False
        return True


def _no_start(why: str) -> InputError:
    return InputError(
        f"a process that scores responses can't start: {why}. Set workers = 0 to score without processes, and without "
        "a time limit"
    )


def _work(descriptor: int, parent: int) -> None:
    """Score what comes through a pipe, in a process started by `_Worker`: one report an item, in order."""
    # Ctrl-C is the parent's to handle, which then kills this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    pipe = Connection(descriptor)
    try:
        source = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from the process that started this one
        task = load_scorer(source) if isinstance(source, TaskConfig) else source
    # Loading runs code of the user's.
    except Exception as error:  # noqa: BLE001
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send("")
    # The other end is gone when the parent was killed.
    with contextlib.suppress(EOFError, OSError):
        while True:
            for prompt, text in pickle.loads(pipe.recv_bytes()):  # noqa: S301
                pipe.send(tuple(_score_one(task, prompt, text)))
