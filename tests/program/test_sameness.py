"""Static fields are compared by what they are made of."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from flax.training.train_state import TrainState

from sbpjax.program.sameness import same, same_structure


def make_state(rate=1e-3, features=4):
    model = nn.Dense(features)
    params = model.init(jax.random.key(0), jnp.zeros((1, 3)))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(rate, weight_decay=0.1))


def structure(**options):
    return jax.tree.structure(jax.eval_shape(lambda: make_state(**options)))


def test_states_made_alike_are_the_same():
    one, other = structure(), structure()
    assert one != other, "Python tells them apart, or this module has no purpose"
    assert same_structure(one, other)


@pytest.mark.parametrize("options", [{"rate": 1e-2}, {"features": 5}])
def test_states_made_differently_are_not(options):
    assert not same_structure(structure(), structure(**options))


def test_schedules_are_compared_by_their_figures():
    assert same(optax.cosine_decay_schedule(1.0, 100), optax.cosine_decay_schedule(1.0, 100))
    assert not same(optax.cosine_decay_schedule(1.0, 100), optax.cosine_decay_schedule(1.0, 200))


def test_recursive_functions_end():
    def make(step):
        def count(n):
            return count(n - step) if n else 0

        return count

    assert same(make(1), make(1))
    assert not same(make(1), make(2))


def test_other_keys_are_other_structures():
    assert not same_structure(jax.tree.structure({"a": 1, "b": 2}), jax.tree.structure({"a": 1, "c": 2}))
    assert not same_structure(jax.tree.structure([1, [2]]), jax.tree.structure([1, 2]))
