"""What one of two ranks does: `test_ranks.py` starts two of them, and compares what they write down."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from datasets import Dataset

from ada_bandit import Beta, EmpiricalBayes, Never, PassRateMemory, Policy, Quota, Rounds
from tests.adapters import tiny


def unscored(digit: int, completion: Any) -> float | None:
    first = tiny.first_digit(completion)
    return None if first > 7 else float(first < digit)


def run(
    folder: Path, kind: type, reward: Any = None, options: dict[str, Any] | None = None, **keywords: Any
) -> dict[str, Any]:
    seen = tiny.Seen(reward)
    config = tiny.config(folder, **{"per_device_train_batch_size": 3, "num_generations": 4} | (options or {}))
    functions = [seen, *keywords.pop("more", ())]
    trainer: Any = kind(tiny.model(), functions, config, tiny.prompts(6), processing_class=tiny.tokenizer(), **keywords)
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


def noted(prompts: Any, completions: Any, log_extra: Any, log_metric: Any, **kwargs: Any) -> list[None]:
    log_extra("note", [f"{prompt}|{completion}" for prompt, completion in zip(prompts, completions, strict=True)])
    log_metric("length", sum(map(len, completions)) / len(completions))
    return [None] * len(prompts)


def sampler() -> EmpiricalBayes:
    return EmpiricalBayes(Beta(1, 2), samples=2, max_samples=8, group_size=4, refit_every=1, memory=PassRateMemory())


def restartable(folder: Path, *, dies: bool = False, resumes: bool = False) -> dict[str, Any]:
    """Train for four steps with a checkpoint after each; a rank may be killed in the third."""

    class Mortal(tiny.Seen):
        def __call__(self, *args: Any, **kwargs: Any) -> list[float | None]:
            trainer_state = kwargs["trainer_state"]
            if dies and trainer_state.global_step == 2 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(*args, **kwargs)

    config = tiny.config(folder, per_device_train_batch_size=3, max_steps=4, save_strategy="steps", save_steps=1)
    trainer: Any = Adaptive(
        tiny.model(),
        Mortal(),
        config,
        # One epoch: within it, transformers resumes the order of the data.
        tiny.prompts(12),
        processing_class=tiny.tokenizer(),
        policy=sampler(),
        memory_key="name",
    )
    trainer.train(resume_from_checkpoint=resumes or None)
    return {
        "losses": trainer.losses,
        "ada": trainer.ada,
        "memory": trainer.steps.memory.state_dict(),
        "pools": (folder / "ada_pools.jsonl").read_text(encoding="utf-8"),
        "parameters": [float(p.detach().double().sum()) for p in trainer.model.parameters()],
    }


def everything(folder: Path) -> dict[str, Any]:
    one = Policy(Quota(1, 1), Rounds(1, 9), 4)
    table = {"log_completions": True, "num_completions_to_print": 0, "max_steps": 1}
    evaluating = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 2, "num_generations_eval": 2}
    found = {
        "balance": run(folder, Adaptive, policy="reinforce-ada-balance"),
        "one at a time": run(folder, Adaptive, policy=one),
        "masked": run(folder, Adaptive, policy="reinforce-ada-pos", no_signal="leave_out"),
        "unscored": run(folder, Adaptive, unscored, policy=Policy(Never(), Rounds(3, 2), 4)),
        "truncated": run(
            folder, Adaptive, policy="reinforce-ada-balance", options={"mask_truncated_completions": True}
        ),
        "bayes": run(folder, Adaptive, policy=sampler(), memory_key="name"),
        "grpo": run(folder, Adaptive, policy="grpo"),
        "left out": run(folder, Adaptive, policy="grpo:no_signal=leave_out"),
        "stock": run(folder, Stock),
        "noted": run(folder / "noted", Adaptive, policy=one, more=(noted,), options=table),
        "eval": run(folder, Adaptive, policy="reinforce-ada-balance", options=evaluating, eval_dataset=tiny.prompts(4)),
    }
    found["whole"] = restartable(folder / "whole")
    if dist.get_rank() == 0:
        file = str(folder / "noted" / "completions" / "completions_00001.parquet")
        found["table"] = Dataset.from_parquet(file, cache_dir=str(folder / "cache")).to_dict()
    return found


def main(folder: Path, what: str) -> None:
    scenarios: dict[str, Callable[[Path], dict[str, Any]]] = {
        "everything": everything,
        "dies": lambda folder: restartable(folder / "killed", dies=True),
        "resumes": lambda folder: restartable(folder / "killed", resumes=True),
    }
    found = scenarios[what](folder)
    rank = dist.get_rank()
    (folder / f"{what}-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
