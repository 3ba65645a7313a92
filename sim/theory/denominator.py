"""What a denominator that depends on the batch does to the gradient weight: token means, and groups without signal.

`docs/theory.md` has the statements and the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.errors import InputError, check_count, check_number, check_pass_rates
from ada_bandit.exact import check_has_paths
from ada_bandit.lattice import binomial_rows, diagonal
from ada_bandit.laws import Law
from ada_bandit.policy import Policy

__all__ = ["batch_factor", "first_order", "leaving_out_cost", "leaving_out_factor"]


@dataclass(frozen=True, eq=False)
class _Exits:
    """The exits of a policy, of which only what enters a step counts."""

    pass_rates: FloatArray
    shares: FloatArray
    """`[pass_rate, exit]` What an exit adds to w(p)."""
    chance: FloatArray
    """`[exit]` Its chance under the law."""
    tokens: IntArray
    """`[exit]` Tokens of its kept responses."""
    counted: IntArray
    """`[exit]` Those that count in the denominator."""

    @property
    def mean(self) -> float:
        """Mean tokens of a prompt's kept responses."""
        return float(self.chance @ self.tokens)


def _exits(policy: Policy, law: Law, pass_rates: npt.ArrayLike, tokens: tuple[int, int], *, leave_out: bool) -> _Exits:
    rates = check_pass_rates(pass_rates).ravel()
    if ((rates <= 0) | (rates >= 1)).any():
        msg = f"pass_rates must lie inside (0, 1); got {pass_rates!r}"
        raise InputError(msg)
    lengths = tuple(check_count("tokens", value) for value in tokens)
    tables = check_has_paths(policy).tables
    parts = []
    for total, row in enumerate(binomial_rows(rates, tables.max_samples)):
        reach = diagonal(np.where(tables.exits, tables.reach, 0.0), total)
        for split in tables.splits():
            pos, neg = (diagonal(counts, total) for counts in (split.keep_pos, split.keep_neg))
            share = reach * diagonal(np.broadcast_to(split.chance, tables.reach.shape), total)
            gains = [diagonal(keep * adv, total) for keep, adv in ((split.keep_pos, split.adv_pos),
                                                                   (split.keep_neg, split.adv_neg))]  # fmt: skip
            gain = gains[0] / rates[:, None] - gains[1] / (1 - rates[:, None])
            counts = diagonal((split.adv_pos != 0) | (split.adv_neg != 0) | (not leave_out), total)
            length = lengths[0] * pos + lengths[1] * neg
            added = row.T * share * gain / tables.group_size
            parts.append((added, share * law.predictive(total), length, length * counts))
    shares, chance, length, counted = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    seen = chance > 0
    return _Exits(rates, shares[:, seen], chance[seen], length[seen].astype(np.int64), counted[seen].astype(np.int64))


def batch_factor(
    policy: Policy,
    law: Law,
    prompts: int,
    pass_rates: npt.ArrayLike,
    *,
    tokens: tuple[int, int] = (1, 1),
    leave_out: bool = False,
) -> FloatArray:
    """Return by what factor w(p) changes as a step is divided by its own tokens, and not by their mean; exactly.

    Parameters
    ----------
    policy
        The policy. Its other prompts of the step are independent and come from `law`.
    law
        The law of p.
    prompts
        B, prompts of a step.
    pass_rates
        Where the weight is looked at, inside (0, 1) and of the law's support.
    tokens
        Length of a correct and of an incorrect response, in any unit; (1, 1) is a mean over rows.
    leave_out
        Whether groups without signal are left out of the denominator.

    Returns
    -------
    FloatArray
        ``[pass_rate]``; w(p) of the step over w(p) with the mean denominator of all groups.

    Raises
    ------
    InputError
        If an argument can't be used.
    """
    exits = _exits(policy, law, pass_rates, tokens, leave_out=leave_out)
    others = _sum_law(
        np.asarray(np.bincount(exits.counted, exits.chance), dtype=np.float64), check_count("prompts", prompts) - 1
    )
    total = exits.counted[:, None] + np.arange(others.size)
    inverse = np.divide(1.0, total, out=np.zeros(total.shape), where=total > 0) @ others
    return np.asarray(prompts * exits.mean * (exits.shares @ inverse) / exits.shares.sum(axis=1))


def first_order(
    policy: Policy, law: Law, prompts: int, pass_rates: npt.ArrayLike, *, tokens: tuple[int, int] = (1, 1)
) -> FloatArray:
    """Return `batch_factor` to the order 1 / B: 1 + v / (B m^2) - (tau(p) - m) / (B m).

    m and v are mean and variance of a prompt's tokens, tau(p) their mean weighted by what they add to w(p).
    """
    exits = _exits(policy, law, pass_rates, tokens, leave_out=False)
    mean = exits.mean
    variance = float(exits.chance @ (exits.tokens - mean) ** 2)
    weighted = exits.shares @ exits.tokens / exits.shares.sum(axis=1)
    return np.asarray(1 + (variance / mean**2 - (weighted / mean - 1)) / check_count("prompts", prompts))


def _sum_law(law: FloatArray, terms: int) -> FloatArray:
    """Return the law of a sum of independent counts, by squaring."""
    result, power = np.ones(1), law
    while terms:
        if terms & 1:
            result = np.convolve(result, power)
        terms >>= 1
        power = np.convolve(power, power) if terms else power
    return result


def leaving_out_factor(signal: float, prompts: int) -> float:
    """Return (1 - (1 - s)^B) / s: what leaving out groups without signal multiplies every w(p) by."""
    s = check_number("signal", signal, 0, 1)
    return (
        -float(np.expm1(check_count("prompts", prompts) * np.log1p(-s))) / s
        if 0 < s < 1
        else float(prompts if not s else 1)
    )


def leaving_out_cost(signal: float, prompts: int) -> float:
    """Return the efficiency with such groups in the denominator over that without them, where noise dominates.

    B s E[1 / G; G >= 1] / P(G >= 1)^2 with G the groups with signal, binomial; never below 1.
    """
    s = check_number("signal", signal, 0, 1)
    law = list(binomial_rows(np.array([s]), check_count("prompts", prompts)))[-1][1:, 0]
    return float(prompts * s * (law / np.arange(1, prompts + 1)).sum() / law.sum() ** 2)
