"""Reading a million responses, one a line, against polars reading the same file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from sim.readers import read_rollouts

ROWS = 1_000_000
PROMPTS = 60_000
_PEAK = """
import re, sys
from sim.readers import read_rollouts
read_rollouts(sys.argv[1])
# Not ru_maxrss, which a process inherits from the one that started it.
print(int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 2**20)
"""


def write(path: Path, text: str) -> None:
    """Write responses of prompts that aren't adjacent, with a text as long as the given one."""
    random = np.random.default_rng(0)
    prompts, right = random.integers(PROMPTS, size=ROWS), random.random(ROWS) < 0.4
    tokens = random.integers(900, size=ROWS)
    with path.open("w") as out:
        for prompt, is_right, length in zip(prompts.tolist(), right.tolist(), tokens.tolist(), strict=True):
            beside = f'"output": "{text}", ' if text else ""
            reward = 1.0 if is_right else 0.0
            out.write(
                f'{{"prompt_id": "p{prompt}", {beside}"step": {prompt % 7}, "reward": {reward}, "tokens": {length}}}\n'
            )


def readers() -> None:
    """Print seconds, the ratio to polars in the same run, and the peak of memory in a process of its own."""
    print("\nReading a million responses, one a line")
    with tempfile.TemporaryDirectory() as folder:
        for what, text in (("numbers alone", ""), ("with 300 characters of text", "so it is. " * 30)):
            path = Path(folder) / "million.jsonl"
            write(path, text)
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                read_rollouts(path)
                middle = time.perf_counter()
                pl.read_ndjson(path)
                seconds.append((middle - start, time.perf_counter() - middle))
            ours, peer = np.min(seconds, axis=0)
            command = [sys.executable, "-c", _PEAK, str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
            gigabytes = float(done.stdout)
            print(f"  {what}: {ours:.2f} s, {ours / peer:.1f} x polars, {gigabytes:.2f} GB at most")


if __name__ == "__main__":
    readers()
