"""From a config's policy to the object that a step asks for its allocator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ada_bandit import EmpiricalBayes, PassRateMemory, Policy
from ada_bandit.errors import AdaBanditError, InputError
from ada_bandit.laws import law_from_dict

__all__ = ["load_policy"]


def load_policy(given: str | dict[str, Any], memory: PassRateMemory | None = None) -> Policy | EmpiricalBayes:
    """Return the policy that a config names (see `RunConfig.policy`).

    Parameters
    ----------
    given
        A preset's name, the path of a policy's TOML file, or a table: ``{preset, options…}``,
        ``{file}``, ``{empirical_bayes}``, or a whole policy.
    memory
        What the run remembers of prompts, for `EmpiricalBayes`.

    Raises
    ------
    InputError
        If it names no policy.
    """
    if isinstance(given, str):
        if given.endswith(".toml"):
            return _read_file(given)
        name, colon, _ = given.partition(":")
        if colon:
            msg = (
                f"the policy {given!r} is no preset; options go into a table: "
                f"policy = {{preset = {name!r}, group_size = 16}}"
            )
            raise InputError(msg)
        return Policy.preset(given)
    table = dict(given)
    if "empirical_bayes" in table:
        options = _only(table, "empirical_bayes")
        if "prior" in options:
            options["prior"] = law_from_dict(options["prior"])
        if isinstance(options.get("noise_ratio"), list):
            options["noise_ratio"] = tuple(options["noise_ratio"])
        if isinstance(options.get("mean_response_tokens"), list):
            options["mean_response_tokens"] = tuple(options["mean_response_tokens"])
        try:
            return EmpiricalBayes(memory=memory, **options)
        except TypeError as error:
            msg = f"policy.empirical_bayes can't be used: {error}"
            raise InputError(msg) from error
    if "file" in table:
        if len(table) > 1:
            msg = f"policy = {{file = …}} takes no other key; got {sorted(table)}"
            raise InputError(msg)
        return _read_file(str(table["file"]))
    if "preset" in table:
        return Policy.preset(str(table.pop("preset")), **table)
    return Policy.from_dict(table)


def _only(table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.pop(key)
    if table or not isinstance(value, dict):
        msg = f"policy = {{{key} = {{…}}}} takes a table of options and no other key; got {sorted(table) or value!r}"
        raise InputError(msg)
    return dict(value)


def _read_file(path: str) -> Policy:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        msg = f"the policy file {path!r} can't be read: {error.strerror}; 'python -m sim show --toml' writes one"
        raise InputError(msg) from error
    try:
        return Policy.from_toml(text)
    except AdaBanditError as error:
        msg = f"the policy file {path!r} can't be used: {error}"
        raise InputError(msg) from error
