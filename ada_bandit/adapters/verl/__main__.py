"""Look at a config before a run: ``python -m ada_bandit.adapters.verl`` with the arguments of verl's ``main_ppo``.

Needs no GPU and no model: the config is composed as verl does it and checked as the adapter does,
and what the policy asks for is printed.
"""

from __future__ import annotations

import sys
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from ada_bandit.adapters.verl._options import check_config, read_options, steps_of, uses_ledger
from ada_bandit.errors import AdaBanditError

__all__ = ["look", "main"]


def look(overrides: list[str]) -> str:
    """Return what a run with these overrides would do, in words.

    Raises
    ------
    InputError
        If the adapter refuses the config.
    """
    with initialize_config_module("verl.trainer.config", version_base=None):
        config: Any = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    options = read_options(config)
    steps = steps_of(config, options)
    policy = steps.policy
    reward_model = config.reward.reward_model
    streaming = not reward_model.enable or bool(reward_model.enable_resource_pool)
    check_config(config, steps, has_reward_workers=streaming)
    prompts, n = int(config.data.train_batch_size), policy.n
    most = policy.budget.max_samples + policy.budget.replacements
    mini = int(config.actor_rollout_ref.actor.ppo_mini_batch_size)
    together = "together, by a shared budget or what was learned" if uses_ledger(steps) else "each on its own"
    log = f"{config.trainer.default_local_dir}/{options.pool_log}" if options.pool_log else "none"
    return (
        f"policy: {policy.label}\n"
        f"a step: {prompts} prompts, at most {most} responses each, groups of {n}; prompts decide {together}\n"
        f"groups without signal: {policy.parts[0][1].no_signal}\n"
        f"rows: at most {prompts * n} in mini-batches of {mini * n}; verl pads the last one\n"
        f"pool log: {log}"
    )


def main() -> None:
    """Print it, or the reason why the config is refused."""
    try:
        print(look(sys.argv[1:]))  # noqa: T201 - the command's answer
    except AdaBanditError as error:
        sys.exit(f"refused: {error}")


if __name__ == "__main__":
    main()
