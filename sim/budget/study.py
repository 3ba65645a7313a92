"""Shared budgets at equal spend: prompts that come back, the real allocator, one law. Computes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Allocator, Never, Policy, uniform
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import advantage_from_dict
from ada_bandit.budgets import BatchBudget
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.groups import All
from ada_bandit.laws import Law
from ada_bandit.memory import PassRateMemory
from ada_bandit.objectives import objective_slope
from ada_bandit.optimal import policy_for_budget
from ada_bandit.policy import Blend
from ada_bandit.programs.records import to_csv
from ada_bandit.shared import Allocation, Est, Greedy, Mopps, Neyman
from ada_bandit.specs import read_policy
from ada_bandit.uniforms import Stream, fold_seed
from sim.labels import distinct_labels
from sim.montecarlo import draw_pass_rates
from sim.score_model import ASSUMPTIONS, Scoring
from sim.sources import Source
from sim.statistics import SampleMean, sample_mean

__all__ = ["METHODS", "BudgetComparison", "BudgetSetting", "Method", "MethodResult", "compare_budgets", "read_methods"]

METHODS = (
    "uniform",
    "neyman",
    "gvm",
    "reinforce-ada-est",
    "knapsack",
    "vip",
    "greedy",
    "mopps",
    "bayes",
    "best-signal",
)
"""The methods that are compared unless told otherwise."""

_TABLES = {"bayes": "gradient", "best-signal": "signal"}
_BINS = 10
"""Groups of prompts by pass rate, at the most."""
_SUMMED, _AVERAGED = (0, 1, 2), (3, 4, 2)
"""Which moments are W, V and C."""


@dataclass(frozen=True)
class BudgetSetting:
    """What is shared by all methods."""

    total: int = 4096
    """Responses of a step, over all prompts."""
    prompts: int = 512
    """Prompts of a step."""
    pool: int = 1024
    """Distinct prompts; each epoch goes through them in a new order, and what fills no step is left out of it."""
    steps: int = 20
    """Steps that are measured."""
    warm_up: int = 1
    """Epochs before that, in which memories fill."""
    maximum: int = 32
    """The most responses of one prompt, under every method."""
    minimum: int = 2
    """The fewest responses of one prompt, under every allocation."""
    pilot: int = 2
    """Responses of every prompt before an allocation decides; 0 for the memory alone."""
    group_size: int = 16
    """Responses of a prompt that a selection samples."""
    decay: float = 0.9
    """Decay of the memories."""
    advantage: str = "leave_one_out"
    """Advantage of every method but the optimal ones; ``own`` for each method's own."""
    seed: int = 0
    """Seed of prompts and responses."""

    def __post_init__(self) -> None:
        for name, least in (("total", 1), ("prompts", 1), ("steps", 2), ("maximum", 1), ("group_size", 1)):
            check_count(name, getattr(self, name), least)
        for name in ("warm_up", "minimum", "pilot", "seed"):
            check_count(name, getattr(self, name), 0)
        check_number("decay", self.decay, 0, 1)
        if check_count("pool", self.pool) < self.prompts:
            msg = f"pool must hold the prompts of a step; got {self.pool} distinct prompts for {self.prompts} a step"
            raise InputError(msg)
        if self.group_size > self.maximum:
            msg = f"group_size must not exceed maximum; got {self.group_size} and {self.maximum}"
            raise InputError(msg)
        low, high = max(self.minimum, self.pilot) * self.prompts, self.maximum * self.prompts
        if not low <= self.total <= high:
            msg = (
                f"total must lie between {low} and {high}, the minimum (or the pilot) and the maximum of "
                f"{self.prompts} prompts; got {self.total}"
            )
            raise InputError(msg)
        if self.advantage != "own":
            advantage_from_dict(self.advantage)

    @property
    def average(self) -> float:
        """Responses a prompt."""
        return self.total / self.prompts


@dataclass(frozen=True)
class Method:
    """A way to spend the total: one policy, or a mix of two tables."""

    name: str
    policies: tuple[Policy, ...]
    weight: float = 0.0
    """Chance of the second policy, for each prompt."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MethodResult:
    """What one method does with the total; means over steps."""

    policy: str
    """The method's label."""
    responses: SampleMean
    """Responses a step."""
    largest_miss: int
    """The largest difference between the responses of a step and the total."""
    rounds: SampleMean
    """Rounds a step."""
    signal: SampleMean
    """Share of prompts whose group holds both classes."""
    at_minimum: SampleMean
    """Prompts a step with no more responses than the minimum."""
    unsampled: SampleMean
    """Prompts a step without a response."""
    progress: SampleMean
    """W, where every response has the same weight."""
    noise: SampleMean
    """V, likewise."""
    efficiency: SampleMean
    """W^2 / (V C), likewise."""
    efficiency_ratio: SampleMean | None
    """Over that of the reference, on the same prompts and responses; None where that is 0."""
    averaged_efficiency: SampleMean
    """W^2 / (V C), where every prompt has the same weight: the mean over its responses enters the update."""
    averaged_efficiency_ratio: SampleMean | None
    """Over that of the reference, likewise."""


@dataclass(frozen=True, eq=False)
class BudgetComparison:
    """A comparison of methods, with everything that is needed to make it again."""

    source: Source
    """The pass-rate law."""
    setting: BudgetSetting
    """What all methods share."""
    scoring: Scoring
    """The setting of the gradient efficiency."""
    methods: tuple[Method, ...]
    """The methods, with names that differ."""
    rows: tuple[MethodResult, ...]
    """One a method, in order."""
    reference: str
    """The method that ratios of efficiency are over."""
    group_ends: FloatArray
    """`[group, 2]` Smallest and largest pass rate of groups of about equally many prompts."""
    group_prompts: IntArray
    """`[group]` Distinct prompts."""
    group_responses: FloatArray
    """`[method, group]` Mean responses of a prompt in a step."""
    notes: tuple[str, ...]
    """What is to be said, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON."""
        return {
            "configuration": {
                "version": ada_bandit.__version__,
                "source": self.source.to_dict(),
                **asdict(self.setting),
                "score_model": self.scoring.to_dict(),
                "methods": [
                    {
                        "name": method.name,
                        "weight": method.weight,
                        "policies": [one.to_dict() for one in method.policies],
                    }
                    for method in self.methods
                ],
            },
            "notes": [*self.source.notes, *self.notes],
            "efficiency_reference": self.reference,
            "methods": [asdict(row) for row in self.rows],
            "responses_by_pass_rate": {
                "groups": self.group_ends.tolist(),
                "prompts": self.group_prompts.tolist(),
                "responses": {
                    row.policy: values.tolist() for row, values in zip(self.rows, self.group_responses, strict=True)
                },
            },
        }

    def to_csv(self) -> str:
        """Return the rows as CSV text, standard errors in columns of their own."""
        records = []
        for row in self.rows:
            record: dict[str, Any] = {}
            for field in fields(MethodResult):
                value = getattr(row, field.name)
                if isinstance(value, SampleMean):
                    record |= {field.name: value.mean, f"{field.name}_se": value.se}
                else:
                    record[field.name] = value
            records.append(record)
        return to_csv(records)


def read_methods(
    texts: Sequence[str], setting: BudgetSetting, law: Law, scoring: Scoring
) -> tuple[list[Method], list[str]]:
    """Read methods and hold each to the total and the bounds of the setting.

    Parameters
    ----------
    texts
        ``uniform``, ``neyman`` and ``greedy``; a preset or TOML file with a shared budget; ``bayes``
        and ``best-signal``, the best tables of the law for gradient efficiency and for signal, which
        meet the total in expectation.
    setting, law, scoring
        What the methods are held to.

    Returns
    -------
    tuple of list
        The methods, and notes on those of `METHODS` that the total leaves no room for.

    Raises
    ------
    InputError
        If a text is none of these, or the policy can't be held to a total.
    """
    methods, notes = [], []
    for text in texts:
        if text not in _TABLES:
            methods.append(_shared(text, setting))
            continue
        try:
            methods.append(_best_tables(text, setting, law, scoring))
        except InputError as error:
            notes.append(f"{text} left out: {error}")
    names = [one.label for one in distinct_labels([method.policies[0] for method in methods])]
    return [replace(method, name=name) for method, name in zip(methods, names, strict=True)], notes


def _shared(text: str, setting: BudgetSetting) -> Method:
    budgets: dict[str, BatchBudget] = {"uniform": Est(power=0.0), "neyman": Neyman(), "greedy": Greedy()}
    policy = Policy(Never(), budgets[text], group=All(), name=text) if text in budgets else read_policy(text)
    if isinstance(policy, Blend):
        msg = f"{text!r} is a blend of two policies and shares no budget; compare it by python -m sim compare"
        raise InputError(msg)
    advantage = policy.advantage if setting.advantage == "own" else advantage_from_dict(setting.advantage)
    # Everything is kept, so that methods differ in what they draw.
    held = Policy(Never(), _held(policy, setting), None, All(), advantage, policy.threshold, name=policy.label)
    return Method(held.label, (held,))


def _held(policy: Policy, setting: BudgetSetting) -> BatchBudget:
    """Return the policy's shared budget, held to the total."""
    budget = policy.budget
    if isinstance(budget, Allocation):
        return replace(
            budget,
            average=setting.average,
            maximum=setting.maximum,
            minimum=setting.minimum,
            pilot=setting.pilot,
        )
    if isinstance(budget, Mopps):
        return replace(budget, wanted=max(setting.total // setting.group_size, 1), maximum=setting.group_size)
    if isinstance(budget, BatchBudget):
        msg = (
            f"the policy {policy.label!r} spends whatever its groups take, so it can't be held to a total; "
            "leave it out, or drive it by the Allocator"
        )
        raise InputError(msg)
    msg = (
        f"the policy {policy.label!r} decides for each prompt by itself and shares no budget; compare it by "
        "python -m sim compare"
    )
    raise InputError(msg)


def _best_tables(name: str, setting: BudgetSetting, law: Law, scoring: Scoring) -> Method:
    utility: Any = _TABLES[name]
    blend = policy_for_budget(
        law, setting.average, replace(scoring.model, update_cost=0.0), max_samples=setting.maximum, utility=utility
    )
    low, high = blend.low, blend.high
    if utility == "signal" and setting.advantage != "own":
        low, high = (replace(policy, advantage=advantage_from_dict(setting.advantage)) for policy in (low, high))
    return Method(name, (replace(low, name=name), replace(high, name=name)), blend.weight)


@dataclass(frozen=True, eq=False)
class _Steps:
    """What one method did; every array is ``[step]``, but for the last one."""

    spent: FloatArray
    rounds: FloatArray
    signal: FloatArray
    at_minimum: FloatArray
    unsampled: FloatArray
    moments: FloatArray
    """``[step, 5]`` W, V and C of the summed update, then W and V of the averaged one."""
    responses: FloatArray
    """``[distinct prompt]`` over all measured steps."""

    @classmethod
    def empty(cls, steps: int, pool: int) -> _Steps:
        spent, rounds, signal, at_minimum, unsampled = np.zeros((5, steps))
        return cls(spent, rounds, signal, at_minimum, unsampled, np.zeros((steps, 5)), np.zeros(pool))


def compare_budgets(
    texts: Sequence[str],
    source: Source,
    setting: BudgetSetting | None = None,
    scoring: Scoring | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> BudgetComparison:
    """Spend the same total by different methods, on the same prompts and the same responses.

    Prompts have the law's pass rates, which stay as they are: no model is trained. They come
    back once an epoch, so that memories have something to say.

    Parameters
    ----------
    texts
        The methods, at least one; see `read_methods`. ``uniform`` is the reference where it is among
        them, else the first one.
    source
        The pass-rate law.
    setting, scoring
        The setting and the score model; the defaults unless given.
    progress
        Called with the number of steps just simulated.

    Raises
    ------
    InputError
        If a method can't be used.
    """
    setting, scoring = setting or BudgetSetting(), scoring or Scoring()
    methods, notes = read_methods(texts, setting, source.law, scoring)
    if not methods:
        msg = f"nothing to compare: {'; '.join(notes) or 'give at least one method'}"
        raise InputError(msg)
    rates = draw_pass_rates(source.law, setting.pool, seed=setting.seed)
    batches = _schedule(setting)
    taken = [_Steps.empty(setting.steps, setting.pool) for _ in methods]
    memories = [PassRateMemory(setting.decay) for _ in methods]
    widest = max(method.policies[0].budget.max_samples for method in methods)
    first = len(batches) - setting.steps
    for step, keys in enumerate(batches):
        # A prompt's responses are its own, whatever its place in the step.
        draws = uniform(fold_seed(setting.seed, step), Stream.REWARDS, keys[:, None], np.arange(widest))
        correct = draws < rates[keys, None]
        for method, memory, done in zip(methods, memories, taken, strict=True):
            _take_step(method, memory, keys, correct, rates[keys], setting, scoring, step, done, step - first)
            if progress is not None:
                progress(1)
    names = [method.name for method in methods]
    reference = names.index("uniform") if "uniform" in names else 0
    rows = tuple(
        _row(method, done, taken[reference], setting.total) for method, done in zip(methods, taken, strict=True)
    )
    visits = np.bincount(np.concatenate(batches[first:]), minlength=setting.pool)
    ends, counts, means = _by_rate(rates, visits, [done.responses for done in taken])
    notes += _notes(methods, rows, names[reference], setting, scoring)
    return BudgetComparison(
        source, setting, scoring, tuple(methods), rows, names[reference], ends, counts, means, tuple(notes)
    )


def _schedule(setting: BudgetSetting) -> list[IntArray]:
    """Return the distinct prompts of every step, the warm-up's first."""
    batches: list[IntArray] = []
    a_pass = setting.pool // setting.prompts
    wanted = setting.warm_up * a_pass + setting.steps
    for epoch in range(-(-wanted // a_pass)):
        order = np.argsort(uniform(setting.seed, Stream.ORDER, np.arange(setting.pool), epoch), kind="stable")
        batches += np.split(order[: a_pass * setting.prompts], a_pass)
    return batches[:wanted]


def _take_step(
    method: Method,
    memory: PassRateMemory,
    keys: IntArray,
    correct: BoolArray,
    rates: FloatArray,
    setting: BudgetSetting,
    scoring: Scoring,
    step: int,
    done: _Steps,
    at: int,
) -> None:
    """Take one step by the real allocator; enter it into `done` where `at` is not negative."""
    seed = fold_seed(setting.seed, step)
    known = keys.tolist()
    kind = None
    if len(method.policies) > 1:
        kind = (uniform(seed, Stream.KIND, keys, 0) < method.weight).astype(np.int64)
    allocator = Allocator(method.policies, keys.size, seed, history=memory.recall(known), kind=kind)
    while request := allocator.ask():
        allocator.tell(request.ids, correct[request.prompts, request.draws])
    groups = allocator.groups()
    memory.update(known, groups.pos, groups.neg)
    if at < 0:
        return
    spent = groups.pos + groups.neg
    done.spent[at] = spent.sum()
    done.rounds[at] = allocator.metrics()["rounds"]
    done.signal[at] = groups.signal.mean()
    done.at_minimum[at] = np.count_nonzero(spent <= setting.minimum)
    done.unsampled[at] = np.count_nonzero(spent == 0)
    done.responses[keys] += spent

    # u, and the noise energy of every prompt's update, from the advantages that the allocator gave.
    of_pos, of_neg = np.where(groups.correct, groups.advantages, 0.0), np.where(groups.correct, 0.0, groups.advantages)
    u = of_pos.sum(axis=1) * (1 - rates) - of_neg.sum(axis=1) * rates
    nu_pos, nu_neg = scoring.model.noise
    energy = nu_pos * (of_pos**2).sum(axis=1) + nu_neg * (of_neg**2).sum(axis=1)
    slope = objective_slope(scoring.model.objective, rates)
    kept = np.maximum(groups.mask.sum(axis=1), 1)
    rows = np.count_nonzero(groups.advantages)
    done.moments[at] = (
        (u * slope).mean(),
        (u**2 + energy).mean(),
        (spent.sum() + scoring.model.update_cost * rows) / keys.size,
        (u / kept * slope).mean(),
        ((u**2 + energy) / kept**2).mean(),
    )


def _row(method: Method, done: _Steps, reference: _Steps, total: int) -> MethodResult:
    return MethodResult(
        policy=method.name,
        responses=sample_mean(done.spent),
        largest_miss=int(np.abs(done.spent - total).max()),
        rounds=sample_mean(done.rounds),
        signal=sample_mean(done.signal),
        at_minimum=sample_mean(done.at_minimum),
        unsampled=sample_mean(done.unsampled),
        progress=sample_mean(done.moments[:, 0]),
        noise=sample_mean(done.moments[:, 1]),
        efficiency=_jackknife(partial(_efficiency, parts=_SUMMED), done.moments),
        efficiency_ratio=_ratio(done, reference, _SUMMED),
        averaged_efficiency=_jackknife(partial(_efficiency, parts=_AVERAGED), done.moments),
        averaged_efficiency_ratio=_ratio(done, reference, _AVERAGED),
    )


def _efficiency(moments: FloatArray, parts: tuple[int, int, int]) -> FloatArray:
    """Return W^2 / (V C) from means over steps, the last axis of `moments`; 0 for an update that is always 0."""
    progress, noise, cost = (moments[..., part] for part in parts)
    return np.asarray(np.divide(progress**2, noise * cost, out=np.zeros_like(progress), where=noise > 0))


def _ratio(done: _Steps, reference: _Steps, parts: tuple[int, int, int]) -> SampleMean | None:
    size = done.moments.shape[1]
    if not _efficiency(reference.moments.mean(axis=0), parts):
        return None

    def ratio(moments: FloatArray) -> FloatArray:
        below = _efficiency(moments[..., size:], parts)
        return np.divide(_efficiency(moments[..., :size], parts), below, out=np.zeros_like(below), where=below > 0)

    # Side by side: both have seen the same prompts and responses.
    return _jackknife(ratio, np.concatenate([done.moments, reference.moments], axis=1))


def _jackknife(function: Callable[[FloatArray], FloatArray], moments: FloatArray) -> SampleMean:
    """Return a function of means over steps, and its standard error by leaving out one step at a time."""
    steps = moments.shape[0]
    without = function((moments.sum(axis=0) - moments) / (steps - 1))
    spread = np.sqrt((steps - 1) * np.mean((without - without.mean()) ** 2))
    return SampleMean(float(function(moments.mean(axis=0))), float(spread))


def _by_rate(
    rates: FloatArray, visits: IntArray, responses: Sequence[FloatArray]
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Group prompts by pass rate, equal rates together; return ends, prompts and mean responses a visit."""
    distinct, inverse, counts = np.unique(rates, return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / rates.size
    _, of_distinct = np.unique(np.floor(middle * _BINS), return_inverse=True)
    index = of_distinct[inverse]
    groups = range(int(index.max()) + 1)
    ends = [(distinct[of_distinct == group].min(), distinct[of_distinct == group].max()) for group in groups]
    seen = np.bincount(index, visits)
    means = np.array([np.bincount(index, values) for values in responses]) / np.maximum(seen, 1)
    return np.array(ends), np.bincount(index), means


def _notes(
    methods: Sequence[Method], rows: Sequence[MethodResult], reference: str, setting: BudgetSetting, scoring: Scoring
) -> list[str]:
    epochs = "1 epoch" if setting.warm_up == 1 else f"{setting.warm_up} epochs"
    run = (
        f"{setting.steps} steps of {setting.prompts} prompts and {setting.total} responses, after {epochs} in which "
        f"memories fill; {setting.pool} distinct prompts, whose pass rates stay as they are"
    )
    bounds = (
        f"allocations: {setting.minimum} to {setting.maximum} responses of a prompt, a pilot of {setting.pilot}; "
        f"advantage {setting.advantage}; memories decay by {setting.decay:g} a visit"
    )
    efficiency = (
        f"efficiency is that of an update per response, relative to {reference}: summed, where every response has the "
        "same weight and a prompt as much as it has responses; or averaged, where every prompt has the same weight. "
        f"{scoring.label}, in {ASSUMPTIONS}"
    )
    notes = [run, bounds, efficiency, "standard errors are over steps, for the pool of prompts as it was drawn"]
    if any(method.name in _TABLES for method in methods):
        notes.append(
            "bayes and best-signal know the law, but remember no prompt; they draw one response at a time and meet the "
            "total in expectation"
        )
    wide = [row.policy for row in rows if row.largest_miss and row.policy not in _TABLES]
    if wide:
        notes.append(f"{', '.join(wide)}: {setting.group_size} responses of each prompt don't divide the total")
    return notes
