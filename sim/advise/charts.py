"""Figures of the report as SVG text: no file, no font and no script from outside, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from ada_bandit._types import FloatArray
from sim.advise.study import Advice

__all__ = ["composition", "law_bars", "noise_lines", "small_range"]

_WIDTH, _HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 12, 44


@dataclass
class _Plot:
    """A panel that is drawn into, in pixels of the view box."""

    x: Callable[[float], float]
    y: Callable[[float], float]
    parts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.parts.append(text)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> None:
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>')

    def x_ticks(self, ticks: Sequence[tuple[float, str]], name: str) -> None:
        for at, words in ticks:
            self.text(self.x(at), _HEIGHT - _BOTTOM + 16, words)
        self.text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, name, "name")

    def y_ticks(self, ticks: Sequence[tuple[float, str]]) -> None:
        for at, words in ticks:
            y = self.y(at)
            self.add(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.text(_LEFT - 6, y + 4, words, anchor="end")

    def line(self, at: Sequence[float], values: Sequence[float], kind: str) -> None:
        points = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(at, values, strict=True))
        self.add(f'<polyline class="{kind}" points="{points}"/>')

    def area(self, at: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> None:
        up = [f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(at, high, strict=True)]
        down = [f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(at, low, strict=True)]
        self.add(f'<polygon class="{kind}" points="{" ".join(up + down[::-1])}"/>')

    def svg(self, label: str) -> str:
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
            + "".join(self.parts)
            + "</svg>"
        )


def _scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    change = math.log if log else float
    first, last = change(low), change(high)
    return lambda value: start + (change(value) - first) / (last - first) * (end - start)


def _frame(x: tuple[float, float], y: tuple[float, float], *, log_x: bool = False, log_y: bool = False) -> _Plot:
    return _Plot(_scale(*x, _LEFT, _WIDTH - _RIGHT, log=log_x), _scale(*y, _HEIGHT - _BOTTOM, _TOP, log=log_y))


def law_bars(advice: Advice) -> str:
    """Draw the share of prompts by classes of pass rates, with the part whose groups have signal now."""
    shares = advice.shares
    # What is off the scale, of an interval, isn't shown.
    top = max(0.05, *(each.share.value * 1.08 for each in shares))
    top = min(1.0, max(top, *(min(_finite(each.share.high), each.share.value * 1.6 + 0.02) for each in shares)))
    plot = _frame((0, len(shares)), (0, top))
    plot.y_ticks([(tick, f"{tick:.0%}") for tick in _round_ticks(top)])
    for place, each in enumerate(shares):
        left, right = plot.x(place) + 2, plot.x(place + 1) - 2
        with_signal = each.share.value * each.signal
        for low, high, kind in ((0.0, with_signal, "good"), (with_signal, each.share.value, "idle")):
            y, height = plot.y(high), plot.y(low) - plot.y(high)
            plot.add(
                f'<rect class="{kind}" x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" height="{height:.1f}"/>'
            )
        if math.isfinite(each.share.low):
            middle = (left + right) / 2
            low_y, high_y = plot.y(each.share.low), plot.y(min(each.share.high, top))
            plot.add(f'<line class="error" x1="{middle:.1f}" x2="{middle:.1f}" y1="{low_y:.1f}" y2="{high_y:.1f}"/>')
    edges = [each.low for each in shares] + [shares[-1].high]
    plot.x_ticks([(place, f"{edge:g}".replace("0.", ".")) for place, edge in enumerate(edges)], "pass rate of a prompt")
    return plot.svg("Share of prompts by pass rate")


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _round_ticks(top: float) -> list[float]:
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5) if top / step <= 5.5)
    return [step * k for k in range(int(top / step + 1e-9) + 1)]


def composition(advice: Advice) -> str:
    """Draw what groups of n plain responses hold: none right, both classes, all right."""
    plot = _frame((1, 64), (0, 1), log_x=True)
    plot.y_ticks([(tick, f"{tick:.0%}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)])
    n = np.unique(np.round(np.geomspace(1, 64, 40))).tolist()
    p, weights = advice.law.rates, advice.law.weights
    wrong = [float(weights @ (1 - p) ** each) for each in n]
    right = [1 - float(weights @ p**each) for each in n]
    plot.area(n, [0.0] * len(n), wrong, "hard")
    plot.area(n, wrong, right, "good")
    plot.area(n, right, [1.0] * len(n), "easy")
    if advice.now.n <= 64 and not advice.now.adaptive:
        x = plot.x(advice.now.n)
        plot.add(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{plot.y(0):.1f}" y2="{plot.y(1):.1f}"/>')
        side = "end" if advice.now.n > 16 else "start"
        plot.text(x + (-4 if side == "end" else 4), plot.y(0.93), "now", "strong", side)
    plot.x_ticks([(each, str(each)) for each in (1, 2, 4, 8, 16, 32, 64)], "responses a prompt, n")
    return plot.svg("What groups of n responses hold")


_LINES = ("one", "two", "three", "four", "five")


def noise_lines(lines: Sequence[tuple[str, FloatArray, FloatArray]], noise: Sequence[float]) -> str:
    """Draw factors over now against the noise ratio; lines are label, values, and their names stand beside the figure.

    Parameters
    ----------
    lines
        Label, ``[noise]`` values, and ``[2, noise]`` the interval, of each.
    noise
        Noise ratios.
    """
    every = np.concatenate([values for _, values, _ in lines])
    low, high = float(np.nanmin(every)) * 0.9, float(np.nanmax(every)) * 1.1
    low, high = min(low, 0.8), max(high, 1.25)
    plot = _frame((noise[0], noise[-1]), (low, high), log_x=True, log_y=True)
    ticks = [
        tick for tick in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0) if low <= tick <= high
    ]
    plot.y_ticks([(tick, f"{tick:g}") for tick in ticks])
    y = plot.y(1.0)
    plot.add(f'<line class="mark" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for place, (_, _, ends) in enumerate(lines):
        clipped = np.clip(ends, low, high)
        plot.area(noise, clipped[0].tolist(), clipped[1].tolist(), f"band {_LINES[place]}")
    for place, (_, values, _) in enumerate(lines):
        plot.line(noise, values.tolist(), f"line {_LINES[place]}")
    plot.x_ticks([(each, f"{each:g}") for each in noise], "noise ratio of scores")
    return plot.svg("Progress per response over now, by noise ratio")


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return the names of what a figure shows: pairs of a class and its words."""
    items = "".join(f'<li><span class="key {kind}"></span>{escape(words)}</li>' for kind, words in entries)
    return f'<ul class="legend">{items}</ul>'


def line_legend(labels: Sequence[str]) -> str:
    """Return the legend of `noise_lines`."""
    return legend([(f"stroke {_LINES[place]}", label) for place, label in enumerate(labels)])


def small_range(value: float, low: float, high: float, ends: tuple[float, float]) -> str:
    """Draw a factor with its interval and its range over the settings, on an axis from a quarter to four."""
    width, height = 132, 16
    scale = _scale(0.2, 5.0, 2, width - 2, log=True)

    def at(number: float) -> float:
        return scale(min(max(number, 0.2), 5.0))

    middle = height / 2
    parts = [
        f'<line class="mark" x1="{at(1):.1f}" x2="{at(1):.1f}" y1="1" y2="{height - 1}"/>',
        f'<line class="span" x1="{at(ends[0]):.1f}" x2="{at(ends[1]):.1f}" y1="{middle}" y2="{middle}"/>',
    ]
    if math.isfinite(low):
        parts.append(f'<line class="error" x1="{at(low):.1f}" x2="{at(high):.1f}" y1="{middle}" y2="{middle}"/>')
    parts.append(f'<circle class="dot" cx="{at(value):.1f}" cy="{middle}" r="3.5"/>')
    return f'<svg class="small" viewBox="0 0 {width} {height}" aria-hidden="true">{"".join(parts)}</svg>'
