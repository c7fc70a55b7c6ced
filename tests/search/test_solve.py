"""The search against brute force, and what must hold of its answers."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sbpjax.search.problem import Edge, Infeasible, Problem, Usage
from sbpjax.search.solve import Budget, solve

GRAPHS = ("tree", "cycle", "dense", "parallel")


def random_problem(seed: int, *, memory: bool = False, forbid: float = 0.15, whole: bool = False) -> Problem:
    """A small problem: up to 7 nodes of up to 4 options."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    options = rng.integers(1, 5, n)
    shape = GRAPHS[seed % len(GRAPHS)]
    pairs = [(int(rng.integers(0, v)), v) for v in range(1, n)]
    if shape == "cycle" and n > 2:
        pairs.append((n - 1, 0))
    if shape == "dense":
        pairs = [(a, b) for a in range(n) for b in range(n) if a < b and rng.random() < 0.8]
    if shape == "parallel":
        pairs += [(b, a) for a, b in pairs if rng.random() < 0.7]

    def figures(*size: int) -> np.ndarray:
        values = rng.integers(0, 9, size).astype(float) if whole else rng.exponential(size=size)
        return np.where(rng.random(size) < forbid, np.inf, values)

    tables, edges = [], []
    for a, b in pairs:
        edges.append(Edge(a, b, len(tables), float(rng.choice([1.0, 1.0, 2.5, 7.0]))))
        tables.append(figures(options[a], options[b]))
    usages, limit = [], None
    if memory:
        for v in range(n):
            for _ in range(int(rng.integers(0, 3))):
                first = int(rng.integers(0, 5))
                held = rng.integers(0, 100, options[v]).astype(float)
                usages.append(Usage(v, first, first + int(rng.integers(0, 4)), held))
        limit = float(rng.integers(20, 200))
    nodes = [figures(k) for k in options]
    return Problem(nodes, edges, tables, usages, limit, [f"n{v}" for v in range(n)])


def brute_force(problem: Problem) -> tuple[float, float]:
    """The least cost within the limit, and the least peak of any choice of finite cost."""
    least, peak = np.inf, np.inf
    for choice in itertools.product(*(range(len(c)) for c in problem.node_seconds)):
        seconds = problem.seconds(choice)
        if np.isfinite(seconds):
            held = float(problem.live_bytes(choice).max())
            peak = min(peak, held)
            if problem.limit_bytes is None or held <= problem.limit_bytes:
                least = min(least, seconds)
    return least, peak


def agrees_with_brute_force(problem: Problem, budget: Budget | None = None) -> None:
    least, peak = brute_force(problem)
    if least == np.inf:
        with pytest.raises(Infeasible) as caught:
            solve(problem, budget=budget)
        if peak == np.inf:
            assert caught.value.least_bytes is None and caught.value.conflict
        else:
            assert caught.value.proven
            assert problem.limit_bytes < caught.value.least_bytes <= peak * (1 + 1e-9)
        return
    found = solve(problem, budget=budget)
    assert found.seconds == pytest.approx(least, rel=1e-7, abs=1e-9)
    assert found.seconds == problem.seconds(found.choice)
    assert found.bound_seconds <= least * (1 + 1e-12)
    assert found.peak_bytes == problem.live_bytes(found.choice).max()
    assert problem.limit_bytes is None or found.peak_bytes <= problem.limit_bytes


@pytest.mark.parametrize("block", range(10))
def test_equals_brute_force(block):
    for seed in range(block * 25, block * 25 + 25):
        agrees_with_brute_force(random_problem(seed, whole=seed % 3 == 0))


@pytest.mark.parametrize("block", range(10))
def test_equals_brute_force_within_memory(block):
    for seed in range(block * 25, block * 25 + 25):
        agrees_with_brute_force(random_problem(seed, memory=True, forbid=0.05, whole=seed % 3 == 0))


def test_equals_brute_force_unfolded_and_with_bytes_that_are_no_integers():
    for seed in range(40):
        problem = random_problem(seed, memory=True, forbid=0.0)
        usages = [replace(u, bytes=u.bytes * 0.3) for u in problem.usages]
        agrees_with_brute_force(replace(problem, usages=usages), Budget(radius=None))


def test_bound_holds_for_any_budget():
    for seed in range(40):
        problem = random_problem(seed, forbid=0.0)
        least, _ = brute_force(problem)
        found = solve(problem, budget=Budget(radius=1, lp_iterations=2, backtracks=0, mip_nodes=0))
        assert found.bound_seconds <= least * (1 + 1e-12) <= found.seconds * (1 + 2e-12)


def test_equal_input_gives_equal_output():
    for seed in range(20):
        problem = random_problem(seed, memory=seed % 2 == 0, forbid=0.0)
        if brute_force(problem)[0] < np.inf:
            first, second = solve(problem), solve(problem)
            assert (first.choice == second.choice).all() and first.bound_seconds == second.bound_seconds


def test_scaling_all_costs_changes_nothing():
    for seed in range(30):
        problem = random_problem(seed, forbid=0.0)
        scaled = replace(
            problem,
            node_seconds=[c * 1e-6 for c in problem.node_seconds],
            tables=[t * 1e-6 for t in problem.tables],
        )
        first, second = solve(problem), solve(scaled)
        assert (first.choice == second.choice).all()
        assert second.seconds == pytest.approx(first.seconds * 1e-6)


def test_a_larger_limit_is_never_slower():
    for seed in range(15):
        problem = random_problem(seed, memory=True, forbid=0.0)
        _, peak = brute_force(problem)
        found = [solve(replace(problem, limit_bytes=peak * f)).seconds for f in (1.0, 1.1, 1.3, 2.0)]
        assert found == sorted(found, reverse=True)


def test_is_never_worse_than_the_start():
    problem = random_problem(3, forbid=0.0)
    best = solve(problem)
    again = solve(problem, budget=Budget(lp_iterations=0, backtracks=0, mip_nodes=0), start=best.choice.tolist())
    assert again.seconds <= best.seconds


def test_a_start_that_breaks_the_limit_is_no_answer():
    roomy = Problem([np.array([0.0, 1.0])], [], [], [Usage(0, 0, 0, np.array([10.0, 1.0]))], 5.0)
    assert solve(roomy, start=[0]).choice.tolist() == [1]
    with pytest.raises(ValueError, match="start"):
        solve(roomy, start=[2])
    with pytest.raises(ValueError, match="start"):
        solve(roomy, start=[0, 0])


def test_says_how_much_memory_is_needed_and_when():
    usages = [Usage(0, 0, 3, np.array([8.0, 6.0])), Usage(1, 2, 2, np.array([5.0, 7.0]))]
    problem = Problem([np.zeros(2), np.zeros(2)], [], [], usages, 10.0)
    with pytest.raises(Infeasible) as caught:
        solve(problem)
    assert (caught.value.least_bytes, caught.value.moment, caught.value.conflict) == (11.0, 2, ())


def test_names_the_pins_that_contradict_each_other():
    same = np.array([[0.0, np.inf], [np.inf, 0.0]])
    nodes = [np.zeros(2), np.array([0.0, np.inf]), np.zeros(2), np.array([np.inf, 0.0]), np.zeros(2)]
    edges = [Edge(0, 1, 0), Edge(1, 2, 0), Edge(2, 3, 0), Edge(3, 4, 0)]
    with pytest.raises(Infeasible, match="contradicting") as caught:
        solve(Problem(nodes, edges, [same]))
    assert set(caught.value.conflict) == {1, 2, 3}


def test_finds_contradictions_that_no_single_edge_shows():
    differ = np.where(np.eye(2, dtype=bool), np.inf, 0.0)
    nodes = [np.zeros(2)] * 5
    triangle = [Edge(0, 1, 0), Edge(1, 2, 0), Edge(2, 0, 0), Edge(3, 4, 0)]
    with pytest.raises(Infeasible) as caught:
        solve(Problem(nodes, triangle, [differ]))
    assert set(caught.value.conflict) == {0, 1, 2}


def test_nodes_that_look_alike_may_still_have_to_differ():
    differ = np.where(np.eye(3, dtype=bool), np.inf, 1.0)
    nodes = [np.zeros(3)] * 3
    found = solve(Problem(nodes, [Edge(0, 1, 0), Edge(1, 2, 0), Edge(0, 2, 0)], [differ]))
    assert sorted(found.choice.tolist()) == [0, 1, 2] and found.seconds == 3.0


def test_empty_and_single_problems():
    assert solve(Problem([], [], [])).seconds == 0.0
    assert solve(Problem([np.array([3.0, 2.0])], [], [])).choice.tolist() == [1]
