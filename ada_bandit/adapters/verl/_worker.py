"""The worker: runs the agent loops of a prompt round by round, and hands on what the policy keeps."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
import transfer_queue as tq

from ada_bandit.adapters.verl._ledger import Course, OwnCourse, SharedCourse
from ada_bandit.adapters.verl._options import read_options, steps_of
from ada_bandit.adapters.verl._records import Group, Record, row_name
from ada_bandit.adapters.verl._surface import AgentLoopWorker
from ada_bandit.errors import ProtocolError

__all__ = ["PLACE", "AdaptiveAgentLoopWorker", "Place", "Response"]

logger = logging.getLogger(__name__)

PLACE = "__ada__"
"""Column by which the manager tells a worker where a prompt stands in the step."""
_TRAIN = "train"


@dataclass(frozen=True)
class Place:
    """Where a prompt stands in its step."""

    step: int
    seed: int
    """Of the prompt's own allocator."""
    key: str | int
    """What the memory and the pool log know the prompt by."""
    ledger: str | None = None
    """Name of the actor that decides for the batch; None where the prompt decides on its own."""
    batch: str = ""
    prompt: int = 0
    """Number of the prompt in that batch."""


@dataclass(frozen=True, eq=False)
class Response:
    """One trajectory: several outputs where an agent loop returns several, and one reward for all of them."""

    outputs: list[Any]
    reward: float
    """NaN without a score."""
    correct: bool | None
    """What the reward function says; None where the policy's threshold decides."""
    tokens: int
    """Of the model's own, by the loss mask."""
    truncated: bool
    failed: bool = False

    @property
    def trainable(self) -> bool:
        """Whether there is a row to train on: an empty response has no token."""
        return bool(self.outputs) and all(output.response_ids for output in self.outputs)


_FAILED = Response([], math.nan, None, 0, truncated=False, failed=True)


class AdaptiveAgentLoopWorker(AgentLoopWorker):
    """verl's agent-loop worker whose prompts draw as many responses as the policy asks for."""

    reward_loop_worker_handles: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ada_options = read_options(self.config)
        self._ada_policy = steps_of(self.config, self._ada_options).policy
        self._ada_ledgers: dict[str, Any] = {}

    async def ada_watch(self) -> None:
        """Never return: the call fails when the worker dies, which is how the manager hears of it."""
        await asyncio.Event().wait()

    # What verl calls.

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        place = prompt.pop(PLACE, None)
        if trajectory["validate"]:
            await super()._run_prompt(prompt, sampling_params, trajectory, trace)
            return
        uid = prompt["uid"]
        await tq.async_kv_put(key=uid, partition_id=_TRAIN, tag={"status": "running"})
        course = None
        outcome: dict[str, Any] = {"status": "failure"}
        try:
            if place is None:
                msg = "a prompt came without its place in the step: verl's own manager sent it, not the adapter's"
                raise ProtocolError(msg)  # noqa: TRY301 - like every failure, it is told to the trainer
            course = self._ada_course(place)
            outcome = await self._ada_sample(course, place, prompt, sampling_params, trajectory, trace)
        except Exception:
            logger.exception("prompt %s could not be sampled", uid)
        finally:
            # Also where the task was cancelled: the trainer waits for every prompt.
            await asyncio.shield(self._ada_end(uid, course, outcome))

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> Any:
        """Score a trajectory and hold it back; verl's own processing follows if it is kept."""
        if validate:
            return await super()._agent_loop_postprocess(output, validate, **kwargs)
        outputs = [each for each in (output if isinstance(output, list) else [output]) if each is not None]
        if not outputs:
            return _FAILED
        reward, last = await self._ada_score(outputs, kwargs), outputs[-1]
        truncated = len(last.response_ids) >= int(self.rollout_config.response_length)
        if truncated and self._ada_options.mask_truncated_completions:
            # It is not to be trained on, so it has no vote either.
            reward = math.nan
        key, correct = self._ada_options.correct_key, None
        if key is not None and not math.isnan(reward):
            extra = last.extra_fields.get("reward_extra_info") or {}
            if key not in extra:
                logger.error("the reward function gave no %r, only %s: no score", key, ", ".join(extra) or "nothing")
                reward = math.nan
            else:
                correct = bool(extra[key])
        return Response(
            outputs,
            reward,
            correct,
            tokens=sum(sum(each.response_mask) for each in outputs),
            truncated=truncated,
        )

    # The parts of a prompt.

    def _ada_course(self, place: Place) -> Course:
        if place.ledger is None:
            return OwnCourse(self._ada_policy, place.seed)
        if place.ledger not in self._ada_ledgers:
            self._ada_ledgers[place.ledger] = ray.get_actor(place.ledger)
        return SharedCourse(self._ada_ledgers[place.ledger], place.batch, place.prompt)

    async def _ada_sample(
        self,
        course: Course,
        place: Place,
        prompt: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool,
    ) -> dict[str, Any]:
        """Draw rounds until the policy has had enough, hand the kept rows on, and return the prompt's last tag."""
        prompt = {name: value for name, value in prompt.items() if name not in ("__rollout_n__", "__do_sample__")}
        draws, responses = await course.begin()
        while draws:
            tasks = [
                asyncio.create_task(
                    self._run_agent_loop(dict(sampling_params), trajectory, trace=trace, session_id=draw, **prompt)
                )
                for draw in draws
            ]
            new = [self._ada_came(each) for each in await asyncio.gather(*tasks, return_exceptions=True)]
            self._ada_explain(prompt["uid"], tasks)
            responses.update(zip(draws, new, strict=True))
            correct = None
            if self._ada_options.correct_key is not None:
                correct = [float(bool(response.correct)) for response in new]
            draws = await course.tell(draws, [response.reward for response in new], correct, new)
        pool = [responses[draw] for draw in sorted(responses)]
        if pool and all(response.failed for response in pool):
            # As verl does where sessions fail: the trainer decides what becomes of the prompt.
            return {"status": "failure"}
        group = await course.group()
        return {"status": "finished", "ada": await self._ada_keep(place, prompt, pool, group)}

    @staticmethod
    def _ada_came(result: Any) -> Response:
        return result if isinstance(result, Response) else _FAILED

    @staticmethod
    def _ada_explain(uid: str, tasks: list[asyncio.Task[Any]]) -> None:
        """Say once a round why sessions failed."""
        errors = [task.exception() for task in tasks if not task.cancelled() and task.exception() is not None]
        cancelled = sum(task.cancelled() for task in tasks)
        if errors or cancelled:
            logger.error(
                "prompt %s: %d of %d sessions raised and %d were cancelled; they count as responses without a score",
                uid,
                len(errors),
                len(tasks),
                cancelled,
                exc_info=errors[0] if errors else None,
            )

    async def _ada_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> float:
        """Return the reward of a trajectory, NaN where there is none."""
        problem: Any = None
        try:
            await asyncio.wait_for(self._ada_score_anywhere(outputs, kwargs), self._ada_options.reward_timeout)
            reward = outputs[-1].reward_score
            value = math.nan if reward is None else float(reward)
            if math.isfinite(value):
                return value
            problem = f"it is {reward!r}"
        except TimeoutError:
            problem = f"it took more than ada.reward_timeout = {self._ada_options.reward_timeout} seconds"
        except Exception as error:  # noqa: BLE001 - a user's reward function may raise anything
            problem = error
        logger.warning("a response has no reward: %s", problem)
        # verl's own processing asks for a number, should the row be needed.
        outputs[-1].reward_score = 0.0
        outputs[-1].extra_fields.setdefault("reward_extra_info", {})
        return math.nan

    async def _ada_score_anywhere(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        """Score by a reward worker that is alive: verl chooses one at random, the dead ones among them."""
        while True:
            try:
                await self._compute_score(outputs, kwargs=kwargs)
            except ray.exceptions.RayActorError as error:
                dead, handles = getattr(error, "actor_id", None), self.reward_loop_worker_handles
                alive = [handle for handle in handles if handle._actor_id.hex() != dead]  # noqa: SLF001 - no other name
                if not alive or dead is None:
                    raise
                if len(alive) < len(handles):
                    logger.error("a reward worker has died; %d are left", len(alive))  # noqa: TRY400 - no traceback
                self.reward_loop_worker_handles = alive
            else:
                return

    async def _ada_keep(self, place: Place, prompt: dict[str, Any], pool: list[Response], group: Group) -> Record:
        """Put the kept rows into the queue, or one that stands in for them, and return what is told of the prompt."""
        uid = prompt["uid"]
        advantages = dict(zip(group["kept"], group["advantages"], strict=True))
        rows = [draw for draw in group["kept"] if pool[draw].trainable]
        filler = None
        if not rows:
            filler = next((draw for draw, response in enumerate(pool) if response.trainable), None)
        passed = {name: value for name, value in prompt.items() if name != "agent_name"}
        here = [*rows] if filler is None else [filler]
        await asyncio.gather(*(self._ada_put(passed, draw, pool[draw]) for draw in here))
        return Record(
            step=place.step,
            prompt_id=place.key,
            policy=self._ada_policy.label,
            rewards=[None if math.isnan(response.reward) else response.reward for response in pool],
            correct=[self._ada_correct(response) for response in pool],
            tokens=[response.tokens for response in pool],
            kept=[draw in advantages for draw in range(len(pool))],
            truncated=[response.truncated for response in pool],
            failed=sum(response.failed for response in pool),
            group=group,
            rows={row_name(uid, draw): _keys(uid, draw, pool[draw]) for draw in here},
            advantages={row_name(uid, draw): advantages[draw] for draw in rows},
            filler=None if filler is None else row_name(uid, filler),
        )

    def _ada_correct(self, response: Response) -> bool | None:
        if math.isnan(response.reward):
            return None
        return response.reward > self._ada_policy.threshold if response.correct is None else response.correct

    async def _ada_put(self, prompt: Mapping[str, Any], draw: int, response: Response) -> None:
        # The field uid tells rows apart, as the advantage estimator is shown nothing else of them.
        kwargs = {**prompt, "uid": row_name(prompt["uid"], draw), "session_id": draw}
        await super()._agent_loop_postprocess(response.outputs, False, **kwargs)  # noqa: FBT003 - verl's signature

    async def _ada_end(self, uid: str, course: Course | None, outcome: dict[str, Any]) -> None:
        """Tell the trainer how a prompt ended; one that failed leaves no rows."""
        if outcome["status"] == "failure":
            found = await tq.async_kv_list(partition_id=_TRAIN)
            rows = [key for key in (found or {}).get(_TRAIN, {}) if key.startswith(f"{uid}_")]
            if rows:
                await tq.async_kv_clear(keys=rows, partition_id=_TRAIN)
            if course is not None:
                await course.give_up()
        await tq.async_kv_put(key=uid, partition_id=_TRAIN, tag=outcome)


def _keys(uid: str, draw: int, response: Response) -> list[str]:
    """Return the keys of a response's rows: verl adds session and number to the uid that it is given."""
    return [f"{row_name(uid, draw)}_{draw}_{number}" for number in range(len(response.outputs))]


def digest(messages: Any) -> str:
    """Return a key for a prompt that has none: a short hash of its messages."""
    text = json.dumps(messages, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
