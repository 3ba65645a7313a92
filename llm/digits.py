"""Problems in digits for models of a few thousand parameters, their verifiers, and a tokenizer for them.

Three kinds: one right text (sums, sorting, remainders), many right texts (``residue``), and long
responses (``count``). Problem `index` of a seed is a pure function of both, so a task of any size
costs nothing and any problem can be had alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.uniforms import Stream, uniform

__all__ = ["CHARACTERS", "FAMILIES", "WEIGHTS", "Families", "Problem", "digit_tokenizer", "is_right", "problem"]

WEIGHTS: Mapping[str, float] = MappingProxyType({"add": 0.7, "sort": 0.15, "mod": 0.15})
"""Shares of the families unless others are given."""

FAMILIES: tuple[str, ...] = (*WEIGHTS, "residue", "count")
"""All families."""

CHARACTERS = "0123456789+%s="
"""All that prompts and answers are made of."""

_PAD, _END, _UNKNOWN = "<pad>", "<eos>", "<unk>"


@dataclass(frozen=True)
class Problem:
    """A problem, and a response that is right."""

    text: str
    """What is asked."""
    answer: str
    """What a verifier needs to know: the one right text; of ``residue`` remainder, modulus and digits; of ``count``
    the last number."""
    family: str
    """Its kind."""
    worked: str
    """A right response: the answer, one of many right ones at random, or the whole scratch work."""


@dataclass(frozen=True)
class Families:
    """Which kinds of problems come, and of what sizes.

    Raises
    ------
    InputError
        If a family is unknown, a weight is negative or no finite number, all are 0, or a size can't be used.
    """

    weights: Mapping[str, float] | None = None
    """Shares of the families by name, of any sum; a family that isn't named has none. `WEIGHTS` when None."""
    digits: int = 2
    """``residue``: digits of a right number."""
    least_modulus: int = 3
    """``residue``: the least modulus."""
    most_modulus: int = 30
    """``residue``: the largest modulus: the more, the fewer texts are right."""
    least_count: int = 12
    """``count``: the fewest steps."""
    most_count: int = 30
    """``count``: the most steps, of about four tokens each and one more for each digit of a value."""
    count_digits: int = 2
    """``count``: digits of a value; sums are taken modulo 10 to this power."""

    def __post_init__(self) -> None:
        _shares(self._weights)
        check_count("digits", self.digits)
        check_count("count_digits", self.count_digits)
        for least, most, lowest in (("least_modulus", "most_modulus", 2), ("least_count", "most_count", 1)):
            check_count(least, getattr(self, least), lowest)
            check_count(most, getattr(self, most), lowest)
            if getattr(self, least) > getattr(self, most):
                msg = f"{least} must not exceed {most}; got {getattr(self, least)!r} and {getattr(self, most)!r}"
                raise InputError(msg)
        if self.most_modulus > self._above - self._first:
            msg = (
                f"most_modulus must not exceed {self._above - self._first}, the numbers of {self.digits} digits, or a "
                f"remainder has no right text; got {self.most_modulus!r}"
            )
            raise InputError(msg)

    @classmethod
    def of(cls, options: Mapping[str, Mapping[str, Any]]) -> Families:
        """Build it of each family's options by name: ``weight``, and the sizes that are its own.

        Raises
        ------
        InputError
            For an unknown family or option, and as the class does.
        """
        weights, sizes = {}, {}
        for family, chosen in options.items():
            own = _SIZES.get(family, ())
            for option, value in chosen.items():
                if option != "weight" and option not in own:
                    raise unknown_name(f"option of family {family!r}", option, ["weight", *own])
                if option != "weight":
                    sizes[option] = value
            weights[family] = chosen.get("weight", WEIGHTS.get(family, 1.0))
        return cls(weights or None, **sizes)

    @property
    def _weights(self) -> Mapping[str, float]:
        return WEIGHTS if self.weights is None else self.weights

    @property
    def _first(self) -> int:
        return 10 ** (self.digits - 1) if self.digits > 1 else 0

    @property
    def _above(self) -> int:
        return int(10**self.digits)

    @property
    def shares(self) -> list[tuple[str, float]]:
        """Each family that can come, with the uniform below which it or an earlier one does."""
        return _shares(self._weights)

    def numbers(self, remainder: int, modulus: int) -> range:
        """Return all right numbers of a ``residue``."""
        return range(self._first + (remainder - self._first) % modulus, self._above, modulus)

    @property
    def longest(self) -> int:
        """The most tokens of a prompt and a worked response, the end included."""
        # 12+34s56=, the end, and so many steps 56s78= of a count, an s, a value and an =
        return max(
            32, 12 + self.most_count * (len(str(self.most_count)) + 2 + self.count_digits) + 2 * self.count_digits
        )


_SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"residue": ("digits", "least_modulus", "most_modulus"), "count": ("least_count", "most_count", "count_digits")}
)


def problem(seed: int, index: int, families: Families | None = None) -> Problem:
    """Return a problem.

    ``add``: the sum of two numbers, such as ``47+805=``. ``sort``: the digits of a string in
    ascending order, such as ``s30971=``, 3 to 6 of them. ``mod``: a remainder, such as
    ``805%7=``, by 2 to 19. A number has 1 to 3 digits, each length equally often.

    ``residue``: any number of so many digits that leaves a remainder, such as ``%7=3=``, to which 10,
    17, 24 and ten others are right. ``count``: add the same number again and again, modulo 100 or so,
    such as ``7+45s3=``, with scratch work ``3s52=2s97=1s42``: how many steps are left, and the value
    after this one. The last step decides: no step must be left, and the value right.

    Parameters
    ----------
    seed, index
        What the problem is a function of: the seed below 2**64, the index from 0 to below 2**63.
    families
        Which kinds; those of `WEIGHTS` unless given.
    """
    chosen = _DEFAULT if families is None else families
    chance = uniform(seed, Stream.DIGITS, index, np.arange(8)).tolist()
    family = next(name for name, until in chosen.shares if chance[0] < until)
    if family == "add":
        a, b = _number(*chance[1:3]), _number(*chance[3:5])
        return _unique(f"{a}+{b}=", str(a + b), family)
    if family == "mod":
        a, b = _number(*chance[1:3]), 2 + int(18 * chance[3])
        return _unique(f"{a}%{b}=", str(a % b), family)
    if family == "residue":
        modulus = _between(chosen.least_modulus, chosen.most_modulus, chance[1])
        remainder = int(modulus * chance[2])
        right = chosen.numbers(remainder, modulus)
        worked = str(right[int(len(right) * chance[3])])
        return Problem(f"%{modulus}={remainder}=", f"{remainder} {modulus} {chosen.digits}", family, worked)
    if family == "count":
        above = 10**chosen.count_digits
        first, step = int(above * chance[1]), int(above * chance[2])
        times = _between(chosen.least_count, chosen.most_count, chance[3])
        values = [(first + step * (done + 1)) % above for done in range(times)]
        worked = "=".join(f"{times - done}s{value}" for done, value in enumerate(values))
        return Problem(f"{first}+{step}s{times}=", str(values[-1]), family, worked)
    digits = [str(int(10 * each)) for each in chance[2 : 5 + int(4 * chance[1])]]
    return _unique(f"s{''.join(digits)}=", "".join(sorted(digits)), family)


def is_right(family: str, answer: str, response: str) -> bool:
    """Say whether a response is right.

    Parameters
    ----------
    family, answer
        Those of the `Problem`.
    response
        The response, without the end token.
    """
    text = response.strip()
    if family == "residue":
        remainder, modulus, digits = map(int, answer.split())
        plain = text.isascii() and text.isdigit() and len(text) == digits and (digits == 1 or text[0] != "0")
        return plain and int(text) % modulus == remainder
    if family == "count":
        return text.rpartition("=")[2] == f"1s{answer}"
    return text == answer


def _unique(text: str, answer: str, family: str) -> Problem:
    return Problem(text, answer, family, answer)


def _between(least: int, most: int, chance: float) -> int:
    return least + int((most - least + 1) * chance)


def _shares(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return each family that can come, with the uniform below which it or an earlier one does."""
    for name, weight in weights.items():
        if name not in FAMILIES:
            raise unknown_name("family", name, FAMILIES)
        check_number(f"the weight of {name}", weight, 0)
    total = check_number("the sum of the weights", sum(weights.values()), 0, strict=True)
    shares, until = [], 0.0
    # In the order of FAMILIES: the order in which a config names them changes nothing.
    for name in FAMILIES:
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


_DEFAULT = Families()


def digit_tokenizer() -> Any:
    """Return a tokenizer of one token a character, with tokens for padding and the end, none for the start."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate((_PAD, _END, *CHARACTERS, _UNKNOWN))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token=_PAD, eos_token=_END, unk_token=_UNKNOWN)
