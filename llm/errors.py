"""Errors of a run in its course, which are no mistake in its config: the command's exit code is 1, not 2."""

from __future__ import annotations

from ada_bandit.errors import AdaBanditError

__all__ = ["CheckpointError", "DivergedError", "LogError", "SyncError"]


class CheckpointError(AdaBanditError, RuntimeError):
    """A checkpoint can't be saved, or none of those that are there can be read."""


class DivergedError(AdaBanditError, ArithmeticError):
    """The weights give numbers that are not finite, so that neither a gradient nor a response can be had of them."""


class LogError(AdaBanditError, RuntimeError):
    """A log can't be written."""


class SyncError(AdaBanditError, RuntimeError):
    """After a sync, vLLM's log-probabilities are not the trained model's."""
