"""What a user gives the lab: expressions, files and links."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ada_bandit.exact import analyze_law
from ada_bandit.laws import law_from_dict
from ada_bandit.policy import Policy
from sim.fits import fit_beta
from sim.sources import built_in_rollouts, from_file

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("pos >= 1 and neg >= 1", "(pos >= 1) & (neg >= 1)"),
        ("pos>=1 or neg>=1 and pos==3", "(pos >= 1) | ((neg >= 1) & (pos == 3))"),
        ("(pos >= 1) & (neg >= 1) | ~(pos < 2)", "((pos >= 1) & (neg >= 1)) | (~(pos < 2))"),
        ("not pos < 2", "~(pos < 2)"),
        ("pos - neg - 1 > 0", "((pos - neg) - 1) > 0"),
        ("2 * pos + 1 / neg <= .5", "((2 * pos) + (1 / neg)) <= 0.5"),
        ("max(pos, neg) >= 3", "np.maximum(pos, neg) >= 3"),
        ("-abs(pos - neg) != -1", "(-np.abs(pos - neg)) != (-1)"),
    ],
)
def test_an_expression_and_what_numpy_makes_of_it(run: Run, text: str, python: str) -> None:
    pos, neg = np.indices((9, 9))
    with np.errstate(all="ignore"):
        expected = eval(python, {"np": np, "pos": pos, "neg": neg})  # noqa: S307 - the text stands above
        assert run("((text) => toPython(parseExpression(text)))", text) == python
    cells = json.dumps(list(itertools.product(range(9), repeat=2)))
    cells = f"((text) => {cells}.map(([p, n]) => holds(parseExpression(text), p, n)))"
    np.testing.assert_array_equal(np.array(run(cells, text)).reshape(9, 9), expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write when a prompt has had enough"),
        ("pos", "true or false"),
        ("pos >=", "a value is missing at the end"),
        ("(pos >= 1", "closing bracket"),
        ("pos >= 1)", "something is missing, before “)”"),
        ("1 < pos < 3", "two values at a time"),
        ("(pos > 1) + 1 > 0", "can't be added"),
        ("pos and neg", "true or false"),
        ("max(pos) > 1", "takes 2 values; got 1"),
        ("alert(1) > 0", "“alert” is unknown"),
        ("constructor > 0", "“constructor” is unknown"),
        ("pos.constructor > 0", "not understood"),
        ("toString(pos) > 0", "“toString” is unknown"),
        ("pos > `1`", "not understood"),
        ("pos = 1", "not understood"),
        ("(" * 300 + "pos > 1" + ")" * 300, "at most 400 characters"),
        ("(" * 150 + "pos > 1" + ")" * 150, "too many brackets"),
    ],
)
def test_an_expression_that_is_none_says_what_is_wrong(run: Run, text: str, said: str) -> None:
    problem = run(f"(() => problem(() => parseExpression({json.dumps(text)})))")
    assert problem.startswith("ExpressionError: ")
    assert said in problem


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"m": 32, "r": 5}, "may draw 160 responses; the lab draws lattices of up to 128"),
        ({"n": 40}, "a group of 40 is larger than the 32 responses"),
        ({"n": 1, "adv": "unbiased"}, "needs a group with a response of every class"),
    ],
)
def test_a_policy_that_cannot_be_computed_says_why(run: Run, changes: dict[str, Any], said: str) -> None:
    change = json.dumps(changes)
    problem = run(f"(() => problem(() => compile({{...PRESETS[0].policy, ...{change}}})))")
    assert problem.startswith("PolicyError: ")
    assert said in problem


ROWS = [(0, 8), (3, 8), (8, 8), (1, 4), (3, 8), (0, 2), (2, 8), (7, 8)]
PAIRS = [[0, 2, 1], [1, 4, 1], [0, 8, 1], [2, 8, 1], [3, 8, 2], [7, 8, 1], [8, 8, 1]]


def test_files_of_every_form_hold_the_same_counts(run: Run) -> None:
    counts = "prompt_id,correct,total\n" + "".join(f'"a, {i}",{c},{t}\n' for i, (c, t) in enumerate(ROWS))
    long = "\ufeffstep,prompt_id,reward\r\n" + "".join(
        f"0,{i},{float(draw < c)}\r\n" for i, (c, t) in enumerate(ROWS) for draw in range(t)
    )
    lines = "\n".join(json.dumps({"rewards": [0.9] * c + [0.5, None] + [0] * (t - c - 1)}) for c, t in ROWS if c < t)
    lines += '\n\n{"correct": 8, "total": 8}\n'
    for text in (counts, long, lines):
        assert run("parseCounts", text) == PAIRS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" \n", "the file is empty"),
        ("correct,total\n", "holds no prompt"),
        ("correct,total\n1,4\n5,4\n", "line 3: correct and total must be whole numbers"),
        ("correct,total\n1,\n", "line 2"),
        ("correct,total\n0.5,4\n", "line 2"),
        ("a,b\n1,2\n", "the columns are a, b; the file needs correct and total"),
        ("prompt_id,reward\nx,1\nx,good\n", "line 3: the reward “good” is no number"),
        ('{"rewards": [1, 0]}\n{"rewards": [1\n', "line 2 is not JSON"),
        ('{"rewards": ["1"]}\n', "line 1: rewards must be numbers"),
        ('{"rewards": [1]}\n{"rewards": [null]}\n', "line 2 has no reward that is a number"),
        ('{"score": 1}\n', "line 1 has neither rewards nor correct and total"),
    ],
)
def test_a_bad_file_is_told_by_its_line(run: Run, text: str, said: str) -> None:
    problem = run(f"(() => problem(() => parseCounts({json.dumps(text)})))")
    assert problem.startswith("FileError: ")
    assert said in problem


def test_a_dropped_file_has_the_law_of_the_library(run: Run, tmp_path: Path) -> None:
    text = built_in_rollouts("smollm2-reasoning-gym").path.read_text(encoding="utf-8")
    (tmp_path / "log.jsonl").write_text(text, encoding="utf-8")
    ours = law_from_dict(run("lawOfCounts", run("parseCounts", text))["law"])
    policy = Policy.preset("reinforce-ada-balance")
    exact = analyze_law(policy, from_file(tmp_path / "log.jsonl").law)
    for key, value in analyze_law(policy, ours).items():
        # Two ways to the maximum of one likelihood, which is flat there.
        assert value == pytest.approx(exact[key], rel=1e-5, abs=1e-6), key


def test_the_prior_has_the_largest_likelihood(run: Run) -> None:
    pairs = [[k, 16, 1 + (7 * k) % 5] for k in range(17)] + [[0, 8, 9], [8, 8, 2], [3, 8, 1]]
    counts = np.repeat([pair[:2] for pair in pairs], [pair[2] for pair in pairs], axis=0)
    theirs, ours = fit_beta(counts[:, 0], counts[:, 1]), run("fitBeta", pairs)
    assert ours["a"] == pytest.approx(theirs.mean * theirs.concentration, rel=1e-4)
    assert ours["b"] == pytest.approx((1 - theirs.mean) * theirs.concentration, rel=1e-4)


@pytest.mark.parametrize(
    ("pairs", "kind"),
    [
        ([[0, 8, 5]], {"kind": "one", "mean": 0}),
        ([[8, 8, 5]], {"kind": "one", "mean": 1}),
        ([[0, 1, 5], [1, 1, 15]], {"kind": "one", "mean": 0.75}),
        ([[4, 8, 40]], {"kind": "one", "mean": 0.5}),
        ([[0, 8, 3], [8, 8, 1]], {"kind": "ends"}),
    ],
)
def test_a_prior_without_a_maximum_is_its_limit(run: Run, pairs: list[list[int]], kind: dict[str, Any]) -> None:
    assert run("fitBeta", pairs) == kind


def test_many_responses_are_taken_as_they_are(run: Run) -> None:
    law = run("lawOfCounts", [[16, 64, 1], [32, 128, 2], [96, 128, 1]])["law"]
    assert law == {"name": "grid", "pass_rates": [0.25, 0.75], "weights": [0.75, 0.25]}
