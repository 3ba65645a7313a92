from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from llm.loss import collate, objective, token_statistics
from llm.models import load_model
from llm.types import KeptResponse, Response

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def tiny_model(tiny_model_dir: Path) -> Any:
    return load_model(tiny_model_dir)


def row(prompt: list[int], tokens: list[int], advantage: float = 1.0) -> KeptResponse:
    logprobs = -0.5 * np.arange(1, len(tokens) + 1, dtype=np.float64)
    return KeptResponse(0, prompt, Response(np.array(tokens), logprobs, "", "stop"), advantage)


def test_objective_by_hand() -> None:
    # Ratios 2, 1/2, 1.1 and 1; clip range [0.8, 1.28]; A = 1 in the first row, -1 in the second.
    ratios = torch.tensor([[2.0, 0.5, 1.1, 1.0], [2.0, 0.5, 1.1, 1.0]])
    value, decided = objective(
        torch.log(ratios), torch.zeros(2, 4), torch.tensor([1.0, -1.0]), clip_low=0.2, clip_high=0.28
    )
    # A > 0: min(r, clip(r)); A < 0: min(-r, -clip(r)) = -max(r, clip(r)).
    assert value.tolist() == [
        pytest.approx([1.28, 0.5, 1.1, 1.0], rel=1e-6),
        pytest.approx([-2.0, -0.8, -1.1, -1.0], rel=1e-6),
    ]
    assert decided.tolist() == [[True, False, False, False], [False, True, False, False]]


def test_dual_clip_by_hand() -> None:
    # Ratio 20 at A = -2: without the dual clip -40, with c = 10 no less than -20. A > 0 isn't touched.
    logprobs = torch.log(torch.tensor([[20.0, 9.0], [20.0, 0.5]]))
    value, decided = objective(
        logprobs, torch.zeros(2, 2), torch.tensor([-2.0, 2.0]), clip_low=0.2, clip_high=0.28, dual_clip=10.0
    )
    assert value.tolist() == [pytest.approx([-20.0, -18.0], rel=1e-6), pytest.approx([2.56, 1.0], rel=1e-6)]
    assert decided.tolist() == [[True, False], [True, False]]


def slow_objective(logprob: float, old: float, a: float, low: float, high: float, c: float) -> float:
    r = math.exp(logprob - old)
    clipped = min(max(r, 1 - low), 1 + high)
    value = min(r * a, clipped * a)
    return max(value, c * a) if c and a < 0 else value


@pytest.mark.parametrize("c", [0.0, 1.5, 10.0])
def test_objective_against_a_slow_loop(c: float) -> None:
    random = np.random.default_rng(0)
    new, old = random.normal(-2, 1, (2, 40, 7))
    advantages = random.normal(0, 1, 40)
    value, _ = objective(
        torch.tensor(new), torch.tensor(old), torch.tensor(advantages), clip_low=0.2, clip_high=0.28, dual_clip=c
    )
    slow = [[slow_objective(new[i, t], old[i, t], advantages[i], 0.2, 0.28, c) for t in range(7)] for i in range(40)]
    assert np.allclose(value.numpy(), slow, rtol=1e-12)


def test_a_clipped_token_has_no_gradient_and_a_free_one_the_advantage() -> None:
    logprobs = torch.log(torch.tensor([[2.0, 1.1]])).requires_grad_()
    value, _ = objective(logprobs, torch.zeros(1, 2), torch.tensor([3.0]), clip_low=0.2, clip_high=0.28)
    (gradient,) = torch.autograd.grad(value.sum(), logprobs)
    # d(r A)/d log pi = r A.
    assert gradient.tolist() == [pytest.approx([0.0, 3.3], rel=1e-6)]


def test_collate_pads_prompts_left_and_responses_right() -> None:
    batch = collate([row([5], [7, 8, 9]), row([4, 6], [3], -2.0)], pad=0, device="cpu")
    assert batch.input_ids.tolist() == [[0, 5, 7, 8, 9], [4, 6, 3, 0, 0]]
    assert batch.attention_mask.tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.responses.tolist() == [[7, 8, 9], [3, 0, 0]]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.sampled.tolist() == [[-0.5, -1.0, -1.5], [-0.5, 0, 0]]
    assert batch.advantages.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_token_statistics_equal_one_row_at_a_time_without_padding(tiny_model: Any, temperature: float) -> None:
    rows = [row([3, 4, 5], [6, 7]), row([8], [9, 3, 4, 5]), row([3, 3, 3, 3, 3], [4])]
    batch = collate(rows, pad=0, device="cpu")
    with torch.no_grad():
        logprobs, entropy = token_statistics(tiny_model, batch, temperature)
        for i, each in enumerate(rows):
            prompt, tokens = list(each.prompt_tokens), each.response.tokens.tolist()
            logits = tiny_model(input_ids=torch.tensor([prompt + tokens])).logits[0].double() / temperature
            for t, token in enumerate(tokens):
                at = torch.log_softmax(logits[len(prompt) + t - 1], dim=-1)
                assert float(logprobs[i, t]) == pytest.approx(float(at[token]), abs=1e-5)
                assert float(entropy[i, t]) == pytest.approx(float(-(at.exp() * at).sum()), abs=1e-5)
