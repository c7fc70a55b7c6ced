"""Proven optima of small networks: toulbar2's branch and bound, or HiGHS where toulbar2 is not installed or not done.

toulbar2 tightens bounds by shifting costs between tables (virtual arc consistency) and proves in milliseconds what
takes a mixed-integer solver seconds. It counts in integers: costs are rounded down, so its bound holds for the true
costs too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from sbpjax.search.fold import Quotient, quotient
from sbpjax.search.highs import Solver
from sbpjax.search.messages import pass_messages
from sbpjax.search.network import NO_USAGE, Network
from sbpjax.search.pool import Floats
from sbpjax.search.relax import cost_scale, pass_to, polytope

try:
    import pytoulbar2
except ImportError:  # no wheel for this platform
    pytoulbar2 = None

SMALL = 5_000  # variables of a relaxation that branch and cut is quick on
LARGE = 200_000  # and those above which building a model for toulbar2 takes longer than passing messages
SWEEPS = 300
TOP = 10**14  # costs at and above it are forbidden to toulbar2


@dataclass(frozen=True, eq=False)
class Answer:
    """What a solver found out about a network.

    Attributes:
        choice: its best choice that keeps the memory rows, or None.
        bound_seconds: no choice within the memory rows costs less; inf when there is none.
        method: which solver it was.
    """

    choice: dict[int, int] | None
    bound_seconds: float
    method: str


def exact(network: Network, backtracks: int, mip_nodes: int) -> Answer:
    """Solve a network to optimality, or as far as the budget of backtracks and nodes goes."""
    if not network.costs:
        fits = bool((network.excess({}) <= 0).all())
        return Answer({} if fits else None, network.constant if fits else np.inf, "reductions")
    if not len(network.limits) and variables(network) > LARGE:
        passed = pass_messages(network, SWEEPS)
        return Answer(passed.choice, passed.bound_seconds, "message passing")
    if pytoulbar2 is None:
        return by_highs(network, mip_nodes)
    answer = by_toulbar2(network, backtracks)
    done = answer.bound_seconds == np.inf or (
        answer.choice is not None and network.seconds(answer.choice) <= answer.bound_seconds * (1 + 1e-6)
    )
    if done or not len(network.limits) or variables(network) > SMALL:
        return answer
    other = by_highs(network, mip_nodes)  # with memory rows the two complement each other
    best = min((answer, other), key=lambda a: np.inf if a.choice is None else network.seconds(a.choice))
    return Answer(best.choice, max(answer.bound_seconds, other.bound_seconds), best.method)


def variables(network: Network, fold: Quotient | None = None) -> int:
    """How many variables the linear relaxation of a network has, or of its fold."""
    fold = fold or quotient(network, None)
    pairs = sum(map(network.pool.extent, fold.tables))
    return pairs + sum(map(network.options, fold.models))


def by_toulbar2(network: Network, backtracks: int) -> Answer:
    """Branch and bound in toulbar2, cut after a number of backtracks."""
    upper = _worst(network)
    while True:
        answer = _once_by_toulbar2(network, backtracks, upper)
        if answer.choice is None:
            return answer
        reached = network.seconds(answer.choice) - network.constant
        if reached > upper * 1e-2 or reached == 0:
            return answer
        upper = reached  # the costs were so far below the worst case that rounding them was too coarse


def _worst(network: Network) -> float:
    """No finite choice costs more."""
    arrays = [network.pool.values(vector) for vector in network.costs.values()]
    arrays += [
        network.pool.entries(table)
        for node, others in network.links.items()
        for other, table in others.items()
        if node < other
    ]
    return sum(float(a.max(where=np.isfinite(a), initial=0.0)) for a in arrays)


def _once_by_toulbar2(network: Network, backtracks: int, upper: float) -> Answer:
    assert pytoulbar2 is not None
    pool = network.pool
    scale = TOP / (upper * 1.01) if upper > 0 else 1.0
    cfn = pytoulbar2.CFN(ubinit=TOP, resolution=0, vac=1, seed=1)
    cfn.Option.parallel = False
    cfn.Option.backtrackLimit = backtracks

    def whole(values: Floats) -> list[int]:
        return np.minimum(np.floor(values * scale), TOP).astype(np.int64).ravel().tolist()

    number = {node: cfn.AddVariable(f"n{node}", range(network.options(node))) for node in network.costs}
    for node, vector in network.costs.items():
        cfn.AddFunction([number[node]], whole(pool.values(vector)))
        for other, table in network.links[node].items():
            if node < other:
                cfn.AddFunction([number[node], number[other]], whole(pool.entries(table)))
    for row, limit in enumerate(network.limits):
        held = {
            n: pool.values(u)[row] for n, u in network.usages.items() if u != NO_USAGE and pool.values(u)[row].any()
        }
        if held:
            _add_row(cfn, {number[node]: values for node, values in held.items()}, float(limit))
        elif limit < 0:
            return Answer(None, np.inf, "toulbar2")
    found = cfn.Solve()
    complete = cfn.GetNbBacktracks() <= backtracks
    if found is None:
        bound = np.inf if complete else network.constant + cfn.GetDDualBound() / scale
        return Answer(None, bound, "toulbar2")
    choice = {node: int(found[0][number[node]]) for node in network.costs}
    lower = found[1] if complete else cfn.GetDDualBound()
    seconds = network.seconds(choice)
    return Answer(choice, min(seconds, network.constant + lower / scale), "toulbar2")


def _add_row(cfn: Any, held: dict[int, Floats], limit: float) -> None:
    """A knapsack row: no more than `limit` bytes. Bytes that are no integers are scaled, in favour of fitting."""
    integral = all((values == np.floor(values)).all() for values in held.values()) and limit == np.floor(limit)
    scale = 1.0 if integral or limit <= 0 else 1e12 / limit
    words = [str(-int(np.ceil(limit * scale)))]
    for values in held.values():
        words.append(str(len(values)))
        for option, value in enumerate(np.floor(values * scale)):
            words += [str(option), str(-int(value))]
    cfn.CFN.wcsp.postKnapsackConstraint(list(held), " ".join(words), kp=True)


def by_highs(network: Network, nodes: int, gap: float = 0.0) -> Answer:
    """Branch and cut in HiGHS on binary options and continuous pairs, until a relative gap or a number of nodes."""
    fold = quotient(network, None)
    model = polytope(network, fold)
    scale = cost_scale(model)
    highs = Solver(mip_rel_gap=gap, mip_abs_gap=0.0, mip_max_nodes=nodes, mip_max_stall_nodes=nodes)
    pass_to(highs, model, scale, integral=True)
    status = highs.finish()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Answer(None, np.inf, "HiGHS")
    bound = network.constant + max(0.0, highs.getInfo().mip_dual_bound) / scale * (1 - 1e-9)
    values = highs.values()
    if values is None:
        return Answer(None, bound, "HiGHS")
    cuts = model.starts[1 : model.classes]
    choice = {n: int(x.argmax()) for n, x in zip(fold.nodes, np.split(values[: model.shares], cuts), strict=True)}
    if (network.excess(choice) > 0).any():  # by less than the solver's tolerance
        return Answer(None, bound, "HiGHS")
    return Answer(choice, min(bound, network.seconds(choice)), "HiGHS")
