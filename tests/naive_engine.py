"""Slow, obvious twins of the kernels: plain Python integers, one response after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ada_bandit import Policy

MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 as written in Salmon et al. (2011), section 4.3."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & MASK, (first >> 32) ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def word(seed: int, stream: int, prompt: int, draw: int) -> int:
    block = philox((draw // 4, prompt & MASK, prompt >> 32, stream), (seed & MASK, seed >> 32))
    return block[draw % 4]


def uniform(seed: int, stream: int, prompt: int, draw: int) -> float:
    return (word(seed, stream, prompt, draw) + 0.5) / 2**32


@dataclass
class Pool:
    """One prompt after its exit."""

    pos: int = 0
    neg: int = 0
    rounds: int = 0
    correct: list[bool] = field(default_factory=list)


def run_prompt(policy: Policy, pass_rate: float, seed: int, prompt: int) -> Pool:
    """Draw round after round, straight from the draws table, one response at a time."""
    pool = Pool()
    while wanted := int(policy.tables.draws[pool.pos, pool.neg]):
        pool.rounds += 1
        for _ in range(wanted):
            correct = uniform(seed, 0, prompt, len(pool.correct)) < pass_rate
            pool.correct.append(correct)
            pool.pos += correct
            pool.neg += not correct
    return pool


def kept_draws(policy: Policy, pool: Pool, seed: int, prompt: int) -> list[int]:
    """Keep the responses of lowest word (stream 1): of each class, or of the whole pool for a random split."""
    order = sorted(range(len(pool.correct)), key=lambda draw: (word(seed, 1, prompt, draw), draw))
    keep_pos, keep_neg = policy.group.split(pool.pos, pool.neg, policy.n)  # type: ignore[arg-type]
    if policy.group.random_split:
        return sorted(order[: keep_pos + keep_neg])
    positives = [draw for draw in order if pool.correct[draw]]
    negatives = [draw for draw in order if not pool.correct[draw]]
    return sorted(positives[:keep_pos] + negatives[:keep_neg])
