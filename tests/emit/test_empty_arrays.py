"""Arrays of no elements are planned and emitted like others: they lie whole, and give what one device gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import sbpjax
from sbpjax import B

SPLIT = {"roles": {"batch": {"data": ["S(0)", "S(1)"]}, "other": {"data": "split"}}}
KEY = jax.random.key(0)
ZERO, LOWEST = np.float32(0), -np.float32(np.inf)


def empty(*shape):
    return np.zeros(shape, np.float32)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def zeros(*shape):
    return np.zeros(shape, np.int32)


def gradient(fn):
    return lambda *args: jax.grad(lambda *args: jnp.sum(fn(*args)))(*args)


PROGRAMS = {
    "gather_none": (lambda x, i: x[i], normal(16, 8), zeros(0)),
    "gather_none_grad": (gradient(lambda x, i: x[i] * 2), normal(16, 8), zeros(0)),
    "gather_rows0": (lambda x, i: x[i], normal(16, 0), zeros(8)),
    "gather_rows0_grad": (gradient(lambda x, i: x[i] * 2), normal(16, 0), zeros(8)),
    "take_clip": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), normal(16, 8), zeros(0)),
    "take_along": (lambda x, i: jnp.take_along_axis(x, i, axis=1), normal(16, 8), zeros(16, 0)),
    "scatter_none": (lambda x, i, u: x.at[i].add(u), normal(16, 8), zeros(0), empty(0, 8)),
    "scatter_set_none": (lambda x, i, u: x.at[i].set(u), normal(16, 8), zeros(0), empty(0, 8)),
    "scatter_into_0": (lambda x, i, u: x.at[:, i].add(u), normal(16, 0), zeros(0), empty(16, 0)),
    "scatter_0cols": (lambda x, i, u: x.at[i].set(u), normal(16, 0), zeros(8), empty(8, 0)),
    "scatter_max": (lambda x, i, u: x.at[i].max(u), normal(16, 8), zeros(0), empty(0, 8)),
    "concat0": (lambda x, z: jnp.concatenate([x, z], 0), normal(16, 8), empty(0, 8)),
    "concat0b": (lambda x, z: jnp.concatenate([z, x, z], 1), normal(16, 8), empty(16, 0)),
    "concat0all": (lambda x, z: jnp.concatenate([z, z], 1), normal(16, 8), empty(16, 0)),
    "concat0_grad": (gradient(lambda x, z: jnp.concatenate([x, z], 0) ** 2), normal(16, 8), empty(0, 8)),
    "concat0_gradz": (gradient(lambda z, x: jnp.concatenate([x, z], 0) ** 2), empty(0, 8), normal(16, 8)),
    "dot_k0": (lambda x, y: x @ y, empty(16, 0), empty(0, 8)),
    "dot_k0_grad": (gradient(lambda x, y: (x @ y) ** 2), empty(16, 0), empty(0, 8)),
    "dot_m0": (lambda x, y: x @ y, empty(0, 16), normal(16, 8)),
    "dot_m0_grad": (lambda x, y: jax.grad(lambda y: jnp.sum((x @ y) ** 2))(y), empty(0, 16), normal(16, 8)),
    "dot_batch0": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), empty(0, 16, 8), empty(0, 8, 8)),
    "dot_b8_k0": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y) + 1, empty(8, 16, 0), empty(8, 0, 8)),
    "sum0": (lambda x: x.sum(0), empty(0, 16)),
    "sum01": (lambda x: x.sum(1), empty(16, 0)),
    "sumall": (lambda x: x.sum() + 1, empty(16, 0)),
    "prod0": (lambda x: x.prod(1), empty(16, 0)),
    "max_init": (lambda x: x.max(1, initial=-1.0), empty(16, 0)),
    "any0": (lambda x: (x > 0).any(1), empty(16, 0)),
    "all0": (lambda x: (x > 0).all(1), empty(16, 0)),
    "mean0": (lambda x: jnp.sum(x * 2, axis=0) + 1, empty(0, 16)),
    "softmax0": (lambda x: jax.nn.softmax(x, axis=0), empty(16, 0)),
    "sort0": (lambda x: jnp.sort(x, axis=1), empty(16, 0)),
    "sort0b": (lambda x: jnp.sort(x, axis=0), empty(16, 0)),
    "argsort": (lambda x: jnp.argsort(x, axis=0), empty(16, 0)),
    "cumsum0": (lambda x: jnp.cumsum(x, axis=0), empty(16, 0)),
    "cumsum1": (lambda x: jnp.cumsum(x, axis=1), empty(16, 0)),
    "topk0": (lambda x: lax.top_k(x, 0), normal(16, 8)),
    "argmax": (lambda x: jnp.argmax(x, axis=0), empty(16, 0)),
    "reshape0": (lambda x: x.reshape(0, 16) * 2, empty(16, 0)),
    "reshape0b": (lambda x: x.reshape(8, 2, 0, 4), empty(16, 0)),
    "reshape0c": (lambda x: x.reshape(0), empty(16, 0)),
    "transpose0": (lambda x: x.T, empty(16, 0)),
    "bcast0": (lambda x: jnp.broadcast_to(x, (8, 16, 0)), empty(16, 0)),
    "bcast0b": (lambda x: jnp.broadcast_to(x[None], (0, 16, 8)), normal(16, 8)),
    "iota0": (lambda x: x + lax.broadcasted_iota(jnp.float32, (16, 0), 0), empty(16, 0)),
    "slice0": (lambda x: x[4:4], normal(16, 8)),
    "slice0b": (lambda x: x[:, 3:3] * 2, normal(16, 8)),
    "slice_grad": (gradient(lambda x: x[:, 3:3] * 2), normal(16, 8)),
    "dynslice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (0, 8)), normal(16, 8), np.int32(3)),
    "dynslice2": (lambda x, i: lax.dynamic_slice(x, (i, 0), (4, 0)), normal(16, 0), np.int32(3)),
    "dynupd": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), normal(16, 8), empty(0, 8), np.int32(3)),
    "dynupd2": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), normal(16, 8), empty(16, 0), np.int32(0)),
    "pad0": (lambda x: jnp.pad(x, ((0, 0), (8, 8))), empty(16, 0)),
    "padneg": (lambda x: lax.pad(x, ZERO, ((-8, -8, 0), (0, 0, 0))), normal(16, 8)),
    "pad_grad": (gradient(lambda x: jnp.pad(x, ((0, 0), (8, 8))) ** 2), empty(16, 0)),
    "conv_b0": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), empty(0, 8, 16, 16), normal(8, 8, 3, 3)),
    "conv_c0": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), empty(8, 0, 16, 16), empty(8, 0, 3, 3)),
    "conv_o0": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), normal(8, 8, 16, 16), empty(0, 8, 3, 3)),
    "conv_valid0": (lambda x, k: lax.conv(x, k, (1, 1), "VALID"), normal(8, 8, 2, 2), normal(8, 8, 3, 3)),
    "conv_grad": (
        lambda x, k: jax.grad(lambda k: jnp.sum(lax.conv(x, k, (1, 1), "SAME") ** 2))(k),
        empty(0, 8, 16, 16),
        normal(8, 8, 3, 3),
    ),
    "conv_grad_c": (
        lambda x, k: jax.grad(lambda k: jnp.sum(lax.conv(x, k, (1, 1), "SAME") ** 2))(k),
        empty(8, 0, 16, 16),
        empty(8, 0, 3, 3),
    ),
    "window0": (
        lambda x: lax.reduce_window(x, ZERO, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        empty(0, 8, 16, 16),
    ),
    "window0b": (
        lambda x: lax.reduce_window(x, LOWEST, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        empty(8, 8, 0, 16),
    ),
    "window_grad": (
        gradient(lambda x: lax.reduce_window(x, LOWEST, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")),
        empty(0, 8, 16, 16),
    ),
    "scan0": (lambda x: lax.scan(lambda c, x: (c + x.sum(), x * 2), 0.0, x), empty(0, 16)),
    "scan0b": (lambda x: lax.scan(lambda c, x: (c + x, x * 2), jnp.zeros(0), x), empty(16, 0)),
    "scan0c": (
        lambda x, w: lax.scan(lambda c, x: (jnp.tanh(c @ w) + x, c), jnp.zeros((8, 16)), x),
        empty(0, 8, 16),
        normal(16, 16),
    ),
    "scan0cg": (
        lambda x, w: jax.grad(
            lambda w: lax.scan(lambda c, x: (jnp.tanh(c @ w) + x, c), jnp.zeros((8, 16)), x)[0].sum()
        )(w),
        empty(0, 8, 16),
        normal(16, 16),
    ),
    "where0": (lambda x: jnp.where(x > 0, x, 1.0), empty(16, 0)),
    "random0": (lambda k, x: jax.random.normal(k, (16, 0)) + x, KEY, empty(16, 0)),
    "random0b": (lambda k: jax.random.bits(k, (0, 16)), KEY),
    "keys0": (lambda k: jax.random.split(k, 0), KEY),
    "split": (lambda x: jnp.split(x, [8, 8]), normal(16, 8)),
    "stack": (lambda x: jnp.stack([x, x]), empty(16, 0)),
    "rev": (lambda x: x[::-1], empty(16, 0)),
    "barrier": (lambda x: lax.optimization_barrier(x) * 2, empty(16, 0)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, x), empty(16, 0)),
    "linalg": (lambda x: jnp.linalg.cholesky(x), empty(8, 0, 0)),
    "solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True),
        np.broadcast_to(np.eye(4, dtype=np.float32), (8, 4, 4)),
        empty(8, 4, 0),
    ),
    "embed": (lambda t, i: jnp.take(t, i, axis=0), empty(16, 0), zeros(8, 4)),
    "convert": (lambda x: x.astype(jnp.bfloat16).sum(0), empty(0, 16)),
    "bias0": (lambda x, b: jax.grad(lambda b: ((x + b) ** 2).sum())(b), empty(16, 0), empty(0)),
    "clip": (lambda x: jnp.clip(x, 0, 1).mean(1, where=x > 0), empty(16, 0)),
    "segsum": (lambda x, i: jax.ops.segment_sum(x, i, 8), empty(0, 16), zeros(0)),
    "unique": (lambda x, i: jnp.bincount(i, length=8) + x.sum(), empty(0, 16), zeros(0)),
    "nonempty_zero_out": (lambda x: (x[:, :0] @ jnp.zeros((0, 8))) + x, normal(16, 8)),
}
PROGRAMS["cross_entropy"] = (
    gradient(lambda w, x, y: -jnp.take_along_axis(jax.nn.log_softmax(x @ w), y[:, None], 1)),
    normal(16, 8),
    empty(0, 16),
    zeros(0),
)


@pytest.mark.parametrize("emitter", ["shard_map", "jit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_empty_arrays_equal_one_device(name, emitter):
    fn, *args = PROGRAMS[name]
    wanted = jax.tree.leaves(jax.jit(fn)(*args))
    plan = sbpjax.plan(fn, *args, mesh={"data": 2, "model": 4}, strategy=SPLIT if len(name) % 2 else "auto")
    got = jax.tree.leaves(plan.emit(plan.make_mesh(), emitter)(*args))
    for g, w in zip(got, wanted, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if not jnp.issubdtype(g.dtype, jax.dtypes.extended):
            np.testing.assert_allclose(np.float64(g), np.float64(w), rtol=1e-5, atol=1e-5)


def test_empty_arrays_lie_whole_also_where_a_dimension_divides():
    plan = sbpjax.plan(lambda x: x * 2, empty(16, 0), mesh={"data": 8}, strategy="dp")
    assert plan.placements["x"].on("data") == B and plan.layout.outputs[0].on("data") == B
    assert [r.path for r in plan.relaxed] == ["x"]
    with pytest.raises(sbpjax.InvalidStrategy, match=r"cannot hold for x: .*no elements to split; data=B would do"):
        sbpjax.plan(lambda x: x * 2, empty(16, 0), mesh={"data": 8}, strategy={"pins": {"x": {"data": "S(0)"}}})
