"""Adaptive rollouts for verl's V1 trainer, by config alone.

    +actor_rollout_ref.rollout.agent.agent_loop_manager_class=ada_bandit.adapters.verl.AdaptiveAgentLoopManager
    algorithm.adv_estimator=ada_bandit
    trainer.v1.sampler.custom_sampler.path=pkg://ada_bandit.adapters.verl
    trainer.v1.sampler.custom_sampler.name=AdaptiveReplayBuffer
    +ada.policy=reinforce-ada-balance

`AdaOptions` lists what else may stand under ``+ada.``.

How a step goes. verl sends the prompts of a step to its agent-loop workers. There each prompt
drives an `Allocator` of its own: as soon as all replies of a round are in, with their rewards,
the next round starts, and no prompt waits for another one. A response is scored by verl's reward
workers and held back. When the prompt has had enough, the responses that the policy keeps are
put into TransferQueue by verl's own code, and the prompt's tag takes along what the policy
decided. The sampler reads the tags where verl collects the batch, logs the metrics and writes the
pool log, and the advantage estimator gives each row its advantage, computed from the whole pool.
Nothing that is dropped ever reaches the queue.

Where prompts decide together, by a shared budget, by what a memory holds of them or by tables that
are learned (``empirical-bayes``), an actor has the allocator of the batch. Such a group is handed on
when the whole batch is done.

Rows. Groups may have fewer than ``rollout.n`` rows; verl pads a batch to whole mini-batches with
rows of its own, whose loss mask is 0, and they enter no group. A prompt whose every response
failed is marked as failed, as verl does. A response whose session, reward or reward worker failed
counts as drawn and has no score; where the budget replaces it (``grpo:replace=0.5``), the prompt draws
another one. Groups without signal are what `Policy.no_signal` says: rows with an advantage of 0, or
none. A batch in which nothing was kept trains on one row with an advantage of 0; one in which no
response got a score stops the run.

What is left to verl: validation, the loss, log-probabilities, importance sampling, padding,
reward functions, agent loops of several turns or outputs (a trajectory's reward counts once, and
its advantage goes to all of its rows). Seeds: prompt ``i`` of a step has ``fold_seed(ada.seed,
step, i)``, whichever worker it runs on.
"""

from ada_bandit.adapters.verl._options import AdaOptions
from ada_bandit.adapters.verl._surface import VerlSurfaceError, check_verl
from ada_bandit.adapters.verl._trainer import (
    AdaptiveAgentLoopManager,
    AdaptiveCheckpoint,
    AdaptiveReplayBuffer,
    AdaptiveReplayBufferAsync,
    NoScoreError,
    policy_advantage,
)
from ada_bandit.adapters.verl._worker import AdaptiveAgentLoopWorker

__all__ = [
    "AdaOptions",
    "AdaptiveAgentLoopManager",
    "AdaptiveAgentLoopWorker",
    "AdaptiveCheckpoint",
    "AdaptiveReplayBuffer",
    "AdaptiveReplayBufferAsync",
    "NoScoreError",
    "VerlSurfaceError",
    "check_verl",
    "policy_advantage",
]
