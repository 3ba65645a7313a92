"""Every compiled function: arrays in, arrays out, no generator inside.

Integers are kept in uint64 with explicit masks, so that the same source gives the same
numbers compiled and, for coverage and debugging, with ``NUMBA_DISABLE_JIT=1``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from ada_bandit.streams import Stream

F = TypeVar("F", bound=Callable[..., Any])

UnsignedArray = npt.NDArray[np.uint64]
ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def kernel(function: F) -> F:
    """Compile with the options that every kernel shares; the machine code is cached on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """Compile into the caller: without it LLVM sees a call, and vectorises no loop around it."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))


U = np.uint64
_ONE = U(1)
_LOW = U(0xFFFFFFFF)
_32 = U(32)
# Multipliers and key increments of Philox4x32 (Salmon et al. 2011, table 2 and section 4.3).
_M0, _M1 = U(0xD2511F53), U(0xCD9E8D57)
_W0, _W1 = U(0x9E3779B9), U(0xBB67AE85)

UNASKED, OUTSTANDING, INCORRECT, CORRECT, UNSCORED, MARKED = 0, 1, 2, 3, 4, 5
"""Status of a response; `MARKED` is outstanding and seen once in the call of `tell` at hand."""

KEEP_STREAM = int(Stream.KEEP)
_TILE = 512


@inlined
def philox(c0: U, c1: U, c2: U, c3: U, k0: U, k1: U) -> tuple[U, U, U, U]:
    """Philox4x32-10 (Salmon et al. 2011): four 32-bit words from a 128-bit counter and a 64-bit key."""
    for _ in range(10):
        a = _M0 * c0
        b = _M1 * c2
        c0, c1, c2, c3 = (b >> _32) ^ c1 ^ k0, b & _LOW, (a >> _32) ^ c3 ^ k1, a & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@kernel
def words_at(seed: U, stream: U, prompt: UnsignedArray, draw: UnsignedArray, out: UnsignedArray) -> None:
    """Write the 32-bit word of every (prompt, draw), each ``[element]``."""
    for i in range(prompt.size):
        lane = draw[i] & U(3)
        x0, x1, x2, x3 = philox(draw[i] >> U(2), prompt[i] & _LOW, prompt[i] >> _32, stream, seed & _LOW, seed >> _32)
        if lane == U(0):
            out[i] = x0
        elif lane == U(1):
            out[i] = x1
        elif lane == U(2):
            out[i] = x2
        else:
            out[i] = x3


@kernel
def fill_uniforms(seed: U, stream: U, first: U, out: FloatArray) -> None:
    """Write the uniforms of prompts `first`, `first` + 1, …; out is ``[prompt, draw]``, its width a multiple of 4."""
    k0, k1 = seed & _LOW, seed >> _32
    for i in range(out.shape[0]):
        prompt = first + U(i)
        low, high = prompt & _LOW, prompt >> _32
        for block in range(out.shape[1] // 4):
            x0, x1, x2, x3 = philox(U(block), low, high, stream, k0, k1)
            out[i, 4 * block] = (x0 + 0.5) * 2.0**-32
            out[i, 4 * block + 1] = (x1 + 0.5) * 2.0**-32
            out[i, 4 * block + 2] = (x2 + 0.5) * 2.0**-32
            out[i, 4 * block + 3] = (x3 + 0.5) * 2.0**-32


@kernel
def _draw_eight(
    block: U, stream: U, k0: U, k1: U, prompt: UnsignedArray, threshold: UnsignedArray, count: int, out: ByteArray
) -> None:
    """Write eight responses of each of `count` prompts as bits, the first in the lowest; bit 1 is correct.

    A loop of its own, without branches, so that it runs in vector registers.
    """
    for k in range(count):
        low, high, t = prompt[k] & _LOW, prompt[k] >> _32, threshold[k]
        x0, x1, x2, x3 = philox(block, low, high, stream, k0, k1)
        y0, y1, y2, y3 = philox(block + _ONE, low, high, stream, k0, k1)
        out[k] = np.uint8(
            U(x0 < t)
            | (U(x1 < t) << U(1))
            | (U(x2 < t) << U(2))
            | (U(x3 < t) << U(3))
            | (U(y0 < t) << U(4))
            | (U(y1 < t) << U(5))
            | (U(y2 < t) << U(6))
            | (U(y3 < t) << U(7))
        )


@kernel
def sample(
    seed: U,
    stream: U,
    first: U,
    pass_rates: FloatArray,
    draws: IntArray,
    exit_cell: IntArray,
    rounds: IntArray,
) -> None:
    """Sample every prompt until it exits.

    Prompts go in tiles that advance eight responses at a time, in lockstep: first all bits of
    the tile, then the walk over the draws table, then the prompts that left are squeezed out.

    Parameters
    ----------
    seed, stream, first
        Key, stream and number of the first prompt for the uniforms.
    pass_rates
        ``[prompt]`` a response is correct when its uniform is below.
    draws
        ``[pos, neg]`` draws table.
    exit_cell, rounds
        ``[prompt]`` written: the exit cell as ``pos * (K + 1) + neg``, and the number of rounds.
    """
    k0, k1 = seed & _LOW, seed >> _32
    # A correct response moves a flat cell by one row, an incorrect one by one column.
    flat, row = draws.ravel(), draws.shape[1]
    ones = np.zeros(256, np.int64)
    for value in range(1, 256):
        ones[value] = (value & 1) + ones[value >> 1]
    index = np.empty(_TILE, np.int64)
    prompt = np.empty(_TILE, np.uint64)
    below = np.empty(_TILE, np.uint64)
    at = np.empty(_TILE, np.int64)
    left = np.empty(_TILE, np.int64)
    taken = np.empty(_TILE, np.int64)
    bits = np.empty(_TILE, np.uint8)
    for start in range(0, pass_rates.size, _TILE):
        live = min(_TILE, pass_rates.size - start)
        for k in range(live):
            index[k] = start + k
            prompt[k] = first + U(start + k)
            # (x + 1/2) / 2^32 < p for a word x, as a comparison of integers.
            below[k] = U(np.ceil(pass_rates[start + k] * 2.0**32 - 0.5))
            at[k], left[k], taken[k] = 0, flat[0], 1
        block = U(0)
        while live > 0:
            _draw_eight(block, stream, k0, k1, prompt, below, live, bits)
            block += U(2)
            still = 0
            for k in range(live):
                word, cell, wanted, count = np.int64(bits[k]), at[k], left[k], taken[k]
                if wanted >= 8:
                    cell += 8 + ones[word] * (row - 1)
                    wanted -= 8
                    if wanted == 0:
                        wanted = flat[cell]
                        count += wanted > 0
                else:
                    for _ in range(8):
                        cell += 1 + (word & 1) * (row - 1)
                        word >>= 1
                        wanted -= 1
                        if wanted == 0:
                            wanted = flat[cell]
                            if wanted == 0:
                                break
                            count += 1
                i = index[k]
                exit_cell[i], rounds[i] = cell, count
                index[still], prompt[still], below[still] = i, prompt[k], below[k]
                at[still], left[still], taken[still] = cell, wanted, count
                still += wanted > 0
            live = still


@kernel
def find_wrong_id(ids: IntArray, status: ByteArray) -> int:
    """Return the position of the first id that can't be told, or -1 and leave all of `ids` marked.

    `status` is flat, ``[prompt * K + draw]``; it is left as it was when an id is wrong.
    """
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= status.size or status[ids[i]] != OUTSTANDING:
            for j in range(i):
                status[ids[j]] = OUTSTANDING
            return i
        status[ids[i]] = MARKED
    return -1


@kernel
def take_replies(
    ids: IntArray,
    outcome: ByteArray,
    rewards: FloatArray,
    draws: IntArray,
    kind: IntArray,
    status: ByteArray,
    stored: FloatArray,
    waiting: IntArray,
    spent: IntArray,
    pos: IntArray,
    neg: IntArray,
    lost: IntArray,
    replaced: IntArray,
    wanted: IntArray,
    ready: IntArray,
) -> tuple[int, int]:
    """Enter replies whose ids `find_wrong_id` passed; return how many prompts became ready, and how many exited.

    Parameters
    ----------
    ids, outcome, rewards
        ``[reply]`` id, new status and reward.
    draws, kind
        ``[kind, pos, neg]`` draws tables, and ``[prompt]`` which one is the prompt's.
    status, stored
        Flat, ``[prompt * width + draw]``, where a width is K and the most replacements; updated.
    waiting, spent, pos, neg, lost, replaced, wanted
        ``[prompt]`` responses outstanding, asked for, correct, incorrect, without a score, asked for as a
        replacement of these, and to ask for next; updated.
    ready
        ``[reply]`` written: the prompts that became ready.
    """
    most = draws.shape[1] - 1
    width = status.size // max(waiting.size, 1)
    found, exited = 0, 0
    for i in range(ids.size):
        prompt = ids[i] // width
        status[ids[i]] = outcome[i]
        stored[ids[i]] = rewards[i]
        pos[prompt] += outcome[i] == CORRECT
        neg[prompt] += outcome[i] == INCORRECT
        lost[prompt] += outcome[i] == UNSCORED
        waiting[prompt] -= 1
        if waiting[prompt] == 0:
            again = min(lost[prompt], width - most) - replaced[prompt]
            if again > 0:
                replaced[prompt] += again
                wanted[prompt] = again
            else:
                left = most + replaced[prompt] - spent[prompt]
                wanted[prompt] = min(draws[kind[prompt], pos[prompt], neg[prompt]], left)
            if wanted[prompt] > 0:
                ready[found] = prompt
                found += 1
            else:
                exited += 1
    return found, exited


@kernel
def _choose(status: ByteArray, codes: tuple[int, int], count: int, word: UnsignedArray, chosen: ByteArray) -> None:
    """Mark the `count` responses of lowest word among those with a status in `codes`; ties go to the earlier one."""
    members = 0
    for j in range(status.size):
        members += status[j] == codes[0] or status[j] == codes[1]
    for _ in range(count if count < members else 0):
        best = -1
        for j in range(status.size):
            free = (status[j] == codes[0] or status[j] == codes[1]) and chosen[j] == 0
            if free and (best < 0 or word[j] < word[best]):
                best = j
        chosen[best] = 1
    if count >= members:
        for j in range(status.size):
            if status[j] == codes[0] or status[j] == codes[1]:
                chosen[j] = 1


@kernel
def select(
    seed: U,
    first: U,
    status: ByteArray,
    spent: IntArray,
    pos: IntArray,
    neg: IntArray,
    keep: IntArray,
    keep_pos: IntArray,
    kind: IntArray,
    random_split: bool,
    kept: IntArray,
) -> None:
    """Choose the update groups, uniformly within what the group rule allows.

    Every response has a word that depends on (seed, prompt, draw) alone; the lowest ones are
    kept. So the choice depends neither on the order of replies nor on other prompts.

    Parameters
    ----------
    seed, first
        Key, and number of the first prompt.
    status
        ``[prompt, draw]``.
    spent, pos, neg
        ``[prompt]`` responses asked for, correct, incorrect.
    keep, keep_pos, kind
        ``[kind, pos, neg]`` rows of a group, and positives among them where the split is fixed;
        ``[prompt]`` which table is the prompt's.
    random_split
        Whether the group is a subset of the whole pool.
    kept
        ``[prompt, slot]`` written: draws in ascending order, then -1.
    """
    word = np.empty(status.shape[1] + 3, np.uint64)
    chosen = np.empty(status.shape[1], np.uint8)
    for i in range(status.shape[0]):
        size = spent[i]
        chosen[:size] = 0
        cell = kind[i], pos[i], neg[i]
        if keep[cell] < pos[i] + neg[i]:
            prompt = first + U(i)
            for block in range((size + 3) // 4):
                x0, x1, x2, x3 = philox(
                    U(block), prompt & _LOW, prompt >> _32, U(KEEP_STREAM), seed & _LOW, seed >> _32
                )
                word[4 * block], word[4 * block + 1], word[4 * block + 2], word[4 * block + 3] = x0, x1, x2, x3
        row = status[i, :size]
        if random_split:
            _choose(row, (CORRECT, INCORRECT), keep[cell], word, chosen)
        else:
            _choose(row, (CORRECT, CORRECT), keep_pos[cell], word, chosen)
            _choose(row, (INCORRECT, INCORRECT), keep[cell] - keep_pos[cell], word, chosen)
        slot = 0
        for draw in range(size):
            if chosen[draw] == 1:
                kept[i, slot] = draw
                slot += 1
        kept[i, slot:] = -1


@kernel
def fill_groups(
    kept: IntArray,
    status: ByteArray,
    stored: FloatArray,
    of_pos: FloatArray,
    of_neg: FloatArray,
    ids: IntArray,
    mask: BoolArray,
    rewards: FloatArray,
    correct: BoolArray,
    advantages: FloatArray,
) -> None:
    """Write the update groups of chosen draws.

    Parameters
    ----------
    kept
        ``[prompt, slot]`` draws in ascending order, then -1.
    status, stored
        ``[prompt, draw]`` status and reward of every response.
    of_pos, of_neg
        ``[prompt]`` advantages of a kept positive and negative.
    ids, mask, rewards, correct, advantages
        ``[prompt, slot]`` written: the kept responses' ids, and what is known of them; -1, False and 0 elsewhere.
    """
    most = status.shape[1]
    for i in range(kept.shape[0]):
        for slot in range(kept.shape[1]):
            draw = kept[i, slot]
            there = draw >= 0
            mask[i, slot] = there
            right = there and status[i, draw] == CORRECT
            correct[i, slot] = right
            ids[i, slot] = i * most + draw if there else -1
            rewards[i, slot] = stored[i, draw] if there else 0.0
            advantages[i, slot] = (of_pos[i] if right else of_neg[i]) if there else 0.0
