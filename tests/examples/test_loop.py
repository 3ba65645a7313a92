from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ada_bandit import Policy

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch
PATH = Path(__file__).parents[2] / "examples" / "loop.py"


@pytest.fixture
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loop", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return module


def run(loop: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    monkeypatch.setattr("sys.argv", ["loop.py", *options])
    loop.main()
    *_, last = capsys.readouterr().out.splitlines()
    match = re.fullmatch(r"(.+): pass rate (0\.\d+) before, (0\.\d+) after ([\d,]+) responses", last)
    assert match is not None, last
    return float(match[2]), float(match[3]), int(match[4].replace(",", ""))


def test_it_fits_on_a_few_screens_and_needs_no_more_than_the_public_face() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert re.findall(r"(?:from|import) (ada_bandit\S*)", text) == ["ada_bandit", "ada_bandit.uniforms"]
    assert not re.search(r"^(from|import) llm", text, re.MULTILINE)


def test_a_few_steps_spend_what_the_policy_may(
    loop: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--pretrain-steps", "5", "--steps", "2", "--prompts", "8")
    _, _, spent = run(loop, monkeypatch, capsys, *few, "--policy", "grpo")
    # 2 steps x 8 prompts x 4 responses.
    assert spent == 64
    _, _, spent = run(loop, monkeypatch, capsys, *few)
    # 1 to 4 rounds of 8.
    assert 128 <= spent <= 512


def test_log_probabilities_are_those_of_the_responses_tokens(loop: ModuleType) -> None:
    model = loop.make_model()
    tokens = loop.encode(["47+05=052", "99+99=198"])
    with torch.no_grad():
        told = loop.response_logprobs(model, tokens)
        for row in range(2):
            for place in range(3):
                before = tokens[row : row + 1, : 6 + place]
                chance = torch.log_softmax(model(before).logits[0, -1], -1)[tokens[row, 6 + place]]
                torch.testing.assert_close(told[row, place], chance, atol=1e-5, rtol=0)


def test_problems_are_sums(loop: ModuleType) -> None:
    for prompt, answer in zip(*loop.make_problems(50, 3), strict=True):
        a, b = prompt.rstrip("=").split("+")
        assert (len(a), len(b), len(answer)) == (2, 2, 3)
        assert int(a) + int(b) == int(answer)


@pytest.mark.slow
def test_it_learns(loop: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before, after, _ = run(loop, monkeypatch, capsys, "--steps", "75")
    # A pass rate of 1,000 problems has a standard error of 0.016 at the most.
    assert after > before + 0.06


def test_advantages_of_zero_change_nothing(loop: ModuleType) -> None:
    model = loop.make_model()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    # A model that is never right gives no group a signal.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_problems", lambda count, _: (["00+00="] * count, ["no!"] * count))
        spent = loop.train(model, Policy.preset("grpo"), 2, 4, 0)
    assert spent == 2 * 4 * 4
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
