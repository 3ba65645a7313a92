"""Settings ready to paste: a policy file, a line for TRL, and the lines for verl."""

from __future__ import annotations

from dataclasses import dataclass

from sim.advise.study import Advice
from sim.advise.verdict import Compared

__all__ = ["Paste", "pastes_of"]


@dataclass(frozen=True)
class Paste:
    """One policy's settings."""

    title: str
    """What it is, in words."""
    why: str
    """Why it is shown."""
    file: str
    """Name of the policy file."""
    toml: str
    """Its text."""
    trl: str
    """Lines for TRL; empty where TRL can't run it."""
    verl: str
    """Lines for verl."""
    note: str
    """What else is to be said."""


def pastes_of(advice: Advice) -> tuple[Paste, ...]:
    """Return the settings worth having: what to change first, the best fixed number, and the best rounds."""
    if not advice.compared:
        return ()
    wanted: dict[str, str] = {}
    change = advice.verdict.change
    if change is not None:
        wanted[change.compared.candidate.key] = "what to change first"
    else:
        wanted["now"] = "what you have"
    keys = [each.candidate.key for each in advice.compared]
    wanted.setdefault("best-fixed" if "best-fixed" in keys else "best-advantages", "the best without rounds")
    wanted.setdefault("best-rounds", "the best rounds that a trainer can run")
    return tuple(_paste(advice, advice.policy(key), why) for key, why in wanted.items())


def _paste(advice: Advice, compared: Compared, why: str) -> Paste:
    candidate = compared.candidate
    n = candidate.policy.n
    file = f"{candidate.key.replace(':', '-').replace('=', '-').replace(', ', '-')}.toml"
    spec = candidate.spec or file
    prompts = ""
    if advice.responses_a_step is not None:
        prompts = f"{max(1, round(advice.responses_a_step / compared.responses.value))}"
    call = f'trainer = AdaptiveGRPOTrainer(model, reward_funcs, args, train_dataset, policy="{spec}")'
    trl = f"args.num_generations = {n}\n{call}" if n > 1 else ""
    verl = [
        f"'+ada.policy=\"{spec}\"'",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=ada_bandit.adapters.verl.AdaptiveAgentLoopManager",
        "trainer.v1.sampler.custom_sampler.path=pkg://ada_bandit.adapters.verl",
        "trainer.v1.sampler.custom_sampler.name=AdaptiveReplayBuffer",
        "algorithm.adv_estimator=ada_bandit",
        f"actor_rollout_ref.rollout.n={n}",
        *([f"data.train_batch_size={prompts}"] if prompts else []),
    ]
    notes = [f"{compared.responses.value:.3g} responses a prompt on average"]
    if prompts:
        notes.append(f"so {prompts} prompts a step for {advice.responses_a_step:,} responses")
    elif candidate.key != "now" and abs(compared.responses.value / advice.now.n - 1) > 0.01 and not advice.now.adaptive:
        notes.append(
            f"so {advice.now.n / compared.responses.value:.3g} times as many prompts a step for as many responses as "
            "now"
        )
    if n < 2:
        notes.append("TRL's trainer takes groups of at least 2")
    return Paste(candidate.label, why, file, candidate.policy.to_toml(), trl, " \\\n".join(verl), "; ".join(notes))
