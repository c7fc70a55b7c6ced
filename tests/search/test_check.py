"""Problems that make no sense are refused by name."""

from dataclasses import replace

import numpy as np
import pytest

from sbpjax.search.problem import Edge, Problem, Usage
from sbpjax.search.solve import solve

GOOD = Problem(
    [np.zeros(2), np.zeros(3)],
    [Edge(0, 1, 0)],
    [np.zeros((2, 3))],
    [Usage(1, 0, 4, np.zeros(3))],
    1.0,
    ("up", "down"),
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node_seconds": [np.zeros(2), np.array([0, np.nan, 0])]}, r"node 1 \(down\) has NaN"),
        ({"node_seconds": [np.array([0.0, -1.0]), np.zeros(3)]}, r"node 0 \(up\) has a negative entry \(-1"),
        ({"node_seconds": [np.zeros(2), np.zeros(0)]}, r"node 1 \(down\).*one option"),
        ({"tables": [np.full((2, 3), np.nan)]}, r"between node 0 \(up\) and node 1 \(down\) has NaN"),
        ({"tables": [np.full((2, 3), -2.0)]}, r"between node 0 \(up\).*negative"),
        ({"tables": [np.zeros((3, 2))]}, r"between node 0 \(up\).*shape \(3, 2\) for 2 and 3 options"),
        ({"edges": [Edge(0, 1, 7)]}, r"table 7 of 1"),
        ({"edges": [Edge(0, 0, 0)]}, r"two different"),
        ({"edges": [Edge(0, 2, 0)]}, r"two different"),
        ({"edges": [Edge(0, 1, 0, float("inf"))]}, r"weight inf"),
        ({"usages": [Usage(1, 0, 4, np.zeros(2))]}, r"usage of node 1 \(down\).*shape"),
        ({"usages": [Usage(1, 0, 4, np.full(3, np.inf))]}, r"usage of node 1 \(down\) has an infinite"),
        ({"usages": [Usage(1, 3, 2, np.zeros(3))]}, r"live from 3 to 2"),
        ({"usages": [Usage(5, 0, 2, np.zeros(3))]}, r"node 5 of 2"),
        ({"limit_bytes": float("nan")}, r"memory limit"),
        ({"names": ("up",)}, r"1 names for 2 nodes"),
        ({"kinds": (1, 2, 3)}, r"3 kinds for 2 nodes"),
    ],
)
def test_nonsense_is_refused_by_name(change, message):
    solve(GOOD)
    with pytest.raises(ValueError, match=message):
        solve(replace(GOOD, **change))
