"""Options of the studies, in groups that a command takes as one value: policies, a pass-rate law, a score model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ada_bandit.errors import InputError
from ada_bandit.policy import AnyPolicy, Blend, Policy
from ada_bandit.programs.options import Options
from ada_bandit.programs.scores import ProbedScores, read_scores
from ada_bandit.score_model import ScoreModel
from ada_bandit.specs import read_policies, read_policy
from ada_bandit.verifier import VerifierNoise
from sim.readers import ReadOptions, Selection, option_of
from sim.reading import Reading
from sim.score_model import Scoring, parse_noise_ratio
from sim.sources import Source, curve_names, from_curve, from_file, from_name, parse_share

__all__ = [
    "ROLLOUTS",
    "BalancePolicy",
    "BudgetLaw",
    "CurveLaw",
    "CurveLawOrProbe",
    "LogReading",
    "MorePolicies",
    "MoreSinglePolicies",
    "ObjectiveOption",
    "Policies",
    "RolloutLaw",
    "ScalarsOption",
    "Scores",
    "SinglePolicies",
    "TransferOption",
    "UnfilteredLaw",
    "VerifierErrors",
    "VerifierScores",
]

ROLLOUTS = "smollm2-reasoning-gym"
"""The built-in source of logged rollouts."""

_CURVE = "qwen2.5-math-1.5b-base"
_POLICIES = ("grpo", "reinforce-ada-pos", "reinforce-ada-balance")

PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="PRESET_OR_TOML",
        allow_dash=True,
        help="A preset (also NAME:key=value,… such as grpo:group_size=16), a TOML file, or the name of an exit rule "
        "from --rules, which gets at most 4 rounds of 8 responses and a balanced group of 4; repeatable.",
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="FILE.py",
        allow_dash=True,
        help="A Python file to run, whose @exit_rule functions become available by name; repeatable.",
    ),
]
PassRatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        allow_dash=True,
        help="Take pass rates from a file, a folder or a glob: dumps of training frameworks, tables of responses or of "
        "counts. What was recognised and guessed is told.",
        show_default=False,
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="Take pass rates from a built-in source: smollm2-reasoning-gym, logged rollouts of a small model, or a "
        "published curve, qwen2.5-math-1.5b-base or qwen2.5-math-1.5b-rl. The default stands above.",
        show_default=False,
    ),
]
CurveOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The same as --source, for published curves alone.",
        show_default=False,
    ),
]
AtLeastOption = Annotated[
    str | None,
    typer.Option(metavar="K/N", help="Re-weight to prompts that get at least K of N responses correct, such as 1/16."),
]
SmoothOption = Annotated[
    bool | None,
    typer.Option(
        "--smooth/--no-smooth",
        help="In place of correct/total mix the posteriors of a log's prompts under a fitted Beta prior; done by "
        "default when the smallest total is below 64 responses.",
        show_default=False,
    ),
]
ScalarsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,…",
        help="The scalars of a run in place of its rollouts: mean=0.41,zero_std=0.55,n=8, where zero_std is the "
        "share of groups without signal.",
        show_default=False,
    ),
]
ProbeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        allow_dash=True,
        help="Measure policies on the prompts of a probe: scores.npz of 'python -m llm probe'.",
        show_default=False,
    ),
]
ObjectiveOption = Annotated[
    str, typer.Option(metavar="NAME", help="What the efficiency climbs: mean, log, or pass@k such as pass@8.")
]
NoiseRatioOption = Annotated[
    str,
    typer.Option(
        metavar="NU|POS,NEG",
        help="Noise energy of a response's score over that of its signal; two numbers for positives and negatives.",
    ),
]
UpdateCostOption = Annotated[
    float, typer.Option(metavar="COST", help="Cost of a kept response in the update, in responses drawn.")
]
TransferOption = Annotated[
    float,
    typer.Option(
        metavar="T",
        help="How far what is learned on a prompt helps the others, from 0 to 1: 1 for fresh prompts, where every "
        "objective has the same best policy; 0 for a small pool of unlike prompts that comes back.",
    ),
]
OverlapOption = Annotated[
    float,
    typer.Option(
        metavar="C",
        help="Inner product of two prompts' directions over their square, as 'llm probe' measures it: the prompts of a "
        "batch then repeat each other.",
    ),
]
BatchOption = Annotated[int, typer.Option(metavar="B", help="Prompts a step; of no account while the overlap is 0.")]
FalsePositiveOption = Annotated[
    float, typer.Option(metavar="RATE", help="Chance that the verifier takes an incorrect response for a correct one.")
]
FalseNegativeOption = Annotated[
    float, typer.Option(metavar="RATE", help="Chance that the verifier takes a correct response for an incorrect one.")
]


# Policies


def _policies(default: Sequence[str], policy: PolicyOption = None, rules: RulesOption = None) -> list[AnyPolicy]:
    return read_policies(policy or default, rules or ())


def _single_policies(default: Sequence[str], policy: PolicyOption = None, rules: RulesOption = None) -> list[Policy]:
    policies = []
    for each in _policies(default, policy, rules):
        if isinstance(each, Blend):
            msg = (
                f"{each.label!r} is a blend of two policies, and this command follows one policy at a time; give its "
                "two parts as files of their own"
            )
            raise InputError(msg)
        policies.append(each)
    return policies


Policies: TypeAlias = Annotated[list[AnyPolicy], Options(partial(_policies, _POLICIES))]
"""The policies of ``--policy`` and ``--rules``; GRPO and both of Reinforce-Ada unless given."""
SinglePolicies: TypeAlias = Annotated[list[Policy], Options(partial(_single_policies, _POLICIES))]
"""Likewise; blends are refused."""
BalancePolicy: TypeAlias = Annotated[list[AnyPolicy], Options(partial(_policies, _POLICIES[-1:]))]
"""Likewise; Reinforce-Ada-balance unless given."""
MorePolicies: TypeAlias = Annotated[list[AnyPolicy], Options(partial(_policies, ()))]
"""Likewise; none unless given."""
MoreSinglePolicies: TypeAlias = Annotated[list[Policy], Options(partial(_single_policies, ()))]
"""Likewise; blends are refused."""


# Logs


def _reading(*total: str) -> Callable[..., Reading]:
    """Return what makes a reading of its options; `total` are the names of the option for the number of responses."""

    def make(
        prompt: Annotated[str | None, typer.Option(metavar="COLUMN", help="Prompt ids of a log, or prompts.")] = None,
        reward: Annotated[str | None, typer.Option(metavar="COLUMN", help="Rewards; several are joined by +.")] = None,
        correct: Annotated[
            str | None, typer.Option(metavar="COLUMN", help="Correctness, or the number or share of correct responses.")
        ] = None,
        total_column: str | None = None,
        step: Annotated[str | None, typer.Option(metavar="COLUMN", help="Training steps.")] = None,
        tokens: Annotated[str | None, typer.Option(metavar="COLUMN", help="Lengths of responses in tokens.")] = None,
        threshold: Annotated[
            float | None,
            typer.Option(metavar="REWARD", help="Rewards of a log above it are correct, whatever a policy's own says."),
        ] = None,
        where: Annotated[
            list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Take these rows alone; repeatable.")
        ] = None,
        rows_per_prompt: Annotated[
            int | None,
            typer.Option(min=1, metavar="N", help="Rows of a prompt, in a file whose rows stand in unnamed groups."),
        ] = None,
        add_repeated: Annotated[
            bool, typer.Option("--add-repeated", help="Add up counts that stand on several rows of one prompt.")
        ] = False,
        stopped_by: Annotated[
            str | None,
            typer.Option(
                metavar="PRESET_OR_TOML",
                allow_dash=True,
                help="The policy that sampled a log; unless given, it is inferred from the pools.",
                show_default=False,
            ),
        ] = None,
        holds: Annotated[
            Selection | None,
            typer.Option(
                help="Which of the drawn responses a log holds: all of them, rows that were trained on, groups with "
                "signal alone, or rows kept of larger pools; recognised, so far as can be, unless given.",
                show_default=False,
            ),
        ] = None,
    ) -> Reading:
        options = ReadOptions(
            prompt, reward, correct, total_column, step, tokens, threshold, tuple(where or ()), rows_per_prompt,
            add_repeated,
        )  # fmt: skip
        return Reading(options, None if stopped_by is None else _stopping_policy(stopped_by), holds)

    option = typer.Option(*total, metavar="COLUMN", help="Number of responses, or the number itself.")
    make.__annotations__["total_column"] = Annotated[str | None, option]
    return make


def _stopping_policy(spec: str) -> Policy:
    policy = read_policy(spec)
    if not isinstance(policy, Policy):
        msg = f"--stopped-by takes one policy, and {spec!r} is a blend; give the part that sampled this log"
        raise InputError(msg)
    return policy


LogReading: TypeAlias = Annotated[Reading, Options(_reading("--total", "--total-column"))]
"""How a log is read, and how it came about."""
_BesideTotal: TypeAlias = Annotated[Reading, Options(_reading("--total-column"))]
"""Likewise, for a command with a ``--total`` of its own."""


# Pass-rate laws


def _named_law(
    default: str,
    pass_rates: str | None,
    curve: str | None,
    source_name: str | None,
    smooth: bool | None,
    reading: Reading,
) -> Source:
    options = {"--pass-rates": pass_rates, "--curve": curve, "--source": source_name}
    shown = [f"{option} {value!r}" for option, value in options.items() if value is not None]
    if len(shown) > 1:
        msg = f"{' and '.join(shown)} exclude each other; give one of them"
        raise InputError(msg)
    name = source_name or default
    if pass_rates is None and (curve is not None or name in curve_names()):
        if smooth is not None:
            option = "--smooth" if smooth else "--no-smooth"
            msg = f"{option} is for a file of counts or for rollouts; give --pass-rates PATH as well, or leave it out"
            raise InputError(msg)
        if reading.given:
            said = ", ".join(f"{option_of(name)} {value!r}" for name, value in reading.given.items())
            msg = f"{said} says how a log is to be read; give --pass-rates PATH as well, or leave it out"
            raise InputError(msg)
    if pass_rates is not None:
        return from_file(pass_rates, smooth=smooth, reading=reading)
    return from_name(name, smooth=smooth, reading=reading) if curve is None else from_curve(curve)


def _filtered(source: Callable[[], Source], at_least: str | None) -> Source:
    share = None if at_least is None else parse_share(at_least)
    return source() if share is None else source().at_least(*share)


def _unfiltered_law(
    default: str,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    smooth: SmoothOption = None,
    *,
    reading: LogReading,
) -> Source:
    return _named_law(default, pass_rates, curve, source_name, smooth, reading)


def _law(
    default: str,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    *,
    reading: LogReading,
) -> Source:
    return _filtered(lambda: _named_law(default, pass_rates, curve, source_name, smooth, reading), at_least)


def _budget_law(
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    *,
    reading: _BesideTotal,
) -> Source:
    return _filtered(lambda: _named_law(_CURVE, pass_rates, curve, source_name, smooth, reading), at_least)


def _law_or_probe(
    default: str,
    probe: ProbeOption = None,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
    *,
    reading: LogReading,
) -> Source | ProbedScores:
    if probe is None:
        return _law(default, pass_rates, curve, source_name, at_least, smooth, reading=reading)
    options = {
        "--pass-rates": pass_rates,
        "--curve": curve,
        "--source": source_name,
        "--at-least": at_least,
        "--smooth or --no-smooth": smooth,
    } | {option_of(name): value for name, value in reading.given.items()}
    if given := [option for option, value in options.items() if value is not None]:
        msg = (
            f"{', '.join(given)} can't be given with --probe, whose prompts have pass rates of their own; leave it out"
        )
        raise InputError(msg)
    return read_scores(probe)


CurveLawOrProbe: TypeAlias = Annotated[Source | ProbedScores, Options(partial(_law_or_probe, _CURVE))]
"""The scores of ``--probe``, or the pass-rate law that the options name; that of the published base curve unless
given."""
CurveLaw: TypeAlias = Annotated[Source, Options(partial(_law, _CURVE))]
"""The pass-rate law that the options name; that of the published base curve unless given."""
BudgetLaw: TypeAlias = Annotated[Source, Options(_budget_law)]
"""Likewise, for a command with a ``--total`` of its own."""
RolloutLaw: TypeAlias = Annotated[Source, Options(partial(_law, ROLLOUTS))]
"""Likewise; that of the built-in rollouts unless given."""
UnfilteredLaw: TypeAlias = Annotated[Source, Options(partial(_unfiltered_law, _CURVE))]
"""Likewise, that of the published base curve unless given; without the filter ``--at-least``."""


# Score models


def _scores(
    objective: ObjectiveOption = "mean",
    noise_ratio: NoiseRatioOption = "1",
    update_cost: UpdateCostOption = 0.0,
    transfer: TransferOption = 1.0,
    overlap: OverlapOption = 0.0,
    batch: BatchOption = 1,
) -> Scoring:
    return Scoring(ScoreModel(parse_noise_ratio(noise_ratio), objective, update_cost, transfer, overlap, batch))


def _errors(false_positive: FalsePositiveOption = 0.0, false_negative: FalseNegativeOption = 0.0) -> VerifierNoise:
    return VerifierNoise(false_positive, false_negative)


def _verifier_scores(
    objective: ObjectiveOption = "mean",
    noise_ratio: NoiseRatioOption = "1",
    update_cost: UpdateCostOption = 0.0,
    transfer: TransferOption = 1.0,
    overlap: OverlapOption = 0.0,
    batch: BatchOption = 1,
    false_positive: FalsePositiveOption = 0.0,
    false_negative: FalseNegativeOption = 0.0,
) -> Scoring:
    model = _scores(objective, noise_ratio, update_cost, transfer, overlap, batch).model
    return Scoring(model, VerifierNoise(false_positive, false_negative))


Scores: TypeAlias = Annotated[Scoring, Options(_scores)]
"""The score model of ``--objective``, ``--noise-ratio``, ``--update-cost``, ``--transfer``, ``--overlap``
and ``--batch``."""
VerifierScores: TypeAlias = Annotated[Scoring, Options(_verifier_scores)]
"""Likewise, with the errors of the verifier."""
VerifierErrors: TypeAlias = Annotated[VerifierNoise, Options(_errors)]
"""How often the verifier errs, as keywords of the exact analysis."""
