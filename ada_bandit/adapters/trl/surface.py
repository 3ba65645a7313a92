"""What the adapter relies on in TRL, and the check that it is there."""

from __future__ import annotations

from collections.abc import Mapping

from ada_bandit.adapters._checks import missing_methods
from ada_bandit.errors import AdaBanditError

try:
    import trl
    from trl import GRPOTrainer
except ImportError as error:
    msg = f"the adapter for TRL needs what isn't installed ({error}): pip install 'ada_bandit[trl]'"
    raise ImportError(msg) from error

__all__ = ["ATTRIBUTES", "TRLSurfaceError", "check_attributes", "check_trl"]

_OLDEST, _NEWEST = (1, 15), (1, 16)
_SURFACE: Mapping[str, tuple[str, ...]] = {
    "_generate_and_score_completions": ("inputs",),
    "_generate": ("prompts",),
    "_generate_single_turn": ("prompt_ids", "images", "multimodal_fields", "num_generations"),
    "_tokenize_prompts": ("prompts",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_compute_loss": ("model", "inputs"),
    "get_off_policy_mask": ("advantages", "mask", "off_policy_threshold"),
    "_save_checkpoint": ("model", "trial"),
    "_get_output_dir": ("trial",),
    "_load_optimizer_and_scheduler": ("checkpoint",),
}
ATTRIBUTES = (
    "_is_vlm",
    "_logs",
    "_metrics",
    "_pending_extra_logs",
    "_pending_metrics",
    "_tokenizer",
    "beta",
    "environment_factories",
    "environments",
    "eos_token_ids",
    "loss_type",
    "mask_truncated_completions",
    "num_generations",
    "reward_func_names",
    "reward_funcs",
    "reward_weights",
    "scale_rewards",
    "tools",
)
"""Attributes of a trainer that the adapter reads."""


class TRLSurfaceError(AdaBanditError, RuntimeError):
    """The installed TRL lacks something that the adapter relies on; the message names it."""


def check_trl(trainer: type = GRPOTrainer, version: str = trl.__version__) -> None:
    """Check that the installed TRL is one that the adapter knows, down to the private methods it overrides or calls.

    Raises
    ------
    TRLSurfaceError
        If the version lies outside the tested range, or a method or a parameter is missing.
    """
    lowest, highest = (".".join(map(str, each)) for each in (_OLDEST, _NEWEST))
    wanted = f"pip install 'trl>={lowest},<{_NEWEST[0]}.{_NEWEST[1] + 1}'"
    parts = version.split(".")
    known = len(parts) > 1 and all(part.isdigit() for part in parts[:2])
    if not known or not _OLDEST <= (int(parts[0]), int(parts[1])) <= _NEWEST:
        msg = f"the adapter is tested with TRL {lowest} to {highest}; got {version}. {wanted}"
        raise TRLSurfaceError(msg)
    missing = list(missing_methods(trainer, _SURFACE))
    if missing:
        msg = f"TRL {version} lacks what the adapter relies on: {', '.join(missing)}. {wanted}"
        raise TRLSurfaceError(msg)


def check_attributes(trainer: object) -> None:
    """Check that a trainer which TRL has built has what the adapter reads of it.

    Raises
    ------
    TRLSurfaceError
        If an attribute is missing.
    """
    if missing := [name for name in ATTRIBUTES if not hasattr(trainer, name)]:
        msg = f"TRL {trl.__version__} lacks attributes that the adapter relies on: {', '.join(missing)}"
        raise TRLSurfaceError(msg)
