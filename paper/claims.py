"""Claims, what was measured, and the verdict: holds, doesn't hold, can't tell, or only reported."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from ada_bandit.errors import InputError, check_number, unknown_name

__all__ = [
    "CANT_TELL",
    "EVIDENCE",
    "FAILS",
    "HOLDS",
    "PUBLISHED",
    "REPORTED",
    "Claim",
    "Measure",
    "Verdict",
    "evidence_of",
    "judge",
    "load_claims",
    "sign_test",
]

Outcome: TypeAlias = Literal["holds", "doesn't hold", "can't tell", "reported"]
HOLDS: Outcome = "holds"
FAILS: Outcome = "doesn't hold"
CANT_TELL: Outcome = "can't tell"
REPORTED: Outcome = "reported"
"""Of a claim of the paper that only its own numbers speak for: nothing of ours bears on it."""

PUBLISHED = "published data"
EVIDENCE: Mapping[str, str] = MappingProxyType({"exact": "exact", "LLM": "language model", "simulated": "simulated"})
"""The columns of evidence, the strongest first: how a claim is tested, and what tables call it."""
HOW = (*EVIDENCE, PUBLISHED)
"""How a claim can be tested."""
_JUDGES = ("within", "above", "below", "sign", "all")
_TEXTS = ("id", "claim", "published", "how", "test", "judge")
_KEYS = (*_TEXTS, "tolerance", "relative", "bound", "level", "whose", "plain", "why")


@dataclass(frozen=True)
class Claim:
    """A published claim, or one of ours, and how it is tested."""

    id: str
    """Its name within the item."""
    claim: str
    """What is claimed, in our words."""
    published: str
    """What the paper reports, in short; "-" for what it doesn't have."""
    how: str
    """What it is tested with: exact, simulated, LLM, or published data."""
    test: str
    """How it is tested here."""
    judge: str
    """``within``, ``above``, ``below``, ``sign`` or ``all``; see `judge`."""
    tolerance: float = 0.0
    """Of ``within``: the largest difference that counts as agreement."""
    relative: bool = False
    """Whether the tolerance is a share of the reference."""
    bound: float | None = None
    """Of ``above`` and ``below``: the bound; that of the measure where it is None."""
    level: float = 0.95
    """Of ``sign``: the confidence level."""
    whose: str = "paper"
    """Whose claim it is: ``paper`` or ``ours``."""
    plain: str = ""
    """What a plainer test comes to, where it misjudges the claim: an outcome; "" where there is none."""
    why: str = ""
    """Why that test is not taken; stands beside `plain`."""


@dataclass(frozen=True)
class Measure:
    """What was measured for a claim."""

    ours: str
    """Our result, in short."""
    value: float = math.nan
    """Our number."""
    error: float = 0.0
    """Its half-width, what is known of the reference included; 0 for an exact number."""
    reference: float = math.nan
    """What it is compared with."""
    wins: int = 0
    """Of ``sign``: comparisons that go the way of the claim."""
    losses: int = 0
    """Comparisons that go the other way; ties are left out."""
    readings: int = 0
    """Of ``all``: ways to look at it; `wins` of them speak for the claim and `losses` against it."""


def evidence_of(how: str, whose: str) -> str:
    """Return the column of evidence of a test; "" for a claim of the paper that only restates its numbers.

    What we conclude from published numbers is arithmetic, hence exact.
    """
    if how == PUBLISHED:
        return "" if whose == "paper" else EVIDENCE["exact"]
    return EVIDENCE[how]


@dataclass(frozen=True)
class Verdict:
    """A claim, its measure, and the outcome."""

    item: str
    claim: Claim
    measure: Measure
    outcome: Outcome
    p_value: float | None = field(default=None)
    """Of ``sign``: the chance of as many wins by coin flips."""

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values for JSON; numbers that are not finite are None."""

        def plain(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "item": self.item,
            "id": self.claim.id,
            "whose": self.claim.whose,
            "claim": self.claim.claim,
            "published": self.claim.published,
            "ours": self.measure.ours,
            "outcome": self.outcome,
            "how": self.claim.how,
            "evidence": evidence_of(self.claim.how, self.claim.whose),
            "plain": self.claim.plain,
            "why": self.claim.why,
            "test": self.claim.test,
            "judge": self.claim.judge,
            "tolerance": self.claim.tolerance,
            "value": plain(self.measure.value),
            "error": plain(self.measure.error),
            "reference": plain(self.measure.reference),
            "wins": self.measure.wins,
            "losses": self.measure.losses,
            "readings": self.measure.readings,
            "p_value": self.p_value,
        }


def load_claims(path: Path) -> tuple[str, tuple[Claim, ...]]:
    """Read a ``claim.toml``: the item's title and its claims.

    Raises
    ------
    InputError
        If the file has an unknown or missing key, or two claims have one id.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    claims = tuple(_claim(entry, path) for entry in data.get("claims", ()))
    ids = [claim.id for claim in claims]
    if len(set(ids)) < len(ids) or not claims:
        msg = f"{str(path)!r} needs at least one claim, and an id of its own for each; got {ids!r}"
        raise InputError(msg)
    return str(data["title"]), claims


def _claim(entry: Mapping[str, Any], path: Path) -> Claim:
    for key in entry:
        if key not in _KEYS:
            raise unknown_name(f"key of a claim in {str(path)!r}", key, _KEYS)
    for key in _TEXTS:
        if not isinstance(entry.get(key), str) or not entry[key]:
            msg = f"every claim in {str(path)!r} needs the text {key!r}; got {dict(entry)!r}"
            raise InputError(msg)
    claim = Claim(**entry)
    for what, value, known in (
        ("judge", claim.judge, _JUDGES),
        ("how", claim.how, HOW),
        ("whose", claim.whose, ("paper", "ours")),
    ):
        if value not in known:
            raise unknown_name(f"{what} of a claim in {str(path)!r}", value, known)
    if bool(claim.plain) != bool(claim.why):
        msg = (
            f"'plain' and 'why' stand together; claim {claim.id!r} in {str(path)!r} has {claim.plain!r}, {claim.why!r}"
        )
        raise InputError(msg)
    if claim.plain and claim.plain not in {HOLDS, FAILS, CANT_TELL}:
        raise unknown_name(f"plain outcome of a claim in {str(path)!r}", claim.plain, (HOLDS, FAILS, CANT_TELL))
    check_number("tolerance", claim.tolerance, 0)
    check_number("level", claim.level, 0.5, 1, strict=True)
    return claim


def sign_test(wins: int, losses: int) -> float:
    """Return P(at least `wins` of `wins` + `losses`) for fair coins, exactly; 1 for no comparison."""
    trials = wins + losses
    tail: int = sum(math.comb(trials, k) for k in range(wins, trials + 1))
    return float(tail / 2**trials)


def judge(item: str, claim: Claim, measure: Measure) -> Verdict:
    """Return the verdict on a claim.

    ``within``
        |value - reference| <= tolerance, for every value within the error: holds; for none:
        doesn't hold.
    ``above``, ``below``
        The value is above (below) the bound, likewise.
    ``sign``
        One-sided sign test over comparisons, in both directions at the claim's level.
    ``all``
        Every reading speaks for the claim: holds; every one against it: doesn't hold.

    In all other cases, and where a number is missing, it can't be told. A claim of the paper on
    published data is reported, whatever the judge: its own numbers cannot confirm it.
    """
    decided = _decide(item, claim, measure)
    return decided if evidence_of(claim.how, claim.whose) else replace(decided, outcome=REPORTED)


def _decide(item: str, claim: Claim, measure: Measure) -> Verdict:
    p_value = None
    outcome: Outcome = CANT_TELL
    if claim.judge == "sign":
        p_value = sign_test(measure.wins, measure.losses)
        if p_value <= 1 - claim.level:
            outcome = HOLDS
        elif sign_test(measure.losses, measure.wins) <= 1 - claim.level:
            outcome = FAILS
        return Verdict(item, claim, measure, outcome, p_value)
    if claim.judge == "all":
        if measure.readings and measure.readings in (measure.wins, measure.losses):
            outcome = HOLDS if measure.wins else FAILS
        return Verdict(item, claim, measure, outcome)
    reference = measure.reference if claim.bound is None else claim.bound
    if not (math.isfinite(measure.value) and math.isfinite(reference) and math.isfinite(measure.error)):
        return Verdict(item, claim, measure, CANT_TELL)
    if claim.judge == "within":
        room = claim.tolerance * (abs(reference) if claim.relative else 1.0) - abs(measure.value - reference)
    else:
        room = measure.value - reference if claim.judge == "above" else reference - measure.value
    lowest, highest = room - measure.error, room + measure.error
    # A value on the bound is within a tolerance, but neither above nor below.
    strict = claim.judge != "within"
    if lowest > 0 or (lowest == 0 and not strict):
        outcome = HOLDS
    elif highest < 0 or (highest == 0 and strict):
        outcome = FAILS
    return Verdict(item, claim, measure, outcome, p_value)
