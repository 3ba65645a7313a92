"""Problems in digits for models of a few thousand parameters: sums, sorting, remainders; and a tokenizer for them.

Problem `index` of a seed is a pure function of both, so a task of any size costs nothing and
any problem can be had alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ada_bandit.errors import check_number, unknown_name
from ada_bandit.uniforms import Stream, uniform

__all__ = ["CHARACTERS", "WEIGHTS", "digit_tokenizer", "problem"]

WEIGHTS: Mapping[str, float] = MappingProxyType({"add": 0.7, "sort": 0.15, "mod": 0.15})
"""Shares of the families."""

CHARACTERS = "0123456789+%s="
"""All that prompts and answers are made of."""

_PAD, _END, _UNKNOWN = "<pad>", "<eos>", "<unk>"


def problem(seed: int, index: int, weights: Mapping[str, float] | None = None) -> tuple[str, str, str]:
    """Return text, answer and family of a problem.

    ``add``: the sum of two numbers, such as ``47+805=``. ``sort``: the digits of a string in
    ascending order, such as ``s30971=``, 3 to 6 of them. ``mod``: a remainder, such as
    ``805%7=``, by 2 to 19. A number has 1 to 3 digits, each length equally often.

    Parameters
    ----------
    seed, index
        What the problem is a function of: the seed below 2**64, the index from 0 to below 2**63.
    weights
        Shares of the families by name, of any sum; a family that isn't named has none. `WEIGHTS`
        unless given.

    Raises
    ------
    InputError
        If a family is unknown, a weight is negative or no finite number, or all are 0.
    """
    shares = _shares(WEIGHTS if weights is None else weights)
    chance = uniform(seed, Stream.DIGITS, index, np.arange(8)).tolist()
    family = next(name for name, until in shares if chance[0] < until)
    if family == "add":
        a, b = _number(*chance[1:3]), _number(*chance[3:5])
        return f"{a}+{b}=", str(a + b), family
    if family == "mod":
        a, b = _number(*chance[1:3]), 2 + int(18 * chance[3])
        return f"{a}%{b}=", str(a % b), family
    digits = [str(int(10 * each)) for each in chance[2 : 5 + int(4 * chance[1])]]
    return f"s{''.join(digits)}=", "".join(sorted(digits)), family


def _shares(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return each family that can come, with the uniform below which it or an earlier one does."""
    for name, weight in weights.items():
        if name not in WEIGHTS:
            raise unknown_name("family", name, WEIGHTS)
        check_number(f"the weight of {name}", weight, 0)
    total = check_number("the sum of the weights", sum(weights.values()), 0, strict=True)
    shares, until = [], 0.0
    # In the order of WEIGHTS: the order in which a config names them changes nothing.
    for name in WEIGHTS:
        if weights.get(name, 0) > 0:
            until += weights[name] / total
            shares.append((name, until))
    # Rounding must not leave a gap below 1.
    shares[-1] = (shares[-1][0], 1.0)
    return shares


def _number(length: float, value: float) -> int:
    """Return a number of 1 to 3 digits from two uniforms: its length, then its value given that."""
    least, above = ((0, 10), (10, 100), (100, 1000))[int(3 * length)]
    return least + int((above - least) * value)


def digit_tokenizer() -> Any:
    """Return a tokenizer of one token a character, with tokens for padding and the end, none for the start."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate((_PAD, _END, *CHARACTERS, _UNKNOWN))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token=_PAD, eos_token=_END, unk_token=_UNKNOWN)
