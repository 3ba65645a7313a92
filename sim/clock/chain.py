"""The way of a prompt through its rounds, as a Markov chain over cells.

Given the responses so far, p has a posterior, and the next round holds j positives with the
posterior's predictive chance. How long the responses took says nothing further of p, so the chain
over cells, with lengths that depend on the classes of a round alone, is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ada_bandit._types import FloatArray, IntArray
from ada_bandit.exact import check_has_paths
from ada_bandit.lattice import log_factorials
from ada_bandit.laws import Law
from ada_bandit.policy import AnyPolicy
from ada_bandit.tables import Tables

__all__ = ["Chain", "chain_of"]


@dataclass(frozen=True, eq=False)
class Chain:
    """Cells at which a prompt draws a round, and what the rounds come to."""

    size: IntArray
    """`[node]` Responses of the round."""
    root: FloatArray
    """`[node]` Chance that a prompt begins here."""
    pairs: IntArray
    """`[pair, class]` Every (positives, negatives) that a round can hold."""
    node: IntArray
    """`[edge]` Node whose round it is."""
    pair: IntArray
    """`[edge]` What the round holds."""
    chance: FloatArray
    """`[edge]` Chance of that, given the node."""
    target: IntArray
    """`[edge]` Next node; -1 where the prompt exits."""
    tokens_kept: FloatArray
    """`[class]` Mean kept responses of a prompt in the loss, by class."""
    rows: float
    """Mean rows of a prompt in the loss."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.size.size)

    @cached_property
    def positives(self) -> FloatArray:
        """`[node]` Mean positives of the round."""
        held = self.chance * self.pairs[self.pair, 0]
        return np.asarray(np.bincount(self.node, weights=held, minlength=self.nodes), dtype=np.float64)

    @cached_property
    def visits(self) -> FloatArray:
        """`[round, node]` Chance that a prompt draws its round of this number at the node."""
        going = self.target >= 0
        found, here = [], self.root
        while here.any():
            found.append(here)
            flow = here[self.node[going]] * self.chance[going]
            here = np.asarray(np.bincount(self.target[going], weights=flow, minlength=self.nodes), dtype=np.float64)
        return np.array(found)


def chain_of(policy: AnyPolicy, law: Law) -> Chain:
    """Return the chain of a policy under a law of pass rates; of a blend, both parts side by side.

    Raises
    ------
    InputError
        If the policy shares a budget across the batch.
    """
    check_has_paths(policy)
    parts = [(share, each.tables) for share, each in policy.parts if share > 0]
    logs = {tables.max_samples: _log_evidence(law, tables.max_samples) for _, tables in parts}
    pairs: dict[tuple[int, int], int] = {}
    columns: list[tuple[FloatArray | IntArray, ...]] = []
    sizes, roots, kept, rows, offset = [], [], np.zeros(2), 0.0, 0
    for share, tables in parts:
        evidence = logs[tables.max_samples]
        size, edges = _edges(tables, evidence, pairs, offset)
        columns.append(edges)
        sizes.append(size)
        roots.append(share * (np.arange(size.size) == 0))
        offset += size.size
        pos, neg = np.nonzero(tables.exits)
        factors = log_factorials(tables.max_samples)
        choose = (factors[pos + neg] - factors[pos] - factors[neg]).astype(np.float64)
        mass = share * tables.reach[pos, neg] * np.exp(choose + evidence[pos, neg])
        rows += float(mass @ tables.rows_in_loss[pos, neg])
        counts = ~tables.silent if tables.no_signal == "leave_out" else np.ones(tables.silent.shape, dtype=bool)
        for which, keep in enumerate((tables.keep_pos, tables.keep_neg)):
            mean = tables.chance * keep * counts
            kept[which] += mass @ (mean.sum(axis=0) if tables.random_split else mean)[pos, neg]
    node, pair, chance, target = (np.concatenate(part) for part in zip(*columns, strict=True))
    return Chain(
        np.concatenate(sizes), np.concatenate(roots), np.array(list(pairs)), node.astype(np.int64),
        pair.astype(np.int64), chance, target.astype(np.int64), kept, rows,
    )  # fmt: skip


def _log_evidence(law: Law, most: int) -> FloatArray:
    """Return log E[p^pos q^neg] at every cell of at most that many responses, ``[pos, neg]``."""
    pos, neg = np.indices((most + 1,) * 2)
    inside = pos + neg <= most
    table = np.full(pos.shape, -np.inf)
    table[inside] = law.log_evidence(pos[inside], neg[inside])
    return table


def _edges(
    tables: Tables, evidence: FloatArray, pairs: dict[tuple[int, int], int], offset: int
) -> tuple[IntArray, tuple[IntArray, IntArray, FloatArray, IntArray]]:
    """Return the round sizes of the nodes, and node, pair, chance and target of every edge.

    `pairs` gets what the rounds hold; nodes are numbered from `offset` on.
    """
    going = (tables.draws > 0) & (tables.reach > 0) & np.isfinite(evidence)
    pos, neg = np.nonzero(going)
    # By responses drawn: the empty cell comes first, and a chain only goes forward.
    order = np.argsort(pos + neg, kind="stable")
    pos, neg = pos[order], neg[order]
    number = np.full(tables.draws.shape, -1, dtype=np.int64)
    number[pos, neg] = offset + np.arange(pos.size)
    size = np.asarray(tables.draws[pos, neg], dtype=np.int64)
    node = np.repeat(np.arange(pos.size), size + 1)
    held = np.arange(node.size) - np.repeat(np.cumsum(size + 1) - size - 1, size + 1)
    missed = size[node] - held
    factors = log_factorials(int(size.max()))
    choose = (factors[size[node]] - factors[held] - factors[missed]).astype(np.float64)
    to_pos, to_neg = pos[node] + held, neg[node] + missed
    chance = np.exp(choose + evidence[to_pos, to_neg] - evidence[pos[node], neg[node]])
    seen = chance > 0
    pair = np.array(
        [pairs.setdefault(each, len(pairs)) for each in zip(held[seen].tolist(), missed[seen].tolist(), strict=True)],
        dtype=np.int64,
    )
    return size, (node[seen] + offset, pair, chance[seen], number[to_pos[seen], to_neg[seen]])
