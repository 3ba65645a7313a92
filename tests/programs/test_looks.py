"""Looks of policies: one colour a method in every figure, names at the ends of lines, an axis for hard prompts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from ada_bandit.presets import preset_names
from ada_bandit.programs.figures import draw_figures, equal_cost, label_points
from ada_bandit.programs.looks import RateAxis, name_lines, panels_of, policy_looks

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_the_same_colour_whatever_else_is_drawn(name: str) -> None:
    alone = policy_looks([name])[0]["color"]
    for others in (["mine"], ["mine", "yours"], list(preset_names())):
        assert policy_looks([*others, name])[-1]["color"] == alone
    # Settings of a method are in its colour.
    assert policy_looks([f"{name}:group_size=8"])[0]["color"] == alone


def test_names_of_one_method_share_a_colour_and_differ_by_dashes() -> None:
    names = ["grpo", "grpo:group_size=8", "GRPO, n = 16", "grpo-4", "grpo matched to reinforce-ada-pos"]
    looks = policy_looks(names)
    assert len({look["color"] for look in looks}) == 1
    assert len({look["linestyle"] for look in looks}) == len(names)
    pairs = [("pos", "reinforce-ada-pos"), ("balance", "reinforce-ada-balance"), ("bayes-memory", "empirical-bayes")]
    for one, other in pairs:
        first, second = policy_looks([one, other])
        assert first["color"] == second["color"]
        assert first["linestyle"] != second["linestyle"]
    # A longer word is another method: no position, no grpox.
    known = {look["color"] for look in policy_looks(["pos", "grpo"])}
    assert not known & {look["color"] for look in policy_looks(["positional", "grpox"])}


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (6, [6]), (7, [4, 3]), (14, [5, 4, 5]), (20, [5, 5, 5, 5])])
def test_panels_are_about_equally_full(count: int, sizes: list[int]) -> None:
    panels = panels_of(count)
    assert sorted(map(len, panels)) == sorted(sizes)
    assert [index for panel in panels for index in panel] == list(range(count))


def test_the_axis_is_logistic_where_half_of_the_prompts_are_hard() -> None:
    plain, hard = RateAxis(0.49), RateAxis(0.5)
    assert not plain.logit
    assert hard.logit
    # Even steps in the log odds, and bins that reach to both ends.
    steps = np.diff(logit(hard.grid()))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    for axis in (plain, hard):
        edges = axis.bins()
        assert edges[[0, -1]].tolist() == [0, 1]
        assert len(edges) == 21
        assert (np.diff(edges) > 0).all()
    np.testing.assert_allclose(hard.bins()[10], expit(0), rtol=1e-9)
    assert hard.drawn(np.array([0.0, 0.3, 1.0])).tolist() == [0.001, 0.3, 0.999]
    assert plain.drawn(np.array([0.0, 1.0])).tolist() == [0, 1]


def _figure(draw: Any, folder: Path) -> Any:
    kept = []

    def drawn(figure: Any) -> None:
        draw(figure)
        kept.append(figure)

    draw_figures({"figure": drawn}, folder)
    (figure,) = kept
    return figure


def test_names_stand_at_the_ends_of_their_lines_and_keep_apart(tmp_path: Path) -> None:
    ends = [0.5, 0.501, 0.502, 0.1, 0.9]

    def draw(figure: Any) -> None:
        figure.set_size_inches(7, 4)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        for index, end in enumerate(ends):
            axes.plot([0, 1], [0, end], label=f"line {index}")
        # Two that end far from the border, one of them drawn from right to left, and one without a name.
        axes.plot([0, 0.3], [0, 0.8], label="short")
        axes.plot([0.3, 0], [0.805, 0], label="back")
        axes.plot([0, 1], [1, 1], label="_nothing")
        name_lines(figure, [axes])

    figure = _figure(draw, tmp_path)
    figure.canvas.draw()
    renderer, (axes,) = figure.canvas.get_renderer(), figure.axes
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in axes.texts}
    assert list(boxes) == [*(f"line {index}" for index in range(5)), "short", "back"]
    for one, other in itertools.combinations(boxes.values(), 2):
        assert not one.overlaps(other)
    frame = axes.get_window_extent(renderer)
    middles = [(boxes[f"line {index}"].y0 + boxes[f"line {index}"].y1) / 2 for index in range(5)]
    for index in (3, 4):
        assert abs(middles[index] - (frame.y0 + ends[index] * frame.height)) < 2
    # Three that meet stand in their order, about the middle of where they end.
    assert middles[0] < middles[1] < middles[2]
    assert abs(middles[1] - (frame.y0 + 0.501 * frame.height)) < 2
    assert all(boxes[f"line {index}"].x0 > frame.x1 for index in range(5))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes.values())
    for name in ("short", "back"):
        assert 0 < boxes[name].x0 - (frame.x0 + 0.3 * frame.width) < 12


def test_points_that_coincide_have_one_label(tmp_path: Path) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.set(xlim=(0, 10), ylim=(0, 1))
        label_points(figure, axes, [(5, 0.5, "grpo", "blue"), (8, 0.7, "pos", "red"), (5, 0.5, "rloo", "green")])

    (axes,) = _figure(draw, tmp_path).axes
    assert sorted(text.get_text() for text in axes.texts) == ["grpo, rloo", "pos"]


def test_grpo_at_equal_cost_lies_on_its_curve_under_what_is_off_it(tmp_path: Path) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.set(xlim=(0, 10), ylim=(0, 1))
        # Off the curve, on it, and beyond its ends, where nothing is known.
        equal_cost(axes, [(3, 0.9), (2, 0.4), (9, 0.5), (0.5, 0.5)], ([1, 2, 4, 8], [0.2, 0.4, 0.6, 0.8]))

    (axes,) = _figure(draw, tmp_path).axes
    stem, dot = axes.lines
    assert stem.get_xydata().tolist() == [[3, 0.5], [3, 0.9]]
    assert dot.get_xydata().tolist() == [[3, 0.5]]
    assert axes.get_legend_handles_labels()[1] == ["GRPO at equal cost"]
