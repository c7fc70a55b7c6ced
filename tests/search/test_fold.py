"""Repeated layers are one subproblem, and the fold's answers are the whole problem's."""

from dataclasses import replace

import numpy as np
import pytest

from sbpjax.search.fold import folded, quotient
from sbpjax.search.network import network_of
from sbpjax.search.problem import Edge, Problem, Usage
from sbpjax.search.relax import relax
from sbpjax.search.solve import Budget, solve


def layers(count: int, *, seed: int = 0, options: int = 4, ends: float = 1.0) -> Problem:
    """A chain of equal layers of four nodes each, with skips, between a first and a last node of their own."""
    rng = np.random.default_rng(seed)
    tables = [rng.exponential(size=(options, options)) * (1 - np.eye(options)) for _ in range(6)]
    block = [rng.exponential(size=options) for _ in range(4)]
    nodes = [rng.exponential(size=options) * ends, *block * count, rng.exponential(size=options) * ends]
    edges = [Edge(0, 1, 5)]
    for layer in range(count):
        a, b, c, d = range(1 + 4 * layer, 5 + 4 * layer)
        edges += [Edge(a, b, 0), Edge(b, c, 1), Edge(a, c, 2), Edge(b, d, 3, 2.0), Edge(c, d, 4), Edge(a, d, 0)]
        edges.append(Edge(d, d + 1, 5))
    return Problem(nodes, edges, tables)


def test_classes_do_not_grow_with_depth():
    def classes(count: int) -> int:
        network = network_of(layers(count))
        return len(quotient(network, 3).models)

    assert classes(12) == classes(24) == classes(48) < 4 * 12


def test_nodes_of_different_kinds_are_not_folded():
    problem = layers(12)
    kinds = list(range(len(problem.node_seconds)))
    network = network_of(replace(problem, kinds=kinds))
    assert len(quotient(network, 3).models) == len(kinds)


@pytest.mark.parametrize("seed", range(12))
def test_folded_answer_is_the_unfolded_one(seed):
    problem = layers(14, seed=seed)
    whole, fold = solve(problem, budget=Budget(radius=None)), solve(problem)
    assert fold.seconds == problem.seconds(fold.choice)
    assert whole.seconds == pytest.approx(whole.bound_seconds)
    assert fold.bound_seconds <= whole.seconds * (1 + 1e-12)
    assert whole.seconds <= fold.seconds * (1 + 1e-12)
    assert fold.seconds == pytest.approx(whole.seconds, rel=5e-3)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("radius", [1, 2, 5])
def test_bound_of_a_fold_holds_for_the_whole_problem(seed, radius):
    # ends that weigh as much as all layers together make the fold as wrong as it can be
    problem = layers(8, seed=seed, options=3, ends=20.0)
    best = solve(problem, budget=Budget(radius=None))
    network = network_of(problem)
    relaxed = relax(network, quotient(network, radius), 10**6, 10**6)
    assert relaxed.bound_seconds <= best.seconds * (1 + 1e-12)


def test_folded_network_costs_what_its_choices_cost():
    rng = np.random.default_rng(1)
    network = network_of(layers(10))
    fold = quotient(network, 2)
    small = folded(network, fold)
    assert len(small.costs) < len(network.costs)
    for _ in range(20):
        choice = {c: int(rng.integers(4)) for c in small.costs}
        assert small.seconds(choice) == pytest.approx(network.seconds(fold.unfolded(choice)))


def test_folded_network_holds_the_bytes_that_its_choices_hold():
    rng = np.random.default_rng(1)
    problem = layers(10)
    usages = [Usage(v, v, v + 9, np.arange(4.0) * (1 + v % 4)) for v in range(1, 41)]
    network = network_of(replace(problem, usages=usages), [5, 20], 100.0)
    fold = quotient(network, 2)
    small = folded(network, fold)
    for _ in range(20):
        choice = {c: int(rng.integers(4)) for c in small.costs}
        assert small.excess(choice) == pytest.approx(network.excess(fold.unfolded(choice)))


@pytest.mark.parametrize("share", [0.35, 0.6, 0.9])
def test_layers_may_differ_where_memory_binds(share):
    problem = layers(16, seed=5)
    usages = [Usage(v, 0, 0, np.array([1.0, 4.0, 2.0, 8.0])) for v in range(1, 65)]
    free = solve(replace(problem, usages=usages))
    limit = round(64 + share * (free.peak_bytes - 64))
    tight = replace(problem, usages=usages, limit_bytes=float(limit))
    found = solve(tight)
    assert found.peak_bytes <= limit
    assert found.bound_seconds <= found.seconds <= found.bound_seconds * 1.03
