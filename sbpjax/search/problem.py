"""The search problem, as any solver may be handed it: options, node and edge seconds, live bytes, a limit.

Choose one option for each node. The cost is the sum of the chosen options' seconds and, for each edge, the seconds that
its table gives for the two options at its ends. At each moment the bytes of the live nodes' options must not exceed the
limit. An infinite entry forbids an option or a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Edge:
    """A table of seconds between two nodes: rows are the options of `source`, columns those of `target`.

    Attributes:
        source, target: node indices (different).
        table: index into `Problem.tables`. Edges of repeated layers share tables.
        weight: the table's entries count this many times (loop trips).
    """

    source: int
    target: int
    table: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes that a node occupies during the moments `first` to `last`, both included, for each of its options."""

    node: int
    first: int
    last: int
    bytes: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Nodes with options, tables between them, and a memory limit.

    Attributes:
        node_seconds: for each node, seconds of each option.
        edges: pairs of nodes whose options cost something together; several edges may join the same pair.
        tables: the distinct tables.
        usages: who occupies memory when; a node may have several.
        limit_bytes: the most that may be live at any moment, or None.
        names: what each node stands for, for messages; empty when unknown.
        kinds: an integer per node; nodes with different kinds are never taken for repetitions of each other.
    """

    node_seconds: Sequence[NDArray[np.float64]]
    edges: Sequence[Edge]
    tables: Sequence[NDArray[np.float64]]
    usages: Sequence[Usage] = ()
    limit_bytes: float | None = None
    names: Sequence[str] = ()
    kinds: Sequence[int] = field(default=())

    def seconds(self, choice: Sequence[int] | NDArray[np.int64]) -> float:
        """The cost of choosing option `choice[v]` for each node `v`."""
        total = sum(float(cost[o]) for cost, o in zip(self.node_seconds, choice, strict=True))
        return total + sum(
            e.weight * float(self.tables[e.table][choice[e.source], choice[e.target]]) for e in self.edges
        )

    def live_bytes(self, choice: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        """Bytes that are live at each moment."""
        if not self.usages:
            return np.zeros(1)
        change = np.zeros(max(u.last for u in self.usages) + 2)
        for u in self.usages:
            change[u.first] += u.bytes[choice[u.node]]
            change[u.last + 1] -= u.bytes[choice[u.node]]
        return np.cumsum(change)[:-1]


@dataclass(frozen=True, eq=False)
class Solution:
    """An answer and how good it is known to be.

    Attributes:
        choice: the option of each node.
        seconds: its cost.
        bound_seconds: no choice that keeps the limit costs less.
        peak_bytes: the most that is live at any moment.
        method: how it was found, for the report: `"exact (linear relaxation, integral)"`.
        cut: whether a wall-clock limit, rather than the budget of iterations, ended the search.
    """

    choice: NDArray[np.int64]
    seconds: float
    bound_seconds: float
    peak_bytes: float
    method: str
    cut: bool = False


class Infeasible(Exception):
    """No choice keeps the limit.

    Attributes:
        least_bytes: no choice has a smaller peak; None when the tables alone forbid every choice.
        moment: where that peak lies.
        conflict: nodes whose options contradict each other, when tables alone forbid every choice.
        proven: False when the search merely found no choice that keeps the limit: `least_bytes` is then below it.
    """

    def __init__(
        self, least_bytes: float | None, moment: int = 0, conflict: Sequence[int] = (), *, proven: bool = True
    ) -> None:
        super().__init__("contradicting pins" if least_bytes is None else f"at least {least_bytes} bytes are needed")
        self.least_bytes = least_bytes
        self.moment = moment
        self.conflict = tuple(conflict)
        self.proven = proven
