# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # A tour of ada_bandit
#
# From a rule in three lines to a training loop, in a few seconds on a CPU. Run it as a script from the root of the
# repository, `python examples/tour.py`, or open it as a notebook with jupytext.
#
# The question: *how many responses should each prompt get, when may it stop, which of them go into the update, and with
# what weight?*

# %%
import numpy as np

from ada_bandit import (
    Allocator,
    Beta,
    Policy,
    Rounds,
    ScoreModel,
    analyze,
    bayes_policy,
    exit_rule,
    gradient_efficiency,
    induced_objective,
    uniform,
)
from ada_bandit.exact import analyze_law
from ada_bandit.optimal import split_gain
from ada_bandit.tables import draw_lattice
from ada_bandit.uniforms import fold_seed
from sim.readers import ReadOptions, read_rollouts
from sim.sources import built_in_rollouts

# %% [markdown]
# ## 1. A rule
#
# A prompt may stop once both classes are in. That is a function of two numbers, correct and incorrect responses so far.


# %%
@exit_rule
def mixed(pos, neg):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Hold once one response is correct and one is not."""
    return (pos >= 1) & (neg >= 1)


policy = Policy(rule=mixed, budget=Rounds(samples=2, rounds=8), group_size=4, name="mixed, 2 x 8")
print("The policy as a table: responses to draw next, + where it stops (upwards: correct, to the right: incorrect).\n")
print(draw_lattice(policy.tables, size=8))

# %% [markdown]
# ## 2. Its price
#
# Exactly, at four pass rates, beside four plain responses. Nothing is simulated.

# %%
RATES = np.array([0.02, 0.1, 0.5, 0.9])
plain = Policy.preset("dr-grpo")
for each in (plain, policy):
    found = analyze(each, RATES)
    print(f"\n{each.label}")
    print("  pass rate           ", *(f"{p:6.2f}" for p in RATES))
    print("  responses           ", *(f"{n:6.2f}" for n in found.expected_samples))
    print("  group holds both    ", *(f"{s:6.2f}" for s in found.signal_probability))
    print("  bias of its mean    ", *(f"{b:+6.2f}" for b in found.pool_mean_bias))

# %% [markdown]
# ## 3. Its objective
#
# The expected update is w(p) grad p. So the policy climbs the integral of w: for plain responses the pass rate itself,
# up to a factor; for this rule something that lifts hard and easy prompts more.

# %%
for each in (plain, policy):
    weight = analyze(each, RATES).gradient_weight
    climbed = induced_objective(each, [0.1, 0.5, 0.9])
    print(f"{each.label}: w(p) =", *(f"{w:.2f}" for w in weight), "  F(.5) - F(.1) =", f"{climbed[1] - climbed[0]:.3f}")

# %% [markdown]
# ## 4. The optimum
#
# Under a law of pass rates and a model of the scores there is a best policy. How much of its gain is adaptivity?

# %%
law, model = Beta(0.5, 1), ScoreModel(noise_ratio=(5.0, 10.6))
best = bayes_policy(law, model)
for each in (plain, policy, best):
    ratio = gradient_efficiency(each, law, model).value / gradient_efficiency(plain, law, model).value
    print(f"{each.label}: {analyze_law(each, law)['expected_samples']:.1f} responses a prompt, efficiency {ratio:.2f}")
gain = split_gain(plain, law, model)
print(
    f"The gain of {gain.total:.2f}: advantages {gain.advantages:.2f}, a fixed number of {gain.best_fixed} responses "
    f"{gain.number:.2f}, adaptivity {gain.adaptivity:.2f}"
)

# %% [markdown]
# ## 5. A replay
#
# The same policy on logged rollouts: 32 responses of SmolLM2-135M-Instruct to each of 300 prompts, in the order in
# which they came. The allocator doesn't know that they are old.

# %%
log = read_rollouts(built_in_rollouts("smollm2-reasoning-gym").path, ReadOptions())
pools = [rewards for _, _, rewards in log.pools() if rewards is not None]
allocator = Allocator(policy, prompts=len(pools), seed=0)
while request := allocator.ask():
    allocator.tell(request.ids, [pools[p][d] for p, d in zip(request.prompts, request.draws, strict=True)])
print(allocator.summary())

# %% [markdown]
# ## 6. A training loop
#
# A softmax over ten answers for each of 64 prompts, and REINFORCE with the allocator's advantages, until 50,000
# responses are spent. In the inner loop, replace the two lines that pick answers by your model, and `picked == 0` by
# your verifier.

# %%
PROMPTS, ANSWERS, BUDGET = 64, 10, 50_000
for each in (plain, policy):
    logits = np.random.default_rng(0).normal(size=(PROMPTS, ANSWERS))
    spent = step = 0
    while spent < BUDGET:
        chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        allocator = Allocator(each, PROMPTS, seed=fold_seed(0, step))
        answers: dict[int, int] = {}
        while request := allocator.ask():
            drawn = uniform(fold_seed(1, step), 0, request.prompts, request.draws)
            picked = (chance.cumsum(axis=1)[request.prompts] < drawn[:, None]).sum(axis=1).clip(max=ANSWERS - 1)
            answers |= dict(zip(request.ids.tolist(), picked.tolist(), strict=True))
            allocator.tell(request.ids, picked == 0)
        groups = allocator.groups()
        for prompt, slot in zip(*np.nonzero(groups.mask), strict=True):
            score = -chance[prompt]
            score[answers[int(groups.ids[prompt, slot])]] += 1
            logits[prompt] += 0.5 * groups.advantages[prompt, slot] * score / each.n
        spent += int(allocator.metrics()["responses"])
        step += 1
    print(f"{each.label}: pass rate {chance[:, 0].mean():.3f} after {step} steps and {spent:,} responses")
