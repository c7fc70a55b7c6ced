"""Boxings as compiled: 8 virtual devices, many boxings to a program, values and collectives against what was priced."""

import itertools
import math
import random
import re
from collections import Counter

import jax
import numpy as np
import placed
import pytest
from jax.sharding import Mesh, PartitionSpec

from sbpjax.boxing import COLLECTIVES, route
from sbpjax.cluster import Cluster, Links
from sbpjax.emit.collectives import box
from sbpjax.sbp import Placement
from sbpjax.steps import placements

KINDS = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
ITEMSIZE = 4


def device_mesh(mesh):
    devices = np.array(jax.devices()[: math.prod(mesh.values())])
    return Mesh(devices.reshape(tuple(mesh.values())), tuple(mesh))


def compiled_boxings(routes, shapes, mesh, operands):
    """One program that carries out all routes, each on an array that holds every device's part side by side."""
    spec = PartitionSpec(*mesh)

    def local(*parts):
        results = []
        for i, (part, way, shape) in enumerate(zip(parts, routes, shapes, strict=True)):
            with jax.named_scope(f"boxing{i}"):
                boxed = box(part.reshape(part.shape[len(mesh) :]), way, shape, mesh)
            results.append(boxed.reshape((1,) * len(mesh) + boxed.shape))
        return results

    step = jax.jit(
        jax.shard_map(local, mesh=device_mesh(mesh), in_specs=spec, out_specs=[spec] * len(routes), check_vma=False)
    )
    compiled = step.lower(*operands).compile()
    return compiled, compiled(*operands)


def compiled_collectives(text):
    """(boxing, kind, larger of operand and result in bytes, groups of devices) of every collective in HLO text.

    XLA combines all-reduces of several boxings into one of several operands: each operand counts, without its boxing.
    """
    found = []
    kinds = "|".join(KINDS)
    for line in text.splitlines():
        op = re.search(rf"= (.+?) ({kinds})\(", line)
        if not op:
            continue
        boxing = re.search(r"boxing(\d+)/", line)
        assert boxing, line
        sizes = [math.prod(map(int, dims.split(","))) if dims else 1 for dims in re.findall(r"\[([\d,]*)\]", op[1])]
        nbytes = sum(sizes) * ITEMSIZE
        kind = KINDS[op[2]]
        if kind == "permute":
            pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", line)
            groups = tuple(sorted(tuple(map(int, p.split(","))) for p in re.findall(r"\{?(\d+,\d+)", pairs[1])))
        else:
            listed = re.search(r"replica_groups=\{\{(.*?)\}\}", line)
            groups = tuple(sorted(tuple(map(int, g.split(","))) for g in listed[1].split("},{")))
            if kind == "reduce_scatter":
                nbytes *= len(groups[0])
        if kind == "all_reduce":
            found += [(None, kind, size * ITEMSIZE, groups) for size in sizes]
        else:
            found.append((int(boxing[1]), kind, nbytes, groups))
    return found


def priced_collectives(i, way, mesh):
    """The same, by its route."""
    numbers = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    for step, nbytes in zip(way.steps, way.step_bytes, strict=True):
        if step.kind not in COLLECTIVES:
            continue
        groups = placed.grouped(numbers, step.axes, mesh)[0].tolist()
        if step.kind == "permute":
            groups = [(group[s], group[t]) for group in groups for s, t in step.pairs]
        yield None if step.kind == "all_reduce" else i, step.kind, nbytes, tuple(sorted(map(tuple, groups)))


def check(cluster, mesh, cases):
    """Compile and run (source, target, shape) cases; values must arrive, collectives must be those priced."""
    links = Links(Cluster.parse(cluster), mesh)
    rng = np.random.default_rng(0)
    wholes = [rng.integers(-99, 99, shape).astype(np.float32) for _, _, shape in cases]
    operands = [placed.spread(x, source, mesh, rng) for x, (source, _, _) in zip(wholes, cases, strict=True)]
    routes = [route(source, target, shape, ITEMSIZE, links) for source, target, shape in cases]
    compiled, results = compiled_boxings(routes, [shape for _, _, shape in cases], mesh, operands)
    for whole, result, (source, target, shape) in zip(wholes, results, cases, strict=True):
        arrived = placed.collect(np.asarray(result), target, mesh)
        np.testing.assert_array_equal(arrived, whole, f"{source} -> {target} of {shape}")
    priced = Counter(c for i, way in enumerate(routes) for c in priced_collectives(i, way, mesh))
    assert Counter(compiled_collectives(compiled.as_text())) == priced


def pairs(mesh, ops, shapes):
    for shape in shapes:
        every = [p for p in placements(len(shape), tuple(mesh), ops) if p.divides(shape, mesh)]
        yield from ((s, t, shape) for s, t in itertools.product(every, every) if s != t)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_all_boxings_on_one_axis_run_as_priced(op):
    check("8xcpu", {"x": 8}, list(pairs({"x": 8}, (op,), [(), (8,), (16, 24)])))


@pytest.mark.parametrize(
    ("cluster", "mesh", "op"),
    [
        ("2x4xh100", {"a": 2, "b": 4}, "sum"),
        ("8xcpu", {"a": 4, "b": 2}, "max"),
        ("8xh100", {"a": 2, "b": 2, "c": 2}, "sum"),
        ("2x4xh100", {"a": 2, "b": 2, "c": 2}, "sum"),
        ("2x4xh100", {"a": 2, "b": 2, "c": 2}, "min"),
    ],
)
def test_sixty_random_boxings_on_joint_axes_run_as_priced(cluster, mesh, op):
    cases = list(pairs(mesh, (op,), [(16,), (16, 8), (8, 32), (8, 3, 16)]))
    check(cluster, mesh, random.Random(f"{mesh} {op}").sample(cases, 60))


@pytest.mark.parametrize("dtype", ["bool", "uint32", "key<fry>"])
def test_other_dtypes_are_boxed_too(dtype):
    """Splits of bools, integers and PRNG keys; they are never sums."""
    mesh = {"a": 2, "b": 4}
    rng = np.random.default_rng(0)
    shape = (8, 16)
    words = rng.integers(0, 2, (*shape, 2)).astype(np.uint32)
    cases = random.Random(dtype).sample(list(pairs(mesh, (), [shape])), 15)
    routes = [route(s, t, shape, 8, Links(Cluster.parse("8xcpu"), mesh)) for s, t, _ in cases]

    def typed(x):
        return jax.random.wrap_key_data(x) if dtype.startswith("key") else x[..., 0].astype(dtype)

    def words_of(x):
        return np.asarray(jax.random.key_data(x))[..., 0] if dtype.startswith("key") else np.asarray(x)

    def parts(source):
        return np.stack([placed.spread(words[..., i], source, mesh, rng) for i in range(2)], axis=-1)

    operands = [typed(parts(s)) for s, _, _ in cases]
    _, results = compiled_boxings(routes, [shape] * len(cases), mesh, operands)
    for result, (source, target, _) in zip(results, cases, strict=True):
        assert result.dtype == operands[0].dtype
        arrived = placed.collect(words_of(result), target, mesh)
        np.testing.assert_array_equal(arrived, words[..., 0], f"{source} -> {target}")


@pytest.mark.parametrize("op", ["max", "min"])
def test_extrema_of_bools_and_integers_are_combined(op):
    mesh = {"x": 8}
    at = Links(Cluster.parse("8xcpu"), mesh)
    ends = [Placement.parse(t, 1) for t in (f"x=P({op})", "B", "x=S(0)")]
    wanted = [(s, t) for s, t in itertools.product(ends, ends) if s != t and (s.partial or t.partial)]
    ways = [route(s, t, (16,), 1, at) for s, t in wanted]
    rng = np.random.default_rng(0)
    for dtype in (np.bool_, np.int8, np.uint32):
        low, high = (0, 2) if dtype is np.bool_ else (0, 100)
        combine = placed.COMBINE[op]
        operands, wholes = [], []
        for source, _ in wanted:
            parts = rng.integers(low, high, (8, 16)).astype(dtype)
            whole = combine(parts, axis=0) if source.partial else parts[0]
            wholes.append(whole)
            operands.append(parts if source.partial else placed.spread(whole, source, mesh, rng))
        _, results = compiled_boxings(ways, [(16,)] * len(ways), mesh, operands)
        for whole, result, (source, target) in zip(wholes, results, wanted, strict=True):
            arrived = np.asarray(result)
            arrived = combine(arrived, axis=0) if target.partial else placed.collect(arrived, target, mesh)
            np.testing.assert_array_equal(arrived, whole, f"{dtype} {source} -> {target}")


def test_an_impossible_boxing_is_refused():
    way = route(Placement.parse("B", 1), Placement.parse("x=S(0)", 1), (7,), 4, Links(Cluster.parse("8xcpu"), {"x": 8}))
    with pytest.raises(ValueError, match="does not divide shape"):
        box(np.zeros(7), way, (7,), {"x": 8})


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_are_those_of_one_device_where_a_device_has_nan(op, dtype):
    values = np.random.default_rng(0).normal(size=(8, 12)) * 100
    values[0, 0], values[1, 1] = np.inf, -np.inf
    values[:, 2], values[3, 2] = 0.0, -0.0
    if not np.issubdtype(jax.numpy.dtype(dtype), np.integer):
        for device in range(8):
            values[device, 4 + device] = np.nan * (-1) ** device
    else:
        values[:2, :2] = 7
    with jax.enable_x64(True):
        x = jax.numpy.asarray(values).astype(dtype)
        mesh = {"a": 8}
        way = route(
            Placement.parse(f"a=P({op})", 1), Placement.parse("B", 1), (12,), 4, Links(Cluster.parse("8xcpu"), mesh)
        )
        spread = jax.shard_map(
            lambda part: box(part[0], way, (12,), mesh),
            mesh=device_mesh(mesh),
            in_specs=PartitionSpec("a"),
            out_specs=PartitionSpec(),
            check_vma=False,
        )
        expected = getattr(jax.numpy, op)(x, 0)
        np.testing.assert_array_equal(jax.jit(spread)(x), expected)
