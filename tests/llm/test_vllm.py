"""vLLM against transformers: the same log-probabilities, before and after syncs of the weights."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ada_bandit._types import IntArray
from ada_bandit.errors import InputError
from llm.config import SamplerConfig
from llm.errors import SyncError
from llm.models import load_model, load_tokenizer
from llm.samplers.make import make_sampler
from llm.samplers.vllm import VLLMSampler
from tests.llm.conftest import make_model_dir
from tests.llm.twins import logprobs_after, next_logprobs

pytest.importorskip("vllm")
torch = pytest.importorskip("torch")
# Importing vLLM makes torch warn of its own code.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EOS = 1
SHORT = "12+3="
# Longer than a block of the prefix cache, 128 tokens.
LONG = "".join(f"{a}*{a + 7}={a * (a + 7)}, " for a in range(2, 24))[:200]


@pytest.fixture(scope="module", params=["untied", "tied"])
def folder(request: pytest.FixtureRequest, tiny_model_dir: Path, tiny_tied_dir: Path) -> Path:
    return tiny_tied_dir if request.param == "tied" else tiny_model_dir


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(tiny_model_dir)


@pytest.fixture(scope="module")
def engine(folder: Path, tokenizer: Any) -> Iterator[VLLMSampler]:
    made = make_sampler(SamplerConfig(kind="vllm", max_new_tokens=16, temperature=0.8), folder, tokenizer)
    assert isinstance(made, VLLMSampler)
    yield made
    made.close()


@pytest.fixture
def model(folder: Path) -> Any:
    return load_model(folder)


@pytest.fixture
def sampler(engine: VLLMSampler, model: Any) -> VLLMSampler:
    """The engine with the weights of the model, not checked yet."""
    engine._load(model)
    engine._checked = False
    return engine


def ask(sampler: VLLMSampler, tokenizer: Any, seed: int = 0, temperature: float | None = None) -> tuple[Any, Any]:
    prompts = [tokenizer(text)["input_ids"] for text in (SHORT, LONG) for _ in range(6)]
    ids: IntArray = np.array([(prompt, draw) for prompt in range(2) for draw in range(6)])
    return prompts, sampler.generate(prompts, ids, seed, temperature)


def gap(model: Any, asked: tuple[Any, Any], temperature: float = 0.8) -> tuple[float, float]:
    """Greatest difference to the model's own log-probabilities: after the short prompt, and the long one."""
    each = [
        np.abs(logprobs_after(model, p, r.tokens, temperature) - r.logprobs).max() for p, r in zip(*asked, strict=True)
    ]
    return max(each[:6]), max(each[6:])


def disturb(model: Any, step: int) -> None:
    noise = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=noise))


def test_logprobs_agree_before_and_after_three_syncs(sampler: VLLMSampler, model: Any, tokenizer: Any) -> None:
    assert max(gap(model, ask(sampler, tokenizer))) < 1e-4
    for step in range(3):
        disturb(model, step)
        # The weights are others now, and both prompts show it.
        assert min(gap(model, ask(sampler, tokenizer, step))) > 0.1
        sampler.sync(model)
        assert max(gap(model, ask(sampler, tokenizer, step))) < 1e-4
    assert max(gap(model, ask(sampler, tokenizer, 3, 1.7), 1.7)) < 1e-4


def test_the_check_leaves_the_model_alone(sampler: VLLMSampler, model: Any) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    sampler.sync(model)
    assert model.training
    assert sampler._checked
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_check_stops_where_no_weights_arrive(
    sampler: VLLMSampler, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # vLLM has the model's very weights already, as before the first update of a run.
    monkeypatch.setattr(sampler, "_load", lambda _model: None)
    with pytest.raises(SyncError, match=r"differ from the model's by \d.* on average .* allows 0\.001"):
        sampler.sync(model)
    assert not sampler._checked
    monkeypatch.setattr(sampler, "check_tolerance", None)
    sampler.sync(model)


def test_the_check_stops_where_the_prefix_cache_stays(
    sampler: VLLMSampler, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler._engine, "reset_prefix_cache", lambda: True)
    with pytest.raises(SyncError, match="prompt of 192 tokens"):
        sampler.sync(model)


def test_the_check_stops_where_the_output_layer_stays(
    sampler: VLLMSampler, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = type(model).state_dict
    monkeypatch.setattr(
        type(model),
        "state_dict",
        lambda each: {name: tensor for name, tensor in state(each).items() if name != "lm_head.weight"},
    )
    with pytest.raises(SyncError, match="other weights"):
        sampler.sync(model)


def test_responses_are_a_function_of_seed_prompt_and_draw(sampler: VLLMSampler, tokenizer: Any) -> None:
    first, again, other = (ask(sampler, tokenizer, seed)[1] for seed in (1, 1, 2))
    assert [r.tokens.tolist() for r in first] == [r.tokens.tolist() for r in again]
    assert sum(a.tokens.tolist() == b.tokens.tolist() for a, b in zip(first, other, strict=True)) < 3
    assert len({tuple(r.tokens.tolist()) for r in first}) > 9
    prompt = tokenizer(LONG)["input_ids"]
    (alone,) = sampler.generate([prompt], np.array([[1, 4]]), 1)
    assert alone.tokens.tolist() == first[10].tokens.tolist()


def test_tokens_come_with_the_models_probabilities(sampler: VLLMSampler, model: Any, tokenizer: Any) -> None:
    size = 4000
    prompt = tokenizer(SHORT)["input_ids"]
    responses = sampler.generate([prompt] * size, np.stack([np.zeros(size, int), np.arange(size)], 1), 5)
    expected = size * np.exp(next_logprobs(model, prompt, 0.8)[-1])
    seen = np.bincount([int(r.tokens[0]) for r in responses], minlength=expected.size)
    common = expected > 5
    # A chi-square sum over k tokens has mean k - 1 and variance 2 (k - 1); six deviations above are a defect.
    chi_square = ((seen - expected)[common] ** 2 / expected[common]).sum()
    assert chi_square < common.sum() + 6 * np.sqrt(2 * common.sum())


def test_ends_and_text(sampler: VLLMSampler, tokenizer: Any) -> None:
    size = 100
    prompt = tokenizer(SHORT)["input_ids"]
    responses = sampler.generate([prompt] * size, np.stack([np.zeros(size, int), np.arange(size)], 1), 6)
    assert {r.finish for r in responses} == {"stop", "length"}
    for response in responses:
        tokens = response.tokens.tolist()
        assert tokens.index(EOS) == len(tokens) - 1 if response.finish == "stop" else len(tokens) == 16
        assert response.text == "".join(tokenizer.convert_ids_to_tokens([each for each in tokens if each > 2]))


def test_requests_that_are_refused(sampler: VLLMSampler) -> None:
    one = np.array([[0, 0]])
    with pytest.raises(InputError, match="241 tokens and 16 new ones don't fit into the model's context of 256"):
        sampler.generate([[5] * 241], one, 0)
    with pytest.raises(InputError, match=r"temperature must be a finite number in \[0\.01"):
        sampler.generate([[5]], one, 0, 0.005)
    assert sampler.generate([], np.empty((0, 2), dtype=np.int64), 0) == []


def test_models_that_are_refused(tmp_path: Path, tokenizer: Any) -> None:
    with pytest.raises(InputError, match="no-such-directory"):
        VLLMSampler(tmp_path / "no-such-directory", tokenizer)
    narrow = make_model_dir(tmp_path / "narrow", width=32)
    with pytest.raises(InputError, match="heads have 16 channels"):
        VLLMSampler(narrow, tokenizer)
    weightless = make_model_dir(tmp_path / "weightless")
    (weightless / "model.safetensors").unlink()
    with pytest.raises(InputError, match="can't start on the model"):
        VLLMSampler(weightless, tokenizer)


def test_a_closed_engine_is_gone(tiny_model_dir: Path, tokenizer: Any) -> None:
    threads = torch.set_num_threads
    sampler = VLLMSampler(tiny_model_dir, tokenizer, max_new_tokens=4)
    assert torch.set_num_threads is threads
    engine = weakref.ref(sampler._engine)
    sampler.close()
    sampler.close()
    gc.collect()
    assert engine() is None
    assert not torch.distributed.is_initialized()
    with pytest.raises(InputError, match="closed"):
        sampler.generate([[5]], np.array([[0, 0]]), 0)
