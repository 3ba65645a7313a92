"""What every figure keeps to: few lines a panel, names that don't meet, colours that mean one thing."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ada_bandit.programs.figures import DASHES
from ada_bandit.programs.looks import MOST_LINES, policy_looks
from paper.drawing import MARKS, NEUTRAL, name_within
from paper.items import EXACT
from paper.results import Context
from paper.run import ANALYSES
from paper.training import NAMES, RULES, standard_error


@cache
def drawn(name: str) -> dict[str, Figure]:
    """The figures of an exact item, drawn."""
    figures = {}
    for file, draw in ANALYSES[name](Context(Path("unused"), quick=True)).drawings.items():
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.canvas.draw()
        figures[file] = figure
    return figures


def lines_of(axes: Axes) -> list[Line2D]:
    """The lines of a panel that aren't marks, nor sticks between marks."""
    return [line for line in axes.lines if line.get_linestyle() != "None" and line.get_label() != "_equal_cost"]


@pytest.mark.parametrize("name", EXACT)
def test_a_panel_has_few_lines_whose_names_dont_meet(name: str) -> None:
    for figure in drawn(name).values():
        for axes in figure.axes:
            assert len([line for line in lines_of(axes) if not str(line.get_label()).startswith("_")]) <= MOST_LINES
        texts = [text for axes in figure.axes for text in axes.texts]
        boxes = [text.get_window_extent() for text in texts]
        for (one, first), (other, second) in combinations(zip(texts, boxes, strict=True), 2):
            # A pixel is less than the space between lines of letters.
            meet = min(first.x1, second.x1) - max(first.x0, second.x0) > 1
            meet &= min(first.y1, second.y1) - max(first.y0, second.y0) > 1
            assert not meet, f"{one.get_text()!r} and {other.get_text()!r}"


@pytest.mark.parametrize(("name", "marks"), [("figure2", True), ("figure5", True), ("table2", False)])
def test_what_is_no_policy_has_no_policys_colour(name: str, *, marks: bool) -> None:
    policies = {to_hex(look["color"]) for look in policy_looks(list(NAMES.values()))}
    for figure in drawn(name).values():
        for axes in figure.axes:
            lines = axes.lines if marks else lines_of(axes)
            assert lines
            assert not policies & {to_hex(line.get_color()) for line in lines}


def test_published_costs_have_the_colour_of_their_policy() -> None:
    (axes,) = drawn("table2")["table2"].axes
    marks = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert [line.get_marker() for line in marks] == [MARKS[rule] for rule in ("grpo", "pos", "balance")]
    assert [line.get_color() for line in marks] == [look["color"] for look in policy_looks(list(RULES))]


def test_rules_and_neutral_looks_differ_without_colours() -> None:
    assert set(MARKS) == set(RULES)
    assert len(set(MARKS.values())) == len(MARKS)
    assert len({(look["color"], look["linestyle"]) for look in NEUTRAL}) == len(NEUTRAL)
    assert all(look["linestyle"] in DASHES for look in NEUTRAL)


@pytest.mark.parametrize("above", [True, False])
def test_a_name_stands_on_its_side_of_its_line(*, above: bool) -> None:
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    (line,) = axes.plot([0, 2], [0, 4], color="#123456")
    name_within(axes, line, 0.5, above=above, label="a name")
    figure.canvas.draw()
    (text,) = axes.texts
    box, (x, y) = text.get_window_extent(), axes.transData.transform((0.5, 1.0))
    assert (box.x0 + box.x1) / 2 == pytest.approx(x, abs=1)
    assert box.y0 > y if above else box.y1 < y
    assert text.get_color() == "#123456"


def test_standard_errors_are_those_of_means() -> None:
    # Deviations of -1, 0 and 1: a variance of 1, over three seeds.
    assert standard_error(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])) == pytest.approx([1 / np.sqrt(3), 0])
    assert standard_error(np.array([[4.0, 7.0]])).tolist() == [0, 0]
