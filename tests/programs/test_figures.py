"""Figures: the same numbers give the same file, lines can be told apart, and legends fit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from ada_bandit.programs.figures import draw_figures, label_points, legend, line_style

pytest.importorskip("matplotlib")


def test_42_lines_differ_in_colour_or_dashes() -> None:
    assert len({tuple(line_style(index).values()) for index in range(42)}) == 42
    assert line_style(42) == line_style(0)


@pytest.mark.slow
def test_drawing_again_gives_the_same_svg(tmp_path: Path) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [1, 2], label="costs $5", **line_style(1))
        legend(figure, axes)

    texts = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        files = draw_figures({"one": draw, "two": draw}, folder)
        assert [path.name for path in files] == ["one.png", "one.svg", "two.png", "two.svg"]
        texts.append((folder / "one.svg").read_bytes())
    assert texts[0] == texts[1]
    assert (tmp_path / "a" / "one.png").stat().st_size > 1000


@pytest.mark.parametrize(("count", "length"), [(2, 5), (5, 20), (9, 45), (1, 30)])
@pytest.mark.slow
def test_a_legend_fits_into_its_figure(tmp_path: Path, count: int, length: int) -> None:
    kept = []

    def draw(figure: Any) -> None:
        figure.set_size_inches(7.2, 4.4)
        axes = figure.subplots()
        for index in range(count):
            axes.plot([0, 1], [index, 1], label=f"{index}" + "n" * length, **line_style(index))
        legend(figure, axes)
        kept.append(figure)

    draw_figures({"figure": draw}, tmp_path)
    (figure,) = kept
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    box, axes = figure.legends[0].get_window_extent(renderer), figure.axes[0]
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert axes.get_tightbbox(renderer).y1 <= box.y0
    # Whatever the rows of the legend, the panel is as high as without them.
    assert axes.get_window_extent(renderer).height > 0.7 * 4.4 * figure.dpi


def test_labels_of_points_keep_apart(tmp_path: Path) -> None:
    kept = []

    def draw(figure: Any) -> None:
        figure.set_size_inches(7.2, 4.4)
        axes = figure.subplots()
        axes.set(xlim=(0, 10), ylim=(0, 1))
        near = [(5, 0.5, "first"), (5.05, 0.505, "second"), (5.1, 0.51, "third"), (0.1, 0.2, "x")]
        label_points(figure, axes, [(x, y, name, "black") for x, y, name in near])
        kept.append(figure)

    draw_figures({"figure": draw}, tmp_path)
    (figure,) = kept
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert len(boxes) == 4
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    # No room to the left of the last one: it stands to the right.
    assert figure.axes[0].texts[0].get_text() == "x"
    assert boxes[0].x0 > figure.axes[0].transData.transform((0.1, 0.2))[0]
