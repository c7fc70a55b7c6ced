"""A problem that makes no sense is refused here, by the name of the node or edge that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbpjax.search.problem import Problem


def check(problem: Problem) -> None:
    """Raise ValueError unless all shapes fit and all figures are numbers that are not negative (inf forbids).

    Raises:
        ValueError: names the first node, edge or usage that is wrong.
    """
    counts = [_options(problem, node) for node in range(len(problem.node_seconds))]
    for what, given in (("names", problem.names), ("kinds", problem.kinds)):
        if len(given) not in (0, len(counts)):
            raise ValueError(f"{len(given)} {what} for {len(counts)} nodes")
    if problem.limit_bytes is not None and not problem.limit_bytes >= 0:
        raise ValueError(
            f"the memory limit is {problem.limit_bytes}: it must be a number of bytes that is not negative"
        )
    wrong = {t: fault for t, table in enumerate(problem.tables) if (fault := _fault(table, infinite=True))}
    for edge in problem.edges:
        ends = (edge.source, edge.target)
        if not all(0 <= node < len(counts) for node in ends) or edge.source == edge.target:
            raise ValueError(f"an edge joins nodes {ends}: it needs two different ones of {len(counts)}")
        where = f"the edge between {named(problem, edge.source)} and {named(problem, edge.target)}"
        if not 0 <= edge.table < len(problem.tables):
            raise ValueError(f"{where} has table {edge.table} of {len(problem.tables)}")
        if edge.table in wrong:
            raise ValueError(f"{where} has {wrong[edge.table]} in its table")
        if not (np.isfinite(edge.weight) and edge.weight >= 0):
            raise ValueError(f"{where} has weight {edge.weight}")
        shape, expected = np.shape(problem.tables[edge.table]), (counts[edge.source], counts[edge.target])
        if shape != expected:
            raise ValueError(f"{where} has a table of shape {shape} for {expected[0]} and {expected[1]} options")
    for usage in problem.usages:
        if not 0 <= usage.node < len(counts):
            raise ValueError(f"a usage is of node {usage.node} of {len(counts)}")
        where = f"a usage of {named(problem, usage.node)}"
        if not 0 <= usage.first <= usage.last:
            raise ValueError(f"{where} is live from {usage.first} to {usage.last}")
        if np.shape(usage.bytes) != (counts[usage.node],):
            raise ValueError(f"{where} has bytes of shape {np.shape(usage.bytes)} for {counts[usage.node]} options")
        if fault := _fault(usage.bytes, infinite=False):
            raise ValueError(f"{where} has {fault} in its bytes")


def check_choice(problem: Problem, choice: Sequence[int]) -> None:
    """Raise ValueError unless `choice` names an option of every node."""
    if len(choice) != len(problem.node_seconds):
        raise ValueError(f"a start of {len(choice)} options for {len(problem.node_seconds)} nodes")
    for node, (option, cost) in enumerate(zip(choice, problem.node_seconds, strict=True)):
        if not 0 <= option < len(cost):
            raise ValueError(f"the start has option {option} for {named(problem, node)}, which has {len(cost)}")


def named(problem: Problem, node: int) -> str:
    """A node as it should stand in a message."""
    return f"node {node} ({problem.names[node]})" if len(problem.names) else f"node {node}"


def _options(problem: Problem, node: int) -> int:
    cost = problem.node_seconds[node]
    if np.ndim(cost) != 1 or not len(cost):
        raise ValueError(f"{named(problem, node)} has seconds of shape {np.shape(cost)}: one option at least is needed")
    if fault := _fault(cost, infinite=True):
        raise ValueError(f"{named(problem, node)} has {fault} in its seconds")
    return len(cost)


def _fault(values: np.ndarray, *, infinite: bool) -> str | None:
    values = np.asarray(values, dtype=np.float64)
    if np.isnan(values).any():
        return "NaN"
    if (values < 0).any():
        return f"a negative entry ({values.min()})"
    if not infinite and np.isinf(values).any():
        return "an infinite entry"
    return None
