"""The search problem while it is being made: nodes with placements, and priced edges between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from sbpjax.boxing import table
from sbpjax.cluster import Links
from sbpjax.cost.exposure import INSIDE_NODE, Purpose, exposed_share
from sbpjax.program.graph import Tensor
from sbpjax.sbp import Placement
from sbpjax.search.problem import Edge, Problem, Usage


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A node seen as the holder of one tensor.

    Attributes:
        node: its index.
        placements: the tensor's placement for each option of the node.
    """

    node: int
    placements: tuple[Placement, ...]

    def lifted(self) -> Holder:
        """The same node as the holder of the stack of its tensors."""
        return Holder(self.node, tuple(p.lifted() for p in self.placements))


@dataclass(eq=False)
class Draft:
    """A problem under construction. Equal tables are built once and shared by all edges that have them."""

    links: Links
    node_seconds: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    tables: list[np.ndarray] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    _table_of: dict[tuple, int] = field(default_factory=dict)
    _placement_ids: dict[tuple[Placement, ...], int] = field(default_factory=dict)
    _kind_numbers: dict[object, int] = field(default_factory=dict)

    @cached_property
    def mesh_key(self) -> tuple[tuple[str, int], ...]:
        """The mesh, hashable."""
        return tuple(self.links.mesh.items())

    def node(self, seconds: np.ndarray, name: str, kind: object) -> int:
        """Add a node; nodes of unlike kinds are never folded together."""
        self.node_seconds.append(seconds)
        self.names.append(name)
        # Python's hash of strings differs between processes: number the kinds as they come.
        self.kinds.append(self._kind_numbers.setdefault(kind, len(self._kind_numbers)))
        return len(self.node_seconds) - 1

    def connect(self, source: Holder, target: Holder, tensor: Tensor, purpose: Purpose, weight: float) -> None:
        """Price the boxing of a tensor from what one node holds to what another asks for, `weight` times a step."""
        rows, columns = self._placements_id(source.placements), self._placements_id(target.placements)
        key = (rows, columns, tensor.shape, tensor.itemsize, purpose)
        index = self._table_of.get(key)
        if index is None:
            index = self._table_of[key] = len(self.tables)
            self.tables.append(self._table(source.placements, target.placements, tensor, purpose))
        if source.node == target.node:
            self.node_seconds[source.node] = self.node_seconds[source.node] + weight * np.diagonal(self.tables[index])
        else:
            self.edges.append(Edge(source.node, target.node, index, weight))

    def occupy(self, node: int, first: int, last: int, bytes_of_options: np.ndarray) -> None:
        """Bytes that the node holds from one moment to another."""
        if bytes_of_options.any():
            self.usages.append(Usage(node, first, last, bytes_of_options))

    def finish(self) -> Problem:
        """The problem, without a limit, to be handed to a solver."""
        return Problem(self.node_seconds, self.edges, self.tables, self.usages, None, self.names, self.kinds)

    def _placements_id(self, placements: tuple[Placement, ...]) -> int:
        return self._placement_ids.setdefault(placements, len(self._placement_ids))

    def _table(
        self, sources: Sequence[Placement], targets: Sequence[Placement], tensor: Tensor, purpose: Purpose
    ) -> np.ndarray:
        rows, row_of = _distinct(sources)
        columns, column_of = _distinct(targets)
        prices = table(rows, columns, tensor.shape, tensor.itemsize, self.links, self._shares[purpose])
        return prices[np.ix_(row_of, column_of)]

    @cached_property
    def _shares(self) -> dict[Purpose, Callable[[tuple[str, ...]], float]]:
        return {purpose: partial(exposed_share, purpose, links=self.links) for purpose in INSIDE_NODE}


def _distinct(placements: Sequence[Placement]) -> tuple[list[Placement], list[int]]:
    numbers: dict[Placement, int] = {}
    of = [numbers.setdefault(p, len(numbers)) for p in placements]
    return list(numbers), of
