"""Compiled parts of the learning simulator: arrays in, arrays out, one thread, no generator inside.

A policy over A answers has logits ``base[prompt] + features[prompt] @ weights`` on its first C
answers, C = ``weights.shape[1]``, and ``base`` alone on the others. C = A is the softmax policy;
C = 1 of A = 2 answers is the logistic one. The first `right` answers are the correct ones.
"""

from __future__ import annotations

import numpy as np

from ada_bandit._kernels import FloatArray, IntArray, U, UnsignedArray, inlined, kernel, philox
from ada_bandit.streams import Stream

_LOW = U(0xFFFFFFFF)
_32 = U(32)
_REWARDS, _KEEP = U(Stream.REWARDS), U(Stream.KEEP)


@inlined
def _law(features: FloatArray, base: FloatArray, weights: FloatArray, out: FloatArray) -> None:
    """Write the law of the answers to one prompt, ``[answer]``."""
    columns = weights.shape[1]
    for a in range(base.size):
        out[a] = base[a]
    for f in range(features.size):
        for a in range(columns):
            out[a] += features[f] * weights[f, a]
    top = out[0]
    for a in range(1, base.size):
        top = max(top, out[a])
    total = 0.0
    for a in range(base.size):
        out[a] = np.exp(out[a] - top)
        total += out[a]
    for a in range(base.size):
        out[a] /= total


@kernel
def answer_laws(
    features: FloatArray, base: FloatArray, weights: FloatArray, members: IntArray, out: FloatArray
) -> None:
    """Write the law of the answers of every member, ``[member, answer]``."""
    for i in range(members.size):
        _law(features[members[i]], base[members[i]], weights, out[i])


@inlined
def _words(seed: U, stream: U, prompt: U, size: int, first: int, out: UnsignedArray) -> None:
    """Write the words of the draws `first` .. `size` - 1 of a prompt, in blocks of 4; `first` is a multiple of 4."""
    for block in range(first // 4, (size + 3) // 4):
        x0, x1, x2, x3 = philox(U(block), prompt & _LOW, prompt >> _32, stream, seed & _LOW, seed >> _32)
        out[4 * block], out[4 * block + 1], out[4 * block + 2], out[4 * block + 3] = x0, x1, x2, x3


@kernel
def _mark_lowest(member: IntArray, size: int, count: int, word: UnsignedArray, chosen: IntArray) -> None:
    """Mark the `count` members of lowest word among the first `size` draws; ties go to the earlier one."""
    for _ in range(count):
        best = -1
        for j in range(size):
            if member[j] == 1 and chosen[j] == 0 and (best < 0 or word[j] < word[best]):
                best = j
        if best < 0:
            return
        chosen[best] = 1


@kernel
def sample_groups(
    seed: U,
    laws: FloatArray,
    right: int,
    draws: IntArray,
    keep: IntArray,
    keep_pos: IntArray,
    adv_pos: FloatArray,
    adv_neg: FloatArray,
    random_split: bool,
    leave_out: bool,
    pull: FloatArray,
    cells: IntArray,
    rounds: IntArray,
    kept: IntArray,
    by_round: IntArray,
) -> None:
    """Sample every prompt until it exits, and form its group.

    Responses, exit cells and kept responses are those of the allocator and of `sim.montecarlo`
    for the same seed: a response is correct when its uniform is below the pass rate, and the
    same uniform chooses the answer. Kept responses have the lowest words of their own stream.

    Parameters
    ----------
    seed
        Key of the step.
    laws
        ``[prompt, answer]``.
    right
        Number of correct answers.
    draws, keep, keep_pos
        ``[pos, neg]`` draws table, rows of a group, and positives among them where the split is fixed.
    adv_pos, adv_neg
        ``[pos, neg, kept positives]`` advantages; the last axis has length 1 where the split is fixed.
    random_split
        Whether the group is a random subset of the whole pool.
    leave_out
        Whether nothing is kept of a group without an advantage.
    pull
        ``[prompt, answer]`` written: sum of the advantages of the kept responses with that answer.
    cells, rounds
        ``[prompt]`` written: exit cell as ``pos * (K + 1) + neg``, and rounds.
    kept
        ``[prompt, 2]`` written: kept positives and negatives.
    by_round
        ``[round, 2]`` written: positives and negatives of all prompts in that round.
    """
    max_samples = draws.shape[0] - 1
    word, lot = np.empty(max_samples + 3, np.uint64), np.empty(max_samples + 3, np.uint64)
    hit, miss, chosen = (
        np.empty(max_samples, np.int64),
        np.empty(max_samples, np.int64),
        np.empty(max_samples, np.int64),
    )
    answers = laws.shape[1]
    by_round[:] = 0
    for i in range(laws.shape[0]):
        rate = 0.0
        for a in range(right):
            rate += laws[i, a]
        # (x + 1/2) / 2^32 < p for a word x, as a comparison of integers.
        below = U(np.ceil(min(rate, 1.0) * 2.0**32 - 0.5))
        prompt = U(i)
        pos, total, taken, known = 0, 0, 0, 0
        wanted = draws[0, 0]
        while wanted > 0:
            if total + wanted > known:
                _words(seed, _REWARDS, prompt, total + wanted, known, word)
                known = 4 * ((total + wanted + 3) // 4)
            hits = 0
            for j in range(total, total + wanted):
                hit[j] = word[j] < below
                miss[j] = 1 - hit[j]
                hits += hit[j]
            by_round[taken, 0] += hits
            by_round[taken, 1] += wanted - hits
            pos += hits
            total += wanted
            taken += 1
            wanted = draws[pos, total - pos]
        neg = total - pos
        rows, kept_pos = keep[pos, neg], keep_pos[pos, neg]
        if rows < total:
            _words(seed, _KEEP, prompt, total, 0, lot)
            chosen[:total] = 0
            if random_split:
                for j in range(total):
                    miss[j] = 1
                _mark_lowest(miss, total, rows, lot, chosen)
                kept_pos = 0
                for j in range(total):
                    kept_pos += chosen[j] & hit[j]
            else:
                _mark_lowest(hit, total, kept_pos, lot, chosen)
                _mark_lowest(miss, total, rows - kept_pos, lot, chosen)
        else:
            chosen[:total] = 1
            kept_pos = pos
        split = kept_pos if random_split else 0
        of_pos, of_neg = adv_pos[pos, neg, split], adv_neg[pos, neg, split]
        pull[i] = 0.0
        for j in range(total):
            if chosen[j] == 1:
                u = (word[j] + 0.5) * 2.0**-32
                # The correct answers come first, so that the class is that of the comparison above.
                a, last = (0, right - 1) if hit[j] == 1 else (right, answers - 1)
                above = laws[i, a] if hit[j] == 1 else rate + laws[i, a]
                while a < last and u >= above:
                    a += 1
                    above += laws[i, a]
                pull[i, a] += of_pos if hit[j] == 1 else of_neg
        cells[i] = pos * (max_samples + 1) + neg
        rounds[i] = taken
        silent = leave_out and of_pos == 0 and of_neg == 0
        kept[i, 0], kept[i, 1] = (0, 0) if silent else (kept_pos, rows - kept_pos)


@kernel
def add_updates(
    features: FloatArray,
    base: FloatArray,
    weights: FloatArray,
    members: IntArray,
    before: FloatArray,
    pull: FloatArray,
    clip: bool,
    low: float,
    high: float,
    scale: float,
    out: FloatArray,
) -> tuple[int, int]:
    """Write the policy gradient of a minibatch; return how many answers it holds, and how many of them are clipped.

    Parameters
    ----------
    features, base, weights, members
        As in `answer_laws`.
    before
        ``[member, answer]`` laws that the responses were drawn from.
    pull
        ``[member, answer]`` sums of advantages.
    clip, low, high
        Whether responses are weighed by the ratio of probabilities now and before, and the ratio
        is clipped to [1 - low, 1 + high] as PPO does.
    scale
        Factor of the sum over members and responses.
    out
        ``[feature, column]`` written.

    Notes
    -----
    Where every pull is 0 the answer is 0 exactly, and no answer is counted.
    """
    answers, columns = base.shape[1], weights.shape[1]
    law, weight = np.empty(answers), np.empty(answers)
    out[:] = 0.0
    held, clipped = 0, 0
    for i in range(members.size):
        some = False
        for a in range(answers):
            some |= pull[i, a] != 0.0
        if not some:
            continue
        row = features[members[i]]
        _law(row, base[members[i]], weights, law)
        total = 0.0
        for a in range(answers):
            weight[a] = pull[i, a]
            if pull[i, a] != 0.0:
                held += 1
                if clip:
                    ratio = law[a] / before[i, a]
                    # The gradient of min(r A, clip(r) A) is 0 once r has gone as far as A may push it.
                    beyond = ratio > 1.0 + high if pull[i, a] > 0 else ratio < 1.0 - low
                    clipped += beyond
                    weight[a] = 0.0 if beyond else ratio * pull[i, a]
            total += weight[a]
        for c in range(columns):
            weight[c] = scale * (weight[c] - total * law[c])
        for f in range(row.size):
            for c in range(columns):
                out[f, c] += row[f] * weight[c]
    return held, clipped


@kernel
def evaluate(
    features: FloatArray,
    base: FloatArray,
    weights: FloatArray,
    right: int,
    rates: FloatArray,
    entropy: FloatArray,
    diversity: FloatArray,
) -> None:
    """Write pass rate, entropy and effective number of correct answers of every prompt, ``[prompt]`` each."""
    law = np.empty(base.shape[1])
    for i in range(base.shape[0]):
        _law(features[i], base[i], weights, law)
        rate, spread, inner = 0.0, 0.0, 0.0
        for a in range(law.size):
            part = -law[a] * np.log(law[a]) if law[a] > 0.0 else 0.0
            spread += part
            if a < right:
                rate += law[a]
                inner += part
        rates[i] = min(rate, 1.0)
        entropy[i] = spread
        # Entropy of the law among correct answers: inner / p + log p.
        diversity[i] = np.exp(inner / rate + np.log(rate)) if rate > 0.0 else 1.0
