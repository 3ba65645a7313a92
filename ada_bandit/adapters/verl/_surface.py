"""What of verl the adapter overrides, calls or reads, and the check that the installed verl has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed_version
from typing import Any

from ada_bandit.adapters._checks import missing_methods
from ada_bandit.errors import AdaBanditError

try:
    import ray  # noqa: F401 - that it is there
    import transfer_queue as tq
    from verl.experimental.agent_loop import AgentLoopOutput
    from verl.trainer.ppo import core_algos, padding_utils
    from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ, AgentLoopWorkerTQ
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
    from verl.utils import tensordict_utils
    from verl.utils.checkpoint import checkpoint_manager
except ImportError as error:
    msg = f"the adapter for verl needs what isn't installed ({error}): pip install 'ada_bandit[verl]'"
    raise ImportError(msg) from error

__all__ = ["AgentLoopWorker", "VerlSurfaceError", "check_verl"]

_FIRST, _BEYOND = (0, 9), (0, 10)


class VerlSurfaceError(AdaBanditError, RuntimeError):
    """The installed verl lacks something that the adapter relies on; the message names it."""


def _plain_class(actor: Any) -> Any:
    """Return the class under ``@ray.remote``, which a subclass needs; None where Ray keeps it elsewhere."""
    return getattr(getattr(actor, "__ray_metadata__", None), "modified_class", None)


AgentLoopWorker: Any = _plain_class(AgentLoopWorkerTQ)
"""verl's worker as a plain class."""

_METHODS: tuple[tuple[str, Any, Mapping[str, tuple[str, ...]]], ...] = (
    (
        "AgentLoopWorkerTQ",
        AgentLoopWorker,
        {
            "_run_prompt": ("prompt", "sampling_params", "trajectory", "trace"),
            "_run_agent_loop": ("sampling_params", "trajectory", "agent_name", "trace"),
            "_agent_loop_postprocess": ("output", "validate"),
            "_compute_score": ("outputs", "kwargs"),
            "generate_sequences": ("batch",),
        },
    ),
    ("AgentLoopManagerTQ", AgentLoopManagerTQ, {"generate_sequences": ("prompts",), "_init_agent_loop_workers": ()}),
    (
        "ReplayBuffer",
        ReplayBuffer,
        {
            "sample": ("global_steps", "partition_id", "batch_size"),
            "_select_prompt_uids": ("partition_id", "sampleable_keys", "batch_size"),
            "_materialize_batch": ("partition_id", "selected_prompt_uids", "partition_snapshot"),
            "_wait_for_next_poll": ("partition_id", "last_debug_time"),
        },
    ),
    ("ReplayBufferAsync", ReplayBufferAsync, {"sample": ("global_steps", "partition_id", "batch_size")}),
    ("CheckpointCallback", CheckpointCallback, {"on_save": ("trainer", "global_step", "checkpoint_dir")}),
    ("core_algos", core_algos, {"register_adv_est": ("name_or_enum",)}),
    ("padding_utils", padding_utils, {"upsample_batch_to_divisible_size": ("batch", "batch_multiple")}),
    (
        "tensordict_utils",
        tensordict_utils,
        {
            "assign_non_tensor_stack": ("tensor_dict", "key", "val"),
            "index_select_tensor_dict": ("batch", "indices"),
            "list_of_dict_to_tensordict": ("list_of_dicts",),
        },
    ),
    ("checkpoint_manager", checkpoint_manager, {"find_latest_ckpt_path": ("path",)}),
    (
        "transfer_queue",
        tq,
        {
            "kv_list": ("partition_id",),
            "kv_clear": ("keys", "partition_id"),
            "kv_batch_put": ("keys", "partition_id", "tags"),
            "async_kv_put": ("key", "partition_id", "tag"),
            "async_kv_list": ("partition_id",),
            "async_kv_clear": ("keys", "partition_id"),
        },
    ),
)
_OUTPUT_FIELDS = ("prompt_ids", "response_ids", "response_mask", "reward_score", "extra_fields")


def _missing(parts: tuple[tuple[str, Any, Mapping[str, tuple[str, ...]]], ...]) -> Iterator[str]:
    for owner, holder, methods in parts:
        if holder is None:
            yield f"the class under {owner}"
            continue
        yield from missing_methods(holder, methods, f"{owner}.")


def check_verl(
    version: str | None = None, parts: tuple[tuple[str, Any, Mapping[str, tuple[str, ...]]], ...] = _METHODS
) -> None:
    """Check that the installed verl is one that the adapter knows, down to the private methods it overrides or calls.

    Raises
    ------
    VerlSurfaceError
        If the version lies outside the tested range, or a method, a parameter or a field is missing.
    """
    found = installed_version("verl") if version is None else version
    release = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not _FIRST <= release < _BEYOND:
        msg = f"the adapter is tested with verl 0.9; got {found}. pip install 'verl>=0.9,<0.10'"
        raise VerlSurfaceError(msg)
    missing = list(_missing(parts))
    missing += [f"field {name!r} of AgentLoopOutput" for name in _OUTPUT_FIELDS if name not in _fields()]
    if missing:
        msg = f"verl {found} lacks what the adapter relies on: {', '.join(missing)}. pip install 'verl==0.9.1'"
        raise VerlSurfaceError(msg)


def _fields() -> Mapping[str, Any]:
    fields: Mapping[str, Any] = AgentLoopOutput.model_fields
    return fields


check_verl()
