"""The report: every number comes from JSON, and no macro is undefined."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ada_bandit.errors import InputError
from paper import numbers
from paper.items import ITEMS
from paper.numbers import MACROS, REPORT, format_number, look_up, used_macros, write_numbers
from paper.verdict import changed, evidence_cells, headline, to_latex, to_markdown

TEXT = (REPORT / "report.tex").read_text(encoding="utf-8")
NAMES = set(tomllib.loads(MACROS.read_text(encoding="utf-8")))


def test_every_macro_that_is_used_is_defined_and_the_other_way_round() -> None:
    assert used_macros(TEXT) == NAMES


def test_macros_name_items() -> None:
    for name, (path, style) in tomllib.loads(MACROS.read_text(encoding="utf-8")).items():
        assert re.fullmatch("[A-Za-z]+", name)
        assert path.split("/")[0] in {*ITEMS, "settings", "verdict"}
        assert re.fullmatch(r"\+?,?(\.\d+)?[fed%]", style)


def test_no_number_is_typed() -> None:
    body = TEXT.split(r"\maketitle")[1].split(r"\begin{thebibliography}")[0]
    body = re.sub(r"(?<!\\)%.*", "", body)
    # Mathematics, names of what the paper numbers, commands with their arguments.
    body = re.sub(r"\\pub\{[^}]*\}", "", body)
    body = re.sub(r"\\begin\{(equation\*|longtable)\}.*?\\end\{\1\}", "", body, flags=re.DOTALL)
    body = re.sub(r"\$[^$]*\$", "", body)
    body = re.sub(r"\\(ref|label|cite|fig|input|setlength|itemsep)(\{[^}]*\}|[\d.]+em)", "", body)
    body = body.replace("pass@256", "").replace("pass@1", "").replace("pass@2", "")
    assert re.findall(r"\S*\d\S*", body) == []


def test_numbers_in_mathematics_are_small_constants() -> None:
    body = TEXT.split(r"\maketitle")[1].split(r"\begin{thebibliography}")[0]
    for formula in re.findall(r"\$([^$]*)\$", re.sub(r"(?<!\\)%.*", "", body)):
        # Exponents, halves, and the pass rates and noise ratios at which something is evaluated.
        for number in re.findall(r"\d+(?:\.\d+)?", formula):
            assert number in {"0", "1", "2", "12", "10", "0.1", "0.5", "0.9"}, formula


@pytest.mark.parametrize(
    ("value", "style", "expected"),
    [
        (0.25, ".0%", r"25\,\%"),
        (1234.5, ",.0f", "1{,}234"),
        (2e-12, ".0e", r"2\times 10^{-12}"),
        (-0.5, "+.1f", "-0.5"),
        (7, "d", "7"),
    ],
)
def test_format_number(value: float, style: str, expected: str) -> None:
    assert format_number(value, style) == expected


def test_look_up() -> None:
    records = {"item": {"a": [1, {"b": 2}]}}
    assert look_up(records, "item/a/1/b") == 2
    for path in ("item/a/2", "item/c", "other/a", "item/a/1/b/c"):
        with pytest.raises(InputError, match="no number"):
            look_up(records, path)


def fake(item: str) -> dict[str, Any]:
    verdict = {
        "item": item, "id": "one", "whose": "paper", "claim": "50 % of A_B", "published": "-", "ours": "x & y ± 1",
        "outcome": "doesn't hold", "how": "exact", "test": "test", "evidence": "exact", "plain": "", "why": "",
    }  # fmt: skip
    return {"quick": True, "numbers": {"value": 0.5}, "verdicts": [verdict]}


def test_write_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "macros.toml"
    table.write_text('Half = ["bias/value", ".0%"]\nFailed = ["verdict/paper/fail", "d"]\n', encoding="utf-8")
    monkeypatch.setattr(numbers, "MACROS", table)
    with pytest.raises(InputError, match="python -m paper figure1"):
        write_numbers(tmp_path)
    for item in ITEMS:
        (tmp_path / f"{item}.json").write_text(json.dumps(fake(item)), encoding="utf-8")
    path, count = write_numbers(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert count == 2
    assert r"\newcommand{\numHalf}{\ensuremath{50\,\%}}" in text
    assert rf"\newcommand{{\numFailed}}{{\ensuremath{{{len(ITEMS)}}}}}" in text
    assert "quick run" in text
    assert r"50 \% of A\_B" in (tmp_path / "verdict.tex").read_text(encoding="utf-8")


def test_verdict_tables_put_failures_first() -> None:
    verdicts = [
        {**fake("bias")["verdicts"][0], "outcome": outcome, "claim": outcome, "quick": False}
        for outcome in ("holds", "can't tell", "doesn't hold")
    ]
    for text in (to_markdown(verdicts), to_latex(verdicts)):
        assert text.index("doesn't hold") < text.index("can't tell") < text.index("holds")
    assert "1 hold, 1 don't, 1 can't be told" in to_markdown(verdicts)


def test_the_headline_counts_by_evidence_and_the_exact_ones_first() -> None:
    def of(evidence: str, *outcomes: str) -> list[dict[str, Any]]:
        return [{**fake("bias")["verdicts"][0], "evidence": evidence, "outcome": outcome} for outcome in outcomes]

    verdicts = of("", "reported", "reported") + of("simulated", "holds") + of("exact", "holds", "doesn't hold")
    assert headline(verdicts) == (
        "5 claims; exact: 1 hold, 1 don't, 0 can't be told; language model: none; "
        "simulated: 1 hold, 0 don't, 0 can't be told; only reported: 2"
    )
    assert evidence_cells(verdicts[0]) == ["", "", ""]
    assert evidence_cells(verdicts[2]) == ["", "", "holds"]
    assert evidence_cells(verdicts[4]) == ["doesn't hold", "", ""]


def test_only_verdicts_that_differ_from_the_plain_test_give_its_reason() -> None:
    one = {**fake("bias")["verdicts"][0], "why": "because"}
    assert changed([one | {"plain": "holds"}]) == ["bias/one: doesn't hold, not 'holds': because"]
    assert changed([one | {"plain": "doesn't hold"}, one | {"plain": ""}]) == []
