"""Errors in the course of a run, which are no mistake in its config."""

from __future__ import annotations

from ada_bandit.allocator import UnscoredError
from ada_bandit.errors import AdaBanditError

__all__ = ["CheckpointError", "DivergedError", "LogError", "RunError", "SyncError", "TooManyUnscoredError"]


class RunError(AdaBanditError, RuntimeError):
    """A run can't go on; the command's exit code is 1."""


class CheckpointError(RunError):
    """A checkpoint can't be saved, or none of those that are there can be read."""


class DivergedError(RunError):
    """The weights give numbers that are not finite, so that neither a gradient nor a response can be had of them."""


class LogError(RunError):
    """A log can't be written."""


class SyncError(RunError):
    """After a sync, vLLM's log-probabilities are not the trained model's."""


class TooManyUnscoredError(RunError, UnscoredError):
    """More of a step's responses have no score than `train.max_unscored` allows: the verifier may be down."""
