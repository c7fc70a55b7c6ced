"""A vocabulary split over devices: lookups and their gradients on a real mesh, out-of-bounds indices included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec
from rule_corpus import applications

import sbpjax.rules  # noqa: F401
from sbpjax.rules.local import run_local
from sbpjax.rules.registry import rule_of
from sbpjax.rules.rule import Signature
from sbpjax.rules.signatures import signatures
from sbpjax.sbp import Placement

MESH = {"a": 2, "b": 4}
SPLIT = Placement((("a", "b"), ()))
IDS = np.array([0, 15, -1, 16, 7, 8, -17, 40], np.int32)


def on_the_mesh(primitive, signature, fn, *args):
    """The only equation of a primitive, run by that signature in a shard_map, beside its value on one device."""
    ((equation, operands),) = applications(primitive, fn, *args)
    shapes = [x.shape for x in operands]
    results = [v.aval for v in equation.outvars]
    rule = rule_of(equation, operands, results)
    assert signature in signatures(rule, MESH, shapes, [r.shape for r in results])

    def step(*parts):
        index = lambda axes: lax.axis_index(tuple(axes))  # noqa: E731
        (y,) = run_local(equation, rule, signature, MESH, parts, shapes, [r.shape for r in results], index)
        partial = signature.results[0].partial
        return lax.psum(y, partial) if partial else y

    specs = [PartitionSpec(*(axes or None for axes in p.dims)) for p in (*signature.operands, *signature.results)]
    mesh = jax.make_mesh(tuple(MESH.values()), tuple(MESH), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    got = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=tuple(specs[:-1]), out_specs=specs[-1], check_vma=False))
    return got(*operands), equation.primitive.bind(*operands, **equation.params)


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_a_lookup_in_a_split_vocabulary_is_a_partial_sum(mode):
    table = jax.random.normal(jax.random.key(0), (16, 4))
    whole = Signature((SPLIT, Placement.broadcast(2)), (Placement(((), ()), ("a", "b"), "sum"),))
    got, want = on_the_mesh("gather", whole, lambda t, i: t.at[i].get(mode=mode), table, IDS)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.isnan(want).any() == (mode == "fill")


@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_a_gradient_of_a_split_vocabulary_stays_split(mode):
    updates = jax.random.normal(jax.random.key(0), (8, 4))
    split = Signature((SPLIT, Placement.broadcast(2), Placement.broadcast(2)), (SPLIT,))
    got, want = on_the_mesh(
        "scatter-add", split, lambda t, i, u: t.at[i].add(u, mode=mode), jnp.ones((16, 4)), IDS, updates
    )
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_gradient_from_a_split_batch_is_a_partial_sum_and_counts_the_operand_once():
    updates = jax.random.normal(jax.random.key(0), (8, 4))
    batch = Signature(
        (Placement.broadcast(2), Placement((("a", "b"), ())), Placement((("a", "b"), ()))),
        (Placement(((), ()), ("a", "b"), "sum"),),
    )
    got, want = on_the_mesh("scatter-add", batch, lambda t, i, u: t.at[i].add(u), jnp.ones((16, 4)), IDS, updates)
    np.testing.assert_allclose(got, want, rtol=1e-6)
