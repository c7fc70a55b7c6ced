"""The linear relaxation over the local polytope, and the bound that its duals prove.

Variables are a share for each option of each node class and for each distinct pair of options of each edge class; the
pairs' marginals are the (average) shares at the edge's ends. Options that a table does not tell apart share their pair
variables. The bound is not the solver's objective: it is recomputed from the duals, so it holds whatever the solver's
tolerances are.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from scipy import sparse

from sbpjax.search.fold import Quotient
from sbpjax.search.highs import Solver
from sbpjax.search.network import NO_USAGE, Network
from sbpjax.search.pool import Floats, Indices


@dataclass(frozen=True, eq=False)
class Polytope:
    """`minimise cost · z` where each block of shares sums to 1, `links @ z = 0` and `memory @ z <= limits`.

    Attributes:
        cost: of each variable; node blocks come first.
        starts: where each block begins; the first `classes` blocks are nodes', the others edges'.
        classes: the number of node classes.
        links: rows that tie pairs to shares; `ties` of them.
        memory, limits: the memory rows.
        constant: what is added to the cost.
    """

    cost: Floats
    starts: Indices
    classes: int
    links: sparse.csr_array
    ties: int
    memory: sparse.csr_array
    limits: Floats
    constant: float

    @property
    def shares(self) -> int:
        """How many of the variables are node shares."""
        return int(self.starts[self.classes]) if len(self.starts) > self.classes else len(self.cost)


def polytope(network: Network, fold: Quotient) -> Polytope:
    """Build the relaxation of a network under a fold."""
    pool = network.pool
    costs: list[Floats] = []
    starts: list[int] = []
    size = 0
    memory: list[tuple[Indices, Indices, Floats]] = []
    for model, count in zip(fold.models, fold.members, strict=True):
        cost = pool.values(network.costs[model])
        if network.usages[model] != NO_USAGE:
            held = pool.values(network.usages[model])
            row, option = np.nonzero(held)
            memory.append((row, option + size, held[row, option] * count))
        costs.append(cost * count)
        starts.append(size)
        size += len(cost)
    triples: list[tuple[Indices, Indices, Floats]] = []
    row_count = 0
    for kind, (table, count) in enumerate(zip(fold.tables, fold.sizes, strict=True)):
        rows, columns, distinct = pool.compressed(table)
        first, second = np.nonzero(np.isfinite(distinct))
        pairs = np.arange(size, size + len(first))
        costs.append(distinct[first, second] * count)
        starts.append(size)
        size += len(first)
        for side, index, distinct_of in ((0, first, rows), (1, second, columns)):
            triples.append((row_count + index, pairs, np.ones(len(pairs))))
            for c, times in fold.ends(kind, side).items():
                shares = np.arange(starts[c], starts[c] + len(distinct_of))
                triples.append((row_count + distinct_of, shares, np.full(len(shares), -times / count)))
            row_count += distinct.shape[side]
    return Polytope(
        np.concatenate([*costs, np.zeros(0)]),
        np.array(starts, dtype=np.intp),
        len(fold.models),
        _matrix(triples, row_count, size),
        row_count,
        _matrix(memory, len(network.limits), size),
        network.limits,
        network.constant,
    )


def _matrix(triples: list[tuple[Indices, Indices, Floats]], rows: int, columns: int) -> sparse.csr_array:
    if not triples:
        return sparse.csr_array((rows, columns))
    row, column, value = (np.concatenate(part) for part in zip(*triples, strict=True))
    return sparse.csr_array((value, (row, column)), shape=(rows, columns))


@dataclass(frozen=True, eq=False)
class Relaxation:
    """What the linear relaxation says.

    Attributes:
        bound_seconds: no choice within the memory rows costs less.
        shares: for each node class, the share of each option.
        prices: seconds per byte of each memory row at which the bound is reached.
        feasible: False when no choice keeps the memory rows.
    """

    bound_seconds: float
    shares: list[Floats]
    prices: Floats
    feasible: bool


def constraints(model: Polytope) -> tuple[sparse.csc_array, Floats, Floats]:
    """The rows as one matrix, with lower and upper sides: blocks of shares, then links, then memory."""
    block = np.repeat(np.arange(model.classes), _lengths(model)[: model.classes])
    ones = sparse.csr_array(
        (np.ones(model.shares), (block, np.arange(model.shares))), shape=(model.classes, len(model.cost))
    )
    matrix = sparse.csc_array(sparse.vstack([ones, model.links, model.memory]))
    tied = np.concatenate([np.ones(model.classes), np.zeros(model.ties)])
    none = np.full(len(model.limits), -np.inf)
    return matrix, np.concatenate([tied, none]), np.concatenate([tied, model.limits])


def pass_to(highs: Solver, model: Polytope, scale: float, *, integral: bool = False) -> None:
    """Hand a polytope to HiGHS, costs times `scale`, memory rows in units of their largest entry."""
    matrix, lower, upper = constraints(model)
    if len(model.limits):
        unit = np.ones(len(upper))
        unit[len(upper) - len(model.limits) :] = 1.0 / byte_unit(model)
        matrix, upper = sparse.csc_array(sparse.diags_array(unit) @ matrix), upper * unit
    highs.pose(model.cost * scale, matrix, lower, upper, binaries=model.shares if integral else 0)


def byte_unit(model: Polytope) -> float:
    """The largest entry of the memory rows, in which HiGHS counts."""
    return float(model.memory.max()) if model.memory.nnz else 1.0


def _lengths(model: Polytope) -> Indices:
    return np.diff(np.append(model.starts, len(model.cost)))


def relax(network: Network, fold: Quotient, iterations: int, variables: int) -> Relaxation:
    """Solve the relaxation of a network under a fold, spending at most `iterations` of the simplex method.

    One of more than `variables` is not solved at all: its bound is that of each node and edge by itself.
    """
    model = polytope(network, fold)
    if len(model.cost) > variables:
        bound, prices, reduced = proven(model, np.zeros(0))
        return Relaxation(bound, np.split(-reduced, model.starts[1 : model.classes]), prices, True)
    highs = Solver(solver="simplex", simplex_iteration_limit=iterations)
    scale = cost_scale(model)
    pass_to(highs, model, scale)
    status = highs.finish()
    solution = highs.getSolution()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Relaxation(np.inf, [], np.zeros(0), False)
    duals = np.array(solution.row_dual)[model.classes :] / scale if solution.dual_valid else np.zeros(0)
    if len(duals):
        duals[len(duals) - len(model.limits) :] /= byte_unit(model)
    bound, prices, reduced = proven(model, duals)
    shares = np.array(solution.col_value)[: model.shares] if solution.value_valid else -reduced
    return Relaxation(bound, np.split(shares, model.starts[1 : model.classes]), prices, True)


def cost_scale(model: Polytope) -> float:
    """What makes the costs large beside the solver's absolute tolerances."""
    total = float(np.maximum.reduceat(model.cost, model.starts).sum()) if len(model.starts) else 0.0
    return 1e6 / total if total > 0 else 1.0


def proven(model: Polytope, duals: Floats) -> tuple[float, Floats, Floats]:
    """The bound that duals of the link and memory rows prove, the prices of bytes, and the shares' reduced costs."""
    cost, prices = model.cost, np.zeros(len(model.limits))
    bound = model.constant
    if len(duals):
        ties = len(duals) - len(model.limits)
        prices = np.maximum(-duals[ties:], 0.0)
        cost = cost - model.links.T @ duals[:ties] + model.memory.T @ prices
        bound -= float(prices @ model.limits)
    least = np.minimum.reduceat(cost, model.starts)
    reduced = cost[: model.shares] - np.repeat(least[: model.classes], _lengths(model)[: model.classes])
    return bound + float(least.sum()), prices, reduced
