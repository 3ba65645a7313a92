"""What one of two ranks does: `test_trl.py` starts two of them, and compares what they write down."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ada_bandit import Never, Policy, Quota, Rounds
from tests.adapters import tiny


def unscored(digit: int, completion: Any) -> float | None:
    first = tiny.first_digit(completion)
    return None if first > 7 else float(first < digit)


def run(folder: Path, kind: type, reward: Any = None, **keywords: Any) -> dict[str, Any]:
    seen = tiny.Seen(reward)
    options = tiny.config(folder, per_device_train_batch_size=3, num_generations=4)
    trainer: Any = kind(tiny.model(), seen, options, tiny.prompts(6), processing_class=tiny.tokenizer(), **keywords)
    groups: list[dict[str, Any]] = []
    if issubclass(kind, tiny.Adaptive):
        finish = trainer._ada_finish

        def noted(step: Any, output: Any) -> None:
            finish(step, output)
            found = step.groups
            digits = [row["digit"] for row in step.rows] or [None] * len(found.pos)
            groups.append(
                {
                    "advantages": [row[mask].tolist() for row, mask in zip(found.advantages, found.mask, strict=True)],
                    "out": (~found.mask.any(axis=1)).tolist(),
                    "counts": list(zip(digits, found.pos.tolist(), found.neg.tolist(), strict=True)),
                }
            )

        trainer._ada_finish = noted
    trainer.train()
    rows = tiny.rows(trainer)
    return {
        "losses": trainer.losses,
        "rows": [rows[first : first + 6] for first in range(0, len(rows), 6)],
        "groups": groups,
        "calls": seen.calls,
        # Rank 0 alone keeps the history; the metrics are taken from where TRL collects them.
        "ada": trainer.ada,
        "parameters": [float(p.detach().double().sum()) for p in trainer.model.parameters()],
    }


class Logging:
    """Keeps what every rank would log."""

    def log(self, logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        found = {key: values[0] for key, values in self._metrics["train"].items() if key.startswith("ada/")}  # type: ignore[attr-defined]
        if found:
            self.__dict__.setdefault("ada", []).append(found)
        super().log(logs, *args, **kwargs)  # type: ignore[misc]


class Adaptive(Logging, tiny.Adaptive):
    pass


class Stock(Logging, tiny.Stock):
    ada: tuple[Any, ...] = ()


def main(folder: Path) -> None:
    one = Policy(Quota(1, 1), Rounds(1, 9), 4)
    found = {
        "balance": run(folder, Adaptive, policy="reinforce-ada-balance"),
        "one at a time": run(folder, Adaptive, policy=one),
        "masked": run(folder, Adaptive, policy="reinforce-ada-pos", no_signal="leave_out"),
        "unscored": run(folder, Adaptive, unscored, policy=Policy(Never(), Rounds(3, 2), 4)),
        "grpo": run(folder, Adaptive, policy="grpo"),
        "stock": run(folder, Stock),
    }
    import torch.distributed as dist

    rank = dist.get_rank()
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
