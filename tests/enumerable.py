"""Prompts whose answers can be enumerated: scores, rates and gradients are known exactly, and updates can be drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ada_bandit import Allocator, Policy, analyze
from ada_bandit.class_scores import ClassScores
from ada_bandit.measured import measure_efficiency
from ada_bandit.policy import AnyPolicy
from ada_bandit.uniforms import fold_seed

Array = npt.NDArray[np.float64]

TEN = {
    "grpo": 3, "dr-grpo": 3, "rloo": 3, "reinforce-ada-pos": 1, "reinforce-ada-balance": 1, "raft": 3,
    "maxrl": 3, "pkpo": 3, "pods": 1, "bayes": 2, "nsr": 3, "speed": 1,
}  # fmt: skip
"""Presets, and thousands of updates of each prompt that are drawn."""


def generator(*data: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=fold_seed(17, *data)))


class Answers:
    """Prompts with their answers: chances and rightness, ``[prompt, answer]``, and scores with a further axis."""

    def __init__(self, chance: Array, scores: Array, right: npt.NDArray[np.bool_]) -> None:
        self.chance, self.scores, self.right = chance, scores, right
        self.rate = (chance * right).sum(axis=1)
        self.gradient = ((chance * right)[:, :, None] * scores).sum(axis=1)
        self.mean_pos = self.gradient / self.rate[:, None]
        self.mean_neg = -self.gradient / (1 - self.rate[:, None])

    def class_sums(self, counts: Array) -> tuple[Array, Array]:
        """Return the sums of scores over correct and over incorrect responses, ``[prompt, parameter]`` each."""
        times = counts[:, :, None] * self.scores
        return (times * self.right[:, :, None]).sum(axis=1), (times * ~self.right[:, :, None]).sum(axis=1)

    def sums(self, counts: Array) -> ClassScores:
        """Return what a probe keeps of responses that fell on answers so often, ``[prompt, answer]``."""
        pos, neg = self.class_sums(counts)
        squares = counts * (self.scores**2).sum(axis=2)
        return ClassScores(
            pos=(counts * self.right).sum(axis=1),
            neg=(counts * ~self.right).sum(axis=1),
            pos_energy=(squares * self.right).sum(axis=1),
            neg_energy=(squares * ~self.right).sum(axis=1),
            gram_pos=pos @ pos.T,
            gram_cross=pos @ neg.T,
            gram_neg=neg @ neg.T,
        )

    def probe(self, samples: int, seed: int) -> ClassScores:
        return self.sums(generator(seed).multinomial(samples, self.chance).astype(np.float64))

    def updates(self, policy: AnyPolicy, copies: int, seed: int) -> tuple[Array, Array]:
        """Draw updates by the allocator, ``[copy, prompt, parameter]``, with their responses, ``[copy, prompt]``."""
        chance, size = generator(seed), self.rate.size
        edges = np.cumsum(self.chance, axis=1)
        allocator = Allocator(policy, prompts=copies * size, seed=seed)
        drawn = np.zeros(copies * size)
        answers: dict[int, int] = {}
        while request := allocator.ask():
            prompt = request.prompts % size
            answer = (edges[prompt] < chance.random(prompt.size)[:, None]).sum(axis=1)
            answers.update(zip(request.ids.tolist(), answer.tolist(), strict=True))
            np.add.at(drawn, request.prompts, 1)
            allocator.tell(request.ids, self.right[prompt, answer].astype(np.float64))
        groups = allocator.groups()
        found = np.zeros((copies * size, self.gradient.shape[1]))
        for at, slot in np.argwhere(groups.mask).tolist():
            found[at] += groups.advantages[at, slot] * self.scores[at % size, answers[int(groups.ids[at, slot])]]
        return found.reshape(copies, size, -1), drawn.reshape(copies, size)


def mean_update(toy: Answers, policy: AnyPolicy) -> Array:
    """Return G by the exact analysis, ``[prompt, parameter]``: w(p) grad p times the group size."""
    analysis = analyze(policy, toy.rate)
    return np.asarray((analysis.gradient_weight * policy.n)[:, None] * toy.gradient)


def exact_energy(toy: Answers, policy: Policy, prompt: int) -> float:
    """Return E|g|^2 from the law of the exit and the exact mean and noise of each class."""
    chance, scores = toy.chance[prompt], toy.scores[prompt]
    rate, tables = float(toy.rate[prompt]), policy.tables
    noise = {
        kind: float((chance[part] / chance[part].sum()) @ ((scores[part] - mean[prompt]) ** 2).sum(axis=1))
        for kind, part, mean in ((True, toy.right[prompt], toy.mean_pos), (False, ~toy.right[prompt], toy.mean_neg))
    }
    total = 0.0
    for pos, neg in np.argwhere(tables.exits).tolist():
        law = tables.reach[pos, neg] * math.comb(pos + neg, pos) * rate**pos * (1 - rate) ** neg
        for split in tables.splits():
            up = split.keep_pos[pos, neg] * split.adv_pos[pos, neg]
            down = split.keep_neg[pos, neg] * split.adv_neg[pos, neg]
            vector = up * toy.mean_pos[prompt] + down * toy.mean_neg[prompt]
            spread = up * split.adv_pos[pos, neg] * noise[True] + down * split.adv_neg[pos, neg] * noise[False]
            total += law * split.chance[pos, neg] * (float(vector @ vector) + spread)
    return total


def softmax(prompts: int, answers: int, size: int, seed: int, shared: float = 0.5) -> Answers:
    """Make answers that share a vector of parameters, a third of them right, so that positives are noisy too."""
    chance = generator(seed)
    features = chance.standard_normal((prompts, answers, size)) + shared * chance.standard_normal((answers, size))
    logits = chance.standard_normal((prompts, answers)) * 1.5
    law = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = features - np.einsum("ia,iad->id", law, features)[:, None]
    return Answers(law, scores, np.tile(np.arange(answers) < max(answers // 3, 1), (prompts, 1)))


def mean_and_error(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))


def agreement(toy: Answers, probes: Sequence[ClassScores], name: str) -> dict[str, tuple[float, float, float, float]]:
    """Return what probes measure of a preset with its error, and what updates that are drawn have with theirs."""
    policy, batch = Policy.preset(name), 4
    size = toy.rate.size
    fresh = [measure_efficiency([policy], each, batch=batch, resamples=2)[0] for each in probes]
    own = [measure_efficiency([policy], each, pool=1, resamples=2)[0] for each in probes]
    updates, drawn = toy.updates(policy, 1000 * TEN[name], 6)
    others = (toy.gradient.sum(axis=0) - toy.gradient) / (size - 1)
    chosen = generator(7).permuted(np.tile(np.arange(size), (len(updates), 1)), axis=1)[:, :batch]
    steps = np.take_along_axis(updates, chosen[:, :, None], axis=1).sum(axis=1)
    pairs = {
        "progress on others": ([each.progress for each in fresh], (updates * others).sum(axis=2).mean(axis=1)),
        "progress on itself": ([each.progress for each in own], (updates * toy.gradient).sum(axis=2).mean(axis=1)),
        "step's second moment": ([each.second_moment for each in fresh], (steps**2).sum(axis=1) / batch),
        "E|g|^2": ([each.second_moment for each in own], (updates**2).sum(axis=2).mean(axis=1)),
        "cost": ([each.cost for each in fresh], drawn.mean(axis=1)),
    }
    return {
        part: (*mean_and_error(np.array(measured)), *mean_and_error(values))
        for part, (measured, values) in pairs.items()
    }


def exact(toy: Answers, name: str) -> dict[str, float]:
    """Return the same numbers from the law of the exit and the answers' own means and noise."""
    policy, batch, size = Policy.preset(name), 4, toy.rate.size
    mean = mean_update(toy, policy)
    energy = float(np.mean([exact_energy(toy, policy, at) for at in range(size)]))
    cross, alike = mean @ toy.gradient.T, mean @ mean.T
    pairs = size * (size - 1)
    return {
        "progress on others": float(cross.sum() - np.trace(cross)) / pairs,
        "progress on itself": float(np.trace(cross)) / size,
        "step's second moment": energy + (batch - 1) * float(alike.sum() - np.trace(alike)) / pairs,
        "E|g|^2": energy,
        "cost": float(analyze(policy, toy.rate).expected_samples.mean()),
    }


def check_agreement(toy: Answers, probes: Sequence[ClassScores], name: str) -> None:
    """Check that what is measured, what is drawn and what is exact agree within four standard errors."""
    truth = exact(toy, name)
    for part, (got, error, drawn, drawn_error) in agreement(toy, probes, name).items():
        near = 1e-9 * abs(truth[part])
        assert abs(got - drawn) < 4 * np.hypot(error, drawn_error) + near, (part, got, drawn)
        assert abs(got - truth[part]) < 4 * error + near, (part, got, truth[part])
