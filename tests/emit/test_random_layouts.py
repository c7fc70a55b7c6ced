"""Any legal layout of any program, under either emitter, gives what one device gives.

Under `shard_map` its collectives are boxings of the layout, each at most as often as planned. (XLA may find one
superfluous: it gathers no constant, and two boxings that begin alike share their beginning.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled_collectives, planned_collectives
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh
from random_layouts import random_layout
from random_programs import OPS, random_program
from small_programs import PROGRAMS

import sbpjax.rules  # noqa: F401
from sbpjax.cluster import Cluster, Links
from sbpjax.emit import auto, manual
from sbpjax.program.trace import trace

MESHES = ({"a": 8}, {"a": 2, "b": 4}, {"a": 2, "b": 2, "c": 2})
QUICK_COMPILE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
EMITTERS = {"shard_map": manual.emit, "jit": auto.emit}


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def cases():
    """Every program under the main emitter, every second one under the other, on the meshes in turn."""
    for number, name in enumerate(PROGRAMS):
        yield name, "shard_map", MESHES[number % 3], 0
        if number % 2:
            yield name, "jit", MESHES[(number + 1) % 3], 1


def every_case():
    for name in PROGRAMS:
        for emitter in EMITTERS:
            for mesh in MESHES:
                for seed in range(10, 14):
                    yield name, emitter, mesh, seed


@pytest.mark.parametrize(("name", "emitter", "shape", "seed"), cases())
def test_equals_one_device(name, emitter, shape, seed):
    check(*PROGRAMS[name](np.random.default_rng(seed)), emitter, shape, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "emitter", "shape", "seed"), every_case())
def test_equals_one_device_with_more_layouts(name, emitter, shape, seed):
    check(*PROGRAMS[name](np.random.default_rng(seed)), emitter, shape, seed)


random_programs = given(
    ops=st.lists(st.sampled_from(sorted(OPS)), min_size=3, max_size=6),
    seed=st.integers(0, 2**16),
    shape=st.sampled_from(MESHES),
)


@random_programs
@settings(max_examples=3)
def test_random_programs_equal_one_device(ops, seed, shape):
    check(*random_program(ops, seed), "shard_map", shape, seed)


@pytest.mark.slow
@pytest.mark.parametrize("emitter", EMITTERS)
@random_programs
@settings(max_examples=100)
def test_more_random_programs_equal_one_device(emitter, ops, seed, shape):
    check(*random_program(ops, seed), emitter, shape, seed)


def check(fn, args, emitter, shape, seed):
    program = trace(fn, args)
    links = Links(Cluster.parse("8xh100"), shape)
    layout = random_layout(program, links, seed, QUICK_COMPILE)
    mesh = Mesh(
        np.array(jax.devices()).reshape(*shape.values()), tuple(shape), axis_types=(AxisType.Auto,) * len(shape)
    )
    step = EMITTERS[emitter](program, layout, links, mesh)
    if emitter == "shard_map":
        compiled = compiled_collectives(step.lower(*args).compile().as_text())
        assert not compiled - planned_collectives(program, layout, links)
    assert_same(step(*args), jax.jit(fn)(*args))


def assert_same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        assert jax.typeof(g).weak_type == jax.typeof(w).weak_type
        if jnp.issubdtype(g.dtype, jax.dtypes.prng_key):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        g, w = np.asarray(g), np.asarray(w)
        if np.issubdtype(g.dtype, np.floating):
            np.testing.assert_allclose(g, w, rtol=0, atol=1e-9 * max(1.0, np.abs(w).max(initial=0.0)))
        else:
            np.testing.assert_array_equal(g, w)
