"""Ops that are bound as they stand: what stands inside of them holds, is listed, or is refused with its line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sbpjax
from sbpjax import B, S

MESH = {"data": 8}


def split(x):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    return lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("data")))


CONSTRAINED = {
    "cond": lambda x: lax.cond(x.sum() > 0, lambda x: split(x * 2), lambda x: x, x),
    "switch": lambda x: lax.switch(1, [lambda x: x, lambda x: jax.checkpoint(lambda x: split(jnp.sin(x)))(x)], x),
    "while": lambda x: lax.while_loop(lambda c: split(c).sum() < 100, lambda c: jax.jit(split)(c * 2) + 1, x),
    "loop in a cond": lambda x: lax.cond(
        x.sum() > 0, lambda x: lax.fori_loop(0, 3, lambda i, c: split(c) + i, x), jnp.sin, x
    ),
}


@pytest.mark.parametrize("emitter", ["shard_map", "jit"])
@pytest.mark.parametrize("name", CONSTRAINED)
def test_sharding_constraints_inside_are_taken_out_and_listed(name, emitter):
    def step(x):
        return CONSTRAINED[name](x) + 1

    x = jnp.ones((16, 4))
    plan = sbpjax.plan(step, x, mesh=MESH)
    np.testing.assert_allclose(plan.emit(plan.make_mesh(), emitter)(x), step(x), rtol=1e-6)
    assert {r.axis for r in plan.relaxed} == {"data"}
    assert all("every device computes it whole" in r.reason for r in plan.relaxed)


def test_a_pin_inside_is_refused():
    def step(x, **pin):
        return lax.cond(x.sum() > 0, lambda x: sbpjax.constrain(x, **pin), lambda x: x, x)

    x = jnp.ones((16, 4))
    with pytest.raises(
        sbpjax.InvalidStrategy, match=r"constrain\(data=S\(0\)\) inside of the cond at .*test_whole_ops.py:\d+\)"
    ):
        sbpjax.plan(lambda x: step(x, data=S(0)), x, mesh=MESH)
    assert sbpjax.plan(lambda x: step(x, data=B), x, mesh=MESH)
    assert sbpjax.plan(lambda x: step(x, model=S(0)), x, mesh=MESH), "an axis of size 1 splits nothing"


def test_a_shard_map_inside_is_refused():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    doubled = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec("data"))
    with pytest.raises(sbpjax.NotTraceable, match=r"shard_map of its own at .*test_whole_ops.py:\d+\)"):
        sbpjax.plan(lambda x: lax.cond(x.sum() > 0, doubled, lambda x: x, x), jnp.ones((16, 4)), mesh=MESH)


def printed(x):
    jax.debug.print("{}", x.sum(), ordered=True)
    return x


def called_back(x):
    jax.debug.callback(lambda _: None, x.sum(), ordered=True)
    return x


def fetched(x):
    return x + io_callback(lambda a: a, jax.ShapeDtypeStruct((), x.dtype), x.sum(), ordered=True)


@pytest.mark.parametrize("ordered", [printed, called_back, fetched])
@pytest.mark.parametrize("where", ["step", "scan", "cond"])
def test_ordered_effects_are_refused_on_several_devices(ordered, where):
    def step(x):
        if where == "scan":
            return lax.scan(lambda c, _: (ordered(c), None), x, length=2)[0]
        return ordered(x) if where == "step" else lax.cond(x.sum() > 0, ordered, lambda x: x, x)

    x = jnp.ones((16, 4))
    with pytest.raises(sbpjax.NotTraceable, match=r"at .*test_whole_ops.py:\d+\) is ordered: .* ordered=True out"):
        sbpjax.plan(step, x, mesh=MESH)
    assert sbpjax.plan(step, x, mesh={"data": 1})
