"""Time that the adapter itself takes in a step: `python -m tests.adapters.overhead` prints it."""

from __future__ import annotations

import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trl import GRPOTrainer

from ada_bandit.adapters.trl import AdaptiveGRPOTrainer
from tests.adapters import tiny


class Clock:
    """Attributes time to whoever runs: the adapter, or what it calls of TRL's."""

    def __init__(self) -> None:
        self.spent = {"adapter": 0.0, "trl": 0.0}
        self.owners = ["trl"]
        self.since = time.perf_counter()

    def switch(self) -> None:
        now = time.perf_counter()
        self.spent[self.owners[-1]] += now - self.since
        self.since = now

    def timed(self, method: Callable[..., Any], owner: str) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self.owners.append(owner)
            try:
                return method(*args, **kwargs)
            finally:
                self.switch()
                self.owners.pop()

        return run


@contextmanager
def clocked() -> Iterator[Clock]:
    """Clock every method of the adapter, and of TRL's those that the adapter calls or overrides."""
    clock = Clock()
    ours = {k: v for k, v in vars(AdaptiveGRPOTrainer).items() if callable(v) and k != "__init__"}
    theirs = {k: vars(GRPOTrainer)[k] for k in (*ours, "_tokenize_prompts") if k in vars(GRPOTrainer)}
    # Decoding a response is part of generating it; TRL does so for each of its own.
    ours.pop("_ada_decode")
    for owner, kind, methods in (("adapter", AdaptiveGRPOTrainer, ours), ("trl", GRPOTrainer, theirs)):
        for name, method in methods.items():
            setattr(kind, name, clock.timed(method, owner))
    decode = AdaptiveGRPOTrainer._ada_decode
    setattr(AdaptiveGRPOTrainer, "_ada_decode", clock.timed(decode, "trl"))  # noqa: B010
    try:
        yield clock
    finally:
        setattr(AdaptiveGRPOTrainer, "_ada_decode", decode)  # noqa: B010
        for kind, methods in ((AdaptiveGRPOTrainer, ours), (GRPOTrainer, theirs)):
            for name, method in methods.items():
                setattr(kind, name, method)


# 16 prompts a step, 64 rows of at most 64 tokens.
_SIZES = {"per_device_train_batch_size": 32, "max_completion_length": 64}


def stock_step(steps: int = 15) -> float:
    """Return the median seconds of a step of TRL's own trainer."""
    with tempfile.TemporaryDirectory() as folder:
        options = tiny.config(Path(folder), max_steps=steps, **_SIZES)
        trainer = tiny.Stock(tiny.model(), tiny.Seen(), options, tiny.prompts(64), processing_class=tiny.tokenizer())
        trainer.train()
    return statistics.median(tiny.logged(trainer, "step_time"))


def own_time(policy: str, steps: int = 15) -> float:
    """Return the median seconds that the adapter itself takes in a step, the first one (which compiles) left out."""
    with tempfile.TemporaryDirectory() as folder, clocked() as clock:
        options = tiny.config(Path(folder), max_steps=steps, **_SIZES)
        trainer = tiny.Adaptive(
            tiny.model(), tiny.Seen(), options, tiny.prompts(64), processing_class=tiny.tokenizer(), policy=policy
        )
        marks: list[float] = []
        training_step = trainer.training_step

        def marked(*args: Any, **kwargs: Any) -> Any:
            marks.append(clock.spent["adapter"])
            return training_step(*args, **kwargs)

        trainer.training_step = marked
        trainer.train()
    # Two micro-batches a step, the first of which generates.
    starts = [*marks[::2], clock.spent["adapter"]]
    return statistics.median(b - a for a, b in itertools.pairwise(starts[1:]))


def sampling_time(policy: str, rows_at_once: int | None = None, steps: int = 12) -> tuple[float, float]:
    """Return the median seconds of generation and scoring in a step, and the mean of its responses."""
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        options = tiny.config(Path(folder), max_steps=steps, num_train_epochs=9, **_SIZES)
        trainer: Any = tiny.Adaptive(
            tiny.model(),
            tiny.Seen(),
            options,
            tiny.prompts(64),
            processing_class=tiny.tokenizer(),
            policy=policy,
            rows_at_once=rows_at_once,
        )
        sample = trainer._generate_and_score_completions

        def timed(inputs: Any) -> Any:
            since = time.perf_counter()
            output = sample(inputs)
            spent.append(time.perf_counter() - since)
            return output

        trainer._generate_and_score_completions = timed
        trainer.train()
        responses = tiny.logged(trainer, "ada/responses")
    return statistics.median(spent[1:]), statistics.mean(responses[1:])


if __name__ == "__main__":
    stock = stock_step()
    print(f"a step of GRPOTrainer: {1e3 * stock:.1f} ms")
    for name in ("rloo", "reinforce-ada-balance", "grpo"):
        own = own_time(name)
        print(f"the adapter itself under {name}: {1e3 * own:.2f} ms a step, {100 * own / stock:.1f} % of it")
    for name in ("grpo", "reinforce-ada-balance"):
        for rows in (None, 128, 512):
            seconds, responses = sampling_time(name, rows)
            each = 1e3 * seconds / responses
            print(
                f"sampling under {name}, rows_at_once={rows}: {seconds:.3f} s, {responses:.0f} responses, {each:.2f} ms"
            )
