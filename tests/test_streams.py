"""Streams of uniforms: one list, and no two purposes share numbers."""

import ast
from itertools import pairwise
from pathlib import Path

from ada_bandit.streams import TOKEN_POSITIONS, Stream

ROOT = Path(__file__).parents[1]


def test_no_two_streams_overlap() -> None:
    spans = sorted((int(each), int(each) + (TOKEN_POSITIONS if each is Stream.TOKENS else 1)) for each in Stream)
    assert len(spans) == len(Stream) >= 14
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), spans
    assert spans[0][0] >= 0
    assert spans[-1][1] <= 2**32


def test_values_that_results_depend_on() -> None:
    # A stream with another number would change every published result.
    assert (Stream.REWARDS, Stream.KEEP, Stream.PASS_RATES, Stream.SELECT) == (0, 1, 2, 3)
    assert (Stream.ORDER, Stream.KIND, Stream.FEATURES, Stream.ANSWERS, Stream.LENGTHS) == (16, 17, 18, 19, 20)
    assert (Stream.TOKENS, Stream.DIGITS, Stream.FOLD) == (65536, 1684629353, 4294967295)


def test_streams_are_numbered_in_the_list_alone() -> None:
    numbered = []
    for package in ("ada_bandit", "sim", "llm", "paper"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                    continue
                if node.func.id in ("uniform", "uniform_rows") and len(node.args) > 1:
                    stream = ast.unparse(node.args[1])
                    if not stream.startswith("Stream.") and stream != "stream":
                        numbered.append(f"{path.relative_to(ROOT)}:{node.lineno}: {stream}")
    assert numbered == []
