"""What is trained is what was promised: the rows in the loss are those of the groups, and the log counts them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ada_bandit import Allocator, Policy, uniform
from ada_bandit._types import IntArray
from ada_bandit.allocator import Groups
from ada_bandit.presets import PRESETS
from llm.config import RunConfig
from llm.distributed import World
from llm.rounds import StepSample, sample_step
from llm.types import KeptResponse, Prompt, Response
from llm.update import Update
from llm.verify import Verifier
from tests.llm.test_rounds import untimed
from tests.test_promise import preset

pytestmark = pytest.mark.torch

VOCABULARY, WIDTH = 7, 3
ENTROPY = 0.05
RATES = {"never": 0.0, "hard": 0.15, "even": 0.5, "always": 1.0}
CORRECT, NOISE, LOST, CUT, TOKENS = range(100, 105)


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)

    def forward(self, input_ids: Any, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=self.embedding(input_ids))


class Bigrams(torch.nn.Module):
    """The next token depends on the last one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.base_model = Base()
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.config = SimpleNamespace()

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def forward(self, input_ids: Any, logits_to_keep: int = 0, **_: Any) -> Any:
        hidden = self.base_model(input_ids).last_hidden_state
        return SimpleNamespace(logits=self.lm_head(hidden[:, -logits_to_keep:]))


def bigrams() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Bigrams().double()


class Shaped:
    """Rewards of a shape, some of which can't be told; a response's text names its prompt and its number."""

    name = "shaped"

    def __init__(self, shape: str, rate: float, lost: float, seed: int, size: int) -> None:
        self.shape, self.rate, self.lost, self.seed, self.size = shape, rate, lost, seed, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Prompt:
        return Prompt(index, str(index), str(index), "", "shaped")

    def score(self, prompt: Prompt, text: str) -> float:
        of, draw = (int(each) for each in text.split())
        if uniform(self.seed, LOST, of, draw) < self.lost:
            msg = "no score"
            raise RuntimeError(msg)
        right = float(uniform(self.seed, CORRECT, of, draw) < self.rate)
        noise = round(float(uniform(self.seed, NOISE, of, draw)), 1)
        return {
            "binary": right,
            # A format reward or a length penalty, which never makes a wrong response right.
            "shaped": right + 0.4 * noise * (1 - right),
            # Partial scores as reasoning-gym's: thousandths.
            "partial": right or 0.002 * noise,
            "signed": 2 * right - 1,
        }[self.shape]


class Babbling:
    """Random tokens, one to four of them; some responses are cut."""

    def __init__(self, seed: int, cut: float) -> None:
        self.seed, self.cut = seed, cut

    def generate(
        self, prompts: Sequence[Sequence[int]], ids: IntArray, seed: int, temperature: float | None = None
    ) -> list[Response]:
        made = []
        for prompt, draw in ids.tolist():
            draws = [float(uniform(self.seed, TOKENS + t, prompt, draw)) for t in range(5)]
            tokens = np.array([int(VOCABULARY * each) for each in draws[1 : 2 + int(4 * draws[0])]])
            cut = uniform(self.seed, CUT, prompt, draw) < self.cut
            logprobs = -np.ones(tokens.size)
            made.append(Response(tokens, logprobs, f"{prompt} {draw}", "length" if cut else "stop"))
        return made

    def sync(self, model: Any) -> None:
        pass

    def close(self) -> None:
        pass


def take(
    policy: Policy, task: Shaped, cut: float = 0.0, *, mask_truncated: bool = False
) -> tuple[StepSample, Groups, list[KeptResponse]]:
    prompts = [task[i] for i in range(len(task))]
    encoded = [[1 + i % 5, 2] for i in range(len(task))]
    step = StepSample(Allocator(policy, len(task), task.seed), prompts, encoded, mask_truncated)
    with Verifier(task, truncated="score", workers=0) as verifier:
        groups = sample_step(step, Babbling(task.seed, cut), verifier, task.seed, world=World(), timed=untimed)
    return step, groups, step.kept(groups)


def make_update(model: Any, prompts: int, **train: Any) -> Update:
    given = {"prompts": prompts, "mini_batch": prompts, "entropy": ENTROPY, "warmup_steps": 0, "learning_rate": 0.1}
    table = {"model": {"path": "unused"}, "task": {"kind": "digits"}, "train": given | train}
    return Update(model, RunConfig.model_validate(table), 0, "cpu", World())


def gradient_of(model: Any, rows: list[KeptResponse], prompts: int, **train: Any) -> Any:
    """Return the gradient that the update takes of rows, ``[parameter]``."""
    update = make_update(model, prompts, **train)
    update.backward(rows, {}, torch.zeros(6, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    grads = [torch.zeros_like(each) if each.grad is None else each.grad.clone() for each in update.parameters]
    update.optimizer.zero_grad(set_to_none=True)
    return torch.cat([each.flatten() for each in grads])


def slow_gradient(model: Any, step: StepSample, groups: Groups) -> Any:
    """Return the same from the groups, a token at a time: the policy's answer to silent groups taken by its words."""
    how = step.allocator.policy.no_signal
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for prompt, slot in zip(*np.nonzero(groups.mask), strict=True):
        response = step.responses[int(groups.ids[prompt, slot])]
        tokens += response.tokens.size
        if groups.silent[prompt]:
            assert how != "leave_out"
        if groups.silent[prompt] and how == "mask":
            continue
        last = step.encoded[prompt][-1]
        for token in response.tokens.tolist():
            logits = model.lm_head(model.base_model.embedding.weight[last])
            logprobs = torch.log_softmax(logits, -1)
            total = total + groups.advantages[prompt, slot] * logprobs[token]
            total = total - ENTROPY * (logprobs.exp() * logprobs).sum()
            last = token
    if not total.requires_grad:
        return torch.zeros(sum(each.numel() for each in model.parameters()), dtype=torch.float64)
    grads = torch.autograd.grad(-total / tokens, list(model.parameters()))
    return torch.cat([each.flatten() for each in grads])


@pytest.mark.parametrize("name", list(PRESETS))
@settings(max_examples=15)
@given(data=st.data())
def test_gradient_and_log_are_those_of_the_groups(name: str, data: st.DataObject) -> None:
    prompts = data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 2**32))
    rate = RATES[data.draw(st.sampled_from(list(RATES)))]
    shape = data.draw(st.sampled_from(["binary", "shaped", "partial", "signed"]))
    lost = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
    cut = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    mask_truncated = data.draw(st.booleans())
    how = data.draw(st.sampled_from(["mask", "leave_out", "keep"]))
    policy = preset(name, no_signal=how, replace=data.draw(st.sampled_from([0.0, 0.5])))
    if shape == "signed" and policy.tables.least_reward == 0:
        shape = "binary"
    task = Shaped(shape, rate, lost, seed, prompts)
    step, groups, rows = take(policy, task, cut, mask_truncated=mask_truncated)

    # The rows are those of the groups: each scored, of its prompt, and cut only where that is no reason against it.
    ids = groups.ids[groups.mask].tolist()
    assert [step.responses[number] for number in ids] == [row.response for row in rows]
    assert [row.prompt for row in rows] == step.allocator.locate(ids)[0].tolist()
    assert [row.advantage for row in rows] == groups.advantages[groups.mask].tolist()
    assert not any(math.isnan(step.rewards[number]) for number in ids)
    if mask_truncated:
        assert all(row.response.finish == "stop" for row in rows)

    # Nothing else has a gradient, and no silent group unless the policy says so.
    model = bigrams()
    wanted = slow_gradient(model, step, groups)
    size = float(wanted.abs().max().clamp(min=1e-3))
    tile = data.draw(st.sampled_from([VOCABULARY, 2**24]))
    micro = data.draw(
        st.sampled_from([{"micro_batch": 1}, {"micro_batch": 3}, {"micro_batch": 64, "micro_tokens": 20}])
    )
    found = gradient_of(model, rows, prompts, head_tile=tile, **micro)
    assert float((found - wanted).abs().max()) < 2e-5 * size
    silent = [row for row in rows if groups.silent[row.prompt]]
    if how != "keep":
        assert not gradient_of(model, silent, prompts).any()

    # The log, recomputed from the rows in the loss and from every response.
    numbers = step.numbers(groups, rows)
    by_prompt: dict[int, list[tuple[int, KeptResponse]]] = {i: [] for i in range(prompts)}
    for number, row in zip(ids, rows, strict=True):
        by_prompt[row.prompt].append((number, row))
    sampled = set(step.allocator.locate(sorted(step.responses))[0].tolist())
    assert numbers["unsampled"] == prompts - len(sampled)
    assert numbers["kept"] == len(rows)
    assert numbers["kept_prompts"] == sum(bool(group) for group in by_prompt.values())
    silent_prompts = {i for i in sampled if groups.silent[i]}
    assert numbers["masked"] == (len(silent_prompts) if how == "mask" else 0)
    assert numbers["left_out"] == (len(silent_prompts) if how == "leave_out" else 0)
    assert numbers["kept_masked"] == (len(silent) if how == "mask" else 0)
    none = [number for number, reward in step.rewards.items() if math.isnan(reward)]
    truncated = [number for number, each in step.responses.items() if each.finish == "length"]
    assert numbers["unscored"] == len(none)
    assert numbers["truncated"] == len(truncated)
    if lost in {0.0, 1.0}:
        assert set(none) == set(step.rewards if lost else truncated if mask_truncated else [])
    both = [{step.rewards[number] > 0.5 for number, _ in group} == {True, False} for group in by_prompt.values()]
    if sampled:
        assert numbers["unscored_fraction"] == pytest.approx(len(none) / len(step.rewards))
        if how != "leave_out":
            assert numbers["signal_fraction"] == pytest.approx(sum(both) / len(sampled))
    if rows:
        assert numbers["selected_reward"] == pytest.approx(np.mean([step.rewards[number] for number in ids]))
    seen = make_update(model, prompts).step(0, rows, prompts)
    tokens = sum(row.response.tokens.size for row in rows)
    trained = [row for row in rows if not (groups.silent[row.prompt] and how == "mask")]
    assert (seen["updates"], seen["skipped_updates"]) == ((1, 0) if trained else (0, 1))
    if trained:
        assert seen["loss_tokens"] == tokens
        # Every ratio is 1.
        loss = -sum(row.advantage * row.response.tokens.size for row in rows) / tokens
        assert seen["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["grpo", "reinforce-ada-pos", "reinforce-ada-balance", "dapo"])
def test_partial_scores_of_wrong_responses_move_nothing_unless_the_policy_says_so(name: str) -> None:
    """Scores of at most 0.002: a group's standard deviation would make full-size advantages of them."""
    task = Shaped("partial", 0.0, 0.0, 5, 8)
    model = bigrams()
    before = [each.clone() for each in model.parameters()]
    step, groups, rows = take(preset(name), task)
    assert len(set(step.rewards.values())) > 3
    assert step.numbers(groups, rows)["signal_fraction"] == 0
    seen = make_update(model, 8).step(0, rows, 8)
    assert seen["updates"] == 0
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    _, groups, rows = take(preset(name, no_signal="keep"), task)
    # The mean square of standardised rewards is 1, whatever their size; those of pos and balance are not standardised.
    if name in {"grpo", "dapo"}:
        spread = np.array([row.std() for row in groups.rewards])
        n = groups.rewards.shape[1]
        expected = n * (spread / (spread * math.sqrt(n / (n - 1)) + 1e-4)) ** 2
        np.testing.assert_allclose((groups.advantages**2).sum(axis=1), expected, rtol=1e-6)
    assert make_update(model, 8).step(0, rows, 8)["updates"] == 1
    assert not all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def test_masked_rows_count_in_the_denominator_and_move_nothing() -> None:
    """Adding a silent group of as many tokens halves the gradient, entropy bonus included."""
    response = Response(np.array([3, 4]), -np.ones(2), "", "stop")
    speaking = [KeptResponse(0, [1, 2], response, 0.7), KeptResponse(0, [1, 2], response, -0.2)]
    silent = [KeptResponse(1, [1, 5], response, 0.0, masked=True)] * 2
    model = bigrams()
    alone, beside = gradient_of(model, speaking, 2), gradient_of(model, speaking + silent, 2)
    torch.testing.assert_close(beside, alone / 2)
    assert alone.any()
