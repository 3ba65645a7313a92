from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ada_bandit.errors import InputError
from llm.digits import digit_tokenizer
from llm.models import load_model, load_tokenizer
from llm.tiny import _batches, _new_model, make_tiny

pytestmark = pytest.mark.torch


def test_a_few_steps_make_a_model_that_can_be_loaded(tmp_path: Path) -> None:
    losses: list[float] = []
    out = tmp_path / "tiny"
    rate = make_tiny(out, steps=12, batch=32, width=32, layers=1, report=lambda step, loss: losses.append(loss))
    made = json.loads((out / "made.json").read_text(encoding="utf-8"))
    assert (made["steps"], made["pass_rate"]) == (12, rate)
    assert losses[-1] < losses[0]
    model, tokenizer = load_model(out), load_tokenizer(out)
    assert made["parameters"] == sum(each.numel() for each in model.parameters())
    assert tokenizer("12+7=")["input_ids"] == [tokenizer.convert_tokens_to_ids(each) for each in "12+7="]
    with pytest.raises(InputError, match="is there already"):
        make_tiny(out, steps=1)


def test_the_model_has_645_000_parameters() -> None:
    count = sum(each.numel() for each in _new_model(digit_tokenizer(), 0, 128, 3).parameters())
    assert abs(count - 645_000) < 5_000


def test_the_same_seed_makes_the_same_weights_and_leaves_torch_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_tiny(tmp_path / name, steps=2, batch=8, width=32, layers=1, seed=seed)
    assert torch.equal(torch.random.get_rng_state(), before)
    a, b, c = (load_model(tmp_path / name).state_dict() for name in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


def test_the_loss_is_of_answers_alone() -> None:
    tokenizer = digit_tokenizer()
    ids, mask, labels = next(_batches(tokenizer, 5, 1, 16))
    for row, there, told in zip(ids.tolist(), mask.tolist(), labels.tolist(), strict=True):
        text = tokenizer.decode(row[: sum(there)])
        asked, answer = text.split("=")
        assert told[: len(asked) + 1] == [-100] * (len(asked) + 1)
        assert tokenizer.decode([each for each in told if each != -100]) == answer
        assert answer.endswith("<eos>")
        if "+" in asked:
            assert sum(map(int, asked.split("+"))) == int(answer.removesuffix("<eos>"))
