"""Counter-based uniforms: each one is a pure function of (seed, stream, prompt, draw).

Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011). Results therefore depend neither on the
number of threads nor on the order of work, and two policies compared under one seed see the
same responses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ada_bandit import _kernels
from ada_bandit._types import FloatArray
from ada_bandit.errors import InputError, check_count
from ada_bandit.streams import Stream

__all__ = ["Stream", "fold_seed", "uniform", "uniform_rows"]


def check_seed(seed: int) -> np.uint64:
    """Return `seed` as the 64-bit key of the generator."""
    number = check_count("seed", seed, 0)
    if number >= 2**64:
        msg = f"seed must be below 2**64; got {seed!r}"
        raise InputError(msg)
    return np.uint64(number)


def _counter(name: str, values: npt.ArrayLike, limit: int) -> npt.NDArray[np.uint64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or (array.size and not (int(array.min()) >= 0 and int(array.max()) < limit)):
        msg = f"{name} must be whole numbers from 0 to {limit - 1}; got {values!r}"
        raise InputError(msg)
    return array.astype(np.uint64)


def uniform(seed: int, stream: int, prompt: npt.ArrayLike, draw: npt.ArrayLike) -> FloatArray:
    """Return the uniform of a draw of a prompt.

    Parameters
    ----------
    seed
        The key, from 0 to 2**64 - 1.
    stream
        What the uniform is for, from 0 to 2**32 - 1; `Stream` lists those that are taken.
    prompt, draw
        Whole numbers that broadcast together: prompts below 2**63, draws below 2**34.

    Returns
    -------
    FloatArray
        ``(x + 1/2) / 2**32`` for a 32-bit word x, so strictly between 0 and 1, in the
        broadcast shape.

    Raises
    ------
    InputError
        If an argument is no whole number in its range.
    """
    prompts, draws = np.broadcast_arrays(_counter("prompt", prompt, 2**63), _counter("draw", draw, 2**34))
    words = np.empty(prompts.size, dtype=np.uint64)
    key, tag = check_seed(seed), np.uint64(_counter("stream", stream, 2**32))
    _kernels.words_at(key, tag, prompts.ravel(), draws.ravel(), words)
    return np.asarray((words + 0.5) * 2.0**-32, dtype=np.float64).reshape(prompts.shape)


def uniform_rows(
    seed: int, stream: int, prompts: int, draws: int, first_prompt: int = 0, out: FloatArray | None = None
) -> FloatArray:
    """Return the uniforms of all draws of consecutive prompts, ``[prompt, draw]``.

    The same numbers as `uniform`, several times faster.

    Parameters
    ----------
    seed, stream
        As in `uniform`.
    prompts, draws
        Shape of the result.
    first_prompt
        Number of the first row's prompt.
    out
        ``[prompt, draw]`` written to where given; its width must be a multiple of 4.
    """
    if out is None:
        # A block holds four words: whole blocks are filled, and what is beyond `draws` is cut off.
        wide = np.empty((check_count("prompts", prompts, 0), -(-check_count("draws", draws, 0) // 4) * 4))
    elif out.shape != (prompts, draws) or draws % 4 or out.dtype != np.float64:
        msg = f"out must be float64 of shape {(prompts, draws)} with a width that 4 divides; got {out.shape}"
        raise InputError(msg)
    else:
        wide = out
    first = np.uint64(check_count("first_prompt", first_prompt, 0))
    _kernels.fill_uniforms(check_seed(seed), np.uint64(_counter("stream", stream, 2**32)), first, wide)
    return wide[:, :draws]


def fold_seed(seed: int, *data: int) -> int:
    """Return a new seed for a part of a run, such as a step: a pure function of `seed` and `data`.

    Parameters
    ----------
    seed
        The run's seed.
    *data
        Whole numbers from 0 to 2**63 - 1 that name the part, such as the step's number.
    """
    key = int(check_seed(seed))
    for number in data:
        words = np.empty(2, dtype=np.uint64)
        prompt = np.repeat(_counter("data", number, 2**63), 2)
        _kernels.words_at(np.uint64(key), np.uint64(Stream.FOLD), prompt, np.arange(2, dtype=np.uint64), words)
        key = int(words[0]) << 32 | int(words[1])
    return key
