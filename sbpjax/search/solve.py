"""The search, from a problem to a choice and its bound.

Memory rows start empty. In each turn the problem under the rows so far is reduced exactly, folded, bounded by its
linear relaxation, and solved: by the relaxation itself when that is integral, else exactly on the fold. A choice that
keeps the limit at every moment ends the search; otherwise the moments that it exceeds become rows. Rows only ever
restrict, so every turn's bound holds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sbpjax.search.check import check, check_choice
from sbpjax.search.conflict import conflict
from sbpjax.search.exact import exact, variables
from sbpjax.search.fold import Quotient, folded, quotient
from sbpjax.search.memory import TURNS, binding, least_peak
from sbpjax.search.messages import pass_messages, unfolded
from sbpjax.search.network import Network, network_of
from sbpjax.search.price import fuse, ladder
from sbpjax.search.problem import Infeasible, Problem, Solution
from sbpjax.search.reduce import Contradiction, reduce, restore
from sbpjax.search.relax import relax

UNFOLDED = 4  # how many times fewer sweeps a network is given than its fold, which it begins with
SAME = 1e-9  # two costs that differ by less, relatively, are taken for equal


@dataclass(frozen=True, slots=True)
class Budget:
    """How much work the search may do. All but `seconds` count steps, so equal input gives equal output.

    Attributes:
        radius: how many edges away repeated layers must look alike to be folded into one; None folds nothing.
        lp_iterations: simplex iterations of one linear relaxation.
        lp_variables: the size above which messages are passed instead.
        sweeps: of one message passing.
        backtracks: of one exact search.
        mip_nodes: nodes of a mixed-integer program, where one is needed.
        seconds: a wall-clock limit, looked at between stages; it marks the solution as cut.
    """

    radius: int | None = 4
    lp_iterations: int = 300_000
    lp_variables: int = 100_000
    sweeps: int = 300
    backtracks: int = 20_000
    mip_nodes: int = 2_000
    seconds: float | None = None


def solve(problem: Problem, *, budget: Budget | None = None, start: Sequence[int] | None = None) -> Solution:
    """Find a choice of least cost within the memory limit, and a bound that no choice can beat.

    Args:
        problem: what to solve.
        budget: how much work to spend; the default answers while a user waits.
        start: a choice to improve on: the answer is never worse, if the start keeps the limit.

    Raises:
        Infeasible: no choice keeps the limit, or the tables contradict each other.
        ValueError: a figure is NaN or negative, or a shape does not fit; names the node or edge.
        KeyboardInterrupt: interrupted before there was any choice; later, the best one is returned as cut.
    """
    check(problem)
    best = Incumbent(problem)
    if start is not None:
        check_choice(problem, start)
        best.offer(np.asarray(start, dtype=np.int64), "the start")
    try:
        _search(problem, budget or Budget(), best)
    except KeyboardInterrupt:
        if best.choice is None:
            raise
        best.cut = True
    assert best.choice is not None
    return Solution(
        choice=best.choice,
        seconds=best.seconds,
        bound_seconds=min(best.bound_seconds, best.seconds),
        peak_bytes=float(problem.live_bytes(best.choice).max()),
        method=best.method,
        cut=best.cut,
    )


@dataclass(eq=False)
class Incumbent:
    """The best choice so far that keeps the limit, and the best bound."""

    problem: Problem
    choice: NDArray[np.int64] | None = None
    seconds: float = np.inf
    bound_seconds: float = 0.0
    method: str = ""
    cut: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def limit_bytes(self) -> float:
        """The limit, inf when there is none."""
        return np.inf if self.problem.limit_bytes is None else float(self.problem.limit_bytes)

    def offer(self, choice: NDArray[np.int64], method: str) -> NDArray[np.float64]:
        """Keep a choice if it is the best; in any case return its live bytes."""
        live = self.problem.live_bytes(choice)
        if live.max() <= self.limit_bytes:
            seconds = self.problem.seconds(choice)
            if seconds < self.seconds:
                self.choice, self.seconds, self.method = choice, seconds, method
        return live


def _search(problem: Problem, budget: Budget, best: Incumbent) -> None:
    """Turn after turn with more memory rows, until a choice keeps the limit."""
    moments: list[int] = []
    limit = best.limit_bytes
    for _ in range(TURNS):
        network = network_of(problem, moments, limit)
        try:
            steps = reduce(network)
        except Contradiction:
            raise Infeasible(None, conflict=conflict(problem)) from None
        found = _settle(network, budget)
        if limit == best.limit_bytes:
            best.bound_seconds = max(best.bound_seconds, min(found.bound_seconds, best.seconds))
        if found.choice is None:
            break
        picked = dict(found.choice)
        restore(network.pool, steps, picked)
        choice = np.array([picked[node] for node in range(len(problem.node_seconds))], dtype=np.int64)
        live = best.offer(choice, found.method)
        if live.max() <= best.limit_bytes:
            return
        new = binding(live, limit, set(moments))
        if not new:  # exceeded by rounding only
            limit *= 1 - SAME
        moments += new
        if budget.seconds is not None and time.monotonic() - best.began > budget.seconds and best.choice is not None:
            best.cut = True
            return
    if best.choice is None:
        _fit(problem, budget, best)


def _fit(problem: Problem, budget: Budget, best: Incumbent) -> None:
    """Nothing was found that keeps the limit: find the choice of least peak, or say that it is too large."""
    peak = least_peak(problem, budget.mip_nodes)
    if peak.least_bytes == np.inf:
        raise Infeasible(None, conflict=conflict(problem))
    if peak.choice is not None:
        best.offer(peak.choice, "least memory")
    if best.choice is None:
        raise Infeasible(peak.least_bytes, peak.moment, proven=peak.least_bytes > best.limit_bytes)


@dataclass(frozen=True, eq=False)
class Found:
    """A choice for a reduced network, by node; None when its memory rows cannot all be kept (or were not)."""

    choice: dict[int, int] | None
    bound_seconds: float
    method: str


def _settle(network: Network, budget: Budget) -> Found:
    """Solve a reduced network under its memory rows."""
    if not network.costs:
        answer = exact(network, 0, 0)
        return Found(answer.choice, answer.bound_seconds, "exact (reductions)")
    fold = quotient(network, budget.radius)
    whole = len(fold.models) == len(fold.nodes)
    size = "" if whole else f", {len(fold.nodes)} nodes folded to {len(fold.models)}"
    if variables(network, fold) > budget.lp_variables:
        found = _passed(network, fold, budget, size)
        if found.choice is not None:
            return found
    relaxed = relax(network, fold, budget.lp_iterations, budget.lp_variables)
    if not relaxed.feasible:
        return Found(None, np.inf, "")
    bound = relaxed.bound_seconds
    choice = fold.unfolded([int(shares.argmax()) for shares in relaxed.shares])
    if _same(network.seconds(choice), bound) and _fits(network, choice):
        return Found(choice, bound, f"exact (linear relaxation, integral{size})")
    small = network.copy() if whole else folded(network, fold)
    spread = dict if whole else fold.unfolded
    answer = _solved(small, budget)
    if whole:
        bound = max(bound, answer.bound_seconds)
    choices = [] if answer.choice is None else [spread(answer.choice)]
    if choices and (not len(network.limits) or _same(network.seconds(choices[0]), bound)):
        return Found(choices[0], bound, answer.method + size)
    if len(network.limits):
        choices += map(spread, ladder(small, relaxed.prices, bound, budget.backtracks))
        return Found(_mixed(network, choices, budget), bound, f"priced memory, mixed{size}")
    if not whole and not choices:  # nodes that look alike have to differ
        return _settle(network, replace(budget, radius=None))
    return Found(None, bound, "")


def _passed(network: Network, fold: Quotient, budget: Budget, size: str) -> Found:
    """Solve a reduced network that is too large for a simplex method."""
    small = folded(network, fold)
    found = unfolded(pass_messages(small, budget.sweeps), network, fold)
    # Looking alike as far as a few edges see is not being alike: the bound of all choices is the whole network's.
    found = pass_messages(network, budget.sweeps // UNFOLDED, found)
    bound = found.bound_seconds
    if found.choice is None:
        return Found(None, bound, "")
    done = "exact" if _same(network.seconds(found.choice), bound) else "best within the budget"
    if _fits(network, found.choice):
        return Found(found.choice, bound, f"{done} (message passing{size})")
    prices = np.zeros(len(network.limits))
    choices = [found.choice, *map(fold.unfolded, ladder(small, prices, bound, budget.backtracks))]
    return Found(_mixed(network, choices, budget), bound, f"priced memory, mixed{size}")


def _mixed(network: Network, choices: list[dict[int, int]], budget: Budget) -> dict[int, int] | None:
    """Memory binds: the best of some choices and their mixture; None if none fits."""
    if choices and (mixture := fuse(network, choices, budget.mip_nodes)) is not None:
        choices = [*choices, mixture]
    return min((choice for choice in choices if _fits(network, choice)), key=network.seconds, default=None)


def _solved(network: Network, budget: Budget) -> Found:
    """Solve a network of its own exactly, as far as the budget goes; the fewer backtracks, the dearer they are."""
    network = network.copy()
    try:
        steps = reduce(network)
    except Contradiction:
        return Found(None, np.inf, "")
    effort = 1 + len(network.limits) * len(network.costs) // 50
    answer = exact(network, budget.backtracks // effort, budget.mip_nodes)
    if answer.choice is None:
        return Found(None, answer.bound_seconds, answer.method)
    done = _same(network.seconds(answer.choice), answer.bound_seconds)
    choice = dict(answer.choice)
    restore(network.pool, steps, choice)
    return Found(choice, answer.bound_seconds, f"{'exact' if done else 'best within the budget'} ({answer.method})")


def _fits(network: Network, choice: dict[int, int]) -> bool:
    return bool((network.excess(choice) <= 0).all())


def _same(seconds: float, bound: float) -> bool:
    return seconds <= bound * (1 + SAME)
