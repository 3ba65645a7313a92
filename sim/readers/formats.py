"""What training and evaluation frameworks write down, format by format.

A format is recognised by its keys. Where its rows are flat, it names the columns; where they are
nested, it unfolds each row into flat ones with columns of our own names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from sim.readers.columns import Kind, Roles
from sim.readers.streams import named, shown
from sim.readers.values import as_list, follow, is_list, is_missing, number, objects

__all__ = ["FLAT", "FORMATS", "Format", "Selection", "recognise", "step_of"]


class Selection(StrEnum):
    """Which of the drawn responses stand in a file."""

    all = "all"
    trained = "trained"
    """Rows that were trained on: groups without signal may be missing."""
    signal = "signal"
    """Groups with signal alone."""
    kept = "kept"
    """Rows that were kept of larger pools."""


Row = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """How one framework writes rollouts."""

    name: str
    keys: tuple[frozenset[str], ...]
    """Sets of keys; a row with all of one set is of this format."""
    roles: Callable[[Sequence[Row], list[str]], Roles] | None = None
    """Names the columns of flat rows, and appends what is to be told."""
    unfold: Callable[[Row, Path], Iterator[Row]] | None = None
    """Gives the flat rows of a nested one."""
    selection: Selection = Selection.all
    note: str = ""
    """What is always told of it."""
    record: bool = False
    """Whether an object that is a whole file is one row."""
    fits: Callable[[Row], bool] = lambda _: True
    """What has to hold of a row besides."""


FLAT = Roles(
    Kind.response, "prompt", ("reward",), "correct", None, "step", "tokens", "truncated", "error", splitting=("filter",)
)
"""The columns of unfolded rows."""

_STEP = re.compile(r"(?:global_step|step|iter|iteration)[_-]?(\d+)", re.IGNORECASE)


def step_of(path: Path) -> int | None:
    """Return the training step that a path names, None where it names none.

    >>> step_of(Path("dump/12.jsonl")), step_of(Path("completions/completions_00030.parquet"))
    (12, 30)
    >>> step_of(Path("evals/global_step_40_evals/gsm8k.jsonl")), step_of(Path("results.jsonl"))
    (40, None)
    """
    stem = path.name.split(".", 1)[0]
    if stem.isdigit():
        return int(stem)
    for part in (stem, *[part.name for part in path.parents][:3]):
        found = _STEP.search(part)
        if found:
            return int(found[1])
    found = re.fullmatch(r"completions_(\d+)", stem)
    return int(found[1]) if found else None


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _has(rows: Sequence[Row], *names: str) -> str | None:
    """Return the first of the columns that is there."""
    return next((name for name in names if any(row.get(name) is not None for row in rows)), None)


def _is_truth(rows: Sequence[Row], name: str) -> bool:
    values = [number(row[name]) for row in rows if row.get(name) is not None]
    return bool(values) and all(value in {0.0, 1.0} for value in values)


# verl


def _verl(rows: Sequence[Row], notes: list[str]) -> Roles:
    correct = next(
        (name for name in ("acc", "correct", "is_correct") if _has(rows, name) and _is_truth(rows, name)), None
    )
    if correct:
        notes.append(f"{shown(correct)} decides what is correct")
    return Roles(Kind.response, "input", ("score",), correct, None, _has(rows, "step"))


# TRL

_TRL_OWN = {"step", "prompt", "completion", "advantage", "advantages", "image", "images", "tools", "completion_length"}


def _reward_columns(rows: Sequence[Row], own: set[str], notes: list[str]) -> tuple[tuple[str, ...], str | None]:
    """Return the columns of reward functions, and the one among them that is correctness."""
    numeric = []
    for name in _columns(rows):
        values = [row[name] for row in rows if row.get(name) is not None]
        if name not in own and values and all(isinstance(value, (bool, int, float)) for value in values):
            numeric.append(name)
    named = [name for name in numeric if re.search(r"reward|score|acc|correct|format|pass|verif", name, re.IGNORECASE)]
    left = [name for name in numeric if name not in named] if named else []
    chosen = named or numeric
    if left:
        notes.append(f"columns of numbers not taken for rewards: {', '.join(map(shown, left))} (--reward names them)")
    right = [
        name for name in chosen if re.search(r"acc|correct|pass|verif", name, re.IGNORECASE) and _is_truth(rows, name)
    ]
    correct = right[0] if len(right) == 1 and len(chosen) > 1 else None
    if len(chosen) > 1:
        notes.append(f"the reward is the plain sum of {', '.join(map(shown, chosen))}; weights are not in the file")
    if correct:
        notes.append(f"{shown(correct)} decides what is correct")
    return tuple(chosen), correct


def _trl(rows: Sequence[Row], notes: list[str]) -> Roles:
    rewards, correct = _reward_columns(rows, _TRL_OWN, notes)
    if not rewards:
        msg = (
            f"these are completions of TRL without a column of rewards: {', '.join(map(shown, _columns(rows)))}. "
            f"Name it, "
            "for example: --reward accuracy_reward"
        )
        raise InputError(msg)
    return Roles(Kind.response, "prompt", rewards, correct, None, "step")


def _swift(row: Row, path: Path) -> Iterator[Row]:
    """Unfold a line of ms-swift, which holds columns."""
    lists = {name: value for name, value in row.items() if is_list(value)}
    length = max((len(value) for value in lists.values()), default=0)
    wrong = next((name for name, value in lists.items() if len(value) != length), None)
    if wrong:
        msg = f"the list {shown(wrong)} has {len(lists[wrong])} members where others have {length}, in {named(path)}"
        raise InputError(msg)
    flat = [{name: lists[name][at] if name in lists else row[name] for name in row} for at in range(length)]
    rewards, correct = _reward_columns(flat, _TRL_OWN, [])
    for each in flat:
        values = [number(each.get(name)) for name in rewards]
        yield {
            "prompt": each.get("prompt"),
            "reward": None
            if any(value is None or is_missing(value) for value in values)
            else sum(v for v in values if v is not None),
            "correct": each.get(correct) if correct else None,
            "step": each.get("step"),
        }


# prime-rl and verifiers


def _weighted(rewards: Any) -> float | None:
    """Return the sum of weight times score."""
    if not isinstance(rewards, dict):
        return number(rewards) if rewards is not None else None
    total = 0.0
    for part in rewards.values():
        score = number(part.get("score")) if isinstance(part, dict) else number(part)
        weight = number(part.get("weight", 1.0)) if isinstance(part, dict) else 1.0
        if score is None or weight is None or is_missing(score):
            return None
        total += score * (1.0 if is_missing(weight) else weight)
    return total


def _prime(row: Row, path: Path) -> Iterator[Row]:
    task: Any = row.get("task")
    task = task if isinstance(task, dict) else {}
    named = (task.get(name) for name in ("key", "hash"))
    key = next((value for value in named if value is not None and value != ""), None)
    key = task.get("data") if key is None else key
    key = follow(row, "group.id") if key is None else key
    traces = objects(row.get("traces"))
    rewards = [_weighted(trace.get("rewards")) for trace in traces]
    scored = [reward for reward in rewards if reward is not None]
    failed = row.get("ok") is False or bool(row.get("errors")) or any(trace.get("errors") for trace in traces)
    stop = " ".join(str(trace.get("stop_condition") or "") for trace in traces)
    step = follow(row, "run.work.step")
    yield {
        "prompt": key,
        "reward": sum(scored) / len(scored) if scored else None,
        "step": step_of(path) if step is None else step,
        "truncated": stop,
        "error": "failed" if failed else None,
        "tokens": None,
    }


def _verifiers(rows: Sequence[Row], _notes: list[str]) -> Roles:
    tokens = next(
        (
            f"token_usage.{name}"
            for name in ("output_tokens", "completion_tokens")
            if any(follow(row, f"token_usage.{name}") is not None for row in rows)
        ),
        None,
    )
    return Roles(
        Kind.response,
        "example_id",
        ("reward",),
        None,
        None,
        None,
        tokens,
        _has(rows, "is_truncated", "stop_condition"),
        "error",
    )


# NeMo-RL


def _only(value: Any) -> Any:
    while is_list(value) and len(value) == 1:
        value = value[0]
    return value


def _nemo(row: Row, path: Path) -> Iterator[Row]:
    tokens: Any = row.get("token_ids")
    mask: Any = row.get("token_loss_mask")
    while is_list(tokens) and len(tokens) == 1 and is_list(tokens[0]):
        tokens, mask = tokens[0], _only(mask) if not is_list(mask) else mask[0]
    key, length = None, None
    if is_list(tokens) and is_list(mask) and len(tokens) == len(mask) and any(mask):
        start = next(at for at, flag in enumerate(mask) if flag)
        key, length = "tokens " + " ".join(str(token) for token in tokens[:start]), sum(1 for flag in mask if flag)
    yield {
        "prompt": key,
        "reward": _only(row.get("rewards")),
        "step": step_of(path),
        "tokens": length,
        "idx": _only(row.get("idx")),
    }


# tinker-cookbook


def _tinker(row: Row, _path: Path) -> Iterator[Row]:
    if str(row.get("split") or "train").startswith("train"):
        steps = objects(row.get("steps"))
        lengths = [number(step.get("ac_len")) for step in steps]
        known = bool(lengths) and all(length is not None and not is_missing(length) for length in lengths)
        step = row.get("iteration")
        yield {
            "prompt": f"{step}/{row.get('group_idx')}",
            "reward": row.get("total_reward"),
            "step": step,
            "tokens": sum(length for length in lengths if length is not None) if known else None,
        }


# SkyRL, AReaL, ART, rLLM, open-instruct


def _skyrl(row: Row, path: Path) -> Iterator[Row]:
    score = row.get("score")
    parts = as_list(score)
    if parts is not None:
        values = [number(part) for part in parts]
        score = None if None in values else sum(value for value in values if value is not None)
    yield {
        "prompt": row.get("input_prompt"),
        "reward": score,
        "step": step_of(path),
        "truncated": row.get("stop_reason"),
    }


def _areal(row: Row, path: Path) -> Iterator[Row]:
    prompt = row.get("prompt")
    total, before = number(row.get("seqlen")), number(row.get("prompt_len"))
    folder = path.parent.name
    yield {
        "prompt": row.get("task_id") if prompt is None or prompt == "" else prompt,
        "reward": row.get("reward"),
        "step": int(folder) if folder.isdigit() else row.get("head_version"),
        "tokens": None if total is None or before is None else total - before,
    }


def _art(row: Row, path: Path) -> Iterator[Row]:
    messages = as_list(row.get("messages")) or []
    asked = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") == "assistant":
            break
        asked.append(message.get("content"))
    step = step_of(path)
    metrics = row.get("metrics")
    if isinstance(metrics, str):
        try:
            metrics = json.loads(metrics)
        except (ValueError, RecursionError):
            metrics = None
    yield {
        "prompt": json.dumps(asked, ensure_ascii=False) if asked else f"{step}/{row.get('group_index')}",
        "reward": row.get("reward"),
        "step": step,
        "tokens": next((metrics[name] for name in ("completion_tokens", "tokens") if name in metrics), None)
        if isinstance(metrics, dict)
        else None,
    }


def _rllm(row: Row, path: Path) -> Iterator[Row]:
    trajectories = objects(row.get("trajectories"))
    rewards = [number(part.get("reward")) for part in trajectories]
    scored = [reward for reward in rewards if reward is not None and not is_missing(reward)]
    step = row.get("training_step")
    reason = str(row.get("termination_reason") or "")
    correct = row.get("is_correct")
    key = row.get("task_hash")
    yield {
        "prompt": row.get("task") if key is None else key,
        "reward": correct if not scored else scored[0] if len(scored) == 1 else sum(scored) / len(scored),
        "correct": correct,
        "step": step_of(path) if step is None else step,
        "truncated": reason,
        "error": reason if "error" in reason.lower() else None,
    }


def _open_instruct(row: Row, _path: Path) -> Iterator[Row]:
    tokens: Any = row.get("response_tokens")
    asked: Any = row.get("prompt_tokens")
    step = row.get("step")
    yield {
        "prompt": "tokens " + " ".join(map(str, asked)) if is_list(asked) else f"{step}/{row.get('prompt_idx')}",
        "reward": row.get("reward"),
        "step": step,
        "tokens": len(tokens) if is_list(tokens) else None,
        "truncated": row.get("finish_reason"),
    }


# inspect, lm-eval, slime

_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def _inspect(row: Row, _path: Path) -> Iterator[Row]:
    samples: Any = row.get("samples")
    for sample in samples if is_list(samples) else [row]:
        if not isinstance(sample, dict):
            continue
        scores = sample.get("scores") if isinstance(sample.get("scores"), dict) else {}
        value = follow(next(iter(scores.values())), "value") if scores else None
        if isinstance(value, dict):
            value = next(iter(value.values()), None)
        models = sample.get("model_usage")
        usage = [
            number(follow(part, "output_tokens")) for part in (models.values() if isinstance(models, dict) else ())
        ]
        yield {
            "prompt": sample.get("id"),
            "reward": _LETTERS.get(value, value) if isinstance(value, str) else value,
            "tokens": sum(part for part in usage if part is not None) if usage and None not in usage else None,
            "truncated": follow(sample, "output.stop_reason") or _stop(sample),
            "error": sample.get("error"),
        }


def _stop(sample: Row) -> Any:
    choices = follow(sample, "output.choices")
    return follow(choices[0], "stop_reason") if is_list(choices) and choices else None


_LM_METRICS = ("exact_match", "acc", "pass@1", "pass_at_1", "em", "acc_norm", "prompt_level_strict_acc")


def _lm_eval(row: Row, path: Path) -> Iterator[Row]:
    repeats = row.get("resps")
    if is_list(repeats) and repeats and is_list(repeats[0]) and len(repeats[0]) > 1:
        msg = (
            f"{named(path)} holds {len(repeats[0])} responses a prompt of lm-eval, but one score for all of them. "
            f"Score "
            'them one by one, and write for each prompt {"prompt_id": "a", "rewards": [0, 1]}'
        )
        raise InputError(msg)
    metric = next((name for name in _LM_METRICS if name in row), None)
    listed = as_list(row.get("metrics")) or []
    metric = metric or next((str(name) for name in listed if isinstance(name, str) and name in row), None)
    yield {"prompt": row.get("doc_id"), "reward": None if metric is None else row[metric], "filter": row.get("filter")}


def _slime(row: Row, _path: Path) -> Iterator[Row]:
    for sample in objects(row.get("samples")):
        reward = sample.get("reward")
        status = str(sample.get("status") or "").lower()
        if isinstance(reward, dict):
            reward = next(
                (reward[name] for name in ("score", "reward", "acc") if name in reward),
                next(iter(reward.values()), None),
            )
        prompt = sample.get("prompt")
        yield {
            "prompt": sample.get("group_index") if prompt in (None, "", []) else prompt,
            "reward": reward,
            "step": row.get("rollout_id"),
            "tokens": sample.get("response_length"),
            "truncated": status,
            "error": status if status in {"aborted", "failed"} else None,
        }


def _lists(row: Row) -> bool:
    return is_list(row.get("completion")) and is_list(row.get("prompt")) and not _messages(row["completion"])


def _messages(value: Any) -> bool:
    return is_list(value) and bool(value) and isinstance(value[0], dict) and "role" in value[0]


def _keys(*names: str) -> frozenset[str]:
    return frozenset(names)


FORMATS = (
    Format(
        "verl",
        (_keys("input", "output", "score", "step"), _keys("input", "output", "score", "gts")),
        roles=_verl,
        selection=Selection.trained,
    ),
    Format(
        "ms-swift",
        (_keys("prompt", "completion", "advantages"), _keys("prompt", "completion", "step")),
        unfold=_swift,
        selection=Selection.trained,
        fits=_lists,
    ),
    Format("TRL", (_keys("step", "prompt", "completion", "advantage"),), roles=_trl, selection=Selection.trained),
    Format("prime-rl", (_keys("traces", "task"),), unfold=_prime),
    Format(
        "verifiers",
        (_keys("example_id", "reward", "completion"), _keys("example_id", "reward", "stop_condition")),
        roles=_verifiers,
    ),
    Format(
        "NeMo-RL",
        (_keys("rewards", "input_lengths", "idx"), _keys("rewards", "token_ids", "sample_loss_mask")),
        unfold=_nemo,
        selection=Selection.trained,
    ),
    Format(
        "tinker-cookbook",
        (_keys("group_idx", "traj_idx", "total_reward"),),
        unfold=_tinker,
        note="no prompt is named, so prompts can't be matched across iterations",
    ),
    Format("SkyRL", (_keys("input_prompt", "output_response", "score"),), unfold=_skyrl),
    Format("AReaL", (_keys("task_id", "sample_idx", "seqlen", "reward"),), unfold=_areal),
    Format("ART", (_keys("group_index", "reward", "messages"),), unfold=_art),
    Format(
        "rLLM", (_keys("episode_id", "trajectories"), _keys("task_hash", "trajectories")), unfold=_rllm, record=True
    ),
    Format(
        "open-instruct",
        (
            _keys("prompt_idx", "response_tokens", "reward"),
            _keys("prompt_idx", "sample_idx", "reward", "finish_reason"),
        ),
        unfold=_open_instruct,
        selection=Selection.trained,
    ),
    Format("inspect", (_keys("samples", "eval"), _keys("epoch", "scores", "id")), unfold=_inspect, record=True),
    Format(
        "lm-eval",
        (_keys("doc_id", "filtered_resps"), _keys("doc_id", "resps")),
        unfold=_lm_eval,
        note="lm-eval keeps one score a prompt",
    ),
    Format("slime", (_keys("rollout_id", "samples"),), unfold=_slime, selection=Selection.trained, record=True),
)
"""In the order in which they are tried."""


def recognise(row: Row) -> Format | None:
    """Return the format of a row, None where no framework is known to write such ones."""
    for each in FORMATS:
        if any(keys <= row.keys() for keys in each.keys) and each.fits(row):
            return each
    return None
