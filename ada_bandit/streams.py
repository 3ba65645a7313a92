"""What uniforms are for: the one list of streams, so that no two purposes share their numbers."""

from __future__ import annotations

from enum import IntEnum, unique

__all__ = ["TOKEN_POSITIONS", "Stream"]


@unique
class Stream(IntEnum):
    """The stream of `ada_bandit.uniforms.uniform`, from 0 to 2**32 - 1, by purpose."""

    REWARDS = 0
    """Simulated responses: correct where the uniform is below the pass rate."""
    KEEP = 1
    """The choice of the update group."""
    PASS_RATES = 2
    """Pass rates of simulated prompts."""
    SELECT = 3
    """Choices of a batch budget: which candidates it admits."""
    ORDER = 16
    """The order of prompts within an epoch."""
    KIND = 17
    """Which of two blended policies a prompt gets."""
    FEATURES = 18
    """Features of simulated prompts."""
    ANSWERS = 19
    """What the simulated answers of one class differ by."""
    LENGTHS = 20
    """Lengths of simulated responses."""
    RESAMPLES = 21
    """Resamples of a bootstrap."""
    SEED_LOW = 1 << 15
    """Low half of the seed that an engine with a generator of its own gets for a response."""
    SEED_HIGH = (1 << 15) + 1
    """High half of that seed."""
    TOKENS = 1 << 16
    """First token of a sampled response; the token at position t has the stream ``TOKENS + t``."""
    BUCKETS = 1 << 20
    """Buckets of a random projection."""
    SIGNS = (1 << 20) + 1
    """Signs of a random projection."""
    DIGITS = 0x64696769
    """Problems of the digit tasks."""
    FOLD = 2**32 - 1
    """Seeds of the parts of a run (`ada_bandit.uniforms.fold_seed`)."""


TOKEN_POSITIONS = Stream.BUCKETS - Stream.TOKENS
"""Positions of a response that have a stream of their own; no sampled response is as long."""
