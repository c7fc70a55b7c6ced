"""The search problem as a graph of pooled arrays, which reductions rewrite in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbpjax.search.pool import Pool
from sbpjax.search.problem import Problem

NO_USAGE = -1


@dataclass(eq=False)
class Network:
    """Nodes with a cost vector each, and at most one table between two nodes.

    Attributes:
        pool: the arrays.
        costs: node to vector, for the nodes that are left, in order.
        links: node to neighbour to table, oriented: rows are the node's options.
        usages: node to its bytes in each memory row, or NO_USAGE.
        limits: how many bytes each memory row has for the nodes that are left.
        kinds: of each node; only nodes of one kind are folded together.
        constant: seconds that every choice costs.
    """

    pool: Pool
    costs: dict[int, int]
    links: dict[int, dict[int, int]]
    usages: dict[int, int]
    limits: NDArray[np.float64]
    kinds: Sequence[int]
    constant: float = 0.0

    def options(self, node: int) -> int:
        """How many options a node has."""
        return len(self.pool.values(self.costs[node]))

    def connect(self, first: int, second: int, table: int) -> None:
        """Add a table between two different nodes to what is there."""
        if second in self.links[first]:
            table = self.pool.table_sum(self.links[first][second], table)
        self.links[first][second] = table
        self.links[second][first] = table ^ 1

    def remove(self, node: int) -> None:
        """Take a node and its tables out."""
        for other in self.links.pop(node):
            del self.links[other][node]
        del self.costs[node], self.usages[node]

    def copy(self) -> Network:
        """A network of its own over the same pool."""
        links = {node: dict(others) for node, others in self.links.items()}
        return Network(
            self.pool, dict(self.costs), links, dict(self.usages), self.limits.copy(), self.kinds, self.constant
        )

    def seconds(self, choice: Sequence[int] | NDArray[np.intp] | dict[int, int]) -> float:
        """The cost of a choice, indexed by node."""
        total = self.constant + sum(float(self.pool.values(v)[choice[node]]) for node, v in self.costs.items())
        for node, others in self.links.items():
            for other, table in others.items():
                if node < other:
                    total += float(self.pool.entries(table)[choice[node], choice[other]])
        return total

    def excess(self, choice: Sequence[int] | NDArray[np.intp] | dict[int, int]) -> NDArray[np.float64]:
        """By how many bytes a choice exceeds each memory row (negative: room left)."""
        over = -self.limits
        for node, usage in self.usages.items():
            if usage != NO_USAGE:
                over = over + self.pool.values(usage)[:, choice[node]]
        return over


def network_of(problem: Problem, moments: Sequence[int] = (), limit_bytes: float = np.inf) -> Network:
    """Pose a problem, with a memory row for each of `moments`; the others are left out, for the caller to check."""
    pool = Pool()
    rows = np.asarray(moments, dtype=np.int64)
    bytes_at: dict[int, NDArray[np.float64]] = {}
    for use in problem.usages if len(rows) else ():
        live = (use.first <= rows) & (rows <= use.last)
        if live.any():
            mine = live[:, None] * np.asarray(use.bytes, dtype=np.float64)
            bytes_at[use.node] = bytes_at[use.node] + mine if use.node in bytes_at else mine
    limits = np.full(len(rows), float(limit_bytes))
    usages = {}
    for node in range(len(problem.node_seconds)):
        usages[node] = NO_USAGE
        if node in bytes_at:
            least = bytes_at[node].min(axis=1, keepdims=True)
            limits -= least[:, 0]  # what every option takes is no matter of choice
            if (bytes_at[node] != least).any():
                usages[node] = pool.usage(bytes_at[node] - least)
    vectors = _interned(pool.vector, problem.node_seconds)
    tables = _interned(pool.table, problem.tables)
    links: dict[int, dict[int, int]] = {node: {} for node in range(len(vectors))}
    kinds = tuple(problem.kinds) or (0,) * len(vectors)
    network = Network(pool, dict(enumerate(vectors)), links, usages, limits, kinds)
    for edge in problem.edges:
        network.connect(edge.source, edge.target, pool.scaled(tables[edge.table], edge.weight))
    return network


def _interned(intern, arrays: Sequence[NDArray[np.float64]]) -> list[int]:
    """Intern each array; one that stands there many times is looked at once."""
    known: dict[int, int] = {}
    for array in arrays:
        if id(array) not in known:
            known[id(array)] = intern(np.asarray(array, dtype=np.float64))
    return [known[id(array)] for array in arrays]
