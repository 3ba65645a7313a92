"""Batches of rows into arrays, and arrays into pools."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError
from sim.readers.batches import Batch
from sim.readers.columns import Kind, Roles
from sim.readers.streams import shown
from sim.readers.threshold import Distinct
from sim.readers.values import Column, Place, as_list, is_list, is_missing, key_text, number, numbers, share, truths

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Collector", "joined"]

_CUT = {
    "length",
    "max_tokens",
    "max_length",
    "truncated",
    "model_length",
    "max_model_len",
    "context_length",
    "overlong",
}
_LARGEST = 2**53


class Factor:
    """Numbers for values, in the order in which they come up."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}
        self._texts: dict[str, int] = {}
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._hash_codes = np.zeros(0, dtype=np.int64)

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as text."""
        return tuple(self._texts)

    def codes(self, values: Column, place: Place) -> IntArray:
        """Return the number of each value."""
        if not isinstance(values, list):
            import polars as pl

            plain = values.dtype == pl.String or values.dtype.is_integer()
            if plain and not values.null_count() and len(values) > 64:
                return self._hashed(values.cast(pl.String), place)
            values = values.to_list()
        return np.fromiter(
            (self._code(value, place, at) for at, value in enumerate(values)), dtype=np.int64, count=len(values)
        )

    def _hashed(self, values: pl.Series, place: Place) -> IntArray:
        """Number texts by their hashes of 64 bits: a million prompts share one with chance 3e-8."""
        hashes, first, inverse = np.unique(values.hash(0).to_numpy(), return_index=True, return_inverse=True)
        at = np.minimum(np.searchsorted(self._hashes, hashes), max(self._hashes.size - 1, 0))
        known = self._hashes[at] == hashes if self._hashes.size else np.zeros(hashes.size, dtype=np.bool_)
        codes = self._hash_codes[at] if self._hashes.size else np.zeros(hashes.size, dtype=np.int64)
        # New ones are numbered in the order in which they stand in the file.
        new = np.nonzero(~known)[0]
        new = new[np.argsort(first[new])]
        for place_of, text in zip(new.tolist(), values[first[new]].to_list(), strict=True):
            codes[place_of] = self._code(text, place, int(first[place_of]))
        if new.size:
            merged = np.concatenate([self._hashes, hashes[new]])
            order = np.argsort(merged)
            self._hashes = merged[order]
            self._hash_codes = np.concatenate([self._hash_codes, codes[new]])[order]
        return np.asarray(codes[inverse])

    def number_rows(self, first: int, size: int) -> None:
        """Take rows without names as prompts of their own, named by their numbers."""
        self._texts.update((str(at + 1), at) for at in range(first, first + size))

    def _code(self, value: Any, place: Place, at: int) -> int:
        plain = type(value) is str or type(value) is int
        if plain:
            found = self.known.get(value)
            if found is not None:
                return found
        try:
            text = key_text(value)
        except InputError:
            text = key_text(value, place(at))  # where it stands is looked up for the message alone
        code = self._texts.setdefault(text, len(self._texts))
        if plain and len(text) < 64:
            self.known[value] = code
        return code


def joined(parts: Sequence[np.ndarray[Any, Any]], kind: type = np.float64) -> Any:
    """Return arrays one after the other."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)


class Collector:
    """Takes batches of rows, and keeps numbers."""

    def __init__(self, roles: Roles, *, comma: bool = False, advantage: str | None = None) -> None:
        self.roles, self.comma, self.advantage = roles, comma, advantage
        self.keys = Factor()
        self.distinct = Distinct()
        self.rows = 0
        self.code: list[IntArray] = []
        """Number of the prompt, by record."""
        self.step: list[FloatArray] = []
        """Training step by record, NaN without."""
        self.length: list[IntArray] = []
        """Responses by record, 0 for one of counts."""
        self.rewards: list[FloatArray] = []
        self.right: list[FloatArray] = []
        self.tokens: list[FloatArray] = []
        self.truncated: list[BoolArray] = []
        self.advantages: list[FloatArray] = []
        self.count_code: list[IntArray] = []
        self.count_step: list[FloatArray] = []
        self.counted: list[IntArray] = []
        self.count_total: list[IntArray] = []
        self.count_tokens: list[FloatArray] = []
        self.declared: list[FloatArray] = []
        """`[record, 2]` counts that stand beside a list, NaN without."""
        self.splits = {name: (Factor(), [], []) for name in roles.splitting}  # type: ignore[var-annotated]
        self.failed = 0

    def add(self, batch: Batch, step: int | None) -> None:
        """Take a batch; `step` is what the file's name says."""
        size = len(batch)
        if not size:
            return
        roles, place = self.roles, batch.place
        code: IntArray
        if roles.prompt is None:
            code = np.arange(self.rows, self.rows + size)
            self.keys.number_rows(self.rows, size)
        else:
            code = self.keys.codes(batch.column(roles.prompt), place)
        self.rows += size
        at: FloatArray = np.full(size, math.nan if step is None else float(step))
        if roles.step is not None:
            named = numbers(batch.column(roles.step), "the step", place)
            broken = ~np.isnan(named) & ((named != np.floor(named)) | (np.abs(named) > _LARGEST))
            if broken.any():
                row = int(np.argmax(broken))
                msg = f"a step must be a whole number; got {named[row]:g} {place(row)}"
                raise InputError(msg)
            at = np.where(np.isnan(named), at, named)
        for name, (factor, codes, prompts) in self.splits.items():
            values = batch.column(name)
            texts = ["" if value is None else str(value) for value in values]
            codes.append(factor.codes([text or "(none)" for text in texts], place))
            prompts.append(code)
        if roles.kind is Kind.response:
            self._responses(batch, code, at)
        elif roles.kind is Kind.rewards:
            self._lists(batch, code, at)
        elif roles.kind is Kind.counts:
            self._counts(batch, code, at, str(roles.correct), roles.total)
        else:
            self._rates(batch, code, at)

    # One row per response

    def _responses(self, batch: Batch, code: IntArray, step: FloatArray) -> None:
        roles, place, size = self.roles, batch.place, len(batch)
        right = numbers(batch.column(roles.correct), "correctness", place) if roles.correct else None
        if right is not None:
            self._check_truth(right, place)
        rewards = np.zeros(size)
        for name in roles.reward:
            rewards = rewards + numbers(batch.column(name), "a reward", place, comma=self.comma)
        if right is not None:
            rewards = np.where(np.isnan(rewards), right, rewards) if roles.reward else right
            right = np.where(np.isnan(rewards), math.nan, right)
            rewards = np.where(np.isnan(right), math.nan, rewards)
        if roles.error is not None:
            failed = truths(batch.column(roles.error))
            self.failed += int((failed & ~np.isnan(rewards)).sum())
            rewards = np.where(failed, math.nan, rewards)
        tokens = self._lengths(batch.column(roles.tokens), place) if roles.tokens else None
        truncated = self._cut(batch.column(roles.truncated)) if roles.truncated else None
        if self.advantage:
            self.advantages.append(numbers(batch.column(self.advantage), "an advantage", place))
        self._put(code, step, np.ones(size, dtype=np.int64), rewards, right, tokens, truncated)

    @staticmethod
    def _check_truth(right: FloatArray, place: Place) -> None:
        wrong = ~np.isnan(right) & ~np.isin(right, (0.0, 1.0))
        if wrong.any():
            at = int(np.argmax(wrong))
            msg = (
                f"correctness must be true or false, 0 or 1; got {right[at]:g} {place(at)}. Is it a reward? Then "
                f"name it "
                "by --reward, and --threshold says what is correct"
            )
            raise InputError(msg)

    def _lengths(self, values: Column, place: Place) -> FloatArray:
        tokens = numbers(values, "a count of tokens", place, comma=self.comma)
        if (tokens < 0).any():
            at = int(np.argmax(tokens < 0))
            msg = f"a count of tokens can't be negative; got {tokens[at]:g} {place(at)}"
            raise InputError(msg)
        return tokens

    @staticmethod
    def _cut(values: Column) -> BoolArray:
        def cut(value: Any) -> bool:
            if isinstance(value, str):
                low = value.strip().lower()
                return low in {"true", "1"} or any(word in low for word in _CUT)
            return bool(value) and not is_missing(value)

        return np.fromiter((cut(value) for value in values), dtype=np.bool_, count=len(values))

    def _put(
        self,
        code: IntArray,
        step: FloatArray,
        length: IntArray,
        rewards: FloatArray,
        right: FloatArray | None,
        tokens: FloatArray | None,
        truncated: BoolArray | None,
    ) -> None:
        self.code.append(code.astype(np.int32))
        self.step.append(step)
        self.length.append(length.astype(np.int32))
        self.rewards.append(rewards)
        self.distinct.add(rewards)
        if right is not None:
            self.right.append(right)
        self.tokens.append(
            np.full(rewards.size, math.nan, dtype=np.float32) if tokens is None else tokens.astype(np.float32)
        )
        if truncated is not None:
            self.truncated.append(truncated)

    # One row per prompt, with lists

    def _lists(self, batch: Batch, code: IntArray, step: FloatArray) -> None:
        roles, place = self.roles, batch.place
        names = roles.reward or (str(roles.correct),)
        columns = [self._list_column(batch.column(name), name, place) for name in names]
        lengths, missing, rewards = columns[0]
        for other, _, values in columns[1:]:
            if not np.array_equal(other, lengths):
                at = int(np.argmax(other != lengths))
                msg = f"lists of rewards differ in length, {lengths[at]} and {other[at]}, {place(at)}"
                raise InputError(msg)
            rewards = rewards + values
        if missing.any():
            if roles.declared is None:
                at = int(np.argmax(missing))
                msg = (
                    f"there is no list of rewards {place(at)}, but in other rows; give every prompt one, or counts "
                    f"to all"
                )
                raise InputError(msg)
            self._counts(batch.take(missing), code[missing], step[missing], *roles.declared)
            left = batch.take(~missing)
            if len(left):
                self._lists(left, code[~missing], step[~missing])
            return
        if (lengths == 0).any():
            at = int(np.argmax(lengths == 0))
            msg = f"the list of rewards is empty {place(at)}: without a response there is no pass rate. Remove the row"
            raise InputError(msg)
        right = None
        if roles.reward and roles.correct:
            _, _, right = self._list_column(batch.column(roles.correct), roles.correct, place)
            if right.size != rewards.size:
                msg = f"{shown(roles.correct)} has {right.size} values for {rewards.size} rewards {place(0)} and after"
                raise InputError(msg)
        tokens = self._list_tokens(batch, lengths) if roles.tokens else None
        if roles.declared is not None:
            pair = [numbers(batch.column(name), "a count", place) for name in roles.declared]
            self.declared.append(np.stack(pair, axis=1))
        else:
            self.declared.append(np.full((lengths.size, 2), math.nan))
        self._put(code, step, lengths, rewards, right, tokens, None)

    def _list_column(self, values: Column, name: str, place: Place) -> tuple[IntArray, BoolArray, FloatArray]:
        """Return the length of every list, whether it is missing, and all members."""
        if not isinstance(values, list):
            import polars as pl

            if isinstance(values.dtype, pl.List) and values.dtype.inner.is_numeric() and not values.null_count():
                lengths = np.asarray(values.list.len().to_numpy(), dtype=np.int64)
                members = values.filter(values.list.len() > 0).explode().cast(pl.Float64)
                flat = np.asarray(members.fill_null(math.nan).to_numpy(), dtype=np.float64)
                return lengths, np.zeros(lengths.size, dtype=np.bool_), self._finite(flat, lengths, place)
        given: list[Any] = values if isinstance(values, list) else values.to_list()
        lists = [as_list(value) for value in given]
        missing = np.array([found is None for found in lists], dtype=np.bool_)
        for at in np.nonzero(missing)[0]:
            if given[at] is not None and given[at] != "":
                msg = f"{shown(name)} must be a list of numbers; got {shown(given[at])} {place(int(at))}"
                raise InputError(msg)
        lengths = np.array([0 if found is None else len(found) for found in lists], dtype=np.int64)
        every = list(itertools.chain.from_iterable(found for found in lists if found))
        owner = np.repeat(np.arange(lengths.size), lengths)
        wrong = next((at for at, member in enumerate(every) if is_list(member)), None)
        if wrong is not None:
            msg = (
                f"every value of {shown(name)} must be a number, not a list; got {shown(every[wrong])} "
                f"{place(int(owner[wrong]))}"
            )
            raise InputError(msg)
        return (
            lengths,
            missing,
            numbers(every, f"every value of {shown(name)}", lambda at: place(int(owner[at])), comma=self.comma),
        )

    @staticmethod
    def _finite(flat: FloatArray, lengths: IntArray, place: Place) -> FloatArray:
        if np.isinf(flat).any():
            at = int(np.repeat(np.arange(lengths.size), lengths)[np.argmax(np.isinf(flat))])
            msg = f"a reward must be finite, or null without a score; got inf {place(at)}"
            raise InputError(msg)
        return flat

    def _list_tokens(self, batch: Batch, lengths: IntArray) -> FloatArray:
        name, place = str(self.roles.tokens), batch.place
        values = batch.column(name)
        listed = [as_list(value) for value in values[:50]]
        if all(value is None for value in listed):
            means = values if not isinstance(values, list) else [_mean(value) for value in values]
            return np.repeat(self._lengths(means, place), lengths)
        given, missing, tokens = self._list_column(values, name, place)
        wrong = ~missing & (given != lengths)
        if wrong.any():
            at = int(np.argmax(wrong))
            msg = f"tokens must be a list beside the {lengths[at]} rewards; got {given[at]} values {place(at)}"
            raise InputError(msg)
        if (tokens < 0).any():
            at = int(np.repeat(np.arange(given.size), given)[np.argmax(tokens < 0)])
            msg = f"a count of tokens can't be negative; got {tokens.min():g} {place(at)}"
            raise InputError(msg)
        every = np.full(int(lengths.sum()), math.nan)
        every[np.repeat(~missing, lengths)] = tokens
        return every

    # One row per prompt, with counts

    def _whole(self, values: FloatArray, what: str, place: Place, given: Column) -> IntArray:
        wrong = np.isnan(values) | (values < 0) | (values != np.floor(values)) | (values > _LARGEST)
        if wrong.any():
            at = int(np.argmax(wrong))
            why = "can't be negative" if values[at] < 0 else "must be a whole number"
            msg = f"{what} {why}; got {shown(given[at])} {place(at)}. Mend the value or remove the row"
            raise InputError(msg)
        return values.astype(np.int64)

    def _counts(self, batch: Batch, code: IntArray, step: FloatArray, correct: str, total: str | int | None) -> None:
        place = batch.place
        column = batch.column(correct)
        counted = self._whole(numbers(column, "the number of correct responses", place), shown(correct), place, column)
        self._put_counts(batch, code, step, counted, self._totals(batch, total))

    def _totals(self, batch: Batch, total: str | int | None) -> IntArray:
        if total is None or isinstance(total, int):
            return np.full(len(batch), total or 0)
        column = batch.column(total)
        return self._whole(numbers(column, "the number of responses", batch.place), shown(total), batch.place, column)

    def _put_counts(self, batch: Batch, code: IntArray, step: FloatArray, counted: IntArray, total: IntArray) -> None:
        place = batch.place
        if (total == 0).any():
            at = int(np.argmax(total == 0))
            msg = f"the number of responses is 0 {place(at)}: without one there is no pass rate. Remove the row"
            raise InputError(msg)
        if (counted > total).any():
            at = int(np.argmax(counted > total))
            msg = (
                f"correct must not exceed total; got {counted[at]} of {total[at]} {place(at)}. Are the columns swapped?"
            )
            raise InputError(msg)
        self.count_code.append(code.astype(np.int32))
        self.count_step.append(step)
        self.counted.append(counted)
        self.count_total.append(total)
        tokens = np.full(code.size, math.nan)
        if self.roles.tokens:
            values = [_mean(value) for value in batch.column(self.roles.tokens)]
            tokens = self._lengths(values, place)
        self.count_tokens.append(tokens)

    def _rates(self, batch: Batch, code: IntArray, step: FloatArray) -> None:
        place, column = batch.place, batch.column(str(self.roles.correct))
        shares = [share(value, comma=self.comma) for value in column]
        wrong = next((at for at, found in enumerate(shares) if found is None or not 0 <= found[0] <= 1), None)
        if wrong is not None:
            msg = (
                f"a rate must lie between 0 and 1, or be text such as 62.5% or 5/8; got {shown(column[wrong])} "
                f"{place(wrong)}"
            )
            raise InputError(msg)
        rates = np.array([found[0] for found in shares if found is not None])
        said = np.array([found[1] for found in shares if found is not None])
        total = said
        if np.isnan(said).any():
            if self.roles.total is None:
                at = int(np.argmax(np.isnan(said)))
                msg = (
                    f"{shown(str(self.roles.correct))} holds rates such as {shown(column[at])}, but nothing says of "
                    f"how many "
                    f"responses {place(at)}. Name the column, or give the number: --total-column 16"
                )
                raise InputError(msg)
            total = np.where(np.isnan(said), self._totals(batch, self.roles.total), said)
        total = self._whole(total, "the number of responses", place, column).astype(np.float64)
        hits = rates * total
        counted = np.round(hits)
        # A rate that was rounded to some digits is off by at most half of the last one.
        off = np.abs(hits - counted) > np.minimum(np.array([_rounding(value) for value in column]) * total + 1e-4, 0.49)
        if off.any():
            at = int(np.argmax(off))
            msg = (
                f"a rate of {rates[at]:g} is no whole number of {total[at]:g} responses {place(at)}. Is the total "
                f"right?"
            )
            raise InputError(msg)
        self._put_counts(batch, code, step, counted.astype(np.int64), total.astype(np.int64))


def _rounding(value: Any) -> float:
    """Return half of the last digit of a rate."""
    text = str(value).strip()
    scale = 0.01 if text.endswith("%") else 1.0
    mantissa, _, exponent = text.rstrip("% ").replace(",", ".").lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    power = int(exponent) if exponent.lstrip("+-").isdigit() else 0
    return float(0.5 * scale * 10.0 ** (power - digits)) if digits else 0.0


def _mean(value: Any) -> Any:
    """Return the mean of a list of lengths; anything else as it is."""
    listed = as_list(value)
    if listed is None:
        return value
    known = [found for found in map(number, listed) if found is not None and not is_missing(found)]
    return sum(known) / len(known) if known else None
