"""Small dumps in the shapes of each framework, written by code: three prompts, two steps, four responses each.

Of prompt a two are correct in step 1 and three in step 2, of b none, of c all.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

RIGHT = {
    1: {"a": (1, 0, 0, 1), "b": (0, 0, 0, 0), "c": (1, 1, 1, 1)},
    2: {"a": (1, 1, 0, 1), "b": (0, 0, 0, 0), "c": (1, 1, 1, 1)},
}
"""Correctness by step and prompt, in the order of the draws."""
CORRECT, RESPONSES = 2 + 4 + 3 + 4, 24


def responses(step: int, *, interleaved: bool = False) -> Iterator[tuple[str, int, int]]:
    """Give prompt, number and correctness of every response of a step."""
    if interleaved:
        for number in range(4):
            for prompt, right in RIGHT[step].items():
                yield prompt, number, right[number]
    else:
        for prompt, right in RIGHT[step].items():
            for number, is_right in enumerate(right):
                yield prompt, number, is_right


def text(prompt: str) -> str:
    return f"What is {prompt}? <|im_start|>"


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def verl(folder: Path, *, uid: bool) -> Path:
    for step in RIGHT:
        rows: list[dict[str, Any]] = []
        for prompt, number, right in responses(step, interleaved=True):
            row = {"input": text(prompt), "output": "so", "gts": "4", "score": 2.0 * right - 1, "step": step}
            if uid:
                row |= {"uid": f"{step}{prompt}-0000_0_{number}", "acc": bool(right)}
            rows.append(row)
        if uid:
            rows.append(
                {"input": "padding", "output": "", "gts": "", "score": 0.0, "step": step, "uid": "pad_0", "acc": False}
            )
        lines(folder / f"{step}.jsonl", rows)
    return folder


def verl_v1(folder: Path) -> Path:
    return verl(folder / "rollout", uid=True)


def verl_legacy(folder: Path) -> Path:
    return verl(folder / "rollout", uid=False)


def trl(folder: Path, *, messages: bool) -> Path:
    place = folder / "completions"
    place.mkdir(parents=True)
    for step, each in RIGHT.items():
        rows: list[dict[str, Any]] = []
        for prompt, right in each.items():
            mean = sum(right) / 4
            for is_right in right:
                asked: Any = [{"role": "user", "content": text(prompt)}] if messages else text(prompt)
                said: Any = [{"role": "assistant", "content": "so"}] if messages else "so"
                rows.append(
                    {
                        "step": step,
                        "prompt": asked,
                        "completion": said,
                        "accuracy_reward": float(is_right),
                        "format_reward": 0.5,
                        "advantage": is_right - mean,
                    }
                )
        pl.DataFrame(rows).write_parquet(place / f"completions_{step:05d}.parquet")
    return place


def trl_text(folder: Path) -> Path:
    return trl(folder, messages=False)


def trl_messages(folder: Path) -> Path:
    return trl(folder, messages=True)


def prime_rl(folder: Path) -> Path:
    for step in RIGHT:
        rows = [
            {
                "id": f"{step}-{prompt}-{number}",
                "env": "math",
                "task": {"type": "t", "data": {"q": text(prompt)}, "key": prompt},
                "group": {"id": f"g{prompt}"},
                "run": {"work": {"step": step, "policy": step}},
                "ok": True,
                "errors": [],
                "traces": [
                    {
                        "rewards": {"correct": {"score": right, "weight": 1.0}, "style": {"score": 0.5, "weight": 0.0}},
                        "metrics": {},
                        "stop_condition": "done",
                        "errors": [],
                        "timing": {},
                    }
                ],
            }
            for prompt, number, right in responses(step, interleaved=True)
        ]
        lines(folder / "rollouts" / f"step_{step}" / "train" / "all" / "traces.jsonl", rows)
        lines(folder / "rollouts" / f"step_{step}" / "train" / "effective" / "traces.jsonl", rows[:4])
        lines(folder / "rollouts" / f"step_{step}" / "eval" / "all" / "traces.jsonl", rows[:2])
    return folder / "rollouts"


def verifiers(folder: Path) -> Path:
    rows = [
        {
            "example_id": 10 * step + ord(prompt),
            "prompt": [{"role": "user", "content": text(prompt)}],
            "completion": [],
            "answer": "4",
            "info": {},
            "reward": float(right),
            "error": None,
            "timing": {},
            "is_truncated": number == 3,
            "stop_condition": "end",
            "metrics": {},
            "token_usage": {"input_tokens": 9, "output_tokens": 100 + number},
        }
        for step in RIGHT
        for prompt, number, right in responses(step)
    ]
    lines(folder / "results.jsonl", rows)
    return folder / "results.jsonl"


def nemo_rl(folder: Path) -> Path:
    for step in RIGHT:
        rows: list[dict[str, Any]] = []
        for idx, (prompt, number, right) in enumerate(responses(step)):
            asked = [1, 2, ord(prompt)]
            said = [7] * (number + 1)
            rows.append(
                {
                    "content": [text(prompt), "so"],
                    "rewards": [float(right)],
                    "input_lengths": len(asked) + len(said),
                    "token_ids": asked + said,
                    "token_loss_mask": [0] * 3 + [1] * len(said),
                    "sample_loss_mask": 1.0,
                    "advantages": [0.0],
                    "generation_logprobs": [0.0],
                    "prev_logprobs": [0.0],
                    "idx": idx,
                }
            )
        lines(folder / f"train_data_step{step}.jsonl", rows)
    return folder


def skyrl(folder: Path) -> Path:
    for step in RIGHT:
        rows: list[dict[str, Any]] = [
            {
                "input_prompt": text(prompt),
                "output_response": "so",
                "score": [0.0, float(right)],
                "stop_reason": "length" if number == 3 else "stop",
                "env_class": "gsm8k",
                "env_extras": {},
                "data_source": "gsm8k",
            }
            for prompt, number, right in responses(step, interleaved=True)
        ]
        lines(folder / "dumped_evals" / f"global_step_{step}_evals" / "gsm8k.jsonl", rows)
    return folder / "dumped_evals"


def areal(folder: Path) -> Path:
    for step, right_of in RIGHT.items():
        for prompt in right_of:
            rows = [
                {
                    "task_id": f"{step}{prompt}",
                    "sample_idx": number,
                    "seqlen": 30 + number,
                    "prompt_len": 10,
                    "head_version": step,
                    "tail_version": step,
                    "reward": float(right),
                    "prompt": text(prompt),
                    "completion": "so",
                }
                for each, number, right in responses(step)
                if each == prompt
            ]
            lines(folder / "rollout" / str(step) / f"{step}{prompt}.jsonl", rows)
    return folder / "rollout"


def tinker(folder: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {
            "schema_version": 1,
            "split": split,
            "iteration": step,
            "group_idx": "abc".index(prompt),
            "traj_idx": number,
            "tags": [],
            "total_reward": float(right),
            "final_reward": float(right),
            "trajectory_metrics": {},
            "steps": [{"ac_len": 10, "reward": 0.0}, {"ac_len": number, "reward": float(right)}],
            "final_ob_len": 5,
        }
        for step in RIGHT
        for split in ("train", "test")
        for prompt, number, right in responses(step)
        if split == "train" or prompt == "a"
    ]
    lines(folder / "run_rollout_summaries.jsonl", rows)
    return folder / "run_rollout_summaries.jsonl"


def art(folder: Path) -> Path:
    place = folder / ".art" / "p" / "models" / "m" / "trajectories" / "train"
    place.mkdir(parents=True)
    for step in RIGHT:
        rows = [
            {
                "group_index": "abc".index(prompt),
                "reward": float(right),
                "metrics": json.dumps({"completion_tokens": 20}),
                "metadata": "{}",
                "messages": json.dumps(
                    [{"role": "user", "content": text(prompt)}, {"role": "assistant", "content": "so"}]
                ),
            }
            for prompt, _, right in responses(step)
        ]
        pl.DataFrame(rows).write_parquet(place / f"{step:04d}.parquet")
    return place


def rllm(folder: Path) -> Path:
    for step in RIGHT:
        for prompt, number, right in responses(step):
            place = folder / "episodes" / f"train_step_{step}_epoch_0"
            place.mkdir(parents=True, exist_ok=True)
            episode = {
                "training_step": step,
                "epoch": 0,
                "episode_id": f"{prompt}:{number}",
                "task": {"question": text(prompt)},
                "task_hash": f"hash{prompt}",
                "is_correct": bool(right),
                "termination_reason": "env_done",
                "metrics": {},
                "trajectories": [{"name": "solver", "reward": float(right), "steps": []}],
            }
            (place / f"episode_hash{prompt}_id{number}.json").write_text(
                json.dumps(episode, indent=1), encoding="utf-8"
            )
    return folder / "episodes"


def open_instruct(folder: Path) -> Path:
    rows = [
        {
            "step": step,
            "sample_idx": number,
            "prompt_idx": "abc".index(prompt),
            "prompt_tokens": [1, ord(prompt)],
            "response_tokens": [3] * (5 + number),
            "reward": 10.0 * right,
            "advantage": 0.0,
            "finish_reason": "length" if number == 3 else "stop",
            "dataset": "gsm8k",
            "ground_truth": "4",
        }
        for step in RIGHT
        for prompt, number, right in responses(step)
    ]
    lines(folder / "run_rollouts_000000.jsonl", rows[:13])
    lines(folder / "run_rollouts_000001.jsonl", rows[13:])
    return folder


def ms_swift(folder: Path) -> Path:
    rows: list[dict[str, Any]] = []
    for step in RIGHT:
        every = list(responses(step))
        rows.append(
            {
                "step": [step] * len(every),
                "prompt": [text(prompt) for prompt, _, _ in every],
                "completion": ["so"] * len(every),
                "MathAccuracy": [float(right) for _, _, right in every],
                "Format": [0.25] * len(every),
                "advantages": [0.0] * len(every),
            }
        )
    lines(folder / "completions.jsonl", rows)
    return folder / "completions.jsonl"


def samples(step: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{step}{prompt}",
            "epoch": number + 1,
            "input": text(prompt),
            "target": "4",
            "scores": {"match": {"value": "C" if right else "I", "answer": "4"}},
            "model_usage": {"m": {"input_tokens": 3, "output_tokens": 40 + number}},
            "error": None,
            "output": {"choices": [{"stop_reason": "max_tokens" if number == 3 else "stop"}]},
        }
        for prompt, number, right in responses(step, interleaved=True)
    ]


def inspect_json(folder: Path) -> Path:
    log = {
        "version": 2,
        "status": "success",
        "eval": {"task": "t"},
        "samples": [each for step in RIGHT for each in samples(step)],
    }
    (folder / "log.json").write_text(json.dumps(log), encoding="utf-8")
    return folder / "log.json"


def inspect_eval(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        for step in RIGHT:
            for each in samples(step):
                archive.writestr(f"samples/{each['id']}_epoch_{each['epoch']}.json", json.dumps(each))
    return folder / "log.eval"


def slime(folder: Path) -> Path:
    torch = pytest.importorskip("torch")
    for step in RIGHT:
        every = [
            {
                "group_index": "abc".index(prompt),
                "index": number,
                "prompt": text(prompt),
                "response": "so",
                "response_length": 7,
                "label": "4",
                "reward": {"score": float(right), "extra": 9.0},
                "status": "truncated" if number == 3 else "completed",
                "metadata": {},
            }
            for prompt, number, right in responses(step, interleaved=True)
        ]
        torch.save({"rollout_id": step, "samples": every}, folder / f"rollout_{step}.pt")
    return folder


def lm_eval(folder: Path) -> Path:
    """Write one response to each of 24 prompts, of which 13 are correct."""
    rows = [
        {"doc_id": doc, "doc_hash": "", "target": "4", "resps": [["so"]], "filtered_resps": ["4"], "filter": "none",
         "exact_match": float(doc < CORRECT)}
        for doc in range(RESPONSES)
    ]  # fmt: skip
    lines(folder / "samples_gsm8k.jsonl", rows)
    return folder / "samples_gsm8k.jsonl"


def own(folder: Path) -> Path:
    rows = [
        {"prompt_id": f"{step}{prompt}", "rewards": right} for step in RIGHT for prompt, right in RIGHT[step].items()
    ]
    lines(folder / "log.jsonl", rows)
    return folder / "log.jsonl"


DUMPS: dict[str, tuple[Callable[[Path], Path], str, int, list[int]]] = {
    "verl": (verl_v1, "verl", 3, [1, 2]),
    "verl-legacy": (verl_legacy, "verl", 3, [1, 2]),
    "trl": (trl_text, "TRL", 3, [1, 2]),
    "trl-messages": (trl_messages, "TRL", 3, [1, 2]),
    "prime-rl": (prime_rl, "prime-rl", 3, [1, 2]),
    "verifiers": (verifiers, "verifiers", 6, []),
    "nemo-rl": (nemo_rl, "NeMo-RL", 3, [1, 2]),
    "skyrl": (skyrl, "SkyRL", 3, [1, 2]),
    "areal": (areal, "AReaL", 3, [1, 2]),
    "tinker-cookbook": (tinker, "tinker-cookbook", 6, [1, 2]),
    "art": (art, "ART", 3, [1, 2]),
    "rllm": (rllm, "rLLM", 3, [1, 2]),
    "open-instruct": (open_instruct, "open-instruct", 3, [1, 2]),
    "ms-swift": (ms_swift, "ms-swift", 3, [1, 2]),
    "inspect": (inspect_json, "inspect", 6, []),
    "inspect-eval": (inspect_eval, "inspect", 6, []),
    "slime": (slime, "slime", 3, [1, 2]),
    "own": (own, "JSON Lines", 6, []),
}
"""By name: what writes the dump and returns what to read, the format's name, prompts and steps."""


def packed(path: Path) -> Path:
    """Return the file compressed by gzip beside it."""
    result = path.with_name(path.name + ".gz")
    result.write_bytes(gzip.compress(path.read_bytes()))
    return result
