"""Tasks: prompts, and the score of a response to one.

Problems of a generated task are a function of (seed, index), so a task of any size costs nothing
and any of its prompts can be had alone. A prompt's key names it across runs; scores go by the
prompt itself and never by its number, which changes with the choice of prompts.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit.errors import InputError, check_count, unknown_name
from ada_bandit.programs.rollouts import read_log
from ada_bandit.uniforms import fold_seed
from llm.answers import extract
from llm.config import TaskConfig
from llm.digits import Families, is_right, problem
from llm.types import Progress, Prompt, Task, no_progress

__all__ = ["LoadedTask", "load_scorer", "load_task"]

_PLAIN_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_LATEX_MARKS = ("$", "\\boxed", "\\(", "\\[")

_CYCLE = 1000
"""Items after which a reasoning-gym family's own list of kinds of item begins again."""

_HASH_ORDERED = frozenset(
    {
        "codeio",
        "isomorphic_strings",
        "knight_swap",
        "list_functions",
        "polynomial_multiplication",
        "ransom_note",
        "word_ladder",
    }
)
"""Families of reasoning-gym 0.1.25 whose items follow the order of a set of strings, which Python draws anew for
every process unless PYTHONHASHSEED fixes it."""


class LoadedTask:
    """A task as a config asks for it: with its instruction, its way of finding answers, and its choice of prompts.

    Parameters
    ----------
    base
        All prompts, and the score of an answer.
    config
        What it was made from.
    original
        ``[prompt]`` number in `base` of each prompt that is used.
    notes
        What was left out, in words.
    """

    def __init__(self, base: Task, config: TaskConfig, original: Sequence[int], notes: tuple[str, ...] = ()) -> None:
        self._base = base
        self.config = config
        self.original = original
        self.notes = notes

    @property
    def name(self) -> str:
        return self._base.name

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, index: int, /) -> Prompt:
        if not 0 <= index < len(self):
            msg = f"the task {self.name!r} has prompts 0 to {len(self) - 1}; got {index!r}"
            raise IndexError(msg)
        prompt = self._base[int(self.original[index])]
        text = self.config.instruction.replace("{prompt}", prompt.text) if self.config.instruction else prompt.text
        return dataclasses.replace(prompt, id=int(index), text=text)

    def score(self, prompt: Prompt, text: str) -> float:
        """Return the reward of a response; 0 where it holds no answer of the kind that the config asks for."""
        answer = extract(text, self.config.answer)
        return 0.0 if answer is None else self._base.score(prompt, answer)


def load_task(config: TaskConfig, progress: Progress = no_progress) -> LoadedTask:
    """Make the task of a config.

    Parameters
    ----------
    config
        The config.
    progress
        Shows how far what takes long is: a check of the answers, the search for a log's prompts.

    Raises
    ------
    InputError
        If the task can't be made, is empty, repeats an id, has an answer that its verifier can't
        parse, or no prompt of it has a pass rate in the range that is asked for.
    """
    base = _base(config, progress)
    if not len(base):
        msg = f"the task {base.name!r} is empty; it needs at least one prompt"
        raise InputError(msg)
    # An item that can't be made is told here and not in the middle of a run.
    base[0]
    return LoadedTask(base, config, *_choose(base, config, progress))


def load_scorer(config: TaskConfig) -> LoadedTask:
    """Make the task of a config to score with: nothing is checked again and no prompts are chosen."""
    base = _base(config, None)
    return LoadedTask(base, config, range(len(base)))


def _base(config: TaskConfig, progress: Progress | None) -> Task:
    """Make a task of all prompts; without `progress` nothing is checked."""
    if config.kind == "digits":
        return _Digits(config)
    if config.kind == "reasoning-gym":
        return _ReasoningGym(config)
    if config.kind == "jsonl":
        return _Lines(config, progress)
    return _UserTask(config)


# The choice of prompts


def _choose(base: Task, config: TaskConfig, progress: Progress) -> tuple[Sequence[int], tuple[str, ...]]:
    """Return the numbers of the prompts that are used, and what was left out in words."""
    chosen: Sequence[int] = range(len(base))
    notes: list[str] = []
    if config.rollouts:
        chosen, notes = _by_pass_rate(base, config, progress)
    if config.first > len(chosen):
        notes.append(f"first = {config.first}, but no more than {len(chosen)} prompts are there; all are used")
    elif config.first:
        chosen = chosen[: config.first]
    return chosen, tuple(notes)


def _by_pass_rate(base: Task, config: TaskConfig, progress: Progress) -> tuple[list[int], list[str]]:
    lines = read_log(Path(config.rollouts))
    if not lines:
        msg = f"the log {config.rollouts!r} holds no prompt; make it by 'python -m llm rollout'"
        raise InputError(msg)
    rates = {each.prompt_id: each.correct / each.scored if each.scored else np.nan for each in lines}
    at = _find(base, rates.keys(), progress)
    known = {key: rates[key] for key in at if not np.isnan(rates[key])}
    low, high = config.min_pass_rate, config.max_pass_rate
    chosen = sorted(at[key] for key, rate in known.items() if low <= rate <= high)
    if not known:
        msg = (
            f"no prompt of the task {base.name!r} has a pass rate in {config.rollouts!r}: of the log's {len(rates)} "
            f"prompts, {len(at)} are the task's. Its keys are such as {base[0].key!r}, the log's such as "
            f"{lines[0].prompt_id!r}; make the log by 'python -m llm rollout' with the same task"
        )
        raise InputError(msg)
    if not chosen:
        lowest, middle, highest = np.quantile(list(known.values()), (0, 0.5, 1))
        msg = (
            f"no prompt of the task {base.name!r} has a pass rate in [{low:g}, {high:g}]: those of the {len(known)} "
            f"prompts in {config.rollouts!r} run from {lowest:g} to {highest:g}, half of them up to {middle:g}. Change "
            "min_pass_rate and max_pass_rate"
        )
        raise InputError(msg)
    left_out = (
        (len(known) - len(chosen), f"left out: pass rate outside [{low:g}, {high:g}] in {config.rollouts!r}"),
        (len(base) - len(at), f"left out: not in {config.rollouts!r}"),
        (len(at) - len(known), f"left out: no response with a score in {config.rollouts!r}"),
        (len(rates) - len(at), f"of {config.rollouts!r} not in the task"),
    )
    return chosen, [f"{count} prompt{'s' * (count > 1)} {why}" for count, why in left_out if count]


def _find(base: Task, keys: Iterable[str], progress: Progress) -> dict[str, int]:
    """Return where the keys are in a task; the search ends with the last of them."""
    missing, at = set(keys), {}
    with progress("finding the prompts of the log", len(base)) as advance:
        for index in range(len(base)):
            if not missing:
                break
            key = base[index].key
            if key in missing:
                missing.remove(key)
                at[key] = index
            advance(1, "")
    return at


# Generated tasks


class _Digits:
    """Problems in digits of one right text, of many, or with long scratch work."""

    name = "digits"

    def __init__(self, config: TaskConfig) -> None:
        self._families = Families.of(config.families)
        self._config = config

    def __len__(self) -> int:
        return self._config.size

    def __getitem__(self, index: int, /) -> Prompt:
        made = problem(self._config.seed, index, self._families)
        return Prompt(index, f"{made.family}/{self._config.seed}/{index}", made.text, made.answer, made.family)

    def score(self, prompt: Prompt, text: str) -> float:
        return float(is_right(prompt.family, prompt.answer, text))


class _ReasoningGym:
    """Families of reasoning-gym in a fixed interleaving: a family of weight w has w turns of each cycle."""

    name = "reasoning-gym"

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        weights = {
            name: check_count(f"the weight of {name}", options.get("weight", 1))
            for name, options in config.families.items()
        }
        self._turns = [name for turn in range(max(weights.values())) for name in weights if weights[name] > turn]
        self._families = {name: _family(name, options) for name, options in config.families.items()}
        # By the family's name and not its place, so that its problems stay when others come and go.
        self._seeds = {name: fold_seed(config.seed, zlib.crc32(name.encode())) % 2**31 for name in weights}
        # Scoring needs the whole item, which takes up to seconds to make.
        self._item = functools.lru_cache(maxsize=8192)(self._make)

    def __len__(self) -> int:
        return self._config.size

    def __getitem__(self, index: int, /) -> Prompt:
        name = self._turns[index % len(self._turns)]
        item = self._item(name, index)
        return Prompt(index, f"{name}/{self._config.seed}/{index}", item["question"], _answer(item), name)

    def score(self, prompt: Prompt, text: str) -> float:
        name, _, rest = prompt.key.partition("/")
        item = self._item(name, int(rest.rpartition("/")[2]))
        if _answer(item) != prompt.answer or item["question"] not in prompt.text:
            msg = (
                f"the family {name!r} makes another problem of {prompt.key!r} here than where the prompt was made; "
                "set PYTHONHASHSEED=0, or leave the family out if that doesn't help"
            )
            raise InputError(msg)
        # Some scorers give a little for an empty answer.
        return self._families[name].score_answer(text.strip(), item) if text.strip() else 0.0

    def _make(self, name: str, index: int) -> dict[str, Any]:
        # A dataset's item depends on its seed plus the item's number. Its lists, some as long as its size, are made
        # once; a copy with a moved seed reaches items beyond them.
        moved = copy.copy(self._families[name])
        moved.config = copy.copy(moved.config)
        moved.seed = moved.config.seed = self._seeds[name] + index - index % _CYCLE
        try:
            item: dict[str, Any] = moved[index % _CYCLE]
        # Generators raise what they like, and an IndexError would end a loop over the task in silence.
        except Exception as error:
            msg = (
                f"the family {name!r} of reasoning-gym can't make item {index} of seed {self._config.seed}: "
                f"{type(error).__name__}: {error}. Change its options or leave it out"
            )
            raise InputError(msg) from error
        return item


def _answer(item: dict[str, Any]) -> str:
    # Where many answers are right, a family may name none.
    return "" if item["answer"] is None else str(item["answer"])


def _family(name: str, options: dict[str, Any]) -> Any:
    """Return the dataset of a family."""
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        raise _missing("reasoning-gym", error) from error
    if name not in DATASETS or name == "composite":
        raise unknown_name("family", name, DATASETS.keys() - {"composite"})
    if name in _HASH_ORDERED and not os.environ.get("PYTHONHASHSEED", "random").isdigit():
        msg = (
            f"the family {name!r} makes its problems in the order of a set of strings, another one in every process; "
            "set PYTHONHASHSEED=0 before the run, or leave the family out"
        )
        raise InputError(msg)
    known = {each.name for each in dataclasses.fields(DATASETS[name][1])} - {"seed", "size"}
    chosen = {option: value for option, value in options.items() if option != "weight"}
    for option, value in chosen.items():
        if option in {"seed", "size"}:
            msg = f"{option} = {value!r} can't be an option of family {name!r}; set the task's own {option}"
            raise InputError(msg)
        if option not in known:
            raise unknown_name(f"option of family {name!r}", option, known | {"weight"})
    try:
        return create_dataset(name, seed=0, size=_CYCLE, **chosen)
    # The package checks options by assert, and raises other errors of its own.
    except Exception as error:
        msg = f"the options {chosen!r} of family {name!r} can't be used: {type(error).__name__}: {error}"
        raise InputError(msg) from error


def _missing(package: str, error: ImportError) -> InputError:
    return InputError(
        f"this task needs the package {package}, which can't be imported ({error}): pip install {package}"
    )


# A file of prompts and answers


class _Lines:
    """Prompts and mathematical answers of a file, checked by math-verify."""

    def __init__(self, config: TaskConfig, progress: Progress | None) -> None:
        self._whole = config.answer == "whole"
        path = Path(config.file)
        self.name = path.stem
        self._prompts: list[Prompt] = []
        seen: dict[str, int] = {}
        for number, row in _objects(path):
            where = f"on line {number} of {config.file!r}"
            key = str(row.get("id", f"{path.stem}/{number}"))
            if key in seen:
                msg = f"the id {key!r} occurs twice {where}, first on line {seen[key]}; ids must differ"
                raise InputError(msg)
            seen[key] = number
            text, answer = (_text(row, name, where) for name in ("prompt", "answer"))
            family = str(row.get("family", path.stem))
            self._prompts.append(Prompt(len(self._prompts), key, text, answer, family))
        # The first LaTeX loads a grammar for up to a second, which is no response's fault.
        _parse_answer(r"\frac{1}{2}")
        if progress is not None:
            self._check_answers(config.file, seen, progress)

    def __len__(self) -> int:
        return len(self._prompts)

    def __getitem__(self, index: int, /) -> Prompt:
        return self._prompts[index]

    def score(self, prompt: Prompt, text: str) -> float:
        _, verify = _math_verify()
        answer = _parse(text) if self._whole else _parse_answer(text)
        return float(verify(_parse_gold(prompt.answer), answer, timeout_seconds=None, raise_on_error=True))

    def _check_answers(self, file: str, lines: dict[str, int], progress: Progress) -> None:
        with progress("checking the answers", len(self)) as advance:
            for prompt in self._prompts:
                # What can't be read comes as the text itself.
                if all(isinstance(each, str) for each in _parse_gold(prompt.answer)):
                    msg = (
                        f"math-verify can't parse the answer {prompt.answer!r} on line {lines[prompt.key]} "
                        f"of {file!r}. Write it as a number or in LaTeX, or remove the line"
                    )
                    raise InputError(msg)
                advance(1, "")


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the number and the object of every line that isn't blank."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the file {str(path)!r} can't be read: {error}"
        raise InputError(msg) from error
    # Not splitlines, which also splits at characters that JSON may hold in a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            msg = f"malformed JSON on line {number} of {str(path)!r}: {error.msg} at column {error.colno}"
            raise InputError(msg) from error
        if not isinstance(row, dict):
            wanted = '{"prompt": …, "answer": …}'
            msg = f"line {number} of {str(path)!r} must be an object such as {wanted}; got {line[:60]!r}"
            raise InputError(msg)
        yield number, row


def _text(row: dict[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        got = f"got {value!r}" if name in row else f"its keys are {', '.join(row) or 'none'}"
        msg = f"{name} must be a text that isn't blank {where}; {got}"
        raise InputError(msg)
    return value


@functools.cache
def _math_verify() -> tuple[Any, Any]:
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise _missing("math-verify", error) from error
    # It warns that it has no time limit of its own, which the verifier's processes have.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return parse, verify


def _parse(text: str) -> list[Any]:
    # Its own limits need SIGALRM, so they fail in every thread but the main one.
    parse, _ = _math_verify()
    parsed: list[Any] = parse(text, parsing_timeout=None, raise_on_error=True)
    return parsed


def _parse_answer(text: str) -> list[Any]:
    r"""Parse a text that is an answer and nothing else; as prose, 2\sqrt{3} would be read as its first number."""
    text = text.strip()
    bare = not (_PLAIN_NUMBER.fullmatch(text) or any(mark in text for mark in _LATEX_MARKS))
    return _parse(f"${text}$" if bare else text)


@functools.lru_cache(maxsize=65536)
def _parse_gold(answer: str) -> list[Any]:
    return _parse_answer(answer)


# A task of the user's own


class _UserTask:
    """A task that a function of the user's returns."""

    def __init__(self, config: TaskConfig) -> None:
        factory = _import_factory(config.factory)
        try:
            self._task = factory(**config.options)
        # Code of the user's raises what it likes; the traceback stays with the cause.
        except Exception as error:
            msg = f"{config.factory!r} with options {config.options!r} raised {type(error).__name__}: {error}"
            raise InputError(msg) from error
        self._factory = config.factory
        missing = [part for part in ("name", "__len__", "__getitem__", "score") if not hasattr(self._task, part)]
        if missing:
            msg = (
                f"{config.factory!r} returned {self._task!r:.200}, which is no task: it has no {', '.join(missing)}. "
                "See Task in llm.types"
            )
            raise InputError(msg)
        self.name = str(self._task.name)
        self._seen: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._task)

    def __getitem__(self, index: int, /) -> Prompt:
        prompt = self._task[index]
        wrong = not isinstance(prompt, Prompt) or [
            part for part in ("key", "text", "answer", "family") if not isinstance(getattr(prompt, part), str)
        ]
        if wrong:
            msg = (
                f"prompt {index} of {self._factory!r} must be an llm.types.Prompt whose texts are str; "
                f"got {prompt!r:.200}"
            )
            raise InputError(msg)
        first = self._seen.setdefault(prompt.key, index)
        if first != index:
            msg = f"prompts {first} and {index} of {self._factory!r} have the same key {prompt.key!r}; keys must differ"
            raise InputError(msg)
        return prompt  # type: ignore[no-any-return]

    def score(self, prompt: Prompt, text: str) -> float:
        return self._task.score(prompt, text)  # type: ignore[no-any-return]


def _import_factory(factory: str) -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION or FILE.py:FUNCTION names."""
    place, colon, function = factory.rpartition(":")
    if not colon or not place or not function:
        msg = f"factory must be MODULE:FUNCTION or FILE.py:FUNCTION; got {factory!r}"
        raise InputError(msg)
    module = (
        _import_file(Path(place), factory)
        if place.endswith(".py")
        else _import(importlib.import_module, place, factory)
    )
    if not hasattr(module, function):
        raise unknown_name(
            f"function of {place!r}", function, [name for name in vars(module) if not name.startswith("_")]
        )
    made = getattr(module, function)
    if not callable(made):
        msg = f"factory {factory!r} must name a function; got {made!r:.200}"
        raise InputError(msg)
    return made  # type: ignore[no-any-return]


def _import_file(path: Path, factory: str) -> Any:
    if not path.is_file():
        msg = (
            f"the file {str(path)!r} of factory {factory!r} does not exist; its path is relative to {str(Path.cwd())!r}"
        )
        raise InputError(msg)
    spec = importlib.util.spec_from_file_location(f"_task_{path.stem}", path)
    assert spec is not None  # noqa: S101 - for mypy; a name that ends in .py always has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    _import(spec.loader.exec_module, module, factory)
    return module


def _import(load: Callable[[Any], Any], what: Any, factory: str) -> Any:
    try:
        return load(what)
    # A module can raise anything on import.
    except Exception as error:
        msg = f"factory {factory!r} can't be imported: {type(error).__name__}: {error}"
        raise InputError(msg) from error
