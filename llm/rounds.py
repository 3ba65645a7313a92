"""One step's sampling: rounds of ask, generate, verify and tell until every prompt has exited."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ada_bandit import Allocator
from ada_bandit._types import FloatArray
from ada_bandit.allocator import Groups, Request, UnscoredError
from llm.distributed import World
from llm.errors import TooManyUnscoredError
from llm.types import KeptResponse, Prompt, Response, Sampler
from llm.verify import Scores, Verifier

__all__ = ["StepSample", "sample_step"]

COUNTS = ("truncated", "raised", "timed_out", "padding")
Timed = Callable[[str], AbstractContextManager[None]]


@dataclass(eq=False)
class StepSample:
    """What was sampled in a step."""

    allocator: Allocator
    """The step's allocator; done when `sample_step` returns."""
    prompts: Sequence[Prompt]
    """`[prompt]` The prompts."""
    encoded: Sequence[Sequence[int]]
    """`[prompt][token]` Their tokens."""
    mask_truncated: bool = False
    """Whether responses that were cut at the length limit have no score."""
    responses: dict[int, Response] = field(default_factory=dict)
    """Every response by the allocator's id."""
    rewards: dict[int, float] = field(default_factory=dict)
    """Every reward by the allocator's id; NaN without a score."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    """Responses that were truncated, whose verifier raised, or that ran out of time; and padding (`World.padding`)."""
    first_error: str = ""
    """The first error of a verifier."""
    rounds: int = 0
    """Rounds so far."""

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(each.tokens.size for each in self.responses.values())

    @property
    def unscored_share(self) -> float:
        """Share of the responses so far that have no score."""
        return float(np.isnan(list(self.rewards.values())).mean()) if self.rewards else 0.0

    def kept(self, groups: Groups) -> list[KeptResponse]:
        """Return the responses of the groups: what the policy keeps, and nothing else."""
        masked = groups.silent & (self.allocator.policy.no_signal == "mask")
        return [
            KeptResponse(
                int(i),
                self.encoded[i],
                self.responses[int(groups.ids[i, slot])],
                float(groups.advantages[i, slot]),
                masked=bool(masked[i]),
            )
            for i, slot in zip(*np.nonzero(groups.mask), strict=True)
        ]

    def pool_means(self) -> FloatArray:
        """Return the mean reward of each prompt's scored responses, ``[prompt]``; NaN where none has a score."""
        ids = np.fromiter(self.rewards, dtype=np.int64, count=len(self.rewards))
        rewards = np.fromiter(self.rewards.values(), dtype=np.float64, count=len(self.rewards))
        scored = ~np.isnan(rewards)
        of, _ = self.allocator.locate(ids[scored])
        count = np.bincount(of, minlength=len(self.prompts))
        total = np.bincount(of, weights=rewards[scored], minlength=len(self.prompts))
        return np.where(count > 0, total / np.maximum(count, 1), math.nan)

    def numbers(self, groups: Groups, rows: Sequence[KeptResponse]) -> dict[str, float]:
        """Return what a run logs of its sampling, from what the allocator counted and from the rows in the loss.

        Parameters
        ----------
        groups
            The step's groups.
        rows
            What `kept` returned.
        """
        told = self.allocator.metrics()
        means = self.pool_means()
        logprobs = [each.logprobs for each in self.responses.values()]
        names = ("unresolved_no_positive", "unresolved_no_negative", "unsampled", "masked", "left_out")
        lost = ("unscored", "unscored_fraction", "replaced")
        return {
            "prompts": len(self.prompts),
            "pool_reward": _mean(means[~np.isnan(means)]),
            "pool_pass_rate": told["pass_rate"],
            "selected_reward": _mean(groups.rewards[groups.mask]),
            "responses": len(self.responses),
            "rounds": told["rounds"],
            "signal_fraction": told["signal_fraction"],
            "resolved_fraction": told["resolved"] / max(len(self.prompts), 1),
            **{name: told[name] for name in (*names, *lost)},
            **self.counts,
            "kept": len(rows),
            "kept_prompts": len({row.prompt for row in rows}),
            "kept_masked": sum(row.masked for row in rows),
            "sampled_entropy": -_mean(np.concatenate(logprobs)) if logprobs else math.nan,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs in order to go on with the next round."""
        return {
            "allocator": self.allocator.state_dict(),
            "responses": self.responses,
            "rewards": self.rewards,
            "counts": self.counts,
            "first_error": self.first_error,
            "rounds": self.rounds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a step that was begun."""
        self.allocator.load_state_dict(state["allocator"])
        self.responses = dict(state["responses"])
        self.rewards = dict(state["rewards"])
        self.counts = dict(state["counts"])
        self.first_error = str(state["first_error"])
        self.rounds = int(state["rounds"])


def sample_step(
    step: StepSample,
    sampler: Sampler,
    verifier: Verifier,
    seed: int,
    *,
    world: World,
    timed: Timed,
    after_round: Callable[[StepSample], None] | None = None,
) -> Groups:
    """Go on with a step's rounds until every prompt has exited, and return its groups.

    Parameters
    ----------
    step
        The step, new or restored in the middle.
    sampler, verifier
        What generates and what scores.
    seed
        The step's seed, for the sampler.
    world
        The processes among which a round is shared.
    timed
        Context that adds its time to a phase: sample, verify or allocate.
    after_round
        Called when a round has been told.

    Raises
    ------
    TooManyUnscoredError
        If more responses have no score than the allocator puts up with.
    """
    allocator = step.allocator
    # First what was asked for before a restart, and not told.
    request = _ask(step, timed, again=True) or _ask(step, timed)
    while request:
        mine = world.share(len(request))
        part = slice(mine.start, mine.stop)
        prompts = [step.prompts[i] for i in request.prompts[part]]
        with timed("sample"):
            ids = np.stack([[each.id for each in prompts], request.draws[part]], axis=1).astype(np.int64).reshape(-1, 2)
            encoded = [step.encoded[i] for i in request.prompts[part]]
            responses = sampler.generate(encoded, ids, seed) if encoded else []
        with timed("verify"):
            scores = verifier.score(prompts, responses)
        with timed("exchange"):
            told = world.join([(responses, scores)])
        with timed("allocate"):
            allocator.tell(request.ids, _take(step, request.ids.tolist(), told))
            step.counts["padding"] += world.padding(len(request))
            step.rounds += 1
        # A round that stops the run isn't saved: with the verifier mended, a resumed run samples it once more.
        if after_round is not None and step.unscored_share <= allocator.max_unscored:
            after_round(step)
        request = _ask(step, timed)
    with timed("allocate"):
        return allocator.groups()


def _ask(step: StepSample, timed: Timed, *, again: bool = False) -> Request:
    try:
        with timed("allocate"):
            return step.allocator.ask(again=again)
    except UnscoredError as error:
        raise TooManyUnscoredError(_too_many(step)) from error


def _too_many(step: StepSample) -> str:
    metrics, counts = step.allocator.metrics(), step.counts
    cut = f" {counts['truncated']} responses were cut at the length limit" if step.mask_truncated else ""
    return (
        f"{metrics['unscored']} of the {len(step.rewards)} responses of this step have no score "
        f"({100 * metrics['unscored_fraction']:.0f} %), more than train.max_unscored = "
        f"{step.allocator.max_unscored:g} allows: {counts['raised']} of their scores failed and {counts['timed_out']} "
        f"ran out of time.{cut and cut + ', and train.mask_truncated takes their scores away.'} First error: "
        f"{step.first_error or 'none'}. Mend the verifier and go on by --resume, or raise train.max_unscored"
    )


def _take(step: StepSample, ids: Sequence[int], told: Sequence[tuple[Sequence[Response], Scores]]) -> FloatArray:
    """Keep what a round brought, and return its rewards, ``[response]``."""
    responses = [each for part, _ in told for each in part]
    rewards = np.concatenate([scores.rewards for _, scores in told])
    if step.mask_truncated:
        rewards = np.where([each.finish == "length" for each in responses], math.nan, rewards)
    step.responses.update(zip(ids, responses, strict=True))
    step.rewards.update(zip(ids, rewards.tolist(), strict=True))
    for _, scores in told:
        for name in ("truncated", "raised", "timed_out"):
            step.counts[name] += getattr(scores, name)
        step.first_error = step.first_error or scores.first_error
    return rewards


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else math.nan
