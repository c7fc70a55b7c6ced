"""Each op knows its module, phase and line; structure that matters stays: barriers, scans, pins."""

import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from flax.training.train_state import TrainState
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from sbpjax.program.trace import trace
from sbpjax.sbp import S


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        y = nn.Dense(8, name="up")(x)
        return nn.Dense(4, name="down")(jnp.sin(y)), None


class Model(nn.Module):
    remat: bool = True
    scan: bool = False

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(16, 4, name="embed")
        layer = nn.remat(Layer, prevent_cse=not self.scan) if self.remat else Layer
        if self.scan:
            layer = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            x, _ = layer(name="layers")(embed(tokens))
        else:
            x, _ = layer(name="layers_0")(embed(tokens))
        return embed.attend(x)


def step(state, tokens):
    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(state.apply_fn({"params": params}, tokens), tokens).sum()

    value, grads = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=grads), value


def traced(model):
    tokens = jax.ShapeDtypeStruct((2, 3), jnp.int32)

    def init(key):
        params = model.init(key, jnp.zeros((2, 3), jnp.int32))["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))

    return trace(step, (jax.eval_shape(init, jax.random.key(0)), tokens))


def sources(graph, primitive):
    return {(op.source.module, op.source.phase) for _, op, _ in graph.walk() if op.name == primitive}


def test_linen_ops_know_module_and_phase():
    graph = traced(Model()).graph
    assert sources(graph, "dot_general") == {
        ("layers_0/up", "forward"), ("layers_0/up", "remat"), ("layers_0/up", "backward"),
        ("layers_0/down", "forward"), ("layers_0/down", "backward"),
        ("embed", "forward"), ("embed", "backward"),
    }  # fmt: skip
    assert sources(graph, "sqrt") == {("", "update")}
    moments = {i for i in graph.inputs if ".mu." in graph.tensors[i].name}
    reads_moments = [op for op in graph.ops if moments.intersection(op.inputs)]
    assert reads_moments and {op.source.phase for op in reads_moments} == {"update"}
    assert {t.name for t in graph.tensors} >= {"layers_0/up/dot_general", "state.params.embed.embedding"}


def test_lines_are_the_users():
    lines, first = inspect.getsourcelines(Layer)
    sine = first + next(i for i, line in enumerate(lines) if "jnp.sin" in line)
    graph = traced(Model()).graph
    where = {op.source.location for op in graph.ops if op.name == "sin"}
    assert where == {f"test_trace_sources.py:{sine}"}
    assert all(op.source.location.startswith("test_trace_sources.py:") for op in graph.ops)


def test_a_remat_becomes_a_group_of_barriers_in_the_backward_only():
    graph = traced(Model()).graph
    barriers = [(i, op) for i, op in enumerate(graph.ops) if op.name == "optimization_barrier"]
    assert len(barriers) >= 4 and {op.group for _, op in barriers} == {0}
    positions = [i for i, _ in barriers]
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    assert all(len(op.inputs) == len(op.outputs) == 1 for _, op in barriers)
    assert {op.source.phase for _, op in barriers} == {"backward"}
    plain = traced(Model(remat=False)).graph
    assert not [op for op in plain.ops if op.group is not None]


def test_users_barriers_are_groups_of_their_own():
    def fn(x, y):
        x, y = lax.optimization_barrier((x, y))
        return lax.optimization_barrier((x + y, 2.0))

    graph = trace(fn, (jnp.ones(3), jnp.ones(3))).graph
    assert [op.group for op in graph.ops if op.group is not None] == [0, 0, 1]


def test_scanned_layers_keep_their_body():
    graph = traced(Model(scan=True)).graph
    scans = [op for op in graph.ops if op.name == "scan"]
    assert [(op.source.phase, op.repeats) for op in scans] == [("forward", 3), ("backward", 3)]
    for scan in scans:
        fixed, carried = scan.params["num_consts"], scan.params["num_carry"]
        assert "jaxpr" not in scan.params
        assert len(scan.body.inputs) == len(scan.inputs)
        assert len(scan.body.outputs) == len(scan.outputs)
        for k, operand in enumerate(scan.inputs):
            shape = graph.aval(operand).shape
            assert scan.body.aval(scan.body.inputs[k]).shape == (shape if k < fixed + carried else shape[1:])
    assert sources(graph, "sin") == {("layers", "forward"), ("layers", "remat")}
    assert ("layers/up", "remat") in sources(graph, "dot_general")
    kernel = next(op for op in scans[0].body.ops if op.name == "dot_general").inputs[1]
    assert scans[0].body.tensors[kernel].name == "state.params.layers.up.kernel"
    assert len(list(graph.walk())) == len(graph.ops) + sum(len(scan.body.ops) for scan in scans)
    assert {repeats for _, op, repeats in graph.walk() if op.name == "sin"} == {3}


def test_gradient_accumulation_has_all_phases_in_its_body():
    def accumulate(params, batches):
        def micro(total, batch):
            grads = jax.grad(lambda p: jnp.sum(jnp.tanh(batch @ p)))(params)
            return total + grads, None

        total, _ = lax.scan(micro, jnp.zeros_like(params), batches)
        return params - 0.1 * total

    graph = trace(accumulate, (jnp.ones((4, 4)), jnp.ones((3, 2, 4)))).graph
    (scan,) = [op for op in graph.ops if op.name == "scan"]
    assert {op.name: op.source.phase for op in scan.body.ops if op.name in ("tanh", "transpose", "add")} == {
        "tanh": "forward", "transpose": "backward", "add": "update",
    }  # fmt: skip
    assert graph.ops[-1].name == "sub" and graph.ops[-1].source.phase == "update"


def test_nnx_ops_know_their_module_even_in_shared_and_rematerialised_ones():
    class Block(nnx.Module):
        def __init__(self, rngs):
            self.dense = nnx.Linear(4, 4, rngs=rngs)

        @nnx.remat
        def __call__(self, x):
            return jnp.sin(self.dense(x))

    class Tower(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(16, 4, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(2)])

        def __call__(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.embed.attend(x)

    def nnx_step(model, optimizer, tokens):
        grads = nnx.grad(lambda model: model(tokens).sum())(model)
        optimizer.update(model, grads)

    model = Tower(nnx.Rngs(0))
    before = nnx.graphdef(model)
    optimizer = nnx.Optimizer(model, optax.sgd(1e-3), wrt=nnx.Param)
    graph = trace(nnx_step, (model, optimizer, jnp.zeros((2, 3), jnp.int32))).graph
    assert sources(graph, "dot_general") >= {
        ("blocks/0/dense", "forward"), ("blocks/1/dense", "remat"), ("blocks/1/dense", "backward"),
        ("embed", "backward"),
    }  # fmt: skip
    assert sources(graph, "cos") == {("blocks/0", "remat"), ("blocks/1", "remat")}
    assert nnx.graphdef(model) == before
    assert "__call__" in vars(Block) and "attend" in vars(nnx.Embed) and not hasattr(model, "sbpjax_path")


def test_stacked_nnx_layers_are_scanned_under_their_path():
    class Layer(nnx.Module):
        def __init__(self, rngs):
            self.dense = nnx.Linear(4, 4, rngs=rngs)

        def __call__(self, x):
            return jnp.sin(self.dense(x))

    class Stack(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.vmap(Layer)(rngs.fork(split=3))

        def __call__(self, x):
            return nnx.scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)

    graph = trace(lambda state, x: state["model"](x), ({"model": Stack(nnx.Rngs(0))}, jnp.ones(4))).graph
    (scan,) = [op for op in graph.ops if op.name == "scan"]
    assert {(op.name, op.source.module) for op in scan.body.ops} >= {("sin", "layers"), ("dot_general", "layers/dense")}
    assert scan.repeats == 3


def test_two_nnx_models_are_told_apart_by_their_arguments():
    def apply(encoder, decoder, x):
        return decoder(encoder(x))

    make = [nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(2)]
    graph = trace(apply, (*make, jnp.ones(2))).graph
    assert sources(graph, "dot_general") == {("encoder", "forward"), ("decoder", "forward")}


def test_calls_are_inlined_and_dead_code_is_dropped():
    @jax.jit
    def inner(x):
        unused = jnp.exp(x)
        return jnp.sin(x), unused

    def fn(x, y):
        used, _ = jax.named_call(inner, name="inner")(jax.nn.relu(x))
        return used * jax.jit(lambda v: v)(3.0), jax.nn.silu(x)

    graph = trace(fn, (jnp.ones(3), jnp.ones(2))).graph
    assert {op.name for op in graph.ops} <= {"max", "sin", "mul", "logistic", "convert_element_type"}
    assert len(graph.inputs) == 2
    assert "inner" in {op.source.module for op in graph.ops}


def test_effects_are_not_dead_code():
    def fn(x):
        jax.debug.print("{}", x)
        return x + 1

    assert "debug_print" in {op.name for op in trace(fn, (1.0,)).graph.ops}


def test_sharding_constraints_become_pins_that_need_not_hold():
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def fn(x):
        x = lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("data", None)))
        return lax.with_sharding_constraint(x * 2, NamedSharding(mesh, PartitionSpec(None, ("data", "model"))))

    pins = [op.params for op in trace(fn, (jnp.ones((4, 4)),)).graph.ops if op.name == "sbp_constrain"]
    assert pins == [
        {"pins": (("data", S(0)),), "strict": False},
        {"pins": (("data", S(1)), ("model", S(1))), "strict": False},
    ]


def test_an_explicit_mesh_leaves_no_trace():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)

    def fn(x, w):
        return jax.nn.relu(x @ w).reshape(2, 8), jnp.zeros((4, 4)) + x.sum()

    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((4, 4)), NamedSharding(mesh, PartitionSpec("data", "model")))
        explicit = trace(fn, (x, x))
    bare = trace(fn, (x, x))
    assert explicit.fingerprint == bare.fingerprint
    assert [t.aval for t in explicit.graph.tensors] == [t.aval for t in bare.graph.tensors]
