"""The file of a probe's scores: it comes back as it was written, and what is none is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ada_bandit import Beta
from ada_bandit.class_scores import ClassScores
from ada_bandit.errors import InputError
from ada_bandit.programs.scores import ProbedScores, read_scores, write_scores


def probed(noise_ratio: tuple[float, float] | None = (0.5, 2.0)) -> ProbedScores:
    sums = np.random.Generator(np.random.Philox(key=1)).standard_normal((2, 3, 4))
    pos, neg = sums
    scores = ClassScores(
        np.array([2.0, 0.0, 5.0]),
        np.array([3.0, 5.0, 0.0]),
        np.array([4.0, 0.0, 9.0]),
        np.array([1.5, 2.5, 0.0]),
        pos @ pos.T,
        pos @ neg.T,
        neg @ neg.T,
    )
    return ProbedScores(
        "a model on a task", ("a", "b", "c"), ("x", "x", "y"), scores, np.array([3.0, 4.0, 5.5]), 2, noise_ratio, 0.1,
        Beta(0.5, 1), ("a: 1",),
    )  # fmt: skip


@pytest.mark.parametrize("noise_ratio", [(0.5, 2.0), None])
def test_a_file_comes_back(tmp_path: Path, noise_ratio: tuple[float, float] | None) -> None:
    path, before = tmp_path / "scores.npz", probed(noise_ratio)
    write_scores(path, before)
    after = read_scores(path)
    for name, value in vars(before).items():
        if name == "scores":
            for part, array in vars(value).items():
                np.testing.assert_array_equal(getattr(after.scores, part), array, err_msg=part)
        else:
            np.testing.assert_equal(getattr(after, name), value, err_msg=name)


def test_what_is_no_such_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    with pytest.raises(InputError, match=r"scores.npz' can't be read as the scores of a probe .*llm probe"):
        read_scores(path)
    for text in (b"", b"PK", b"{}"):
        path.write_bytes(text)
        with pytest.raises(InputError, match=r"give the scores\.npz of 'llm probe'"):
            read_scores(path)
    with path.open("wb") as file:
        np.savez(file, about='{"format": 2}', tokens=np.zeros(2))
    with pytest.raises(InputError, match="can't be read"):
        read_scores(path)
    write_scores(path, probed())
    with np.load(path) as file:
        arrays = dict(file)
    arrays["about"] = np.array(str(arrays["about"].item()).replace('"format": 2', '"format": 9'))
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(InputError, match="has format 9, and format 2 is read; run the probe again"):
        read_scores(path)


def test_sums_that_do_not_fit_are_told() -> None:
    good = vars(probed().scores)
    with pytest.raises(InputError, match=r"gram_cross must hold finite numbers in the shape \(3, 3\)"):
        ClassScores(**good | {"gram_cross": np.zeros((3, 2))})
    with pytest.raises(InputError, match="pos and neg must be whole numbers"):
        ClassScores(**good | {"neg": np.array([0.5, 1.0, 1.0])})
    with pytest.raises(InputError, match="pos_energy must hold finite numbers"):
        ClassScores(**good | {"pos_energy": np.array([np.nan, 1.0, 1.0])})
