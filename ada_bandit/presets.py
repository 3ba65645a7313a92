"""Published methods by name, as the parts of policies: what `ada_bandit.policy.Policy.preset` knows.

A preset is exact where its draws are a table, and simulated where a budget is shared by the
batch. Sizes are defaults that make methods comparable, unless a method names its own; all of
them are options.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import Any, TypeAlias

from ada_bandit.advantages import (
    HADW,
    NGRPO,
    PKPO,
    Advantage,
    ClassWeights,
    ConstantBaseline,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MaxRL,
    PoolMean,
    Shrunk,
)
from ada_bandit.budgets import AfterPilot, Budget, Rounds, Stages
from ada_bandit.errors import InputError, check_count, check_number, unknown_name
from ada_bandit.groups import All, Matched
from ada_bandit.laws import Beta
from ada_bandit.rules import Balance, ExitRule, MeanBetween, Never, Positive, Quota
from ada_bandit.score_model import ScoreModel
from ada_bandit.shared import (
    GVM,
    VIP,
    CobaRL,
    Dynamo,
    Est,
    Greso,
    Hora,
    Knapsack,
    Mopps,
    Neyman,
    Ranked,
    Refill,
)
from ada_bandit.stopping import StoppingProblem

__all__ = ["COMMON", "PRESETS", "Parts", "Preset", "preset_names", "presets_table"]

Parts: TypeAlias = dict[str, Any]
"""The parts of a policy by name, as `ada_bandit.policy.Policy` takes them."""

COMMON: Mapping[str, Any] = MappingProxyType({"no_signal": "mask", "replace": 0.0, "threshold": 0.5})
"""Options that every preset takes, by the kind of their values: those of `Policy`, and `Budget.replace`."""


@dataclass(frozen=True)
class Preset:
    """A published method."""

    name: str
    """The name by which `Policy.preset` knows it."""
    build: Callable[..., Parts]
    """Makes the parts of the policy from keyword options."""
    formula: str
    """What it does, in one line."""
    source: str
    """Its arXiv number, or where else it stands."""
    read: str
    """What the preset was written from: public code, paper text, or secondary text."""
    exact: bool = True
    """Whether its draws are a table, so that `analyze` applies; else it is simulated."""

    @property
    def options(self) -> dict[str, Any]:
        """The keyword options of its own and their defaults; `COMMON` ones come on top."""
        return {key: option.default for key, option in signature(self.build).parameters.items()}

    def parts(self, **options: float | str) -> Parts:
        """Return the policy's parts, its name included: the preset's, with options that differ from the defaults.

        Raises
        ------
        InputError
            For an unknown option (the nearest one is suggested), or a value that can't be used.
        """
        own = self.options
        for key in options:
            if key not in own and key not in COMMON:
                raise unknown_name(f"option of the preset {self.name!r}", key, (*own, *COMMON))
        parts = self.build(**{key: value for key, value in options.items() if key in own})
        parts |= {key: options[key] for key in ("no_signal", "threshold") if key in options}
        if "replace" in options:
            parts["budget"] = parts["budget"].with_replacement(options["replace"])
        suffix = ", ".join(f"{key}={value}" for key, value in options.items())
        return parts | {"name": f"{self.name}:{suffix}" if suffix else self.name}


def _parts(rule: ExitRule, budget: Budget, group_size: int | None = None, **others: Any) -> Parts:
    return {"rule": rule, "budget": budget, "group_size": group_size} | others


def _once(group_size: int, advantage: Advantage) -> Parts:
    """Take one round of n responses and keep them all."""
    size = check_count("group_size", group_size)
    return _parts(Never(), Rounds(size), size, group=All(), advantage=advantage)


def _grpo(group_size: int = 4) -> Parts:
    return _once(group_size, GroupStd())


def _dr_grpo(group_size: int = 4) -> Parts:
    return _once(group_size, GroupMean())


def _rloo(group_size: int = 4) -> Parts:
    return _once(group_size, LeaveOneOut())


def _raft(group_size: int = 4) -> Parts:
    return _once(group_size, ClassWeights(1.0, 0.0))


def _reinforce(group_size: int = 1, baseline: float = 0.5) -> Parts:
    return _once(group_size, ConstantBaseline(baseline))


def _positives(group_size: int = 4) -> Parts:
    return _once(group_size, MaxRL(eps=0.0, centred=False))


def _psr(group_size: int = 8) -> Parts:
    return _once(group_size, ClassWeights(1.0, 0.0))


def _nsr(group_size: int = 8) -> Parts:
    return _once(group_size, ClassWeights(0.0, -1.0))


def _w_reinforce(group_size: int = 8, lam: float = 0.1) -> Parts:
    return _once(group_size, ClassWeights(check_number("lam", lam, 0), -1.0))


def _reinforce_rej(group_size: int = 4, wrong: float = 0.0) -> Parts:
    advantage = ClassWeights(1.0, check_number("wrong", wrong), mixed=True)
    return _once(group_size, advantage) | {"no_signal": "leave_out"}


def _maxrl(group_size: int = 4, eps: float = 1e-6) -> Parts:
    return _once(group_size, MaxRL(eps=eps))


def _pkpo(group_size: int = 4, k: int = 2, centred: bool = True) -> Parts:
    if check_count("k", k) > check_count("group_size", group_size):
        msg = f"k must not exceed group_size, as pass@k is read off the group; got k = {k}, group_size = {group_size}"
        raise InputError(msg)
    return _once(group_size, PKPO(k, centred))


def _ngrpo(group_size: int = 4) -> Parts:
    return _once(group_size, NGRPO())


def _ha_dw(group_size: int = 4, scale: float = 1.3, centre: float = 0.5) -> Parts:
    return _once(group_size, HADW(scale=scale, centre=centre))


def _jspo(group_size: int = 4, weight: float = 0.2, mean: float = 0.5) -> Parts:
    return _once(group_size, Shrunk(weight, mean))


def _pos(samples: int = 8, rounds: int = 4, group_size: int = 4) -> Parts:
    return _parts(Positive(1), Rounds(samples, rounds), group_size)


def _balance(samples: int = 8, rounds: int = 4, group_size: int = 4) -> Parts:
    return _parts(Balance(group_size), Rounds(samples, rounds), group_size)


def _seq(
    samples: int = 16,
    rounds: int = 8,
    positives: int = 8,
    negatives: int = 8,
    group_size: int = 16,
    inverse_rate: bool = False,
) -> Parts:
    if not isinstance(inverse_rate, bool):
        msg = f"inverse_rate must be true or false; got {inverse_rate!r}"
        raise InputError(msg)
    advantage: Advantage = MaxRL(pool=True) if inverse_rate else PoolMean()
    return _parts(Quota(positives, negatives), Rounds(samples, rounds), group_size, advantage=advantage)


def _pods(samples: int = 16, group_size: int = 4) -> Parts:
    return _parts(Never(), Rounds(samples), group_size, advantage=GroupStd())


def _speed(screening: int = 8, more: int = 16, advantage: str = "leave_one_out") -> Parts:
    # One class alone has advantage 0, so what is screened out adds nothing to the update.
    return _parts(
        ~Quota(1, 1),
        Stages((screening, more)),
        group=All(),
        advantage=advantage,
        no_signal="leave_out",
    )


def _pilot_commit(pilot: int = 32, commit: int = 96, low: float = 0.125, high: float = 0.75) -> Parts:
    budget = Stages((pilot, commit))
    # A pool that went on has more than the pilot's responses, also where some, though not most, got no score.
    return _parts(~MeanBetween(low, high), budget, group=All(at_least=pilot + 1), advantage=GroupStd())


def _dars(pilot: int, maximum: int, wanted: Callable[[float], float]) -> Parts:
    """Take a pilot; where it is wrong more often than right, go on until wanted(p) / (2 p q) responses are in."""
    size, most = check_count("pilot", pilot), check_count("maximum", maximum)
    if most < size:
        msg = f"maximum must be at least the pilot; got maximum = {most} and pilot = {size}"
        raise InputError(msg)

    def more(correct: int) -> int:
        rate = max(correct, 0.5) / size
        if rate >= 0.5:
            return 0
        # A whole number stays one where rounding has put a trace on top.
        return min(math.ceil(wanted(rate) / (2 * rate * (1 - rate)) - size - 1e-9), most - size)

    budget = AfterPilot(size, tuple(more(correct) for correct in range(size + 1)))
    return _parts(Never(), budget, size, group=All(), advantage=GroupMean(), no_signal="leave_out")


def _dars_et(pilot: int = 8, maximum: int = 32) -> Parts:
    return _dars(pilot, maximum, lambda _: pilot / 2)


def _dars_hw(pilot: int = 8, maximum: int = 64) -> Parts:
    return _dars(pilot, maximum, lambda rate: pilot * (1 - rate))


def _aero(pilot: int = 8, more: int = 2, maximum: int = 16) -> Parts:
    size, step, most = check_count("pilot", pilot), check_count("more", more), check_count("maximum", maximum)
    rounds, left = divmod(most - size, step)
    if rounds < 0 or left:
        msg = f"maximum must be the pilot and some rounds of more; got maximum = {most}, pilot = {size}, more = {step}"
        raise InputError(msg)
    return _parts(Positive(1), Stages((size, *[step] * rounds)), size, group=Matched(), advantage=GroupStd())


def _bayes(
    noise_ratio: float = 1.0,
    samples: int = 1,
    max_samples: int = 32,
    objective: str = "mean",
    update_cost: float = 0.0,
    transfer: float = 1.0,
    overlap: float = 0.0,
    batch: int = 1,
) -> Parts:
    model = ScoreModel(noise_ratio, objective, update_cost, transfer, overlap, batch)
    problem = StoppingProblem(Beta(1, 1), model, samples=samples, max_samples=max_samples)
    return problem.parts_at(problem.best_price())[0]


# What is shared by a batch. `Quota(1, 1)` decides nothing there: it lets a group with signal count as resolved.


def _dapo(group_size: int = 16, wanted: int = 128, rounds: int = 10) -> Parts:
    budget = Refill(wanted, group_size, rounds)
    return _parts(Quota(1, 1), budget, group=All(), advantage=GroupStd(), no_signal="leave_out")


def _greso(
    group_size: int = 8,
    wanted: int = 128,
    rounds: int = 10,
    easy: float = 0.5,
    hard: float = 0.5,
    least: float = 0.01,
) -> Parts:
    budget = Greso(wanted, group_size, rounds, easy, hard, least)
    return _parts(Quota(1, 1), budget, group=All(), advantage=GroupStd(), no_signal="leave_out")


def _mopps(group_size: int = 8, wanted: int = 128, target: float = 0.5) -> Parts:
    return _parts(Quota(1, 1), Mopps(wanted, group_size, target), group=All(), advantage=GroupStd())


def _gvm(
    average: float = 8.0,
    maximum: int = 32,
    minimum: int = 2,
    pilot: int = 4,
    alpha: float = 1e-3,
    beta: float = 2.0,
) -> Parts:
    budget = GVM(average, maximum, minimum, pilot, alpha=alpha, beta=beta)
    return _parts(Quota(1, 1), budget, group=All(), advantage=MaxRL(eps=0.0, centred=False))


def _cures(average: float = 8.0, maximum: int = 32, minimum: int = 2, pilot: int = 0) -> Parts:
    budget = Neyman(average, maximum, minimum, pilot)
    return _parts(Quota(1, 1), budget, group=All(), advantage=LeaveOneOut())


def _knapsack(average: float = 8.0, maximum: int = 128, minimum: int = 2, pilot: int = 0) -> Parts:
    budget = Knapsack(average, maximum, minimum, pilot)
    return _parts(Quota(1, 1), budget, group=All(), advantage=GroupStd())


def _vip(
    average: float = 8.0, maximum: int = 32, minimum: int = 3, pilot: int = 0, baseline: str = "leave_one_out"
) -> Parts:
    budget = VIP(average, maximum, minimum, pilot, baseline=baseline)  # type: ignore[arg-type]
    return _parts(Quota(1, 1), budget, group=All(), advantage=baseline)


def _est(
    average: float = 8.0, maximum: int = 32, minimum: int = 1, pilot: int = 0, power: float = 0.5, eps: float = 1e-3
) -> Parts:
    budget = Est(average, maximum, minimum, pilot, power=power, eps=eps)
    return _parts(Quota(1, 1), budget, group=All(), advantage=MaxRL(power=0.5, eps=eps))


def _hora(average: float = 16.0, maximum: int = 64, minimum: int = 4, pilot: int = 4) -> Parts:
    return _parts(Quota(1, 1), Hora(average, maximum, minimum, pilot), group=All(), advantage=GroupStd())


def _coba_rl(
    average: float = 8.0,
    maximum: int = 128,
    minimum: int = 2,
    pilot: int = 0,
    tau: float = 1.0,
    kappa: float = 11.0,
    least: float = 1.0,
    most: float = 10.0,
    slope: float = 9.0,
) -> Parts:
    budget = CobaRL(average, maximum, minimum, pilot, tau=tau, kappa=kappa, least=least, most=most, slope=slope)
    return _parts(Quota(1, 1), budget, group=All(), advantage=GroupStd())


def _dynamo(
    average: float = 16.0,
    maximum: int = 24,
    minimum: int = 8,
    pilot: int = 0,
    least: float = 0.01,
    solved: float = 0.85,
) -> Parts:
    budget = Dynamo(average, maximum, minimum, pilot, least=least, solved=solved)
    return _parts(Quota(1, 1), budget, group=All(), advantage=GroupStd())


def _e3(average: float = 8.0, maximum: int = 32, minimum: int = 4, pilot: int = 0) -> Parts:
    return _parts(Quota(1, 1), Ranked(average, maximum, minimum, pilot), group=All(), advantage=GroupStd())


_CODE, _PAPER, _SECONDARY = "public code", "paper text", "secondary text"

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset("grpo", _grpo, "n responses; (r - mean) / (std + eps)", "2402.03300", _CODE),
            Preset("dr-grpo", _dr_grpo, "n responses; r - mean", "2503.20783", _SECONDARY),
            Preset("rloo", _rloo, "n responses; r - mean of the others", "2402.14740", _CODE),
            Preset(
                "reinforce-ada-pos",
                _pos,
                "rounds of M until one is correct, at most R; balanced group of n; r - pool mean",
                "2510.04996 v2",
                f"{_PAPER} and {_CODE}",
            ),
            Preset(
                "reinforce-ada-balance",
                _balance,
                "rounds of M until a balanced group of n is full, at most R; r - pool mean",
                "2510.04996 v2",
                f"{_PAPER} and {_CODE}",
            ),
            Preset(
                "reinforce-ada-seq",
                _seq,
                "rounds of M until K_pos correct and K_neg incorrect, at most R; balanced group of n; r - pool mean",
                "2510.04996 v3",
                _PAPER,
            ),
            Preset(
                "reinforce-ada-est",
                _est,
                "n_i in proportion to 1 / sqrt(p_i + eps), p_i from the memory; (r - mean) / sqrt(mean + eps)",
                "2510.04996 v3",
                f"{_PAPER} and {_CODE}",
                exact=False,
            ),
            Preset("raft", _raft, "n responses; 1 for a correct one, else 0", "2504.11343", _CODE),
            Preset("reinforce", _reinforce, "n responses; r - b", "Williams 1992", "textbook"),
            Preset(
                "positives",
                _positives,
                "n responses; r / mean, so that the update is the mean score of the correct ones",
                "2602.02710",
                _SECONDARY,
            ),
            Preset("psr", _psr, "n responses; 1 for a correct one, else 0", "2506.01347", _CODE),
            Preset("nsr", _nsr, "n responses; -1 for an incorrect one, else 0", "2506.01347", _CODE),
            Preset("w-reinforce", _w_reinforce, "n responses; lam for a correct one, else -1", "2506.01347", _CODE),
            Preset(
                "reinforce-rej",
                _reinforce_rej,
                "n responses; 1 for a correct one, else `wrong`; groups of one class are left out",
                "2504.11343",
                f"{_CODE} and {_SECONDARY}",
            ),
            Preset("maxrl", _maxrl, "n responses; (r - mean) / (mean + eps)", "2602.02710", _CODE),
            Preset(
                "pkpo",
                _pkpo,
                "n responses, c correct; r C(n-c, k-1) / C(n-1, k-1), less the mean of the others where `centred`",
                "2505.15201",
                f"{_CODE}, that of MaxRL",
            ),
            Preset("ngrpo", _ngrpo, "grpo with one more reward of 1 in mean and deviation", "2509.18851", _SECONDARY),
            Preset("ha-dw", _ha_dw, "grpo; A times scale exp(-sign(A) (mean - centre))", "2601.08521", _PAPER),
            Preset("jspo", _jspo, "rloo, its baseline drawn to `mean` by `weight`", "2511.03710", _CODE),
            Preset(
                "pods",
                _pods,
                "N responses; the balanced group of m, which has the largest variance; grpo within it",
                "2504.13818",
                _CODE,
            ),
            Preset(
                "speed",
                _speed,
                "N_init responses; N_cont more where both classes came up; all kept; r - mean of the others",
                "2506.09016",
                _CODE,
            ),
            Preset(
                "pilot-commit",
                _pilot_commit,
                "a pilot; where low <= pool mean <= high, commit more and keep all, else keep nothing; grpo",
                "2605.26606",
                _CODE,
            ),
            Preset(
                "dars-et",
                _dars_et,
                "N responses; where under half are correct, up to N / (4 p q) in all; all kept; r - mean",
                "2508.13755",
                _CODE,
            ),
            Preset(
                "dars-hw",
                _dars_hw,
                "N responses; where under half are correct, up to N / (2 p) in all; all kept; r - mean",
                "2508.13755",
                _CODE,
            ),
            Preset(
                "aero",
                _aero,
                "N responses, more until one is correct; all correct ones and at most as many others; grpo",
                "2602.14338",
                _SECONDARY,
            ),
            Preset(
                "dapo",
                _dapo,
                "n responses of one prompt after the other until the batch has its groups with signal; grpo",
                "2503.14476",
                _CODE,
                exact=False,
            ),
            Preset(
                "greso",
                _greso,
                "dapo; a prompt that was z times in a row all correct (wrong) enters with chance max(base^z, least)",
                "2506.02177",
                _CODE,
                exact=False,
            ),
            Preset(
                "mopps",
                _mopps,
                "n responses of the prompts whose rate, drawn from its posterior, is closest to 1/2; grpo",
                "2507.04632",
                _CODE,
                exact=False,
            ),
            Preset(
                "gvm",
                _gvm,
                "a pilot; n_i in proportion to 1 / sqrt(p_i + alpha p_i^(1-beta)); r / mean",
                "2505.02391",
                _CODE,
                exact=False,
            ),
            Preset(
                "cures",
                _cures,
                "n_i in proportion to sqrt(p_i q_i); r - mean of the others",
                "2510.01037",
                _CODE,
                exact=False,
            ),
            Preset(
                "knapsack",
                _knapsack,
                "largest sum of (1 - p_i^n_i - q_i^n_i) p_i q_i^2; grpo",
                "2509.25849",
                _CODE,
                exact=False,
            ),
            Preset(
                "vip",
                _vip,
                "smallest sum of the gradients' variances p_i q_i / (n_i - 1); r - mean of the others",
                "2602.01601",
                _SECONDARY,
                exact=False,
            ),
            Preset(
                "hora",
                _hora,
                "a pilot; largest expected number of prompts that get one more correct response; grpo",
                "2605.07114",
                _SECONDARY,
                exact=False,
            ),
            Preset(
                "coba-rl",
                _coba_rl,
                "largest sum of (1 - exp(-n_i p_i q_i / tau)) BetaPDF(p_i; alpha, kappa - alpha); grpo",
                "2602.03048",
                _PAPER,
                exact=False,
            ),
            Preset(
                "dynamo",
                _dynamo,
                "the minimum, and the rest in proportion to the spread of all responses so far; grpo",
                "2602.19208",
                _CODE,
                exact=False,
            ),
            Preset(
                "e3",
                _e3,
                "the minimum, and the rest in proportion to the rank of difficulty; grpo",
                "2505.18573",
                _CODE,
                exact=False,
            ),
            Preset(
                "bayes",
                _bayes,
                "the largest gradient efficiency under p ~ Beta(1, 1): draws and advantages by cell",
                "`ada_bandit.optimal`",
                "ours",
            ),
        )
    }
)
"""The published methods by name. `bayes` has a fixed prior; `ada_bandit.empirical.EmpiricalBayes` learns it."""


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets."""
    return tuple(PRESETS)


def presets_table() -> str:
    """Return the presets as a table in Markdown, one a row."""
    lines = ["| preset | what it does | options | source | written from | computed |", "|---|---|---|---|---|---|"]
    for preset in PRESETS.values():
        options = ", ".join(f"{key}={str(value).lower()}" for key, value in preset.options.items())
        source = _link(preset.source) if preset.source[:4].isdigit() else preset.source
        cells = (f"`{preset.name}`", preset.formula, options, source, preset.read)
        lines.append(f"| {' | '.join(cells)} | {'exactly' if preset.exact else 'by simulation'} |")
    return "\n".join(lines) + "\n"


def _link(source: str) -> str:
    number, _, version = source.partition(" ")
    return f"[{source}](https://arxiv.org/abs/{number}{version})"
