"""Which column is what: named by the user, or told by the name and by what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ada_bandit.errors import InputError
from sim.readers.options import ReadOptions, option_of
from sim.readers.streams import shown
from sim.readers.values import as_list, follow, is_missing, number, share

__all__ = ["SPLITTING", "Kind", "Roles", "guess", "two_steps"]


class Kind(StrEnum):
    """What a row is."""

    response = "one row per response"
    rewards = "one row per prompt, with a list of rewards"
    counts = "one row per prompt, with counts"
    rate = "one row per prompt, with a rate"


@dataclass(frozen=True)
class Roles:
    """The columns by what they hold; a column is a dotted path."""

    kind: Kind
    prompt: str | None
    """None where every row is a prompt without a name."""
    reward: tuple[str, ...] = ()
    """Added up."""
    correct: str | None = None
    """Correctness, a count or a rate, by the kind."""
    total: str | int | None = None
    step: str | None = None
    tokens: str | None = None
    truncated: str | None = None
    error: str | None = None
    """Where it says something, the response has no score."""
    declared: tuple[str, str] | None = None
    """Counts beside a list of rewards, which have to agree with it."""
    splitting: tuple[str, ...] = ()
    """Columns with several values that a log shouldn't mix."""
    guessed: tuple[str, ...] = field(default=())
    """The roles that nobody named."""

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        one = (self.prompt, *self.reward, self.correct, self.step, self.tokens, self.truncated, self.error)
        total = self.total if isinstance(self.total, str) else None
        every = (*one, total, *(self.declared or ()), *self.splitting)
        return list(dict.fromkeys(name for name in every if name is not None))

    def described(self) -> str:
        """Say what was taken for what."""
        parts = [f"prompt = {shown(self.prompt) if self.prompt else 'the row'}"]
        if self.reward:
            parts.append("reward = " + " + ".join(map(shown, self.reward)))
        for role in ("correct", "total", "step", "tokens"):
            value = getattr(self, role)
            if value is not None:
                parts.append(f"{role} = {value if isinstance(value, int) else shown(value)}")
        return ", ".join(parts)


_PROMPT = (
    "prompt_id", "problem_id", "question_id", "task_id", "example_id", "instance_id", "prompt_idx", "problem_idx",
    "question_idx", "task_idx", "task_index", "_ng_task_index", "doc_id", "sample_idx", "unique_id", "group_id",
    "group_idx", "group_index", "qid", "task_hash", "prompt_hash", "problem", "question", "prompt", "task", "input",
    "id", "_id", "idx", "index", "name", "key", "uid",
)  # fmt: skip
_REWARD = (
    "rewards", "reward", "scores", "score", "total_reward", "final_reward", "correctness", "is_correct", "corrects",
    "passed", "pass", "acc", "accuracy", "success", "solved", "resolved", "results", "result", "outcomes", "outcome",
    "verdicts", "grades", "grade", "labels", "is_right", "exact_match", "correct",
)  # fmt: skip
_TRUTH = {
    "correctness", "is_correct", "corrects", "passed", "pass", "acc", "success", "solved", "resolved", "correct",
    "is_right", "exact_match",
}  # fmt: skip
_COUNT = (
    "correct", "n_correct", "num_correct", "correct_count", "count_correct", "corrects", "n_pass", "num_pass",
    "n_passed", "num_passed", "passed", "passes", "pass_count", "n_success", "num_success", "num_successes",
    "successes", "success_count", "solved", "n_solved", "num_solved", "pos", "positives", "c",
)  # fmt: skip
_TOTAL = (
    "total", "n_total", "num_total", "total_count", "n_samples", "num_samples", "n_responses", "num_responses",
    "n_rollouts", "num_rollouts", "n_generations", "num_generations", "n_attempts", "num_attempts", "n_completions",
    "num_completions", "attempts", "trials", "samples", "rollouts", "count", "n",
)  # fmt: skip
_RATE = (
    "pass_rate", "solve_rate", "success_rate", "correct_rate", "passrate", "pass@1", "pass_at_1", "mean_reward",
    "avg_reward", "mean_score", "avg_score", "accuracy", "acc", "rate", "difficulty_rate",
)  # fmt: skip
_STEP = ("step", "global_step", "training_step", "train_step", "iteration", "iter")
_TOKENS = (
    "tokens", "response_tokens", "completion_tokens", "output_tokens", "n_tokens", "num_tokens", "response_length",
    "completion_length", "response_lengths", "completion_lengths", "output_length", "gen_length", "lengths", "length",
    "mean_response_tokens",
)  # fmt: skip
_TRUNCATED = ("is_truncated", "truncated", "stop_reason", "finish_reason", "stop_condition", "finish_reasons")
_ERROR = ("error", "errors", "exception")
SPLITTING = (
    "model",
    "model_name",
    "model_id",
    "checkpoint",
    "filter",
    "temperature",
    "dataset_split",
    "split",
    "method",
)
_BESIDE = (*SPLITTING, "k", "metric", "dataset", "seed", "run")
_INSIDE = (
    "completions",
    "responses",
    "samples",
    "rollouts",
    "generations",
    "trajectories",
    "attempts",
    "results",
    "outputs",
)


def _names(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the columns by their names in lower case."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name.strip().lower(): name for name in reversed(list(names))}


def _values(rows: Sequence[dict[str, Any]], path: str) -> list[Any]:
    """Return what is there under a path."""
    found = (follow(row, path) for row in rows)
    return [value for value in found if value is not None and value != ""]


def guess(rows: Sequence[dict[str, Any]], options: ReadOptions, where: str, *, comma: bool = False) -> Roles:
    """Return what the columns are.

    Parameters
    ----------
    rows
        The first rows.
    options
        What the user named.
    where
        The file, for messages.
    comma
        Whether a comma may stand before decimals.

    Raises
    ------
    InputError
        If no rewards, counts or rates can be told, or no prompts; it says what is there.
    """
    names = _names(rows)
    _check_named(rows, options, where)
    guessed: list[str] = []

    def pick(role: str, known: Sequence[str], fits: Any) -> str | None:
        given = getattr(options, role, None)
        if given is not None:
            return str(given)
        for name in known:
            if name in names and fits(_values(rows, names[name])):
                guessed.append(role)
                return names[name]
        return None

    def numeric(values: list[Any]) -> bool:
        return bool(values) and all(number(value, comma=comma) is not None for value in values)

    def whole(values: list[Any]) -> bool:
        return numeric(values) and all(float(number(value) or 0).is_integer() for value in values)

    beside: dict[str, Any] = {
        "step": pick("step", _STEP, whole),
        "tokens": pick("tokens", _TOKENS, lambda values: numeric(values) or _all_lists(values)),
        "truncated": pick("truncated", _TRUNCATED, bool),
        "error": pick("error", _ERROR, bool),
        "splitting": tuple(
            names[name] for name in SPLITTING if name in names and not _all_lists(_values(rows, names[name]))
        ),
    }
    found = _what(rows, names, options, guessed, comma=comma, whole=whole)
    if found is None:
        raise InputError(_nothing(rows, names, where))
    prompt = options.prompt or _prompt(rows, names, found)
    if options.prompt is None and prompt is not None:
        guessed.append("prompt")
    if prompt is None and found.kind is Kind.response:
        columns = ", ".join(shown(name) for name in list(names.values())[:12])
        msg = (
            f"{where} has a row per response, but no column that tells whose: its columns are {columns}. Name it, for "
            f"example: --prompt {next(iter(names.values()))}"
        )
        raise InputError(msg)
    taken = {prompt, *found.reward, found.correct, found.total}
    beside = {role: None if value in taken else value for role, value in beside.items()}
    if beside["splitting"] is None:
        beside["splitting"] = ()
    return replace(found, prompt=prompt, guessed=tuple(dict.fromkeys(guessed)), **beside)


def _check_named(rows: Sequence[dict[str, Any]], options: ReadOptions, where: str) -> None:
    for role in ("prompt", "reward", "correct", "total", "step", "tokens"):
        given = getattr(options, role)
        if given is None or (role == "total" and str(given).isdigit()):
            continue
        for path in str(given).split("+") if role == "reward" else [str(given)]:
            if not any(follow(row, path.strip()) is not None for row in rows):
                columns = ", ".join(
                    shown(name) for name in list(dict.fromkeys(name for row in rows for name in row))[:12]
                )
                msg = f"{where} has no column {shown(path.strip())} ({option_of(role)}); its columns are {columns}"
                raise InputError(msg)


def _all_lists(values: list[Any]) -> bool:
    return bool(values) and all(as_list(value) is not None for value in values)


def _what(
    rows: Sequence[dict[str, Any]],
    names: dict[str, str],
    options: ReadOptions,
    guessed: list[str],
    *,
    comma: bool,
    whole: Any,
) -> Roles | None:
    """Return the columns that say how the responses came out."""
    total: str | int | None = options.total
    if total is not None and str(total).isdigit():
        total = int(total)
    reward = tuple(path.strip() for path in options.reward.split("+")) if options.reward else ()
    correct = options.correct
    if not reward and correct is None:
        reward = _list_of(rows, names)
        if reward:
            guessed.append("reward")
    if reward and _all_lists(_values(rows, reward[0])):
        declared = _counts(rows, names, whole)
        beside = correct if correct is not None and _all_lists(_values(rows, correct)) else None
        return Roles(Kind.rewards, None, reward, beside, declared=declared)
    if correct is not None and _all_lists(_values(rows, correct)):
        return Roles(Kind.rewards, None, (), correct)
    if not reward and correct is None and total is None:
        pair = _counts(rows, names, whole)
        if pair is not None:
            guessed += ["correct", "total"]
            return Roles(Kind.counts, None, (), pair[0], pair[1])
    if correct is None and not reward:
        correct, reward, rate = _one_of(rows, names, total, comma=comma)
        if correct is None and not reward:
            return None
        guessed.append("reward" if reward else "correct")
        if rate:
            return Roles(Kind.rate, None, (), correct, _total(names, total, guessed))
    if correct is not None and not reward:
        values = _values(rows, correct)
        texts = any(isinstance(value, str) and ("%" in value or "/" in value) for value in values)
        fractional = any(
            not float(number(value, comma=comma) or 0).is_integer()
            for value in values
            if not isinstance(value, str) or not texts
        )
        known = total if total is not None else _total(names, None, []) if not _is_truth(values) else None
        small = all(0 <= float(number(value, comma=comma) or 0) <= 1 for value in values) if not texts else True
        if texts or (fractional and small and known is not None):
            return Roles(Kind.rate, None, (), correct, known)
        if known is not None:
            if total is None:
                guessed.append("total")
            return Roles(Kind.counts, None, (), correct, known)
        if not _is_truth(values):
            if whole(values) or fractional:
                example = max((float(number(value) or 0) for value in values), default=0)
                msg = (
                    f"{shown(correct)} holds {'counts' if whole(values) else 'rates'} such as {example:g}, but no "
                    f"column says "
                    "of how many responses. Name it, or give the number: --total-column 16"
                )
                raise InputError(msg)
            return None
    return Roles(Kind.response, None, reward, correct)


def _is_truth(values: list[Any]) -> bool:
    return bool(values) and all(number(value) in {0.0, 1.0} for value in values)


def _total(names: dict[str, str], given: str | int | None, guessed: list[str]) -> str | int | None:
    if given is not None:
        return given
    found = next((names[name] for name in _TOTAL if name in names), None)
    if found is not None:
        guessed.append("total")
    return found


def _counts(rows: Sequence[dict[str, Any]], names: dict[str, str], whole: Any) -> tuple[str, str] | None:
    correct = next(
        (names[name] for name in _COUNT if name in names and _counted(_values(rows, names[name]), whole)), None
    )
    total = next(
        (names[name] for name in _TOTAL if name in names and _counted(_values(rows, names[name]), whole)), None
    )
    return None if correct is None or total is None else (correct, total)


def _counted(values: list[Any], whole: Any) -> bool:
    return (
        bool(values)
        and not any(isinstance(value, bool) or as_list(value) is not None for value in values)
        and whole(values)
    )


def _list_of(rows: Sequence[dict[str, Any]], names: dict[str, str]) -> tuple[str, ...]:
    """Return the column of lists of rewards, also inside of a list of objects."""
    for name in _REWARD:
        if name in names:
            values = [as_list(value) for value in _values(rows, names[name])]
            if values and all(value is not None for value in values):
                members = [member for value in values for member in value or ()]
                if members and all(isinstance(member, dict) for member in members):
                    inner = _inner(members)
                    if inner is not None:
                        return (f"{names[name]}[].{inner}",)
                elif any(number(member) is not None for member in members):
                    return (names[name],)
    for name in (*_INSIDE, *names):
        if name in names:
            values = [as_list(value) for value in _values(rows, names[name])]
            members = [member for value in values for member in value or ()]
            if members and all(isinstance(member, dict) for member in members):
                inner = _inner(members)
                if inner is not None:
                    return (f"{names[name]}[].{inner}",)
    return ()


def _inner(members: Sequence[dict[str, Any]]) -> str | None:
    inside = _names(members)
    for name in _REWARD:
        if name in inside:
            values = _values(members, inside[name])
            if values and all(number(value) is not None for value in values):
                return inside[name]
    return None


def _one_of(
    rows: Sequence[dict[str, Any]], names: dict[str, str], total: str | int | None, *, comma: bool
) -> tuple[str | None, tuple[str, ...], bool]:
    """Return a column of correctness or of rewards, and whether it is a rate."""
    rates = [name for name in _RATE if name in names]
    rates += [name for name in names if name not in rates and (name.endswith(("_rate", "_pass_rate")))]
    for name in rates:
        values = _values(rows, names[name])
        shares = [share(value, comma=comma) for value in values]
        if not values or any(found is None or not 0 <= found[0] <= 1 for found in shares):
            continue
        texts = any(isinstance(value, str) and ("%" in value or "/" in value) for value in values)
        fractional = any(found is not None and not found[0].is_integer() for found in shares)
        certain = "rate" in name or name.startswith("pass")
        if texts or certain or (fractional and (total is not None or _total(names, None, []) is not None)):
            return names[name], (), True
    # A reward beside a correctness: the one is shown, the other decides.
    truth = reward = None
    for name in _REWARD:
        if name in names:
            values = _values(rows, names[name])
            if not values or any(number(value, comma=comma) is None for value in values):
                continue
            if name in _TRUTH and _is_truth(values):
                truth = truth or names[name]
            elif name not in _TRUTH:
                reward = reward or names[name]
    if truth or reward:
        return truth, (reward,) if reward else (), False
    for name in _COUNT:
        if name in names and _values(rows, names[name]):
            return names[name], (), False
    return None, (), False


def _prompt(rows: Sequence[dict[str, Any]], names: dict[str, str], found: Roles) -> str | None:
    """Return the column that names prompts; of several, one whose values repeat where rows are responses."""
    used = {*found.reward, found.correct, found.total}
    there = [
        names[name] for name in _PROMPT if name in names and names[name] not in used and _values(rows, names[name])
    ]
    if found.kind is not Kind.response or len(there) < 2:
        return there[0] if there else None
    for name in there:
        values = [str(value) for value in _values(rows, name)]
        if len(set(values)) < len(values):
            return name
    return there[0]


def two_steps(names: Sequence[str]) -> list[str]:
    """Return the columns that may tell apart rows of one prompt."""
    low = {name.lower(): name for name in names}
    return [low[name] for name in _BESIDE if name in low] + [name for name in names if name.lower() not in _BESIDE]


def _nothing(rows: Sequence[dict[str, Any]], names: dict[str, str], where: str) -> str:
    columns = ", ".join(shown(name) for name in list(names.values())[::-1][:12]) or "none"

    def numeric(value: Any) -> bool:
        members = as_list(value)
        return number(value) is not None or bool(members and all(number(each) is not None for each in members))

    candidates = [
        name for name in names.values() if (values := _values(rows, name)) and all(map(numeric, values))
    ]  # fmt: skip
    example = next(
        (names[name] for name in _PROMPT if name in names), list(names.values())[-1] if names else "prompt_id"
    )
    first = next((name for name in candidates[::-1] if name != example), "COLUMN")
    empty = [
        name for low, name in names.items()
        if low in {*_REWARD, *_COUNT, *_TOTAL} and not any(as_list(value) for value in _values(rows, name))
        and not any(number(value) is not None and not is_missing(number(value)) for value in _values(rows, name))
    ]  # fmt: skip
    start = shown({name: rows[0][name] for name in list(rows[0])[:6]}, 160) if rows else ""
    if empty:
        return (
            f"{where} has no value to use in {', '.join(map(shown, empty))}; its first row begins {start}. Fill it in "
            f"or remove the row, or name another column, for example: --prompt {example} --reward COLUMN"
        )
    return (
        f"{where} has no rewards, counts or rates that can be told: its columns are {columns}, its first row begins "
        f"{start}. Name the columns, for example: --prompt {example} --reward {first}"
    )
