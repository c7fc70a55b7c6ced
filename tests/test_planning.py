"""Plans: known answers, limits that are kept, determinism, files, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import PartitionSpec

import sbpjax
from sbpjax import B, Placement, S


def shaped(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def mlp_step(params, batch):
    """A two-layer MLP with a residual objective and plain gradient descent."""

    def loss_of(params):
        hidden = jax.nn.relu(batch["x"] @ params["up"])
        return jnp.mean((hidden @ params["down"] - batch["y"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def mlp_arguments(batch: int, width: int = 4096, hidden: int = 16384):
    params = {"up": shaped(width, hidden), "down": shaped(hidden, width)}
    return params, {"x": shaped(batch, width), "y": shaped(batch, width)}


def plan_mlp(batch: int = 64, width: int = 4096, hidden: int = 16384, **options) -> sbpjax.Plan:
    options = {"cluster": "8xh100", "mesh": {"data": 8}, "donate_argnums": 0} | options
    return sbpjax.plan(mlp_step, *mlp_arguments(batch, width, hidden), **options)


def test_small_batch_finds_column_and_row_split():
    plan = plan_mlp(batch=8)
    assert plan.placements["params.up"].on("data") == S(1)
    assert plan.placements["params.down"].on("data") == S(0)


def test_large_batch_finds_data_parallelism():
    plan = plan_mlp(batch=1 << 20, width=512, hidden=512)
    assert plan.placements["batch.x"].on("data") == S(0)
    # Parameters are whole where they are used: nothing but their gradients (and they themselves) is communicated.
    moved = sum(c.bytes * c.count for c in plan.collectives)
    assert moved <= 4 * 2 * 512 * 512 * 4


def test_carried_arguments_have_the_same_placement_in_and_out():
    plan = plan_mlp()
    assert plan.program is not None
    for leaf, placement in zip(plan.program.leaves, plan.layout.inputs, strict=True):
        if leaf.carried_to is not None:
            assert plan.layout.outputs[leaf.carried_to] == placement
    assert sum(leaf.carried_to is not None for leaf in plan.program.leaves) == 2


def test_bound_is_below_the_cost_and_exact_on_one_axis():
    plan = plan_mlp()
    assert 0 < plan.bound_seconds <= plan.step_seconds
    assert plan.gap < 1e-6


@pytest.mark.parametrize("mesh", [{"data": 2, "model": 4}, {"data": 2, "model": 2, "expert": 2}])
def test_more_axes_stay_near_their_bound(mesh):
    plan = plan_mlp(mesh=mesh)
    assert 0 < plan.bound_seconds <= plan.step_seconds
    assert plan.gap < 0.05


def test_equal_input_gives_the_equal_plan():
    one, two = plan_mlp(), plan_mlp()
    assert one.layout.inputs == two.layout.inputs
    assert one.layout.body.signatures == two.layout.body.signatures
    assert one.step_seconds == two.step_seconds


def test_optimizer_state_is_split_when_memory_binds():
    optimizer = optax.adam(1e-3)

    def step(state, batch):
        params, opt_state = state
        gradients = jax.grad(lambda p: jnp.mean((jax.nn.relu(batch @ p["up"]) @ p["down"] - batch) ** 2))(params)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state

    params, batch = {"up": shaped(1024, 4096), "down": shaped(4096, 1024)}, shaped(4096, 1024)
    state = (params, jax.eval_shape(optimizer.init, params))
    whole = {"name": "whole parameters", "roles": {"parameter": {"data": "B"}, "batch": {"data": "S(0)"}}}

    def plan(limit):
        options = {"cluster": "8xh100", "mesh": {"data": 8}, "strategy": whole, "donate_argnums": 0}
        return sbpjax.plan(step, state, batch, memory_limit=limit, **options)

    free = plan(None)
    tight = plan(int(free.peak_bytes * 0.75))
    assert free.placements["state.1.0.mu.up"] == Placement.broadcast(2)
    assert tight.placements["state.1.0.mu.up"].split_axes == ("data",)
    assert tight.peak_bytes <= tight.limit_bytes < free.peak_bytes
    assert tight.step_seconds > free.step_seconds


def test_impossible_limit_says_how_much_is_needed_and_by_what():
    with pytest.raises(sbpjax.InfeasiblePlan) as refused:
        plan_mlp(memory_limit="1MiB")
    message = str(refused.value)
    assert "fits 1.00 MiB on 8 devices: the smallest needs 1" in message
    assert "largest: " in message and "parameters 64.0 MiB" in message


def test_a_limit_that_the_fastest_plan_keeps_changes_nothing():
    free = plan_mlp(batch=1 << 14)
    limited = plan_mlp(batch=1 << 14, memory_limit=free.peak_bytes)
    assert limited.step_seconds == free.step_seconds
    assert limited.bound_seconds == free.bound_seconds


def test_size_one_axes_are_known_and_split_nothing():
    plan = plan_mlp(mesh={"data": 1, "model": 8})
    assert plan.mesh_shape == {"data": 1, "model": 8}
    assert all(p.on("data") == B for p in plan.placements.values())


def test_planner_chooses_the_mesh_when_none_is_given():
    plan = plan_mlp(mesh=None)
    size = 1
    for n in plan.mesh_shape.values():
        size *= n
    assert size == 8
    assert plan.step_seconds <= plan_mlp(mesh={"data": 8}).step_seconds * (1 + 1e-9)


def test_constrain_is_kept():
    def step(x, w):
        return jnp.sum(sbpjax.constrain(x @ w, data=S(1)) ** 2)

    plan = sbpjax.plan(step, shaped(64, 64), shaped(64, 64), cluster="8xh100", mesh={"data": 8})
    assert plan.program is not None
    op = next(i for i, op in enumerate(plan.program.graph.ops) if op.name == "sbp_constrain")
    assert plan.layout.body.signatures[op].results[0].on("data") == S(1)


def test_constrain_that_cannot_hold_is_refused():
    def step(x):
        return sbpjax.constrain(x * 2, data=S(0)).sum()

    with pytest.raises(sbpjax.InvalidStrategy, match=r"constrain\(data=S\(0\)\) cannot hold"):
        sbpjax.plan(step, shaped(7, 64), cluster="8xh100", mesh={"data": 8})


def test_saved_plan_comes_back_and_binds(tmp_path):
    plan = plan_mlp(mesh={"data": 2, "model": 4})
    plan.save(tmp_path / "plan.yaml")
    loaded = sbpjax.Plan.load(tmp_path / "plan.yaml")
    assert loaded.placements == plan.placements
    assert loaded.step_seconds == plan.step_seconds
    assert loaded.collectives == plan.collectives
    with pytest.raises(sbpjax.UnboundPlan, match="bind"):
        loaded.emit(loaded.make_mesh())
    bound = loaded.bind(mlp_step, *mlp_arguments(64), donate_argnums=0)
    assert bound.layout.body.signatures == plan.layout.body.signatures
    assert bound.layout.body.versions == plan.layout.body.versions


def test_plan_does_not_bind_to_another_program(tmp_path):
    plan_mlp().save(tmp_path / "plan.yaml")
    loaded = sbpjax.Plan.load(tmp_path / "plan.yaml")
    with pytest.raises(sbpjax.InvalidPlanFile, match="another program"):
        loaded.bind(mlp_step, *mlp_arguments(32), donate_argnums=0)


def test_like_fixes_every_shared_leaf():
    train = plan_mlp(batch=8)

    def evaluate(params, batch):
        return jnp.mean((jax.nn.relu(batch["x"] @ params["up"]) @ params["down"] - batch["y"]) ** 2)

    plan = sbpjax.plan(evaluate, *mlp_arguments(8), cluster="8xh100", like=train)
    for path in ("params.up", "params.down"):
        assert plan.placements[path] == train.placements[path]


def test_unsplit_ops_are_listed_with_reason_and_cost():
    def step(x):
        return jnp.linalg.svd(x, compute_uv=False).sum()

    plan = sbpjax.plan(step, shaped(96, 96), cluster="8xh100", mesh={"data": 8})
    assert any(u.primitive == "svd" and u.seconds > 0 and u.reason for u in plan.unsplit)


def test_indivisible_argument_is_listed_with_the_size_that_would_do():
    def step(table, ids):
        return table[ids].sum()

    plan = sbpjax.plan(step, shaped(50257, 7), shaped(64, dtype=jnp.int32), cluster="8xh100", mesh={"data": 8})
    row = next(i for i in plan.indivisible if i.path == "table")
    assert (row.dim, row.axis, row.would_do) == (0, "data", 50264)
    assert row.bytes_lost == 50257 * 7 * 4 * 7 // 8


def test_one_device_has_nothing_to_split():
    plan = plan_mlp(mesh={"data": 1})
    assert plan.unsplit == () and plan.collectives == ()


BAD = {
    "not a function": (lambda: sbpjax.plan(3), sbpjax.NotTraceable, "int"),
    "unknown cluster": (lambda: plan_mlp(cluster="8xh10"), sbpjax.UnknownName, "h100"),
    "unknown strategy": (lambda: plan_mlp(strategy="megatrom"), sbpjax.UnknownName, "megatron"),
    "mesh too large": (lambda: plan_mlp(mesh={"data": 16}), sbpjax.InvalidMesh, "16"),
    "mesh of nothing": (lambda: plan_mlp(mesh={"data": 0}), sbpjax.InvalidMesh, "data"),
    "mesh of a truth": (lambda: plan_mlp(mesh={"data": True}), sbpjax.InvalidMesh, "True"),
    "mesh axis that is no text": (lambda: plan_mlp(mesh={8: 8}), sbpjax.InvalidMesh, "text"),
    "mesh axis without a name": (lambda: plan_mlp(mesh={"": 8}), sbpjax.InvalidMesh, "text"),
    "like a path": (lambda: plan_mlp(like="plan.yaml"), sbpjax.SbpjaxError, "Plan.load"),
    "emission on no mesh": (lambda: plan_mlp().emit({"data": 8}), sbpjax.InvalidMesh, "make_mesh"),
    "mesh of another kind": (lambda: plan_mlp(mesh="data=8"), sbpjax.InvalidMesh, "data=8"),
    "shard_map inside": (
        lambda: sbpjax.plan(
            jax.shard_map(
                lambda x: x * 2,
                mesh=jax.make_mesh((8,), ("data",)),
                in_specs=PartitionSpec(),
                out_specs=PartitionSpec(),
            ),
            shaped(8, 8),
            cluster="8xh100",
        ),
        sbpjax.NotTraceable,
        "shard_map of its own",
    ),
    "unknown option": (lambda: plan_mlp(memory="1GiB"), TypeError, "memory"),
    "unknown emitter": (
        lambda: (p := plan_mlp()).emit(p.make_mesh(), emitter="pmap"),  # type: ignore[arg-type]
        sbpjax.UnknownName,
        "shard_map",
    ),
    "unknown axis in constrain": (
        lambda: sbpjax.plan(lambda x: sbpjax.constrain(x, dta=S(0)).sum(), shaped(8, 8), cluster="8xh100"),
        sbpjax.UnknownName,
        "data",
    ),
    "another mesh": (
        lambda: plan_mlp().emit(plan_mlp(mesh={"model": 8}).make_mesh()),
        sbpjax.InvalidMesh,
        "make_mesh",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case):
    attempt, error, words = BAD[case]
    with pytest.raises(error, match=words):
        attempt()
