"""The update of the weights from a step's kept responses: PPO-clip in mini-batches, by AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from llm.config import RunConfig
from llm.distributed import World
from llm.errors import DivergedError
from llm.head import find_head
from llm.loss import Batch, collate, objective, token_statistics
from llm.types import KeptResponse

__all__ = ["Update"]

_SEEN = ("tokens", "loss", "entropy", "clip_fraction", "clip_low_fraction", "sampler_kl")


class Update:
    """The weights' update from a step's rows.

    Parameters
    ----------
    model
        The model.
    config
        The run.
    pad
        The tokenizer's pad token.
    device
        Where the model lives.
    world
        The processes that share the rows.
    """

    def __init__(self, model: Any, config: RunConfig, pad: int, device: str, world: World) -> None:
        import torch

        self.model, self.config, self.pad, self.device, self.world = model, config, pad, device, world
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        train = config.train
        self.head, why = find_head(model, train.head_tile)
        self.notes = (f"all logits of a micro-batch are held at once: {why}",) if self.head is None else ()
        """What is worth telling of how the update is made."""
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=train.learning_rate, betas=train.betas, weight_decay=train.weight_decay
        )

    def step(self, step: int, rows: list[KeptResponse], prompts: int) -> dict[str, float | None]:
        """Update the weights; return what was seen on the way.

        Parameters
        ----------
        step
            Number of the step, which sets the learning rate.
        rows
            The kept responses.
        prompts
            Prompts of the step; mini-batches are cut from them, in order.

        Notes
        -----
        The loss of a mini-batch is

            - (1 / sum of |o_i|) sum over its rows i and tokens t of [objective_it + entropy H_it]

        with |o_i| the tokens of a row (arXiv 2510.04996, eq. 3): the mean over tokens, whatever
        the row. Of a masked row the tokens count in the denominator and both terms are 0, so no
        forward pass is made for it. A mini-batch without a row that isn't masked is skipped.
        """
        import torch

        train = self.config.train
        rate = train.learning_rate * min(1.0, (step + 1) / max(train.warmup_steps, 1))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        parts = [
            [row for row in rows if first <= row.prompt < first + train.mini_batch]
            for first in range(0, prompts, train.mini_batch)
        ]
        # Without a row that has a gradient, not even the optimizer's momentum may move the weights.
        updates = [part for part in parts if not all(row.masked for row in part)] * train.epochs
        seen = torch.zeros(len(_SEEN), dtype=torch.float64)
        peak = torch.zeros(2, dtype=torch.float64)
        # Where the weights change only once, the first forward pass gives the old log-probabilities.
        old = self._old(parts) if len(updates) > 1 else {}
        norms = [self._update(step, part, old, seen, peak) for part in updates]
        seen = self.world.sum(seen)
        tokens = max(float(seen[0]), 1.0)
        means = {name: float(value) / tokens for name, value in zip(_SEEN[1:], seen[1:], strict=True)}
        denominator = sum(row.response.tokens.size for part in updates for row in part)
        means["loss"] = float(seen[1]) / max(denominator, 1)
        peak = torch.tensor(self.world.join(peak.tolist())).reshape(-1, 2).amax(0)
        nothing = not updates
        return {
            "updates": len(updates),
            "skipped_updates": (len(parts) * train.epochs) - len(updates),
            "learning_rate": rate,
            "loss_tokens": denominator,
            "grad_norm": None if nothing else float(np.mean(norms)),
            "ratio_max": None if nothing else float(peak[0]),
            "sampler_max_difference": None if nothing else float(peak[1]),
            **{name: None if nothing else value for name, value in means.items()},
        }

    def _micro(self, rows: Sequence[KeptResponse]) -> Iterator[list[KeptResponse]]:
        # Rows of one length together need the least padding, which counts.
        mine = sorted(rows, key=lambda row: len(row.prompt_tokens) + row.response.tokens.size)
        train, micro = self.config.train, list[KeptResponse]()
        before = after = 0
        for row in mine:
            prompt, response = len(row.prompt_tokens), row.response.tokens.size
            longest = max(before, prompt) + max(after, response)
            if micro and (len(micro) == train.micro_batch or (len(micro) + 1) * longest > train.micro_tokens):
                yield micro
                micro, before, after = [], 0, 0
            micro.append(row)
            before, after = max(before, prompt), max(after, response)
        if micro:
            yield micro

    def _mine(self, rows: Sequence[KeptResponse]) -> Sequence[KeptResponse]:
        return rows[self.world.rank :: self.world.size]

    def _statistics(self, batch: Batch, *, entropy: bool) -> tuple[Any, Any]:
        import torch

        kind = self.device.partition(":")[0]
        cast = torch.autocast(kind, torch.bfloat16) if self.config.model.autocast else nullcontext()
        with cast:
            return token_statistics(self.model, batch, self.config.sampler.temperature, entropy=entropy, head=self.head)

    def _old(self, parts: Sequence[Sequence[KeptResponse]]) -> dict[int, Any]:
        """Return the log-probabilities of this process's rows under the weights that the step starts with."""
        import torch

        old = {}
        mine = [row for part in parts for row in self._mine(_speaking(part))]
        with torch.no_grad():
            for micro in self._micro(mine):
                logprobs, _ = self._statistics(collate(micro, self.pad, self.device), entropy=False)
                for row, values in zip(micro, logprobs, strict=True):
                    old[id(row)] = values[: row.response.tokens.size].clone()
        return old

    def _update(self, step: int, part: list[KeptResponse], old: Mapping[int, Any], seen: Any, peak: Any) -> float:
        """Take one step of the optimizer; add sums over tokens to `seen` and maxima to `peak`; return the norm."""
        import torch

        self.backward(part, old, seen, peak)
        self.world.sum_gradients(self.parameters)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.train.grad_clip or math.inf)
        if not torch.isfinite(norm):
            msg = (
                f"the norm of the gradient is {float(norm)} in step {step}: the weights have diverged. Start a new run "
                f"with a smaller train.learning_rate (now {self.config.train.learning_rate:g}) or train.grad_clip, "
                "from the same model or from the latest checkpoint, which is a model directory; log.responses shows "
                "what was sampled"
            )
            raise DivergedError(msg)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def backward(self, part: list[KeptResponse], old: Mapping[int, Any], seen: Any, peak: Any) -> None:
        """Add the gradient of a mini-batch's loss, of this process's rows, to the parameters' gradients.

        Parameters
        ----------
        part
            The mini-batch, of all processes.
        old
            Log-probabilities of the step's first weights by the row's ``id``; where empty, the
            present weights are the first ones.
        seen, peak
            Sums over tokens (`_SEEN`), and the greatest ratio and difference to the sampler; added to.
        """
        import torch

        train = self.config.train
        denominator = sum(row.response.tokens.size for row in part)
        self.model.train(self.config.model.gradient_checkpointing)
        for micro in self._micro(self._mine(_speaking(part))):
            batch = collate(micro, self.pad, self.device)
            logprobs, entropy = self._statistics(batch, entropy=True)
            before = self._old_of(micro, old, logprobs)
            value, decided = objective(
                logprobs,
                before,
                batch.advantages,
                clip_low=train.clip_low,
                clip_high=train.clip_high,
                dual_clip=train.dual_clip,
            )
            total = value if train.entropy == 0 else value + train.entropy * entropy
            loss = -(total * batch.mask).sum() / denominator
            loss.backward()
            with torch.no_grad():
                self._watch(batch, logprobs, before, value, entropy, decided, seen, peak)
        self.model.eval()

    def _old_of(self, micro: Sequence[KeptResponse], old: Mapping[int, Any], logprobs: Any) -> Any:
        before = logprobs.detach().clone()
        if old:
            for i, row in enumerate(micro):
                before[i, : row.response.tokens.size] = old[id(row)]
        return before

    def _watch(
        self,
        batch: Batch,
        logprobs: Any,
        before: Any,
        value: Any,
        entropy: Any,
        decided: Any,
        seen: Any,
        peak: Any,
    ) -> None:
        import torch

        mask = batch.mask
        below = decided & (batch.advantages.unsqueeze(-1) < 0)
        gap = (batch.sampled - before) * mask
        # KL(sampler, trainer) by the estimator (r - 1) - log r of Schulman 2020, which is never negative.
        kl = torch.expm1(-gap) + gap
        sums = [mask, -value * mask, entropy * mask, decided * mask, below * mask, kl * mask]
        # MPS has no float64.
        seen += torch.stack([each.sum() for each in sums]).cpu().double()
        ratio = ((logprobs - before).exp() * mask).max()
        peak[0] = max(peak[0], ratio.cpu().double())
        peak[1] = max(peak[1], gap.abs().max().cpu().double())


def _speaking(rows: Sequence[KeptResponse]) -> list[KeptResponse]:
    """Return the rows that have more to say than how many tokens they hold."""
    return [row for row in rows if not row.masked]
