"""`parallelize` and `init`: the wrapped step behaves as the step, on all devices."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sbpjax
from sbpjax.errors import ArgumentMismatch, InvalidOption

OPTIMIZER = optax.adam(1e-2)


def init_state(key):
    """Two layers and their Adam state."""
    up, down = jax.random.split(key)
    params = {"up": jax.random.normal(up, (32, 64)) * 0.1, "down": jax.random.normal(down, (64, 32)) * 0.1}
    return {"params": params, "opt_state": OPTIMIZER.init(params)}


def loss_of(params, x):
    return jnp.mean((jax.nn.relu(x @ params["up"]) @ params["down"] - x) ** 2)


def train_step(state, x):
    loss, gradients = jax.value_and_grad(loss_of)(state["params"], x)
    updates, opt_state = OPTIMIZER.update(gradients, state["opt_state"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, {"loss": loss}


def eval_step(state, x):
    return {"loss": loss_of(state["params"], x)}


def batch(size=16, seed=0):
    return np.random.default_rng(seed).normal(size=(size, 32)).astype(np.float32)


def run(step, state, steps=3):
    losses = []
    for i in range(steps):
        state, metrics = step(state, batch(seed=i))
        losses.append(float(metrics["loss"]))
    return state, losses


def close(got, wanted, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        if jnp.issubdtype(jnp.asarray(a).dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("emitter", ["shard_map", "jit"])
@pytest.mark.parametrize("strategy", ["auto", "dp", "fsdp"])
def test_steps_equal_those_of_one_device(strategy, emitter):
    step = sbpjax.parallelize(train_step, strategy=strategy, emitter=emitter)
    got = run(step, init_state(jax.random.key(0)))
    wanted = run(jax.jit(train_step), init_state(jax.random.key(0)))
    close(got, wanted)
    assert math.prod(step.plan.mesh_shape.values()) == 8


def test_decorator_with_and_without_options():
    @sbpjax.parallelize
    def double(x):
        return x * 2

    @sbpjax.parallelize(strategy="dp", mesh={"data": 8})
    def triple(x):
        """Three times x."""
        return x * 3

    np.testing.assert_array_equal(double(batch()), batch() * 2)
    np.testing.assert_array_equal(triple(batch()), batch() * 3)
    assert triple.__name__ == "triple" and triple.__doc__ == "Three times x."
    assert triple.plan.mesh_shape == {"data": 8}


def test_donated_state_is_given_away():
    step = sbpjax.parallelize(train_step, donate_argnums=0, mesh={"data": 8})
    state, _ = step(init_state(jax.random.key(0)), batch())
    again, _ = step(state, batch())
    assert all(x.is_deleted() for x in jax.tree.leaves(state))
    assert not any(x.is_deleted() for x in jax.tree.leaves(again))


def test_new_shapes_are_planned_anew_with_the_state_where_it_is():
    step = sbpjax.parallelize(train_step, strategy="fsdp", mesh={"data": 8})
    state, _ = step(init_state(jax.random.key(0)), batch(16))
    first = step.plan
    moved, metrics = step(state, batch(32))
    second = step.plan
    assert second is not first
    assert first.placements["state.params.up"] == second.placements["state.params.up"]
    wanted, _ = jax.jit(train_step)(init_state(jax.random.key(0)), batch(16))
    close(metrics, jax.jit(train_step)(wanted, batch(32))[1])
    step(moved, batch(16))
    assert step.plan is first


def test_evaluation_like_training_moves_nothing():
    step = sbpjax.parallelize(train_step, strategy="fsdp", mesh={"data": 8})
    state, _ = step(init_state(jax.random.key(0)), batch())
    evaluate = sbpjax.parallelize(eval_step, like=step.plan)
    metrics = evaluate(state, batch())
    close(metrics, jax.jit(eval_step)(state, batch()))
    where = evaluate.plan.in_shardings(evaluate.plan.make_mesh())[0]["params"]
    for x, sharding in zip(jax.tree.leaves(state["params"]), jax.tree.leaves(where), strict=True):
        assert x.sharding.is_equivalent_to(sharding, x.ndim)


def test_plan_is_asked_for_too_early():
    with pytest.raises(sbpjax.SbpjaxError, match="nothing is planned yet"):
        _ = sbpjax.parallelize(train_step).plan


def test_lower_plans_and_lowers_without_running():
    step = sbpjax.parallelize(train_step, mesh={"data": 8})
    shapes = jax.eval_shape(init_state, jax.random.key(0))
    lowered = step.lower(shapes, jax.ShapeDtypeStruct((16, 32), jnp.float32))
    assert lowered.compile().memory_analysis() is not None
    assert step.plan.mesh_shape == {"data": 8}


def test_arrays_of_an_explicit_mesh_are_accepted():
    explicit = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(batch(), NamedSharding(explicit, PartitionSpec("data", None)))
    step = sbpjax.parallelize(train_step, mesh={"data": 8})
    _, metrics = step(init_state(jax.random.key(0)), x)
    close(metrics, jax.jit(train_step)(init_state(jax.random.key(0)), batch())[1])


def test_works_within_the_users_own_jit():
    evaluate = sbpjax.parallelize(eval_step, mesh={"data": 8})
    metrics = jax.jit(evaluate)(init_state(jax.random.key(0)), batch())
    close(metrics, jax.jit(eval_step)(init_state(jax.random.key(0)), batch()))


def test_arrays_committed_elsewhere_are_moved():
    state = jax.device_put(init_state(jax.random.key(0)), jax.devices()[3])
    _, metrics = sbpjax.parallelize(train_step, mesh={"data": 8})(state, batch())
    close(metrics, jax.jit(train_step)(init_state(jax.random.key(0)), batch())[1])


@pytest.mark.parametrize("strategy", ["fsdp", "auto"])
def test_init_bears_the_state_split_and_equal(strategy):
    shapes = jax.eval_shape(init_state, jax.random.key(0))
    plan = sbpjax.plan(
        train_step, shapes, jax.ShapeDtypeStruct((16, 32), jnp.float32), mesh={"data": 8}, strategy=strategy
    )
    mesh = plan.make_mesh()
    state = sbpjax.init(init_state, jax.random.key(0), plan=plan, mesh=mesh)
    wanted = jax.jit(init_state)(jax.random.key(0))
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    for x, sharding in zip(jax.tree.leaves(state), jax.tree.leaves(plan.in_shardings(mesh)[0]), strict=True):
        assert x.sharding.is_equivalent_to(sharding, x.ndim)
    plan.emit(mesh)(state, batch())


def test_init_of_another_state_names_the_leaf():
    shapes = jax.eval_shape(init_state, jax.random.key(0))
    plan = sbpjax.plan(train_step, shapes, jax.ShapeDtypeStruct((16, 32), jnp.float32), mesh={"data": 8})

    def other(key):
        state = init_state(key)
        state["params"]["up"] = state["params"]["up"][:16]
        return state

    with pytest.raises(sbpjax.ArgumentMismatch, match=r"params\.up"):
        sbpjax.init(other, jax.random.key(0), plan=plan, mesh=plan.make_mesh())


def test_emitted_step_refuses_other_shapes_by_name():
    plan = sbpjax.plan(train_step, init_state(jax.random.key(0)), batch(), mesh={"data": 8})
    step = plan.emit(plan.make_mesh())
    with pytest.raises(sbpjax.ArgumentMismatch, match=r"x was float32\[16,32\].* is float32\[8,32\]"):
        step(init_state(jax.random.key(0)), batch(8))


class Net(nnx.Module):
    """A module with parameters, statistics and dropout."""

    def __init__(self, rngs):
        self.up = nnx.Linear(32, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.down = nnx.Linear(64, 32, rngs=rngs)

    def __call__(self, x):
        return self.down(self.dropout(nnx.relu(self.norm(self.up(x)))))


def make_net():
    model = Net(nnx.Rngs(0))
    # Adam would blow the noise in the gradient of a bias before a batch norm (zero in truth) up to full steps.
    return model, nnx.Optimizer(model, optax.sgd(1e-2, momentum=0.9), wrt=nnx.Param)


def nnx_step(model, optimizer, x):
    loss, gradients = nnx.value_and_grad(lambda m: jnp.mean((m(x) - x) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


def test_nnx_objects_planned_from_shapes_are_born_split_and_changed_in_place():
    shapes = nnx.eval_shape(make_net)
    plan = sbpjax.plan(
        nnx_step, *shapes, jax.ShapeDtypeStruct((16, 32), jnp.float32), mesh={"data": 8}, strategy="fsdp"
    )
    mesh = plan.make_mesh()
    model, optimizer = sbpjax.init(make_net, plan=plan, mesh=mesh, argnums=(-3, 1))
    assert model.up.kernel.get_value().sharding.spec == PartitionSpec(None, "data")
    step = plan.emit(mesh)
    got = [float(step(model, optimizer, batch(seed=i))) for i in range(3)]
    wanted_model, wanted_optimizer = make_net()
    reference = nnx.jit(nnx_step)
    wanted = [float(reference(wanted_model, wanted_optimizer, batch(seed=i))) for i in range(3)]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    close(nnx.state(model), nnx.state(wanted_model))


def test_positions_to_initialise_count_from_either_end():
    plan = sbpjax.plan(lambda x, w: x @ w, jnp.ones((8, 4)), jnp.ones((4, 2)), mesh={"data": 8})
    mesh = plan.make_mesh()
    np.testing.assert_array_equal(sbpjax.init(lambda: jnp.ones((4, 2)), plan=plan, mesh=mesh, argnums=-1), 1.0)
    with pytest.raises(ArgumentMismatch, match="no array argument at position 2"):
        sbpjax.init(lambda: jnp.ones((4, 2)), plan=plan, mesh=mesh, argnums=2)
    with pytest.raises(InvalidOption, match="argnums=-3: there are 2 positional"):
        sbpjax.init(lambda: jnp.ones((4, 2)), plan=plan, mesh=mesh, argnums=-3)
    with pytest.raises(InvalidOption, match="argnums='w': give the position"):
        sbpjax.init(lambda: jnp.ones((4, 2)), plan=plan, mesh=mesh, argnums="w")
    with pytest.raises(ArgumentMismatch, match="missing a required argument: 'key'"):
        sbpjax.init(lambda key: jnp.ones((4, 2)), plan=plan, mesh=mesh, argnums=1)


class Trainer(nnx.Module):
    """A module whose method is the step."""

    def __init__(self):
        self.weight = nnx.Param(jnp.ones((8, 8)))

    @sbpjax.parallelize(mesh={"data": 8})
    def grow(self, x):
        self.weight[...] = self.weight[...] + x.sum()
        return x @ self.weight[...]


def test_a_method_may_be_decorated():
    trainer = Trainer()
    x = jnp.ones((8, 8))
    np.testing.assert_array_equal(trainer.grow(x), np.full((8, 8), 8 * 65.0))
    np.testing.assert_array_equal(trainer.weight[...], np.full((8, 8), 65.0))
    assert trainer.grow.plan.mesh_shape == {"data": 8}
    assert Trainer.grow.plan is trainer.grow.plan
