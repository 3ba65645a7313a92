from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit.errors import InputError
from llm.answers import extract


@pytest.mark.parametrize(
    ("mode", "text", "answer"),
    [
        ("whole", " 4 2\n", " 4 2\n"),
        ("whole", "", ""),
        ("last-number", "3 and 4, so 7.", "7"),
        ("last-number", "it is 1,234,567.50 in all", "1234567.50"),
        ("last-number", "the set 1,2,3", "3"),
        ("last-number", "x = -5", "-5"),
        ("last-number", "x = \u22125", "-5"),
        ("last-number", "8-3", "3"),
        ("last-number", "f(x)-3", "3"),
        ("last-number", "+12", "12"),
        ("last-number", "about .5", ".5"),
        ("last-number", "none at all", None),
        ("last-line", "one\n two \n\n  \n", "two"),
        ("last-line", " \n", None),
        ("boxed", r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        ("boxed", r"\boxed{1} and \boxed {2}", "2"),
        ("boxed", r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("boxed", r"\boxed{\{}", r"\{"),
        ("boxed", r"\boxed{3} then \boxed{4", "3"),
        ("boxed", r"\boxed{\boxed{6}}", "6"),
        ("boxed", "42", None),
        ("tag", "<answer>1</answer> no: <answer>\n2 </answer> done", "2"),
        ("tag", "<answer>7", None),
        ("tag", "7</answer>", None),
    ],
)
def test_extract(mode: str, text: str, answer: str | None) -> None:
    assert extract(text, mode) == answer


def test_extract_refuses_an_unknown_mode() -> None:
    with pytest.raises(InputError, match=r"'box'; did you mean 'boxed'\?"):
        extract("1", "box")


balanced = st.recursive(
    st.text("ab1 \n", max_size=3) | st.sampled_from([r"\{", r"\}", r"\\", r"\frac"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    max_leaves=8,
)


@given(st.lists(balanced, max_size=4).map("".join), st.text("ab{} \n", max_size=5), st.text("ab} \n", max_size=5))
def test_boxed_gives_what_was_put_in_a_box(inner: str, before: str, after: str) -> None:
    assert extract(f"{before}\\boxed{{{inner}}}{after}", "boxed") == inner.strip()
