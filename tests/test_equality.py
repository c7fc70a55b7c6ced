"""Emission equals one device: real train steps, dropout on; strategies, emitters and meshes in pairs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from equality import (
    EMITTERS,
    SHAPES,
    STRATEGIES,
    assert_near,
    begin,
    check_five_steps,
    check_hundred_steps,
    matrix,
    on_one_device,
    pairwise_cover,
    parallel,
    run,
)
from flax import nnx
from models import EXAMPLES, MLP

import sbpjax

COVER = pairwise_cover(matrix())
LONG = [((*EXAMPLES, "mlp")[i % 5], s, EMITTERS[i % 2], SHAPES[i % 3]) for i, s in enumerate(STRATEGIES)]


def test_cover_holds_every_pair_in_at_most_forty_programs():
    assert len(COVER) + len(LONG) <= 40
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        assert {(c[i], c[j]) for c in COVER} == {(c[i], c[j]) for c in matrix()}


@pytest.mark.parametrize(("name", "strategy", "emitter", "sizes"), COVER)
def test_five_steps_in_float64_equal_one_device(name, strategy, emitter, sizes):
    check_five_steps(name, strategy, emitter, sizes)


@pytest.mark.parametrize(("name", "strategy", "emitter", "sizes"), LONG)
def test_hundred_steps_in_float32_equal_one_device(name, strategy, emitter, sizes):
    check_hundred_steps(name, strategy, emitter, sizes)


@pytest.mark.parametrize("name", EXAMPLES)
def test_evaluation_like_training_moves_nothing(name):
    """Every leaf of the state that evaluation takes stays where training left it, and the answer is one device's."""
    step, state = parallel(name, "float32", "auto", "shard_map", (2, 4))
    state = run(name, "float32", step, state, 1, 0).state
    alone = on_one_device(name, "float32", 1, 0).state
    batch = EXAMPLES[name].batch(np.float32, 9)
    fn = EXAMPLES[name].evaluate(np.float32)
    jit = jax.jit
    model, alone_model = state[0], alone[0]
    if isinstance(model, nnx.Module):
        model.eval(), alone_model.eval()
        jit = nnx.jit
    evaluate = sbpjax.parallelize(fn, like=step.plan)
    with jax.transfer_guard_device_to_device("disallow_explicit"):
        got = evaluate(model, batch)
    assert_near(got, jax.tree.map(np.array, jit(fn)(alone_model, batch)), 1e-5, "evaluation")
    shared = step.plan.placements.keys() & evaluate.plan.placements.keys()
    assert len(shared) >= len(jax.tree.leaves(EXAMPLES[name].trees(alone)["params"]))
    for path in shared:
        assert evaluate.plan.placements[path] == step.plan.placements[path], path


def test_nnx_modules_are_changed_in_place_as_by_nnx_jit():
    """The caller's own objects hold the new state: parameters, statistics, dropout's counts, Adam's moments."""
    with jax.enable_x64(True):
        step, state = parallel("vit", "float64", "fsdp", "shard_map", (8,))
        model, optimizer = state
        kernel, statistics, rngs = model.head.kernel, model.norm.mean, model.blocks[1].dropout.rngs
        before = np.array(kernel)
        assert run("vit", "float64", step, state, 2, 0).state == (model, optimizer)
        alone = on_one_device("vit", "float64", 2, 0).state
    assert (model.head.kernel, model.norm.mean, model.blocks[1].dropout.rngs) == (kernel, statistics, rngs)
    assert not np.array_equal(before, kernel)
    assert int(rngs.count[...]) == 4  # two uses in each of two steps
    assert nnx.graphdef((model, optimizer)) == nnx.graphdef(alone)
    for part, other in ((model, alone[0]), (optimizer, alone[1])):
        for kind in (nnx.Param, nnx.BatchStat, nnx.RngCount, nnx.optimizer.OptState):
            assert_near(nnx.state(part, kind), jax.tree.map(np.array, nnx.state(other, kind)), 1e-9, kind.__name__)


def test_state_that_comes_back_compiles_nothing_anew(caplog):
    step, state = begin("mlp", "float32")
    plan = sbpjax.plan(step, *state, MLP.batch(np.float32, 0), mesh={"data": 8})
    emitted = plan.emit(plan.make_mesh())
    with jax.log_compiles():
        run("mlp", "float32", emitted, state, 3, 0)
    assert sum("Compiling jit(train_step)" in record.message for record in caplog.records) == 1
