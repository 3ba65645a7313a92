"""Replay logged rollouts through the allocator: what a policy would have cost, and what it would have caught.

A prompt whose log ends before the policy would stop is *censored* where the log can't fill a
round: its responses are used up to the end of the round before, and everything reported holds
the best and the worst of what the missing responses, taken as scored, could still have brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Allocator, Policy
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.programs.records import to_csv
from ada_bandit.tables import Tables
from ada_bandit.uniforms import fold_seed
from sim.censored import Ahead, Censored, Ends, fill_in
from sim.labels import distinct_labels, first_grpo
from sim.logs import CountLog, Layout, Log, Order, RewardLog
from sim.stopped import Study
from sim.words import plural

__all__ = ["ORDERS", "Replay", "ReplayedPolicy", "Span", "plain_signal", "replay_log"]

ORDERS = 20
"""Random orders that are replayed unless told otherwise."""

_PLAIN = 4
# Standard deviations at which chance is no explanation.
_CLUMPED = 5


@dataclass(frozen=True)
class Span:
    """A mean over prompts and passes between what it is in the best and in the worst case."""

    low: float
    """Lowest value; that of `high` where no prompt is censored."""
    high: float
    """Highest value."""
    spread: float | None = None
    """Standard deviation over the orders, of the end that varies more; None for a single pass."""

    @property
    def known(self) -> bool:
        """Whether both ends are the same."""
        return self.high - self.low <= 1e-12 * max(abs(self.high), 1)


@dataclass(frozen=True)
class ReplayedPolicy:
    """What one policy would have done on the log; shares and means over all prompts, averaged over the orders."""

    policy: str
    """The policy's label."""
    group_size: int
    """n."""
    responses: Span
    """Responses per prompt."""
    cost: Span
    """Responses per prompt over those of the reference (`Replay.reference`)."""
    rounds: Span
    """Rounds per prompt."""
    tokens: Span | None
    """Tokens per prompt, a missing response counted with its prompt's mean; None where the log has no tokens."""
    token_cost: Span | None
    """Tokens per prompt over those of the reference."""
    signal: Span
    """Share of prompts whose group holds both classes."""
    resolved: Span
    """Share of prompts whose exit rule holds at the exit."""
    exhausted: Span
    """Share of prompts that exit otherwise."""
    short_of_positives: Span
    """Share of prompts that exit unresolved short of positives."""
    short_of_negatives: Span
    """Share of prompts that exit unresolved short of negatives."""
    plain_no_signal: float | None
    """Share of prompts that n plain responses would leave without signal: exact for n drawn from a plain log,
    an estimate for one that is stopped or a selection."""
    plain_how: str
    """What that rests on; empty where it is exact."""
    plain_unknown: int
    """Prompts with fewer than n scored responses, which are left out of it."""
    pass_rate: Span | None
    """Pass rate of the prompts, estimated without bias at exit or end of log; None where there is no estimate."""
    log_pass_rate: float
    """Mean of correct / scored responses over the prompts of a plain log; of another one, the estimate of `Study`."""
    unscored: float
    """Responses without a score that the policy would have paid for, in all."""
    censored: float
    """Censored prompts."""
    censored_prompts: dict[str, int]
    """In how many of the orders each prompt was censored, by its id; only those that were."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A replay of policies on one log, with everything that is needed to make it again."""

    policies: tuple[Policy, ...]
    """The policies, with labels that differ."""
    log: Log
    """The log."""
    label: str
    """What tables and figures call the log."""
    rows: tuple[ReplayedPolicy, ...]
    """One a policy, in order."""
    responses: tuple[tuple[FloatArray, FloatArray], ...]
    """`[policy]` lowest and highest mean over the orders of every prompt's responses, `[prompt]` each."""
    rates: FloatArray
    """`[prompt]` Correct / scored responses of the log under the first policy; NaN without a scored one."""
    order: Order
    """How the responses were drawn."""
    repeats: int
    """Passes over the log."""
    seed: int
    """Seed of the orders and of the groups."""
    threshold: float | None
    """Threshold of correctness where it is not the policies' own."""
    reference: str
    """What `ReplayedPolicy.cost` is a ratio to, in words."""
    notes: tuple[str, ...]
    """How the log was read and replayed, and what came out, in words."""

    def configuration(self) -> dict[str, Any]:
        """Return everything the replay depends on, as plain values."""
        return {
            "version": ada_bandit.__version__,
            "log": self.label,
            "order": str(self.order),
            "repeats": self.repeats,
            "seed": self.seed,
            "threshold": self.threshold,
            "policies": [policy.to_dict() for policy in self.policies],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the replay as plain values for JSON."""
        return {
            "configuration": self.configuration(),
            "prompts": len(self.log.prompt_ids),
            "notes": [*self.notes],
            "cost_reference": self.reference,
            "policies": [asdict(row) for row in self.rows],
        }

    def to_csv(self) -> str:
        """Return the rows as CSV text, with columns for the lowest and highest value and the spread of a span."""
        records = []
        for row in self.rows:
            record: dict[str, Any] = {}
            for name, value in vars(row).items():
                if name in _SPANS:
                    parts = {"low": None, "high": None, "spread": None} if value is None else asdict(value)
                    record |= {f"{name}_{part}": number for part, number in parts.items()}
                elif name != "censored_prompts":
                    record[name] = value
            records.append(record)
        return to_csv(records)


_SPANS = tuple(name for name, kind in ReplayedPolicy.__annotations__.items() if str(kind).startswith("Span"))


def replay_log(
    policies: Sequence[Policy],
    log: Log,
    *,
    label: str = "log",
    order: Order | None = None,
    repeats: int | None = None,
    seed: int = 0,
    threshold: float | None = None,
    study: Study | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replay:
    """Replay policies on a log.

    In each pass all policies meet the same responses in the same order.

    Parameters
    ----------
    policies
        At least one.
    log
        The log.
    label
        What tables and figures call the log.
    order
        How a prompt's responses are drawn: as logged (the default where the order is known), in a
        random order without replacement (otherwise), or with replacement.
    repeats
        Random orders, `ORDERS` unless given; the logged order is one.
    seed
        Seed of the orders and of the groups.
    threshold
        The reward that a correct response exceeds, in place of the log's classes and the policies' own.
    study
        How the log came about; taken for a plain one unless given.
    progress
        Called with the number of prompts just replayed.

    Raises
    ------
    InputError
        If there is no policy, a number is below 1, or the log knows no order or no rewards where
        they are asked for.
    """
    if not policies:
        msg = "nothing to replay: give at least one policy"
        raise InputError(msg)
    order, repeats = _check_order(log, order, repeats)
    if threshold is not None:
        threshold = check_number("threshold", threshold)
        if isinstance(log, CountLog):
            msg = f"a threshold of {threshold:g} is for rewards, and the log holds counts; leave it out"
            raise InputError(msg)
        log = replace(log, right=None)
    study = None if study is None or study.plain else study
    policies = distinct_labels(policies)
    baseline = first_grpo(policies)
    size = _PLAIN if baseline is None else policies[baseline].n
    reference = f"{size} responses per prompt"
    if baseline is not None:
        reference = f"{policies[baseline].label} ({reference})"
    limits = [log.threshold(policy.threshold if threshold is None else threshold) for policy in policies]
    totals = [_Total(policy, log, limit, size, study) for policy, limit in zip(policies, limits, strict=True)]
    width = max(size, *(policy.tables.max_samples for policy in policies))
    for repeat in range(repeats):
        key = fold_seed(seed, repeat)
        layout = log.layout(order, width, key)
        for total in totals:
            total.add(layout, key)
            if progress is not None:
                progress(len(log.prompt_ids))
    rows = tuple(total.row(order) for total in totals)
    notes = (*_head(log, order, repeats, threshold), *_came_about(study, order), *_findings(order, rows, policies))
    if order is Order.logged and isinstance(log, RewardLog) and study is None:
        notes += _clumped(log, totals[0].threshold)
    prompts = tuple(total.per_prompt() for total in totals)
    correct, scored = log.counts(totals[0].threshold)
    rates = np.divide(correct, scored, out=np.full(scored.shape, np.nan), where=scored > 0)
    return Replay(policies, log, label, rows, prompts, rates, order, repeats, seed, threshold, reference, notes)


def _check_order(log: Log, order: Order | None, repeats: int | None) -> tuple[Order, int]:
    if order is None:
        order = Order.logged if log.ordered else Order.shuffled
    if order is Order.logged:
        if not log.ordered:
            msg = "the log holds counts, so no order of responses is known; replay it shuffled or by bootstrap"
            raise InputError(msg)
        if repeats not in {None, 1}:
            msg = f"the logged order is one pass, not {repeats!r}; shuffle the responses for several orders"
            raise InputError(msg)
        return order, 1
    return order, ORDERS if repeats is None else check_count("repeats", repeats)


# One pass of one policy


@dataclass(frozen=True, eq=False)
class _Pass:
    """Where the prompts of one pass came to rest; every array is `[prompt]`."""

    ends: Ends
    censored: BoolArray
    estimate: FloatArray
    """Unbiased estimate of the pass rate; NaN where there is none."""
    used: IntArray
    """Logged responses that were used."""


def _replay_once(policy: Policy, layout: Layout, threshold: float, seed: int, ahead: Ahead) -> _Pass:
    """Drive an allocator over a layout.

    The responses that a log can't give are told without a score, so that the allocator comes
    to an end and the cell stays where the log left it; what those prompts bring is put in its
    place from `ahead`.
    """
    tables, prompts = policy.tables, layout.available.size
    correct = layout.correct(threshold)
    allocator = Allocator(policy, prompts, seed)
    used, rounds, asked, everything = np.zeros((4, prompts), dtype=np.int64)
    censored = np.zeros(prompts, dtype=np.bool_)
    while request := allocator.ask():
        wanted = np.bincount(request.prompts, minlength=prompts)
        ended = ~censored & (used + wanted > layout.available)
        censored |= ended
        asked[ended] = wanted[ended]
        everything += wanted
        used += np.where(censored, 0, wanted)
        rounds += ~censored & (wanted > 0)
        at = request.prompts, request.draws
        rewards = np.where(censored[request.prompts], np.nan, layout.rewards[at])
        allocator.tell(request.ids, rewards, correct[at])
    groups = allocator.groups()
    cell = groups.pos, groups.neg
    seen = {
        "responses": used,
        "rounds": rounds,
        "signal": groups.signal,
        "resolved": groups.resolved,
        "short_of_positives": tables.short_of_positives[cell],
        "short_of_negatives": tables.short_of_negatives[cell],
    }
    ends = {name: (value.astype(np.float64), value.astype(np.float64)) for name, value in seen.items()}
    if censored.any():
        fill_in(ends, censored, Censored.of(layout, correct, used, rounds, asked, cell), ahead)
    if tables.shared:
        # What the batch spends does not hang on the rewards of one prompt.
        ends["responses"] = everything.astype(np.float64), everything.astype(np.float64)
    return _Pass(ends, censored, _estimate(tables, layout, correct, used, cell), used)


def _estimate(
    tables: Tables, layout: Layout, correct: BoolArray, used: IntArray, cell: tuple[IntArray, IntArray]
) -> FloatArray:
    """Return the unbiased estimate of each prompt's pass rate, NaN where there is none.

    The end of a log is a stopping rule like any other: the share of paths whose first response
    is correct is unbiased there as well, if the order is one of independent draws. A log that
    can't fill the first round gives its mean.
    """
    if tables.shared:
        return np.full(used.shape, np.nan)
    pos, neg = cell
    estimate = np.where(pos + neg > 0, tables.estimate[cell], np.nan)
    unstarted = used == 0
    inside = np.arange(layout.rewards.shape[1]) < layout.available[:, None]
    scored = (inside & ~np.isnan(layout.rewards)).sum(axis=1)
    right = (inside & correct).sum(axis=1)
    mean = np.divide(right, scored, out=np.full(used.shape, np.nan), where=scored > 0)
    return np.asarray(np.where(unstarted, mean, estimate), dtype=np.float64)


# Sums over passes


class _Total:
    """The passes of one policy, added up."""

    def __init__(self, policy: Policy, log: Log, threshold: float, plain: int, study: Study | None) -> None:
        self.policy, self.log, self.threshold, self.plain, self.study = policy, log, threshold, plain, study
        self.ahead = Ahead(policy.tables)
        self.means: list[dict[str, tuple[float, float]]] = []
        self.censored = np.zeros(len(log.prompt_ids), dtype=np.int64)
        self.unscored = 0
        self.responses = np.zeros((2, len(log.prompt_ids)))

    def add(self, layout: Layout, seed: int) -> None:
        """Replay one pass."""
        seen = _replay_once(self.policy, layout, self.threshold, seed, self.ahead)
        low, high = seen.ends["responses"]
        means = {name: (float(a.mean()), float(b.mean())) for name, (a, b) in seen.ends.items()}
        means["cost"] = means["responses"][0] / self.plain, means["responses"][1] / self.plain
        resolved = means["resolved"]
        means["exhausted"] = 1 - resolved[1], 1 - resolved[0]
        known = ~np.isnan(seen.estimate)
        if known.any():
            means["pass_rate"] = (float(seen.estimate[known].mean()),) * 2
        if layout.tokens is not None:
            tokens = [float(self._tokens(layout, seen.used, end).mean()) for end in (low, high)]
            used = np.minimum(layout.available, self.plain)
            unit = float(self._tokens(layout, used, np.full(used.shape, float(self.plain))).mean())
            means["tokens"] = tokens[0], tokens[1]
            if unit > 0:
                means["token_cost"] = tokens[0] / unit, tokens[1] / unit
        self.means.append(means)
        self.censored += seen.censored
        self.responses += seen.ends["responses"]
        drawn = np.arange(layout.rewards.shape[1]) < seen.used[:, None]
        self.unscored += int((drawn & np.isnan(layout.rewards)).sum())

    def _tokens(self, layout: Layout, used: IntArray, responses: FloatArray) -> FloatArray:
        """Return every prompt's tokens: of the responses used, and the mean for each one missing, ``[prompt]``."""
        tokens, means = layout.tokens, self.log.mean_tokens
        if tokens is None or means is None:
            return np.full(used.shape, np.nan)
        drawn = np.arange(tokens.shape[1]) < used[:, None]
        return np.asarray((tokens * drawn).sum(axis=1) + (responses - used) * means)

    def per_prompt(self) -> tuple[FloatArray, FloatArray]:
        """Return the lowest and highest mean responses of every prompt."""
        low, high = self.responses / len(self.means)
        return low, high

    def row(self, order: Order) -> ReplayedPolicy:
        """Return the means over the passes."""
        passes = len(self.means)
        no_signal, how, unknown, pass_rate = self._plain(order)
        return ReplayedPolicy(
            policy=self.policy.label,
            group_size=self.policy.n,
            plain_no_signal=no_signal,
            plain_how=how,
            plain_unknown=unknown,
            log_pass_rate=pass_rate,
            unscored=self.unscored / passes,
            censored=float(self.censored.sum() / passes),
            censored_prompts={self.log.prompt_ids[i]: int(self.censored[i]) for i in np.nonzero(self.censored)[0]},
            **{name: self._span(name) for name in _SPANS},
        )

    def _plain(self, order: Order) -> tuple[float | None, str, int, float]:
        """Return what n plain responses leave without signal, why, prompts without answer, and the mean pass rate."""
        if self.study is not None and self.policy.n > 1:
            # Parts of a stopped pool are no plain responses.
            found = self.study.plain_signal(self.policy.n)
            return 1 - found.value, found.how, 0, self.study.pass_rate.value
        correct, total = self.log.counts(self.threshold)
        signal = plain_signal(correct, total, self.policy.n, replace=order is Order.bootstrap)
        known, scored = ~np.isnan(signal), total > 0
        no_signal = float(1 - signal[known].mean()) if known.any() else None
        return no_signal, "", int((~known).sum()), float((correct[scored] / total[scored]).mean())

    def _span(self, name: str) -> Any:
        """Return a span, None where a pass lacks the quantity."""
        if any(name not in means for means in self.means):
            return None
        values = np.array([means[name] for means in self.means])
        spread = float(values.std(axis=0, ddof=1).max()) if len(values) > 1 else None
        low, high = values.mean(axis=0)
        return Span(float(low), float(high), spread)


def plain_signal(correct: IntArray, total: IntArray, n: int, *, replace: bool = False) -> FloatArray:
    """Return the chance that n responses drawn from a log hold both classes, ``[prompt]``.

    Parameters
    ----------
    correct, total
        ``[prompt]`` correct and scored responses in the log.
    n
        Responses drawn.
    replace
        Whether they are drawn with replacement: 1 - p^n - q^n with p = correct / total, in place
        of the hypergeometric law.

    Returns
    -------
    FloatArray
        ``[prompt]``; NaN where the log holds fewer than n responses, or none.
    """
    total = total.astype(np.float64)
    missing = np.zeros(total.shape)
    for count in (correct, total - correct):
        chance = np.ones(total.shape)
        for drawn in range(n):
            gone = 0 if replace else drawn
            chance *= np.maximum(count - gone, 0) / np.maximum(total - gone, 1)
        missing += chance
    enough = total >= (1 if replace else n)
    return np.where(enough, np.maximum(1 - missing, 0), np.nan)


# Words


def _head(log: Log, order: Order, repeats: int, threshold: float | None) -> Iterator[str]:
    """Say what the log is and how it was drawn."""
    prompts, smallest, largest = len(log.prompt_ids), int(log.lengths.min()), int(log.lengths.max())
    responses = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    yield f"{prompts} {plural(prompts, 'prompt')} with {responses} responses each"
    yield from log.notes
    if threshold is not None:
        yield f"a reward above {threshold:g} is correct, in place of the policies' own threshold"
    if order is Order.logged:
        yield "drawn in logged order: one pass (--shuffle draws random orders)"
        return
    orders = f"{repeats} {plural(repeats, 'order')}"
    spread = "; ± is the standard deviation over them, not the error from the choice of prompts" if repeats > 1 else ""
    if order is Order.shuffled:
        yield f"drawn without replacement in {repeats} random {plural(repeats, 'order')}{spread}"
    else:
        yield (
            f"bootstrap: drawn with replacement from each prompt's log, {orders}{spread}. Nothing is censored; "
            "correct/total of a prompt is taken as its pass rate, 0 and 1 included"
        )


def _came_about(study: Study | None, order: Order) -> Iterator[str]:
    """Say what a replay of a log means that is no plain sample."""
    if study is None:
        return
    yield from study.notes
    if not study.whole:
        yield (
            "the log is a selection of what was drawn, so no policy would have met it: this replay says what the rows "
            "at hand would do, and nothing of the prompts (python -m sim compare takes the law behind them)"
        )
    elif order is Order.logged:
        yield (
            "these pools ended by their own rewards, and a replay can only draw what the log holds: the first "
            "responses in logged order are plain draws, and where a policy would go on beyond a pool's end "
            "the prompt is censored"
        )
    else:
        how = "with replacement" if order is Order.bootstrap else "in a random order"
        yield (
            f"these pools ended by their own rewards, so responses drawn {how} are no plain ones, and what is replayed "
            "is biased; the logged order is plain, and python -m sim compare takes the law behind the pools"
        )


def _findings(order: Order, rows: Sequence[ReplayedPolicy], policies: Sequence[Policy]) -> Iterator[str]:
    """Say what was censored, and what plain sampling would have left."""
    if any(row.censored for row in rows):
        yield (
            "a prompt is censored where its log ends before the policy would stop; ranges hold the worst and the best "
            "that its missing responses could bring, were they scored"
        )
    for row, policy in zip(rows, policies, strict=True):
        if row.censored and policy.tables.shared:
            yield (
                f"{row.policy}: the budget is shared, so the missing responses decide on other prompts as well; here "
                "they count as spent and without a score"
            )
    unscored = {row.policy: row.unscored for row in rows if row.unscored}
    if unscored:
        counts = ", ".join(f"{name} {count:g}" for name, count in unscored.items())
        yield f"responses without a score that were paid for: {counts}"
    for n in dict.fromkeys(row.group_size for row in rows):
        row = next(row for row in rows if row.group_size == n)
        if row.plain_no_signal is not None:
            if row.plain_how:
                share = f"{row.plain_no_signal:.1%} of the prompts without signal"
                yield f"{n} plain responses would leave {share} ({row.plain_how})"
                continue
            short = f"; {row.plain_unknown} prompts with fewer are left out" if row.plain_unknown else ""
            how = "drawn with replacement from" if order is Order.bootstrap else "of"
            yield (
                f"{n} plain responses {how} the same log would leave {row.plain_no_signal:.1%} of the prompts without "
                f"signal (exact){short}"
            )


def _clumped(log: RewardLog, threshold: float) -> tuple[str, ...]:
    """Say so where the logged order can't be that of independent draws.

    Given its counts, a prompt in random order changes class between neighbours 2 k (t - k) / t
    times on average, with a known variance (the runs test of Wald and Wolfowitz 1940).
    """
    correct = log.correct(threshold)[~np.isnan(log.rewards)]
    pos, total = (count.astype(np.float64) for count in log.counts(threshold))
    prompt = np.repeat(np.arange(total.size), total.astype(np.int64))
    seen = int(((correct[1:] != correct[:-1]) & (prompt[1:] == prompt[:-1])).sum())
    twice = 2 * pos * (total - pos)
    mean = float((twice / np.maximum(total, 1)).sum())
    variance = float((twice * (twice - total) / np.maximum(total**2 * (total - 1), 1)).sum())
    z = (seen - mean) / variance**0.5 if variance > 0 else 0.0
    if abs(z) < _CLUMPED:
        return ()
    note = (
        f"the logged order is not that of independent draws: neighbours differ in class {seen} times where a random "
        f"order would make it {mean:.0f} ({abs(z):.1f} standard deviations off), so what was replayed holds for this "
        "order alone (--shuffle draws random orders)"
    )
    return (note,)
