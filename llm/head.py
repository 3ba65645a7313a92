"""The output layer in tiles: log-probabilities and entropies of tokens without all of their logits at once.

All logits of a batch are the largest thing an update would hold: tokens x vocabulary numbers in float32,
several times over. Here a tile of them exists at a time. The backward pass computes each tile once more
and takes the gradient by hand: with z the logits, l = z - log sum exp z, p = exp l and the entropy H,

    d l_t / d z_j = [j = t] - p_j,    d H / d z_j = -p_j (l_j + H).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = ["Head", "find_head"]


@dataclass(frozen=True, eq=False)
class Head:
    """A model's output layer, and what comes before and after it."""

    base: Any
    """The model below it, which gives hidden states."""
    weight: Any
    """`[vocabulary, hidden]` Its weight, which may be the embedding's."""
    bias: Any
    """`[vocabulary]` Its bias, or None."""
    scale: float
    """What its outputs are multiplied by."""
    cap: float
    """Soft cap c of the scaled outputs, c tanh(z / c); infinite where there is none."""
    tile: int
    """Logits that exist at a time, at the most; one token's at the least."""

    def fits(self, tokens: int) -> bool:
        """Return whether all logits of so many tokens are no more than a tile."""
        return tokens * int(self.weight.shape[0]) <= self.tile

    def statistics(self, hidden: Any, targets: Any, temperature: float, *, entropy: bool) -> tuple[Any, Any]:
        """Return log-probability of a token and entropy at every hidden state, ``[token]`` each, in float32.

        Parameters
        ----------
        hidden
            ``[token, hidden]`` hidden states, from which the logits of the targets come.
        targets
            ``[token]`` the tokens.
        temperature
            What the logits are divided by.
        entropy
            Whether the entropy is wanted; None in its place else.
        """
        import torch

        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.weight.dtype
        settings = (self.scale, self.cap, temperature, max(self.tile // int(self.weight.shape[0]), 1), dtype, entropy)
        with torch.autocast(kind, enabled=False):
            logprobs, entropies = _tiles().apply(hidden, self.weight, self.bias, targets, settings)
        return logprobs, entropies if entropy else None

    def logits(self, hidden: Any) -> Any:
        """Return the logits of hidden states, ``[token, vocabulary]``: what `find_head` compares with the model's."""
        import torch

        return _capped(torch.nn.functional.linear(hidden, self.weight, self.bias).float() * self.scale, self.cap)


def find_head(model: Any, tile: int) -> tuple[Head | None, str]:
    """Return the output layer of a model, or None and the reason why its logits can't be had in tiles.

    A scale of the logits and a soft cap are read from the config of those models that have one. Whether
    that is all is tried: the logits of a few tokens must be those that the model itself gives.

    Parameters
    ----------
    model
        A causal language model.
    tile
        Logits that exist at a time, at the most.
    """
    import torch

    layer: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    base = getattr(model, "base_model", model)
    if type(layer) is not torch.nn.Linear or base is model:
        return None, f"the output layer of {type(model).__name__} is no plain linear layer on a base model"
    config = model.config
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    cap = float(getattr(config, "final_logit_softcapping", None) or math.inf)
    head = Head(base, layer.weight, layer.bias, scale, cap, tile)
    ids = torch.arange(min(8, len(layer.weight)), device=layer.weight.device)[None]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        wanted = model(input_ids=ids, use_cache=False).logits.float()
        ours = head.logits(base(input_ids=ids, use_cache=False).last_hidden_state)
    model.train(was_training)
    tolerance = max(32 * torch.finfo(layer.weight.dtype).eps, 1e-5)
    # Weights that are not finite give no logits to compare; the update tells of them.
    apart = float((ours - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6))
    if apart > tolerance:
        return None, f"{type(model).__name__} does more to its logits than scale and cap them"
    return head, ""


def _capped(scaled: Any, cap: float) -> Any:
    return scaled if cap == math.inf else cap * (scaled / cap).tanh()


@cache
def _tiles() -> Any:
    """Return the function with a backward pass of its own; made late, as torch takes seconds to import."""
    import torch

    linear = torch.nn.functional.linear

    class Tiles(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
        @staticmethod
        def forward(ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, settings: Any) -> tuple[Any, Any]:
            scale, cap, temperature, size, dtype, with_entropy = settings
            logprobs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
            totals, entropies = torch.empty_like(logprobs), torch.zeros_like(logprobs)
            weight_, bias_ = weight.to(dtype), None if bias is None else bias.to(dtype)
            for first in range(0, len(hidden), size):
                part = slice(first, first + size)
                z = _capped(linear(hidden[part].to(dtype), weight_, bias_).float().mul_(scale), cap).div_(temperature)
                most = z.amax(-1)
                z -= most[:, None]
                logprobs[part] = z.gather(-1, targets[part, None])[:, 0]
                e = z.exp() if with_entropy else z.exp_()
                total = e.sum(-1)
                log_total = total.log()
                logprobs[part] -= log_total
                totals[part] = most + log_total
                if with_entropy:
                    entropies[part] = log_total - e.mul_(z).sum(-1) / total
            ctx.save_for_backward(hidden, weight, bias, targets, totals, entropies)
            ctx.settings = settings
            return logprobs, entropies

        @staticmethod
        def backward(ctx: Any, by_logprob: Any, by_entropy: Any) -> tuple[Any, ...]:
            hidden, weight, bias, targets, totals, entropies = ctx.saved_tensors
            scale, cap, temperature, size, dtype, with_entropy = ctx.settings
            of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
            # Sums over tiles of bfloat16 gradients are kept in float32.
            sums = torch.promote_types(weight.dtype, torch.float32)
            of_weight = torch.zeros_like(weight, dtype=sums) if ctx.needs_input_grad[1] else None
            of_bias = torch.zeros_like(bias, dtype=sums) if bias is not None and ctx.needs_input_grad[2] else None
            weight_, bias_ = weight.to(dtype), None if bias is None else bias.to(dtype)
            for first in range(0, len(hidden), size):
                part = slice(first, first + size)
                rows = hidden[part].to(dtype)
                z = _capped(linear(rows, weight_, bias_).float().mul_(scale), cap)
                # Of c tanh(x / c) the derivative is 1 - tanh^2.
                slope = None if cap == math.inf else (z / cap).square_().neg_().add_(1)
                z = z.div_(temperature).sub_(totals[part, None])
                p = z.exp()
                outer = by_logprob[part, None]
                if with_entropy:
                    z.add_(entropies[part, None]).mul_(by_entropy[part, None]).add_(outer)
                    z.mul_(p).neg_()
                else:
                    z = p.mul_(-outer)
                z.scatter_add_(-1, targets[part, None], outer)
                z.mul_(scale / temperature)
                if slope is not None:
                    z.mul_(slope)
                by_logits = z.to(dtype)
                if of_hidden is not None:
                    of_hidden[part] = by_logits @ weight_
                if of_weight is not None:
                    if dtype == sums:
                        of_weight.addmm_(by_logits.T, rows)
                    else:
                        of_weight += by_logits.T @ rows
                if of_bias is not None:
                    of_bias += by_logits.sum(0)
            return (
                of_hidden,
                None if of_weight is None else of_weight.to(weight.dtype),
                None if of_bias is None else of_bias.to(bias.dtype),
                None,
                None,
            )

    return Tiles
