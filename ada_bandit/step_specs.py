"""The one reader of what drives a run: a policy as `ada_bandit.specs` reads it, or one that learns.

``empirical-bayes``, ``empirical-bayes:noise_ratio=10,samples=4``
    `ada_bandit.empirical.EmpiricalBayes` with its options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ada_bandit.empirical import EmpiricalBayes
from ada_bandit.errors import InputError, preview, unknown_name
from ada_bandit.laws import law_from_dict
from ada_bandit.memory import PassRateMemory
from ada_bandit.optimal import ProblemOptions
from ada_bandit.rules import UserRule
from ada_bandit.score_model import ScoreModel
from ada_bandit.specs import Spec, option_value, read_policy, split_options
from ada_bandit.steps import StepPolicy, as_step_policy
from ada_bandit.tables import NoSignal

__all__ = ["read_step_policy"]

_LEARNING = "empirical-bayes"
_MODEL = ("noise_ratio", "objective", "update_cost", "transfer", "overlap", "batch")


def read_step_policy(
    spec: Spec | StepPolicy,
    memory: PassRateMemory | None = None,
    rules: Mapping[str, UserRule] | None = None,
    group_size: int | None = None,
    no_signal: NoSignal | None = None,
) -> StepPolicy:
    """Read what a run asks for its allocators: a policy as in `read_policy`, or one that learns.

    Parameters
    ----------
    spec
        As in `read_policy`; or ``empirical-bayes`` with options, ``{empirical_bayes = {options…}}``, or a step policy.
    memory
        What is remembered of prompts; nothing unless given.
    rules, group_size
        As in `read_policy`; a learned policy keeps at most `group_size` responses where it does not state it.
    no_signal
        What becomes of silent groups, whatever the policy says; what it says unless given. A step policy that is
        made already can't be told.

    Raises
    ------
    InputError
        If it names no policy, or an option can't be used.
    """
    if isinstance(spec, StepPolicy):
        if no_signal is not None:
            msg = f"no_signal = {no_signal!r} can't be told to a {type(spec).__name__} that is made; make it with that"
            raise InputError(msg)
        return as_step_policy(spec, memory)
    options: dict[str, Any] | None = None
    if isinstance(spec, str) and spec.partition(":")[0] == _LEARNING:
        _, colon, text = spec.partition(":")
        options = {key: option_value(value) for key, value in split_options(spec, text if colon else "")}
    elif isinstance(spec, Mapping) and "empirical_bayes" in spec:
        inner = spec["empirical_bayes"]
        if len(spec) > 1 or not isinstance(inner, Mapping):
            others = sorted(set(spec) - {"empirical_bayes"})
            msg = (
                f"{{empirical_bayes = {{…}}}} takes a table of options and no other key; got {others or preview(inner)}"
            )
            raise InputError(msg)
        options = dict(inner)
    if options is None:
        policy = read_policy(spec, rules, group_size)
        return as_step_policy(policy if no_signal is None else policy.with_no_signal(no_signal), memory)
    if no_signal is not None:
        options["no_signal"] = no_signal
    if group_size is not None:
        options.setdefault("group_size", group_size)
    return _learning(options, memory)


def _learning(options: Mapping[str, Any], memory: PassRateMemory | None) -> EmpiricalBayes:
    known = ("prior", *_MODEL, *ProblemOptions.__annotations__, "refit_every", "window", "skip", "no_signal")
    for key in options:
        if key not in known:
            raise unknown_name(f"option of {_LEARNING}", key, known)
    # TOML and JSON have lists where a pair is wanted.
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    model = ScoreModel(**{key: values.pop(key) for key in _MODEL if key in values})
    if "prior" in values:
        values["prior"] = law_from_dict(values["prior"])
    return EmpiricalBayes(model=model, memory=memory, **values)
