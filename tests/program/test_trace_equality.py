"""Evaluating a traced program's graph op by op gives what the user's own function gives."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from binding import QUICK, assert_same, call_program
from flax import nnx
from flax.training.train_state import TrainState
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from sbpjax.program.trace import trace

TOLERANCE = 1e-12
"""Of an array's largest entry, in float64: compiled programs differ in what the compiler fuses."""


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def float32(float64):
    with jax.enable_x64(False):  # nnx keeps BatchNorm's statistics in float32 whatever the model's dtype
        yield


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        h = nn.LayerNorm(param_dtype=jnp.float64)(x)
        h = nn.gelu(nn.Dense(16, name="up", param_dtype=jnp.float64)(h))
        h = nn.Dropout(0.2, deterministic=False)(h)
        return x + nn.Dense(8, name="down", param_dtype=jnp.float64)(h), None


class Unrolled(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(16, 8, param_dtype=jnp.float64)
        x = embed(tokens)
        for i in range(2):
            x, _ = nn.remat(Block)(name=f"layers_{i}")(x)
        return embed.attend(x)


class Scanned(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(16, 8, param_dtype=jnp.float64)(tokens)
        layers = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=3,
        )
        x, _ = layers(name="layers")(x)
        return nn.Dense(16, param_dtype=jnp.float64)(x)


def linen_step(state, tokens, key):
    def loss(params):
        logits = state.apply_fn({"params": params}, tokens, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()

    value, grads = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=grads), {"loss": value}


def linen_arguments(model):
    tokens = jax.random.randint(jax.random.key(1), (4, 5), 0, 16)
    init = jax.jit(model.init, compiler_options=QUICK)
    params = init({"params": jax.random.key(0), "dropout": jax.random.key(2)}, tokens)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-2)), tokens, jax.random.key(3)


@pytest.mark.parametrize("model", [Unrolled(), Scanned()], ids=["unrolled", "scanned"])
def test_linen_train_steps_are_the_same(model):
    args = linen_arguments(model)
    program = trace(linen_step, args)
    state, metrics = jax.jit(linen_step, compiler_options=QUICK)(*args)
    second = (state, *args[1:])
    assert_same(call_program(program, args), (state, metrics), rtol=TOLERANCE)
    assert len(program.flatten_call(second, {})) == len(program.leaves)


class NnxBlock(nnx.Module):
    def __init__(self, width, rngs):
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dense = nnx.Linear(width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, x):
        return x + self.dropout(jax.nn.relu(self.dense(self.norm(x))))


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(16, 8, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(8, rngs) for _ in range(2)])
        self.head = nnx.Linear(16, 8, use_bias=False, rngs=rngs)
        self.head.kernel = self.embed.embedding

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return x @ self.head.kernel.T


ADAM = optax.adam(1e-2)


def nnx_state():
    model = NnxModel(nnx.Rngs(0, dropout=1))
    optimizer = nnx.Optimizer(model, ADAM, wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    return model, optimizer, metrics


def nnx_step(model, optimizer, metrics, tokens):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(tokens), tokens).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss)
    return loss, model


def test_nnx_objects_are_updated_in_place_as_by_nnx_jit(float32):
    tokens = jax.random.randint(jax.random.key(1), (4, 5), 0, 16)
    expected, actual = nnx_state(), nnx_state()
    program = trace(nnx_step, (*actual, tokens))
    assert program.mutates
    assert trace(nnx.jit(nnx_step), (*actual, tokens)).fingerprint == program.fingerprint
    jitted = nnx.jit(nnx_step)
    for _ in range(2):
        expected_loss, expected_model = jitted(*expected, tokens)
        loss, model = call_program(program, (*actual, tokens))
        assert_same(loss, expected_loss, rtol=1e-6)
        assert model is actual[0] and expected_model is expected[0]
    assert actual[0].head.kernel is actual[0].embed.embedding
    for ours, theirs in zip(actual, expected, strict=True):
        assert_same(nnx.state(ours), nnx.state(theirs), rtol=1e-6)
        assert nnx.graphdef(ours) == nnx.graphdef(theirs)
    assert actual[0].blocks[0].dropout.rngs.count[...] == 2
    assert np.any(np.asarray(actual[0].blocks[1].norm.mean[...]) != 0)


def test_nnx_modules_may_change_structure_and_be_created(float32):
    class Grows(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 3, rngs=rngs)

    def grow(module, x):
        module.second = nnx.Linear(3, 3, rngs=nnx.Rngs(7))
        module.seen = nnx.Variable(x.sum())
        return module.second, nnx.Linear(3, 2, rngs=nnx.Rngs(8))

    x = jnp.arange(3.0)
    expected, actual = Grows(nnx.Rngs(0)), Grows(nnx.Rngs(0))
    _, expected_new = nnx.jit(grow)(expected, x)
    second, new = call_program(trace(grow, (actual, x)), (actual, x))
    assert second is actual.second
    assert_same(nnx.state(actual), nnx.state(expected))
    assert_same(nnx.state(new), nnx.state(expected_new))


def test_an_abstract_nnx_model_is_traced_without_memory():
    def make():
        model = nnx.Linear(1 << 16, 1 << 16, rngs=nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    def step(model, optimizer, x):
        grads = nnx.grad(lambda model: model(x).sum())(model)
        optimizer.update(model, grads)

    model, optimizer = nnx.eval_shape(make)
    program = trace(step, (model, optimizer, jax.ShapeDtypeStruct((4, 1 << 16), jnp.float32)))
    kernel = next(leaf for leaf in program.leaves if leaf.path == "model.kernel")
    assert kernel.role == "parameter"
    assert kernel.carried_to is not None


def custom_functions():
    @jax.custom_vjp
    def clipped(x):
        return x * 2

    clipped.defvjp(lambda x: (x * 2, x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * x,))

    @jax.custom_jvp
    def smooth(x):
        return jnp.abs(x)

    smooth.defjvp(lambda x, t: (smooth(x[0]), jnp.tanh(x[0]) * t[0]))
    return clipped, smooth


def gradient_accumulation(w, xs):
    def micro(total, x):
        loss, grad = jax.value_and_grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
        return jax.tree.map(jnp.add, total, (loss, grad)), loss

    (loss, grad), losses = lax.scan(micro, (jnp.zeros(()), jnp.zeros_like(w)), xs)
    return w - 0.1 * grad, loss, losses


def policied(w, x):
    layer = jax.checkpoint(
        lambda w, x: jnp.sin(jnp.tanh(x @ w) @ w), policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    )
    return jax.grad(lambda w: layer(w, layer(w, x)).sum())(w)


def control_flow(w, x):
    y = lax.while_loop(lambda v: jnp.sum(v) < 100.0, lambda v: v * 2.0 + 1.0, jnp.abs(x))
    y = lax.cond(jnp.sum(w) > 0, lambda y: y @ w, lambda y: jnp.sin(y), y)
    y = lax.fori_loop(0, 3, lambda i, y: y + i * w, y)
    return lax.associative_scan(jnp.add, y), jnp.linalg.solve(w + 10 * jnp.eye(4), x)


def derivatives(w, x):
    clipped, smooth = custom_functions()

    def loss(w):
        return jnp.sum(smooth(clipped(x @ w)) + jax.nn.relu(x) + jax.nn.silu(w))

    hessian = jax.jvp(jax.grad(loss), (w,), (jnp.ones_like(w),))
    return loss(w), jax.grad(loss)(w), hessian, jax.vmap(jax.grad(lambda r: smooth(r).sum()))(w)


def reversed_nested_scans(w, x):
    def outer(c, row):
        c, ys = lax.scan(lambda c, v: (jnp.cos(c) + v * w[0, 0], c), c, row, reverse=True)
        return c, ys

    return lax.scan(outer, jnp.zeros(()), x, unroll=2), lax.scan(lambda c, _: (c, ()), 0, None, length=0)


def barriers(w, x):
    a, b = lax.optimization_barrier((w + 1, x * 2))
    return a @ b, lax.optimization_barrier(3.0)


def randomness(w, x):
    key = jax.random.key(5)
    k1, k2 = jax.random.split(key)
    shuffled = jax.random.permutation(k1, w)
    return jax.random.normal(k2, (3,)) + shuffled[0, 0], jax.random.key_data(k1), jax.random.categorical(k2, x), k2


@pytest.mark.parametrize(
    "fn",
    [policied, control_flow, derivatives, reversed_nested_scans, barriers, randomness],
    ids=lambda fn: fn.__name__,
)
def test_functions_of_two_matrices_are_the_same(fn):
    w, x = jnp.linspace(-1, 1, 16).reshape(4, 4), jnp.linspace(0, 2, 16).reshape(4, 4) ** 2
    assert_same(call_program(trace(fn, (w, x)), (w, x)), jax.jit(fn, compiler_options=QUICK)(w, x), rtol=TOLERANCE)


def test_gradient_accumulation_is_the_same():
    args = jnp.linspace(-1, 1, 16).reshape(4, 4), jnp.linspace(0, 2, 48).reshape(3, 4, 4)
    program = trace(gradient_accumulation, args)
    assert [op.repeats for op in program.graph.ops if op.name == "scan"] == [3]
    assert_same(call_program(program, args), jax.jit(gradient_accumulation)(*args), rtol=TOLERANCE)


def test_all_kinds_of_leaves_are_passed():
    def fn(state, scale, flag, *, key, extra):
        new = {**state, "count": state["count"] + 1, "x": state["x"] * scale}
        noise = jax.random.normal(key, state["x"].shape)
        return new, jnp.where(flag, noise, -noise), extra, state["mask"] & True

    state = {"count": 0, "x": np.arange(4.0), "none": None, "empty": (), "mask": jnp.array([True, False])}
    args, kwargs = (state, 2.0, True), {"key": jax.random.key(0), "extra": jnp.zeros((0, 3))}
    program = trace(fn, args, kwargs)
    assert_same(call_program(program, args, kwargs), jax.jit(fn)(*args, **kwargs))


def test_closed_over_arrays_are_inputs_and_scalars_constants():
    table, inner = jnp.arange(32.0).reshape(8, 4), np.arange(6.0).reshape(2, 3)
    scale, key = jnp.asarray(3.0), jax.random.key(0)

    def fn(x):
        def body(c, i):
            return c + table[i] * scale + jax.jit(lambda y: jnp.sum(y * inner))(1.0), jax.random.normal(key, ())

        return lax.scan(body, x, jnp.arange(3))

    program = trace(fn, (jnp.ones(4),))
    by_path = {leaf.path: leaf for leaf in program.leaves}
    assert set(by_path) == {"closure.table", "closure.inner", "x"}
    assert len(program.closure) == 2
    assert by_path["closure.table"].role == "parameter"
    assert_same(call_program(program, (jnp.ones(4),)), jax.jit(fn)(jnp.ones(4)), rtol=TOLERANCE)


def test_static_and_donated_arguments_of_a_jitted_function_are_kept():
    @functools.partial(jax.jit, static_argnames="power", donate_argnums=0)
    def fn(x, power, y):
        return x**power + y

    program = trace(fn, (jnp.arange(3.0), 3, 1.0))
    assert program.static_argnums == (1,)
    assert [(leaf.path, leaf.donated) for leaf in program.leaves] == [("x", True), ("y", False)]
    assert_same(call_program(program, (jnp.arange(3.0), 3, 1.0)), jnp.arange(3.0) ** 3 + 1)
    program = trace(fn, (jnp.arange(3.0),), {"power": 2, "y": 1.0}, donate_argnums=0)
    assert_same(call_program(program, (jnp.arange(3.0),), {"power": 2, "y": 1.0}), jnp.arange(3.0) ** 2 + 1)


def test_methods_partials_and_callable_objects_are_functions_too():
    class Model:
        weight = jnp.arange(3.0)

        def __call__(self, x):
            return x * self.weight

        @functools.partial(jax.jit, static_argnums=(0, 2))
        def power(self, x, n):
            return x**n * self.weight

    model, x = Model(), jnp.ones(3)
    assert_same(call_program(trace(model, (x,)), (x,)), model(x))
    assert_same(call_program(trace(model.power, (x, 2)), (x, 2)), model.power(x, 2))
    scaled = functools.partial(lambda a, b, c: a * b + c, x, c=2.0)
    assert_same(call_program(trace(scaled, (x,)), (x,)), scaled(x))


UNARY = (jnp.sin, jnp.tanh, jnp.abs, lambda x: x.T, lambda x: x[::-1], jax.nn.relu, lambda x: x - x.mean(0))
BINARY = (jnp.add, jnp.multiply, jnp.matmul, jnp.maximum, lambda a, b: jnp.where(a > b, a, b))


@st.composite
def random_function(draw):
    """A random program of 4×4 matrices, some of its parts under jit, remat, grad, scan or vmap."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=8)
    )
    wrapping = draw(st.sampled_from(["none", "jit", "checkpoint", "grad", "scan", "vmap"]))

    def plain(a, b):
        values = [a, b]
        for which, i, j in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            values.append(UNARY[which](x) if which < len(UNARY) else BINARY[which - len(UNARY)](x, y) / 4)
        return values[-1]

    def wrapped(a, b):
        match wrapping:
            case "jit":
                return jax.jit(plain)(a, plain(a, b))
            case "checkpoint":
                return jax.grad(lambda a: jnp.sum(jax.checkpoint(plain)(jnp.sin(a), b)))(a)
            case "grad":
                return jax.value_and_grad(lambda a: jnp.sum(plain(a, b) ** 2))(a)
            case "scan":
                return lax.scan(lambda c, s: (plain(c, b) + s, plain(s + b, c)), a, jnp.stack([a, b]))
            case "vmap":
                return jax.vmap(lambda s: plain(s, b))(jnp.stack([a, b, a + b]))
        return plain(a, b)

    return wrapped


@settings(max_examples=25)
@given(fn=random_function(), seed=st.integers(0, 1000))
def test_random_functions_are_the_same(fn, seed):
    a, b = jax.random.normal(jax.random.key(seed), (2, 4, 4), dtype=jnp.float64)
    assert_same(call_program(trace(fn, (a, b)), (a, b)), jax.jit(fn, compiler_options=QUICK)(a, b), rtol=TOLERANCE)
