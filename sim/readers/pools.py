"""From the rows of all files to pools, and what has to hold of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError
from sim.readers.collect import Collector, joined
from sim.readers.columns import Kind, two_steps
from sim.readers.formats import Selection
from sim.readers.log import RolloutLog
from sim.readers.options import ReadOptions
from sim.readers.plan import Plan, meets, open_file
from sim.readers.streams import shown
from sim.readers.threshold import Threshold, choose
from sim.readers.values import key_text
from sim.words import plural

__all__ = ["assemble"]


def assemble(
    label: str,
    files: Sequence[Path],
    plan: Plan,
    taken: Collector,
    options: ReadOptions,
    notes: list[str],
    read: int,
) -> RolloutLog:
    """Return the log that the collected rows make.

    Parameters
    ----------
    label
        The file, folder or glob.
    files
        Its files.
    plan
        How their rows were read.
    taken
        What was taken of them.
    options
        What the user named.
    notes
        What was told so far; goes into the log, with what is found here.
    read
        Files that were read.

    Raises
    ------
    InputError
        If there are no rows or no scores, or rows contradict or repeat each other.
    """
    keys = taken.keys.texts
    if not keys:
        left = " that meet " + ", ".join(options.where) if options.where else ""
        msg = f"{label!r} has no rows{left}; {'mend --where' if options.where else 'was the run started?'}"
        raise InputError(msg)
    _check_splits(taken, options, keys, label)
    by_counts = bool(taken.count_code)
    if by_counts and taken.code:
        notes.append("some rows hold counts without an order, so all rows are taken as counts")
    code, step = joined(taken.code, np.int32).astype(np.int64), joined(taken.step)
    length, rewards = joined(taken.length, np.int32).astype(np.int64), joined(taken.rewards)
    threshold, right = _classes(taken, rewards, options, notes)
    _check_declared(taken, length, rewards, right, code, keys)
    count_code, count_step = joined(taken.count_code, np.int32).astype(np.int64), joined(taken.count_step)
    every_step = np.concatenate([step, count_step])
    with_steps = not np.isnan(every_step).all()
    if with_steps and np.isnan(every_step).any():
        missing = int(np.isnan(every_step).sum())
        notes.append(f"{missing} {plural(missing, 'row')} without a step; the steps are not used")
        with_steps = False
    pool, pool_prompt, pool_step = _pools(np.concatenate([code, count_code]), every_step if with_steps else None)
    own, counted = pool[: code.size], pool[code.size :]
    if by_counts:
        _check_repeats(plan, files, counted, count_code, taken, options, keys, notes, label)
    pools = pool_prompt.size
    lengths = np.bincount(own, weights=length, minlength=pools).astype(np.int64)
    owner = np.repeat(own, length) if not (length == 1).all() else own
    known = ~np.isnan(rewards)
    scored = np.bincount(owner[known], minlength=pools).astype(np.int64)
    correct = np.bincount(owner[known & right], minlength=pools).astype(np.int64)
    mean_tokens = _mean_by_pool(owner, joined(taken.tokens, np.float32), pools)
    advantages = joined(taken.advantages) if taken.advantages else None
    selection = _selection(plan, files, owner, advantages, pools, notes)
    order = None if (np.diff(owner) >= 0).all() else _grouped(owner)

    def sorted_(values: Any) -> Any:
        return values if order is None else values[order]

    tokens = joined(taken.tokens, np.float32)
    truncated = joined(taken.truncated, np.bool_)
    if by_counts:
        total = np.concatenate(taken.count_total)
        more = np.bincount(counted, weights=total, minlength=pools).astype(np.int64)
        lengths, scored = lengths + more, scored + more
        correct = correct + np.bincount(counted, weights=np.concatenate(taken.counted), minlength=pools).astype(
            np.int64
        )
        of_counts = _mean_by_pool(counted, np.concatenate(taken.count_tokens), pools)
        mean_tokens = np.where(np.isnan(mean_tokens), of_counts, mean_tokens)
    if not scored.any():
        msg = (
            f"{label!r} has {len(keys)} {plural(len(keys), 'prompt')}, but no response with a score; name the "
            f"rewards: --reward COLUMN"
        )
        raise InputError(msg)
    _tell(taken, plan, lengths, scored, tokens, rewards, notes)
    return RolloutLog(
        label=label,
        format=plan.name,
        keys=keys,
        prompt=pool_prompt,
        step=pool_step,
        lengths=lengths,
        scored=scored,
        correct=correct,
        rewards=None if by_counts else sorted_(rewards),
        right=None if by_counts else sorted_(right),
        tokens=None if by_counts or np.isnan(tokens).all() else sorted_(tokens).astype(np.float64),
        mean_tokens=None if np.isnan(mean_tokens).all() else mean_tokens,
        truncated=None if by_counts or truncated.size != rewards.size else sorted_(truncated),
        threshold=threshold,
        selection=selection,
        files=read,
        notes=tuple(notes),
    )


def _classes(
    taken: Collector, rewards: FloatArray, options: ReadOptions, notes: list[str]
) -> tuple[Threshold | None, BoolArray]:
    """Return what makes a response correct, and which are."""
    if not rewards.size:
        if options.threshold is not None:
            msg = (
                f"a threshold of {options.threshold:g} is for rewards, and these rows hold counts; leave --threshold "
                f"out"
            )
            raise InputError(msg)
        return None, np.zeros(0, dtype=np.bool_)
    if options.threshold is not None:
        threshold = Threshold(options.threshold, f"--threshold {options.threshold:g}", certain=True)
        found = taken.distinct
        which = "none" if found.high <= options.threshold else "every one" if found.low > options.threshold else ""
        told = which and found.low <= found.high
        span = f"; rewards lie between {found.low:g} and {found.high:g}, so {which} is" if told else ""
        notes.append(f"a reward above {options.threshold:g} is correct, as --threshold says{span}")
    elif taken.right:
        threshold = Threshold(None, f"the column {shown(str(taken.roles.correct))} says what is correct", certain=True)
        notes.append(threshold.reason)
        return threshold, np.asarray(joined(taken.right) > 0.5)
    else:
        threshold = choose(taken.distinct)
        unsure = "" if threshold.certain else "; --threshold sets another"
        notes.append(f"a reward above {threshold.value:g} is correct: {threshold.reason}{unsure}")
    limit = math.inf if threshold.value is None else threshold.value
    return threshold, np.asarray(rewards > limit)


def _check_declared(
    taken: Collector, length: IntArray, rewards: FloatArray, right: BoolArray, code: IntArray, keys: tuple[str, ...]
) -> None:
    """Refuse counts that say something else than the rewards beside them."""
    if not taken.declared:
        return
    declared = np.concatenate(taken.declared)
    owner = np.repeat(np.arange(length.size), length)
    correct = np.bincount(owner[right], minlength=length.size)
    total = np.bincount(owner, minlength=length.size)
    scored = np.bincount(owner[~np.isnan(rewards)], minlength=length.size)
    given = ~np.isnan(declared).any(axis=1)
    wrong = given & ((declared[:, 0] != correct) | ((declared[:, 1] != total) & (declared[:, 1] != scored)))
    if wrong.any():
        at = int(np.argmax(wrong))
        msg = (
            f"the rewards of prompt {shown(keys[code[at]])} hold {correct[at]} correct of {total[at]}, and the "
            f"counts beside "
            f"them say {declared[at, 0]:g} of {declared[at, 1]:g}. Remove one of them, or say what is correct: "
            f"--threshold"
        )
        raise InputError(msg)


def _pools(code: IntArray, step: FloatArray | None) -> tuple[IntArray, IntArray, IntArray | None]:
    """Return the pool of every record, and prompt and step of every pool; pools by step, then as they come up."""
    if step is None:
        # Prompts that a refused row left behind have no records.
        present, pool = _ranked(code)
        return pool, present, None
    steps, rank = _ranked(step.astype(np.int64))
    pair = rank * (int(code.max()) + 1) + code
    pairs, first, inverse = _distinct(pair)
    order = np.lexsort((first, rank[first]))
    place = np.empty(pairs.size, dtype=np.int64)
    place[order] = np.arange(pairs.size)
    return place[inverse], code[first[order]], steps[rank[first[order]]]


def _ranked(values: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct values, ascending, and the place of each value among them."""
    low = int(values.min())
    if int(values.max()) - low > 4 * values.size + 1000:
        distinct, rank = np.unique(values, return_inverse=True)
        return distinct, rank
    there = np.bincount(values - low) > 0
    return np.nonzero(there)[0] + low, (np.cumsum(there) - 1)[values - low]


def _distinct(values: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return distinct values of at least 0, where each comes up first, and the place of each value among them."""
    if int(values.max()) > 4 * values.size + 1_000_000:
        return np.unique(values, return_index=True, return_inverse=True)
    # Of several assignments the last one stays, so they run backwards.
    first = np.full(int(values.max()) + 1, -1)
    first[values[::-1]] = np.arange(values.size - 1, -1, -1)
    distinct = np.nonzero(first >= 0)[0]
    rank = np.cumsum(first >= 0) - 1
    return distinct, first[distinct], rank[values]


def _grouped(owner: IntArray) -> IntArray:
    """Return the order that brings responses of a pool together and keeps theirs: a counting sort."""
    from scipy.sparse import coo_array

    number = np.arange(owner.size, dtype=np.int32 if owner.size < 2**31 else np.int64)
    table = coo_array((np.ones(owner.size, dtype=np.bool_), (owner, number)), shape=(int(owner.max()) + 1, owner.size))
    return np.asarray(table.tocsr().indices)


def _mean_by_pool(owner: IntArray, values: Any, pools: int) -> FloatArray:
    values = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(values)
    count = np.bincount(owner[known], minlength=pools)
    total = np.bincount(owner[known], weights=values[known], minlength=pools)
    return np.asarray(np.divide(total, count, out=np.full(pools, math.nan), where=count > 0))


def _check_splits(taken: Collector, options: ReadOptions, keys: tuple[str, ...], label: str) -> None:
    """Refuse a log in which one prompt has rows of several models, filters and the like."""
    named = {column for column, _ in options.conditions}
    for name, (factor, codes, prompts) in taken.splits.items():
        if len(factor.texts) < 2 or name in named:
            continue
        value, prompt = np.concatenate(codes), np.concatenate(prompts)
        low = np.full(len(keys), value.max() + 1)
        high = np.full(len(keys), -1)
        np.minimum.at(low, prompt, value)
        np.maximum.at(high, prompt, value)
        mixed = low < high
        if mixed.any():
            at = int(np.argmax(mixed))
            some = ", ".join(shown(text) for text in factor.texts[:5]) + (", …" if len(factor.texts) > 5 else "")
            msg = (
                f"{label!r} holds rows of one prompt ({shown(keys[at])}) for several values of {shown(name)}: "
                f"{some}. Take "
                f"one of them: --where {name}={factor.texts[0]}"
            )
            raise InputError(msg)


def _check_repeats(
    plan: Plan,
    files: Sequence[Path],
    pool: IntArray,
    code: IntArray,
    taken: Collector,
    options: ReadOptions,
    keys: tuple[str, ...],
    notes: list[str],
    label: str,
) -> None:
    """Refuse counts that stand on several rows of one prompt; adding them up would multiply responses."""
    times = np.bincount(pool)
    if not (times > 1).any():
        return
    again = int((times > 1).sum())
    if options.add_repeated:
        notes.append(
            f"{again} {plural(again, 'prompt')} with counts on several rows, which were added up (--add-repeated)"
        )
        return
    worst = int(np.argmax(times))
    rows = np.nonzero(pool == worst)[0]
    key = keys[code[rows[0]]]
    correct, total = np.concatenate(taken.counted)[rows], np.concatenate(taken.count_total)[rows]
    same = (correct == correct[0]).all() and (total == total[0]).all()
    found = _rows_of(plan, files, key)
    used = {taken.roles.prompt, taken.roles.correct, taken.roles.total}
    columns = [
        name for name in two_steps(list(dict.fromkeys(name for row in found for name in row))) if name not in used
    ]
    differing = [name for name in columns if len({str(row.get(name)) for row in found}) > 1]
    pairs = ", ".join(f"{k} of {n}" for k, n in list(zip(correct.tolist(), total.tolist(), strict=True))[:3])
    what = f"the same counts ({pairs.split(', ', 1)[0]})" if same else f"counts ({pairs})"
    says = f"{label!r} has {what} on {len(rows)} rows of prompt {shown(key)}"
    if differing:
        # Every column that tells the rows apart has to be fixed, until one row a prompt is left.
        conditions: list[str] = []
        left = found
        for name in differing:
            if len(left) < 2:
                break
            value = left[0].get(name)
            fewer = [row for row in left if str(row.get(name)) == str(value)]
            if len(fewer) < len(left):
                conditions.append(f"--where {name}={value}")
                left = fewer
        msg = (
            f"{says}, which differ in {', '.join(map(shown, differing[:4]))}; added up they would count responses "
            f"several times. Take one row a prompt: {' '.join(conditions)}"
        )
    else:
        msg = (
            f"{says}, and nothing tells the rows apart. Remove the repeated rows; if they are parts of one pool, add "
            f"them up: --add-repeated"
        )
    raise InputError(msg)


def _rows_of(plan: Plan, files: Sequence[Path], key: str, most: int = 50) -> list[dict[str, Any]]:
    """Return the rows of one prompt, whole."""
    found: list[dict[str, Any]] = []
    prompt = plan.roles.prompt
    for file in files:
        table = plan.open(file)
        if table is None or prompt is None:
            continue
        for batch in table.read(None):
            chosen = np.array(
                [value is not None and key_text(value) == key for value in batch.column(prompt)], dtype=np.bool_
            )
            chosen &= meets(batch, plan.options)
            found += batch.take(chosen).objects() if chosen.any() else []
            if len(found) >= most:
                return found
    return found


def _selection(
    plan: Plan, files: Sequence[Path], owner: IntArray, advantages: FloatArray | None, pools: int, notes: list[str]
) -> Selection:
    """Return what of the drawn responses is in the files, and say so."""
    if plan.form is None:
        return Selection.all
    selection = plan.form.selection
    if plan.form.name == "verl" and ("val" in files[0].parent.name.lower() or "eval" in files[0].parent.name.lower()):
        return Selection.all
    if plan.form.name == "prime-rl" and "effective" in files[0].parts:
        selection = Selection.trained
    if plan.form.name == "NeMo-RL" and any("filtered_rewards" in row for row in open_file(files[0]).head[:5]):
        notes.append("filtered_rewards stands in it: groups without signal were filtered out before training (DAPO)")
        return Selection.signal
    if advantages is not None and not np.isnan(advantages).any():
        size = np.bincount(owner, minlength=pools)
        mean = np.bincount(owner, weights=advantages, minlength=pools) / np.maximum(size, 1)
        off = (np.abs(mean) > 1e-3) & (size > 1)
        if off.mean() > 0.01:
            notes.append(
                f"the advantages of {int(off.sum())} of {pools} groups don't average to 0, so their baseline is not "
                f"the mean of "
                "the rows here: these rows were kept of larger pools, and rates from them are biased"
            )
            return Selection.kept
        notes.append("advantages average to 0 within groups, as those of whole groups do")
        return Selection.all
    if selection is Selection.trained:
        notes.append(
            "such a dump holds what was trained on; if a filter dropped groups, they are missing, and rates are biased"
        )
    return selection


def _tell(
    taken: Collector,
    plan: Plan,
    lengths: IntArray,
    scored: IntArray,
    tokens: Any,
    rewards: FloatArray,
    notes: list[str],
) -> None:
    """Say what has no score or no length, and what is joined."""
    unscored = int((lengths - scored).sum())
    if unscored:
        why = f", {taken.failed} of them because of an error" if taken.failed else ""
        notes.append(f"{unscored} {plural(unscored, 'response')} without a score{why}")
    empty = int((scored == 0).sum())
    if empty:
        notes.append(f"{empty} {plural(empty, 'pool')} without any scored response")
    if rewards.size and taken.roles.tokens and not np.isnan(tokens).all():
        missing = int((np.isnan(tokens) & ~np.isnan(rewards)).sum())
        if missing:
            notes.append(f"{missing} {plural(missing, 'response')} without a length in tokens")
    if plan.roles.kind is Kind.rewards and lengths.size < sum(part.size for part in taken.code):
        more = sum(part.size for part in taken.code) - lengths.size
        notes.append(
            f"{more} {plural(more, 'row')} of prompts that stand on several rows; their rewards are joined in the "
            f"file's order"
        )
