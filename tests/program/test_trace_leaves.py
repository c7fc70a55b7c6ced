"""Names, roles, donation and carrying of the leaves of a traced function."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from sbpjax.program.trace import trace


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(3, name="dense")(x))
        return nn.Dense(2)(x)


class StatefulTrainState(TrainState):
    batch_stats: dict


def make_state():
    net = Net()
    variables = net.init(jax.random.key(0), jnp.ones((1, 4)))
    return StatefulTrainState.create(
        apply_fn=net.apply, params=variables["params"], batch_stats=variables["batch_stats"], tx=optax.adam(1e-3)
    )


def loss_of(params, state, batch):
    variables = {"params": params, "batch_stats": state.batch_stats}
    out, updates = state.apply_fn(variables, batch["x"], mutable=["batch_stats"])
    return jnp.mean((out - batch["y"]) ** 2), updates


def train_step(state, batch, rng):
    (loss, updates), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params, state, batch)
    state = state.apply_gradients(grads=grads).replace(batch_stats=updates["batch_stats"])
    return {"loss": loss, "rng": rng}, state


def eval_step(state, batch):
    out = state.apply_fn({"params": state.params, "batch_stats": state.batch_stats}, batch["x"], train=False)
    return jnp.mean((out - batch["y"]) ** 2)


BATCH = {"x": jax.ShapeDtypeStruct((8, 4), jnp.float32), "y": jax.ShapeDtypeStruct((8, 2), jnp.float32)}


def roles_of(program):
    return {leaf.path: leaf.role for leaf in program.leaves}


def carried_paths(program):
    return {leaf.path: program.result_paths[leaf.carried_to] for leaf in program.leaves if leaf.carried_to is not None}


def test_a_train_state_is_carried_to_itself_and_its_leaves_have_roles():
    program = trace(train_step, (jax.eval_shape(make_state), BATCH, jax.random.key(0)), donate_argnums=0)
    roles = roles_of(program)
    assert roles["state.params.dense.kernel"] == "parameter"
    assert roles["state.opt_state.0.mu.dense.kernel"] == roles["state.opt_state.0.nu.Dense_0.bias"] == "optimizer"
    assert roles["state.opt_state.0.count"] == roles["state.step"] == roles["rng"] == "other"
    assert roles["state.batch_stats.BatchNorm_0.mean"] == "other"
    assert roles["batch.x"] == roles["batch.y"] == "batch"
    assert carried_paths(program) == {p: "1." + p.removeprefix("state.") for p in roles if p.startswith("state.")}
    assert all(leaf.donated == leaf.path.startswith("state.") for leaf in program.leaves)
    names = [program.graph.tensors[i].name for i in program.graph.inputs]
    assert names == [leaf.path for leaf in program.leaves]


def test_an_evaluated_train_state_has_the_same_names_and_roles():
    state = jax.eval_shape(make_state)
    trained, evaluated = (trace(fn, args) for fn, args in (
        (train_step, (state, BATCH, jax.random.key(0))), (eval_step, (state, BATCH))))  # fmt: skip
    assert carried_paths(evaluated) == {}
    for path, role in roles_of(evaluated).items():
        assert roles_of(trained)[path] == role, path
    assert {op.source.phase for op in evaluated.graph.ops} == {"forward"}


def plain_step(params, momentum, batch, lr):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((batch @ p["w"] + p["b"]) ** 2))(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - lr * m, params, momentum), momentum, loss


def test_equal_trees_are_carried_in_order_and_told_apart_by_who_reads_them():
    params = {"w": jnp.ones((4, 2)), "b": jnp.ones(2)}
    program = trace(plain_step, (params, params, jnp.ones((8, 4)), 0.1))
    assert carried_paths(program) == {
        "params.w": "0.w", "params.b": "0.b", "momentum.w": "1.w", "momentum.b": "1.b",
    }  # fmt: skip
    roles = roles_of(program)
    assert [roles[p] for p in ("params.w", "momentum.w", "batch", "lr")] == ["parameter", "optimizer", "batch", "other"]


def test_unnamed_weights_are_parameters_by_structure():
    def predict(model, x):
        return jnp.tanh(x @ model["a"]["kernel"] + model["a"]["bias"])

    model = {"a": {"kernel": jnp.ones((4, 2)), "bias": jnp.ones(2)}}
    roles = roles_of(trace(predict, (model, jnp.ones((8, 4)))))
    assert roles == {"model.a.kernel": "parameter", "model.a.bias": "parameter", "x": "batch"}


def test_a_frozen_base_is_a_parameter_and_not_a_batch():
    def step(lora, base, x):
        grads = jax.grad(lambda lora: jnp.sum(x @ (base["w"] + lora["a"] @ lora["b"]) + base["v"]))(lora)
        return jax.tree.map(lambda p, g: p - g, lora, grads)

    lora, base = {"a": jnp.ones((4, 1)), "b": jnp.ones((1, 4))}, {"w": jnp.ones((4, 4)), "v": jnp.ones(4)[:1]}
    roles = roles_of(trace(step, (lora, base, jnp.ones((8, 4)))))
    assert roles["base.w"] == roles["lora.a"] == "parameter"
    assert roles["x"] == "batch"


def test_a_scalar_argument_is_not_carried_into_a_scalar_result():
    program = trace(lambda w, lr: (w - lr * jax.grad(lambda w: (w**2).sum())(w), lr * 2), (jnp.ones(3), 0.1))
    assert carried_paths(program) == {"w": "0"}


def test_logits_are_not_the_next_value_of_an_input_of_their_shape():
    def step(w, x):
        (_, logits), grad = jax.value_and_grad(lambda w: (jnp.sum(x @ w), x @ w), has_aux=True)(w)
        return logits, w - grad

    assert carried_paths(trace(step, (jnp.ones((4, 4)), jnp.ones((4, 4))))) == {"w": "1"}


def test_containers_within_an_argument_are_carried_alone():
    def decode(model, token):
        cache = {"k": model["cache"]["k"] + token.sum(), "v": model["cache"]["v"]}
        return token[:, None], cache

    model = {"weights": {"w": jnp.ones((2, 2)), "v": jnp.ones(3)}, "cache": {"k": jnp.ones((2, 3)), "v": jnp.ones(2)}}
    program = trace(decode, (model, jnp.ones(4)))
    assert carried_paths(program) == {"model.cache.k": "1.k", "model.cache.v": "1.v"}
    assert roles_of(program)["model.cache.k"] == "other"


def test_nnx_leaves_have_the_names_and_roles_of_their_variables():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.blocks = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(11)])
            self.norm = nnx.BatchNorm(2, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)
            self.tied = self.blocks[0].kernel

        def __call__(self, x):
            return self.dropout(self.norm(self.blocks[0](x)))

    def make():
        model = Model(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    def step(model, optimizer, x, *, scale):
        loss, grads = nnx.value_and_grad(lambda model: scale * model(x).sum())(model)
        optimizer.update(model, grads)
        return {"loss": loss}

    args = (*nnx.eval_shape(make), jnp.ones((4, 2)))
    program = trace(nnx.jit(step, donate_argnums=0), args, {"scale": 2.0})
    roles = roles_of(program)
    assert list(roles)[:4] == ["model.blocks.0.bias", "model.blocks.0.kernel", "model.blocks.1.bias",
                               "model.blocks.1.kernel"]  # fmt: skip
    assert "model.tied" not in roles
    assert roles["model.blocks.10.kernel"] == roles["model.norm.scale"] == "parameter"
    assert roles["model.norm.mean"] == roles["model.dropout.rngs.key"] == roles["optimizer.step"] == "other"
    assert roles["optimizer.opt_state.0.mu.blocks.10.kernel"] == "optimizer"
    assert (roles["x"], roles["scale"]) == ("batch", "other")
    state = [leaf for leaf in program.leaves if leaf.role in ("parameter", "optimizer")]
    assert all(program.result_paths[leaf.carried_to] == leaf.path for leaf in state)
    assert program.result_paths[-1] == "loss"
    assert {leaf.path.split(".")[0] for leaf in program.leaves if leaf.donated} == {"model"}


def test_trees_of_an_nnx_call_hold_states_in_the_order_of_the_leaves():
    model = nnx.Sequential(*[nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(11)])
    program = trace(lambda model, x: model(x), (model, jnp.ones(2)))
    (state, x), kwargs = jax.tree.unflatten(program.in_tree, [leaf.path for leaf in program.leaves])
    assert (x, kwargs) == ("x", {})
    assert state["layers"][10]["kernel"] == "model.layers.10.kernel"
    (out_state, _), _, result = jax.tree.unflatten(program.out_tree, program.result_paths)
    assert (out_state["layers"][2]["bias"], result) == ("model.layers.2.bias", "result")


def test_closed_over_weights_are_found_by_the_name_of_their_variable():
    params = {"dense": {"kernel": jnp.ones((4, 4))}}
    table = np.arange(8.0, dtype=np.float32)

    def fn(x):
        return x @ params["dense"]["kernel"] + table[:4] + x[np.array([0, 2, 1, 1])]

    program = trace(fn, (jnp.ones(4),))
    closure = {leaf.path: leaf.role for leaf in program.leaves[:-1]}
    assert closure["closure.params.dense.kernel"] == "parameter"
    assert "closure.table" not in closure  # numpy cut the slice: it is another array, and has no name
    assert closure["closure.1"] == "parameter" and closure["closure.2"] == "other"
    assert program.closure[0] is params["dense"]["kernel"]


def test_frozen_parameters_that_are_returned_unchanged_are_graph_inputs_and_outputs():
    program = trace(lambda frozen, x: (frozen, x @ frozen["w"]), ({"w": jnp.ones((4, 4))}, jnp.ones((2, 4))))
    assert program.graph.outputs[0] == program.graph.inputs[0]


@pytest.mark.parametrize("args", [((jnp.ones(2), [jnp.ones(3), None]),), (jnp.ones(2), jnp.ones(3))])
def test_variadic_arguments_are_numbered(args):
    def fn(*xs):
        return xs

    first = trace(fn, args).leaves[0].path
    assert first in ("xs.0.0", "xs.0")


def test_leaves_whose_keys_hold_dots_have_paths_of_their_own():
    tree = {"a": {"b": jnp.ones(2)}, "a.b": jnp.ones(3), "a.b#2": jnp.ones(4)}
    program = trace(lambda d: d, (tree,))
    shapes = [program.graph.tensors[t].shape for t in program.graph.inputs]
    paths = dict(zip((leaf.path for leaf in program.leaves), shapes, strict=True))
    assert paths == {"d.a.b": (2,), "d.a.b#3": (3,), "d.a.b#2": (4,)}


def test_functional_nnx_is_a_pytree_with_the_same_names():
    model = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.BatchNorm(2, rngs=nnx.Rngs(0)))
    graphdef, state = nnx.split(model)

    def fn(state, x):
        model = nnx.merge(graphdef, state)
        return model(x), nnx.state(model)

    for program in (trace(fn, (state, jnp.ones((3, 2)))), trace(jax.jit(fn), (state, jnp.ones((3, 2))))):
        assert not program.mutates
        roles = roles_of(program)
        assert roles["state.layers.0.kernel"] == "parameter" and roles["state.layers.1.mean"] == "other"
        assert carried_paths(program)["state.layers.1.var"] == "1.layers.1.var"


def test_jitted_functions_take_nnx_modules_as_pytrees_as_jax_jit_does():
    module = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    program = trace(jax.jit(lambda module, x: module(x)), (module, jnp.ones((3, 2))))
    assert not program.mutates
    assert roles_of(program)["module.kernel"] == "parameter"
    assert len(program.graph.outputs) == 1


def test_weights_read_only_within_a_loop_are_parameters_and_their_momentum_is_optimizer_state():
    def step(weights, momentum, x):
        def loss(weights):
            y, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights["layers"])
            return jnp.sum(y)

        grads = jax.grad(loss)(weights)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum), momentum

    stacked = {"layers": jnp.ones((3, 4, 4))}
    roles = roles_of(trace(step, (stacked, stacked, jnp.ones((2, 4)))))
    assert roles == {"weights.layers": "parameter", "momentum.layers": "optimizer", "x": "batch"}
