"""The file of a probe's scores, ``scores.npz``: what measured efficiency needs, without a single vector."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.class_scores import ClassScores
from ada_bandit.errors import InputError
from ada_bandit.laws import Law, law_from_dict
from ada_bandit.programs.folders import write_file

__all__ = ["ProbedScores", "read_scores", "write_scores"]

_FORMAT = 2


@dataclass(frozen=True, eq=False)
class ProbedScores:
    """The class sums of a probe and what the score model fits to them."""

    label: str
    """The model, the task and the size of the probe, in words."""
    keys: tuple[str, ...]
    """`[prompt]` Keys of the prompts."""
    families: tuple[str, ...]
    """`[prompt]` Families of the prompts."""
    scores: ClassScores
    """Sums of scores by class."""
    tokens: FloatArray
    """`[prompt]` Mean number of tokens of a response."""
    unscored: int
    """Responses without a reward, which are in no sum."""
    noise_ratio: tuple[float, float] | None
    """(nu_pos, nu_neg) that the score model fits; None where |phi|^2 is not above 0 on average."""
    overlap: float | None
    """c that it fits: mean inner product of two prompts' phi over mean |phi|^2; None where there is no such ratio."""
    prior: Law
    """The law of the pass rate that fits the counts."""
    refuted: tuple[str, ...]
    """Assumptions of the score model that the probe refutes, with what it found, in words."""


def write_scores(path: Path, probed: ProbedScores) -> None:
    """Write the file; a kill leaves no half of one."""
    about = {
        "format": _FORMAT,
        "label": probed.label,
        "keys": probed.keys,
        "families": probed.families,
        "unscored": probed.unscored,
        "noise_ratio": probed.noise_ratio,
        "overlap": probed.overlap,
        "prior": probed.prior.to_dict(),
        "refuted": probed.refuted,
    }
    arrays: dict[str, Any] = {**vars(probed.scores), "tokens": probed.tokens}
    text = json.dumps(about, allow_nan=False)
    write_file(path, lambda file: np.savez_compressed(file, allow_pickle=False, about=text, **arrays))


def read_scores(path: Path) -> ProbedScores:
    """Read the file that `write_scores` wrote.

    Raises
    ------
    InputError
        If it can't be read, or is none of a probe.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(file["about"].item())
            arrays = {each.name: file[each.name] for each in fields(ClassScores)}
            tokens = np.asarray(file["tokens"], dtype=np.float64)
        _check_format(path, about["format"])
        pair = about["noise_ratio"]
        return ProbedScores(
            label=about["label"],
            keys=tuple(about["keys"]),
            families=tuple(about["families"]),
            scores=ClassScores(**arrays),
            tokens=tokens,
            unscored=about["unscored"],
            noise_ratio=None if pair is None else (float(pair[0]), float(pair[1])),
            overlap=about["overlap"],
            prior=law_from_dict(about["prior"]),
            refuted=tuple(about["refuted"]),
        )
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        msg = f"{str(path)!r} can't be read as the scores of a probe ({error}); give the scores.npz of 'llm probe'"
        raise InputError(msg) from error


def _check_format(path: Path, found: object) -> None:
    if found != _FORMAT:
        msg = f"{str(path)!r} has format {found!r}, and format {_FORMAT} is read; run the probe again"
        raise InputError(msg)
