"""Learning dynamics: REINFORCE on a small policy whose pass rates, gradients and entropy are exact.

The policy answers prompts with features phi(x). *Logistic*: p(x) = sigmoid(b(x) + theta . phi(x)).
*Softmax*: A answers with logits b(x) + phi(x) W, the first `right` of which are correct. The
offset b is frozen, and such that theta = 0 (W = 0) has pass rates drawn from a law: the model
before training. Features of the prompts of a skill share a direction, which is how prompts help
each other and prompts that were held out.

Prompts exit, groups form and advantages weigh by the tables of a `Policy`, or by the real
`Allocator` where a budget is shared by the batch. So E[update] = w(p) grad p holds for the
simulator, with the w of `ada_bandit.analyze` (`mean_update`), and at small learning rates it
follows the gradient flow of the policy's induced objective (`gradient_flow`).

What this is not: a language model. Lengths do not change while it learns, an answer is one
draw, and how fast prompts help each other is an option, not a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ada_bandit import Allocator, Policy, analyze, uniform
from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.memory import PassRateMemory
from ada_bandit.programs.folders import write_file
from ada_bandit.tables import Tables
from ada_bandit.uniforms import Stream, fold_seed
from sim.learn import kernels
from sim.learn.task import ExactMeans, LengthModel, Prompts, Task

__all__ = [
    "TrainingRun",
    "TrainingSetting",
    "gradient_flow",
    "mean_update",
    "step_seed",
    "train",
    "train_sampler",
]

_STEPS = 0
"""The part of a run's seed that its steps have."""
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8
"""Adam's constants."""


@dataclass(frozen=True)
class TrainingSetting:
    """How it is learned; the same for all policies of a comparison."""

    steps: int = 400
    """Steps."""
    batch: int = 512
    """Prompts a step."""
    learning_rate: float = 0.01
    """Step size."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam divides by the size of recent gradients, so that the scale of a policy's advantages plays little part."""
    minibatches: int = 1
    """Updates that a step's prompts are split into."""
    epochs: int = 1
    """Passes over a step's prompts."""
    clip: tuple[float, float] | None = None
    """How far the ratio of probabilities may go below and above 1, as PPO clips it; no ratio unless given."""
    evaluate_every: int = 10
    """Steps between evaluations; there is one at the start and one at the end besides."""
    pass_k: tuple[int, ...] = (1, 4, 16, 64, 256)
    """The k of pass@k."""
    lengths: LengthModel = field(default_factory=LengthModel)
    """Tokens of a response."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "minibatches", "epochs", "evaluate_every"):
            check_count(name, getattr(self, name))
        check_number("learning_rate", self.learning_rate, 0)
        if self.optimizer not in {"adam", "sgd"}:
            msg = f"optimizer must be 'adam' or 'sgd'; got {self.optimizer!r}"
            raise InputError(msg)
        if self.minibatches > self.batch:
            msg = f"minibatches must not exceed batch; got {self.minibatches} of {self.batch} prompts"
            raise InputError(msg)
        object.__setattr__(self, "pass_k", tuple(check_count("pass_k", k) for k in self.pass_k))
        if self.clip is not None:
            low, high = self.clip
            clip = check_number("clip", low, 0, 1), check_number("clip", high, 0)
            object.__setattr__(self, "clip", clip)

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain values for JSON."""
        return asdict(self)


# One run

STEP_FIELDS = (
    "reward",
    "responses",
    "tokens",
    "time",
    "rounds",
    "signal",
    "resolved",
    "short_of_positives",
    "short_of_negatives",
    "kept",
    "update_norm",
    "clipped",
)
EVALUATION_FIELDS = ("pass_rate", "entropy", "diversity")


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What one run did, step by step."""

    policy: str
    """Label of the policy."""
    prompt_set: str
    """Name of the prompt set."""
    seed: int
    """The seed."""
    batch: int
    """Prompts a step."""
    reward: FloatArray
    """`[step]` Exact mean pass rate of the step's prompts, before the update."""
    responses: FloatArray
    """`[step]` Responses drawn."""
    tokens: FloatArray
    """`[step]` Tokens generated, in the mean over lengths."""
    time: FloatArray
    """`[step]` Synchronous time of generation, in the time of one token."""
    rounds: FloatArray
    """`[step]` Rounds."""
    signal: FloatArray
    """`[step]` Share of prompts whose group holds both classes."""
    resolved: FloatArray
    """`[step]` Share of prompts at whose exit the rule held."""
    short_of_positives: FloatArray
    """`[step]` Share of prompts that exit unresolved short of correct responses."""
    short_of_negatives: FloatArray
    """`[step]` Share of prompts that exit unresolved short of incorrect responses."""
    kept: FloatArray
    """`[step]` Responses kept for the update."""
    update_norm: FloatArray
    """`[step]` Length of the first minibatch's gradient, before the optimizer."""
    clipped: FloatArray
    """`[step]` Share of distinct kept answers whose ratio is clipped, over all updates of the step."""
    at: IntArray
    """`[evaluation]` Steps taken before the evaluation, from 0."""
    train_pass_rate: FloatArray
    """`[evaluation]` Exact mean pass rate of the training prompts."""
    train_entropy: FloatArray
    """`[evaluation]` Their mean entropy, in nats."""
    train_diversity: FloatArray
    """`[evaluation]` Their mean effective number of correct answers."""
    train_pass_at: FloatArray
    """`[evaluation, k]` Their pass@k, for the k of `TrainingSetting.pass_k`."""
    held_out_pass_rate: FloatArray
    """`[evaluation]` Exact mean pass rate of the held-out prompts."""
    held_out_entropy: FloatArray
    """`[evaluation]` Likewise."""
    held_out_diversity: FloatArray
    """`[evaluation]` Likewise."""
    held_out_pass_at: FloatArray
    """`[evaluation, k]` Likewise."""
    weights: FloatArray
    """`[feature, column]` Parameters at the end."""

    def spent(self, what: Literal["steps", "responses", "tokens", "time"]) -> FloatArray:
        """Return what was spent before every evaluation, ``[evaluation]``."""
        if what == "steps":
            return self.at.astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(getattr(self, what))])
        return np.asarray(total[self.at])

    def save(self, path: Path) -> None:
        """Write the run to a file; it is there in full or not at all."""
        arrays = {one.name: getattr(self, one.name) for one in fields(self)}
        write_file(path, lambda file: np.savez(file, **arrays))

    @classmethod
    def load(cls, path: Path) -> TrainingRun:
        """Read a run that `save` wrote."""
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            values: dict[str, Any] = {name: file[name] for name in file.files}
        plain = {"policy": str, "prompt_set": str, "seed": int, "batch": int}
        return cls(**{name: plain[name](value) if name in plain else value for name, value in values.items()})


def step_seed(seed: int, step: int) -> int:
    """Return the key of a step's uniforms: for it, the allocator and `sim.montecarlo` see the same responses."""
    return fold_seed(seed, _STEPS, step)


def train(policy: Policy, task: Task, setting: TrainingSetting, seed: int = 0) -> TrainingRun:
    """Learn a task under a policy.

    Runs of one seed share their prompts, the order of the prompts and the uniforms of the
    responses, whatever the policy.

    Parameters
    ----------
    policy
        The policy; one with a budget shared by the batch is driven through the real allocator.
    task
        What is learned.
    setting
        How it is learned.
    seed
        Seed of prompts and responses.

    Returns
    -------
    TrainingRun
        What happened, step by step.
    """
    return train_sampler(Sampler.of(policy), task, setting, seed)


@dataclass(frozen=True, eq=False)
class Sampler:
    """A policy compiled for the kernel; plain arrays, so that it travels to other processes."""

    label: str
    """The policy's label."""
    n: int
    """The policy's group size."""
    tables: Tables
    """Its tables."""
    keep_pos: IntArray
    """`[pos, neg]` Positives of the group where the split is fixed."""
    adv_pos: FloatArray
    """`[pos, neg, kept positives]` Advantage of a kept positive; one entry on the last axis for fixed splits."""
    adv_neg: FloatArray
    """`[pos, neg, kept positives]` Advantage of a kept negative."""
    shared: Policy | None = None
    """The policy itself where its budget is shared by the batch."""

    @classmethod
    def of(cls, policy: Policy) -> Sampler:
        """Compile a policy."""
        tables = policy.tables
        # The kernel finds the entries of one cell side by side.
        splits = (
            np.atleast_3d(np.moveaxis(one, 0, -1) if tables.random_split else one)
            for one in (tables.adv_pos, tables.adv_neg)
        )
        adv_pos, adv_neg = (np.ascontiguousarray(one) for one in splits)
        # Where the split is random, the kernel looks at `keep` alone.
        keep_pos = tables.keep if tables.random_split else tables.keep_pos
        return cls(policy.label, policy.n, tables, keep_pos, adv_pos, adv_neg, policy if tables.shared else None)

    def to_bytes(self) -> bytes:
        """Return everything that decides what the sampler does, for a digest."""
        shared = "" if self.shared is None else json.dumps(self.shared.to_dict(), sort_keys=True)
        parts = (self.tables.draws, self.tables.keep, self.keep_pos, self.adv_pos, self.adv_neg, self.tables.resolved)
        return b"".join((shared.encode(), str(self.n).encode(), *(part.tobytes() for part in parts)))


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step of sampling gave; arrays are `[prompt]` unless said otherwise."""

    pos: IntArray
    """Correct responses of the pool."""
    neg: IntArray
    """Incorrect responses of the pool."""
    kept: IntArray
    """`[prompt, 2]` Kept positives and negatives."""
    pull: FloatArray
    """`[prompt, answer]` Sum of the advantages of the kept responses with that answer."""
    by_round: IntArray
    """`[round, 2]` Positives and negatives of all prompts in that round."""


def sample_batch(sampler: Sampler, laws: FloatArray, right: int, seed: int) -> Batch:
    """Sample one step.

    Parameters
    ----------
    sampler
        A policy with a draws table of its own.
    laws
        ``[prompt, answer]`` laws of the answers.
    right
        Correct answers, which come first.
    seed
        Key of the step.
    """
    tables, prompts = sampler.tables, laws.shape[0]
    pull = np.empty(laws.shape)
    cells, rounds = np.empty((2, prompts), dtype=np.int64)
    kept = np.empty((prompts, 2), dtype=np.int64)
    by_round = np.empty((tables.max_samples, 2), dtype=np.int64)
    kernels.sample_groups(
        np.uint64(seed), laws, right, tables.draws, tables.keep, sampler.keep_pos, sampler.adv_pos, sampler.adv_neg,
        tables.random_split, tables.no_signal == "leave_out", pull, cells, rounds, kept, by_round,
    )  # fmt: skip
    side = tables.max_samples + 1
    return Batch(cells // side, cells % side, kept, pull, by_round[: int(rounds.max(initial=0))])


def _sample_shared(
    policy: Policy, laws: FloatArray, right: int, seed: int, memory: PassRateMemory, keys: list[int]
) -> Batch:
    """Sample one step by the allocator itself, with what the memory knows of the prompts."""
    prompts, answers = laws.shape
    allocator = Allocator(policy, prompts, seed, history=memory.recall(keys))
    ends = np.cumsum(laws, axis=1)
    rates = np.minimum(ends[:, right - 1], 1.0)
    by_round = []
    while request := allocator.ask():
        correct = uniform(seed, Stream.REWARDS, request.prompts, request.draws) < rates[request.prompts]
        allocator.tell(request.ids, correct)
        by_round.append((np.count_nonzero(correct), np.count_nonzero(~correct)))
    groups = allocator.groups()
    memory.update(keys, groups.pos, groups.neg)
    prompt, slot = np.nonzero(groups.mask)
    draw, hit = allocator.locate(groups.ids[prompt, slot])[1], groups.correct[prompt, slot]
    u = uniform(seed, Stream.REWARDS, prompt, draw)
    answer = (u[:, None] >= ends[prompt]).sum(axis=1)
    answer = np.where(hit, np.minimum(answer, right - 1), np.clip(answer, right, answers - 1))
    pull = np.zeros(laws.shape)
    np.add.at(pull, (prompt, answer), groups.advantages[prompt, slot])
    kept = np.stack([(groups.mask & groups.correct).sum(axis=1), (groups.mask & ~groups.correct).sum(axis=1)], axis=1)
    return Batch(groups.pos, groups.neg, kept, pull, np.array(by_round, dtype=np.int64).reshape(-1, 2))


class _Optimizer:
    """SGD or Adam, upwards."""

    def __init__(self, setting: TrainingSetting, shape: tuple[int, int]) -> None:
        self._rate, self._adam = setting.learning_rate, setting.optimizer == "adam"
        self._mean, self._square = np.zeros((2, *shape))
        self._count = 0

    def step(self, weights: FloatArray, gradient: FloatArray) -> None:
        if not self._adam:
            weights += self._rate * gradient
            return
        self._count += 1
        self._mean += (1 - _BETA1) * (gradient - self._mean)
        self._square += (1 - _BETA2) * (gradient**2 - self._square)
        mean = self._mean / (1 - _BETA1**self._count)
        weights += self._rate * mean / (np.sqrt(self._square / (1 - _BETA2**self._count)) + _EPS)


def train_sampler(
    sampler: Sampler, task: Task, setting: TrainingSetting, seed: int, prompts: tuple[Prompts, Prompts] | None = None
) -> TrainingRun:
    """Learn under a compiled policy (see `train`), on given prompts to train on and held-out ones if there are any."""
    pool, held_out = task.draw(seed) if prompts is None else prompts
    weights = np.zeros(pool.shape)
    optimizer = _Optimizer(setting, pool.shape)
    memory = PassRateMemory()
    order = _Order(len(pool), setting.batch, seed)
    per_step: dict[str, Any] = {name: np.zeros(setting.steps) for name in STEP_FIELDS}
    evaluations: list[tuple[int, ExactMeans, ExactMeans]] = []
    for step in range(setting.steps + 1):
        if step % setting.evaluate_every == 0 or step == setting.steps:
            means = pool.evaluate(weights, setting.pass_k), held_out.evaluate(weights, setting.pass_k)
            evaluations.append((step, *means))
        if step == setting.steps:
            break
        members, key = order.take(), step_seed(seed, step)
        laws = pool.answer_laws(weights, members)
        if sampler.shared is None:
            batch = sample_batch(sampler, laws, pool.right, key)
        else:
            batch = _sample_shared(sampler.shared, laws, pool.right, key, memory, members.tolist())
        entered = _counts(sampler.tables, batch, laws, pool.right, setting.lengths, key)
        entered |= update(pool, weights, members, laws, batch.pull, optimizer.step, setting, sampler.n)
        for name, value in entered.items():
            per_step[name][step] = value
    arrays: dict[str, Any] = {"at": np.array([at for at, _, _ in evaluations], dtype=np.int64)}
    for side, part in (("train", 1), ("held_out", 2)):
        for name in (*EVALUATION_FIELDS, "pass_at"):
            arrays[f"{side}_{name}"] = np.array([getattr(one[part], name) for one in evaluations])
    return TrainingRun(sampler.label, task.label, seed, setting.batch, **per_step, **arrays, weights=weights)


class _Order:
    """The prompts of every step: each epoch goes through them in a new order; what fills no step is left out of it."""

    def __init__(self, prompts: int, batch: int, seed: int) -> None:
        self._prompts, self._batch, self._seed = prompts, batch, seed
        self._left = np.empty(0, dtype=np.int64)
        self._epoch = 0

    def take(self) -> IntArray:
        if self._left.size < self._batch:
            # A step larger than the pool goes through it several times.
            epochs = range(self._epoch, self._epoch + -(-self._batch // self._prompts))
            self._epoch = epochs.stop
            number = np.arange(self._prompts)
            orders = [np.argsort(uniform(self._seed, Stream.ORDER, number, epoch), kind="stable") for epoch in epochs]
            self._left = np.concatenate(orders)
        taken, self._left = np.split(self._left, [self._batch])
        return taken


def _counts(
    tables: Tables, batch: Batch, laws: FloatArray, right: int, lengths: LengthModel, seed: int
) -> dict[str, float]:
    cell = batch.pos, batch.neg
    by_pos, by_neg = batch.by_round.T
    uniforms = uniform(seed, Stream.LENGTHS, np.arange(len(by_pos))[:, None], np.arange(2))
    return {
        "reward": float(laws[:, :right].sum(axis=1).mean()),
        "responses": float(batch.by_round.sum()),
        "tokens": float(lengths.tokens(by_pos.sum(), by_neg.sum())),
        "time": float(lengths.round_times(by_pos, by_neg, uniforms).sum()),
        "rounds": float(len(by_pos)),
        "signal": float((batch.kept > 0).all(axis=1).mean()),
        "resolved": float(tables.resolved[cell].mean()),
        "short_of_positives": float(tables.short_of_positives[cell].mean()),
        "short_of_negatives": float(tables.short_of_negatives[cell].mean()),
        "kept": float(batch.kept.sum()),
    }


def update(
    prompts: Prompts,
    weights: FloatArray,
    members: IntArray,
    before: FloatArray,
    pull: FloatArray,
    step: Callable[[FloatArray, FloatArray], None],
    setting: TrainingSetting,
    group_size: int,
) -> dict[str, float]:
    """Make the updates of one step, in place.

    A minibatch whose advantages are all 0 is left out, the optimizer's momentum included: a step
    without signal changes nothing.

    Parameters
    ----------
    prompts, weights
        The prompts, and the parameters ``[feature, column]``, which are changed.
    members, before, pull
        ``[member]`` the step's prompts, the laws that their responses were drawn from and the sums of
        advantages, ``[member, answer]``.
    step
        Takes the parameters and a gradient, and changes the parameters.
    setting
        Minibatches, epochs and clipping.
    group_size
        n; updates are divided by it and by the prompts of the minibatch.

    Returns
    -------
    dict
        ``update_norm`` and ``clipped`` (see `TrainingRun`).
    """
    low, high = setting.clip or (0.0, 0.0)
    gradient = np.empty_like(weights)
    held, clipped, norm = 0, 0, 0.0
    for epoch in range(setting.epochs):
        for number, block in enumerate(np.array_split(np.arange(members.size), setting.minibatches)):
            part = slice(int(block[0]), int(block[-1]) + 1) if block.size else slice(0, 0)
            scale = 1 / (group_size * max(block.size, 1))
            some, beyond = kernels.add_updates(
                prompts.features, prompts.base, weights, members[part], before[part], pull[part],
                setting.clip is not None, low, high, scale, gradient,
            )  # fmt: skip
            held, clipped = held + some, clipped + beyond
            if epoch == number == 0:
                norm = float(np.sqrt((gradient**2).sum()))
            if some:
                step(weights, gradient)
    return {"update_norm": norm, "clipped": clipped / held if held else 0.0}


# What theory says


def mean_update(policy: Policy, prompts: Prompts, weights: FloatArray) -> FloatArray:
    """Return the exact mean of a plain update over prompts and responses, ``[feature, column]``: E[w(p) grad p].

    Raises
    ------
    InputError
        If the policy's budget is shared by the batch.
    """
    weight = analyze(policy, prompts.pass_rates(weights)).gradient_weight
    gradients = prompts.gradients(weights)
    return np.asarray(prompts.features.T @ (weight[:, None] * gradients)) / len(prompts)


def gradient_flow(policy: Policy, prompts: Prompts, times: npt.ArrayLike, *, tolerance: float = 1e-8) -> FloatArray:
    """Return the parameters along the gradient flow of the policy's induced objective, ``[time, feature, column]``.

    The limit of SGD at small learning rates, with time the learning rate times the steps: the
    solution of dW/dt = E[w(p) grad p] that starts at 0.

    Parameters
    ----------
    policy
        A policy with a draws table of its own.
    prompts
        The prompts, all of which enter every update.
    times
        Ascending times of at least 0.
    tolerance
        Relative and absolute tolerance of the solver.
    """
    from scipy.integrate import solve_ivp

    at = np.asarray(times, dtype=np.float64)
    shape = prompts.shape

    def slope(_: float, flat: FloatArray) -> FloatArray:
        return mean_update(policy, prompts, flat.reshape(shape)).ravel()

    solution = solve_ivp(
        slope, (0.0, float(at[-1])), np.zeros(shape).ravel(), "DOP853", t_eval=at, rtol=tolerance, atol=tolerance
    )
    return np.asarray(solution.y.T).reshape(at.size, *shape)
