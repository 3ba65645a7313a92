"""Write problems as verl's Parquet: ``python examples/verl/prepare.py problems.jsonl data/train.parquet``.

A line of the input is an object with ``problem`` and ``answer``. Every row gets an
``extra_info.index`` of its own, by which a memory and the pool log know the prompt again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

ASK = "\nPlease reason step by step, and put your final answer within \\boxed{}."


def row(index: int, problem: str, answer: str) -> dict[str, Any]:
    """Return one row of the data set."""
    return {
        "data_source": "math",
        "prompt": [{"role": "user", "content": problem + ASK}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": index},
    }


def main() -> None:
    """Convert a file."""
    import pandas as pd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    problems = [json.loads(line) for line in given.source.read_text(encoding="utf-8").splitlines() if line.strip()]
    given.target.parent.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([row(i, each["problem"], str(each["answer"])) for i, each in enumerate(problems)])
    table.to_parquet(given.target)
    print(f"{len(table)} problems in {given.target}")


if __name__ == "__main__":
    main()
