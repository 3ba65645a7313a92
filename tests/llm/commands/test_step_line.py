from __future__ import annotations

import pytest

from llm.commands.step_line import StepLine, _duration
from tests.llm.rows import ROW


def test_the_line_is_printed_now_and_then_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    time = 0.0
    with StepLine(10, 2, every=30.0, clock=lambda: time) as line:
        for step in range(2, 10):
            time += 12.0
            line.update(step, ROW)
    out, err = capsys.readouterr()
    assert out == ""
    # Times 12, 48 (36 after 12, as 24 is too soon), 84; and the last step at 96. Each step took 12 seconds.
    text = "reward 0.250 (selected -) · 1,234 responses · 56,789 tokens · signal 50% · 2.2 s"
    assert err.splitlines() == [
        f"step 3/10 · {text} · 84 s left",
        f"step 6/10 · {text} · 48 s left",
        f"step 9/10 · {text} · 12 s left",
        f"step 10/10 · {text} · 0 s left",
    ]


def test_the_line_is_live_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with StepLine(4) as line:
        line.update(0, {"pool_reward": 0.5})
    err = capsys.readouterr().err
    assert "1/4" in err
    assert "reward 0.500" in err
    assert "step 1/4" not in err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89.4, "89 s"), (91, "2 min"), (3569, "59 min"), (3571, "1 h 00 min"), (45240, "12 h 34 min")],
)
def test_a_duration_in_words(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
