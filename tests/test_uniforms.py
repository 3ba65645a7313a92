from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ada_bandit import _kernels
from ada_bandit.errors import InputError
from ada_bandit.uniforms import fold_seed, uniform, uniform_rows
from tests import naive_engine

U = np.uint64

# Known answers for philox4x32 with 10 rounds, published with Random123 (Salmon et al. 2011).
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    words = _kernels.philox(*(U(c) for c in counter), *(U(k) for k in key))
    assert tuple(int(w) for w in words) == answer
    assert naive_engine.philox(counter, key) == answer


@given(
    seed=st.integers(0, 2**64 - 1),
    stream=st.integers(0, 2**32 - 1),
    prompt=st.integers(0, 2**63 - 1),
    draw=st.integers(0, 2**34 - 1),
)
def test_uniform_equals_its_naive_twin(seed: int, stream: int, prompt: int, draw: int) -> None:
    assert uniform(seed, stream, prompt, draw) == naive_engine.uniform(seed, stream, prompt, draw)


def test_rows_are_the_same_numbers_as_single_uniforms() -> None:
    for width in (1, 4, 7, 32):
        rows = uniform_rows(9, 2, 5, width, first_prompt=2**32 - 2)
        single = uniform(9, 2, (2**32 - 2 + np.arange(5))[:, None], np.arange(width))
        np.testing.assert_array_equal(rows, single)


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    values = uniform_rows(0, 0, 50_000, 4)
    # Mean 1/2 and variance 1/12; five standard errors.
    assert abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / values.size)
    assert abs(values.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / values.size)
    correlations = np.corrcoef(np.vstack([values.T, uniform_rows(1, 0, 50_000, 1).T, uniform_rows(0, 1, 50_000, 1).T]))
    assert np.abs(correlations - np.eye(6)).max() < 5 / np.sqrt(50_000)


def test_folded_seeds_are_distinct_and_reproducible() -> None:
    seeds = {fold_seed(seed, step) for seed in range(20) for step in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert fold_seed(3, 1, 2) == fold_seed(fold_seed(3, 1), 2)
    assert fold_seed(3) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, 0, 0), "seed must be a whole number of at least 0; got -1"),
        ((2**64, 0, 0, 0), "seed must be below 2\\*\\*64"),
        ((0, 2**32, 0, 0), "stream must be whole numbers from 0 to"),
        ((0, 0, -1, 0), "prompt must be whole numbers from 0 to .* got -1"),
        ((0, 0, 0, 0.5), "draw must be whole numbers from 0 to .* got 0.5"),
    ],
)
def test_bad_counters_are_quoted(arguments: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        uniform(*arguments)


def test_a_buffer_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InputError, match="width that 4 divides"):
        uniform_rows(0, 0, 3, 6, out=np.empty((3, 6)))
    with pytest.raises(InputError, match="got \\(2, 4\\)"):
        uniform_rows(0, 0, 3, 4, out=np.empty((2, 4)))
