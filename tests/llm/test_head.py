"""The output layer in tiles: the numbers and gradients of the plain one, with no more logits at a time than a tile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.head import Head, _tiles, find_head
from llm.loss import collate, token_statistics
from llm.models import load_model
from llm.types import KeptResponse
from tests.llm.test_loss import row

pytestmark = pytest.mark.torch

VOCABULARY, WIDTH, TOKENS = 37, 11, 23


def plain(
    hidden: Any, weight: Any, bias: Any, targets: Any, *, scale: float, cap: float, temperature: float
) -> tuple[Any, Any]:
    """Log-probabilities and entropies by torch's own functions and its own gradients, from all logits at once."""
    logits = torch.nn.functional.linear(hidden, weight, bias).float() * scale
    if cap < math.inf:
        logits = cap * torch.tanh(logits / cap)
    chances = torch.distributions.Categorical(logits=logits / temperature)
    return chances.log_prob(targets), chances.entropy()


def parts(dtype: Any = torch.float32, *, with_bias: bool = True) -> tuple[Any, Any, Any, Any, Any, Any]:
    random = torch.Generator().manual_seed(4)
    hidden = torch.randn(TOKENS, WIDTH, generator=random, dtype=torch.float64).to(dtype)
    weight = torch.randn(VOCABULARY, WIDTH, generator=random, dtype=torch.float64).to(dtype)
    bias = torch.randn(VOCABULARY, generator=random, dtype=torch.float64).to(dtype) if with_bias else None
    targets = torch.randint(VOCABULARY, (TOKENS,), generator=random)
    factors = torch.randn(2, TOKENS, generator=random)
    return hidden, weight, bias, targets, factors[0], factors[1]


@pytest.mark.parametrize("tokens", [1, 7, 23, 100])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("scale", "cap", "temperature"), [(1.0, math.inf, 1.0), (0.25, 3.0, 0.7), (2.0, math.inf, 1.3)]
)
def test_values_and_gradients_are_those_of_all_logits_at_once(
    tokens: int, with_bias: bool, scale: float, cap: float, temperature: float
) -> None:
    hidden, weight, bias, targets, by_logprob, by_entropy = parts(with_bias=with_bias)
    leaves = [each.requires_grad_() for each in (hidden, weight, bias) if each is not None]
    wanted = plain(hidden, weight, bias, targets, scale=scale, cap=cap, temperature=temperature)
    slow = torch.autograd.grad((wanted[0] * by_logprob + wanted[1] * by_entropy).sum(), leaves)
    head = Head(None, weight, bias, scale, cap, tokens * VOCABULARY)
    found = head.statistics(hidden, targets, temperature, entropy=True)
    ours = torch.autograd.grad((found[0] * by_logprob + found[1] * by_entropy).sum(), leaves)
    for one, other in zip((*found, *ours), (*wanted, *slow), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)
    # Without entropy: the same log-probabilities, and their gradient alone.
    alone, nothing = head.statistics(hidden, targets, temperature, entropy=False)
    assert nothing is None
    torch.testing.assert_close(alone, wanted[0], rtol=2e-5, atol=2e-5)
    wanted = plain(hidden, weight, bias, targets, scale=scale, cap=cap, temperature=temperature)
    for one, other in zip(
        torch.autograd.grad((alone * by_logprob).sum(), leaves),
        torch.autograd.grad((wanted[0] * by_logprob).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


def test_weights_that_are_not_trained_get_no_gradient() -> None:
    hidden, weight, bias, targets, by_logprob, _ = parts()
    hidden.requires_grad_()
    logprobs, _ = Head(None, weight, bias, 1.0, math.inf, 100).statistics(hidden, targets, 1.0, entropy=False)
    (logprobs * by_logprob).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
    assert bias.grad is None


def test_under_autocast_products_are_in_bfloat16_and_gradients_of_the_weights_type() -> None:
    hidden, weight, bias, targets, by_logprob, by_entropy = parts()
    leaves = [each.requires_grad_() for each in (hidden, weight, bias)]
    exact = plain(hidden, weight, bias, targets, scale=1.0, cap=math.inf, temperature=1.0)
    exact_grads = torch.autograd.grad((exact[0] * by_logprob + exact[1] * by_entropy).sum(), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = plain(hidden, weight, bias, targets, scale=1.0, cap=math.inf, temperature=1.0)
        found = Head(None, weight, bias, 1.0, math.inf, 5 * VOCABULARY).statistics(hidden, targets, 1.0, entropy=True)
    # The same products of rounded factors.
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    ours = torch.autograd.grad((found[0] * by_logprob + found[1] * by_entropy).sum(), leaves)
    for one, other in zip(ours, exact_grads, strict=True):
        assert one.dtype == torch.float32
        # bfloat16 has 8 bits; errors are relative to the largest entries.
        assert float((one - other).abs().max() / other.abs().max()) < 0.03


def test_no_more_than_a_tile_of_logits_exists_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, targets, _, _ = parts()
    sizes: list[int] = []
    linear = torch.nn.functional.linear

    def watched(*args: Any) -> Any:
        made = linear(*args)
        sizes.append(made.numel())
        return made

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    _tiles.cache_clear()
    try:
        head = Head(None, weight.requires_grad_(), bias, 1.0, math.inf, 4 * VOCABULARY)
        logprobs, entropy = head.statistics(hidden, targets, 1.0, entropy=True)
        (logprobs.sum() + entropy.sum()).backward()
    finally:
        _tiles.cache_clear()
    # 23 tokens are five tiles of 4 and one of 3, forwards and backwards.
    assert sizes == [4 * VOCABULARY] * 5 + [3 * VOCABULARY] + [4 * VOCABULARY] * 5 + [3 * VOCABULARY]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_model_gives_the_same_statistics_and_gradients_in_tiles(
    tiny_model_dir: Path, tiny_tied_dir: Path, tied: bool, temperature: float
) -> None:
    model = load_model(tiny_tied_dir if tied else tiny_model_dir)
    rows = [row([3, 4, 5], [6, 7]), row([8], [9, 3, 4, 5]), row([3, 3, 3, 3, 3], [4])]
    batch = collate(rows, pad=0, device="cpu")
    head, why = find_head(model, 2 * 23)
    assert head is not None, why
    assert not head.fits(3 * 5)
    by_logprob, by_entropy = torch.randn(2, *batch.mask.shape, generator=torch.Generator().manual_seed(1)) * batch.mask
    results = []
    for each in (None, head):
        logprobs, entropy = token_statistics(model, batch, temperature, head=each)
        (logprobs * by_logprob + entropy * by_entropy).sum().backward()
        results.append([logprobs * batch.mask, entropy * batch.mask, *(p.grad.clone() for p in model.parameters())])
        model.zero_grad()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)
    # Where all logits fit one tile, the plain path is taken, to the bit.
    roomy, _ = find_head(model, 3 * 5 * 23)
    with torch.no_grad():
        for one, other in zip(
            token_statistics(model, batch, temperature, head=roomy),
            token_statistics(model, batch, temperature),
            strict=True,
        ):
            assert torch.equal(one, other)


def small(name: str, **options: Any) -> Any:
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        initializer_range=0.5,
        **options,
    )
    torch.manual_seed(0)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.parametrize(
    ("name", "options", "scale", "cap"),
    [
        ("Gemma2", {"final_logit_softcapping": 5.0}, 1.0, 5.0),
        ("Cohere", {"logit_scale": 0.25}, 0.25, math.inf),
        ("Granite", {"logits_scaling": 4.0}, 0.25, math.inf),
    ],
)
def test_soft_caps_and_scales_are_those_of_the_config(name: str, options: Any, scale: float, cap: float) -> None:
    model = small(name, **options)
    head, why = find_head(model, 2 * 40)
    assert head is not None, why
    assert (head.scale, head.cap) == (scale, cap)
    batch = collate([row([3, 4, 5], [6, 7]), row([8], [9, 3, 4, 5])], pad=0, device="cpu")
    with torch.no_grad():
        wanted, found = token_statistics(model, batch, 1.0), token_statistics(model, batch, 1.0, head=head)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one * batch.mask, other * batch.mask, rtol=1e-4, atol=1e-5)


def test_a_model_with_more_after_its_head_takes_the_plain_path_and_says_so(tiny_model_dir: Path) -> None:
    model = load_model(tiny_model_dir)
    forward = model.forward

    def doubled(*args: Any, **options: Any) -> Any:
        out = forward(*args, **options)
        out.logits = out.logits + 0.01 * out.logits.square()
        return out

    model.forward = doubled
    head, why = find_head(model, 100)
    assert head is None
    assert "more to its logits than scale and cap" in why
    model = load_model(tiny_model_dir)
    model.lm_head = torch.nn.Sequential(model.lm_head)
    head, why = find_head(model, 100)
    assert head is None
    assert "no plain linear layer" in why


def test_rows_without_tokens_of_their_own_are_zero_in_tiles(tiny_model_dir: Path) -> None:
    model = load_model(tiny_model_dir)
    head, _ = find_head(model, 23)
    rows: list[KeptResponse] = [row([3], [4, 5, 6]), row([3], [7])]
    with torch.no_grad():
        logprobs, entropy = token_statistics(model, collate(rows, 0, "cpu"), 1.0, head=head)
    assert logprobs[1, 1:].tolist() == entropy[1, 1:].tolist() == [0.0, 0.0]
