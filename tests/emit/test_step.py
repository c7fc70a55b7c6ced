"""The emitted step is called as the user's function is: donation, closures, static arguments, nnx, meshes, errors."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from random_layouts import random_layout

import sbpjax.rules
from sbpjax.cluster import Cluster, Links
from sbpjax.emit import auto, manual
from sbpjax.emit.shardings import in_shardings, kwarg_shardings, out_shardings, partition_spec
from sbpjax.errors import ArgumentMismatch
from sbpjax.layout import BodyLayout, Layout, Version
from sbpjax.program.trace import trace
from sbpjax.rules.rule import Signature
from sbpjax.sbp import Placement

SHAPE = {"a": 2, "b": 4}
LINKS = Links(Cluster.parse("8xh100"), SHAPE)
MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)


def emit(fn, *args, seed=0, emitter=manual, kwargs=None, options=None, **traced):
    program = trace(fn, args, kwargs, **traced)
    layout = random_layout(program, LINKS, seed, options or {})
    return emitter.emit(program, layout, LINKS, MESH), program, layout


def sgd(state, x):
    grads = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(state["w"])
    return {"w": state["w"] - 0.1 * grads, "n": state["n"] + 1}, jnp.sum(grads)


STATE = {"w": np.arange(64, dtype=np.float32).reshape(8, 8) / 64, "n": np.int32(0)}
X = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)


def test_donated_state_is_aliased_and_gone():
    step, program, layout = emit(sgd, STATE, X, donate_argnums=0)
    memory = step.lower(STATE, X).compile().memory_analysis()
    local = {
        leaf.path: 4 * int(np.prod(p.local_shape(program.graph.tensors[t].shape, SHAPE)))
        for leaf, t, p in zip(program.leaves, program.graph.inputs, layout.inputs, strict=True)
    }
    assert memory.alias_size_in_bytes == local["state.w"] + local["state.n"]
    state = jax.device_put(STATE, in_shardings(program, layout, MESH)[0])
    step(state, X)
    assert state["w"].is_deleted() and state["n"].is_deleted()


@pytest.mark.parametrize("emitter", [manual, auto])
def test_an_array_that_was_donated_is_refused_by_name(emitter):
    step, _, _ = emit(sgd, STATE, X, donate_argnums=0, emitter=emitter)
    state, _ = step(STATE, X)
    step(state, X)
    with pytest.raises(ArgumentMismatch, match=r"state\.\w was deleted.*donated"):
        step(state, X)


def test_without_donation_nothing_is_aliased():
    step, _, _ = emit(sgd, STATE, X)
    assert step.lower(STATE, X).compile().memory_analysis().alias_size_in_bytes == 0


@pytest.mark.parametrize("emitter", [manual, auto])
def test_state_goes_round_without_a_second_compilation(emitter):
    step, _, _ = emit(sgd, STATE, X, emitter=emitter)
    state = STATE
    for n in range(1, 4):
        state, _ = step(state, X)
        assert int(state["n"]) == n
    assert step.jitted._cache_size() == 1


def test_closed_over_arrays_are_inputs_placed_once():
    base = jnp.asarray(X) + 1

    def adapted(x):
        return x @ base

    step, program, layout = emit(adapted, X, seed=3)
    assert [leaf.path for leaf in program.leaves] == ["closure.base", "x"]
    assert not layout.inputs[0].is_broadcast
    traced = step.trace(X)
    assert len(traced.jaxpr.in_avals) == 2 and not traced.jaxpr.consts
    np.testing.assert_allclose(step(X), X @ np.asarray(base), rtol=1e-6)
    (placed,) = step._closure
    assert placed.sharding.spec == partition_spec(layout.inputs[0])
    step(X)
    assert step._closure[0] is placed


def test_keyword_static_and_missing_arguments():
    def fn(x, power, scale=None, *, shift):
        y = x**power + shift["by"]
        return y if scale is None else y * scale

    step, program, layout = emit(fn, X, 2, kwargs={"shift": {"by": X}}, static_argnums=1)
    np.testing.assert_allclose(step(X, 2, shift={"by": X}), X**2 + X, rtol=1e-6)
    with pytest.raises(ArgumentMismatch, match="power"):
        step(X, 3, shift={"by": X})
    assert [s and s.spec for s in in_shardings(program, layout, MESH)] == [partition_spec(layout.inputs[0]), None]
    assert kwarg_shardings(program, layout, MESH)["shift"]["by"].spec == partition_spec(layout.inputs[1])
    assert out_shardings(program, layout, MESH).spec == partition_spec(layout.outputs[0])


def test_other_shapes_and_trees_are_refused_by_name():
    step, _, _ = emit(sgd, STATE, X)
    with pytest.raises(ArgumentMismatch, match=r"state\.w.*float32\[8,8\].*float32\[8,4\]"):
        step({**STATE, "w": STATE["w"][:, :4]}, X)
    with pytest.raises(ArgumentMismatch, match=r"state\.n"):
        step({"w": STATE["w"]}, X)


def test_an_array_committed_elsewhere_is_refused_by_name():
    step, _, _ = emit(sgd, STATE, X)
    with pytest.raises(ArgumentMismatch, match=r"x is committed to .*device_put"):
        step(STATE, jax.device_put(X, jax.devices()[3]))


def test_arrays_of_explicit_meshes_and_any_current_mesh_are_accepted():
    step, _, layout = emit(sgd, STATE, X)
    explicit = jax.make_mesh((2, 4), ("a", "b"))
    other = jax.make_mesh((8,), ("z",))
    x = jax.device_put(X, NamedSharding(explicit, partition_spec(layout.inputs[-1])))
    want = jax.jit(sgd)(STATE, X)[1]
    for mesh in (explicit, other):
        with jax.set_mesh(mesh):
            np.testing.assert_allclose(step(STATE, x)[1], want, rtol=1e-5)


def test_a_step_runs_inside_other_jitted_code():
    step, _, _ = emit(sgd, STATE, X, options={"xla_backend_optimization_level": 0})

    @jax.jit
    def twice(state):
        return step(step(state, X)[0], X)

    want = sgd(sgd(STATE, X)[0], X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), twice(STATE), want)


def test_lowering_needs_no_devices():
    program = trace(sgd, (STATE, X))
    layout = random_layout(program, LINKS, 0)
    shapes = jax.eval_shape(lambda: (STATE, X))
    text = manual.emit(program, layout, LINKS, MESH.abstract_mesh).trace(*shapes).lower(lowering_platforms=("cuda",))
    assert "num_partitions = 8" in text.as_text()


def test_compiler_options_of_the_layout_are_used():
    step, _, _ = emit(sgd, STATE, X, options={"xla_no_such_option": 1})
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        step.lower(STATE, X).compile()


def test_one_device_prints_not_all(capfd):
    def fn(x):
        jax.debug.print("total {}", jnp.sum(x))
        jax.lax.scan(lambda c, row: (c, jax.debug.print("row {}", row[0])), 0, x[:3])
        return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    step, _, _ = emit(fn, X)
    np.testing.assert_array_equal(step(X), X + 1)
    jax.effects_barrier()
    printed = capfd.readouterr().out
    assert printed.count("total") == 1 and printed.count("row") == 3


class Net(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(8, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.down = nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x):
        return self.down(self.drop(jax.nn.relu(self.norm(self.up(x)))))


@pytest.mark.parametrize("emitter", [manual, auto])
def test_nnx_objects_are_updated_in_place(emitter):
    def train(model, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - x) ** 2))(model)
        optimizer.update(model, grads)
        return loss, model

    def make():
        model = Net(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    (model, optimizer), (expected, its_optimizer) = make(), make()
    step, _, _ = emit(train, model, optimizer, X, emitter=emitter, options={"xla_backend_optimization_level": 0})
    plain = nnx.jit(train)
    for _ in range(2):
        loss, returned = step(model, optimizer, X)
        want, _ = plain(expected, its_optimizer, X)
        assert returned is model
        np.testing.assert_allclose(loss, want, rtol=1e-5)
    got, want = nnx.state((model, optimizer)), nnx.state((expected, its_optimizer))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(_plain(a), _plain(b), atol=1e-5), got, want)


def _plain(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def test_compiled_ops_are_named_after_the_users_modules():
    model = nn.Sequential([nn.Dense(16), jnp.tanh, nn.Dense(8)])
    params = model.init(jax.random.key(0), X)

    def fn(params, x):
        return jax.grad(lambda p: jnp.sum(model.apply(p, x) ** 2))(params)

    step, _, _ = emit(fn, params, X)
    names = set(re.findall(r'op_name="jit\(fn\)/shard_map/([^"]*)"', step.lower(params, X).compile().as_text()))
    assert {"layers_0/dot_general", "layers_2/dot_general", "backward/layers_2/dot_general"} <= names


def test_two_boxings_that_are_alike_stay_two():
    """A weight gathered once for each of two uses is gathered twice, so that it need not be kept between them."""
    split, whole = Placement.of(2, {"a": sbpjax.sbp.S(0)}), Placement.broadcast(2)

    def fn(w, x):
        return (x @ w) @ w

    program = trace(fn, (X, X))
    w, _ = program.graph.inputs
    matmul = Signature((whole, whole), (whole,))
    versions = [(Version(whole),)] * len(program.graph.tensors)

    def layout(second):
        versions[w] = (Version(split), Version(whole, 0), Version(whole, 0))
        body = BodyLayout(tuple(versions), (matmul,) * 2, ((0, 1), (0, second)), (0,), (whole,))
        return Layout(SHAPE, tuple(split if t == w else whole for t in program.graph.inputs), (whole,), body)

    def gathers(second):
        hlo = manual.emit(program, layout(second), LINKS, MESH).lower(X, X).compile().as_text()
        return hlo.count(" all-gather(")

    assert (gathers(1), gathers(2)) == (1, 2)
    np.testing.assert_allclose(manual.emit(program, layout(2), LINKS, MESH)(X, X), X @ X @ X, rtol=1e-5)


def test_an_array_at_rest_is_never_partial():
    with pytest.raises(ValueError, match="partial"):
        partition_spec(Placement.of(1, {"a": sbpjax.sbp.P("sum")}))
    assert partition_spec(Placement((("a", "b"), ()))) == PartitionSpec(("a", "b"), None)
