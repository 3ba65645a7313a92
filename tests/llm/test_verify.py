from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ada_bandit.errors import InputError, ProtocolError
from llm.config import TaskConfig
from llm.tasks import LoadedTask, load_task
from llm.types import Finish, Prompt, Response
from llm.verify import Scores, Verifier

MOODY = """
import os, sys, time
import numpy as np
from llm.types import Prompt

VALUES = {
    "nan": float("nan"), "inf": float("inf"), "text": "1", "none": None, "huge": 10**400, "true": True, "false": False,
    "numpy": np.float32(0.25), "numpy bool": np.True_, "whole": 3,
}

class Moody:
    name = "moody"
    def __len__(self):
        return 9
    def __getitem__(self, index):
        return Prompt(index, f"moody/{index}", "text", str(index), "moody")
    def score(self, prompt, text):
        what, _, rest = text.partition(" ")
        if what == "raise":
            raise KeyError("no such thing")
        if what == "hang":
            time.sleep(600)
        if what == "die":
            os._exit(7)
        if what == "leave":
            sys.exit(5)
        if what == "value":
            return VALUES[rest]
        if what == "print":
            print("something")
        if what == "torch":
            return float("torch" in sys.modules)
        return float(what) if what.replace(".", "").isdigit() else 0.0

def make():
    return Moody()
"""


def respond(text: str, finish: Finish = "stop") -> Response:
    return Response(np.zeros(1, dtype=np.int64), np.zeros(1), text, finish)


def load(**values: Any) -> LoadedTask:
    return load_task(TaskConfig.model_validate(values))


@pytest.fixture
def moody(tmp_path: Path) -> LoadedTask:
    (tmp_path / "moody.py").write_text(MOODY, encoding="utf-8")
    return load(kind="python", factory=f"{tmp_path / 'moody.py'}:make")


@pytest.fixture
def verifier(moody: LoadedTask) -> Iterator[Verifier]:
    with Verifier(moody, time_limit=2.0) as made:
        yield made


def score(verifier: Verifier, task: LoadedTask, texts: Sequence[str]) -> Scores:
    """Score a text for each of the prompts 0, 1, 2, … in turn."""
    return verifier.score([task[index % len(task)] for index in range(len(texts))], [respond(text) for text in texts])


def process_of(verifier: Verifier) -> int:
    return int(verifier._workers[0]._process.pid)


def is_gone(process: int, within: float = 20.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        # A child of a parent that was killed may stay as a zombie until somebody collects it.
        if Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_rewards_come_in_the_order_of_the_responses(moody: LoadedTask, workers: int) -> None:
    with Verifier(moody, workers=workers) as verifier:
        for _ in range(2):
            scores = score(verifier, moody, [f"0.{index}" for index in range(1, 100)])
            assert scores.rewards.tolist() == [float(f"0.{index}") for index in range(1, 100)]
            assert (scores.raised, scores.timed_out, scores.truncated, scores.first_error) == (0, 0, 0, "")
        empty = verifier.score([], [])
        assert empty.rewards.shape == (0,)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_no_finite_number_is_no_score(moody: LoadedTask, workers: int) -> None:
    kinds = ["nan", "inf", "text", "none", "huge", "true", "false", "numpy", "numpy bool", "whole"]
    with Verifier(moody, workers=workers) as verifier:
        scores = score(verifier, moody, ["value " + kind for kind in kinds])
    np.testing.assert_array_equal(scores.rewards, [np.nan] * 5 + [1, 0, 0.25, 1, 3])
    assert (scores.raised, scores.timed_out) == (5, 0)
    assert scores.first_error == "the score nan is no finite number (prompt 'moody/0')"


@pytest.mark.parametrize("workers", [0, 1])
def test_what_raises_is_no_score(moody: LoadedTask, workers: int) -> None:
    with Verifier(moody, workers=workers) as verifier:
        scores = score(verifier, moody, ["1", "raise", "0.5", "raise"])
    np.testing.assert_array_equal(scores.rewards, [1, np.nan, 0.5, np.nan])
    assert (scores.raised, scores.timed_out) == (2, 0)
    assert scores.first_error == "KeyError: 'no such thing' (prompt 'moody/1')"


@pytest.mark.parametrize("workers", [1, 2])
def test_what_hangs_is_cut_and_the_rest_is_scored(moody: LoadedTask, workers: int) -> None:
    with Verifier(moody, time_limit=1.0, workers=workers) as verifier:
        scores = score(verifier, moody, ["0.1", "hang", "0.2", "raise", "hang now", "0.3"])
        np.testing.assert_array_equal(scores.rewards, [0.1, np.nan, 0.2, np.nan, np.nan, 0.3])
        assert (scores.raised, scores.timed_out) == (1, 2)
        assert scores.first_error == "no score within 1 s (prompt 'moody/1')"
        assert score(verifier, moody, ["1"]).rewards.tolist() == [1]


def test_what_ends_the_process_is_no_score(moody: LoadedTask, verifier: Verifier) -> None:
    scores = score(verifier, moody, ["0.1", "die", "leave", "0.2", "die again"])
    np.testing.assert_array_equal(scores.rewards, [0.1, np.nan, np.nan, 0.2, np.nan])
    assert (scores.raised, scores.timed_out) == (3, 0)
    assert scores.first_error == "the process that scored it ended (code 7) (prompt 'moody/1')"


def test_a_process_killed_while_idle_costs_no_score(moody: LoadedTask, verifier: Verifier) -> None:
    assert score(verifier, moody, ["1"]).rewards.tolist() == [1]
    verifier._workers[0]._process.kill()
    verifier._workers[0]._process.wait()
    scores = score(verifier, moody, ["0.1", "0.2"])
    assert scores.rewards.tolist() == [0.1, 0.2]
    assert scores.raised == 0


def test_every_response_without_a_score_is_counted_also_where_texts_are_equal(
    moody: LoadedTask, verifier: Verifier
) -> None:
    scores = verifier.score([moody[0], moody[0], moody[1]], [respond("raise")] * 3)
    assert scores.raised == 3
    assert np.isnan(scores.rewards).all()


@pytest.mark.parametrize(
    ("truncated", "rewards", "raised"),
    [("wrong", [1, 0, 0, 1], 0), ("no-score", [1, np.nan, np.nan, 1], 0), ("score", [1, 1, np.nan, 1], 1)],
)
def test_truncated_responses(moody: LoadedTask, truncated: Any, rewards: list[float], raised: int) -> None:
    responses = [respond("1"), respond("1", "length"), respond("raise", "length"), respond("1")]
    with Verifier(moody, truncated=truncated, workers=0) as verifier:
        scores = verifier.score([moody[0]] * 4, responses)
    np.testing.assert_array_equal(scores.rewards, rewards)
    assert (scores.truncated, scores.raised) == (2, raised)


class Counting:
    """A task that counts what it is asked for."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int, /) -> Prompt:
        return Prompt(index, f"counting/{index}", "text", "yes", "counting")

    def score(self, prompt: Prompt, text: str) -> float:
        self.asked.append((prompt.key, text))
        return float(text == "yes")


def test_equal_texts_for_one_prompt_are_scored_once() -> None:
    task = Counting()
    asked = [(0, "yes"), (0, "no"), (0, "yes"), (1, "yes")]
    scores = Verifier(task, workers=0).score([task[index] for index, _ in asked], [respond(text) for _, text in asked])
    assert scores.rewards.tolist() == [1, 0, 1, 1]
    assert task.asked == [("counting/0", "yes"), ("counting/0", "no"), ("counting/1", "yes")]


def test_threads_share_a_verifier(moody: LoadedTask, verifier: Verifier) -> None:
    found: dict[int, Scores] = {}

    def ask(number: int) -> None:
        found[number] = score(verifier, moody, [f"{number}.{index}" for index in range(40)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert found[number].rewards.tolist() == [float(f"{number}.{index}") for index in range(40)]


def test_a_closed_verifier_says_so_and_its_process_is_gone(moody: LoadedTask) -> None:
    verifier = Verifier(moody)
    process = process_of(verifier)
    verifier.close()
    verifier.close()
    assert is_gone(process)
    with pytest.raises(ProtocolError, match="was closed"):
        score(verifier, moody, ["1"])


SCRIPT = """
import sys
from llm.config import TaskConfig
from llm.tasks import load_task
from llm.verify import Verifier
import numpy as np
from llm.types import Response

task = load_task(TaskConfig.model_validate({"kind": "python", "factory": sys.argv[1]}))
verifier = Verifier(task, time_limit=500)
texts = sys.argv[2:]
answer = verifier.score([task[0]], [Response(np.zeros(1, dtype=int), np.zeros(1), "print", "stop")])
print(verifier._workers[0]._process.pid, flush=True)
if texts:
    verifier.score([task[0]], [Response(np.zeros(1, dtype=int), np.zeros(1), texts[0], "stop")])
"""


def start_script(moody: LoadedTask, *texts: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    # Fed on standard input: there is no main module that a process could import.
    process = subprocess.Popen(
        [sys.executable, "-", moody.config.factory, *texts],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(SCRIPT)
    process.stdin.close()
    process.stdin = None
    return process


def test_no_process_outlives_the_interpreter_and_prints_stay_apart(moody: LoadedTask) -> None:
    process = start_script(moody)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    # The number alone: what the scorer printed is on standard error.
    assert is_gone(int(out))
    assert err.strip() == "something"


def test_no_process_outlives_a_parent_that_is_killed_in_the_middle_of_a_score(moody: LoadedTask) -> None:
    process = start_script(moody, "hang")
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    assert not is_gone(worker, within=0.5)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert is_gone(worker)


def test_workers_do_not_import_what_this_process_has(
    moody: LoadedTask, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert score(verifier, moody, ["torch"]).rewards.tolist() == [0]


def test_a_task_that_workers_cannot_load_is_told(moody: LoadedTask) -> None:
    Path(moody.config.factory.removesuffix(":make")).unlink()
    with (
        Verifier(moody) as verifier,
        pytest.raises(InputError, match=r"can't start: InputError: .*moody.py' of factory"),
    ):
        score(verifier, moody, ["1"])


def test_a_worker_that_dies_before_it_is_ready_is_told(moody: LoadedTask) -> None:
    file = Path(moody.config.factory.removesuffix(":make"))
    file.write_text(MOODY + "\nos._exit(9)\n", encoding="utf-8")
    with Verifier(moody) as verifier, pytest.raises(InputError, match="can't start: it ended with code 9"):
        score(verifier, moody, ["1"])


def test_a_task_that_cannot_be_sent_is_told() -> None:
    task = Counting()
    task.asked = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(InputError, match=r"'counting' can't be sent .*workers = 0"):
        Verifier(task)


def test_an_interrupted_call_leaves_nothing_to_the_next(
    moody: LoadedTask, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    # Its process is there, so that it has work when the interrupt comes.
    assert score(verifier, moody, ["1"]).rewards.tolist() == [1]
    with monkeypatch.context() as patch:
        patch.setattr(Verifier, "_end_stuck", interrupted)
        with pytest.raises(KeyboardInterrupt):
            score(verifier, moody, [f"0.{index}" for index in range(1, 50)])
    assert score(verifier, moody, ["1", "0.5"]).rewards.tolist() == [1, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncated": "rong"}, r"'rong' of truncated responses; did you mean 'wrong'\?"),
        ({"time_limit": 0}, "time_limit must be a finite number .*got 0"),
        ({"workers": -1}, "workers must be a whole number of at least 0; got -1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Verifier(Counting(), **options)


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="of one length; got 1 and 0"):
        Verifier(Counting(), workers=0).score([Counting()[0]], [])


# With the tasks that are built in


def test_a_power_tower_is_cut_while_the_others_are_scored(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    file = tmp_path / "math.jsonl"
    file.write_text(json.dumps({"prompt": "p", "answer": "42"}), encoding="utf-8")
    task = load(kind="jsonl", file=str(file))
    texts = ["42", r"\boxed{9^{9^{9^{9}}}}", r"\boxed{\frac{84}{2}}", "41", "none"]
    with Verifier(task, time_limit=2.0) as verifier:
        scores = score(verifier, task, texts)
    np.testing.assert_array_equal(scores.rewards, [1, np.nan, 1, 0, 0])
    assert (scores.raised, scores.timed_out) == (0, 1)


def test_workers_make_the_same_gym_items_as_this_process() -> None:
    pytest.importorskip("reasoning_gym")
    families: dict[str, Any] = {
        "spell_backward": {},
        "letter_counting": {},
        "gsm_symbolic": {},
        "prime_factorization": {},
    }
    task = load(kind="reasoning-gym", families=families, size=10**6, seed=2)
    prompts = [task[index] for index in (0, 1, 2, 3, 5000, 5001, 5002, 5003)]
    with Verifier(task) as verifier:
        right = verifier.score(prompts, [respond(prompt.answer) for prompt in prompts])
        junk = verifier.score(prompts[3:4], [respond("a dog")])
    assert right.rewards.tolist() == [1] * 8
    assert (junk.raised, junk.timed_out) == (1, 0)
    assert "ValueError" in junk.first_error


def test_digits_are_scored_by_the_answer() -> None:
    task = load(kind="digits", size=20)
    prompts = [task[index] for index in range(20)]
    texts = [prompt.answer if prompt.id % 2 else prompt.answer + "0" for prompt in prompts]
    with Verifier(task) as verifier:
        scores = verifier.score(prompts, [respond(text) for text in texts])
    assert scores.rewards.tolist() == [0, 1] * 10
