from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ada_bandit import Allocator, Policy, analyze
from ada_bandit.uniforms import uniform
from llm.config import RunConfig
from llm.distributed import World
from llm.models import load_model
from llm.types import KeptResponse, Response
from llm.update import Update

pytestmark = pytest.mark.torch


def config(**train: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "model": {"path": "unused"},
            "task": {"kind": "digits"},
            "train": {"prompts": 4, "mini_batch": 4, "entropy": 0.0, "learning_rate": 0.1, "warmup_steps": 0} | train,
        }
    )


def make_rows() -> list[KeptResponse]:
    random = np.random.default_rng(3)
    rows = []
    for prompt, size in [(0, 3), (0, 5), (1, 1), (2, 4), (3, 2), (3, 2)]:
        tokens = random.integers(3, 20, size)
        response = Response(tokens, -random.random(size), "", "stop")
        rows.append(KeptResponse(prompt, random.integers(3, 20, 2 + prompt).tolist(), response, float(random.normal())))
    return rows


def gradients(update: Update, rows: list[KeptResponse]) -> list[Any]:
    update.backward(rows, {}, torch.zeros(6, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    grads = [each.grad.clone() for each in update.parameters]
    update.optimizer.zero_grad(set_to_none=True)
    return grads


@pytest.fixture
def model(tiny_model_dir: Path) -> Any:
    return load_model(tiny_model_dir).double()


def log_probability(model: Any, row: KeptResponse) -> Any:
    """Log-probability of every token of a response, alone and without padding."""
    tokens = row.response.tokens.tolist()
    logits = model(input_ids=torch.tensor([[*row.prompt_tokens, *tokens]])).logits[0]
    at = torch.log_softmax(logits, -1)[len(row.prompt_tokens) - 1 : -1]
    return at[torch.arange(len(tokens)), torch.tensor(tokens)]


@pytest.mark.parametrize("micro_batch", [1, 4, 8])
def test_the_first_gradient_is_reinforce_with_a_baseline(model: Any, micro_batch: int) -> None:
    rows = make_rows()
    got = gradients(Update(model, config(micro_batch=micro_batch), 0, "cpu", World()), rows)
    tokens = sum(row.response.tokens.size for row in rows)
    loss = -sum(row.advantage * log_probability(model, row).sum() for row in rows) / tokens
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    for ours, theirs in zip(got, wanted, strict=True):
        # Statistics are taken in float32.
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)


def test_entropy_bonus_adds_its_gradient(model: Any) -> None:
    rows = [KeptResponse(row.prompt, row.prompt_tokens, row.response, 0.0) for row in make_rows()]
    got = gradients(Update(model, config(entropy=0.5), 0, "cpu", World()), rows)
    tokens, total = 0, torch.zeros(())
    for row in rows:
        ids = [*row.prompt_tokens, *row.response.tokens.tolist()]
        at = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], -1)[len(row.prompt_tokens) - 1 : -1]
        total = total - (at.exp() * at).sum()
        tokens += row.response.tokens.size
    wanted = torch.autograd.grad(-0.5 * total / tokens, list(model.parameters()))
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)


def test_mini_batches_epochs_and_old_log_probabilities(model: Any) -> None:
    """Two mini-batches, two epochs: the second update's ratios are to the weights that the step started with."""
    import copy

    rows = make_rows()
    train = {"mini_batch": 2, "epochs": 2, "learning_rate": 0.01, "weight_decay": 0.0, "grad_clip": 0.0}
    slow = copy.deepcopy(model)
    seen = Update(model, config(**train), 0, "cpu", World()).step(5, rows, 4)
    assert (seen["updates"], seen["skipped_updates"]) == (4, 0)
    optimizer = torch.optim.AdamW(slow.parameters(), lr=0.01, weight_decay=0.0)
    old = {id(row): log_probability(slow, row).detach() for row in rows}
    ratios, kls, gaps = [], [], []
    for part in [rows[:3], rows[3:]] * 2:
        tokens = sum(row.response.tokens.size for row in part)
        loss = torch.zeros(())
        for row in part:
            r = torch.exp(log_probability(slow, row) - old[id(row)])
            ratios.append(float(r.detach().max()))
            loss = loss - torch.minimum(r * row.advantage, r.clamp(0.8, 1.28) * row.advantage).sum() / tokens
            gap = torch.tensor(row.response.logprobs) - old[id(row)]
            kls.append(float((torch.exp(-gap) - 1 + gap).sum()))
            gaps.append(float(gap.abs().max()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for ours, theirs in zip(model.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert seen["ratio_max"] == pytest.approx(max(ratios), rel=1e-3)
    assert seen["sampler_kl"] == pytest.approx(sum(kls) / (2 * 17), rel=1e-3)
    assert seen["sampler_max_difference"] == pytest.approx(max(gaps), rel=1e-4)


def test_warmup_and_skipped_mini_batches(model: Any) -> None:
    update = Update(model, config(mini_batch=1, warmup_steps=10, learning_rate=1e-3), 0, "cpu", World())
    rows = [row for row in make_rows() if row.prompt in (0, 3)]
    seen = update.step(3, rows, 4)
    assert seen["learning_rate"] == pytest.approx(4e-4)
    assert (seen["updates"], seen["skipped_updates"]) == (2, 2)
    assert update.step(10, rows, 4)["learning_rate"] == pytest.approx(1e-3)


def test_a_step_without_rows_changes_nothing(model: Any) -> None:
    before = [each.clone() for each in model.parameters()]
    seen = Update(model, config(), 0, "cpu", World()).step(0, [], 4)
    assert (seen["updates"], seen["skipped_updates"], seen["loss"], seen["grad_norm"]) == (0, 1, None, None)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class OneParameter(torch.nn.Module):
    """A softmax policy of one parameter: token 1 has the logit theta, token 0 the logit 0."""

    def __init__(self, theta: float) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(theta))

    def forward(self, input_ids: Any, logits_to_keep: int, **_: Any) -> Any:
        logits = torch.stack([torch.zeros(()), self.theta]).expand(len(input_ids), logits_to_keep, 2)
        return SimpleNamespace(logits=logits)


@pytest.mark.parametrize("preset", ["grpo", "rloo", "reinforce-ada-pos", "reinforce-ada-balance"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_expected_update_is_the_weight_times_the_gradient_of_the_pass_rate(preset: str, p: float) -> None:
    policy, prompts = Policy.preset(preset), 4000
    theta = math.log(p / (1 - p))
    allocator = Allocator(policy, prompts, seed=5)
    while request := allocator.ask():
        allocator.tell(request.ids, uniform(5, 0, request.prompts, request.draws) < p)
    groups = allocator.groups()
    assert groups.mask.all()
    n = policy.n
    rows = [
        KeptResponse(
            i,
            [0],
            Response(np.array([int(groups.correct[i, j])]), np.zeros(1), "", "stop"),
            float(groups.advantages[i, j]),
        )
        for i in range(prompts)
        for j in range(n)
    ]
    update = Update(
        OneParameter(theta), config(prompts=prompts, mini_batch=prompts, micro_batch=4096), 0, "cpu", World()
    )
    (gradient,) = gradients(update, rows)
    # The score of token 1 is q, that of token 0 is -p; dp/dtheta = p q.
    scores = np.where(groups.correct, 1 - p, -p)
    parts = (groups.advantages * scores).mean(axis=1)
    assert -float(gradient) == pytest.approx(parts.mean(), rel=1e-4, abs=1e-7)
    wanted = float(analyze(policy, [p]).gradient_weight[0]) * p * (1 - p)
    # Balanced groups at p = 1/2 all say the same: what is left is rounding in float32.
    assert abs(-float(gradient) - wanted) < 4 * parts.std() / math.sqrt(prompts) + 1e-6
