"""Adaptive rollouts for TRL: `AdaptiveGRPOTrainer` is ``GRPOTrainer`` with a policy.

Datasets, reward functions, vLLM, PEFT, accelerate and logging stay as they are::

    from ada_bandit.adapters.trl import AdaptiveGRPOTrainer

    trainer = AdaptiveGRPOTrainer(model, reward_funcs, args, train_dataset, policy="reinforce-ada-balance")

`ada_bandit.adapters.trl.trainer` says how a step goes; ``docs/adapters.md`` lists what TRL's options do under a policy.
"""

from ada_bandit.adapters.trl.surface import TRLSurfaceError, check_trl
from ada_bandit.adapters.trl.trainer import AdaptiveGRPOTrainer, CorrectFunc

__all__ = ["AdaptiveGRPOTrainer", "CorrectFunc", "TRLSurfaceError", "check_trl"]
