"""Pools that a policy stopped, simulated without the library's allocator: prompts drawn until the draws table says 0."""

from __future__ import annotations

import numpy as np

from ada_bandit import Balance, Policy, Positive, Quota, Rounds
from ada_bandit._types import FloatArray, IntArray
from sim.stopped import Pools

A, B = 0.5, 2.0
"""Shapes of the law under which pools are drawn."""

RULES = {
    "pos": Policy.preset("reinforce-ada-pos"),
    "balance": Policy.preset("reinforce-ada-balance"),
    "quota": Policy(Quota(2, 3), Rounds(1, 24), 4, name="quota"),
    "batches until a success": Policy(Positive(1), Rounds(4, 6), 4, name="batches"),
    "until both classes": Policy(Balance(2), Rounds(4, 4), 4, name="both"),
}


def simulate(policy: Policy, rates: FloatArray, random: np.random.Generator, *, order: bool = True) -> Pools:
    """Return the pools of prompts with these pass rates."""
    most = policy.budget.max_samples
    cells = np.indices((most + 1, most + 1))
    draws = policy.budget.draws(policy.rule.holds(*cells))
    right = random.random((rates.size, most)) < rates[:, None]
    before = np.concatenate([np.zeros((rates.size, 1), dtype=np.int64), np.cumsum(right, axis=1)], axis=1)
    total: IntArray = np.zeros(rates.size, dtype=np.int64)
    row = np.arange(rates.size)
    while True:
        pos = before[row, total]
        wanted = draws[pos, total - pos]
        if not wanted.any():
            break
        total = total + wanted
    kept = np.arange(most) < total[:, None]
    return Pools(pos, total - pos, row, right=right[kept] if order else None)


def prompts(number: int, seed: int) -> tuple[FloatArray, np.random.Generator]:
    """Return pass rates of the law and what draws the rest."""
    random = np.random.Generator(np.random.Philox(seed))
    return random.beta(A, B, number), random
