"""Repeated layers as one: colour refinement finds nodes that look alike as far as a few edges can see.

Two partitions come of it. Nodes of one class have the same cost, usage and kinds of edges; edges of one class have the
same table and ends that look alike a step less far. Averages over these classes satisfy a linear relaxation that is as
small as one layer and bounds the whole problem (`relax`). And giving all nodes of a class the same option makes a small
problem, whose answers are answers of the whole one (`folded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbpjax.search.network import NO_USAGE, Network
from sbpjax.search.pool import Indices


@dataclass(frozen=True, eq=False)
class Quotient:
    """Classes of nodes and of edges.

    Attributes:
        nodes: the nodes of the network, in order.
        classes: the class of each of them.
        members: how many nodes each class has.
        models: for each class, one node of it.
        tables: for each edge class, its table.
        sizes: how many edges each edge class has.
        parts: for each edge class, which node classes its edges join, and how many of them do.
    """

    nodes: list[int]
    classes: Indices
    members: Indices
    models: list[int]
    tables: list[int]
    sizes: list[int]
    parts: list[list[tuple[int, int, int]]]

    @property
    def whole(self) -> bool:
        """Whether nothing repeats."""
        return len(self.models) == len(self.nodes)

    def ends(self, kind: int, side: int) -> dict[int, int]:
        """The node classes found at one side of an edge class, and how many of its edges end in each."""
        found: dict[int, int] = {}
        for part in self.parts[kind]:
            found[part[side]] = found.get(part[side], 0) + part[2]
        return found

    def unfolded(self, choice: Sequence[int] | Mapping[int, int]) -> dict[int, int]:
        """A choice by class as a choice by node."""
        return {node: choice[c] for node, c in zip(self.nodes, self.classes.tolist(), strict=True)}


def quotient(network: Network, radius: int | None) -> Quotient:
    """Fold a network by what is seen within `radius` edges; None does not fold at all."""
    nodes = list(network.costs)
    place = {node: i for i, node in enumerate(nodes)}
    # Each edge once, in the orientation that its table is stored in.
    edges = [(place[a], place[b], t) for a in nodes for b, t in network.links[a].items() if not t & 1]
    source, target, table = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    if radius is None:
        coarse = fine = np.arange(len(nodes))
    else:
        coarse, fine = _refined(network, nodes, source, target, table, radius)
    members = np.bincount(fine)
    models = [0] * len(members)
    for node, c in zip(reversed(nodes), reversed(fine), strict=True):
        models[c] = node
    keys = np.stack([table, coarse[source], coarse[target]], axis=1)
    kinds, kind = np.unique(keys, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    sizes = np.bincount(kind, minlength=len(kinds))
    parts: list[list[tuple[int, int, int]]] = [[] for _ in kinds]
    joined, times = np.unique(np.stack([kind, fine[source], fine[target]], axis=1), axis=0, return_counts=True)
    for (k, a, b), count in zip(joined.tolist(), times.tolist(), strict=True):
        parts[k].append((a, b, count))
    return Quotient(nodes, fine, members, models, kinds[:, 0].tolist(), sizes.tolist(), parts)


def _refined(
    network: Network,
    nodes: list[int],
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    table: NDArray[np.int64],
    radius: int,
) -> tuple[Indices, Indices]:
    """Colours after `radius - 1` and `radius` rounds."""
    looks = [[network.costs[n], network.usages[n], network.kinds[n]] for n in nodes]
    first = np.array(looks, dtype=np.int64).reshape(-1, 3)
    colour = _numbered(first)
    coarse = colour
    here, there = np.concatenate([source, target]), np.concatenate([target, source])
    label = np.concatenate([table, table + 1])
    for _ in range(radius):
        coarse = colour
        edge_colour = _numbered(np.stack([label, colour[there]], axis=1))
        around = np.zeros(len(nodes), dtype=np.uint64)
        np.add.at(around, here, _mixed(edge_colour.astype(np.uint64)))  # a sum, so that order is of no account
        colour = _numbered(np.stack([colour, around.view(np.int64)], axis=1))
    return coarse, colour


def _numbered(rows: NDArray[np.int64]) -> Indices:
    """Distinct rows as consecutive numbers."""
    if not len(rows):
        return np.zeros(0, dtype=np.intp)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread small numbers over 64 bits (splitmix64), so that sums of different multisets differ."""
    z = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def folded(network: Network, fold: Quotient) -> Network:
    """The problem in which all nodes of a class choose alike; its nodes are the class numbers."""
    pool = network.pool
    costs, usages = {}, {}
    for c, model in enumerate(fold.models):
        count = float(fold.members[c])
        costs[c] = pool.vector(pool.values(network.costs[model]) * count)
        usage = network.usages[model]
        usages[c] = usage if usage == NO_USAGE else pool.usage(pool.values(usage) * count)
    kinds = [network.kinds[model] for model in fold.models]
    small = Network(pool, costs, {c: {} for c in costs}, usages, network.limits.copy(), kinds, network.constant)
    for table, parts in zip(fold.tables, fold.parts, strict=True):
        for a, b, count in parts:
            weighted = pool.scaled(table, float(count))
            if a == b:
                small.costs[a] = pool.sum(small.costs[a], pool.vector(np.diagonal(pool.entries(weighted))))
            else:
                small.connect(a, b, weighted)
    return small
