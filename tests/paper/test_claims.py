"""Claims parse, and the verdict is what the numbers say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from typer.testing import CliRunner

from ada_bandit.errors import InputError
from paper.claims import (
    CANT_TELL,
    EVIDENCE,
    FAILS,
    HOLDS,
    PUBLISHED,
    REPORTED,
    Claim,
    Measure,
    evidence_of,
    judge,
    load_claims,
    sign_test,
)
from paper.cli import app
from paper.items import EXACT, ITEMS, claim_file, help_of
from paper.run import ANALYSES
from paper.training import unanimous


def claim(**options: Any) -> Claim:
    return Claim("id", "claim", "published", "exact", "test", **({"judge": "within"} | options))


def outcome(one: Claim, **measure: Any) -> str:
    return judge("item", one, Measure("ours", **measure)).outcome


@pytest.mark.parametrize("name", ITEMS)
def test_claims_parse(name: str) -> None:
    title, claims = load_claims(claim_file(name))
    assert help_of(name).startswith(title)
    for one in claims:
        assert one.whose == "ours" or one.published != "-"
        # What a verdict doesn't look at has no place in a claim.
        assert one.judge == "within" or (one.tolerance, one.relative) == (0.0, False)
        assert one.judge in {"above", "below"} or one.bound is None
        # What is called exact has no seeds, and what is simulated belongs to an item with runs.
        assert (one.how == "simulated") <= (name not in EXACT)


def test_the_command_line_knows_every_item() -> None:
    listed = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    for name in ITEMS:
        assert f" {name} {help_of(name)}" in listed
    assert tuple(ANALYSES) == ITEMS
    assert set(EXACT) < set(ITEMS)


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [(1.05, 0.0, HOLDS), (1.25, 0.0, FAILS), (1.05, 0.1, CANT_TELL), (1.15, 0.1, CANT_TELL), (1.4, 0.1, FAILS)],
)
def test_within(value: float, error: float, expected: str) -> None:
    assert outcome(claim(tolerance=0.1), value=value, error=error, reference=1.0) == expected
    assert outcome(claim(tolerance=0.1, relative=True), value=20 * value, error=20 * error, reference=20.0) == expected


def test_within_takes_its_ends() -> None:
    assert outcome(claim(tolerance=0.5), value=1.5, reference=1.0) == HOLDS
    assert outcome(claim(tolerance=0.0), value=1.0, reference=1.0) == HOLDS


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (1.1, 0.0, HOLDS),
        (0.9, 0.0, FAILS),
        (1.0, 0.0, FAILS),
        (1.1, 0.2, CANT_TELL),
        (1.3, 0.2, HOLDS),
        (0.7, 0.2, FAILS),
    ],
)
def test_above_and_below_mirror_each_other(value: float, error: float, expected: str) -> None:
    assert outcome(claim(judge="above", bound=1.0), value=value, error=error) == expected
    assert outcome(claim(judge="below", bound=1.0), value=2 - value, error=error) == expected
    assert outcome(claim(judge="above"), value=value, error=error, reference=1.0) == expected


@pytest.mark.parametrize("judge", ["within", "above", "below"])
def test_a_missing_number_tells_nothing(judge: str) -> None:
    assert outcome(claim(judge=judge), value=math.nan, reference=1.0) == CANT_TELL
    assert outcome(claim(judge=judge), value=1.0) == CANT_TELL
    assert outcome(claim(judge=judge), value=1.0, error=math.nan, reference=1.0) == CANT_TELL


@pytest.mark.parametrize(
    ("wins", "losses", "expected"),
    [
        (5, 0, HOLDS),
        (4, 0, CANT_TELL),
        (0, 5, FAILS),
        (7, 1, HOLDS),
        (6, 2, CANT_TELL),
        (0, 0, CANT_TELL),
        (2, 0, CANT_TELL),
    ],
)
def test_sign(wins: int, losses: int, expected: str) -> None:
    assert outcome(claim(judge="sign"), wins=wins, losses=losses) == expected


@pytest.mark.parametrize(
    ("wins", "losses", "readings", "expected"),
    [
        (3, 0, 3, HOLDS),
        (0, 3, 3, FAILS),
        (2, 0, 3, CANT_TELL),
        (2, 1, 3, CANT_TELL),
        (0, 0, 3, CANT_TELL),
        (0, 0, 0, CANT_TELL),
    ],
)
def test_all_readings_must_agree(wins: int, losses: int, readings: int, expected: str) -> None:
    assert outcome(claim(judge="all"), wins=wins, losses=losses, readings=readings) == expected


@pytest.mark.parametrize("judge", ["sign", "above"])
def test_what_the_paper_says_of_itself_is_reported(judge: str) -> None:
    """Whatever the numbers are: nothing of ours bears on a claim that restates the paper's own table."""
    for measure in ({"wins": 24}, {"losses": 24}, {"value": 2.0, "reference": 1.0}):
        one = replace(claim(judge=judge), how=PUBLISHED)
        assert outcome(one, **measure) == REPORTED
        assert outcome(replace(one, whose="ours"), **measure) != REPORTED
    assert evidence_of(PUBLISHED, "paper") == ""
    assert evidence_of(PUBLISHED, "ours") == evidence_of("exact", "paper") == "exact"
    assert {evidence_of(how, "paper") for how in EVIDENCE} == {"exact", "language model", "simulated"}


def test_unanimous_counts_readings_by_their_sign_tests() -> None:
    """5 of 5 is 1/32, below 5 %; 4 of 5 is 6/32."""
    zero = np.zeros(5)
    clear, mixed = np.ones(5), np.array([1.0, 1.0, 1.0, 1.0, -9.0])
    found = unanimous({"ahead": (clear, zero), "behind": (zero, clear), "level": (mixed, zero)})
    assert (found.wins, found.losses, found.readings) == (1, 1, 3)
    assert judge("item", claim(judge="all"), found).outcome == CANT_TELL
    assert judge("item", claim(judge="all"), unanimous({"one": (clear, zero), "two": (clear, -clear)})).outcome == HOLDS


@given(st.integers(0, 40), st.integers(0, 40))
def test_sign_test_is_binomial(wins: int, losses: int) -> None:
    expected = binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one claim"),
        ('[[claims]]\nid = "a"\nclame = "b"', "clame"),
        ('[[claims]]\nid = "a"', "needs the text 'claim'"),
        ('[[claims]]\nid="a"\nclaim="b"\npublished="-"\nhow="exact"\ntest="t"\njudge="close"', "close"),
        ('[[claims]]\nid="a"\nclaim="b"\npublished="-"\nhow="exact"\ntest="t"\njudge="all"\nwhy="w"', "stand together"),
        (
            '[[claims]]\nid="a"\nclaim="b"\npublished="-"\nhow="exact"\ntest="t"\njudge="all"\nplain="no"\nwhy="w"',
            "plain outcome",
        ),
        ('[[claims]]\nid="a"\nclaim="b"\npublished="-"\nhow="guess"\ntest="t"\njudge="above"', "guess"),
    ],
)
def test_a_faulty_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "claim.toml"
    path.write_text('title = "t"\n' + text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_claims(path)
