"""Memory: which moments bind, and what the least possible peak is when nothing fits.

Memory rows are added only where a choice exceeds the limit: the few moments that ever bind are found in a few turns,
and nodes that are not alive then stay free for exact reductions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sbpjax.search.fold import quotient
from sbpjax.search.highs import Solver
from sbpjax.search.network import network_of
from sbpjax.search.pool import Floats
from sbpjax.search.problem import Problem
from sbpjax.search.reduce import reduce, restore
from sbpjax.search.relax import Polytope, byte_unit, constraints, polytope

NEW_ROWS = 6
TURNS = 40


def binding(live: Floats, limit: float, known: set[int]) -> list[int]:
    """The worst moment of each stretch above the limit, the highest stretches first, without those that are known."""
    over = np.flatnonzero(live > limit)
    if not len(over):
        return []
    stretches = np.split(over, np.flatnonzero(np.diff(over) > 1) + 1)
    peaks = [int(s[live[s].argmax()]) for s in stretches]
    peaks.sort(key=lambda moment: (-live[moment], moment))
    return [moment for moment in peaks if moment not in known][:NEW_ROWS]


@dataclass(frozen=True, eq=False)
class Peak:
    """The least peak.

    Attributes:
        least_bytes: no choice with a finite cost has a smaller peak.
        moment: where that peak lies.
        choice: a choice with a small peak; None if there was none within the budget.
    """

    least_bytes: float
    moment: int
    choice: NDArray[np.int64] | None


def least_peak(problem: Problem, mip_nodes: int) -> Peak:
    """Minimise the peak instead of the time."""
    free = _without_seconds(problem)
    lowest = np.zeros(len(problem.node_seconds), dtype=np.int64)
    for usage in problem.usages:
        lowest[usage.node] = int(np.argmin(usage.bytes))
    moments = [int(problem.live_bytes(lowest).argmax())]
    peak = Peak(0.0, moments[0], None)
    for _ in range(TURNS):
        network = network_of(free, moments, 0.0)
        steps = reduce(network)
        fold = quotient(network, None)
        found, least = _flattest(polytope(network, fold), mip_nodes)
        live = np.zeros(1)
        choice = None
        if found is not None:
            picked = dict(zip(fold.nodes, found, strict=True))
            restore(network.pool, steps, picked)
            choice = np.array([picked[node] for node in range(len(lowest))], dtype=np.int64)
            live = problem.live_bytes(choice)
            if peak.choice is not None and problem.live_bytes(peak.choice).max() <= live.max():
                choice = peak.choice
        moment = max(moments, key=lambda m: live[m] if m < len(live) else 0.0)
        peak = Peak(max(peak.least_bytes, least), moment, choice if choice is not None else peak.choice)
        new = binding(live, peak.least_bytes * (1 + 1e-9), set(moments))
        if not new:
            break
        moments += new
    return peak


def _without_seconds(problem: Problem) -> Problem:
    """The same problem where what is not forbidden costs nothing."""
    known: dict[int, NDArray[np.float64]] = {}

    def forbidden(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return known.setdefault(id(values), np.where(np.isinf(values), np.inf, 0.0))

    nodes = [forbidden(cost) for cost in problem.node_seconds]
    tables = [forbidden(table) for table in problem.tables]
    edges = [replace(edge, weight=1.0) for edge in problem.edges if np.isinf(tables[edge.table]).any()]
    return replace(problem, node_seconds=nodes, edges=edges, tables=tables)


def _flattest(model: Polytope, mip_nodes: int) -> tuple[list[int] | None, float]:
    """Options that need the least room above the rows' limits, and a lower bound of that room."""
    base = -model.limits  # what is live whatever is chosen
    if not len(model.starts):
        return [], float(base.max(initial=0.0))
    unit = max(float(base.max(initial=0.0)), byte_unit(model))
    matrix, lower, upper = constraints(model)
    rows = len(model.limits)
    others = len(upper) - rows
    scale = np.concatenate([np.ones(others), np.full(rows, 1.0 / unit)])
    room = sparse.csc_array(np.concatenate([np.zeros(others), -np.ones(rows)])[:, None])
    matrix = sparse.csc_array(sparse.hstack([sparse.diags_array(scale) @ matrix, room]))
    cost = np.zeros(len(model.cost) + 1)
    cost[-1] = 1.0
    highs = Solver(mip_rel_gap=0.0, mip_abs_gap=0.0, mip_max_nodes=mip_nodes)
    highs.pose(cost, matrix, lower, upper * scale, binaries=model.shares)
    if highs.finish() == highspy.HighsModelStatus.kInfeasible:
        return None, np.inf
    least = max(0.0, highs.getInfo().mip_dual_bound - 1e-6) * unit  # less the solver's tolerance
    values = highs.values()
    if values is None:
        return None, least
    cuts = model.starts[1 : model.classes]
    return [int(x.argmax()) for x in np.split(values[: model.shares], cuts)], least
