from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from llm.cli import app
from llm.histories import Arm, read_run, to_arms
from llm.run_figures import FIGURES, draw_runs
from tests.llm.rows import eval_row, step_row, write_run

pytest.importorskip("matplotlib")


def full_rows(scale: float) -> list[dict[str, Any]]:
    rows = []
    for step in range(6):
        rows.append(eval_row(step, 0.3 + scale * step))
        more = {
            "entropy": 1 - scale * step,
            "responses": 128,
            "signal_fraction": 0.5,
            "time": {"sample": 1.0, "update": 2.0, "total": 3.0},
        }
        rows.append(step_row(step, 0.1 + scale * step, **more))
    return rows


def _drawn(arms: list[Arm], folder: Path, monkeypatch: pytest.MonkeyPatch, smooth: int = 1) -> dict[str, Any]:
    """Draw, and return each figure by its name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figures = {}
    normal = FigureCanvasAgg.print_figure

    def kept(self: Any, file: Path, *args: Any, **kwargs: Any) -> Any:
        figures[file.stem] = self.figure
        return normal(self, file, *args, **kwargs)

    monkeypatch.setattr(FigureCanvasAgg, "print_figure", kept)
    files = draw_runs(arms, folder, smooth)
    assert [file.name for file in files] == [f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")]
    assert all(file.stat().st_size > 1000 for file in files)
    return figures


def _labelled(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.lines}


def test_the_figures_show_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scales = {"a-seed0": 0.1, "a-seed1": 0.06, "b$x$": 0.02}
    arms = to_arms([read_run(write_run(tmp_path / name, full_rows(scale))) for name, scale in scales.items()])
    figures = _drawn(arms, tmp_path, monkeypatch)

    # Training reward and one evaluation, each against steps and tokens.
    reward, by_tokens, held_out, held_out_by_tokens = figures["reward"].axes
    steps = np.arange(6)
    for axes, x, y in (
        (reward, steps, 0.1 + 0.08 * steps),
        (by_tokens, 100 * (steps + 1), 0.1 + 0.08 * steps),
        (held_out, steps, 0.3 + 0.08 * steps),
        (held_out_by_tokens, 100 * steps, 0.3 + 0.08 * steps),
    ):
        assert list(_labelled(axes)) == ["a", "b$x$"]
        np.testing.assert_allclose(_labelled(axes)["a"].get_xdata(), x, rtol=1e-12)
        np.testing.assert_allclose(_labelled(axes)["a"].get_ydata(), y, rtol=1e-12)
    # Two runs that differ by d have a standard error of d / 2; one run has that of its evaluation.
    (band,) = reward.collections
    low, high = band.get_datalim(reward.transData).get_points()[:, 1]
    np.testing.assert_allclose([low, high], [0.1, 0.1 + 0.1 * 5], rtol=1e-12)
    assert len(held_out.collections) == 2
    last = held_out.collections[1].get_paths()[0].vertices
    np.testing.assert_allclose(sorted({y for x, y in last.tolist() if x == 5}), [0.39, 0.41], rtol=1e-12)
    for axes in figures["reward"].axes:
        assert [text.get_text() for text in axes.texts] == ["a", "b$x$"]
    assert held_out.get_title(loc="left") == "evaluation: hard"

    (entropy,) = figures["entropy"].axes
    np.testing.assert_allclose(_labelled(entropy)["b$x$"].get_xdata(), 1 - 0.02 * steps, rtol=1e-12)
    np.testing.assert_allclose(_labelled(entropy)["b$x$"].get_ydata(), 0.1 + 0.02 * steps, rtol=1e-12)

    responses, signal = figures["responses"].axes
    assert set(_labelled(responses)["a"].get_ydata()) == {128.0}
    assert set(_labelled(signal)["a"].get_ydata()) == {0.5}

    (seconds,) = figures["time"].axes
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in seconds.containers}
    # The total is the bar's end, no part of it.
    assert widths == {"sample": [1.0, 1.0], "update": [2.0, 2.0]}
    assert [text.get_text() for text in seconds.texts] == ["3 s", "3 s"]


def test_phases_that_take_no_time_are_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = {"sample": 1.0, "exchange": 0.0, "sync": 0.004, "verify": 0.003, "update": 2.0, "other": 0.1, "total": 3.107}
    arms = to_arms([read_run(write_run(tmp_path / "a", [step_row(0, 0.5, time=time)]))])
    (seconds,) = _drawn(arms, tmp_path, monkeypatch)["time"].axes
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in seconds.containers}
    # What takes less than 0.5 % of the step is in the rest: 0.1 + 0.004 + 0.003.
    assert widths == {"sample": [1.0], "update": [2.0], "other": [pytest.approx(0.107, rel=1e-12)]}
    assert [text.get_text() for text in seconds.texts] == ["3.11 s"]


def test_nothing_overlaps_the_panels_or_leaves_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"reinforce-ada-balance with a rather long name {index}" for index in range(9)]
    drawn = {"reward": 36, "entropy": 9, "responses": 18}
    arms = to_arms([read_run(write_run(tmp_path / name, full_rows(0.01 * i))) for i, name in enumerate(names)])
    for name, figure in _drawn(arms, tmp_path, monkeypatch).items():
        # Fonts have other widths in each kind of file: lay the figure out for what it is measured with.
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()
        boxes = [each.get_window_extent(renderer) for each in figure.legends]
        assert len(boxes) == (name == "time")
        for axes in figure.axes:
            assert axes.get_window_extent(renderer).height > 60, name
            assert axes.get_window_extent(renderer).width > 120, name
            assert all(axes.get_tightbbox(renderer).y1 <= box.y0 for box in boxes), name
            # At most six of the nine lines to a panel, each with its name.
            lines = [line for line in axes.lines if not line.get_label().startswith("_")]
            if name in drawn:
                assert 0 < len(lines) == len(axes.texts) <= 6
        texts = [text for axes in figure.axes for text in axes.texts if name in drawn]
        assert len(texts) == drawn.get(name, 0)
        named = [text.get_window_extent(renderer) for text in texts]
        for one, other in itertools.combinations([*boxes, *named], 2):
            assert not one.overlaps(other), name
        for box in [*boxes, *named]:
            assert box.x0 >= 0, name
            assert box.x1 <= figure.bbox.x1, name
            assert box.y1 <= figure.bbox.y1, name


def test_what_no_run_has_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = to_arms([read_run(write_run(tmp_path / "a", [step_row(0, 0.5), step_row(1, None)]))])
    figures = _drawn(arms, tmp_path, monkeypatch)
    said = {
        name: [text.get_text() for axes in figure.axes for text in axes.texts if text.get_text() != "a"]
        for name, figure in figures.items()
    }
    empty = "no run has it"
    assert said == {"reward": [], "entropy": [empty], "responses": [empty, empty], "time": ["0 s", empty]}


def test_two_drawings_of_the_same_runs_are_the_same_files(tmp_path: Path) -> None:
    arms = to_arms([read_run(write_run(tmp_path / "a", full_rows(0.1)))])
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    for one, other in zip(draw_runs(arms, tmp_path / "x"), draw_runs(arms, tmp_path / "y"), strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_the_command_draws_and_tells_what(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a-seed{seed}", full_rows(0.1)[: 12 - 2 * seed]) for seed in range(2)]
    out = tmp_path / "figures" / "here"
    done = CliRunner().invoke(app, ["plot", *map(str, runs), "--out", str(out), "--smooth", "3"])
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    assert "a: 2 runs, 5 steps" in text
    assert "2 rows of steps or evaluations that not all of them have are not drawn" in text
    assert sorted(each.name for each in out.iterdir()) == sorted(f"{n}.{e}" for n in FIGURES for e in ("png", "svg"))
    done = CliRunner().invoke(app, ["plot", *map(str, runs), "--out", str(out), "--label", "x", "--label", "y"])
    text = " ".join(done.output.split())
    assert "x: 1 run, 6 steps" in text
    assert "y: 1 run, 5 steps" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "'nowhere' holds no metrics.jsonl; give the folder of a run"),
        (["a", "b", "--label", "x"], "--label was given 1 times for 2 runs; give it once for each run"),
    ],
)
def test_bad_input_is_one_message(options: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["plot", *options])
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
