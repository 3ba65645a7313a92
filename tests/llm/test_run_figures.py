from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ada_bandit.errors import InputError
from ada_bandit.programs.figures import line_style
from llm.cli import app
from llm.histories import Arm, arm_label, read_run, to_arms
from llm.run_figures import FIGURES, draw_runs

pytest.importorskip("matplotlib")


def write_run(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def step_row(step: int, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"step": step, "policy": "grpo n=4", "pool_reward": reward, "total_tokens": 100 * (step + 1)} | more


def eval_row(step: int, rate: float, error: float = 0.01) -> dict[str, Any]:
    rates = {"hard": {"pass_rate": rate, "standard_error": error}}
    return {"step": step, "total_tokens": 100 * step, "eval": rates}


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


def test_an_arm_is_the_mean_of_its_runs(tmp_path: Path) -> None:
    values = ((0.1, 0.2, 0.4), (0.3, 0.6, None), (0.5, 0.7, None))
    runs = [
        read_run(write_run(tmp_path / f"a-seed{seed}", (step_row(step, one) for step, one in enumerate(each))))
        for seed, each in enumerate(values)
    ]
    (arm,) = to_arms(runs)
    curve = arm.steps("pool_reward")
    assert curve.steps.tolist() == [0, 1, 2]
    # The last step has one value, which has no spread.
    np.testing.assert_allclose(curve.mean, [0.3, 0.5, 0.4], rtol=1e-12)
    # Deviations 0.2, 0, 0.2 and 0.3, 0.1, 0.2: standard deviations 0.2 and sqrt(0.14 / 2), over the root of 3.
    np.testing.assert_allclose(curve.error, [0.2 / 3**0.5, (0.07 / 3) ** 0.5, math.nan], rtol=1e-12)
    assert arm.left_out == 0


def test_steps_that_not_every_run_has_are_left_out_and_counted(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a-seed0", [*(step_row(step, 0.5) for step in range(5)), eval_row(0, 0.1)])
    second = write_run(tmp_path / "a-seed1", [*(step_row(step, 0.7) for step in range(1, 3)), eval_row(4, 0.2)])
    (arm,) = to_arms([read_run(first), read_run(second)])
    assert arm.steps("pool_reward").steps.tolist() == [1, 2]
    np.testing.assert_allclose(arm.steps("pool_reward").mean, 0.6, rtol=1e-12)
    assert arm.evals("eval.hard.pass_rate").steps.size == 0
    # Steps 0, 3 and 4 of the first, and an evaluation of each.
    assert arm.left_out == 5


def test_runs_are_smoothed_over_their_latest_steps_before_they_are_averaged(tmp_path: Path) -> None:
    rows = [step_row(step, value) for step, value in enumerate((1.0, 3.0, None, 5.0, 9.0))]
    (arm,) = to_arms([read_run(write_run(tmp_path / "a", rows))])
    np.testing.assert_allclose(arm.steps("pool_reward", 2).mean, [1, 2, 3, 5, 7], rtol=1e-12)
    np.testing.assert_array_equal(arm.steps("pool_reward", 1).mean, [1, 3, math.nan, 5, 9])
    np.testing.assert_allclose(arm.steps("pool_reward", 99).mean, [1, 2, 2, 3, 4.5], rtol=1e-12)
    # A run's first steps count in its mean also where another run lacks them.
    other = read_run(write_run(tmp_path / "b", [step_row(4, 1.0)]), label="a")
    assert Arm("a", [*arm.runs, other]).steps("pool_reward", 2).mean.tolist() == [4.0]


def test_numbers_lie_deep_in_a_row(tmp_path: Path) -> None:
    run = read_run(
        write_run(tmp_path / "a", [step_row(0, 1, time={"total": 2.5}), eval_row(0, 0.25), eval_row(9, 0.5)])
    )
    arm = Arm("a", [run])
    assert arm.steps("time.total").mean.tolist() == [2.5]
    assert arm.evals("eval.hard.pass_rate").mean.tolist() == [0.25, 0.5]
    assert arm.evals("total_tokens").mean.tolist() == [0.0, 900.0]
    assert np.isnan(arm.steps("time.nowhere").mean).all()
    assert np.isnan(arm.steps("pool_reward.deeper").mean).all()


@pytest.mark.parametrize(
    ("folder", "label"),
    [
        ("out/grpo-seed3", "grpo"),
        ("out/grpo_s12", "grpo"),
        ("out/grpo/seed-0", "grpo"),
        ("out/grpo/seed0", "grpo"),
        ("out/grpo-n16", "grpo-n16"),
        ("out/n=4, lr 1e-4.seed.2", "n=4, lr 1e-4"),
        ("out/bayes5", "bayes5"),
        ("out/seeds", "seeds"),
    ],
)
def test_the_seed_is_no_part_of_an_arms_name(folder: str, label: str) -> None:
    assert arm_label(Path(folder)) == label


def test_runs_are_grouped_as_told(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, [step_row(0, 0.5)]) for name in ("a-seed0", "b-seed0", "a-seed1")]
    arms = to_arms([read_run(folder) for folder in folders])
    assert [(arm.label, len(arm.runs)) for arm in arms] == [("a", 2), ("b", 1)]
    arms = to_arms([read_run(folder, group="policy") for folder in folders])
    assert [(arm.label, len(arm.runs)) for arm in arms] == [("grpo n=4", 3)]
    assert [run.label for run in (read_run(folder, group="run") for folder in folders)] == list(map(str, folders))
    assert read_run(folders[0], "mine", "policy").label == "mine"


def test_a_run_without_a_step_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [eval_row(0, 0.5)])
    with pytest.raises(InputError, match="has no row of a training step yet"):
        read_run(folder)


def test_every_arm_looks_different() -> None:
    looks = [tuple(line_style(index).values()) for index in range(28)]
    assert len(set(looks)) == 28


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
    assert [text.get_text() for text in figures["reward"].legends[0].texts] == ["a", "b$x$"]
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


def test_nothing_overlaps_the_panels_or_leaves_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"reinforce-ada-balance with a rather long name {index}" for index in range(9)]
    arms = to_arms([read_run(write_run(tmp_path / name, full_rows(0.01 * i))) for i, name in enumerate(names)])
    for name, figure in _drawn(arms, tmp_path, monkeypatch).items():
        # Fonts have other widths in each kind of file: lay the figure out for what it is measured with.
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()
        box = figure.legends[0].get_window_extent(renderer)
        assert box.x0 >= 0, name
        assert box.x1 <= figure.bbox.x1, name
        assert box.y1 <= figure.bbox.y1, name
        for axes in figure.axes:
            assert axes.get_tightbbox(renderer).y1 <= box.y0, name
            assert axes.get_window_extent(renderer).height > 60, name


def test_what_no_run_has_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = to_arms([read_run(write_run(tmp_path / "a", [step_row(0, 0.5), step_row(1, None)]))])
    figures = _drawn(arms, tmp_path, monkeypatch)
    said = {name: [text.get_text() for axes in figure.axes for text in axes.texts] for name, figure in figures.items()}
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
