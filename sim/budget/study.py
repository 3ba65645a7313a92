"""Shared budgets at equal spend: prompts that come back, the real allocator, one law. Computes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

import ada_bandit
from ada_bandit import Allocator, Never, Policy, uniform
from ada_bandit._types import BoolArray, FloatArray, IntArray
from ada_bandit.advantages import advantage_from_dict
from ada_bandit.budgets import BatchBudget
from ada_bandit.errors import InputError, check_count, check_number
from ada_bandit.groups import All
from ada_bandit.laws import Grid, Law
from ada_bandit.memory import PassRateMemory
from ada_bandit.objectives import Objective
from ada_bandit.optimal import policy_for_budget
from ada_bandit.policy import Blend
from ada_bandit.programs.records import to_csv
from ada_bandit.shared import Allocation, Est, Greedy, Mopps, Neyman
from ada_bandit.specs import read_policy
from ada_bandit.uniforms import Stream, fold_seed
from sim.budget.moments import AVERAGED, SUMMED, efficiency, efficiency_ratio, step_moments
from sim.labels import distinct_labels
from sim.montecarlo import draw_pass_rates
from sim.score_model import ASSUMPTIONS, Scoring
from sim.sources import Source
from sim.statistics import SampleMean, sample_mean

__all__ = [
    "METHODS",
    "BudgetComparison",
    "BudgetSetting",
    "Gains",
    "Method",
    "MethodResult",
    "compare_budgets",
    "read_methods",
]

METHODS = (
    "uniform",
    "neyman",
    "gvm",
    "reinforce-ada-est",
    "knapsack",
    "vip",
    "hora",
    "coba-rl",
    "dynamo",
    "e3",
    "greedy",
    "mopps",
    "best-efficiency",
    "best-signal",
)
"""The methods that are compared unless told otherwise."""

_TABLES = {"best-efficiency": "gradient", "best-signal": "signal"}
_BINS = 10
"""Groups of prompts by pass rate, at the most."""


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
    """What all methods have under equal advantages; where each has its own, of those that have none."""
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
    """With the advantages of the method's own."""
    equal: tuple[Policy, ...]
    """With the setting's advantage, and everything kept."""
    objective: Objective
    """What the method states that it climbs; the score model's where it states nothing."""
    weight: float = 0.0
    """Chance of the second policy, for each prompt."""


@dataclass(frozen=True)
class Gains:
    """What updates under one kind of advantage are worth to one objective; means over steps."""

    advantage: str
    """Name of the advantage."""
    objective: str
    """The objective that is climbed."""
    progress: SampleMean
    """W, where every response has the same weight."""
    noise: SampleMean
    """V, likewise."""
    efficiency: SampleMean
    """W^2 / ((V + c (B - 1) E[u]^2) C), likewise."""
    efficiency_ratio: SampleMean | None
    """Over that of the reference under equal advantages, for the same objective, on the same prompts and responses;
    None where that is 0."""
    averaged_efficiency: SampleMean
    """Likewise, where every prompt has the same weight: the mean over its responses enters the update."""
    averaged_efficiency_ratio: SampleMean | None
    """Over that of the reference, likewise."""


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
    own: Gains
    """Under its own advantages, for the objective that it states."""
    equal: Gains
    """Under the setting's advantage, for the score model's objective."""


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
                        "equal": [one.to_dict() for one in method.equal],
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
        return to_csv(_flat(row) | _flat(row.own, "own_") | _flat(row.equal, "equal_") for row in self.rows)


def _flat(part: MethodResult | Gains, prefix: str = "") -> dict[str, Any]:
    """Return the fields as cells of a row, standard errors beside their means."""
    record: dict[str, Any] = {}
    for field in fields(part):
        value, name = getattr(part, field.name), prefix + field.name
        if isinstance(value, SampleMean):
            record |= {name: value.mean, f"{name}_se": value.se}
        elif not isinstance(value, Gains):
            record[name] = value
    return record


def read_methods(
    texts: Sequence[str], setting: BudgetSetting, law: Law, scoring: Scoring
) -> tuple[list[Method], list[str]]:
    """Read methods and hold each to the total and the bounds of the setting.

    Parameters
    ----------
    texts
        ``uniform``, ``neyman`` and ``greedy``; a preset or TOML file with a shared budget;
        ``best-efficiency`` and ``best-signal``, the best tables of the law for gradient efficiency and for signal,
        which meet the total in expectation.
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
            methods.append(_shared(text, setting, scoring))
            continue
        try:
            methods.append(_best_tables(text, setting, law, scoring))
        except InputError as error:
            notes.append(f"{text} left out: {error}")
    names = [one.label for one in distinct_labels([method.policies[0] for method in methods])]
    return [replace(method, name=name) for method, name in zip(methods, names, strict=True)], notes


def _shared(text: str, setting: BudgetSetting, scoring: Scoring) -> Method:
    budgets: dict[str, BatchBudget] = {"uniform": Est(power=0.0), "neyman": Neyman(), "greedy": Greedy()}
    policy = Policy(Never(), budgets[text], group=All(), name=text) if text in budgets else read_policy(text)
    if isinstance(policy, Blend):
        msg = f"{text!r} is a blend of two policies and shares no budget; compare it by python -m sim compare"
        raise InputError(msg)
    equal = advantage_from_dict(setting.advantage)
    # Neither of these has an advantage or an objective of its own.
    plain = text in {"uniform", "greedy"}
    own = equal if text in budgets else policy.advantage
    # Everything is kept, so that methods differ in what they draw.
    budget = _held(policy, setting)
    held = Policy(Never(), budget, None, All(), own, policy.threshold, name=policy.label)
    objective = scoring.model.objective if plain else budget.objective
    return Method(held.label, (held,), (held.with_advantage(equal),), objective)


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
    equal = advantage_from_dict(setting.advantage)
    common = [replace(policy, group=All(), advantage=equal, name=name) for policy in (blend.low, blend.high)]
    # Signal alone has no advantages.
    own = common if utility == "signal" else [replace(policy, name=name) for policy in (blend.low, blend.high)]
    return Method(name, tuple(own), tuple(common), scoring.model.objective, blend.weight)


@dataclass(frozen=True, eq=False)
class _Steps:
    """What one method did; every array is ``[step]``, but for the last three."""

    spent: FloatArray
    rounds: FloatArray
    signal: FloatArray
    at_minimum: FloatArray
    unsampled: FloatArray
    own: FloatArray
    """``[step, objective, 7]`` Moments of the update under the method's own advantages (`step_moments`)."""
    equal: FloatArray
    """Likewise, under the setting's advantage."""
    responses: FloatArray
    """``[distinct prompt]`` over all measured steps."""

    @classmethod
    def empty(cls, steps: int, objectives: int, pool: int) -> _Steps:
        own, equal = np.zeros((2, steps, objectives, 7))
        spent, rounds, signal, at_minimum, unsampled = np.zeros((5, steps))
        return cls(spent, rounds, signal, at_minimum, unsampled, own, equal, np.zeros(pool))


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
    if scoring.model.likeness is not None and scoring.model.overlap:
        msg = "a likeness can't be used with overlap here, as pairs of prompts are not looked at; leave one of them out"
        raise InputError(msg)
    methods, notes = read_methods(texts, setting, source.law, scoring)
    source = source.meant_for([policy for method in methods for policy in method.policies])
    if not methods:
        msg = f"nothing to compare: {'; '.join(notes) or 'give at least one method'}"
        raise InputError(msg)
    rates = draw_pass_rates(source.law, setting.pool, seed=setting.seed)
    batches = _schedule(setting)
    objectives = tuple(dict.fromkeys([scoring.model.objective, *(method.objective for method in methods)]))
    # Progress is that of all the prompts, whichever are in a step.
    population = Grid(rates)
    pulls = np.stack([replace(scoring.model, objective=each).pull(rates, population) for each in objectives])
    taken = [_Steps.empty(setting.steps, len(objectives), setting.pool) for _ in methods]
    memories = [PassRateMemory(setting.decay) for _ in methods]
    widest = max(method.policies[0].budget.max_samples for method in methods)
    first = len(batches) - setting.steps
    for step, keys in enumerate(batches):
        # A prompt's responses are its own, whatever its place in the step.
        draws = uniform(fold_seed(setting.seed, step), Stream.REWARDS, keys[:, None], np.arange(widest))
        correct = draws < rates[keys, None]
        for method, memory, done in zip(methods, memories, taken, strict=True):
            pools = _draw_pools(method, memory, keys, correct, setting, step)
            if step >= first:
                _enter(method, pools, keys, rates[keys], setting, scoring, pulls[:, keys], done, step - first)
            if progress is not None:
                progress(1)
    names = [method.name for method in methods]
    reference = names.index("uniform") if "uniform" in names else 0
    rows = tuple(
        _row(method, done, taken[reference].equal, objectives, setting, scoring)
        for method, done in zip(methods, taken, strict=True)
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


def _draw_pools(
    method: Method, memory: PassRateMemory, keys: IntArray, correct: BoolArray, setting: BudgetSetting, step: int
) -> tuple[Allocator, IntArray]:
    """Draw the responses of one step by the real allocator; return it, and which policy each prompt had."""
    seed = fold_seed(setting.seed, step)
    known = keys.tolist()
    kind = np.zeros(keys.size, dtype=np.int64)
    if len(method.policies) > 1:
        kind = (uniform(seed, Stream.KIND, keys, 0) < method.weight).astype(np.int64)
    allocator = Allocator(method.policies, keys.size, seed, history=memory.recall(known), kind=kind)
    while request := allocator.ask():
        allocator.tell(request.ids, correct[request.prompts, request.draws])
    groups = allocator.groups()
    memory.update(known, groups.pos, groups.neg)
    return allocator, kind


def _enter(
    method: Method,
    pools: tuple[Allocator, IntArray],
    keys: IntArray,
    rates: FloatArray,
    setting: BudgetSetting,
    scoring: Scoring,
    pulls: FloatArray,
    done: _Steps,
    at: int,
) -> None:
    """Enter a measured step."""
    allocator, kind = pools
    groups = allocator.groups()
    spent = groups.pos + groups.neg
    done.spent[at] = spent.sum()
    done.rounds[at] = allocator.metrics()["rounds"]
    done.signal[at] = groups.signal.mean()
    done.at_minimum[at] = np.count_nonzero(spent <= setting.minimum)
    done.unsampled[at] = np.count_nonzero(spent == 0)
    done.responses[keys] += spent
    for moments, policies in ((done.own, method.policies), (done.equal, method.equal)):
        moments[at] = step_moments(policies, kind, groups.pos, groups.neg, rates, scoring.model, pulls)


def _row(
    method: Method,
    done: _Steps,
    reference: FloatArray,
    objectives: Sequence[Objective],
    setting: BudgetSetting,
    scoring: Scoring,
) -> MethodResult:
    shared = scoring.model.batch_weight

    def gains(moments: FloatArray, policy: Policy, at: int) -> Gains:
        mine, base, objective = moments[:, at], reference[:, at], objectives[at]
        return Gains(
            advantage=policy.advantage.name,
            objective=objective if isinstance(objective, str) else getattr(objective, "__name__", "own"),
            progress=sample_mean(mine[:, 0]),
            noise=sample_mean(mine[:, 1]),
            efficiency=efficiency(mine, SUMMED, shared),
            efficiency_ratio=efficiency_ratio(mine, base, SUMMED, shared),
            averaged_efficiency=efficiency(mine, AVERAGED, shared),
            averaged_efficiency_ratio=efficiency_ratio(mine, base, AVERAGED, shared),
        )

    return MethodResult(
        policy=method.name,
        responses=sample_mean(done.spent),
        largest_miss=int(np.abs(done.spent - setting.total).max()),
        rounds=sample_mean(done.rounds),
        signal=sample_mean(done.signal),
        at_minimum=sample_mean(done.at_minimum),
        unsampled=sample_mean(done.unsampled),
        own=gains(done.own, method.policies[0], objectives.index(method.objective)),
        equal=gains(done.equal, method.equal[0], 0),
    )


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
        f"memories decay by {setting.decay:g} a visit"
    )
    efficiency = (
        f"efficiency is that of an update per response, relative to {reference} with {setting.advantage}, for the same "
        "objective: summed, where every response has the same weight and a prompt as much as it has responses; or "
        f"averaged, where every prompt has the same weight. {scoring.label}, in {ASSUMPTIONS}"
    )
    own = (
        "own: each method has the advantages that it was published with, and is scored on the objective that it "
        f"states; what has none of its own has {setting.advantage}, and what states none the objective of the command"
    )
    if scoring.model.transfer == 1 and scoring.model.likeness is None:
        own += ". At transfer 1 every objective is the same but for a factor, so that ratios don't depend on it"
    notes = [run, bounds, efficiency, own, "standard errors are over steps, for the pool of prompts as it was drawn"]
    if any(method.name in _TABLES for method in methods):
        notes.append(
            "best-efficiency and best-signal know the law, but remember no prompt; they draw one response at a time "
            "and meet the total in expectation"
        )
    wide = [row.policy for row in rows if row.largest_miss and row.policy not in _TABLES]
    if wide:
        notes.append(f"{', '.join(wide)}: {setting.group_size} responses of each prompt don't divide the total")
    return notes
