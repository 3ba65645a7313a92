"""Options of the studies, in groups that a command takes as one value: policies, a pass-rate law, a score model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ada_bandit.errors import InputError
from ada_bandit.policy import AnyPolicy, Blend, Policy
from ada_bandit.programs.options import Options
from ada_bandit.programs.scores import ProbedScores, read_scores
from ada_bandit.score_model import ScoreModel
from ada_bandit.specs import read_policies
from ada_bandit.verifier import VerifierNoise
from sim.score_model import Scoring, parse_noise_ratio
from sim.sources import Source, curve_names, from_curve, from_file, from_name, parse_share

__all__ = [
    "ROLLOUTS",
    "BalancePolicy",
    "CurveLaw",
    "CurveLawOrProbe",
    "MorePolicies",
    "MoreSinglePolicies",
    "ObjectiveOption",
    "Policies",
    "RolloutLaw",
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
        help="A preset (also NAME:key=value,… such as grpo:group_size=16), a TOML file, or the name of an exit rule "
        "from --rules, which gets at most 4 rounds of 8 responses and a balanced group of 4; repeatable.",
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="FILE.py",
        help="A Python file to run, whose @exit_rule functions become available by name; repeatable.",
    ),
]
PassRatesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Take pass rates from a file of counts: .csv or .parquet with prompt_id, correct, total, or .jsonl "
        "with prompt_id and rewards.",
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
        help="Replace correct/total in a file, or in rollouts, by the posterior mean under a fitted Beta prior; done "
        "by default when the smallest total is below 64 responses.",
        show_default=False,
    ),
]
ProbeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
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


# Pass-rate laws


def _unfiltered_law(
    default: str,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    smooth: SmoothOption = None,
) -> Source:
    options = {"--pass-rates": pass_rates and str(pass_rates), "--curve": curve, "--source": source_name}
    shown = [f"{option} {value!r}" for option, value in options.items() if value is not None]
    if len(shown) > 1:
        msg = f"{' and '.join(shown)} exclude each other; give one of them"
        raise InputError(msg)
    name = source_name or default
    if smooth is not None and pass_rates is None and (curve is not None or name in curve_names()):
        option = "--smooth" if smooth else "--no-smooth"
        msg = f"{option} is for a file of counts or for rollouts; give --pass-rates FILE as well, or leave it out"
        raise InputError(msg)
    if pass_rates is not None:
        return from_file(pass_rates, smooth=smooth)
    return from_name(name, smooth=smooth) if curve is None else from_curve(curve)


def _law(
    default: str,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
) -> Source:
    share = None if at_least is None else parse_share(at_least)
    source = _unfiltered_law(default, pass_rates, curve, source_name, smooth)
    return source if share is None else source.at_least(*share)


def _law_or_probe(
    default: str,
    probe: ProbeOption = None,
    pass_rates: PassRatesOption = None,
    curve: CurveOption = None,
    source_name: SourceOption = None,
    at_least: AtLeastOption = None,
    smooth: SmoothOption = None,
) -> Source | ProbedScores:
    if probe is None:
        return _law(default, pass_rates, curve, source_name, at_least, smooth)
    options = {
        "--pass-rates": pass_rates,
        "--curve": curve,
        "--source": source_name,
        "--at-least": at_least,
        "--smooth or --no-smooth": smooth,
    }
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
