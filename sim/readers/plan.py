"""How the rows of all files of a path are read, told by some of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import BoolArray
from ada_bandit.errors import InputError
from sim.readers.archives import eval_archive, torch_file
from sim.readers.batches import Batch, Table, open_table, plain_kind
from sim.readers.columns import Kind, Roles, guess
from sim.readers.formats import FLAT, FORMATS, Format, recognise, step_of
from sim.readers.options import ReadOptions, option_of
from sim.readers.streams import bare_suffix, named, shown
from sim.readers.values import follow, number

__all__ = ["Plan", "meets", "open_file"]

_LOOKED_AT = 12
"""Files of a folder from which its format is told."""


class Plan:
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
    def of(cls, files: Sequence[Path], options: ReadOptions, notes: list[str]) -> Plan:
        """Look at some of the files and decide."""
        chosen = (
            files if len(files) <= _LOOKED_AT else [files[at * len(files) // _LOOKED_AT] for at in range(_LOOKED_AT)]
        )
        found: list[tuple[Format | None, Table]] = []
        first: InputError | None = None
        for file in chosen:
            try:
                table = open_file(file)
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
        _check_used(options, roles, form, where)
        return cls(form, roles, options, table.kind, head, files)

    @property
    def name(self) -> str:
        """What the files are."""
        return self.form.name if self.form else self.kind

    def open(self, file: Path) -> Table | None:
        """Open a file, None where it is of another format."""
        table = open_file(file)
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
            chosen = meets(left, self.options)
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


def _check_used(options: ReadOptions, roles: Roles, form: Format | None, where: str) -> None:
    """Refuse what was said and says nothing of these rows."""
    if options.total is not None and roles.kind in {Kind.response, Kind.rewards}:
        msg = (
            f"{option_of('total')} {options.total} says how many responses a count is of, and {where} was read as "
            f"{roles.kind}; leave it out, or name the counts: --correct COLUMN"
        )
        raise InputError(msg)
    if options.group_size is not None and (form is None or form.name != "NeMo-RL"):
        msg = (
            f"--rows-per-prompt {options.group_size} is for rows without a name for their prompt, and those of {where} "
            "have one; leave it out, or name another: --prompt COLUMN"
        )
        raise InputError(msg)


def open_file(file: Path) -> Table:
    """Open a file of any kind that is read here.

    Raises
    ------
    InputError
        If it is of none, or has no rows.
    """
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
    chosen = meets(batch, options)
    return [row for row, is_chosen in zip(head, chosen, strict=True) if is_chosen] or head


def meets(batch: Batch, options: ReadOptions) -> BoolArray:
    """Return which rows meet the conditions, ``[row]``."""
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
