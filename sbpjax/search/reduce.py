"""Exact reductions: options that can never pay and nodes whose best answer is known are taken out.

Every step keeps the least cost (within the memory rows) and leaves a record by which a choice for what is left becomes
a choice for all. Options go when they are forbidden or when another option is never worse; nodes go when they have one
option, one or two neighbours, or when a neighbour's option determines theirs ("the same placement").
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple, Protocol

import numpy as np

from sbpjax.search.network import NO_USAGE, Network
from sbpjax.search.pool import Floats, Indices, Pool

ROUNDS = 12


class Contradiction(Exception):
    """A node was left without options: the tables alone forbid every choice."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


class Step(Protocol):
    """A record of one reduction."""

    def restore(self, pool: Pool, choice: MutableMapping[int, int]) -> None:
        """Extend a choice for what the reduction left to what it met."""
        ...


class Restricted(NamedTuple):
    """A node kept only the options `keep`."""

    node: int
    keep: Indices

    def restore(self, pool: Pool, choice: MutableMapping[int, int]) -> None:  # noqa: D102
        choice[self.node] = int(self.keep[choice[self.node]])


class Fixed(NamedTuple):
    """A node's option did not depend on the rest."""

    node: int
    option: int

    def restore(self, pool: Pool, choice: MutableMapping[int, int]) -> None:  # noqa: D102
        choice[self.node] = self.option


class Leaf(NamedTuple):
    """A node with one neighbour; `table` has the neighbour's options as rows."""

    node: int
    neighbour: int
    table: int
    vector: int

    def restore(self, pool: Pool, choice: MutableMapping[int, int]) -> None:  # noqa: D102
        choice[self.node] = int(pool.leaf_choice(self.table, self.vector)[choice[self.neighbour]])


class Between(NamedTuple):
    """A node with two neighbours: tables left × node and node × right."""

    node: int
    left: int
    right: int
    first: int
    vector: int
    second: int

    def restore(self, pool: Pool, choice: MutableMapping[int, int]) -> None:  # noqa: D102
        before = pool.entries(self.first)[choice[self.left]]
        after = pool.entries(self.second)[:, choice[self.right]]
        choice[self.node] = int((before + pool.values(self.vector) + after).argmin())


class Determined(NamedTuple):
    """A node whose option is a function of a neighbour's."""

    node: int
    neighbour: int
    function: Indices

    def restore(self, pool: Pool, choice: MutableMapping[int, int]) -> None:  # noqa: D102
        choice[self.node] = int(self.function[choice[self.neighbour]])


def reduce(network: Network) -> list[Step]:
    """Shrink a network in place, and return the steps in the order they were taken.

    Raises:
        Contradiction: no choice has a finite cost.
    """
    steps: list[Step] = []
    for _ in range(ROUNDS):
        before = len(steps)
        _prune(network, steps)
        _eliminate(network, steps)
        if len(steps) == before:
            break
    return steps


def restore(pool: Pool, steps: list[Step], choice: MutableMapping[int, int]) -> None:
    """Extend a choice for the reduced network, in place, to the nodes and options before the steps."""
    for step in reversed(steps):
        step.restore(pool, choice)


def restrict(network: Network, node: int, keep: Indices) -> Restricted:
    """Leave a node only the options `keep`."""
    pool = network.pool
    network.costs[node] = pool.kept(network.costs[node], keep)
    if network.usages[node] != NO_USAGE:
        network.usages[node] = pool.kept(network.usages[node], keep)
    for other, table in network.links[node].items():
        table = pool.rows_kept(table, keep)
        network.links[node][other] = table
        network.links[other][node] = table ^ 1
    return Restricted(node, keep)


def _prune(network: Network, steps: list[Step]) -> None:
    """Drop forbidden and dominated options, all nodes at once in each round, so that repeated layers stay alike."""
    pool = network.pool
    verdicts: dict[tuple, Indices | None] = {}
    dirty = set(network.costs)
    for _ in range(ROUNDS):
        drops: dict[int, Indices] = {}
        for node in sorted(dirty):
            tables = sorted(network.links[node].values())
            key = (network.costs[node], network.usages[node], *tables)
            if key not in verdicts:
                verdicts[key] = _worth_keeping(pool, network.costs[node], network.usages[node], tables)
            keep = verdicts[key]
            if keep is not None:
                if not len(keep):
                    raise Contradiction(node)
                drops[node] = keep
        if not drops:
            return
        dirty = set()
        for node, keep in drops.items():
            steps.append(restrict(network, node, keep))
            dirty |= {node, *network.links[node]}


def _worth_keeping(pool: Pool, vector: int, usage: int, tables: list[int]) -> Indices | None:
    """The options of a node that may be of use, or None when all may."""
    cost = pool.values(vector)
    allowed = np.isfinite(cost)
    for table in tables:
        allowed &= pool.possible(table)
    if not allowed.all():
        return np.flatnonzero(allowed)
    if len(cost) == 1:
        return None
    beats = _never_worse(pool, cost, usage, tables)
    np.fill_diagonal(beats, False)
    if not beats.any():
        return None
    kept = np.ones(len(cost), dtype=bool)
    for option in range(len(cost) - 1, -1, -1):
        kept[option] = not (beats[:, option] & kept).any()
    return np.flatnonzero(kept)


def _never_worse(pool: Pool, cost: Floats, usage: int, tables: list[int]) -> np.ndarray:
    """`[a, b]`: whether option a is at least as good as option b whatever the neighbours choose."""
    excess = cost[:, None] - cost
    for table in tables:
        rows, worst = pool.regret(table)
        excess = excess + worst[rows[:, None], rows]
    beats = excess <= 0
    if usage != NO_USAGE and beats.any():
        held = pool.values(usage)
        beats &= (held[:, :, None] <= held[:, None, :]).all(axis=0)
    return beats


def _eliminate(network: Network, steps: list[Step]) -> None:
    """Take nodes out, in order, until none can go."""
    dirty = set(network.costs)
    while dirty:
        now, dirty = sorted(dirty), set()
        for node in now:
            if node in network.costs:
                step = _eliminated(network, node, dirty)
                if step is not None:
                    steps.append(step)
        dirty = {node for node in dirty if node in network.costs}


def _eliminated(network: Network, node: int, dirty: set[int]) -> Step | None:
    """Take a node out (or merge a neighbour into it) if that is exact and makes the network smaller.

    Nodes that this concerns, and that may be able to go next, are added to `dirty`.
    """
    pool, links = network.pool, network.links[node]
    vector, usage = network.costs[node], network.usages[node]
    if network.options(node) == 1:
        dirty.update(links)
        for other, table in links.items():
            network.costs[other] = pool.sum(network.costs[other], pool.row(table, 0))
        if usage != NO_USAGE:
            network.limits = network.limits - pool.values(usage)[:, 0]
        return _fix(network, node, 0)
    for other, table in links.items():
        function = pool.function(table ^ 1)
        if function is None:
            continue
        back = pool.function(table)
        if back is not None and len(network.links[other]) < len(links):  # move the fewer tables
            dirty.update([node, *network.links[other]])
            return _contract(network, other, node, back)
        dirty.update(links)
        return _contract(network, node, other, function)
    if usage != NO_USAGE:
        return None
    if not links:
        return _fix(network, node, int(pool.values(vector).argmin()))
    if len(links) == 1:
        ((other, table),) = links.items()
        dirty.add(other)
        network.costs[other] = pool.sum(network.costs[other], pool.leaf(table ^ 1, vector))
        network.remove(node)
        return Leaf(node, other, table ^ 1, vector)
    if len(links) == 2 and (step := _bridge(network, node)) is not None:
        dirty.update([step.left, step.right])
        return step
    return None


def _fix(network: Network, node: int, option: int) -> Step:
    """Take a node out whose option no longer matters to others."""
    seconds = float(network.pool.values(network.costs[node])[option])
    if seconds == np.inf:
        raise Contradiction(node)
    network.constant += seconds
    network.remove(node)
    return Fixed(node, option)


def _contract(network: Network, node: int, other: int, function: Indices) -> Step:
    """Merge a node into the neighbour that determines it."""
    pool = network.pool
    table = network.links[node][other] ^ 1
    toll = pool.vector(pool.entries(table)[np.arange(len(function)), function])
    network.costs[other] = pool.sum(network.costs[other], toll)
    network.costs[other] = pool.sum(network.costs[other], pool.kept(network.costs[node], function))
    if network.usages[node] != NO_USAGE:
        mine, theirs = pool.kept(network.usages[node], function), network.usages[other]
        network.usages[other] = mine if theirs == NO_USAGE else pool.sum(mine, theirs)
    onward = [(far, pool.rows_kept(t, function)) for far, t in network.links[node].items() if far != other]
    network.remove(node)
    for far, onward_table in onward:
        network.connect(other, far, onward_table)
    return Determined(node, other, function)


def _bridge(network: Network, node: int) -> Between | None:
    """Replace a node of two neighbours by a table between them, unless that table is larger than what it replaces."""
    pool = network.pool
    (left, to_left), (right, to_right) = sorted(network.links[node].items())
    first, vector, second = to_left ^ 1, network.costs[node], to_right
    bridge = pool.through(first, vector, second)
    old = pool.extent(first) + pool.extent(second) + network.options(node)
    existing = network.links[left].get(right)
    if existing is None:
        new = pool.extent(bridge)
    else:
        old += pool.extent(existing)
        new = pool.extent(pool.table_sum(existing, bridge))
    if new > old:
        return None
    network.remove(node)
    network.connect(left, right, bridge)
    return Between(node, left, right, first, vector, second)
