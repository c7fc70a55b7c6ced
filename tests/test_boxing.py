import itertools
import math
import time

import numpy as np
import placed
import pytest

from sbpjax.boxing import COLLECTIVES, Route, route, table
from sbpjax.cluster import Cluster, Level, Links
from sbpjax.sbp import Placement
from sbpjax.steps import placements

UNIT = Cluster.parse("cpu").device


def unit_links(mesh):
    """One level of links: 1 byte a second, no latency."""
    return Links(Cluster("unit", UNIT, (Level(math.prod(mesh.values()), 0.0, 1.0),)), mesh)


def links(name, mesh):
    return Links(Cluster.parse(name), mesh)


MESHES = [
    ("4xcpu", {"a": 4}, (8, 16)),
    ("4xcpu", {"a": 2, "b": 2}, (8, 16)),
    ("8xh100", {"a": 2, "b": 4}, (16, 8)),
    ("2x4xh100", {"a": 2, "b": 4}, (16, 8)),
    ("8xh100", {"a": 2, "b": 4}, (4, 24)),
    ("2x4xh100", {"a": 2, "b": 2, "c": 2}, (8, 16)),
]


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize(("cluster", "mesh", "shape"), MESHES)
def test_every_route_moves_every_tensor_to_where_it_should_be(cluster, mesh, shape, op):
    at = links(cluster, mesh)
    rng = np.random.default_rng(0)
    for rank in range(3):
        sizes = shape[:rank]
        whole = rng.integers(-99, 99, sizes)
        every = list(placements(rank, tuple(mesh), (op,)))
        starts = {p: placed.spread(whole, p, mesh, rng) for p in every if p.divides(sizes, mesh)}
        for source, target in itertools.product(every, every):
            way = route(source, target, sizes, 4, at)
            if source not in starts or target not in starts:
                assert math.isinf(way.seconds)
                continue
            x = starts[source]
            for step in way.steps:
                x = placed.run(x, step, mesh)
            np.testing.assert_array_equal(placed.collect(x, target, mesh), whole, f"{source} -> {target}: {way}")
            assert not way.steps or way.placements[-1] == target
            assert all(p.divides(sizes, mesh) for p in way.placements)


def test_partial_values_change_their_op_by_way_of_a_whole():
    mesh = {"a": 4}
    way = route(Placement.parse("a=P(sum)", 1), Placement.parse("a=P(max)", 1), (8,), 4, links("4xcpu", mesh))
    rng = np.random.default_rng(0)
    whole = rng.integers(-99, 99, 8)
    x = placed.spread(whole, Placement.parse("a=P(sum)", 1), mesh, rng)
    for step in way.steps:
        x = placed.run(x, step, mesh)
    np.testing.assert_array_equal(placed.collect(x, Placement.parse("a=P(max)", 1), mesh), whole)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_with_unit_links_the_price_is_that_of_OneFlows_table(p):
    """Bytes moved by all devices together, T being the bytes of the whole tensor (Yuan et al., 2021, table 2)."""
    shape, itemsize = (16, 8), 4
    whole = 16 * 8 * itemsize
    at = unit_links({"a": p})
    published = {
        ("a=S(0)", "a=S(0)"): 0,
        ("a=S(0)", "a=S(1)"): (p - 1) / p * whole,
        ("a=S(0)", "B"): (p - 1) * whole,
        ("a=S(0)", "a=P(sum)"): 0,
        ("B", "a=S(1)"): 0,
        ("B", "B"): 0,
        ("B", "a=P(sum)"): 0,
        ("a=P(sum)", "a=S(1)"): (p - 1) * whole,
        ("a=P(sum)", "B"): 2 * (p - 1) * whole,
        ("a=P(sum)", "a=P(sum)"): 0,
    }
    for (source, target), total in published.items():
        way = route(Placement.parse(source, 2), Placement.parse(target, 2), shape, itemsize, at)
        assert way.seconds * p == pytest.approx(total, rel=1e-9), (source, target)


def test_joint_axes_are_priced_as_one_axis_of_their_size():
    shape = (64, 64)
    one, two = links("8xh100", {"x": 8}), links("8xh100", {"a": 2, "b": 4})
    for source, target in [("S(0)", "S(1)"), ("S(0)", "B"), ("P", "B"), ("P", "S(1)"), ("P(max)", "S(0)")]:
        flat = [Placement.parse(t if t == "B" else f"x={t}", 2) for t in (source, target)]
        joint = [Placement.parse(t if t == "B" else f"a={t} b={t}", 2) for t in (source, target)]
        assert len(route(*joint, shape, 4, two).steps) == len(route(*flat, shape, 4, one).steps)
        assert route(*joint, shape, 4, two).seconds == pytest.approx(route(*flat, shape, 4, one).seconds)


def test_max_is_never_reduce_scattered():
    mesh = {"a": 2, "b": 4}
    every = list(placements(2, tuple(mesh), ("max",)))
    for source, target in itertools.product(every, every):
        assert all(s.kind != "reduce_scatter" for s in route(source, target, (8, 8), 4, links("8xcpu", mesh)).steps)


@pytest.mark.parametrize("size", [8, 4096])
def test_nothing_is_cheaper_than_the_route(size):
    """No detour through a third placement costs less; whole tensors are never made partial on the way."""
    mesh = {"a": 2, "b": 2, "c": 2}
    whole = list(placements(2, tuple(mesh), ()))
    every = list(placements(2, tuple(mesh), ("sum",)))
    at = links("2x4xh100", mesh)
    for ends, stops in [(whole, whole), (every[len(whole) :], every)]:
        direct = table(ends, ends, (size, size), 2, at)
        first, second = table(ends, stops, (size, size), 2, at), table(stops, ends, (size, size), 2, at)
        for k in range(len(stops)):
            assert (direct <= (first[:, k, None] + second[None, k]) * (1 + 1e-9) + 1e-12).all()


def test_a_table_holds_the_seconds_of_routes():
    mesh = {"a": 2, "b": 4}
    at = links("2x4xh100", mesh)
    every = list(placements(2, tuple(mesh), ("sum",)))
    for shape in [(16, 8), (4, 8), (4096, 4096)]:
        expected = [[route(s, t, shape, 2, at).seconds for t in every] for s in every]
        np.testing.assert_allclose(table(every, every, shape, 2, at), expected)
        assert (np.diagonal(table(every, every, shape, 2, at))[[p.divides(shape, mesh) for p in every]] == 0).all()


def test_a_share_counts_part_of_each_collective_on_the_same_routes():
    mesh = {"a": 2, "b": 4}
    at = links("2x4xh100", mesh)
    every = list(placements(2, tuple(mesh), ("sum",)))

    def share(axes):
        return 0.25 if at.crosses_nodes(axes) else 0.5

    expected = [
        [
            sum(
                t * (share(s.axes) if s.kind in COLLECTIVES else 1)
                for s, t in zip(way.steps, way.step_seconds, strict=True)
            )
            for way in (route(source, target, (64, 64), 2, at) for target in every)
        ]
        for source in every
    ]
    np.testing.assert_allclose(table(every, every, (64, 64), 2, at, share), expected)


def test_bytes_are_those_of_the_larger_side_and_of_what_lies_between():
    at = links("8xcpu", {"a": 2, "b": 4})
    whole = 64 * 64 * 4
    gather = route(Placement.parse("a=S(0) b=S(0)", 2), Placement.parse("B", 2), (64, 64), 4, at)
    assert [s.kind for s in gather.steps] == ["all_gather"]
    assert (gather.step_bytes, gather.peak_bytes) == ((whole,), 0)
    scatter = route(Placement.parse("a=P", 2), Placement.parse("a=S(0)", 2), (64, 64), 4, at)
    assert scatter.step_bytes == (whole,)
    two = route(Placement.parse("a=S(0) b=S(1)", 2), Placement.parse("B", 2), (64, 64), 4, at)
    assert [s.kind for s in two.steps] == ["all_gather", "all_gather"]
    assert two.peak_bytes == min(two.step_bytes) > 0


def test_axes_of_size_one_change_nothing():
    at = links("4xcpu", {"one": 1, "a": 4})
    source, target = Placement.parse("one=S(0) a=S(0)", 2), Placement.parse("a=S(0) one=P(max)", 2)
    assert route(source, target, (8, 8), 4, at) == Route()
    assert len(route(source, Placement.parse("one=S(1) a=S(1)", 2), (8, 8), 4, at).steps) == 1


def test_one_device_needs_no_steps():
    source, target = Placement.parse("data=P", 2), Placement.parse("data=S(1)", 2)
    assert route(source, target, (8, 8), 4, links("h100", {"data": 1})) == Route()
    assert table([source], [target], (8, 8), 4, links("h100", {"data": 1})).tolist() == [[0.0]]


def test_equal_placements_need_no_steps():
    p = Placement.parse("a=S(0)", 2)
    assert route(p, p, (8, 8), 4, links("4xcpu", {"a": 4})) == Route()


def test_routes_do_not_depend_on_what_was_asked_before():
    mesh = {"a": 2, "b": 2, "c": 2}
    every = list(placements(2, tuple(mesh), ("sum",)))
    at = links("2x4xh100", mesh)
    pairs = list(itertools.product(every, every))[::7]
    first = [route(s, t, (64, 64), 4, at).steps for s, t in pairs]
    from sbpjax import boxing

    boxing._route.cache_clear()
    boxing._sized_for.cache_clear()
    again = [route(s, t, (64, 64), 4, at).steps for s, t in reversed(pairs)]
    assert again[::-1] == first


def test_tables_are_built_in_milliseconds():
    """40 × 40 placements, a new size each time: a model has hundreds of such tables."""
    mesh = {"a": 8, "b": 8}
    at = links("8x8xh100", mesh)
    every = list(placements(4, tuple(mesh), ("sum",)))
    assert len(every) == 40
    table(every, every, (512,) * 4, 2, at)
    best = math.inf
    for k in range(1, 6):
        start = time.perf_counter()
        table(every, every, (512, 512, 512, 64 * k), 2, at)
        best = min(best, time.perf_counter() - start)
    assert best < 0.02
