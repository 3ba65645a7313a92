"""What stands in the trainer's process: the manager, the sampler, the advantage estimator, the checkpoints."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils import tensordict_utils
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from ada_bandit.adapters._pool_log import PoolLog
from ada_bandit.adapters.verl._ledger import Ledger
from ada_bandit.adapters.verl._options import ESTIMATOR, check_config, read_options, steps_of, uses_ledger
from ada_bandit.adapters.verl._records import Record, metrics_of
from ada_bandit.adapters.verl._surface import check_verl
from ada_bandit.adapters.verl._worker import PLACE, AdaptiveAgentLoopWorker, Place, digest
from ada_bandit.errors import AdaBanditError, InputError, ProtocolError
from ada_bandit.steps import FixedPolicy
from ada_bandit.uniforms import fold_seed

__all__ = [
    "AdaptiveAgentLoopManager",
    "AdaptiveCheckpoint",
    "AdaptiveReplayBuffer",
    "AdaptiveReplayBufferAsync",
    "NoScoreError",
    "policy_advantage",
]

logger = logging.getLogger(__name__)

_STATE_FILE = "ada_bandit.json"
_PADDING = "pad"
_running: list[AdaptiveAgentLoopManager] = []
"""The manager of this process, at most one: verl's sampler and estimator are handed nothing of it."""


class NoScoreError(AdaBanditError, RuntimeError):
    """A step brought nothing to train on, or no reward at all."""


def _current() -> AdaptiveAgentLoopManager:
    if not _running:
        msg = (
            "no adaptive agent loop runs in this process; set +actor_rollout_ref.rollout.agent."
            "agent_loop_manager_class=ada_bandit.adapters.verl.AdaptiveAgentLoopManager"
        )
        raise ProtocolError(msg)
    return _running[0]


class AdaptiveAgentLoopManager(AgentLoopManagerTQ):
    """verl's agent-loop manager, whose workers sample by a policy.

    Takes everything that verl's manager takes. It numbers the prompts of a step, opens the
    allocator of a batch whose prompts decide together, and starts workers again that have died.

    Raises
    ------
    InputError
        If the config can't be combined with an adaptive policy; the message names the remedy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_verl()
        super().__init__(*args, **kwargs)
        self.options = read_options(self.config)
        self.steps = steps_of(self.config, self.options)
        """As it was at the start; what is learned is known to the ledger alone."""
        self.policy = self.steps.policy
        check_config(self.config, self.steps, has_reward_workers=bool(self.reward_loop_worker_handles))
        self.agent_loop_workers_class = ray.remote(AdaptiveAgentLoopWorker)
        folder = Path(self.config.trainer.default_local_dir)
        self.pool_log = PoolLog(folder / self.options.pool_log if self.options.pool_log else None)
        self.advantages: dict[str, float] = {}
        """Of the rows of the batch that was sampled last, by row name."""
        self._step = (-1, 0)
        self._sent: dict[str, tuple[int, Any, int]] = {}
        """By uid: number of the worker, its prompts and the place among them, until the prompt is sampled."""
        self._watches: list[Any] = []
        self._restarts = 0
        self.ledger: Any = None
        self._ledger_name: str | None = None
        if uses_ledger(self.steps):
            self._ledger_name = f"ada_ledger_{uuid.uuid4().hex[:8]}"
            # Every prompt of a step may wait in it at once; Ray's own limit is 1,000 calls.
            actor = ray.remote(Ledger).options(name=self._ledger_name, num_cpus=0, max_concurrency=1_000_000)
            self.ledger = actor.remote(self.steps)
            self._restore()
        _running[:] = [self]

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        self._watches = [worker.ada_watch.remote() for worker in self.agent_loop_workers]

    def generate_sequences(self, prompts: Any) -> None:
        if "validate" in prompts and prompts["validate"]:  # noqa: RUF019 - its get() does not unwrap
            super().generate_sequences(prompts)
            return
        step = int(prompts["global_steps"])
        uids = [str(uid) for uid in prompts["uid"]]
        if wrong := [uid for uid in uids if "_" in uid or uid.startswith(_PADDING)]:
            msg = f"verl takes what stands before the first '_' of a key for the prompt's uid; got the uid {wrong[0]!r}"
            raise InputError(msg)
        latest, first = self._step
        first = first if latest == step else 0
        self._step = (step, first + len(uids))
        keys = self._keys(prompts, len(uids))
        batch = f"{step}-{first}"
        if self.ledger is not None:
            known = keys if self.options.memory else None
            if known is not None and not isinstance(self.steps, FixedPolicy) and len(set(known)) < len(known):
                twice = next(key for key in known if known.count(key) > 1)
                msg = (
                    f"the prompt {twice!r} stands twice in a batch, and {type(self.steps).__name__} with a memory "
                    "takes every prompt once; remove it from the dataset, or leave ada.memory out"
                )
                raise InputError(msg)
            ray.get(self.ledger.open.remote(batch, len(uids), fold_seed(self.options.seed, step, first), known))
        places = [
            Place(step, fold_seed(self.options.seed, step, first + i), keys[i], self._ledger_name, batch, i)
            for i in range(len(uids))
        ]
        tensordict_utils.assign_non_tensor_stack(prompts, PLACE, places)
        for number, chunk in enumerate(prompts.chunk(len(self.agent_loop_workers))):
            for i, uid in enumerate(chunk["uid"]):
                self._sent[str(uid)] = (number, chunk, i)
            self._dispatch(number, chunk)

    def _dispatch(self, number: int, chunk: Any) -> None:
        try:
            ray.get(self.agent_loop_workers[number].generate_sequences.remote(chunk))
        except ray.exceptions.RayActorError:
            # `revive` finds it dead and sends the prompts to its successor.
            logger.exception("agent-loop worker %d does not take prompts", number)

    def _keys(self, prompts: Any, count: int) -> list[str | int]:
        """Return the stable keys of the prompts; for the pool log alone, a hash of a prompt's text will do."""
        name = self.options.memory_key or "index"
        # A column is unwrapped as a whole, however little of it is wanted.
        extras = list(prompts["extra_info"]) if "extra_info" in prompts else [{}] * count
        column = list(prompts[name]) if name != "index" and name in prompts else [None] * count
        texts = [None] * count if self.options.memory else list(prompts["raw_prompt"])
        return [self._key(name, *each) for each in zip(extras, column, texts, strict=True)]

    def _key(self, name: str, extra: Any, value: Any, text: Any) -> str | int:
        key = extra.get(name) if hasattr(extra, "get") else None
        key = value if key is None else key
        key = getattr(key, "item", lambda: key)()
        if isinstance(key, (str, int)):
            return key
        if not self.options.memory:
            return digest(text)
        msg = (
            f"ada.memory_key={name} must name strings or whole numbers in the dataset's extra_info or columns; got "
            f"{key!r}. verl fills a missing extra_info.index with 0, which would make one prompt of all: add the key "
            "to every row of the dataset"
        )
        raise InputError(msg)

    def revive(self) -> None:
        """Start workers again that have died, and send them the prompts that were theirs.

        Raises
        ------
        NoScoreError
            If workers died more often than ``ada.max_restarts``.
        """
        dead, _ = ray.wait(self._watches, num_returns=len(self._watches), timeout=0) if self._watches else ([], [])
        for number in [self._watches.index(each) for each in dead]:
            self._restarts += 1
            if self._restarts > self.options.max_restarts:
                msg = (
                    f"agent-loop workers died {self._restarts} times, more than ada.max_restarts = "
                    f"{self.options.max_restarts}; look for the reason in Ray's logs"
                )
                raise NoScoreError(msg)
            items = (tq.kv_list(partition_id="train") or {}).get("train", {})
            lost = {
                uid: tensordict_utils.index_select_tensor_dict(chunk, [i])
                for uid, (worker, chunk, i) in self._sent.items()
                if worker == number and items.get(uid, {}).get("status") in ("pending", "running")
            }
            logger.error("agent-loop worker %d has died; %d prompts start again", number, len(lost))
            worker = self.agent_loop_workers_class.options(name=f"agent_loop_worker_{number}_{uuid.uuid4().hex[:8]}")
            self.agent_loop_workers[number] = worker.remote(
                self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles
            )
            self._watches[number] = self.agent_loop_workers[number].ada_watch.remote()
            if rows := [key for key in items if "_" in key and key.split("_")[0] in lost]:
                tq.kv_clear(keys=rows, partition_id="train")
            for prompt in lost.values():
                self._dispatch(number, prompt)

    def take(self, uids: Sequence[str], tags: dict[str, Any], batch: KVBatchMeta) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Read what the prompts of a batch left; return the rows to train on and the metrics.

        Raises
        ------
        NoScoreError
            If not one response of the batch got a score.
        """
        found: dict[str, Record] = {uid: tags[uid]["ada"] for uid in uids if tags[uid].get("ada")}
        taken = set(uids)
        # What verl evicted is no longer in the queue.
        self._sent = {uid: sent for uid, sent in self._sent.items() if uid in tags and uid not in taken}
        records = list(found.values())
        drawn = sum(len(record["rewards"]) for record in records)
        if drawn and all(reward is None for record in records for reward in record["rewards"]):
            msg = (
                f"none of the {drawn} responses of this step got a score. The log of the agent-loop workers says why "
                "a reward is missing: look for 'a response has no reward'"
            )
            if self.options.mask_truncated_completions:
                cut = sum(sum(record["truncated"]) for record in records)
                msg += f". {cut} of them were truncated, which ada.mask_truncated_completions counts as unscored"
            raise NoScoreError(msg)
        self.pool_log.write([record for record in records if record["rewards"]])
        self.advantages = {name: value for record in records for name, value in record["advantages"].items()}
        self.advantages |= {record["filler"]: 0.0 for record in records if record["filler"] is not None}
        batch = _without(batch, self._fillers(records))
        metrics = metrics_of(records, self.policy)
        metrics["ada/failed_prompts"] = float(len(uids) - len(found))
        return batch, metrics

    def _fillers(self, records: Sequence[Record]) -> set[str]:
        """Return the keys of rows that only stood in where a prompt kept nothing, and don't enter the batch."""
        left = [record["rows"][name] for record in records if (name := record["filler"]) is not None]
        if not any(record["filler"] is None and record["rows"] for record in records):
            # A batch without a token has no mean loss: one row goes on, with its advantage of 0.
            left = left[1:]
        return {key for keys in left for key in keys}

    # Checkpoints.

    def save(self, folder: Path) -> None:
        """Write what the run remembers of its prompts into a folder of verl's checkpoint."""
        if self.ledger is not None:
            (folder / _STATE_FILE).write_text(ray.get(self.ledger.save.remote()), encoding="utf-8")

    def _restore(self) -> None:
        """Load the memory from where verl resumes; verl has read its own part by now."""
        trainer = self.config.trainer
        if trainer.resume_mode == "disable":
            return
        if trainer.resume_mode == "resume_path":
            found = trainer.resume_from_path
        else:
            found = find_latest_ckpt_path(str(Path(trainer.default_local_dir).absolute()))
        if found is None:
            return
        file = Path(found, _STATE_FILE)
        if not file.exists():
            logger.warning("%s is missing: what the run remembered of its prompts is not restored", file)
            return
        ray.get(self.ledger.load.remote(file.read_text(encoding="utf-8")))


def _without(batch: KVBatchMeta, left: set[str]) -> KVBatchMeta:
    """Take rows out of a batch and out of the queue."""
    gone = [key for key in batch.keys if key in left]
    if not gone:
        return batch
    tq.kv_clear(keys=gone, partition_id=batch.partition_id)
    stay = [i for i, key in enumerate(batch.keys) if key not in left]
    return KVBatchMeta(
        partition_id=batch.partition_id, keys=[batch.keys[i] for i in stay], tags=[batch.tags[i] for i in stay]
    )


class _Sampling:
    """What both of verl's replay buffers need on top."""

    _ada_metrics: dict[str, Any]
    partitions: Any
    failure_keys: Any

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        self._ada_metrics = {}
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        return batch, {**metrics, **self._ada_metrics}

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if partition_id == "train":
            _current().revive()
        now: float = super()._wait_for_next_poll(partition_id, last_debug_time)  # type: ignore[misc]
        return now

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        chosen = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)  # type: ignore[misc]
        uids = set(chosen[0])
        if partition_id == "train" and not any(key.split("_")[0] in uids for key in chosen[1]):
            failed = len(uids & self.failure_keys[partition_id])
            msg = (
                f"none of the {len(uids)} prompts of this step has a response to train on; {failed} of them failed "
                "altogether. The log of the agent-loop workers says why: look for 'sessions raised'"
            )
            raise NoScoreError(msg)
        return chosen

    def _materialize_batch(self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: Any) -> Any:
        if partition_id != "train":
            return super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)  # type: ignore[misc]
        tags = tq.kv_list(partition_id=partition_id)[partition_id]
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)  # type: ignore[misc]
        batch, self._ada_metrics = _current().take(selected_prompt_uids, tags, batch)
        return batch


class AdaptiveReplayBuffer(_Sampling, ReplayBuffer):
    """verl's sampler for ``trainer.v1.trainer_mode=sync``, which reads the pools and logs ``ada/``."""


class AdaptiveReplayBufferAsync(_Sampling, ReplayBufferAsync):
    """verl's sampler for the asynchronous modes, which reads the pools and logs ``ada/``."""


@register_adv_est(ESTIMATOR)
def policy_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Any = None,
    config: Any = None,  # noqa: ARG001 - verl passes it
    **kwargs: Any,  # noqa: ARG001 - as above
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the policy's advantages, which were computed from whole pools: advantages and returns ``[row, token]``.

    Parameters
    ----------
    token_level_rewards, response_mask
        ``[row, token]``.
    index
        ``[row]`` names of the rows.

    Raises
    ------
    ProtocolError
        If a row is none of the batch that was sampled last.
    """
    known = _current().advantages
    names = [str(name) for name in ([] if index is None else index)]
    unknown = [name for name in names if name not in known and not name.startswith(_PADDING)]
    if unknown or len(names) != len(response_mask):
        msg = (
            f"{len(unknown)} of {len(response_mask)} rows are not of the batch that was sampled last, such as "
            f"{unknown[:1]}; {ESTIMATOR!r} needs the adapter's own manager and sampler"
        )
        raise ProtocolError(msg)
    # Rows that verl pads with have a mask of 0.
    values = torch.tensor([known.get(name, 0.0) for name in names], dtype=token_level_rewards.dtype)
    advantages = values.to(response_mask.device).unsqueeze(1) * response_mask
    return advantages, advantages


class AdaptiveCheckpoint(CheckpointCallback):
    """Saves what the run remembers of its prompts with verl's checkpoints; your own callback may derive from it."""

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        """Write the file `ada_bandit.json` beside verl's own."""
        super().on_save(trainer, global_step, checkpoint_dir, async_save=async_save, **kwargs)
        _current().save(Path(checkpoint_dir))
