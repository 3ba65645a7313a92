"""From a path to a log: find the files, tell what they are, read them in one pass, and say how."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError
from sim.readers.archives import eval_archive, torch_file
from sim.readers.batches import Batch, Table, open_table, plain_kind
from sim.readers.collect import Collector, joined
from sim.readers.columns import Kind, Roles, guess, two_steps
from sim.readers.files import find
from sim.readers.formats import FLAT, FORMATS, Format, Selection, recognise, step_of
from sim.readers.log import RolloutLog
from sim.readers.options import ReadOptions, option_of
from sim.readers.streams import bare_suffix, named, shown
from sim.readers.threshold import Threshold, choose
from sim.readers.values import follow, key_text, number
from sim.words import plural

__all__ = ["read_rollouts"]

Progress = Callable[[float], None]
"""Is called with the share of the input, from 0 to 1, that was read."""

_LOOKED_AT = 12
"""Files of a folder from which its format is told."""


def read_rollouts(path: str | Path, options: ReadOptions | None = None, progress: Progress | None = None) -> RolloutLog:
    """Read logged rollouts: dumps of training frameworks, or tables of pass rates or of responses.

    Parameters
    ----------
    path
        A file, a folder (everything below it is read) or a glob.
    options
        Names of columns, conditions on rows and the threshold, where they are not to be guessed.
    progress
        Called while the files are read.

    Returns
    -------
    RolloutLog
        Pools by step and prompt; `RolloutLog.notes` say what was recognised and guessed.

    Raises
    ------
    InputError
        If nothing can be made of it: the message says what is there, what is missing, and what would work.
    """
    options = ReadOptions() if options is None else options
    notes: list[str] = []
    files = find(path, notes)
    plan = _Plan.of(files, options, notes)
    read = 0
    others: list[Path] = []
    collector = Collector(plan.roles, comma=plan.comma, advantage=plan.advantage)
    dropped = Counter[str]()
    for number_of, file in enumerate(files):
        try:
            table = plan.open(file)
        except InputError:
            if len(files) == 1:
                raise
            table = None
        if table is None:
            others.append(file)
            continue
        read += 1
        step = plan.step_of(file)
        for batch in plan.batches(table, dropped):
            collector.add(batch, step)
            if progress is not None:
                progress((number_of + batch.done) / len(files))
        where = "" if len(files) == 1 else f" ({shown(file.name)})"
        notes += [note + where for note in table.notes]
    if others:
        names = ", ".join(shown(each.name) for each in others[:3]) + (", …" if len(others) > 3 else "")
        notes.append(f"{len(others)} {plural(len(others), 'file')} of another kind left out: {names}")
    notes += [f"{count} {plural(count, 'row')} left out: {why}" for why, count in dropped.items()]
    return _assemble(os.fspath(path), files, plan, collector, options, notes, read)


class _Plan:
    """How the rows of all files are read."""

    def __init__(
        self,
        form: Format | None,
        roles: Roles,
        options: ReadOptions,
        kind: str,
        head: Sequence[dict[str, Any]],
        files: Sequence[Path],
    ) -> None:
        self.form, self.roles, self.options, self.kind = form, roles, options, kind
        self.several = len(files) > 1
        self.comma = kind.startswith("CSV with ';'")
        columns = {name for row in head for name in row}
        self.advantage = None
        if form is not None and form.name == "TRL" and all(number(row.get("advantage")) is not None for row in head):
            self.advantage = "advantage"
        self.padded = form is not None and form.name == "verl" and "uid" in columns
        names = [*roles.columns, *(column for column, _ in options.conditions)]
        names += [name for name, used in (("uid", self.padded), ("advantage", self.advantage)) if used]
        self.wanted: dict[str, str | None] | None = None
        if form is None or form.unfold is None:
            self.wanted = {}
            for name in dict.fromkeys(names):
                top = name if name in columns else name.replace("[", ".").partition(".")[0]
                values = [row.get(top) for row in head]
                self.wanted[top] = plain_kind(values) if top == name and top not in self.wanted else None

    @classmethod
    def of(cls, files: Sequence[Path], options: ReadOptions, notes: list[str]) -> _Plan:
        """Look at some of the files and decide."""
        chosen = (
            files if len(files) <= _LOOKED_AT else [files[at * len(files) // _LOOKED_AT] for at in range(_LOOKED_AT)]
        )
        found: list[tuple[Format | None, Table]] = []
        first: InputError | None = None
        for file in chosen:
            try:
                table = _open(file)
                found.append((_format(table), table))
            except InputError as error:
                first = first or error
        if not found:
            raise first or InputError(f"nothing to read in {named(files[0])}")
        forms = Counter(form.name if form else "" for form, _ in found)
        known = [name for name in forms if name]
        name = max(known, key=lambda each: forms[each]) if known else ""
        tables = [table for form, table in found if (form.name if form else "") == name]
        form = next((each for each in FORMATS if each.name == name), None)
        tables = _fullest(tables, options) if form is None else tables
        table = tables[0]
        where = named(table.path)
        head = _where([row for each in tables[:3] for row in each.head], options, where)
        if form is None:
            comma = table.kind.startswith("CSV with ';'")
            roles = guess(head, options, where, comma=comma)
            told = f"read as {table.kind}, {roles.kind}: {roles.described()}"
            ways = " ".join(
                option_of(role)
                for role in roles.guessed
                if role in {"prompt", "reward", "correct", "total", "step", "tokens"}
            )
            notes.append(f"{told} (guessed; {ways} name others)" if ways else told)
        elif form.roles is not None:
            roles = _overridden(
                form.roles(head, notes) if not (options.reward or options.correct) else _quiet(form, head), options
            )
            notes.insert(0, f"read as a dump of {form.name}: {roles.described()}")
        else:
            flat = [each for row in head[:50] if form.unfold for each in form.unfold(row, table.path)]
            names = {key for each in flat for key, value in each.items() if value is not None}
            roles = replace(
                FLAT,
                correct="correct" if "correct" in names else None,
                step="step" if "step" in names else None,
                tokens="tokens" if "tokens" in names or options.tokens else None,
                splitting=("filter",) if "filter" in names else (),
            )
            notes.insert(0, f"read as a dump of {form.name}")
            if form.note:
                notes.append(form.note)
            if (
                form.name == "NeMo-RL"
                and "prompt" not in names
                and options.group_size is None
                and options.prompt is None
            ):
                msg = (
                    f"{where} is a dump of NeMo-RL without token_ids and token_loss_mask, so which rows share a "
                    f"prompt isn't "
                    "told. Give the responses per prompt: --rows-per-prompt 16"
                )
                raise InputError(msg)
        return cls(form, roles, options, table.kind, head, files)

    @property
    def name(self) -> str:
        """What the files are."""
        return self.form.name if self.form else self.kind

    def open(self, file: Path) -> Table | None:
        """Open a file, None where it is of another format."""
        table = _open(file)
        form = _format(table)
        if (form.name if form else "") != (self.form.name if self.form else ""):
            return None
        if self.several and form is None and not _alike(table.head, self.roles):
            return None
        return table

    def step_of(self, file: Path) -> int | None:
        """Return the step that the name of a file gives."""
        if self.roles.step is not None and self.form is None:
            return None
        if self.form is None and not self.several:
            return None
        if self.form is not None and self.form.name in {"lm-eval", "inspect", "verifiers", "slime"}:
            return None
        return step_of(file)

    def batches(self, table: Table, dropped: Counter[str]) -> Iterator[Batch]:
        """Give the rows that are used."""
        for batch in table.read(self.wanted):
            left = batch
            chosen = _meets(left, self.options)
            if not chosen.all():
                dropped["--where"] += int((~chosen).sum())
                left = left.take(chosen)
            if self.padded and len(left):
                padded = np.array([str(uid or "").startswith("pad") for uid in left.column("uid")], dtype=np.bool_)
                if padded.any():
                    dropped["their uid begins with pad"] += int(padded.sum())
                    left = left.take(~padded)
            if self.form is not None and self.form.unfold is not None:
                left = self._unfolded(left, table.path, dropped)
            if len(left):
                yield left

    def _unfolded(self, batch: Batch, path: Path, dropped: Counter[str]) -> Batch:
        assert self.form is not None  # noqa: S101 - for the type checker
        unfold = self.form.unfold
        assert unfold is not None  # noqa: S101 - for the type checker
        flat: list[dict[str, Any]] = []
        source: list[int] = []
        for at, row in enumerate(batch.objects()):
            new = list(unfold(row, path))
            if not new and self.form.name == "tinker-cookbook":
                dropped["their split is not train"] += 1
            for each in new:
                self._named(each, row, len(new), batch.place(at))
            flat += new
            source += [at] * len(new)
        return Batch(None, flat, lambda row: batch.place(source[row]), batch.done)

    def _named(self, flat: dict[str, Any], row: dict[str, Any], members: int, place: str) -> None:
        """Put what the user named in its place."""
        options = self.options
        for role in ("prompt", "reward", "correct", "step", "tokens"):
            path = getattr(options, role)
            if path is None:
                continue
            if members > 1:
                msg = (
                    f"--{role} can't be used with {self.name}, whose rows hold several responses {place}; write flat "
                    f"rows"
                )
                raise InputError(msg)
            parts = [follow(row, part.strip()) for part in path.split("+")] if role == "reward" else [follow(row, path)]
            known = [number(part) for part in parts]
            flat[role] = (
                parts[0]
                if len(parts) == 1
                else None
                if None in known
                else sum(part for part in known if part is not None)
            )
        if options.group_size is not None and flat.get("prompt") is None and "idx" in flat:
            at = number(flat["idx"])
            if at is None or not math.isfinite(at):
                msg = f"idx must be the number of the row; got {shown(flat['idx'])} {place}"
                raise InputError(msg)
            flat["prompt"] = f"{flat.get('step')}/{int(at) // options.group_size}"


def _open(file: Path) -> Table:
    suffix = bare_suffix(file)
    if suffix == ".eval":
        return eval_archive(file)
    if suffix in {".pt", ".pth"}:
        return torch_file(file)
    return open_table(file, record=lambda row: (form := recognise(row)) is not None and form.record)


def _format(table: Table) -> Format | None:
    return recognise(table.head[0]) if table.head else None


def _fullest(tables: Sequence[Table], options: ReadOptions) -> list[Table]:
    """Return, of tables of several shapes, those that say most: responses before counts, then the more numerous."""
    shapes: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        shapes.setdefault((table.kind, *sorted(table.head[0] if table.head else ())), []).append(table)

    def says(alike: list[Table]) -> tuple[int, int]:
        try:
            kind = guess(alike[0].head, options, named(alike[0].path)).kind
        except InputError:
            return 0, len(alike)
        return 1 + (kind in {Kind.response, Kind.rewards}), len(alike)

    return max(shapes.values(), key=says)


def _quiet(form: Format, head: Sequence[dict[str, Any]]) -> Roles:
    """Return the format's columns where the user names the rewards, so that nothing of them is told."""
    assert form.roles is not None  # noqa: S101 - for the type checker
    try:
        roles = form.roles(head, [])
    except InputError:
        roles = Roles(Kind.response, "prompt", step="step")
    return replace(roles, reward=(), correct=None)


def _overridden(roles: Roles, options: ReadOptions) -> Roles:
    reward = tuple(part.strip() for part in options.reward.split("+")) if options.reward else roles.reward
    return replace(
        roles,
        prompt=options.prompt or roles.prompt,
        reward=reward,
        correct=options.correct or roles.correct,
        step=options.step or roles.step,
        tokens=options.tokens or roles.tokens,
    )


def _alike(head: Sequence[dict[str, Any]], roles: Roles) -> bool:
    needed = [*roles.reward, *([roles.correct] if roles.correct else []), *([roles.prompt] if roles.prompt else [])]
    return all(any(follow(row, name) is not None for row in head) for name in needed)


# Conditions


def _where(head: list[dict[str, Any]], options: ReadOptions, where: str) -> list[dict[str, Any]]:
    """Return the first rows that meet the conditions; all of them, if none of the first does."""
    for column, value in options.conditions:
        if not any(follow(row, column) is not None for row in head):
            columns = ", ".join(shown(name) for name in list(dict.fromkeys(name for row in head for name in row))[:12])
            msg = f"{where} has no column {shown(column)} (--where {column}={value}); its columns are {columns}"
            raise InputError(msg)
    batch = Batch(None, head, lambda row: f"in row {row + 1} of {where}", 0.0)
    chosen = _meets(batch, options)
    return [row for row, is_chosen in zip(head, chosen, strict=True) if is_chosen] or head


def _meets(batch: Batch, options: ReadOptions) -> BoolArray:
    chosen = np.ones(len(batch), dtype=np.bool_)
    for column, wanted in options.conditions:
        as_number = number(wanted)
        values = batch.column(column)
        chosen &= np.fromiter((_equal(value, wanted, as_number) for value in values), dtype=np.bool_, count=len(values))
    return chosen


def _equal(value: Any, wanted: str, as_number: float | None) -> bool:
    if isinstance(value, bool):
        return wanted.lower() == str(value).lower()
    if str(value).strip() == wanted:
        return True
    found = (
        number(value) if as_number is not None and not isinstance(value, (dict, list)) and value is not None else None
    )
    return found is not None and found == as_number


# From rows to pools


def _assemble(
    label: str,
    files: Sequence[Path],
    plan: _Plan,
    taken: Collector,
    options: ReadOptions,
    notes: list[str],
    read: int,
) -> RolloutLog:
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
    plan: _Plan,
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


def _rows_of(plan: _Plan, files: Sequence[Path], key: str, most: int = 50) -> list[dict[str, Any]]:
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
            chosen &= _meets(batch, plan.options)
            found += batch.take(chosen).objects() if chosen.any() else []
            if len(found) >= most:
                return found
    return found


def _selection(
    plan: _Plan, files: Sequence[Path], owner: IntArray, advantages: FloatArray | None, pools: int, notes: list[str]
) -> Selection:
    """Return what of the drawn responses is in the files, and say so."""
    if plan.form is None:
        return Selection.all
    selection = plan.form.selection
    if plan.form.name == "verl" and ("val" in files[0].parent.name.lower() or "eval" in files[0].parent.name.lower()):
        return Selection.all
    if plan.form.name == "prime-rl" and "effective" in files[0].parts:
        selection = Selection.trained
    if plan.form.name == "NeMo-RL" and any("filtered_rewards" in row for row in _open(files[0]).head[:5]):
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
    plan: _Plan,
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
