"""Results of our own in numbers: adaptivity's value, the price of log p, random denominators. Computes only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ada_bandit import Beta, Never, Policy, Rounds, ScoreModel
from ada_bandit.calibration import calibrate
from ada_bandit.errors import InputError
from ada_bandit.laws import Grid
from ada_bandit.programs.records import plain, to_csv
from ada_bandit.specs import read_policy
from sim.theory.adaptivity import WorstLaw, adaptive_gain, rare_gain, search_laws, worst_rate
from sim.theory.denominator import batch_factor, leaving_out_cost, leaving_out_factor
from sim.theory.price import dear_multiple, draws_needed, least_miss, moment_bound

__all__ = ["PARTS", "Number", "Part", "Theory", "compute_theory"]

Part: TypeAlias = Literal["adaptivity", "price", "draws", "tokens", "silent"]
PARTS: tuple[Part, ...] = ("adaptivity", "price", "draws", "tokens", "silent")
"""What can be computed, in order."""

PRIOR = Beta(0.5, 1)
"""The law of p of the numbers, where they need one."""
_MOST = (2, 3, 4, 8, 16, 32)
_SHARES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001)
_RARE_RATE = 0.9
_SEARCHED = (2, 3, 4)
_DRAWS = (12, 16, 24, 32, 48, 64)
_TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.002)
_MULTIPLES = (125, 150, 200, 300)
_FINE = (0.1, 0.01, 0.001, 0.0001)
_PROMPTS = (2, 4, 8, 16, 32, 64, 128)
_RATES = (0.05, 0.1, 0.5, 0.9, 0.95)
_TOKENS = (1, 2)
_LENGTHS_OF = ("dr-grpo", "dr-grpo:group_size=16", "reinforce-ada-balance")
_SIGNALS = (0.1, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Number:
    """One number."""

    part: Part
    case: str
    """What it is, in words."""
    size: int
    """K, the most responses of a prompt, B, the prompts of a step, or K in per cent of the least one."""
    at: float | None
    """Share of prompts, tolerance, pass rate or chance of signal that it belongs to."""
    value: float | None
    """The number; None where there is none."""
    bound: float | None = None
    """The bound that is proved for it: an upper one of a gain, a lower one of a price."""


@dataclass(frozen=True, eq=False)
class Theory:
    """The numbers."""

    parts: tuple[Part, ...]
    """What was computed."""
    numbers: tuple[Number, ...]
    worst: tuple[WorstLaw, ...]
    """The worst laws that were found under given noise."""

    def of(self, part: Part, case: str) -> list[Number]:
        """Return the numbers of a case."""
        return [number for number in self.numbers if (number.part, number.case) == (part, case)]

    def cases(self, part: Part) -> list[str]:
        """Return the cases of a part, in order."""
        return list(dict.fromkeys(number.case for number in self.numbers if number.part == part))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers are."""
        known = {
            "adaptivity": "adaptivity: the best adaptive policy over the best fixed number, each with its best "
            "advantages; the largest gain over all laws and noise is K itself, whatever the transfer, and not attained",
            "price": "price: the least second moment a kept response with |w - 1/p| <= tolerance on [0.05, 0.95], "
            f"under {PRIOR!r}",
            "draws": "draws: the same by K over the least K that can come within the tolerance, "
            f"{draws_needed(0.1):.1f} for 0.1 and {draws_needed(0.01) - draws_needed(0.1):.2f} more for each tenth of "
            f"it; below {dear_multiple():.0%} of that it is proved to grow as a power of 1 / tolerance",
            "tokens": f"tokens: w(p) of a token mean over w(p) with its mean denominator, less 1; wrong responses are "
            f"twice as long, under {Beta(1, 1)!r}",
            "silent": "silent: what leaving groups without signal out of the denominator multiplies every w(p) by, and "
            "the responses it wastes where noise dominates",
        }
        return tuple(known[part] for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        laws = [{**asdict(found), "law": found.law.to_dict()} for found in self.worst]
        return {
            "notes": list(self.notes),
            "numbers": [plain(asdict(number)) for number in self.numbers],
            "worst_laws": [plain(law) for law in laws],
        }

    def to_csv(self) -> str:
        """Return a row a number."""
        return to_csv(plain(asdict(number)) for number in self.numbers)


def compute_theory(parts: tuple[Part, ...], progress: Callable[[int], None] | None = None) -> Theory:
    """Compute the numbers of some parts.

    Parameters
    ----------
    parts
        Some of `PARTS`.
    progress
        Called with 1 after each part.
    """
    numbers: list[Number] = []
    worst: list[WorstLaw] = []
    for part in parts:
        if part == "adaptivity":
            worst = [search_laws(ScoreModel(1.0, transfer=t), most) for most in _SEARCHED for t in (1.0, 0.0)]
            numbers += _adaptivity(worst)
        else:
            numbers += {"price": _price, "draws": _draws, "tokens": _tokens, "silent": _silent}[part]()
        if progress is not None:
            progress(1)
    return Theory(parts, tuple(numbers), tuple(worst))


def _adaptivity(worst: list[WorstLaw]) -> Iterator[Number]:
    for most in _MOST:
        gain = rare_gain(1 - 1e-4, (1.0, 1e12), most)
        yield Number("adaptivity", "signal in positives alone, rare p = 0.9999", most, None, gain, most)
        rate, gain = worst_rate((1.0, 1.0), most)
        yield Number("adaptivity", "noise 1, worst law of two rates", most, rate, gain, most)
        for noise in (1.0, 10.0):
            gain = adaptive_gain(PRIOR, ScoreModel(noise), most)
            yield Number("adaptivity", f"noise {noise:g}, Beta(0.5, 1)", most, None, gain, most)
    for share in _SHARES:
        law = Grid([0.0, _RARE_RATE], [1 - share, share])
        gain = adaptive_gain(law, ScoreModel(1.0), 8)
        yield Number("adaptivity", f"noise 1, share of p = {_RARE_RATE:g}", 8, share, gain, 8)
    for found in worst:
        case = f"noise 1, transfer {found.transfer:g}, laws of three rates searched"
        yield Number("adaptivity", case, found.most, None, found.gain, found.most)


def _price() -> Iterator[Number]:
    for most in _DRAWS:
        policy = Policy(rule=Never(), budget=Rounds(most, 1), group_size=most)
        yield Number("price", "least miss of any advantages", most, None, least_miss(most))
        for tolerance in _TOLERANCES:
            bound = moment_bound(tolerance, most, PRIOR) / most
            yield Number("price", "fixed number", most, tolerance, _moment(policy, tolerance), bound)
    balance = Policy.preset("reinforce-ada-balance")
    for tolerance in _TOLERANCES:
        yield Number("price", "reinforce-ada-balance", 32, tolerance, _moment(balance, tolerance))


def _draws() -> Iterator[Number]:
    for tolerance in _FINE:
        for percent in _MULTIPLES:
            most = round(percent / 100 * draws_needed(tolerance))
            policy = Policy(rule=Never(), budget=Rounds(most, 1), group_size=most)
            bound = moment_bound(tolerance, most, PRIOR) / most
            yield Number("draws", "fixed number", percent, tolerance, _moment(policy, tolerance), bound)


def _moment(policy: Policy, tolerance: float) -> float | None:
    """Return the least second moment of a kept response, or None where no advantages meet the tolerance."""
    try:
        found = calibrate(policy, "log", PRIOR, tolerance)
    except InputError:
        return None
    return found.second_moment / found.policy.tables.group_size


def _tokens() -> Iterator[Number]:
    law = Beta(1, 1)
    for name in _LENGTHS_OF:
        policy = read_policy(name)
        if not isinstance(policy, Policy):
            continue
        for prompts in _PROMPTS:
            factors = batch_factor(policy, law, prompts, np.array(_RATES), tokens=_TOKENS)
            for rate, factor in zip(_RATES, factors.tolist(), strict=True):
                yield Number("tokens", name, prompts, rate, factor - 1)


def _silent() -> Iterator[Number]:
    for signal in _SIGNALS:
        for prompts in _PROMPTS:
            yield Number("silent", "factor of every w(p)", prompts, signal, leaving_out_factor(signal, prompts))
            yield Number("silent", "responses wasted", prompts, signal, leaving_out_cost(signal, prompts), 1.0)
