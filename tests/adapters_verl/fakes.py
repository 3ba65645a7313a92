"""A tiny tokenizer, a server without a model, reward functions, and the rest of verl as it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import ray
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.utils import tensordict_utils
from verl.workers.rollout.replica import TokenOutput

from ada_bandit import uniform

# It warns of its own number of threads at every call.
logging.getLogger("transfer_queue").setLevel(logging.ERROR)
os.environ.setdefault("TQ_LOGGING_LEVEL", "ERROR")

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["<pad>", "<eos>", "<unk>", "user", "assistant", "system", "=", *map(str, range(64))]
_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
RIGHT = 1
_ADAPTER = "ada_bandit.adapters.verl"


def write_model(folder: Path) -> None:
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        architectures=["LlamaForCausalLM"],
    ).save_pretrained(folder)


def config(folder: Path, *overrides: str, policy: str = "reinforce-ada-balance", n: int = 4) -> DictConfig:
    here = Path(__file__).parent
    with initialize_config_module("verl.trainer.config", version_base=None):
        made = compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={folder}",
                "actor_rollout_ref.model.use_remove_padding=false",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={n}",
                "actor_rollout_ref.rollout.agent.num_workers=1",
                "actor_rollout_ref.rollout.prompt_length=32",
                "actor_rollout_ref.rollout.response_length=16",
                "actor_rollout_ref.actor.ppo_mini_batch_size=8",
                "actor_rollout_ref.actor.use_dynamic_bsz=true",
                "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true",
                "data.train_batch_size=8",
                "data.max_prompt_length=32",
                "data.max_response_length=16",
                "reward.num_workers=1",
                f"reward.custom_reward_function.path={here / 'rewards.py'}",
                "reward.custom_reward_function.name=last_is_right",
                "transfer_queue.enable=true",
                "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
                "trainer.logger=[console]",
                f"trainer.default_local_dir={folder / uuid.uuid4().hex}",
                "trainer.resume_mode=disable",
                f"+actor_rollout_ref.rollout.agent.agent_loop_manager_class={_ADAPTER}.AdaptiveAgentLoopManager",
                "algorithm.adv_estimator=ada_bandit",
                "trainer.v1.sampler.custom_sampler.path=pkg://ada_bandit.adapters.verl",
                "trainer.v1.sampler.custom_sampler.name=AdaptiveReplayBuffer",
                f"+ada.policy={policy}",
                *overrides,
            ],
        )
    OmegaConf.resolve(made)
    return made


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[DictConfig]:
    """Ray and TransferQueue. The queue waits for ever, without a word, where Ray has too few logical CPUs."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    ray.init(num_cpus=32, include_dashboard=False, object_store_memory=400 * 2**20, log_to_driver=False)
    made = config(folder)
    try:
        tq.init(made.transfer_queue)
        yield made
    finally:
        with contextlib.suppress(Exception):
            tq.close()
        ray.shutdown()


def clear() -> None:
    for partition, items in (tq.kv_list() or {}).items():
        if items:
            tq.kv_clear(keys=list(items), partition_id=partition)


class RandomServer:
    """Answers with as many tokens as it likes, the last of which is `RIGHT` at the prompt's pass rate."""

    def __init__(self, rates: Mapping[int, float], *, longest: int = 8, delay: float = 0.0, seed: int = 0) -> None:
        self.rates = dict(rates)
        self.longest, self.delay = longest, delay
        self.random = random.Random(seed)
        self.calls = 0

    async def generate(self, request_id: str, prompt_ids: list[int], **kwargs: Any) -> TokenOutput:
        self.calls += 1
        prompt = int(WORDS[prompt_ids[1]])
        length = self.random.randint(1, self.longest)
        if self.delay:
            await asyncio.sleep(self.delay * length)
        right = self.random.random() < self.rates[prompt]
        tokens = [7 + self.random.randrange(2, 64) for _ in range(length - 1)] + [7 + (RIGHT if right else 0)]
        return TokenOutput(token_ids=tokens, log_probs=[-1.0] * length, extra_fields=_versions())


def _versions() -> dict[str, Any]:
    return {"min_global_steps": 0, "max_global_steps": 0}


def is_right(prompt: int, draw: int, rate: float) -> bool:
    """What `ScriptedLoop` answers: the same number for the same prompt and draw, whoever runs it."""
    return bool(uniform(11, 0, prompt, draw) < rate)


@register("scripted")
class ScriptedLoop(AgentLoopBase):
    """Answers by prompt and draw alone; the prompt's pass rate stands in its extra information."""

    outputs = 1

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        extra, draw = kwargs["extra_info"], kwargs["session_id"]
        await asyncio.sleep(float(uniform(12, 0, extra["index"], draw)) * float(extra.get("delay", 0)))
        trouble = extra.get("trouble", {}).get(str(draw))
        if trouble == "raise":
            msg = "the tool is gone"
            raise RuntimeError(msg)
        if trouble == "cancel":
            raise asyncio.CancelledError
        if trouble == "die" and not os.path.exists(extra["marker"]):  # noqa: ASYNC240, PTH110 - it is about to die
            open(extra["marker"], "w").close()  # noqa: ASYNC230, PTH123
            os._exit(1)
        if trouble == "none":
            return []
        right = is_right(extra["index"], draw, extra["rate"])
        made = [self._output(extra, draw, right, number, trouble) for number in range(int(extra.get("outputs", 1)))]
        return made if len(made) > 1 else made[0]

    def _output(self, extra: Mapping[str, Any], draw: int, right: bool, number: int, trouble: str | None) -> Any:
        length = {"long": 16, "empty": 0}.get(trouble or "", 3 + number)
        tokens = [9 + draw % 8] * (length - 1) + [7 + int(right)] if length else []
        return AgentLoopOutput(
            prompt_ids=[3, 7 + extra["index"] % 64],
            response_ids=tokens,
            response_mask=[1] * length,
            response_logprobs=[-1.0] * length,
            # A judge of the loop's own that answered nonsense; otherwise verl asks a reward worker.
            reward_score={"nan": float("nan"), "inf": float("inf")}.get(trouble or ""),
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields=_versions(),
        )


def batch(
    rates: Sequence[float], *, step: int = 1, loop: str = "scripted", first: int = 0, **extra: Sequence[Any] | Any
) -> Any:
    """A batch as verl's trainer fetches it; `extra` goes into every prompt's extra information."""
    rows = range(len(rates))
    infos = [
        {"index": first + i, "rate": rates[i]}
        | {name: value[i] if isinstance(value, list) else value for name, value in extra.items()}
        for i in rows
    ]
    made = tensordict_utils.get_tensordict(
        {
            "uid": np.array([str(uuid.uuid4()) for _ in rows], dtype=object),
            "raw_prompt": np.array(
                [None, *[[{"role": "user", "content": str((first + i) % 64)}] for i in rows]], dtype=object
            )[1:],
            "index": np.array([first + i for i in rows], dtype=object),
            "extra_info": np.array(infos, dtype=object),
            "data_source": np.array(["fake"] * len(rates), dtype=object),
            "reward_model": np.array([{"ground_truth": str(RIGHT)} for _ in rows], dtype=object),
            "agent_name": np.array([loop] * len(rates), dtype=object),
            "dummy_tensor": torch.zeros((len(rates), 1), dtype=torch.uint8),
        }
    )
    tensordict_utils.assign_non_tensor_data(made, "global_steps", step)
    return made


def announce(made: Any, step: int = 1, partition: str = "train") -> list[str]:
    """Register the prompts of a batch as verl's trainer does, and return their uids."""
    uids = [str(uid) for uid in made["uid"]]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in uids]
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=tags)
    return uids


def reward_workers(made: DictConfig) -> list[Any]:
    """verl's own workers, without the fixed names that its manager gives them."""
    worker = ray.remote(RewardLoopWorker)
    return [worker.remote(made) for _ in range(made.reward.num_workers)]
