"""Files to begin with: a rule, a policy, and small logs of every kind that the commands read.

Their responses are made up: prompt i is answered right with a chance of its own, by uniforms that are
the same each time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ada_bandit import Allocator, Policy, uniform
from ada_bandit._types import BoolArray, IntArray
from ada_bandit.programs.records import to_csv, to_jsonl
from ada_bandit.uniforms import Stream, fold_seed

__all__ = ["RULES", "sample_files"]

_PROMPTS, _RESPONSES, _STEPS = 40, 8, 2
_SEED = 20
_POLICY = "reinforce-ada-balance"

RULES = '''\
"""Exit rules of my own: each takes the numbers of correct and incorrect responses, and says who has enough."""

from ada_bandit import exit_rule


@exit_rule
def mixed(pos, neg, least=1):
    return (pos >= least) & (neg >= least)


@exit_rule
def first_right(pos, neg):
    return pos >= 1
'''


def sample_files() -> dict[str, bytes]:
    """Return the files' contents by name; a name with slashes lies in a folder."""
    texts = {
        "my_rules.py": RULES,
        "mine.toml": Policy.preset("reinforce-ada-pos", rounds=3).to_toml(),
        "shared.toml": Policy.preset("vip").to_toml(),
        "counts.csv": to_csv(_counts()),
        "results.csv": to_csv({"task": row["prompt_id"], "solved": row["correct"]} for row in _counts(16)),
        "rollouts.jsonl": to_jsonl(_rollouts()),
        "ada_pools.jsonl": to_jsonl(_pools()),
        "kept_rows.jsonl": to_jsonl(_kept()),
    }
    for step in range(1, _STEPS + 1):
        texts[f"dump/{step}.jsonl"] = to_jsonl(_dumped(step))
    return {name: text.encode() for name, text in texts.items()} | {
        "runs/grpo/completions/completions_00001.parquet": _completions()
    }


def _right(prompts: IntArray, draws: IntArray, step: int = 0) -> BoolArray:
    """Tell which responses are correct; the chances are those of Beta(1/2, 1)."""
    chances = uniform(_SEED, Stream.PASS_RATES, prompts, 0) ** 2
    return np.asarray(uniform(fold_seed(_SEED, step), Stream.REWARDS, prompts, draws) < chances)


def _rewards(step: int = 0, responses: int = _RESPONSES) -> Iterator[tuple[int, list[int]]]:
    for prompt in range(_PROMPTS):
        right = _right(np.full(responses, prompt), np.arange(responses), step)
        yield prompt, right.astype(int).tolist()


def _tokens(prompt: int, draw: int) -> int:
    return 60 + (37 * prompt + 13 * draw) % 100


def _key(prompt: int) -> str:
    return f"sum-{prompt}"


def _counts(responses: int = _RESPONSES) -> list[dict[str, Any]]:
    rows = _rewards(responses=responses)
    return [{"prompt_id": _key(prompt), "correct": sum(row), "total": len(row)} for prompt, row in rows]


def _rollouts() -> Iterator[Mapping[str, Any]]:
    for prompt, row in _rewards():
        tokens = [_tokens(prompt, draw) for draw in range(len(row))]
        yield {"prompt_id": _key(prompt), "rewards": row, "tokens": tokens}


def _dumped(step: int) -> Iterator[Mapping[str, Any]]:
    """One row a response, as verl dumps them."""
    for prompt, row in _rewards(step):
        for reward in row:
            text = f"What is {prompt} + {prompt}?"
            yield {"input": text, "output": "a response", "gts": str(2 * prompt), "score": float(reward), "step": step}


def _completions() -> bytes:
    """One row a response, as TRL logs them."""
    import polars as pl

    rows = [
        {
            "step": 1,
            "prompt": f"What is {prompt} + {prompt}?",
            "completion": "a response",
            "correct_reward": float(reward),
            "advantage": float(reward - np.mean(row)),
        }
        for prompt, row in _rewards()
        for reward in row
    ]
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file)
    return file.getvalue()


def _pools() -> Iterator[dict[str, Any]]:
    """Whole pools of two steps under a policy, as the adapters log them."""
    policy = Policy.preset(_POLICY)
    for step in range(_STEPS):
        allocator = Allocator(policy, _PROMPTS, seed=step)
        pools: list[dict[int, int]] = [{} for _ in range(_PROMPTS)]
        while request := allocator.ask():
            right = _right(request.prompts, request.draws, step)
            allocator.tell(request.ids, right)
            for prompt, id_, correct in zip(request.prompts.tolist(), request.ids.tolist(), right, strict=True):
                pools[prompt][id_] = int(correct)
        groups = allocator.groups()
        kept = set(groups.ids[groups.mask].tolist())
        for prompt, pool in enumerate(pools):
            yield {
                "step": step,
                "prompt_id": _key(prompt),
                "policy": policy.label,
                "rewards": list(map(float, pool.values())),
                "correct": list(map(bool, pool.values())),
                "tokens": [_tokens(prompt, draw) for draw in range(len(pool))],
                "kept": [id_ in kept for id_ in pool],
            }


def _kept() -> Iterator[Mapping[str, Any]]:
    """The rows of these pools that were trained on."""
    for pool in _pools():
        for reward, kept in zip(pool["rewards"], pool["kept"], strict=True):
            if kept:
                yield {"step": pool["step"], "prompt_id": pool["prompt_id"], "reward": reward}
