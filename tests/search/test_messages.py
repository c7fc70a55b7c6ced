"""Message passing: bounds that hold, trees that are solved, folds whose messages prove bounds of the whole."""

import itertools

import numpy as np
import pytest
from test_solve import brute_force, random_problem

from sbpjax.search.fold import folded, quotient
from sbpjax.search.messages import pass_messages, unfolded
from sbpjax.search.network import network_of
from sbpjax.search.problem import Edge, Problem
from sbpjax.search.solve import Budget, solve


def chain(layers: int, options: int, seed: int) -> Problem:
    """Repeated layers of four nodes, each tied to each, to two of the next layer and to one node that all share."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(4), 2))
    tables = [rng.exponential(size=(options, options)) for _ in range(len(pairs) + 3)]
    layer_nodes = [rng.exponential(size=options) for _ in range(4)]
    nodes, edges = [rng.exponential(size=options)], []
    for layer in range(layers):
        first = len(nodes)
        nodes += layer_nodes
        edges += [Edge(first + a, first + b, t) for t, (a, b) in enumerate(pairs)]
        edges.append(Edge(0, first + 1, len(pairs)))
        if layer:
            edges += [Edge(first - 1, first, len(pairs) + 1), Edge(first - 2, first + 1, len(pairs) + 2)]
    return Problem(nodes, edges, tables)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_and_choices_cost_what_they_cost(seed):
    problem = random_problem(seed, forbid=0.05)
    least, _ = brute_force(problem)
    if least == np.inf:
        return
    found = pass_messages(network_of(problem), 50)
    assert found.bound_seconds <= least * (1 + 1e-9)
    if found.choice is not None:
        assert network_of(problem).seconds(found.choice) >= least * (1 - 1e-9)
    if len({frozenset((e.source, e.target)) for e in problem.edges}) < len(problem.node_seconds):  # a tree
        assert found.bound_seconds == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_passing_goes_on_from_where_it_was(seed):
    network = network_of(chain(12, 5, seed))
    first = pass_messages(network, 20)
    assert pass_messages(network, 1, first).bound_seconds >= first.bound_seconds * (1 - 1e-12)
    fold = quotient(network, 2)
    assert len(fold.models) < len(fold.nodes)
    small = folded(network, fold)
    passed = pass_messages(small, 100)
    start = unfolded(passed, network, fold)
    assert network.seconds(start.choice) == pytest.approx(small.seconds(passed.choice))
    went_on = pass_messages(network, 20, start)
    assert went_on.bound_seconds > 0.85 * network.seconds(start.choice)
    assert went_on.bound_seconds <= network.seconds(went_on.choice) <= network.seconds(start.choice)


@pytest.mark.parametrize("seed", range(5))
def test_search_by_messages_is_as_good_as_by_the_simplex_method(seed):
    problem = chain(6, 4, seed)
    best, passed = solve(problem), solve(problem, budget=Budget(lp_variables=0))
    assert passed.bound_seconds <= best.seconds * (1 + 1e-9) <= passed.seconds * (1 + 2e-9)
    assert passed.seconds <= best.seconds * 1.05
    assert "message passing" in passed.method


def test_repeated_runs_agree():
    one, two = (pass_messages(network_of(chain(8, 6, 0)), 40) for _ in range(2))
    assert one.choice == two.choice and one.bound_seconds == two.bound_seconds
    assert all(np.array_equal(one.messages[k], two.messages[k]) for k in itertools.chain(one.messages))
