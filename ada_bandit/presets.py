"""Published methods as policies, by name: what `Policy.preset` knows.

A preset is exact where its draws are a table, and simulated where a budget is shared by the
batch. Sizes are defaults that make methods comparable, unless a method names its own; all of
them are options.
"""

from __future__ import annotations

from ada_bandit.advantages import NGRPO, PKPO, Advantage, GroupMean, GroupStd, LeaveOneOut, MaxRL, PoolMean
from ada_bandit.budgets import Rounds, Stages
from ada_bandit.errors import InputError, check_count
from ada_bandit.groups import All
from ada_bandit.laws import Beta
from ada_bandit.optimal import bayes_policy
from ada_bandit.policy import PRESETS, Policy, Preset, register
from ada_bandit.rules import Balance, MeanBetween, Never, Positive, Quota
from ada_bandit.score_model import ScoreModel
from ada_bandit.shared import GVM, VIP, Est, Greso, Knapsack, Mopps, Neyman, Refill

__all__ = ["PRESETS", "Preset", "preset_names", "presets_table"]


def _once(group_size: int, advantage: Advantage) -> Policy:
    """Take one round of n responses and keep them all."""
    size = check_count("group_size", group_size)
    return Policy(Never(), Rounds(size), size, All(), advantage)


def _grpo(group_size: int = 4) -> Policy:
    return _once(group_size, GroupStd())


def _dr_grpo(group_size: int = 4) -> Policy:
    return _once(group_size, GroupMean())


def _rloo(group_size: int = 4) -> Policy:
    return _once(group_size, LeaveOneOut())


def _maxrl(group_size: int = 4, eps: float = 1e-6) -> Policy:
    return _once(group_size, MaxRL(eps=eps))


def _pkpo(group_size: int = 4, k: int = 2) -> Policy:
    if check_count("k", k) > check_count("group_size", group_size):
        msg = f"k must not exceed group_size, as pass@k is read off the group; got k = {k}, group_size = {group_size}"
        raise InputError(msg)
    return _once(group_size, PKPO(k))


def _ngrpo(group_size: int = 4) -> Policy:
    return _once(group_size, NGRPO())


def _pos(samples: int = 8, rounds: int = 4, group_size: int = 4) -> Policy:
    return Policy(Positive(1), Rounds(samples, rounds), group_size)


def _balance(samples: int = 8, rounds: int = 4, group_size: int = 4) -> Policy:
    return Policy(Balance(group_size), Rounds(samples, rounds), group_size)


def _seq(
    samples: int = 16,
    rounds: int = 8,
    positives: int = 8,
    negatives: int = 8,
    group_size: int = 16,
    inverse_rate: bool = False,
) -> Policy:
    if not isinstance(inverse_rate, bool):
        msg = f"inverse_rate must be true or false; got {inverse_rate!r}"
        raise InputError(msg)
    advantage: Advantage = MaxRL(pool=True) if inverse_rate else PoolMean()
    return Policy(Quota(positives, negatives), Rounds(samples, rounds), group_size, advantage=advantage)


def _pods(samples: int = 16, group_size: int = 4) -> Policy:
    return Policy(Never(), Rounds(samples), group_size, advantage=GroupStd())


def _speed(screening: int = 8, more: int = 16, advantage: str = "leave_one_out") -> Policy:
    # One class alone has advantage 0, so what is screened out adds nothing to the update.
    return Policy(
        ~Quota(1, 1),
        Stages((screening, more)),
        group=All(),
        advantage=advantage,  # type: ignore[arg-type]
        no_signal="leave_out",
    )


def _pilot_commit(pilot: int = 32, commit: int = 96, low: float = 0.125, high: float = 0.75) -> Policy:
    budget = Stages((pilot, commit))
    # A pool that went on has more than the pilot's responses, also where some, though not most, got no score.
    return Policy(~MeanBetween(low, high), budget, group=All(at_least=pilot + 1), advantage=GroupStd())


def _bayes(
    noise_ratio: float = 1.0,
    samples: int = 1,
    max_samples: int = 32,
    objective: str = "mean",
    update_cost: float = 0.0,
) -> Policy:
    model = ScoreModel(noise_ratio, objective, update_cost)
    return bayes_policy(Beta(1, 1), model, samples=samples, max_samples=max_samples)


# What is shared by a batch. `Quota(1, 1)` decides nothing there: it lets a group with signal count as resolved.


def _dapo(group_size: int = 16, wanted: int = 128, rounds: int = 10) -> Policy:
    budget = Refill(wanted, group_size, rounds)
    return Policy(Quota(1, 1), budget, group=All(), advantage=GroupStd(), no_signal="leave_out")


def _greso(
    group_size: int = 8,
    wanted: int = 128,
    rounds: int = 10,
    easy: float = 0.5,
    hard: float = 0.5,
    least: float = 0.01,
) -> Policy:
    budget = Greso(wanted, group_size, rounds, easy, hard, least)
    return Policy(Quota(1, 1), budget, group=All(), advantage=GroupStd(), no_signal="leave_out")


def _mopps(group_size: int = 8, wanted: int = 128, target: float = 0.5) -> Policy:
    return Policy(Quota(1, 1), Mopps(wanted, group_size, target), group=All(), advantage=GroupStd())


def _gvm(
    average: float = 8.0,
    maximum: int = 32,
    minimum: int = 2,
    pilot: int = 4,
    alpha: float = 1e-3,
    beta: float = 2.0,
) -> Policy:
    budget = GVM(average, maximum, minimum, pilot, alpha=alpha, beta=beta)
    return Policy(Quota(1, 1), budget, group=All(), advantage=LeaveOneOut())


def _cures(average: float = 8.0, maximum: int = 32, minimum: int = 2, pilot: int = 0) -> Policy:
    budget = Neyman(average, maximum, minimum, pilot)
    return Policy(Quota(1, 1), budget, group=All(), advantage=LeaveOneOut())


def _knapsack(average: float = 8.0, maximum: int = 128, minimum: int = 2, pilot: int = 0) -> Policy:
    budget = Knapsack(average, maximum, minimum, pilot)
    return Policy(Quota(1, 1), budget, group=All(), advantage=GroupStd())


def _vip(
    average: float = 8.0, maximum: int = 32, minimum: int = 3, pilot: int = 0, baseline: str = "leave_one_out"
) -> Policy:
    budget = VIP(average, maximum, minimum, pilot, baseline=baseline)  # type: ignore[arg-type]
    return Policy(Quota(1, 1), budget, group=All(), advantage=baseline)  # type: ignore[arg-type]


def _est(
    average: float = 8.0, maximum: int = 32, minimum: int = 1, pilot: int = 0, power: float = 0.5, eps: float = 1e-3
) -> Policy:
    budget = Est(average, maximum, minimum, pilot, power=power, eps=eps)
    return Policy(Quota(1, 1), budget, group=All(), advantage=MaxRL(power=0.5, eps=eps))


_CODE, _PAPER, _SECONDARY = "public code", "paper text", "secondary text"

register(
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
    Preset("maxrl", _maxrl, "n responses; (r - mean) / (mean + eps)", "2602.02710", _CODE),
    Preset(
        "pkpo",
        _pkpo,
        "n responses, c correct; r C(n-c, k-1) / C(n-1, k-1), less the mean of the others",
        "2505.15201",
        f"{_CODE}, that of MaxRL",
    ),
    Preset("ngrpo", _ngrpo, "grpo with one more reward of 1 in mean and deviation", "2509.18851", _SECONDARY),
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
        "a pilot; n_i in proportion to 1 / sqrt(p_i + alpha p_i^(1-beta)); r - mean of the others",
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
        "bayes",
        _bayes,
        "the largest gradient efficiency under p ~ Beta(1, 1): draws and advantages by cell",
        "`ada_bandit.optimal`",
        "ours",
    ),
)


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets."""
    return tuple(PRESETS)


def presets_table() -> str:
    """Return the presets as a table in Markdown, one a row."""
    lines = ["| preset | what it does | options | source | written from | computed |", "|---|---|---|---|---|---|"]
    for preset in PRESETS.values():
        options = ", ".join(f"{key}={str(value).lower()}" for key, value in preset.options.items())
        source = preset.source if preset.source.startswith("`") else _link(preset.source)
        cells = (f"`{preset.name}`", preset.formula, options, source, preset.read)
        lines.append(f"| {' | '.join(cells)} | {'exactly' if preset.exact else 'by simulation'} |")
    return "\n".join(lines) + "\n"


def _link(source: str) -> str:
    number, _, version = source.partition(" ")
    return f"[{source}](https://arxiv.org/abs/{number}{version})"
