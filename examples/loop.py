"""Reinforcement learning with an `Allocator`, the whole loop: `python examples/loop.py`, half a minute on a CPU.

A model of two layers with random weights is built here. It learns sums of two numbers below 100 from examples, until it
is right some of the time, and from then on from rewards alone. Needs transformers
(``pip install -e '.[sim]' --group llm``).

What is left out, next to a real trainer such as `llm`:

- Tokenizer, chat template, prompts and responses of different lengths: every text here has the same number of digits,
  so nothing is padded, and no response ends early.
- Clipping, old log-probabilities, several updates a step, mini-batches: each step is one update with the gradient of
  the weights that sampled, which is plain REINFORCE with a baseline. No KL term and no entropy bonus either.
- A fast sampler: `generate` of transformers, on the model itself.
- Verifiers that fail or take long: a response that can't be scored would be told as NaN.
- Checkpoints, logs, several processes, devices other than the CPU.
- A memory of pass rates from step to step, and policies that learn (`PassRateMemory`, `EmpiricalBayes`).
"""

import argparse

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ada_bandit import Allocator, Policy
from ada_bandit.uniforms import fold_seed

CHARACTERS = "0123456789+="
RESPONSE = 3  # digits of a sum


def encode(texts: list[str]) -> torch.Tensor:
    """Return the tokens of texts of one length, ``[text, position]``: a token is a character."""
    return torch.tensor([[CHARACTERS.index(character) for character in text] for text in texts])


def make_problems(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Return prompts such as ``47+05=`` and their answers, ``052``."""
    pairs = np.random.default_rng(seed).integers(100, size=(count, 2)).tolist()
    return [f"{a:02d}+{b:02d}=" for a, b in pairs], [f"{a + b:0{RESPONSE}d}" for a, b in pairs]


def make_model() -> Qwen2ForCausalLM:
    """Return a small model with random weights."""
    size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(CHARACTERS), num_key_value_heads=2, **size))


def response_logprobs(model: Qwen2ForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each response's tokens, ``[response, token]``, after the prompt before it."""
    # The logits at a position are of the token that follows it.
    logits = model(tokens).logits[:, -RESPONSE - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(-1, tokens[:, -RESPONSE:, None]).squeeze(-1)


def update(model: Qwen2ForCausalLM, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Take one step down a loss."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def sample(model: Qwen2ForCausalLM, prompts: list[str]) -> tuple[torch.Tensor, list[str]]:
    """Sample a response to each prompt; return the tokens of both, ``[response, position]``, and the response texts."""
    asked = encode(prompts)
    tokens = model.generate(
        asked, attention_mask=torch.ones_like(asked), do_sample=True, top_k=0, max_new_tokens=RESPONSE, pad_token_id=0
    )
    return tokens, ["".join(CHARACTERS[token] for token in row[-RESPONSE:]) for row in tokens.tolist()]


def pass_rate(model: Qwen2ForCausalLM, seed: int, count: int = 1000) -> float:
    """Return the share of right answers to new problems."""
    prompts, answers = make_problems(count, seed)
    return float(np.mean([text == answer for text, answer in zip(sample(model, prompts)[1], answers, strict=True)]))


def pretrain(model: Qwen2ForCausalLM, steps: int, seed: int) -> None:
    """Teach the answers by examples, for a while."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        prompts, answers = make_problems(256, fold_seed(seed, step))
        tokens = encode([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)])
        update(model, optimizer, -response_logprobs(model, tokens).mean())


def train(model: Qwen2ForCausalLM, policy: Policy, steps: int, prompts_per_step: int, seed: int) -> int:
    """Train on rewards; return the number of responses that it took."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    spent = 0
    for step in range(steps):
        prompts, answers = make_problems(prompts_per_step, fold_seed(seed, step))
        allocator = Allocator(policy, prompts=len(prompts), seed=fold_seed(seed, step))
        tokens_by_id: dict[int, torch.Tensor] = {}
        # Rounds: who gets more responses, and how many, depends on the rewards so far.
        while request := allocator.ask():
            tokens, texts = sample(model, [prompts[i] for i in request.prompts])
            rewards = [float(text == answers[i]) for i, text in zip(request.prompts, texts, strict=True)]
            allocator.tell(request.ids, rewards)
            tokens_by_id.update(zip(request.ids.tolist(), tokens, strict=True))
        spent += len(tokens_by_id)
        # The policy keeps a group of each prompt's responses, each with its advantage.
        groups = allocator.groups()
        used = groups.mask & (groups.advantages != 0)
        if used.any():
            tokens = torch.stack([tokens_by_id[id_] for id_ in groups.ids[used].tolist()])
            advantages = torch.tensor(groups.advantages[used], dtype=torch.float32)
            # The gradient of E[advantage * log-probability]: REINFORCE, the mean over tokens.
            update(model, optimizer, -(advantages[:, None] * response_logprobs(model, tokens)).mean())
        told = allocator.metrics()
        if step % 25 == 24:
            print(f"step {step + 1}: pass rate of the pool {told['pass_rate']:.3f}, responses so far {spent:,}")
    return spent


def main() -> None:
    """Pretrain, train, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="reinforce-ada-balance", help="name of a preset")
    parser.add_argument("--pretrain-steps", type=int, default=150, help="updates on examples")
    parser.add_argument("--steps", type=int, default=150, help="updates on rewards")
    parser.add_argument("--prompts", type=int, default=64, help="prompts of a step")
    parser.add_argument("--seed", type=int, default=0, help="seed of problems, weights and responses")
    options = parser.parse_args()

    torch.set_num_threads(1)  # more of them cost more than they bring on matrices of this size
    torch.manual_seed(options.seed)
    policy = Policy.preset(options.policy)
    model = make_model()
    seeds = [fold_seed(options.seed, part) for part in range(3)]
    pretrain(model, options.pretrain_steps, seeds[0])
    before = pass_rate(model, seeds[2])
    spent = train(model, policy, options.steps, options.prompts, seeds[1])
    after = pass_rate(model, seeds[2])
    print(f"{policy.label}: pass rate {before:.3f} before, {after:.3f} after {spent:,} responses")


if __name__ == "__main__":
    main()
