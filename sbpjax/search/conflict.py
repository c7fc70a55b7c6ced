"""Which nodes contradict each other when the tables alone forbid every choice."""

from __future__ import annotations

from dataclasses import replace

from sbpjax.search.exact import exact
from sbpjax.search.network import network_of
from sbpjax.search.problem import Problem
from sbpjax.search.reduce import Contradiction, reduce


def conflict(problem: Problem) -> tuple[int, ...]:
    """A set of nodes that no choice satisfies together, and of which none can be left out.

    Halves, quarters, ... of the nodes are left out for as long as the rest still contradicts itself.
    """
    suspects = list(range(len(problem.node_seconds)))
    size = max(1, len(suspects) // 2)
    while True:
        kept = 0
        while kept < len(suspects):
            without = suspects[:kept] + suspects[kept + size :]
            if _contradictory(problem, without):
                suspects = without
            else:
                kept += size
        if size == 1:
            return tuple(suspects)
        size = max(1, min(size // 2, len(suspects) // 2))


def _contradictory(problem: Problem, nodes: list[int]) -> bool:
    place = {node: i for i, node in enumerate(nodes)}
    edges = [
        replace(edge, source=place[edge.source], target=place[edge.target])
        for edge in problem.edges
        if edge.source in place and edge.target in place
    ]
    part = Problem([problem.node_seconds[node] for node in nodes], edges, problem.tables)
    network = network_of(part)
    try:
        reduce(network)
    except Contradiction:
        return True
    return exact(network, 10_000, 1_000).bound_seconds == float("inf")
