"""Each reduction keeps the least cost, and its record leads back to a choice of that cost."""

import numpy as np
import pytest

from sbpjax.search.network import network_of
from sbpjax.search.problem import Edge, Problem, Usage
from sbpjax.search.reduce import Contradiction, Determined, reduce, restore

INF = np.inf


def reduced_away(problem: Problem) -> tuple[float, list[int]]:
    """The cost and the choice of a problem that reductions solve by themselves."""
    network = network_of(problem)
    steps = reduce(network)
    assert not network.costs
    choice: dict[int, int] = {}
    restore(network.pool, steps, choice)
    return network.constant, [choice[node] for node in range(len(problem.node_seconds))]


@pytest.mark.parametrize("seed", range(20))
def test_trees_and_cycles_are_solved_by_reductions_alone(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 40))
    edges = [Edge(int(rng.integers(0, v)), v, v - 1) for v in range(1, n)] if seed % 2 else []
    edges = edges or [Edge(v, (v + 1) % n, v) for v in range(n)]
    tables = [rng.exponential(size=(3, 3)) for _ in range(n)]
    problem = Problem([rng.exponential(size=3) for _ in range(n)], edges, tables)
    seconds, choice = reduced_away(problem)
    assert problem.seconds(choice) == pytest.approx(seconds)
    for node in range(n):  # no single change is better
        for option in range(3):
            other = [*choice]
            other[node] = option
            assert problem.seconds(other) >= seconds * (1 - 1e-12)


def test_a_table_that_asks_for_equal_options_merges_its_ends():
    same = np.array([[0, INF, INF], [INF, 0, INF], [INF, INF, 0]])
    rng = np.random.default_rng(0)
    nodes = [rng.exponential(size=3) for _ in range(6)]
    edges = [Edge(0, 1, 0), Edge(1, 2, 0)] + [Edge(a, b, 1) for a in range(6) for b in range(max(3, a + 1), 6)]
    network = network_of(Problem(nodes, edges, [same, rng.exponential(size=(3, 3))]))
    assert sum(isinstance(step, Determined) for step in reduce(network)) >= 2


def test_a_dominated_option_goes_only_if_it_takes_no_less_memory():
    nodes = [np.array([1.0, 2.0])]
    usage = [Usage(0, 0, 0, np.array([5.0, 1.0]))]
    slow_but_small = network_of(Problem(nodes, [], [], usage), [0], 10.0)
    reduce(slow_but_small)
    assert slow_but_small.options(0) == 2
    usage = [Usage(0, 0, 0, np.array([1.0, 5.0]))]
    slow_and_large = network_of(Problem(nodes, [], [], usage), [0], 10.0)
    reduce(slow_and_large)
    assert not slow_and_large.costs


def test_contradictions_are_found():
    pins = Problem([np.array([0.0, INF]), np.array([INF, 0.0])], [Edge(0, 1, 0)], [np.array([[0, INF], [INF, 0]])])
    with pytest.raises(Contradiction):
        reduce(network_of(pins))


def test_a_loop_that_never_runs_costs_nothing_but_still_forbids():
    table = np.array([[INF, 3.0], [1.0, 2.0]])
    problem = Problem([np.array([0.0, 5.0]), np.array([0.0, 1.0])], [Edge(0, 1, 0, 0.0)], [table])
    seconds, choice = reduced_away(problem)
    assert (seconds, choice) == (1.0, [0, 1])
