"""The compiled parts of the wall-clock model: the mean flow through the slots, and a queue event by event."""

from __future__ import annotations

import heapq

import numpy as np

from ada_bandit._kernels import BoolArray, FloatArray, IntArray, kernel

_LEAST = 1e-13
"""Share of the prompts below which nothing is passed on."""


@kernel
def _support(rows: FloatArray) -> IntArray:
    """Return where each row's entries above 0 begin and end, ``[row, 2]``; the same twice where it has none."""
    found = np.zeros((rows.shape[0], 2), dtype=np.int64)
    for i in range(rows.shape[0]):
        low, high = 0, rows.shape[1]
        while high > 0 and rows[i, high - 1] == 0:
            high -= 1
        while low < high and rows[i, low] == 0:
            low += 1
        found[i, 0], found[i, 1] = low, high
    return found


@kernel
def flow(
    slots: float,
    size: FloatArray,
    positives: FloatArray,
    root: FloatArray,
    first: IntArray,
    target: IntArray,
    pair: IntArray,
    chance: FloatArray,
    lasting: FloatArray,
    leaving: FloatArray,
    one_pos: FloatArray,
    one_neg: FloatArray,
    enough: float,
    arrived: FloatArray,
    finished: FloatArray,
) -> int:
    """Pass prompts through a first-in-first-out queue with slots, in the mean, step by step of a time grid.

    Parameters
    ----------
    slots
        Slots a prompt.
    size, positives, root
        ``[node]`` responses of a round, positives among them, and where prompts begin.
    first, target, pair, chance
        ``[node + 1]`` and ``[edge]`` edges that lead on, node after node.
    lasting, leaving
        ``[pair, lag]`` how long a round lasts, by what it holds; ``[node, lag]`` likewise for rounds
        after which a prompt exits, with their chance.
    one_pos, one_neg
        ``[lag]`` how long a response lasts, by class; never 0 steps.
    enough
        Share of unfinished prompts at which to stop.
    arrived
        ``[node, time]`` zeros; as many times as `finished` has, and the lags beyond.
    finished
        ``[time]`` gets the share of finished prompts at the grid's times.

    Returns
    -------
    int
        Times written; 0 if there were too few.
    """
    nodes, steps, lags = size.size, finished.size, one_pos.size
    wide = lasting.shape[1]
    lasts, leaves = _support(lasting), _support(leaving)
    freed, done = np.zeros(steps + lags), np.zeros(steps + wide)
    waiting = np.zeros(steps)
    start = np.zeros(nodes)
    head, busy, over = 0, 0.0, 1.0
    for n in range(nodes):
        arrived[n, 0] = root[n]
        over -= root[n]
    for t in range(steps):
        busy -= freed[t]
        over += done[t]
        finished[t] = over
        if 1 - over < enough:
            return t + 1
        for n in range(nodes):
            waiting[t] += size[n] * arrived[n, t]
        room = slots - busy
        start[:] = 0
        while head <= t and room > 0:
            if waiting[head] <= room:
                for n in range(nodes):
                    start[n] += arrived[n, head]
                room -= waiting[head]
                head += 1
            else:
                part = room / waiting[head]
                for n in range(nodes):
                    start[n] += part * arrived[n, head]
                    arrived[n, head] *= 1 - part
                waiting[head] -= room
                room = 0.0
        pos = neg = 0.0
        for n in range(nodes):
            mass = start[n]
            if mass < _LEAST:
                over += mass
                continue
            pos += mass * positives[n]
            neg += mass * (size[n] - positives[n])
            for k in range(leaves[n, 0], leaves[n, 1]):
                done[t + k] += mass * leaving[n, k]
            for e in range(first[n], first[n + 1]):
                moved, to, what = mass * chance[e], target[e], pair[e]
                for k in range(lasts[what, 0], lasts[what, 1]):
                    arrived[to, t + k] += moved * lasting[what, k]
        busy += pos + neg
        for k in range(lags):
            freed[t + k] += pos * one_pos[k] + neg * one_neg[k]
    return 0


@kernel
def play(
    slots: int,
    barriers: bool,
    verify: float,
    draws: IntArray,
    part: IntArray,
    correct: BoolArray,
    length: FloatArray,
    cells: IntArray,
    ends: FloatArray,
) -> tuple[float, int]:
    """Sample one step event by event: every response has a slot of its own while it lasts.

    Parameters
    ----------
    slots
        Slots of the server.
    barriers
        Whether a round waits for the whole of the one before.
    verify
        Tokens from the end of a response to its reward.
    draws
        ``[part, pos, neg]`` draws tables.
    part
        ``[prompt]`` which table is the prompt's.
    correct, length
        ``[prompt, draw]`` what each response would be.
    cells
        ``[prompt, class]`` zeros; gets the exit cells.
    ends
        ``[round]`` gets the end of each barrier round.

    Returns
    -------
    work, rounds
        Tokens sampled, and entries of `ends`: barrier rounds, or 1.
    """
    prompts, most = correct.shape
    line = np.empty((prompts * most, 2), dtype=np.int64)
    drawn, running_of, judged = np.zeros((3, prompts), dtype=np.int64)
    ready = np.ones(prompts, dtype=np.bool_)
    # An event: time, order of coming up, prompt, and draw or -1 for rewards that are in.
    events = [(0.0, 0, 0, 0)]
    events.pop()
    head = tail = running = order = rounds = 0
    now = work = 0.0
    while True:
        # What is ready asks: at once under streaming, when nothing else is left under barriers.
        if not barriers or (not events and head == tail):
            asked = False
            for i in range(prompts):
                if not ready[i]:
                    continue
                ready[i] = False
                for d in range(judged[i], drawn[i]):
                    cells[i, 0 if correct[i, d] else 1] += 1
                judged[i] = drawn[i]
                wanted = draws[part[i], cells[i, 0], cells[i, 1]]
                running_of[i] = wanted
                for _ in range(wanted):
                    line[tail, 0], line[tail, 1] = i, drawn[i]
                    drawn[i] += 1
                    tail += 1
                    asked = True
            if barriers and rounds:
                ends[rounds - 1] = now
            if asked and barriers:
                rounds += 1
        while running < slots and head < tail:
            i, d = line[head]
            head += 1
            heapq.heappush(events, (now + length[i, d], order, i, d))
            order += 1
            running += 1
        if not events:
            break
        now, _, i, d = heapq.heappop(events)
        if d >= 0:
            running -= 1
            work += length[i, d]
            running_of[i] -= 1
            if running_of[i]:
                continue
            if verify > 0:
                heapq.heappush(events, (now + verify, order, i, -1))
                order += 1
                continue
        ready[i] = True
    if not barriers:
        ends[0], rounds = now, 1
    return work, rounds
