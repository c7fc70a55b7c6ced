"""Both exact solvers, one against the other, and the search without toulbar2 or interrupted."""

import ast
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from sbpjax.search import exact as exact_module
from sbpjax.search import solve as solve_module
from sbpjax.search.exact import by_highs, by_toulbar2
from sbpjax.search.network import network_of
from sbpjax.search.problem import Edge, Problem, Usage
from sbpjax.search.solve import solve


def grid(seed: int, *, memory: bool = False) -> Problem:
    """A frustrated 4 × 4 grid of random tables."""
    rng = np.random.default_rng(seed)
    nodes = [rng.exponential(size=3) for _ in range(16)]
    edges = [Edge(v, v + 1, v) for v in range(16) if v % 4 < 3] + [Edge(v, v + 4, v + 16) for v in range(12)]
    tables = [rng.exponential(size=(3, 3)) for _ in range(28)]
    usages = [Usage(v, 0, 0, rng.integers(0, 50, 3).astype(float)) for v in range(16)] if memory else []
    return Problem(nodes, edges, tables, usages, 350.0 if memory else None)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_toulbar2_and_highs_agree(seed, memory):
    network = network_of(grid(seed, memory=memory), [0] if memory else [], 350.0 if memory else np.inf)
    first, second = by_toulbar2(network, 100_000), by_highs(network, 10_000)
    assert first.choice is not None and second.choice is not None
    assert network.seconds(first.choice) == pytest.approx(network.seconds(second.choice))
    for answer in (first, second):
        assert answer.bound_seconds == pytest.approx(network.seconds(answer.choice))
        assert answer.bound_seconds <= network.seconds(answer.choice)


def test_costs_of_very_different_size_are_told_apart():
    rng = np.random.default_rng(0)
    costs = [np.array([0.0, 1e-9, 1e3]) + rng.exponential(size=3) * 1e-7 for _ in range(6)]
    tables = [rng.exponential(size=(3, 3)) * 1e-7 for _ in range(15)]
    pairs = [(a, b) for a in range(6) for b in range(a + 1, 6)]
    problem = Problem(costs, [Edge(a, b, t) for t, (a, b) in enumerate(pairs)], tables)
    answer = by_toulbar2(network_of(problem), 10_000)
    assert answer.bound_seconds == pytest.approx(problem.seconds([answer.choice[v] for v in range(6)]), rel=1e-7)


def test_without_toulbar2_the_answer_is_the_same(monkeypatch):
    problem = grid(1)
    best = solve(problem)
    monkeypatch.setattr(exact_module, "pytoulbar2", None)
    assert solve(problem).seconds == pytest.approx(best.seconds)
    assert best.bound_seconds == pytest.approx(best.seconds)


def test_a_cut_search_still_bounds():
    network = network_of(grid(2))
    best = network.seconds(by_toulbar2(network, 100_000).choice)
    cut = by_toulbar2(network, 0)
    assert cut.bound_seconds <= best
    assert cut.choice is None or network.seconds(cut.choice) >= best


def test_an_interrupt_keeps_the_best_so_far(monkeypatch):
    problem = grid(3)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(solve_module, "_settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve(problem)
    kept = solve(problem, start=[0] * 16)
    assert kept.cut and kept.choice.tolist() == [0] * 16 and kept.bound_seconds <= kept.seconds


def test_the_search_answers_off_the_main_thread():
    answers = []
    thread = threading.Thread(target=lambda: answers.append(solve(grid(4)).seconds))
    thread.start()
    thread.join()
    assert answers == [solve(grid(4)).seconds]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_search_imports_solvers_only():
    known = {"numpy", "scipy", "highspy", "pytoulbar2", "sbpjax.search"} | set(sys.stdlib_module_names)
    for source in Path(solve_module.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name in known or name.split(".")[0] in known or name.startswith("sbpjax.search."), (source, name)


def test_the_search_prints_nothing():
    code = "import sys, numpy as np, sbpjax.search.problem as p, sbpjax.search.solve as s; " + (
        "r = np.random.default_rng(0); t = [r.random((3, 3)) for _ in range(6)]; "
        "e = [p.Edge(a, b, i) for i, (a, b) in enumerate((a, b) for a in range(4) for b in range(a + 1, 4))]; "
        "s.solve(p.Problem([r.random(3) for _ in range(4)], e, t)); "
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True)
    assert run.stdout == run.stderr == ""
