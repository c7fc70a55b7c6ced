"""Message passing: a choice and a bound for networks whose linear relaxation is too large for a simplex method.

Neighbours tell each other, option by option, what their side of the network would cost. Sequential tree-reweighted
message passing (TRW-S; Kolmogorov 2006) sends the messages forth and back along an order of the nodes, and each sweep
raises a bound on the dual of the same relaxation that `relax` solves. A sweep reads each entry of each table once,
whether there are ten or a hundred thousand of them. For train steps it mostly ends with a choice that costs what the
bound says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sbpjax.search.fold import Quotient
from sbpjax.search.network import Network
from sbpjax.search.pool import Floats, Indices

STALL = 30  # sweeps without progress after which no more is hoped for
PROGRESS = 1e-5  # of the bound, relatively
PROVEN = 1e-10  # a choice so near its bound is the best
FORBIDDEN = 10.0  # what stands for an infinite cost, in units of the costliest choice

Messages = Mapping[tuple[int, int], Floats]
"""(from, to): seconds that move from the table between two nodes to the options of the node `to`."""


@dataclass(frozen=True, eq=False)
class Passed:
    """What message passing led to.

    Attributes:
        choice: the best choice that was met; None when each was forbidden.
        bound_seconds: no choice costs less, whatever the memory rows.
        messages: those that prove the bound.
    """

    choice: dict[int, int] | None
    bound_seconds: float
    messages: Messages


def pass_messages(network: Network, sweeps: int, start: Passed | None = None) -> Passed:
    """Pass messages until the bound is met, or no longer rises, or so many sweeps were made.

    Args:
        network: its memory rows are ignored.
        sweeps: how many, at most; one at least.
        start: a choice and messages to begin with.
    """
    nodes = _posed(network, start.messages if start else {})
    choice = start.choice if start else None
    seconds = np.inf if choice is None else network.seconds(choice)
    bound, mark, marked, turn = -np.inf, 0.0, 0, 0
    for turn in range(2 * sweeps):
        total, picked = _sweep(nodes, turn % 2)
        bound = max(bound, network.constant + total)
        if (cost := network.seconds(picked)) < seconds:
            choice, seconds = picked, cost
        if bound > mark * (1 + PROGRESS):
            mark, marked = bound, turn
        if seconds <= bound * (1 + PROVEN) or turn - marked >= 2 * STALL:
            break
    return Passed(choice, min(bound, seconds), dict(_proof(nodes, turn % 2)))


def unfolded(passed: Passed, network: Network, fold: Quotient) -> Passed:
    """What was passed in the fold of a network (`folded`), for the network itself; its bound is still to be found."""
    class_of = dict(zip(fold.nodes, fold.classes.tolist(), strict=True))
    ends = [(a, b, (class_of[a], class_of[b])) for a in fold.nodes for b in network.links[a]]
    crossing = Counter(classes for _, _, classes in ends)
    messages = {
        (a, b): passed.messages[classes] / crossing[classes] for a, b, classes in ends if classes in passed.messages
    }
    choice = None if passed.choice is None else fold.unfolded(passed.choice)
    return Passed(choice, -np.inf, messages)


@dataclass(frozen=True, eq=False, slots=True)
class _Like:
    """Which options of a node a table does not tell apart.

    Attributes:
        of: the class of each option.
        order, starts: the options class by class, and where each class begins.
    """

    of: Indices
    order: Indices
    starts: Indices


@dataclass(eq=False, slots=True)
class _Link:
    """A table between two nodes: the earlier one is on side 0, the later one on side 1.

    Attributes:
        nodes: of each side.
        like: of each side.
        tables: for each side, the distinct entries with that side's classes as rows.
        messages: to each side.
        lent: the message to the side that sent last, less what that node lent to the table of its own costs.
    """

    nodes: tuple[_Node, _Node]
    like: tuple[_Like, _Like]
    tables: tuple[Floats, Floats]
    messages: list[Floats]
    lent: Floats

    def costs(self, side: int) -> Floats:
        """What the table costs each option of one side, given what the other side picked."""
        column = self.like[1 - side].of[self.nodes[1 - side].picked]
        return self.tables[side][:, column][self.like[side].of]

    def send(self, side: int, lent: Floats) -> float:
        """A message from one side, which lends the table some of its costs; returns what every pair costs at least."""
        like, other = self.like[side], self.like[1 - side]
        self.lent = self.messages[side] - lent
        least = np.minimum.reduceat(-self.lent[like.order], like.starts)
        message = (self.tables[1 - side] + least).min(axis=1)
        low = message.min()
        self.messages[1 - side] = (message - low)[other.of]
        return float(low)


@dataclass(eq=False, slots=True)
class _Node:
    """A node in its place: its number, its costs, its links to earlier and to later nodes, the option last picked."""

    number: int
    cost: Floats
    links: tuple[list[_Link], list[_Link]] = field(default_factory=lambda: ([], []))
    picked: int = 0


def _posed(network: Network, messages: Messages) -> list[_Node]:
    """The nodes in order, linked; infinite costs become finite ones that no choice would take."""
    pool = network.pool
    arrays = [pool.values(vector) for vector in network.costs.values()]
    pairs = [(a, b, pool.compressed(t)) for a in network.costs for b, t in network.links[a].items()]
    worst = sum(float(x.max(where=np.isfinite(x), initial=0.0)) for x in (*arrays, *(p[2].distinct for p in pairs)))
    forbidden = FORBIDDEN * max(worst, 1e-300)
    nodes = {n: _Node(n, np.minimum(x, forbidden)) for n, x in zip(network.costs, arrays, strict=True)}
    place = {n: i for i, n in enumerate(network.costs)}
    for a, b, table in pairs:
        if place[a] < place[b]:
            ends = nodes[a], nodes[b]
            like = _like(table.rows), _like(table.columns)
            entries = np.minimum(table.distinct, forbidden)
            to = [messages.get(way, np.zeros(len(end.cost))) for way, end in zip(((b, a), (a, b)), ends, strict=True)]
            link = _Link(ends, like, (entries, np.ascontiguousarray(entries.T)), to, to[0])
            ends[0].links[1].append(link)
            ends[1].links[0].append(link)
    return list(nodes.values())


def _like(classes: Indices) -> _Like:
    order = np.argsort(classes, kind="stable")
    return _Like(classes, order, np.searchsorted(classes[order], np.arange(classes.max() + 1)))


def _sweep(nodes: list[_Node], side: int) -> tuple[float, dict[int, int]]:
    """Send along all links: from side 0 forth, from side 1 back.

    Returns:
        A bound, without the network's constant, and a choice: each node picks what is best after those before it.
    """
    total = 0.0
    for node in reversed(nodes) if side else nodes:
        behind, ahead = node.links[side], node.links[1 - side]
        costs = node.cost + sum(link.messages[side] for link in ahead)
        node.picked = int((costs + sum(link.costs(1 - side) for link in behind)).argmin())
        costs = costs + sum(link.messages[1 - side] for link in behind)
        low = costs.min()
        total += float(low)
        # Lending each link an equal share counts no cost twice on any chain of links through the node.
        lent = (costs - low) / max(1, len(behind), len(ahead))
        for link in ahead:
            total += link.send(side, lent)
    return total, {node.number: node.picked for node in nodes}


def _proof(nodes: list[_Node], side: int) -> Iterable[tuple[tuple[int, int], Floats]]:
    """The messages at which the bound of the last sweep, from `side`, shows."""
    for node in nodes:
        for link in node.links[1 - side]:
            other = link.nodes[1 - side].number
            yield (other, node.number), link.lent
            yield (node.number, other), link.messages[1 - side]
